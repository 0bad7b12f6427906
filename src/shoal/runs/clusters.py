"""Clusters of all profiles, out of core: k-means on a sample, then mini-batch k-means over every shard.

(Sculley 2010, "Web-scale k-means clustering".) Shards are visited in an order drawn from the seed; matrix products run
on one thread. Equal seeds and equal shards give equal clusters, whatever runs the tasks. Where all profiles fit in the
sample, it is plain k-means. Memory: the sample, one shard of profiles and the centers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.runs.exchange import Sent, scatter
from shoal.runs.profiles import read_profiles
from shoal.runs.shards import write_array, write_frame
from shoal.sources.meters.columns import HOUSEHOLD, first_known
from shoal.sources.meters.meter_file import read_table
from shoal.sources.meters.quality import from_pandas, is_pandas

if TYPE_CHECKING:
    import polars as pl

#: Profiles that the first centers are found from.
SAMPLE = 20_000

#: A cluster has about this many groups: few enough for k-means over a million, many enough to be compact.
GROUPS_PER_CLUSTER = 20


@dataclass(frozen=True)
class Clusters(Record):
    """How many clusters there are to choose from."""

    clusters: int


def cluster_count(n_households: int, cap: int) -> int:
    """Clusters for groups of at most ``cap``."""
    return max(1, round(n_households / (GROUPS_PER_CLUSTER * cap)))


def fit_centers(
    profiles: Sequence[str | Path],
    sizes: Sequence[int],
    n_clusters: int,
    out: str | Path,
    seed: int = 0,
    *,
    passes: int = 1,
) -> Clusters:
    """Write the centers (n_clusters, d) of mini-batch k-means over profile shards with ``sizes`` rows each."""
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    k = validation.count(n_clusters=n_clusters)
    seed = validation.count(at_least=0, seed=seed)
    total = int(sum(sizes))
    if k > total:
        raise InputError(f"n_clusters must not exceed the number of households ({total})")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    everything = total <= max(SAMPLE, k)
    with threadpool_limits(limits=1):
        sample = _sample(profiles, sizes, np.arange(total) if everything else rng.choice(total, max(SAMPLE, k), False))
        first = KMeans(k, n_init=4 if everything else 1, max_iter=100, random_state=seed).fit(sample)
        centers = first.cluster_centers_
        if not everything:
            model = MiniBatchKMeans(k, init=centers, n_init=1, random_state=seed, reassignment_ratio=0.0)
            for _ in range(validation.count(passes=passes)):
                for shard in rng.permutation(len(profiles)):
                    _, points = read_profiles(profiles[shard])
                    if len(points):
                        model.partial_fit(points)
            centers = model.cluster_centers_
    write_array(out, np.asarray(centers, dtype=np.float64))
    return Clusters(k)


def assign_by_center(profiles: str | Path, centers: str | Path, out: str | Path) -> Sent:
    """Sort one shard's profiles by the nearest of the centers in a file; how many households each cluster has here."""
    from threadpoolctl import threadpool_limits

    names, points = read_profiles(profiles)
    known = np.load(centers)
    if points.shape[1] != known.shape[1]:
        raise InputError(f"profiles: {Path(profiles).name} has another metering interval than the other shards")
    with threadpool_limits(limits=1):
        away = (known**2).sum(axis=1) - 2 * (points.astype(np.float64) @ known.T)
    return _sorted(out, names, points, np.argmin(away, axis=1) if len(points) else np.zeros(0, dtype=np.int64))


def assign_by_value(profiles: str | Path, values: str | Path, out: str | Path) -> Sent:
    """Sort one shard's profiles by the number of their value in a household table (:func:`write_values`)."""
    import polars as pl

    names, points = read_profiles(profiles)
    known = pl.scan_parquet(values).filter(pl.col("household").is_in(names.implode())).collect()
    found = names.to_frame("household").join(known, on="household", how="left", maintain_order="left")
    absent = found.filter(pl.col("cluster").is_null())["household"]
    if len(absent):
        raise InputError(f"table has no row for {len(absent)} of those to be grouped; add their rows to it")
    return _sorted(out, names, points, found["cluster"].to_numpy())


def write_values(table: Any, column: str, out: str | Path, *, household: str | None = None) -> Clusters:
    """Write the number of each household's value in ``column`` (feeder, postcode ...); how many values there are.

    ``table`` is a polars or pandas frame or a CSV file with one row per household, named in the column ``household``
    or in one whose name tells. Households without an entry share one value: they are unknown alike.
    """
    import polars as pl

    if is_pandas(table):
        table = from_pandas(table, "table")
    if not isinstance(table, pl.DataFrame):
        try:
            table = read_table(Path(table))
        except (pl.exceptions.PolarsError, OSError, UnicodeError):
            raise InputError(f"table: {Path(table).name} cannot be read as a CSV file") from None
    household = household or first_known(table.columns, HOUSEHOLD) or "household"
    missing = [c for c in (household, column) if c not in table.columns]
    if missing:
        raise InputError(
            f"table lacks the column(s) {missing}; found {table.columns[:12]}. Name them: --column for the boundaries, "
            "--table-household for the households"
        )
    frame = table.select(
        household=pl.col(household).cast(pl.String).str.strip_chars(),
        value=pl.col(column).cast(pl.String).fill_null(""),
    )
    if frame["household"].n_unique() != len(frame):
        raise InputError("table must have one row per household: at least one household occurs twice")
    values = frame["value"].unique().sort()
    numbered = frame.select(
        "household", cluster=pl.col("value").cast(pl.Enum(values)).to_physical().cast(pl.Int64)
    ).sort("household")
    write_frame(out, numbered)
    return Clusters(len(values))


def _sorted(out: str | Path, names: pl.Series, points: NDArray[np.float32], cluster: Any) -> Sent:
    import polars as pl

    profile = pl.Series("profile", points, dtype=pl.Array(pl.Float32, points.shape[1]))
    rows = pl.DataFrame({"household": names, "profile": profile, "cluster": pl.Series(cluster, dtype=pl.Int64)})
    return scatter(out, rows, "cluster")


def _sample(profiles: Sequence[str | Path], sizes: Sequence[int], chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    """The chosen rows among all shards' profiles, in order."""
    chosen = np.sort(chosen)
    ends = np.cumsum(sizes)
    parts = []
    for path, size, end in zip(profiles, sizes, ends, strict=True):
        here = chosen[(chosen >= end - size) & (chosen < end)] - (end - size)
        if len(here):
            _, points = read_profiles(path)
            if len(points) != size:
                raise InputError(f"profiles: {Path(path).name} holds {len(points)} households, not {size}")
            parts.append(points[here])
    if len({part.shape[1] for part in parts}) > 1:
        raise InputError("profiles: the shards have different metering intervals; partition all input together")
    return np.concatenate(parts)
