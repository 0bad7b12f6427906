"""Profiles of households: the mean of ln power by time of the day, which is what groups are formed by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.runs.shards import long_frame, read_shard, write_frame
from shoal.sources.meters.season import FLOOR, log_power, phases

if TYPE_CHECKING:
    import polars as pl

#: Entries of a profile at most: quarter-hours of a day; shorter intervals are averaged.
MOST_ENTRIES = 96


@dataclass(frozen=True)
class Profiled(Record):
    """How many profiles a shard has."""

    households: int


def make_profiles(shard: str | Path, out: str | Path) -> Profiled:
    """Write the profiles of one readings shard (household, profile in single precision)."""
    rows, step = read_shard(shard)
    write_profiles(out, rows["household"], mean_days(rows, step))
    return Profiled(len(rows))


def write_profiles(out: str | Path, names: pl.Series, points: NDArray[np.float32]) -> None:
    """Write names and their (n, d) profiles."""
    import polars as pl

    profile = pl.Series("profile", points, dtype=pl.Array(pl.Float32, points.shape[1]))
    write_frame(out, pl.DataFrame({"household": names, "profile": profile}))


def mean_days(shard: pl.DataFrame, step: timedelta) -> NDArray[np.float32]:
    """(n, d) mean of ln power by time of the day on the wall clock, over all readings of each household.

    A time of the day without any reading takes the household's overall mean.
    """
    per_day = int(timedelta(days=1) / step)
    entries = min(MOST_ENTRIES, per_day)
    n = len(shard)
    long = long_frame(shard, step)
    kw = long["kw"].fill_null(float("nan")).to_numpy()
    seen = np.isfinite(kw)
    row = np.repeat(np.arange(n), shard["kw"].list.len().to_numpy())[seen]
    logs = log_power(kw[seen], FLOOR)
    at = row * entries + (phases(long["timestamp"], "day", step)[seen] * entries) // per_day
    count = np.bincount(at, minlength=n * entries).reshape(n, entries)
    total = np.bincount(at, weights=logs, minlength=n * entries).reshape(n, entries)
    overall = total.sum(axis=1) / np.maximum(count.sum(axis=1), 1)
    means = np.where(count > 0, total / np.maximum(count, 1), overall[:, None])
    return means.astype(np.float32)


def read_profiles(path: str | Path) -> tuple[pl.Series, NDArray[np.float32]]:
    """Names and (n, d) profiles of one shard."""
    import polars as pl

    name = Path(path).name
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"profiles: {name} cannot be read as Parquet") from None
    dtype = frame.schema.get("profile")
    if not isinstance(dtype, pl.Array) or dtype.inner != pl.Float32 or frame.schema.get("household") != pl.String:
        raise InputError(f"profiles: {name} must have the columns household and profile, as profiles of a shard have")
    return frame["household"], frame["profile"].to_numpy()
