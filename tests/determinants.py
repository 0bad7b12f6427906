"""Rigorous enclosures of δ(ε) of a pair of Gaussian laws in ball arithmetic, without eigenvalues.

Nothing here imports the library. Laws are exact: rational means and covariances, made from doubles without rounding.
With Δ = Σ − Σ', d = μ' − μ and L the privacy loss of N(μ, Σ) against N(μ', Σ'),

    K(t) = ln E[e^{tL}] = −(t/2) ln p(−1) − ½ ln p(t) + ½ t (1+t) q(t)/p(t),
    p(t) = det(Σ' − tΔ) / det Σ',        q(t)/p(t) = dᵀ (Σ' − tΔ)⁻¹ d,

so two polynomials with ball coefficients, both from characteristic polynomials, are all of the edge. (Congruence with
any matrix leaves them alone; one that nearly diagonalizes the pair is used, because it saves bits.) All roots of p are
real, which is what makes the bounds below possible from values of p and q alone. The reverse edge is t → −1 − t.

    E[(1 − e^{x−L})₊] = (1/2πi) ∫ e^{K(t) − xt} dt / (t (t+1)),      Pr(L > x) = (1/2πi) ∫ e^{K(t) − xt} dt / t

through c > 0, and minus the complement through c < 0. The trapezoidal rule in v along the hyperbola
t(v) = c₀ + s (± sin α cosh v + i cos α sinh v), v = −V … V, differs from the integral over that hyperbola and straight
up and down from its ends by at most the integrals of the modulus

    over the hyperbolas of angle 0 (the vertical line) and 2α, times 1/(e^{2πα/h} − 1),
    over the two arcs v = ±V between them, times e^{−2π|b|/h} at the angle α + b,
    over what leads straight up and down

(residues of f(w) / (1 − e^{−2πiw/h}) in the rectangle |Re w| ≤ V, |Im w| ≤ α, V between two nodes). For t in the strip
|e^{K(t)}| ≤ e^{K(Re t)}, falling in |Im t|. Elsewhere, with τ = t − c, 1 − bᵢτ the factors of p(c + τ)/p(c) and
aᵢ ≥ 0 the residues of the quadratic form there,

    Ψ(τ) = K(c+τ) − K(c) − xτ = ℓτ − ½ Σ ln(1 − bᵢτ) + ½ τ² Σ aᵢ/(1 − bᵢτ)
    |Ψ''| ≤ ½ S (1−θ)⁻² + (|τ|/Im τ) A (1−θ)⁻³  in the disk of radius θ Im τ about τ,
    S = Σ bᵢ²/|1 − bᵢτ|² = −Im(P'/P)/Im τ,      A = Σ aᵢ/|1 − bᵢτ|² = Im(τF)/Im τ,    P = Π(1 − bᵢτ), F = Σ aᵢ/(1 − bᵢτ)

because |1 − bτ| ≥ |b| Im τ and |1 − bτ| ≥ Im τ/|τ|. Values on the nodes are balls; the bounds on what is left out are
doubles with a factor of two to spare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from flint import acb, arb, arb_mat, arb_poly, ctx, fmpq, fmpq_mat

#: Relative width of an enclosure, in bits, that is good enough.
GOAL = 46
#: Where giving up is due: bits of working precision.
MOST_BITS = 20_000


class Unresolved(ArithmeticError):
    """No enclosure of the width asked for within the limits of this file."""


class Enclosure(NamedTuple):
    """Exact numbers with lower ≤ δ ≤ upper."""

    lower: Any
    upper: Any

    @property
    def log(self) -> tuple[float, float]:
        """ln of both ends, nearly; for reading."""
        with bits(64):
            return tuple(float(arb(end).log()) if end > 0 else -math.inf for end in self)  # type: ignore[return-value]


def bits(n: int) -> AbstractContextManager[None]:
    return ctx.workprec(n)


def above(value: float, enclosure: Enclosure) -> bool:
    """Whether a claimed upper end covers the lower end of what is proven: no tolerance."""
    return not arb(value) < enclosure.lower


def below(value: float, enclosure: Enclosure) -> bool:
    """Whether a claimed lower end stays under the upper end of what is proven."""
    return not arb(value) > enclosure.upper


# ---------------------------------------------------------------------------------------------------------------
# Laws


@dataclass(frozen=True)
class Law:
    """N(mean, cov) in exact rationals."""

    mean: tuple[Any, ...]
    cov: Any

    @property
    def k(self) -> int:
        return len(self.mean)

    def entries(self, chosen: Sequence[int]) -> Law:
        """The marginal law of some entries."""
        rows = [[self.cov[i, j] for j in chosen] for i in chosen]
        return Law(tuple(self.mean[i] for i in chosen), fmpq_mat(rows) if rows else fmpq_mat(0, 0))


def rational(value: Any) -> Any:
    """A float, int or Fraction as an exact fmpq."""
    if isinstance(value, fmpq):
        return value
    if isinstance(value, Fraction):
        return fmpq(value.numerator, value.denominator)
    return fmpq(*float(value).as_integer_ratio())


def matrix(values: Any) -> Any:
    """An exact fmpq_mat from rows of numbers."""
    return values if isinstance(values, fmpq_mat) else fmpq_mat([[rational(v) for v in row] for row in values])


def law(mean: Any, cov: Any) -> Law:
    """The law with exactly these parameters; a matrix that is not symmetric stands for the mean with its transpose."""
    exact = matrix(cov)
    turned = exact.transpose()
    return Law(tuple(rational(v) for v in mean), exact if exact == turned else (exact + turned) * fmpq(1, 2))


def moved(source: Law, shift: Any, gain: Any, noise: Any) -> Law:
    """Law of q + shift + gain (q − μ) + noise for q of the law given, in exact arithmetic; gain None is no gain."""
    extra = law([0] * source.k, noise).cov
    cov = source.cov
    if gain is not None:
        kept = matrix(gain) + matrix(np.eye(source.k))
        cov = kept * cov * kept.transpose()
    return Law(tuple(m + rational(s) for m, s in zip(source.mean, shift, strict=True)), cov + extra)


def given_out(
    answer: Any, mean: Any, shift: Any, gain: Any, noise: Any, normals: Sequence[int], unit: int
) -> list[Any]:
    """q + shift + gain (q − μ) + A z as balls, A the Cholesky factor of the noise and z whole multiples of 2^−unit."""
    k = len(normals)
    q, mu = [rational(v) for v in answer], [rational(v) for v in mean]
    with bits(900):
        cov = arb_mat(law([0] * k, noise).cov).tolist()
        factor = [[arb(0)] * k for _ in range(k)]
        for i in range(k):
            for j in range(i + 1):
                rest = cov[i][j] - sum((factor[i][m] * factor[j][m] for m in range(j)), arb(0))
                if i == j:
                    factor[i][i] = rest.sqrt() if rest > 0 else arb(0)
                elif not factor[j][j].is_zero():
                    factor[i][j] = rest / factor[j][j]
        result = []
        for i in range(k):
            exact = q[i] + rational(shift[i])
            if gain is not None:
                exact += sum((rational(gain[i][j]) * (q[j] - mu[j]) for j in range(k)), fmpq(0))
            result.append(arb(exact) + sum((factor[i][j] * normals[j] for j in range(k)), arb(0)) * arb(2) ** -unit)
        return result


def nearest(value: Any, step: Any) -> Any:
    """The whole number of steps nearest to a ball, ties upward; None where the ball cannot tell."""
    with bits(900):
        shifted = value / arb(step) + arb(1) / 2
        return shifted.floor().unique_fmpz()


def same(a: Law, b: Law) -> bool:
    return a.mean == b.mean and a.cov == b.cov


def definite(cov: Any) -> bool:
    """Whether an exact matrix is positive definite, by pivots in balls; ValueError where one is negative."""
    k = cov.nrows()
    precision = 128 + 8 * k
    while precision <= MOST_BITS:
        with bits(precision):
            rows = arb_mat(cov).tolist()
            for j in range(k):
                pivot = rows[j][j]
                if not pivot > 0:
                    break
                for i in range(j + 1, k):
                    factor = rows[i][j] / pivot
                    if factor.is_zero():
                        continue
                    for m in range(j + 1, i + 1):
                        rows[i][m] -= factor * rows[m][j]
            else:
                return True
            if pivot < 0:
                raise ValueError("not a covariance: it has a negative eigenvalue")
        if precision > 1000 and cov.rank() < k:
            return False
        precision *= 2
    raise Unresolved("definiteness of a covariance")


def common_support(a: Law, b: Law) -> tuple[Law, Law] | None:
    """Both laws in a set of entries in which both have full rank; None where their supports differ.

    Exact: supports are μ + range Σ, and entries that are pivots of Σ determine a point of the support.
    """
    if definite(a.cov) and definite(b.cov):
        return a, b
    rank = a.cov.rank()
    if rank != b.cov.rank():
        return None
    k = a.k
    rows = [
        [a.cov[i, j] for j in range(k)] + [b.cov[i, j] for j in range(k)] + [b.mean[i] - a.mean[i]] for i in range(k)
    ]
    if fmpq_mat(rows).rank() != rank:
        return None
    reduced, _ = a.cov.rref()
    pivots = [next(j for j in range(k) if reduced[i, j] != 0) for i in range(rank)]
    a, b = a.entries(pivots), b.entries(pivots)
    if rank and not (definite(a.cov) and definite(b.cov)):
        raise Unresolved("rank of a covariance")
    return a, b


# ---------------------------------------------------------------------------------------------------------------
# The two polynomials


class Part(NamedTuple):
    """p and q of one release in one direction with two derivatives, how often it is repeated, and ln p(−1)."""

    p: tuple[Any, Any, Any]
    q: tuple[Any, Any, Any]
    times: int
    log_det: Any

    @classmethod
    def of(cls, p: Any, q: Any, times: int, log_det: Any) -> Part:
        dp, dq = p.derivative(), q.derivative()
        return cls((p, dp, dp.derivative()), (q, dq, dq.derivative()), times, log_det)


@dataclass
class Pair:
    """Two laws of full rank; p and q at any precision."""

    a: Law
    b: Law
    times: int = 1
    known: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    parts: dict[tuple[int, bool], Part] = field(default_factory=dict)

    @cached_property
    def difference(self) -> Any:
        return self.a.cov - self.b.cov

    @cached_property
    def gap(self) -> list[Any]:
        return [y - x for x, y in zip(self.a.mean, self.b.mean, strict=True)]

    @cached_property
    def equal_covariances(self) -> bool:
        return bool(self.a.cov == self.b.cov)

    @cached_property
    def degree(self) -> int:
        return int(self.difference.rank())

    @cached_property
    def frame(self) -> Any:
        """Doubles W with Wᵀ Σ' W ≈ I and Wᵀ Σ W ≈ diagonal; any nonsingular matrix would do."""
        base = np.array([[float(x) for x in row] for row in arb_mat(self.b.cov).tolist()])
        diff = np.array([[float(x) for x in row] for row in arb_mat(self.difference).tolist()])
        scale = 1.0 / np.sqrt(np.diagonal(base))
        try:
            half = np.linalg.inv(np.linalg.cholesky(base * scale[:, None] * scale[None, :])) * scale[None, :]
            whitened = half @ diff @ half.T
            w = half.T @ np.linalg.eigh(0.5 * (whitened + whitened.T))[1]
        except np.linalg.LinAlgError:
            w = np.diag(scale)
        return matrix(w if np.isfinite(w).all() else np.diag(scale))

    def polynomials(self, precision: int) -> tuple[Any, Any]:
        """(p, q) with balls of the given working precision."""
        if precision in self.known:
            return self.known[precision]
        with bits(precision):
            w = arb_mat(self.frame)
            turned = w.transpose()
            base = turned * arb_mat(self.b.cov) * w
            diff = turned * arb_mat(self.difference) * w
            d = turned * arb_mat(len(self.gap), 1, self.gap)
            size = d.transpose() * base.solve(d)
            p = _determinant(base, diff, self)
            if any(g != 0 for g in self.gap):
                # det(Σ' + ddᵀ/η − tΔ) / det Σ' = p + q/η; with η = dᵀΣ'⁻¹d the factor det(…)(0) is 2.
                both = _determinant(base + d * d.transpose() * arb_mat([[1 / size[0, 0]]])[0, 0], diff, self)
                q = _cut((both * 2 - p) * size[0, 0], p.degree() + (p.degree() < len(self.gap)))
            else:
                q = arb_poly([0])
        self.known[precision] = p, q
        return p, q

    def part(self, precision: int, reverse: bool) -> Part:
        if (precision, reverse) not in self.parts:
            p, q = self.polynomials(precision)
            with bits(precision):
                last = p(arb(-1))
                if reverse:
                    turn = arb_poly([-1, -1])
                    part = Part.of(p(turn) * (1 / last), q(turn) * (1 / last), self.times, -last.log())
                else:
                    part = Part.of(p, q, self.times, last.log())
            self.parts[precision, reverse] = part
        return self.parts[precision, reverse]


