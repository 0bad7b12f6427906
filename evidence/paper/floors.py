"""How far from the best is a design? A δ that no Gaussian mechanism with the same error budget goes below.

Look at one edge along one direction a. Whatever a mechanism with Gaussian output does, the projected answer of label X
goes from N(m, s²) to some N(m̃, s̃²) with (m̃ − m)² + (s̃ − s)² ≤ r², since the left side is the least mean squared error
between the two (the one-dimensional Wasserstein distance) and projecting does not increase the error. Nor does it
increase δ. So

    δ ≥ min over both labels' discs of δ(N(m̃, s̃²), N(m̃', s̃'²))

for every edge and direction: a problem in four variables, solved here on a grid with local refinement. The discs touch,
and the bound is 0, exactly when perfect indistinguishability is affordable along a. The other notions lie above the
hockey-stick δ, so the bound serves them too. In a table both rows are projected, and δ is that of exchanging them. It
is a numerical minimum, good to a few digits, for judging a design; no certificate rests on it.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.accounting.cumulants import HOCKEY, RIGHT, LossLaw
from shoal.accounting.tails import log_tail_bracket
from shoal.designs.problem import DesignProblem
from shoal.numerics.compilation import kernel
from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray

#: Edges looked at: those farthest apart for their budgets. Any subset gives a valid bound.
EDGES = 12
#: Points of a circle that are tried first, and rounds of improvement after that.
ANGLES, SWEEPS = 16, 40


def delta_floor(problem: DesignProblem) -> float:
    """The largest of the bounds found over edges and directions; 0 where nothing is known."""
    means, covs = problem.classes.means, problem.classes.covs
    i, j = problem.pairs[:, 0], problem.pairs[:, 1]
    gaps = means[j] - means[i]
    reach = np.sqrt(problem.budgets)
    spread = np.sqrt(np.trace(covs[i] + covs[j], axis1=1, axis2=2) / problem.n_dims) + 1e-300
    apart = (np.linalg.norm(gaps, axis=1) - reach[i] - reach[j]) / spread
    best = 0.0
    for e in np.argsort(-apart)[:EDGES]:
        a, b = int(i[e]), int(j[e])
        for direction in _directions(gaps[e], covs[a], covs[b]):
            disc_a = _disc(direction, means[a], covs[a], reach[a])
            disc_b = _disc(direction, means[b], covs[b], reach[b])
            if math.hypot(disc_a[0] - disc_b[0], disc_a[1] - disc_b[1]) > disc_a[2] + disc_b[2]:
                table = problem.scope == "table"
                best = max(best, _disc_minimum(disc_a, disc_b, float(problem.epsilons[e, 0]), table, best))
                if not table:
                    best = max(best, _disc_minimum(disc_b, disc_a, float(problem.epsilons[e, 1]), table, best))
    return best


def _directions(gap: FloatArray, cov_a: FloatArray, cov_b: FloatArray) -> list[FloatArray]:
    """Unit vectors along which the two laws may differ most: the gap, and the gap seen through the covariances."""
    pooled = cov_a + cov_b
    width = float(np.trace(pooled)) / len(gap)
    directions = [gap] if gap.any() else []
    if gap.any() and width > 0:
        directions.append(np.asarray(np.linalg.solve(pooled / width + 1e-9 * np.eye(len(gap)), gap), dtype=np.float64))
    values, vectors = eigh(cov_a - cov_b)
    directions.append(vectors[:, int(np.argmax(np.abs(values)))])
    return [v / np.linalg.norm(v) for v in directions if np.linalg.norm(v) > 0]


def _disc(direction: FloatArray, mean: FloatArray, cov: FloatArray, reach: float) -> FloatArray:
    return np.array([direction @ mean, math.sqrt(max(float(direction @ cov @ direction), 0.0)), reach])


def _disc_minimum(disc: FloatArray, other: FloatArray, epsilon: float, table: bool, enough: float) -> float:
    """Least δ over the two discs (m, s, r), or 0 where it is known to lie below ``enough``."""
    rows = 2 if table else 1
    target = math.log(enough) if enough > 0.0 else -math.inf
    at, trial = np.zeros((2, 4))
    lam, g, a, zero = np.zeros((4, rows, 1))
    least = _search(disc, other, epsilon, target, at, trial, lam, g, a, zero, np.ones(rows))
    return 0.0 if least <= target else math.exp(least) * (1.0 - 1e-6)


# One kernel with one call of ``tail`` and without arrays of its own: anything else takes seconds more to compile.
@kernel
def _search(
    disc: FloatArray, other: FloatArray, epsilon: float, target: float, at: FloatArray, trial: FloatArray,
    lam: FloatArray, g: FloatArray, a: FloatArray, zero: FloatArray, once: FloatArray,
) -> float:  # fmt: skip
    """Least ln δ between points of two discs, on a grid of angles and then axis by axis; broken off at ``target``.

    A place is (angle, angle, share of the radius, share of the radius); ``at`` ends as the best one. The rest is room
    to work in, with a row per direction: two in a table, where δ is that of exchanging the two.
    """
    grid = ANGLES * ANGLES
    best, width, moved = math.inf, 2.0 * math.pi / ANGLES, True
    for number in range(grid + 8 * SWEEPS):
        if number < grid:
            trial[0] = 2.0 * math.pi * (number // ANGLES) / ANGLES
            trial[1] = 2.0 * math.pi * (number % ANGLES) / ANGLES
            trial[2] = trial[3] = 1.0
        else:
            step = (number - grid) % 8
            if step == 0:
                width *= 1.0 if moved else 0.5
                if best <= target or width < 1e-5:
                    break
                moved = False
            axis, length = step // 2, width if step % 2 == 1 else -width
            for i in range(4):
                trial[i] = at[i]
            trial[axis] += length if axis < 2 else 0.5 * length
            if axis >= 2:
                trial[axis] = min(max(trial[axis], 0.0), 1.0)
        r, r2 = trial[2] * disc[2], trial[3] * other[2]
        gap = other[0] + r2 * math.cos(trial[1]) - disc[0] - r * math.cos(trial[0])
        s, s2 = disc[1] + r * math.sin(trial[0]), other[1] + r2 * math.sin(trial[1])
        value = 0.0
        if s > 0.0 and s2 > 0.0:
            total = 0.0
            for row in range(len(lam)):
                lam[row, 0] = 2.0 * math.log(s / s2)
                g[row, 0] = math.expm1(lam[row, 0])
                a[row, 0] = (gap / s2) * (gap / s2)
                total += lam[row, 0]
                s, s2 = s2, s
            value = log_tail_bracket(HOCKEY, RIGHT, epsilon, LossLaw(lam, g, a, once, zero, zero, total), -math.inf)[0]
        if value < best:
            best, moved = value, True
            for i in range(4):
                at[i] = trial[i]
    return best
