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
Its derivative uses the explicit inverse (F F')⁻¹ = T₁T₁' − T₂T₂' (Siddiqui 1958).
All covariances here are in units of the innovation variance.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import kernel
from shoal.validation import FloatArray


@kernel
def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """left @ right, for matrices so small that a call of BLAS would take longer."""
    rows, inner, cols = left.shape[0], left.shape[1], right.shape[1]
    out = np.zeros((rows, cols))
    for i in range(rows):
        for k in range(inner):
            f = left[i, k]
            for j in range(cols):
                out[i, j] += f * right[k, j]
    return out


@kernel
def applied(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """matrix @ vector, the same."""
    out = np.zeros(matrix.shape[0])
    for i in range(matrix.shape[0]):
        for k in range(vector.size):
            out[i] += matrix[i, k] * vector[k]
    return out


@kernel
def padded(c: FloatArray, r: int) -> FloatArray:
    out = np.zeros(r)
    out[: c.size] = c
    return out


@kernel
def monic(c: FloatArray, sign: float) -> FloatArray:
    """(1, sign·c_1, …, sign·c_r)."""
    out = np.ones(c.size + 1)
    out[1:] = sign * c
    return out


@kernel
def levinson_factor(ar: FloatArray, out: FloatArray) -> bool:
    """F with F F' = Cov(u_{t−1}, …, u_{t−r})/σ²; False when ``ar`` is not stationary.

    The recursion is run down from order r, giving the best predictors of every lower order; u_{t−m} is then
    its prediction from the older ones plus an independent error.
    """
    r = ar.size
    lower = np.zeros((r + 1, r))
    error = np.ones(r + 1)
    lower[r] = ar
    for m in range(r, 0, -1):
        k = lower[m, m - 1]
        if not abs(k) < 1.0:
            return False
        scale = 1.0 / ((1.0 - k) * (1.0 + k))
        error[m - 1] = error[m] * scale
        for j in range(m - 1):
            lower[m - 1, j] = (lower[m, j] + k * lower[m, m - 2 - j]) * scale
    out[:, :] = 0.0
    for m in range(r):
        row = r - 1 - m
        for j in range(m):
            c = lower[m, j]
            for k in range(row + 1 + j, r):
                out[row, k] += c * out[row + 1 + j, k]
        out[row, row] = math.sqrt(error[m])
    return True


@kernel
def bezout(phi: FloatArray, theta: FloatArray) -> FloatArray:
    """L[i, j] = Σ_{m=1}^{min(j+1, r−i)} θ_{i+m} φ_{j+1−m} − φ_{i+m} θ_{j+1−m}, both monic of length r + 1."""
    r = phi.size - 1
    out = np.zeros((r, r))
    for i in range(r):
        for j in range(r):
            for m in range(1, min(j + 1, r - i) + 1):
                out[i, j] += theta[i + m] * phi[j + 1 - m] - phi[i + m] * theta[j + 1 - m]
    return out


@kernel
def state_factor(ar: FloatArray, ma: FloatArray, levinson: FloatArray, factor: FloatArray) -> bool:
    """F and C = L F, of padded coefficients; False when ``ar`` is not stationary."""
    if not levinson_factor(ar, levinson):
        return False
    factor[:, :] = product(bezout(monic(ar, -1.0), monic(ma, 1.0)), levinson)
    return True


@kernel
def state_gradient(
    ar: FloatArray,
    ma: FloatArray,
    levinson: FloatArray,
    weighted: FloatArray,
    white: FloatArray,
    grad_ar: FloatArray,
    grad_ma: FloatArray,
) -> None:
    """Add ∂ tr(W V)/∂(ar, ma), for a constant symmetric W, to the padded gradients.

    ``weighted`` = W C and ``white`` = C'W C. With Q = W C F' and U = F white F':
    tr(W dV) = 2 Σ Q ∘ dL − tr(U d(T₁T₁' − T₂T₂')).
    """
    r = ar.size
    phi, theta = monic(ar, -1.0), monic(ma, 1.0)
    on_bezout = product(weighted, levinson.T)
    by_phi, by_theta = np.zeros(r + 1), np.zeros(r + 1)
    for i in range(r):
        for j in range(r):
            f = 2.0 * on_bezout[i, j]
            for m in range(1, min(j + 1, r - i) + 1):
                by_theta[i + m] += f * phi[j + 1 - m]
                by_phi[j + 1 - m] += f * theta[i + m]
                by_phi[i + m] -= f * theta[j + 1 - m]
                by_theta[j + 1 - m] -= f * phi[i + m]
    on_cov = product(levinson, product(white, levinson.T))
    for i in range(r):
        for j in range(i + 1):
            one, two = 0.0, 0.0
            for k in range(j, r):
                one += on_cov[i, k] * phi[k - j]
                two += on_cov[i, k] * phi[r - k + j]
            by_phi[i - j] -= 2.0 * one
            by_phi[r - i + j] += 2.0 * two
    for i in range(r):
        grad_ar[i] -= by_phi[i + 1]
        grad_ma[i] += by_theta[i + 1]
