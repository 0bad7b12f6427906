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
from shoal.ledger.bounds import mechanism_bound, pair_bound
from shoal.ledger.budgets import Limit
from shoal.ledger.composition import Side, Star
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
    crowd_releases: int = 0

    def __str__(self) -> str:
        lines = [
            f"{self.entries} entries: {self.releases} release(s) about {self.labels} label(s) through "
            f"{self.mechanisms} mechanism(s)",
            f"at most {round_up(self.largest_share):.4g} of any budget is spent",
        ]
        if self.crowd_releases:
            lines.append(f"{self.crowd_releases} release(s) of lasting crowds, which charge nothing")
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

    for tallies, names, whole in _groups(books, transaction):
        # Where the same was released about everyone, as in tables, all pairs are alike and need no looking for.
        alike = whole and len({id(tallies.of(name)) for name in names}) == 1
        for name in names:
            about = tallies.of(name)
            labels += about.releases > 0
            releases += about.releases
            limit = budgets.of_label(name)
            if limit is None:
                without += about.releases > 0
            elif about.releases or name in budgets.labels:
                star = Star(name, about.releases, (Side(about, about, ()),))
                judge(tallies, limit, [star] if alike else tallies.stars(limit))
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
        crowd_releases=int(transaction.value("SELECT COUNT(*) FROM entries WHERE kind = 'crowds'") or 0),
    )


def _groups(books: Books, transaction: Transaction) -> Iterator[tuple[Tallies, list[str], bool]]:
    """All labels by connected component of the first graph that holds them, with their charges, read for many at once.

    Told with them is whether they are a whole component whose labels are in no other graph.
    """
    for (digest,) in transaction.rows("SELECT DISTINCT graph FROM members ORDER BY graph"):
        graph = books.registry.graph(transaction, str(digest))
        rows = transaction.rows(
            "SELECT label FROM members WHERE graph = :graph AND NOT EXISTS (SELECT 1 FROM members AS other "
            "WHERE other.label = members.label AND other.graph < :graph)",
            graph=str(digest),
        )
        sizes = np.bincount(graph.components)
        parts: dict[int, list[str]] = {}
        for (label,) in rows:
            parts.setdefault(int(graph.components[graph.index(label)]), []).append(str(label))
        block: list[tuple[int, list[str]]] = []
        for number, part in enumerate(parts.items(), 1):
            block.append(part)
            if number == len(parts) or sum(len(names) for _, names in block) >= CHUNK:
                tallies = books.tallies(transaction)
                every = [name for _, names in block for name in names]
                tallies.place(every)
                tallies.read(every)
                for component, names in block:
                    alone = all(len(tallies.graphs(name)) == 1 for name in names)
                    yield tallies, names, alone and 1 < len(names) == sizes[component]
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
    for side in star.sides:
        upper = books.upper(tallies, side, limit)
        missing = False
        for digest, _ in side.about.joined(side.opposite).used if upper > limit.delta else ():
            known = registry.bound(transaction, digest)
            if known is None or limit.epsilon not in known.epsilons or limit.epsilon not in known.table_epsilons:
                registry.remember(mechanism_bound(registry.mechanism(transaction, digest), limit.epsilon))
                missing = True
        if missing:
            upper = pair_bound(side, limit, lambda digest: registry.bound(transaction, digest))
        found = max(found, upper)
    return found
