"""What a search minimizes at a trial point: the smoothed maximum of ln KL over the edges, then of the exact log odds.

**Exact.** ln δ − ln(1 − δ) of edges, with its gradient: ln δ itself is flat where δ is near one.

**KL**, towards which a design is pulled before the exact δ is looked at; with P = Σ⁻¹,

    KL(X‖X') = ½ [⟨Σ + (μ − μ')(μ − μ')ᵀ, P'⟩ − k + ln|Σ'| − ln|Σ|],

so ⟨Σ, P'⟩ of all pairs is one matrix product, and the gradients of a weighted sum Σ w(X, X') KL(X‖X') in all
covariances are two more: O(k²) a pair, where an exact δ takes O(k³) (docs/theory.md, section 6.2).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from shoal.accounting.curve import NOTIONS
from shoal.accounting.gradient import NOTHING, Trace, add_log_delta_gradients, allocate_trace, log_deltas_with_trace
from shoal.designs.problem import DesignProblem, Moves
from shoal.numerics.threads import n_threads
from shoal.validation import FloatArray, IndexArray

Result = TypeVar("Result")

#: Log odds of certainty.
CERTAIN = 700.0
#: Edges below this share of the gradient are left out of it.
FAINT = 1e-7
#: Numbers that the frames of edges may take while their gradients are due.
ROOM = 1 << 23
#: Labels up to which all pairs are looked at, and pairs for each edge beyond a first number.
LABELS, PAIRS_PER_EDGE, FEW_PAIRS = 4000, 16, 1 << 21
#: Numbers in a block of differences of means.
BLOCK = 1 << 21


class Laws(NamedTuple):
    """Means, covariances and Cholesky factors of a trial point, read-only."""

    means: FloatArray
    covs: FloatArray
    factors: FloatArray


def trial_laws(problem: DesignProblem, moves: Moves) -> Laws:
    """Laws after some moves; a tiny ridge keeps a nearly singular trial point finite."""
    means, covs = moves.laws(problem)
    k = problem.n_dims
    covs = np.ascontiguousarray(np.broadcast_to(covs, (len(means), k, k)))
    try:
        factors = np.linalg.cholesky(covs)
    except np.linalg.LinAlgError:
        size = (np.trace(covs, axis1=1, axis2=2) + problem.budgets.max()) / k
        covs = covs + (1e-12 * size)[:, None, None] * np.eye(k)
        factors = np.linalg.cholesky(covs)
    return Laws(as_read_only(means), as_read_only(covs), as_read_only(factors))


def as_read_only(values: Any) -> FloatArray:
    """A read-only contiguous view of values, as class laws are: kernels are compiled for one kind of array."""
    view = np.ascontiguousarray(values, dtype=np.float64).view()
    view.flags.writeable = False
    return view


def log_deltas(problem: DesignProblem, laws: Laws, edges: IndexArray | None = None, trace: Any = None) -> FloatArray:
    """ln δ of edges, of all by default, a column per direction; a trace to fill lets their gradients follow."""
    pairs, epsilons = problem.pairs, problem.epsilons
    if edges is not None:
        pairs, epsilons = pairs[edges], epsilons[edges]
    k = problem.n_dims
    out = np.empty(epsilons.shape)

    def work(part: slice) -> None:
        own = None if trace is None else Trace(*(array[part] for array in trace))
        room = own or allocate_trace(part.stop - part.start, k)
        log_deltas_with_trace(
            NOTIONS[problem.notion], epsilons[part], laws.factors, laws.covs, laws.means, pairs[part], room, out[part]
        )

    most = max(8, min(512, ROOM // 8 // k**2))
    _map_slices(work, len(pairs), max(min(32, most), min(most, -(-len(pairs) // n_threads()))))
    out[np.isnan(out)] = 0.0  # laws too narrow for their distance: told apart
    return out


def log_odds(values: FloatArray) -> FloatArray:
    """Log odds ln δ − ln(1 − δ) from values ln δ, at most :data:`CERTAIN`."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(values - np.log(-np.expm1(np.minimum(values, 0.0))), CERTAIN))


