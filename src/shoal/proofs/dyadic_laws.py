"""Laws that a proof is about, as exact numbers: every stored double is a whole multiple of a power of two.

    mean = μ + shift,     cov = (I + G) Σ (I + G)ᵀ + N

are formed without rounding (docs/theory.md, section 13). What is known only up to a bound stays a ball: class laws with
``errors``, and noise that is singular up to rounding, which is drawn with a little on its diagonal (``noise.factor``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from shoal.errors import CertificationError
from shoal.mechanism.mechanism import Mechanism
from shoal.noise.exact_map import EXACT
from shoal.noise.factor import JITTER, WIDTH, least_eigenvalues
from shoal.numerics.matrices import EPS
from shoal.validation import FloatArray

#: A number known up to a radius, an exact rational, a matrix of either. python-flint's own types say little more.
Ball = Any
Rational = Any
Matrix = Any
#: Working precision, in bits, of everything before the integral.
PRECISION = 192
#: Precisions at which the sign of a pivot is looked for; beyond the first the rank is computed exactly.
PRECISIONS = (PRECISION, 384, 768, 1536)
#: Doubles that bound radii are rounded up by this much.
UP = 1 + 1e-12
#: The jitter is added below 32 k² ε, decided in doubles with an error of at most k² ε: between these two it may be.
CERTAINLY, POSSIBLY = 30, 34


def exact_rational(value: float) -> Rational:
    """A double as the rational number it is."""
    return fmpq(*float(value).as_integer_ratio())


def rational_matrix(values: FloatArray) -> Matrix:
    """An exact matrix from doubles, (n, m)."""
    return fmpq_mat(values.shape[0], values.shape[1], [exact_rational(v) for v in values.ravel().tolist()])


def exact_ball_matrix(values: FloatArray) -> Matrix:
    """A matrix of balls without radius from doubles, (n, m)."""
    return arb_mat(values.shape[0], values.shape[1], values.ravel().tolist())


def ball_matrix(center: Matrix, radius: FloatArray | None) -> Matrix:
    """Matrix of balls around an exact matrix at the working precision; ``radius`` holds doubles, entry by entry."""
    balls = arb_mat(center)
    if radius is None or not radius.any():
        return balls
    return balls + arb_mat(radius.shape[0], radius.shape[1], [arb(0, r) for r in radius.ravel().tolist()])


def midpoints(matrix: Matrix) -> FloatArray:
    """Midpoints of a matrix of balls as doubles; nothing rests on them."""
    return np.array([[float(entry.mid()) for entry in row] for row in matrix.tolist()])


def absolute_bounds(matrix: Matrix) -> FloatArray:
    """Upper bounds of the absolute values of all entries of a matrix of balls, as doubles."""
    return np.array([[upper_double(entry.abs_upper()) for entry in row] for row in matrix.tolist()])


def upper_double(ball: Ball) -> float:
    """The least double found at or above the upper end of a ball; inf where there is none."""
    end = ball.upper()
    if not end.is_finite():
        return math.inf
    value = float(end)
    while math.isfinite(value) and arb(value) < end:
        value = math.nextafter(value, math.inf)
    return value


def lower_double(ball: Ball) -> float:
    """The largest double found at or below the lower end of a ball; −inf where there is none."""
    return -upper_double(-ball)


class NotSettled(Exception):
    """Nothing can be proved about a pair of labels; the text says why and is fit to print."""


@dataclass(frozen=True, eq=False)
class DyadicLaw:
    """N(mean, cov) in exact numbers; ``cov_doubt`` (k, k) and ``mean_doubt`` (k,) bound what is not known of them."""

    mean: tuple[Rational, ...]
    cov: Matrix
    cov_doubt: FloatArray | None = None
    mean_doubt: FloatArray | None = None

    @property
    def k(self) -> int:
        """Number of entries."""
        return len(self.mean)

    @property
    def is_exact(self) -> bool:
        """Whether mean and covariance are known exactly."""
        return self.cov_doubt is None and self.mean_doubt is None

    def equals(self, other: DyadicLaw) -> bool:
        """Whether both are known exactly and are the same."""
        return self.is_exact and other.is_exact and self.mean == other.mean and bool(self.cov == other.cov)

    def marginal(self, chosen: list[int]) -> DyadicLaw:
        """The marginal law of some entries, of a law that is known exactly."""
        cov = fmpq_mat(len(chosen), len(chosen), [self.cov[i, j] for i in chosen for j in chosen])
        return DyadicLaw(tuple(self.mean[i] for i in chosen), cov)

    @cached_property
    def log_det(self) -> Ball | None:
        """ln det of the covariance where it is proved positive definite; None otherwise."""
        for precision in PRECISIONS:
            with ctx.workprec(precision):
                elimination = eliminate(ball_matrix(self.cov, self.cov_doubt).tolist())
            if elimination is not None:
                return elimination.log_det
            if self.cov_doubt is not None or (precision > PRECISION and self.rank < self.k):
                break
        return None

    @property
    def is_definite(self) -> bool:
        """Whether the covariance is proved positive definite."""
        return self.log_det is not None

    @cached_property
    def rank(self) -> int:
        """Rank of the exact covariance."""
        return int(self.cov.rank())


class Elimination(NamedTuple):
    """Result of an elimination: ln det M, and the quadratic form dᵀ M⁻¹ d of the vector given."""

    log_det: Ball
    form: Ball


def eliminate(rows: list[list[Ball]], gap: list[Ball] | None = None) -> Elimination | None:
    """ln det M and dᵀ M⁻¹ d of a symmetric matrix of balls; None unless it is surely positive definite."""
    k = len(rows)
    d = list(gap) if gap is not None else [arb(0)] * k
    product, form = arb(1), arb(0)
    for j in range(k):
        row = rows[j]
        pivot = row[j]
        if not pivot > 0:
            return None
        product *= pivot
        inverse, top = 1 / pivot, d[j]
        form += top * top * inverse
        for i in range(j + 1, k):
            below = rows[i]
            factor = below[j] * inverse
            if factor.is_zero():
                continue
            d[i] -= factor * top
            for m in range(j + 1, i + 1):
                below[m] -= factor * rows[m][j]
    return Elimination(product.log(), form)


class LawPair(NamedTuple):
    """Two laws of full rank on their common support, as balls: Σ, Σ', Σ − Σ', μ' − μ, and ln det of Σ and Σ'."""

    first: Matrix
    base: Matrix
    diff: Matrix
    gap: Matrix
    log_first: Ball
    log_base: Ball

    @property
    def k(self) -> int:
        """Number of entries."""
        return int(self.base.nrows())

    @property
    def equal_covs(self) -> bool:
        """Whether both covariances are the same, exactly, known or not."""
        return all(entry.is_zero() for entry in self.diff.entries())


@dataclass(eq=False)
class DyadicLaws:
    """The laws of all labels, made when asked for. ``shares_cov``: what is not known of covariances is one matrix."""

    mechanism: Mechanism
    known: dict[int, DyadicLaw] = field(default_factory=dict)
    drawn: dict[bytes, tuple[Matrix, FloatArray | None]] = field(default_factory=dict)

    @property
    def shares_cov(self) -> bool:
        """Whether all labels have one covariance, with one and the same unknown error."""
        classes, noise = self.mechanism.classes, self.mechanism.noise_cov
        one = classes.errors is None or len(classes.errors[0]) == 1 or not classes.errors[0].any()
        return classes.is_shared and one and self.mechanism.gain is None and bool((noise == noise[0]).all())

    def __getitem__(self, i: int) -> DyadicLaw:
        if i not in self.known:
            self.known[i] = self._released_law(i)
        return self.known[i]

    @cached_property
    def rounded_moments(self) -> tuple[FloatArray, FloatArray]:
        """(n, k) means and (n, k, k) covariances as doubles, for choices on which nothing rests."""
        laws, k = [self[i] for i in range(self.mechanism.classes.n_classes)], self.mechanism.n_dims
        means = np.array([[_nearest_double(v) for v in law.mean] for law in laws])
        return means, np.array([[_nearest_double(v) for v in law.cov.entries()] for law in laws]).reshape(-1, k, k)

    def pair(self, i: int, j: int) -> LawPair | bool:
        """Both laws on their common support; True where they are equal, False where their supports differ."""
        a, b = self[i], self[j]
        if a.equals(b):
            return True
        if not (a.is_definite and b.is_definite):
            if not (a.is_exact and b.is_exact):
                raise NotSettled("a law is known only up to rounding and may be singular")
            chosen = _common_support_entries(a, b)
            if chosen is None:
                return False
            a, b = a.marginal(chosen), b.marginal(chosen)
            if a.equals(b):
                return True
            if not (a.is_definite and b.is_definite):
                raise NotSettled("a covariance is not positive semidefinite, or too nearly singular to decide")
        with ctx.workprec(PRECISION):
            doubt = None if self.shares_cov else _sum_of_radii(a.cov_doubt, b.cov_doubt)
            moved = _sum_of_radii(a.mean_doubt, b.mean_doubt)
            gap = fmpq_mat(a.k, 1, [y - x for x, y in zip(a.mean, b.mean, strict=True)])
            return LawPair(
                ball_matrix(a.cov, a.cov_doubt),
                ball_matrix(b.cov, b.cov_doubt),
                ball_matrix(a.cov - b.cov, doubt),
                ball_matrix(gap, None if moved is None else moved[:, None]),
                a.log_det,
                b.log_det,
            )

    def _released_law(self, i: int) -> DyadicLaw:
        """The law of what is released about label i."""
        mechanism, classes, noise_cov = self.mechanism, self.mechanism.classes, self.mechanism.noise_cov
        cov = rational_matrix(classes.stored_covs[0 if classes.is_shared else i])
        cov_doubt = mean_doubt = None
        if classes.errors is not None:
            covs, means = classes.errors
            cov_doubt, mean_doubt = (e if e.any() else None for e in (covs[min(i, len(covs) - 1)], means[i]))
        stored = noise_cov[min(i, len(noise_cov) - 1)]
        if stored.tobytes() not in self.drawn:
            self.drawn[stored.tobytes()] = _drawn_noise_cov(stored)
        noise, drawn_doubt = self.drawn[stored.tobytes()]
        if mechanism.gain is not None:
            kept = rational_matrix(np.eye(len(stored))) + rational_matrix(mechanism.gain[i])
            cov = kept * cov * kept.transpose()
            size = (np.eye(len(stored)) + np.abs(mechanism.gain[i])) * UP
            cov_doubt = None if cov_doubt is None else size @ cov_doubt @ size.T * UP
            mean_doubt = None if mean_doubt is None else size @ mean_doubt * UP
        return DyadicLaw(_released_means(mechanism, i), cov + noise, _sum_of_radii(cov_doubt, drawn_doubt), mean_doubt)


def _nearest_double(value: Rational) -> float:
    """The double nearest to a rational number."""
    return int(value.p) / int(value.q)


def _sum_of_radii(a: FloatArray | None, b: FloatArray | None) -> FloatArray | None:
    """Sum of two arrays of radii, rounded up; None stands for zeros."""
    if a is None or b is None:
        return b if a is None else a
    return (a + b) * UP


def _released_means(mechanism: Mechanism, i: int) -> tuple[Rational, ...]:
    """Exact expected answers about label i, μ + shift, or the rounded sum where it is put on a grid, as released."""
    means, shift = mechanism.classes.means[i], mechanism.shift[min(i, len(mechanism.shift) - 1)]
    grid = np.full(len(means), EXACT) if mechanism.mean_grid is None else mechanism.mean_grid[i]
    return tuple(
        exact_rational(m) + exact_rational(s)
        if exponent <= EXACT
        else fmpq(round(Fraction(m + s) / Fraction(2) ** exponent)) * fmpq(2) ** exponent
        for m, s, exponent in zip(means.tolist(), shift.tolist(), grid.tolist(), strict=True)
    )


def _drawn_noise_cov(noise: FloatArray) -> tuple[Matrix, FloatArray | None]:
    """The noise covariance that is drawn, exactly, and a bound on what is not known of it.

    It is the mean of N and its transpose, with the jitter of ``noise.factor`` where that is added, or may be.
    """
    k = len(noise)
    symmetric = rational_matrix(noise)
    if not (noise == noise.T).all():
        symmetric = (symmetric + symmetric.transpose()) * fmpq(1, 2)
    diagonal = np.diagonal(noise)
    if (diagonal < 0).any():
        raise CertificationError("noise_cov of a label has a negative variance: no such noise can be drawn")
    if (noise == np.diag(diagonal)).all():
        return symmetric, None
    std = np.sqrt(diagonal)
    least = float(least_eigenvalues(noise[None])[0])
    if least > POSSIBLY * k**2 * EPS:
        return symmetric, None
    # The factor's own residual, 2^−(W−1) 2^(e_i + e_j) with 2^e ≤ 2 √variance.
    doubt = 2.0 ** (3 - WIDTH) * UP * std[:, None] * std[None, :]
    share = fmpq(JITTER * k, 2**52)
    if least > CERTAINLY * k**2 * EPS:
        share = share / 2
        doubt = doubt + UP * 0.5 * JITTER * k * EPS * np.diag(diagonal)
    jitter = fmpq_mat(k, k, [share * symmetric[i, j] if i == j else fmpq(0) for i in range(k) for j in range(k)])
    return symmetric + jitter, doubt


def _common_support_entries(a: DyadicLaw, b: DyadicLaw) -> list[int] | None:
    """Positions of entries that determine a point of both supports; None where the supports μ + range Σ differ."""
    rank, k = a.rank, a.k
    if rank != b.rank:
        return None
    gap = [y - x for x, y in zip(a.mean, b.mean, strict=True)]
    rows = [[*one, *two, away] for one, two, away in zip(a.cov.tolist(), b.cov.tolist(), gap, strict=True)]
    if fmpq_mat(rows).rank() != rank:
        return None
    form, _ = a.cov.rref()
    return [next(j for j in range(k) if form[i, j] != 0) for i in range(rank)]
