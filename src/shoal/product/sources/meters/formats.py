"""Formats of meter data with units and layouts of their own: NEM12, as rows of one meter's channel.

**NEM12**, the interval data of Australia's electricity market: records 200 (a meter's channel) and 300 (a day of it).

Channels E… are consumption; several of one meter (a controlled load beside the general one) are added, and an interval
counts only where all of them have a value. Channels of generation (B…) and reactive energy are passed over. Values of
quality N (none) are missing. Times are Australian Eastern Standard Time, UTC+10 the year round, as the market has it;
the energy of an interval becomes its mean power.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from shoal.errors import InputError
from shoal.product.sources.frames import guess_encoding, open_text
from shoal.product.sources.meters.columns import UNITS

#: A reading: household, channel, time (ISO with offset, or seconds since 1970), mean kW or nothing.
Row = tuple[str, str, str, str]


@dataclass(frozen=True)
class MeterFormat:
    """A format recognized by a file's first characters, with the function for its rows; without one, refused.

    ``words``: why the unit is known, or the reason of the refusal.
    """

    name: str
    beginnings: tuple[str, ...]
    words: str
    rows: Callable[[Path], Iterator[Row]] | None = None
    unit: str = ""


def nem12_rows(file: Path) -> Iterator[Row]:
    """Every interval of the channels of consumption in a NEM12 file, in its order."""
    meter = channel = ""
    minutes, factor = 0, 0.0
    with open_text(file, guess_encoding(file)) as lines:
        for number, line in enumerate(lines, start=1):
            fields = [field.strip().strip('"') for field in line.split(",")]
            try:
                if fields[0] == "200":
                    meter, channel, minutes, factor = fields[1], fields[4] or fields[3], int(fields[8]), 0.0
                    if channel.upper().startswith("E"):
                        unit = UNITS[fields[7].lower()]
                        factor = 10.0**unit.exponent * (60 / minutes if unit.energy else 1.0)
                elif fields[0] == "300" and factor:
                    count, rest = divmod(1440, minutes)
                    start = datetime.strptime(fields[1], "%Y%m%d")
                    values, missing = fields[2 : 2 + count], fields[2 + count].upper().startswith("N")
                    if rest or minutes < 0:
                        raise ValueError("intervals that do not make up a day")
                    for i, value in enumerate(values):
                        moment = start + timedelta(minutes=minutes * i)
                        kw = "" if value == "" or missing else repr(float(value) * factor)
                        yield meter, channel, f"{moment:%Y-%m-%d %H:%M}+10:00", kw
            except (IndexError, ValueError, KeyError, ZeroDivisionError):
                raise InputError(
                    f"path: line {number} of {file.name} is not a record of NEM12; ask for the file anew"
                ) from None


#: Every format with a layout of its own; the first that fits is taken.
FORMATS = (
    MeterFormat("NEM12", ("100,NEM12", '100,"NEM12"'), "its records say so (NEM12)", nem12_rows, "kWh"),
    MeterFormat("NEM13", ("100,NEM13",), "which has no readings of intervals; ask for NEM12 data"),
    MeterFormat("XML", ("<",), "which shoal does not read; ask for CSV"),
)
