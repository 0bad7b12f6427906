"""Accounts of budgets, composed exactly, and in words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.product.ledger.budgets import Budget
from shoal.product.ledger.state import State
from shoal.rounding import exactly, lower, upper


@dataclass(frozen=True)
class Account:
    """The δ of one budget that a label's worst pair has spent, an upper end at the budget's ε.

    ``releases`` are those about the label; ``pair`` is the worst pair, None where nothing was released. With the mode
    "fixed" the composed δ is spent; with "adaptive" what the budget's filter counts.
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
        """The δ that is left of the budget, rounded down; 0 where the budget is spent or overdrawn."""
        left = self.budget - self.spent
        return left * (1 - 2.0**-50) if left > 0 else 0.0

    @property
    def share(self) -> float:
        """The spent part of the budget as a fraction, rounded up; inf where something is spent of a budget of 0."""
        if self.budget > 0:
            return self.spent / self.budget * (1 + 2.0**-50)
        return math.inf if self.spent > 0 else 0.0

    def __str__(self) -> str:
        worst = "" if self.pair is None else f", worst for {self.pair[0]} and {self.pair[1]}"
        # A codebook at the budget's ε has δ = 0 there, and still no second one fits.
        left = f"{lower(self.remaining)} left"
        left = "though ε may be used up" if self.releases and not self.spent else left
        return (
            f"{self.name}: δ({exactly(self.epsilon)}) ≤ {upper(self.spent)} of {exactly(self.budget)}, "
            f"{left}, {self.mode}, {self.releases} release(s){worst}"
        )


@dataclass(frozen=True)
class Spent:
    """Accounts of labels by name: a collection to iterate, with ``spent[label]`` for one account."""

    by_label: Mapping[str, Account]

    @property
    def largest(self) -> Account | None:
        """The account that has used the largest share of its budget."""
        return max(self, key=lambda account: account.share, default=None)

    @property
    def releases(self) -> int:
        """Number of releases about all labels together."""
        return sum(account.releases for account in self)

    def __getitem__(self, label: Any) -> Account:
        return self.by_label[str(label)]

    def __iter__(self) -> Iterator[Account]:
        return iter(self.by_label.values())

    def __len__(self) -> int:
        return len(self.by_label)

    def __repr__(self) -> str:
        shown = [f"  {account}" for account in itertools.islice(self, 20)]
        if len(self) > 20:
            shown.append(f"  … and {len(self) - 20} more")
        return "\n".join([f"Spent({self.releases} release(s) about {len(self)} label(s))", *shown])


def compose_account(state: State, label: str, budget: Budget) -> Account:
    """The account of a label: the δ that its worst pair has spent, composed exactly or by the budget's filter."""
    composer, parts, pairs = state.memory.composer, [], state.pairs(label)
    filtered = [pair for pair in pairs if budget.uses_filter(pair.batches)]
    fixed = [pair for pair in pairs if not budget.uses_filter(pair.batches)]
    if fixed:
        parts.append(composer.compose(label, fixed, budget.epsilon, state.mechanism))
    if filtered:
        parts.append(composer.filter_spent(label, filtered, budget.rule, state.mechanism))
    spent, pair = max(parts, key=lambda part: part.delta_upper)
    releases = state.charges(label).releases
    return Account(f"label {label}", budget.epsilon, budget.delta, spent, releases, pair, budget.mode)
