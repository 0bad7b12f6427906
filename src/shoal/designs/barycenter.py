"""Centers of laws: the common law that all labels can reach, and its price: δ = 0 at every ε for a finite ρ.

Transport: the minimax Bures–Wasserstein center, min over (m, S) of max over X of ‖μ_X − m‖² + d²(Σ_X, S) with
d²(Σ, S) = Tr(Σ + S − 2(Σ^{1/2} S Σ^{1/2})^{1/2}) = min over rotations O of ‖Y − Σ^{1/2} O‖² for S = Y Yᵀ. Additive:
‖μ_X − m‖² + Tr(S − Σ_X) for S ⪰ Σ_X: the dominating matrix of least trace, and a weighted smallest enclosing ball.

Both are solved through the dual, weights p on the labels: with costs c_X(z) of a center z, the weighted mean of the
costs at the weighted center is a lower bound and their maximum an upper one (docs/theory.md, section 6.4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from shoal.designs.dominating import least_dominating
from shoal.designs.problem import UNHURRIED, Settings
from shoal.laws.classes import GaussianClasses
from shoal.numerics.matrices import square_root
from shoal.validation import FloatArray, IndexArray

#: Relative accuracy of a barycenter while the weights settle, and of the last one.
ROUGH, TIGHT = 1e-8, 1e-13

#: Given weights on the labels: the costs c_X at the weighted center.
Costs = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Minimax:
    """``lower ≤ the minimax cost ≤ upper``; ``weights`` attain the lower end and their center the upper one."""

    weights: FloatArray
    lower: float
    upper: float


def _solve_minimax(
    costs: Costs, n_labels: int, settings: Settings, *, rough: Costs | None = None, tolerance: float = 1e-9
) -> Minimax:
    """Weights that solve the dual of the minimax problem to a relative ``tolerance``, or as far as time allows.

    Multiplicative weights come close, with ``rough`` costs at a center near that of the weights where they are given;
    :func:`_polish_weights` closes the gap.
    """
    weights = np.full(n_labels, 1.0 / n_labels)
    best, step = Minimax(weights, -np.inf, np.inf), 1.0
    for _ in range(60):
        values = costs(weights) if rough is None else rough(weights)
        if rough is None:
            best = _tighter_bracket(best, weights, values)
        if _is_closed(best, tolerance) or settings.is_late:
            break
        spread = max(float(values.max() - values.min()), 1e-300)
        weights = weights * np.exp(step * (values - values.max()) / spread)
        weights /= weights.sum()
        step *= 0.97
    if rough is not None:
        best = _tighter_bracket(best, weights, costs(weights))
    return (
        best if _is_closed(best, tolerance) or settings.is_late else _polish_weights(costs, best, settings, tolerance)
    )


class _OutOfTime(Exception):
    """Raised in an objective to end SciPy's solver when time is up."""


def _polish_weights(costs: Costs, best: Minimax, settings: Settings, tolerance: float) -> Minimax:
    """A tighter bracket by sequential quadratic programming on the labels that matter, more of them as they show."""
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
            best = _tighter_bracket(best, full, c)
            if settings.is_late:
                raise _OutOfTime
            value = float(full @ c)
            return -value / scale, -(c[members] - value) / scale / total

        start = best.weights[members]
        start = start / start.sum() if start.sum() > 0 else np.full(len(members), 1 / len(members))
        try:
            minimize(
                negative,
                start,
                jac=True,
                method="SLSQP",
                bounds=[(0.0, 1.0)] * len(members),
                constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1.0, "jac": lambda p: np.ones_like(p)}],
                options={"maxiter": 400, "ftol": 1e-15},
            )
        except _OutOfTime:
            break
        if _is_closed(best, tolerance):
            break
        values = costs(best.weights)
        sticking = ~chosen & (values > best.lower * (1 + tolerance))
        if not sticking.any():
            break
        chosen |= sticking
    return best


def _tighter_bracket(best: Minimax, weights: FloatArray, values: FloatArray) -> Minimax:
    """The bracket with the lesser upper end: the best so far, or that of weights with these costs."""
    lower, upper = float(weights @ values), float(values.max())
    if upper < best.upper or (upper == best.upper and lower > best.lower):
        return Minimax(weights, max(lower, best.lower), upper)
    return best


def _is_closed(best: Minimax, tolerance: float) -> bool:
    """Whether the bracket is narrower than a relative tolerance."""
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
        """The largest cost of a label: the total squared error at which all labels can be made equal."""
        return float(self.costs.max())


def transport_center(
    means: FloatArray, covs: FloatArray, settings: Settings = UNHURRIED, *, tolerance: float = 1e-8
) -> Center:
    """Minimax Bures–Wasserstein center of the laws N(means[i], covs[i]); every label's cost is right, also when late.

    The weights settle while the barycenter is known to :data:`ROUGH`; it is finished tightly once, for the bound.
    """
    roots = _covariance_roots(covs)
    factor = np.mean(roots, axis=0)

    def far(weights: FloatArray) -> FloatArray:
        return np.asarray(((means - weights @ means) ** 2).sum(axis=1))

    def rough(weights: FloatArray) -> FloatArray:
        nonlocal factor
        factor, spread = _barycenter_factor(roots, weights, factor, settings, steps=1)
        return far(weights) + spread

    def costs(weights: FloatArray, accuracy: float = ROUGH) -> FloatArray:
        nonlocal factor
        factor, spread = _barycenter_factor(roots, weights, factor, settings, accuracy=accuracy)
        return far(weights) + spread

    weights = np.full(len(means), 1.0 / len(means))
    with settings.ending_at_interrupt():
        weights = _solve_minimax(costs, len(means), settings, rough=rough, tolerance=tolerance).weights
        final = costs(weights, TIGHT)
    if settings.is_late:
        factor, spread = _barycenter_factor(roots, weights, factor, settings, steps=0)
        return _transport_center_of(weights @ means, roots, factor, far(weights) + spread, 0.0)
    return _transport_center_of(weights @ means, roots, factor, final, float(weights @ final))


