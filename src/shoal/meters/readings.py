"""Meter files of many shapes, read into one frame: household, timestamp, kw."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal import validation
from shoal.errors import InputError
from shoal.meters import clock
from shoal.meters.meter_file import Source, open_source
from shoal.meters.quality import QualityWarning, Readings, repair

if TYPE_CHECKING:
    import polars as pl

#: What is said of files that cannot be used, here and where they are read in batches.
MIXED_UNITS = "unit: some files name their values kWh and others kW; read them apart"
ODD_ROWS = "path: {} cannot be read as a table: its rows do not fit its header"
NO_ROWS = "path: {} has a header and no rows"
NO_TIMES = "columns: no timestamp of {} can be read; pass timestamp_format="

SUFFIXES = (".csv", ".csv.gz", ".txt", ".parquet", ".pq")

#: One path, a pattern or a folder, or several of them.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def read_meters(
    path: Paths,
    *,
    unit: str | None = None,
    interval: Any = None,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    max_kw: float | None = None,
) -> pl.DataFrame:
    """Readings on a regular grid, from meter files of many shapes.

    Args:
        path: CSV or Parquet: a file, a pattern, a folder (all such files under it), or a sequence of these. A file
            is long (one reading per row), wide (a column per household, or a row per household with a column
            per time), or holds one household, named after the file.
        unit: ``"kw"`` (mean power) or ``"kwh"`` (energy per interval); by default what the name of the value
            column says, and kW where it says nothing.
        interval: timedelta or minutes; by default the most common distance between readings.
        time_zone: zone of wall-clock timestamps (clock changes are resolved, see :mod:`shoal.meters.clock`), or
            zone to show zoned ones in. A meter that ignores summer time has a fixed zone such as ``"Etc/GMT-1"``.
        columns: which column is the ``household``, ``timestamp`` or ``value``, where its name does not tell.
        timestamp_format: strftime layout of text timestamps, where it is not ISO 8601 or day.month.year.
        max_kw: readings above it are taken for meter faults and become missing.

    Returns:
        A polars frame with household, timestamp, kw, sorted, null where no reading is usable. A
        :class:`QualityWarning` says how many households were repaired or left out;
        :func:`shoal.meters.readings.meter_readings` returns the table with the reasons as well.

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
    )
    found = readings.summary()
    if found["repaired"] or found["left out"]:
        warnings.warn(
            f"of {len(readings.quality)} households, {found['repaired']} were repaired and {found['left out']} left "
            "out: shoal.meters.readings.meter_readings() returns the table with the reasons",
            QualityWarning,
            stacklevel=2,
        )
    return readings.frame


def meter_readings(
    path: Paths,
    *,
    unit: str | None = None,
    interval: Any = None,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    max_kw: float | None = None,
) -> Readings:
    """The frame of :func:`read_meters`, from the same arguments, with its quality table."""
    if unit is not None:
        validation.choice(("kw", "kwh"), unit=unit)
    zone = clock.zone(time_zone)
    files = meter_files(path)
    parts: dict[str, Source] = {}
    energies: set[bool] = set()
    for file in files:
        source = open_source(file, columns, timestamp_format)
        parts[file.name if file.name not in parts else str(file)] = source
        energies.add(source.layout.energy if unit is None else unit == "kwh")
    if len(energies) > 1:
        raise InputError(MIXED_UNITS)
    return repair(_stack(parts, zone), interval=interval, max_kw=max_kw, energy=energies.pop())


def meter_files(path: Paths) -> list[Path]:
    """Every file that a path, a pattern or a folder stands for, in sorted order."""
    if not isinstance(path, (str, os.PathLike)):
        found = [file for each in path for file in meter_files(each)]
        if not found:
            raise InputError("path must name at least one file")
        return list(dict.fromkeys(found))
    text = os.fspath(path)
    if os.path.isdir(text):
        inside = sorted(p for p in Path(text).rglob("*") if p.is_file() and p.name.lower().endswith(SUFFIXES))
        if not inside:
            raise InputError(f"path: the folder {Path(text).name} holds no CSV or Parquet file")
        return inside
    if os.path.isfile(text):
        return [Path(text)]
    matches = sorted(Path(p) for p in glob.glob(text, recursive=True) if os.path.isfile(p))
    if not matches:
        raise InputError(f"path: {Path(text).name} is not a file, a folder or a pattern that matches any")
    return matches


def _clocked(source: Source, zone: str | None) -> pl.LazyFrame:
    """A file's standard rows, on the clock asked for."""
    import polars as pl

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


def _stack(parts: Mapping[str, Source], zone: str | None) -> pl.DataFrame:
    """All files as one frame."""
    import polars as pl

    frames: list[pl.DataFrame] = []
    zones: set[str | None] = set()
    for name, source in parts.items():
        # The streaming engine unpivots batch by batch: a household in two rows would seem to be out of order.
        in_memory = source.layout.shape == "times"
        try:
            frame = _clocked(source, zone).collect(engine="in-memory" if in_memory else "auto")
        except (pl.exceptions.PolarsError, OSError, UnicodeError):
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
