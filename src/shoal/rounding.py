"""Numbers as they are printed: rounded in decimal, each to its safe side. The only place that rounds for print.

Facts keep figures as they were computed; what prints one goes through :func:`upper` or :func:`lower`, what stores one
as a number through :func:`up` or :func:`down`, which give the same digits. A printed figure, read back as a decimal or
as a double, is never on the wrong side of the number that it stands for, subnormal numbers included.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Any

NONE = "—"
#: Digits of a figure with a safe side.
DIGITS = 4
Number = float | Decimal | None


def up(value: float | None, digits: int = DIGITS, most: float = math.inf) -> float | None:
    """Return the number that :func:`upper` prints, not below ``value``: rounding to a double keeps the order."""
    return (
        None
        if value is None or not math.isfinite(value)
        else min(float(_to_decimal(value, digits, ROUND_CEILING)), most)
    )


def down(value: float | None, digits: int = DIGITS) -> float | None:
    """Return the number that :func:`lower` prints; it is not above ``value``."""
    return None if value is None or not math.isfinite(value) else float(_to_decimal(value, digits, ROUND_FLOOR))


def upper(value: Number, digits: int = DIGITS) -> str:
    """Return a figure that must not be understated as text, rounded up to so many digits."""
    return _round_to_text(value, digits, ROUND_CEILING)


def lower(value: Number, digits: int = DIGITS) -> str:
    """Return a figure that must not be overstated as text, rounded down to so many digits."""
    return _round_to_text(value, digits, ROUND_FLOOR)


def nearest(value: Number, digits: int = 3) -> str:
    """Return a figure without a safe side as text, rounded to the nearest: a reading, a duration."""
    return _round_to_text(value, digits, ROUND_HALF_EVEN)


def exactly(value: float) -> str:
    """Return a number that was given, such as an ε that was asked for, with all its digits."""
    return repr(float(value)).removesuffix(".0")


def percent(value: float | None, side: str = "upper") -> str:
    """Return a share in percent with three digits; ``side`` is ``"upper"``, ``"lower"`` or ``"nearest"``."""
    if value is None:
        return NONE
    rounding = {"upper": upper, "lower": lower, "nearest": nearest}[side]
    # As a decimal, so that the multiplication by 100 is exact.
    return f"{rounding(Decimal(value) * 100, 3)} %"


def many(unit: str) -> str:
    """Return the plural of a noun for a privacy unit."""
    if unit.endswith("y") and not unit.endswith(("ay", "ey", "oy", "uy")):
        return unit[:-1] + "ies"
    return unit + ("es" if unit.endswith(("s", "x", "ch", "sh")) else "s")


def count_of(number: int, unit: str) -> str:
    """Return a count with its unit, in the plural where it is not one."""
    return f"{number:,} {unit if number == 1 else many(unit)}"


def _round_to_text(value: Any, digits: int, rounding: str) -> str:
    """Return a number as text with so many digits, rounded in decimal; a dash for one that is not finite."""
    if value is None or not Decimal(value).is_finite():
        return NONE
    exact = _to_decimal(value, digits, rounding)
    if exact == 0:
        return "0"
    # From 1e-4 to 1e6 as people write it, else with an exponent; the digits are those of the rounded decimal.
    exponent = exact.adjusted()
    if -4 <= exponent < 6:
        text = format(exact, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    digits_of = "".join(map(str, exact.as_tuple().digits)).rstrip("0") or "0"
    mantissa = digits_of[0] + ("." + digits_of[1:] if len(digits_of) > 1 else "")
    return f"{'-' if exact < 0 else ''}{mantissa}e{exponent:+03d}"


def _to_decimal(value: Any, digits: int, rounding: str) -> Decimal:
    """Return a number rounded in decimal to so many digits, from its exact value."""
    return Context(prec=digits, rounding=rounding).create_decimal(Decimal(value))
