"""Budgets: how much may be known about a label, and by whom.

| scope | what counts against it |
| --- | --- |
| all | everything released about a label, for every label that has no budget of its own |
| label | the same for a named label |
| group | everything released about any member, composed as if it were all about one of them, whichever is worst |
| analyst | what one analyst was shown about a label, for every label |

The group's reading is the cautious one: an observer is granted that all the answers belong to one unknown member. All
members must belong to one graph. Whatever was released to nobody in particular counts for every analyst. A later budget
with the same scope and name replaces the earlier one; every budget that applies must hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class Limit:
    """One budget as it applies to a release about one label.

    Releases about ``counted`` labels are composed at the edges of each of ``at``; the worst counts.
    """

    name: str
    epsilon: float
    delta: float
    counted: tuple[str, ...]
    at: tuple[str, ...]
    analyst: str | None = None


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
        budget = self.labels.get(label, self.every)
        return None if budget is None else Limit(f"label {label}", budget.epsilon, budget.delta, (label,), (label,))

    def of_groups(self, label: str | None = None) -> Iterator[Limit]:
        """Budgets of the groups that a label belongs to, or of all groups."""
        for name, budget in self.groups.items():
            if label is None or label in budget.members:
                yield Limit(f"group {name}", budget.epsilon, budget.delta, budget.members, budget.members)

    def of_analysts(self, label: str, analyst: str | None) -> Iterator[Limit]:
        """The analyst's budget, or, where none is named and so all may see the answer, every analyst's."""
        for name, budget in self.analysts.items():
            if analyst is None or analyst == name:
                text = f"analyst {name} about {label}"
                yield Limit(text, budget.epsilon, budget.delta, (label,), (label,), name)

    def limits(self, label: str, analyst: str | None) -> list[Limit]:
        """Everything a release about ``label`` to ``analyst`` must stay within."""
        own = self.of_label(label)
        first = [] if own is None else [own]
        return [*first, *self.of_groups(label), *self.of_analysts(label, analyst)]


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
