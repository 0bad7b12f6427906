"""The smoothed maximum of ln KL over the edges: what a design is pulled towards before the exact δ is looked at.

With Σ of every label factored once and P = Σ⁻¹,

    KL(X‖X') = ½ [⟨Σ + (μ − μ')(μ − μ')ᵀ, P'⟩ − k + ln|Σ'| − ln|Σ|],

so ⟨Σ, P'⟩ of all pairs is one matrix product, and the gradients of a weighted sum Σ w(X, X') KL(X‖X') in all
covariances are two more: O(k²) a pair and O(k³) a label, where an exact δ takes O(k³) a pair. It knows no ε and
certifies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shoal.designs.exact import Laws
from shoal.designs.problem import DesignProblem
from shoal.validation import FloatArray

#: Labels up to which all pairs are looked at, and pairs for each edge beyond a first number.
LABELS, PAIRS_PER_EDGE, FEW_PAIRS = 4000, 16, 1 << 21
#: Numbers in a block of differences of means.
BLOCK = 1 << 21


def is_dense(problem: DesignProblem) -> bool:
    """Whether looking at all pairs of labels is worth it for the edges among them."""
    n = problem.n_labels
    return n <= LABELS and n**2 <= PAIRS_PER_EDGE * len(problem.pairs) + FEW_PAIRS


@np.errstate(over="ignore", invalid="ignore")  # a point too far off is not taken: the line search sees it
def smoothed_divergence(problem: DesignProblem, sharpness: float, laws: Laws) -> tuple[float, FloatArray, FloatArray]:
    """(1/τ) ln Σ KL^τ over the edges, and its gradient in covariances and means."""
    inverse = _inverse(laws)
    pairs = problem.pairs
    i, j = np.concatenate([pairs, pairs[:, ::-1]]).T
    divergences = _divergences(laws, inverse)[i, j]
    table = problem.epsilons.shape[1] == 1
    own = divergences.reshape(2, -1)
    values = np.log(np.maximum(own.sum(axis=0)[None] if table else own, 1e-300))
    top = float(values.max())
    shares = np.exp(sharpness * (values - top))
    total = float(shares.sum())
    weights = np.zeros((problem.n_labels, problem.n_labels))
    weights[i, j] = np.broadcast_to(shares / total * np.exp(-values), own.shape).ravel()
    cov_grad, mean_grad = _weighted_gradients(laws, inverse, weights)
    return top + float(np.log(total)) / sharpness, cov_grad, mean_grad


def worst_divergence(problem: DesignProblem, laws: Laws) -> FloatArray:
    """(edges,) the larger KL divergence of each edge's directions."""
    divergences = _divergences(laws, _inverse(laws))
    i, j = problem.pairs.T
    return np.asarray(np.maximum(divergences[i, j], divergences[j, i]))


def _inverse(laws: Laws) -> FloatArray:
    inverse = np.linalg.inv(laws.covs)
    return np.asarray(0.5 * (inverse + np.swapaxes(inverse, 1, 2)), dtype=np.float64)


def _divergences(laws: Laws, inverse: FloatArray) -> FloatArray:
    """(n, n) KL of every label's law to every other's."""
    n, k = laws.means.shape
    log_dets = 2.0 * np.log(np.diagonal(laws.factors, axis1=1, axis2=2)).sum(axis=1)
    spread = laws.covs.reshape(n, -1) @ inverse.reshape(n, -1).T
    for part in _blocks(n, n * k):
        gap = laws.means[None, :, :] - laws.means[part, None, :]
        spread[:, part] += ((gap @ inverse[part]) * gap).sum(axis=2).T
    return np.asarray(0.5 * (spread - k + log_dets[None, :] - log_dets[:, None]))


def _weighted_gradients(laws: Laws, inverse: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradient of Σ weights[X, X'] KL(X‖X') in all covariances and means."""
    n, k = laws.means.shape
    leaving = (weights @ inverse.reshape(n, -1)).reshape(n, k, k)
    entering = (weights.T @ laws.covs.reshape(n, -1)).reshape(n, k, k)
    mean_grad = np.zeros((n, k))
    for part in _blocks(n, n * k):
        gap = laws.means[None, :, :] - laws.means[part, None, :]  # (X', X)
        shares = weights[:, part].T[:, :, None]
        entering[part] += np.swapaxes(gap * shares, 1, 2) @ gap
        pull = (gap @ inverse[part]) * shares
        mean_grad += pull.sum(axis=0)
        mean_grad[part] -= pull.sum(axis=1)
    out, into = weights.sum(axis=1)[:, None, None], weights.sum(axis=0)[:, None, None]
    cov_grad = 0.5 * (leaving + (into - out) * inverse - inverse @ entering @ inverse)
    return cov_grad, mean_grad


def _blocks(n_items: int, size: int) -> Iterator[slice]:
    step = max(1, BLOCK // max(size, 1))
    for start in range(0, n_items, step):
        yield slice(start, min(start + step, n_items))
