"""Column generation: which sets of labels a codebook uses, and how often.

    minimize Σ_S x_S V(S)   subject to   Σ_S x_S v_i(S) = 1 for every label i,  x ≥ 0      (objective "mean")
    minimize r              subject to the same and Σ_S x_S v_i(S) |q_i − c_S|² ≤ r for i   (objective "worst")

A few columns are kept; their linear program gives multipliers λ, and for "worst" weights p as well; sets of negative
reduced cost V(S) − Σ λ_i v_i(S) join until none is left. Up to :data:`~shoal.mechanism.subsets.LARGEST` labels all
subsets are looked at, and the multipliers prove a lower bound. Beyond, sets are looked for by Lloyd steps: for a curve
c the best set is {i : p_i |q_i − c|² < λ_i}, and for a set the best curve is its weighted mean.

Prices are asked halfway between the multipliers of the program and the best known ones: the program's jump about,
and would bring in many columns that are never used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.mechanism.subsets import LARGEST, Subsets
from shoal.numerics.matrices import EPS
from shoal.validation import BoolArray, FloatArray

#: Sets to start with beside the neighborhoods, and sets that join in one round.
START, BATCH = 400, 100
#: The search ends when the value lies this close, relatively, above the proved bound; or after so many rounds. The
#: largest error has curves of its own for every p, and its columns never end: what they still gain is soon nothing.
TOLERANCE, WORST_TOLERANCE, ROUNDS = 1e-8, 1e-5, 200
#: A search without a bound ends when so many rounds have gained less than this, relatively.
PATIENCE, LEAST_GAIN = 12, 1e-6
#: Columns beyond which the dearest half is dropped.
KEPT = 800
#: Subsets of a group beyond LARGEST for which a bound is proved, each for itself.
CHUNK = 15
#: Curves that Lloyd steps start from, and steps.
LLOYD_STARTS, LLOYD_STEPS = 128, 25


@dataclass(frozen=True)
class Columns:
    """Sets of a group in use, (m, n); how often, (m,): x_S v_i(S) is the probability of S under label i; the curve of
    each as a convex combination of the members' answers, ``shares`` (m, n); and a proved lower bound of the objective.
    """

    sets: BoolArray
    often: FloatArray
    shares: FloatArray
    lower_bound: float


def center_alone(weights: FloatArray, lower_bound: float = 0.0) -> Columns:
    """One curve for all."""
    n = len(weights)
    return Columns(np.ones((1, n), dtype=bool), np.ones(1), (weights / weights.sum())[None, :], lower_bound)


def best_columns(answers: FloatArray, weights: FloatArray | None, low: float) -> Columns:
    """The best codebook of one complete group.

    Args:
        answers: (n, k).
        weights: (n,), summing to 1: minimize the mean error; None: minimize the largest.
        low: e^−ε rounded down.

    Returns:
        The columns; ``lower_bound`` is in the unit of the answers, squared and summed over entries.
    """
    n, k = answers.shape
    gaps = answers[:, None, :] - answers[None, :, :]
    scale = float(np.abs(gaps).max())
    if scale == 0.0:
        return center_alone(np.full(n, 1.0 / n) if weights is None else weights)
    # A power of two, so that scaling rounds nothing; the largest difference becomes 1 to 2.
    unit = 2.0 ** math.floor(math.log2(scale))
    distances = ((gaps / unit) ** 2).sum(axis=2)
    if n <= LARGEST:
        columns = _Search(distances, weights, low, k).run()
        bound = columns.lower_bound
    else:
        columns = _Search(distances, weights, low, None).run()
        bound = _bound_of_chunks(distances, weights, low, k)
    # In two steps: unit² may leave the range of doubles.
    return Columns(columns.sets, columns.often, columns.shares, max(bound * unit * unit * (1 - 4 * EPS), 0.0))


def _bound_of_chunks(distances: FloatArray, weights: FloatArray | None, low: float, k: int) -> float:
    """What is private for a group is private for every part of it: bounds of parts add up (or the largest counts)."""
    n = len(distances)
    order = np.random.default_rng(0).permutation(n)
    bounds = []
    for part in np.array_split(order, -(-n // CHUNK)):
        here = None if weights is None else weights[part]
        bounds.append(max(_Search(distances[np.ix_(part, part)], here, low, k).run().lower_bound, 0.0))
    return math.fsum(bounds) * (1 - 4 * EPS) if weights is not None else max(bounds)


class _Search:
    """One run of column generation; ``n_dims`` None means Lloyd pricing and no bound."""

    def __init__(self, distances: FloatArray, weights: FloatArray | None, low: float, n_dims: int | None) -> None:
        self.distances, self.fixed, self.low, self.n_dims = distances, weights, low, n_dims
        self.n = len(distances)
        self.sets = np.zeros((0, self.n), dtype=bool)
        self.shares = np.zeros((0, self.n))
        self.scale = 1.0
        self._table: Subsets | None = None

    def run(self) -> Columns:
        weights = np.full(self.n, (1 - self.n * EPS) / self.n) if self.fixed is None else self.fixed
        self._join(self._neighborhoods(), weights)
        around = _from(weights / weights.sum(), self.distances)
        often = self._simple(weights, around)
        best_duals, best_weights, bound = weights * around, weights, -math.inf
        if self.n_dims is not None:
            table = self._subsets(weights)
            # Multipliers in proportion to the distances from the center, as large as is feasible, and what holds them.
            ratios = table.costs / table.linear(best_duals)
            best_duals = best_duals * float(ratios.min())
            bound = table.bound(best_duals, table.reduced(best_duals))
            self._join(table.least(ratios, START), weights)
        enough = WORST_TOLERANCE if self.fixed is None else TOLERANCE
        values: list[float] = []
        for _ in range(ROUNDS):
            solved = self._program()
            if solved is None:  # what was found before stands
                break
            often, value, duals, weights = solved
            values.append(value)
            stuck = len(values) > PATIENCE and values[-1 - PATIENCE] - value < LEAST_GAIN * value
            if value - bound <= enough * value or (stuck and self.n_dims is None):
                break
            often = self._without_the_dearest(often, duals, weights)
            joined = False
            for share in (0.5, 0.0):
                tried = share * best_duals + (1.0 - share) * duals
                tried_weights = share * best_weights + (1.0 - share) * weights
                candidates, proved = self._priced(tried, tried_weights)
                if proved > bound or self.n_dims is None:
                    best_duals, best_weights, bound = tried, tried_weights, max(proved, bound)
                if value - bound <= enough * value:
                    break
                joined = self._join(candidates, tried_weights, duals, weights)
                if joined:
                    break
            if not joined:
                break
        return self._used(often, bound)

    def _simple(self, weights: FloatArray, around: FloatArray) -> FloatArray:
        """x of the center, or of naming every label e^ε times as often as any other, whichever has the less error.

        The linear program is scaled by that error: SciPy's tolerances are absolute.
        """
        errors = (np.where(self.sets, 1.0, self.low) * _from(self.shares, self.distances)) @ weights
        sizes = self.sets.sum(axis=1)
        alone = (sizes == 1) / (1.0 + (self.n - 1) * self.low)
        center = float(weights @ around)
        self.scale = min(center, float(alone @ errors))
        return np.asarray((sizes == self.n) * 1.0 if self.scale == center else alone)

    def _program(self) -> tuple[FloatArray, float, FloatArray, FloatArray] | None:
        """(x, value, λ, p) of the linear program over the present columns; None where doubles are too coarse for it."""
        from scipy.optimize import linprog

        n, count = self.n, len(self.sets)
        columns = np.where(self.sets, 1.0, self.low)
        errors = columns * _from(self.shares, self.distances) / self.scale
        if self.fixed is not None:
            problem = {"c": errors @ self.fixed, "A_eq": columns.T, "b_eq": np.ones(n)}
        else:
            below = {"A_ub": np.hstack([errors.T, -np.ones((n, 1))]), "b_ub": np.zeros(n)}
            equal = {"A_eq": np.hstack([columns.T, np.zeros((n, 1))]), "b_eq": np.ones(n)}
            problem = {"c": np.append(np.zeros(count), 1.0), **below, **equal}
        strict = {"presolve": False, "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        for options in (strict, {}):
            done = linprog(**problem, method="highs-ds", options=options)
            if done.status == 0:
                break
        else:
            return None
        value, duals = float(done.fun) * self.scale, np.asarray(done.eqlin.marginals) * self.scale
        if self.fixed is not None:
            return np.asarray(done.x), value, duals, self.fixed
        weights = np.maximum(-np.asarray(done.ineqlin.marginals), 0.0) + 1e-300
        # Never more than 1 in sum: then the weighted mean of the errors is at most the largest.
        weights = weights / (math.fsum(weights) * (1 + self.n * EPS))
        return np.asarray(done.x[:count]), value, duals, weights

    def _priced(self, duals: FloatArray, weights: FloatArray) -> tuple[BoolArray, float]:
        """Promising sets at these multipliers, and the bound they prove (−∞ without one)."""
        if self.n_dims is None:
            return self._lloyd(duals, weights), -math.inf
        table = self._subsets(weights)
        reduced = table.reduced(duals)
        return table.least(reduced, BATCH), table.bound(duals, reduced)

    def _subsets(self, weights: FloatArray) -> Subsets:
        if self._table is None or self.fixed is None:
            assert self.n_dims is not None
            self._table = Subsets.of(self.distances, weights, self.low, self.n_dims)
        return self._table

    def _neighborhoods(self) -> BoolArray:
        """Each label with its nearest, for every number of them: all of the group included."""
        apart = self.distances - np.eye(self.n)  # a label is nearest to itself, even where others have its answer
        ranks = np.argsort(np.argsort(apart, axis=1, kind="stable"), axis=1)
        sizes = np.unique(np.linspace(1, self.n, min(self.n, 24)).round().astype(int))
        return np.unique((ranks[:, None, :] < sizes[None, :, None]).reshape(-1, self.n), axis=0)

    def _lloyd(self, duals: FloatArray, weights: FloatArray) -> BoolArray:
        """Sets from Lloyd steps at these multipliers, from the columns that cost least there and from every label."""
        columns = np.where(self.sets, 1.0, self.low)
        excess = weights * _from(self.shares, self.distances) - duals
        order = np.argsort((columns * excess).sum(axis=1))[:LLOYD_STARTS]
        shares = np.vstack([self.shares[order], np.eye(self.n)])
        sets = np.zeros((0, self.n), dtype=bool)
        for _ in range(LLOYD_STEPS):
            excess = weights * _from(shares, self.distances) - duals
            found = excess < 0.0
            found[np.arange(len(found)), np.argmin(excess, axis=1)] = True
            found = np.unique(found, axis=0)
            if np.array_equal(found, sets):
                break
            sets = found
            shares = _shares(sets, weights, self.low)
        return sets

    def _join(
        self, sets: BoolArray, weights: FloatArray, duals: FloatArray | None = None, now: FloatArray | None = None
    ) -> bool:
        """Take in columns that are new; where there are multipliers, only those of negative reduced cost."""
        shares = _shares(sets, weights, self.low)
        if duals is not None and now is not None:
            columns = np.where(sets, 1.0, self.low)
            reduced = (columns * (now * _from(shares, self.distances) - duals)).sum(axis=1)
            fresh = reduced < -1e-13 * np.abs(duals).sum()
            sets, shares = sets[fresh], shares[fresh]
        if self.fixed is not None and len(self.sets):
            known = {row.tobytes() for row in np.packbits(self.sets, axis=1)}
            fresh = np.array([row.tobytes() not in known for row in np.packbits(sets, axis=1)], dtype=bool)
            sets, shares = sets[fresh], shares[fresh]
        self.sets, self.shares = np.vstack([self.sets, sets]), np.vstack([self.shares, shares])
        return len(sets) > 0

    def _without_the_dearest(self, often: FloatArray, duals: FloatArray, weights: FloatArray) -> FloatArray:
        """Drop columns beyond a number, never one in use; what is left of ``often``."""
        if len(self.sets) <= KEPT:
            return often
        columns = np.where(self.sets, 1.0, self.low)
        reduced = (columns * (weights * _from(self.shares, self.distances) - duals)).sum(axis=1)
        kept = np.sort(np.argsort(np.where(often > 0.0, -math.inf, reduced), kind="stable")[: KEPT // 2])
        self.sets, self.shares = self.sets[kept], self.shares[kept]
        return np.asarray(often[kept])

    def _used(self, often: FloatArray, bound: float) -> Columns:
        kept = np.flatnonzero(often > 1e-11)  # columns that joined after the last program come after these
        kept = kept[np.lexsort(~self.sets[kept].T[::-1])]
        return Columns(self.sets[kept], often[kept], self.shares[kept], bound)


def _shares(sets: BoolArray, weights: FloatArray, low: float) -> FloatArray:
    """The weights of the members in the best curve of each set: p_i v_i / Σ p_j v_j."""
    columns = np.where(sets, 1.0, low) * weights
    return np.asarray(columns / columns.sum(axis=1, keepdims=True))


def _from(shares: FloatArray, distances: FloatArray) -> FloatArray:
    """|q_i − Σ_j a_j q_j|² for all i: Σ_j a_j D_ij − ½ Σ_jl a_j a_l D_jl."""
    reach = shares @ distances
    return np.asarray(np.maximum(reach - 0.5 * (reach * shares).sum(axis=-1, keepdims=True), 0.0))
