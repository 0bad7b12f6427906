"""Meter files, opened and understood: which layout, clock, unit, encoding and decimal sign; rows as a standard table.

Nothing but the beginning of a file is read here, unless its encoding, the order of day and month or a column of units
takes more; then it is streamed. :meth:`MeterSource.standard` works on the whole file or on any stretch of its rows, so
that a file larger than memory can be taken in batches. Files in other formats (NEM12, Green Button) or encodings are
written anew as CSV in UTF-8, line by line, to a temporary folder that only this user can read.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from shoal.errors import InputError
from shoal.sources.frames import ARROW, FRAME, PARQUET, UNREADABLE, FileTable, Scratch, beginning, open_file
from shoal.sources.meters import clock, formats
from shoal.sources.meters.columns import UNITS, MeterColumns, Unit, named_unit, recognize, told_by

#: What is said of files that cannot be used, here and where they are read in batches.
MIXED_UNITS = "unit: some files hold energy (kWh) and others power (kW); read them apart"
ODD_ROWS = "path: {} cannot be read as a table: its rows do not fit its header"
NO_ROWS = "path: {} has a header and no rows"
NO_TIMES = "columns: no timestamp of {} can be read; pass timestamp_format=, such as '%d/%m/%Y %H:%M'"
NO_UNIT = (
    "unit: nothing says whether {} power or energy per interval, and in which unit; pass unit=, one of w, kw, mw, wh, "
    "kwh, mwh"
)
ROW_NUMBERS = (
    "columns: every row has another entry in {!r}, so that this column numbers rows rather than naming households; "
    "name the column of the households"
)


@dataclass(frozen=True, repr=False)
class MeterSource:
    """A file and how to read it. ``raw`` is lazy, in the columns and types of the file."""

    file: Path
    raw: pl.LazyFrame
    layout: MeterColumns
    types: Mapping[str, Any]  #: of household, timestamp and kw as they come
    unit: Unit
    reason: str  #: why this unit
    decimal_comma: bool
    forms: tuple[str, ...] = ()  #: layouts of text timestamps
    named: bool = False  #: whether the caller named the layout
    offsets: bool = False  #: whether text timestamps carry an offset from UTC
    epoch: str | None = None  #: unit of times since 1970
    kept: Any = field(default=None, compare=False)  #: the temporary folder that ``raw`` reads from

    @property
    def time_zone(self) -> str | None:
        """Zone of the timestamps as :meth:`standard` gives them; None for wall-clock time."""
        instants = self.offsets or self.epoch is not None
        return "UTC" if instants else getattr(self.types["timestamp"], "time_zone", None)

    @property
    def taken(self) -> str:
        """Which columns were taken for what, in words; households that are columns are not named."""
        layout = self.layout
        times = f"{layout.timestamp!r}" + ("" if layout.clock is None else f" and {layout.clock!r}")
        who = {
            "long": f"households from the column {layout.household!r}",
            "days": f"households from the column {layout.household!r}, a column per time of the day",
            "times": f"households from the column {layout.household!r}, a column per time",
            "households": "a column per household",
            "single": "one household per file",
        }[layout.shape]
        what = "" if layout.value is None else f", readings from {layout.value!r}"
        return who + (f", times from {times}" if layout.timestamp else "") + what

    def melt(self, raw: pl.LazyFrame) -> pl.LazyFrame:
        """Rows in the layout of the file as household, timestamp, kw, still in the types of the file."""
        return _melt(raw, self.layout, self.file)

    def standard(self, long: pl.LazyFrame) -> pl.LazyFrame:
        """Melted rows in standard types: household, timestamp, kw, and the flags invalid, bad_time, no_such_time.

        ``kw`` holds kW, or kWh where the unit is one of energy.
        """
        dtype = self.types["timestamp"]
        stamp = pl.col("timestamp")
        if self.epoch is not None:
            stamp = clock.since_1970(stamp, self.epoch)
        elif isinstance(dtype, pl.String):
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
            kw=self.unit.in_kilo(number),
            invalid=invalid,
            bad_time=stamp.is_null(),
            no_such_time=pl.lit(False),
        )


@dataclass(frozen=True)
class Opened:
    """Files that are read together: one unit for all, said why, and which columns were taken."""

    sources: list[MeterSource]
    energy: bool
    unit: str
    reason: str
    taken: str


def household_name() -> pl.Expr:
    """The column ``household`` as names."""
    return pl.col("household").cast(pl.String).str.strip_chars()


def open_sources(
    files: Sequence[Path] | pl.LazyFrame,
    columns: Mapping[str, str] | None,
    timestamp_format: str | None,
    unit: str | None,
) -> Opened:
    """Understand files that are read together, or a table, from their headers and first rows."""
    said = named_unit(unit)
    if isinstance(files, pl.LazyFrame):
        opened = [_open_source(Path(FRAME), FileTable(files), columns, timestamp_format, said)]
    else:
        opened = [_open_source(file, None, columns, timestamp_format, said) for file in files]
    sources = [source for source, _, _ in opened]
    largest = [numbers for _, _, numbers in opened if numbers is not None]
    if largest:
        name = sources[0].file.name if len(sources) == 1 else "these files"
        sources = [
            source if numbers is None else replace(source, forms=clock.numbered_layouts(sample, largest, name))
            for source, sample, numbers in opened
        ]
    if len({source.unit.energy for source in sources}) > 1:
        raise InputError(MIXED_UNITS)
    names = dict.fromkeys(source.unit.name for source in sources)
    reasons = list(dict.fromkeys(source.reason for source in sources))
    taken = list(dict.fromkeys(source.taken for source in sources))
    return Opened(sources, sources[0].unit.energy, " and ".join(names), _first_of(reasons), _first_of(taken))


def _first_of(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{texts[0]} (other files differ in their names)"


def _open_source(
    file: Path,
    table: FileTable | None,
    columns: Mapping[str, str] | None,
    timestamp_format: str | None,
    unit: Unit | None,
) -> tuple[MeterSource, Any, tuple[int, int] | None]:
    """A file, the first entries of its timestamps, and the largest numbers of dates that leave day and month open."""
    try:
        table, own_unit, reason = _open(file) if table is None else (table, None, "")
        header = list(table.raw.collect_schema())
        layout = recognize(header, columns if own_unit is None else None, file.name)
        layout = _whole_times(table.raw, layout)
        known, reason = _unit(table.raw, layout, file, unit) if own_unit is None else (own_unit, reason)
        long = _melt(table.raw, layout, file)
        types = long.collect_schema()
        source = MeterSource(
            file, table.raw, layout, dict(types), known, reason, table.decimal_comma, kept=table.kept,
            named=timestamp_format is not None and own_unit is None,
        )  # fmt: skip
        sample = long.select("timestamp").head(200).collect()["timestamp"]
        numbers = None
        if isinstance(types["timestamp"], pl.String):
            if source.named:
                source = replace(source, forms=(str(timestamp_format),), offsets=clock.has_offsets(sample))
            elif epoch := clock.epoch_unit(sample):
                source = replace(source, epoch=epoch)
            elif clock.is_numbered(sample):
                stamps = long.select(*clock.largest_numbers(pl.col("timestamp"))).collect(engine="streaming")
                numbers = int(stamps["first"].item() or 0), int(stamps["second"].item() or 0)
            else:
                source = replace(source, forms=clock.layouts(sample), offsets=clock.has_offsets(sample))
        elif types["timestamp"].is_numeric():
            source = replace(source, epoch=clock.epoch_unit(sample))
    except UNREADABLE:  # their texts may quote readings
        raise InputError(f"path: {file.name} is empty or cannot be read as a table") from None
    if not isinstance(types["timestamp"], (pl.String, pl.Datetime, pl.Date)) and source.epoch is None:
        raise InputError(
            f"columns: {layout.timestamp!r} of {file.name} must hold text, datetimes, or seconds, milliseconds or "
            "microseconds since 1970"
        )
    if not isinstance(types["kw"], pl.String) and not types["kw"].is_numeric():
        raise InputError(f"columns: the values of {file.name} must be numbers")
    return source, sample, numbers


def _unit(raw: pl.LazyFrame, layout: MeterColumns, file: Path, named: Unit | None) -> tuple[Unit, str]:
    """The unit of a file's readings, and why: the caller says so, a column of units, or the names of its columns."""
    if named is not None:
        return named, "you said so (unit)"
    if layout.unit_field is not None:
        entries = raw.select(pl.col(layout.unit_field).cast(pl.String)).unique().collect(engine="streaming")
        said = {told_by(entry.strip()) for entry in entries.to_series().drop_nulls().to_list()}
        if len(said) == 1 and None not in said:
            return next(unit for unit in said if unit), f"its column {layout.unit_field!r} says so"
        raise InputError(
            f"unit: the column {layout.unit_field!r} of {file.name} names several units, or one that is not known; "
            "split the file by unit, or pass unit="
        )
    if layout.unit is not None:
        return layout.unit, (
            f"the column's name says so ({layout.value!r})" if layout.value else "the names of all columns say so"
        )
    what = f"the column {layout.value!r} of {file.name} holds" if layout.value else f"{file.name} holds"
    raise InputError(NO_UNIT.format(what))


