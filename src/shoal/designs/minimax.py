"""min over a center of the largest cost over labels, through its dual: weights on the labels.

For costs c_X(z) convex in a center z (after a suitable change of variables), the dual function
g(p) = min_z Σ p_X c_X(z) is concave on the simplex with gradient c_X(z_p), and for every p

    g(p) ≤ min_z max_X c_X(z) ≤ max_X c_X(z_p),

so every iterate brackets the answer. Multiplicative weights come close; a Newton-like polish over the few labels that
carry weight closes the gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shoal.validation import FloatArray, IndexArray

#: Given weights on the labels: the costs c_X at the weighted center.
Costs = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Minimax:
    """``lower ≤ the minimax cost ≤ upper``; ``weights`` attain the lower end and their center the upper one."""

    weights: FloatArray
    lower: float
    upper: float


def solve(costs: Costs, n_labels: int, *, tolerance: float = 1e-9, rounds: int = 400) -> Minimax:
    """Close the bracket to a relative ``tolerance``, or as far as the rounds allow."""
    weights = np.full(n_labels, 1.0 / n_labels)
    best = Minimax(weights, -np.inf, np.inf)
    if n_labels == 1:
        value = float(costs(weights)[0])
        return Minimax(weights, value, value)
    step = 1.0
    for _ in range(60):
        values = costs(weights)
        best = _better(best, weights, values)
        if _closed(best, tolerance):
            return best
        spread = max(float(values.max() - values.min()), 1e-300)
        weights = weights * np.exp(step * (values - values.max()) / spread)
        weights /= weights.sum()
        step *= 0.97
    return _polish(costs, best, tolerance, rounds)


def _polish(costs: Costs, best: Minimax, tolerance: float, rounds: int) -> Minimax:
    """Sequential quadratic programming on the labels that matter, growing the set while others stick out."""
    from scipy.optimize import minimize

    n = len(best.weights)
    found = costs(best.weights)
    chosen = (best.weights > 1e-4 / n) | (found > found.max() * (1 - 1e-3))
    for _ in range(8):
        members = np.flatnonzero(chosen)
        scale = max(abs(best.upper), 1e-300)

        def negative(p: FloatArray, members: IndexArray = members, scale: float = scale) -> tuple[float, FloatArray]:
            nonlocal best
            full = np.zeros(n)
            full[members] = np.maximum(p, 0.0)
            total = full.sum()
            full /= total
            c = costs(full)
            best = _better(best, full, c)
            value = float(full @ c)
            return -value / scale, -(c[members] - value) / scale / total

        start = best.weights[members]
        start = start / start.sum() if start.sum() > 0 else np.full(len(members), 1 / len(members))
        minimize(
            negative,
            start,
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * len(members),
            constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1.0, "jac": lambda p: np.ones_like(p)}],
            options={"maxiter": rounds, "ftol": 1e-15},
        )
        if _closed(best, tolerance):
            break
        found = costs(best.weights)
        sticking = ~chosen & (found > best.lower * (1 + tolerance))
        if not sticking.any():
            break
        chosen |= sticking
    return best


def _better(best: Minimax, weights: FloatArray, found: FloatArray) -> Minimax:
    lower, upper = float(weights @ found), float(found.max())
    if upper - lower < best.upper - best.lower or upper < best.upper:
        return Minimax(weights, max(lower, best.lower), min(upper, best.upper)) if upper <= best.upper else best
    return best


def _closed(best: Minimax, tolerance: float) -> bool:
    return best.upper - best.lower <= tolerance * max(abs(best.upper), 1e-300)
