"""A whole ledger in a few numbers, whatever its size."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sqlalchemy import exists, func, select

from shoal.accounting.curve import round_up
from shoal.ledger import crowds, journal, readings
from shoal.ledger.accounts import Account, Accountant
from shoal.ledger.bounds import mechanism_bound, pair_bound
from shoal.ledger.budgets import Limit
from shoal.ledger.composition import PairAccount
from shoal.ledger.schema import ENTRIES, GRAPH_LABELS
from shoal.ledger.state import State
from shoal.ledger.storage import CHUNK, Transaction


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
            f"at most {round_up(self.largest_share):.4g} of any budget is spent",
        ]
        if self.crowd_releases:
            lines.append(f"{self.crowd_releases} release(s) of lasting crowds, which charge nothing")
        if self.readings_releases:
            lines.append(f"{self.readings_releases} release(s) under the readings' promise, on accounts of their own")
        if self.without_budget:
            lines.append(f"{self.without_budget} label(s) have no budget")
        return "\n".join([*lines, *(f"  {account}" for account in self.worst)])


def overviewed(accountant: Accountant, transaction: Transaction, exact: int) -> Overview:
    """Walk all labels, graph by graph; judge them by bounds, and the ``exact`` worst by composition."""
    budgets = accountant.state(transaction).budgets
    labels = releases = without = 0
    top: list[tuple[float, str, Limit]] = []
    # The largest bound of an account that is not among the worst, which stays all that is known of it.
    rest = 0.0
    for state, names, whole in _crowds(accountant, transaction):
        # Where the same was released about everyone, as in tables, all pairs are alike and need no looking for.
        alike = whole and len({id(state.charges(name)) for name in names}) == 1
        for name in names:
            about = state.charges(name)
            labels += about.releases > 0
            releases += about.releases
            limit = budgets.of_label(name)
            if limit is None:
                without += about.releases > 0
            elif about.releases or name in budgets.labels:
                pairs = (PairAccount(about, about, ()),) if alike else state.account(limit).pairs
                upper = max(_upper(accountant, state, pair, limit) for pair in pairs)
                item = (_share(upper, limit), limit.name, limit)
                if len(top) < exact:
                    heapq.heappush(top, item)
                else:
                    rest = max(rest, heapq.heappushpop(top, item)[0])
    state = accountant.state(transaction)
    worst = [(accountant.account(state, limit), limit) for _, _, limit in top]
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
        largest_share=max([rest, *(_share(account.spent, limit) for account, limit in worst)]),
        worst=tuple(account for account, _ in worst),
        crowd_releases=of_crowds,
        readings_releases=of_readings,
    )


def _crowds(accountant: Accountant, transaction: Transaction) -> Iterator[tuple[State, list[str], bool]]:
    """All labels by connected component of the first graph that holds them, read for many at once.

    Told with them is whether they are a whole component whose labels are in no other graph.
    """
    other = GRAPH_LABELS.alias()
    for (digest,) in transaction.rows(select(GRAPH_LABELS.c.graph).distinct().order_by(GRAPH_LABELS.c.graph)):
        graph = accountant.registry.graph(transaction, str(digest))
        earlier = exists().where(other.c.label == GRAPH_LABELS.c.label, other.c.graph < str(digest))
        rows = transaction.rows(select(GRAPH_LABELS.c.label).where(GRAPH_LABELS.c.graph == str(digest), ~earlier))
        sizes = np.bincount(graph.components)
        parts: dict[int, list[str]] = {}
        for (label,) in rows:
            parts.setdefault(int(graph.components[graph.index(label)]), []).append(str(label))
        block: list[tuple[int, list[str]]] = []
        for number, part in enumerate(parts.items(), 1):
            block.append(part)
            if number == len(parts) or sum(len(names) for _, names in block) >= CHUNK:
                state = accountant.state(transaction)
                state.read(name for _, names in block for name in names)
                for component, names in block:
                    alone = all(len(state.of(name).graphs) == 1 for name in names)
                    yield state, names, alone and 1 < len(names) == sizes[component]
                block = []


def _share(spent: float, limit: Limit) -> float:
    """The part of a budget that is spent, rounded up; inf where something is spent of nothing."""
    if limit.delta > 0:
        return spent / limit.delta * (1 + 2.0**-50)
    return float("inf") if spent > 0 else 0.0


def _upper(accountant: Accountant, state: State, pair: PairAccount, limit: Limit) -> float:
    """The bound on a pair; bounds that were never stored, or not for this ε, are made for the occasion."""
    registry, upper, missing = accountant.registry, accountant.upper(state, pair, limit), False
    for digest, _ in pair.about.joined(pair.opposite).used if upper > limit.delta else ():
        known = state.bound(digest)
        if known is None or limit.epsilon not in known.epsilons or limit.epsilon not in known.table_epsilons:
            registry.remember(mechanism_bound(state.mechanism(digest), limit.epsilon))
            missing = True
    return pair_bound(pair, limit, state.bound) if missing else upper
