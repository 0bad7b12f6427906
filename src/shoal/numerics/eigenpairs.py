"""Eigenvalues and eigenvectors of a symmetric matrix, and how far they are from exact.

Householder's reduction to a tridiagonal matrix and the QL method with implicit shifts (Golub & Van Loan 2013, section
8.3): eigenvectors are a product of rotations, so they stay orthogonal to a few units of roundoff however close the
eigenvalues lie. Divide and conquer does not keep them so. A kernel must not raise either: where the iteration does not
settle, :func:`eigenpair_errors` says by how much it is off.

Eigenvectors are rows here, so that every inner loop runs along memory.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.numerics.compilation import kernel
from shoal.validation import FloatArray

EPS = float(np.finfo(np.float64).eps)

#: Share of the matrix's size below which an entry beside the diagonal counts as zero: dropping it changes the matrix
#: by less than the rounding of the reduction did.
NEGLIGIBLE = 0.25 * EPS
#: Sweeps allowed per eigenvalue; two or three are usual.
SWEEPS = 60


# In kernels on the way of every run products and copies are loops: what NumPy does in a line takes Numba up to a second
# to compile.


@kernel
def nearby_power_of_two(size: float) -> float:
    """Return a power of two near a positive size: scaling by it is exact, and squares neither overflow nor vanish."""
    return 2.0 ** math.floor(math.log2(min(max(size, 1e-290), 1e290)))


@kernel
def eigenpairs(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (values, rows) with A rows[i] ≈ values[i] rows[i], in no particular order, for a symmetric A."""
    n = matrix.shape[0]
    largest, total = 0.0, 0.0
    for i in range(n):
        for j in range(n):
            largest = max(largest, abs(matrix[i, j]))
            total += abs(matrix[i, j])
    values, beside, q = np.empty(n), np.zeros(n), np.zeros((n, n))
    for i in range(n):
        q[i, i] = 1.0
    if total == 0.0 or not largest < math.inf or math.isnan(total):
        for i in range(n):
            values[i] = 0.0 if total == 0.0 else math.nan  # what holds no numbers has no eigenvalues
        return values, q
    scale = nearby_power_of_two(largest)
    a, rows = np.empty((n, n)), np.empty((n, n))
    for i in range(n):
        for j in range(n):
            a[i, j] = matrix[i, j] / scale
    twice, p = np.zeros(n), np.empty(n)
    for k in range(n - 2):
        tail = 0.0
        for j in range(k + 2, n):
            tail += a[k, j] * a[k, j]
        first = a[k, k + 1]
        if tail == 0.0:
            beside[k] = first
            continue
        norm = math.sqrt(first * first + tail)
        beside[k] = -math.copysign(norm, first)
        a[k, k + 1] = first - beside[k]
        beta = 1.0 / (norm * (norm + abs(first)))
        twice[k] = beta
        for j in range(k + 1, n):
            p[j] = 0.0
        for i in range(k + 1, n):
            factor = beta * a[k, i]
            for j in range(k + 1, n):
                p[j] += factor * a[i, j]
        along = 0.0
        for j in range(k + 1, n):
            along += p[j] * a[k, j]
        along *= 0.5 * beta
        for j in range(k + 1, n):
            p[j] -= along * a[k, j]
        for i in range(k + 1, n):
            v, w = a[k, i], p[i]
            for j in range(k + 1, n):
                a[i, j] -= v * p[j] + w * a[k, j]
    for k in range(n):
        values[k] = a[k, k]
    if n > 1:
        beside[n - 2] = a[n - 2, n - 1]
    for k in range(n - 3, -1, -1):
        if twice[k] == 0.0:
            continue
        for j in range(k + 1, n):
            p[j] = 0.0
        for i in range(k + 1, n):
            factor = twice[k] * a[k, i]
            for j in range(k + 1, n):
                p[j] += factor * q[i, j]
        for i in range(k + 1, n):
            v = a[k, i]
            for j in range(k + 1, n):
                q[i, j] -= v * p[j]
    for i in range(n):
        for j in range(n):
            rows[i, j] = q[j, i]
    _diagonalize_tridiagonal(values, beside, rows)
    for k in range(n):
        values[k] *= scale
    return values, rows


