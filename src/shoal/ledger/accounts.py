"""What budgets have been spent, for people to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context
from typing import Any

import numpy as np

from shoal.accounting.curve import round_up
from shoal.errors import InputError
from shoal.ledger.budgets import Limit
from shoal.ledger.composition import NOTHING, Charges, Composer, Lookup, Star

_FOUR_DIGITS = Context(prec=4, rounding=ROUND_DOWN)


@dataclass(frozen=True)
class Account:
    """What has been spent of one budget by the worst pair it is held against; δ's are upper ends at the budget's ε.

    ``releases`` are those about the label or the members of the group; ``pair`` is the worst pair, None where nothing
    but claims or finite precision counts.
    """

    name: str
    epsilon: float
    budget: float
    spent: float
    releases: int
    pair: tuple[str, str] | None = None

    @property
    def remaining(self) -> float:
        """δ left, rounded down; 0 when the budget is spent or overdrawn."""
        left = self.budget - self.spent
        return left * (1 - 2.0**-50) if left > 0 else 0.0

    def __str__(self) -> str:
        spent, left = round_up(self.spent), round_down(self.remaining)
        worst = "" if self.pair is None else f", worst for {self.pair[0]} and {self.pair[1]}"
        return (
            f"{self.name}: δ({self.epsilon:g}) ≤ {spent:.4g} of {self.budget:g}, {left:.4g} left, "
            f"{self.releases} release(s){worst}"
        )


@dataclass(frozen=True)
class Spent:
    """Accounts of labels, groups or an analyst; iterate, or ask for one by its label."""

    accounts: tuple[Account, ...]
    by_label: Mapping[str, Account]

    @property
    def largest(self) -> Account | None:
        """The account that has used the largest share of its budget."""
        return max(self.accounts, key=lambda a: a.spent / a.budget if a.budget else a.spent and 1e300, default=None)

    @property
    def delta(self) -> float:
        """The largest δ spent, each at its budget's ε."""
        return max((a.spent for a in self.accounts), default=0.0)

    @property
    def releases(self) -> int:
        """Releases about all labels together, those made elsewhere included."""
        return sum(a.releases for a in self.by_label.values())

    def __getitem__(self, label: Any) -> Account:
        return self.by_label[str(label)]

    def __iter__(self) -> Iterator[Account]:
        return iter(self.accounts)

    def __len__(self) -> int:
        return len(self.accounts)

    def __repr__(self) -> str:
        shown = [f"  {account}" for account in self.accounts[:20]]
        if len(self.accounts) > 20:
            shown.append(f"  … and {len(self.accounts) - 20} more")
        return "\n".join([f"Spent({self.releases} release(s) about {len(self.by_label)} label(s))", *shown])


@dataclass(frozen=True)
class Cost:
    """What a release would do to every budget that applies: ``before`` and ``after`` are in the same order."""

    allowed: bool
    repeated: bool
    before: tuple[Account, ...]
    after: tuple[Account, ...]

    def __repr__(self) -> str:
        verdict = "already answered, free" if self.repeated else "allowed" if self.allowed else "refused"
        lines = [
            f"  {b.name}: δ({b.epsilon:g}) {round_up(b.spent):.4g} → {round_up(a.spent):.4g} of {b.budget:g}"
            for b, a in zip(self.before, self.after, strict=True)
        ]
        return "\n".join([f"Cost({verdict})", *lines])


def round_down(value: float) -> float:
    """A positive number rounded down to four significant digits, for display."""
    return float(_FOUR_DIGITS.create_decimal(value)) if value > 0 else 0.0


def stars(
    limit: Limit, charged: Callable[[str], Charges], neighbors: Callable[[str], Sequence[str]], *, pairs: bool = True
) -> Iterator[Star]:
    """The pairs that a limit is held against, label by label. ``charged`` gives equal charges as one object.

    Without ``pairs`` nothing that was released about a neighbor counts.
    """
    about = charged(limit.counted[0])
    for name in limit.counted[1:]:
        about = about.joined(charged(name))
    for label in limit.at:
        around = neighbors(label)
        if limit.against is not None:
            around = [name for name in around if name in limit.against]
        alike: dict[int, tuple[Charges, list[str]]] = {}
        for name in around:
            opposite = charged(name) if pairs else NOTHING
            alike.setdefault(id(opposite), (opposite, []))[1].append(name)
        others = tuple((opposite, tuple(names)) for opposite, names in alike.values())
        yield Star(label, about, others or ((NOTHING, ()),))


def account(composer: Composer, held: Sequence[Star], limit: Limit, lookup: Lookup) -> Account:
    """What the pairs that a limit is held against have spent: the worst of them."""
    about = held[0].about
    if about.used and len(limit.counted) > 1:
        known = set(lookup(about.used[0][0]).graph.labels)
        if not known.issuperset(limit.counted):
            raise InputError(
                f"{limit.name}: all members of a group must belong to one graph; set it anew without others"
            )
    grid = np.array([limit.epsilon])
    found = [composer.curve(star, grid, lookup) for star in held]
    worst = max(found, key=lambda one: float(one.delta_upper[0]))
    spent = float(worst.delta_upper[0])
    return Account(limit.name, limit.epsilon, limit.delta, spent, about.releases, worst.worst_edge[0])
