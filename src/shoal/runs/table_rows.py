"""From a class table to row shards that hold whole cells: sort by label, mean rows, cells, regroup.

The table is read once, in batches, and each batch is sorted into buckets of whole labels; what the driver holds is one
batch and a few sums. Everything after that is jobs over buckets and shards (:mod:`shoal.runs.jobs`).
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.card.facts import Lost, Record
from shoal.classdata.class_table import exponents_of, label_means
from shoal.classdata.table_file import (
    LABEL,
    SOURCE_ROW,
    VALUES,
    Extent,
    Layout,
    batches,
    layout_of,
    open_table,
    pivoted,
)
from shoal.errors import InputError
from shoal.runs.config import Config
from shoal.runs.exchange import gather, scatter
from shoal.runs.groups import Grouping
from shoal.runs.jobs import Job, Part, Tell, done, out_path, run_jobs
from shoal.runs.neighborhood import cells_of_profiles, with_newcomers
from shoal.runs.regroup import Received
from shoal.runs.shards import write_frame
from shoal.runs.sources import Source
from shoal.runs.store import put_whole, shard_key
from shoal.validation import FloatArray
from shoal.workers.executor import Executor

if TYPE_CHECKING:
    import polars as pl

#: Settings that decide how a table is read.
READING = ("label", "columns", "drop", "weights", "timestamp_column", "value_column", "only")
#: Bytes of input per bucket, about, and entries per shard at most: what a worker holds.
BUCKET, SHARD = 64 * 2**20, 2_000_000
#: Largest magnitude of an entry: squares of what is larger overflow.
LARGEST = 1e150


@dataclass(frozen=True)
class Sorted(Record):
    """A table in buckets of whole labels: its files, its entries with their units, and what was left out."""

    files: tuple[str, ...]
    buckets: int
    entries: tuple[str, ...]
    exponents: tuple[int, ...]
    rows: int
    incomplete: int  #: rows with an empty cell
    text: tuple[str, ...]  #: columns that are no entries
    constant: tuple[str, ...]  #: columns with one value
    kept: tuple[int, ...]  #: places of the entries among those that were read


@dataclass(frozen=True)
class BucketTask:
    """Which bucket of which files, in which units, and where to write."""

    files: tuple[str, ...]
    bucket: int
    kept: tuple[int, ...]
    exponents: tuple[int, ...]
    out: str
    assignment: str = ""


@dataclass(frozen=True)
class Counted(Record):
    """Labels and rows of a bucket, and the least and most rows of a label."""

    households: int
    rows: int
    fewest: int
    most: int


@dataclass(frozen=True)
class SentRows(Record):
    """(shard, rows that go there)."""

    counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class GatherTask:
    """What the senders wrote, the number of the shard to make, and where."""

    sent: tuple[str, ...]
    number: int
    out: str


@dataclass(frozen=True)
class GroupedRows:
    """Row shards of whole cells, what was lost on the way, and what all of them share."""

    shards: list[Part]
    failed: list[Lost]
    assignment: Part
    table: Sorted
    counted: tuple[Counted, ...]

    @property
    def fewest(self) -> int:
        return min(one.fewest for one in self.counted)

    @property
    def most(self) -> int:
        return max(one.most for one in self.counted)


def grouped_rows(
    executor: Executor,
    root: Path,
    source: Source,
    config: Config,
    tell: Tell,
    assignment: Part | None = None,
    exponents: Mapping[str, int] | None = None,
) -> GroupedRows:
    """Rows of a table in shards of whole cells; ``assignment`` and ``exponents`` keep those of an earlier table.

    A label that is new has its place in the cell whose mean row is nearest.
    """
    table = _sorted(root, source, config, tell, exponents)
    settings = {**config.part(*READING), "source": source.digest, "exponents": table.exponents}
    jobs, asked = [], {}
    for bucket in range(table.buckets):
        out = out_path(root, "means", "parquet", {**settings, "bucket": bucket})
        task = BucketTask(table.files, bucket, table.kept, table.exponents, out)
        asked[out] = task
        jobs.append(Job(make_means, task, out))
    made, failed = run_jobs(executor, "rows by label", jobs, tell, for_good=True)
    counted = tuple(part.told(Counted) for part in made)
    if assignment is not None:
        assignment = with_newcomers(root, made, assignment, config)
    else:
        labels, rows = (sum(getattr(one, name) for one in counted) for name in ("households", "rows"))
        if labels < 2:
            raise InputError("label: all rows have one label; nobody is there to hide among. Name another column")
        size = shard_labels(config, labels, rows, len(table.entries))
        assignment, more = cells_of_profiles(executor, root, made, config, tell, size, min(config.cell, size))
        failed = failed + more
    shards, lost = _regrouped(executor, root, asked, made, assignment, tell)
    return GroupedRows(shards, failed + lost, assignment, table, counted)


def shard_labels(config: Config, labels: int, rows: int, entries: int) -> int:
    """Labels of a shard, about, where a table has so many with so many rows."""
    return max(min(config.shard_size, SHARD * labels // (rows * entries)), 2 * config.crowd)


# ------------------------------------------------------------------ reading


def _sorted(root: Path, source: Source, config: Config, tell: Tell, known: Mapping[str, int] | None) -> Sorted:
    """The table in buckets; done once for a source and what is asked of it."""
    settings = {**config.part(*READING), "source": source.digest, "known": None if known is None else dict(known)}
    folder = root / "sort"
    folder.mkdir(parents=True, exist_ok=True)
    key = shard_key("sort", settings, [])
    note = folder / f"{key}.sorted"
    if note.is_file():
        try:
            return Sorted.from_json(json.loads(note.read_text()))
        except (OSError, ValueError):
            raise InputError(f"dir: {note.name} is damaged; remove it, and run the same command again") from None
    tell("reading the table", 0, 0)
    found = _read(source, config, folder / f"{key}.rows", known)
    content = json.dumps(found.to_json())
    put_whole(note, lambda rough: rough.write_text(content))
    return found


def _read(source: Source, config: Config, folder: Path, known: Mapping[str, int] | None) -> Sorted:
    import polars as pl

    files = source.paths
    raw = open_table(files)
    layout = layout_of(
        raw, str(config.label), config.columns, config.drop, config.timestamp_column, config.value_column
    )
    parts: Iterator[pl.DataFrame]
    if layout.time is not None:
        wide, times = pivoted(raw, layout)
        layout, parts = Layout(layout.label, times, layout.left_out), iter([wide])
    else:
        parts = batches(raw, layout)
    size = sum(file.stat().st_size for file in files)
    buckets = max(-(-size // BUCKET), 1)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    extent = Extent(len(layout.entries))
    written = []
    for number, part in enumerate(parts):
        if config.only:
            part = part.filter(pl.col(LABEL).is_in(config.only))
        values = part.select(layout.entries).to_numpy()
        whole = np.isfinite(values).all(axis=1)
        extent.incomplete += int((~whole).sum())
        values = np.ascontiguousarray(values[whole], dtype=np.float64)
        extent.add(values)
        named = part.select(LABEL, SOURCE_ROW).filter(pl.Series(whole))
        bucket = _buckets(named[LABEL], buckets)
        rows = named.with_columns(
            bucket=pl.Series(bucket), **{VALUES: pl.Series(values, dtype=pl.Array(pl.Float64, values.shape[1]))}
        )
        if len(rows):
            path = folder / f"{number:06d}.arrow"
            scatter(path, rows, "bucket")
            written.append(str(path))
    return _found(layout, extent, tuple(written), buckets, config.weights, known)


def _found(
    layout: Layout,
    extent: Extent,
    files: tuple[str, ...],
    buckets: int,
    weights: Sequence[str],
    known: Mapping[str, int] | None,
) -> Sorted:
    if not extent.rows:
        raise InputError(
            f"table: no row has a number in every entry ({extent.incomplete} have an empty cell); --drop the columns "
            "that are empty, or fill them in"
        )
    names = layout.entries
    if max(np.abs(extent.low).max(), np.abs(extent.high).max()) > LARGEST:
        raise InputError(f"columns: some entries are beyond {LARGEST:g}; give them in a larger unit")
    if known is None:
        kept = np.flatnonzero(~extent.constant)
        if not len(kept):
            raise InputError("columns: every entry has one value in all rows; there is nothing to hide")
        chosen = tuple(names[i] for i in kept)
        exponents = exponents_of(
            extent.spread[kept], weights_of(weights, chosen, [n for n in names if n not in chosen])
        )
    else:
        missing = [name for name in known if name not in names]
        if missing:
            raise InputError(f"columns: the new table has no entry {missing[0]!r}, which the last release had")
        chosen = tuple(known)
        kept = np.array([names.index(name) for name in chosen])
        exponents = np.array(list(known.values()), dtype=np.int64)
    return Sorted(
        files,
        buckets,
        chosen,
        tuple(int(e) for e in exponents),
        extent.rows,
        extent.incomplete,
        layout.left_out,
        tuple(name for name in names if name not in chosen),
        tuple(int(i) for i in kept),
    )


def weights_of(given: Sequence[str], entries: Sequence[str], without: Sequence[str] = ()) -> dict[int, float]:
    """Entry -> weight, from texts: a number for all of them, or COLUMN=NUMBER, several with commas between them."""
    found: dict[int, float] = {}
    for text in given:
        whole = text.rpartition("=")[0] in entries
        for part in [text] if whole else text.split(","):
            name, equals, number = part.rpartition("=")
            name = name.strip()
            try:
                weight = float(number)
            except ValueError:
                weight = -1.0
            if not 1e-150 < weight < 1e150:
                raise InputError("weights must be numbers above 0: one for all columns, or COLUMN=NUMBER")
            if equals and name not in entries:
                if name in without:
                    continue  # the same in every row, and left out
                raise InputError(f"weights: {name!r} is not an entry of this table")
            found |= {entries.index(name): weight} if equals else dict.fromkeys(range(len(entries)), weight)
    return found


def _buckets(labels: pl.Series, buckets: int) -> NDArray[np.int64]:
    """Bucket of each label, the same for equal labels."""
    if buckets == 1:
        return np.zeros(len(labels), dtype=np.int64)
    unique = labels.unique()
    number = {name: zlib.crc32(name.encode()) % buckets for name in unique}
    return np.fromiter((number[name] for name in labels), dtype=np.int64, count=len(labels))


# ------------------------------------------------------------------ jobs


def make_means(task: BucketTask) -> Counted:
    """Write the mean rows of a bucket's labels, in scaled units: what cells are formed by (household, profile)."""
    import polars as pl

    rows = _rows(task)
    if not len(rows):
        profile = pl.Series("profile", [], dtype=pl.Array(pl.Float32, len(task.kept)))
        write_frame(task.out, pl.DataFrame({"household": pl.Series([], dtype=pl.String), "profile": profile}))
        return Counted(0, 0, 2**62, 0)
    labels = rows[LABEL].unique().sort()
    owner = labels.search_sorted(rows[LABEL]).to_numpy()
    means = label_means(values_of(rows), owner, len(labels)).astype(np.float32)
    profile = pl.Series("profile", means, dtype=pl.Array(pl.Float32, means.shape[1]))
    write_frame(task.out, pl.DataFrame({"household": labels, "profile": profile}))
    counts = np.bincount(owner)
    return Counted(len(labels), len(rows), int(counts.min()), int(counts.max()))


