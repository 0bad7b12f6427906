"""A stretch of readings as a dense array: households by grid points, NaN where missing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from shoal.errors import InputError
from shoal.sources.meters import clock
from shoal.sources.meters.quality import Readings, repair
from shoal.validation import FloatArray

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, repr=False)
class TrainingWindow:
    """``kw`` (n, T) of the ``households`` at ``timestamps`` (T,), which belong to [start, start + T·step)."""

    households: tuple[str, ...]
    timestamps: pl.Series
    kw: FloatArray


def as_readings(readings: Readings | pl.DataFrame) -> Readings:
    """Readings as they are; a frame is put on its grid first."""
    return readings if isinstance(readings, Readings) else repair(readings)


def cut(readings: Readings, origin: int, steps: int) -> TrainingWindow:
    """``steps`` grid points from ``origin`` on (after it if positive, up to it if negative)."""
    width = readings.step // MICROSECOND
    start = origin if steps >= 0 else origin + steps * width
    length = abs(steps)
    households = readings.frame["household"].unique().sort()
    time = pl.col("timestamp").dt.epoch("us")
    part = readings.frame.select("household", slot=(time - start) // width, kw="kw").filter(
        (pl.col("slot") >= 0) & (pl.col("slot") < length)
    )
    kw = np.full((len(households), length), np.nan)
    row = part["household"].cast(pl.Enum(households)).to_physical().to_numpy()
    kw[row, part["slot"].to_numpy()] = part["kw"].fill_null(float("nan")).to_numpy()
    return TrainingWindow(tuple(households.to_list()), stamps(start, readings.step, length, readings.time_zone), kw)


def stamps(start: int, step: timedelta, length: int, time_zone: str | None) -> pl.Series:
    """``length`` instants from ``start``, microseconds of the epoch, on the clock of a zone or on none."""
    moments = pl.Series("timestamp", start + step // MICROSECOND * np.arange(length))
    stamped: pl.Series = clock.on_clock(moments, time_zone)
    return stamped


def place_origin(readings: Readings, origin: datetime | str | None) -> int:
    """The end of the training window, in microseconds of the epoch.

    By default the latest one that at least half of the households reach with their readings.
    """
    width = readings.step // MICROSECOND
    ends = readings.frame.group_by("household").agg(pl.col("timestamp").dt.epoch("us").max().alias("end"))["end"]
    if not len(ends):
        raise InputError("readings: no household is left; the quality table says why")
    first = int(readings.frame.select(pl.col("timestamp").dt.epoch("us").min()).item())
    if origin is None:
        return int(ends.sort()[(len(ends) - 1) // 2]) + width
    moment = clock.instant(origin, readings.time_zone, name="origin")
    naive = moment if moment.tzinfo is None else (moment - moment.utcoffset()).replace(tzinfo=None)  # type: ignore[operator]
    at = (naive - datetime(1970, 1, 1)) // MICROSECOND
    if (at - first) % width:
        raise InputError("origin must fall on the grid of the readings")
    if at > int(ends.max()) + width:  # type: ignore[arg-type]
        raise InputError("origin lies after the last reading of every household")
    if at <= first:
        raise InputError("origin lies before the first reading of every household: nothing is left to train on")
    return at


def in_zone(moment: int, time_zone: str | None) -> datetime:
    """Microseconds of the epoch as a datetime on the clock of the readings."""
    result = stamps(moment, timedelta(0), 1, time_zone)[0]
    assert isinstance(result, datetime)
    return result
