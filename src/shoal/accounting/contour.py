"""Tails of the privacy loss by one contour integral, with the width of a bracket around every value.

    E[(1 − e^{x−L})₊] = (1/2πi) ∫ e^{K(t) − xt} dt / (t (t+1)),      Pr(L > x) = (1/2πi) ∫ e^{K(t) − xt} dt / t

for a contour that crosses the real axis at c > 0 inside the strip where K is finite; at c < 0 the same integral gives
minus the complement (1 − δ, Pr(L ≤ x)). The contour is a hyperbola through the saddle point c, the rule the trapezoidal
one in its parameter, halved until two steps agree (docs/theory.md, sections 3.2 to 3.4; what the bracket covers: 3.7).
"""

from __future__ import annotations

import math

import numpy as np

from shoal.accounting.cumulants import HOCKEY, LEFT, RIGHT, LossLaw, complex_cumulant, cumulant_derivatives
from shoal.numerics.compilation import kernel

EPS = float(np.finfo(np.float64).eps)

#: Two successive steps must agree to this relative accuracy.
AGREEMENT = 2e-11
#: The constant allowed for when the error of a step is judged by the square of the step before.
SQUARED = 1e3
#: A worse agreement than this counts as none.
COARSEST = 1e-4
#: Opening angle of the hyperbola.
ANGLE = math.pi / 8
COS, SIN = math.cos(ANGLE), math.sin(ANGLE)
#: The coarsest step and how often it may be halved.
STEP, HALVINGS = 0.5, 8
#: Halvings after which a bend that has not settled gives way to the other one.
PATIENCE = 4
#: Half-width of a bracket, in ln, beyond the agreement asked for, at which the other bend is tried as well.
NARROW = 1e-10
#: Largest parameter: e^40 times the scale of the integrand.
FARTHEST = 40.0

#: An exponent this far above its value at the saddle point says that the bend leads uphill.
UPHILL = 50.0
#: The same for one term against the sum of the sizes of all before it.
RUNAWAY = 1e6
#: A term below this share of the sum of sizes counts as nothing; two in a row end the sum. What follows decays faster
#: than a geometric series, and the share is a thousandth of what rounding in the sum is allowed for.
QUIET, QUIET_TERMS = 1e-18, 2
#: Terms are late from where they are below this share of the sum of sizes, or rise again after having been below the
#: other. They oscillate faster than any step resolves, so that sums over different steps agree on what is not there:
#: all of their size is doubt.
LATE, RISEN = 1e-15, 1e-3
#: Roundings per operation of the exponent that are allowed for, and terms beside those that are counted.
ROUNDINGS, UNCOUNTED = 4.0 * EPS, 4.0
#: First derivatives of K are followed while no u moves by more than this share of itself; what they leave out is then
#: below four times that share of what they say.
FIRST_ORDER, REMAINDER = 0.01, 4.0
#: A change of K beyond this is not followed through e^{ΔK} − 1 ≤ ΔK (1 + ΔK).
LARGEST_CHANGE = 0.1
#: Half-width that every bracket has, for the roundings outside the sum: logarithms of c, π and the value.
LEAST_WIDTH = 1e-14
#: A bracket need not be narrower than this many times what the spectrum's own error makes of it at the saddle point.
SPECTRUM_SHARE = 8.0

_GRID = np.arange(int(FARTHEST / STEP) * 2**HALVINGS + 1) * (STEP / 2**HALVINGS)
_SINH, _COSH = np.sinh(_GRID), np.cosh(_GRID)


@kernel
def contour_point(index: int, bend: int, c: float, scale: float) -> tuple[float, float, float, float]:
    """Return the point t(v) of the hyperbola and dt/dv, as (re t, im t, re dt/dv, im dt/dv), at a grid index of v.

    The hyperbola crosses the real axis at ``c``, opens to the side ``bend`` (1 right, −1 left) its size is ``scale``.
    """
    sh, ch = _SINH[index], _COSH[index]
    return (c + bend * scale * SIN * (ch - 1.0), scale * COS * sh, bend * scale * SIN * sh, scale * COS * ch)


