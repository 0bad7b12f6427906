"""Slow, independent, high-precision values of everything the library computes about one edge.

Nothing here imports the library. An edge is its spectrum (γ, ν₀); L is the privacy loss under the first law and
K(t) = ln E[exp(tL)]. Each probability is an inverse Laplace integral through the real saddle point c of its own
strip of convergence. With τ = t − c, bᵢ = (γᵢ−1)/uᵢ(c) and aᵢ = γᵢ²νᵢ²/uᵢ(c)³ the exponent is exactly

    φ(t) − φ(c) = ℓτ − ½ Σ ln(1 − bᵢτ) + ½τ² Σ aᵢ/(1 − bᵢτ) − Σ ln(1 + τ/(c − p)),   p the poles,

which is free of cancellation wherever the integrand matters. The path is
t = c + s(iy ± κy²/√(Y² + y²)), y = sinh v: vertical at first, a straight ray far out. κ, Y, the sign and the step
are planned in double precision from the integrand on both sides of the path; the plan can only cost time,
for a value is returned only when two interleaved trapezoidal sums agree to the digits asked for.

All functions return mpf. Natural logarithms throughout; -inf for an event of probability zero. The mpmath global
precision is left as it was.

    python tests/oracle.py --write     recompute reference_spectra.json and reference_pairs.json beside this file
"""

from __future__ import annotations

import argparse
import base64
import json
import math
from collections.abc import Sequence
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


class NotConverged(ArithmeticError):
    """Two sums on the same path never agreed to the digits asked for."""


# ---------------------------------------------------------------------------------------------------------------
# Spectrum and cumulant generating function


def spectrum(
    mean_a: Any, cov_a: Any, mean_b: Any, cov_b: Any, dps: int = 60
) -> tuple[list[mpf], list[mpf]]:  # fmt: skip
    """(γ, ν₀) of the edge a → b, the float64 inputs taken as exact. Both covariances must have full rank."""
    with mp.workdps(dps):
        k = len(mean_a)
        half_a = mp.cholesky(_matrix(cov_a, k))
        half_b = mp.cholesky(_matrix(cov_b, k))
        shift = mp.matrix([mpf(float(y)) - mpf(float(x)) for x, y in zip(mean_a, mean_b, strict=True)])
        ratio = _solve_lower(half_b, half_a)  # Γ has the eigenvalues of ratioᵀ ratio
        values, vectors = mp.eigsy(ratio.T * ratio)
        nus = vectors.T * _solve_lower(half_a, shift)
        return [values[i] for i in range(k)], [nus[i] for i in range(k)]


def _matrix(a: Any, k: int) -> Any:
    return mp.matrix([[mpf(float(a[i][j] if j <= i else a[j][i])) for j in range(k)] for i in range(k)])


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

    @property
    def trivial(self) -> bool:
        return not self.gamma


def _edge(gamma: Vector, nu: Vector) -> _Edge:
    merged: dict[mpf, tuple[int, mpf]] = {}
    for g, v in zip(gamma, nu, strict=True):
        g, v = mpf(g), mpf(v)
        if not (g > 0 and mp.isfinite(g) and mp.isfinite(v)):
            raise ValueError(f"not a spectrum: gamma {g}, nu {v}")
        if g == 1 and v == 0:
            continue
        n, square = merged.get(g, (0, mpf(0)))
        merged[g] = (n + 1, square + v * v)
    gammas = list(merged)
    counts = [merged[g][0] for g in gammas]
    squares = [merged[g][1] for g in gammas]
    half_log_det = mp.fsum(n * mp.log(g) for g, n in zip(gammas, counts, strict=True)) / 2
    high = 1 / (max(gammas) - 1) if gammas and max(gammas) > 1 else mp.inf
    low = -1 / (1 - min(gammas)) if gammas and min(gammas) < 1 else -mp.inf
    infimum, supremum = -mp.inf, mp.inf
    if all(g != 1 for g in gammas):
        edge = -half_log_det - mp.fsum(g * q / (g - 1) for g, q in zip(gammas, squares, strict=True)) / 2
        if high == mp.inf:
            supremum = edge
        if low == -mp.inf:
            infimum = edge
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


