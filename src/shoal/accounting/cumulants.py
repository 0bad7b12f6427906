"""The cumulant generating function of the privacy loss, compiled.

With u = 1 − t g, g = γ − 1, λ = ln γ and a = γ ν₀² in every direction, and m the number of times a release is
repeated,

    K(t) = ln E[e^{tL}] = Σ m [ −(t/2) λ − ½ ln u + ½ t (1+t) a / u ]

(docs/theory.md, section 3; the moment generating function of a quadratic form in Gaussian variables). A direction in
which both laws agree has λ = g = a = 0 and adds nothing, so spectra of different lengths can be padded.

"""

from __future__ import annotations

import math
from typing import NamedTuple

from shoal.numerics.compilation import kernel
from shoal.validation import FloatArray


class LossLaw(NamedTuple):
    """The law of the privacy loss of one directed edge over one or more releases, with the errors it arrived with.

    ``lam``, ``g``, ``a`` are (releases, directions) and ``times`` is (releases,): spectra of independent releases lie
    side by side (docs/theory.md, section 5). ``lam_error`` bounds the error of each λ (g moves with it by γ dλ) and
    ``shift_error`` that of each √a. ``lam_sum`` is Σ m λ.
    """

    lam: FloatArray
    g: FloatArray
    a: FloatArray
    times: FloatArray
    lam_error: FloatArray
    shift_error: FloatArray
    lam_sum: float


# How close to the end of its strip a real point may come: nearer, 1 − t g is lost to rounding.
INSIDE = 1.0 - 2.0**-50

#: Smallest a ≠ 0. The square of a smaller gap would underflow; a larger gap is no safer, since δ does not fall
#: when a gap grows (level sets of both densities are symmetric and convex: Anderson 1955).
TINY_SQUARE = 1e-200

# Strip codes: the right strip gives the upper tail itself, the left one its complement.
RIGHT, LEFT = 1, -1
# What is integrated: E[(1 − e^{x−L})₊], or Pr(L > x).
HOCKEY, TAIL = 0, 1


@kernel
def extreme_g(law: LossLaw) -> tuple[float, float]:
    """Return the smallest and the largest g = γ − 1 of all directions, zero included."""
    low, high = 0.0, 0.0
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            low = min(low, law.g[r, i])
            high = max(high, law.g[r, i])
    return low, high


@kernel
def cumulant_derivatives(t: float, law: LossLaw) -> tuple[float, float, float]:
    """Return K(t), K'(t) and K''(t) for real t inside the strip."""
    k0, k1, k2 = -0.5 * t * law.lam_sum, -0.5 * law.lam_sum, 0.0
    n0, n1 = t * (1.0 + t), 1.0 + 2.0 * t
    for r in range(law.g.shape[0]):
        s0, s1, s2 = 0.0, 0.0, 0.0
        for i in range(law.g.shape[1]):
            gi = law.g[r, i]
            inv = 1.0 / (1.0 - t * gi)
            ratio = gi * inv
            half_a = 0.5 * law.a[r, i] * inv
            s0 += -0.5 * math.log1p(-t * gi) + n0 * half_a
            s1 += 0.5 * ratio + half_a * (n1 + n0 * ratio)
            s2 += 0.5 * ratio * ratio + half_a * (2.0 + 2.0 * ratio * (n1 + n0 * ratio))
        k0 += law.times[r] * s0
        k1 += law.times[r] * s1
        k2 += law.times[r] * s2
    return k0, k1, k2


@kernel
def cumulant_slopes(t: float, law: LossLaw) -> tuple[float, float]:
    """Return K'(t) and K''(t) for real t inside the strip, without the logarithms that K(t) needs."""
    k1, k2 = -0.5 * law.lam_sum, 0.0
    n0, n1 = t * (1.0 + t), 1.0 + 2.0 * t
    for r in range(law.g.shape[0]):
        s1, s2 = 0.0, 0.0
        for i in range(law.g.shape[1]):
            inv = 1.0 / (1.0 - t * law.g[r, i])
            ratio = law.g[r, i] * inv
            half_a = 0.5 * law.a[r, i] * inv
            bend = n1 + n0 * ratio
            s1 += 0.5 * ratio + half_a * bend
            s2 += 0.5 * ratio * ratio + 2.0 * half_a * (1.0 + ratio * bend)
        k1 += law.times[r] * s1
        k2 += law.times[r] * s2
    return k1, k2


