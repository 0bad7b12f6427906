"""Composition of codebooks and Gaussian releases about the same label: fixed in advance, or chosen along the way.

:func:`composed_delta` is exact for a sequence that was fixed in advance. A filter (:class:`FilterRule`) holds for
mechanisms chosen in the light of earlier answers: with D_t the sum of their Rényi divergences of order 1 + t and
c_t = t^t / (1+t)^{1+t}, a sequence that goes on only while one of

    c_t e^{t(D_t − ε)} ≤ w_t δ           for one of a few orders 1 + t, fixed with the budget
    δ_gauss(ε) ≤ w_gauss δ               all answers Gaussian with equal covariances; that of Σ μ²
    largest loss ≤ ε                     all answers with a bounded loss

and Σ δᵢ + (1 + e^ε) Σ τᵢ ≤ w_aside δ hold stays within (ε, δ), where the weights sum to 1 (docs/theory.md, section 15).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shoal import validation
from shoal.accounting.curve import NOTIONS, PrivacyCurve, exp_rounded_up, log_delta_brackets, split_brackets
from shoal.accounting.releases import SCOPES, EdgeSource, Releases
from shoal.errors import InputError
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.discrete_loss import DiscreteLoss, compose_losses, log_rounded_up
from shoal.numerics.matrices import EPS
from shoal.validation import FloatArray, IndexArray

#: Below this, sums of products of doubles may lose terms to underflow: logarithms are summed instead.
SMALL = 1e-290
#: Orders at which divergences are known: 1 + t for t in half powers of two.
ORDERS = tuple(1.0 + 2.0 ** (j / 2) for j in range(-2, 21))
#: Shares of δ: Gaussian answers with equal covariances; each of the orders, the largest first; what is set aside. Their
#: sum is 1. These, :data:`ORDERS` and how orders are chosen are part of what a recorded budget means.
GAUSSIAN = 32 / 64
WEIGHTS = (12 / 64, 11 / 64, 7 / 64)
ASIDE = 2 / 64
#: Covers the rounding of an exponent formed here, relative to the size of its terms.
SLACK = 1e-12


def composed_delta(
    releases: Sequence[Any], graph: NeighborGraph, epsilon: Any, *, scope: str = "answer"
) -> PrivacyCurve:
    """The worst δ of independent releases about the same label, codebooks and Gaussian ones mixed, at each ε.

    With L the loss of what the codebooks gave, δ(ε) = E δ_G(ε − L), δ_G that of the Gaussian releases together. A
    codebook that occurs twice was drawn from twice; a draw that was kept counts once, however often it is looked up.

    Args:
        releases: codebooks, and whatever :func:`shoal.privacy_curve` takes as one release; laws before rounding.
        graph: which pairs count; both labels of a pair must be in one group of every codebook.
        epsilon: a number or a 1-D array, each at least 0.
        scope: ``"answer"`` or ``"table"``, as in :func:`shoal.privacy_curve`.

    Returns:
        The curve; ``delta`` is its upper end, and nothing is said from below.

    >>> import shoal
    >>> graph = shoal.NeighborGraph.complete(["a", "b"])
    >>> book = shoal.codebook([[0.0], [1.0]], graph, epsilon=1.0)
    >>> noisy = shoal.GaussianClasses([[0.0], [1.0]], [[4.0]], labels=["a", "b"])
    >>> print(f"{shoal.composed_delta([book, noisy], graph, 1.0).delta_upper:.4f}")
    0.1443
    >>> float(shoal.composed_delta([book, book], graph, 2.0).delta_upper)
    0.0
    """
    grid, scalar = validation.grid(epsilon=epsilon)
    books, gaussian, pairs = split_by_kind(releases, graph, scope)
    best, log_upper = np.full(len(grid), -1.0), np.full(len(grid), -np.inf)
    worst = [("", "")] * len(grid)
    directions = 2 if scope == "answer" else 1
    for pair, (i, j) in zip(pairs, graph.edges.tolist(), strict=True):
        for direction, (a, b) in enumerate([(i, j), (j, i)][:directions]):
            ends = graph.labels[a], graph.labels[b]
            loss = compose_losses([book.privacy_loss(*ends, scope) for book in books])
            upper, log_of = composed_delta_upper(loss, gaussian, pair, direction, grid, directions)
            for e in np.flatnonzero((upper > best) | ((upper == best) & (log_of > log_upper))):
                best[e], log_upper[e], worst[e] = upper[e], log_of[e], ends
    curve = PrivacyCurve("dp", grid, best, log_upper, np.zeros(len(grid)), best, log_upper, worst, scope)
    return curve.at_first_epsilon() if scalar else curve


@dataclass(frozen=True)
class FilterRule:
    """The filter of a budget δ(``epsilon``) ≤ ``delta``, for sums that are known from above."""

    epsilon: float
    delta: float

    @cached_property
    def orders(self) -> tuple[float, ...]:
        """The order that lets through most equal Gaussian answers, and the two below it on the grid.

        Answers with unequal covariances, whose divergence grows faster with the order, want lower ones.
        """
        log_delta = math.log(max(self.delta, 1e-300))

        def uses(order: float) -> float:
            t = order - 1.0
            return (self.epsilon + (log_delta + math.log(WEIGHTS[0]) - _log_conversion_factor(t)) / t) / order

        best = max(range(len(WEIGHTS) - 1, len(ORDERS)), key=lambda i: uses(ORDERS[i]))
        return tuple(ORDERS[best - i] for i in range(len(WEIGHTS)))

    def least_delta(
        self, divergences: ArrayLike, *, gaussian: ArrayLike = math.inf, largest: ArrayLike = math.inf, aside: float = 0
    ) -> FloatArray:
        """The least δ whose filter, with these orders, would have let everything through; rounded up, at most 1.

        ``divergences`` (..., orders) are sums at :attr:`orders`, ``gaussian`` (...) is the δ(ε) of answers that are all
        Gaussian with equal covariances, ``largest`` (...) a bound on their loss, each inf where there is none;
        ``aside`` is Σ δᵢ + (1 + e^ε) Σ τᵢ.
        """
        total = np.asarray(divergences, dtype=np.float64)
        t = np.array(self.orders) - 1.0
        constant = np.array([_log_conversion_factor(x) for x in t])
        shares = np.log(WEIGHTS)
        size = t * (total + self.epsilon) + np.abs(constant) + 2.0 * (1.0 + t) * np.log1p(t) + np.abs(shares)
        exponent = t * (total - self.epsilon) + constant - shares + SLACK * (1.0 + size)
        by_order = np.maximum(np.exp(np.minimum(exponent, 1.0)) * (1 + SLACK), 5e-324).min(axis=-1)
        by_gauss = np.nextafter(np.asarray(gaussian, dtype=np.float64) / GAUSSIAN, np.inf)
        by_gauss = np.where(np.asarray(gaussian) == 0.0, 0.0, by_gauss)
        excess = np.asarray(largest, dtype=np.float64) - self.epsilon
        excess = np.where(excess > 0, np.nextafter(excess, np.inf), 0.0)
        beside, bounded = (np.where(x > 0, np.nextafter(x / ASIDE, np.inf), 0.0) for x in (aside, excess + aside))
        chosen = np.maximum(np.minimum(by_order, by_gauss), beside)
        return np.asarray(np.minimum(np.minimum(chosen, bounded * (1 + SLACK)), 1.0))


def _log_conversion_factor(t: float) -> float:
    """Logarithm of t^t / (1 + t)^{1+t}, the factor that converts a Rényi divergence of order 1 + t to δ."""
    return t * math.log(t) - (1.0 + t) * math.log1p(t)


def gaussian_deltas(source: EdgeSource, pairs: Any, epsilon: float, directions: int = 2) -> FloatArray:
    """(edges, directions) δ(ε) of all Gaussian releases that a source composes, rounded up."""
    offsets = np.zeros((len(pairs), directions))
    bounds = log_delta_brackets(source, pairs, NOTIONS["dp"], np.array([epsilon]), offsets)
    return exp_rounded_up(split_brackets(bounds.reshape(-1, 3))[2]).reshape(offsets.shape)


def codebook_divergence(losses: Sequence[tuple[DiscreteLoss, int]], orders: FloatArray) -> FloatArray:
    """(orders,) the sum of the divergences of discrete losses, each counted some times, rounded up."""
    moments = [[times * max(loss.log_moment(a - 1.0), 0.0) for a in orders.tolist()] for loss, times in losses]
    return np.asarray(np.sum(moments, axis=0) / (orders - 1.0) * (1 + 4 * EPS * (2 + len(moments))))


def split_by_kind(
    releases: Sequence[Any], graph: NeighborGraph, scope: str
) -> tuple[list[Codebook], Releases | None, IndexArray]:
    """Codebooks, the composition of all Gaussian releases if there are any, and (edges, 2) positions in that."""
    validation.choice(SCOPES, scope=scope)
    if not isinstance(graph, NeighborGraph):
        raise InputError("graph must be a NeighborGraph")
    if graph.n_edges == 0:
        raise InputError("graph has no edges: there is no worst edge to report")
    books = [release for release in releases if isinstance(release, Codebook)]
    others = [release for release in releases if not isinstance(release, Codebook)]
    if not books and not others:
        raise InputError("releases must hold at least one release")
    gaussian = Releases.collect(others, scope) if others else None
    return books, gaussian, graph.edges.astype(np.intp) if gaussian is None else gaussian.edge_positions(graph)


def composed_delta_upper(
    loss: DiscreteLoss, gaussian: EdgeSource | None, pair: Any, direction: int, grid: FloatArray, directions: int = 2
) -> tuple[FloatArray, FloatArray]:
    """δ of a codebook loss composed with Gaussian releases for one directed pair at each ε, and its logarithm.

    Both are rounded up; 0 and −inf only where δ is exactly 0. A δ below what doubles hold (1e-412) has its logarithm
    all the same, and reads as the least positive double.
    """
    if gaussian is None:
        values = np.array([loss.delta(e) for e in grid.tolist()])
        return values, log_rounded_up(values)
    atoms = np.minimum(loss.losses, loss.largest)
    shifted = np.nextafter(grid[:, None] - atoms[None, :], -np.inf).ravel()
    offsets = np.zeros((1, directions))
    bounds = log_delta_brackets(gaussian, np.asarray(pair)[None, :], NOTIONS["dp"], shifted, offsets)[0, direction]
    logs = split_brackets(bounds)[2].reshape(len(grid), len(atoms))
    with np.errstate(under="ignore"):
        products = loss.probabilities * exp_rounded_up(logs)
    values = np.minimum(np.array([math.fsum(row) for row in products]) * (1 + 4 * EPS), 1.0)
    log_values = log_rounded_up(values)
    for e in np.flatnonzero(values < SMALL):
        log_values[e] = _log_weighted_sum_up(loss.probabilities, logs[e])
        values[e] = exp_rounded_up(log_values[e : e + 1])[0]
    return values, log_values


def _log_weighted_sum_up(probabilities: FloatArray, logs: FloatArray) -> float:
    """ln Σ p e^l, rounded up; −inf only where every term is exactly 0.

    A term is off by less than 4 EPS (1 + |ln p| + |l|), and one that is 800 below the largest, |ln p| being at most
    745, changes nothing that is seen.
    """
    held = (probabilities > 0.0) & (logs > -np.inf)
    if not held.any():
        return -math.inf
    terms = np.log(probabilities[held]) + logs[held]
    top = float(terms.max())
    value = top + math.log(math.fsum(np.exp(np.maximum(terms - top, -800.0))))
    return min(value + 8 * EPS * (4000.0 + abs(top)), 0.0)
