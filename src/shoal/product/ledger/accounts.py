"""Accounts of budgets, composed exactly and in words, and the log of a ledger, act by act."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from shoal.product.ledger import chain
from shoal.product.ledger.budgets import Budget
from shoal.product.ledger.state import State
from shoal.product.ledger.storage import Transaction
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


@dataclass(frozen=True)
class Cost:
    """Cost of a release to every budget that applies: ``before`` and ``after`` are in the same order."""

    allowed: bool
    repeated: bool
    before: tuple[Account, ...]
    after: tuple[Account, ...]

    def __repr__(self) -> str:
        verdict = "already answered, free" if self.repeated else "allowed" if self.allowed else "refused"
        lines = [
            f"  {b.name}: δ({exactly(b.epsilon)}) {upper(b.spent)} → {upper(a.spent)} of {exactly(b.budget)}, {a.mode}"
            for b, a in zip(self.before, self.after, strict=True)
        ]
        return "\n".join([f"Cost({verdict})", *lines])


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


# ---------------------------------------------------------------------- the whole ledger


@dataclass(frozen=True)
class LogRow:
    """One act on the ledger: a "budget", or a release of "answers", "crowds" or "readings" about some labels."""

    time: str
    kind: str
    name: str
    folder: str = ""
    labels: int = 0


def log_rows(transaction: Transaction) -> list[LogRow]:
    """Rows of the ledger's log in order; answers of one name charged in one transaction are one row."""
    rows: dict[object, LogRow] = {}
    about: dict[object, set[str]] = {}
    for entry, _ in chain.read_entries(transaction):
        content, key = entry.content, cast("object", entry.seq)
        row = LogRow(str(content["time"]), entry.kind, content.get("query_id", "every label"))
        if entry.kind == "release":
            name = re.sub(r" row \d+$", "", row.name)  # the rows of a label in a table are named so
            key = (content["batch"], name, content["mechanism"])
            about.setdefault(key, set()).add(content["label"])
            row = replace(row, kind="answers", name=name, labels=len(about[key]))
        elif entry.kind == "crowds":
            facts = content["facts"]
            row = replace(row, folder=str(facts.get("folder", "")), labels=int(facts.get("members", 0)))
        elif entry.kind == "readings":
            row = replace(row, labels=len(content["labels"]))
        elif entry.kind != "budget":
            continue
        rows[key] = row
    return list(rows.values())