def mean_center(means: FloatArray, covs: FloatArray, settings: Settings = UNHURRIED) -> Center:
    """The common law of least mean cost: the mean of the means, the Bures–Wasserstein barycenter of the covariances.

    For constants it is their mean, which keeps their sum.
    """
    roots, mean = _covariance_roots(covs), means.mean(axis=0)
    weights = np.full(len(roots), 1 / len(roots))
    factor, spread = _barycenter_factor(roots, weights, roots.mean(axis=0), settings, accuracy=TIGHT)
    return _transport_center_of(mean, roots, factor, np.asarray(((means - mean) ** 2).sum(axis=1) + spread), 0.0)


def _covariance_roots(covs: FloatArray) -> FloatArray:
    """(n, k, k) square roots of covariances, exactly zero in entries that are constants of every label.

    Eigenvectors would mix those entries and leave 1e-8 there, which every rotation turns elsewhere: no fixed point.
    """
    varying = np.flatnonzero(np.diagonal(covs, axis1=1, axis2=2).any(axis=0))
    roots = np.zeros_like(covs)
    if len(varying):
        inside = np.ix_(np.arange(len(covs)), varying, varying)
        roots[inside] = square_root(covs[inside])
    return roots


def _transport_center_of(
    mean: FloatArray, roots: FloatArray, factor: FloatArray, costs: FloatArray, lower: float
) -> Center:
    """The transport center with covariance Y Yᵀ for ``factor`` Y, and the maps Y Oᵀ towards each root."""
    maps = roots if len(roots) == 1 else factor @ np.swapaxes(_closest_rotations(roots, factor), 1, 2)
    cov = factor @ factor.T
    return Center(mean, 0.5 * (cov + cov.T), costs, lower, maps)


def _closest_rotations(roots: FloatArray, factor: FloatArray) -> FloatArray:
    """(n, k, k) rotations O_X that bring Σ_X^{1/2} O_X closest to Y: orthogonal polar factors of Σ_X^{1/2} Y."""
    left, _, right = np.linalg.svd(roots @ factor)
    return np.asarray(left @ right)


def _barycenter_factor(
    roots: FloatArray, weights: FloatArray, factor: FloatArray, settings: Settings, *, accuracy: float = 0.0,
    steps: int = 2000,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Factor Y of the weighted barycenter of covariances, and d²(Σ_X, Y Yᵀ) of every label.

    The fixed point Y = Σ p_X Σ_X^{1/2} O_X from a warm start. With one step the distances are those of the start.
    """
    if len(roots) == 1:
        return roots[0], np.zeros(1)
    scale = np.abs(roots).max() + 1e-300
    carrying = weights > 0
    own, shares = roots[carrying], weights[carrying]
    for number in range(steps):
        turned = (roots if steps == 1 else own) @ _closest_rotations(roots if steps == 1 else own, factor)
        if steps == 1:
            return np.tensordot(weights, turned, axes=1), ((factor - turned) ** 2).sum(axis=(1, 2))
        moved = np.tensordot(shares, turned, axes=1)
        change = np.abs(moved - factor).max()
        factor = moved
        if change < accuracy * scale or (number > 0 and settings.is_late):
            break
    return factor, ((factor - roots @ _closest_rotations(roots, factor)) ** 2).sum(axis=(1, 2))


def additive_center(
    means: FloatArray, covs: FloatArray, settings: Settings = UNHURRIED, *, tolerance: float = 1e-8
) -> Center:
    """The cheapest common law that all labels reach by adding independent noise and a shift."""
    dominating, lower = least_dominating(covs, settings, tolerance=0.1 * tolerance)
    # What the trace of S adds makes the costs positive, so that relative tolerances mean what they say.
    base = float(np.trace(dominating))
    added = base - np.trace(covs, axis1=1, axis2=2)

    def costs(weights: FloatArray) -> FloatArray:
        return np.asarray(((means - weights @ means) ** 2).sum(axis=1) + added)

    optimum = _solve_minimax(costs, len(means), settings, tolerance=tolerance)
    return Center(optimum.weights @ means, dominating, costs(optimum.weights), optimum.lower - base + lower, None)


#: Centers of laws, by the laws and the function's name; laws do not change.
_centers: WeakKeyDictionary[GaussianClasses, dict[str, Center]] = WeakKeyDictionary()


def common_center(name: str, classes: GaussianClasses, settings: Settings = UNHURRIED) -> Center:
    """The center of these laws by the function ``name`` of this module, kept as long as the laws are.

    One that time or an interrupt ended is not kept.
    """
    known = _centers.setdefault(classes, {})
    if name not in known:
        center: Center = globals()[name](classes.means, classes.stored_covs, settings)
        if settings.is_late:
            return center
        known[name] = center
    return known[name]
