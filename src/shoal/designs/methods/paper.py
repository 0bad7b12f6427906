"""The paper's Algorithm 1, as repaired (docs/theory.md, section 8).

Block-coordinate descent on the surrogate g_{XX'} = vᵀ A_X' v − ln|A_X'| + ln|A_X| with A = Σ̃⁻¹ and v = μ_X' − μ_X: find
the worst pair (X, X'), step A_X' along −(v vᵀ − A_X'⁻¹), project onto the positive semidefinite matrices, repeat; then
eq. (dpnoisecov) turns A⁻¹ − Σ into noise covariances that spend the budget. Lemma 2's step length is the first trial;
it is halved until the largest surrogate does not rise. The surrogate guides and never certifies: the exact δ is
evaluated after the rescaling, for some iterates from the start (white noise) to the last, and the best is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shoal.designs.descent import Settings
from shoal.designs.parameters import certify
from shoal.designs.problem import DesignProblem, Moves, radii
from shoal.numerics.compilation import kernel
from shoal.numerics.eigenpairs import eigenpairs, eigh
from shoal.numerics.matrices import EPS, square_root
from shoal.validation import FloatArray, IndexArray

#: Most steps before the descent is stopped.
STEPS = 20_000
#: Numbers of steps after which an iterate is kept to be judged; the last one always is.
JUDGED = (0, 4, 16, 64, 256, 1024, 4096)
#: Steps between two looks at the clock.
STRIDE = 64


def paper(
    problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = (), *, steps: int = STEPS
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
        iterates.append(_rescale(problem, base, precision))
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
        iterates.append(_rescale(problem, base, precision))
    certificates = [certify(problem, moves) for moves in reversed(iterates)]
    return replace(iterates[-1 - int(np.argmin(certificates))], history=history[: taken + 1])


def _rescale(problem: DesignProblem, base: FloatArray, precision: FloatArray) -> Moves:
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


def _state(means: FloatArray, precision: FloatArray, pairs: IndexArray) -> tuple[FloatArray, FloatArray]:
    """ln|A| of every label, and the surrogate of every edge in both directions."""
    log_dets = np.asarray(np.linalg.slogdet(precision)[1], dtype=np.float64)
    i, j = pairs[:, 0], pairs[:, 1]
    gap, change = means[j] - means[i], log_dets[i] - log_dets[j]
    there, back = (np.einsum("er,ers,es->e", gap, precision[side], gap) for side in (j, i))
    return log_dets, np.stack([there + change, back - change], axis=1)


# The kernels below write small products out: NumPy's would take longer to compile than all the rest.


@kernel
def _form(means: FloatArray, i: int, j: int, matrix: FloatArray) -> float:
    """(μ_j − μ_i)' matrix (μ_j − μ_i)."""
    total = 0.0
    for r in range(means.shape[1]):
        row = 0.0
        for s in range(means.shape[1]):
            row += matrix[r, s] * (means[j, s] - means[i, s])
        total += row * (means[j, r] - means[i, r])
    return total


@kernel
def _compose(values: FloatArray, rows: FloatArray, out: FloatArray) -> None:
    """Σ values_m rows_m rows_m'."""
    k = len(values)
    for r in range(k):
        for s in range(r + 1):
            total = 0.0
            for m in range(k):
                total += values[m] * rows[m, r] * rows[m, s]
            out[r, s] = out[s, r] = total


@kernel
def _lemma_step(
    means: FloatArray, precision: FloatArray, inverse: FloatArray, log_dets: FloatArray, pairs: IndexArray,
    x: int, y: int, worst: float,
) -> float:  # fmt: skip
    """Lemma 2: the largest step for which its linearization keeps every edge of label y below the worst value."""
    k = means.shape[1]
    slope = -_form(means, x, y, inverse)
    for r in range(k):
        for s in range(k):
            slope += inverse[r, s] * inverse[r, s]
    step = math.inf
    for e in range(len(pairs)):
        i, j = pairs[e, 0], pairs[e, 1]
        if i != y and j != y:
            continue
        z = j if i == y else i
        leaving = _form(means, z, y, precision[z]) + log_dets[y] - log_dets[z]
        if slope > 0.0 and worst > leaving:
            step = min(step, (worst - leaving) / slope)
        if z == x:
            continue
        entering = _form(means, z, y, precision[y]) + log_dets[z] - log_dets[y]
        down = 0.0
        for r in range(k):
            down += (means[y, r] - means[x, r]) * (means[y, r] - means[z, r])
        rate = -slope - down * down + _form(means, z, y, inverse)
        if rate > 0.0 and worst > entering:
            step = min(step, (worst - entering) / rate)
    return step if step < math.inf else 0.1