def _cut(polynomial: Any, length: int) -> Any:
    """The polynomial without coefficients that are known to be zero."""
    return arb_poly(polynomial.coeffs()[:length])


def _determinant(base: Any, diff: Any, pair: Pair) -> Any:
    """det(base − t diff) / det base as a polynomial in t, its exact degree taken from exact ranks where in doubt."""
    coefficients = base.solve(diff).charpoly().coeffs()[::-1]
    if any(c.contains(0) for c in coefficients):
        coefficients = coefficients[: pair.degree + 1]
    return arb_poly(coefficients)


# ---------------------------------------------------------------------------------------------------------------
# Edges


@dataclass
class Edge:
    """The loss between two labels over one or more independent releases. ``delta`` is all there is to ask."""

    pairs: list[Pair]
    disjoint: bool
    tails: dict[Any, tuple[Enclosure, Enclosure]] = field(default_factory=dict)

    @classmethod
    def of(cls, *releases: tuple[Law, Law] | tuple[Law, Law, int]) -> Edge:
        """From (law under the first label, law under the second[, times]) of every release."""
        pairs = []
        for release in releases:
            a, b, times = release if len(release) == 3 else (*release, 1)
            if same(a, b):
                continue
            inside = common_support(a, b)
            if inside is None:
                return cls([], True)
            if inside[0].k and not same(*inside):
                pairs.append(Pair(*inside, times))
        return cls(pairs, False)

    @classmethod
    def gaussian(cls, squared_gap: Any) -> Edge:
        """N(0, 1) against N(μ, 1) with μ² exactly as given."""
        one = fmpq_mat([[1]])
        edge = cls([Pair(Law((fmpq(0),), one), Law((fmpq(1),), one))] if squared_gap else [], False)
        edge.squared_gap = squared_gap
        return edge

    @cached_property
    def squared_gap(self) -> Any:
        """dᵀΣ⁻¹d summed over releases, exactly; for equal covariances."""
        total = fmpq(0)
        for pair in self.pairs:
            gap = fmpq_mat([[g] for g in pair.gap])
            total += pair.times * (gap.transpose() * pair.b.cov.solve(gap))[0, 0]
        return total

    def delta(self, epsilon: Any, notion: str = "dp", *, reverse: bool = False) -> Enclosure:
        """Enclosure of δ(ε) from the first label to the second, or back; notion "dp", "pdp" or "pdp-two-sided"."""
        x = rational(epsilon)
        if self.disjoint:
            return Enclosure(arb(1), arb(1))
        if notion == "pdp-two-sided":
            if not self.pairs:
                return Enclosure(arb(0), arb(0))  # L = 0, which is not beyond any ε
            first, second = self.tail(x, "pdp", reverse)[0], self.tail(-x, "pdp", reverse)[1]
            with bits(MOST_BITS):
                return Enclosure(first.lower + second.lower, first.upper + second.upper)
        return self.tail(x, notion, reverse)[0]

    def tail(self, x: Any, notion: str, reverse: bool = False) -> tuple[Enclosure, Enclosure]:
        """Enclosures of the upper tail (or hockey-stick) at x and of its complement, both relatively narrow."""
        key = x, notion, reverse
        if key not in self.tails:
            self.tails[key] = self._tail(x, notion, reverse)
        return self.tails[key]

    def _tail(self, x: Any, notion: str, reverse: bool) -> tuple[Enclosure, Enclosure]:
        hockey = {"dp": True, "pdp": False}[notion]
        if not self.pairs:
            with bits(256):
                value = arb(0) if x >= 0 else -arb(x).expm1() if hockey else arb(1)
                return _ends(value), _ends(1 - value)
        if all(pair.equal_covariances for pair in self.pairs):
            return self._equal(x, hockey)
        precision = 128 + 4 * max(pair.a.k for pair in self.pairs)
        while precision <= MOST_BITS:
            with bits(precision):
                parts = [pair.part(precision, reverse) for pair in self.pairs]
                try:
                    return _resolve(parts, x, hockey)
                except _MoreBits:
                    precision *= 2
        raise Unresolved("precision")

    def around(self, epsilon: float, count: int, *, reverse: bool = False) -> list[tuple[float, Enclosure]]:
        """(ε, enclosure of δ) at up to ``count`` doubles ε ≥ 0 from about the one given on, from one sum.

        They go to the side on which the integrand decays all the faster, evenly, as far as moves the exponent's saddle
        point by five times its own width: what the sum leaves out is bounded for all of them at once. An ε that is not
        resolved is left out.
        """
        if self.disjoint or not self.pairs:
            return [(epsilon + 0.125 * m, self.delta(epsilon + 0.125 * m, reverse=reverse)) for m in range(count)]
        if all(pair.equal_covariances for pair in self.pairs):
            step = 5 * math.sqrt(float(self.squared_gap)) / count
            return [(epsilon + step * m, self.delta(epsilon + step * m)) for m in range(count)]
        precision = 144 + 4 * max(pair.a.k for pair in self.pairs)
        for _ in range(2):
            with bits(precision):
                parts = [pair.part(precision, reverse) for pair in self.pairs]
                try:
                    return _resolve_around(parts, epsilon, count)
                except _MoreBits:
                    precision *= 2
        return []

    def renyi_lower(self, order: float, *, reverse: bool = False) -> Any:
        """A number that the Rényi divergence is certain to reach; None where it is certainly infinite."""
        if not self.pairs:
            return arb(0)
        precision = 512 + 20 * max(pair.a.k for pair in self.pairs)
        with bits(precision):
            parts = [pair.part(precision, reverse) for pair in self.pairs]
            if order == 1:
                return _slopes(parts, arb(0))[1].lower()
            # The divergence grows with the order, so any smaller order gives a lower bound.
            t = (arb(order) if order < math.inf else arb(2) ** 100) - 1
            for part in parts:
                end = _strip_end([part], 1)
                if end is not None:
                    beyond = end * (1 + arb(2) ** -20)
                    if beyond <= t and part.p[0](beyond) < 0:
                        return None
            if all(_root_free(part.p, t) for part in parts):
                return (_slopes(parts, t)[0] / t).lower()
            return arb(0)

    def threshold(self, rate: float) -> Any:
        """About the x with Pr(L > x) = rate under the second label, a little above it."""

        def size(x: float) -> float:
            return float(self.tail(rational(-x), "pdp", True)[1].upper)

        mean, std = self.loss(reverse=True)
        low, high = -mean - std, -mean + std
        while size(low) < rate:
            low -= 4 * (high - low)
        while size(high) > rate:
            high += 4 * (high - low)
        for _ in range(12):
            middle = 0.5 * (low + high)
            if size(middle) > rate:
                low = middle
            else:
                high = middle
        return rational(high)

    def loss(self, *, reverse: bool = False) -> tuple[float, float]:
        """Mean and deviation of L, nearly."""
        if not self.pairs:
            return 0.0, 0.0
        with bits(512):
            _, mean, second = _slopes([pair.part(512, reverse) for pair in self.pairs], arb(0))
            return float(mean), float(second.sqrt())

    def _equal(self, x: Any, hockey: bool) -> tuple[Enclosure, Enclosure]:
        """Equal covariances, μ = √(dᵀΣ⁻¹d): Φ(μ/2 − x/μ) − e^x Φ(−μ/2 − x/μ)."""
        precision = 256
        while precision <= MOST_BITS:
            with bits(precision):
                mu, y = arb(self.squared_gap).sqrt(), arb(x)
                up, down = mu / 2 - y / mu, -mu / 2 - y / mu
                if up < -1000:
                    # e^x φ(down) = φ(up), so both terms are Mills ratios times one density.
                    ratio = _mills(-up) - _mills(-down) if hockey else _mills(-up)
                    value = ratio * (-up * up / 2).exp() / (2 * arb.pi()).sqrt()
                    if ratio.rel_accuracy_bits() >= GOAL:
                        return _ends(value), _ends(1 - value)
                    precision *= 2
                    continue
                if up > 1000 and not hockey:
                    value = _mills(up) * (-up * up / 2).exp() / (2 * arb.pi()).sqrt()
                    if value.rel_accuracy_bits() >= GOAL:
                        return _ends(1 - value), _ends(value)
                    precision *= 2
                    continue
                value = _normal(up) - y.exp() * _normal(down) if hockey else _normal(up)
                other = _normal(-up) + y.exp() * _normal(down) if hockey else _normal(-up)
                if min(value.rel_accuracy_bits(), other.rel_accuracy_bits()) >= GOAL:
                    return _ends(value), _ends(other)
            precision *= 2
        raise Unresolved("equal covariances")


