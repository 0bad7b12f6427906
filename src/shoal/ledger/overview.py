"""A whole ledger in a few numbers, whatever its size."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from shoal.accounting.curve import round_up
from shoal.ledger import journal
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
    top: list[tuple[float, str, Limit]] = []
    # The largest bound of an account that is not among the worst, which stays all that is known of it.
    rest = 0.0

    def judge(tallies: Tallies, limit: Limit, held: Iterable[Star]) -> None:
        nonlocal rest
        upper = max(_upper(books, tallies, star, limit) for star in held)
        item = (_share(upper, limit), limit.name, limit)
        if len(top) < exact:
            heapq.heappush(top, item)
        else:
            rest = max(rest, heapq.heappushpop(top, item)[0])

    for tallies, names in _groups(books, transaction):
        # Where the same was released about everyone, as in tables, all pairs are alike and need no looking for.
        alike = len(names) > 1 and len({id(tallies.of(name)) for name in names}) == 1
        for name in names:
            about = tallies.of(name)
            labels += about.releases > 0
            releases += about.releases
            limit = budgets.of_label(name)
            if limit is None:
                without += about.releases > 0
            elif about.releases or name in budgets.labels:
                judge(tallies, limit, [Star(name, about, ((about, ()),))] if alike else tallies.stars(limit))
    every = books.tallies(transaction)
    for limit in budgets.of_groups():
        judge(every, limit, every.stars(limit))
    lookup = books.lookup(transaction)
    worst = []
    for _, _, limit in top:
        worst.append((books.account(every, limit, lookup), limit))
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


def _groups(books: Books, transaction: Transaction) -> Iterator[tuple[Tallies, list[str]]]:
    """All labels by connected component, with their charges, which are read for many components at once."""
    for (digest,) in transaction.rows("SELECT DISTINCT graph FROM labels ORDER BY graph"):
        graph = books.registry.graph(transaction, str(digest))
        order = np.argsort(graph.components, kind="stable")
        cuts = np.flatnonzero(np.diff(graph.components[order])) + 1
        block: list[list[str]] = []
        parts = np.split(order, cuts)
        for number, part in enumerate(parts):
            block.append([graph.labels[i] for i in part])
            if number == len(parts) - 1 or sum(map(len, block)) >= CHUNK:
                tallies = books.tallies(transaction, graph)
                tallies.read(name for names in block for name in names)
                yield from ((tallies, names) for names in block)
                block = []


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
