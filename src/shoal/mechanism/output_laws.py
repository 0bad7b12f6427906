"""Laws of what a mechanism releases, from its stored parameters, with bounds on what rounding took off them.

    mean = μ + shift,     cov = (I + G) Σ (I + G)ᵀ + N

A release uses these sums exactly (``noise.exact_map``). Here products are summed in double-double arithmetic, so that
one
rounding of the result is left, whatever cancels.
"""

from __future__ import annotations

import numpy as np

from shoal.accounting.whitening import DOUBLE_DOUBLE, add_product, two_sum
from shoal.laws.classes import indefinite_tolerance
from shoal.noise.exact_map import EXACT
from shoal.numerics.compilation import kernel
from shoal.numerics.eigenpairs import eigh
from shoal.numerics.matrices import EPS, correlations, select_matrices, split_stack, sum_with_error
from shoal.validation import FloatArray, IndexArray


def output_means(means: FloatArray, shift: FloatArray, grid: IndexArray | None) -> tuple[FloatArray, FloatArray]:
    """(n, k) expected released answers μ + shift, and what rounding took off each.

    A sum that ``grid`` rounds, to a multiple of 2^grid, is released as the rounded value itself: there is no error.
    """
    total, error = sum_with_error(means, shift)
    if grid is None:
        return total, error
    snapped = grid > EXACT
    exponents = np.where(snapped, grid, 0).astype(np.intc)
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(total, -exponents)), exponents)
    return np.where(snapped, rounded, total), np.where(snapped, 0.0, error)


def output_covs(covs: FloatArray, gain: FloatArray | None, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(n, k, k) covariances of the released answers and entrywise bounds on their errors.

    With s = |I + G| σ, every product that is summed is at most s_i s_j, and 4 k + 16 of them are rounded. The noise is
    that of the mean of N and its transpose, as ``noise.factor`` draws it.
    """
    mapped = gain if gain is not None and gain.any() and covs.any() else None
    shape = np.broadcast_shapes(covs.shape, noise.shape, (1, 1, 1) if mapped is None else mapped.shape)
    moved, errors = np.empty(shape), np.empty(shape)
    for part in split_stack(moved):
        one = None if mapped is None else mapped[part]
        moved[part], errors[part] = _block_covs(select_matrices(covs, part), one, select_matrices(noise, part))
    return moved, errors


def _block_covs(covs: FloatArray, gain: FloatArray | None, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    k, turned = noise.shape[1], np.swapaxes(noise, 1, 2)
    uneven = np.where(noise == turned, 0.0, EPS * (np.abs(noise) + np.abs(turned)))
    noise = 0.5 * noise + 0.5 * turned
    if gain is None:
        total, lost = sum_with_error(covs, noise)
        return total, lost + uneven
    moved = np.empty(gain.shape)
    _output_cov_sums(np.ascontiguousarray(covs), np.ascontiguousarray(gain), noise, moved)
    deviations = np.sqrt(np.diagonal(covs, axis1=1, axis2=2))
    size = deviations + (np.abs(gain) @ deviations[:, :, None])[:, :, 0]
    products = (4 * k + 16) * DOUBLE_DOUBLE * (size[:, :, None] * size[:, None, :] + np.abs(noise))
    return _semidefinite_covs(moved, EPS * np.abs(moved) + products + uneven)


def _semidefinite_covs(covs: FloatArray, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Positive semidefinite covariances and their errors, unknown (inf) for one that had to be made so.

    A class law that is singular up to rounding may have a variance slightly below zero in some direction, and a map
    that shrinks all others brings it out.
    """
    k, diagonal = covs.shape[1], np.diagonal(covs, axis1=1, axis2=2)
    most = np.sqrt(np.abs(diagonal[:, :, None] * diagonal[:, None, :]))
    wrong = np.asarray((diagonal < 0).any(axis=1) | (np.abs(covs) > (1 + 4 * EPS) * most).any(axis=(1, 2)))
    if not wrong.all():
        values = np.linalg.eigvalsh(correlations(covs[~wrong]))
        wrong[~wrong] = values[:, 0] < -indefinite_tolerance(k) * values[:, -1]
    if wrong.any():
        values, vectors = eigh(covs[wrong])
        raised = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        covs[wrong] = raised + 2 * k * EPS * np.abs(values).max(axis=1)[:, None, None] * np.eye(k)
        errors[wrong] = np.inf
    return covs, errors


@kernel
def _output_cov_sums(covs: FloatArray, gain: FloatArray, noise: FloatArray, out: FloatArray) -> None:
    """Write Σ + G Σ + (Σ + G Σ) Gᵀ + N of every label to ``out``, in double-double, rounded once.

    One Σ or N may stand for all labels.
    """
    k = covs.shape[1]
    hi, lo = np.empty((k, k)), np.empty((k, k))
    for n in range(len(gain)):
        cov, add = covs[n if len(covs) > 1 else 0], noise[n if len(noise) > 1 else 0]
        for i in range(k):
            for j in range(k):
                a, b = cov[i, j], 0.0
                for p in range(k):
                    a, b = add_product(a, b, gain[n, i, p], cov[p, j], 0.0)
                hi[i, j] = a
                lo[i, j] = b
        for i in range(k):
            for j in range(i + 1):
                a, b = two_sum(hi[i, j], add[i, j])
                b += lo[i, j]
                for p in range(k):
                    a, b = add_product(a, b, gain[n, j, p], hi[i, p], lo[i, p])
                out[n, i, j] = a + b
                out[n, j, i] = a + b