def send_rows(task: BucketTask) -> SentRows:
    """Sort a bucket's rows by their shard; how many go where."""
    import polars as pl

    known = pl.read_parquet(task.assignment).rename({"household": LABEL})
    rows = _rows(task).join(known, on=LABEL, how="left", maintain_order="left")
    stray = rows["shard"].null_count()
    if stray:
        raise InputError(f"assignment: {stray} row(s) are of a label without a group")
    return SentRows(tuple(sorted(scatter(task.out, rows, "shard").items())))


def receive_rows(task: GatherTask) -> Received:
    """Write the rows of one shard, by label and in the order of the table: label, source_row, values, group."""
    rows, _ = gather(task.sent, [task.number])
    if not len(rows):
        raise InputError(f"shard: nothing was sent to shard {task.number}")
    rows = rows.select(LABEL, SOURCE_ROW, VALUES, "group").sort(LABEL, SOURCE_ROW)
    write_frame(task.out, rows)
    return Received(rows[LABEL].n_unique(), rows["group"].n_unique(), task.number)


def _rows(task: BucketTask) -> pl.DataFrame:
    """A bucket's rows, their entries in scaled units."""
    import polars as pl

    rows, _ = gather(task.files, [task.bucket])
    values = np.ldexp(values_of(rows)[:, list(task.kept)], np.array(task.exponents, dtype=np.int64))
    return rows.select(LABEL, SOURCE_ROW).with_columns(
        pl.Series(VALUES, values, dtype=pl.Array(pl.Float64, values.shape[1]))
    )


