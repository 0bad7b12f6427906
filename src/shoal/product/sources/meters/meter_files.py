"""Meter files of many shapes, read into one frame: household, timestamp, kw.

Files are opened and understood first: which layout, clock, unit, encoding and decimal sign. Rows are then taken in
batches (:meth:`MeterSource.standard_batches`), so that a run reads files larger than memory.
"""

from __future__ import annotations

import csv
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from shoal.errors import InputError
from shoal.files import raise_storage_error
from shoal.plaintext import spellings
from shoal.product.sources import frames
from shoal.product.sources.meters import clock, formats
from shoal.product.sources.meters.columns import (
    UNITS,
    ColumnsError,
    MeterColumns,
    Unit,
    parse_meter_kind,
    parse_unit,
    recognize_columns,
    unit_in_name,
)
from shoal.product.sources.meters.quality import (
    LARGE,
    QualityWarning,
    Readings,
    are_registers,
    count_registers,
    repair_readings,
)
from shoal.rounding import count_of

#: Readings taken from the input at a time.
BATCH = 2_000_000
#: Characters of a name, at most: in normal form C, three times as long, the ledger takes it.
LONGEST = 300
#: What is said of files that cannot be used, here and where they are read in batches.
ODD_ROWS = "path: {} cannot be read as a table: its rows do not fit its header"
ROW_NUMBERS = (
    "columns: every row has another entry in {!r}, so that this column numbers rows rather than naming households; "
    "name the column of the households"
)

#: Types of cells that are text.
_TEXT = (pl.String, pl.Categorical, pl.Enum)


