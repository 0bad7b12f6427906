"""Blocks of whole crowds, for the methods that design something: laws of everybody, gathered and cut anew.

A block is a file like a shard of the first stage (``<key>.zip`` or ``<key>.table``) with the members of some crowds who
have an answer today, and beside it ``<key>.members.parquet``: label, crowd and stored value of every member, those
without an answer included, since who has one hides beside them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.runs.context import FIT, Context
from shoal.runs.fitted import Fitted
from shoal.runs.jobs import out_path
from shoal.runs.shards import write_array, write_frame
from shoal.runs.stages.crowd_stage import CROWDS, ROWS
from shoal.runs.store import Part, finished, put_whole, receipted
from shoal.sources.meters.answered import TRUTH
from shoal.sources.meters.forecast import Forecasts, joined_forecasts
from shoal.sources.tables.class_table import SUFFIX, ClassTable
from shoal.sources.tables.sample_laws import refuse_copies, sample_laws
from shoal.validation import IndexArray

if TYPE_CHECKING:
    import polars as pl

BLOCKS, MEMBERS = "blocks", "members.parquet"
#: Entries of a table that a block holds, at most: what a worker has in memory.
ENTRIES = 2_000_000


@dataclass(frozen=True)
class BlockFacts(Record):
    """What a block holds."""

    labels: int
    crowds: int
    first: str  #: one of the labels: a block is on record where this one is
    not_gaussian: int = 0  #: labels whose rows do not follow the Gaussian law that the promise rests on


def make_blocks(context: Context) -> list[Part]:
    """The blocks of a run, written once; crowds with too few answers today are in none."""
    import polars as pl

    config, listing = context.config, context.listing(FIT)
    for shard in listing.parts:
        shard.check()
    rows = pl.read_parquet(context.folder / ROWS).filter(pl.col("news") & ~pl.col("recorded") & ~pl.col("retired"))
    members = pl.read_parquet(context.folder / CROWDS).filter(~pl.col("waits"))
    members = members.filter(pl.col("crowd").is_in(rows["crowd"].implode())).select("label", "crowd", "stored", "value")
    if not len(members):
        raise InputError(
            "period: no crowd has enough members with something new, or all were released for this period; nothing was "
            "released"
        )
    settings = {"crowds": context.folder.digest(CROWDS), **config.part("shard_size", "clip")}
    table = config.label is not None
    shards: list[Any] = [(ClassTable if table else Forecasts).load(part.path) for part in listing.parts]
    size = config.shard_size
    if table:
        entries = sum(shard.values.size for shard in shards if isinstance(shard, ClassTable))
        size = max(min(size, ENTRIES * len(members) // max(entries, 1)), 2 * config.crowd)
    blocks = []
    for number, block in enumerate(_cut(members, size)):
        path = Path(
            out_path(context.path, BLOCKS, SUFFIX if table else "zip", {**settings, "number": number}, listing.parts)
        )
        blocks.append(finished(path) or _written(path, block, shards, listing.parts, config.clip))
    return blocks


def _cut(members: pl.DataFrame, size: int) -> list[pl.DataFrame]:
    """Whole crowds, in order of their numbers, in parts of about so many labels."""
    crowds = members.group_by("crowd").len().sort("crowd")
    before = crowds["len"].cum_sum() - crowds["len"]
    block = crowds.select("crowd", block=before // size)
    return [part for _, part in sorted(
        members.join(block, on="crowd").sort("crowd", "label").partition_by("block", as_dict=True).items()
    )]  # fmt: skip


def _written(
    path: Path, members: pl.DataFrame, shards: Sequence[Any], parts: Sequence[Part], clip: float | None
) -> Part:
    import polars as pl

    here = set(members.filter(pl.col("value").is_not_null())["label"].to_list())
    taken: list[tuple[Any, Any]] = []
    for shard, part in zip(shards, parts, strict=True):
        names = shard.labels if isinstance(shard, ClassTable) else shard.households
        at = [i for i, name in enumerate(names) if name in here]
        if not at:
            continue
        if isinstance(shard, ClassTable):
            taken.append((shard.take([names[i] for i in at]), None))
        else:
            truth = np.load(part.beside(TRUTH), allow_pickle=False)
            taken.append((shard.take(at, {}), truth[at]))
    strange = 0
    if isinstance(taken[0][0], ClassTable):
        table = replace(joined_tables([one for one, _ in taken]), clip=clip)
        if table.times > 1:
            refuse_copies(table.values, table.owner)
            crowd = dict(zip(members["label"].to_list(), members["crowd"].to_list(), strict=True))
            graph = NeighborGraph.within_groups(table.labels, [crowd[name] for name in table.labels])
            table, strange = with_laws(table, graph)
        first = table.labels[0]
        put_whole(path, table.save)
    else:
        forecasts = joined_forecasts([one for one, _ in taken])
        first = forecasts.households[0]
        write_array(path.with_suffix(f".{TRUTH}"), np.concatenate([truth for _, truth in taken]))
        put_whole(path, forecasts.save)
    write_frame(path.with_suffix(f".{MEMBERS}"), members.select("label", "crowd", "stored"))
    return receipted(path, BlockFacts(len(here), members["crowd"].n_unique(), first, strange))


def crowds_of(block: str | Path) -> dict[str, int]:
    """Label -> crowd, of every member of a block's crowds."""
    import polars as pl

    path = Path(block).with_suffix(f".{MEMBERS}")
    try:
        return dict(pl.read_parquet(path).select("label", "crowd").iter_rows())
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"shard: {path.name} is missing or damaged; remove the shard, and run again") from None


