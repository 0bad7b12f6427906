"""``ellipsoid``: one covariance for all labels, of the least trace that holds all differences of neighbors' means.

min Tr S subject to d'S⁻¹d ≤ 1 for every edge's difference d (Nikolov & Tang, arXiv 2301.13850; docs/theory.md, section
6.2). For weights w on the edges, summing to one, and M = Σ w dd', the least Σ w d'S⁻¹d of trace one is (Tr M^{1/2})²,
at S ∝ M^{1/2}; multiplicative steps w ← w·q/⟨w, q⟩, q = d'S⁻¹d, close the gap.
**Optimal** for constants under one ε, one budget and no noise floor. For random answers the smoothed maximum of the
exact δ is minimized over S = C C', Tr S = kρ, from equal noise (:mod:`shoal.designs.objectives`): the best found.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from shoal.designs.descent import STAGES, Settings, active_edges, worst_log_delta
from shoal.designs.objectives import log_deltas, log_odds, smoothed_odds, trial_laws
from shoal.designs.problem import UNHURRIED, DesignProblem, Moves, budget_radii
from shoal.designs.quasi_newton import minimize
from shoal.numerics.matrices import square_root
from shoal.validation import FloatArray, IndexArray

#: Relative gap between the two bounds that is enough, and rounds at most.
GAP, ROUNDS = 1e-4, 5000
#: Edges that carry weight at first, per entry.
CARRYING = 8


def ellipsoid(problem: DesignProblem, settings: Settings = UNHURRIED, starts: Sequence[Moves] = ()) -> Moves:
    """White noise or the best common covariance found, whichever has the least δ; optimal for constants."""
    shapes = [np.eye(problem.n_dims), shape_for_constants(problem, settings)]
    if problem.classes.stored_variances.any():
        shapes.append(_shape_for_random_answers(problem, settings))
    choices = [_common_noise(problem, square_root(shape[None])[0]) for shape in shapes]
    return min(reversed(choices), key=lambda moves: worst_log_delta(problem, moves))


def _common_noise(problem: DesignProblem, root: FloatArray) -> Moves:
    """Noise for every label with the shape root rootᵀ, at the least of the budgets."""
    n, size = problem.n_labels, float(budget_radii(problem).min())
    noise = np.tile(root * (size / np.linalg.norm(root)), (n, 1, 1))
    return Moves(np.zeros((n, problem.n_dims)), None, noise)


def shape_for_constants(problem: DesignProblem, settings: Settings = UNHURRIED, *, gap: float = GAP) -> FloatArray:
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
        if len(missed) == 0 or settings.is_late:
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
    gaps: FloatArray, weights: FloatArray, gap: float, settings: Settings
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
        if best <= lower * (1 + gap) or (number % 64 == 0 and settings.is_late):
            break
        weights = weights * sizes / float(weights @ sizes)
    return weights, shape


def _shape_for_random_answers(problem: DesignProblem, settings: Settings) -> FloatArray:
    """Shape C Cᵀ of the noise with the least worst δ of random answers, by L-BFGS over C from equal noise."""
    k, square = problem.n_dims, float(budget_radii(problem).min()) ** 2

    def objective(edges: IndexArray, sharpness: float, x: FloatArray) -> tuple[float, FloatArray]:
        length = float(np.linalg.norm(x))
        root = x.reshape(k, k) / length
        value, cov_grad, _ = smoothed_odds(problem, edges, sharpness, trial_laws(problem, _common_noise(problem, root)))
        gradient = 2.0 * square * cov_grad.sum(axis=0) @ root
        return value, ((gradient - (gradient * root).sum() * root) / length).ravel()

    root = np.eye(k) / np.sqrt(k)
    for sharpness, usual in STAGES:
        if settings.is_late:
            break
        odds = log_odds(log_deltas(problem, trial_laws(problem, _common_noise(problem, root))).max(axis=1))
        edges, steps = np.flatnonzero(active_edges(odds, sharpness, problem.n_labels)), settings.steps(usual)
        worst = partial(objective, edges, sharpness)
        root = minimize(worst, root.ravel(), iterations=steps, stop=lambda: settings.is_late)[0].reshape(k, k)
    return np.asarray(root @ root.T)