def on_a_line(gap: Any, first: float, second: float, epsilon: float) -> Enclosure:
    """δ(ε) of N(0, first) against N(gap, second), variances unequal, from the roots of the quadratic L(q) = ε.

    L(q) = ½ ln(second/first) − q²/(2 first) + (q − gap)²/(2 second) exceeds ε between the roots, or outside of them.
    """
    va, vb, d = rational(first), rational(second), rational(gap)
    curved = (1 / vb - 1 / va) / 2
    precision = 192
    while precision <= MOST_BITS:
        with bits(precision):
            slope, level = arb(-d / vb), arb(d * d / vb / 2) + (arb(vb) / arb(va)).log() / 2 - arb(epsilon)
            inside = slope * slope - 4 * arb(curved) * level
            if inside < 0:
                return Enclosure(arb(0), arb(0)) if curved < 0 else _ends(-arb(epsilon).expm1())
            if inside > 0:
                half = inside.sqrt()
                ends = [(-slope + sign * half) / (2 * arb(curved)) for sign in (-1, 1)]
                low, high = ends if curved > 0 else ends[::-1]
                masses = []
                for mean, variance in ((arb(0), arb(va).sqrt()), (arb(d), arb(vb).sqrt())):
                    a, b = (low - mean) / variance, (high - mean) / variance
                    if curved > 0:
                        masses.append(_normal(a) + _normal(-b))
                    else:
                        masses.append(_normal(b) - _normal(a) if a < 0 else _normal(-a) - _normal(-b))
                value = masses[0] - arb(epsilon).exp() * masses[1]
                if value.rel_accuracy_bits() >= GOAL:
                    return _ends(value)
        precision *= 2
    raise Unresolved("roots next to each other")


