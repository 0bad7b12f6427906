"""Which column of a meter file holds what: long, wide by household, wide by time, or one household per file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from shoal.errors import InputError

ROLES = ("household", "timestamp", "value")

#: Names that are understood without being told, in lower case with everything but letters and digits removed.
HOUSEHOLD = ("household", "householdid", "id", "meter", "meterid", "customer", "customerid", "lclid", "vid", "house")
TIMESTAMP = ("timestamp", "time", "datetime", "datetimeutc", "date", "tstp", "start", "localminute", "readat")
POWER = ("kw", "power", "powerkw", "value", "reading", "load", "consumption", "demand")
ENERGY = ("kwh", "energy", "energykwh", "energykwhhh", "kwhhh", "consumptionkwh", "usage")

NAME_THEM = "Name them: columns={'household': ..., 'timestamp': ..., 'value': ...}"

#: A column header that is itself a point in time, as in files with one row per household.
_DATED = re.compile(r"^\d{4}[-/]?\d{2}[-/]?\d{2}|^\d{2}\.\d{2}\.\d{4}")


@dataclass(frozen=True)
class Layout:
    """How one file is laid out.

    ``long``: one reading per row. ``households``: a row per time, a column per household. ``times``: a row per
    household, a column per time. ``single``: time and value of one household, named after the file.
    """

    shape: Literal["long", "households", "times", "single"]
    household: str | None
    timestamp: str | None
    value: str | None
    across: tuple[str, ...]  #: the columns that are households or times
    energy: bool  #: whether the value column's name says energy (kWh)


def recognize(header: Sequence[str], columns: Mapping[str, str] | None, file: str) -> Layout:
    """The layout of a file with this header; ``columns`` maps a role to a column and wins over guessing."""
    named = dict(columns or {})
    unknown = sorted(set(named) - set(ROLES))
    if unknown:
        raise InputError(f"columns must map {', '.join(ROLES)} to column names; got the role(s) {unknown}")
    for role, column in named.items():
        if column not in header:
            raise InputError(f"columns: {file} has no column {column!r} for {role}; found {_list(header)}")
    household = named.get("household") or _first(header, HOUSEHOLD)
    timestamp = named.get("timestamp") or _first(header, TIMESTAMP)
    rest = [c for c in header if c not in (household, timestamp)]
    value = named.get("value") or _first(rest, POWER) or _first(rest, ENERGY)
    energy = value is not None and "kwh" in _plain(value)
    energy = energy or (value is not None and _plain(value) in ENERGY)

    if timestamp is not None and household is not None:
        if value is None and len(rest) == 1:
            value, energy = rest[0], "kwh" in _plain(rest[0])
        if value is not None:
            return Layout("long", household, timestamp, value, (), energy)
        raise InputError(f"columns: {file} has no column that looks like power or energy; found {_list(header)}")
    if timestamp is not None and rest:
        if value is not None and len(rest) == 1:
            return Layout("single", None, timestamp, value, (), energy)
        if value is not None or 0 < sum("kwh" in _plain(c) for c in rest) < len(rest):
            # One column of readings among others: taken for households, they would be read as power.
            found = _list(header)
            raise InputError(f"columns: {file} has readings but no household column; found {found}. {NAME_THEM}")
        return Layout("households", None, timestamp, None, tuple(rest), False)
    if household is not None and rest and all(_DATED.match(c) for c in rest):
        return Layout("times", household, None, None, tuple(rest), False)
    missing = "timestamp" if timestamp is None else "household or value"
    raise InputError(f"columns: {file} has no {missing} column; found {_list(header)}. {NAME_THEM}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _first(header: Sequence[str], known: Sequence[str]) -> str | None:
    plain = {_plain(c): c for c in reversed(header)}
    return next((plain[k] for k in known if k in plain), None)


def _list(header: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(c) for c in header[:most])
    return f"{shown} and {len(header) - most} more" if len(header) > most else shown or "no columns"
