"""Budgets: how much may be known about a label, and by whom.

A budget is held against pairs of neighbors, whose account counts what was released about either
(:mod:`shoal.ledger.composition`). It covers who holds a table with both answers, and who holds one of them: that can
only be less. Where single answers go to people who do not share them, it is the safe one of the two.

| scope | what it is held against |
| --- | --- |
| all | every pair of a label, for every label that has no budget of its own |
| label | the same for a named label |
| analyst | every pair, as far as the analyst was shown what was released |

A pair is within the budgets of both its labels, so a release about one of them may be refused because the other's
budget is spent. Whatever was released to nobody in particular counts for every analyst; an answer that was shown to
some analysts and later to anyone counts for those twice. A later budget with the same scope and name replaces the
earlier one; every budget that applies must hold.

Each has a mode, which says for what way of choosing it is a guarantee:

| mode | what it is |
| --- | --- |
| adaptive | every mechanism may be chosen in the light of earlier answers: a filter (:mod:`shoal.accounting.filters`) |
| fixed | a series that was fixed in advance, or redesigned without looking at answers: exact composition |

Adaptive holds unless fixed is asked for: exact composition lets through up to 1.6 times as much to who chooses by
answers. The first batch of an adaptive account, one transaction, is a series fixed in advance. Said once, a mode stays
until another is. It is part of what is promised: it is set without looking at answers, and there is no way back from
adaptive to fixed once something was released (docs/theory.md, section 15).

**The readings' promise** has an account of its own: one number per label, Σμ², and its cap.
A release that is μ-GDP for every home's whole readings adds μ² to the account of every label it is about. Given the
public transcript each step is μ_t-GDP, with μ_t a function of that transcript, and Σμ_t² ≤ M² surely for an M fixed
before the first: then the whole transcript is M-GDP (Smith & Thakurta 2022; Koskela,
Tobaben & Honkela 2023). So the cap M is fixed with the first release about a label, every later one names the same, and
one that would exceed it is refused. Sums are exact fractions of the stated doubles: nothing is rounded.

The promise about readings does not cover what a label's promise releases from the same readings, nor the other way
round. So the two refuse each other: a release of crowds about the same label needs a later period than its last release
of readings, and the other way round; charged mechanisms, which name no period and are made from the answers of all
their labels, and releases of readings about one of these exclude each other altogether.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from shoal import validation
from shoal.accounting.filters import FilterRule
from shoal.errors import InputError
from shoal.ledger.composition import Span
from shoal.ledger.questions import later, word

#: The mode that holds where none is named comes first.
MODES = ("adaptive", "fixed")


@dataclass(frozen=True)
class Budget:
    """δ at most ``delta`` at ``epsilon``, for the way of choosing that ``mode`` names."""

    epsilon: float
    delta: float
    mode: str = "adaptive"

    def implies(self, other: Budget) -> bool:
        """Whether what is within this budget is within the other: what holds for any way of choosing holds for one."""
        stronger = self.mode == other.mode or self.mode == "adaptive"
        return stronger and self.epsilon <= other.epsilon and self.delta <= other.delta


@dataclass(frozen=True)
class Limit:
    """One budget as it applies to the pairs of ``label`` with all its neighbors, or with those ``against`` names.

    With an ``analyst``, only what that analyst was shown counts.
    """

    name: str
    epsilon: float
    delta: float
    label: str
    analyst: str | None = None
    against: tuple[str, ...] | None = None
    mode: str = "adaptive"

    @cached_property
    def rule(self) -> FilterRule:
        """The filter of the budget."""
        return FilterRule(self.epsilon, self.delta)

    def filters(self, span: Span | None) -> bool:
        """Whether a filter decides: what was made in one batch was fixed in advance in any mode."""
        return self.mode == "adaptive" and span is not None and span.first < span.last


@dataclass(frozen=True)
class Budgets:
    """All budgets in force."""

    every: Budget | None = None
    labels: Mapping[str, Budget] = field(default_factory=dict)
    analysts: Mapping[str, Budget] = field(default_factory=dict)

    def after(self, content: Mapping[str, Any]) -> Budgets:
        """The budgets in force once an entry with this content is recorded."""
        scope, names = content["scope"], content.get("names", ())

        def budget(name: str | None) -> Budget:
            mode = content.get("mode") or self.mode(scope, name)
            return Budget(float(content["epsilon"]), float(content["delta"]), validation.choice(MODES, mode=mode))

        if scope == "label":
            return replace(self, labels={**self.labels, **{name: budget(name) for name in names}})
        if scope == "analyst":
            return replace(self, analysts={**self.analysts, **{name: budget(name) for name in names}})
        return replace(self, every=budget(None))

    def mode(self, scope: str, name: str | None) -> str:
        """The mode that holds so far for what a budget is about."""
        before = {"label": self.labels, "analyst": self.analysts}.get(scope, {}).get(name or "")
        if before is None and scope != "analyst":
            before = self.every
        return "adaptive" if before is None else before.mode

    def _limit(self, name: str, budget: Budget, label: str, **where: Any) -> Limit:
        return Limit(name, budget.epsilon, budget.delta, label, mode=budget.mode, **where)

    def of_label(self, label: str) -> Limit | None:
        """The label's own budget, or the common one: for all its pairs."""
        budget = self.labels.get(label, self.every)
        return None if budget is None else self._limit(f"label {label}", budget, label)

    def of_neighbors(self, label: str, around: Sequence[str]) -> Iterator[Limit]:
        """Budgets of a label's neighbors for their pairs with it, as far as the label's own does not imply them."""
        own = self.labels.get(label, self.every)
        for name in around if self.labels else ():
            budget = self.labels.get(name, self.every)
            if budget is not None and budget is not own and not (own is not None and own.implies(budget)):
                yield self._limit(f"label {name}", budget, label, against=(name,))

    def of_analysts(self, label: str, analyst: str | None) -> Iterator[Limit]:
        """The analyst's budget, or, where none is named and so all may see the answer, every analyst's."""
        for name, budget in self.analysts.items():
            if analyst is None or analyst == name:
                yield self._limit(f"analyst {name} about {label}", budget, label, analyst=name)

    def limits(self, label: str, analyst: str | None, around: Sequence[str]) -> list[Limit]:
        """Everything that a release about ``label`` to ``analyst`` must stay within; ``around`` are its neighbors."""
        own = self.of_label(label)
        return [
            *([] if own is None else [own]),
            *self.of_neighbors(label, around),
            *self.of_analysts(label, analyst),
        ]

    def cover(self, label: str) -> bool:
        """Whether a label has a budget: its own or the common one."""
        return self.every is not None or label in self.labels


