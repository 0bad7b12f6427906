"""Timestamps as they come in meter files, turned into instants.

Three kinds are told apart, per file: text with an offset (``2024-03-31T01:00+01:00``, ``...Z``), text or values
without one (wall-clock time), and zoned values in Parquet. Wall-clock time plus a zone is resolved across clock
changes: in the hour that autumn repeats, the first half of a household's rows with the same wall time is summer
    time and the second half winter time, in file order; a wall time that spring skips does not exist and is
    reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from shoal.errors import InputError

if TYPE_CHECKING:
    import polars as pl

#: Wall-clock layouts by the way the date is written. Day-first or month-first with slashes is ambiguous: name it.
LAYOUTS = {
    r"^\d{4}-": ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d"),
    r"^\d{4}/": ("%Y/%m/%d %H:%M:%S%.f", "%Y/%m/%d %H:%M"),
    r"^\d{1,2}\.": ("%d.%m.%Y %H:%M:%S%.f", "%d.%m.%Y %H:%M"),
    r"^\d{8}": ("%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d %H:%M"),
}

_OFFSET = r"(Z|[+-]\d{2}:?\d{2})$"


def zone(time_zone: str | None) -> str | None:
    """A time zone of the IANA database, or None."""
    if time_zone is None:
        return None
    try:
        ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise InputError("time_zone must name a zone of the IANA database, such as 'Europe/Zurich'") from error
    return time_zone


def step(interval: Any) -> timedelta | None:
    """The metering interval: a timedelta, or minutes as a number; it must divide a day."""
    if interval is None:
        return None
    if isinstance(interval, timedelta):
        result = interval
    elif isinstance(interval, (int, float)) and not isinstance(interval, bool):
        result = timedelta(minutes=float(interval))
    else:
        raise InputError("interval must be a datetime.timedelta or a number of minutes")
    if result <= timedelta(0) or timedelta(days=1) % result:
        raise InputError("interval must be above 0 and divide one day evenly")
    return result


def layouts(sample: pl.Series) -> tuple[str, ...]:
    """The layouts worth trying, from the first entries of a text column."""
    text = sample.drop_nulls().str.strip_chars()
    return tuple(form for start, forms in LAYOUTS.items() if text.str.contains(start).any() for form in forms)


def parse(text: pl.Expr, forms: tuple[str, ...], *, offsets: bool, named: bool = False) -> pl.Expr:
    """Text to wall-clock time, or to UTC where ``offsets``; null where it fits none of the layouts.

    A layout ``named`` by the caller is taken as it is; else the T of ISO 8601 counts as a space.
    """
    import polars as pl

    text = text.str.strip_chars()
    if offsets:
        offset = text.str.extract(_OFFSET, 1).str.replace(":", "", literal=True)
        sign = pl.when(offset.str.starts_with("-")).then(-1).otherwise(1)
        digits = pl.when(offset == "Z").then(pl.lit("+0000")).otherwise(offset)
        hours = digits.str.slice(1, 2).cast(pl.Int64, strict=False)
        minutes = digits.str.slice(3, 2).cast(pl.Int64, strict=False)
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


def has_offsets(sample: pl.Series) -> bool:
    """Whether the first entries of a text column end in an offset from UTC."""
    ends = sample.drop_nulls().str.strip_chars().str.contains(r"\d" + _OFFSET)
    # A bare date also ends in "-03-31"-like text; an offset needs a time of day before it.
    timed = sample.drop_nulls().str.contains(":", literal=True)
    return bool(len(ends)) and bool((ends & timed).mean() > 0.5)  # type: ignore[operator]


def localize(frame: pl.LazyFrame, time_zone: str, within: Sequence[str] = ()) -> pl.LazyFrame:
    """Give wall-clock ``timestamp`` its zone; ``no_such_time`` marks what the spring change skips.

    ``within`` names columns that tell files apart: each file repeats the autumn hour for itself.
    """
    import polars as pl

    same = [*within, "household", "timestamp"]
    late = 2 * pl.int_range(pl.len()).over(same) >= pl.len().over(same)
    repeated = (pl.len().over(same) > 1) & late
    which = pl.when(repeated).then(pl.lit("latest")).otherwise(pl.lit("earliest"))
    return (
        frame.with_columns(_which=which, _known=pl.col("timestamp").is_not_null())
        .with_columns(
            pl.col("timestamp").dt.replace_time_zone(time_zone, ambiguous=pl.col("_which"), non_existent="null")
        )
        .with_columns(no_such_time=pl.col("_known") & pl.col("timestamp").is_null())
        .drop("_which", "_known")
    )


def on_clock(moments: Any, time_zone: str | None) -> Any:
    """A column or expression of microseconds of the epoch as instants on the clock of a zone, or on none."""
    import polars as pl

    wall = pl.from_epoch(moments, time_unit="us")
    return wall if time_zone is None else wall.dt.replace_time_zone("UTC").dt.convert_time_zone(time_zone)


def instant(value: datetime | str, time_zone: str | None, *, name: str) -> datetime:
    """A caller's point in time, on the clock of the readings: zoned if they are, wall-clock if they are not."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise InputError(f"{name} must be a datetime or ISO text such as '2024-01-31T00:00'") from error
    if not isinstance(value, datetime):
        raise InputError(f"{name} must be a datetime or ISO text such as '2024-01-31T00:00'")
    if time_zone is None:
        if value.tzinfo is not None:
            raise InputError(f"{name} has a time zone and the readings have none: give it without one")
        return value
    return value.replace(tzinfo=ZoneInfo(time_zone)) if value.tzinfo is None else value
