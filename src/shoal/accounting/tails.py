"""ln δ of one directed edge with its bracket, for every notion: which strip to integrate, and what to say at the edges.

Of a tail and its complement the smaller is integrated; beyond the supremum of a bounded loss δ is zero; where the
integral cannot be resolved, elementary bounds stand in (docs/theory.md, section 3).
"""

from __future__ import annotations

import math

from shoal.accounting.contour import AGREEMENT, EPS, exponent_errors, log_strip_integral, spectrum_error
from shoal.accounting.cumulants import (
    HOCKEY,
    LEFT,
    RIGHT,
    TAIL,
    TINY_SQUARE,
    LossLaw,
    chernoff_exponent,
    cumulant_derivatives,
    cumulant_slopes,
    extreme_g,
    loss_supremum,
    saddle_point,
)
from shoal.numerics.compilation import kernel

# Notions of privacy, as the kernels know them.
DP, PDP, PDP_TWO_SIDED, CHERNOFF = 0, 1, 2, 3

LN2 = math.log(2.0)
#: γ − 1 must be this many times its error before its sign is used for the range of the loss: the supremum has γ − 1 in
#: a denominator, and is then known to three digits.
CERTAIN = 1000.0
#: A direction in which both λ and √a are at most this many times their errors tells the laws apart no better than these
#: errors do; the contour, which follows first derivatives, cannot resolve a law made of such directions only.
BLURRED = 8.0
#: How many times its error below the supremum a threshold must lie before the integral is trusted there.
MARGIN = 100.0
#: How far, relative to 1 + |sup L|, Chernoff's best t is sought below a supremum that is in doubt.
DOUBTFUL_END = 1e-6
#: Where Markov's inequality starts to look for its t, and the share of the strip it may use.
LEAST_ORDER, STRIP_SHARE = 2.0**-20, 0.99
#: Orders beyond this are of no use: no ln δ is that small.
LARGEST_ORDER = 1e150
#: ln of a bound that is good enough where no bracket exists: to improve on it is not worth more integrals.
SMALL_ENOUGH = -7.0
#: First step inward, relative to 1 + |x|, where nothing can be said at x; how far the search for the best goes on.
INWARD, INWARD_DIGITS = 1e-9, 1e-3
#: Integrals spent on that search.
INWARD_ATTEMPTS = 60
#: Total variation between N(0, e^λ) and N(0, 1) directions is at most ‖λ‖ / √8 (half the root of the Fisher information
#: ½ per direction), between unit laws a gap of ‖w‖ apart at most ‖w‖ / √(2π).
PER_SCALE, PER_GAP = 1.0 / math.sqrt(8.0), 1.0 / math.sqrt(2.0 * math.pi)


@kernel
def supremum_error(x: float, law: LossLaw) -> float:
    """Return a bound on the error of :func:`loss_supremum`, as it is compared with the threshold x."""
    total = abs(x)
    error = 0.0
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            gi, ai = law.g[r, i], law.a[r, i]
            total += law.times[r] * 0.5 * abs(law.lam[r, i])
            slope, doubt = 0.5, law.shift_error[r, i]
            if ai > 0.0:
                total += law.times[r] * 0.5 * ai / abs(gi)
                slope += 0.5 * ai * (1.0 + gi) / (gi * gi)
            if doubt > 0.0:
                error += law.times[r] * (math.sqrt(ai) + 0.5 * doubt) / abs(gi) * doubt
            error += law.times[r] * slope * law.lam_error[r, i]
    # With every γ − 1 certain to a thousandth, second derivatives add less than a hundredth.
    return float(1.01 * error + 8.0 * EPS * total * (law.g.shape[0] * law.g.shape[1]))


@kernel
def is_range_doubtful(law: LossLaw) -> bool:
    """Whether a loss that looks bounded may not be, or by a bound that means little.

    So where some γ − 1 is known to fewer than three digits, its sign perhaps not at all, and where γ = 1 in a direction
    whose gap may or may not be zero.
    """
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            error = (1.0 + law.g[r, i]) * law.lam_error[r, i]
            if error > 0.0 and abs(law.g[r, i]) <= CERTAIN * error:
                return True
            if law.g[r, i] == 0.0 and law.a[r, i] == 0.0 and law.shift_error[r, i] > 0.0:
                return True
    return False


@kernel
def has_tiny_gap(law: LossLaw) -> bool:
    """Whether some mean gap was so small that its square had to be raised to ``TINY_SQUARE``."""
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if 0.0 < law.a[r, i] <= TINY_SQUARE:
                return True
    return False