def smoothed_odds(
    problem: DesignProblem, edges: IndexArray, sharpness: float, laws: Laws
) -> tuple[float, FloatArray, FloatArray]:
    """(1/τ) ln Σ e^{τ·log odds} over the edges, and its gradient in covariances and means."""
    k = problem.n_dims
    whole = len(edges) * k**2 <= ROOM
    trace = allocate_trace(len(edges), k) if whole else None
    values = log_deltas(problem, laws, edges, trace)
    odds = log_odds(values)
    top = float(odds.max())
    shares = np.exp(sharpness * (odds - top))
    total = float(shares.sum())
    shares /= total
    shares[(shares < FAINT) | (values <= NOTHING) | (odds >= CERTAIN)] = 0.0
    # d log odds = d ln δ / (1 − δ).
    shares /= np.maximum(-np.expm1(values), 1e-300)
    if trace is not None:
        gradients = _weighted_delta_gradients(problem, laws, values, edges, shares, trace)
    else:
        # Frames of all edges would not fit: those that matter are gone through again, block by block.
        gradients = np.zeros_like(laws.covs), np.zeros_like(laws.means)
        chosen = np.flatnonzero(shares.any(axis=1))
        step = max(8, ROOM // k**2)
        for start in range(0, len(chosen), step):
            part = chosen[start : start + step]
            trace = allocate_trace(len(part), k)
            again = log_deltas(problem, laws, edges[part], trace)
            for whole_sum, own in zip(
                gradients,
                _weighted_delta_gradients(problem, laws, again, edges[part], shares[part], trace),
                strict=True,
            ):
                whole_sum += own
    return top + float(np.log(total)) / sharpness, *gradients


def _weighted_delta_gradients(
    problem: DesignProblem, laws: Laws, values: FloatArray, edges: IndexArray, shares: FloatArray, trace: Trace
) -> tuple[FloatArray, FloatArray]:
    """Weighted sum Σ shares · ∂ ln δ over edges with a trace: gradients in all covariances and means."""
    pairs, epsilons = problem.pairs[edges], problem.epsilons[edges]

    def work(part: slice) -> tuple[FloatArray, FloatArray]:
        own = np.zeros_like(laws.covs), np.zeros_like(laws.means)
        weighted = NOTIONS[problem.notion], epsilons[part], values[part], shares[part], laws.factors, pairs[part]
        add_log_delta_gradients(*weighted, Trace(*(array[part] for array in trace)), *own)
        return own

    cov_grad, mean_grad = np.zeros_like(laws.covs), np.zeros_like(laws.means)
    # One block per thread, but a number that does not depend on it: sums must not either.
    for part_cov, part_mean in _map_slices(work, len(pairs), max(32, -(-len(pairs) // 4))):
        cov_grad += part_cov
        mean_grad += part_mean
    return cov_grad, mean_grad


#: Threads of this process, by its number: a fork starts its own. A search makes thousands of short calls.
_threads: dict[int, ThreadPoolExecutor] = {}


def _map_slices(work: Callable[[slice], Result], n_items: int, block: int) -> list[Result]:
    """Results of ``work`` on consecutive slices of ``n_items``, in order, on threads that stay."""
    slices = [slice(start, min(start + block, n_items)) for start in range(0, n_items, block)]
    if len(slices) == 1 or n_threads() == 1:
        return [work(part) for part in slices]
    pool = _threads.get(os.getpid())
    if pool is None:
        pool = _threads[os.getpid()] = ThreadPoolExecutor(n_threads())
    return list(pool.map(work, slices))


def compares_all_pairs(problem: DesignProblem) -> bool:
    """Whether looking at all pairs of labels is worth it for the edges among them."""
    n = problem.n_labels
    return n <= LABELS and n**2 <= PAIRS_PER_EDGE * len(problem.pairs) + FEW_PAIRS


@np.errstate(over="ignore", invalid="ignore")  # a point too far off is not taken: the line search sees it
def smoothed_divergence(problem: DesignProblem, sharpness: float, laws: Laws) -> tuple[float, FloatArray, FloatArray]:
    """(1/τ) ln Σ KL^τ over the edges, and its gradient in covariances and means."""
    inverse = _symmetric_inverses(laws)
    pairs = problem.pairs
    i, j = np.concatenate([pairs, pairs[:, ::-1]]).T
    divergences = _pairwise_divergences(laws, inverse)[i, j]
    table = problem.epsilons.shape[1] == 1
    own = divergences.reshape(2, -1)
    values = np.log(np.maximum(own.sum(axis=0)[None] if table else own, 1e-300))
    top = float(values.max())
    shares = np.exp(sharpness * (values - top))
    total = float(shares.sum())
    weights = np.zeros((problem.n_labels, problem.n_labels))
    weights[i, j] = np.broadcast_to(shares / total * np.exp(-values), own.shape).ravel()
    cov_grad, mean_grad = _weighted_divergence_gradients(laws, inverse, weights)
    return top + float(np.log(total)) / sharpness, cov_grad, mean_grad


def worst_divergence(problem: DesignProblem, laws: Laws) -> FloatArray:
    """(edges,) the larger of the KL divergences of each edge's two directions."""
    divergences = _pairwise_divergences(laws, _symmetric_inverses(laws))
    i, j = problem.pairs.T
    return np.asarray(np.maximum(divergences[i, j], divergences[j, i]))


def _symmetric_inverses(laws: Laws) -> FloatArray:
    """(n, k, k) inverses of the covariances, made symmetric."""
    inverse = np.linalg.inv(laws.covs)
    return np.asarray(0.5 * (inverse + np.swapaxes(inverse, 1, 2)), dtype=np.float64)


def _pairwise_divergences(laws: Laws, inverse: FloatArray) -> FloatArray:
    """(n, n) KL of every label's law to every other's."""
    n, k = laws.means.shape
    log_dets = 2.0 * np.log(np.diagonal(laws.factors, axis1=1, axis2=2)).sum(axis=1)
    spread = laws.covs.reshape(n, -1) @ inverse.reshape(n, -1).T
    for part in _blocks(n, n * k):
        gap = laws.means[None, :, :] - laws.means[part, None, :]
        spread[:, part] += ((gap @ inverse[part]) * gap).sum(axis=2).T
    return np.asarray(0.5 * (spread - k + log_dets[None, :] - log_dets[:, None]))


def _weighted_divergence_gradients(
    laws: Laws, inverse: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Gradients of Σ weights[X, X'] KL(X‖X') in all covariances (n, k, k) and means (n, k)."""
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
    """Slices of items that take ``size`` numbers each, of at most :data:`BLOCK` numbers."""
    step = max(1, BLOCK // max(size, 1))
    for start in range(0, n_items, step):
        yield slice(start, min(start + step, n_items))
