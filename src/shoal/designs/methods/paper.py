"""``paper``: the paper's Algorithm 1, as repaired (docs/theory.md, section 8).

Block-coordinate descent on the surrogate g_{XX'} = vᵀ A_X' v − ln|A_X'| + ln|A_X| with A = Σ̃⁻¹ and v = μ_X' − μ_X: step
A_X' of the worst pair along −(v vᵀ − A_X'⁻¹), project onto the positive semidefinite matrices, repeat. Lemma 2's step
length is halved until the largest surrogate does not rise; eq. (dpnoisecov) turns A⁻¹ − Σ into noise that spends the
budget. The surrogate never certifies: of some iterates the one with the least exact δ is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shoal.designs.descent import Settings
from shoal.designs.parameters import certified_log_delta
from shoal.designs.problem import UNHURRIED, DesignProblem, Moves, budget_radii
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
    problem: DesignProblem, settings: Settings = UNHURRIED, starts: Sequence[Moves] = (), *, steps: int = STEPS
) -> Moves:
    """Noise covariances of Algorithm 1 for every label; ``history`` of the moves is the largest surrogate by step.

    At the deadline of the settings the best iterate until then is the answer, at worst the start.
    """
    n, k = problem.n_labels, problem.n_dims
    base = np.broadcast_to(problem.classes.stored_covs, (n, k, k)) + problem.floor_cov
    # Noise that rounding would swallow cannot be inverted; the iterates are scaled to the budget in any case.
    visible = 64 * k * EPS * np.diagonal(base, axis1=1, axis2=2).max(axis=1)
    start = base + np.maximum(np.maximum(budget_radii(problem), 1e-12) ** 2 / k, visible)[:, None, None] * np.eye(k)
    precision = np.asarray(np.linalg.inv(start), dtype=np.float64)
    means, pairs = problem.classes.means, problem.pairs
    history = np.full(steps + 1, np.nan)
    iterates = []
    taken = 0
    for known_log_deltas, until in zip(JUDGED, (*JUDGED[1:], steps), strict=True):
        if taken < known_log_deltas or taken >= steps:
            break
        iterates.append(_noise_of_precisions(problem, base, precision))
        log_dets, values = _log_dets_and_surrogates(means, precision, pairs)
        history[taken] = values.max()
        stale, ended = 0, False
        while taken < min(until, steps) and not ended:
            if settings.is_late:
                steps = taken
                break
            part = history[taken : min(taken + STRIDE, until, steps) + 1]
            done, stale, ended = _descend_surrogates(means, precision, pairs, log_dets, values, stale, part)
            taken += done
    if taken:
        iterates.append(_noise_of_precisions(problem, base, precision))
    certificates = [certified_log_delta(problem, moves) for moves in reversed(iterates)]
    return replace(iterates[-1 - int(np.argmin(certificates))], history=history[: taken + 1])


def _noise_of_precisions(problem: DesignProblem, base: FloatArray, precision: FloatArray) -> Moves:
    """Noise covariances from the precisions A: the positive part of A⁻¹ − Σ, scaled to the budget (dpnoisecov)."""
    n, k = problem.n_labels, problem.n_dims
    radius = budget_radii(problem)
    missing = np.linalg.inv(precision) - base
    values, vectors = eigh(0.5 * (missing + np.swapaxes(missing, 1, 2)))
    values = np.maximum(values, 0.0)
    trace = values.sum(axis=1)
    # A label whose projection is empty gets white noise: the formula would divide by zero.
    filled = values * (radius**2 / np.maximum(trace, 1e-300))[:, None]
    values = np.where(trace[:, None] > 0, filled, radius[:, None] ** 2 / k)
    noise = (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return Moves(np.zeros((n, k)), None, square_root(noise))


def _log_dets_and_surrogates(
    means: FloatArray, precision: FloatArray, pairs: IndexArray
) -> tuple[FloatArray, FloatArray]:
    """(n,) ln|A| of every label, and (edges, 2) the surrogate of every edge in both directions."""
    log_dets = np.asarray(np.linalg.slogdet(precision)[1], dtype=np.float64)
    i, j = pairs[:, 0], pairs[:, 1]
    gap, change = means[j] - means[i], log_dets[i] - log_dets[j]
    there, back = (np.einsum("er,ers,es->e", gap, precision[side], gap) for side in (j, i))
    return log_dets, np.stack([there + change, back - change], axis=1)


# The kernels below write small products out: NumPy's would take longer to compile than all the rest.


@kernel
def _quadratic_form(means: FloatArray, i: int, j: int, matrix: FloatArray) -> float:
    """The quadratic form (μ_j − μ_i)' matrix (μ_j − μ_i) of the difference of two means."""
    total = 0.0
    for r in range(means.shape[1]):
        row = 0.0
        for s in range(means.shape[1]):
            row += matrix[r, s] * (means[j, s] - means[i, s])
        total += row * (means[j, r] - means[i, r])
    return total


