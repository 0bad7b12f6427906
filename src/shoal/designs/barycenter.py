"""The common law that all labels can reach, and its price: perfect indistinguishability for a finite ρ.

Transport: the minimax Bures–Wasserstein center, min over (m, S) of max over X of ‖μ_X − m‖² + d²(Σ_X, S) with
d²(Σ, S) = Tr(Σ + S − 2(Σ^{1/2} S Σ^{1/2})^{1/2}) = min over rotations O of ‖Y − Σ^{1/2} O‖² for S = Y Yᵀ.

Additive: S ⪰ Σ_X is needed, and the cost is ‖μ_X − m‖² + Tr(S − Σ_X). The trace of S is common to all labels, so the
two parts separate: the dominating matrix of least trace, and a weighted smallest enclosing ball.
(docs/theory.md, section 6.)

**The minimax problem** is solved through its dual, weights on the labels (:func:`_minimax`). For costs c_X(z) convex in
a center z (after a suitable change of variables), the dual function g(p) = min_z Σ p_X c_X(z) is concave on the simplex
with gradient c_X(z_p), and for every p

    g(p) ≤ min_z max_X c_X(z) ≤ max_X c_X(z_p),

so every iterate brackets the answer. Multiplicative weights come close; a Newton-like polish over the few labels that
carry weight closes the gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shoal.errors import CertificationError
from shoal.numerics.matrices import square_root
from shoal.validation import FloatArray, IndexArray

#: Given weights on the labels: the costs c_X at the weighted center.
Costs = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Minimax:
    """``lower ≤ the minimax cost ≤ upper``; ``weights`` attain the lower end and their center the upper one."""

    weights: FloatArray
    lower: float
    upper: float


def _minimax(costs: Costs, n_labels: int, *, tolerance: float = 1e-9, rounds: int = 400) -> Minimax:
    """Close the bracket to a relative ``tolerance``, or as far as the rounds allow."""
    weights = np.full(n_labels, 1.0 / n_labels)
    best, step = Minimax(weights, -np.inf, np.inf), 1.0
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
    values = costs(best.weights)
    chosen = (best.weights > 1e-4 / n) | (values > values.max() * (1 - 1e-3))
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
        values = costs(best.weights)
        sticking = ~chosen & (values > best.lower * (1 + tolerance))
        if not sticking.any():
            break
        chosen |= sticking
    return best


def _better(best: Minimax, weights: FloatArray, values: FloatArray) -> Minimax:
    lower, upper = float(weights @ values), float(values.max())
    if upper < best.upper or (upper == best.upper and lower > best.lower):
        return Minimax(weights, max(lower, best.lower), upper)
    return best


def _closed(best: Minimax, tolerance: float) -> bool:
    return best.upper - best.lower <= tolerance * max(abs(best.upper), 1e-300)


@dataclass(frozen=True)
class Center:
    """A common law N(mean, cov) and what it costs each label; ``lower`` bounds the least possible largest cost.

    ``maps`` holds, for a transport center, the factor Y Oᵀ of cov that is closest to each Σ_X^{1/2}.
    """

    mean: FloatArray
    cov: FloatArray
    costs: FloatArray
    lower: float
    maps: FloatArray | None

    @property
    def price(self) -> float:
        return float(self.costs.max())


def transport_center(means: FloatArray, covs: FloatArray, *, tolerance: float = 1e-8) -> Center:
    """Minimax Bures–Wasserstein center of the laws N(means[i], covs[i])."""
    roots = _roots(covs)
    factor = np.mean(roots, axis=0)

    def costs(weights: FloatArray) -> FloatArray:
        nonlocal factor
        factor, spread = _barycenter(roots, weights, factor)
        return np.asarray(((means - weights @ means) ** 2).sum(axis=1) + spread)

    optimum = _minimax(costs, len(means), tolerance=tolerance)
    final = costs(optimum.weights)
    return _center(optimum.weights @ means, roots, factor, final, optimum.lower)


def mean_center(means: FloatArray, covs: FloatArray) -> Center:
    """The common law of least mean cost: the mean of the means, the Bures–Wasserstein barycenter of the covariances.

    For constants it is their mean, which keeps their sum.
    """
    roots, mean = _roots(covs), means.mean(axis=0)
    factor, spread = _barycenter(roots, np.full(len(roots), 1 / len(roots)), roots.mean(axis=0))
    return _center(mean, roots, factor, np.asarray(((means - mean) ** 2).sum(axis=1) + spread), 0.0)


def _roots(covs: FloatArray) -> FloatArray:
    """Σ_X^{1/2}, exactly zero in entries that are constants of every label.

    Eigenvectors would mix those entries and leave 1e-8 there, which every rotation turns elsewhere: no fixed point.
    """
    varying = np.flatnonzero(np.diagonal(covs, axis1=1, axis2=2).any(axis=0))
    roots = np.zeros_like(covs)
    if len(varying):
        inside = np.ix_(np.arange(len(covs)), varying, varying)
        roots[inside] = square_root(covs[inside])
    return roots


def _center(mean: FloatArray, roots: FloatArray, factor: FloatArray, costs: FloatArray, lower: float) -> Center:
    # Y Oᵀ: the common factor turned towards each root.
    maps = roots if len(roots) == 1 else factor @ np.swapaxes(_rotations(roots, factor), 1, 2)
    cov = factor @ factor.T
    return Center(mean, 0.5 * (cov + cov.T), costs, lower, maps)


def _rotations(roots: FloatArray, factor: FloatArray) -> FloatArray:
    """O_X that brings Σ_X^{1/2} O closest to Y: the orthogonal polar factor of Σ_X^{1/2} Y."""
    left, _, right = np.linalg.svd(roots @ factor)
    return np.asarray(left @ right)


def _barycenter(roots: FloatArray, weights: FloatArray, factor: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fixed point Y = Σ p_X Σ_X^{1/2} O_X from a warm start, and d²(Σ_X, Y Yᵀ) of every label; one root is all."""
    if len(roots) == 1:
        return roots[0], np.zeros(1)
    carrying = weights > 0
    own, shares = roots[carrying], weights[carrying]
    scale = np.abs(roots).max() + 1e-300
    for _ in range(2000):
        moved = np.tensordot(shares, own @ _rotations(own, factor), axes=1)
        change = np.abs(moved - factor).max()
        factor = moved
        if change < 1e-13 * scale:
            break
    return factor, ((factor - roots @ _rotations(roots, factor)) ** 2).sum(axis=(1, 2))


