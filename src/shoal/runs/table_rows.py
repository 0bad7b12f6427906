"""From a class table to row shards that hold whole cells: sort by label, mean rows, cells, regroup.

The table is read once, in batches, and each batch is sorted into buckets of whole labels; what the driver holds is one
batch and a few sums. Everything after that is jobs over buckets and shards (:mod:`shoal.runs.jobs`).
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.runs.config import Config
from shoal.runs.exchange import Sent, gather, scatter
from shoal.runs.jobs import Job, Tell, noted, out_path, run_jobs
from shoal.runs.neighborhood import cells_of_profiles, with_newcomers
from shoal.runs.profiles import write_profiles
from shoal.runs.regroup import Received, Regrouped, regrouped
from shoal.runs.shards import write_frame
from shoal.runs.sources import Source
from shoal.runs.store import Part
from shoal.sources.tables.class_table import exponents_of, label_means
from shoal.sources.tables.table_file import (
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
class Counted(Record):
    """Labels and rows of a bucket, and the least and most rows of a label."""

    households: int
    rows: int
    fewest: int
    most: int


@dataclass(frozen=True)
class GroupedRows(Regrouped):
    """Row shards of whole cells, and what all of them share."""

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
    asked = {**config.part(*READING), "source": source.digest}

    def sort(folder: Path) -> Sorted:
        tell("reading the table", 0, 0)
        return _read(source, config, folder, exponents)

    known = None if exponents is None else dict(exponents)
    table = noted(root, {**asked, "known": known}, Sorted, sort)
    settings = {**asked, "exponents": table.exponents}
    jobs = [
        Job(partial(make_means, table, bucket), out_path(root, "means", "parquet", {**settings, "bucket": bucket}))
        for bucket in range(table.buckets)
    ]
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
    bucket_of = {job.out: bucket for bucket, job in enumerate(jobs)}
    sending = [(part, partial(send_rows, table, bucket_of[part.path], assignment.path)) for part in made]
    shards, lost = regrouped(executor, root, "rows", sending, receive_rows, assignment, tell)
    return GroupedRows(shards, failed + lost, assignment, table, counted)


def shard_labels(config: Config, labels: int, rows: int, entries: int) -> int:
    """Labels of a shard, about, where a table has so many with so many rows."""
    return max(min(config.shard_size, SHARD * labels // (rows * entries)), 2 * config.crowd)


# ------------------------------------------------------------------ reading


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


def make_means(table: Sorted, bucket: int, out: str) -> Counted:
    """Write the mean rows of a bucket's labels, in scaled units: what cells are formed by (household, profile)."""
    rows = _rows(table, bucket)
    if not len(rows):
        write_profiles(out, rows[LABEL], np.empty((0, len(table.kept)), dtype=np.float32))
        return Counted(0, 0, 2**62, 0)
    labels = rows[LABEL].unique().sort()
    owner = labels.search_sorted(rows[LABEL]).to_numpy()
    means = label_means(rows[VALUES].to_numpy(), owner, len(labels))
    write_profiles(out, labels, means.astype(np.float32))
    counts = np.bincount(owner)
    return Counted(len(labels), len(rows), int(counts.min()), int(counts.max()))


def send_rows(table: Sorted, bucket: int, assignment: str, out: str) -> Sent:
    """Sort a bucket's rows by their shard; how many go where."""
    import polars as pl

    known = pl.read_parquet(assignment).rename({"household": LABEL})
    rows = _rows(table, bucket).join(known, on=LABEL, how="left", maintain_order="left")
    stray = rows["shard"].null_count()
    if stray:
        raise InputError(f"assignment: {stray} row(s) are of a label without a group")
    return scatter(out, rows, "shard")


def receive_rows(sent: Sequence[str], number: int, out: str) -> Received:
    """Write the rows of one shard, by label and in the order of the table: label, source_row, values, group."""
    rows, _ = gather(sent, [number])
    if not len(rows):
        raise InputError(f"shard: nothing was sent to shard {number}")
    rows = rows.select(LABEL, SOURCE_ROW, VALUES, "group").sort(LABEL, SOURCE_ROW)
    write_frame(out, rows)
    return Received(rows[LABEL].n_unique(), rows["group"].n_unique(), number)


def _rows(table: Sorted, bucket: int) -> pl.DataFrame:
    """A bucket's rows, their entries in scaled units."""
    import polars as pl

    rows, _ = gather(table.files, [bucket])
    values = np.ldexp(rows[VALUES].to_numpy()[:, list(table.kept)], np.array(table.exponents, dtype=np.int64))
    return rows.select(LABEL, SOURCE_ROW).with_columns(
        pl.Series(VALUES, values, dtype=pl.Array(pl.Float64, values.shape[1]))
    )
