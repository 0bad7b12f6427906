"""Starting values by regression: Burg and Hannan–Rissanen."""

from __future__ import annotations

import numpy as np

from shoal.compiled import kernel
from shoal.meters.arma.optimize import solve_positive
from shoal.validation import FloatArray


@kernel
def burg(x: FloatArray, order: int) -> FloatArray:
    """AR coefficients by Burg's recursion (1967): always stationary."""
    n = x.size
    forward, backward = x.copy(), x.copy()
    ar, previous = np.zeros(order), np.zeros(order)
    for m in range(order):
        ahead, behind = forward[m + 1 :], backward[m : n - 1]
        energy = np.dot(ahead, ahead) + np.dot(behind, behind)
        k = 2.0 * np.dot(ahead, behind) / energy if energy > 0.0 else 0.0
        previous[:m] = ar[:m]
        for j in range(m):
            ar[j] = previous[j] - k * previous[m - 1 - j]
        ar[m] = k
        for t in range(n - 1, m, -1):
            f = forward[t]
            forward[t] = f - k * backward[t - 1]
            backward[t] = backward[t - 1] - k * f
    return ar


@kernel
def hannan_rissanen(x: FloatArray, p: int, q: int, long_ar: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Regress x on its own lags and on lagged residuals of a long autoregression (Hannan & Rissanen 1982)."""
    n, k, longest = x.size, p + q, long_ar.size
    residual = x.copy()
    for i in range(longest):
        f = long_ar[i]
        for t in range(i + 1, n):
            residual[t] -= f * x[t - 1 - i]
    first = min(longest + max(p, q), n // 2)
    gram, right, out = np.empty((k, k)), np.empty(k), np.zeros(k)
    m = n - first
    target = x[first:]
    for i in range(k):
        one = x[first - 1 - i : first - 1 - i + m] if i < p else residual[first - 1 - i + p : first - 1 - i + p + m]
        right[i] = np.dot(one, target)
        for j in range(i + 1):
            if j < p:
                gram[i, j] = np.dot(one, x[first - 1 - j : first - 1 - j + m])
            else:
                gram[i, j] = np.dot(one, residual[first - 1 - j + p : first - 1 - j + p + m])
            gram[j, i] = gram[i, j]
    for i in range(k):
        gram[i, i] *= 1.0 + 1e-8
    if not solve_positive(gram, right, out):
        out[:] = 0.0
    return out[:p].copy(), out[p:].copy()
