"""Stacks of covariance matrices: scaled to correlations, their roots, and sums with what rounding took off.

A covariance may be graded: entries with deviations from 1e-8 to 1e8 in one answer. Eigenvectors of Σ itself are then
wrong by ε‖Σ‖ in every entry, which is larger than a small variance; those of the correlations are wrong by a small
multiple of ε in units of the entries' own deviations. Ranks are decided on the second kind, and nothing is certified
from the first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray

EPS = float(np.finfo(np.float64).eps)

#: Eigenvalues of a correlation matrix below this share of the largest are taken for exact zeros. Products such as A Aᵀ
#: of low rank leave at most about two units of roundoff there, whatever their size.
RANK_TOLERANCE = 4 * EPS


#: Numbers of a stack of matrices that are worked on at a time, so that what is needed in between stays small.
AT_A_TIME = 1 << 17


def split_stack(stack: FloatArray) -> Iterator[slice]:
    """Yield consecutive slices of a stack (n, k, k), each of so few matrices that work on it needs little memory."""
    step = max(1, AT_A_TIME // max(stack[0].size, 1))
    return (slice(start, start + step) for start in range(0, len(stack), step))


def select_matrices(stack: FloatArray, rows: slice) -> FloatArray:
    """Return the matrices of a stack at these rows; a single one, which stands for all, as it is."""
    return stack if len(stack) == 1 else stack[rows]


def correlations(covs: FloatArray) -> FloatArray:
    """Return covariances (n, k, k) scaled to unit diagonal; an entry without variance becomes uncorrelated."""
    std = np.sqrt(np.maximum(np.diagonal(covs, axis1=1, axis2=2), 0.0))
    safe = np.where(std > 0, std, 1.0)
    result = covs / safe[:, :, None]
    result /= safe[:, None, :]
    diagonal = np.arange(covs.shape[1])
    result[:, diagonal, diagonal] = 1.0
    return np.asarray(result)


def square_root(covs: FloatArray) -> FloatArray:
    """Return symmetric positive semidefinite square roots; nothing is certified from them."""
    values, vectors = eigh(covs)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def ranks(covs: FloatArray) -> FloatArray:
    """Return the rank of each covariance (n,), up to rounding, decided on the correlations of entries that vary."""
    moving = np.diagonal(covs, axis1=1, axis2=2) > 0
    values = np.linalg.eigvalsh(correlations(covs))
    flat = (values <= RANK_TOLERANCE * values[:, -1:]).sum(axis=1)
    return np.asarray(moving.sum(axis=1) - flat)


def inverse_root(covs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return Σ^{−1/2} on the range of each Σ (zero outside it), and the projector onto what is outside.

    Which directions there are is decided on the scale of the entries' own deviations, not of the widest.
    """
    values, vectors = eigh(covs)
    k = covs.shape[1]
    there = (np.arange(k) >= k - ranks(covs)[:, None]) & (values > 0)
    inverse = np.where(there, 1.0 / np.sqrt(np.where(there, values, 1.0)), 0.0)
    turned = np.swapaxes(vectors, 1, 2)
    return np.asarray((vectors * inverse[:, None, :]) @ turned), np.asarray((vectors * ~there[:, None, :]) @ turned)


def sum_with_error(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a + b rounded, and the absolute value of what rounding took off, exactly (Knuth)."""
    total = a + b
    back = total - a
    return total, np.abs((a - (total - back)) + (b - back))
