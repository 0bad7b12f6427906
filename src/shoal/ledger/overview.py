"""A whole ledger in a few numbers, whatever its size."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from shoal.accounting.curve import round_up
from shoal.ledger import accounts, journal
from shoal.ledger.accounts import Account
from shoal.ledger.books import Books
from shoal.ledger.bounds import bounded, mechanism_bound
from shoal.ledger.budgets import Budgets, Limit
from shoal.ledger.composition import Charges
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
    """Walk all labels a block at a time; judge them by bounds, and the ``exact`` worst by composition."""
    budgets = books.in_force(transaction)
    labels = releases = without = 0
    top: list[tuple[float, str, Limit, Charges]] = []
    # The largest bound of an account that is not among the worst, which stays all that is known of it.
    rest = 0.0
    for limit, charges, name in _accounts(transaction, budgets):
        if name is not None:
            labels += 1
            releases += charges.releases
        if limit is None:
            without += 1
            continue
        item = (_share(_upper(books, transaction, charges, limit), limit), limit.name, limit, charges)
        if len(top) < exact:
            heapq.heappush(top, item)
        else:
            rest = max(rest, heapq.heappushpop(top, item)[0])
    lookup = books.lookup(transaction)
    worst = []
    for _, _, limit, charges in top:
        worst.append((accounts.account(books.composer, charges, limit, lookup), limit))
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


def _accounts(transaction: Transaction, budgets: Budgets) -> Iterator[tuple[Limit | None, Charges, str | None]]:
    """(limit, charges, label) of every label that something was released about, then of every group."""
    last: str | None = None
    while True:
        after = "" if last is None else "WHERE label > :last"
        rows = transaction.rows(
            f"SELECT label FROM labels {after} ORDER BY label LIMIT {CHUNK}", **({} if last is None else {"last": last})
        )
        names = [str(row[0]) for row in rows]
        tallies = Tallies(transaction)
        tallies.read(names)
        for name in names:
            charges = tallies.charges(Limit(name, 0.0, 0.0, (name,), (name,)))
            if charges.releases:
                yield budgets.of_label(name), charges, name
        if len(names) < CHUNK:
            break
        last = names[-1]
    for limit in budgets.of_groups():
        yield limit, Tallies(transaction).charges(limit), None


def _share(spent: float, limit: Limit) -> float:
    """The part of a budget that is spent, rounded up; inf where something is spent of nothing."""
    if limit.delta > 0:
        return spent / limit.delta * (1 + 2.0**-50)
    return float("inf") if spent > 0 else 0.0


def _upper(books: Books, transaction: Transaction, charges: Charges, limit: Limit) -> float:
    """The bound on an account; bounds that were never stored, or not for this ε, are made for the occasion."""
    found = books.upper(transaction, charges, limit)
    if found <= limit.delta:
        return found
    missing = False
    for digest, _ in charges.used:
        known = books.registry.bound(transaction, digest)
        if known is None or limit.epsilon not in known.epsilons:
            books.registry.remember(mechanism_bound(books.registry.mechanism(transaction, digest), limit.epsilon))
            missing = True
    if not missing:
        return found
    return bounded(charges, limit.epsilon, lambda digest: books.registry.bound(transaction, digest))
