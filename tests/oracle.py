"""Slow, independent, high-precision values of everything the library computes about one edge.

Nothing here imports the library. An edge is its spectrum (γ, ν₀); L is the privacy loss under the first law and
K(t) = ln E[exp(tL)]. Each probability is an inverse Laplace integral through the real saddle point c of its own
strip of convergence. With τ = t − c, bᵢ = (γᵢ−1)/uᵢ(c) and aᵢ = γᵢ²νᵢ²/uᵢ(c)³ the exponent is exactly

    φ(t) − φ(c) = ℓτ − ½ Σ ln(1 − bᵢτ) + ½τ² Σ aᵢ/(1 − bᵢτ) − Σ ln(1 + τ/(c − p)),   p the poles,

which is free of cancellation wherever the integrand matters. The path is t = c + s(iy ± κy²/√(1 + y²)), y = sinh v:
vertical at first, a straight ray far out, to the side on which the integrand decays. It stays in the upper half plane,
where no logarithm meets its cut. A value is returned only when two interleaved trapezoidal sums, midpoints of Arb's
balls, agree to the digits asked for.

All functions return mpf. Natural logarithms throughout; -inf for an event of probability zero. The mpmath global
precision is left as it was.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import flint
import numpy as np
from mpmath import mp, mpf

Number = Any  # float, int or mpf
Vector = Sequence[Any] | np.ndarray  # of Number
HERE = Path(__file__).parent
DIGITS = 30
GUARD = 60  # extra digits while the spectrum is reduced to (c, ℓ, aᵢ, bᵢ)
LEANS = (0.45, 0.15, 0.0, -0.3)  # κ: how far the path leans to its side, the first that will do


class NotConverged(ArithmeticError):
    """Two sums on the same path never agreed to the digits asked for."""


# ---------------------------------------------------------------------------------------------------------------
# Spectrum and cumulant generating function


def spectrum(mean_a: Any, cov_a: Any, mean_b: Any, cov_b: Any, dps: int = 60) -> tuple[list[mpf], list[mpf]]:
    """(γ, ν₀) of the edge a → b, the float64 inputs taken as exact. Both covariances must have full rank."""
    with mp.workdps(dps):
        half_a, half_b = mp.cholesky(_matrix(cov_a)), mp.cholesky(_matrix(cov_b))
        shift = mp.matrix([mpf(float(y)) - mpf(float(x)) for x, y in zip(mean_a, mean_b, strict=True)])
        ratio = _solve_lower(half_b, half_a)  # Γ has the eigenvalues of ratioᵀ ratio
        values, vectors = mp.eigsy(ratio.T * ratio)
        return list(values), list(vectors.T * _solve_lower(half_a, shift))


def _matrix(a: Any) -> Any:
    """The lower triangle and its mirror image."""
    return mp.matrix([[mpf(float(a[max(i, j)][min(i, j)])) for j in range(len(a))] for i in range(len(a))])


def _solve_lower(lower: Any, right: Any) -> Any:
    rows, columns = right.rows, right.cols
    out = mp.matrix(rows, columns)
    for j in range(columns):
        done: list[mpf] = []
        for i in range(rows):
            rest = right[i, j] - mp.fdot((lower[i, m], done[m]) for m in range(i))
            done.append(rest / lower[i, i])
            out[i, j] = done[-1]
    return out


@dataclass(frozen=True)
class _Edge:
    """Directions with equal γ merged: multiplicity and Σν². Directions without any loss (γ = 1, ν = 0) dropped."""

    gamma: list[mpf]
    count: list[int]
    square: list[mpf]
    half_log_det: mpf  # ½ Σ ln γ
    low: mpf  # t₋
    high: mpf  # t₊
    infimum: mpf  # of L
    supremum: mpf


def _edge(gamma: Vector, nu: Vector) -> _Edge:
    merged: dict[mpf, tuple[int, mpf]] = {}
    for g, v in zip(map(mpf, gamma), map(mpf, nu), strict=True):
        if g != 1 or v != 0:
            n, square = merged.get(g, (0, mpf(0)))
            merged[g] = (n + 1, square + v * v)
    gammas = list(merged)
    counts, squares = [n for n, _ in merged.values()], [square for _, square in merged.values()]
    if not gammas:
        return _Edge([], [], [], mpf(0), -mp.inf, mp.inf, mpf(0), mpf(0))
    half_log_det = mp.fsum(n * mp.log(g) for g, n in zip(gammas, counts, strict=True)) / 2
    high = 1 / (max(gammas) - 1) if max(gammas) > 1 else mp.inf
    low = -1 / (1 - min(gammas)) if min(gammas) < 1 else -mp.inf
    infimum, supremum = -mp.inf, mp.inf
    if all(g != 1 for g in gammas):
        end = -half_log_det - mp.fsum(g * q / (g - 1) for g, q in zip(gammas, squares, strict=True)) / 2
        infimum, supremum = end if low == -mp.inf else -mp.inf, end if high == mp.inf else mp.inf
    return _Edge(gammas, counts, squares, half_log_det, low, high, infimum, supremum)


def _cumulant(edge: _Edge, t: mpf) -> mpf:
    total = -t * edge.half_log_det
    for g, n, q in zip(edge.gamma, edge.count, edge.square, strict=True):
        u = 1 - t * (g - 1)
        total += (t * (1 + t) * g * q / u - n * mp.log(u)) / 2
    return total


def _slopes(edge: _Edge, t: mpf) -> tuple[mpf, mpf]:
    """K'(t) and K''(t)."""
    first, second = -edge.half_log_det, mpf(0)
    for g, n, q in zip(edge.gamma, edge.count, edge.square, strict=True):
        b = g - 1
        inverse = 1 / (1 - t * b)
        first += (n * b * inverse + g * q * (1 + 2 * t - t * t * b) * inverse**2) / 2
        second += n * (b * inverse) ** 2 / 2 + g * g * q * inverse**3
    return first, second


