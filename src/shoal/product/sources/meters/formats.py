"""Formats of meter data with units and layouts of their own: NEM12 and Green Button, as rows of one meter's channel.

**NEM12**, the interval data of Australia's electricity market: records 200 (a meter's channel) and 300 (a day of it).

Channels E… are consumption; several of one meter (a controlled load beside the general one) are added, and an interval
counts only where all of them have a value. Channels of generation (B…) and reactive energy are passed over. Values of
quality N (none) are missing. Times are Australian Eastern Standard Time, UTC+10 the year round, as the market has it;
the energy of an interval becomes its mean power.

**Green Button** (ESPI, an Atom feed in XML): electricity that was delivered, from the blocks of interval readings.
A block belongs to the meter reading that its links name, and that to a reading type: its unit (Wh or W), its power of
ten, and whether energy was delivered or received. What was received (feed-in), other commodities and other units are
passed over. Starts are seconds since 1970; the energy of an interval, over its own duration, becomes its mean power.
A household is named after the file, and after the usage point too where a file has several.

Entities and references to other files are refused (defusedxml); elements are dropped as soon as they are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from shoal.errors import InputError
from shoal.product.sources.frames import encoding_of, open_bytes, text_of
from shoal.product.sources.meters.columns import UNITS

#: A reading: household, channel, time (ISO with offset, or seconds since 1970), mean kW or nothing.
Row = tuple[str, str, str, str]


@dataclass(frozen=True)
class MeterFormat:
    """A format that a file's first characters tell, with the function for its rows; without one it is refused.

    ``words``: why the unit is known, or the reason of the refusal.
    """

    name: str
    beginnings: tuple[str, ...]
    words: str
    rows: Callable[[Path], Iterator[Row]] | None = None
    unit: str = ""


WATT_HOURS, WATTS = "72", "38"
DELIVERED, ELECTRICITY = ("", "1"), ("", "0", "1")
#: Accumulation: what each interval has (4, and what leaves it open) against a total that rises (3, 1).
TOTALS = ("1", "3")


def nem12_rows(file: Path) -> Iterator[Row]:
    """Every interval of the channels of consumption, in the order of the file."""
    meter = channel = ""
    minutes, factor = 0, 0.0
    with text_of(file, encoding_of(file)) as lines:
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


class ReadingType(NamedTuple):
    """The kind of values of a block, where they are wanted."""

    unit: str
    exponent: int
    accumulation: str


def green_button_rows(file: Path) -> Iterator[Row]:
    """Every interval of delivered electricity."""
    kinds, of_reading, points = _types(file)
    only = next(iter(kinds.values())) if len(kinds) == 1 else None
    stem = file.name.split(".")[0]
    empty = True
    for links, entry in _entries(file):
        reading = _place(links, "MeterReading")
        kind = kinds.get(of_reading.get(reading, "")) or only
        blocks = [element for element in entry.iter() if _tag(element) == "IntervalReading"]
        if not blocks or kind is None:
            continue
        if kind.accumulation in TOTALS:
            raise InputError(
                f"path: {file.name} holds totals of a register rather than readings of intervals; ask for interval data"
            )
        empty = False
        household = f"{stem} {_id(links, 'UsagePoint')}" if len(points) > 1 else stem
        for block in blocks:
            start, duration, value = (_text(block, name) for name in ("start", "duration", "value"))
            try:
                hours = int(duration) / 3600
                number = int(value) * 10.0**kind.exponent / 1000
                yield household, reading, str(int(start)), repr(number / hours if kind.unit == WATT_HOURS else number)
            except (ValueError, ZeroDivisionError):
                yield household, reading, start, ""
            except OverflowError:
                raise InputError(
                    f"path: {file.name} holds a number beyond the range of doubles where a reading should be; leave "
                    "the reading out, or ask the utility for the file anew"
                ) from None
    if empty:
        raise InputError(
            f"path: {file.name} holds no interval readings of delivered electricity in Wh or W; ask the utility for "
            "Green Button data with intervals"
        )


def _types(file: Path) -> tuple[dict[str, ReadingType | None], dict[str, str], set[str]]:
    """Reading types by place, None where not wanted; the type of each meter reading; the usage points."""
    kinds: dict[str, ReadingType | None] = {}
    of_reading: dict[str, str] = {}
    points: set[str] = set()
    for links, entry in _entries(file):
        own = next((href for rel, href in links if rel == "self"), "")
        for element in entry.iter():
            tag = _tag(element)
            if tag == "ReadingType":
                names = ("uom", "powerOfTenMultiplier", "flowDirection", "commodity", "accumulationBehaviour")
                unit, exponent, direction, commodity, accumulation = (_text(element, name) for name in names)
                power = int(exponent) if re.fullmatch(r"-?\d{1,2}", exponent) else 0
                wanted = unit in (WATT_HOURS, WATTS) and direction in DELIVERED and commodity in ELECTRICITY
                kinds[_tail(own, "ReadingType")] = ReadingType(unit, power, accumulation) if wanted else None
            elif tag == "MeterReading":
                typed = next((href for _, href in links if "/ReadingType/" in href), "")
                of_reading[_place(links, "MeterReading")] = _tail(typed, "ReadingType")
            elif tag == "IntervalBlock":
                points.add(_id(links, "UsagePoint"))
    return kinds, of_reading, points


def _entries(file: Path) -> Iterator[tuple[list[tuple[str, str]], Any]]:
    """Every entry of the feed with its links, dropped when the next one is asked for."""
    try:
        with open_bytes(file) as handle:
            root = None
            for event, element in iterparse(handle, events=("start", "end")):
                if root is None:
                    root = element
                if event == "end" and _tag(element) == "entry":
                    links = [(e.get("rel", ""), e.get("href", "")) for e in element if _tag(e) == "link"]
                    yield links, element
                    root.clear()
    except (ParseError, DefusedXmlException, OSError, EOFError, UnicodeError):
        raise InputError(f"path: {file.name} is not a Green Button file, or it is damaged") from None


def _place(links: list[tuple[str, str]], kind: str) -> str:
    """Where the meter reading that an entry is, or belongs to, lies: from its own link, or from the one up."""
    for wanted in ("self", "up"):
        for rel, href in links:
            if rel == wanted and f"/{kind}/" in f"{href}/":
                return _tail(href, kind)
    return ""


def _tail(href: str, kind: str) -> str:
    """A link up to and with the number of this kind of thing."""
    place = re.search(rf"^.*/{kind}/[^/]+", href)
    return place.group() if place else href


def _id(links: list[tuple[str, str]], kind: str) -> str:
    """The number of this kind of thing in the link of an entry, or in the one up."""
    places = (re.search(rf"/{kind}/([^/]+)", href) for rel, href in links if rel in ("self", "up"))
    return next((place.group(1) for place in places if place), "")


def _tag(element: Any) -> str:
    return str(element.tag).rsplit("}", 1)[-1]


def _text(element: Any, name: str) -> str:
    """The text of the first element of this name inside."""
    return next(((e.text or "").strip() for e in element.iter() if _tag(e) == name), "")


#: Every format with a layout of its own; the first that fits is taken.
FORMATS = (
    MeterFormat("Green Button", ("<",), "its reading type says so (Green Button)", green_button_rows, "Wh"),
    MeterFormat("NEM12", ("100,NEM12", '100,"NEM12"'), "its records say so (NEM12)", nem12_rows, "kWh"),
    MeterFormat("NEM13", ("100,NEM13",), "which has no readings of intervals; ask for NEM12 data"),
)
