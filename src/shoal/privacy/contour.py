"""Exact tails of the privacy loss by one contour integral, with a bracket around every value.

    E[(1 − e^{x−L})₊] = (1/2πi) ∫ e^{K(t) − xt} dt / (t (t+1)),      Pr(L > x) = (1/2πi) ∫ e^{K(t) − xt} dt / t

for a contour that crosses the real axis at c > 0 inside the strip where K is finite. Moved across the pole at t = 0, to
c < 0, the same integral gives minus the complement (1 − δ, Pr(L ≤ x)). Whichever of the two is smaller is integrated,
so neither loses relative accuracy (docs/theory.md, section 3).

The contour is a hyperbola through the saddle point c of the whole exponent, bent towards either side, and the rule is
the trapezoidal one in its parameter, halved until two steps agree. The bracket covers, in this order: the difference of
the last two steps (the error of the finer one is about its square), rounding in the exponent times the cancellation in
the sum, and the error that the spectrum arrived with, carried through K's derivatives at the saddle point.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import kernel
from shoal.privacy.generating import (
    HOCKEY,
    LEFT,
    RIGHT,
    TAIL,
    LossLaw,
    chernoff,
    complex_value,
    derivatives,
    reach,
    saddle,
)

EPS = float(np.finfo(np.float64).eps)

#: Two successive steps must agree to this relative accuracy.
AGREEMENT = 2e-11
#: A worse agreement than this counts as none.
COARSEST = 1e-4
#: Opening angle of the hyperbola.
ANGLE = math.pi / 8
COS, SIN = math.cos(ANGLE), math.sin(ANGLE)
#: The coarsest step and how often it may be halved.
STEP, HALVINGS = 0.5, 8
#: Largest parameter: e^40 times the scale of the integrand.
FARTHEST = 40.0

_GRID = np.arange(int(FARTHEST / STEP) * 2**HALVINGS + 1) * (STEP / 2**HALVINGS)
_SINH, _COSH = np.sinh(_GRID), np.cosh(_GRID)

# Notions of privacy, as the kernels know them.
DP, PDP, PDP_TWO_SIDED, CHERNOFF = 0, 1, 2, 3

LN2 = math.log(2.0)


@kernel
def node(index: int, bend: int, c: float, scale: float) -> tuple[float, float, float, float]:
    """Point t(v) of the hyperbola and dt/dv, as (re t, im t, re dt, im dt)."""
    sh, ch = _SINH[index], _COSH[index]
    return (
        c + bend * scale * SIN * (ch - 1.0),
        scale * COS * sh,
        bend * scale * SIN * sh,
        scale * COS * ch,
    )


@kernel
def integrand(
    index: int,
    bend: int,
    kind: int,
    x: float,
    c: float,
    at_c: float,
    scale: float,
    law: LossLaw,
) -> tuple[float, float]:
    """e^{K(t) − xt} / pole · dt/dv over its size at c without dt, as (re, im); nan where it overflows."""
    t_re, t_im, d_re, d_im = node(index, bend, c, scale)
    k_re, k_im = complex_value(t_re, t_im, law)
    e_re = k_re - x * t_re - at_c
    e_im = k_im - x * t_im
    if e_re > 50.0:
        return math.nan, math.nan
    # The pole's factor relative to its size at c: |c| / t, and |1+c| / (1+t).
    norm = t_re * t_re + t_im * t_im
    f_re, f_im = abs(c) * t_re / norm, -abs(c) * t_im / norm
    if kind == HOCKEY:
        s_re = 1.0 + t_re
        norm = (s_re * s_re + t_im * t_im) / abs(1.0 + c)
        h_re, h_im = s_re / norm, -t_im / norm
        f_re, f_im = f_re * h_re - f_im * h_im, f_re * h_im + f_im * h_re
    f_re, f_im = f_re * d_re - f_im * d_im, f_re * d_im + f_im * d_re
    size = math.exp(e_re)
    co, si = size * math.cos(e_im), size * math.sin(e_im)
    return f_re * co - f_im * si, f_re * si + f_im * co


@kernel
def quadrature(
    bend: int,
    kind: int,
    strip: int,
    x: float,
    c: float,
    at_c: float,
    scale: float,
    law: LossLaw,
    agreement: float,
) -> tuple[float, float, float, int, int]:
    """Trapezoidal sum along one bend.

    Returns (value, relative difference of the last two steps, cancellation, stride, last index): value is
    strip · π · integral over its scale at c; the last two let a caller walk the same nodes again.
    """
    stride = 2**HALVINGS
    last = len(_SINH) - 1
    # The coarsest pass finds where the integrand has died out.
    _, im = integrand(0, bend, kind, x, c, at_c, scale, law)
    total, absolute = 0.5 * strip * im, 0.5 * abs(im)
    quiet, stop = 0, last
    for index in range(stride, last + 1, stride):
        re, im = integrand(index, bend, kind, x, c, at_c, scale, law)
        size = abs(re) + abs(im)
        if not size < 1e6 * absolute:
            return 0.0, math.inf, math.inf, stride, 0
        total += strip * im
        absolute += size
        quiet = quiet + 1 if size < 1e-18 * absolute else 0
        if quiet == 2:
            stop = index
            break
    if quiet < 2:
        return 0.0, math.inf, math.inf, stride, 0
    difference = math.inf
    for _ in range(HALVINGS):
        half = stride // 2
        more, more_abs = 0.0, 0.0
        for index in range(half, stop + 1, stride):
            re, im = integrand(index, bend, kind, x, c, at_c, scale, law)
            more += strip * im
            more_abs += abs(re) + abs(im)
        old = total * stride
        total += more
        absolute += more_abs
        stride = half
        new = total * stride
        difference = abs(new - old) / abs(new) if new != 0.0 else math.inf
        if difference < agreement:
            break
    value = total * stride * (STEP / 2**HALVINGS)
    amplification = absolute / abs(total) if total != 0.0 else math.inf
    if not value > 0.0:
        difference = math.inf
    return value, difference, amplification, stride, stop


@kernel
def carried_error(
    t: float,
    x: float,
    law: LossLaw,
) -> tuple[float, float]:
    """First-order change of K(t) − xt at real t: (rounding of the evaluation, error of the spectrum)."""
    n0 = abs(t * (1.0 + t))
    rounding, spectrum = abs(x * t), 0.0
    for r in range(law.g.shape[0]):
        round_r, spec_r = 0.0, 0.0
        for i in range(law.g.shape[1]):
            gi, ai = law.g[r, i], law.a[r, i]
            u = 1.0 - t * gi
            gamma = 1.0 + gi
            shift = 0.5 * n0 * ai / abs(u)
            turn = abs(t * gi / u)
            round_r += 0.5 * abs(t * law.lam[r, i]) + 0.5 * abs(math.log(abs(u))) + shift * (2.0 + turn) + 0.5 * turn
            # d/dλ of −(t/2)λ − ½ ln u + ½ t(1+t) a/u with dg = γ dλ and a fixed.
            slope = abs(0.5 * t * (gamma / u - 1.0)) + shift * abs(t) * gamma / abs(u)
            spec_r += slope * law.lam_error[r, i] + n0 * math.sqrt(ai) / abs(u) * law.shift_error[r, i]
        rounding += abs(law.times[r]) * (round_r + 1.0)
        spectrum += abs(law.times[r]) * spec_r
    return 4.0 * EPS * (rounding + 4.0), spectrum


@kernel
def strip_integral(
    kind: int,
    strip: int,
    x: float,
    c: float,
    second: float,
    law: LossLaw,
    floor: float,
    agreement: float,
) -> tuple[float, float, int, int, int]:
    """ln of the quantity that belongs to a strip, and the half-width of its bracket in ln.

    The right strip gives the upper tail (or hockey-stick), the left strip its complement. ``c`` is the saddle point and
    ``second`` the curvature there. When the elementary bound already lies below ``floor``, or the integral does not
    settle to ``agreement``, that bound comes back with an infinite half-width.
    Returns (ln value, half-width, bend, stride, stop): the last three let a caller walk the same nodes again.
    """
    scale = 1.0 / math.sqrt(second)
    k0, _, _ = derivatives(c, law)
    at_c = k0 - x * c
    rounding, spectrum = carried_error(c, x, law)
    # Markov's inequality. The hockey-stick's constant is the maximum over y of (1 − e^{−y}) e^{−cy}, which is
    # c^c / (1+c)^{1+c}; its complement is E min(1, e^{x−L}) ≤ E e^{c(L−x)} for −1 < c < 0.
    bound = at_c + rounding + spectrum
    if kind == HOCKEY and strip == RIGHT:
        bound -= math.log1p(c) + c * math.log1p(1.0 / c)
    if not bound < math.inf:
        return 0.0, math.inf, 0, 0, 0  # not a number: nothing is known but that a probability is at most 1
    if bound < floor:
        return bound, math.inf, 0, 0, 0

    # Far out K is a straight line; its slope says to which side the integrand decays.
    lean = -0.5 * law.lam_sum - x
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.a[r, i] > 0.0 and law.g[r, i] != 0.0:
                lean -= 0.5 * law.times[r] * law.a[r, i] / law.g[r, i]
    bend = RIGHT if lean < 0.0 else LEFT
    value, difference, amplification, stride, stop = quadrature(bend, kind, strip, x, c, at_c, scale, law, agreement)
    if not difference < agreement:
        other = quadrature(-bend, kind, strip, x, c, at_c, scale, law, agreement)
        if other[1] < difference:
            bend = -bend
            value, difference, amplification, stride, stop = other
    if not difference < COARSEST:
        return bound, math.inf, 0, 0, 0
    log_value = at_c + math.log(value / math.pi) - math.log(abs(c))
    if kind == HOCKEY:
        log_value -= math.log1p(c)
    half_width = 2.0 * difference + rounding * (1.0 + amplification) + spectrum + 1e-14
    if not log_value <= bound + half_width:
        # Above a proven bound, or not a number: the sum cannot be right.
        return bound, math.inf, 0, 0, 0
    return log_value, half_width, bend, stride, stop


@kernel
def reach_error(
    x: float,
    law: LossLaw,
) -> float:
    """Error bound of the supremum of ±L."""
    total = abs(x)
    error = 0.0
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            gi, ai = law.g[r, i], law.a[r, i]
            total += law.times[r] * 0.5 * abs(law.lam[r, i])
            slope = 0.5
            if ai > 0.0:
                total += law.times[r] * 0.5 * ai / abs(gi)
                slope += 0.5 * ai * (1.0 + gi) / (gi * gi)
                error += law.times[r] * math.sqrt(ai) / abs(gi) * law.shift_error[r, i]
            error += law.times[r] * slope * law.lam_error[r, i]
    return float(error + 8.0 * EPS * total * (law.g.shape[0] * law.g.shape[1]))


@kernel
def is_trivial(law: LossLaw) -> bool:
    """Whether the two laws are equal, so that L = 0 for certain."""
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.g[r, i] != 0.0 or law.a[r, i] != 0.0:
                return False
    return True


@kernel
def rough_size(kind: int, x: float, c: float, second: float, law: LossLaw) -> float:
    """Saddle-point estimate of the ln of a strip's integral, up to a constant."""
    k0, _, _ = derivatives(c, law)
    size = k0 - x * c - math.log(abs(c)) - 0.5 * math.log(second)
    return size - math.log1p(c) if kind == HOCKEY else size