def divergence(means: Any, covs: Any, order: Number) -> Any:
    """The Rényi divergence of the first law from the second in 400 digits; None where it diverges."""
    with mp.workdps(400):
        first, base = (mp.matrix(cov.tolist()) for cov in covs)
        gap = mp.matrix(means[1].tolist()) - mp.matrix(means[0].tolist())
        order = mpf(order)

        def log_det(matrix: Any) -> Any:
            factor = mp.cholesky(matrix)
            return 2 * mp.fsum(mp.log(factor[i, i]) for i in range(matrix.rows))

        def form(matrix: Any) -> Any:
            return (gap.T * mp.lu_solve(matrix, gap))[0]

        if order == 1:
            trace = mp.fsum(mp.lu_solve(base, first[:, i])[i] for i in range(first.rows))
            return (trace - first.rows + form(base) + log_det(base) - log_det(first)) / 2
        mixed = order * base + (1 - order) * first
        try:
            ratio = log_det(mixed) - (1 - order) * log_det(first) - order * log_det(base)
        except ValueError:  # not positive definite
            return None
        return order * form(mixed) / 2 - ratio / (2 * (order - 1))


def _rounded(value: mpf, dps: int) -> mpf:
    with mp.workdps(dps + 5):
        return +value


# ---------------------------------------------------------------------------------------------------------------
# The contour integral


def _saddle(slopes: Callable[[mpf], tuple[mpf, mpf]], low: mpf, high: mpf) -> mpf:
    """Where the first of the slopes, which rises, vanishes in (low, high): to a thousandth of the width there."""

    def place(z: mpf) -> mpf:
        if low == -mp.inf:
            return high - mp.exp(-z)
        return low + (mp.exp(z) if high == mp.inf else (high - low) / (1 + mp.exp(-z)))

    reach = mpf(1)
    while slopes(place(-reach))[0] > 0 or slopes(place(reach))[0] < 0:
        reach *= 2
    left, right = -reach, reach
    while right - left > mpf("0.25"):
        z = (left + right) / 2
        left, right = (z, right) if slopes(place(z))[0] < 0 else (left, z)
    a, b = place(left), place(right)
    t = (a + b) / 2
    for _ in range(500):
        first, second = slopes(t)
        a, b = (t, b) if first < 0 else (a, t)
        step = -first / second
        if abs(step) * mp.sqrt(second) < mpf("1e-3"):
            return t
        t = t + step if a < t + step < b else (a + b) / 2
    raise NotConverged("saddle point")


