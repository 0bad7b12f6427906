"""The Kalman filter on the state of ``state.py``, for series with gaps, with the gradient of its likelihood.

An observed sample reveals s_t[0] + e_t; with F = P[0,0] + 1, v = x − s[0] and k = P[:,0]/F,

    s ← B (s + k v) + K x,    P ← B (P − k k' F) B',

and a missing one only ages the state: s ← A s, P ← A P A' + K K' (Jones 1980). Without gaps P decays to zero at
the rate of the moving-average roots; below ``SETTLED`` it is set to zero and a step costs p + q operations until
the next gap. The gradient is the adjoint of the recursion, run backwards over the stored states: it costs about
twice the filter whatever p + q. Variances are in units of the innovation variance.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import kernel
from shoal.meters.arma.filters import REGISTERS, filter_by_ma, normal_matrix, residuals
from shoal.meters.arma.state import padded, state_factor, state_gradient
from shoal.validation import FloatArray

#: A state variance below this share of the innovation variance is taken for zero.
SETTLED = 1e-15


@kernel
def shifted(column: FloatArray, matrix: FloatArray, out: FloatArray) -> None:
    """out = M P M' for symmetric P and M s = (column_i s[0] + s[i+1])_i."""
    r = column.size
    for i in range(r):
        for j in range(i + 1):
            total = column[i] * column[j] * matrix[0, 0]
            if i + 1 < r:
                total += column[j] * matrix[i + 1, 0]
                if j + 1 < r:
                    total += matrix[i + 1, j + 1]
            if j + 1 < r:
                total += column[i] * matrix[j + 1, 0]
            out[i, j] = total
            out[j, i] = total


@kernel
def shifted_adjoint(column: FloatArray, matrix: FloatArray, out: FloatArray) -> None:
    """out = M' Y M for symmetric Y and the same M."""
    r = column.size
    corner = 0.0
    for j in range(r):
        total = 0.0
        for i in range(r):
            total += column[i] * matrix[i, j]
        corner += total * column[j]
        if j + 1 < r:
            out[0, j + 1] = total
            out[j + 1, 0] = total
    out[0, 0] = corner
    for i in range(r - 1):
        for j in range(r - 1):
            out[i + 1, j + 1] = matrix[i, j]


@kernel
def advance(
    x: float, phi: FloatArray, theta: FloatArray, mean: FloatArray, cov: FloatArray, next_cov: FloatArray
) -> tuple[float, float]:
    """One step, in place; (v, F) of the sample, or (0, −1) where it is missing."""
    r = phi.size
    if math.isnan(x):
        shifted(phi, cov, next_cov)
        first = mean[0]
        for i in range(r):
            mean[i] = phi[i] * first + (mean[i + 1] if i + 1 < r else 0.0)
            for j in range(r):
                cov[i, j] = next_cov[i, j] + (phi[i] + theta[i]) * (phi[j] + theta[j])
        return 0.0, -1.0
    v = x - mean[0]
    if cov[0, 0] == 0.0 and is_settled(cov):
        f = 1.0
    else:
        f = max(cov[0, 0], 0.0) + 1.0
        for i in range(r):
            mean[i] += cov[i, 0] * v / f
        # B (P − k k' F) B' in one pass over the lower triangle; the filtered P has the first column k.
        for i in range(r):
            for j in range(i + 1):
                total = theta[i] * theta[j] * (cov[0, 0] / f)
                if i + 1 < r:
                    total -= theta[j] * (cov[i + 1, 0] / f)
                    if j + 1 < r:
                        total += cov[i + 1, j + 1] - cov[i + 1, 0] * cov[j + 1, 0] / f
                if j + 1 < r:
                    total -= theta[i] * (cov[j + 1, 0] / f)
                next_cov[i, j] = total
        for i in range(r):
            for j in range(i + 1):
                cov[i, j] = next_cov[i, j]
                cov[j, i] = next_cov[i, j]
        if is_settled(cov):
            cov[:, :] = 0.0
    first = mean[0]
    for i in range(r):
        mean[i] = -theta[i] * first + (mean[i + 1] if i + 1 < r else 0.0) + (phi[i] + theta[i]) * x
    return v, f


