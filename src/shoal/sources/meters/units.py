"""Which unit readings are in, from what columns and unit fields are called; nothing is assumed where nothing tells."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

import polars as pl

from shoal.errors import InputError


@dataclass(frozen=True)
class Unit:
    """A unit of power, or of energy per interval: a value times 10^``exponent`` is in kW or kWh."""

    name: str
    energy: bool
    exponent: int

    def in_kilo(self, value: pl.Expr) -> pl.Expr:
        """Values in kW or kWh; decimal fractions come out as the nearest double, so thousandths are divided."""
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


def named(unit: str | None) -> Unit | None:
    """The unit that a caller names."""
    if unit is None:
        return None
    found = UNITS.get(unit.lower()) if isinstance(unit, str) else None
    if found is None:
        raise InputError(f"unit must be one of {', '.join(UNITS)}")
    return found


def told_by(name: str) -> Unit | None:
    """The unit that the name of a column or the entry of a unit field says; None where it says none, or several.

    >>> told_by("energy(kWh/hh)").name, told_by("powerKW").name, told_by("Verbrauch")
    ('kWh', 'kW', None)
    """
    lower = name.lower()
    if _PER_HOUR.search(lower):
        return None
    found = {UNITS[symbol] for symbol in _SYMBOL.findall(lower)}
    for prefix, hours in _WORD.findall(lower):
        found.add(UNITS[{"kilo": "k", "mega": "m"}.get(prefix, "") + ("wh" if hours else "w")])
    if not found and "kwh" in plain(name):
        found.add(UNITS["kwh"])
    last = _LAST.search(plain(name)) or _LAST_CASED.search(name)
    if not found and last:
        found.add(UNITS[last.group(1).lower()])
    return found.pop() if len(found) == 1 else None


def plain(name: str) -> str:
    """A name in lower case, with everything but letters and digits removed; umlauts are spelled out."""
    spelled = name.lower().translate(_SPELLED)
    return re.sub(r"[^a-z0-9]", "", unicodedata.normalize("NFKD", spelled))