def _log_integral(edge: _Edge, x: mpf, low: mpf, high: mpf, poles: Sequence[int], dps: int, rough: bool = False) -> mpf:
    """ln |(1/2πi) ∫ exp(K(t) − xt) / Π(t − p) dt| along a line in the strip (low, high).

    `rough` asks for the saddle-point estimate only.
    """
    with mp.workdps(dps + GUARD):

        def slopes(t: mpf) -> tuple[mpf, mpf]:
            first, second = _slopes(edge, t)
            return first - x - mp.fsum(1 / (t - p) for p in poles), second + mp.fsum(1 / (t - p) ** 2 for p in poles)

        c = _saddle(slopes, low, high)
        s = 1 / mp.sqrt(slopes(c)[1])
        peak = _cumulant(edge, c) - x * c - mp.fsum(mp.log(abs(c - p)) for p in poles)
        if rough:
            return peak + mp.log(s) - mp.log(2 * mp.pi) / 2
        u = [1 - c * (g - 1) for g in edge.gamma]
        b = [s * (g - 1) / v for g, v in zip(edge.gamma, u, strict=True)]
        a = [s * s * g * g * q / v**3 for g, q, v in zip(edge.gamma, edge.square, u, strict=True)]
        ell = s * (_slopes(edge, c)[0] - x) - mp.fsum(n * z for n, z in zip(edge.count, b, strict=True)) / 2
        near = [s / (c - p) for p in poles]
        # Far out the exponent is this times τ.
        drift = ell - mp.fsum(q / z for q, z in zip(a, b, strict=True) if z) / 2
        side = -1.0 if drift > 0 else 1.0
        areas = (_area(ell, list(zip(b, a, edge.count, strict=True)), near, side * lean, dps) for lean in LEANS)
        area = next((area for area in areas if area is not None and area > 0), None)
        if area is None:
            raise NotConverged(f"x = {mp.nstr(x, 17)}, saddle {mp.nstr(c, 10)}")
        return _rounded(peak + mp.log(s / mp.pi) + mp.log(area), dps + 10)


def _area(ell: mpf, kinds: list[tuple[mpf, mpf, int]], near: list[mpf], lean: float, dps: int) -> mpf | None:
    """The imaginary part of the integral over the upper half of the path, in units of the width; None if unsure."""
    with flint.ctx.workprec(int(3.33 * dps) + 50):
        shift, close, up = flint.arb(ell), [flint.arb(r) for r in near], flint.acb(0, 1)
        factors = [(flint.arb(b), flint.arb(a) / 2, flint.arb(n) / 2) for b, a, n in kinds]

        def integrand(v: float) -> Any:
            y, slope = flint.arb(v).sinh_cosh()
            square = 1 + y * y
            root = square.sqrt()
            tau = flint.acb(lean * y * y / root, y)
            exponent, rational = shift * tau, flint.acb(0)
            for b, a, n in factors:
                w = 1 - b * tau
                exponent -= n * w.log()
                if a:
                    rational += a / w
            out = (exponent + tau * tau * rational).exp() * slope * (up + lean * y * (1 + square) / (root * square))
            for r in close:
                out /= 1 + r * tau
            return out

        small, step = flint.arb(10) ** -(dps + 6), 0.25
        if not abs(integrand(90.0)) < small:
            return None
        end = max((v for v in np.arange(1.0, 90.0, 0.5).tolist() if not abs(integrand(v)) < small), default=0.5) + 0.5

        def comb(start: float) -> Any:
            return step * sum(
                (integrand(start + j * step).imag for j in range(int((end - start) / step) + 1)), flint.arb(0)
            )

        coarse = flint.arb(step / 2) + comb(step)
        for _ in range(7):
            between = comb(step / 2)
            coarse, step, gap = (coarse + between) / 2, step / 2, abs(coarse - between)
            if gap < abs(coarse) * flint.arb(10) ** -dps:
                mantissa, exponent = coarse.mid().man_exp()
                return mpf((int(mantissa), int(exponent)))
    return None


# ---------------------------------------------------------------------------------------------------------------
# Probabilities


def _log1mexp(a: mpf) -> mpf:
    """ln(1 − exp(a)) for a ≤ 0."""
    if a == 0:
        return -mp.inf
    return mp.log1p(-mp.exp(a)) if a < -1 else mp.log(-mp.expm1(a))


