"""Rules of a row that look at one crowd by itself: precision, dominance, difference (docs/theory.md, section 12.1).

**Precision**: a crowd of n members has a public base b, one of {1, 2, 5}·10^z, and for life a secret offset U, uniform
on 0 … N − 1 with N = n b in units. Its row is y = b ⌊(v_1 + … + v_n + U) / N⌋ for figures v_i in whole units. Figures
are rounded to units u one by one, before they are added: of two worlds in which a figure differs by the constant d, the
series of K entries are at most (d + K u)/(n b) apart in total variation, and d/(n b) where d is a multiple of u. So a
unit is small: 10^−12 kW of loads, at most b/10^9 of tables whose figures are below 10^5 b.

**Dominance**: the p %-rule of statistics offices (Hundepool et al., Statistical Disclosure Control, 2012, section 4.2)
with p = 50 and a coalition of c = min(3, ⌊(n − 1)/3⌋) members: 50 % of a_1 ≤ a_{c+2} + … + a_n for a_1 ≥ a_2 ≥ …

**Difference**: each member enters with its figure or, **held**, with the last one that entered. Members are held,
largest change first, until the changes that enter keep dominance, or no change is more than n b/2, which rounding
hides. Equal changes are held together, so that nothing depends on names or order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError
from shoal.validation import BoolArray, FloatArray

#: Whole numbers of a unit.
Units = NDArray[np.int64]
#: Draws a whole number below n, from a cryptographic source where rows are released.
Draw = Callable[[int], int]

#: The base over usual figure / members, at most.
PRECISION = 2
#: Distance of the quartiles of a normal law, over its standard deviation.
QUARTILES = 1.35
#: Decimals of a column's unit beyond those of its finest base: a unit is at most a billionth of a base, where the
#: largest figure of the first release leaves room for that, and a thousandth at least.
FINER, LEAST_FINER = 9, 3
#: Units of the largest figure of a first release, at most: later ones may be 2,000 times as large.
_LARGEST_AT_FIRST = 2**50

_STEPS = (1, 2, 5)
#: Decimals of a unit, at most: its bases are normal numbers.
_LEAST_UNIT = 307


def largest_base_below(limit: Fraction) -> Decimal:
    """The largest of {1, 2, 5}·10^z that is at most ``limit`` > 0.

    >>> largest_base_below(Fraction(37, 100)), largest_base_below(Fraction(1)), largest_base_below(Fraction(9999))
    (Decimal('0.2'), Decimal('1'), Decimal('5E+3'))
    """
    return max(base for base in _nearby_bases(limit) if Fraction(base) <= limit)


def smallest_base_above(limit: Fraction) -> Decimal:
    """The smallest of {1, 2, 5}·10^z that is at least ``limit`` > 0.

    >>> smallest_base_above(Fraction(2, 12)), smallest_base_above(Fraction(1, 5)), smallest_base_above(Fraction(6))
    (Decimal('0.2'), Decimal('0.2'), Decimal('1E+1'))
    """
    return min(base for base in _nearby_bases(limit) if Fraction(base) >= limit)


def _nearby_bases(limit: Fraction) -> list[Decimal]:
    """Bases {1, 2, 5}·10^z around a limit, on both sides."""
    exponent = (Decimal(limit.numerator) / Decimal(limit.denominator)).adjusted()
    return [Decimal(step).scaleb(z) for z in range(exponent - 1, exponent + 3) for step in _STEPS]


def usual_figure(values: FloatArray) -> Fraction:
    """The usual figure of a column: the distance of the quartiles of all labels / 1.35.

    By the standard deviation 78 % of the rows of a lognormal (σ = 2) would be zero. Where the quartiles agree it is the
    mean distance from the median, and 0 in a column with one value only.

    >>> usual_figure(np.array([0.0, 27.0, 54.0, 81.0, 108.0]))
    Fraction(40, 1)
    >>> usual_figure(np.array([0.0, 0.0, 0.0, 0.0, 10.0])) == 2
    True
    """
    ordered = np.sort(values)
    low, middle, high = np.quantile(ordered, [0.25, 0.5, 0.75]).tolist()
    if high > low:
        return Fraction(high - low) / Fraction(str(QUARTILES))
    each = zip(*(part.tolist() for part in np.unique(ordered, return_counts=True)), strict=True)
    return sum((count * abs(Fraction(value) - Fraction(middle)) for value, count in each), Fraction(0)) / len(ordered)


def base_for_usual(usual: Fraction, n: int, precision: float = PRECISION) -> Decimal:
    """The base of a crowd of n members where ``usual`` is the usual figure: at most ``precision`` · usual / n.

    >>> base_for_usual(Fraction(1, 2), 12)
    Decimal('0.05')
    """
    return largest_base_below(Fraction(precision) * usual / n)


def base_for_few_values(values: Iterable[float], n: int) -> Decimal:
    """The base of a few-valued column in a crowd of n members: n b is at least twice the largest gap between values.

    A column with one value takes that value, or 1, for its gap.

    >>> base_for_few_values([0, 1], 12), base_for_few_values([1, 2, 5], 12)
    (Decimal('0.2'), Decimal('0.5'))
    """
    known = sorted({Fraction(value) for value in values})
    gaps = [after - before for before, after in pairwise(known)]
    return smallest_base_above(2 * max(gaps, default=abs(known[0]) or Fraction(1)) / n)


def unit_decimals(bases: Iterable[Decimal], largest: float = 0.0) -> int:
    """Decimals of a column's unit, nine more than those of its finest base; negative where thousands are the unit.

    Fewer, but three at least, where the ``largest`` |figure| would have more than 2^50 units.

    >>> unit_decimals([Decimal("0.02"), Decimal("0.5")]), unit_decimals([Decimal("5E+12")])
    (11, -3)
    >>> unit_decimals([Decimal("0.02")], 1e9)
    6
    """
    finest = min(base.adjusted() for base in bases)
    room = [
        p for p in range(LEAST_FINER, FINER) if Fraction(largest) * Fraction(10) ** (p - finest + 1) > _LARGEST_AT_FIRST
    ]
    return min([FINER, *room]) - finest


def exact_units(values: FloatArray, decimals: Sequence[int], name: str = "figures") -> Units:
    """Figures (n, k) as whole numbers of units 10^−decimals; refuse, under this name, what is beyond 2^61 units.

    >>> exact_units(np.array([[1.25]]), [1]).tolist()
    [[12]]
    """
    if values.size:
        with np.errstate(over="ignore", invalid="ignore"):
            most = (np.abs(values) * 10.0 ** np.array(decimals, dtype=np.float64)).max()
        if max(decimals) > _LEAST_UNIT or most > 2.0**61:
            raise InputError(
                f"{name}: some figures are too large, compared with the rest of their column, or too small to be "
                "averaged exactly"
            )
    return to_units(values, decimals)


def to_units(values: FloatArray, decimals: Sequence[int] | int) -> Units:
    """Figures as the nearest whole numbers of units 10^−decimals, one for all or one per column; halves to even.

    The product is exact, as the sum of two doubles (Dekker 1971): two figures that differ by d differ by d in units,
    rounded up or down, however large they are.

    >>> to_units(np.array([[1.25, 1260.0]]), [1, -2]).tolist(), to_units(np.array([0.1]), 18).tolist()
    ([[12, 13]], [100000000000000006])
    """
    power = np.array([float(Decimal(10) ** places) for places in np.atleast_1d(decimals).tolist()])
    part, size = np.frexp(values)
    scale, more = np.frexp(power)
    high = part * scale
    a, b = _halve_bits(part)
    c, d = _halve_bits(scale)
    low = ((a * c - high) + a * d + b * c) + b * d
    high, low = np.ldexp(high, size + more), np.ldexp(low, size + more)
    whole = np.rint(high)
    return np.asarray(whole.astype(np.int64) + np.rint((high - whole) + low).astype(np.int64))


def _halve_bits(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Two doubles of at most 26 bits each whose sum is each value (Veltkamp's splitting)."""
    moved = 134217729.0 * values  # 2^27 + 1
    high = moved - (moved - values)
    return high, values - high