@kernel
def are_laws_equal(law: LossLaw) -> bool:
    """Whether the two laws are equal for certain, so that L = 0: no difference, and no error that could hide one."""
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.g[r, i] != 0.0 or law.a[r, i] != 0.0 or law.lam_error[r, i] != 0.0 or law.shift_error[r, i] != 0.0:
                return False
    return True


@kernel
def may_laws_be_equal(law: LossLaw) -> bool:
    """Whether no direction differs by much more than its errors: the laws may be equal."""
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if abs(law.lam[r, i]) > BLURRED * law.lam_error[r, i]:
                return False
            if math.sqrt(law.a[r, i]) > BLURRED * law.shift_error[r, i]:
                return False
    return True


@kernel
def are_only_gaps_doubtful(law: LossLaw) -> bool:
    """Whether every λ is exact and some mean gap is not."""
    some = False
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.lam_error[r, i] != 0.0:
                return False
            some = some or law.shift_error[r, i] != 0.0
    return some


@kernel
def raise_gaps_by_errors(law: LossLaw) -> LossLaw:
    """Return, for exact λ, the law with the largest gaps that the errors allow: its hockey-stick is no smaller.

    In coordinates that make both laws diagonal, the volume that level sets of the two densities share does not grow
    with any entry of the gap: these sets are convex and symmetric in every entry (Anderson 1955).
    """
    a = law.a.copy()
    for r in range(a.shape[0]):
        for i in range(a.shape[1]):
            if law.shift_error[r, i] > 0.0:
                root = (math.sqrt(a[r, i]) + law.shift_error[r, i]) * (1.0 + 4.0 * EPS)
                a[r, i] = max(root * root, TINY_SQUARE)
    return LossLaw(law.lam, law.g, a, law.times, law.lam_error, 0.0 * law.lam_error, law.lam_sum)


@kernel
def log_total_variation_bound(law: LossLaw) -> float:
    """Return ln of an upper bound on the total variation between the two laws, errors included; at most 0."""
    scales, gaps = 0.0, 0.0
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            scale = abs(law.lam[r, i]) + law.lam_error[r, i]
            gap = math.sqrt(law.a[r, i]) + law.shift_error[r, i]
            scales += law.times[r] * scale * scale
            gaps += law.times[r] * gap * gap
    bound = PER_SCALE * math.sqrt(scales) + PER_GAP * math.sqrt(gaps)
    if not bound < 1.0:
        return 0.0
    # Squares that vanish are below 1e-320 each: the constant stands for their roots.
    directions = float(law.g.shape[0] * law.g.shape[1])
    return float(min(math.log(bound + 1e-159 * directions) + 4.0 * EPS * (directions + 200.0), 0.0))


@kernel
def log_saddle_estimate(kind: int, x: float, c: float, second: float, law: LossLaw) -> float:
    """Return the saddle-point estimate of ln of a strip's integral, up to a constant; ``second`` is φ''(c)."""
    k0, _, _ = cumulant_derivatives(c, law)
    size = k0 - x * c - math.log(abs(c)) - 0.5 * math.log(second)
    return size - math.log1p(c) if kind == HOCKEY else size


@kernel
def log_chernoff_bracket(epsilon: float, law: LossLaw) -> tuple[float, float, float]:
    """Return (value, lower, upper) of ln of Lemma 1's (Chernoff's) bound; any t gives an upper end."""
    x, top = epsilon, loss_supremum(RIGHT, law)
    if epsilon > 0.0 and may_laws_be_equal(law) and not are_laws_equal(law):
        upper = log_markov_bound(TAIL, RIGHT, epsilon, law)
        return (-math.inf if log_total_variation_bound(law) < SMALL_ENOUGH else upper), -math.inf, upper
    if top < math.inf and is_range_doubtful(law):
        if epsilon > top - DOUBTFUL_END * (1.0 + abs(top)):
            upper = 0.0 if epsilon <= 0.0 else log_markov_bound(TAIL, RIGHT, epsilon, law)
            return upper, (0.0 if epsilon <= 0.0 else -math.inf), upper
    elif top < math.inf:
        slack = supremum_error(epsilon, law)
        if epsilon >= top + slack:
            return -math.inf, -math.inf, -math.inf
        x = min(x, top - MARGIN * slack)
    value, t = chernoff_exponent(x, law)
    if t == 0.0:
        # K is convex with K(0) = 0 and slope E[L] ≥ 0 there: the least value is 0 for certain while ε is below that.
        least = 2.0**-40
        doubt = spectrum_error(least, least, least * least, law) / least
        mean = cumulant_slopes(0.0, law)[0]
        certain = epsilon <= 0.0 or epsilon <= mean * (1.0 - 64.0 * EPS) - doubt
        return 0.0, (0.0 if x == epsilon and certain else -math.inf), 0.0
    best = x == epsilon
    rounding, spectrum = exponent_errors(t, epsilon, law)
    while spectrum == math.inf and t > 1e-300:
        t, best = 0.5 * t, False
        rounding, spectrum = exponent_errors(t, epsilon, law)
    if not best:
        value = cumulant_derivatives(t, law)[0] - epsilon * t
    half = rounding + spectrum
    return min(value, 0.0), (value - half if best else -math.inf), min(value + half, 0.0)


