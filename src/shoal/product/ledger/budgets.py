"""The budget: how much may be known about a label; the same for every label.

A budget δ(ε) ≤ δ is held against pairs of neighbors, whose account counts what was released about either
(:mod:`shoal.product.ledger.composition`). A later budget replaces the earlier one. Its mode is "adaptive", a filter
that holds for every way of choosing (:mod:`shoal.mechanism.sequence`), or "fixed", exact composition of a series that
was fixed in advance (docs/theory.md, section 15). The first batch of an adaptive account is such a series. There is no
way back from adaptive to fixed once something was released.

**The readings' promise** has an account of its own (docs/theory.md, section 16): Σμ² and its cap M², in exact
fractions, for everybody on the register: who sent readings is not public, and must not decide. It does not cover what a
label's promise releases from the same readings, nor the other way round. So the two refuse each other: a release of
crowds about the same label needs a later period than its last release of readings, and the other way round; charged
mechanisms, which name no period, and releases of readings about one of their labels exclude each other altogether.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from shoal import validation
from shoal.accounting.curve import privacy_curve
from shoal.accounting.renyi import renyi_curve
from shoal.errors import CertificationError, InputError
from shoal.mechanism.atoms import sum_up
from shoal.mechanism.releasable import Releasable
from shoal.mechanism.sequence import ORDERS, SLACK, FilterRule
from shoal.plaintext import name_key
from shoal.product.ledger.composition import Charges, PairAccount, Span, add_precision_loss
from shoal.product.ledger.storage import word

#: The mode that holds where none is named comes first.
MODES = ("adaptive", "fixed")


@dataclass(frozen=True)
class Budget:
    """δ at most ``delta`` at ``epsilon``, for the way of choosing that ``mode`` names."""

    epsilon: float
    delta: float
    mode: str = MODES[0]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Budget:
        """The budget that an entry with this content sets."""
        mode = validation.choice(MODES, mode=content["mode"])
        return cls(float(content["epsilon"]), float(content["delta"]), mode)

    @cached_property
    def rule(self) -> FilterRule:
        """The filter of the budget."""
        return FilterRule(self.epsilon, self.delta)

    def filters(self, span: Span | None) -> bool:
        """Whether a filter decides: what was made in one batch was fixed in advance in any mode."""
        return self.mode == "adaptive" and span is not None and span.first < span.last


def budget_entry(epsilon: float, delta: float, before: Budget | None, mode: str | None = None) -> dict[str, Any]:
    """A budget as the ledger records it; a mode that is not named is that of the budget ``before``."""
    if mode is None:
        mode = MODES[0] if before is None else before.mode
    return {
        "epsilon": validation.non_negative(epsilon=epsilon),
        "delta": validation.probability(delta=delta, below_one=True),
        "mode": validation.choice(MODES, mode=mode),
    }


class ReadingsTotal(NamedTuple):
    """Σμ² spent about a label so far, the cap M that was fixed with the first release, and the last period."""

    spent: Fraction = Fraction(0)
    cap: float = 0.0
    period: str = ""

    def after(self, content: Mapping[str, Any]) -> ReadingsTotal:
        """The account once an entry with this content is recorded."""
        spent = self.spent + Fraction(float(content["mu"])) ** 2
        last = content["period"] if not self.period or later(content["period"], self.period) else self.period
        return ReadingsTotal(spent, self.cap or float(content["cap"]), last)


#: The account of everybody on the register, whoever sent readings: charged for every release, so that no refusal by a
#: cap depends on who is in a file. A label of that name would be charged twice, which is on the safe side.
REGISTER = "everybody on the register"


def readings_entry(
    name: str, period: str, labels: Sequence[Any], mu: float, cap: float, since: str | None = None
) -> dict[str, Any]:
    """A release of readings as the ledger records it."""
    if isinstance(labels, (str, bytes)) or not len(labels):
        raise InputError("labels must be a sequence of at least one label")
    names = sorted({word(label=str(label)) for label in labels})
    if len(names) != len(labels) or len({name_key(name) for name in names}) < len(names):
        raise InputError("labels must hold every label once, in one spelling")
    return {
        "query_id": word(name=name),
        "period": word(period=period),
        "labels": names,
        "mu": validation.positive(mu=mu),
        "cap": validation.positive(cap=cap),
        **({} if since is None else {"since": word(since=since)}),
    }


def later(period: str, than: str) -> bool:
    """Whether a period surely comes after another.

    Two days, or times that both have an offset or both have none, are compared as such, and a day with a time by the
    days; two texts that are no times are compared as texts. Of different kinds neither is later than the other.
    """
    time, other = _moment(period), _moment(than)
    if time is None and other is None:
        return period.strip().casefold() > than.strip().casefold()
    if time is None or other is None:
        return False
    if not (isinstance(time, datetime) and isinstance(other, datetime)):
        days = [moment.date() if isinstance(moment, datetime) else moment for moment in (time, other)]
        return days[0] > days[1]
    return (time.tzinfo is None) == (other.tzinfo is None) and time > other


def begins_after(start: str | None, period: str, last: str) -> bool:
    """Whether what is made from readings of ``start`` to ``period`` uses none from before ``last``.

    Without a start it is about one period, which must come later.

    >>> begins_after("2024-01-09", "2024-01-24", "2024-01-09"), begins_after("2024-01-08", "2024-01-23", "2024-01-09")
    (True, False)
    """
    if start is None or not later(period, last):
        return later(period, last)
    return start == last or later(start, last)


def window_start(period: str, days: float | None) -> str | None:
    """The instant so many days before a period that is a time; None where there are no days."""
    moment = _moment(period)
    if days is None or moment is None:
        return None
    start = moment - timedelta(days=days)
    return start.isoformat().replace("+00:00", "Z")


def _moment(period: str) -> date | None:
    """A day, or a time; None for any other text."""
    for kind in (date, datetime):
        try:
            return kind.fromisoformat(period)
        except ValueError:
            continue
    return None


# ------------------------------------------------------------------ upper bounds


#: Parts of ε at which δ is bounded: a few uses that share it evenly, or one that has it all.
SHARES = (0.0, 0.125, 0.25, 0.5, 1.0)
#: Room left for the rounding of another machine, or of another order of edges, when a δ is computed again: what is
#: stated is above what was computed by as much, so that it still holds when it is verified elsewhere.
HEADROOM = 1e-9

#: Gives a mechanism's bound by its digest, or None where there is none.
BoundOf = Callable[[str], "MechanismBound | None"]


@dataclass(frozen=True)
class MechanismBound:
    """Upper ends over all edges of the mechanism ``digest``, by the points where they hold: decisions without spectra.

    ``delta`` has δ by ε, ``renyi`` the Rényi divergence D by its order, and ``table`` δ by ε for who holds an answer
    about each label of a pair. For the uses 1 … T about either label of a pair (docs/theory.md, section 5)

        δ(ε) ≤ Σ δᵢ(εᵢ)                                       whenever Σ εᵢ ≤ ε,
        δ(ε) ≤ e^{t (Σ Dᵢ − ε)} t^t / (1 + t)^{1+t}           for every order 1 + t > 1.

    The least of these is taken; finite precision is added as in the exact composition. The filter of a budget sums the
    same divergences at its orders, and a use whose δ is 0 from some ε on has a loss of at most that. A bound within a
    budget allows a release; above it the exact composition decides.
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
    """The bound for budgets at ``epsilon``, a number or several, above what was computed by :data:`HEADROOM`.

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
    return add_precision_loss(together.tv, epsilon, most)


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
    aside = add_precision_loss(together.tv, rule.epsilon, 0.0)
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