def cumulant(gamma: Vector, nu: Vector, t: Number, dps: int = DIGITS) -> mpf:
    """K(t) for real t; +inf outside the strip."""
    with mp.workdps(dps + GUARD):
        edge, t = _edge(gamma, nu), mpf(t)
        out = _cumulant(edge, t) if edge.low < t < edge.high else mp.inf
    return _rounded(out, dps)


def renyi(gamma: Vector, nu: Vector, order: Number, dps: int = DIGITS) -> mpf:
    """Rényi divergence of the first law from the second, order in (0, inf]; order 1 is Kullback–Leibler."""
    if not order > 0:
        raise ValueError("the order must be positive")
    with mp.workdps(dps + GUARD):
        edge, t = _edge(gamma, nu), mpf(order) - 1
        if t == mp.inf:
            out = edge.supremum
        elif t == 0:
            out = _slopes(edge, mpf(0))[0]
        elif t >= edge.high:
            out = mp.inf
        else:
            out = _cumulant(edge, t) / t
    return _rounded(out, dps)


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


def log_chernoff(gamma: Vector, nu: Vector, x: Number, dps: int = DIGITS) -> mpf:
    """Infimum over t in (0, t₊) of K(t) − xt, the Chernoff bound on ln Pr(L > x)."""
    with mp.workdps(dps + GUARD):
        edge, x = _edge(gamma, nu), mpf(x)
        if edge.trivial:
            out = mpf(0) if x <= 0 else -mp.inf
        elif x >= edge.supremum:
            out = -mp.inf
        elif x <= _slopes(edge, mpf(0))[0]:
            out = mpf(0)
        else:
            c = _saddle(edge, x, mpf(0), edge.high, (), mpf(10) ** -(dps // 2 + 10))
            out = _cumulant(edge, c) - x * c
    return _rounded(out, dps)


def _rounded(value: mpf, dps: int) -> mpf:
    with mp.workdps(dps + 5):
        return +value


# ---------------------------------------------------------------------------------------------------------------
# The saddle point


def _saddle(edge: _Edge, x: mpf, low: mpf, high: mpf, poles: Sequence[int], tol: mpf) -> mpf:
    """Minimum over (low, high) of K(t) − xt − Σ ln|t − p|, to tol standard widths."""

    def slopes(t: mpf) -> tuple[mpf, mpf]:
        first, second = _slopes(edge, t)
        return first - x - mp.fsum(1 / (t - p) for p in poles), second + mp.fsum(1 / (t - p) ** 2 for p in poles)

    def place(z: mpf) -> mpf:
        if low == -mp.inf:
            return high - mp.exp(-z)
        if high == mp.inf:
            return low + mp.exp(z)
        return low + (high - low) / (1 + mp.exp(-z))

    left, right, reach = mpf(0), mpf(0), mpf(1)
    if slopes(place(mpf(0)))[0] < 0:
        right = reach
        while slopes(place(right))[0] < 0:
            left, reach = right, 2 * reach
            right = reach
    else:
        left = -reach
        while slopes(place(left))[0] > 0:
            right, reach = left, 2 * reach
            left = -reach
    while right - left > mpf("0.25"):
        z = (left + right) / 2
        if slopes(place(z))[0] < 0:
            left = z
        else:
            right = z
    a, b = place(left), place(right)
    t = (a + b) / 2
    for _ in range(500):
        first, second = slopes(t)
        if first < 0:
            a = t
        else:
            b = t
        step = -first / second
        if abs(step) * mp.sqrt(second) < tol:
            return t + step if a < t + step < b else t
        t = t + step if a < t + step < b else (a + b) / 2
    raise NotConverged("saddle point")


# ---------------------------------------------------------------------------------------------------------------
# The contour integral


@dataclass(frozen=True)
class _Path:
    sign: int
    kappa: float
    bend: float
    step: float
    length: float


_PATHS = [(0, 0.0, 1.0)] + [
    (sign, kappa, bend) for sign in (1, -1) for kappa in (0.2, 0.45, 0.75) for bend in (1.0, 8.0, 64.0, 4096.0)
]  # fmt: skip
_SHIFTS = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9)


def _plan(
    ell: float, b: np.ndarray, a: np.ndarray, n: np.ndarray, flat: float, poles: np.ndarray, nats: float
) -> list[_Path]:  # fmt: skip
    """Paths with a step expected to give `nats` of accuracy, cheapest first. Everything in units of the width."""
    grid = np.concatenate([np.arange(0.0, 8.0, 0.1), np.arange(8.0, 16.0, 0.2), np.arange(16.0, 90.0, 0.5)])

    def height(sign: int, kappa: float, bend: float, shift: float) -> tuple[np.ndarray, np.ndarray]:
        v = grid + 1j * shift
        y = np.sinh(v)
        root = np.sqrt(bend * bend + y * y)
        tau = 1j * y + sign * kappa * y * y / root
        slope = np.cosh(v) * (1j + sign * kappa * y * (2 * bend * bend + y * y) / root**3)
        w = 1.0 - b[:, None] * tau
        out = (ell * tau + 0.5 * tau * tau * (flat + (a[:, None] / w).sum(axis=0))).real
        out -= 0.5 * (n[:, None] * np.log(np.abs(w))).sum(axis=0)
        out -= np.log(np.abs(1.0 + poles[:, None] * tau)).sum(axis=0)
        out += np.log(np.abs(slope))
        return np.where(np.isfinite(out), out, np.inf), tau

    singular = np.concatenate([1.0 / b[b != 0.0], -1.0 / poles])
    right = min(singular[singular > 0.0], default=math.inf)
    left = max(singular[singular < 0.0], default=-math.inf)
    with np.errstate(all="ignore"):
        candidates = []
        for sign, kappa, bend in _PATHS:
            out, _ = height(sign, kappa, bend, 0.0)
            above = np.nonzero(out > -nats)[0]
            last = int(above[-1]) + 1 if len(above) else 1
            if last < len(grid):
                candidates.append((grid[last] * (1.0 + max(0.0, out.max()) / nats), sign, kappa, bend, grid[last]))
        candidates.sort()
        plans = []
        for _, sign, kappa, bend, length in candidates[:5]:
            best = 0.0
            for shift in _SHIFTS:
                excess = 0.0
                for signed in (shift, -shift):
                    out, tau = height(sign, kappa, bend, signed)
                    if not left < tau[0].real < right or np.any(tau[1:].imag <= 0.0):
                        excess = math.inf
                        break
                    excess = max(excess, float(out.max()))
                best = max(best, 2.0 * math.pi * shift / (nats + excess))
            if best > 0.0:
                plans.append((length / best, _Path(sign, kappa, bend, best, length)))
    plans.sort(key=lambda item: item[0])
    return [path for _, path in plans] or [_Path(0, 0.0, 1.0, 0.05, 90.0)]


def _log_integral(edge: _Edge, x: mpf, low: mpf, high: mpf, poles: Sequence[int], dps: int, rough: bool = False) -> mpf:
    """ln |(1/2πi) ∫ exp(K(t) − xt) / Π(t − p) dt| along a line in the strip (low, high).

    `rough` asks for the saddle-point estimate only.
    """
    with mp.workdps(dps + GUARD):
        c = _saddle(edge, x, low, high, poles, mpf("1e-3"))
        first, second = _slopes(edge, c)
        second += mp.fsum(1 / (c - p) ** 2 for p in poles)
        s = 1 / mp.sqrt(second)
        peak = _cumulant(edge, c) - x * c - mp.fsum(mp.log(abs(c - p)) for p in poles)
        if rough:
            return peak + mp.log(s) - mp.log(2 * mp.pi) / 2
        u = [1 - c * (g - 1) for g in edge.gamma]
        b = [s * (g - 1) / v for g, v in zip(edge.gamma, u, strict=True)]
        a = [s * s * g * g * q / v**3 for g, q, v in zip(edge.gamma, edge.square, u, strict=True)]
        ell = s * (first - x) - mp.fsum(n * z for n, z in zip(edge.count, b, strict=True)) / 2
        near = [s / (c - p) for p in poles]
    flat = mp.fsum(z for z, slope in zip(a, b, strict=True) if slope == 0)
    curved = [(slope, z, n) for slope, z, n in zip(b, a, edge.count, strict=True) if slope != 0]
    nats = (dps + 4) * math.log(10.0)
    plans = _plan(
        float(ell),
        np.array([float(v[0]) for v in curved]),
        np.array([float(v[1]) for v in curved]),
        np.array([float(v[2]) for v in curved]),
        float(flat),
        np.array([float(v) for v in near]),
        nats,
    )
    with mp.workdps(dps + 15):
        log_scale = mp.log(s / mp.pi)
        for path in plans[:3]:
            total = _trapezoid(path, ell, curved, flat, near, dps)
            if total is not None and total > 0:
                return _rounded(peak + log_scale + mp.log(total), dps + 10)
    raise NotConverged(f"x = {mp.nstr(x, 17)}, saddle {mp.nstr(c, 10)}")


def _trapezoid(
    path: _Path, ell: mpf, curved: list[tuple[mpf, mpf, int]], flat: mpf, near: list[mpf], dps: int
) -> mpf | None:  # fmt: skip
    half = mpf(1) / 2
    negligible = mpf(10) ** -(dps + 6)

    def comb(start: mpf, step: mpf) -> mpf:
        """Sum of the integrand's imaginary parts: midpoints of Arb's balls, far faster than mpmath."""
        with flint.ctx.workprec(mp.prec):
            lean, bend2 = flint.arb(path.sign) * path.kappa, flint.arb(path.bend) ** 2
            kinds = [(flint.arb(b), flint.arb(a) if a else None, n) for b, a, n in curved]
            shift, level, close = flint.arb(ell), flint.acb(flint.arb(flat)), [flint.arb(r) for r in near]
            total, small = flint.arb(0), flint.arb(negligible)
            j = quiet = 0
            while quiet < 5:
                v = start + j * step
                if v > 200:
                    raise NotConverged("the integrand does not decay")
                e = flint.arb(v).exp()
                y, slope = (e - 1 / e) / 2, (e + 1 / e) / 2
                root2 = bend2 + y * y
                root = root2.sqrt()
                tau = flint.acb(lean * y * y / root, y)
                product, rational, angle = flint.acb(1), level, 0.0
                for b, a, n in kinds:
                    w = 1 - b * tau
                    product *= w if n == 1 else w**n
                    angle += n * math.atan2(float(w.imag), float(w.real))
                    if a is not None:
                        rational += a / w
                turns = round((angle - float(product.arg())) / (2.0 * math.pi))
                out = (tau * (shift + tau * rational / 2)).exp() / product.sqrt()
                out *= flint.acb(lean * y * (bend2 + root2) / (root * root2), 1) * slope
                for r in close:
                    out /= 1 + r * tau
                total += -out.imag if turns % 2 else out.imag
                j += 1
                quiet = quiet + 1 if v > path.length / 2 and abs(out) < small else 0
            mantissa, exponent = total.mid().man_exp()
        return mpf((int(mantissa), int(exponent)))

    step = mpf(path.step)
    coarse = step * (half + comb(step, step))
    for _ in range(5):
        shifted = step * comb(step / 2, step)
        fine = (coarse + shifted) / 2
        if abs(coarse - shifted) <= abs(fine) * mpf(10) ** -dps:
            return fine
        step, coarse = step / 2, fine
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
        if direct(rough=True) <= complement(rough=True):
            out = direct()
        else:
            out = _log1mexp(complement())
    return _rounded(out, dps)


def _exactly(value: mpf) -> Any:
    return lambda rough=False: value


def _tails(gamma: Vector, nu: Vector, x: Number, dps: int) -> tuple[Any, Any]:
    with mp.workdps(dps + GUARD):
        edge, x = _edge(gamma, nu), mpf(x)
        if edge.trivial:
            sides = (mpf(0) if x < 0 else -mp.inf, mpf(0) if x > 0 else -mp.inf)
            return _exactly(sides[0]), _exactly(sides[1])
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
    upper, lower = _tails(gamma, nu, x, dps)
    return _with_complement(upper, lower, dps)


def log_lower_tail(gamma: Vector, nu: Vector, x: Number, dps: int = DIGITS) -> mpf:
    """ln Pr(L < x)."""
    upper, lower = _tails(gamma, nu, x, dps)
    return _with_complement(lower, upper, dps)


def log_two_sided(gamma: Vector, nu: Vector, eps: Number, dps: int = DIGITS) -> mpf:
    """ln Pr(|L| > eps) for eps ≥ 0."""
    if eps < 0:
        raise ValueError("eps must not be negative")
    work = dps + 20  # the difference below may lose that many digits
    with mp.workdps(work + 15):
        above = log_upper_tail(gamma, nu, eps, work)
        below = log_lower_tail(gamma, nu, -mpf(eps), work)
        out = mp.log(mp.exp(above) + mp.exp(below))
        if out > mpf("-0.5"):
            out = mp.log1p(mp.exp(below) - mp.exp(log_lower_tail(gamma, nu, eps, work)))
    return _rounded(out, dps)


def _hockey(gamma: Vector, nu: Vector, eps: Number, dps: int) -> tuple[Any, Any, Any]:
    """ln of E[(1 − e^(ε−L))₊], of one minus it, and of E[(e^(ε−L) − 1)₊]."""
    with mp.workdps(dps + GUARD):
        edge, x = _edge(gamma, nu), mpf(eps)
        if edge.trivial:
            infimum = supremum = mpf(0)
        else:
            infimum, supremum = edge.infimum, edge.supremum
        if x >= supremum:
            excess = _log1mexp(-x) + x
            return _exactly(-mp.inf), _exactly(mpf(0)), _exactly(excess)
        if x <= infimum:
            return _exactly(_log1mexp(x)), _exactly(x), _exactly(-mp.inf)
    return (
        partial(_log_integral, edge, x, mpf(0), edge.high, (0, -1), dps),
        partial(_log_integral, edge, x, mpf(-1), mpf(0), (0, -1), dps),
        partial(_log_integral, edge, x, edge.low, mpf(-1), (0, -1), dps),
    )


def log_hockey(gamma: Vector, nu: Vector, eps: Number, dps: int = DIGITS) -> mpf:
    """ln E[(1 − exp(eps − L))₊], any real eps."""
    delta, rest, _ = _hockey(gamma, nu, eps, dps)
    return _with_complement(delta, rest, dps)


def log_one_minus_hockey(gamma: Vector, nu: Vector, eps: Number, dps: int = DIGITS) -> mpf:
    """ln(1 − δ) = ln E[min(1, exp(eps − L))]."""
    delta, rest, _ = _hockey(gamma, nu, eps, dps)
    return _with_complement(rest, delta, dps)


def log_reverse_excess(gamma: Vector, nu: Vector, eps: Number, dps: int = DIGITS) -> mpf:
    """ln E[(exp(eps − L) − 1)₊] = ln(δ − 1 + exp(eps)): exp(eps) times the reverse edge's δ at −eps."""
    return _rounded(_hockey(gamma, nu, eps, dps)[2](), dps)


# ---------------------------------------------------------------------------------------------------------------
# Reference files


def text(value: mpf, digits: int = 25) -> str:
    """A decimal string that float() and mpf() both read."""
    return "-inf" if value == -mp.inf else str(mp.nstr(value, digits, strip_zeros=False))


def reference_point(gamma: Vector, nu: Vector, eps: float) -> dict[str, str]:
    """ln of the hockey-stick δ(eps), of Pr(L > eps) and of Pr(L < −eps)."""
    return {
        "eps": float(eps).hex(),
        "hockey": text(log_hockey(gamma, nu, eps)),
        "upper": text(log_upper_tail(gamma, nu, eps)),
        "lower": text(log_lower_tail(gamma, nu, -eps)),
    }


def pack(values: Any) -> str:
    """Base64 of little-endian float64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode("ascii")


def unpack(packed: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed), dtype="<f8").astype(np.float64)


def pack_symmetric(a: np.ndarray) -> str:
    """The lower triangle, row by row."""
    return pack(a[np.tril_indices(len(a))])


def unpack_symmetric(packed: str) -> np.ndarray:
    flat = unpack(packed)
    k = (math.isqrt(8 * len(flat) + 1) - 1) // 2
    out = np.empty((k, k))
    rows, columns = np.tril_indices(k)
    out[rows, columns] = flat
    out[columns, rows] = flat
    return out


@dataclass(frozen=True)
class ReferenceSpectrum:
    name: str
    gamma: np.ndarray
    nu: np.ndarray
    points: list[dict[str, str]]


@dataclass(frozen=True)
class ReferencePair:
    name: str
    mean_a: np.ndarray
    cov_a: np.ndarray
    mean_b: np.ndarray
    cov_b: np.ndarray
    points: list[dict[str, str]]


def load_spectra(path: Path = HERE / "reference_spectra.json") -> list[ReferenceSpectrum]:
    return [
        ReferenceSpectrum(
            item["name"],
            np.array([float.fromhex(g) for g in item["gamma"]]),
            np.array([float.fromhex(v) for v in item["nu"]]),
            item["points"],
        )
        for item in json.loads(path.read_text())
    ]


def load_pairs(path: Path = HERE / "reference_pairs.json") -> list[ReferencePair]:
    return [
        ReferencePair(
            item["name"],
            unpack(item["mean_a"]),
            unpack_symmetric(item["cov_a"]),
            unpack(item["mean_b"]),
            unpack_symmetric(item["cov_b"]),
            item["points"],
        )
        for item in json.loads(path.read_text())
    ]


def _write_spectra(path: Path) -> None:
    import cases

    items = [
        {
            "name": case.name,
            "gamma": [float(g).hex() for g in case.gamma],
            "nu": [float(v).hex() for v in case.nu],
            "points": [reference_point(case.gamma, case.nu, eps) for eps in case.eps],
        }
        for case in cases.spectrum_cases()
    ]
    _dump(items, path)


def _write_pairs(path: Path) -> None:
    import cases

    wanted = [(k, c, s) for k in (1, 2, 3, 5, 12) for c in cases.CONDITIONS for s in (0, 1)]
    wanted += [(50, 1e2, 0), (50, 1e8, 0), (50, "graded", 1), (100, 1e4, 0)]
    items = []
    for k, condition, seed in wanted:
        pair = cases.gaussian_pairs(k, condition, seed)
        gamma, nu = spectrum(*pair)
        rough = np.array([float(g) for g in gamma]), np.array([float(v) for v in nu])
        # the loss can be enormous for unrelated covariances: then δ is close to 1 everywhere below 700
        points = sorted({0.0, 1.0, *cases.epsilons(*rough, (-5.0, -100.0))})
        items.append(
            {
                "name": f"{condition if isinstance(condition, str) else format(condition, '.0e')}-{k}-{seed}",
                "mean_a": pack(pair[0]),
                "cov_a": pack_symmetric(pair[1]),
                "mean_b": pack(pair[2]),
                "cov_b": pack_symmetric(pair[3]),
                "points": [reference_point(gamma, nu, eps) for eps in points],
            }
        )
    _dump(items, path)


def _dump(items: list[dict[str, Any]], path: Path) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Recompute the reference files beside this script.")
    parser.add_argument("--write", choices=["all", "spectra", "pairs"], nargs="?", const="all")
    wanted = parser.parse_args().write
    if wanted in ("all", "spectra"):
        _write_spectra(HERE / "reference_spectra.json")
    if wanted in ("all", "pairs"):
        _write_pairs(HERE / "reference_pairs.json")


if __name__ == "__main__":
    main()
