"""Budgets: how much may be known about a label, and by whom.

A budget is held against pairs of neighbors, whose account counts what was released about either
(:mod:`shoal.ledger.composition`). It covers who holds a table with both answers, and who holds one of them: that can
only be less. Where single answers go to people who do not share them, it is the safe one of the two.

| scope | what it is held against |
| --- | --- |
| all | every pair of a label, for every label that has no budget of its own |
| label | the same for a named label |
| group | every pair of a member, whatever was released about any member counted as if about this one |
| analyst | every pair, as far as the analyst was shown what was released |

A pair is within the budgets of both its labels, so a release about one of them may be refused because the other's
budget is spent. The group's reading is the cautious one: an observer is granted that all the answers belong to one
unknown member. All members must belong to one graph. Whatever was released to nobody in particular counts for every
analyst. A later budget with the same scope and name replaces the earlier one; every budget that applies must hold.

Each has a mode, which says for what way of choosing it is a guarantee:

| mode | what it is |
| --- | --- |
| fixed | a series that was fixed in advance, or redesigned without looking at answers: exact composition |
| adaptive | every mechanism may be chosen in the light of earlier answers: a filter (:mod:`shoal.accounting.filters`) |
| not said | adaptive for an analyst's budget; for others it depends on the first release about the pair |

Where it is not said, a pair whose first release is to a named analyst, or comes after analysts got budgets, is taken to
be adaptive; else to be a series fixed in advance, and a release to a named analyst is refused until a mode is said. The
first batch of an adaptive account, one transaction, is a series fixed in advance. Said once, a mode stays until another
is. It is part of what is promised: it is set without looking at answers, and there is no way back from adaptive to
fixed once something was released (docs/theory.md, section 15).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from shoal import validation
from shoal.accounting.filters import FilterRule
from shoal.errors import InputError
from shoal.ledger.composition import Span
from shoal.ledger.questions import word

SCOPES = ("all", "label", "group", "analyst")
MODES = ("fixed", "adaptive")
#: How much the modes imply: what holds for any way of choosing holds for one.
_STRENGTH = {"fixed": 0, None: 1, "adaptive": 2}


@dataclass(frozen=True)
class Budget:
    """δ at most ``delta`` at ``epsilon``, in the ``mode`` that was said, if any."""

    epsilon: float
    delta: float
    members: tuple[str, ...] = ()
    mode: str | None = None

    def implies(self, other: Budget) -> bool:
        """Whether what is within this budget is within the other."""
        stronger = _STRENGTH[self.mode] >= _STRENGTH[other.mode]
        return stronger and self.epsilon <= other.epsilon and self.delta <= other.delta

    @cached_property
    def inside(self) -> frozenset[str]:
        """The members, to be looked up."""
        return frozenset(self.members)


@dataclass(frozen=True)
class Limit:
    """One budget as it applies to some pairs.

    They are the pairs of each of ``at`` with all its neighbors, or with those ``against`` names. Releases about any of
    the ``counted`` labels count as if they were about the one of ``at``.
    """

    name: str
    epsilon: float
    delta: float
    counted: tuple[str, ...]
    at: tuple[str, ...]
    analyst: str | None = None
    against: tuple[str, ...] | None = None
    mode: str | None = None
    #: The entry with the first budget of an analyst, 0 where there is none.
    since: int = 0

    @cached_property
    def rule(self) -> FilterRule:
        """The filter of the budget."""
        return FilterRule(self.epsilon, self.delta)

    def adaptive(self, span: Span | None) -> bool:
        """Whether the limit is to hold for every way of choosing, for pairs of which releases were made in ``span``."""
        if self.mode is not None or span is None:
            return self.mode == "adaptive" or (self.mode is None and self.since > 0)
        return span.named == span.first or 0 < self.since < span.first

    def filters(self, span: Span | None) -> bool:
        """Whether a filter decides: what was made in one batch was fixed in advance in any mode."""
        return self.mode != "fixed" and span is not None and span.first < span.last and self.adaptive(span)

    def closed(self, span: Span | None) -> bool:
        """Whether an analyst is named in what would be a series fixed in advance, though nobody said that it was."""
        return self.mode is None and span is not None and span.named > 0 and not self.adaptive(span)


@dataclass(frozen=True)
class Budgets:
    """All budgets in force; ``since`` is the entry with the first budget of an analyst, 0 where there is none."""

    every: Budget | None = None
    labels: Mapping[str, Budget] = field(default_factory=dict)
    groups: Mapping[str, Budget] = field(default_factory=dict)
    analysts: Mapping[str, Budget] = field(default_factory=dict)
    since: int = 0

    def after(self, content: Mapping[str, Any], seq: int) -> Budgets:
        """The budgets in force once the entry ``seq`` is recorded."""
        members = tuple(content.get("members", ()))
        budget = Budget(float(content["epsilon"]), float(content["delta"]), members)
        scope, names = content["scope"], content.get("names", ())

        def new(name: str | None) -> Budget:
            return replace(budget, mode=content.get("mode") or self.mode(scope, name, members))

        found = {name: new(name) for name in names}
        if scope == "label":
            return replace(self, labels={**self.labels, **found})
        if scope == "group":
            return replace(self, groups={**self.groups, **found})
        if scope == "analyst":
            return replace(self, analysts={**self.analysts, **found}, since=self.since or seq)
        return replace(self, every=new(None))

    def mode(self, scope: str, name: str | None, members: Sequence[str] = ()) -> str | None:
        """The mode that holds so far for what a budget is about; a new group has the strictest of its members'."""
        before = {"label": self.labels, "group": self.groups, "analyst": self.analysts}.get(scope, {}).get(name or "")
        if before is not None:
            return before.mode
        if scope == "analyst":
            return "adaptive"
        held = [self.labels.get(member, self.every) for member in members] if scope == "group" else [self.every]
        modes = {None if budget is None else budget.mode for budget in held}
        return "adaptive" if "adaptive" in modes else None if None in modes else "fixed"

    def was_chosen(self, content: Mapping[str, Any], label: str, span: Span) -> bool:
        """Whether releases about a label in ``span``, which a new budget counts, may have been chosen by answers."""
        scope, names = content["scope"], content.get("names", ())
        name = None if scope == "all" else label if scope == "label" else names[0]
        if scope == "analyst" and names[0] not in self.analysts:
            scope, name = "label", label  # until now the labels' budgets were all there was
        mode = self.mode(scope, name, content.get("members", ()))
        return Limit("", 0.0, 0.0, (), (), mode=mode, since=self.since).adaptive(span)

    def _limit(self, name: str, budget: Budget, counted: tuple[str, ...], at: tuple[str, ...], **where: Any) -> Limit:
        return Limit(name, budget.epsilon, budget.delta, counted, at, mode=budget.mode, since=self.since, **where)

    def of_label(self, label: str) -> Limit | None:
        """The label's own budget, or the common one: for all its pairs."""
        budget = self.labels.get(label, self.every)
        return None if budget is None else self._limit(f"label {label}", budget, (label,), (label,))

    def of_neighbors(self, label: str, around: Sequence[str]) -> Iterator[Limit]:
        """Budgets of a label's neighbors for their pairs with it, as far as the label's own does not imply them."""
        own = self.labels.get(label, self.every)
        for name in around if self.labels else ():
            budget = self.labels.get(name, self.every)
            if budget is not None and budget is not own and not (own is not None and own.implies(budget)):
                yield self._limit(f"label {name}", budget, (label,), (label,), against=(name,))

    def of_groups(self) -> Iterator[Limit]:
        """Budgets of all groups, for all pairs of their members."""
        for name, budget in self.groups.items():
            yield self._limit(f"group {name}", budget, budget.members, budget.members)

    def of_groups_with(self, label: str, around: Sequence[str]) -> Iterator[Limit]:
        """Budgets of the groups that a label belongs to; for its pairs with members, of those it is next to."""
        for name, budget in self.groups.items():
            at: tuple[str, ...] = budget.members
            against = None
            if label not in budget.inside:
                at, against = tuple(other for other in around if other in budget.inside), (label,)
            if at:
                yield self._limit(f"group {name}", budget, budget.members, at, against=against)

    def of_analysts(self, label: str, analyst: str | None) -> Iterator[Limit]:
        """The analyst's budget, or, where none is named and so all may see the answer, every analyst's."""
        for name, budget in self.analysts.items():
            if analyst is None or analyst == name:
                yield self._limit(f"analyst {name} about {label}", budget, (label,), (label,), analyst=name)

    def limits(self, label: str, analyst: str | None, around: Sequence[str]) -> list[Limit]:
        """Everything that a release about ``label`` to ``analyst`` must stay within; ``around`` are its neighbors."""
        own = self.of_label(label)
        return [
            *([] if own is None else [own]),
            *self.of_neighbors(label, around),
            *self.of_groups_with(label, around),
            *self.of_analysts(label, analyst),
        ]

    def cover(self, label: str) -> bool:
        """Whether a label has a budget: its own, the common one or that of a group it belongs to."""
        return self.of_label(label) is not None or any(label in group.inside for group in self.groups.values())