@kernel
def scaled_integrand(
    index: int, bend: int, kind: int, x: float, c: float, at_c: float, scale: float, law: LossLaw
) -> tuple[float, float]:
    """Return e^{K(t) − xt} / pole · dt/dv at a grid index over its size at c, as (re, im); nan if it overflows."""
    t_re, t_im, d_re, d_im = contour_point(index, bend, c, scale)
    k_re, k_im = complex_cumulant(t_re, t_im, law)
    e_re = k_re - x * t_re - at_c
    e_im = k_im - x * t_im
    if e_re > UPHILL:
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
def trapezoidal_sum(
    bend: int,
    kind: int,
    strip: int,
    x: float,
    c: float,
    at_c: float,
    scale: float,
    law: LossLaw,
    agreement: float,
    halvings: int,
) -> tuple[float, float, float, float, float, int, int]:
    """Return the trapezoidal sum of the integrand along one bend, with what its bracket is made of.

    The result is (value, relative difference of the last two steps, cancellation, the two :func:`derivative_factors`
    averaged over the sum's terms in size, stride, last index): value is strip · π · integral over its scale at c; the
    last two let a caller walk the same nodes again. The coarsest step is halved at most ``halvings`` times.
    """
    near = growth_height(c, law)
    stride = 2**HALVINGS
    last = len(_SINH) - 1
    # The coarsest pass finds where the integrand has died out.
    _, im = scaled_integrand(0, bend, kind, x, c, at_c, scale, law)
    total, absolute = 0.5 * strip * im, 0.5 * abs(im)
    every_other = total
    moment = absolute * abs(c * (1.0 + c))
    moment_t = moment * abs(c)
    quiet, stop, late, beyond, previous = 0, last, last + 1, 0.0, math.inf
    for index in range(stride, last + 1, stride):
        re, im = scaled_integrand(index, bend, kind, x, c, at_c, scale, law)
        size = abs(re) + abs(im)
        if late > last and previous < min(size, RISEN * absolute):
            late = index - stride
        elif late > last and size < LATE * absolute:
            late = index
        previous = size
        if index > late:
            beyond += size
        if not size < RUNAWAY * absolute:
            return 0.0, math.inf, math.inf, math.inf, math.inf, stride, 0
        total += strip * im
        if index % (2 * stride) == 0:
            every_other += strip * im
        absolute += size
        single, twice = derivative_factors(index, bend, c, scale, near)
        moment += size * single
        moment_t += size * twice
        quiet = quiet + 1 if size < QUIET * absolute else 0
        if quiet == QUIET_TERMS:
            stop = index
            break
    if quiet < QUIET_TERMS:
        return 0.0, math.inf, math.inf, math.inf, math.inf, stride, 0
    # One agreement can be an accident: the error of the coarser sum changes sign as x varies. Each halving squares the
    # error, up to a constant, so the differences of the steps before must be small enough as well.
    difference, before, earlier = math.inf, math.inf, 0.0
    if total != 0.0:
        before = abs(total - 2.0 * every_other) / abs(total)
    # The moments need no more than the coarsest pass: they are averages of slowly varying sizes.
    moment, moment_t = moment / absolute, moment_t / absolute
    for _ in range(halvings):
        half = stride // 2
        more, more_abs = 0.0, 0.0
        for index in range(half, stop + 1, stride):
            re, im = scaled_integrand(index, bend, kind, x, c, at_c, scale, law)
            more += strip * im
            more_abs += abs(re) + abs(im)
            if index > late:
                beyond += abs(re) + abs(im)
        old = total * stride
        total += more
        absolute += more_abs
        stride = half
        new = total * stride
        step, unsure = math.inf, math.inf
        if new != 0.0:
            step, unsure = abs(new - old) / abs(new), beyond / abs(total)
        difference = max(step, SQUARED * before * before, SQUARED * earlier**4) + unsure
        earlier, before = before, step
        if difference < agreement:
            break
    value = total * stride * (STEP / 2**HALVINGS)
    amplification = absolute / abs(total) if total != 0.0 else math.inf
    if not value > 0.0:
        difference = math.inf
    return value, difference, amplification, moment * amplification, moment_t * amplification, stride, stop


