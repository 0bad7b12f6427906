"""Enclosures of δ(ε) of one pair of laws, in one direction or for a table, in ball arithmetic.

    δ(ε) = (1/π) Im ∫ e^{K(t) − εt} dt / (t (1+t))        from c in (0, t₊) into the upper half plane

with K from the pair's pencil. A finite piece of the path is integrated by Arb, the rest is bounded; where no path is
found Chernoff's bound stands, and equal covariances have a closed form (docs/theory.md, section 13).

The path is chosen in doubles, on which nothing rests: it leaves the real axis at the minimum c of the exponent

    φ(t) = −t (½ Σ ln γ + ε) − ½ Σ ln u + ½ t (1+t) Σ w/u − ln t − ln(1+t),     u = 1 − tg,  w = γ ν₀²,

and bends with a hyperbola t(v) = c + s (i cos α sinh v ± sin α (cosh v − 1)), s = φ''(c)^(−½), 0 ≤ v ≤ reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from flint import acb, arb, ctx
from numpy.typing import NDArray

from shoal.proofs.dyadic_laws import Ball, LawPair, eliminate
from shoal.proofs.pencil import UP, Pencil
from shoal.validation import FloatArray

#: Precision of the integral, in bits; its relative width that is asked for, and that is good enough.
PRECISION = 128
GOAL, ENOUGH = 2.0**-54, 2.0**-44
#: Evaluations of the integrand per path.
EVALUATIONS = 8_000
#: Paths tried for one edge.
TRIES = 2
#: How far the integrand's exponent may be off where laws are not known exactly: a program that bounds this on another
#: route finds several times as much, and must stay below ½.
DOUBT = 1 / 64
#: ln δ below which no double is left, and Chernoff's bound says all there is to say.
VANISHING = -800.0
#: Beyond this t nothing is looked for: a loss that is bounded, and an ε at or beyond its bound.
FARTHEST = 1e40
#: Angles of the hyperbola from the vertical; beyond π/4 a Gaussian would grow.
ANGLES = (math.pi / 8, math.pi / 16, math.pi / 40)
#: ln of what may be left at the end of a path, and of how high the integrand may rise on it, relative to its start.
LEFT, RISE = -40.0, 3.0


@dataclass(frozen=True)
class Enclosure:
    """lower ≤ δ ≤ upper, as balls without radius; ``path`` or ``order`` say what it was found by (neither: exact)."""

    lower: Ball
    upper: Ball
    path: Path | None = None
    order: float | None = None


def enclose_delta(
    pair: LawPair, pencil: Pencil, sides: tuple[bool, ...], epsilon: float, goal: float = GOAL
) -> Enclosure:
    """An enclosure of δ(ε) of the pair, with its pencil, in the directions given; ``goal`` is its relative width."""
    with ctx.workprec(PRECISION):
        if len(sides) == 1 and _loss_is_bounded(pencil, sides[0], epsilon):
            return Enclosure(arb(0), arb(0))
        g, w = directed_spectrum(np.array([float(v) for v in pencil.g]), np.array([float(v) for v in pencil.w]), sides)
        best: Enclosure | None = None
        for path in contour_paths(g, w, epsilon)[:TRIES]:
            if path.level + math.log(path.scale) < VANISHING:
                break
            value = _contour_integral(pencil, sides, epsilon, path, goal)
            if not value.is_finite():
                continue
            lower, upper = max(value.lower(), arb(0)), _upper_end_within_one(value)
            if best is None or upper - lower < best.upper - best.lower:
                best = Enclosure(lower, upper, path)
            if upper - lower <= max(ENOUGH, 8 * goal) * upper:
                return best
        order = float(saddle_points(g[None], w[None], np.array([epsilon]), chernoff=True)[0])
        bound = chernoff_bound(pair, sides, epsilon, order)
        if bound is not None:  # another program's ball may be several times as wide
            bound = _upper_end_within_one(bound.upper() + 8 * bound.rad())
        if best is not None and not (bound is not None and bound < best.upper):
            return best
        # Chernoff's bound says nothing about the lower end.
        return Enclosure(arb(0), arb(1)) if bound is None else Enclosure(arb(0), bound, None, order)


def equal_covariance_enclosure(pair: LawPair, sides: tuple[bool, ...], epsilon: float) -> Enclosure:
    """An enclosure of δ(ε) of two laws with one covariance, by the closed form in their distance μ."""
    with ctx.workprec(PRECISION):
        elimination = eliminate(pair.base.tolist(), [pair.gap[i, 0] for i in range(pair.k)])
        if elimination is None:
            return Enclosure(arb(0), arb(1))
        square = elimination.form * len(sides)
        ends = square.lower(), square.upper()
    if not ends[1] > 0:
        return Enclosure(arb(0), arb(0))
    lower = gaussian_delta_ball(ends[0], epsilon).lower() if ends[0] > 0 else arb(0)
    return Enclosure(lower, _upper_end_within_one(gaussian_delta_ball(ends[1], epsilon)))


def gaussian_delta_ball(square: Ball, epsilon: float) -> Ball:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) of N(0, 1) against N(μ, 1) at μ² = ``square``, as a ball.

    It has a few digits more than a double.
    """
    value = arb(0, 1)
    for precision in (PRECISION, 4 * PRECISION, 16 * PRECISION):
        with ctx.workprec(precision):
            mu, at = square.sqrt(), arb(epsilon)
            here, there = ((at / mu + sign * mu / 2) / arb(2).sqrt() for sign in (-1, 1))
            value = (here.erfc() - at.exp() * there.erfc()) / 2
            if value.rel_accuracy_bits() > 60:
                break
    return value


