"""Column generation for codebooks: the sets of labels whose curves are released, and how often each.

    minimize Σ_S x_S V(S)   subject to   Σ_S x_S v_i(S) = 1 for every label i,  x ≥ 0

with v_i(S) = 1 for i in S and e^−ε for the others, and V(S) the least weighted squared error of one curve released with
probabilities v (docs/theory.md, section 11.1). The program of a few columns gives multipliers λ, and sets of negative
reduced cost V(S) − Σ λ_i v_i(S) join until none is left. Up to :data:`LARGEST` labels all subsets are priced and
prove a lower bound; beyond, Lloyd steps find sets: for a curve c the best one is {i : p_i |q_i − c|² < λ_i}, and for a
set the best curve is its weighted mean. Prices are taken halfway between the program's multipliers and the best ones so
far, which brings in fewer columns that are never used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from shoal.numerics.matrices import EPS
from shoal.validation import BoolArray, FloatArray

#: Sets to start with beside the neighborhoods, and sets that join in one round.
START, BATCH = 400, 100
#: The search ends when the value lies this close, relatively, above the proved bound; or after so many rounds.
TOLERANCE, ROUNDS = 1e-8, 200
#: A search without a bound ends when so many rounds have gained less than this, relatively.
PATIENCE, LEAST_GAIN = 12, 1e-6
#: Columns beyond which the dearest half is dropped.
KEPT = 800
#: Labels of a part of a crowd beyond LARGEST for which a bound is proved, each part for itself.
CHUNK = 15
#: Curves that Lloyd steps start from, and steps.
LLOYD_STARTS, LLOYD_STEPS = 128, 25
#: Labels up to which all subsets are looked at: 2^20 values, 8 MB, some ten milliseconds.
LARGEST = 20
#: Below this a sum of squares may have lost terms to underflow; distances are scaled to a largest of 1.
UNDERFLOW = 1e-280


@dataclass(frozen=True)
class Columns:
    """Columns of a program in use: ``sets`` (m, n) of labels; their frequencies ``often`` (m,), so that x_S v_i(S) is
    the probability of S under label i; ``shares`` (m, n) of the answers in each curve; a proved bound of the objective.
    """

    sets: BoolArray
    often: FloatArray
    shares: FloatArray
    lower_bound: float


def mean_column(n: int) -> Columns:
    """The single column of all n labels, whose curve is their mean."""
    return Columns(np.ones((1, n), dtype=bool), np.ones(1), np.full((1, n), 1.0 / n), 0.0)


def best_columns(answers: FloatArray, low: float) -> Columns:
    """The columns of least mean squared error for one crowd with these answers (n, k); ``low`` is e^−ε rounded down.

    ``lower_bound`` is in the unit of the answers, squared and summed over entries.
    """
    n, k = answers.shape
    gaps = answers[:, None, :] - answers[None, :, :]
    scale = float(np.abs(gaps).max())
    if scale == 0.0:
        return mean_column(n)
    # A power of two, so that scaling rounds nothing; the largest difference becomes 1 to 2.
    unit = 2.0 ** math.floor(math.log2(scale))
    distances, weights = ((gaps / unit) ** 2).sum(axis=2), np.full(n, 1.0 / n)
    if n <= LARGEST:
        columns = _ColumnGeneration(distances, weights, low, k).generate_columns()
        bound = columns.lower_bound
    else:
        columns = _ColumnGeneration(distances, weights, low, None).generate_columns()
        bound = _bound_from_parts(distances, weights, low, k)
    # In two steps: unit² may leave the range of doubles.
    return replace(columns, lower_bound=max(bound * unit * unit * (1 - 4 * EPS), 0.0))


def _bound_from_parts(distances: FloatArray, weights: FloatArray, low: float, k: int) -> float:
    """Lower bound of the objective of a large crowd: the sum over parts, since what is private for all is for each."""
    n = len(distances)
    order = np.random.default_rng(0).permutation(n)
    parts = np.array_split(order, -(-n // CHUNK))
    searches = [_ColumnGeneration(distances[np.ix_(part, part)], weights[part], low, k) for part in parts]
    return math.fsum(max(search.generate_columns().lower_bound, 0.0) for search in searches) * (1 - 4 * EPS)


@dataclass(frozen=True)
class Subsets:
    """V(S) for all subsets of n labels, (2^h, 2^(n − h)); row and column are the two halves as binary numbers."""

    costs: FloatArray
    first: FloatArray
    second: FloatArray
    relative_error: float

    @classmethod
    def of(cls, distances: FloatArray, weights: FloatArray, low: float, n_dims: int) -> Subsets:
        """Costs from D (n, n), p (n,) and e^−ε; each D_ij has a relative error of at most (n_dims + 2) ε_machine."""
        n = len(weights)
        h = n // 2
        pairs = 0.5 * distances * weights[:, None] * weights[None, :]
        first, second = (np.where(_all_subsets(half), 1.0, low) for half in (h, n - h))
        costs = first @ (2.0 * pairs[:h, h:]) @ second.T
        costs += ((first @ pairs[:h, :h]) * first).sum(axis=1)[:, None]
        costs += ((second @ pairs[h:, h:]) * second).sum(axis=1)[None, :]
        costs /= (first @ weights[:h])[:, None] + (second @ weights[h:])[None, :]
        costs[0, 0] = math.inf  # the empty set is the full one, scaled
        return cls(costs, first, second, (n_dims + n * n + 3 * n + 20) * EPS)

    def dual_sums(self, duals: FloatArray) -> FloatArray:
        """Σ λ_i v_i(S) of all subsets at the multipliers ``duals`` (n,), in the shape of ``costs``."""
        h = self.first.shape[1]
        return np.asarray((self.first @ duals[:h])[:, None] + (self.second @ duals[h:])[None, :])

    def reduced_costs(self, duals: FloatArray) -> FloatArray:
        """V(S) − Σ λ_i v_i(S) of all subsets at the multipliers ``duals`` (n,), in the shape of ``costs``."""
        return np.asarray(self.costs - self.dual_sums(duals))

    def lower_bound(self, duals: FloatArray, reduced: FloatArray) -> float:
        """The lower bound that multipliers prove, Σ λ_i + n min(0, min reduced cost), rounded down."""
        n = len(duals)
        size = float(np.abs(duals).sum())
        # A reduced cost near its minimum is a difference of numbers of this size, each as accurate as said.
        at_least = float(reduced.min())
        slack = 2 * (self.relative_error + (n + 8) * EPS) * (size + abs(at_least)) + UNDERFLOW
        return math.fsum(duals) - 2 * EPS * size + n * min(at_least - slack, 0.0)

    def cheapest_sets(self, values: FloatArray, count: int) -> BoolArray:
        """(count, n) the subsets where ``values``, in the shape of ``costs``, are least."""
        flat = values.ravel()
        count = min(count, len(flat) - 1)
        places = np.argpartition(flat, count)[:count]
        h, rest = self.first.shape[1], self.second.shape[1]
        return np.hstack([_all_subsets(h)[places >> rest], _all_subsets(rest)[places & ((1 << rest) - 1)]])


@cache
def _all_subsets(n: int) -> BoolArray:
    """(2^n, n) all subsets of n labels: row s holds the bits of s."""
    return ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1).astype(bool)


class _ColumnGeneration:
    """One run of column generation; ``n_dims`` None means Lloyd pricing and no bound."""

    def __init__(self, distances: FloatArray, weights: FloatArray, low: float, n_dims: int | None) -> None:
        self.distances, self.weights, self.low = distances, weights, low
        self.n = len(distances)
        self.sets = np.zeros((0, self.n), dtype=bool)
        self.shares = np.zeros((0, self.n))
        self.scale = 1.0
        self.table = None if n_dims is None else Subsets.of(distances, weights, low, n_dims)

    def generate_columns(self) -> Columns:
        """The columns in use once no further set lowers the objective, with the bound that was proved."""
        self._add_columns(self._neighborhoods())
        around = _squared_distances(self.weights / self.weights.sum(), self.distances)
        often = self._first_solution(around)
        best_duals, bound = self.weights * around, -math.inf
        if self.table is not None:
            # Multipliers in proportion to the distances from the center, as large as is feasible, and what holds them.
            ratios = self.table.costs / self.table.dual_sums(best_duals)
            best_duals = best_duals * float(ratios.min())
            bound = self.table.lower_bound(best_duals, self.table.reduced_costs(best_duals))
            self._add_columns(self.table.cheapest_sets(ratios, START))
        values: list[float] = []
        for _ in range(ROUNDS):
            solved = self._solve_program()
            if solved is None:  # what was found before stands
                break
            often, value, duals = solved
            values.append(value)
            stuck = len(values) > PATIENCE and values[-1 - PATIENCE] - value < LEAST_GAIN * value
            if value - bound <= TOLERANCE * value or (stuck and self.table is None):
                break
            often = self._drop_expensive_columns(often, duals)
            joined = False
            for share in (0.5, 0.0):
                tried = share * best_duals + (1.0 - share) * duals
                candidates, proved = self._price_sets(tried)
                if proved > bound or self.table is None:
                    best_duals, bound = tried, max(proved, bound)
                if value - bound <= TOLERANCE * value:
                    break
                joined = self._add_columns(candidates, duals)
                if joined:
                    break
            if not joined:
                break
        return self._used_columns(often, bound)

    def _first_solution(self, around: FloatArray) -> FloatArray:
        """Frequencies of the center alone, or of naming every label e^ε times as often as others: the better one.

        Its error becomes the scale of the linear program: SciPy's tolerances are absolute.
        """
        errors = (np.where(self.sets, 1.0, self.low) * _squared_distances(self.shares, self.distances)) @ self.weights
        sizes = self.sets.sum(axis=1)
        singles = (sizes == 1) / (1.0 + (self.n - 1) * self.low)
        center = float(self.weights @ around)
        self.scale = min(center, float(singles @ errors))
        return np.asarray((sizes == self.n) * 1.0 if self.scale == center else singles)

    def _solve_program(self) -> tuple[FloatArray, float, FloatArray] | None:
        """(x, value, λ) of the linear program over the present columns; None where doubles are too coarse for it."""
        from scipy.optimize import linprog

        columns = np.where(self.sets, 1.0, self.low)
        costs = (columns * _squared_distances(self.shares, self.distances) / self.scale) @ self.weights
        strict = {"presolve": False, "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        for options in (strict, {}):
            done = linprog(costs, A_eq=columns.T, b_eq=np.ones(self.n), method="highs-ds", options=options)
            if done.status == 0:
                return np.asarray(done.x), float(done.fun) * self.scale, np.asarray(done.eqlin.marginals) * self.scale
        return None

    def _price_sets(self, duals: FloatArray) -> tuple[BoolArray, float]:
        """Promising sets at these multipliers, and the bound they prove (−∞ without one)."""
        if self.table is None:
            return self._lloyd_sets(duals), -math.inf
        reduced = self.table.reduced_costs(duals)
        return self.table.cheapest_sets(reduced, BATCH), self.table.lower_bound(duals, reduced)

    def _neighborhoods(self) -> BoolArray:
        """Sets to start with: each label with its nearest, for up to 24 sizes from one label to all."""
        apart = self.distances - np.eye(self.n)  # a label is nearest to itself, even where others have its answer
        ranks = np.argsort(np.argsort(apart, axis=1, kind="stable"), axis=1)
        sizes = np.unique(np.linspace(1, self.n, min(self.n, 24)).round().astype(int))
        return np.unique((ranks[:, None, :] < sizes[None, :, None]).reshape(-1, self.n), axis=0)

    def _reduced_costs(self, sets: BoolArray, shares: FloatArray, duals: FloatArray) -> FloatArray:
        """(m,) reduced costs Σ_i v_i(S) (p_i |q_i − c|² − λ_i) of some sets with these curves."""
        excess = self.weights * _squared_distances(shares, self.distances) - duals
        return np.asarray((np.where(sets, 1.0, self.low) * excess).sum(axis=1))

    def _lloyd_sets(self, duals: FloatArray) -> BoolArray:
        """Sets from Lloyd steps at these multipliers, from the columns that cost least there and from every label."""
        order = np.argsort(self._reduced_costs(self.sets, self.shares, duals))[:LLOYD_STARTS]
        shares = np.vstack([self.shares[order], np.eye(self.n)])
        before = np.zeros((0, self.n), dtype=bool)
        for _ in range(LLOYD_STEPS):
            excess = self.weights * _squared_distances(shares, self.distances) - duals
            sets = excess < 0.0
            sets[np.arange(len(sets)), np.argmin(excess, axis=1)] = True
            sets = np.unique(sets, axis=0)
            if np.array_equal(sets, before):
                break
            before, shares = sets, self._best_shares(sets)
        return before

    def _add_columns(self, sets: BoolArray, duals: FloatArray | None = None) -> bool:
        """Add columns that are new, with multipliers only those of negative reduced cost; whether there were any."""
        shares = self._best_shares(sets)
        known = {row.tobytes() for row in np.packbits(self.sets, axis=1)}
        fresh = np.array([row.tobytes() not in known for row in np.packbits(sets, axis=1)], dtype=bool)
        if duals is not None:
            fresh &= self._reduced_costs(sets, shares, duals) < -1e-13 * np.abs(duals).sum()
        self.sets, self.shares = np.vstack([self.sets, sets[fresh]]), np.vstack([self.shares, shares[fresh]])
        return bool(fresh.any())

    def _best_shares(self, sets: BoolArray) -> FloatArray:
        """(m, n) weights p_i v_i / Σ p_j v_j of the members' answers in the best curve of each set."""
        columns = np.where(sets, 1.0, self.low) * self.weights
        return np.asarray(columns / columns.sum(axis=1, keepdims=True))

    def _drop_expensive_columns(self, often: FloatArray, duals: FloatArray) -> FloatArray:
        """Drop the most expensive columns beyond :data:`KEPT`, never one in use; ``often`` of those that are left."""
        if len(self.sets) <= KEPT:
            return often
        reduced = self._reduced_costs(self.sets, self.shares, duals)
        cheapest = np.sort(np.argsort(np.where(often > 0.0, -math.inf, reduced), kind="stable")[: KEPT // 2])
        self.sets, self.shares = self.sets[cheapest], self.shares[cheapest]
        return np.asarray(often[cheapest])

    def _used_columns(self, often: FloatArray, bound: float) -> Columns:
        """The columns with a frequency above zero, in a fixed order."""
        used = np.flatnonzero(often > 1e-11)  # columns that joined after the last program come after these
        used = used[np.lexsort(~self.sets[used].T[::-1])]
        return Columns(self.sets[used], often[used], self.shares[used], bound)


def _squared_distances(shares: FloatArray, distances: FloatArray) -> FloatArray:
    """Squared distances |q_i − Σ_j a_j q_j|² of all answers from each curve: Σ_j a_j D_ij − ½ Σ_jl a_j a_l D_jl."""
    reach = shares @ distances
    return np.asarray(np.maximum(reach - 0.5 * (reach * shares).sum(axis=-1, keepdims=True), 0.0))