@kernel
def growth_height(c: float, law: LossLaw) -> float:
    """Return cos α (1/|g| + |c|) for the smallest relevant |g|: the height |Im t| above which u(t) outgrows u(c).

    |u(t)| ≥ |Im t| |g| and |u(c)| ≤ 1 + |c g|, so |u(c) / u(t)| ≤ (1/|g| + |c|) / |Im t| beside 1 / cos α. Only
    directions with a gap or a doubt count.
    """
    least = math.inf
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.a[r, i] > 0.0 or law.lam_error[r, i] > 0.0 or law.shift_error[r, i] > 0.0:
                least = min(least, abs(law.g[r, i]) - (1.0 + law.g[r, i]) * law.lam_error[r, i])
    return COS * (1.0 / least + abs(c)) if least > 0.0 else math.inf


@kernel
def derivative_factors(index: int, bend: int, c: float, scale: float, near: float) -> tuple[float, float]:
    """Return |t(1+t)| v and |t²(1+t)| v² at a node, the factors of K's derivatives by √a and λ.

    v ≤ 1 has v / cos α ≥ |u(c) / u(t)| for every u that matters; ``near`` is :func:`growth_height`. An integrand that
    dies out like a power of t has most of |t(1+t)| far out, where u is large as well.
    """
    re = c + bend * scale * SIN * (_COSH[index] - 1.0)
    im = scale * COS * _SINH[index]
    square = re * re + im * im
    share = min(1.0, near / im) if im > 0.0 else 1.0
    single = math.sqrt(square * ((1.0 + re) * (1.0 + re) + im * im)) * share
    return single, single * math.sqrt(square) * share


@kernel
def exponent_errors(t: float, x: float, law: LossLaw) -> tuple[float, float]:
    """Return bounds on two errors of K(t) − xt at real t: rounding of the evaluation, and error of the spectrum."""
    single = abs(t * (1.0 + t))
    return rounding_error(t, x, single, law), spectrum_error(t, single, single * abs(t), law)


@kernel
def rounding_error(t: float, x: float, single: float, law: LossLaw) -> float:
    """Return a bound on the rounding error of K − xt near real t, where |t(1+t)| is about ``single``."""
    total = abs(x * t)
    for r in range(law.g.shape[0]):
        part = 1.0
        for i in range(law.g.shape[1]):
            u = 1.0 - t * law.g[r, i]
            turn = abs(t * law.g[r, i] / u)
            shift = 0.5 * single * law.a[r, i] / abs(u)
            part += 0.5 * abs(t * law.lam[r, i]) + 0.5 * abs(math.log(abs(u))) + shift * (2.0 + turn) + 0.5 * turn
        total += abs(law.times[r]) * part
    return ROUNDINGS * (total + UNCOUNTED)


@kernel
def spectrum_error(t: float, single: float, twice: float, law: LossLaw) -> float:
    """Return the largest change of K that errors of the spectrum can cause, to first order; infinite if that fails.

    |t(1+t)| is ``single`` and |t²(1+t)| is ``twice``. ∂K/∂λ = ½ t(1+t) (g/u + t a γ/u²) and ∂K/∂√a = t(1+t) √a/u. On a
    contour through t, |u| is at least cos α of its value at t, and where it is more, the :func:`derivative_factors` are
    less. Infinite where u itself is in doubt by more than ``FIRST_ORDER``.

    With the same γ dλ = ‖Δ‖ in every direction this also covers a Δ that is not diagonal, eigenvectors that turned: the
    determinant sees eigenvalues only, which move by at most ‖Δ‖, and |xᵀΔx| ≤ ‖Δ‖ Σ xᵢ² for x = u⁻¹w.
    """
    total, move = 0.0, 0.0
    for r in range(law.g.shape[0]):
        part = 0.0
        for i in range(law.g.shape[1]):
            gi, root = law.g[r, i], math.sqrt(law.a[r, i])
            lam_error, shift_error = law.lam_error[r, i], law.shift_error[r, i]
            if lam_error == 0.0 and shift_error == 0.0:
                continue
            inv = 1.0 / (COS * abs(1.0 - t * gi))
            gamma = 1.0 + gi
            move = max(move, abs(t) * gamma * lam_error * inv)
            # The errors themselves join |g| and √a: what the derivatives can grow by on the way.
            if lam_error > 0.0:
                slope = (
                    0.5 * single * (abs(gi) + gamma * lam_error) * inv + 0.5 * twice * law.a[r, i] * gamma * inv * inv
                )
                part += slope * lam_error
            if shift_error > 0.0:
                part += single * (root + shift_error) * inv * shift_error
        total += abs(law.times[r]) * part
    if not move < FIRST_ORDER:
        return math.inf
    return total * (1.0 + REMAINDER * move)


