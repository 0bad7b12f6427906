"""Privacy losses of discrete answers, for codebooks: finitely many values with their probabilities, both rounded up.

    L = ln P(y)/Q(y) with probability P(y),    δ(ε) = E (1 − e^{ε − L})₊,    K(t) = ln E e^{tL}

Losses of independent releases add (docs/theory.md, section 11.3). Losses are whole multiples of a small unit: their
sums are exact, and equal ones are merged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError
from shoal.numerics.matrices import EPS
from shoal.validation import FloatArray

#: Losses are counted in units of 2^−UNIT_BITS at the finest: δ is too large by at most 2^−UNIT_BITS for each release.
UNIT_BITS = 36
#: Atoms kept; where there would be more, the unit is doubled.
MOST_LOSSES = 20_000


@dataclass(frozen=True)
class DiscreteLoss:
    """A discrete law of privacy losses: (m,) whole multiples of 2^−``bits`` and their probabilities, all rounded up.

    ``largest`` bounds every loss; for a codebook that is its ε, exactly.
    """

    steps: NDArray[np.int64]
    probabilities: FloatArray
    largest: float
    bits: int = UNIT_BITS

    @classmethod
    def of(cls, ours: NDArray[np.int64], theirs: NDArray[np.int64], largest: float) -> DiscreteLoss:
        """The losses of answers with probabilities proportional to ``ours`` against those in ``theirs``, both > 0."""
        quotients = ours / theirs  # off by three roundings
        logs = np.log(quotients)
        losses = np.where(ours == theirs, 0.0, logs + 8 * EPS * (1.0 + np.abs(logs)))
        if (ours == theirs).all():
            largest = 0.0
        whole = float(sum(ours.tolist()))
        return _merge_equal_losses(
            np.ceil(losses * 2.0**UNIT_BITS).astype(np.int64), ours / whole * (1 + 4 * EPS), largest, UNIT_BITS
        )

    @classmethod
    def no_release(cls) -> DiscreteLoss:
        """The loss 0 with probability 1: that of no release."""
        return cls(np.zeros(1, dtype=np.int64), np.ones(1), 0.0)

    @property
    def losses(self) -> FloatArray:
        """(m,) the losses as doubles, rounded up."""
        return np.asarray(self.steps * 2.0**-self.bits)

    def __add__(self, other: DiscreteLoss) -> DiscreteLoss:
        """The loss of both releases, made independently."""
        bits = min(self.bits, other.bits)
        one, two = self._in_larger_unit(bits), other._in_larger_unit(bits)
        steps = (one.steps[:, None] + two.steps[None, :]).ravel()
        with np.errstate(under="ignore"):
            odds = (one.probabilities[:, None] * two.probabilities[None, :]).ravel() * (1 + EPS)
        # Products that doubles hold with few digits, or not at all, are rounded up by a step.
        odds = np.where(odds < 1e-290, np.nextafter(odds, 1.0), odds)
        return _merge_equal_losses(steps, odds, sum_rounded_up(self.largest, other.largest), bits)

    def times(self, count: int) -> DiscreteLoss:
        """The loss of ``count`` such releases, made independently."""
        if count < 0:
            raise InputError("count must not be negative")
        total, power = DiscreteLoss.no_release(), self
        while count:
            if count & 1:
                total = total + power
            count >>= 1
            if count:
                power = power + power
        return total

    def delta(self, epsilon: float) -> float:
        """δ(ε), rounded up; 0 where ε is at least every loss."""
        if epsilon >= self.largest:
            return 0.0
        above = self.losses - epsilon
        parts = np.where(above > 0.0, self.probabilities * -np.expm1(-np.maximum(above, 0.0)), 0.0)
        # above is off by a rounding of its terms.
        slack = 4 * EPS * (abs(epsilon) + float(np.abs(self.losses).max()))
        return min(math.fsum(parts) * (1 + 8 * EPS) + slack, 1.0)

    def log_moment(self, t: float) -> float:
        """K(t) for t ≥ 0, rounded up; K(t)/t is the Rényi divergence of order 1 + t."""
        if t < 0.0:
            raise InputError("t must not be negative: losses are rounded up")
        exponents = t * np.minimum(self.losses, self.largest)
        top = float(exponents.max())
        value = top + math.log(math.fsum(self.probabilities * np.exp(exponents - top)))
        return value + 8 * EPS * (1.0 + abs(value) + float(np.abs(exponents).max()))

    def _in_larger_unit(self, bits: int) -> DiscreteLoss:
        """The same losses rounded up to multiples of 2^−bits, where that is a larger unit."""
        return _merge_equal_losses(-(-self.steps >> (self.bits - bits)), self.probabilities, self.largest, bits)


def compose_losses(losses: list[DiscreteLoss]) -> DiscreteLoss:
    """The law of the sum of these losses: that of independent releases together."""
    return reduce(DiscreteLoss.__add__, losses, DiscreteLoss.no_release())


def log_rounded_up(values: FloatArray) -> FloatArray:
    """Logarithms of values within [0, 1], rounded up and at most 0; −inf for 0."""
    logs = np.full(np.shape(values), -np.inf)
    np.log(values, out=logs, where=np.asarray(values) > 0.0)
    return np.where(np.asarray(values) > 0.0, np.minimum(logs * (1 - 4 * EPS) + 4 * EPS, 0.0), -np.inf)


def sum_rounded_up(*values: float | Fraction) -> float:
    """The sum of the values, rounded up only where it is not exact: twice ε is 2ε."""
    exact = sum((Fraction(value) for value in values), Fraction(0))
    rounded = float(exact)
    return rounded if Fraction(rounded) >= exact else math.nextafter(rounded, math.inf)


def _merge_equal_losses(steps: NDArray[np.int64], odds: FloatArray, largest: float, bits: int) -> DiscreteLoss:
    """A law with equal losses merged; beyond :data:`MOST_LOSSES` losses in units twice as large, rounded up."""
    while True:
        values, place, counts = np.unique(steps, return_inverse=True, return_counts=True)
        if len(values) <= MOST_LOSSES:
            break
        steps, bits = -(-steps >> 1), bits - 1
    sums = np.bincount(place, weights=odds, minlength=len(values)) * (1 + EPS * float(counts.max()))
    return DiscreteLoss(values, np.asarray(sums, dtype=np.float64), largest, bits)
