"""Least squares with few unknowns: sums over the series, and the solution of the normal equations.

Written out: at a dozen unknowns a call of BLAS costs more than it saves, and it would bring its own threads.
"""

from __future__ import annotations

import math

from shoal.numerics.compiled import kernel, summing
from shoal.validation import FloatArray


@summing
def products(rows: FloatArray, target: FloatArray, normal: FloatArray, right: FloatArray) -> None:
    """normal = Σ_t rows_t rows_t' and right = Σ_t rows_t target_t over the columns t of rows (k, T)."""
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
def solve_positive(matrix: FloatArray, right: FloatArray, out: FloatArray) -> bool:
    """out = matrix⁻¹ right by Cholesky (matrix overwritten); False when it is not positive definite."""
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