@kernel
def log_tail_by_integral(kind: int, side: int, x: float, law: LossLaw, floor: float) -> tuple[float, float, float]:
    """Return :func:`log_tail_bracket` where the integral can be resolved; (0, −inf, 0) where it cannot."""
    if are_laws_equal(law):
        if side * x >= 0.0:
            return -math.inf, -math.inf, -math.inf
        value = math.log(-math.expm1(x)) if kind == HOCKEY else 0.0
        slack = EPS * (2.0 + abs(value))
        return value, value - slack, min(value + slack, 0.0)

    doubtful = is_range_doubtful(law)
    top = math.inf if doubtful else loss_supremum(side, law)
    inside = x
    if top < math.inf:
        slack = supremum_error(x, law)
        if side * x >= top + slack:
            return -math.inf, -math.inf, -math.inf
        if side * x > top - MARGIN * slack:
            # Too close to the end of the range to resolve: the value a little further in is an upper bound.
            inside = side * (top - MARGIN * slack)
    if kind == TAIL and not doubtful:
        bottom = loss_supremum(-side, law)
        if -side * x >= bottom:
            slack = supremum_error(x, law)
            low = 0.0 if -side * x >= bottom + slack else -math.inf
            return 0.0, low, 0.0

    # Of the quantity and its complement, integrate the smaller.
    c, second = saddle_point(kind, side, inside, law)
    c_other, second_other = saddle_point(kind, -side, inside, law)
    strip = side
    if inside == x and not log_saddle_estimate(kind, x, c, second, law) <= log_saddle_estimate(
        kind, x, c_other, second_other, law
    ):
        strip, c, second, floor = -side, c_other, second_other, -math.inf
    value, half, _, _, _ = log_strip_integral(kind, strip, inside, c, second, law, floor, AGREEMENT)
    if strip == side:
        if half == math.inf:
            return min(value, 0.0), -math.inf, min(value, 0.0)
        low = value - half if inside == x else -math.inf
        return min(value, 0.0), min(low, 0.0), min(value + half, 0.0)
    if half == math.inf:
        low = math.log1p(-math.exp(value)) if value < 0.0 else -math.inf
        return 0.0, low * (1.0 + 4.0 * EPS) - 4.0 * EPS, 0.0
    least = math.exp(value - half) * (1.0 - 4.0 * EPS)
    most = math.exp(value + half) * (1.0 + 4.0 * EPS)
    low = math.log1p(-most) if most < 1.0 else -math.inf
    central = math.log1p(-math.exp(value)) if value < 0.0 else low
    high = math.log1p(-least)
    return central, low * (1.0 + 2.0 * EPS) - EPS, min(high * (1.0 - 2.0 * EPS) + EPS, 0.0)


@kernel
def log_markov_bound(kind: int, side: int, x: float, law: LossLaw) -> float:
    """Return the least ln e^{K(t) − xt} over t = ±1, ±2, ±4, … in the strip: above ln Pr(L > x), on the left Pr(L < x).

    For the hockey-stick the factor t^t / (1+t)^{1+t} joins it, the maximum over y of (1 − e^{−y}) e^{−ty}.
    """
    low, high = extreme_g(law)
    slope = high if side == RIGHT else -low
    best, s = 0.0, LEAST_ORDER
    while s * slope < STRIP_SHARE and s < LARGEST_ORDER:
        rounding, spectrum = exponent_errors(side * s, x, law)
        value = cumulant_derivatives(side * s, law)[0] - x * side * s + rounding + spectrum
        if kind == HOCKEY:
            value -= (math.log1p(s) + s * math.log1p(1.0 / s)) * (1.0 - 8.0 * EPS)
        if value < best:
            best = value
        elif not value < best + 1.0:
            break  # K is convex: it only rises from here, or is not known any more
        s *= 2.0
    return best


