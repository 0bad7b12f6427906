"""Where the residuals of a model still have structure: a pole–zero pair per peak or notch of their periodogram.

Multiplying a model by (1 − 2ρ' cos ω B + ρ'² B²)/(1 − 2ρ cos ω B + ρ² B²) changes the residual sum of squares,
by Whittle's approximation (1953), to

    Σ_k R_k |1 − 2ρ cos ω z_k + ρ² z_k²|² / |1 − 2ρ' cos ω z_k + ρ'² z_k²|²,    z_k = e^{iω_k},

R the periodogram of the residuals. Both factors are monic with roots outside the circle, so the determinant
does not change and the gain in log-likelihood is ½ T log of the ratio of sums. The residuals are nearly white,
so their periodogram needs no taper.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import kernel
from shoal.meters.arma.filters import residuals
from shoal.validation import FloatArray

#: (pole radius, zero radius) tried at each frequency: peaks from broad to line-like, then notches.
PAIR_RADII = np.array(
    [
        *([0.70, 0.50], [0.90, 0.80], [0.95, 0.90], [0.98, 0.95], [0.99, 0.98], [0.997, 0.99]),
        *([0.50, 0.70], [0.80, 0.90], [0.90, 0.95], [0.95, 0.98], [0.98, 0.99]),
    ]
)


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
    lead = max(ar.size, ma.size)
    b, e = np.zeros(lead + x.size), np.zeros(lead + x.size)
    residuals(x, ar, ma, lead, b, e)
    power = power_spectrum(e[lead:], twiddle)
    scaled: FloatArray = power / power.sum()
    return scaled


@kernel
def pair_gain(power: FloatArray, twiddle: FloatArray, cosine: float, pole: float, zero: float) -> float:
    """Log-likelihood gain per sample, ½ log of the ratio of sums, of a pair at angle arccos(cosine)."""
    half = power.size - 1
    a0 = 1.0 + 4.0 * pole**2 * cosine**2 + pole**4 - 2.0 * pole**2
    a1 = -4.0 * pole * cosine * (1.0 + pole**2)
    a2 = 4.0 * pole**2
    b0 = 1.0 + 4.0 * zero**2 * cosine**2 + zero**4 - 2.0 * zero**2
    b1 = -4.0 * zero * cosine * (1.0 + zero**2)
    b2 = 4.0 * zero**2
    after = 0.0
    for k in range(half):
        c = twiddle[0, k]
        after += power[k] * (a0 + c * (a1 + c * a2)) / (b0 + c * (b1 + c * b2))
    after += power[half] * (a0 - a1 + a2) / (b0 - b1 + b2)
    return -0.5 * math.log(after)


@kernel
def grid_cosine(twiddle: FloatArray, position: int) -> float:
    return float(twiddle[0, position]) if position < twiddle.shape[1] else -1.0


@kernel
def best_pairs(power: FloatArray, twiddle: FloatArray, n_peaks: int, out: FloatArray) -> int:
    """Rows (gain, cosine, pole radius, zero radius) of ``out``, best first; returns how many were found.

    Candidates are the highest peaks and, in the last third, the deepest notches of the smoothed periodogram.
    """
    m = power.size
    width = max(1, m // 400)
    smooth = np.empty(m)
    for k in range(m):
        low, high = max(0, k - width), min(m, k + width + 1)
        smooth[k] = power[low:high].mean()
    found = np.empty((n_peaks, 4))
    taken = np.zeros(m, dtype=np.bool_)
    count = 0
    for slot in range(n_peaks):
        notch = 3 * slot >= 2 * n_peaks
        top = -1
        for k in range(m):
            if not taken[k] and (top < 0 or (smooth[k] < smooth[top] if notch else smooth[k] > smooth[top])):
                top = k
        if top < 0:
            break
        taken[max(0, top - 3 * width) : min(m, top + 3 * width + 1)] = True
        cosine = grid_cosine(twiddle, top)
        found[slot, 0] = -math.inf
        for row in range(PAIR_RADII.shape[0]):
            pole, zero = PAIR_RADII[row, 0], PAIR_RADII[row, 1]
            if (pole < zero) == notch:
                gain = pair_gain(power, twiddle, cosine, pole, zero)
                if gain > found[slot, 0]:
                    found[slot] = np.array([gain, cosine, pole, zero])
        count += 1
    order = np.argsort(-found[:count, 0])
    kept: int = min(count, out.shape[0])
    for row in range(kept):
        out[row] = found[order[row]]
    return kept