def as_entry(
    epsilon: float,
    delta: float,
    label: Any,
    group: str | None,
    members: Sequence[Any] | None,
    analyst: str | None,
    mode: str | None,
    plan: str | None,
) -> dict[str, Any]:
    """A budget as the ledger records it."""
    content: dict[str, Any] = {
        "epsilon": validation.non_negative(epsilon=epsilon),
        "delta": validation.probability(delta=delta, below_one=True),
    }
    if mode is not None:
        content["mode"] = validation.choice(list(MODES), mode=mode)
    if plan is not None:
        if mode != "fixed":
            raise InputError("plan: what is planned belongs to mode='fixed'")
        content["plan"] = word(plan=plan)
    if sum(x is not None for x in (label, group, analyst)) > 1:
        raise InputError("budget: give one of label, group and analyst, or none for every label")
    if (group is None) != (members is None):
        raise InputError("members must be given together with group")
    if label is not None:
        names = [label] if isinstance(label, (str, int)) else list(label)
        content |= {"scope": "label", "names": sorted({word(label=str(name)) for name in names})}
    elif group is not None and members is not None:
        inside = sorted({word(members=str(name)) for name in members})
        content |= {"scope": "group", "names": [word(group=group)], "members": inside}
    elif analyst is not None:
        content |= {"scope": "analyst", "names": [word(analyst=analyst)]}
    else:
        content |= {"scope": "all"}
    if not content.get("names", True) or not content.get("members", True):
        raise InputError("label and members must name at least one label")
    return content
