"""The state of an ARMA process: what its past contributes to its future, and the law of that.

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
All covariances here are in units of the innovation variance.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.numerics.compiled import kernel
from shoal.validation import FloatArray


@kernel
def state_factor(ar: FloatArray, ma: FloatArray, factor: FloatArray) -> bool:
    """C with V = C C' into ``factor`` (r, r); False when ``ar`` is not stationary.

    Levinson's recursion is run down from order r, giving the best predictors of u of every lower order; u_{t−m} is then
    its prediction from the older ones plus an independent error, which is F. With φ and θ monic of length r + 1,
    L[i, j] = Σ_{m=1}^{min(j+1, r−i)} θ_{i+m} φ_{j+1−m} − φ_{i+m} θ_{j+1−m}.
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
