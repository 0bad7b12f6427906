"""A table with a label in every row: CSV, Parquet or Arrow; text never reaches a message.

| what is found | what is done |
| --- | --- |
| a column that is not numeric, and was not named | is no entry: it is left out |
| a cell without a value | its row is left out, and counted |
| text, NaN or an infinity in an entry | refused: somebody has to say what it stands for |
| a row without a label | refused |
| a column with one value in all rows | is left out: it tells nobody apart |

A long table (label, time, value) is turned into one row per label, an entry per time; every label must have a value at
each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from shoal.errors import InputError
from shoal.sources.frames import UNREADABLE, FileTable, open_file

#: Rows of a CSV file that its numeric columns are recognized by.
LOOKED_AT = 1000
#: Columns of the released table that are shoal's own.
SOURCE_ROW, LABEL, CROWD, ROW = "source_row", "label", "crowd", "row"
OWN = (SOURCE_ROW, LABEL, CROWD, ROW, "homes", "news")


@dataclass(frozen=True)
class TableColumns:
    """Which columns of a table are what. ``time`` and ``value`` are those of a long table."""

    label: str
    entries: tuple[str, ...]
    left_out: tuple[str, ...] = ()  #: columns that are neither
    time: str | None = None
    value: str | None = None


def open_table(files: Sequence[Path]) -> FileTable:
    """The rows of files of one layout, one after the other; the columns of CSV files stay text."""
    try:
        parts = [open_file(file) for file in files]
        schemas = [part.raw.collect_schema() for part in parts]
    except UNREADABLE:  # their texts may quote the data
        raise InputError("table: it is empty, or cannot be read as CSV, Parquet or Arrow") from None
    if any(schema != schemas[0] for schema in schemas[1:]):
        raise InputError("table: its files differ in their columns; give files of one layout")
    return FileTable(pl.concat([part.raw for part in parts]), kept=parts)


def layout_of(
    raw: pl.LazyFrame,
    label: str,
    columns: Sequence[str] = (),
    time: str | None = None,
    value: str | None = None,
) -> TableColumns:
    """Which columns are entries: those named, or all numeric ones but the label and those named as -NAME."""
    schema = raw.collect_schema()
    found = list(schema)
    for name, setting in ((label, "label"), (time, "timestamp_column"), (value, "value_column")):
        if name is not None and name not in schema:
            raise InputError(f"{setting}: the table has no column {name!r}; its columns are {_listed(found)}")
    if (time is None) != (value is None):
        raise InputError("timestamp_column and value_column belong together: a long table has a time and a value")
    if time is not None:
        if columns:
            raise InputError("columns are for tables with an entry per column, not for long ones")
        return TableColumns(label, (), tuple(c for c in found if c not in (label, time, value)), time, value)
    named, dropped = _named(columns, found)
    if label in named or label in dropped:
        raise InputError("label: the column of labels can be neither an entry nor dropped")
    numeric = _numeric(raw, schema)
    if named:
        odd = [c for c in named if c not in numeric]
        if odd:
            raise InputError(
                f"columns: {odd[0]!r} holds text or dates, or nothing; entries are numbers. Leave it out of --columns"
            )
        entries = tuple(c for c in named if c not in dropped)
    else:
        entries = tuple(c for c in found if c in numeric and c != label and c not in dropped)
    if not entries:
        raise InputError("columns: no numeric column is left for the entries; name them with --columns")
    taken = [c for c in entries if c in OWN]
    if taken:
        raise InputError(
            f"columns: {taken[0]!r} is a column of the released table itself; rename yours, or leave it out "
            "(--columns=-NAME)"
        )
    return TableColumns(label, entries, tuple(c for c in found if c != label and c not in entries))


def _named(given: Sequence[str], found: Sequence[str]) -> tuple[list[str], list[str]]:
    """Columns that were named and those named as -NAME, each for itself or several with commas between them."""
    names: list[str] = []
    for text in given:
        names += [text] if text in found else [part.strip() for part in text.split(",")]
    named = [name for name in dict.fromkeys(names) if name in found or not name.startswith("-")]
    dropped = [name[1:] for name in names if name not in named]
    missing = [name for name in (*named, *dropped) if name not in found]
    if missing:
        raise InputError(f"columns: the table has no column {missing[0]!r}; its columns are {_listed(found)}")
    return named, dropped


def _numeric(raw: pl.LazyFrame, schema: Mapping[str, Any]) -> set[str]:
    """Columns of numbers; of text columns those whose first rows are numbers, or empty with one number at least."""
    texts = [name for name, kind in schema.items() if kind == pl.String]
    numbers = {name for name, kind in schema.items() if kind.is_numeric()}
    if texts:
        try:
            head = raw.select(texts).head(LOOKED_AT).collect()
        except pl.exceptions.PolarsError:
            raise InputError("table: it is empty, or its rows do not have the columns of its header") from None
        for name in texts:
            cells = head[name].str.strip_chars()
            cells = cells.filter(cells.is_not_null() & (cells != ""))
            if len(cells) and not cells.cast(pl.Float64, strict=False).null_count():
                numbers.add(name)
    return numbers


def rows_of(raw: pl.LazyFrame, layout: TableColumns) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Rows as label, source_row (from 1 on) and one column of numbers per entry, null where a cell is empty; entries.

    A long table becomes one row per label, in order of appearance; its entries are the times, in order.
    """
    try:
        if layout.time is not None:
            return _pivoted(raw, layout)
        rows = raw.drop(SOURCE_ROW, strict=False).with_row_index(SOURCE_ROW, 1)
        label = pl.col(layout.label).cast(pl.String).alias(LABEL)
        chosen = rows.select(label, pl.col(SOURCE_ROW).cast(pl.Int64), *layout.entries)
        return _checked(chosen.collect(), layout.entries), layout.entries
    except UNREADABLE:
        raise InputError("table: its rows do not have the columns of its header, or it is damaged") from None


