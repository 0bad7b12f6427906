"""ln δ of one directed edge with its bracket, for every notion: which strip to integrate, and what to say at the edges.

Of a tail and its complement the smaller is integrated; beyond the supremum of a bounded loss δ is zero; where the
integral cannot be resolved, elementary bounds stand in (docs/theory.md, section 3).
"""

from __future__ import annotations

import math

from shoal.accounting.contour import AGREEMENT, EPS, carried_error, spectrum_error, strip_integral
from shoal.accounting.generating import (
    HOCKEY,
    LEFT,
    RIGHT,
    TAIL,
    TINY_SQUARE,
    LossLaw,
    chernoff,
    derivatives,
    extremes,
    reach,
    saddle,
    slopes,
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
def range_in_doubt(law: LossLaw) -> bool:
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
def has_tiny_shift(law: LossLaw) -> bool:
    """Whether some mean gap was so small that its square had to be raised to ``TINY_SQUARE``."""
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if 0.0 < law.a[r, i] <= TINY_SQUARE:
                return True
    return False


@kernel
def is_trivial(law: LossLaw) -> bool:
    """Whether the two laws are equal, so that L = 0 for certain: no difference, and no doubt about it."""
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.g[r, i] != 0.0 or law.a[r, i] != 0.0 or law.lam_error[r, i] != 0.0 or law.shift_error[r, i] != 0.0:
                return False
    return True


@kernel
def is_blurred(law: LossLaw) -> bool:
    """Whether no direction differs by much more than it is in doubt: equal laws, up to their errors."""
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if abs(law.lam[r, i]) > BLURRED * law.lam_error[r, i]:
                return False
            if math.sqrt(law.a[r, i]) > BLURRED * law.shift_error[r, i]:
                return False
    return True


@kernel
def only_gaps_in_doubt(law: LossLaw) -> bool:
    """Whether every λ is exact and some gap is not."""
    some = False
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.lam_error[r, i] != 0.0:
                return False
            some = some or law.shift_error[r, i] != 0.0
    return some


@kernel
def raise_gaps(law: LossLaw) -> LossLaw:
    """With exact λ, the law whose gaps are the largest they can be, and exact: its hockey-stick is no smaller.

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
def log_distance(law: LossLaw) -> float:
    """ln of a bound on the total variation between the two laws, errors included; at most 0."""
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
def rough_size(kind: int, x: float, c: float, second: float, law: LossLaw) -> float:
    """Saddle-point estimate of the ln of a strip's integral, up to a constant."""
    k0, _, _ = derivatives(c, law)
    size = k0 - x * c - math.log(abs(c)) - 0.5 * math.log(second)
    return size - math.log1p(c) if kind == HOCKEY else size


@kernel
def log_chernoff(epsilon: float, law: LossLaw) -> tuple[float, float, float]:
    """(value, lower, upper) of the logarithm of Lemma 1's bound; any t gives an upper end."""
    x, top = epsilon, reach(RIGHT, law)
    if epsilon > 0.0 and is_blurred(law) and not is_trivial(law):
        upper = log_markov(TAIL, RIGHT, epsilon, law)
        return (-math.inf if log_distance(law) < SMALL_ENOUGH else upper), -math.inf, upper
    if top < math.inf and range_in_doubt(law):
        if epsilon > top - DOUBTFUL_END * (1.0 + abs(top)):
            upper = 0.0 if epsilon <= 0.0 else log_markov(TAIL, RIGHT, epsilon, law)
            return upper, (0.0 if epsilon <= 0.0 else -math.inf), upper
    elif top < math.inf:
        slack = reach_error(epsilon, law)
        if epsilon >= top + slack:
            return -math.inf, -math.inf, -math.inf
        x = min(x, top - MARGIN * slack)
    value, t = chernoff(x, law)
    if t == 0.0:
        # K is convex with K(0) = 0 and slope E[L] ≥ 0 there: the least value is 0 for certain while ε is below that.
        least = 2.0**-40
        doubt = spectrum_error(least, least, least * least, law) / least
        mean = slopes(0.0, law)[0]
        certain = epsilon <= 0.0 or epsilon <= mean * (1.0 - 64.0 * EPS) - doubt
        return 0.0, (0.0 if x == epsilon and certain else -math.inf), 0.0
    best = x == epsilon
    rounding, spectrum = carried_error(t, epsilon, law)
    while spectrum == math.inf and t > 1e-300:
        t, best = 0.5 * t, False
        rounding, spectrum = carried_error(t, epsilon, law)
    if not best:
        value = derivatives(t, law)[0] - epsilon * t
    half = rounding + spectrum
    return min(value, 0.0), (value - half if best else -math.inf), min(value + half, 0.0)


@kernel
def resolved_tail(kind: int, side: int, x: float, law: LossLaw, floor: float) -> tuple[float, float, float]:
    """:func:`tail` where it can be resolved; (0, −inf, 0) where it cannot."""
    if is_trivial(law):
        if side * x >= 0.0:
            return -math.inf, -math.inf, -math.inf
        value = math.log(-math.expm1(x)) if kind == HOCKEY else 0.0
        slack = EPS * (2.0 + abs(value))
        return value, value - slack, min(value + slack, 0.0)

    doubtful = range_in_doubt(law)
    top = math.inf if doubtful else reach(side, law)
    inside = x
    if top < math.inf:
        slack = reach_error(x, law)
        if side * x >= top + slack:
            return -math.inf, -math.inf, -math.inf
        if side * x > top - MARGIN * slack:
            # Too close to the end of the range to resolve: the value a little further in is an upper bound.
            inside = side * (top - MARGIN * slack)
    if kind == TAIL and not doubtful:
        bottom = reach(-side, law)
        if -side * x >= bottom:
            slack = reach_error(x, law)
            low = 0.0 if -side * x >= bottom + slack else -math.inf
            return 0.0, low, 0.0

    # Of the quantity and its complement, integrate the smaller.
    c, second = saddle(kind, side, inside, law)
    c_other, second_other = saddle(kind, -side, inside, law)
    strip = side
    if inside == x and not rough_size(kind, x, c, second, law) <= rough_size(kind, x, c_other, second_other, law):
        strip, c, second, floor = -side, c_other, second_other, -math.inf
    value, half, _, _, _ = strip_integral(kind, strip, inside, c, second, law, floor, AGREEMENT)
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
def log_markov(kind: int, side: int, x: float, law: LossLaw) -> float:
    """Least e^{K(t) − xt} over t = ±1, ±2, ±4, … inside the strip, in ln: above Pr(L > x), or Pr(L < x) on the left.

    For the hockey-stick the factor t^t / (1+t)^{1+t} joins it, the maximum over y of (1 − e^{−y}) e^{−ty}.
    """
    low, high = extremes(law)
    slope = high if side == RIGHT else -low
    best, s = 0.0, LEAST_ORDER
    while s * slope < STRIP_SHARE and s < LARGEST_ORDER:
        rounding, spectrum = carried_error(side * s, x, law)
        value = derivatives(side * s, law)[0] - x * side * s + rounding + spectrum
        if kind == HOCKEY:
            value -= (math.log1p(s) + s * math.log1p(1.0 / s)) * (1.0 - 8.0 * EPS)
        if value < best:
            best = value
        elif not value < best + 1.0:
            break  # K is convex: it only rises from here, or is not known any more
        s *= 2.0
    return best


@kernel
def elementary(kind: int, side: int, x: float, law: LossLaw) -> tuple[float, float]:
    """(lower, upper) in ln without an integral, for laws too close to equal, or too little known, to be resolved.

    The hockey-stick is at most (1 − e^x)₊ plus the total variation, and at least (1 − e^x)₊.
    """
    low, high = -math.inf, log_markov(kind, side, x, law)
    if kind == HOCKEY:
        near = log_distance(law)
        if x < 0.0 and near < 0.0:
            certain = -math.expm1(x)
            low = math.log(certain) - 4.0 * EPS * (1.0 + abs(math.log(certain)))
            near = math.log(certain + math.exp(near)) + 8.0 * EPS
        high = min(high, near)
    else:
        beyond = log_markov(kind, -side, x, law)
        if beyond < 0.0:
            low = math.log1p(-math.exp(beyond)) * (1.0 + 4.0 * EPS) - 4.0 * EPS
    return min(low, high), high


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
    value, low, upper = 0.0, -math.inf, 0.0
    blurred = is_blurred(law) and not is_trivial(law)
    if not blurred:
        value, low, upper = resolved_tail(kind, side, x, law, floor)
        if low > -math.inf or upper <= max(floor, -math.inf):
            if not has_tiny_shift(law):
                return value, low, upper
            # Raised gaps move a hockey-stick by their total variation at most, 1e-80 of what e^−100 or more is.
            return (value, low - 1e-9, upper) if kind == HOCKEY and low > -100.0 else (upper, -math.inf, upper)
    # Loose, or void: nearly equal laws, next to the end of a range, or too little known.
    void = upper == 0.0
    least, most = elementary(kind, side, x, law)
    low, upper = max(low, least), min(upper, most)
    if kind == HOCKEY and only_gaps_in_doubt(law):
        upper = min(upper, resolved_tail(kind, side, x, raise_gaps(law), -math.inf)[2])
    if blurred and kind == TAIL and side * x >= 0.0 and log_distance(law) < SMALL_ENOUGH:
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
        inner = resolved_tail(kind, side, x - side * step, law, -math.inf)
        if inner[2] < 0.0:
            upper, far = min(upper, inner[2]), step
        else:
            near = step
        step = 10.0 * step if far == math.inf else 0.5 * (near + far)
    return upper, min(low, upper), upper


@kernel
def log_sum(p: float, q: float) -> float:
    """ln(e^p + e^q)."""
    high, low = max(p, q), min(p, q)
    if high == -math.inf:
        return high
    return high + math.log1p(math.exp(low - high))


@kernel
def log_delta(
    notion: int,
    epsilon: float,
    law: LossLaw,
    floor: float,
) -> tuple[float, float, float]:
    """(value, lower, upper) of ln δ at one ε for one directed edge."""
    if notion != CHERNOFF:
        kind = HOCKEY if notion == DP else TAIL
        # The two tails are disjoint for ε ≥ 0; a floor on the sum is one on each, less ln 2.
        each = floor - LN2 if notion == PDP_TWO_SIDED else floor
        value, low, high = -math.inf, -math.inf, -math.inf
        for side in range(RIGHT, LEFT - 1 if notion == PDP_TWO_SIDED else 0, -2):
            ends = tail(kind, side, side * epsilon, law, each)
            value, low, high = log_sum(value, ends[0]), log_sum(low, ends[1]), log_sum(high, ends[2])
        if notion == PDP_TWO_SIDED:
            slack = 2.0 * EPS
            return min(value, 0.0), min(low * (1.0 + slack) - slack, 0.0), min(high * (1.0 - slack) + slack, 0.0)
        return value, low, high
    return log_chernoff(epsilon, law)
