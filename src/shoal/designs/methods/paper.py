"""The paper's Algorithm 1, as repaired (docs/theory.md, section 8).

Block-coordinate descent on the surrogate g_{XX'} = vᵀ A_X' v − ln|A_X'| + ln|A_X| with A = Σ̃⁻¹ and v = μ_X' − μ_X: find
the worst pair (X, X'), step A_X' along −(v vᵀ − A_X'⁻¹), project onto the positive semidefinite matrices, repeat; then
eq. (dpnoisecov) turns A⁻¹ − Σ into noise covariances that spend the budget. Lemma 2's step length, only safe for
edges that leave the updated label, is the first trial; it is halved until the largest surrogate does not rise.

The surrogate guides and never certifies: it is blind to the shape of a covariance, and the rescaling after the loop
undoes its monotonicity. So the exact δ is evaluated after the rescaling, for some iterates from the start (white noise)
to the last, and the best of them is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shoal.compiled import kernel
from shoal.designs.descent import Settings, best_certified
from shoal.designs.moves import Moves, radii
from shoal.designs.problem import Problem
from shoal.eigenpairs import eigenpairs, eigh
from shoal.matrices import EPS, square_root
from shoal.validation import FloatArray, IndexArray

#: Most steps before the descent is stopped.
STEPS = 20_000
#: Numbers of steps after which an iterate is kept to be judged; the last one always is.
JUDGED = (0, 4, 16, 64, 256, 1024, 4096)
#: Steps between two looks at the clock.
STRIDE = 64


def paper(
    problem: Problem, settings: Settings | None = None, starts: Sequence[Moves] = (), *, steps: int = STEPS
) -> Moves:
    """Noise covariances of Algorithm 1, with the history of J, its largest surrogate, over all steps.

    Of the settings it heeds the deadline: the best iterate until then is the answer, at worst the start. Looking at
    the clock changes nothing else.
    """
    n, k = problem.n_labels, problem.n_dims
    base = np.broadcast_to(problem.classes.stored_covs, (n, k, k)) + problem.floor_cov
    # Noise that rounding would swallow cannot be inverted; the iterates are scaled to the budget in any case.
    visible = 64 * k * EPS * np.diagonal(base, axis1=1, axis2=2).max(axis=1)
    start = base + np.maximum(np.maximum(radii(problem), 1e-12) ** 2 / k, visible)[:, None, None] * np.eye(k)
    precision = np.asarray(np.linalg.inv(start), dtype=np.float64)
    means, pairs = problem.classes.means, problem.pairs
    history = np.full(steps + 1, np.nan)
    iterates = []
    taken = 0
    for judged, until in zip(JUDGED, (*JUDGED[1:], steps), strict=True):
        if taken < judged or taken >= steps:
            break
        iterates.append(_rescaled(problem, base, precision))
        log_dets, values = _state(means, precision, pairs)
        history[taken] = values.max()
        stale, ended = 0, False
        while taken < min(until, steps) and not ended:
            if settings is not None and settings.late:
                steps = taken
                break
            part = history[taken : min(taken + STRIDE, until, steps) + 1]
            done, stale, ended = _descend(means, precision, pairs, log_dets, values, stale, part)
            taken += done
    if taken:
        iterates.append(_rescaled(problem, base, precision))
    return replace(best_certified(problem, iterates[::-1]), history=history[: taken + 1])


def _rescaled(problem: Problem, base: FloatArray, precision: FloatArray) -> Moves:
    """Eq. (dpnoisecov): the positive part of A⁻¹ − Σ, scaled to spend the budget."""
    n, k = problem.n_labels, problem.n_dims
    radius = radii(problem)
    missing = np.linalg.inv(precision) - base
    values, vectors = eigh(0.5 * (missing + np.swapaxes(missing, 1, 2)))
    values = np.maximum(values, 0.0)
    trace = values.sum(axis=1)
    # A label whose projection is empty gets white noise: the formula would divide by zero.
    filled = values * (radius**2 / np.maximum(trace, 1e-300))[:, None]
    values = np.where(trace[:, None] > 0, filled, radius[:, None] ** 2 / k)
    noise = (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return Moves(np.zeros((n, k)), None, square_root(noise))


@kernel
def _surrogate(gap: FloatArray, precision: FloatArray, log_det: float, log_det_from: float) -> float:
    total = log_det_from - log_det
    for r in range(len(gap)):
        for s in range(len(gap)):
            total += gap[r] * precision[r, s] * gap[s]
    return total


@kernel
def _lemma_step(
    means: FloatArray, precision: FloatArray, inverse: FloatArray, log_dets: FloatArray, pairs: IndexArray,
    x: int, y: int, worst: float,
) -> float:  # fmt: skip
    """Lemma 2: the largest step for which its linearization keeps every edge of label y below the worst value."""
    v = means[y] - means[x]
    slope = np.sum(inverse * inverse) - v @ inverse @ v
    step = math.inf
    for e in range(len(pairs)):
        i, j = pairs[e, 0], pairs[e, 1]
        if i != y and j != y:
            continue
        z = j if i == y else i
        u = means[y] - means[z]
        leaving = _surrogate(u, precision[z], log_dets[z], log_dets[y])
        if slope > 0.0 and worst > leaving:
            step = min(step, (worst - leaving) / slope)
        if z == x:
            continue
        entering = _surrogate(u, precision[y], log_dets[y], log_dets[z])
        down = v @ u
        rate = -slope - down * down + u @ inverse @ u
        if rate > 0.0 and worst > entering:
            step = min(step, (worst - entering) / rate)
    return step if step < math.inf else 0.1


@kernel
def _state(means: FloatArray, precision: FloatArray, pairs: IndexArray) -> tuple[FloatArray, FloatArray]:
    """ln|A| of every label, and the surrogate of every edge in both directions."""
    n = len(means)
    log_dets = np.empty(n)
    for i in range(n):
        log_dets[i] = np.linalg.slogdet(precision[i])[1]
    values = np.empty((len(pairs), 2))
    for e in range(len(pairs)):
        i, j = pairs[e, 0], pairs[e, 1]
        values[e, 0] = _surrogate(means[j] - means[i], precision[j], log_dets[j], log_dets[i])
        values[e, 1] = _surrogate(means[j] - means[i], precision[i], log_dets[i], log_dets[j])
    return log_dets, values


@kernel
def _descend(
    means: FloatArray, precision: FloatArray, pairs: IndexArray, log_dets: FloatArray, values: FloatArray, stale: int,
    history: FloatArray,
) -> tuple[int, int, bool]:  # fmt: skip
    """Run the descent in place; returns the steps taken, the last of them that gained nothing, and whether it ended."""
    n, k = means.shape
    ended = False
    trial_values = values.copy()
    taken = 0
    for step in range(len(history) - 1):
        flat = int(np.argmax(values))
        e, direction = flat // 2, flat % 2
        x, y = (pairs[e, 0], pairs[e, 1]) if direction == 0 else (pairs[e, 1], pairs[e, 0])
        worst = values[e, direction]
        history[step] = worst
        v = means[y] - means[x]
        inverse = np.linalg.inv(precision[y])
        gradient = np.outer(v, v) - inverse
        alpha = _lemma_step(means, precision, inverse, log_dets, pairs, x, y, worst)
        found = False
        for _ in range(80):
            trial = precision[y] - alpha * gradient
            eigenvalues, rows = eigenpairs(0.5 * (trial + trial.T))
            largest = eigenvalues.max()
            floor = 1e-12 * largest
            if largest > 0.0:
                log_det = 0.0
                for r in range(k):
                    eigenvalues[r] = max(eigenvalues[r], floor)
                    log_det += math.log(eigenvalues[r])
                trial = (rows.T * eigenvalues) @ rows
                highest = -math.inf
                for f in range(len(pairs)):
                    i, j = pairs[f, 0], pairs[f, 1]
                    if i == y:
                        trial_values[f, 0] = _surrogate(means[j] - means[i], precision[j], log_dets[j], log_det)
                        trial_values[f, 1] = _surrogate(means[j] - means[i], trial, log_det, log_dets[j])
                    elif j == y:
                        trial_values[f, 0] = _surrogate(means[j] - means[i], trial, log_det, log_dets[i])
                        trial_values[f, 1] = _surrogate(means[j] - means[i], precision[i], log_dets[i], log_det)
                    highest = max(highest, trial_values[f, 0], trial_values[f, 1])
                if highest <= worst and trial_values[e, direction] < worst:
                    found = True
                    break
            alpha *= 0.5
        if not found:
            ended = True
            break
        precision[y] = trial
        log_dets[y] = log_det
        values[:] = trial_values
        taken = step + 1
        stale = stale + 1 if worst - highest <= 1e-9 * (1.0 + abs(worst)) else 0
        if stale > 4 * n:
            ended = True
            break
    history[taken] = values.max()
    return taken, stale, ended
