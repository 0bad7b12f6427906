"""The search for one model: which coefficients may be tried, where to start, and steps that raise the likelihood.

A polynomial 1 − c_1 B − … − c_p B^p has all its roots outside the unit circle exactly when its partial
autocorrelations r_1 … r_p lie in (−1, 1) (Barndorff-Nielsen & Schou 1973); the Durbin–Levinson recursion

    c_{k,k} = r_k,    c_{k,j} = c_{k−1,j} − r_k c_{k−1,k−j},    j < k

maps one to the other. The moving average 1 + Σ ma_j B^j has c = −ma.

The start is by regression: Burg, then Hannan–Rissanen. Then come Gauss–Newton steps on the innovations of the Kalman
filter, each taken only if it raises the exact likelihood and stays stationary and invertible.

The objective f = ½ (n log S + log|Σ|/σ^{2n}), S = Σ z² (``profile_likelihood``), is a sum of squares in all but O(1) of
its O(n) size. With J the derivatives of z that the filter gives, a step solves (J'J + λ diag J'J) δ = −J'z (Levenberg–
Marquardt; λ by the gain ratio: Nielsen 1999). J leaves out what is zero in expectation, so the search ends near the
maximum next to its start, mostly within a fraction of a nat; the estimate itself is uncertain by (p + q)/2 nats there.
Least squares are written out: at a dozen unknowns a call of BLAS costs more than it saves.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.arma.likelihood import profile_likelihood
from shoal.numerics.compilation import kernel, summing_kernel
from shoal.validation import FloatArray

#: A start may not sit closer to the boundary than this partial autocorrelation.
START_LIMIT = 0.9999

#: Order of the long autoregression whose residuals stand for the innovations; an eighth of a short series.
LONG_ORDER = 24

#: Relative ridge that keeps the normal equations solvable.
RIDGE = 1e-8

#: Nats: a step that promises less ends the search.
TOLERANCE = 0.1

#: Evaluations of the likelihood at most.
EVALUATIONS = 40

#: Damping to start with; up to which a small promise is that of the model, not of the damping; beyond which it is over.
FIRST_DAMPING, LIGHT_DAMPING, MOST_DAMPING = 1e-2, 0.1, 1e6


@kernel
def largest_partial_autocorrelation(c: FloatArray) -> float:
    """Return max |r_k| of the polynomial c; at least 1 where it is not stable.

    The recursion is run backwards and broken off at the first that is not below one.
    """
    work, copy = c.copy(), c.copy()
    largest: float = 0.0
    for m in range(c.size - 1, -1, -1):
        r = work[m]
        largest = max(largest, abs(r))
        if not abs(r) < 1.0:
            return max(largest, 1.0)
        scale = 1.0 / (1.0 - r * r)
        for j in range(m):
            copy[j] = work[j]
        for j in range(m):
            work[j] = (copy[j] + r * copy[m - 1 - j]) * scale
    return largest


@kernel
def is_stationary_and_invertible(coef: FloatArray, p: int) -> bool:
    """Whether the model with coef = (ar, ma), p of them ar, is stationary and invertible."""
    ma = coef[p:].copy()
    for j in range(ma.size):
        ma[j] = -ma[j]
    return bool(largest_partial_autocorrelation(coef[:p]) < 1.0 and largest_partial_autocorrelation(ma) < 1.0)


@kernel
def shrink_until_stable(c: FloatArray) -> None:
    """Replace c_j by c_j s^j, in place, for the first s = 1, 0.995, … at which all |r| ≤ START_LIMIT.

    That moves every root out by 1/s.
    """
    shrunk = c.copy()
    scale = 1.0
    while largest_partial_autocorrelation(shrunk) > START_LIMIT:
        scale *= 0.995 if scale > 0.9 else 0.95
        power = 1.0 if scale > 1e-3 else 0.0
        for j in range(c.size):
            power *= scale
            shrunk[j] = c[j] * power
    for j in range(c.size):
        c[j] = shrunk[j]


@summing_kernel
def normal_equations(rows: FloatArray, target: FloatArray, normal: FloatArray, right: FloatArray) -> None:
    """Set normal = Σ_t rows_t rows_t' and right = Σ_t rows_t target_t over the columns t of rows (k, T)."""
    n = target.size
    for i in range(right.size):
        one = rows[i]
        total = 0.0
        for t in range(n):
            total += one[t] * target[t]
        right[i] = total
        for j in range(i + 1):
            two = rows[j]
            total = 0.0
            for t in range(n):
                total += one[t] * two[t]
            normal[i, j] = normal[j, i] = total