@kernel
def complex_cumulant(re: float, im: float, law: LossLaw) -> tuple[float, float]:
    """Return K(t), the cumulant generating function of the loss, for complex t with Im t ≥ 0, as (real, imaginary).

    With u = 1 − t g, the logarithms of the u's are one logarithm of their running product. Im u has the sign of −g, so
    every factor turns the product by less than half a turn in a known sense, and a change of sign of its imaginary part
    counts turns.
    """
    k_re, k_im = -0.5 * re * law.lam_sum, -0.5 * im * law.lam_sum
    n_re, n_im = re + re * re - im * im, im + 2.0 * re * im
    for r in range(law.g.shape[0]):
        p_re, p_im, turns, scale = 1.0, 0.0, 0.0, 0.0
        q_re, q_im = 0.0, 0.0
        for i in range(law.g.shape[1]):
            gi = law.g[r, i]
            ai = law.a[r, i]
            u_re, u_im = 1.0 - re * gi, -im * gi
            if ai != 0.0:
                inv = ai / (u_re * u_re + u_im * u_im)
                q_re += u_re * inv
                q_im -= u_im * inv
            if gi != 0.0:
                new_re = p_re * u_re - p_im * u_im
                new_im = p_re * u_im + p_im * u_re
                if gi < 0.0:
                    if p_im >= 0.0 and new_im < 0.0:
                        turns += 1.0
                elif p_im <= 0.0 and new_im > 0.0:
                    turns -= 1.0
                size = abs(new_re) + abs(new_im)
                if size > 1e120 or size < 1e-120:
                    scale += math.log(size)
                    new_re /= size
                    new_im /= size
                p_re, p_im = new_re, new_im
        log_re = 0.5 * math.log(p_re * p_re + p_im * p_im) + scale
        log_im = math.atan2(p_im, p_re) + 2.0 * math.pi * turns
        m = 0.5 * law.times[r]
        k_re += m * (n_re * q_re - n_im * q_im - log_re)
        k_im += m * (n_re * q_im + n_im * q_re - log_im)
    return k_re, k_im


@kernel
def loss_supremum(strip: int, law: LossLaw) -> float:
    """Return the supremum of the loss L (right strip) or of −L (left strip); inf where it is unbounded.

    L is bounded above exactly when no γ exceeds 1 and no direction with γ = 1 has a mean gap: then sup L = Σ m [ −λ/2 −
    a / (2g) ], reached at the stationary point of the quadratic.
    """
    low, high = extreme_g(law)
    if (strip == RIGHT and high > 0.0) or (strip == LEFT and low < 0.0):
        return math.inf
    total = -0.5 * law.lam_sum
    for r in range(law.g.shape[0]):
        for i in range(law.g.shape[1]):
            if law.a[r, i] > 0.0:
                if law.g[r, i] == 0.0:
                    return math.inf
                total -= 0.5 * law.times[r] * law.a[r, i] / law.g[r, i]
    return strip * total


@kernel
def saddle_point(kind: int, strip: int, x: float, law: LossLaw) -> tuple[float, float]:
    """Return the real minimum t of φ(t) = K(t) − xt − ln|t| (− ln(1+t) for the hockey-stick) in a strip, and φ''(t).

    φ is convex there and tends to +∞ at both ends whenever x is inside the range of L. Newton's method on |t|, kept in
    a bracket. Any point of the strip gives a valid contour, so a rough minimum is enough.
    """
    low, high = extreme_g(law)
    if strip == RIGHT:
        end = 1.0 / high if high > 0.0 else math.inf
    elif kind == HOCKEY:
        end = 1.0
    else:
        end = -1.0 / low if low < 0.0 else math.inf
    end *= INSIDE
    k1, k2 = cumulant_slopes(0.0, law)
    y = strip * (x - k1)
    root = math.sqrt(y * y + 4.0 * k2)
    if y >= 0.0:
        s = (y + root) / (2.0 * k2) if k2 > 0.0 else 1.0
    else:
        s = 2.0 / (root - y)
    if s >= end:
        s = end * (1.0 - max(0.5 / (1.0 + s / end), 1e-12))
    if not (s > 0.0 and s < math.inf):
        s = 1.0 if end > 1.0 else 0.5 * end
    lo, hi = 0.0, end
    second = 1.0
    for _ in range(200):
        t = strip * s
        k1, k2 = cumulant_slopes(t, law)
        first = strip * (k1 - x) - 1.0 / s
        second = k2 + 1.0 / (s * s)
        if kind == HOCKEY:
            first -= strip / (1.0 + t)
            second += 1.0 / ((1.0 + t) * (1.0 + t))
        if first * first < 1e-4 * second:
            break
        if first > 0.0:
            hi = s
        else:
            lo = s
        step = s - first / second
        if step > lo and step < hi:
            s = step
        elif first < 0.0:
            s = 0.5 * (s + hi) if hi < math.inf else 4.0 * s
        elif lo > 0.0:
            s = 0.5 * (s + lo)
        else:
            s = 0.25 * s
        if hi - lo < 1e-15 * hi or s > 1e300:
            break
    return strip * s, second


@kernel
def chernoff_exponent(x: float, law: LossLaw) -> tuple[float, float]:
    """Return the minimum of K(t) − xt over t in [0, t₊), and its t: ln of Lemma 1's bound at its best s = 1 + 1/t."""
    k1, k2 = cumulant_slopes(0.0, law)
    if x <= k1:
        return 0.0, 0.0
    if x >= loss_supremum(RIGHT, law):
        return -math.inf, math.inf
    _, high = extreme_g(law)
    end = INSIDE / high if high > 0.0 else math.inf
    lo, hi = 0.0, end
    t = (x - k1) / k2
    if t >= end:
        t = 0.5 * end
    for _ in range(200):
        k1, k2 = cumulant_slopes(t, law)
        first = k1 - x
        if first * first < 1e-24 * k2:
            break
        if first > 0.0:
            hi = t
        else:
            lo = t
        step = t - first / k2
        if step > lo and step < hi:
            t = step
        elif hi < math.inf:
            t = 0.5 * (lo + hi)
        else:
            t = 4.0 * t
        if hi - lo < 1e-15 * hi or t > 1e300:
            break
    k0, _, _ = cumulant_derivatives(t, law)
    return k0 - x * t, t