@kernel
def _matrix_from_eigenpairs(values: FloatArray, rows: FloatArray, out: FloatArray) -> None:
    """Write the matrix Σ values_m rows_m rows_m' with these eigenvalues and eigenvectors to ``out``."""
    k = len(values)
    for r in range(k):
        for s in range(r + 1):
            total = 0.0
            for m in range(k):
                total += values[m] * rows[m, r] * rows[m, s]
            out[r, s] = out[s, r] = total


@kernel
def _lemma_2_step(
    means: FloatArray, precision: FloatArray, inverse: FloatArray, log_dets: FloatArray, pairs: IndexArray,
    x: int, y: int, worst: float,
) -> float:  # fmt: skip
    """The step length of Lemma 2: the largest for which its linearization keeps all edges of y below the worst."""
    slope = -_quadratic_form(means, x, y, inverse)
    for value in inverse.ravel():
        slope += value * value
    step = math.inf
    for e in range(len(pairs)):
        i, j = pairs[e, 0], pairs[e, 1]
        if i != y and j != y:
            continue
        z = j if i == y else i
        leaving = _quadratic_form(means, z, y, precision[z]) + log_dets[y] - log_dets[z]
        if slope > 0.0 and worst > leaving:
            step = min(step, (worst - leaving) / slope)
        if z == x:
            continue
        entering = _quadratic_form(means, z, y, precision[y]) + log_dets[z] - log_dets[y]
        down = ((means[y] - means[x]) * (means[y] - means[z])).sum()
        rate = -slope - down * down + _quadratic_form(means, z, y, inverse)
        if rate > 0.0 and worst > entering:
            step = min(step, (worst - entering) / rate)
    return step if step < math.inf else 0.1


@kernel
def _descend_surrogates(
    means: FloatArray, precision: FloatArray, pairs: IndexArray, log_dets: FloatArray, values: FloatArray, stale: int,
    history: FloatArray,
) -> tuple[int, int, bool]:  # fmt: skip
    """Descend in place; return the steps taken, how many at the end gained nothing, and whether none is left.

    ``history`` holds the largest surrogate before the first step and gets that after every one.
    """
    n, k = means.shape
    trial_values = values.copy()
    inverse, trial = np.empty((k, k)), np.empty((k, k))
    for step in range(len(history) - 1):
        e, direction = divmod(np.argmax(values), 2)
        worst = values[e, direction]
        x, y = pairs[e, direction], pairs[e, 1 - direction]
        eigenvalues, rows = eigenpairs(precision[y])
        _matrix_from_eigenpairs(1.0 / eigenvalues, rows, inverse)
        gap = means[y] - means[x]
        gradient = gap.reshape(k, 1) * gap - inverse
        alpha = _lemma_2_step(means, precision, inverse, log_dets, pairs, x, y, worst)
        falls = False
        highest, log_det = worst, 0.0
        for _ in range(80):
            moved = precision[y] - alpha * gradient
            eigenvalues, rows = eigenpairs(0.5 * (moved + moved.T))
            if eigenvalues.max() > 0.0:
                eigenvalues = np.maximum(eigenvalues, 1e-12 * eigenvalues.max())
                log_det = np.log(eigenvalues).sum()
                _matrix_from_eigenpairs(eigenvalues, rows, trial)
                highest = -math.inf
                for f in range(len(pairs)):
                    i, j = pairs[f, 0], pairs[f, 1]
                    if i == y:
                        trial_values[f, 0] = _quadratic_form(means, i, j, precision[j]) + log_det - log_dets[j]
                        trial_values[f, 1] = _quadratic_form(means, i, j, trial) + log_dets[j] - log_det
                    elif j == y:
                        trial_values[f, 0] = _quadratic_form(means, i, j, trial) + log_dets[i] - log_det
                        trial_values[f, 1] = _quadratic_form(means, i, j, precision[i]) + log_det - log_dets[i]
                    highest = max(highest, trial_values[f, 0], trial_values[f, 1])
                if highest <= worst and trial_values[e, direction] < worst:
                    falls = True
                    break
            alpha *= 0.5
        if not falls:
            return step, stale, True
        precision[y] = trial
        log_dets[y] = log_det
        values[:] = trial_values
        history[step + 1] = highest
        stale = stale + 1 if worst - highest <= 1e-9 * (1.0 + abs(worst)) else 0
        if stale > 4 * n:
            return step + 1, stale, True
    return len(history) - 1, stale, False
