"""Readings shards once more, now each holding whole groups: nothing after this changes shards again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.runs.exchange import gather, scatter
from shoal.runs.shards import MICROSECOND, STEP, read_quality, read_shard, write_shard


@dataclass(frozen=True)
class SendTask:
    """A readings shard, the assignment of all households, and where to write the rows by destination."""

    shard: str
    assignment: str
    out: str
    known_only: bool = False  #: leave out households without a group instead of refusing them


@dataclass(frozen=True)
class ReceiveTask:
    """What the senders wrote, the number of the shard to make, and where."""

    sent: tuple[str, ...]
    number: int
    out: str


@dataclass(frozen=True)
class Sent(Record):
    """(shard, households that go there)."""

    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Received(Record):
    """Households and groups of a shard, and its number."""

    households: int
    groups: int
    number: int


def send(task: SendTask) -> Sent:
    """Sort a shard's rows by their new shard; how many go where."""
    import polars as pl

    rows, step = read_shard(task.shard)
    names = rows["household"]
    try:
        known = pl.scan_parquet(task.assignment).select("household", "group", "shard")
        # Shards are stretches of sorted names: most of the assignment is passed over.
        here = known.filter(pl.col("household").is_between(pl.lit(names.min()), pl.lit(names.max()))).collect()
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"assignment: {Path(task.assignment).name} cannot be read; form the groups again") from None
    quality = read_quality(task.shard)
    columns = [c for c in quality.columns if c != "household"]
    rows = (
        rows.select("household", "first", "kw")
        .join(here, on="household", how="left", maintain_order="left")
        .join(
            quality.select("household", quality=pl.struct(columns)), on="household", how="left", maintain_order="left"
        )
    )
    stray = rows.filter(pl.col("shard").is_null())["household"]
    if len(stray) and task.known_only:
        rows = rows.filter(pl.col("shard").is_not_null())
    elif len(stray):
        raise InputError(f"assignment: {len(stray)} household(s) have no group; form the groups again")
    return Sent(tuple(sorted(scatter(task.out, rows, "shard", {STEP: step // MICROSECOND}).items())))


def receive(task: ReceiveTask) -> Received:
    """Write one shard of whole groups with its quality table, by household."""
    import polars as pl

    rows, notes = gather(task.sent, [task.number])
    if not len(rows):
        raise InputError(f"shard: nothing was sent to shard {task.number}")
    rows = rows.sort("household")
    quality = rows.select("household", "quality").unnest("quality")
    shard = rows.select("household", "first", "kw", pl.col("group").cast(pl.Int64))
    write_shard(task.out, shard, quality, timedelta(microseconds=notes[STEP]))
    return Received(len(shard), shard["group"].n_unique(), task.number)