def _whole_times(raw: pl.LazyFrame, layout: MeterColumns) -> MeterColumns:
    """Without its second column of time, where that holds whole timestamps."""
    if layout.clock is None:
        return layout
    sample = raw.select(pl.col(layout.clock).cast(pl.String)).head(200).collect().to_series()
    return layout if clock.is_time_of_day(sample) else replace(layout, timestamp=layout.clock, clock=None)


# ------------------------------------------------------------------ files as tables


def _open(file: Path) -> tuple[FileTable, Unit | None, str]:
    """A lazy table; with its unit and why, where the format of the file has one of its own."""
    if not file.name.lower().endswith((*PARQUET, *ARROW)):
        _, text = beginning(file)
        if text.startswith("<"):
            return _translated(formats.green_button_rows, file, "Wh", "its reading type says so (Green Button)")
        if text.startswith(formats.NEM12):
            return _translated(formats.nem12_rows, file, "kWh", "its records say so (NEM12)")
        if text.startswith(formats.NEM13):
            raise InputError(f"path: {file.name} is NEM13, which has no readings of intervals; ask for NEM12 data")
    return open_file(file), None, ""


def _translated(
    rows: Callable[[Path], Iterable[tuple[str, str, str, str]]], file: Path, unit: str, reason: str
) -> tuple[FileTable, Unit, str]:
    """Another format as a long table of mean power; channels of one household that meet are added."""
    kept = Scratch("meters.csv")
    channels: dict[str, set[str]] = {}
    with kept.path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(("household", "channel", "timestamp", "kw"))
        for row in rows(file):
            channels.setdefault(row[0], set()).add(row[1])
            writer.writerow(row)
    raw = pl.scan_csv(kept.path, infer_schema=False)
    if any(len(found) > 1 for found in channels.values()):
        many = pl.DataFrame(
            {"household": list(channels), "channels": [len(found) for found in channels.values()]}
        ).lazy()
        value = pl.col("kw").cast(pl.Float64, strict=False)
        raw = (
            raw.group_by("household", "timestamp", maintain_order=True)
            .agg(kw=value.sum(), known=value.is_not_null().sum())
            .join(many, on="household", how="left", maintain_order="left")
            .select("household", "timestamp", kw=pl.when(pl.col("known") == pl.col("channels")).then("kw"))
        )
    return FileTable(raw, kept=kept), replace(UNITS["kw"], name=unit), reason


def _melt(raw: pl.LazyFrame, layout: MeterColumns, file: Path) -> pl.LazyFrame:
    household = pl.lit(file.name.split(".")[0]) if layout.household is None else pl.col(layout.household)
    stamp = pl.col(layout.timestamp or "")
    stamp = stamp if layout.clock is None else clock.joined(stamp, pl.col(layout.clock))
    if layout.shape in ("long", "single"):
        return raw.select(household=household, timestamp=stamp, kw=layout.value)
    index = [c for c in (layout.household, layout.timestamp, layout.clock) if c is not None]
    if layout.shape == "days":
        raw, index = raw.with_row_index("row_"), ["row_", *index]
    long = raw.unpivot(on=list(layout.across), index=index, variable_name="across_", value_name="kw_")
    if layout.shape == "households":
        household = pl.col("across_")
    elif layout.shape == "times":
        stamp = pl.col("across_")
    else:
        long, stamp = long.sort("row_", maintain_order=True), clock.joined(stamp, pl.col("across_"))
    return long.select(household=household, timestamp=stamp, kw="kw_")
