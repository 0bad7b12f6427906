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
from shoal.meters.columns import Layout, recognize
from shoal.meters.quality import QualityWarning, Readings, repair

if TYPE_CHECKING:
    import polars as pl

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
    """Readings on a regular grid: a polars frame with household, timestamp, kw, sorted, null where none is usable.

    Same as ``load_meters(...).frame``, with a :class:`QualityWarning` when anything was repaired or left out;
    :func:`load_meters` also returns the table that says what.
    """
    readings = load_meters(
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
            "out: load_meters() returns the quality table with the reasons",
            QualityWarning,
            stacklevel=2,
        )
    return readings.frame


def load_meters(
    path: Paths,
    *,
    unit: str | None = None,
    interval: Any = None,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    max_kw: float | None = None,
) -> Readings:
    """Readings with their quality table.

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
    """
    if unit is not None:
        validation.choice(("kw", "kwh"), unit=unit)
    zone = clock.zone(time_zone)
    files = meter_files(path)
    parts: dict[str, pl.LazyFrame] = {}
    energies: set[bool] = set()
    for file in files:
        frame, energy = _scan(file, columns, timestamp_format, zone)
        parts[file.name if file.name not in parts else str(file)] = frame
        energies.add(energy if unit is None else unit == "kwh")
    if len(energies) > 1:
        raise InputError("unit: some files name their values kWh and others kW; read them apart")
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


def _scan(
    file: Path, columns: Mapping[str, str] | None, timestamp_format: str | None, zone: str | None
) -> tuple[pl.LazyFrame, bool]:
    """One file as a lazy long frame with fault flags, and whether its values are named energy."""
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

    dtype = types["timestamp"]
    stamp = pl.col("timestamp")
    if isinstance(dtype, pl.String):
        # Each distinct text is parsed once: households share their timestamps.
        parsed = clock.parse(stamp, forms, offsets=offsets, named=timestamp_format is not None)
        known = long.select("timestamp").unique().with_columns(_stamp=parsed)
        long = long.join(known, on="timestamp", how="left", maintain_order="left")
        stamp = pl.col("_stamp")
    elif isinstance(dtype, (pl.Datetime, pl.Date)):
        stamp = stamp.cast(pl.Datetime("us", getattr(dtype, "time_zone", None)))
    else:
        raise InputError(f"columns: {layout.timestamp!r} of {file.name} must hold text or datetimes")
    value = pl.col("kw")
    if isinstance(types["kw"], pl.String):
        value = value.str.strip_chars()
        value = value.str.replace(",", ".", literal=True) if decimal_comma else value
        number = value.cast(pl.Float64, strict=False)
        invalid = number.is_null() & value.is_not_null() & (value != "")
    elif types["kw"].is_numeric():
        number = value.cast(pl.Float64)
        invalid = pl.lit(False)
    else:
        raise InputError(f"columns: the values of {file.name} must be numbers")
    lazy = long.select(
        pl.col("household").cast(pl.String).str.strip_chars(),
        timestamp=stamp,
        kw=number,
        invalid=invalid,
        bad_time=stamp.is_null(),
        no_such_time=pl.lit(False),
    )
    zoned = offsets or getattr(dtype, "time_zone", None) is not None
    if zoned and zone is not None:
        lazy = lazy.with_columns(pl.col("timestamp").dt.convert_time_zone(zone))
    elif zone is not None:
        lazy = clock.localize(lazy, zone)
    return lazy, layout.energy


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
    """Any layout as household, timestamp, kw, still in the types of the file."""
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


def _stack(parts: Mapping[str, pl.LazyFrame], zone: str | None) -> pl.DataFrame:
    """All files as one frame; wall-clock and zoned timestamps do not mix."""
    import polars as pl

    frames: list[pl.DataFrame] = []
    zones: set[str | None] = set()
    for name, lazy in parts.items():
        try:
            frame = lazy.collect()
        except (pl.exceptions.PolarsError, OSError, UnicodeError):
            raise InputError(f"path: {name} cannot be read as a table: its rows do not fit its header") from None
        if not len(frame):
            raise InputError(f"path: {name} has a header and no rows")
        if frame["timestamp"].is_null().all() and not frame["no_such_time"].any():
            raise InputError(f"columns: no timestamp of {name} can be read; pass timestamp_format=")
        zones.add(frame.schema["timestamp"].time_zone)  # type: ignore[attr-defined]
        frames.append(frame)
    if len(zones) > 1:
        if None in zones:
            raise InputError("time_zone: some files have zoned timestamps and others not; pass time_zone=")
        frames = [f.with_columns(pl.col("timestamp").dt.convert_time_zone("UTC")) for f in frames]
    return pl.concat(frames)
