"""The state of an ARMA process, what its past contributes to its future, and the exact likelihood by filtering it.

With r = max(p, q, 1), the entry s_t[i] is the part of x_{t+i} that the samples and innovations before t
contribute directly,

    s_t[i] = Σ_{k>i} (ar_k x_{t+i−k} + ma_k e_{t+i−k}),    x_t = s_t[0] + e_t,    s_{t+1} = A s_t + K e_t,

A s = (ar_i s[0] + s[i+1])_i and K = ar + ma, both padded with zeros to length r (Pearlman 1980; the form of
Harvey 1989 has max(p, q + 1) states). Once x_t is seen, e_t = x_t − s_t[0] leaves

    s_{t+1} = B s_t + K x_t,    B s = (−ma_i s[0] + s[i+1])_i,

so uncertainty about the state dies out at the rate of the moving-average roots.

The stationary covariance V = Cov(s_t)/σ² is factored without solving for it. Write x = θ(B) u with
φ(B) u = e: then s_t = L (u_{t−1}, …, u_{t−r})', L the Bezout matrix of φ and θ, and the autoregression u has
the Cholesky factor F that Levinson's recursion gives, so V = C C' with C = L F. Nothing is subtracted, and
V is positive semidefinite to the last bit however close the roots are to the circle or to each other.

The Kalman filter on that state gives the exact likelihood and the innovations of a series, with gaps or without. An
observed sample reveals s_t[0] + e_t; with F = P[0,0] + 1, v = x − s[0] and k = P[:,0]/F,

    s ← B (s + k v) + K x,    P ← B (P − k k' F) B',

and a missing one only ages the state: s ← A s, P ← A P A' + K K' (Jones 1980). Without gaps P decays to zero at
the rate of the moving-average roots; below ``SETTLED`` it is set to zero and a step costs p + q operations until
the next gap. All covariances here are in units of the innovation variance.

The derivatives of the innovations by the coefficients follow s: with k and F held fixed, ds ← M ds + (what the entry of
ar or ma multiplies), M the map above. What k and F would add is uncorrelated with the innovations under the model, so
Σ (v/F) dv is zero in expectation at the true coefficients, with gaps or without.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.numerics.compilation import kernel
from shoal.validation import FloatArray

#: A state variance below this share of the innovation variance is taken for zero.
SETTLED = 1e-15

#: A product of variances above this is turned into its logarithm before it overflows.
LARGE = 1e200


@kernel
def state_covariance_factor(ar: FloatArray, ma: FloatArray, factor: FloatArray) -> bool:
    """Write C with V = C C', V the stationary covariance, to ``factor`` (r, r); False if ``ar`` is not stationary.

    Levinson's recursion is run down from order r, giving the best predictors of u of every lower order; u_{t−m} is then
    its prediction from the older ones plus an independent error, which is F. With φ and θ monic of length r + 1, L[i,
    j] = Σ_{m=1}^{min(j+1, r−i)} θ_{i+m} φ_{j+1−m} − φ_{i+m} θ_{j+1−m}.
    """
    r, p, q = factor.shape[0], ar.size, ma.size
    phi, theta = np.zeros(r + 1), np.zeros(r + 1)
    phi[0] = theta[0] = 1.0
    lower, error = np.zeros((r + 1, r)), np.ones(r + 1)
    for i in range(p):
        phi[i + 1] = -ar[i]
        lower[r, i] = ar[i]
    for j in range(q):
        theta[j + 1] = ma[j]
    for m in range(r, 0, -1):
        k = lower[m, m - 1]
        if not abs(k) < 1.0:
            return False
        scale = 1.0 / ((1.0 - k) * (1.0 + k))
        error[m - 1] = error[m] * scale
        for j in range(m - 1):
            lower[m - 1, j] = (lower[m, j] + k * lower[m, m - 2 - j]) * scale
    levinson = np.zeros((r, r))
    for m in range(r):
        row = r - 1 - m
        for j in range(m):
            for k in range(row + 1 + j, r):
                levinson[row, k] += lower[m, j] * levinson[row + 1 + j, k]
        levinson[row, row] = math.sqrt(error[m])
    for i in range(r):
        for k in range(r):
            factor[i, k] = 0.0
        for j in range(r):
            bezout = 0.0
            for m in range(1, min(j + 1, r - i) + 1):
                bezout += theta[i + m] * phi[j + 1 - m] - phi[i + m] * theta[j + 1 - m]
            for k in range(j, r):
                factor[i, k] += bezout * levinson[j, k]
    return True


@kernel
def set_stationary_law(ar: FloatArray, ma: FloatArray, mean: FloatArray, cov: FloatArray) -> bool:
    """Write the state's mean and covariance before anything was seen; False when ``ar`` is not stationary."""
    r = mean.size
    factor = np.empty((r, r))
    if not state_covariance_factor(ar, ma, factor):
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
def run_kalman_filter(
    x: FloatArray, ar: FloatArray, ma: FloatArray, mean: FloatArray, cov: FloatArray, z: FloatArray, slopes: FloatArray
) -> tuple[float, float, int]:
    """Filter x from the state's mean and covariance, in place; return (Σ v²/F, Σ log F, samples observed).

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
def profile_likelihood(
    x: FloatArray, coef: FloatArray, p: int, z: FloatArray, slopes: FloatArray
) -> tuple[float, float, int]:
    """Return (f, S, n) for coef = (ar, ma), from the stationary law; z and slopes as :func:`run_kalman_filter`.

    f = ½ (n log S + log|Σ|/σ^{2n}) is the exact negative log-likelihood of the n observed samples with the variance
    profiled out, up to a constant; infinite when ``ar`` is not stationary.
    """
    r = max(p, coef.size - p, 1)
    mean, cov = np.empty(r), np.empty((r, r))
    if not set_stationary_law(coef[:p], coef[p:], mean, cov):
        return math.inf, math.nan, 0
    total, log_det, count = run_kalman_filter(x, coef[:p], coef[p:], mean, cov, z, slopes)
    if not total > 0.0:
        return math.inf, total, count
    return 0.5 * (count * math.log(total) + log_det), total, count


def best_innovation_variance(x: FloatArray, coef: FloatArray, p: int) -> tuple[float, float]:
    """Return the innovation variance S/n that maximizes the likelihood given the coefficients, and log L there."""
    value, total, count = profile_likelihood(x, coef, p, np.empty(x.size), np.empty((0, x.size)))
    if not math.isfinite(value):
        return math.nan, -math.inf
    return float(total / count), float(-value - 0.5 * count * (math.log(2.0 * math.pi / count) + 1.0))
