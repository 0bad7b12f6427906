"""What releases cost at most, from a few numbers per mechanism: decisions that need no spectra.

A :class:`MechanismBound` says, for the worst edge of a mechanism's whole graph, δ at a few ε and the Rényi divergence D
at a few orders, all as upper ends. Every label's edges are among them, so for uses 1 … T about any label

    δ(ε) ≤ Σ δᵢ(εᵢ)                                       whenever Σ εᵢ ≤ ε,
    δ(ε) ≤ e^{t (Σ Dᵢ − ε)} t^t / (1 + t)^{1+t}           for every order 1 + t > 1.

The first is the rule for claims (:mod:`shoal.ledger.composition`) applied to every use; at εᵢ = 0 total variations
add. For the second, divergences of independent releases add, E[e^{tL}] = e^{t D}, and
(1 − e^{ε−L})₊ ≤ c e^{t(L−ε)} with c = max over x > 0 of (1 − e^{−x}) e^{−tx} = t^t / (1 + t)^{1+t}
(compare Canonne, Kamath & Steinke 2020). The least of all these is taken; claims and finite precision are added as the
exact composition adds them.

A bound at or below a budget allows a release. A bound above it decides nothing: then the exact composition does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import privacy_curve
from shoal.accounting.renyi import renyi_curve
from shoal.errors import CertificationError, InputError
from shoal.ledger.composition import Charges, covered
from shoal.mechanism import Mechanism

#: Parts of ε at which δ is bounded: a few uses that share it evenly, or one that has it all.
SHARES = (0.0, 0.125, 0.25, 0.5, 1.0)
#: Orders at which the divergence is bounded; those where it diverges are left out.
ORDERS = tuple(1.0 + 2.0 ** (j / 2) for j in range(-2, 17))
#: Covers the rounding of an exponent formed here, relative to the size of its terms.
SLACK = 1e-12

#: Gives a mechanism's bound by its digest, or None where there is none.
BoundOf = Callable[[str], "MechanismBound | None"]


@dataclass(frozen=True)
class MechanismBound:
    """Upper ends over all edges of the mechanism ``digest``: δ at ``epsilons``, Rényi divergence at ``orders``.

    Made by :func:`mechanism_bound`. The numbers are derived from the mechanism and say nothing that its file does not.
    """

    digest: str
    epsilons: tuple[float, ...]
    delta_upper: tuple[float, ...]
    orders: tuple[float, ...] = ()
    divergence_upper: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.digest, str) or len(self.digest) != 64:
            raise InputError("bounds: digest must be a mechanism's digest, 64 hexadecimal digits")
        _numbers("epsilons", self.epsilons, 0.0, math.inf)
        _numbers("delta_upper", self.delta_upper, 0.0, 1.0)
        _numbers("orders", self.orders, math.nextafter(1.0, 2.0), math.inf)
        _numbers("divergence_upper", self.divergence_upper, 0.0, math.inf)
        if len(self.epsilons) != len(self.delta_upper) or len(self.orders) != len(self.divergence_upper):
            raise InputError("bounds must hold one delta_upper per epsilon and one divergence_upper per order")

    def delta_at(self, epsilon: Fraction | float) -> float:
        """An upper bound of δ(ε): the least of those at or below ε, since δ does not rise with ε."""
        return min((d for e, d in zip(self.epsilons, self.delta_upper, strict=True) if e <= epsilon), default=1.0)

    def with_points_of(self, other: MechanismBound) -> MechanismBound:
        """The same with the points that only ``other`` has."""
        deltas = {**dict(other.points("delta")), **dict(self.points("delta"))}
        divergences = {**dict(other.points("renyi")), **dict(self.points("renyi"))}
        return MechanismBound.of_points(self.digest, deltas, divergences)

    def points(self, kind: str) -> list[tuple[float, float]]:
        """(ε, δ) for the kind ``delta``, (order, divergence) for ``renyi``."""
        if kind == "delta":
            return list(zip(self.epsilons, self.delta_upper, strict=True))
        return list(zip(self.orders, self.divergence_upper, strict=True))

    @classmethod
    def of_points(cls, digest: str, deltas: dict[float, float], divergences: dict[float, float]) -> MechanismBound:
        epsilons, orders = sorted(deltas), sorted(divergences)
        return cls(
            digest,
            tuple(epsilons),
            tuple(deltas[e] for e in epsilons),
            tuple(orders),
            tuple(divergences[a] for a in orders),
        )


def mechanism_bound(mechanism: Mechanism, epsilon: Any) -> MechanismBound:
    """The bound for budgets at ``epsilon``, a number or several: one pass over all edges of the mechanism's graph.

    Returns:
        Upper ends of δ at parts of each ε and of the Rényi divergence at fixed orders, over all edges.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
    >>> bound = shoal.mechanism_bound(mechanism, 1.0)
    >>> bound.digest == mechanism.digest, bound.delta_at(1.0) <= 1e-5
    (True, True)
    """
    grid, _ = validation.grid(epsilon=epsilon)
    epsilons = sorted({float(share * e) for e in grid for share in SHARES})
    return bound_at(mechanism, epsilons, ORDERS)


def bound_at(mechanism: Mechanism, epsilons: list[float], orders: tuple[float, ...]) -> MechanismBound:
    """The bound at given points. Where a figure cannot be certified nothing is claimed: δ = 1, no divergence."""
    deltas: dict[float, float] = {}
    if epsilons:
        try:
            found = privacy_curve(mechanism.output, mechanism.graph, np.array(epsilons)).delta_upper
        except CertificationError:
            found = np.ones(len(epsilons))
        deltas = {e: float(d) for e, d in zip(epsilons, found, strict=True)}
    divergences: dict[float, float] = {}
    if orders:
        upper = renyi_curve(mechanism.output, mechanism.graph, np.array(orders)).divergence_upper
        divergences = {a: max(float(d), 0.0) for a, d in zip(orders, upper, strict=True) if math.isfinite(d)}
    return MechanismBound.of_points(mechanism.digest, deltas, divergences)


def bounded(charges: Charges, epsilon: float, bound_of: BoundOf) -> float:
    """An upper bound of the composed δ(ε) of ``charges`` about any one label; 1 where too little is known."""
    left = Fraction(epsilon) - charges.claimed_epsilon
    if left < 0:
        return 1.0
    uses = []
    for digest, times in charges.used:
        bound = bound_of(digest)
        if bound is None:
            return 1.0
        uses.append((bound, times))
    together = min(_shared(uses, left), _moments(uses, left)) if uses else 0.0
    return covered(charges, epsilon, together)


def _shared(uses: list[tuple[MechanismBound, int]], left: Fraction) -> float:
    """Σ δᵢ(εᵢ) for the best of: an equal share for every use, or for the uses of one mechanism only, or nothing."""
    nothing = [times * Fraction(bound.delta_at(0.0)) for bound, times in uses]
    equal = left / sum(times for _, times in uses)
    options = [sum(nothing), sum(times * Fraction(bound.delta_at(equal)) for bound, times in uses)]
    for i, (bound, times) in enumerate(uses):
        options.append(sum(nothing) - nothing[i] + times * Fraction(bound.delta_at(left / times)))
    least = min(options)
    rounded = float(least)
    return min(rounded if Fraction(rounded) >= least else math.nextafter(rounded, math.inf), 1.0)


def _moments(uses: list[tuple[MechanismBound, int]], left: Fraction) -> float:
    """The least e^{t (Σ D − ε)} t^t / (1 + t)^{1+t} over the orders that every bound has."""
    known = [dict(bound.points("renyi")) for bound, _ in uses]
    best = 1.0
    epsilon = float(left)
    for order in set(known[0]).intersection(*known[1:]):
        t = order - 1.0
        total = math.fsum(times * points[order] for points, (_, times) in zip(known, uses, strict=True))
        constant = t * math.log(t) - (1.0 + t) * math.log1p(t)
        size = t * (total + epsilon) + abs(constant) + (1.0 + t) * math.log1p(t)
        exponent = t * (total - epsilon) + constant + SLACK * (1.0 + size)
        if exponent < 0.0:
            best = min(best, max(math.exp(exponent) * (1 + SLACK), 5e-324))
    return best


def _numbers(name: str, values: tuple[float, ...], low: float, high: float) -> None:
    """Refuse what is not a tuple of finite numbers in the range, each point once."""
    plain = isinstance(values, tuple) and all(isinstance(v, float) and math.isfinite(v) for v in values)
    if not plain or any(not low <= v <= high for v in values):
        raise InputError(f"bounds: {name} must be a tuple of finite numbers between {low:g} and {high:g}")
    if name in ("epsilons", "orders") and list(values) != sorted(set(values)):
        raise InputError(f"bounds: {name} must be rising")