def _normal(z: Any) -> Any:
    return (-z / arb(2).sqrt()).erfc() / 2


def _mills(z: Any) -> Any:
    """Φ(−z)/φ(z) for z ≥ 1000 by its alternating series, wrong by less than the first term left out."""
    total, term = arb(0), 1 / z
    for n in range(1, 41):
        total += term
        term = -term * (2 * n - 1) / (z * z)
    return total + arb(0, 1) * abs(term).upper()


def _ends(value: Any) -> Enclosure:
    return Enclosure(value.lower().max(arb(0)), value.upper().min(arb(1)))


# ---------------------------------------------------------------------------------------------------------------
# The integral


class _MoreBits(ArithmeticError):
    """Balls too wide to go on."""


def _number(value: Any) -> float:
    """Midpoint of a ball that is known to several digits."""
    if not value.is_finite():
        raise _MoreBits
    return float(value)


def _resolve(parts: list[Part], x: Any, hockey: bool) -> tuple[Enclosure, Enclosure]:
    """Tail and complement from whichever strip has the smaller integral."""
    right_end, left_end = _strip_end(parts, 1), _strip_end(parts, -1)
    found = []
    for side in (1, -1):
        end = right_end if side > 0 else (arb(1) if hockey else left_end)
        found.append(_saddle(parts, x, hockey, side, end))
    side = 1 if found[0].rough <= found[1].rough else -1
    saddle = found[0] if side > 0 else found[1]
    if saddle.center is None:  # beyond the end of a bounded loss: δ = 0, or so small that Markov's bound will do
        tiny = Enclosure(arb(0), saddle.markov)
        rest = Enclosure((1 - saddle.markov).lower(), arb(1))
        return (tiny, rest) if side > 0 else (rest, tiny)
    value = _integral(parts, x, hockey, side, saddle)
    with bits(max(ctx.prec, 200)):
        if value.rel_accuracy_bits() < GOAL - 2:
            raise _MoreBits
        rest = 1 - value
        return (_ends(value), _ends(rest)) if side > 0 else (_ends(rest), _ends(value))


