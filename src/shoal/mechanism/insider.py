"""Insider error: how precisely someone who knows all other members' answers can infer a label's own from a release.

Random answers: the covariance of the answer given the row. Constants that are released at one point c: every row shows
c, and c moves by J d where the answer moves by d, so that the rows have the information Jᵀ (Σ N⁻¹) J about it, with J
for the mean and for the center of the smallest ball. Other constants: the label's own row shows its answer up to the
noise, and every other row is counted as well where means are shifted. Proofs: docs/theory.md, section 17.
"""

from __future__ import annotations

import numpy as np
import scipy

from shoal.mechanism.mechanism import Mechanism
from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray, IndexArray

#: Means of released answers that agree to this share of their answers' spread are one point.
ALIKE = 1e-6
#: Subtracted from a deviation, as a share of the law's own, for the rounding of what it comes from.
ROUNDING = 1e-6


def insider_error(mechanism: Mechanism) -> FloatArray:
    """(n,) standard deviation with which an insider infers the best known entry of each label's answer, rounded down.

    0 where a row is the answer itself.
    """
    n, k = mechanism.classes.means.shape
    noise = np.broadcast_to(mechanism.noise_cov, (n, k, k))
    random = np.broadcast_to(mechanism.classes.stored_variances.any(axis=1), (n,))
    released = mechanism.output.means
    result = np.zeros(n)
    components = mechanism.graph.components_of(mechanism.labels)
    for members in (np.flatnonzero(components == number) for number in np.unique(components)):
        answers = mechanism.classes.means[members]
        spread = float(np.abs(answers - answers.mean(axis=0)).max())
        meet = spread > 0 and float(np.ptp(released[members], axis=0).max()) <= ALIKE * spread
        moved = mechanism.gain is not None or bool(mechanism.bias[members].any())
        shown = _fisher_information(noise[members]) if len(members) > 1 and (meet or moved) else None
        for place, i in enumerate(members.tolist()):
            if random[i]:
                result[i] = _deviation_given_own_row(mechanism, i, noise[i])
                continue
            information = shown if shown is not None else _fisher_information(noise[i][None])
            if information is None:
                continue
            if meet:
                change, known = _center_derivative(answers, released[members].mean(axis=0), place)
                information = change.T @ information @ change + known * np.eye(k)
            result[i] = _best_known_deviation(information * mechanism.times)
    return result


def _fisher_information(noise: FloatArray) -> FloatArray | None:
    """Fisher information Σ N⁻¹ of rows with these noise covariances (m, k, k); None if one has no noise somewhere."""
    values, vectors = eigh(np.ascontiguousarray(noise))
    if not (values[:, 0] > 0).all():
        return None
    with np.errstate(over="ignore"):
        total = np.einsum("mij,mj,mkj->ik", vectors, 1.0 / values, vectors)
    return total if np.isfinite(total).all() else None


def _best_known_deviation(information: FloatArray) -> float:
    """Standard deviation of the entry that this information (k, k) determines best, rounded down."""
    values, vectors = eigh(np.ascontiguousarray(0.5 * (information + information.T))[None])
    if not values[0, 0] > 0:
        return 0.0
    variances = (vectors[0] ** 2 / values[0]).sum(axis=1)
    return float(np.sqrt(variances.min())) * (1 - ROUNDING)


def _deviation_given_own_row(mechanism: Mechanism, i: int, noise: FloatArray) -> float:
    """Least standard deviation of an entry of a random answer, given its row, by Bayes; constant entries aside."""
    k = mechanism.n_dims
    cov = mechanism.classes.stored_covs[0 if mechanism.classes.is_shared else i]
    linear = np.eye(k) + (0.0 if mechanism.gain is None else mechanism.gain[i])
    std = np.sqrt(np.maximum(np.diagonal(cov), 0.0))
    gain = cov @ linear.T @ scipy.linalg.pinvh(linear @ cov @ linear.T + noise)
    kept = np.eye(k) - gain @ linear
    left = kept @ cov @ kept.T + gain @ noise @ gain.T  # not Σ − …, whose difference rounding would eat
    deviation = np.sqrt(np.maximum(np.diagonal(left), 0.0)) - ROUNDING * std
    return max(float(deviation[std > 0].min()), 0.0)


def _center_derivative(answers: FloatArray, center: FloatArray, place: int) -> tuple[FloatArray, float]:
    """(k, k) derivative of the common point in the answer at ``place``, and the information of the ball by itself."""
    n, k = answers.shape
    away = answers - center
    lengths = np.linalg.norm(away, axis=1)
    radius = float(lengths.max())
    if float(np.abs(answers.mean(axis=0) - center).max()) <= ALIKE * radius:
        return np.eye(k) / n, 0.0
    sphere: IndexArray = np.flatnonzero(lengths >= radius * (1 - ALIKE))
    weights, _ = scipy.optimize.nnls(np.vstack([away[sphere].T / radius, np.ones(len(sphere))]), np.eye(k + 1)[-1])
    if float(np.linalg.norm(weights @ away[sphere])) > 1e3 * ALIKE * radius:
        return np.eye(k), 0.0
    sphere, weights = sphere[weights > ALIKE], weights[weights > ALIKE]
    known = (k + 2) / radius**2
    if place not in sphere:
        return np.zeros((k, k)), known
    own = sphere == place
    weight, there = float(weights[own][0]), away[sphere]
    along = np.linalg.pinv(there)  # (k, m): the least solution lies in the span
    towards = along @ (own - weight)
    return weight * (np.eye(k) - along @ there) + np.outer(towards, away[place]), known
