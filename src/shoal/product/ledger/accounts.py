"""Accounts of budgets: bounded, composed, in words; a whole ledger in a few numbers, and act by act."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from sqlalchemy import func, or_, select

from shoal.product.ledger import chain
from shoal.product.ledger.budgets import Budget, mechanism_bound, pair_bound
from shoal.product.ledger.composition import LabelAccount, PairAccount
from shoal.product.ledger.state import Memory, State
from shoal.product.ledger.storage import ENTRIES, Transaction
from shoal.rounding import exactly, lower, upper


@dataclass(frozen=True)
class Account:
    """The part of one budget that was spent by the worst pair it is held against; δ's are upper ends at the budget's ε.

    ``releases`` are those about the label; ``pair`` is the worst pair, None where nothing was released. ``mode`` says
    what the budget holds for: ``"fixed"``, a series fixed in advance, whose composed δ is what is spent; or
    ``"adaptive"``, any way of choosing, and what is spent is what the budget's filter counts, which is within the
    budget exactly if it is at most δ.
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

    @property
    def share(self) -> float:
        """The part of the budget that is spent, rounded up; inf where something is spent of nothing."""
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
    """Accounts of labels; iterate, or ask for one by its label."""

    by_label: Mapping[str, Account]

    @property
    def largest(self) -> Account | None:
        """The account that has used the largest share of its budget."""
        return max(self, key=lambda account: account.share, default=None)

    @property
    def releases(self) -> int:
        """Releases about all labels together."""
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


def account(state: State, label: str, budget: Budget) -> Account:
    """The part of a budget that has been spent, composed exactly: by the worst pair of a label."""
    return _compose(state, budget, state.account(label))


def exceeding(state: State, label: str, budget: Budget, headroom: float) -> float | None:
    """The part of a budget that has been spent, where it is more than that allows, with ``headroom``; None within it.

    What the bounds of mechanisms settle is allowed on their word; a refusal rests on the exact composition.
    """
    pairs = state.account(label)
    undecided = tuple(pair for pair in pairs.pairs if most_spent(state, pair, budget) * (1 + headroom) > budget.delta)
    if not undecided:
        return None
    spent = _compose(state, budget, replace(pairs, pairs=undecided)).spent
    return spent if spent * (1 + headroom) > budget.delta else None


def most_spent(state: State, pair: PairAccount, budget: Budget) -> float:
    """Upper bound, from the bounds of mechanisms, on what a pair has spent; 1 where they say nothing.

    They hold at every edge of a mechanism's graph, and what counts for a pair was made at an edge.
    """
    key = (pair.about.bare, pair.opposite.bare, budget.epsilon, budget.delta if budget.filters(pair.span) else None)
    most = state.uppers.get(key, 1.0)  # still a bound if more points have become known since
    if most >= 1.0:
        most = state.uppers[key] = pair_bound(pair, budget, state.bound)
    return most


def _compose(state: State, budget: Budget, label: LabelAccount) -> Account:
    composer, parts = state.memory.composer, []
    for filtered in (False, True):
        pairs = tuple(pair for pair in label.pairs if budget.filters(pair.span) == filtered)
        if pairs and filtered:
            parts.append(composer.filter(replace(label, pairs=pairs), budget.rule, state.mechanism))
        elif pairs:
            parts.append(composer.compose(replace(label, pairs=pairs), budget.epsilon, state.mechanism))
    spent, pair = max(parts, key=lambda part: part.delta_upper)
    name = f"label {label.label}"
    return Account(name, budget.epsilon, budget.delta, spent, label.releases, pair, budget.mode)


# ---------------------------------------------------------------------- the whole ledger


@dataclass(frozen=True)
class Overview:
    """Counts, and the largest share of a budget that may have been spent by any label.

    ``largest_share`` is certain from above: no account has used more of its budget than that (above 1: overdrawn).
    ``worst`` are accounts composed exactly, the largest share first. ``tables`` counts releases of crowds' rows and of
    readings with noise, which no label's budget is charged for.
    """

    labels: int
    releases: int
    largest_share: float
    worst: tuple[Account, ...]
    tables: int = 0


def overview_of(transaction: Transaction, memory: Memory, exact: int) -> Overview:
    """Judge all labels by bounds, and the ``exact`` worst by composition."""
    state = State(transaction, memory)
    budget, names = state.budget or Budget(0.0, 0.0), state.released_labels()  # without a budget nothing was released
    state.read(names)
    bounds = []
    for name in names:
        most = max(_bound(state, pair, budget) for pair in state.account(name).pairs)
        bounds.append((Account(name, budget.epsilon, budget.delta, most, 0).share, name))
    bounds.sort(reverse=True)
    worst = sorted(
        (account(state, name, budget) for _, name in bounds[:exact]), key=lambda spent: (-spent.share, spent.name)
    )
    tables = or_(chain.is_kind("crowds"), chain.is_kind("readings"))
    return Overview(
        labels=len(names),
        releases=sum(state.charges(name).releases for name in names),
        largest_share=max([*(share for share, _ in bounds[exact:]), *(spent.share for spent in worst)], default=0.0),
        worst=tuple(worst),
        tables=int(transaction.value(select(func.count()).select_from(ENTRIES).where(tables))),
    )


def _bound(state: State, pair: PairAccount, budget: Budget) -> float:
    """The bound on a pair; bounds that were never stored, or not for this ε, are made for the occasion."""
    most, missing, epsilon = most_spent(state, pair, budget), False, budget.epsilon
    for digest, _, _ in pair.about.join(pair.opposite).uses if most > budget.delta else ():
        known = state.bound(digest)
        if known is None or epsilon not in known.delta or epsilon not in known.table:
            state.memory.remember_bound(mechanism_bound(state.mechanism(digest), epsilon))
            missing = True
    return pair_bound(pair, budget, state.bound) if missing else most


@dataclass(frozen=True)
class LogRow:
    """One act on the ledger: when, its kind ("budget", "answers", "crowds" or "readings"), the name of the release, the
    folder where it was made, as far as the record says, and how many labels it was about.
    """

    time: str
    kind: str
    name: str
    folder: str = ""
    labels: int = 0


def log_rows(transaction: Transaction) -> list[LogRow]:
    """All rows, in order; answers of one name that were charged in one transaction are one row."""
    rows: dict[object, LogRow] = {}
    about: dict[object, set[str]] = {}
    for entry, _ in chain.entries(transaction):
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
