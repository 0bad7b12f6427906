"""``ellipsoid``: one covariance for all labels, of the least trace that holds all differences of neighbors' means.

min Tr S subject to d'S⁻¹d ≤ 1 for every edge's difference d (Nikolov & Tang, arXiv 2301.13850; docs/theory.md, section
6.2). For weights w on the edges, summing to one, and M = Σ w dd', the least Σ w d'S⁻¹d of trace one is (Tr M^{1/2})²,
at S ∝ M^{1/2}; multiplicative steps w ← w·q/⟨w, q⟩, q = d'S⁻¹d, close the gap.
**Optimal** for constants under one ε, one budget and no noise floor. **A heuristic** otherwise: random answers are
compared by d'V⁻¹d + ½‖V^{−1/2}(Σ − Σ')V^{−1/2}‖² for V = Σ̄ + S, twice their divergence where they are close.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.designs.descent import Settings, worst_log_delta
from shoal.designs.problem import DesignProblem, Moves, budget_radii
from shoal.numerics.matrices import square_root
from shoal.validation import FloatArray, IndexArray

#: Relative gap between the two bounds that is enough, and rounds at most: for constants, for random answers.
GAP, ROUNDS, RANDOM_ROUNDS = 1e-4, 5000, 60
#: Edges that carry weight at first, per entry.
CARRYING = 8


def ellipsoid(problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = ()) -> Moves:
    """White noise or the best common covariance found, whichever has the least δ; optimal for constants."""
    size = float(budget_radii(problem).min())
    n, k = problem.n_labels, problem.n_dims
    noise = np.tile(size / np.sqrt(k) * np.eye(k), (n, 1, 1))
    choices = [Moves(np.zeros((n, k)), None, noise)]
    constant = not problem.classes.stored_variances.any()
    shapes = [constant_shape(problem, settings)] if constant else _random_shapes(problem, size**2, settings)
    for shape in shapes:
        trace = float(np.trace(shape))
        if trace > 0:
            root = square_root(shape[None] * (size**2 / trace))
            choices.append(Moves(np.zeros((n, k)), None, np.tile(root, (n, 1, 1))))
    return min(reversed(choices), key=lambda moves: worst_log_delta(problem, moves))


def constant_shape(problem: DesignProblem, settings: Settings | None = None, *, gap: float = GAP) -> FloatArray:
    """Shape S of trace one with the least largest d'S⁻¹d over the edges' gaps of means, to a relative ``gap``."""
    means = problem.classes.means - problem.classes.means.mean(axis=0)
    first, second = problem.pairs.T
    k = problem.n_dims
    # A few edges carry all the weight: the longest first, others when they stick out.
    number = min(CARRYING * k, len(problem.pairs))
    chosen = np.argpartition(-_squared_lengths(means, problem.pairs, np.eye(k)), number - 1)[:number]
    weights = np.full(len(chosen), 1.0 / len(chosen))
    shape = np.eye(k) / k
    for _ in range(20):
        weights, shape = _balance_weights(means[first[chosen]] - means[second[chosen]], weights, gap, settings)
        sizes = _squared_lengths(means, problem.pairs, shape)
        top = float(sizes[chosen].max())
        missed = np.setdiff1d(np.flatnonzero(sizes > top * (1 + gap / 2)), chosen)
        if len(missed) == 0 or (settings is not None and settings.is_late):
            break
        missed = missed[np.argsort(-sizes[missed])[:number]]
        kept = weights > 1e-9 / len(weights)
        chosen = np.concatenate([chosen[kept], missed])
        share = 0.5 / len(missed)
        weights = np.concatenate([0.5 * weights[kept] / weights[kept].sum(), np.full(len(missed), share)])
    return shape


def _squared_lengths(means: FloatArray, pairs: IndexArray, shape: FloatArray) -> FloatArray:
    """(edges,) d'S⁻¹d for the differences d of the edges' means."""
    values, vectors = np.linalg.eigh(shape)
    width = np.maximum(values, 1e-13 * values[-1])
    whitened = (means @ vectors) / np.sqrt(width)
    step = max(1, (1 << 21) // means.shape[1])
    parts = [pairs[start : start + step] for start in range(0, len(pairs), step)]
    return np.concatenate([((whitened[p[:, 0]] - whitened[p[:, 1]]) ** 2).sum(axis=1) for p in parts])


def _balance_weights(
    gaps: FloatArray, weights: FloatArray, gap: float, settings: Settings | None
) -> tuple[FloatArray, FloatArray]:
    """Weights on the differences ``gaps`` (m, k) that close the relative ``gap``, and the shape of the best bound."""
    best, shape = np.inf, np.eye(gaps.shape[1]) / gaps.shape[1]
    lower = 0.0
    for number in range(ROUNDS):
        values, vectors = np.linalg.eigh((gaps * weights[:, None]).T @ gaps)
        roots = np.sqrt(np.maximum(values, 0.0))
        total = float(roots.sum())
        if total == 0:
            break
        # Directions without weight have no width: a sliver of it keeps their differences finite.
        width = np.maximum(roots, 1e-9 * roots[-1]) / total
        sizes = ((gaps @ vectors) ** 2 / width).sum(axis=1)
        lower = max(lower, total**2)
        if sizes.max() < best:
            best, shape = float(sizes.max()), (vectors * width) @ vectors.T
        if best <= lower * (1 + gap) or (settings is not None and number % 64 == 0 and settings.is_late):
            break
        weights = weights * sizes / float(weights @ sizes)
    return weights, shape


def _random_shapes(problem: DesignProblem, size: float, settings: Settings | None) -> list[FloatArray]:
    """Shapes for random answers: by means alone, by means and covariances, and the latter beyond the mean one."""
    n, k = problem.n_labels, problem.n_dims
    means = problem.classes.means - problem.classes.means.mean(axis=0)
    covs = np.broadcast_to(problem.classes.stored_covs, (n, k, k))
    middle = covs.mean(axis=0)
    first, second = problem.pairs.T
    weights = np.full(len(first), 1.0 / len(first))
    shape, best, best_shape = np.eye(k) / k, np.inf, np.eye(k) / k
    for _ in range(RANDOM_ROUNDS):
        values, vectors = np.linalg.eigh(middle + size * shape)
        inverse = (vectors / np.sqrt(np.maximum(values, 1e-13 * values[-1]))) @ vectors.T
        own = np.zeros((1, k, k)) if problem.classes.is_shared else inverse @ (covs - middle) @ inverse
        flat = own.reshape(len(own), -1)
        white = means @ inverse
        points = np.concatenate([white, np.broadcast_to(flat, (n, k * k)) / np.sqrt(2.0)], axis=1)
        inner = points @ points.T
        square = np.diagonal(inner)
        sizes = np.maximum(square[first] + square[second] - 2.0 * inner[first, second], 0.0)
        if sizes.max() < best:
            best, best_shape = float(sizes.max()), shape
        if not sizes.max() > 0 or (settings is not None and settings.is_late):
            break
        weights = weights * sizes / float(weights @ sizes)
        laplacian = np.zeros((n, n))
        np.add.at(laplacian, (first, second), -weights)
        laplacian += laplacian.T
        laplacian[np.diag_indices(n)] = -laplacian.sum(axis=1)
        moment = white.T @ laplacian @ white
        if len(own) == n:
            moment = moment + 0.5 * (own @ (laplacian @ flat).reshape(n, k, k)).sum(axis=0)
        root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        moment = root @ moment @ root
        shape = square_root(0.5 * (moment + moment.T)[None])[0]
        shape = shape / max(float(np.trace(shape)), 1e-300)
    return [constant_shape(problem, settings), best_shape, _excess_covariance(best_shape, middle, size)]


def _excess_covariance(shape: FloatArray, own: FloatArray, size: float) -> FloatArray:
    """Positive part of c·shape − own, for the c at which its trace is ``size``."""
    low, high = 0.0, 1.0

    def part(c: float) -> FloatArray:
        values, vectors = np.linalg.eigh(c * shape - own)
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)

    base = float(np.trace(own)) + size
    while np.trace(part(base * high)) < size and high < 1e9:
        low, high = high, 2.0 * high
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.trace(part(base * middle)) < size else (low, middle)
    return part(base * high)
