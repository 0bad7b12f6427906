"""NEM12, the interval data of Australia's electricity market: records 200 (a meter's channel) and 300 (a day of it).

Channels E… are consumption; several of one meter (a controlled load beside the general one) are added, and an interval
counts only where all of them have a value. Channels of generation (B…) and reactive energy are passed over. Values of
quality N (none) are missing. Times are Australian Eastern Standard Time, UTC+10 the year round, as the market has it;
the energy of an interval becomes its mean power.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from shoal.errors import InputError
from shoal.sources.meters import charset
from shoal.sources.meters.units import UNITS

START = ("100,NEM12", '100,"NEM12"')
ACCUMULATED = "100,NEM13"

#: A reading: household, channel, ISO time with offset, mean kW or nothing.
Row = tuple[str, str, str, str]


def rows(file: Path) -> Iterator[Row]:
    """Every interval of the channels of consumption, in the order of the file."""
    meter = channel = ""
    minutes, factor = 0, 0.0
    for number, line in enumerate(charset.lines(file), start=1):
        fields = [field.strip().strip('"') for field in line.split(",")]
        try:
            if fields[0] == "200":
                meter, channel, minutes = fields[1], fields[4] or fields[3], int(fields[8])
                factor = _factor(fields[7], minutes) if channel.upper().startswith("E") else 0.0
            elif fields[0] == "300" and factor:
                yield from _day(meter, channel, fields, minutes, factor)
        except (IndexError, ValueError, KeyError, ZeroDivisionError):
            raise InputError(
                f"path: line {number} of {file.name} is not a record of NEM12; ask for the file anew"
            ) from None


def _factor(unit: str, minutes: int) -> float:
    """From the file's unit of energy per interval to mean kW."""
    known = UNITS[unit.lower()]
    if minutes <= 0 or 1440 % minutes:
        raise ValueError("no interval length")
    return float(10.0**known.exponent * (60 / minutes if known.energy else 1.0))


def _day(meter: str, channel: str, fields: list[str], minutes: int, factor: float) -> Iterator[Row]:
    count = 1440 // minutes
    start = datetime.strptime(fields[1], "%Y%m%d")
    values, quality = fields[2 : 2 + count], fields[2 + count]
    if len(values) != count:
        raise ValueError("a day lacks intervals")
    for i, value in enumerate(values):
        moment = start + timedelta(minutes=minutes * i)
        kw = "" if value == "" or quality.upper().startswith("N") else repr(float(value) * factor)
        yield meter, channel, f"{moment:%Y-%m-%d %H:%M}+10:00", kw