def chernoff_bound(pair: LawPair, sides: tuple[bool, ...], epsilon: float, order: float) -> Ball | None:
    """Chernoff's bound e^{K(t) − εt} t^t/(1+t)^{1+t} of δ(ε) at t = ``order``, as a ball; None where t is too large."""
    with ctx.workprec(PRECISION):
        t, gap = arb(order), [pair.gap[i, 0] for i in range(pair.k)]
        total = -arb(epsilon) * t
        for backward in sorted(set(sides)):
            here, there = (pair.log_base, pair.log_first) if backward else (pair.log_first, pair.log_base)
            mixed = pair.first + t * pair.diff if backward else pair.base - t * pair.diff
            elimination = eliminate(mixed.tolist(), gap)
            if elimination is None:
                return None
            each = (-t * (here - there) - elimination.log_det + there + t * (1 + t) * elimination.form) / 2
            total += sides.count(backward) * each
        return (total + t * t.log() - (1 + t) * (1 + t).log()).exp()


class _DirectedFactors(NamedTuple):
    """One direction: factors u = start + slope t with weights w, and with a w where far from 1 on the path."""

    near: list[tuple[Ball, Ball, Ball]]
    far: list[tuple[Ball, Ball, Ball]]
    backward: bool


class _IntegrandParts(NamedTuple):
    """Exponent without poles, product of u^(−½), how far both may be off, and the part of it from each Σ w/u."""

    exponent: Ball
    root: Ball
    error: float
    doubts: list[float]


class _Integrand:
    """e^{K(t) − εt − level} on balls t.

    Where |gt| is large, t(1+t)/u is taken as a multiple of 1/u plus a straight line, and all lines are added up before
    t is known: what cancels does not widen balls. Forward −t/g − a + a/u, a = (1+g)/g²; backward, with u = 1+g+tg,
    t/g − 1/g² + ((1+g)/g²)/u.
    """

    def __init__(self, pencil: Pencil, sides: tuple[bool, ...], epsilon: float, level: float, size: float) -> None:
        self.pencil = pencil
        ratio = pencil.log_ratio / 2
        self.slope, self.start = -arb(epsilon), -arb(level)
        self.sides = []
        for backward in sides:
            near, far = [], []
            self.slope += ratio if backward else -ratio
            if backward:
                self.start += ratio
            for g, gamma, w in pencil.directions:
                start, slope = (gamma, g) if backward else (arb(1), -g)
                if abs(slope) * size > start:
                    square = w / (2 * g * g)
                    self.slope += w / (2 * slope)
                    self.start -= square if backward else square * gamma
                    far.append((+start, +slope, square * gamma))
                else:
                    near.append((+start, +slope, w / 2))
            self.sides.append(_DirectedFactors(near, far, backward))
        self.weight = float(sum((w.abs_upper() for w in pencil.w), arb(0)).upper()) * UP

    def evaluate(self, t: Ball, analytic: bool) -> _IntegrandParts | None:
        """The parts of the integrand on a ball t; None where its exponent may be off by ``DOUBT`` or more."""
        pencil, both = self.pencil, t * (t + 1)
        root, error = acb(1), 0.0
        quadratic_forms: list[Ball] = []
        rests: list[Ball] = []
        doubts: list[float] = []
        for near, far, backward in self.sides:
            least = math.inf
            for factors, sums in ((near, quadratic_forms), (far, rests)):
                for start, slope, w in factors:
                    u = start + slope * t
                    half = u.rsqrt(analytic=analytic)
                    root *= half
                    sums.append(w * (half * half))
                    least = min(least, float(u.abs_lower()))
            left = pencil.e + float((abs(t + 1) if backward else abs(t)).upper()) * pencil.r
            if not left * UP < 0.5 * least:
                return None
            rho = left * UP / least
            error += 0.5 * (pencil.k * rho / (1 - rho) + pencil.log_det_error)
            doubts.append(self.weight * left / (least * least * (1 - rho)) * UP)
        error = (error + 0.5 * float(abs(both).upper()) * sum(doubts)) * UP
        if not error < DOUBT:
            return None
        exponent = self.start + self.slope * t + both * sum(quadratic_forms, acb(0)) + sum(rests, acb(0))
        return _IntegrandParts(exponent, root, error, doubts)

    def quadratic_forms(self, t: Ball) -> list[Ball]:
        """The sums Σ w/u at t, one for every direction."""
        pencil = self.pencil
        return [
            sum((w / (gamma + g * t if side.backward else 1 - g * t) for g, gamma, w in pencil.directions), acb(0))
            for side in self.sides
        ]

    def __call__(self, t: Ball, analytic: bool) -> Ball:
        """The integrand, e^{K(t) − εt − level} / (t (1+t))."""
        value = self.evaluate(t, analytic)
        if value is None:
            return acb(arb.nan(), arb.nan())
        off = arb(0, 2 * value.error)  # |e^x − 1| ≤ 2|x| for |x| < ½
        return value.exponent.exp() * value.root * acb(1 + off, off) / (t * (t + 1))