@kernel
def _diagonalize_tridiagonal(d: FloatArray, e: FloatArray, rows: FloatArray) -> None:
    """Diagonalize a tridiagonal matrix by QL with implicit shifts, in place.

    The diagonal d becomes the eigenvalues, e (beside it) is used up, and the rotations act on the rows.
    """
    n = len(d)
    size = 0.0
    for k in range(n):
        size = max(size, abs(d[k]) + abs(e[k]))
    least = NEGLIGIBLE * size
    for low in range(n):
        for _ in range(SWEEPS):
            high = low
            while high < n - 1 and abs(e[high]) > least:
                high += 1
            if high == low:
                break
            g = (d[low + 1] - d[low]) / (2.0 * e[low])
            r = math.sqrt(g * g + 1.0)
            g = d[high] - d[low] + e[low] / (g + math.copysign(r, g))
            sin, cos, moved = 1.0, 1.0, 0.0
            whole = True
            for i in range(high - 1, low - 1, -1):
                f, b = sin * e[i], cos * e[i]
                r = math.sqrt(f * f + g * g)
                e[i + 1] = r
                if r == 0.0:
                    d[i + 1] -= moved
                    e[high] = 0.0
                    whole = False
                    break
                sin, cos = f / r, g / r
                g = d[i + 1] - moved
                r = (d[i] - g) * sin + 2.0 * cos * b
                moved = sin * r
                d[i + 1] = g + moved
                g = cos * r - b
                for j in range(n):
                    x, y = rows[i, j], rows[i + 1, j]
                    rows[i + 1, j] = sin * x + cos * y
                    rows[i, j] = cos * x - sin * y
            if whole:
                d[low] -= moved
                e[low] = g
                e[high] = 0.0


@kernel
def eigenpair_errors(matrix: FloatArray, values: FloatArray, rows: FloatArray) -> tuple[float, float]:
    """Return upper bounds of ‖H U − U Λ‖_F and ‖Uᵀ U − I‖_F for what :func:`eigenpairs` gave (Uᵀ = ``rows``).

    With E = UᵀU − I, R = HU − UΛ and Q the orthogonal polar factor of U, QᵀHQ differs from Λ by at most (‖R‖ +
    ‖E‖‖Λ‖)(1 + ‖E‖) and Q from U by at most ‖E‖: whatever way U was found, (Λ, Uᵀy) are the spectrum of a matrix and a
    vector that close by. The rounding of these sums is added. Not a number where the input is not.
    """
    n = matrix.shape[0]
    columns, sums = np.empty((n, n)), np.empty(n)
    largest = 0.0
    for i in range(n):
        largest = max(largest, abs(values[i]))
        for j in range(n):
            columns[i, j] = rows[j, i]
    scale = nearby_power_of_two(largest)
    residual, skew, square = 0.0, 0.0, 0.0
    for i in range(n):
        value = values[i] / scale
        for j in range(n):
            sums[j] = -value * rows[i, j]
            square += (matrix[i, j] / scale) * (matrix[i, j] / scale)
        for k in range(n):
            factor = rows[i, k] / scale
            for j in range(n):
                sums[j] += factor * matrix[k, j]
        for j in range(n):
            residual += sums[j] * sums[j]
            sums[j] = 0.0
        sums[i] = -1.0
        for k in range(n):
            factor = rows[i, k]
            for j in range(n):
                sums[j] += factor * columns[k, j]
        for j in range(n):
            skew += sums[j] * sums[j]
    # |fl(x·y) − x·y| ≤ n u |x|·|y| summed over all entries, u = EPS / 2; the last factor is for these lines themselves.
    unit = 0.5 * EPS * (n + 2)
    skew = (math.sqrt(skew) + unit * (n + 1)) * (1.0 + 4.0 * n * EPS)
    spread = math.sqrt(n * (1.0 + skew))
    largest /= scale
    residual = (math.sqrt(residual) + unit * spread * (math.sqrt(square) + largest)) * (1.0 + 4.0 * n * EPS)
    return scale * residual * (1.0 + skew), skew


def eigh(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues and eigenvectors as ``numpy.linalg.eigh``, also where LAPACK's iteration does not settle."""
    try:
        values, vectors = np.linalg.eigh(matrices)
        return np.asarray(values), np.asarray(vectors)
    except np.linalg.LinAlgError:
        stack = matrices if matrices.ndim == 3 else matrices[None]
        values, vectors = np.empty(stack.shape[:2]), np.empty(stack.shape)
        for number, matrix in enumerate(stack):
            unordered, rows = eigenpairs(np.ascontiguousarray(matrix, dtype=np.float64))
            order = np.argsort(unordered)
            values[number], vectors[number] = unordered[order], rows[order].T
        return (values, vectors) if matrices.ndim == 3 else (values[0], vectors[0])
