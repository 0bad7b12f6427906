"""A whole ledger in a few numbers, whatever its size."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shoal.accounting.curve import round_up
from shoal.ledger import accounts, journal
from shoal.ledger.accounts import Account
from shoal.ledger.books import Books
from shoal.ledger.bounds import bounded, mechanism_bound
from shoal.ledger.budgets import Limit
from shoal.ledger.composition import Star
from shoal.ledger.storage import CHUNK, Transaction
from shoal.ledger.tallies import Tallies


@dataclass(frozen=True)
class Overview:
    """Counts, and the largest share of a budget that may have been spent by any label or group.

    ``largest_share`` is certain from above: no account has used more of its budget than that (above 1: overdrawn).
    ``worst`` are accounts composed exactly, the largest share first. Budgets of analysts are not looked at.
    """

    entries: int
    labels: int
    releases: int
    mechanisms: int
    without_budget: int
    largest_share: float
    worst: tuple[Account, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.entries} entries: {self.releases} release(s) about {self.labels} label(s) through "
            f"{self.mechanisms} mechanism(s)",
            f"at most {round_up(self.largest_share):.4g} of any budget is spent",
        ]
        if self.without_budget:
            lines.append(f"{self.without_budget} label(s) have no budget")
        return "\n".join([*lines, *(f"  {account}" for account in self.worst)])


def overviewed(books: Books, transaction: Transaction, exact: int) -> Overview:
    """Walk all labels, graph by graph; judge them by bounds, and the ``exact`` worst by composition."""
    budgets = books.in_force(transaction)
    labels = releases = without = 0
    top: list[tuple[float, str, Limit, list[Star]]] = []
    # The largest bound of an account that is not among the worst, which stays all that is known of it.
    rest = 0.0

    def judge(tallies: Tallies, limit: Limit) -> None:
        nonlocal rest
        held = list(tallies.stars(limit))
        upper = max(_upper(books, tallies, star, limit) for star in held)
        item = (_share(upper, limit), limit.name, limit, held)
        if len(top) < exact:
            heapq.heappush(top, item)
        else:
            rest = max(rest, heapq.heappushpop(top, item)[0])

    for tallies, name in _labels(books, transaction):
        about = tallies.of(name).releases
        labels += about > 0
        releases += about
        limit = budgets.of_label(name)
        if limit is None:
            without += about > 0
        elif about or name in budgets.labels:
            judge(tallies, limit)
    for limit in budgets.of_groups():
        judge(books.tallies(transaction), limit)
    lookup = books.lookup(transaction)
    worst = []
    for _, _, limit, held in top:
        worst.append((accounts.account(books.composer, held, limit, lookup), limit))
    worst.sort(key=lambda pair: (-_share(pair[0].spent, pair[1]), pair[1].name))
    return Overview(
        entries=journal.head(transaction).seq,
        labels=labels,
        releases=releases,
        mechanisms=int(transaction.value("SELECT COUNT(*) FROM mechanisms") or 0),
        without_budget=without,
        largest_share=max([rest, *(_share(account.spent, limit) for account, limit in worst)]),
        worst=tuple(account for account, _ in worst),
    )


def _labels(books: Books, transaction: Transaction) -> Iterator[tuple[Tallies, str]]:
    """All labels with their charges and their neighbors', a block of one graph at a time, connected ones together."""
    for (digest,) in transaction.rows("SELECT DISTINCT graph FROM labels ORDER BY graph"):
        graph = books.registry.graph(transaction, str(digest))
        names = [graph.labels[i] for i in np.argsort(graph.components, kind="stable")]
        for start in range(0, len(names), CHUNK):
            tallies, block = books.tallies(transaction, graph=graph), names[start : start + CHUNK]
            tallies.read(other for name in block for other in (name, *tallies.neighbors(name)))
            yield from ((tallies, name) for name in block)


def _share(spent: float, limit: Limit) -> float:
    """The part of a budget that is spent, rounded up; inf where something is spent of nothing."""
    if limit.delta > 0:
        return spent / limit.delta * (1 + 2.0**-50)
    return float("inf") if spent > 0 else 0.0


def _upper(books: Books, tallies: Tallies, star: Star, limit: Limit) -> float:
    """The bound on a label's pairs; bounds that were never stored, or not for this ε, are made for the occasion."""
    registry, transaction = books.registry, tallies.transaction
    found = 0.0
    for opposite, _ in star.others:
        upper = books.upper(tallies, star.about, opposite, limit)
        missing = False
        for digest, _ in star.about.joined(opposite).used if upper > limit.delta else ():
            known = registry.bound(transaction, digest)
            if known is None or limit.epsilon not in known.epsilons or limit.epsilon not in known.table_epsilons:
                registry.remember(mechanism_bound(registry.mechanism(transaction, digest), limit.epsilon))
                missing = True
        if missing:
            upper = bounded(star.about, opposite, limit.epsilon, lambda digest: registry.bound(transaction, digest))
        found = max(found, upper)
    return found