@kernel
def tail(
    kind: int,
    side: int,
    x: float,
    law: LossLaw,
    floor: float,
) -> tuple[float, float, float]:
    """(value, lower, upper) in ln of a one-sided quantity of the privacy loss L.

    side RIGHT: E[(1 − e^{x−L})₊] for kind HOCKEY, Pr(L > x) for kind TAIL. side LEFT (kind TAIL only): Pr(L < x).
    Values certain to lie below ``floor`` may come back as (bound, −inf, bound).
    """
    if is_trivial(law):
        if side * x >= 0.0:
            return -math.inf, -math.inf, -math.inf
        value = math.log(-math.expm1(x)) if kind == HOCKEY else 0.0
        return value, value - EPS, min(value + EPS, 0.0)

    top = reach(side, law)
    inside = x
    if top < math.inf:
        slack = reach_error(x, law)
        if side * x >= top + slack:
            return -math.inf, -math.inf, -math.inf
        if side * x > top - 100.0 * slack:
            # Too close to the end of the range to resolve: the value a little further in is an upper bound.
            inside = side * (top - 100.0 * slack)
    if kind == TAIL:
        bottom = reach(-side, law)
        if -side * x >= bottom:
            slack = reach_error(x, law)
            low = 0.0 if -side * x >= bottom + slack else -math.inf
            return 0.0, low, 0.0

    # Of the quantity and its complement, integrate the smaller.
    c, second = saddle(kind, side, inside, law)
    c_other, second_other = saddle(kind, -side, inside, law)
    if inside != x or rough_size(kind, inside, c, second, law) <= rough_size(kind, x, c_other, second_other, law):
        value, half, _, _, _ = strip_integral(kind, side, inside, c, second, law, floor, AGREEMENT)
        if half == math.inf:
            return min(value, 0.0), -math.inf, min(value, 0.0)
        low = value - half if inside == x else -math.inf
        return min(value, 0.0), min(low, 0.0), min(value + half, 0.0)
    value, half, _, _, _ = strip_integral(kind, -side, x, c_other, second_other, law, -math.inf, AGREEMENT)
    if half == math.inf:
        low = math.log1p(-math.exp(value)) if value < 0.0 else -math.inf
        return 0.0, low, 0.0
    least = math.exp(value - half) * (1.0 - 4.0 * EPS)
    most = math.exp(value + half) * (1.0 + 4.0 * EPS)
    low = math.log1p(-most) if most < 1.0 else -math.inf
    central = math.log1p(-math.exp(value)) if value < 0.0 else low
    return central, low - EPS, min(math.log1p(-least) + EPS, 0.0)


