"""Upper bounds on the cost of releases, from a few numbers per mechanism: decisions that need no spectra.

A :class:`MechanismBound` says, for the worst edge of a mechanism's whole graph in its worse direction, δ at a few ε and
the Rényi divergence D at a few orders, and δ of a table, in which both labels of a pair have an answer; all as upper
ends. Whatever a pair's releases are, each is in one of the two directions of one of these edges. So for the uses 1 … T
about either label of a pair

    δ(ε) ≤ Σ δᵢ(εᵢ)                                       whenever Σ εᵢ ≤ ε,
    δ(ε) ≤ e^{t (Σ Dᵢ − ε)} t^t / (1 + t)^{1+t}           for every order 1 + t > 1.

The first: where P₁ ≤ e^{ε₁} Q₁ except a part of mass δ₁, that part aside the rest is held at ε − ε₁; at εᵢ = 0 total
variations add. Two uses of one mechanism, one about each label, may be taken together as a table: its δ is below the
sum of the two at half of ε each. For the second, divergences of independent releases add, E[e^{tL}] = e^{t D}, and
(1 − e^{ε−L})₊ ≤ c e^{t(L−ε)} with c = max over x > 0 of (1 − e^{−x}) e^{−tx} = t^t / (1 + t)^{1+t}
(compare Canonne, Kamath & Steinke 2020). The least of all these is taken; finite precision is added as the exact
composition adds it.

Where the filter of a budget is asked instead (:mod:`shoal.accounting.filters`), the same divergences are summed at its
orders, and each use whose δ is 0 from some ε on has a loss of at most that.

A bound within a budget allows a release. A bound above it decides nothing: then the exact composition does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from shoal import validation
from shoal.accounting.curve import privacy_curve
from shoal.accounting.filters import ORDERS, SLACK, FilterRule
from shoal.accounting.renyi import renyi_curve
from shoal.errors import CertificationError, InputError
from shoal.mechanism.atoms import sum_up
from shoal.mechanism.releasable import Releasable
from shoal.product.ledger.budgets import Budget
from shoal.product.ledger.composition import Charges, PairAccount, cover

#: Parts of ε at which δ is bounded: a few uses that share it evenly, or one that has it all.
SHARES = (0.0, 0.125, 0.25, 0.5, 1.0)
#: Room left for the rounding of another machine, or of another order of edges, when a δ is computed again: what is
#: stated is above what was computed by as much, so that it still holds when it is verified elsewhere.
HEADROOM = 1e-9

#: Gives a mechanism's bound by its digest, or None where there is none.
BoundOf = Callable[[str], "MechanismBound | None"]


@dataclass(frozen=True)
class MechanismBound:
    """Upper ends over all edges of the mechanism ``digest``, by the points where they hold.

    ``delta`` has δ by ε, ``renyi`` the Rényi divergence by its order, and ``table`` δ by ε for who holds an answer
    about each label of a pair. Made by :func:`mechanism_bound`. The numbers are derived from the mechanism and say
    nothing that its file does not.
    """

    digest: str
    delta: Mapping[float, float] = field(default_factory=dict)
    renyi: Mapping[float, float] = field(default_factory=dict)
    table: Mapping[float, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.digest, str) or len(self.digest) != 64:
            raise InputError("bounds: digest must be a mechanism's digest, 64 hexadecimal digits")
        for kind, (least, most) in POINTS.items():
            points = getattr(self, kind)
            numbers = [*points, *points.values()] if isinstance(points, Mapping) else [None]
            if not all(isinstance(number, float) and math.isfinite(number) for number in numbers):
                raise InputError(f"bounds: {kind} must map finite numbers to finite numbers")
            if any(point < least or not 0.0 <= value <= most for point, value in points.items()):
                raise InputError(f"bounds: {kind} must map numbers from {least:g} to numbers between 0 and {most:g}")

    def delta_at(self, epsilon: Fraction | float) -> float:
        """An upper bound of δ(ε): the least of those at or below ε, since δ does not rise with ε.

        What holds for both answers of a pair together holds for one of them.
        """
        return min(_least(self.delta, epsilon), _least(self.table, epsilon))

    def table_at(self, epsilon: Fraction | float) -> float:
        """An upper bound of δ(ε) of two uses, one about each label of a pair."""
        return min(_least(self.table, epsilon), 2.0 * _least(self.delta, epsilon / 2), 1.0)


#: Kinds of points: the least point, and the largest upper end.
POINTS = {"delta": (0.0, 1.0), "renyi": (math.nextafter(1.0, 2.0), math.inf), "table": (0.0, 1.0)}


def mechanism_bound(mechanism: Releasable, epsilon: Any) -> MechanismBound:
    """The bound for budgets at ``epsilon``, a number or several: a few passes over all edges of the mechanism's graph.

    Returns:
        Upper ends of δ at parts of each ε, of one answer and of a table, and of the Rényi divergence at fixed orders,
        over all edges; above what was computed by the ledger's :data:`HEADROOM`.

    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=16.0)
    >>> bound = mechanism_bound(mechanism, 1.0)
    >>> bound.digest == mechanism.digest, bound.delta_at(1.0) <= 1e-5 < bound.table_at(1.0)
    (True, True)
    """
    grid, _ = validation.grid(epsilon=epsilon)
    return bound_at(mechanism, sorted({float(share * e) for e in grid for share in SHARES}), ORDERS, HEADROOM)


def bound_at(
    mechanism: Releasable, epsilons: Sequence[float], orders: Sequence[float], headroom: float = 0.0
) -> MechanismBound:
    """The bound at given points, above what was computed by ``headroom``.

    Where a figure cannot be certified nothing is claimed: δ = 1, no D.
    """
    grid = np.array(epsilons)

    def state_bounds(points: Sequence[float], figures: Any, kind: str) -> dict[float, float]:
        most = POINTS[kind][1]
        pairs = [(x, max(float(v), 0.0)) for x, v in zip(points, figures, strict=True) if math.isfinite(v)]
        return {x: min(math.nextafter(v * (1 + headroom), most), most) if v and headroom else v for x, v in pairs}

    def deltas(scope: str) -> Any:
        try:
            return mechanism.by_kind(
                mechanism=lambda gaussian: privacy_curve(gaussian.output, gaussian.graph, grid, scope=scope),
                codebook=lambda book: book.curve(grid, scope),
            ).delta_upper
        except CertificationError:
            return np.ones(len(grid))

    renyi: Any = mechanism.by_kind(
        mechanism=lambda gaussian: renyi_curve(gaussian.output, gaussian.graph, np.array(orders)).divergence_upper,
        codebook=lambda book: [book.divergence(order) for order in orders],
    )
    answer, table = state_bounds(epsilons, deltas("answer"), "delta"), state_bounds(epsilons, deltas("table"), "table")
    return MechanismBound(mechanism.digest, answer, state_bounds(orders, renyi, "renyi"), table)


def bound_delta(about: Charges, opposite: Charges, epsilon: float, bound_of: BoundOf) -> float:
    """An upper bound of the composed δ(ε) of any pair with these charges; 1 where too little is known."""
    together = about.join(opposite)
    here, there = ({digest: times for digest, times, _ in side.uses} for side in (about, opposite))
    uses = []
    units: list[tuple[Callable[[Fraction | float], float], int]] = []
    for digest, times, _ in together.uses:
        bound = bound_of(digest)
        if bound is None:
            return 1.0
        uses.append((bound, times))
        tables = min(here.get(digest, 0), there.get(digest, 0))
        units += [(bound.table_at, tables)] if tables else []
        units += [(bound.delta_at, times - 2 * tables)] if times > 2 * tables else []
    most = min(_share(units, Fraction(epsilon)), _moments(uses, epsilon)) if uses else 0.0
    return cover(together.tv, epsilon, most)


def bound_filter(about: Charges, opposite: Charges, rule: FilterRule, bound_of: BoundOf) -> float:
    """An upper bound of what a filter counts for any pair with these charges; 1 where too little is known."""
    together = about.join(opposite)
    sums = np.zeros(len(rule.orders))
    largest = Fraction(0)
    for digest, times, _ in together.uses:
        bound = bound_of(digest)
        if bound is None:
            return 1.0
        sums += times * np.array([bound.renyi.get(order, math.inf) for order in rule.orders])
        largest += times * Fraction(min((e for e, d in bound.delta.items() if d == 0.0), default=10**9))
    aside = cover(together.tv, rule.epsilon, 0.0)
    return float(rule.least_delta(sums * (1 + SLACK), largest=sum_up(largest), aside=aside))


def pair_bound(pair: PairAccount, budget: Budget, bound_of: BoundOf) -> float:
    """An upper bound of what a pair has spent of a budget, by its mode."""
    if budget.filters(pair.span):
        return bound_filter(pair.about, pair.opposite, budget.rule, bound_of)
    return bound_delta(pair.about, pair.opposite, budget.epsilon, bound_of)


def _least(points: Mapping[float, float], epsilon: Fraction | float) -> float:
    return min((d for e, d in points.items() if e <= epsilon), default=1.0)


def _share(units: list[tuple[Callable[[Fraction | float], float], int]], left: Fraction) -> float:
    """Σ δᵢ(εᵢ) for the best of: an equal share for every unit, or for those of one kind only, or nothing."""
    nothing = [times * Fraction(delta_at(0.0)) for delta_at, times in units]
    equal = left / sum(times for _, times in units)
    options = [sum(nothing), sum(times * Fraction(delta_at(equal)) for delta_at, times in units)]
    for i, (delta_at, times) in enumerate(units):
        options.append(sum(nothing) - nothing[i] + times * Fraction(delta_at(left / times)))
    return min(sum_up(min(options)), 1.0)


def _moments(uses: list[tuple[MechanismBound, int]], epsilon: float) -> float:
    """The least e^{t (Σ D − ε)} t^t / (1 + t)^{1+t} over the orders that every bound has."""
    best = 1.0
    for order in set.intersection(*({*bound.renyi} for bound, _ in uses)):
        t = order - 1.0
        total = math.fsum(times * bound.renyi[order] for bound, times in uses)
        constant = t * math.log(t) - (1.0 + t) * math.log1p(t)
        size = t * (total + epsilon) + abs(constant) + (1.0 + t) * math.log1p(t)
        exponent = t * (total - epsilon) + constant + SLACK * (1.0 + size)
        if exponent < 0.0:
            best = min(best, max(math.exp(exponent) * (1 + SLACK), 5e-324))
    return best
