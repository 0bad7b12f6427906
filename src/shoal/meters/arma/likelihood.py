"""Exact Gaussian likelihood of a gap-free series, with gradient, in O(T (p + q)).

Let e⁰ be the residuals that the recursion gives when the past is taken as zero. The past really left a state
s = C z, z ~ N(0, σ²I) (``state.py``), and the true residuals are e = e⁰ − Z C z, where column k of Z is the
response g of 1/θ(B) delayed by k. Integrating z out (Ljung & Box 1979, in the r = max(p, q) coordinates of
the state instead of p + q presample values):

    S = min_z ‖e⁰ − Z C z‖² + ‖z‖²,    log|Σ|/σ^{2T} = log|M|,    M = I + C'G C,    G = Z'Z,
    log L = −T/2 (log 2π + 1 + log(S/T)) − ½ log|M|      at σ² = S/T.

The gradient follows from the envelope theorem. With b = x/θ(B) and a = ê/θ(B), ∂ê_t/∂ar_i = −b_{t−i} and
∂ê_t/∂ma_j = −a_{t−j}, whose lagged products are also the Gauss–Newton matrix; the dependence through
V = C C' has weight W = ½ (G⁻¹ + V)⁻¹ − (T/2S) ww', w = Z'ê, of which only C'W C = ½ (I − M⁻¹) − (T/2S) ẑẑ'
and W C are needed. Only b and a are recursive; the rest are inner products.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import kernel
from shoal.meters.arma.filters import (
    REGISTERS,
    filter_and_response,
    filter_both,
    filter_twice,
    inner_products,
    lagged_products,
    lagged_squares,
    normal_matrix,
    subtract_ripple,
    weighted_lags,
)
from shoal.meters.arma.state import applied, padded, product, state_factor, state_gradient
from shoal.validation import FloatArray


@kernel
def invert_positive(matrix: FloatArray, inverse: FloatArray) -> float:
    """Inverse of a small well-scaled symmetric matrix ≥ I by Cholesky (overwritten); returns log det."""
    n = matrix.shape[0]
    log_det = 0.0
    for j in range(n):
        d = matrix[j, j]
        for k in range(j):
            d -= matrix[j, k] * matrix[j, k]
        if not d > 0.0:
            return math.nan
        d = math.sqrt(d)
        matrix[j, j] = d
        log_det += 2.0 * math.log(d)
        for i in range(j + 1, n):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / d
    root = np.zeros((n, n))
    for j in range(n):
        root[j, j] = 1.0 / matrix[j, j]
        for i in range(j + 1, n):
            total = 0.0
            for k in range(j, i):
                total -= matrix[i, k] * root[k, j]
            root[i, j] = total / matrix[i, i]
    inverse[:, :] = product(root.T, root)
    return log_det


@kernel
def evaluate(
    x: FloatArray,
    ar: FloatArray,
    ma: FloatArray,
    gradient: FloatArray,
    normal: FloatArray,
    hessian: FloatArray,
    bound: float,
) -> tuple[float, float]:
    """(f, S) with f = ½ (T log S + log|M|), the negative profile log-likelihood up to a constant.

    Writes ∂f/∂(ar, ma) and the Gauss–Newton matrix of f, unless f is not below ``bound``.
    """
    n, p, q = x.size, ar.size, ma.size
    r = max(p, q, 1)
    lead = 2 * r + q + REGISTERS
    phi, theta = padded(ar, r), padded(ma, r)
    levinson, factor = np.empty((r, r)), np.empty((r, r))
    if not state_factor(phi, theta, levinson, factor):
        return math.inf, math.nan
    filtered, residual, response = np.empty(lead + n), np.empty(lead + n), np.empty(lead + n)
    filtered[:lead] = 0.0
    residual[:lead] = 0.0
    length = filter_and_response(x, ma, lead, filtered, response)
    weighted_lags(filtered, ar, lead, n, residual)
    reach = min(n, length + lead)
    score = np.empty(r)
    inner_products(residual, lead, response, lead, reach, score)
    gram = lagged_squares(response, lead, reach, 0, r)
    spread = product(gram, factor)
    precision = product(factor.T, spread)
    for k in range(r):
        precision[k, k] += 1.0
    inverse = np.empty((r, r))
    log_det = invert_positive(precision, inverse)
    white = applied(inverse, applied(factor.T, score))
    subtract_ripple(response, applied(factor, white), lead, reach, residual)
    here = residual[lead:]
    total = np.dot(here, here) + np.dot(white, white)
    value = 0.5 * (n * math.log(total) + log_det) if total > 0.0 else math.inf
    if not value < bound:
        return value, total

    scale = n / total
    twice, thrice, again, ahead = np.empty(lead + n), np.empty(lead + n), np.empty(lead + n), np.empty(lead + n)
    for t in range(lead):
        twice[t] = thrice[t] = again[t] = ahead[t] = 0.0
    filter_twice(residual, ma, lead, n, twice, thrice)
    filter_both(filtered, response, ma, lead, n, reach, again, ahead)
    normal_matrix(filtered, twice, lead, n, p, q, scale, normal)
    sums = np.empty(p + 2 * q)
    inner_products(residual, lead, filtered, lead - 1, n, sums[:p])
    inner_products(residual, lead, twice, lead - 1, n, sums[p : p + q])
    for i in range(p + q):
        gradient[i] = -scale * sums[i]

    # second derivatives of the residuals: ∂²e/∂ar_i∂ma_j = (b/θ)_{t−i−j}, ∂²e/∂ma_i∂ma_j = 2 (a/θ)_{t−i−j}
    hessian[:, :] = normal
    if q > 0:
        inner_products(residual, lead, thrice, lead - 2, n, sums[: 2 * q - 1])
        for lag in range(2, 2 * q + 1):
            f = 2.0 * scale * sums[lag - 2]
            for i in range(max(0, lag - 1 - q), min(q, lag - 1)):
                hessian[p + i, p + lag - 2 - i] += f
        if p > 0:
            inner_products(residual, lead, again, lead - 2, n, sums[: p + q - 1])
            for lag in range(2, p + q + 1):
                f = scale * sums[lag - 2]
                for i in range(max(0, lag - 1 - q), min(p, lag - 1)):
                    hessian[i, p + lag - 2 - i] += f
                    hessian[p + lag - 2 - i, i] += f
    for i in range(p + q):
        for j in range(p + q):
            hessian[i, j] -= 2.0 * gradient[i] * gradient[j] / n

    # the determinant: tr(N dG) through the response, tr(W dV) through the stationary covariance
    cross = lagged_products(response, ahead, lead, reach, 0, 1, r, r + q)
    posterior = product(factor, product(inverse, factor.T))
    for j in range(q):
        for k in range(r):
            for l in range(r):
                gradient[p + j] -= posterior[k, l] * cross[l, k + j]

    # the start moves with the coefficients: − E N E', E = −∂²(½S)/∂(ar, ma)∂s
    mixed = np.zeros((p + q, r))
    mixed[:p] = lagged_products(filtered, response, lead, reach, 1, 0, p, r)
    if q > 0:
        mixed[p:] = lagged_products(twice, response, lead, reach, 1, 0, q, r)
        sums = np.empty(q + r - 1)
        inner_products(residual, lead, ahead, lead - 1, reach, sums)
        for lag in range(1, q + r):
            for j in range(max(0, lag - r), min(q, lag)):
                mixed[p + j, lag - 1 - j] += sums[lag - 1]
    hessian -= scale * product(mixed, product(posterior, mixed.T))
    weight = score - applied(spread, white)
    weighted = 0.5 * product(spread, inverse)
    on_white = -0.5 * inverse
    for k in range(r):
        on_white[k, k] += 0.5
        for l in range(r):
            weighted[k, l] -= 0.5 * scale * weight[k] * white[l]
            on_white[k, l] -= 0.5 * scale * white[k] * white[l]
    by_ar, by_ma = np.zeros(r), np.zeros(r)
    state_gradient(phi, theta, levinson, weighted, on_white, by_ar, by_ma)
    for i in range(p):
        gradient[i] += by_ar[i]
    for j in range(q):
        gradient[p + j] += by_ma[j]
    return value, total


def log_likelihood(x: FloatArray, ar: FloatArray, ma: FloatArray, var: float) -> float:
    """Exact Gaussian log-likelihood of a gap-free series at a given innovation variance."""
    k, n = ar.size + ma.size, x.size
    value, total = evaluate(x, ar, ma, np.empty(k), np.empty((k, k)), np.empty((k, k)), -math.inf)
    log_det = 2.0 * value - n * math.log(total)
    return float(-0.5 * (n * math.log(2.0 * math.pi * var) + log_det + total / var))