def _checked(batch: pl.DataFrame, entries: Sequence[str]) -> pl.DataFrame:
    names = batch[LABEL].str.strip_chars()
    if names.null_count() or (names == "").any():
        raise InputError(f"label: {int((names.fill_null('') == '').sum())} row(s) have no label; give every row one")
    found = [names, batch[SOURCE_ROW]]
    for name in entries:
        column = batch[name]
        if column.dtype == pl.String:
            cells = column.str.strip_chars()
            cells = cells.set(cells == "", None)
            column = cells.cast(pl.Float64, strict=False)
            if column.null_count() > cells.null_count():
                raise InputError(
                    f"columns: {name!r} holds text in some row(s); entries are numbers. Leave it out "
                    "(--columns=-NAME), or mend it"
                )
        else:
            column = column.cast(pl.Float64)
        if not column.drop_nulls().is_finite().all():
            raise InputError(
                f"columns: {name!r} holds NaN or an infinity in some row(s). Leave those cells empty, which leaves "
                "their rows out, or put in what they stand for"
            )
        found.append(column)
    return pl.DataFrame(found)


def _pivoted(raw: pl.LazyFrame, layout: TableColumns) -> tuple[pl.DataFrame, tuple[str, ...]]:
    time, value = str(layout.time), str(layout.value)
    long = raw.select(pl.col(layout.label).cast(pl.String).alias(LABEL), time, value).collect()
    long = _checked(long.select(LABEL, pl.int_range(pl.len()).alias(SOURCE_ROW), value), [value]).with_columns(
        long[time].alias("time").cast(pl.String)
    )
    times = long["time"].unique().sort()
    if times.null_count():
        raise InputError(f"timestamp_column: some row(s) have no {time!r}")
    if long.select(LABEL, "time").n_unique() != len(long):
        raise InputError("timestamp_column: some label has two rows for one time; a long table has one value for each")
    wide = long.pivot(on="time", index=LABEL, values=value, maintain_order=True).select(LABEL, *times)
    return wide.with_row_index(SOURCE_ROW, 1).with_columns(pl.col(SOURCE_ROW).cast(pl.Int64)), tuple(times)


def _listed(names: Sequence[str]) -> str:
    """Names of columns for a message; numbers may be the first row of a file without a header, and stay out."""
    words = [name for name in names if not _is_number(name)]
    more = ", …" if len(words) > 12 or len(words) < len(names) else ""
    return ", ".join(words[:12]) + more


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True
