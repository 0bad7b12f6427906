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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from shoal import validation
from shoal.errors import InputError
from shoal.ledger.questions import word

SCOPES = ("all", "label", "group", "analyst")


@dataclass(frozen=True)
class Budget:
    """δ at most ``delta`` at ``epsilon``."""

    epsilon: float
    delta: float
    members: tuple[str, ...] = ()

    def implies(self, other: Budget) -> bool:
        """Whether what is within this budget is within the other."""
        return self.epsilon <= other.epsilon and self.delta <= other.delta

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


@dataclass(frozen=True)
class Budgets:
    """All budgets in force."""

    every: Budget | None = None
    labels: Mapping[str, Budget] = field(default_factory=dict)
    groups: Mapping[str, Budget] = field(default_factory=dict)
    analysts: Mapping[str, Budget] = field(default_factory=dict)

    def after(self, content: Mapping[str, Any]) -> Budgets:
        """The budgets in force once an entry is recorded."""
        budget = Budget(float(content["epsilon"]), float(content["delta"]), tuple(content.get("members", ())))
        scope, names = content["scope"], content.get("names", ())
        if scope == "label":
            return replace(self, labels={**self.labels, **dict.fromkeys(names, budget)})
        if scope == "group":
            return replace(self, groups={**self.groups, **dict.fromkeys(names, budget)})
        if scope == "analyst":
            return replace(self, analysts={**self.analysts, **dict.fromkeys(names, budget)})
        return replace(self, every=budget)

    def of_label(self, label: str) -> Limit | None:
        """The label's own budget, or the common one: for all its pairs."""
        budget = self.labels.get(label, self.every)
        return None if budget is None else Limit(f"label {label}", budget.epsilon, budget.delta, (label,), (label,))

    def of_neighbors(self, label: str, around: Sequence[str]) -> Iterator[Limit]:
        """Budgets of a label's neighbors for their pairs with it, as far as the label's own does not imply them."""
        own = self.labels.get(label, self.every)
        for name in around if self.labels else ():
            budget = self.labels.get(name, self.every)
            if budget is not None and budget is not own and not (own is not None and own.implies(budget)):
                yield Limit(f"label {name}", budget.epsilon, budget.delta, (label,), (label,), against=(name,))

    def of_groups(self) -> Iterator[Limit]:
        """Budgets of all groups, for all pairs of their members."""
        for name, budget in self.groups.items():
            yield Limit(f"group {name}", budget.epsilon, budget.delta, budget.members, budget.members)

    def of_groups_with(self, label: str, around: Sequence[str]) -> Iterator[Limit]:
        """Budgets of the groups that a label belongs to; for its pairs with members, of those it is next to."""
        for name, budget in self.groups.items():
            at: tuple[str, ...] = budget.members
            against = None
            if label not in budget.inside:
                at, against = tuple(other for other in around if other in budget.inside), (label,)
            if at:
                yield Limit(f"group {name}", budget.epsilon, budget.delta, budget.members, at, against=against)

    def of_analysts(self, label: str, analyst: str | None) -> Iterator[Limit]:
        """The analyst's budget, or, where none is named and so all may see the answer, every analyst's."""
        for name, budget in self.analysts.items():
            if analyst is None or analyst == name:
                text = f"analyst {name} about {label}"
                yield Limit(text, budget.epsilon, budget.delta, (label,), (label,), name)

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
    epsilon: float, delta: float, label: Any, group: str | None, members: Sequence[Any] | None, analyst: str | None
) -> dict[str, Any]:
    """A budget as the ledger records it."""
    content: dict[str, Any] = {
        "epsilon": validation.non_negative(epsilon=epsilon),
        "delta": validation.probability(delta=delta, below_one=True),
    }
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