def _resolve_around(parts: list[Part], epsilon: float, count: int) -> list[tuple[float, Enclosure]]:
    """δ at several ε from one sum, along a path through the saddle point of one of them."""
    x = rational(epsilon)
    found = [_saddle(parts, x, True, 1, _strip_end(parts, 1)), _saddle(parts, x, True, -1, arb(1))]
    side = 1 if found[0].rough <= found[1].rough else -1
    saddle = found[0] if side > 0 else found[1]
    if saddle.center is None:
        return []
    if not all(_root_free(part.p, saddle.center) for part in parts):
        raise _MoreBits
    step = 2.0 ** math.floor(math.log2(5 / float(saddle.scale) / count))
    start = round(epsilon / step) * step
    contour = _Contour.of(parts, rational(start), saddle.center)
    step *= contour.lean
    first, apart = rational(start), rational(step)
    chosen = [e for m in range(count) if (e := start + m * step) >= 0 and rational(e) == first + m * apart]
    plan = _cheapest(contour, True, saddle, 6, len(chosen) * abs(step))
    result = []
    for e, value in zip(chosen, _sum(plan, side, step, len(chosen)), strict=True):
        with bits(max(ctx.prec, 200)):
            enclosure = _ends(value) if side > 0 else _ends(1 - value)
            if enclosure.upper - enclosure.lower < enclosure.upper * arb(2) ** -40:
                result.append((e, enclosure))
    return result


def _strip_end(parts: list[Part], side: int) -> Any:
    """Distance from 0 to the end of the strip on one side, approached from inside by Laguerre's steps; None if endless.

    For a polynomial with real roots only these steps never pass the first root.
    """
    best = None
    for part in parts:
        degree = part.p[0].degree()
        if degree < 1:
            continue
        zeroth, first, second = part.p
        t = arb(0)
        for _ in range(200):
            value = zeroth(t)
            slope = first(t) / value
            squares = slope * slope - second(t) / value
            inside = ((degree - 1) * (degree * squares - slope * slope)).mid()
            below = -side * slope.mid() + inside.max(arb(0)).sqrt()
            if not below > 0:
                t = None
                break
            step = (degree / below * (1 - arb(2) ** -20)).mid()
            if not step.is_finite():
                raise _MoreBits
            t = (t + side * step).mid()
            if step < abs(t) * arb(2) ** -90:
                break
        if t is not None:
            t = abs(t)
            best = t if best is None or t < best else best
    return best


class Saddle(NamedTuple):
    """Real minimum c of the whole exponent, 1/√ of its curvature, and a rough ln of the integral."""

    center: Any
    scale: Any
    rough: float
    markov: Any


def _slopes(parts: list[Part], t: Any) -> tuple[Any, Any, Any]:
    """K, K', K'' at a real point."""
    k0, k1, k2 = arb(0), arb(0), arb(0)
    n0, n1 = t * (1 + t), 1 + 2 * t
    for p, q, times, log_det in parts:
        p0, p1, p2 = (polynomial(t) for polynomial in p)
        r1, r2 = p1 / p0, p2 / p0
        q0, q1, q2 = (polynomial(t) / p0 for polynomial in q)
        f0 = q0
        f1 = q1 - q0 * r1
        f2 = q2 - 2 * q1 * r1 - q0 * r2 + 2 * q0 * r1 * r1
        k0 += times * (-t * log_det - p0.log() + n0 * f0) / 2
        k1 += times * (-log_det - r1 + n1 * f0 + n0 * f1) / 2
        k2 += times * (r1 * r1 - r2 + 2 * f0 + 2 * n1 * f1 + n0 * f2) / 2
    return k0, k1, k2


def _saddle(parts: list[Part], x: Any, hockey: bool, side: int, end: Any) -> Saddle:
    """Newton's method on the distance from 0, kept in a bracket. Precision matters little: any point is a contour."""
    x = arb(x)

    def slopes(r: Any) -> tuple[Any, Any, Any]:
        t = side * r
        k0, k1, k2 = _slopes(parts, t)
        value, first, second = k0 - x * t - r.log(), side * (k1 - x) - 1 / r, k2 + 1 / r**2
        if hockey:
            value, first, second = value - (1 + t).log(), first - side / (1 + t), second + 1 / (1 + t) ** 2
        return value, first.mid(), second.mid()

    low, high = arb(0), end
    r = arb(1) if end is None else end / 2
    for _ in range(400):
        value, first, second = slopes(r)
        if not (first.is_finite() and second.is_finite() and second > 0):
            raise _MoreBits
        if first * first < second / 100:
            break
        if first > 0:
            high = r
        else:
            low = r
        step = (r - first / second).mid()
        if step > low and (high is None or step < high):
            r = step
        elif high is None:
            r = 8 * r
        elif low == 0:
            r = (r / 8).mid()
        else:
            r = ((low * high).sqrt() if high > 4 * low else (low + high) / 2).mid()
        if r > arb(2) ** 400:
            # The exponent falls for ever: x is at or beyond the end of the range. E e^{t(L−x)} bounds everything.
            if not all(_root_free(part.p, side * r) for part in parts):
                raise _MoreBits
            k0, _, _ = _slopes(parts, side * r)
            bound = (k0 - x * side * r).exp().upper()
            if not bound < 1:
                raise _MoreBits
            return Saddle(None, None, -math.inf, bound)
        if high is not None and high - low < high * arb(2) ** -200:
            raise _MoreBits
    else:
        raise Unresolved("saddle point")
    rough = _number((value - second.log() / 2).mid())
    return Saddle((side * r).mid(), (1 / second.sqrt()).mid(), rough, None)


