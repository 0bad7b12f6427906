"""Factors of the ARMA polynomials: multiply a model by a pole–zero pair, or take one out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.compiled import kernel
from shoal.validation import FloatArray

ComplexArray = NDArray[np.complex128]


@kernel
def times_quadratic(c: FloatArray, b1: float, b2: float) -> FloatArray:
    """Coefficients of (1 + Σ c_j B^j)(1 + b1 B + b2 B²), constant term left out."""
    n = c.size
    out = np.zeros(n + 2)
    out[:n] = c
    out[0] += b1
    out[1] += b2
    for j in range(n):
        out[j + 1] += c[j] * b1
        out[j + 2] += c[j] * b2
    return out


@kernel
def times_linear(c: FloatArray, b1: float) -> FloatArray:
    """Coefficients of (1 + Σ c_j B^j)(1 + b1 B), constant term left out."""
    return times_quadratic(c, b1, 0.0)[:-1].copy()


@kernel
def over_linear(c: FloatArray, b1: float) -> FloatArray:
    """Coefficients of (1 + Σ c_j B^j)/(1 + b1 B) when the division is exact."""
    out = np.zeros(c.size - 1)
    for j in range(out.size):
        out[j] = c[j] - b1 * (out[j - 1] if j >= 1 else 1.0)
    return out


@kernel
def over_quadratic(c: FloatArray, b1: float, b2: float) -> FloatArray:
    """Coefficients of (1 + Σ c_j B^j)/(1 + b1 B + b2 B²) when the division is exact."""
    n = c.size - 2
    out = np.zeros(n)
    for j in range(n):
        out[j] = c[j]
        out[j] -= b1 * (out[j - 1] if j >= 1 else 1.0)
        if j >= 1:
            out[j] -= b2 * (out[j - 2] if j >= 2 else 1.0)
    return out


@kernel
def reciprocal_roots(c: FloatArray) -> ComplexArray:
    """The z_j with 1 + Σ c_j B^j = Π (1 − z_j B); stable when all are inside the unit circle."""
    n = c.size
    companion = np.zeros((n, n), dtype=np.complex128)
    for j in range(n):
        companion[0, j] = -c[j]
        if j + 1 < n:
            companion[j + 1, j] = 1.0
    values: ComplexArray = np.linalg.eigvals(companion).astype(np.complex128)
    return values


@kernel
def reflected(c: FloatArray) -> FloatArray:
    """1 + Σ c_j B^j with its unstable factors replaced by their mirror images in the unit circle.

    The shape of |1 + Σ c_j z^j| on the circle is the same before and after.
    """
    product = np.zeros(c.size + 1, dtype=np.complex128)
    product[0] = 1.0
    for degree, root in enumerate(reciprocal_roots(c)):
        z = root
        if abs(z) > 1.0:
            z = 1.0 / z.conjugate()
        for j in range(degree + 1, 0, -1):
            product[j] -= z * product[j - 1]
    return product[1:].real.copy()


@kernel
def quadratic_factors(c: FloatArray) -> FloatArray:
    """Rows (b1, b2): the real factors 1 + b1 B + b2 B² of 1 + Σ c_j B^j that its roots group into.

    Complex roots pair with their conjugates, real ones with the next real one; an odd real root stays single.
    """
    n = c.size
    values = reciprocal_roots(c)
    out = np.empty((n, 2))
    count = 0
    reals = np.empty(n)
    n_reals = 0
    for z in values:
        if abs(z.imag) <= 1e-9 * (1.0 + abs(z.real)):
            reals[n_reals] = z.real
            n_reals += 1
        elif z.imag > 0:
            out[count, 0] = -2.0 * z.real
            out[count, 1] = z.real**2 + z.imag**2
            count += 1
    ordered = np.sort(reals[:n_reals])
    for i in range(n_reals - 1):
        out[count, 0] = -(ordered[i] + ordered[i + 1])
        out[count, 1] = ordered[i] * ordered[i + 1]
        count += 1
    return out[:count]
