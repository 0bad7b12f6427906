"""Meter files of many shapes, read into one frame: household, timestamp, kw."""

from __future__ import annotations

import glob
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from shoal.errors import InputError
from shoal.sources.frames import ARROW, PARQUET, UNREADABLE, WORKBOOKS, table_of
from shoal.sources.meters import clock
from shoal.sources.meters.columns import ColumnsError
from shoal.sources.meters.meter_file import (
    NO_ROWS,
    NO_TIMES,
    ODD_ROWS,
    ROW_NUMBERS,
    MeterSource,
    open_sources,
)
from shoal.sources.meters.quality import LARGE, REGISTER, QualityWarning, Readings, decided, repair, rising

SUFFIXES = (".csv", ".csv.gz", ".txt", ".tsv", ".xml", *PARQUET, *ARROW)

#: One path, a pattern or a folder, or several of them.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_meters(
    path: Paths | Any,
    *,
    unit: str | None = None,
    interval: Any = None,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    max_kw: float | None = None,
    meter: str | None = None,
) -> pl.DataFrame:
    """Readings on a regular grid, from meter files of many shapes.

    Args:
        path: CSV, Parquet, Arrow, NEM12 or Green Button: a file, a pattern, a folder (all such files under it, runs of
            shoal excepted), or a sequence of these; an address that Polars scans, or a Delta table; or a frame of
            Polars, pandas, Arrow or DuckDB (any object with ``__arrow_c_stream__``). A table is
            long (one reading per row), wide (a column per household, or a row per household with a column per time, or
            a row per household and day), or holds one household, named after the file. Text may be UTF-8, UTF-16 or
            Latin-1.
        unit: ``"w"``, ``"kw"`` or ``"mw"`` (mean power), ``"wh"``, ``"kwh"`` or ``"mwh"`` (energy per interval); by
            default what the columns are called, or a column of units says. Where nothing tells, it has to be named.
        interval: timedelta or minutes; by default the most common distance between readings.
        time_zone: zone of wall-clock timestamps (clock changes are resolved, see :mod:`shoal.sources.meters.clock`), or
            zone to show zoned ones in. A meter that ignores summer time has a fixed zone such as ``"Etc/GMT-1"``.
        columns: which column is the ``household``, ``timestamp`` (``"Date+Time"`` for two) or ``value``, where its
            name does not tell.
        timestamp_format: strftime layout of text timestamps, where it is not understood.
        max_kw: readings above it are taken for meter faults and become missing.
        meter: ``"register"``: readings are totals that only rise, and differences are taken; ``"interval"``: each is
            that of its interval; by default seen from the readings (:mod:`shoal.sources.meters.quality`).

    Returns:
        A polars frame with household, timestamp, kw, sorted, null where no reading is usable. A
        :class:`QualityWarning` says how many households were repaired or left out;
        :func:`shoal.sources.meters.readings.meter_readings` returns the table with the reasons as well.

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
    readings = meter_readings(
        path,
        unit=unit,
        interval=interval,
        time_zone=time_zone,
        columns=columns,
        timestamp_format=timestamp_format,
        max_kw=max_kw,
        meter=meter,
    )
    found = readings.summary()
    if found["large"]:
        warnings.warn(f"{found['large']} of the households {LARGE}", QualityWarning, stacklevel=2)
    for note in readings.notes():
        warnings.warn(note, QualityWarning, stacklevel=2)
    if found["repaired"] or found["left out"]:
        warnings.warn(
            f"of {len(readings.quality)} households, {found['repaired']} were repaired and {found['left out']} left "
            "out: shoal.sources.meters.readings.meter_readings() returns the table with the reasons",
            QualityWarning,
            stacklevel=2,
        )
    return readings.frame


def meter_readings(
    path: Paths | Any,
    *,
    unit: str | None = None,
    interval: Any = None,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    max_kw: float | None = None,
    meter: str | None = None,
) -> Readings:
    """The frame of :func:`read_meters`, from the same arguments, with its quality table."""
    zone = clock.zone(time_zone)
    table = table_of(path)
    opened = open_sources(meter_files(path) if table is None else table, columns, timestamp_format, unit)
    parts: dict[str, MeterSource] = {}
    for source in opened.sources:
        parts[source.file.name if source.file.name not in parts else str(source.file)] = source
    rows = _stack(parts, zone)
    column = numbered(opened.sources) if interval is None else None
    if column is not None and rows["household"].n_unique() == len(rows) > 2:
        raise ColumnsError(ROW_NUMBERS.format(column))
    register = decided(*rising(rows), energy=opened.energy, meter=meter)
    return repair(
        rows,
        interval=interval,
        max_kw=max_kw,
        energy=opened.energy,
        register=register,
        unit=opened.unit,
        unit_reason=opened.reason + (REGISTER if register else ""),
    )


def numbered(sources: Sequence[MeterSource]) -> str | None:
    """The column that numbers rows, where every household has one row: all files are long."""
    return sources[0].layout.household if all(source.layout.shape == "long" for source in sources) else None


def meter_files(path: Paths) -> list[Path]:
    """Every file that a path, a pattern or a folder stands for, in sorted order."""
    if not isinstance(path, (str, os.PathLike)):
        found = [file for each in path for file in meter_files(each)]
        if not found:
            raise InputError("path must name at least one file")
        return list(dict.fromkeys(found))
    text = os.fspath(path)
    if os.path.isdir(text):
        if is_run(text):
            raise InputError(f"path: {Path(text).name} is a run of shoal, not a folder of meter files")
        every = sorted(_inside(text))
        inside = [p for p in every if p.name.lower().endswith(SUFFIXES)]
        if not inside:
            books = any(p.name.lower().endswith(WORKBOOKS) for p in every)
            more = ", but spreadsheets: save them as CSV" if books else ""
            raise InputError(f"path: the folder {Path(text).name} holds no CSV or Parquet file{more}")
        return inside
    if os.path.isfile(text):
        return [Path(text)]
    matches = sorted(Path(p) for p in glob.glob(text, recursive=True) if os.path.isfile(p))
    if not matches:
        raise InputError(f"path: {Path(text).name} is not a file, a folder or a pattern that matches any")
    return matches


def is_run(folder: str | Path) -> bool:
    """Whether a folder is a run of shoal: what lies there are its results, not readings."""
    try:
        content = json.loads(Path(folder, "state.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == "shoal run"


def _inside(folder: str) -> Iterator[Path]:
    """Files under a folder, without hidden ones and without runs of shoal."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and not is_run(Path(where, name))]
        yield from (Path(where, name) for name in names if not name.startswith("."))


