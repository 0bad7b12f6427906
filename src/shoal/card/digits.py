"""Words that go with numbers; the numbers themselves are rounded by :mod:`shoal.rounding`."""

from __future__ import annotations

import math
from typing import Any

from shoal.rounding import DIGITS as DIGITS
from shoal.rounding import NONE as NONE
from shoal.rounding import down as down
from shoal.rounding import lower as lower
from shoal.rounding import nearest as nearest
from shoal.rounding import percent as percent
from shoal.rounding import share as share
from shoal.rounding import up as up
from shoal.rounding import upper as upper


def many(unit: str) -> str:
    """The plural of a privacy unit."""
    if unit.endswith("y") and not unit.endswith(("ay", "ey", "oy", "uy")):
        return unit[:-1] + "ies"
    return unit + ("es" if unit.endswith(("s", "x", "ch", "sh")) else "s")


def counted(number: int, unit: str) -> str:
    """A count with its unit, in the plural where there is not one."""
    return f"{number} {unit if number == 1 else many(unit)}"


def shorten(name: str, length: int = 20) -> str:
    """A label that may be of any length, cut to fit a line."""
    return name if len(name) <= length else name[: length - 1] + "…"


def plain(value: Any) -> float | None:
    """A float for JSON; None where JSON has no number."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