def _contour_integral(pencil: Pencil, sides: tuple[bool, ...], epsilon: float, path: Path, goal: float) -> Ball:
    """δ(ε) as a ball, by integration along the path and a bound on the rest."""
    integrand = _Integrand(pencil, sides, epsilon, path.level, path.center + path.scale * math.sinh(path.reach / 2))
    center, scale = arb(path.center), arb(path.scale)
    sin, cos = arb(path.angle).sin() * path.bend * scale, arb(path.angle).cos() * scale

    def point(v: Ball) -> Ball:
        return center + acb(0, 1) * cos * v.sinh() + sin * (v.cosh() - 1)

    def along(v: Ball, analytic: bool) -> Ball:
        return integrand(point(v), analytic) * (acb(0, 1) * cos * v.cosh() + sin * v.sinh())

    inside = acb.integral(
        along, 0, acb(path.reach), rel_tol=arb(goal), abs_tol=arb(goal) * scale, eval_limit=EVALUATIONS
    )
    rest = _tail_bound(integrand, point(acb(path.reach)))
    return (inside.imag + rest) * arb(path.level).exp() / arb.pi()


def _tail_bound(integrand: _Integrand, end: Ball) -> Ball:
    """A ball around zero that holds the integral from the end of the path straight up, by |e^{K(T) − εT}| e^{½(R² +
    |R|)V} / Y at T = R + iY with V = Im(T Σ w/u(T)) / Y."""
    value = integrand.evaluate(end, False)
    height = end.imag.lower()
    if value is None or not height > 0:
        return arb.nan()
    across = end.real * end.real + abs(end.real)
    most = value.exponent.real + abs(value.root).log() + value.error
    for form, doubt in zip(integrand.quadratic_forms(end), value.doubts, strict=True):
        most += across * ((end * form).imag + abs(end) * doubt) / height / 2
    return arb(0, 1) * most.exp().upper() / height


def _loss_is_bounded(pencil: Pencil, backward: bool, epsilon: float) -> bool:
    """Whether the loss surely never exceeds ε: all g have one sign, and sup L = ∓½ (ln det Σ/det Σ' + yᵀH⁻¹y) ≤ ε."""
    if not all((value > pencil.r if backward else value < -pencil.r) for value in pencil.g):
        return False
    least = min(float(abs(value).lower()) for value in pencil.g) / UP
    if not pencil.r < 0.5 * least:
        return False
    form = sum((w / g for g, w in zip(pencil.g, pencil.w, strict=True)), arb(0))
    squares = sum((w.abs_upper() / (g * g) for g, w in zip(pencil.g, pencil.w, strict=True)), arb(0))
    form += arb(0, 1) * squares.upper() * arb(pencil.r) / (1 - arb(pencil.r) / least)
    most = (pencil.log_ratio + form) / (2 if backward else -2)
    return bool(most <= arb(epsilon))


