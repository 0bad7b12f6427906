"""Which column of a meter file holds what: long, wide by household, wide by time, or one household per file.

And which unit readings are in, from what columns and unit fields are called: nothing is assumed where nothing tells.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from shoal.errors import InputError
from shoal.rounding import count_of


@dataclass(frozen=True)
class Unit:
    """A unit of power, or of energy per interval: a value times 10^``exponent`` is in kW or kWh."""

    name: str
    energy: bool
    exponent: int

    def to_kilo(self, value: pl.Expr) -> pl.Expr:
        """Convert values to kW or kWh; W and Wh are divided by 1000, since a product with 0.001 is rounded twice."""
        return value / 1000 if self.exponent < 0 else value * 1000 if self.exponent > 0 else value


UNITS = {
    unit.name.lower(): unit
    for unit in (
        Unit("W", False, -3), Unit("kW", False, 0), Unit("MW", False, 3),
        Unit("Wh", True, -3), Unit("kWh", True, 0), Unit("MWh", True, 3),
    )
}  # fmt: skip

#: Symbols that stand alone. Per hour ("kW/h", "kWh/h") tells nothing: the one is no unit, the other may be either.
_SYMBOL = re.compile(r"(?<![a-z0-9])([km]?wh?)(?![a-z0-9])(?!\s*/\s*h(?![a-z]))")
_PER_HOUR = re.compile(r"wh?\s*/\s*h(?![a-z])")
_WORD = re.compile(r"(kilo|mega)?watts?[\W_]*(hours?|stunden?|heures?|horas?)?(?![a-z])")
_LAST = re.compile(r"([km]wh?)$")
_SPELLED = {ord("ä"): "ae", ord("ö"): "oe", ord("ü"): "ue", ord("ß"): "ss"}
_LAST_CASED = re.compile(r"[a-z](Wh?)$")


def parse_unit(unit: str | None) -> Unit | None:
    """The unit in a caller's word such as "kwh" or "kwh-register"; None where none is given."""
    if unit is None:
        return None
    known = UNITS.get(unit.lower().partition("-")[0]) if isinstance(unit, str) else None
    if known is None:
        raise InputError(f"unit must be one of {', '.join(UNITS)}", argument="unit")
    return known


def parse_meter_kind(unit: str | None) -> str | None:
    """What a caller's word for the unit says about the meter: "register", "interval", or None."""
    return (unit or "").lower().partition("-")[2] or None


def unit_in_name(name: str) -> Unit | None:
    """The unit that a column's name or the entry of a unit field names; None where it names none, or several.

    >>> unit_in_name("energy(kWh/hh)").name, unit_in_name("powerKW").name, unit_in_name("Verbrauch")
    ('kWh', 'kW', None)
    """
    lower = name.lower()
    if _PER_HOUR.search(lower):
        return None
    units = {UNITS[symbol] for symbol in _SYMBOL.findall(lower)}
    for prefix, hours in _WORD.findall(lower):
        units.add(UNITS[{"kilo": "k", "mega": "m"}.get(prefix, "") + ("wh" if hours else "w")])
    if not units and "kwh" in plain_name(name):
        units.add(UNITS["kwh"])
    last = _LAST.search(plain_name(name)) or _LAST_CASED.search(name)
    if not units and last:
        units.add(UNITS[last.group(1).lower()])
    return units.pop() if len(units) == 1 else None


def plain_name(name: str) -> str:
    """A name in lower case, with everything but letters and digits removed; umlauts are spelled out."""
    spelled = name.lower().translate(_SPELLED)
    return re.sub(r"[^a-z0-9]", "", unicodedata.normalize("NFKD", spelled))


ROLES = ("household", "timestamp", "value")