def budget_entry(
    epsilon: float, delta: float, label: Any, analyst: str | None, mode: str | None, plan: str | None
) -> dict[str, Any]:
    """A budget as the ledger records it."""
    content: dict[str, Any] = {
        "epsilon": validation.non_negative(epsilon=epsilon),
        "delta": validation.probability(delta=delta, below_one=True),
    }
    if mode is not None:
        content["mode"] = validation.choice(MODES, mode=mode)
    if plan is not None:
        if mode != "fixed":
            raise InputError("plan: what is planned belongs to mode='fixed'")
        content["plan"] = word(plan=plan)
    if label is not None and analyst is not None:
        raise InputError("budget: give a label or an analyst, or neither for every label")
    if label is not None:
        names = [label] if isinstance(label, (str, int)) else list(label)
        content |= {"scope": "label", "names": sorted({word(label=str(name)) for name in names})}
        if not names:
            raise InputError("label must name at least one label")
    elif analyst is not None:
        content |= {"scope": "analyst", "names": [word(analyst=analyst)]}
    else:
        content |= {"scope": "all"}
    return content


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

    @property
    def exceeded(self) -> bool:
        """Whether more is spent than the cap allows."""
        return self.spent > Fraction(self.cap) ** 2


def readings_entry(name: str, period: str, labels: Sequence[Any], mu: float, cap: float) -> dict[str, Any]:
    """A release of readings as the ledger records it."""
    if isinstance(labels, (str, bytes)) or not len(labels):
        raise InputError("labels must be a sequence of at least one label")
    names = sorted({word(label=str(label)) for label in labels})
    if len(names) != len(labels):
        raise InputError("labels must hold every label once")
    return {
        "query_id": word(name=name),
        "period": word(period=period),
        "labels": names,
        "mu": validation.positive(mu=mu),
        "cap": validation.positive(cap=cap),
    }
