"""What has been spent of budgets: composed, bounded, and told to people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, Context
from typing import Any

import numpy as np
from sqlalchemy import select

from shoal.accounting.curve import round_up
from shoal.ledger import journal
from shoal.ledger.bounds import pair_bound
from shoal.ledger.budgets import Budgets, Limit
from shoal.ledger.composition import Composer, LabelAccount, PairAccount
from shoal.ledger.recent import Recent
from shoal.ledger.registry import Registry
from shoal.ledger.schema import ENTRIES
from shoal.ledger.state import State
from shoal.ledger.storage import Transaction
from shoal.mechanism.reader import Releaser

_FOUR_DIGITS = Context(prec=4, rounding=ROUND_DOWN)
_LAST_BUDGET = select(ENTRIES.c.hash).where(journal.of_kind("budget")).order_by(ENTRIES.c.seq.desc()).limit(1)


@dataclass(frozen=True)
class Account:
    """What has been spent of one budget by the worst pair it is held against; δ's are upper ends at the budget's ε.

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

    def __str__(self) -> str:
        spent, left = round_up(self.spent), round_down(self.remaining)
        worst = "" if self.pair is None else f", worst for {self.pair[0]} and {self.pair[1]}"
        return (
            f"{self.name}: δ({self.epsilon:g}) ≤ {spent:.4g} of {self.budget:g}, {left:.4g} left, {self.mode}, "
            f"{self.releases} release(s){worst}"
        )


@dataclass(frozen=True)
class Spent:
    """Accounts of labels, or of what an analyst was shown about them; iterate, or ask for one by its label."""

    by_label: Mapping[str, Account]

    @property
    def accounts(self) -> tuple[Account, ...]:
        """All accounts."""
        return tuple(self.by_label.values())

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
        """Releases about all labels together."""
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


class Accountant:
    """Tells what accounts have spent. What it remembers between calls could be computed again; nothing rests on it."""

    def __init__(self, composer: Composer | None = None) -> None:
        self.registry = Registry()
        self.composer = Composer() if composer is None else composer
        self._uppers: Recent[float] = Recent(16 * 2**20)
        self._budgets: tuple[str, Budgets] = ("", Budgets())

    def state(self, transaction: Transaction) -> State:
        """The state of the ledger as its index has it."""
        state = State(transaction, self.registry)
        last = transaction.value(_LAST_BUDGET)
        if last is not None:
            known, state.budgets = self._budgets
            if known != last:  # a hash stands for everything up to its entry
                state.budgets = Budgets()
                for entry in journal.fetched(transaction, journal.of_kind("budget")):
                    state.apply(entry)
                self._budgets = (str(last), state.budgets)
        return state

    def prepared(self, mechanism: Releaser, labels: Iterable[str] = ()) -> Releaser:
        """A trusted copy of a mechanism, with all that can be computed before anything is locked."""
        own = self.registry.trusted(mechanism)
        own.prepare()
        for label in labels:
            self.composer.prepare(own, label)
        return own

    def account(self, state: State, limit: Limit) -> Account:
        """What has been spent of a limit, composed exactly: by the worst pair it is held against."""
        return self._composed(state, limit, state.account(limit))

    def exceeding(self, state: State, limit: Limit, headroom: float) -> float | None:
        """What has been spent of a limit where it is more than the limit allows, with ``headroom``; None within it.

        What the bounds of mechanisms settle is allowed on their word; a refusal rests on the exact composition.
        """
        account = state.account(limit)
        allowed = [self.upper(state, pair, limit) * (1 + headroom) <= limit.delta for pair in account.pairs]
        if all(allowed):
            return None
        undecided = tuple(pair for pair, within in zip(account.pairs, allowed, strict=True) if not within)
        spent = self._composed(state, limit, replace(account, pairs=undecided)).spent
        return spent if spent * (1 + headroom) > limit.delta else None

    def upper(self, state: State, pair: PairAccount, limit: Limit) -> float:
        """What the bounds of mechanisms say about a pair; 1 where they say nothing.

        They hold at every edge of a mechanism's graph, and what counts for a pair was made at an edge.
        """
        key = (pair.about.bare, pair.opposite.bare, limit.epsilon, limit.delta if limit.filters(pair.span) else None)
        upper = self._uppers.get(key)  # still a bound if more points have become known since
        if upper is None:
            upper = pair_bound(pair, limit, state.bound)
            if upper < 1.0:
                self._uppers.put(key, upper, 1000)
        return upper

    def _composed(self, state: State, limit: Limit, account: LabelAccount) -> Account:
        curves = []
        for filtered in (False, True):
            pairs = tuple(pair for pair in account.pairs if limit.filters(pair.span) == filtered)
            if pairs and filtered:
                curves.append(self.composer.filtered(replace(account, pairs=pairs), limit.rule, state.mechanism))
            elif pairs:
                grid = np.array([limit.epsilon])
                curves.append(self.composer.curve(replace(account, pairs=pairs), grid, state.mechanism))
        worst = max(curves, key=lambda curve: float(curve.delta_upper[0]))
        spent = float(worst.delta_upper[0])
        return Account(limit.name, limit.epsilon, limit.delta, spent, account.releases, worst.worst_edge[0], limit.mode)
