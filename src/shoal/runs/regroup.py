"""Shards once more, now each holding whole groups: nothing after this changes shards again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from shoal.card.facts import Lost, Record
from shoal.errors import InputError
from shoal.runs.exchange import Sent, gather, scatter
from shoal.runs.groups import Grouping
from shoal.runs.jobs import Job, Tell, out_path, run_jobs
from shoal.runs.shards import MICROSECOND, STEP, read_quality, read_shard, write_shard
from shoal.runs.store import Part, finished
from shoal.workers.executor import Executor


@dataclass(frozen=True)
class Received(Record):
    """Households and groups of a shard, and its number."""

    households: int
    groups: int
    number: int


@dataclass(frozen=True)
class Regrouped:
    """Shards of whole groups, what was lost on the way to them, and who is in which group."""

    shards: list[Part]
    failed: list[Lost]
    assignment: Part


def regrouped(
    executor: Executor,
    root: Path,
    stage: str,
    sending: Sequence[tuple[Part, Callable[[str], Sent]]],
    receive: Callable[[Sequence[str], int, str], Received],
    assignment: Part,
    tell: Tell,
) -> tuple[list[Part], list[Lost]]:
    """Shards of a stage once more, whole groups in each: every part has its rows sent, every shard receives its own."""
    senders = [assignment, *(part for part, _ in sending)]
    shards = range(assignment.told(Grouping).shards)
    outs = [out_path(root, stage, "parquet", {"number": number}, senders) for number in shards]
    there = [part for out in outs if (part := finished(out)) is not None]
    if len(there) == len(outs):
        return there, []
    jobs = [
        Job(send, out_path(root, "send", "arrow", {}, [assignment, part]), (assignment, part)) for part, send in sending
    ]
    sent, failed = run_jobs(executor, "sorting by group", jobs, tell, for_good=True)
    if failed:  # what is made without some senders must not pass for the whole later
        partly = {"sent": [part.key for part in sent]}
        outs = [out_path(root, stage, "parquet", {"number": number, **partly}, senders) for number in shards]
    paths = tuple(part.path for part in sent)
    jobs = [Job(partial(receive, paths, number), out) for number, out in enumerate(outs)]
    made, lost = run_jobs(executor, "shards of whole groups", jobs, tell, for_good=True)
    if not failed and not lost:
        shutil.rmtree(root / "send", ignore_errors=True)
    return made, failed + lost


def send(shard: str | Path, assignment: str | Path, known_only: bool, out: str | Path) -> Sent:
    """Sort the rows of a readings shard by their new shard; how many go where.

    With ``known_only``, households without a group are left out instead of refused.
    """
    import polars as pl

    rows, step = read_shard(shard)
    names = rows["household"]
    try:
        known = pl.scan_parquet(assignment).select("household", "group", "shard")
        # Shards are stretches of sorted names: most of the assignment is passed over.
        here = known.filter(pl.col("household").is_between(pl.lit(names.min()), pl.lit(names.max()))).collect()
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"assignment: {Path(assignment).name} cannot be read; form the groups again") from None
    quality = read_quality(shard)
    columns = [c for c in quality.columns if c != "household"]
    rows = (
        rows.select("household", "first", "kw")
        .join(here, on="household", how="left", maintain_order="left")
        .join(
            quality.select("household", quality=pl.struct(columns)), on="household", how="left", maintain_order="left"
        )
    )
    stray = rows.filter(pl.col("shard").is_null())["household"]
    if len(stray) and known_only:
        rows = rows.filter(pl.col("shard").is_not_null())
    elif len(stray):
        raise InputError(f"assignment: {len(stray)} household(s) have no group; form the groups again")
    return scatter(out, rows, "shard", {STEP: step // MICROSECOND})


def receive(sent: Sequence[str | Path], number: int, out: str | Path) -> Received:
    """Write one readings shard of whole groups with its quality table, by household."""
    import polars as pl

    rows, notes = gather(sent, [number])
    if not len(rows):
        raise InputError(f"shard: nothing was sent to shard {number}")
    rows = rows.sort("household")
    quality = rows.select("household", "quality").unnest("quality")
    shard = rows.select("household", "first", "kw", pl.col("group").cast(pl.Int64))
    write_shard(out, shard, quality, timedelta(microseconds=notes[STEP]))
    return Received(len(shard), shard["group"].n_unique(), number)
