"""Blocks of whole crowds, for the methods that design something: laws of everybody, gathered and cut anew.

A block is a file like a shard of the first stage (``<key>.zip`` or ``<key>.table``) with the members of some crowds who
have an answer today, and beside it ``<key>.members.parquet``: label, crowd and what was metered later of every member,
those without an answer included, since who has one hides beside them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.records import Record
from shoal.runs.config import Config
from shoal.runs.context import FIT, Context
from shoal.runs.shards import Part, finished, out_path, put_frame, put_whole, receipted
from shoal.runs.stages.crowd_stage import CROWDS, ROWS
from shoal.sources.class_table import SUFFIX, ClassTable, refuse_copies, sample_laws
from shoal.sources.meters.answered import ForecastAnswers
from shoal.sources.meters.predictive import Forecasts, joined_forecasts
from shoal.validation import IndexArray

BLOCKS, MEMBERS = "blocks", "members.parquet"
#: The answers of a block, each a row that is released about its owner, and the law of every label: two classes with the
#: same attributes, so that no stage asks which of them it has.
Answers = ForecastAnswers | ClassTable
#: Entries of a table that a block holds, at most: what a worker has in memory.
ENTRIES = 2_000_000


@dataclass(frozen=True)
class BlockFacts(Record):
    """What a block holds."""

    labels: int
    crowds: int
    not_gaussian: int = 0  #: labels whose rows do not follow the Gaussian law that the promise rests on


def make_blocks(context: Context) -> list[Part]:
    """The blocks of a run, written once; crowds with too few answers today are in none."""
    config, listing = context.config, context.listing(FIT)
    for shard in listing.parts:
        shard.check()
    rows = pl.read_parquet(context.folder / ROWS).filter(pl.col("news") & ~pl.col("recorded") & ~pl.col("retired"))
    members = pl.read_parquet(context.folder / CROWDS).filter(~pl.col("waits"))
    members = members.filter(pl.col("crowd").is_in(rows["crowd"].implode())).select("label", "crowd", "value", "truth")
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
        blocks.append(finished(path) or _written(path, block, shards, config.clip))
    return blocks


def _cut(members: pl.DataFrame, size: int) -> list[pl.DataFrame]:
    """Whole crowds, in order of their numbers, in parts of about so many labels."""
    crowds = members.group_by("crowd").len().sort("crowd")
    before = crowds["len"].cum_sum() - crowds["len"]
    block = crowds.select("crowd", block=before // size)
    return [part for _, part in sorted(
        members.join(block, on="crowd").sort("crowd", "label").partition_by("block", as_dict=True).items()
    )]  # fmt: skip


def _written(path: Path, members: pl.DataFrame, shards: Sequence[Any], clip: float | None) -> Part:
    here = set(members.filter(pl.col("value").is_not_null())["label"].to_list())
    strange = 0
    if isinstance(shards[0], ClassTable):
        names = [[name for name in shard.labels if name in here] for shard in shards]
        parts = [shard.take(inside) for shard, inside in zip(shards, names, strict=True) if inside]
        table = replace(joined_tables(parts), clip=clip)
        if table.times > 1:
            refuse_copies(table.values, table.owner)
            crowd = dict(members.select("label", "crowd").iter_rows())
            graph = NeighborGraph.within_groups(table.labels, [crowd[name] for name in table.labels])
            table, strange = with_laws(table, graph)
        put_whole(path, table.save)
    else:
        places = [[i for i, name in enumerate(shard.households) if name in here] for shard in shards]
        forecasts = joined_forecasts([shard.take(at) for shard, at in zip(shards, places, strict=True) if at])
        put_whole(path, forecasts.save)
    put_frame(path.with_suffix(f".{MEMBERS}"), members.select("label", "crowd", "truth"))
    return receipted(path, BlockFacts(len(here), members["crowd"].n_unique(), strange))


def answers_of(block: str | Path, config: Config) -> Answers:
    """The answers of a block from its file, forecasts with what is asked of them."""
    if Path(block).suffix == f".{SUFFIX}":
        return ClassTable.load(block)
    return ForecastAnswers(Forecasts.load(block), config.query, config.answers)


def members_of(block: str | Path) -> pl.DataFrame:
    """label, crowd and truth of every member of a block's crowds."""
    path = Path(block).with_suffix(f".{MEMBERS}")
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"shard: {path.name} is missing or damaged; remove the shard, and run again") from None


def crowds_of(block: str | Path) -> dict[str, int]:
    """Label -> crowd, of every member of a block's crowds."""
    return dict(members_of(block).select("label", "crowd").iter_rows())


def laws_of(block: str | Path, answers: Answers) -> tuple[GaussianClasses, NeighborGraph]:
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
