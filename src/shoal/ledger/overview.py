"""A whole ledger in a few numbers, whatever its size."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import exists, func, select

from shoal.ledger import crowds, journal, readings
from shoal.ledger.accounts import Account, account, most_spent
from shoal.ledger.bounds import mechanism_bound, pair_bound
from shoal.ledger.budgets import Limit
from shoal.ledger.composition import PairAccount
from shoal.ledger.memory import Memory
from shoal.ledger.schema import ENTRIES, GRAPH_LABELS
from shoal.ledger.state import State
from shoal.ledger.storage import Transaction
from shoal.rounding import upper


@dataclass(frozen=True)
class Overview:
    """Counts, and the largest share of a budget that may have been spent by any label.

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
    readings_releases: int = 0

    def __str__(self) -> str:
        lines = [
            f"{self.entries} entries: {self.releases} release(s) about {self.labels} label(s) through "
            f"{self.mechanisms} mechanism(s)",
            f"at most {upper(self.largest_share) if math.isfinite(self.largest_share) else '∞'} of any budget is spent",
        ]
        if self.crowd_releases:
            lines.append(f"{self.crowd_releases} release(s) of lasting crowds, which charge nothing")
        if self.readings_releases:
            lines.append(f"{self.readings_releases} release(s) under the readings' promise, on accounts of their own")
        if self.without_budget:
            lines.append(f"{self.without_budget} label(s) have no budget")
        return "\n".join([*lines, *(f"  {account}" for account in self.worst)])


def overviewed(transaction: Transaction, memory: Memory, exact: int) -> Overview:
    """Walk all labels, graph by graph; judge them by bounds, and the ``exact`` worst by composition."""
    labels = releases = without = 0
    top: list[tuple[float, str, Limit]] = []
    # The largest bound of an account that is not among the worst, which stays all that is known of it.
    rest = 0.0
    for state, names in _by_graph(transaction, memory):
        for name in names:
            number = state.charges(name).releases
            labels += number > 0
            releases += number
            limit = state.budgets.of_label(name)
            if limit is None:
                without += number > 0
            elif number or name in state.budgets.labels:
                most = max(_most_spent(state, pair, limit) for pair in state.account(limit).pairs)
                item = (_share(most, limit), limit.name, limit)
                if len(top) < exact:
                    heapq.heappush(top, item)
                else:
                    rest = max(rest, heapq.heappushpop(top, item)[0])
    state = State(transaction, memory)
    worst = [(account(state, limit), limit) for _, _, limit in top]
    worst.sort(key=lambda pair: (-_share(pair[0].spent, pair[1]), pair[1].name))
    mechanisms, of_crowds, of_readings = (
        int(transaction.value(select(func.count()).select_from(ENTRIES).where(journal.of_kind(kind))))
        for kind in ("mechanism", crowds.KIND, readings.KIND)
    )
    return Overview(
        entries=journal.head(transaction).seq,
        labels=labels,
        releases=releases,
        mechanisms=mechanisms,
        without_budget=without,
        largest_share=max([rest, *(_share(spent.spent, limit) for spent, limit in worst)]),
        worst=tuple(spent for spent, _ in worst),
        crowd_releases=of_crowds,
        readings_releases=of_readings,
    )


def _by_graph(transaction: Transaction, memory: Memory) -> Iterator[tuple[State, list[str]]]:
    """All labels by the first graph that holds them, each graph's with a state of their own."""
    other = GRAPH_LABELS.alias()
    for (digest,) in transaction.rows(select(GRAPH_LABELS.c.graph).distinct().order_by(GRAPH_LABELS.c.graph)):
        earlier = exists().where(other.c.label == GRAPH_LABELS.c.label, other.c.graph < str(digest))
        rows = transaction.rows(select(GRAPH_LABELS.c.label).where(GRAPH_LABELS.c.graph == str(digest), ~earlier))
        state, names = State(transaction, memory), [str(row[0]) for row in rows]
        state.read(names)
        yield state, names


def _share(spent: float, limit: Limit) -> float:
    """The part of a budget that is spent, rounded up; inf where something is spent of nothing."""
    if limit.delta > 0:
        return spent / limit.delta * (1 + 2.0**-50)
    return math.inf if spent > 0 else 0.0


def _most_spent(state: State, pair: PairAccount, limit: Limit) -> float:
    """The bound on a pair; bounds that were never stored, or not for this ε, are made for the occasion."""
    most, missing = most_spent(state, pair, limit), False
    for digest, _ in pair.about.joined(pair.opposite).used if most > limit.delta else ():
        known = state.bound(digest)
        if known is None or limit.epsilon not in known.epsilons or limit.epsilon not in known.table_epsilons:
            state.memory.remember_bound(mechanism_bound(state.mechanism(digest), limit.epsilon))
            missing = True
    return pair_bound(pair, limit, state.bound) if missing else most