class _Shifted(NamedTuple):
    """P, Q of one part about c: Ψ gets times · (−½ ln P + ½ τ² Q/P); derivatives beside them."""

    p: Any
    dp: Any
    q: Any
    dq: Any
    times: int


@dataclass
class _Contour:
    """Everything about e^{K(t) − xt} near one saddle point."""

    parts: list[_Shifted]
    slope: Any
    at_center: Any
    center: Any

    @classmethod
    def of(cls, parts: list[Part], x: Any, center: Any) -> _Contour:
        shifted, slope, value = [], -arb(x), -arb(x) * center
        line = arb_poly([center, 1])
        for (p, _, _), (q, _, _), times, log_det in parts:
            about = p(line)
            start = about[0]
            top = q(line) * line * (line + 1)
            about, top = about * (1 / start), top * (1 / start)
            c0 = top[0]
            c1 = top[1] - c0 * about[1]
            rest = (top - about * arb_poly([c0, c1])).coeffs()[2:]
            inner = arb_poly(rest) if rest else arb_poly([0])
            shifted.append(_Shifted(about, about.derivative(), inner, inner.derivative(), times))
            slope += times * (c1 - log_det) / 2
            value += times * (c0 - start.log() - center * log_det) / 2
        return cls(shifted, slope, value, center)

    @property
    def lean(self) -> int:
        """To which side e^Ψ decays far out, where Ψ is nearly a straight line; only a guess is needed."""
        slope = self.slope
        for p, _, q, _, times in self.parts:
            if 0 <= q.degree() == p.degree() - 1:
                slope += times * q[q.degree()] / p[p.degree()] / 2
        return 1 if slope.mid() < 0 else -1

    @cached_property
    def turn(self) -> tuple[list[float], list[float]]:
        """Σ b and Σ b² of every part."""
        sums = [_number(-part.p[1]) for part in self.parts]
        squares = [max(_number(part.p[1] ** 2 - 2 * part.p[2]), 0.0) for part in self.parts]
        return sums, squares

    def size(self, tau: Any) -> float:
        """Re Ψ at a point."""
        total = (self.slope * tau).real
        for p, _, q, _, times in self.parts:
            value = p(tau)
            total += times * ((tau * tau * q(tau) / value).real - abs(value).log()) / 2
        return _number(total)

    def upward(self, tau: Any) -> tuple[float, float, float]:
        """Re Ψ, Σ aᵢ/|1 − bᵢτ|², and the power of 1/Im t with which |P|^(−½) falls at least from here upward."""
        total = (self.slope * tau).real
        height = float(tau.imag)
        weights, power = 0.0, 0.0
        for p, dp, q, _, times in self.parts:
            value = p(tau)
            form = tau * q(tau) / value
            total += times * ((tau * form).real - abs(value).log()) / 2
            weights += times * max(_number(form.imag) / height, 0.0)
            power += times * 0.5 * height * max(-_number((dp(tau) / value).imag), 0.0)
        return _number(total), weights, power

    def disk(self, tau: Any, theta: float) -> tuple[float, complex, float]:
        """Re Ψ, Ψ' and a bound on |Ψ''| in the disk of radius θ Im τ."""
        slope, total = acb(self.slope), (self.slope * tau).real
        height, length = float(tau.imag), abs(complex(tau))
        second = 0.0
        for p, dp, q, dq, times in self.parts:
            value, top = p(tau), q(tau)
            ratio, form = dp(tau) / value, top / value
            form_slope = dq(tau) / value - form * ratio
            total += times * ((tau * tau * form).real - abs(value).log()) / 2
            slope += times * (tau * form - ratio / 2 + tau * tau * form_slope / 2)
            squares = max(-_number(ratio.imag) / height, 0.0)
            weights = max(_number((tau * form).imag) / height, 0.0)
            second += times * (0.5 * squares / (1 - theta) ** 2 + weights * length / height / (1 - theta) ** 3)
        if not slope.is_finite():
            raise _MoreBits
        return _number(total), complex(slope), second

    def clear(self, reach: float) -> bool:
        """Whether no root of p lies between the center and this far from it, proven."""
        return all(_root_free((part.p, part.dp, part.dp.derivative()), arb(reach)) for part in self.parts)


def _root_free(polynomial: tuple[Any, Any, Any], stop: Any) -> bool:
    """Whether a polynomial with real roots only, positive at 0, is proven to have none from there to stop.

    The nearest root is at least 1/√(Σ 1/(root − t)²) away, and that sum is (p'/p)² − p''/p.
    """
    p, first, second = polynomial
    if p.degree() < 1:
        return True
    goal, sign = abs(stop), 1 if stop > 0 else -1
    gone = arb(0)
    for _ in range(2000):
        if gone >= goal:
            return True
        here = sign * gone
        value = p(here)
        if not value > 0:
            return False
        squares = ((first(here) / value) ** 2 - second(here) / value).upper()
        if not squares.is_finite():
            return False
        if not squares > 0:
            return True
        gone = (gone + arb(0.9) / squares.sqrt()).lower()
    return False