def additive_center(means: FloatArray, covs: FloatArray, *, tolerance: float = 1e-8) -> Center:
    """The cheapest common law reachable by adding independent noise and a shift."""
    dominating, lower = least_dominating(covs, tolerance=0.1 * tolerance)
    # What the trace of S adds makes the costs positive, so that relative tolerances mean what they say.
    base = float(np.trace(dominating))
    added = base - np.trace(covs, axis1=1, axis2=2)

    def costs(weights: FloatArray) -> FloatArray:
        return np.asarray(((means - weights @ means) ** 2).sum(axis=1) + added)

    optimum = _minimax(costs, len(means), tolerance=tolerance)
    return Center(optimum.weights @ means, dominating, costs(optimum.weights), optimum.lower - base + lower, None)


def least_dominating(covs: FloatArray, *, tolerance: float = 1e-9) -> tuple[FloatArray, float]:
    """The matrix S of least trace with S ⪰ Σ for every Σ given, and a lower bound on that trace.

    Log-barrier Newton method; at the center of parameter t the duality gap is n k t, and the returned S is strictly
    feasible.
    """
    n, k = covs.shape[:2]
    if n == 1:
        return covs[0].copy(), float(np.trace(covs[0]))
    scale = float(np.abs(covs).max())
    if scale == 0:
        return np.zeros((k, k)), 0.0
    work = covs / scale
    s = np.eye(k) * (float(np.linalg.eigvalsh(work).max()) + 1.0)
    rows, cols = np.tril_indices(k)
    double = np.where(rows == cols, 1.0, 2.0)
    t = 1.0
    while True:
        for _ in range(60):
            inverse = np.linalg.inv(s - work)
            gradient = np.eye(k) - t * inverse.sum(axis=0)
            hessian = np.zeros((len(rows), len(rows)))
            for start in range(0, n, 64):
                w = inverse[start : start + 64]
                a = w[:, rows[:, None], rows[None, :]] * w[:, cols[:, None], cols[None, :]]
                b = w[:, rows[:, None], cols[None, :]] * w[:, cols[:, None], rows[None, :]]
                hessian += 0.5 * t * (a + b).sum(axis=0)
            g = gradient[rows, cols] * double
            h = hessian * double[:, None] * double[None, :]
            step = np.linalg.solve(h, -g)
            decrement = float(-g @ step)
            move = np.zeros((k, k))
            move[rows, cols] = step
            move[cols, rows] = step
            length = 1.0 / (1.0 + np.sqrt(max(decrement, 0.0) / t)) if decrement / t > 0.1 else 1.0
            s = s + length * move
            if decrement / t < 1e-10:
                break
        gap = n * k * t
        if gap < tolerance * float(np.trace(s)):
            break
        t *= 0.1
    values = np.linalg.eigvalsh(s - work)
    if values.min() <= 0:
        raise CertificationError("covs: no dominating covariance was found; rescale the answer's entries")
    return np.asarray(scale * s), float(scale * (np.trace(s) - gap))
