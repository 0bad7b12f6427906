"""What has been spent of budgets: bounded, composed, and in words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from shoal.ledger.bounds import pair_bound
from shoal.ledger.budgets import Limit
from shoal.ledger.composition import LabelAccount, PairAccount
from shoal.ledger.state import State
from shoal.rounding import lower, upper


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
        worst = "" if self.pair is None else f", worst for {self.pair[0]} and {self.pair[1]}"
        return (
            f"{self.name}: δ({self.epsilon:g}) ≤ {upper(self.spent)} of {self.budget:g}, {lower(self.remaining)} left, "
            f"{self.mode}, {self.releases} release(s){worst}"
        )


@dataclass(frozen=True)
class Spent:
    """Accounts of labels, or of what an analyst was shown about them; iterate, or ask for one by its label."""

    by_label: Mapping[str, Account]

    @property
    def largest(self) -> Account | None:
        """The account that has used the largest share of its budget."""
        return max(self, key=lambda a: a.spent / a.budget if a.budget else a.spent and 1e300, default=None)

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
    """What a release would do to every budget that applies: ``before`` and ``after`` are in the same order."""

    allowed: bool
    repeated: bool
    before: tuple[Account, ...]
    after: tuple[Account, ...]

    def __repr__(self) -> str:
        verdict = "already answered, free" if self.repeated else "allowed" if self.allowed else "refused"
        lines = [
            f"  {b.name}: δ({b.epsilon:g}) {upper(b.spent)} → {upper(a.spent)} of {b.budget:g}, {a.mode}"
            for b, a in zip(self.before, self.after, strict=True)
        ]
        return "\n".join([f"Cost({verdict})", *lines])


def account(state: State, limit: Limit) -> Account:
    """What has been spent of a limit, composed exactly: by the worst pair it is held against."""
    return _composed(state, limit, state.account(limit))


def exceeding(state: State, limit: Limit, headroom: float) -> float | None:
    """What has been spent of a limit where it is more than the limit allows, with ``headroom``; None within it.

    What the bounds of mechanisms settle is allowed on their word; a refusal rests on the exact composition.
    """
    pairs = state.account(limit)
    undecided = tuple(pair for pair in pairs.pairs if most_spent(state, pair, limit) * (1 + headroom) > limit.delta)
    if not undecided:
        return None
    spent = _composed(state, limit, replace(pairs, pairs=undecided)).spent
    return spent if spent * (1 + headroom) > limit.delta else None


def most_spent(state: State, pair: PairAccount, limit: Limit) -> float:
    """What the bounds of mechanisms say that a pair has spent at most; 1 where they say nothing.

    They hold at every edge of a mechanism's graph, and what counts for a pair was made at an edge.
    """
    key = (pair.about.bare, pair.opposite.bare, limit.epsilon, limit.delta if limit.filters(pair.span) else None)
    most = state.uppers.get(key, 1.0)  # still a bound if more points have become known since
    if most >= 1.0:
        most = state.uppers[key] = pair_bound(pair, limit, state.bound)
    return most


def _composed(state: State, limit: Limit, label: LabelAccount) -> Account:
    composer, parts = state.memory.composer, []
    for filtered in (False, True):
        pairs = tuple(pair for pair in label.pairs if limit.filters(pair.span) == filtered)
        if pairs and filtered:
            parts.append(composer.filtered(replace(label, pairs=pairs), limit.rule, state.mechanism))
        elif pairs:
            parts.append(composer.composed(replace(label, pairs=pairs), limit.epsilon, state.mechanism))
    spent, pair = max(parts, key=lambda part: part.delta_upper)
    return Account(limit.name, limit.epsilon, limit.delta, spent, label.releases, pair, limit.mode)
