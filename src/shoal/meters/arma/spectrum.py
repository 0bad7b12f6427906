"""Where the residuals of a model still have structure: a pole–zero pair per peak or notch of their periodogram.

Multiplying a model by (1 − 2ρ' cos ω B + ρ'² B²)/(1 − 2ρ cos ω B + ρ² B²) changes the residual sum of squares,
by Whittle's approximation (1953), to

    Σ_k R_k |1 − 2ρ cos ω z_k + ρ² z_k²|² / |1 − 2ρ' cos ω z_k + ρ'² z_k²|²,    z_k = e^{iω_k},

R the periodogram of the residuals, scaled to sum to one. Both factors are monic with roots outside the circle, so the
determinant does not change and the gain in log-likelihood is ½ T log of the ratio of sums. The residuals are nearly
white, so their periodogram needs no taper.

Where to look: with distances g = 1 − ρ and h = 1 − ρ' small, the ratio above is 1 + 2(h − g) − (h² − g²) s/h, s the
periodogram over its mean, smoothed around ω by a Lorentzian of half-width h. The best pole has g = h/s, and then the
gain is ½ T h (s − 1)²/s: a peak (s > 1) and a notch (s < 1) compete on equal terms, at every width.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import kernel, summing
from shoal.meters.arma.filters import REGISTERS, residuals
from shoal.validation import FloatArray

#: Distances of the zero from the circle at which to look, from line-like to broad.
WIDTHS = np.array([0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.25])

#: Features looked at closely, and what their two distances are multiplied by then (zero; pole beside it).
FEATURES = 8
ZERO_FACTORS, POLE_FACTORS = np.array([0.5, 2.0]), np.array([0.5, 1.0, 2.0])

#: Distances of a new root from the circle stay between these.
NEAREST, FARTHEST = 0.001, 0.7

#: Angle around a pair just removed in which none is added.
BAND = 0.02


@kernel
def twiddle_factors(size: int) -> FloatArray:
    """cos and −sin of 2πk/size for k < size/2, one row each."""
    out = np.empty((2, size // 2))
    for k in range(size // 2):
        out[0, k] = math.cos(2.0 * math.pi * k / size)
        out[1, k] = -math.sin(2.0 * math.pi * k / size)
    return out


@kernel
def power_spectrum(x: FloatArray, twiddle: FloatArray) -> FloatArray:
    """|FFT|² of x, zero-padded to the power of two that ``twiddle`` was made for; frequencies 0 … π.

    Radix-2, decimation in time; the end points are halved so that plain sums weigh the whole circle.
    """
    size = 2 * twiddle.shape[1]
    real, imag = np.zeros(size), np.zeros(size)
    reverse = 0
    for i in range(size):
        if reverse < x.size:
            real[i] = x[reverse]
        bit = size >> 1
        while bit and reverse & bit:
            reverse ^= bit
            bit >>= 1
        reverse |= bit
    span = 1
    while span < size:
        stride = size // (2 * span)
        for block in range(0, size, 2 * span):
            for k in range(span):
                c, s = twiddle[0, k * stride], twiddle[1, k * stride]
                i, j = block + k, block + k + span
                re = real[j] * c - imag[j] * s
                im = real[j] * s + imag[j] * c
                real[j] = real[i] - re
                imag[j] = imag[i] - im
                real[i] += re
                imag[i] += im
        span *= 2
    half = size // 2
    out = np.empty(half + 1)
    for k in range(half + 1):
        out[k] = real[k] ** 2 + imag[k] ** 2
    out[0] *= 0.5
    out[half] *= 0.5
    return out


@kernel
def residual_power(x: FloatArray, ar: FloatArray, ma: FloatArray, twiddle: FloatArray) -> FloatArray:
    """Periodogram of the residuals with a past of zeros, scaled to sum to one."""
    lead = max(ar.size, ma.size, REGISTERS)
    b, e = np.zeros(lead + x.size), np.zeros(lead + x.size)
    residuals(x, ar, ma, lead, b, e)
    power = power_spectrum(e[lead:], twiddle)
    scaled: FloatArray = power / power.sum()
    return scaled


@summing
def pair_gain(power: FloatArray, twiddle: FloatArray, cosine: float, pole: float, zero: float) -> float:
    """Log-likelihood gain per sample, ½ log of the ratio of sums, of a pair at angle arccos(cosine)."""
    half = power.size - 1
    a0 = 1.0 + 4.0 * pole**2 * cosine**2 + pole**4 - 2.0 * pole**2
    a1 = -4.0 * pole * cosine * (1.0 + pole**2)
    a2 = 4.0 * pole**2
    b0 = 1.0 + 4.0 * zero**2 * cosine**2 + zero**4 - 2.0 * zero**2
    b1 = -4.0 * zero * cosine * (1.0 + zero**2)
    b2 = 4.0 * zero**2
    cosines = twiddle[0]
    after = 0.0
    for k in range(half):
        c = cosines[k]
        after += power[k] * (a0 + c * (a1 + c * a2)) / (b0 + c * (b1 + c * b2))
    after += power[half] * (a0 - a1 + a2) / (b0 - b1 + b2)
    return -0.5 * math.log(after)


@kernel
def smoothed(level: FloatArray, decay: float, out: FloatArray) -> None:
    """Two-sided exponential smoothing, Σ_j decay^|j| level_{k−j} scaled to weight one; level 1 beyond the ends."""
    m, fresh = level.size, 1.0 - decay
    running = 1.0
    for k in range(m):
        out[k] = decay * running
        running = decay * running + fresh * level[k]
    running = 1.0
    for k in range(m - 1, -1, -1):
        running = decay * running + fresh * level[k]
        out[k] = (out[k] + running) / (1.0 + decay)


@kernel
def best_pairs(power: FloatArray, twiddle: FloatArray, avoid: float, out: FloatArray) -> int:
    """Rows (gain per sample, cosine, pole radius, zero radius) of ``out``, best first; returns how many were found.

    The features that promise most by the formula above, the Lorentzian replaced by an exponential of the same
    bandwidth; then the gains of a few radii around each by the sum itself. Nothing is placed within ``BAND`` of the
    angle ``avoid``, unless that is negative.
    """
    m = power.size
    angle = math.pi / (m - 1)
    level = power * (m - 1)
    level[0] *= 2.0
    level[m - 1] *= 2.0
    smooth, promised = np.empty(m), np.zeros(m)
    width, height = np.empty(m), np.empty(m)
    for h in WIDTHS:
        smoothed(level, math.exp(-angle / (0.5 * math.pi * h)), smooth)
        for k in range(m):
            s = max(smooth[k], 0.02)
            gain = h * (s - 1.0) ** 2 / s
            if gain > promised[k]:
                promised[k], width[k], height[k] = gain, h, s
    if avoid >= 0.0:
        for k in range(m):
            if abs(k * angle - avoid) < BAND:
                promised[k] = 0.0
    found = np.empty((FEATURES, 4))
    count = 0
    for slot in range(FEATURES):
        top = np.argmax(promised)
        if not promised[top] > 0.0:
            break
        h = width[top]
        g = h / height[top]
        cosine = math.cos(top * angle)
        found[slot] = tried_pair(power, twiddle, cosine, g, h)
        for zero_factor in ZERO_FACTORS:
            for pole_factor in POLE_FACTORS:
                row = tried_pair(power, twiddle, cosine, g * zero_factor * pole_factor, h * zero_factor)
                if row[0] > found[slot, 0]:
                    found[slot] = row
        count += 1
        taken = int(2.0 * h / angle) + 4
        promised[max(0, top - taken) : top + taken + 1] = 0.0
    order = np.argsort(-found[:count, 0])
    kept: int = min(count, out.shape[0])
    for place in range(kept):
        out[place] = found[order[place]]
    return kept


@kernel
def tried_pair(power: FloatArray, twiddle: FloatArray, cosine: float, g: float, h: float) -> FloatArray:
    """(gain per sample, cosine, pole radius, zero radius) of a pair at these distances from the circle."""
    pole = 1.0 - min(max(g, NEAREST), FARTHEST)
    zero = 1.0 - min(max(h, NEAREST), FARTHEST)
    return np.array([pair_gain(power, twiddle, cosine, pole, zero), cosine, pole, zero])
