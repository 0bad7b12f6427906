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

from shoal.accounting.generating import HOCKEY, RIGHT, LossLaw
from shoal.accounting.tails import tail
from shoal.compiled import kernel
from shoal.designs.problem import Problem
from shoal.eigenpairs import eigh
from shoal.validation import FloatArray

#: Edges looked at: those farthest apart for their budgets. Any subset gives a valid bound.
EDGES = 12
ANGLES = 16


def lower_bound(problem: Problem) -> float:
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
                epsilon, table = float(problem.epsilons[e, 0]), problem.scope == "table"
                best = max(best, _disc_minimum(disc_a, disc_b, epsilon, table, best))
                if not table:
                    best = max(best, _disc_minimum(disc_b, disc_a, epsilon, table, best))
    return best


def _directions(gap: FloatArray, cov_a: FloatArray, cov_b: FloatArray) -> list[FloatArray]:
    """Unit vectors along which the two laws may differ most: the gap, and the gap seen through the covariances."""
    pooled = cov_a + cov_b
    width = float(np.trace(pooled)) / len(gap)
    found = [gap] if gap.any() else []
    if gap.any() and width > 0:
        found.append(np.asarray(np.linalg.solve(pooled / width + 1e-9 * np.eye(len(gap)), gap), dtype=np.float64))
    values, vectors = eigh(cov_a - cov_b)
    found.append(vectors[:, int(np.argmax(np.abs(values)))])
    return [v / np.linalg.norm(v) for v in found if np.linalg.norm(v) > 0]


def _disc(direction: FloatArray, mean: FloatArray, cov: FloatArray, reach: float) -> FloatArray:
    return np.array([direction @ mean, math.sqrt(max(float(direction @ cov @ direction), 0.0)), reach])


@kernel
def _one_dimensional(m: float, s: float, m2: float, s2: float, epsilon: float, table: bool) -> float:
    """ln of the hockey-stick δ from N(m, s²) to N(m2, s2²), or of exchanging the two in a table."""
    if s <= 0.0 or s2 <= 0.0:
        return 0.0
    rows = 2 if table else 1
    lam, g, a, zero = np.empty((rows, 1)), np.empty((rows, 1)), np.empty((rows, 1)), np.zeros((rows, 1))
    for r in range(rows):
        lam[r, 0] = 2.0 * math.log(s / s2)
        g[r, 0] = math.expm1(lam[r, 0])
        a[r, 0] = ((m2 - m) / s2) * ((m2 - m) / s2)
        s, s2 = s2, s
    law = LossLaw(lam, g, a, np.ones(rows), zero, zero, lam.sum())
    return tail(HOCKEY, RIGHT, epsilon, law, -math.inf)[0]


@kernel
def _at(disc: FloatArray, other: FloatArray, place: FloatArray, epsilon: float, table: bool) -> float:
    """ln δ between two points of the discs, given as (angle, angle, share of the radius, share of the radius)."""
    r, r2 = place[2] * disc[2], place[3] * other[2]
    return _one_dimensional(
        disc[0] + r * math.cos(place[0]),
        disc[1] + r * math.sin(place[0]),
        other[0] + r2 * math.cos(place[1]),
        other[1] + r2 * math.sin(place[1]),
        epsilon,
        table,
    )


@kernel
def _disc_minimum(disc: FloatArray, other: FloatArray, epsilon: float, table: bool, enough: float) -> float:
    """Least δ over the two discs (m, s, r); stops early once it is known to lie below ``enough``."""
    target = math.log(enough) if enough > 0.0 else -math.inf
    best, at = math.inf, np.zeros(4)
    for p in range(ANGLES):
        for q in range(ANGLES):
            trial = np.array([2.0 * math.pi * p / ANGLES, 2.0 * math.pi * q / ANGLES, 1.0, 1.0])
            value = _at(disc, other, trial, epsilon, table)
            if value < best:
                best = value
                at[:] = trial
    width = 2.0 * math.pi / ANGLES
    for _ in range(40):
        if best <= target:
            return 0.0
        moved = False
        for axis in range(4):
            for sign in (-1.0, 1.0):
                trial = at.copy()
                trial[axis] += sign * width * (1.0 if axis < 2 else 0.5)
                if axis >= 2:
                    trial[axis] = min(max(trial[axis], 0.0), 1.0)
                value = _at(disc, other, trial, epsilon, table)
                if value < best:
                    best = value
                    at[:] = trial
                    moved = True
        if not moved:
            width *= 0.5
            if width < 1e-5:
                break
    return math.exp(best) * (1.0 - 1e-6)
