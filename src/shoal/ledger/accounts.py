"""What budgets have been spent, for people to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Context
from typing import Any

import numpy as np

from shoal.accounting.curve import round_up
from shoal.errors import InputError
from shoal.ledger.budgets import Limit
from shoal.ledger.composition import NOTHING, Charges, Composer, Lookup, Side, Star
from shoal.ledger.ties import Tie

_FOUR_DIGITS = Context(prec=4, rounding=ROUND_DOWN)


@dataclass(frozen=True)
class Account:
    """What has been spent of one budget by the worst pair it is held against; δ's are upper ends at the budget's ε.

    ``releases`` are those about the label or the members of the group; ``pair`` is the worst pair, None where nothing
    but claims or finite precision counts. ``mode`` says what the budget holds for: ``"fixed"``, a series fixed in
    advance, whose composed δ is what is spent; or ``"adaptive"``, any way of choosing, and what is spent is what the
    budget's filter counts, which is within the budget exactly if it is at most δ.
    """

    name: str
    epsilon: float
    budget: float
    spent: float
    releases: int
    pair: tuple[str, str] | None = None
    mode: str = "fixed"

    @property
    def remaining(self) -> float:
        """δ left, rounded down; 0 when the budget is spent or overdrawn."""
        left = self.budget - self.spent
        return left * (1 - 2.0**-50) if left > 0 else 0.0

    def __str__(self) -> str:
        spent, left = round_up(self.spent), round_down(self.remaining)
        worst = "" if self.pair is None else f", worst for {self.pair[0]} and {self.pair[1]}"
        return (
            f"{self.name}: δ({self.epsilon:g}) ≤ {spent:.4g} of {self.budget:g}, {left:.4g} left, {self.mode}, "
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
            f"  {b.name}: δ({b.epsilon:g}) {round_up(b.spent):.4g} → {round_up(a.spent):.4g} of {b.budget:g}, {a.mode}"
            for b, a in zip(self.before, self.after, strict=True)
        ]
        return "\n".join([f"Cost({verdict})", *lines])


def round_down(value: float) -> float:
    """A positive number rounded down to four significant digits, for display."""
    return float(_FOUR_DIGITS.create_decimal(value)) if value > 0 else 0.0


def stars(
    limit: Limit,
    charged: Callable[[str], Charges],
    ties: Callable[[str], Sequence[Tie]],
    cut: Callable[[Charges, frozenset[str]], Charges],
    *,
    pairs: bool = True,
) -> Iterator[Star]:
    """The pairs that a limit is held against, label by label.

    ``ties`` gives a label's neighbors by the graphs that join them, ``cut`` the part of some charges that was made
    through mechanisms of these graphs, equal ones as one object. Without ``pairs`` nothing that was released about a
    neighbor counts.
    """
    about = charged(limit.counted[0])
    for name in limit.counted[1:]:
        about = about.joined(charged(name))
    for label in limit.at:
        sides: dict[tuple[int, int], tuple[Charges, Charges, list[str]]] = {}
        for number, tie in enumerate(ties(label)):
            own = cut(about, tie.graphs)
            for name in tie.names:
                if limit.against is None or name in limit.against:
                    opposite = cut(charged(name), tie.graphs) if pairs else NOTHING
                    sides.setdefault((number, id(opposite)), (own, opposite, []))[2].append(name)
        found = (Side(own, other, tuple(names), key[0]) for key, (own, other, names) in sides.items())
        yield Star(label, about.releases, tuple(found) or (Side(about, NOTHING, ()),))


def account(composer: Composer, held: Sequence[Star], limit: Limit, lookup: Lookup) -> Account:
    """What the pairs that a limit is held against have spent: the worst of them."""
    grid = np.array([limit.epsilon])
    found = []
    for star in held:
        sides = [[side for side in star.sides if limit.filters(side.span) == chosen] for chosen in (False, True)]
        if sides[0]:
            found.append(composer.curve(replace(star, sides=tuple(sides[0])), grid, lookup))
        if sides[1]:
            found.append(composer.filtered(replace(star, sides=tuple(sides[1])), limit.rule, lookup))
    worst = max(found, key=lambda one: float(one.delta_upper[0]))
    spent = float(worst.delta_upper[0])
    mode = "adaptive" if any(limit.adaptive(side.span) for star in held for side in star.sides) else "fixed"
    return Account(limit.name, limit.epsilon, limit.delta, spent, held[0].releases, worst.worst_edge[0], mode)


def one_graph(limit: Limit, graphs: Callable[[str], frozenset[str]]) -> None:
    """Refuse a group whose members were never in one graph: what was released about one means nothing for another."""
    if len(limit.counted) > 1 and not frozenset.intersection(*(graphs(label) for label in limit.counted)):
        raise InputError(f"{limit.name}: all members of a group must belong to one graph; set it anew without others")