#: Names that are understood without being told (see :func:`plain_name`), the surest first.
HOUSEHOLD = (
    "household", "householdid", "meter", "meterid", "customer", "customerid", "lclid", "vid", "house", "houseid",
    "homeid", "dataid", "meternumber", "mpan", "nmi", "haushalt", "zaehler", "zaehlernummer", "zaehlpunkt", "messpunkt",
    "id",
)  # fmt: skip
TIMESTAMP = (
    "timestamp", "datetime", "datetimeutc", "tstp", "time", "date", "start", "localminute", "readat", "utc",
    "zeitstempel", "zeit", "datum", "horodate",
)  # fmt: skip
#: A date and a time of day in two columns.
DATES = ("date", "readdate", "day", "datum", "tag", "fecha")
CLOCKS = ("time", "timeofday", "readtime", "starttime", "zeit", "uhrzeit", "heure", "hora")
VALUES = (
    "kw", "power", "powerkw", "value", "reading", "load", "consumption", "demand", "kwh", "energy", "energykwh",
    "energykwhhh", "kwhhh", "consumptionkwh", "usage", "verbrauch",
)  # fmt: skip
UNIT_FIELDS = ("unit", "units", "uom", "unitofmeasure", "einheit")
#: Quantities of one meter: columns of these are not households.
QUANTITIES = re.compile(r"(import|export|bezug|einspeis|consum|generat|verbrauch|erzeug|product|solar|pv|grid|total)")


class ColumnsError(InputError):
    """Columns of a meter file have to be named; ``what`` says why, without how that is done in Python."""

    def __init__(self, what: str) -> None:
        """Keep ``what`` is wrong; the message adds how columns are named in Python."""
        super().__init__(f"{what}. Name them: columns={{'household': ..., 'timestamp': ..., 'value': ...}}")
        self.what = what


#: A column header that is itself a point in time, as in files with one row per household, or a time of the day.
_DATED = re.compile(r"^\d{4}[-/]?\d{2}[-/]?\d{2}|^\d{2}\.\d{2}\.\d{4}|^\d{1,2}/\d{1,2}/\d{4}")
#: A cell that is a number, in one of the ways that they are written.
_NUMBER = re.compile(r"[+-]?\d[\d.,]*(e[+-]?\d+)?|[+-]?(nan|inf)")
_TIMED = re.compile(r"^\d{1,2}:\d{2}(:\d{2})?$")


@dataclass(frozen=True)
class MeterColumns:
    """Layout of one file.

    ``long``: one reading per row. ``households``: a row per time, a column per household. ``times``: a row per
    household, a column per time. ``days``: a row per household and day, a column per time of the day. ``single``: time
    and value of one household, named after the file. ``clock`` is a second column of time, with the time of the day.
    """

    shape: Literal["long", "households", "times", "days", "single"]
    household: str | None
    timestamp: str | None
    value: str | None
    across: tuple[str, ...] = ()  #: the columns that are households, times or times of the day
    clock: str | None = None
    unit: Unit | None = None  #: what the names of the columns of readings say
    unit_field: str | None = None  #: a column that names the unit, row by row

    @property
    def needed_columns(self) -> list[str]:
        """Names of every column that is read."""
        named = (self.household, self.timestamp, self.clock, self.value, *self.across)
        return [column for column in named if column is not None]


