"""The exact rank, range and null space of a stored covariance.

A double is a whole multiple of a power of two, so a stored matrix is one of integers in some small unit, and whether it
is singular is a question about integers. Entries are first scaled by powers of two to variances in [¼, 1), which
changes the rank not at all. Fraction-free Gauss–Jordan elimination (Bareiss 1968) with pivots on the diagonal then
keeps, after the pivots P,

    a_ij = det(Σ_PP) · (Σ_ij − Σ_iP Σ_PP⁻¹ Σ_Pj)   outside P,     a_pj = det(Σ_PP) · (Σ_PP⁻¹ Σ_Pj)_p   in the rows of P,

every division without remainder. The next pivot is the entry that keeps the largest share of its variance given those
before it, so that Σ_PP is well conditioned if any choice makes it so. A negative variance that is left, or a zero one
with a covariance, proves that the matrix is no covariance. Where all that is left is zero, the rank is |P| and
the other entries f are fixed by those in P: q_f − μ_f = Σ_fP Σ_PP⁻¹ (q_P − μ_P).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoal.validation import FloatArray, IndexArray


@dataclass(frozen=True, eq=False)
class NullSpaceForm:
    """Result of an elimination. ``null`` spans the null space, in whole numbers; empty where Σ is positive definite.

    ``spread`` (k, rank) has q − μ = spread (q_P − μ_P) on the support, with P = ``pivots``, correctly rounded.
    """

    pivots: IndexArray
    null: tuple[tuple[int, ...], ...]
    spread: FloatArray

    @property
    def rank(self) -> int:
        """The rank of the covariance."""
        return len(self.pivots)

    def annihilates(self, cov: FloatArray) -> bool:
        """Whether the null space of this form lies in that of another covariance, exactly."""
        rows = _scale_to_integers(cov.tolist())
        return not any(sum(map(int.__mul__, row, vector)) for vector in self.null for row in rows)

    def support_offset(self, mean: FloatArray) -> tuple[Fraction, ...]:
        """Return N μ, exactly: laws with one null space N share a support where these are equal."""
        ratios = [Fraction(value) for value in mean.tolist()]
        return tuple(sum((n * x for n, x in zip(vector, ratios, strict=True)), Fraction(0)) for vector in self.null)


def null_space_form(cov: FloatArray) -> NullSpaceForm | None:
    """Return the form of a symmetric (k, k) matrix with positive variances; None where it is not semidefinite."""
    k = len(cov)
    exponents = [math.ceil(math.frexp(value)[1] / 2) for value in np.diagonal(cov).tolist()]
    rows = _scale_to_integers(cov.tolist(), exponents)
    pivots = _eliminate_in_place(rows)
    if pivots is None:
        return None
    free = sorted(set(range(k)) - set(pivots))
    det = rows[pivots[-1]][pivots[-1]]
    highest, null = max(exponents), []
    spread = np.zeros((k, len(pivots)))
    spread[pivots, np.arange(len(pivots))] = 1.0
    for f in free:
        # In the scaled entries: det · e_f − Σ_p a_pf e_p. Back in the stored ones, entry i counts 2^{−e_i}.
        scaled = {f: det, **{p: -rows[p][f] for p in pivots}}
        least = math.gcd(*scaled.values())
        null.append(tuple(scaled.get(i, 0) // least << (highest - exponents[i]) for i in range(k)))
        for column, p in enumerate(pivots):
            spread[f, column] = float(Fraction(rows[p][f], det) * Fraction(2) ** (exponents[f] - exponents[p]))
    spread.flags.writeable = False
    return NullSpaceForm(np.array(pivots, dtype=np.intp), tuple(null), spread)


def _eliminate_in_place(a: list[list[int]]) -> list[int] | None:
    """Eliminate a matrix of integers in place; its pivots in order, or None where it is not positive semidefinite."""
    k = len(a)
    left = list(range(k))
    bits = max(a[i][i].bit_length() for i in left)
    weight = [(1 << (bits + 64)) // a[i][i] for i in left]  # the reciprocal of each variance, close enough to choose by
    pivots: list[int] = []
    before = 1
    while left:
        if min(a[i][i] for i in left) < 0:
            return None
        best = max(left, key=lambda i: a[i][i] * weight[i])
        pivot = a[best][best]
        if pivot == 0:
            return None if any(a[i][j] for i in left for j in left) else pivots
        left.remove(best)
        pivots.append(best)
        row = a[best]
        for i in range(k):
            if i != best:
                other = a[i]
                factor = other[best]
                for j in left:
                    other[j] = (pivot * other[j] - factor * row[j]) // before
        # The columns of earlier pivots are never read again, but for the determinant on their diagonal.
        before = pivot
    return pivots


def _scale_to_integers(rows: list[list[float]], exponents: list[int] | None = None) -> list[list[int]]:
    """Return Σ_ij 2^{−e_i − e_j} in the largest unit 2^−u in which all of them are whole."""
    up = exponents or [0] * len(rows)
    numbers = [[value.as_integer_ratio() for value in row] for row in rows]
    places = [
        [bottom.bit_length() - 1 + up[i] + up[j] for j, (_, bottom) in enumerate(row)] for i, row in enumerate(numbers)
    ]
    unit = max(
        place
        for row, spots in zip(numbers, places, strict=True)
        for (top, _), place in zip(row, spots, strict=True)
        if top
    )
    return [
        [top << (unit - place) if top else 0 for (top, _), place in zip(row, spots, strict=True)]
        for row, spots in zip(numbers, places, strict=True)
    ]
