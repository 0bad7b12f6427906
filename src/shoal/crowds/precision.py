"""Precision of a row: a public base, and one secret offset per column for a crowd's life.

Figures are whole numbers v_i of a unit, such as watts. A crowd of n members has a base b, one of {1, 2, 5}·10^z, and
a secret offset U, uniform on 0, 1, …, N − 1 with N = n b (in units), drawn once. Its row is

    y = b ⌊(v_1 + … + v_n + U) / N⌋

the exact mean plus a secret constant u uniform on ±b/2, rounded to a multiple of b. Over U the row is exactly right on
average (Hermite's identity).

**Theorem.** Let two worlds differ in one member, in all releases by the same constant d, |d| ≤ N. For any figures of
the others the total variation between the two series of rows is at most |d|/N: the world with d and the offset U gives
the rows of the world without d and the offset U + d, and uniform laws on 0 … N − 1 and d … N − 1 + d differ by |d|/N. A
yes/no guess with even odds is right with probability at most ½ + |d|/(2N). Theory: docs/theory.md, section 15.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from shoal.validation import FloatArray, IndexArray

#: Whole numbers of a unit.
Units = NDArray[np.int64]

#: The base over usual figure / members, at most.
PRECISION = 2
#: The usual figure of a crowd of meters, over that of all labels, at least.
LEAST_LEVEL = Fraction(1, 10)
#: Distance of the quartiles of a normal law, over its standard deviation.
QUARTILES = 1.35
#: Decimals of a column's unit beyond those of its finest base: a unit is at most a thousandth of a base.
FINER = 3

_STEPS = (1, 2, 5)


def base_below(limit: Fraction) -> Decimal:
    """The largest of {1, 2, 5}·10^z that is at most ``limit`` > 0.

    >>> base_below(Fraction(37, 100)), base_below(Fraction(1)), base_below(Fraction(9999))
    (Decimal('0.2'), Decimal('1'), Decimal('5E+3'))
    """
    return max(base for base in _bases(limit) if Fraction(base) <= limit)


def base_above(limit: Fraction) -> Decimal:
    """The smallest of {1, 2, 5}·10^z that is at least ``limit`` > 0.

    >>> base_above(Fraction(2, 12)), base_above(Fraction(1, 5)), base_above(Fraction(6))
    (Decimal('0.2'), Decimal('0.2'), Decimal('1E+1'))
    """
    return min(base for base in _bases(limit) if Fraction(base) >= limit)


def _bases(limit: Fraction) -> list[Decimal]:
    """The candidates around a limit."""
    exponent = (Decimal(limit.numerator) / Decimal(limit.denominator)).adjusted()
    return [Decimal(step).scaleb(z) for z in range(exponent - 1, exponent + 3) for step in _STEPS]


def usual_of_loads(days: Units, of_all: Fraction) -> Fraction:
    """The usual figure of a crowd of meters: the mean |load| over its members' stored days (n, steps), in units.

    At least a tenth of that of all labels, so that a crowd of homes that are away has no finer row than others.

    >>> usual_of_loads(np.array([[100, -300], [0, 0]]), Fraction(500)), usual_of_loads(np.array([[1]]), Fraction(500))
    (Fraction(100, 1), Fraction(50, 1))
    """
    return max(Fraction(int(np.abs(days).sum()), max(days.size, 1)), of_all * LEAST_LEVEL)


def usual_of_numbers(values: FloatArray) -> Fraction:
    """The usual figure of a column: the distance of the quartiles of all labels / 1.35.

    By the standard deviation 78 % of the rows of a lognormal (σ = 2) would be zero. Where the quartiles agree it is the
    mean distance from the median, and 0 in a column with one value only.

    >>> usual_of_numbers(np.array([0.0, 27.0, 54.0, 81.0, 108.0]))
    Fraction(40, 1)
    >>> usual_of_numbers(np.array([0.0, 0.0, 0.0, 0.0, 10.0])) == 2
    True
    """
    ordered = np.sort(values)
    low, middle, high = np.quantile(ordered, [0.25, 0.5, 0.75]).tolist()
    if high > low:
        return Fraction(high - low) / Fraction(str(QUARTILES))
    return sum((abs(Fraction(value) - Fraction(middle)) for value in ordered.tolist()), Fraction(0)) / len(ordered)


def base_of_numbers(usual: Fraction, n: int, precision: float = PRECISION) -> Decimal:
    """The base of n members whose usual figure is ``usual``: at most ``precision`` · usual / n.

    >>> base_of_numbers(Fraction(1, 2), 12)
    Decimal('0.05')
    """
    return base_below(Fraction(precision) * usual / n)


def base_of_few(values: Iterable[float], n: int) -> Decimal:
    """The base of a few-valued column: the smallest with n b at least twice the largest gap between values.

    A column with one value takes that value, or 1, for its gap.

    >>> base_of_few([0, 1], 12), base_of_few([1, 2, 5], 12)
    (Decimal('0.2'), Decimal('0.5'))
    """
    known = sorted({Fraction(value) for value in values})
    gaps = [after - before for before, after in pairwise(known)]
    return base_above(2 * max(gaps, default=abs(known[0]) or Fraction(1)) / n)


def decimals_of(bases: Iterable[Decimal]) -> int:
    """Decimals of a column's unit, three more than those of its finest base; negative where thousands are the unit.

    >>> decimals_of([Decimal("0.02"), Decimal("0.5")]), decimals_of([Decimal("5E+4")])
    (5, -1)
    """
    return FINER - min(base.adjusted() for base in bases)


def in_units(values: FloatArray, decimals: Sequence[int] | int) -> Units:
    """Figures as whole numbers of units 10^−decimals, column by column; halves to even.

    >>> in_units(np.array([[1.25, 1250.0]]), [1, -2]).tolist()
    [[12, 12]]
    """
    power = [Decimal(10) ** places for places in np.atleast_1d(decimals).tolist()]
    return np.asarray(np.rint(values * np.array([float(one) for one in power])), dtype=np.int64)


def window_of(base: Decimal, n: int, decimals: int) -> int:
    """N = n b in units: how many values the offset has.

    >>> window_of(Decimal("0.2"), 12, 4)
    24000
    """
    return n * max(int(base.scaleb(decimals)), 1)


def round_sums(sums: Units, window: int | IndexArray, offset: int | IndexArray) -> Units:
    """Rows in multiples of the base: ⌊(sum + offset) / window⌋, in whole numbers.

    >>> round_sums(np.array([1190, 1200, 1210]), 120, 60).tolist()
    [10, 10, 10]
    """
    return np.asarray((sums + offset) // window)


def as_figures(multiples: Units, base: Decimal) -> FloatArray:
    """Multiples of a base as the doubles nearest to them.

    >>> as_figures(np.array([3, -1]), Decimal("0.1")).tolist()
    [0.3, -0.1]
    """
    digit, exponent = int(base.scaleb(-base.adjusted())), base.adjusted()
    whole = multiples * digit
    return np.asarray(whole / 10.0**-exponent if exponent < 0 else whole * 10.0**exponent)