@kernel
def _descend(
    means: FloatArray, precision: FloatArray, pairs: IndexArray, log_dets: FloatArray, values: FloatArray, stale: int,
    history: FloatArray,
) -> tuple[int, int, bool]:  # fmt: skip
    """Run the descent in place; returns the steps taken, the last of them that gained nothing, and whether it ended.

    ``history`` holds the largest value before the first step and gets that after every one.
    """
    n, k = means.shape
    ended, taken = False, 0
    trial_values = values.copy()
    inverse, gradient, trial, symmetric = np.empty((k, k)), np.empty((k, k)), np.empty((k, k)), np.empty((k, k))
    for step in range(len(history) - 1):
        e, direction, worst = 0, 0, -math.inf
        for f in range(len(pairs)):
            for side in range(2):
                if values[f, side] > worst:
                    e, direction, worst = f, side, values[f, side]
        x, y = pairs[e, direction], pairs[e, 1 - direction]
        eigenvalues, rows = eigenpairs(precision[y])
        for r in range(k):
            eigenvalues[r] = 1.0 / eigenvalues[r]
        _compose(eigenvalues, rows, inverse)
        for r in range(k):
            for s in range(k):
                gradient[r, s] = (means[y, r] - means[x, r]) * (means[y, s] - means[x, s]) - inverse[r, s]
        alpha = _lemma_step(means, precision, inverse, log_dets, pairs, x, y, worst)
        falls = False
        highest, log_det = worst, 0.0
        for _ in range(80):
            for r in range(k):
                for s in range(k):
                    trial[r, s] = precision[y, r, s] - alpha * gradient[r, s]
            for r in range(k):
                for s in range(k):
                    symmetric[r, s] = 0.5 * (trial[r, s] + trial[s, r])
            eigenvalues, rows = eigenpairs(symmetric)
            largest = -math.inf
            for r in range(k):
                largest = max(largest, eigenvalues[r])
            if largest > 0.0:
                log_det = 0.0
                for r in range(k):
                    eigenvalues[r] = max(eigenvalues[r], 1e-12 * largest)
                    log_det += math.log(eigenvalues[r])
                _compose(eigenvalues, rows, trial)
                highest = -math.inf
                for f in range(len(pairs)):
                    i, j = pairs[f, 0], pairs[f, 1]
                    if i == y:
                        trial_values[f, 0] = _form(means, i, j, precision[j]) + log_det - log_dets[j]
                        trial_values[f, 1] = _form(means, i, j, trial) + log_dets[j] - log_det
                    elif j == y:
                        trial_values[f, 0] = _form(means, i, j, trial) + log_dets[i] - log_det
                        trial_values[f, 1] = _form(means, i, j, precision[i]) + log_det - log_dets[i]
                    highest = max(highest, trial_values[f, 0], trial_values[f, 1])
                if highest <= worst and trial_values[e, direction] < worst:
                    falls = True
                    break
            alpha *= 0.5
        if not falls:
            ended = True
            break
        for r in range(k):
            for s in range(k):
                precision[y, r, s] = trial[r, s]
        log_dets[y] = log_det
        for f in range(len(pairs)):
            for side in range(2):
                values[f, side] = trial_values[f, side]
        taken = step + 1
        history[taken] = highest
        stale = stale + 1 if worst - highest <= 1e-9 * (1.0 + abs(worst)) else 0
        if stale > 4 * n:
            ended = True
            break
    return taken, stale, ended