def offset_count(base: Decimal, n: int, decimals: int) -> int:
    """The number of values of the secret offset, N = n b in units 10^−decimals.

    >>> offset_count(Decimal("0.2"), 12, 4)
    24000
    """
    return n * max(int(base.scaleb(decimals)), 1)


def add_units(values: Units, axis: int = 0) -> NDArray[Any]:
    """Exact sums of whole numbers along an axis, as Python's integers.

    >>> add_units(np.array([[2**62, -1], [2**62, -1], [2**62, -1]])).tolist() == [3 * 2**62, -3]
    True
    """
    high, low = (values >> 32).sum(axis=axis), (values & (2**32 - 1)).sum(axis=axis)
    return np.asarray(high.astype(object) * 2**32 + low.astype(object))


def round_sums(sums: NDArray[Any], window: int | NDArray[Any], offset: int | NDArray[Any]) -> Units:
    """Rows in multiples of the base: ⌊(sum + offset) / window⌋, in whole numbers.

    >>> round_sums(np.array([1190, 1200, 1210]), 120, 60).tolist()
    [10, 10, 10]
    """
    return np.asarray((sums + offset) // window).astype(np.int64)


def figures_of_multiples(multiples: Units, base: Decimal) -> FloatArray:
    """Multiples of a base as the doubles nearest to them.

    >>> figures_of_multiples(np.array([3, -1]), Decimal("0.1")).tolist()
    [0.3, -0.1]
    """
    digit, exponent = int(base.scaleb(-base.adjusted())), base.adjusted()
    whole = multiples * digit
    return np.asarray(whole / 10.0**-exponent if exponent < 0 else whole * 10.0**exponent)


#: The p of the p %-rule, and members who may pool what they know, at most.
PERCENT, COALITION = 50, 3


def coalition_size(n: int) -> int:
    """Largest number of members of a crowd of n who may pool what they know.

    >>> [coalition_size(n) for n in (2, 4, 9, 10, 12)]
    [0, 1, 2, 3, 3]
    """
    return min(COALITION, (n - 1) // 3)


def keeps_dominance(amounts: NDArray[Any], largest_share: float | None = None) -> BoolArray:
    """Whether amounts (n,) or (n, k) ≥ 0 keep the rule, column by column; whole numbers are compared exactly.

    With ``largest_share`` no member has more than this share of the total, too.
    >>> bool(keeps_dominance(np.array([12, 1, 1, 1, 1, 1, 1, 1, 1, 1])))  # half of 12 is what the last six have
    True
    >>> bool(keeps_dominance(np.array([13, 1, 1, 1, 1, 1, 1, 1, 1, 1])))
    False
    """
    if amounts.dtype == np.int64 and int(amounts.max(initial=0)) > 2**62 // len(amounts):
        amounts = amounts.astype(object)  # a sum could overflow
    ordered = np.sort(amounts, axis=0)[::-1]
    largest, rest = ordered[0], ordered[1 + coalition_size(len(amounts)) :].sum(axis=0)
    kept = largest - rest <= rest  # PERCENT of it; no product, which could overflow
    if largest_share is not None:
        kept = kept & (largest <= largest_share * ordered.sum(axis=0))
    return np.asarray(kept)


def held_members(amounts: NDArray[Any], largest: Units, window: int) -> BoolArray:
    """(n,) whether each member is held: the fewest, largest changes first, so that the others hide each other.

    ``amounts`` (n,) say how much each member changes, ``largest`` (n,) its largest change of one entry; ``window`` is
    n b. Example: one member moves by 90 while the others move by 1; n b is 20.

    >>> held_members(np.array([90, 1, 1, 1, 1, 1]), np.array([90, 1, 1, 1, 1, 1]), 20).tolist()
    [True, False, False, False, False, False]
    >>> held_members(np.array([9, 1, 1, 1, 1, 1]), np.array([9, 1, 1, 1, 1, 1]), 20).any()
    np.False_
    """
    entering, held = amounts.copy(), np.zeros(len(amounts), dtype=np.bool_)
    while 2 * int(np.where(held, 0, largest).max()) > window and not keeps_dominance(entering):
        held |= entering == entering.max()
        entering[held] = 0
    return held


def held_load_members(figures: Units, reference: Units, published: BoolArray, window: int) -> BoolArray:
    """(n,) whether each member of a crowd of meters is held, with all of its entries.

    ``reference`` (n, k) is what entered for the same instants or, where none was ``published`` (k,), the same times of
    day; ``figures`` are the loads now, the reference where there is none.

    >>> still, figures = np.zeros((6, 2), dtype=np.int64), np.array([[90, 90], *[[1, 1]] * 5])
    >>> held_load_members(figures, still, np.array([True, False]), 20)[:2].tolist()
    [True, False]
    """
    held = np.zeros(len(figures), dtype=np.bool_)
    changes = np.abs(figures - reference)
    parts = [changes[:, part] for part in (published, ~published) if part.any()]
    while True:
        entering = [np.where(held[:, None], 0, part) for part in parts]
        more = np.logical_or.reduce([held_members(add_units(p, 1), p.max(axis=1), window) for p in entering], axis=0)
        if not (more & ~held).any():
            return held
        held |= more


@dataclass(frozen=True)
class KeptFigures:
    """What is kept of a crowd from row to row; everything but ``bases`` is its owner's."""

    bases: tuple[Decimal, ...]  #: of each column; one of all loads
    offsets: tuple[int, ...]  #: of each base, in units, over all members
    decimals: tuple[int, ...]  #: of each base's unit
    last: Units  #: (n, k) figures that entered last; of loads by time of day
    instants: tuple[int, ...] = ()  #: of the last row of loads
    entered: Units | None = None  #: (n, k) what entered that row

    @property
    def offset_counts(self) -> list[int]:
        """The number of values N = n b of each offset, in units."""
        pairs = zip(self.bases, self.decimals, strict=True)
        return [offset_count(base, len(self.last), places) for base, places in pairs]

    def round_row(self, entered: Units) -> FloatArray:
        """(k,) the rounded and shifted row of the figures that enter, (n, k) in units."""
        windows, offsets = (np.array(one, dtype=object) for one in (self.offset_counts, self.offsets))
        multiples = round_sums(add_units(entered), windows, offsets)
        bases = self.bases * (len(multiples) // len(self.bases))
        return np.array([figures_of_multiples(m, base) for m, base in zip(multiples, bases, strict=True)])


@dataclass(frozen=True)
class NextRow:
    """A crowd's row for one release, and what the owner knows of it."""

    row: FloatArray  #: (k,) NaN where it is withheld
    entered: Units  #: (n, k) figures of members that entered
    held: BoolArray  #: (n,) or of a table (n, k) who entered with an older figure
    crowd: KeptFigures  #: after the release
    outgrown: BoolArray  #: (k,) withheld since figures are several times what the base of the crowd hides