@kernel
def log_elementary_bounds(kind: int, side: int, x: float, law: LossLaw) -> tuple[float, float]:
    """Return (lower, upper) ends in ln without an integral, for laws that are nearly equal or too little known.

    The hockey-stick is at most (1 − e^x)₊ plus the total variation, and at least (1 − e^x)₊.
    """
    low, high = -math.inf, log_markov_bound(kind, side, x, law)
    if kind == HOCKEY:
        near = log_total_variation_bound(law)
        if x < 0.0 and near < 0.0:
            certain = -math.expm1(x)
            low = math.log(certain) - 4.0 * EPS * (1.0 + abs(math.log(certain)))
            near = math.log(certain + math.exp(near)) + 8.0 * EPS
        high = min(high, near)
    else:
        beyond = log_markov_bound(kind, -side, x, law)
        if beyond < 0.0:
            low = math.log1p(-math.exp(beyond)) * (1.0 + 4.0 * EPS) - 4.0 * EPS
    return min(low, high), high


@kernel
def log_tail_bracket(kind: int, side: int, x: float, law: LossLaw, floor: float) -> tuple[float, float, float]:
    """Return (value, lower, upper) in ln of a one-sided quantity of the privacy loss L.

    Side RIGHT: E[(1 − e^{x−L})₊] for kind HOCKEY, Pr(L > x) for kind TAIL. Side LEFT (kind TAIL only): Pr(L < x).
    Values certain to lie below ``floor`` may come back as (bound, −inf, bound).
    """
    value, low, upper = 0.0, -math.inf, 0.0
    blurred = may_laws_be_equal(law) and not are_laws_equal(law)
    if not blurred:
        value, low, upper = log_tail_by_integral(kind, side, x, law, floor)
        if low > -math.inf or upper <= max(floor, -math.inf):
            if not has_tiny_gap(law):
                return value, low, upper
            # Raised gaps move a hockey-stick by their total variation at most, 1e-80 of what e^−100 or more is.
            return (value, low - 1e-9, upper) if kind == HOCKEY and low > -100.0 else (upper, -math.inf, upper)
    # Loose, or void: nearly equal laws, next to the end of a range, or too little known.
    void = upper == 0.0
    least, most = log_elementary_bounds(kind, side, x, law)
    low, upper = max(low, least), min(upper, most)
    if kind == HOCKEY and are_only_gaps_doubtful(law):
        upper = min(upper, log_tail_by_integral(kind, side, x, raise_gaps_by_errors(law), -math.inf)[2])
    if blurred and kind == TAIL and side * x >= 0.0 and log_total_variation_bound(law) < SMALL_ENOUGH:
        # Laws that look equal: the value is zero, though next to zero a loss of any size may exceed x.
        value = -math.inf
    if not void or blurred:
        return min(value, upper), min(low, upper), upper
    # Nothing can be said at x, but the value further in is an upper bound.
    near, far = 0.0, math.inf
    width = INWARD * (1.0 + abs(x))
    step = width
    for _ in range(INWARD_ATTEMPTS):
        if upper < SMALL_ENOUGH or far - near < INWARD_DIGITS * width:
            break
        inner = log_tail_by_integral(kind, side, x - side * step, law, -math.inf)
        if inner[2] < 0.0:
            upper, far = min(upper, inner[2]), step
        else:
            near = step
        step = 10.0 * step if far == math.inf else 0.5 * (near + far)
    return upper, min(low, upper), upper


@kernel
def log_sum_exp(p: float, q: float) -> float:
    """Return ln(e^p + e^q), without overflow."""
    high, low = max(p, q), min(p, q)
    if high == -math.inf:
        return high
    return high + math.log1p(math.exp(low - high))


@kernel
def log_delta_bracket(notion: int, epsilon: float, law: LossLaw, floor: float) -> tuple[float, float, float]:
    """Return (value, lower, upper) of ln δ at one ε for one directed edge, in the notion of this code.

    Values certain to lie below ``floor`` may come back as (bound, −inf, bound).
    """
    if notion != CHERNOFF:
        kind = HOCKEY if notion == DP else TAIL
        # The two tails are disjoint for ε ≥ 0; a floor on the sum is one on each, less ln 2.
        each = floor - LN2 if notion == PDP_TWO_SIDED else floor
        value, low, high = -math.inf, -math.inf, -math.inf
        for side in range(RIGHT, LEFT - 1 if notion == PDP_TWO_SIDED else 0, -2):
            ends = log_tail_bracket(kind, side, side * epsilon, law, each)
            value, low, high = log_sum_exp(value, ends[0]), log_sum_exp(low, ends[1]), log_sum_exp(high, ends[2])
        if notion == PDP_TWO_SIDED:
            slack = 2.0 * EPS
            return min(value, 0.0), min(low * (1.0 + slack) - slack, 0.0), min(high * (1.0 - slack) + slack, 0.0)
        return value, low, high
    return log_chernoff_bracket(epsilon, law)
