"""One meter file, opened and understood: which layout, which clock, which decimal sign; its rows as a standard table.

Nothing but the beginning of the file is read here. :meth:`Source.standard` works on the whole file or on any stretch
of its rows, so that a file larger than memory can be taken in batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError
from shoal.meters import clock
from shoal.meters.columns import Layout, recognize

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, repr=False)
class Source:
    """A file and how to read it. ``raw`` is lazy, in the columns and types of the file."""

    file: Path
    raw: pl.LazyFrame
    layout: Layout
    types: Mapping[str, Any]  #: of household, timestamp and kw as they come
    forms: tuple[str, ...]  #: layouts of text timestamps
    named: bool  #: whether the caller named the layout
    offsets: bool  #: whether text timestamps carry an offset from UTC
    decimal_comma: bool

    @property
    def time_zone(self) -> str | None:
        """Zone of the timestamps as :meth:`standard` gives them; None for wall-clock time."""
        return "UTC" if self.offsets else getattr(self.types["timestamp"], "time_zone", None)

    def melt(self, raw: pl.LazyFrame) -> pl.LazyFrame:
        """Rows in the layout of the file as household, timestamp, kw, still in the types of the file."""
        return _melt(raw, self.layout, self.file)

    def standard(self, long: pl.LazyFrame) -> pl.LazyFrame:
        """Melted rows in standard types: household, timestamp, kw, and the flags invalid, bad_time, no_such_time."""
        import polars as pl

        dtype = self.types["timestamp"]
        stamp = pl.col("timestamp")
        if isinstance(dtype, pl.String):
            # Each distinct text is parsed once: households share their timestamps.
            parsed = clock.parse(stamp, self.forms, offsets=self.offsets, named=self.named)
            known = long.select("timestamp").unique().with_columns(_stamp=parsed)
            long = long.join(known, on="timestamp", how="left", maintain_order="left")
            stamp = pl.col("_stamp")
        else:
            stamp = stamp.cast(pl.Datetime("us", getattr(dtype, "time_zone", None)))
        value = pl.col("kw")
        if isinstance(self.types["kw"], pl.String):
            value = value.str.strip_chars()
            value = value.str.replace(",", ".", literal=True) if self.decimal_comma else value
            number = value.cast(pl.Float64, strict=False)
            invalid = number.is_null() & value.is_not_null() & (value != "")
        else:
            number = value.cast(pl.Float64)
            invalid = pl.lit(False)
        return long.select(
            household_name(),
            timestamp=stamp,
            kw=number,
            invalid=invalid,
            bad_time=stamp.is_null(),
            no_such_time=pl.lit(False),
        )


def household_name() -> pl.Expr:
    """The column ``household`` as names."""
    import polars as pl

    return pl.col("household").cast(pl.String).str.strip_chars()


def open_source(file: Path, columns: Mapping[str, str] | None, timestamp_format: str | None) -> Source:
    """Understand one file from its header and first rows."""
    import polars as pl

    try:
        raw, decimal_comma = _open(file)
        schema = raw.collect_schema()
        layout = recognize(list(schema), columns, file.name)
        long = _melt(raw, layout, file)
        types = long.collect_schema()
        offsets = False
        forms: tuple[str, ...] = (timestamp_format,) if timestamp_format else ()
        if isinstance(types["timestamp"], pl.String):
            sample = long.select("timestamp").head(200).collect()["timestamp"]
            offsets, forms = clock.has_offsets(sample), forms or clock.layouts(sample)
    except (pl.exceptions.PolarsError, OSError, UnicodeError):  # their texts may quote readings
        raise InputError(f"path: {file.name} is empty or cannot be read as a table") from None
    if not isinstance(types["timestamp"], (pl.String, pl.Datetime, pl.Date)):
        raise InputError(f"columns: {layout.timestamp!r} of {file.name} must hold text or datetimes")
    if not isinstance(types["kw"], pl.String) and not types["kw"].is_numeric():
        raise InputError(f"columns: the values of {file.name} must be numbers")
    return Source(file, raw, layout, dict(types), forms, timestamp_format is not None, offsets, decimal_comma)


def _open(file: Path) -> tuple[pl.LazyFrame, bool]:
    """A lazy table; CSV columns stay text. The flag says that numbers may use a decimal comma."""
    import polars as pl

    if file.name.lower().endswith((".parquet", ".pq")):
        return pl.scan_parquet(file), False
    separator = ","
    if not file.name.lower().endswith(".gz"):
        with file.open(encoding="utf-8-sig") as handle:
            header = handle.readline()
        separator = max(",;\t", key=header.count)
    return pl.scan_csv(file, separator=separator, infer_schema=False, truncate_ragged_lines=False), separator != ","


def _melt(raw: pl.LazyFrame, layout: Layout, file: Path) -> pl.LazyFrame:
    import polars as pl

    if layout.shape == "long":
        return raw.select(household=pl.col(layout.household or ""), timestamp=layout.timestamp, kw=layout.value)
    if layout.shape == "single":
        return raw.select(household=pl.lit(file.name.split(".")[0]), timestamp=layout.timestamp, kw=layout.value)
    index = layout.timestamp if layout.shape == "households" else layout.household
    names = ("household", "timestamp") if layout.shape == "households" else ("timestamp", "household")
    return raw.unpivot(on=list(layout.across), index=index, variable_name=names[0] + "_", value_name="kw_").select(
        pl.col(names[0] + "_").alias(names[0]), pl.col(str(index)).alias(names[1]), kw="kw_"
    )