@kernel
def is_settled(cov: FloatArray) -> bool:
    largest = 0.0
    for i in range(cov.shape[0]):
        largest = max(largest, cov[i, i])
    return largest < SETTLED


@kernel
def run_filter(
    x: FloatArray, ar: FloatArray, ma: FloatArray, mean: FloatArray, cov: FloatArray
) -> tuple[float, float, int]:
    """Filter x from the state given, in place; (Σ v²/F, Σ log F, samples observed)."""
    r = mean.size
    phi, theta = padded(ar, r), padded(ma, r)
    work = np.empty((r, r))
    total, log_det, count = 0.0, 0.0, 0
    for t in range(x.size):
        v, f = advance(x[t], phi, theta, mean, cov, work)
        if f > 0.0:
            total += v * v / f
            log_det += math.log(f)
            count += 1
    return total, log_det, count


@kernel
def stationary_start(ar: FloatArray, ma: FloatArray, mean: FloatArray, cov: FloatArray) -> bool:
    """The state's law before anything was seen; False when ``ar`` is not stationary."""
    r = mean.size
    levinson, factor = np.empty((r, r)), np.empty((r, r))
    if not state_factor(padded(ar, r), padded(ma, r), levinson, factor):
        return False
    mean[:] = 0.0
    cov[:, :] = np.dot(factor, factor.T)
    return True


def gappy_log_likelihood(x: FloatArray, ar: FloatArray, ma: FloatArray, var: float) -> float:
    """Exact Gaussian log-likelihood of a series with NaN where it is missing."""
    r = max(ar.size, ma.size, 1)
    mean, cov = np.empty(r), np.empty((r, r))
    if not stationary_start(ar, ma, mean, cov):
        return -math.inf
    total, log_det, count = run_filter(x, ar, ma, mean, cov)
    return float(-0.5 * (count * math.log(2.0 * math.pi * var) + log_det + total / var))


@kernel
def evaluate_gappy(
    x: FloatArray,
    ar: FloatArray,
    ma: FloatArray,
    gradient: FloatArray,
    normal: FloatArray,
    hessian: FloatArray,
    bound: float,
) -> tuple[float, float]:
    """As ``likelihood.evaluate``, for a series with gaps: exact f, S and gradient.

    The Gauss–Newton matrix is that of the series with each gap filled by its prediction, scaled by the share
    observed; ``hessian`` is the same.
    """
    n, p, q = x.size, ar.size, ma.size
    r = max(p, q, 1)
    phi, theta = padded(ar, r), padded(ma, r)
    levinson, factor = np.empty((r, r)), np.empty((r, r))
    if not state_factor(phi, theta, levinson, factor):
        return math.inf, math.nan
    means, covs = np.zeros((n + 1, r)), np.zeros((n + 1, r, r))
    covs[0] = np.dot(factor, factor.T)
    gaps, spreads = np.empty(n), np.empty(n)
    work = np.empty((r, r))
    total, log_det, count = 0.0, 0.0, 0
    for t in range(n):
        means[t + 1] = means[t]
        covs[t + 1] = covs[t]
        v, f = advance(x[t], phi, theta, means[t + 1], covs[t + 1], work)
        gaps[t], spreads[t] = v, f
        if f > 0.0:
            total += v * v / f
            log_det += math.log(f)
            count += 1
    value = 0.5 * (count * math.log(total) + log_det) if total > 0.0 else math.inf
    if not value < bound:
        return value, total
    scale = count / total
    by_ar, by_ma = np.zeros(r), np.zeros(r)
    start = backward(phi, theta, x, means, covs, gaps, spreads, scale, by_ar, by_ma)
    weighted = np.dot(start, factor)
    state_gradient(phi, theta, levinson, weighted, np.dot(factor.T, weighted), by_ar, by_ma)
    gradient[:p] = by_ar[:p]
    gradient[p:] = by_ma[:q]

    filled = x.copy()
    for t in range(n):
        if spreads[t] < 0.0:
            filled[t] = means[t, 0]
    lead = r + REGISTERS
    b, e, a = np.zeros(lead + n), np.zeros(lead + n), np.zeros(lead + n)
    residuals(filled, ar, ma, lead, b, e)
    filter_by_ma(gaps, ma, lead, n, a)
    normal_matrix(b, a, lead, n, p, q, scale * count / n, normal)
    hessian[:, :] = normal
    return value, total


