"""An exact dyadic matrix A with A Aᵀ equal to a stored covariance, up to a stated residual.

The lower Cholesky factor of the mean of the stored matrix and its transpose, scaled by powers of two to variances in
[¼, 1), in integers with W = 192 binary places: L_jj = ⌊√d_j⌋ and L_ij = ⌊·/L_jj⌋ leave (docs/theory.md, section 9.3)

    |(A Aᵀ − cov)_ij| ≤ 2^{−(W−1)} · 2^{e_i + e_j},   2^{e_i} ≤ 2 √cov_ii.

A covariance that is singular up to rounding gets 4kε of its diagonal on top (ε = 2^−52), which the accounting counts
(``Mechanism.output``); one that is still indefinite then is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import mul

import numpy as np

from shoal.errors import CertificationError
from shoal.numerics.matrices import correlations, split_stack
from shoal.validation import BoolArray, FloatArray

#: Binary places of the factor.
WIDTH = 192
#: The jitter, in units of k ε relative to the diagonal.
JITTER = 4
EPS_BITS = 52
EPS = 2.0**-EPS_BITS


@dataclass(frozen=True)
class Factor:
    """A_ij = rows[i][j] · 2^(exponents[i] − WIDTH) for j ≤ i; a row of zeros where there is no noise."""

    rows: tuple[tuple[int, ...], ...]
    exponents: tuple[int, ...]


def needs_jitter(covs: FloatArray) -> BoolArray:
    """Return (n,) which covariances are singular up to rounding and get the jitter.

    Decided on the correlations of the entries with variance: their smallest eigenvalue must exceed 32 k² ε, far above
    the k² ε by which its computed value can be wrong. Diagonal covariances never need it.
    """
    return np.asarray(least_eigenvalues(covs) <= 32 * covs.shape[-1] ** 2 * EPS)


def least_eigenvalues(covs: FloatArray) -> FloatArray:
    """Return (n,) the smallest eigenvalue of the correlations of the entries with variance."""
    even = (0.5 * (covs[part] + np.swapaxes(covs[part], 1, 2)) for part in split_stack(covs))
    return np.concatenate([np.linalg.eigvalsh(correlations(one))[:, 0] for one in even])


def certified_factor(cov: FloatArray, *, jitter: bool) -> Factor:
    """Return the exact factor of one covariance; raise CertificationError if it is indefinite beyond rounding."""
    k = len(cov)
    diagonal = np.diagonal(cov)
    if (diagonal < 0).any() or (cov[diagonal == 0] != 0).any() or (cov[:, diagonal == 0] != 0).any():
        raise _indefinite_error()
    # 2^{2e} holds the variance: an even exponent at or above frexp's.
    exponents = [math.ceil(math.frexp(float(v))[1] / 2) if v > 0 else 0 for v in diagonal]
    one = 1 << (2 * WIDTH)
    rows: list[list[int]] = []
    for i in range(k):
        row: list[int] = []
        for j in range(i):
            places = 2 * WIDTH - exponents[i] - exponents[j]
            scaled = (floor_to_dyadic(float(cov[i, j]), places) + floor_to_dyadic(float(cov[j, i]), places)) >> 1
            pivot = rows[j][j]
            row.append((scaled - sum(map(mul, row, rows[j]))) // pivot if pivot else 0)
        if diagonal[i] > 0:
            scaled = floor_to_dyadic(float(diagonal[i]), 2 * (WIDTH - exponents[i]))
            if jitter:
                scaled += (scaled * JITTER * k) >> EPS_BITS
            left = scaled - sum(map(mul, row, row))
            if left < one >> 80:
                raise _indefinite_error()
            row.append(math.isqrt(left))
        else:
            row.append(0)
        rows.append(row)
    return Factor(tuple(map(tuple, rows)), tuple(exponents))


def floor_to_dyadic(value: float, bits: int) -> int:
    """Return ⌊value · 2^bits⌋; exact if the value is a multiple of 2^−bits, as every double is for bits = 1074."""
    mantissa, exponent = math.frexp(value)
    whole, places = int(mantissa * 9007199254740992.0), exponent - 53 + bits
    return whole << places if places >= 0 else whole >> -places


def _indefinite_error() -> CertificationError:
    """Return the error about a covariance that no exact factor can be had of."""
    return CertificationError(
        "noise_cov of a label is further from positive semidefinite than rounding explains: no noise with this "
        "covariance can be drawn exactly. Design the mechanism again with a small noise_floor"
    )