#: Angles of the widest hyperbola that are tried, from the vertical; beyond π/4 a Gaussian would grow.
OPENINGS = (0.22 * math.pi, 0.11 * math.pi, 0.055 * math.pi)
#: Where on the widest hyperbola the bound of the strip gives way to the bound of disks.
NEAR = 0.6
#: Longest piece of a hyperbola that one disk covers, in its parameter.
PIECE = 0.3
#: Re Ψ above which a contour is given up.
HOPELESS = 300.0
#: A plan with fewer nodes than this is taken as it is.
CHEAP = 3000


def _integral(parts: list[Part], x: Any, hockey: bool, side: int, saddle: Saddle) -> Any:
    """The integral of one strip as a ball: positive, relative width as asked for or MoreBits."""
    if not all(_root_free(part.p, saddle.center) for part in parts):
        raise _MoreBits
    contour = _Contour.of(parts, x, saddle.center)
    for margin in (6, 16, 40):
        plan = _cheapest(contour, hockey, saddle, margin)
        (value,) = _sum(plan, side)
        if value.rel_accuracy_bits() >= GOAL:
            return value
    raise _MoreBits


def _cheapest(contour: _Contour, hockey: bool, saddle: Saddle, margin: int, spread: float = 0.0) -> _Plan:
    best = None
    for opening in OPENINGS:
        for bend in (contour.lean, -contour.lean) if spread == 0 else (contour.lean,):
            plan = _plan(contour, hockey, saddle, bend, opening, margin, spread)
            if plan is not None and (best is None or plan.nodes < best.nodes):
                best = plan
            if best is not None and best.nodes < CHEAP:
                return best
    if best is None:
        raise _MoreBits
    return best


@dataclass
class _Plan:
    """A contour with its step, its length and a bound on all that the sum leaves out, over e^{K(c) − xc}."""

    contour: _Contour
    hockey: bool
    scale: float
    bend: int
    alpha: float
    step: float
    nodes: int
    left_out: float


class _Geometry(NamedTuple):
    """Hyperbolas with common foci, in τ = t − c: angle 0 is a vertical line, angle α passes through τ = 0."""

    scale: float
    bend: int
    alpha: float
    poles: tuple[float, ...]

    def point(self, angle: float, v: float) -> complex:
        across = math.sin(angle) * math.cosh(v) - math.sin(self.alpha)
        return self.scale * complex(self.bend * across, math.cos(angle) * math.sinh(v))

    def pole_factor(self, low: float, high: float, height: float) -> float:
        """Most of 1/|t(t+1)| or 1/|t| where Re τ is between low and high and Im τ at least height."""
        result = 1.0
        for pole in self.poles:
            gap = 0.0 if low <= pole <= high else min(abs(low - pole), abs(high - pole))
            result /= max(math.hypot(gap, height), 1e-300)
        return result


def _covered(
    contour: _Contour,
    geometry: _Geometry,
    curve: Callable[[float], complex],
    speed: Callable[[float], float],
    start: float,
    stop: float,
    longest: float,
    weight: Callable[[float, float], float],
    spread: float,
) -> float:
    """Bound on ln ∫ |e^Ψ / pole| e^weight |dτ| along a curve above the axis, piece by piece.

    With e^{−d Re τ} of every d up to ``spread`` in the direction of the bend; Re τ is monotone on the curve.
    ``speed`` bounds |curve'| and |curve''| up to a point and grows; ``weight`` bounds a piece. With a chord δ from τ,
    Re Ψ ≤ Re Ψ(τ) + max(0, Re Ψ'δ) + |Ψ'| sagitta + ½ |Ψ''| r².
    """
    total, here = -math.inf, start
    width = longest
    while stop - here > 1e-12 * stop:  # the rest is in the factor of two
        tau = curve(here)
        ball = acb(tau.real, tau.imag)
        width = min(4 * width, longest, stop - here)
        for _ in range(200):
            chord, fast = curve(here + width) - tau, speed(here + width)
            radius = 1.001 * fast * width
            theta = radius / tau.imag
            if theta < 0.7:
                level, slope, second = contour.disk(ball, theta)
                if level > HOPELESS:
                    return math.inf
                more = max(0.0, (slope * chord).real) + abs(slope) * fast * width**2 / 7 + 0.5 * second * radius**2
                if more < 4.0 + 0.3 * max(-level, 0.0):
                    break
            width *= 0.5
        else:
            return math.inf
        factor = geometry.pole_factor(tau.real - radius, tau.real + radius, tau.imag - radius)
        back = max(0.0, -geometry.bend * tau.real, -geometry.bend * (tau + chord).real)
        more += 1.001 * spread * back + weight(here, here + width)
        total = float(np.logaddexp(total, level + more + math.log(factor * radius)))
        here += width
    return total


