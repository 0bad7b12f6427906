"""ln δ of one directed edge with its bracket, for every notion: which strip to integrate, and what to say at the edges.

Of a tail and its complement the smaller is integrated; beyond the supremum of a bounded loss δ is zero; where the
integral cannot be resolved, elementary bounds stand in (docs/theory.md, section 3).
"""

from __future__ import annotations

import math

from shoal.accounting.contour import AGREEMENT, EPS, carried_error, strip_integral
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
)
from shoal.compiled import kernel

# Notions of privacy, as the kernels know them.
DP, PDP, PDP_TWO_SIDED, CHERNOFF = 0, 1, 2, 3

LN2 = math.log(2.0)


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
def range_in_doubt(law: LossLaw) -> bool:
    """Whether some γ − 1 is known to fewer than three digits, its sign perhaps not at all.

    Then a loss that looks bounded may not be, and its supremum, which has γ − 1 in a denominator, means little.
    """
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            error = (1.0 + law.g[r, i]) * law.lam_error[r, i]
            if error > 0.0 and abs(law.g[r, i]) <= 1000.0 * error:
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
def log_chernoff(epsilon: float, law: LossLaw) -> tuple[float, float, float]:
    """(value, lower, upper) of the logarithm of Lemma 1's bound; any t gives an upper end."""
    x, top = epsilon, reach(RIGHT, law)
    if top < math.inf:
        slack = reach_error(epsilon, law)
        doubtful = range_in_doubt(law)
        if epsilon >= top + slack and not doubtful:
            return -math.inf, -math.inf, -math.inf
        x = min(x, top - (1e-6 * (1.0 + abs(top)) if doubtful else 100.0 * slack))
    value, t = chernoff(x, law)
    if t == 0.0:
        return 0.0, (0.0 if x == epsilon else -math.inf), 0.0
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
        if side * x > top - 100.0 * slack:
            # Too close to the end of the range to resolve: the value a little further in is an upper bound.
            inside = side * (top - 100.0 * slack)
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
        return 0.0, low, 0.0
    least = math.exp(value - half) * (1.0 - 4.0 * EPS)
    most = math.exp(value + half) * (1.0 + 4.0 * EPS)
    low = math.log1p(-most) if most < 1.0 else -math.inf
    central = math.log1p(-math.exp(value)) if value < 0.0 else low
    return central, low - EPS, min(math.log1p(-least) + EPS, 0.0)


@kernel
def log_markov(side: int, x: float, law: LossLaw) -> float:
    """Least e^{K(t) − xt} over t = ±1, ±2, ±4, … inside the strip, in ln: above Pr(L > x), or Pr(L < x) on the left."""
    low, high = extremes(law)
    slope = high if side == RIGHT else -low
    best, s = 0.0, 2.0**-20
    while s * slope < 0.99 and s < 1e150:
        rounding, spectrum = carried_error(side * s, x, law)
        value = derivatives(side * s, law)[0] - x * side * s + rounding + spectrum
        if value < best:
            best = value
        elif value == math.inf:
            break
        s *= 2.0
    return best


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
    upper, near, far, step = 0.0, 0.0, math.inf, 0.0
    width = 1e-9 * (1.0 + abs(x))
    for attempt in range(60):
        found = resolved_tail(kind, side, x - side * step, law, floor if attempt == 0 else -math.inf)
        if attempt == 0:
            if found[2] < 0.0 or found[1] > -math.inf:
                if has_tiny_shift(law):
                    return found[2], -math.inf, found[2]
                if found[1] == -math.inf and found[2] > max(floor, -math.inf):
                    # Loose: nearly equal laws, or next to the end of a range. Markov's inequality may say more.
                    upper = min(found[2], log_markov(side, x, law))
                    return min(found[0], upper), found[1], upper
                return found
            # Nothing can be said at x. Markov's inequality may still do, and so does the value further in.
            upper = log_markov(side, x, law)
            step = width
        else:
            if found[2] < 0.0:
                upper, far = min(upper, found[2]), step
            else:
                near = step
            step = 10.0 * step if far == math.inf else 0.5 * (near + far)
        if upper < -7.0 or far - near < 1e-3 * width:
            break
    return upper, -math.inf, upper


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
            found = tail(kind, side, side * epsilon, law, each)
            value, low, high = log_sum(value, found[0]), log_sum(low, found[1]), log_sum(high, found[2])
        if notion == PDP_TWO_SIDED:
            return min(value, 0.0), min(low, 0.0), min(high + 2.0 * EPS, 0.0)
        return value, low, high
    return log_chernoff(epsilon, law)
