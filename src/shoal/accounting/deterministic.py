"""Deterministic queries: the answer is a constant given the label, and independent Gaussian noise hides it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting import tails
from shoal.accounting.contour import EPS
from shoal.accounting.cumulants import TINY_SQUARE
from shoal.accounting.curve import TINIEST, exp_rounded_up
from shoal.accounting.edges import exact_lambda_law
from shoal.errors import InputError, UnreachableError
from shoal.laws.graph import NeighborGraph


def sensitivity(means: Any, graph: NeighborGraph, p: float = 2) -> float:
    """Δ_p: the largest ‖Q(X) − Q(X')‖_p over the edges, rounded up (the paper's definition of query sensitivity).

    ``means`` holds one answer per label, in the order of the graph's labels; p is at least 1, inf allowed.

    Returns:
        Δ_p, never below the exact value.

    >>> import shoal
    >>> graph = shoal.NeighborGraph.complete(["a", "b"])
    >>> print(f"{shoal.sensitivity([[0.0, 0.0], [3.0, 4.0]], graph):.4f}")
    5.0000
    """
    answers = validation.array(ndim=2, means=means)
    if not isinstance(graph, NeighborGraph):
        raise InputError("graph must be a NeighborGraph")
    if len(answers) != graph.n_labels:
        raise InputError(f"means must hold one row per label: expected {graph.n_labels}, got {len(answers)}")
    if graph.n_edges == 0:
        raise InputError("graph has no edges: sensitivity compares neighbors")
    if not (isinstance(p, (int, float)) and p >= 1):
        raise InputError("p must be at least 1 (inf is allowed)")
    worst = 0.0
    for start in range(0, graph.n_edges, 1 << 16):
        part = graph.edges[start : start + (1 << 16)]
        with np.errstate(over="ignore"):
            gaps = answers[part[:, 0]] - answers[part[:, 1]]
        # Scaled by a power of two to a largest entry of 1/2 to 1, powers neither overflow nor vanish.
        scale = float(np.abs(gaps).max())
        if not scale < math.inf:
            raise InputError("means: a difference between neighbors exceeds the range of doubles; use larger units")
        if scale > 0:
            exponent = math.frexp(scale)[1]
            lengths = np.linalg.norm(np.ldexp(gaps, -exponent), ord=p, axis=1)
            with np.errstate(over="ignore"):
                worst = max(worst, float(np.ldexp(lengths.max(), exponent)))
    # Among subnormal numbers a product is off by half a step, whatever its size: two steps above two products.
    return worst * (1 + 4 * (answers.shape[1] + 1) * EPS) + 2 * TINIEST if worst > 0 else 0.0


def gaussian_delta(sensitivity: float, sigma: float, epsilon: float, notion: str = "dp") -> float:
    """δ of independent Gaussian noise of standard deviation ``sigma`` at L2 sensitivity ``sensitivity``, rounded up.

    ``"dp"``: Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ) (Balle & Wang 2018). ``"pdp"``: Q((ε − m)/√(2m)) with m = Δ²/2σ² (the
    paper's example). Both are the equal-covariance case of the one contour integral, exact down to 1e-300 and beyond.

    Returns:
        δ, never below the exact value.

    >>> import shoal
    >>> print(f"{gaussian_delta(sensitivity=1.0, sigma=1.0, epsilon=1.0):.4f}")
    0.1269
    """
    gap = validation.non_negative(sensitivity=sensitivity)
    std = validation.positive(sigma=sigma)
    epsilon = validation.non_negative(epsilon=epsilon)
    code = {"dp": tails.DP, "pdp": tails.PDP}[validation.choice(["dp", "pdp"], notion=notion)]
    ratio = max(gap / std, TINIEST) if gap > 0 else 0.0  # a quotient that vanishes is not zero
    return float(exp_rounded_up(np.array(_equal_covariance_log_delta(ratio, epsilon, code))))


def analytic_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Least noise for (ε, δ)-DP: the analytic Gaussian mechanism's σ (Balle & Wang 2018), never below the exact root.

    The answer satisfies ``gaussian_delta(sensitivity, sigma, epsilon) <= delta``: the bracket's upper end, not only its
    middle, meets the target.

    Returns:
        σ, the standard deviation of the noise in every entry.

    >>> import shoal
    >>> sigma = shoal.analytic_sigma(sensitivity=1.0, epsilon=1.0, delta=1e-5)
    >>> print(f"{sigma:.4f}")
    3.7306
    >>> gaussian_delta(1.0, sigma, 1.0) <= 1e-5
    True
    """
    gap = validation.positive(sensitivity=sensitivity)
    epsilon = validation.non_negative(epsilon=epsilon)
    delta = validation.probability(delta=delta, below_one=True)
    if delta == 0:
        raise UnreachableError("delta must be above 0: no Gaussian noise gives delta = 0 to a positive sensitivity")
    target = math.log(delta) * (1 + EPS) - 8 * EPS  # δ's own logarithm, rounded down

    def is_private_at(ratio: float) -> bool:
        """Whether δ is certain to meet the target at this ratio of sensitivity and σ."""
        return _equal_covariance_log_delta(ratio, epsilon, tails.DP) <= target

    low, high = 1.0, 1.0
    while not is_private_at(low):
        low *= 0.5
        if low < 1e-300 or gap / low == math.inf:
            raise UnreachableError("delta is too small for this epsilon: the noise needed exceeds the range of doubles")
    while is_private_at(high):
        low, high = high, 2.0 * high
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high or high - low < 1e-15 * low:
            break
        if is_private_at(middle):
            low = middle
        else:
            high = middle
    sigma = math.nextafter(gap / low, math.inf)
    while not is_private_at(math.nextafter(gap / sigma, math.inf)):
        sigma = math.nextafter(sigma * (1 + EPS), math.inf)
    return sigma


def _equal_covariance_log_delta(ratio: float, epsilon: float, code: int) -> float:
    """Return the upper end of ln δ for equal covariances and ‖ν₀‖ = ``ratio``, which may be off by its own rounding.

    The one direction stands for equal covariances, so λ = 0 is exact.
    """
    square = max(ratio * ratio, TINY_SQUARE) if ratio > 0 else 0.0
    law = exact_lambda_law(np.zeros((1, 1)), np.zeros((1, 1)), np.array([[square]]), np.array([[2 * EPS * ratio]]))
    upper = float(tails.log_delta_bracket(code, epsilon, law, -math.inf)[2])
    # Where the square is raised: no δ is above the total variation, at most ratio/√(2π).
    return min(upper, math.log((ratio + TINIEST) * 0.39895)) if code == tails.DP and 0 < ratio < 1e-99 else upper