@kernel
def solve_positive_definite(matrix: FloatArray, right: FloatArray, out: FloatArray) -> bool:
    """Set out = matrix⁻¹ right by Cholesky (matrix overwritten); False when it is not positive definite."""
    n = right.size
    for j in range(n):
        d = matrix[j, j]
        for k in range(j):
            d -= matrix[j, k] * matrix[j, k]
        if not d > 0.0:
            return False
        d = math.sqrt(d)
        matrix[j, j] = d
        for i in range(j + 1, n):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / d
    for i in range(n):
        total = right[i]
        for k in range(i):
            total -= matrix[i, k] * out[k]
        out[i] = total / matrix[i, i]
    for i in range(n - 1, -1, -1):
        total = out[i]
        for k in range(i + 1, n):
            total -= matrix[k, i] * out[k]
        out[i] = total / matrix[i, i]
    return True


@summing_kernel
def burg_residuals(x: FloatArray, order: int) -> FloatArray:
    """Return the residuals of an autoregression by Burg's recursion (1967); the first ``order`` are of lower orders."""
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
def hannan_rissanen_start(x: FloatArray, p: int, q: int) -> FloatArray:
    """Return (ar, ma), made stable, from x on its own lags and lagged residuals of a long autoregression.

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
    normal_equations(rows, x[first:], normal, right)
    for i in range(k):
        normal[i, i] *= 1.0 + RIDGE
    if not solve_positive_definite(normal, right, coef):
        return np.zeros(k)
    for j in range(p, k):
        coef[j] = -coef[j]
    shrink_until_stable(coef[:p])
    shrink_until_stable(coef[p:])
    for j in range(p, k):
        coef[j] = -coef[j]
    return coef


@kernel
def maximize_likelihood(x: FloatArray, coef: FloatArray, p: int) -> tuple[float, bool]:
    """Descend from ``coef`` = (ar, ma) to a minimum of f, in place; (f, whether no step promises ``TOLERANCE``).

    f is the negative log-likelihood of :func:`profile_likelihood`.
    """
    n, k = x.size, coef.size
    z, slopes = np.empty(n), np.empty((k, n))
    normal, slope, system = np.empty((k, k)), np.empty(k), np.empty((k, k))
    step, trial = np.empty(k), coef.copy()
    value, total, count = profile_likelihood(x, coef, p, z, slopes)
    damping, growth, moved = FIRST_DAMPING, 2.0, True
    used = 1
    while used < EVALUATIONS and damping < MOST_DAMPING and value < math.inf:
        if moved:
            for t in range(n):
                z[t] = 0.0 if math.isnan(z[t]) else z[t]
            normal_equations(slopes, z, normal, slope)
            moved = False
        for i in range(k):
            for j in range(k):
                system[i, j] = normal[i, j]
            system[i, i] += damping * normal[i, i] + 1e-9 * total
        promised = 0.0
        if solve_positive_definite(system, slope, step):
            for i in range(k):
                trial[i] = coef[i] - step[i]
                promised += 0.5 * slope[i] * step[i] * count / total
            if promised < TOLERANCE:
                return value, damping <= LIGHT_DAMPING
        if not (promised > 0.0 and is_stationary_and_invertible(trial, p)):
            damping *= 4.0
            continue
        reached, at_trial, _ = profile_likelihood(x, trial, p, z, slopes)
        used += 1
        if reached < value:
            gain = (value - reached) / promised
            damping = max(damping * max(0.1, 1.0 - (2.0 * gain - 1.0) ** 3), 1e-9)
            growth = 2.0
            for i in range(k):
                coef[i] = trial[i]
            value, total, moved = reached, at_trial, True
        else:
            damping *= growth
            growth *= 2.0
    return value, False
