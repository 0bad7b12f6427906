"""Stationary and invertible by construction: partial autocorrelations as coordinates.

A polynomial 1 − c_1 B − … − c_p B^p has all its roots outside the unit circle exactly when its partial
autocorrelations r_1 … r_p lie in (−1, 1) (Barndorff-Nielsen & Schou 1973); the Durbin–Levinson recursion

    c_{k,k} = r_k,    c_{k,j} = c_{k−1,j} − r_k c_{k−1,k−j},    j < k

maps one to the other. With r = tanh(u) the coordinates u are unconstrained (Jones 1980; Monahan 1984). The
moving average uses the same map with the sign turned: 1 + Σ ma_j B^j, ma = −c.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.compiled import kernel
from shoal.validation import FloatArray

#: Bound on the free coordinates: |r| ≤ tanh(8), that is 1 − |r| ≥ 2.2e-7.
COORDINATE_LIMIT = 8.0

#: A start may not sit closer to the boundary than this partial autocorrelation.
START_LIMIT = 0.9999


@kernel
def coefficients(free: FloatArray, jacobian: FloatArray) -> FloatArray:
    """c(u) and its Jacobian ∂c_j/∂u_m, written into ``jacobian`` (k, k)."""
    k = free.size
    c = np.zeros(k)
    previous = np.zeros(k)
    previous_jacobian = np.zeros((k, k))
    for m in range(k):
        r = math.tanh(free[m])
        slope = 1.0 - r * r
        for j in range(m):
            previous[j] = c[j]
            for i in range(m):
                previous_jacobian[j, i] = jacobian[j, i]
        for j in range(m):
            c[j] = previous[j] - r * previous[m - 1 - j]
            for i in range(m):
                jacobian[j, i] = previous_jacobian[j, i] - r * previous_jacobian[m - 1 - j, i]
            jacobian[j, m] = -slope * previous[m - 1 - j]
        c[m] = r
        for i in range(m):
            jacobian[m, i] = 0.0
        jacobian[m, m] = slope
    return c


@kernel
def partials(c: FloatArray, r: FloatArray) -> bool:
    """Partial autocorrelations of c into ``r``, by the recursion run backwards; False when not stationary."""
    work = c.copy()
    copy = c.copy()
    for m in range(c.size - 1, -1, -1):
        r[m] = work[m]
        if not abs(r[m]) < 1.0:
            return False
        scale = 1.0 / (1.0 - r[m] * r[m])
        for j in range(m):
            copy[j] = work[j]
        for j in range(m):
            work[j] = (copy[j] + r[m] * copy[m - 1 - j]) * scale
    return True


@kernel
def is_stable(c: FloatArray) -> bool:
    """Whether 1 − Σ c_j B^j has all its roots outside the unit circle."""
    return bool(partials(c, np.empty(c.size)))


@kernel
def pulled_in(c: FloatArray) -> FloatArray:
    """c itself when stable with |r| ≤ ``START_LIMIT``, else c_j s^j, which moves every root out by 1/s."""
    r = np.empty(c.size)
    shrunk = c.copy()
    scale = 1.0
    while scale > 1e-3:
        if partials(shrunk, r) and (c.size == 0 or np.abs(r).max() <= START_LIMIT):
            return shrunk
        scale *= 0.995 if scale > 0.9 else 0.95
        power = 1.0
        for j in range(c.size):
            power *= scale
            shrunk[j] = c[j] * power
    return np.zeros(c.size)


@kernel
def free_coordinates(c: FloatArray, limit: float) -> FloatArray:
    """u with c(u) = c, |r| bounded by ``limit``; an unstable c is pulled in first."""
    r = np.empty(c.size)
    if not partials(c, r):
        partials(pulled_in(c), r)
    u = np.empty(c.size)
    for j in range(c.size):
        u[j] = math.atanh(min(max(r[j], -limit), limit))
    return u


@kernel
def arma_from_free(free: FloatArray, p: int, jac_ar: FloatArray, jac_ma: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(ar, ma) of the stacked free coordinates, with both Jacobians."""
    ar = coefficients(free[:p], jac_ar)
    ma = coefficients(free[p:], jac_ma)
    for j in range(ma.size):
        ma[j] = -ma[j]
        for i in range(ma.size):
            jac_ma[j, i] = -jac_ma[j, i]
    return ar, ma


@kernel
def free_from_arma(ar: FloatArray, ma: FloatArray, limit: float) -> FloatArray:
    """Stacked free coordinates of (ar, ma), pulled into the stable region where necessary."""
    p = ar.size
    free = np.empty(p + ma.size)
    free[:p] = free_coordinates(ar, limit)
    free[p:] = free_coordinates(-ma, limit)
    return free
