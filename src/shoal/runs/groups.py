"""Cells of bounded size from clusters, and their place in shards: crowds are formed inside a cell.

A cluster with more than ``cap`` members is cut into compact groups of nearly equal size (``cut``). A
cluster with fewer than ``floor`` members, a crowd, joins the one whose mean profile is nearest, so that nobody is
alone. What cells there are does not depend on the shards: a shard holds whole ones.

Memory: names and group numbers of all households; the profiles of one cluster, or of several that together have at most
:data:`BLOCK` households (12 bytes per entry: single precision as read, double while it is cut); where clusters must be
joined, also a mean profile of each cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.laws.cells import cut
from shoal.runs.exchange import gather
from shoal.runs.profiles import read_profiles
from shoal.runs.shards import write_frame

if TYPE_CHECKING:
    import polars as pl

#: Households whose profiles are in memory at a time, where clusters are smaller.
BLOCK = 65_536

#: Largest and smallest group by default.
CAP, FLOOR = 50, 2


@dataclass(frozen=True)
class Grouping(Record):
    """What was formed: sizes of groups, and households and groups per shard, in order of their numbers."""

    households: int
    groups: int
    shards: int
    smallest: int
    largest: int
    edges: int
    joined: int  #: clusters too small to stand alone


def form_groups(
    sorted_profiles: Sequence[str | Path],
    counts: Mapping[int, int],
    out: str | Path,
    *,
    cap: int = CAP,
    floor: int = FLOOR,
    shard_size: int = 1000,
    join: bool = True,
) -> Grouping:
    """Write the assignment (household, group, shard; by household).

    Args:
        sorted_profiles: files of :func:`shoal.runs.clusters.assign_by_center` or ``assign_by_value``.
        counts: households of each cluster, over all files.
        out: where the assignment goes.
        cap: largest group; at least 2·floor − 1, so that what is cut in two is not too small.
        floor: smallest group.
        shard_size: households per shard, about; consecutive groups, whole ones only.
        join: whether clusters below ``floor`` join the nearest. Values that an observer may know are not joined:
            whoever shares theirs with nobody is a group of one, and has nobody to hide among.
    """
    import polars as pl

    floor = validation.count(floor=floor)
    cap = validation.count(at_least=max(2 * floor - 1, 1), cap=cap)
    size = validation.count(shard_size=shard_size)
    live = {int(c): int(n) for c, n in counts.items() if n > 0}
    total = sum(live.values())
    if total < floor:
        raise InputError(
            f"crowd: {total} can be used, and a crowd has at least {floor}; choose a smaller --crowd, or have more to "
            "hide among"
        )
    guests = _joined(sorted_profiles, live, floor) if join else {}
    hosts: dict[int, list[int]] = {}
    for cluster in sorted(live):
        hosts.setdefault(guests.get(cluster, cluster), []).append(cluster)
    names: list[pl.Series] = []
    numbers: list[NDArray[np.int64]] = []
    groups = 0
    for block in _blocks(hosts, live):
        host_of = {cluster: host for host in block for cluster in hosts[host]}
        rows, _ = gather(sorted_profiles, host_of)
        rows = rows.with_columns(host=pl.col("cluster").replace_strict(host_of)).sort("host", "household")
        for members in rows.partition_by("host", maintain_order=True):
            cell = cut(members["profile"].to_numpy().astype(np.float64), cap)
            names.append(members["household"])
            numbers.append(groups + cell)
            groups += int(cell.max()) + 1
    household, group = pl.concat(names), np.concatenate(numbers)
    if household.n_unique() != len(household):
        raise InputError("profiles: at least one household is in two shards; partition all input together")
    if len(household) != total:
        raise InputError(f"counts: {total} households were counted and {len(household)} found; sort the profiles again")
    sizes = np.bincount(group)
    shard = pack(sizes, size)
    frame = pl.DataFrame({"household": household, "group": group, "shard": shard[group]}).sort("household")
    write_frame(out, frame)
    return _grouping(frame, len(guests))


def places_given(profiles: Sequence[str], assignment: str, values: str | None, out: str) -> Grouping:
    """Write the assignment with the households that are new: each in the group whose mean profile is nearest.

    ``profiles`` are all those of a later day. Where ``values`` of the households decide, of the groups whose members
    have the household's value, most of them; a value that no group has becomes a group of its own, in the shard with
    the fewest households. Nobody who had a group changes it.
    """
    import polars as pl

    known = pl.read_parquet(assignment)
    value_of: dict[int, int] = {}
    value = pl.DataFrame(schema={"household": pl.String, "value": pl.Int64})
    if values is not None:
        value = pl.read_parquet(values).rename({"cluster": "value"})
        counted = known.join(value, on="household").group_by("group", "value").len()
        ordered = counted.sort("group", "len", "value", descending=[False, True, False])
        value_of = dict(ordered.unique("group", keep="first").select("group", "value").iter_rows())
    sums: dict[int, NDArray[np.float64]] = {}
    count: Counter[int] = Counter()
    new: list[tuple[str, int, NDArray[np.float64]]] = []
    for path in profiles:
        names, points = read_profiles(path)
        frame = names.to_frame("household").join(known, on="household", how="left", maintain_order="left")
        frame = frame.join(value, on="household", how="left", maintain_order="left")
        for (name, group, _, own), point in zip(frame.iter_rows(), points.astype(np.float64), strict=True):
            if group is None and own is None and values is not None:
                raise InputError(
                    "table has no row for at least one household that is new; add its row, and update again"
                )
            if group is None:
                new.append((name, -1 if own is None else own, point))
            else:
                sums[group] = sums.get(group, 0.0) + point
                count[group] += 1
    there = sorted(sums)
    centers = np.array([sums[group] / count[group] for group in there])
    held_by = np.array([value_of.get(group, -1) for group in there])
    shard_of = dict(known.select("group", "shard").unique().iter_rows())
    filled = Counter(known["shard"].to_list())
    rows = []
    for name, own, point in new:
        fitting = np.flatnonzero(held_by == own)
        if len(fitting):
            group = there[fitting[np.argmin(((centers[fitting] - point) ** 2).sum(axis=1))]]
        else:
            group = next((one for one, held in value_of.items() if held == own), max(shard_of) + 1)
            value_of[group] = own
            shard_of.setdefault(group, min(filled, key=lambda shard: (filled[shard], shard)))
        filled[shard_of[group]] += 1
        rows.append((name, group, shard_of[group]))
    frame = pl.concat([known, pl.DataFrame(rows, schema=known.schema, orient="row")]).sort("household")
    write_frame(out, frame)
    return _grouping(frame, 0)


def _grouping(frame: pl.DataFrame, joined: int) -> Grouping:
    sizes = np.bincount(frame["group"].to_numpy())
    return Grouping(
        households=len(frame),
        groups=len(sizes),
        shards=int(frame["shard"].to_numpy().max()) + 1,
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        edges=int((sizes * (sizes - 1) // 2).sum()),
        joined=joined,
    )


def pack(sizes: NDArray[np.int64], shard_size: int) -> NDArray[np.int64]:
    """Shard of each group: consecutive groups, shards alike in size up to a group."""
    total = int(sizes.sum())
    shards = max(round(total / shard_size), 1)
    middle = 2 * np.cumsum(sizes) - sizes  # twice the place of a group's middle member
    _, shard = np.unique(middle * shards // (2 * total), return_inverse=True)
    return np.asarray(shard, dtype=np.int64)


def _blocks(hosts: Mapping[int, Sequence[int]], live: Mapping[int, int]) -> list[list[int]]:
    """Hosts in order, together while their members are few."""
    blocks: list[list[int]] = []
    filled = 0
    for host in sorted(hosts):
        members = sum(live[c] for c in hosts[host])
        if not blocks or filled + members > BLOCK:
            blocks.append([])
            filled = 0
        blocks[-1].append(host)
        filled += members
    return blocks


def _joined(paths: Sequence[str | Path], live: Mapping[int, int], floor: int) -> dict[int, int]:
    """Cluster below the floor -> the cluster it joins, by nearest mean; all become one where all are below."""
    clusters = np.array(sorted(live))
    count = np.array([live[c] for c in clusters])
    small, large = np.flatnonzero(count < floor), np.flatnonzero(count >= floor)
    if not len(small):
        return {}
    if not len(large):
        return {int(c): int(clusters[0]) for c in clusters[1:]}
    means = _sums(paths, live) / count[:, None]
    centers = means[large]
    host = np.empty(len(small), dtype=np.int64)
    for i in range(0, len(small), 1000):
        away = (centers**2).sum(axis=1) - 2 * np.einsum("ik,jk->ij", means[small[i : i + 1000]], centers)
        host[i : i + 1000] = large[np.argmin(away, axis=1)]
    return {int(clusters[i]): int(clusters[j]) for i, j in zip(small, host, strict=True)}


def _sums(paths: Sequence[str | Path], live: Mapping[int, int]) -> NDArray[np.float64]:
    """Summed profiles of each cluster."""
    sums: list[NDArray[np.float64]] = []
    for block in _blocks({c: [c] for c in live}, live):
        rows, _ = gather(paths, block)
        points = rows["profile"].to_numpy().astype(np.float64)
        at = np.searchsorted(np.array(block), rows["cluster"].to_numpy())
        part = np.zeros((len(block), points.shape[1]))
        np.add.at(part, at, points)
        sums.append(part)
    return np.concatenate(sums)
