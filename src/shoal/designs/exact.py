"""The exact ln δ of edges at a trial point, and the smoothed maximum of their log odds with its gradient.

What is minimized is ln δ − ln(1 − δ): ln δ itself is flat where δ is near one, where every step would be lost in
rounding. Both order the designs alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from shoal.accounting.curve import NOTIONS
from shoal.accounting.gradient import NOTHING, Trace, edge_gradients, edge_values, empty_trace
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


class Laws(NamedTuple):
    """Means, covariances and Cholesky factors of a trial point, read-only."""

    means: FloatArray
    covs: FloatArray
    factors: FloatArray


def trial_laws(problem: DesignProblem, moves: Moves) -> Laws:
    """What the moves make of the laws; a tiny ridge keeps a nearly singular trial point finite."""
    means, covs = moves.laws(problem)
    k = problem.n_dims
    covs = np.ascontiguousarray(np.broadcast_to(covs, (len(means), k, k)))
    try:
        factors = np.linalg.cholesky(covs)
    except np.linalg.LinAlgError:
        size = (np.trace(covs, axis1=1, axis2=2) + problem.budgets.max()) / k
        covs = covs + (1e-12 * size)[:, None, None] * np.eye(k)
        factors = np.linalg.cholesky(covs)
    return Laws(read_only(means), read_only(covs), read_only(factors))


def read_only(values: Any) -> FloatArray:
    """A read-only view, as class laws are: kernels are compiled for one kind of array."""
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
        room = own or empty_trace(part.stop - part.start, k)
        edge_values(
            NOTIONS[problem.notion], epsilons[part], laws.factors, laws.covs, laws.means, pairs[part], room, out[part]
        )

    most = max(8, min(512, ROOM // 8 // k**2))
    _spread(work, len(pairs), max(min(32, most), min(most, -(-len(pairs) // n_threads()))))
    out[np.isnan(out)] = 0.0  # laws too narrow for their distance: told apart
    return out


def log_odds(values: FloatArray) -> FloatArray:
    """ln δ − ln(1 − δ) from ln δ."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(values - np.log(-np.expm1(np.minimum(values, 0.0))), CERTAIN))


def smoothed_odds(
    problem: DesignProblem, edges: IndexArray, sharpness: float, laws: Laws
) -> tuple[float, FloatArray, FloatArray]:
    """(1/τ) ln Σ e^{τ·log odds} over the edges, and its gradient in covariances and means."""
    k = problem.n_dims
    whole = len(edges) * k**2 <= ROOM
    trace = empty_trace(len(edges), k) if whole else None
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
        gradients = _gradients(problem, laws, values, edges, shares, trace)
    else:
        # Frames of all edges would not fit: those that matter are gone through again, block by block.
        gradients = np.zeros_like(laws.covs), np.zeros_like(laws.means)
        chosen = np.flatnonzero(shares.any(axis=1))
        step = max(8, ROOM // k**2)
        for start in range(0, len(chosen), step):
            part = chosen[start : start + step]
            trace = empty_trace(len(part), k)
            again = log_deltas(problem, laws, edges[part], trace)
            for whole_sum, own in zip(
                gradients, _gradients(problem, laws, again, edges[part], shares[part], trace), strict=True
            ):
                whole_sum += own
    return top + float(np.log(total)) / sharpness, *gradients


def _gradients(
    problem: DesignProblem, laws: Laws, values: FloatArray, edges: IndexArray, shares: FloatArray, trace: Trace
) -> tuple[FloatArray, FloatArray]:
    """Σ shares · ∂ ln δ over edges that left a trace."""
    pairs, epsilons = problem.pairs[edges], problem.epsilons[edges]

    def work(part: slice) -> tuple[FloatArray, FloatArray]:
        own = np.zeros_like(laws.covs), np.zeros_like(laws.means)
        weighted = NOTIONS[problem.notion], epsilons[part], values[part], shares[part], laws.factors, pairs[part]
        edge_gradients(*weighted, Trace(*(array[part] for array in trace)), *own)
        return own

    cov_grad, mean_grad = np.zeros_like(laws.covs), np.zeros_like(laws.means)
    # One block per thread, but a number that does not depend on it: sums must not either.
    for part_cov, part_mean in _spread(work, len(pairs), max(32, -(-len(pairs) // 4))):
        cov_grad += part_cov
        mean_grad += part_mean
    return cov_grad, mean_grad


#: Threads of this process, by its number: a fork starts its own. A search makes thousands of short calls.
_threads: dict[int, ThreadPoolExecutor] = {}


def _spread(work: Callable[[slice], Result], n_items: int, block: int) -> list[Result]:
    """Apply ``work`` to consecutive slices on threads that stay; results in order."""
    slices = [slice(start, min(start + block, n_items)) for start in range(0, n_items, block)]
    if len(slices) == 1 or n_threads() == 1:
        return [work(part) for part in slices]
    pool = _threads.get(os.getpid())
    if pool is None:
        pool = _threads[os.getpid()] = ThreadPoolExecutor(n_threads())
    return list(pool.map(work, slices))