def _upper_end_within_one(value: Ball) -> Ball:
    """The upper end of a ball, at most 1."""
    upper = value.upper()
    return upper if upper < 1 else arb(1)


@dataclass(frozen=True)
class Path:
    """A hyperbolic contour: start, scale, angle, side and length; ``level`` is the exponent φ at its start."""

    center: float
    scale: float
    angle: float
    bend: int
    reach: float
    level: float


def directed_spectrum(g: FloatArray, w: FloatArray, sides: tuple[bool, ...]) -> tuple[FloatArray, FloatArray]:
    """g and w (…, k) of a pair forward (False: as given) or backward (True: −g/(1+g), w/(1+g)), side by side."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        back = np.maximum(1 + g, 1e-300)
        parts = [(-g / back, w / back) if side else (g, w) for side in sides]
    return np.concatenate([p[0] for p in parts], axis=-1), np.concatenate([p[1] for p in parts], axis=-1)


def saddle_points(g: FloatArray, w: FloatArray, epsilon: FloatArray, *, chernoff: bool) -> FloatArray:
    """(n,) minimizers t > 0 of φ, or of the exponent of Chernoff's bound, by bisection on the sign of its slope."""
    top = np.maximum(g.max(axis=1, initial=0.0), 1 / FARTHEST)
    high = np.log(np.minimum(1 / top, FARTHEST)) - 1e-12
    low = np.full_like(high, -690.0)
    linear = -0.5 * np.log1p(np.maximum(g, -1 + 1e-300)).sum(axis=1) - epsilon
    for _ in range(80):
        middle = 0.5 * (low + high)
        t = np.exp(middle)
        s, u = t[:, None], 1 - t[:, None] * g
        with np.errstate(all="ignore"):
            slope = (0.5 * g / u + 0.5 * w * (1 + 2 * s - s * s * g) / u**2).sum(axis=1) + linear
            slope = slope + (-np.log1p(1 / t) if chernoff else -1 / t - 1 / (1 + t))
        rising = np.isnan(slope) | (u <= 0).any(axis=1) | (slope > 0)
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    return np.asarray(np.exp(low))


def contour_paths(g: FloatArray, w: FloatArray, epsilon: float) -> list[Path]:
    """Contours for one edge, the shortest first; none where the saddle point runs away."""
    center = float(saddle_points(g[None], w[None], np.array([epsilon]), chernoff=False)[0])
    u = 1 - center * g
    curvature = (0.5 * (g / u) ** 2 + w * (1 + g) / u**3).sum() + center**-2.0 + (1 + center) ** -2.0
    scale, level = float(curvature**-0.5), float(_log_moduli(g, w, epsilon, np.array([complex(center)]))[0][0])
    if not (center < 0.5 * FARTHEST and 0 < scale < math.inf and math.isfinite(level)):
        return []
    candidates = []
    v = np.arange(0.125, 80.0, 0.125)
    for angle in ANGLES:
        for bend in (1, -1):
            t = center + scale * (1j * math.cos(angle) * np.sinh(v) + bend * math.sin(angle) * (np.cosh(v) - 1))
            height, last = _log_moduli(g, w, epsilon, t)
            done = np.flatnonzero(last - level - math.log(scale) < LEFT)
            if len(done) and (height[: done[0] + 1] - level + v[: done[0] + 1] < RISE).all():
                candidates.append(Path(center, scale, angle, bend, float(v[done[0]]), level))
    return sorted(candidates, key=lambda path: path.reach)


def _log_moduli(
    g: FloatArray, w: FloatArray, epsilon: float, t: NDArray[np.complex128]
) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the integrand's modulus at every t, and of a bound on the integral straight up from there."""
    s = t[:, None]
    u = 1 - s * g
    with np.errstate(all="ignore"):
        logs = -0.5 * s.real * np.log1p(np.maximum(g, -1 + 1e-300)) - 0.5 * np.log(np.abs(u))
        total = (logs + 0.5 * (s * (1 + s) * w / u).real).sum(axis=1) - epsilon * t.real
        weights = (w / np.abs(u) ** 2).sum(axis=1)
        last = total + 0.5 * (t.real**2 + np.abs(t.real)) * weights - np.log(t.imag)
        height = total - np.log(np.abs(t * (1 + t)))
    return np.where(np.isnan(height), np.inf, height), np.where(np.isnan(last), np.inf, last)
