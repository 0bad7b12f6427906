"""Timestamps as they come in meter files, turned into instants.

Four kinds are told apart, per file: text with an offset (``2024-03-31T01:00+01:00``, ``...Z``), text or values
without one (wall-clock time), zoned values in Parquet, and seconds, milliseconds or microseconds since 1970. Wall-clock
time plus a zone is resolved across clock changes: in the hour that autumn repeats, the first half of a household's rows
with the same wall time is summer time and the second half winter time, in file order; a wall time that spring skips
does not exist and is reported.

Whether 03/04/2024 is in April or in March is decided over all files that are read together (docs/wrong-files.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from shoal import validation
from shoal.errors import InputError

MICROSECOND = timedelta(microseconds=1)

#: Wall-clock layouts by the way the date is written, but for two numbers and a year: see :func:`layouts_by_largest`.
LAYOUTS = {
    r"^\d{4}-": ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d"),
    r"^\d{4}/": ("%Y/%m/%d %H:%M:%S%.f", "%Y/%m/%d %H:%M"),
    r"^\d{1,2}\.": ("%d.%m.%Y %H:%M:%S%.f", "%d.%m.%Y %H:%M"),
    r"^\d{8}": ("%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d %H:%M"),
}

_OFFSET = r"(Z|[+-]\d{2}:?\d{2})$"
#: Day and month, in whichever order, and a year of four or two digits.
_NUMBERED = r"^(\d{1,2})[/-](\d{1,2})[/-](\d{4}|\d{2})(?:\D|$)"
_TIMES = (" %H:%M:%S%.f", " %H:%M", " %I:%M:%S %p", " %I:%M %p", "")
#: A time of the day without a date.
TIME_OF_DAY = r"^\d{1,2}:\d{2}"

#: Digits of a time since 1970 -> microseconds of its unit; all of them begin with 1 from 2001 to 2033.
EPOCHS = {10: 10**6, 13: 10**3, 16: 1}


def parse_time_zone(time_zone: str | None) -> str | None:
    """Check that a time zone is one of the IANA database, or None."""
    try:
        ZoneInfo(time_zone or "UTC")
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise InputError("time_zone must name a zone of the IANA database, such as 'Europe/Zurich'") from error
    return time_zone


def parse_step(interval: Any) -> timedelta | None:
    """Convert the metering interval, a timedelta or minutes, to a timedelta that divides a day."""
    if interval is None:
        return None
    if isinstance(interval, (int, float)) and not isinstance(interval, bool):
        interval = timedelta(minutes=float(interval))
    if not isinstance(interval, timedelta):
        raise InputError("interval must be a datetime.timedelta or a number of minutes", argument="interval")
    if interval <= timedelta(0) or timedelta(days=1) % interval:
        raise InputError("interval must be above 0 and divide one day evenly", argument="interval")
    return interval


def parse_steps(horizon: Any, step: timedelta, *, name: str = "horizon") -> int:
    """Convert a horizon to steps: their number, or text such as "3h", "90min" or "2d" that is a multiple of a step.

    >>> [parse_steps(text, timedelta(minutes=30)) for text in ("3h", " 90 MIN", "0.5h", "2d", "12", 7)]
    [6, 3, 1, 96, 12, 7]
    """
    if isinstance(horizon, str) and not horizon.strip().isdigit():
        parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(min|h|d)", horizon.strip().lower())
        if parts is None:
            raise InputError(f"{name} must be a number of steps, or a time such as 3h, 90min or 2d", argument=name)
        span = float(parts[1]) * timedelta(minutes={"min": 1, "h": 60, "d": 1440}[parts[2]])
        if span % step:
            minutes = f"{step / timedelta(minutes=1):g}"
            raise InputError(f"{name} must be a multiple of the {minutes} minutes between readings", argument=name)
        horizon = span // step
    return validation.count(**{name: int(horizon) if isinstance(horizon, str) else horizon})


def stripped_texts(sample: pl.Series) -> pl.Series:
    """Entries of a column as text, without empty ones and without blanks around them."""
    return sample.drop_nulls().cast(pl.String).str.strip_chars()


def likely_layouts(text: pl.Series) -> tuple[str, ...]:
    """Date and time formats to try on a text column, in order: those whose beginning fits one of its entries."""
    return tuple(form for start, forms in LAYOUTS.items() if text.str.contains(start).any() for form in forms)


def is_day_or_month_first(text: pl.Series) -> bool:
    """Whether the first entries of a text column are dates of two numbers and a year, such as 03/04/2024."""
    return bool(2 * text.str.contains(_NUMBERED).sum() > len(text))


def largest_day_and_month(rows: pl.LazyFrame) -> tuple[int, int]:
    """The largest first and second number in a column ``timestamp`` of dates such as 03/04/2024."""
    stamp = pl.col("timestamp").str.strip_chars()
    parts = (stamp.str.extract(_NUMBERED, i).cast(pl.Int64, strict=False).max().alias(str(i)) for i in (1, 2))
    first, second = rows.select(*parts).collect(engine="streaming").row(0)
    return first or 0, second or 0


def layouts_by_largest(text: pl.Series, largest: Sequence[tuple[int, int]], name: str) -> tuple[str, ...]:
    """Layouts of dates such as 03/04/2024, by the largest numbers of all files; refused where none is above 12."""
    dash = "-" if text.str.contains(r"^\d{1,2}-").any() else "/"
    year = "%Y" if text.str.contains(r"^\d{1,2}[/-]\d{1,2}[/-]\d{4}").any() else "%y"
    first, second = (max(numbers) for numbers in zip(*largest, strict=True))
    dates = dash.join(("%d", "%m", year)), dash.join(("%m", "%d", year))
    if (first > 12) == (second > 12):
        raise InputError(
            f"timestamp_format: no date of {name} has a number above 12 that would distinguish days from months; give "
            f"timestamp_format='{dates[0]} %H:%M' where the day comes first, or '{dates[1]} %H:%M' where the "
            "month does"
        )
    return tuple(dates[first <= 12] + time for time in _TIMES)


def unit_since_1970(text: pl.Series) -> int | None:
    """Microseconds of the unit that entries count time since 1970 in; None where they are anything else."""
    text = text.str.replace(r"\.0*$", "")
    lengths = text.str.len_chars().unique().to_list()
    return EPOCHS.get(lengths[0]) if len(lengths) == 1 and text.str.contains(r"^1\d+$").all() else None


def instants_since_1970(stamp: pl.Expr, unit: int) -> pl.Expr:
    """Convert whole counts since 1970, each of ``unit`` microseconds, to instants in UTC; null for anything else."""
    number = stamp.cast(pl.String).str.strip_chars().str.replace(r"\.0*$", "").cast(pl.Int64, strict=False)
    return pl.from_epoch(number * unit, time_unit="us").dt.replace_time_zone("UTC")


def join_date_and_time(date: pl.Expr, time: pl.Expr) -> pl.Expr:
    """Join a date and a time of the day from two columns as text; midnight that a date carries along is dropped."""
    day = date.cast(pl.String).str.strip_chars().str.replace(r"[ T]0?0:00(:00(\.0+)?)?$", "")
    return pl.concat_str([day, time.cast(pl.String).str.strip_chars()], separator=" ")


def parse_timestamps(text: pl.Expr, forms: tuple[str, ...], *, offsets: bool, named: bool = False) -> pl.Expr:
    """Convert text to wall-clock time, or to UTC where it has ``offsets``; null where it fits none of the layouts.

    A layout ``named`` by the caller is taken as it is; else the T of ISO 8601 counts as a space.
    """
    text = text.str.strip_chars()
    shift = pl.duration(minutes=0)
    if offsets:
        offset = text.str.extract(_OFFSET, 1).replace("Z", "+0000").str.replace(":", "", literal=True)
        hours, minutes = (offset.str.slice(at, 2).cast(pl.Int64, strict=False) for at in (1, 3))
        sign = pl.when(offset.str.starts_with("-")).then(-1).otherwise(1)
        shift = pl.duration(minutes=sign * (60 * hours + minutes))
        text = text.str.replace(_OFFSET, "").str.strip_chars()
    text = text if named else text.str.replace("T", " ", literal=True)
    wall = pl.coalesce(
        pl.lit(None, pl.Datetime("us")),
        # A layout without time of day is a date; polars parses it as such.
        *(
            text.str.to_datetime(form, time_unit="us", strict=False)
            if "%H" in form or "%I" in form
            else text.str.to_date(form, strict=False).cast(pl.Datetime("us"))
            for form in forms
        ),
    )
    return (wall - shift).dt.replace_time_zone("UTC") if offsets else wall


def has_offsets(text: pl.Series) -> bool:
    """Whether the first entries of a text column end in an offset from UTC; one needs a time of day before it."""
    timed = text.filter(text.str.contains(":", literal=True))
    return bool(2 * timed.str.contains(r"\d" + _OFFSET).sum() > len(text))


def resolve_clock_changes(frame: pl.LazyFrame, time_zone: str, within: Sequence[str] = ()) -> pl.LazyFrame:
    """Give wall-clock ``timestamp`` its zone; ``no_such_time`` marks what the spring change skips.

    ``within`` names columns that tell files apart: each file repeats the autumn hour for itself.
    """
    same = [*within, "household", "timestamp"]
    late = 2 * pl.int_range(pl.len()).over(same) >= pl.len().over(same)
    which = pl.when((pl.len().over(same) > 1) & late).then(pl.lit("latest")).otherwise(pl.lit("earliest"))
    wall = pl.col("timestamp")
    shown = wall.dt.replace_time_zone(time_zone, ambiguous=pl.col("_which"), non_existent="null")
    return (
        frame.with_columns(_which=which)
        .with_columns(timestamp=shown, no_such_time=wall.is_not_null() & shown.is_null())
        .drop("_which")
    )


def on_clock(moments: Any, time_zone: str | None) -> Any:
    """Convert microseconds of the epoch, a column or expression, to instants on the clock of a zone, or on none."""
    wall = pl.from_epoch(moments, time_unit="us")
    return wall if time_zone is None else wall.dt.replace_time_zone("UTC").dt.convert_time_zone(time_zone)


def grid_instants(start: int, step: timedelta, length: int, time_zone: str | None) -> pl.Series:
    """``length`` instants from ``start``, microseconds of the epoch, on the clock of a zone or on none."""
    moments = pl.Series("timestamp", start + step // MICROSECOND * np.arange(length))
    stamped: pl.Series = on_clock(moments, time_zone)
    return stamped


def instant_in_zone(moment: int, time_zone: str | None) -> datetime:
    """Convert microseconds of the epoch to a datetime on the clock of a zone, or on none."""
    result: datetime = grid_instants(moment, timedelta(0), 1, time_zone)[0]
    return result


def microseconds_of(moment: datetime) -> int:
    """Convert a datetime to microseconds of the epoch; one without a zone is taken as UTC."""
    naive = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    return (naive - datetime(1970, 1, 1)) // MICROSECOND


def parse_instant(value: datetime | str, time_zone: str | None, *, name: str) -> datetime:
    """Convert a caller's datetime or ISO text to the clock of the readings: zoned if they are, without zone if not."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise InputError(f"{name} must be a datetime or ISO text such as '2024-01-31T00:00'", argument=name)
    if time_zone is None and moment.tzinfo is not None:
        raise InputError(f"{name} has a time zone and the readings have none: give it without one")
    return moment if time_zone is None or moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(time_zone))