def _with_complement(direct: Any, complement: Any, dps: int) -> mpf:
    """ln of a probability from whichever of it and its complement looks the smaller."""
    with mp.workdps(dps + 15):
        smaller = direct(rough=True) <= complement(rough=True)
        out = direct() if smaller else _log1mexp(complement())
    return _rounded(out, dps)


def _exactly(value: mpf) -> Any:
    return lambda rough=False: value


def _tails(gamma: Vector, nu: Vector, x: Number, dps: int) -> tuple[Any, Any]:
    """ln Pr(L > x) and ln Pr(L < x)."""
    with mp.workdps(dps + GUARD):
        edge, x = _edge(gamma, nu), mpf(x)
        if not edge.gamma:  # L = 0
            return _exactly(mpf(0) if x < 0 else -mp.inf), _exactly(mpf(0) if x > 0 else -mp.inf)
        if x >= edge.supremum:
            return _exactly(-mp.inf), _exactly(mpf(0))
        if x <= edge.infimum:
            return _exactly(mpf(0)), _exactly(-mp.inf)
    return (
        partial(_log_integral, edge, x, mpf(0), edge.high, (0,), dps),
        partial(_log_integral, edge, x, edge.low, mpf(0), (0,), dps),
    )


def log_upper_tail(gamma: Vector, nu: Vector, x: Number, dps: int = DIGITS) -> mpf:
    """ln Pr(L > x)."""
    return _with_complement(*_tails(gamma, nu, x, dps), dps)


def log_lower_tail(gamma: Vector, nu: Vector, x: Number, dps: int = DIGITS) -> mpf:
    """ln Pr(L < x)."""
    return _with_complement(*reversed(_tails(gamma, nu, x, dps)), dps)


def _hockey(gamma: Vector, nu: Vector, eps: Number, dps: int) -> tuple[Any, Any]:
    """ln of E[(1 − e^(ε−L))₊] and of one minus it."""
    with mp.workdps(dps + GUARD):
        edge, x = _edge(gamma, nu), mpf(eps)
        if x >= edge.supremum:
            return _exactly(-mp.inf), _exactly(mpf(0))
        if x <= edge.infimum:
            return _exactly(_log1mexp(x)), _exactly(x)
    return (
        partial(_log_integral, edge, x, mpf(0), edge.high, (0, -1), dps),
        partial(_log_integral, edge, x, mpf(-1), mpf(0), (0, -1), dps),
    )


def log_hockey(gamma: Vector, nu: Vector, eps: Number, dps: int = DIGITS) -> mpf:
    """ln E[(1 − exp(eps − L))₊], any real eps."""
    return _with_complement(*_hockey(gamma, nu, eps, dps), dps)


# ---------------------------------------------------------------------------------------------------------------
# Reference files: spectra and pairs with ln δ, ln Pr(L > ε) and ln Pr(L < −ε) at some ε, in 25 digits


def _unpacked(text: str) -> np.ndarray:
    """Little-endian float64 in base64."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8").astype(np.float64)


def _symmetric(text: str) -> np.ndarray:
    """From the lower triangle, row by row."""
    flat = _unpacked(text)
    k = (math.isqrt(8 * len(flat) + 1) - 1) // 2
    out = np.zeros((k, k))
    out[np.tril_indices(k)] = flat
    return np.asarray(np.tril(out, -1).T + out)


def load_spectra() -> list[dict[str, Any]]:
    """Dictionaries of name, gamma, nu and points."""
    items = json.loads((HERE / "reference_spectra.json").read_text())
    return [
        {**item, **{key: np.array([float.fromhex(x) for x in item[key]]) for key in ("gamma", "nu")}} for item in items
    ]


def load_pairs() -> list[dict[str, Any]]:
    """Dictionaries of name, laws (mean and covariance of the first label, then of the second) and points."""
    items = json.loads((HERE / "reference_pairs.json").read_text())
    for item in items:
        item["laws"] = [
            read(item.pop(f"{kind}_{label}"))
            for label in "ab"
            for kind, read in (("mean", _unpacked), ("cov", _symmetric))
        ]
    return list(items)
