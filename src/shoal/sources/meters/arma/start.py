"""Starting values by regression: Burg and Hannan–Rissanen."""

from __future__ import annotations

import numpy as np

from shoal.numerics.compiled import kernel, summing
from shoal.sources.meters.arma.parameters import pull_in
from shoal.sources.meters.arma.regression import products, solve_positive
from shoal.validation import FloatArray

#: Order of the long autoregression whose residuals stand for the innovations; an eighth of a short series.
LONG_ORDER = 24

#: Relative ridge that keeps the normal equations solvable.
RIDGE = 1e-8


@summing
def burg_residuals(x: FloatArray, order: int) -> FloatArray:
    """Residuals of an autoregression by Burg's recursion (1967); the first ``order`` are of lower orders."""
    n = x.size
    forward, backward = x.copy(), x.copy()
    for m in range(order):
        energy, cross = 0.0, 0.0
        for t in range(m + 1, n):
            energy += forward[t] * forward[t] + backward[t - 1] * backward[t - 1]
            cross += forward[t] * backward[t - 1]
        k = 2.0 * cross / energy if energy > 0.0 else 0.0
        for t in range(n - 1, m, -1):
            ahead = forward[t]
            forward[t] = ahead - k * backward[t - 1]
            backward[t] = backward[t - 1] - k * ahead
    return forward


@kernel
def regression_start(x: FloatArray, p: int, q: int) -> FloatArray:
    """(ar, ma), pulled in to be stable, from x on its own lags and lagged residuals of a long autoregression.

    Hannan & Rissanen (1982); x has no gaps.
    """
    n, k = x.size, p + q
    long_order = min(LONG_ORDER, max(1, n // 8))
    residual = burg_residuals(x, long_order)
    first = max(min(long_order + max(p, q), n // 2), max(p, q))
    rows, normal, right, coef = np.empty((k, n - first)), np.empty((k, k)), np.empty(k), np.zeros(k)
    for i in range(k):
        lag = i + 1 if i < p else i + 1 - p
        source = x if i < p else residual
        for t in range(first, n):
            rows[i, t - first] = source[t - lag]
    products(rows, x[first:], normal, right)
    for i in range(k):
        normal[i, i] *= 1.0 + RIDGE
    if not solve_positive(normal, right, coef):
        return np.zeros(k)
    for j in range(p, k):
        coef[j] = -coef[j]
    pull_in(coef[:p])
    pull_in(coef[p:])
    for j in range(p, k):
        coef[j] = -coef[j]
    return coef