def _plan(
    contour: _Contour, hockey: bool, saddle: Saddle, bend: int, opening: float, margin: int, spread: float
) -> _Plan | None:
    """Step and length for the integrand times e^{−dτ}, for every d of the bend's sign and at most ``spread``."""
    alpha, scale, center = opening / 2, float(saddle.scale), saddle.center
    poles = (float(-center), float(-center - 1)) if hockey else (float(-center),)
    geometry = _Geometry(scale, bend, alpha, poles)
    point = geometry.point
    line, turned = point(0.0, 0.0).real, point(opening, NEAR).real
    far = point(opening, 0.0).real
    if not (contour.clear(line) and contour.clear(turned)):
        return None
    if any(min(line, far) <= pole <= max(line, far) for pole in poles):
        return None
    # The integral is about e^{K(c) − xc} times this.
    unit = math.log(geometry.pole_factor(0.0, 0.0, 0.0) * scale)
    goal = unit - (GOAL + margin) * math.log(2.0) - 0.5 * (spread * scale) ** 2

    def beyond(v: float) -> float:
        """ln of the integral straight up from the point v of the middle hyperbola.

        At Re τ = R all |1 − bτ| rise, and so of Re τ²a/(1 − bτ) = const + (a/b²) Re 1/(1 − bτ) do those with bR > 1,
        from where they are to a limit less than R² a/|1 − bτ|² away.
        """
        tau = point(alpha, v)
        ball = acb(tau.real, tau.imag)
        level, weights, power = contour.upward(ball)
        level += 0.5 * tau.real**2 * weights + spread * max(0.0, -bend * tau.real)
        return level - math.log(tau.imag) if hockey else level - math.log(power) if power > 0 else math.inf

    reach = 1.0
    while beyond(reach) > goal:
        reach += 0.5 if reach < 8 else 2.0
        if reach > 300:
            return None

    # The widest hyperbola: inside the strip |e^K| ≤ e^{K(Re t)}, which is convex.
    edge, pieces = -math.inf, 3
    for j in range(pieces):
        first, second = point(opening, NEAR * j / pieces), point(opening, NEAR * (j + 1) / pieces)
        most = max(contour.size(arb(first.real)), contour.size(arb(second.real)))
        most += spread * max(0.0, -bend * first.real, -bend * second.real)
        low, high = sorted((first.real, second.real))
        length = 1.1 * abs(second - first)
        edge = float(np.logaddexp(edge, most + math.log(geometry.pole_factor(low, high, first.imag) * length)))

    def along(v: float) -> complex:
        return point(opening, v)

    def rate(v: float) -> float:
        return scale * math.sqrt(math.cosh(2 * v))

    edge = float(
        np.logaddexp(edge, _covered(contour, geometry, along, rate, NEAR, reach + 0.5, PIECE, lambda a, b: 0.0, spread))
    )
    # The vertical line: ∫ dω/(|t||t+1|) ≤ ½π/√|c(c+1)|, ∫_0^W dω/|t| = asinh(W/|c|).
    gaps = [abs(line - pole) for pole in poles]
    upright = contour.size(arb(line)) + spread * abs(line)
    if hockey:
        upright += math.log(0.5 * math.pi / math.sqrt(gaps[0] * gaps[1]))
    else:
        upright += math.log(math.asinh(scale * math.sinh(reach + 0.5) / gaps[0]))
    edge = float(np.logaddexp(edge, upright))
    if not edge < 1e4 + unit:
        return None
    step = 2 * math.pi * alpha / max(edge - goal, 1.0)
    nodes = math.ceil(reach / step)
    end = (nodes + 0.5) * step
    speed = scale * math.cosh(end)

    def damping(a: float, b: float) -> float:
        return 0.0 if a <= alpha <= b else -2 * math.pi * min(abs(alpha - a), abs(alpha - b)) / step

    ends = _covered(
        contour,
        geometry,
        lambda angle: point(angle, end),
        lambda angle: speed,
        0.0,
        opening,
        opening / 16,
        damping,
        spread,
    )
    ends = float(np.logaddexp(ends, beyond(end)))
    aliasing = edge - 2 * math.pi * alpha / step + 1e-3
    left_out = float(np.logaddexp(aliasing, ends))
    if not left_out < goal + 8.0:
        return None
    return _Plan(contour, hockey, scale, bend, alpha, step, nodes, 2.0 * math.exp(left_out) / math.pi)


def _sum(plan: _Plan, side: int, apart: float = 0.0, count: int = 1) -> list[Any]:
    """Trapezoidal sums in balls with the bound on what they leave out as radius, times e^{K(c) − xc}: one for each of
    ``count`` x, so far ``apart``."""
    contour, alpha = plan.contour, arb(plan.alpha)
    sin, cos = alpha.sin() * plan.bend, alpha.cos()
    scale, center = arb(plan.scale), contour.center
    step = arb(plan.step)
    sums, squares = contour.turn
    args = [0.0] * len(contour.parts)
    totals = [arb(0)] * count
    rate = -arb(apart)
    before: complex = 0j
    ratios: list[complex] = [0j] * len(contour.parts)
    spread: list[float] = [0.0] * len(contour.parts)
    for n in range(plan.nodes + 1):
        sh, ch = (step * n).sinh_cosh()
        tau = acb(scale * sin * (ch - 1), scale * cos * sh)
        moved = acb(scale * sin * sh, scale * cos * ch)
        exponent = acb(contour.slope) * tau
        root = acb(1)
        here = complex(tau)
        for m, (p, dp, q, _, times) in enumerate(contour.parts):
            value = p(tau)
            exponent += times * tau * tau * q(tau) / value / 2
            # The argument of P, continued from the real axis.
            length = abs(here)
            if length**2 * squares[m] <= 0.25:
                guess, doubt = -here.imag * sums[m], length**2 * squares[m]
            else:
                delta = here - before
                theta = abs(delta) / before.imag if before.imag > 0 else math.inf
                if not theta < 0.7:
                    raise _MoreBits
                guess = args[m] + (delta * ratios[m]).imag
                doubt = 0.5 * abs(delta) ** 2 * spread[m] / (1 - theta) ** 2
            if not doubt < 2.5:
                raise _MoreBits
            negative = value.real.mid() < 0
            turned = -value if negative else value
            angle = math.atan2(_number(turned.imag), _number(turned.real))
            halves = round((guess - angle - math.pi * negative) / (2 * math.pi)) * 2 + (1 if negative else 0)
            args[m] = angle + math.pi * halves
            if abs(args[m] - guess) > doubt + 1e-6:
                raise _MoreBits
            slope = dp(tau) / value
            ratios[m] = complex(slope)
            spread[m] = max(-_number(slope.imag) / here.imag, 0.0) if here.imag > 0 else 0.0
            factor = turned.rsqrt() * acb(0, -1) ** halves
            root *= factor**times if times != 1 else factor
        before = here
        t = tau + center
        pole = t * (t + 1) if plan.hockey else t
        term = exponent.exp() * root * moved / pole
        if n == 0:
            term = term / 2
        turn = (tau * rate).exp() if count > 1 else acb(1)
        for m in range(count):
            totals[m] += term.imag
            term = term * turn
    values = [side * (total * step / arb.pi() + arb(0, plan.left_out)) for total in totals]
    return [value * (contour.at_center + m * rate * center).exp() for m, value in enumerate(values)]
