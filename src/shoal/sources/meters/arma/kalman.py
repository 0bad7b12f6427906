"""The Kalman filter on the state of ``state.py``: exact likelihood and innovations of a series, with gaps or without.

An observed sample reveals s_t[0] + e_t; with F = P[0,0] + 1, v = x − s[0] and k = P[:,0]/F,

    s ← B (s + k v) + K x,    P ← B (P − k k' F) B',

and a missing one only ages the state: s ← A s, P ← A P A' + K K' (Jones 1980). Without gaps P decays to zero at
the rate of the moving-average roots; below ``SETTLED`` it is set to zero and a step costs p + q operations until
the next gap. Variances are in units of the innovation variance.

The derivatives of the innovations by the coefficients follow s: with k and F held fixed, ds ← M ds + (what the entry of
ar or ma multiplies), M the map above. What k and F would add is uncorrelated with the innovations under the model, so
Σ (v/F) dv is zero in expectation at the true coefficients, with gaps or without.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.numerics.compiled import kernel
from shoal.sources.meters.arma.state import state_factor
from shoal.validation import FloatArray

#: A state variance below this share of the innovation variance is taken for zero.
SETTLED = 1e-15

#: A product of variances above this is turned into its logarithm before it overflows.
LARGE = 1e200


@kernel
def stationary_start(ar: FloatArray, ma: FloatArray, mean: FloatArray, cov: FloatArray) -> bool:
    """The state's law before anything was seen; False when ``ar`` is not stationary."""
    r = mean.size
    factor = np.empty((r, r))
    if not state_factor(ar, ma, factor):
        return False
    for i in range(r):
        mean[i] = 0.0
        for j in range(i + 1):
            total = 0.0
            for k in range(r):
                total += factor[i, k] * factor[j, k]
            cov[i, j] = cov[j, i] = total
    return True


@kernel
def run_filter(
    x: FloatArray, ar: FloatArray, ma: FloatArray, mean: FloatArray, cov: FloatArray, z: FloatArray, slopes: FloatArray
) -> tuple[float, float, int]:
    """Filter x from the state given, in place; (Σ v²/F, Σ log F, samples observed).

    The standardized innovations v/√F go to ``z``, NaN where a sample is missing; their derivatives by (ar, ma) to the
    rows of ``slopes``, zero where one is missing, unless it has no rows.
    """
    r, p, q, k = mean.size, ar.size, ma.size, slopes.shape[0]
    phi, theta, gain = np.zeros(r), np.zeros(r), np.zeros(r)
    for i in range(p):
        phi[i] = ar[i]
    for j in range(q):
        theta[j] = ma[j]
    for i in range(r):
        gain[i] = phi[i] + theta[i]
    column, image = np.zeros(r + 1), np.zeros(r)
    moved, top = np.zeros((r + 1, k)), np.zeros(k)
    settled = False
    total, log_det, product, count = 0.0, 0.0, 1.0, 0
    for t in range(x.size):
        missing = math.isnan(x[t])
        f, v, scale = 0.0, 0.0, 0.0
        if missing:
            settled = False
            z[t] = math.nan
            for i in range(r):
                column[i], image[i] = cov[i, 0], phi[i]
        else:
            v = x[t] - mean[0]
            count += 1
            f = 1.0 if settled else max(cov[0, 0], 0.0) + 1.0
            scale = 1.0 / math.sqrt(f)
            z[t] = v * scale
            total += v * v / f
            if not settled:
                product *= f
                if product > LARGE:
                    log_det += math.log(product)
                    product = 1.0
                for i in range(r):
                    column[i], image[i] = cov[i, 0] / f, -theta[i]
        if k > 0:
            first = mean[0] if missing else x[t]
            rest = v - column[0] * v
            for c in range(k):
                top[c] = moved[0, c]
                slopes[c, t] = -scale * top[c]
            for i in range(r):
                weight = phi[i] if missing else -theta[i] * (1.0 - column[0]) - column[i + 1]
                for c in range(k):
                    moved[i, c] = moved[i + 1, c] + weight * top[c]
            for i in range(p):
                moved[i, i] += first
            if not missing:
                for j in range(q):
                    moved[j, p + j] += rest
        if not settled:
            # M (P − k k' F) M', M s = (image_i s[0] + s[i+1])_i, in place: the first column of P − k k' F is k itself.
            # A gap has F = 0, ``column`` = P[:, 0] and adds K K'. Only the lower triangle is kept up.
            largest = 0.0
            for i in range(r):
                mean[i] += column[i] * v
                for j in range(i + 1):
                    value = image[i] * image[j] * column[0] + image[j] * column[i + 1] + image[i] * column[j + 1]
                    if i + 1 < r:
                        value += cov[i + 1, j + 1] - f * column[i + 1] * column[j + 1]
                    cov[i, j] = value + gain[i] * gain[j] if missing else value
                largest = max(largest, cov[i, i])
            settled = largest < SETTLED
            if settled:
                for i in range(r):
                    column[i] = 0.0
                    for j in range(i + 1):
                        cov[i, j] = 0.0
        first = mean[0]
        for i in range(r):
            following = mean[i + 1] if i + 1 < r else 0.0
            mean[i] = phi[i] * first + following if missing else following - theta[i] * first + gain[i] * x[t]
    for i in range(r):
        for j in range(i):
            cov[j, i] = cov[i, j]
    return total, log_det + math.log(product), count


@kernel
def profile(x: FloatArray, coef: FloatArray, p: int, z: FloatArray, slopes: FloatArray) -> tuple[float, float, int]:
    """(f, S, n) for coef = (ar, ma), and what :func:`run_filter` writes, from the stationary law.

    f = ½ (n log S + log|Σ|/σ^{2n}) is the exact negative log-likelihood of the n observed samples with the variance
    profiled out, up to a constant; infinite when ``ar`` is not stationary.
    """
    r = max(p, coef.size - p, 1)
    mean, cov = np.empty(r), np.empty((r, r))
    if not stationary_start(coef[:p], coef[p:], mean, cov):
        return math.inf, math.nan, 0
    total, log_det, count = run_filter(x, coef[:p], coef[p:], mean, cov, z, slopes)
    if not total > 0.0:
        return math.inf, total, count
    return 0.5 * (count * math.log(total) + log_det), total, count


def log_likelihood(x: FloatArray, ar: FloatArray, ma: FloatArray, var: float) -> float:
    """Exact Gaussian log-likelihood of the observed samples, NaN where one is missing; −∞ when not stationary."""
    value, total, count = profile(x, np.concatenate([ar, ma]), ar.size, np.empty(x.size), np.empty((0, x.size)))
    if not math.isfinite(value):
        return -math.inf
    return float(-value - 0.5 * (count * math.log(2.0 * math.pi * var / total) + total / var))


def best_variance(x: FloatArray, coef: FloatArray, p: int) -> tuple[float, float]:
    """The innovation variance that maximizes the likelihood given the coefficients, S/n, and log L there."""
    value, total, count = profile(x, coef, p, np.empty(x.size), np.empty((0, x.size)))
    if not math.isfinite(value):
        return math.nan, -math.inf
    return float(total / count), float(-value - 0.5 * count * (math.log(2.0 * math.pi / count) + 1.0))
