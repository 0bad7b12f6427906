"""Rows of a class table in buckets of whole labels, by a hash of the label; read once, in batches.

A piece is an Arrow file of one bucket and one batch: label, source_row and values. What the driver holds is one batch
and a few sums.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.files import private_folder
from shoal.runs.config import Config
from shoal.runs.pieces import bucket_of
from shoal.runs.sources import Source
from shoal.runs.store import put_whole
from shoal.sources.tables.class_table import exponents_of
from shoal.sources.tables.table_file import (
    LABEL,
    SOURCE_ROW,
    VALUES,
    Extent,
    TableColumns,
    batches,
    layout_of,
    open_table,
    pivoted,
)

if TYPE_CHECKING:
    import polars as pl

#: Settings that decide how a table is read.
READING = ("label", "columns", "drop", "weights", "timestamp_column", "value_column", "only")
#: Bytes of input per bucket, about.
BUCKET = 64 * 2**20
#: Largest magnitude of an entry: squares of what is larger overflow.
LARGEST = 1e150


@dataclass(frozen=True)
class SortedRows(Record):
    """A table in buckets of whole labels: its folder, its entries with their units, and what was left out."""

    folder: str
    buckets: int
    entries: tuple[str, ...]
    exponents: tuple[int, ...]
    rows: int
    incomplete: int  #: rows with an empty cell
    text: tuple[str, ...]  #: columns that are no entries
    constant: tuple[str, ...]  #: columns with one value
    kept: tuple[int, ...]  #: places of the entries among those that were read
    filled: tuple[int, ...] = ()  #: buckets with rows

    def path(self, bucket: int) -> Path:
        """The folder of a bucket's pieces."""
        return Path(self.folder) / f"{bucket:06d}"


def sort_rows(
    source: Source, config: Config, folder: Path, buckets: int | None, known: Sequence[str] | None
) -> SortedRows:
    """Read a table into buckets; ``buckets`` and the ``known`` columns are those of an earlier table that goes on."""
    import polars as pl

    files = source.paths
    raw = open_table(files)
    layout = layout_of(
        raw, str(config.label), config.columns, config.drop, config.timestamp_column, config.value_column
    )
    parts: Iterator[pl.DataFrame]
    if layout.time is not None:
        wide, times = pivoted(raw, layout)
        layout, parts = TableColumns(layout.label, times, layout.left_out), iter([wide])
    else:
        parts = batches(raw, layout)
    size = sum(file.stat().st_size for file in files)
    count = max(-(-size // BUCKET), 1) if buckets is None else buckets
    shutil.rmtree(folder, ignore_errors=True)
    private_folder(folder)
    extent = Extent(len(layout.entries))
    for number, part in enumerate(parts):
        rows = part if not config.only else part.filter(pl.col(LABEL).is_in(config.only))
        values = rows.select(layout.entries).to_numpy()
        whole = np.isfinite(values).all(axis=1)
        extent.incomplete += int((~whole).sum())
        values = np.ascontiguousarray(values[whole], dtype=np.float64)
        extent.add(values)
        named = rows.select(LABEL, SOURCE_ROW).filter(pl.Series(whole))
        unique = named[LABEL].unique()
        bucket = pl.DataFrame({LABEL: unique, "bucket": [bucket_of(name, count) for name in unique]})
        piece = named.with_columns(pl.Series(VALUES, values, dtype=pl.Array(pl.Float64, values.shape[1])))
        piece = piece.join(bucket, on=LABEL, how="left", maintain_order="left")
        for (into,), mine in piece.partition_by("bucket", as_dict=True, include_key=False).items():
            where = folder / f"{into:06d}"
            private_folder(where)
            put_whole(where / f"{number:06d}.arrow", mine.write_ipc)
    return _described(layout, extent, str(folder), count, config, known)


def read_rows(table: SortedRows, bucket: int) -> pl.DataFrame:
    """A bucket's rows by label and in the order of the table, their entries in scaled units."""
    import polars as pl

    files = sorted(table.path(bucket).glob("*.arrow"))
    rows = pl.concat([pl.read_ipc(file.read_bytes()) for file in files])
    values = np.ldexp(rows[VALUES].to_numpy()[:, list(table.kept)], np.array(table.exponents, dtype=np.int64))
    scaled = pl.Series(VALUES, values, dtype=pl.Array(pl.Float64, values.shape[1]))
    return rows.select(LABEL, SOURCE_ROW).with_columns(scaled).sort(LABEL, SOURCE_ROW)


def _described(
    layout: TableColumns, extent: Extent, folder: str, buckets: int, config: Config, known: Sequence[str] | None
) -> SortedRows:
    if not extent.rows:
        raise InputError(
            f"table: no row has a number in every entry ({extent.incomplete} have an empty cell); leave out the "
            "columns that are empty (--set drop=NAME), or fill them in"
        )
    names = layout.entries
    if max(np.abs(extent.low).max(), np.abs(extent.high).max()) > LARGEST:
        raise InputError(f"columns: some entries are beyond {LARGEST:g}; give them in a larger unit")
    if known is not None:
        missing = [name for name in known if name not in names]
        if missing:
            raise InputError(f"columns: the new table has no entry {missing[0]!r}, which the last release had")
        kept = np.array([names.index(name) for name in known])
    elif config.columns and not config.charged:
        kept = np.arange(len(names))  # whoever names columns gets them
    else:
        kept = np.flatnonzero(~extent.constant)
        if not len(kept):
            raise InputError("columns: every entry has one value in all rows; there is nothing to hide")
    chosen = tuple(names[i] for i in kept)
    without = [name for name in names if name not in chosen]
    exponents = exponents_of(extent.spread[kept], weights_of(config.weights, chosen, without))
    return SortedRows(
        folder,
        buckets,
        chosen,
        tuple(int(e) for e in exponents),
        extent.rows,
        extent.incomplete,
        layout.left_out,
        tuple(without),
        tuple(int(i) for i in kept),
        tuple(bucket for bucket in range(buckets) if (Path(folder) / f"{bucket:06d}").is_dir()),
    )


def weights_of(given: Sequence[str], entries: Sequence[str], without: Sequence[str] = ()) -> dict[int, float]:
    """Entry -> weight, from texts: a number for all of them, or COLUMN=NUMBER, several with commas between them."""
    weights: dict[int, float] = {}
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
            weights |= {entries.index(name): weight} if equals else dict.fromkeys(range(len(entries)), weight)
    return weights