@kernel
def log_delta(
    notion: int,
    epsilon: float,
    law: LossLaw,
    floor: float,
) -> tuple[float, float, float]:
    """(value, lower, upper) of ln δ at one ε for one directed edge."""
    if notion == DP:
        return tail(HOCKEY, RIGHT, epsilon, law, floor)
    if notion == PDP:
        return tail(TAIL, RIGHT, epsilon, law, floor)
    if notion == PDP_TWO_SIDED:
        # The two tails are disjoint for ε ≥ 0; a floor on the sum is one on each, less ln 2.
        each = floor - LN2
        up = tail(TAIL, RIGHT, epsilon, law, each)
        down = tail(TAIL, LEFT, -epsilon, law, each)
        return (
            min(log_sum(up[0], down[0]), 0.0),
            min(log_sum(up[1], down[1]), 0.0),
            min(log_sum(up[2], down[2]) + 2.0 * EPS, 0.0),
        )
    value, t = chernoff(epsilon, law)
    if t == 0.0 or value == -math.inf:
        return value, value, value
    rounding, spectrum = carried_error(t, epsilon, law)
    return min(value, 0.0), value - rounding - spectrum, min(value + rounding + spectrum, 0.0)


@kernel
def log_sum(p: float, q: float) -> float:
    """ln(e^p + e^q)."""
    high, low = max(p, q), min(p, q)
    if high == -math.inf:
        return high
    return high + math.log1p(math.exp(low - high))