@kernel
def log_strip_integral(
    kind: int, strip: int, x: float, c: float, second: float, law: LossLaw, floor: float, agreement: float
) -> tuple[float, float, int, int, int]:
    """Return ln of the integral over one strip's contour and the half-width of its bracket in ln.

    The right strip gives the upper tail (or hockey-stick), the left strip its complement. ``c`` is the saddle point and
    ``second`` the curvature there. When the elementary bound already lies below ``floor``, or the integral does not
    settle to ``agreement``, that bound comes back with an infinite half-width. The result is (ln value, half-width,
    bend, stride, stop): the last three let a caller walk the same nodes again.
    """
    scale = 1.0 / math.sqrt(second)
    k0, _, _ = cumulant_derivatives(c, law)
    at_c = k0 - x * c
    rounding, spectrum = exponent_errors(c, x, law)
    # Markov's inequality. The hockey-stick's constant is the maximum over y of (1 − e^{−y}) e^{−cy}, which is
    # c^c / (1+c)^{1+c}; its complement is E min(1, e^{x−L}) ≤ E e^{c(L−x)} for −1 < c < 0.
    bound = at_c + rounding + spectrum
    if kind == HOCKEY and strip == RIGHT:
        bound -= math.log1p(c) + c * math.log1p(1.0 / c)
    if not bound < math.inf:
        return math.inf, math.inf, 0, 0, 0  # infinite or not a number: nothing is known
    if bound < floor:
        return bound, math.inf, 0, 0, 0

    # Far out K is a straight line; its slope says to which side the integrand decays.
    lean = -0.5 * law.lam_sum - x
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.a[r, i] > 0.0 and law.g[r, i] != 0.0:
                lean -= 0.5 * law.times[r] * law.a[r, i] / law.g[r, i]
    first = RIGHT if lean < 0.0 else LEFT
    log_value, half_width, bend, stride, stop = bound, math.inf, 0, 0, 0
    # That rule fails for a few pairs in a hundred; the wrong bend settles late, or with much cancellation.
    for attempt in range(4):
        turn = first if attempt % 2 == 0 else -first
        halvings = PATIENCE if attempt < 2 else HALVINGS
        result = trapezoidal_sum(turn, kind, strip, x, c, at_c, scale, law, agreement, halvings)
        value, difference, amplification, single, twice = result[0], result[1], result[2], result[3], result[4]
        if not difference < COARSEST:
            continue
        along = at_c + math.log(value / math.pi) - math.log(abs(c))
        if kind == HOCKEY:
            along -= math.log1p(c)
        in_sum = max(rounding, rounding_error(c, x, single, law))
        arrived = spectrum_error(c, single, twice, law)
        arrived = arrived * (1.0 + arrived) if arrived < LARGEST_CHANGE else math.inf  # e^{ΔK} − 1
        width = 2.0 * difference + in_sum * (1.0 + amplification) + arrived + LEAST_WIDTH
        # Above a proven bound, or not a number, the sum cannot be right.
        if width < half_width and along <= bound + width:
            log_value, half_width, bend, stride, stop = along, width, turn, result[5], result[6]
        if half_width < NARROW + 2.0 * agreement + SPECTRUM_SHARE * spectrum:
            break
    return log_value, half_width, bend, stride, stop