@kernel
def backward(
    phi: FloatArray,
    theta: FloatArray,
    x: FloatArray,
    means: FloatArray,
    covs: FloatArray,
    gaps: FloatArray,
    spreads: FloatArray,
    scale: float,
    by_ar: FloatArray,
    by_ma: FloatArray,
) -> FloatArray:
    """Adjoint of the filter for f = ½ (n log S + Σ log F); returns ∂f/∂P at the start (symmetric)."""
    n, r = x.size, phi.size
    on_mean, on_cov = np.zeros(r), np.zeros((r, r))
    work, column = np.zeros((r, r)), np.zeros(r)
    moved = np.zeros(r)
    for t in range(n - 1, -1, -1):
        missing = spreads[t] < 0.0
        v, f = gaps[t], spreads[t]
        if not missing and covs[t + 1, 0, 0] == 0.0 and is_settled(covs[t + 1]):
            on_cov[:, :] = 0.0
            if is_settled(covs[t]):
                corner = scale * v
                for i in range(r):
                    by_ma[i] += on_mean[i] * (x[t] - means[t, 0])
                    by_ar[i] += on_mean[i] * x[t]
                    corner += theta[i] * on_mean[i]
                for i in range(r - 1, 0, -1):
                    on_mean[i] = on_mean[i - 1]
                on_mean[0] = -corner
                continue
        if missing:
            for i in range(r):
                column[i] = covs[t, i, 0]
            first = means[t, 0]
            map_column = phi
        else:
            for i in range(r):
                column[i] = covs[t, i, 0] / f
            first = means[t, 0] + column[0] * v
            map_column = -theta
        # through s' = M s_f + …, P' = M P_f M' + …: only the first column of M depends on the coefficients
        for i in range(r):
            moved[i] = map_column[i] * column[0] + (column[i + 1] if i + 1 < r else 0.0)
        for i in range(r):
            total = on_mean[i] * first
            for j in range(r):
                total += 2.0 * on_cov[i, j] * moved[j]
            through = 0.0
            if missing:
                by_ar[i] += total
                for j in range(r):
                    through += 2.0 * on_cov[i, j] * (phi[j] + theta[j])
            else:
                by_ma[i] -= total
                through = on_mean[i] * x[t]
            by_ar[i] += through
            by_ma[i] += through
        corner = 0.0
        for i in range(r):
            corner += map_column[i] * on_mean[i]
        for i in range(r - 1, 0, -1):
            on_mean[i] = on_mean[i - 1]
        on_mean[0] = corner
        shifted_adjoint(map_column, on_cov, work)
        on_cov[:, :] = work
        if missing:
            continue
        # through the update: s_f = s + k v, P_f = P − k k' F, k = P[:, 0]/F, F = P[0, 0] + 1, v = x − s[0]
        on_v = scale * v / f
        on_f = 0.5 / f - 0.5 * scale * v * v / (f * f)
        for i in range(r):
            total = 0.0
            for j in range(r):
                total += on_cov[i, j] * column[j]
            on_v += column[i] * on_mean[i]
            on_f -= column[i] * total
            moved[i] = on_mean[i] * v - 2.0 * f * total
        for i in range(r):
            on_f -= column[i] * moved[i] / f
        for i in range(r):
            on_cov[i, 0] += 0.5 * moved[i] / f
            on_cov[0, i] += 0.5 * moved[i] / f
        on_cov[0, 0] += on_f
        on_mean[0] -= on_v
    return on_cov


def best_variance(x: FloatArray, ar: FloatArray, ma: FloatArray) -> tuple[float, float]:
    """The innovation variance that maximizes the likelihood given the coefficients, S/n, and log L there."""
    r = max(ar.size, ma.size, 1)
    mean, cov = np.empty(r), np.empty((r, r))
    if not stationary_start(ar, ma, mean, cov):
        return math.nan, -math.inf
    total, log_det, count = run_filter(x, ar, ma, mean, cov)
    var = float(total / count)
    return var, float(-0.5 * (count * (math.log(2.0 * math.pi * var) + 1.0) + log_det))