def recognize_columns(header: Sequence[str], columns: Mapping[str, str] | None, file: str) -> MeterColumns:
    """Recognize the layout of a file by its header; ``columns`` maps roles to columns and wins over guessing."""
    given = _named_columns(header, columns, file)
    household = given.get("household") or find_known_name(header, HOUSEHOLD)
    timestamp, clock = given.get("timestamp"), given.get("clock")
    if timestamp is None:
        timestamp, clock = find_known_name(header, DATES), find_known_name(header, CLOCKS)
        if find_known_name(header, TIMESTAMP[:4]) is not None or timestamp is None or clock is None:
            timestamp, clock = find_known_name(header, TIMESTAMP), None
    rest = [c for c in header if c not in (household, timestamp, clock) and not _is_unnamed(c)]
    across = tuple(rest)
    if timestamp is not None and rest and all(_TIMED.match(c) for c in rest):
        return MeterColumns("days", household, timestamp, None, across)
    if timestamp is None and household is not None and rest and all(_DATED.match(c) for c in rest):
        return MeterColumns("times", household, None, None, across)
    unit_field = find_known_name(rest, UNIT_FIELDS)
    rest = [c for c in rest if c != unit_field]
    units = {c: unit_in_name(c) for c in rest}
    saying = [c for c in rest if units[c] is not None]
    value = given.get("value") or find_known_name(rest, VALUES)
    if timestamp is not None and household is not None:
        value = value or (rest[0] if len(rest) == 1 else saying[0] if len(saying) == 1 else None)
        if value is not None:
            return MeterColumns("long", household, timestamp, value, (), clock, unit_in_name(value), unit_field)
        what = "several columns" if saying else "no column"
        raise ColumnsError(
            f"columns: {file} has {what} that look{'' if saying else 's'} like power or energy; found "
            f"{describe_header(header)}"
        )
    if timestamp is not None and rest:
        value = value or (rest[0] if len(rest) == 1 and saying else None)
        if value is not None and len(rest) == 1:
            return MeterColumns("single", None, timestamp, value, (), clock, unit_in_name(value), unit_field)
        quantities = len(saying) == len(rest) and all(QUANTITIES.search(plain_name(c)) for c in rest)
        if value is not None or 0 < len(saying) < len(rest) or quantities:
            # Columns of one meter, or of readings among others: taken for households, they would be read as power.
            raise ColumnsError(f"columns: {file} has readings but no household column; found {describe_header(header)}")
        said = set(units.values())
        unit = said.pop() if len(said) == 1 else None
        return MeterColumns("households", None, timestamp, None, tuple(rest), clock, unit, unit_field)
    missing = "timestamp" if timestamp is None else "household or value"
    raise ColumnsError(f"columns: {file} has no {missing} column; found {describe_header(header)}")


def find_known_name(header: Sequence[str], known: Sequence[str]) -> str | None:
    """The column whose name stands first in a list of known names; None if no column has one."""
    names = {plain_name(c): c for c in reversed(header)}
    return next((names[k] for k in known if k in names), None)


def _named_columns(header: Sequence[str], columns: Mapping[str, str] | None, file: str) -> dict[str, str]:
    """Role -> column, as the caller names them; ``"Date+Time"`` for the timestamp names that of the ``clock`` too."""
    given = dict(columns or {})
    unknown = sorted(set(given) - set(ROLES))
    if unknown:
        raise InputError(f"columns must map {', '.join(ROLES)} to column names; got the role(s) {unknown}")
    stamp = given.get("timestamp", "")
    if "+" in stamp and stamp not in header:
        given["timestamp"], given["clock"] = (part.strip() for part in stamp.split("+", 1))
    for role, column in given.items():
        if column not in header:
            raise InputError(f"columns: {file} has no column {column!r} for {role}; found {describe_header(header)}")
    return given


def _is_unnamed(column: str) -> bool:
    """Whether a column has no name, as programs write their row numbers."""
    return not column.strip() or re.match(r"unnamed: \d+$", column.strip().lower()) is not None


def describe_header(header: Sequence[str], most: int = 12) -> str:
    """The names of columns for a message; only their number where the first line may be data.

    >>> describe_header(["id", "time", "kw"]), describe_header(["H7", "2024-01-01", "1.53"])
    ("'id', 'time', 'kw'", '3 entries, numbers among them (is the header missing?)')
    """
    if len(header) == 1 or any(_NUMBER.fullmatch(name.strip().lower()) for name in header):
        among = ", numbers among them" if len(header) > 1 else ""
        return f"{count_of(len(header), 'entry')}{among} (is the header missing?)"
    shown = ", ".join(repr(c) for c in header[:most])
    return f"{shown} and {len(header) - most} more" if len(header) > most else shown or "no columns"