@dataclass(frozen=True, repr=False)
class MeterSource:
    """A file, and how to read it as readings."""

    file: Path
    table: frames.FileTable
    layout: MeterColumns
    types: Mapping[str, Any]  #: of household, timestamp and kw as they come
    unit: Unit
    reason: str  #: why this unit
    forms: tuple[str, ...] = ()  #: layouts of text timestamps
    named: bool = False  #: whether the caller named the layout
    offsets: bool = False  #: whether text timestamps carry an offset from UTC
    epoch: int | None = None  #: microseconds of the unit of times since 1970
    #: Under the readings' promise: nothing was seen from the rows, and what cannot be read is missing, row by row.
    declared: bool = False

    @property
    def time_zone(self) -> str | None:
        """Zone of the timestamps as they are read; None for wall-clock time."""
        instants = self.offsets or self.epoch is not None
        return "UTC" if instants else getattr(self.types["timestamp"], "time_zone", None)

    @property
    def columns_in_words(self) -> str:
        """Which columns were taken for what, in words; households that are columns are not named."""
        layout = self.layout
        times = f"{layout.timestamp!r}" + ("" if layout.clock is None else f" and {layout.clock!r}")
        across = {"days": ", a column per time of the day", "times": ", a column per time"}.get(layout.shape, "")
        who = "a column per household" if layout.shape == "households" else "one household per file"
        who = who if layout.household is None else f"households from the column {layout.household!r}{across}"
        what = "" if layout.value is None else f", readings from {layout.value!r}"
        return who + (f", times from {times}" if layout.timestamp else "") + what

    def standard_batches(self, number: int) -> Iterator[pl.DataFrame]:
        """The rows in standard types, about :data:`BATCH` readings at a time; ``number`` is that of the file.

        Columns: household, file, turn (order of appearance where batches do not follow it), time in microseconds, wall
        (whether that is of the clock on the wall), kw (kWh where the unit is one of energy), invalid, empty (no reading
        in a row or column that may be there because of another household).
        """
        name, layout = self.file.name, self.layout
        rows = readable = 0
        by_column = layout.shape == "times"  # unpivoted batches go column by column, and so must the whole file
        try:
            for batch in frames.row_batches(
                self.table.raw.select(layout.needed_columns), max(BATCH // max(len(layout.across), 1), 1)
            ):
                turn = pl.int_range(pl.len()) // max(len(batch), 1) if by_column else pl.lit(0)
                piece = self._standard_columns(long_table(batch.lazy(), layout, self.file)).select(
                    pl.col("household").fill_null(""),
                    file=pl.lit(number, pl.UInt32),
                    turn=turn.cast(pl.UInt32),
                    time=pl.col("timestamp").dt.epoch("us"),
                    wall=pl.lit(self.time_zone is None),
                    kw="kw",
                    invalid="invalid",
                    empty=pl.lit(bool(layout.across)) & ~pl.col("invalid") & pl.col("kw").fill_nan(None).is_null(),
                ).collect(engine="in-memory")  # fmt: skip
                rows, readable = rows + len(piece), readable + piece["time"].count()
                yield piece
        except frames.UNREADABLE:
            if not self.declared or layout.shape != "single":
                raise InputError(ODD_ROWS.format(name)) from None
        if self.declared:
            return
        if not rows:
            raise InputError(f"path: {name} has a header and no rows")
        if not readable:
            raise InputError(
                f"columns: no timestamp of {name} can be read; pass timestamp_format=, such as '%d/%m/%Y %H:%M'"
            )

    def _standard_columns(self, long: pl.LazyFrame) -> pl.LazyFrame:
        """Convert household, timestamp and kw to standard types; ``invalid`` marks text that is no number."""
        dtype = self.types["timestamp"]
        stamp = pl.col("timestamp")
        if self.epoch is not None:
            stamp = clock.instants_since_1970(stamp, self.epoch)
        elif isinstance(dtype, pl.String):
            # Each distinct text is parsed once: households share their timestamps.
            parsed = clock.parse_timestamps(stamp, self.forms, offsets=self.offsets, named=self.named)
            known = long.select("timestamp").unique().with_columns(_stamp=parsed)
            long = long.join(known, on="timestamp", how="left", maintain_order="left")
            stamp = pl.col("_stamp")
        else:
            stamp = stamp.cast(pl.Datetime("us", getattr(dtype, "time_zone", None)))
        value, text = pl.col("kw"), self.types["kw"] == pl.String
        number = frames.number_of(value, self.types["kw"], decimal_comma=self.table.decimal_comma)
        invalid = number.is_null() & value.is_not_null() & (value.str.strip_chars() != "") if text else pl.lit(False)
        name = readable_names() if self.declared else household_names()
        return long.select(name, timestamp=stamp, kw=self.unit.to_kilo(number), invalid=invalid)


@dataclass(frozen=True)
class OpenedSources:
    """Files that are read together: one unit for all, said why, and which columns were taken."""

    sources: list[MeterSource]
    energy: bool
    unit: str
    reason: str
    taken: str
    time_zone: str | None  #: the clock that all readings are put on
    numbering: str | None  #: the column that numbers rows, should every household have one row


def household_names() -> pl.Expr:
    """Expression for the column ``household`` as text."""
    return pl.col("household").cast(pl.String).str.strip_chars()


def readable_names() -> pl.Expr:
    """Expression for ``household`` as text, null where a name cannot be read or recorded."""
    name = household_names()
    return pl.when(~name.str.contains("[\x00\ufffd]") & (name.str.len_chars() <= LONGEST)).then(name)


def household_of_file(file: Path) -> str:
    """Name of the household of a file that holds one: the file's name without suffixes.

    >>> household_of_file(Path("site.1.csv.gz")), household_of_file(Path("H7.PARQUET")), household_of_file(Path("a.b"))
    ('site.1', 'H7', 'a.b')
    """
    name = file.name.encode("utf-8", "backslashreplace").decode()  # of bytes that are no text
    name = name[: -len(".gz")] if name.lower().endswith(".gz") else name
    suffix = next((end for end in frames.SUFFIXES if name.lower().endswith(end)), "")
    return name[: len(name) - len(suffix)].strip()


def choose_spellings(names: Iterable[str], on_record: Mapping[str, str], *, together: bool = False) -> dict[str, str]:
    """Name -> the spelling to use for it, for names that are on record or in this input in another one.

    That is the spelling on record, else the only one there is in normal form C. Two spellings in one input are refused,
    or taken ``together`` where a refusal would tell of one household.
    """
    names = list(names)
    several = spellings(names)
    if several and not together:
        raise InputError(
            f"household_column: {count_of(len(several), 'household')} stand there in two spellings, which differ in "
            "capitals, spaces, accents or invisible characters. They would be one household or two: write each name in "
            "one way"
        )
    chosen = {}
    group_of = {name: group for group in several.values() for name in group}
    for name in names:
        group = group_of.get(name, [name])
        known = next((on_record[other] for other in group if other in on_record), None)
        spelling = known or unicodedata.normalize("NFC", group[0])
        if spelling != name:
            chosen[name] = spelling
    return chosen


def understand_files(
    files: Sequence[Path] | pl.LazyFrame,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    unit: str | None = None,
    time_zone: str | None = None,
    encoding: str | None = None,
) -> OpenedSources:
    """Find out how files that are read together, or a table, are to be read, by headers and first rows."""
    said, zone = parse_unit(unit), clock.parse_time_zone(time_zone)
    encoding = None if encoding is None else frames.declared_encoding(encoding)
    if isinstance(files, pl.LazyFrame):
        opened = [_understand_file(Path(frames.FRAME), frames.FileTable(files), columns, timestamp_format, said)]
    else:
        opened = [_understand_file(file, None, columns, timestamp_format, said, encoding) for file in files]
    largest = [numbers for _, _, numbers in opened if numbers is not None]
    name = opened[0][0].file.name if len(opened) == 1 else "these files"
    sources = [
        source if numbers is None else replace(source, forms=clock.layouts_by_largest(sample, largest, name))
        for source, sample, numbers in opened
    ]
    if len({source.unit.energy for source in sources}) > 1:
        raise InputError("unit: some files hold energy (kWh) and others power (kW); read them separately")
    units = " and ".join(dict.fromkeys(source.unit.name for source in sources))
    differ = " (other files differ in their names)"
    reason, taken = (
        texts[0] + differ * (len(set(texts)) > 1)
        for texts in ([source.reason for source in sources], [source.columns_in_words for source in sources])
    )
    zones = {source.time_zone for source in sources}
    if zone is None and len(zones) > 1 and None in zones:
        raise InputError("time_zone: some files have zoned timestamps and others not; pass time_zone=")
    zone = zone or (zones.pop() if len(zones) == 1 else "UTC")
    numbering = sources[0].layout.household if all(source.layout.shape == "long" for source in sources) else None
    return OpenedSources(sources, sources[0].unit.energy, units, reason, taken, zone, numbering)


def _understand_file(
    file: Path,
    table: frames.FileTable | None,
    columns: Mapping[str, str] | None,
    timestamp_format: str | None,
    unit: Unit | None,
    encoding: str | None = None,
) -> tuple[MeterSource, pl.Series, tuple[int, int] | None]:
    """How one file is to be read, first entries of its timestamps, and largest numbers of dates such as 03/04/2024."""
    try:
        table, own_unit, reason = _open_table(file, encoding) if table is None else (table, None, "")
        layout = recognize_columns(list(table.raw.collect_schema()), columns if own_unit is None else None, file.name)
        if layout.clock is not None:
            second = table.raw.select(layout.clock).head(200).collect().to_series()
            if not clock.stripped_texts(second).str.contains(clock.TIME_OF_DAY).all():  # it holds whole timestamps
                layout = replace(layout, timestamp=layout.clock, clock=None)
        known, reason = _unit_and_reason(table.raw, layout, file, unit) if own_unit is None else (own_unit, reason)
        long = long_table(table.raw, layout, file)
        types = long.collect_schema()
        sample = clock.stripped_texts(long.select("timestamp").head(200).collect()["timestamp"])
        text = isinstance(types["timestamp"], pl.String)
        named = timestamp_format is not None and own_unit is None
        epoch = clock.unit_since_1970(sample) if (text and not named) or types["timestamp"].is_numeric() else None
        forms: tuple[str, ...] = ()
        numbers = None
        if text and named:
            forms = (str(timestamp_format),)
        elif text and epoch is None and clock.is_day_or_month_first(sample):
            numbers = clock.largest_day_and_month(long)
        elif text and epoch is None:
            forms = clock.likely_layouts(sample)
    except frames.UNREADABLE:  # their texts may quote readings
        raise InputError(f"path: {file.name} is empty or cannot be read as a table") from None
    if not isinstance(types["timestamp"], (pl.String, pl.Datetime, pl.Date)) and epoch is None:
        raise InputError(
            f"columns: {layout.timestamp!r} of {file.name} must hold text, datetimes, or seconds, milliseconds or "
            "microseconds since 1970"
        )
    if not isinstance(types["kw"], pl.String) and not types["kw"].is_numeric():
        raise InputError(f"columns: the values of {file.name} must be numbers")
    offsets = bool(forms) and clock.has_offsets(sample)
    source = MeterSource(file, table, layout, dict(types), known, reason, forms, named, offsets, epoch)
    return source, sample, numbers


def _unit_and_reason(raw: pl.LazyFrame, layout: MeterColumns, file: Path, named: Unit | None) -> tuple[Unit, str]:
    """The unit of a file's readings, and why: the caller says so, or a column of units, or the names of columns."""
    if named is not None:
        return named, "you said so (unit)"
    if layout.unit_field is not None:
        entries = raw.select(pl.col(layout.unit_field).cast(pl.String)).unique().collect(engine="streaming")
        said = {unit_in_name(entry.strip()) for entry in entries.to_series().drop_nulls().to_list()}
        if len(said) == 1 and None not in said:
            return next(unit for unit in said if unit), f"its column {layout.unit_field!r} says so"
        raise InputError(
            f"unit: the column {layout.unit_field!r} of {file.name} names several units, or one that is not known; "
            "split the file by unit, or pass unit="
        )
    if layout.unit is not None:
        column = f"the column's name says so ({layout.value!r})"
        return layout.unit, column if layout.value else "the names of all columns say so"
    what = f"the column {layout.value!r} of {file.name} holds" if layout.value else f"{file.name} holds"
    raise InputError(
        f"unit: nothing says whether {what} power or energy per interval, and in which unit; pass unit=, one of "
        f"{', '.join(UNITS)}"
    )


def _open_table(file: Path, encoding: str | None) -> tuple[frames.FileTable, Unit | None, str]:
    """Open a file as a lazy table; with its unit and why, where its format has one of its own.

    Of such a format it is a long table of mean power; channels of one household that meet are added.
    """
    is_text = not file.name.lower().endswith((*frames.PARQUET, *frames.ARROW))
    text = frames.read_beginning(file, encoding)[1] if is_text else ""
    form = next((one for one in formats.FORMATS if text.startswith(one.beginnings)), None)
    if form is None:
        return frames.open_table_file(file, encoding), None, ""
    if form.rows is None:
        raise InputError(f"path: {file.name} is {form.name}, {form.words}")
    scratch = frames.ScratchFile("meters.csv")
    with raise_storage_error(), scratch.path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(("household", "channel", "timestamp", "kw"))
        writer.writerows(form.rows(file))
    raw = pl.scan_csv(scratch.path, infer_schema=False)
    channels = raw.group_by("household").agg(channels=pl.col("channel").n_unique()).collect()
    if (channels["channels"] > 1).any():
        value = pl.col("kw").cast(pl.Float64, strict=False)
        raw = (
            raw.group_by("household", "timestamp", maintain_order=True)
            .agg(kw=value.sum(), known=value.is_not_null().sum())
            .join(channels.lazy(), on="household", how="left", maintain_order="left")
            .select("household", "timestamp", kw=pl.when(pl.col("known") == pl.col("channels")).then("kw"))
        )
    return frames.FileTable(raw, scratch=scratch), replace(UNITS["kw"], name=form.unit), form.words


def long_table(raw: pl.LazyFrame, layout: MeterColumns, file: Path) -> pl.LazyFrame:
    """Convert a table of any layout to rows of household, timestamp and kw.

    The type of one column says nothing about the others, which may be other households: numbers become doubles before
    anything is joined, and text beside them makes text of these doubles, which reads back as the same. Cells of other
    types hold no reading.
    """
    household = pl.lit(household_of_file(file)) if layout.household is None else pl.col(layout.household)
    stamp = pl.col(layout.timestamp or "")
    stamp = stamp if layout.clock is None else clock.join_date_and_time(stamp, pl.col(layout.clock))
    if layout.shape in ("long", "single"):
        return raw.select(household=household, timestamp=stamp, kw=layout.value)
    index = [c for c in (layout.household, layout.timestamp, layout.clock) if c is not None]
    if layout.shape == "days":
        raw, index = raw.with_row_index("row_"), ["row_", *index]
    types = raw.collect_schema()
    with_text = any(isinstance(types[c], _TEXT) for c in layout.across)
    raw = raw.with_columns(_readable_cells(c, types[c], with_text) for c in layout.across)
    long = raw.unpivot(on=list(layout.across), index=index, variable_name="across_", value_name="kw_")
    if layout.shape == "households":
        household = pl.col("across_")
    elif layout.shape == "times":
        stamp = pl.col("across_")
    else:
        long, stamp = long.sort("row_", maintain_order=True), clock.join_date_and_time(stamp, pl.col("across_"))
    return long.select(household=household, timestamp=stamp, kw="kw_")


def _readable_cells(column: str, dtype: pl.DataType, with_text: bool) -> pl.Expr:
    """The cells of a column as doubles, or ``with_text`` as text; null where its type holds no numbers."""
    cells = pl.col(column).cast(pl.Float64) if dtype.is_numeric() else pl.col(column)
    if not dtype.is_numeric() and not isinstance(dtype, _TEXT):
        cells = pl.lit(None, pl.Float64).alias(column)
    return cells.cast(pl.String) if with_text else cells


def read_meters(
    path: frames.Paths | Any,
    *,
    unit: str | None = None,
    interval: Any = None,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    max_kw: float | None = None,
    encoding: str | None = None,
) -> pl.DataFrame:
    """Readings on a regular grid, from meter files of many shapes.

    Args:
        path: CSV, Parquet, Arrow or NEM12: a file, a pattern, a folder (all such files under it, runs of
            shoal excepted), or a sequence of these; or a frame of Polars, pandas or Arrow (any object with
            ``__arrow_c_stream__``). A table is long (one reading per row), wide (a column per household, or a row per
            household with a column per time, or a row per household and day), or holds one household, named after the
            file. Text may be UTF-8, UTF-16 or Latin-1.
        unit: ``"w"``, ``"kw"`` or ``"mw"`` (mean power), ``"wh"``, ``"kwh"`` or ``"mwh"`` (energy per interval); by
            default what the columns are called, or a column of units says. Where nothing tells, it has to be named.
            ``"kwh-register"``: readings are totals that only rise, and differences are taken; ``"kwh-interval"``: each
            is that of its interval; by default seen from the readings (:mod:`shoal.product.sources.meters.quality`).
        interval: timedelta or minutes; by default the most common distance between readings.
        time_zone: zone of wall-clock timestamps (clock changes are resolved), or zone to show zoned ones in. A meter
            that ignores summer time has a fixed zone such as ``"Etc/GMT-1"``.
        columns: which column is the ``household``, ``timestamp`` (``"Date+Time"`` for two) or ``value``, where its
            name does not tell.
        timestamp_format: strftime layout of text timestamps, where it is not understood.
        max_kw: readings above it are taken for meter faults and become missing.
        encoding: of text files, such as ``"cp1252"``; by default what they look like.

    Returns:
        A polars frame with household, timestamp, kw, sorted, null where no reading is usable. A
        :class:`QualityWarning` says how many households were repaired or left out;
        :func:`shoal.product.sources.meters.meter_files.meter_readings` returns the table with the reasons as well.

    >>> import tempfile
    >>> import polars as pl
    >>> import shoal
    >>> times = ["2024-01-01 00:00", "2024-01-01 00:15", "2024-01-01 00:30"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     frame = pl.DataFrame({"household": "a", "timestamp": times, "kw": [0.2, 0.4, 0.3]})
    ...     frame.write_csv(f"{folder}/meters.csv")
    ...     shoal.read_meters(f"{folder}/meters.csv")["kw"].to_list()
    [0.2, 0.4, 0.3]
    """
    readings = meter_readings(**locals())  # the same arguments
    totals = readings.totals()
    said = [f"{totals['large']} of the households {LARGE}"] if totals["large"] else []
    said += readings.owner_notes()
    if totals["repaired"] or totals["left out"]:
        said.append(
            f"of {len(readings.quality)} households, {totals['repaired']} were repaired and {totals['left out']} left "
            "out; quality.csv of a run says why, and so does shoal.product.sources.meters.meter_files.meter_readings()"
        )
    for sentence in said:
        warnings.warn(sentence, QualityWarning, stacklevel=2)
    return readings.frame


def meter_readings(
    path: frames.Paths | Any,
    *,
    unit: str | None = None,
    interval: Any = None,
    max_kw: float | None = None,
    **reading: Any,
) -> Readings:
    """The readings that :func:`read_meters` gives, from the same arguments, with their quality table."""
    table = frames.lazy_table(path)
    files = frames.find_meter_files(path) if table is None else table
    opened = understand_files(files, unit=unit, **reading)
    standard_batches = pl.concat(
        [piece for number, source in enumerate(opened.sources) for piece in source.standard_batches(number)]
    )
    other = choose_spellings(standard_batches["household"].unique().to_list(), {})
    rows = order_rows(standard_batches.with_columns(pl.col("household").replace(other)), opened.time_zone)
    if interval is None and opened.numbering is not None and rows["household"].n_unique() == len(rows) > 2:
        raise ColumnsError(ROW_NUMBERS.format(opened.numbering))
    register = are_registers(*count_registers(rows), energy=opened.energy, meter=parse_meter_kind(unit))
    return repair_readings(
        rows,
        interval=interval,
        max_kw=max_kw,
        energy=opened.energy,
        register=register,
        unit=opened.unit,
    )


def order_rows(rows: pl.DataFrame, time_zone: str | None) -> pl.DataFrame:
    """Put batches of rows in the order of the input and on the clock of a zone, for :func:`repair_readings`.

    Empty cells are dropped before anything is counted, but for households that have nothing else: in a wide file there
    is a row wherever any household has a reading.
    """
    rows = rows.filter(~pl.col("empty") | pl.col("empty").all().over("household"))
    if rows["turn"].max():
        rows = rows.sort("file", "turn", maintain_order=True)
    time, wall = pl.col("time"), pl.col("wall")
    stamp = clock.on_clock(time, time_zone)
    frame = rows.with_columns(timestamp=stamp, bad_time=time.is_null(), no_such_time=pl.lit(False))
    if time_zone is not None and rows["wall"].any():
        walls = rows.lazy().with_columns(timestamp=clock.on_clock(time, None))
        local = clock.resolve_clock_changes(walls, time_zone, within=("file",)).collect(engine="in-memory")
        shown = pl.when(wall).then(local["timestamp"]).otherwise("timestamp")
        frame = frame.with_columns(timestamp=shown, no_such_time=wall & local["no_such_time"])
    return frame.select("household", "timestamp", "kw", "invalid", "bad_time", "no_such_time")