def laws_of(block: str | Path, answers: Fitted) -> tuple[GaussianClasses, NeighborGraph]:
    """Laws of every member of a block's crowds, and the graph that joins all of a crowd.

    A member without an answer today takes the mean law of its crowd, which it then does not move; nothing about it is
    released.
    """
    laws, crowds = answers.laws(), crowds_of(block)
    absent = [name for name in crowds if name not in set(laws.labels)]
    if absent:
        laws = _with_absent(laws, crowds, absent)
    return laws, NeighborGraph.within_groups(laws.labels, [crowds[name] for name in laws.labels])


def _with_absent(laws: GaussianClasses, crowds: dict[str, int], absent: Sequence[str]) -> GaussianClasses:
    crowd = np.array([crowds[name] for name in laws.labels])
    means = np.array([laws.means[crowd == crowds[name]].mean(axis=0) for name in absent])
    labels = (*laws.labels, *absent)
    every = np.concatenate([laws.means, means])
    if laws.is_diagonal:
        known = np.broadcast_to(laws.stored_variances, laws.means.shape)
        more = np.array([known[crowd == crowds[name]].mean(axis=0) for name in absent])
        return GaussianClasses.diagonal(every, np.concatenate([known, more]), labels)
    covs = np.broadcast_to(laws.stored_covs, (*laws.means.shape, laws.n_dims))
    shared = np.array([covs[crowd == crowds[name]].mean(axis=0) for name in absent])
    return GaussianClasses(every, np.concatenate([covs, shared]), labels)


# ------------------------------------------------------------------ class tables


def joined_tables(parts: Sequence[ClassTable]) -> ClassTable:
    """Several tables of one layout as one."""
    labels = tuple(name for part in parts for name in part.labels)
    starts = np.cumsum([0, *(len(part.labels) for part in parts)])
    return replace(
        parts[0],
        labels=labels,
        values=np.concatenate([part.values for part in parts]),
        owner=np.concatenate([part.owner + start for part, start in zip(parts, starts[:-1], strict=True)]),
        source_row=np.concatenate([part.source_row for part in parts]),
    )


def with_laws(table: ClassTable, graph: NeighborGraph) -> tuple[ClassTable, int]:
    """The table with covariances, and how many labels' rows are not Gaussian.

    Each crowd is fitted for itself: no law depends on who else is in the block.
    """
    n, k = table.means.shape
    covs, degrees, strange = np.empty((n, k, k)), np.empty(n), 0
    group: IndexArray = np.asarray(graph.components, dtype=np.intp)
    for number in range(int(group.max()) + 1):
        members = np.flatnonzero(group == number)
        part = table.take([table.labels[i] for i in members])
        laws = sample_laws(part.values, part.owners, table.columns)
        place = {name: i for i, name in enumerate(laws.labels)}
        rows = [place[table.labels[i]] for i in members]
        covs[members] = laws.covs[rows]
        degrees[members] = laws.observations(laws.labels)[1][rows]
        strange += int((~laws.checks().gaussian).sum())
    return replace(table, covs=covs, degrees=degrees), strange