def _clocked(source: MeterSource, zone: str | None) -> pl.LazyFrame:
    """A file's standard rows, on the clock asked for."""
    lazy = source.standard(source.melt(source.raw))
    if zone is None:
        return lazy
    if source.time_zone is not None:
        return lazy.with_columns(pl.col("timestamp").dt.convert_time_zone(zone))
    return clock.localize(lazy, zone)


def common_zone(zones: set[str | None]) -> str | None:
    """The zone of files with these zones together; wall-clock and zoned timestamps do not mix."""
    if len(zones) == 1:
        return next(iter(zones))
    if None in zones:
        raise InputError("time_zone: some files have zoned timestamps and others not; pass time_zone=")
    return "UTC"


def _stack(parts: Mapping[str, MeterSource], zone: str | None) -> pl.DataFrame:
    """All files as one frame."""
    frames: list[pl.DataFrame] = []
    zones: set[str | None] = set()
    for name, source in parts.items():
        # The streaming engine unpivots batch by batch: a household in two rows would seem to be out of order.
        in_memory = source.layout.shape == "times"
        try:
            frame = _clocked(source, zone).collect(engine="in-memory" if in_memory else "auto")
        except UNREADABLE:
            raise InputError(ODD_ROWS.format(name)) from None
        if not len(frame):
            raise InputError(NO_ROWS.format(name))
        if frame["timestamp"].is_null().all() and not frame["no_such_time"].any():
            raise InputError(NO_TIMES.format(name))
        zones.add(frame.schema["timestamp"].time_zone)  # type: ignore[attr-defined]
        frames.append(frame)
    shown = common_zone(zones)
    if len(zones) > 1:
        frames = [f.with_columns(pl.col("timestamp").dt.convert_time_zone(str(shown))) for f in frames]
    return pl.concat(frames)