def values_of(rows: pl.DataFrame) -> FloatArray:
    """(m, k) the entries of rows."""
    width = rows[VALUES].dtype.shape[0]  # type: ignore[attr-defined]
    flat: Any = rows[VALUES].explode().to_numpy() if len(rows) else np.empty(0)
    return np.asarray(flat, dtype=np.float64).reshape(len(rows), width)


def _regrouped(
    executor: Executor,
    root: Path,
    asked: Mapping[str, BucketTask],
    made: Sequence[Part],
    assignment: Part,
    tell: Tell,
) -> tuple[list[Part], list[Lost]]:
    """Rows once more, whole cells in each shard."""
    senders = [assignment, *made]
    outs = [
        out_path(root, "rows", "parquet", {"number": number}, senders)
        for number in range(assignment.told(Grouping).shards)
    ]
    finished = [done(out) for out in outs]
    if all(finished):
        return [shard for shard in finished if shard is not None], []
    jobs = []
    for part in made:
        out = out_path(root, "send", "arrow", {}, [assignment, part])
        sending = replace(asked[part.path], out=out, assignment=assignment.path)
        jobs.append(Job(send_rows, sending, out, (assignment, part)))
    sent, failed = run_jobs(executor, "sorting by group", jobs, tell, for_good=True)
    if failed:  # what is made without some senders must not pass for the whole later
        keys = [part.key for part in sent]
        outs = [
            out_path(root, "rows", "parquet", {"number": number, "sent": keys}, senders) for number in range(len(outs))
        ]
    paths = tuple(part.path for part in sent)
    receiving = [Job(receive_rows, GatherTask(paths, i, out), out) for i, out in enumerate(outs)]
    shards, lost = run_jobs(executor, "shards of whole groups", receiving, tell, for_good=True)
    if not failed and not lost:
        shutil.rmtree(root / "send", ignore_errors=True)
    return shards, failed + lost
