"""A whole ledger for people: in a few numbers, whatever its size, and act by act as a log."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlalchemy import exists, func, select

from shoal.ledger import chain
from shoal.ledger.accounts import Account, account, most_spent
from shoal.ledger.bounds import mechanism_bound, pair_bound
from shoal.ledger.budgets import Limit
from shoal.ledger.composition import PairAccount
from shoal.ledger.memory import Memory
from shoal.ledger.state import State
from shoal.ledger.storage import ENTRIES, GRAPH_LABELS, Transaction
from shoal.rounding import upper

NOTHING = "nothing was charged"


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
        int(transaction.value(select(func.count()).select_from(ENTRIES).where(chain.is_kind(kind))))
        for kind in ("mechanism", "crowds", "readings")
    )
    return Overview(
        entries=chain.head(transaction).seq,
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
    for digest, _, _ in pair.about.joined(pair.opposite).uses if most > limit.delta else ():
        known = state.bound(digest)
        if known is None or limit.epsilon not in known.delta or limit.epsilon not in known.table:
            state.memory.remember_bound(mechanism_bound(state.mechanism(digest), limit.epsilon))
            missing = True
    return pair_bound(pair, limit, state.bound) if missing else most


# ---------------------------------------------------------------------- the log


@dataclass(frozen=True)
class LogRow:
    """One act on the ledger.

    ``kind`` is ``"budget"``, ``"answers"`` (charged releases), ``"crowds"`` or ``"readings"``; ``name`` is that of the
    release and ``folder`` where it was made, as far as the record says; ``table`` is the digest of the public table,
    ``labels`` how many labels it was about and ``cost`` what was spent, in words.
    """

    time: str
    kind: str
    name: str
    folder: str
    table: str
    labels: int
    cost: str


def logged(state: State) -> list[LogRow]:
    """All rows, in order; answers of one name that were charged in one transaction are one row."""
    rows: dict[object, LogRow] = {}
    epsilon: float | None = None
    for entry, _ in chain.entries(state.transaction):
        if entry.kind not in ("budget", "release", "crowds", "readings"):
            continue
        content = entry.content
        time, name = str(content["time"]), content.get("query_id", "")
        if entry.kind == "release":
            analyst, mechanism = content.get("analyst"), content["mechanism"]
            key = (content["batch"], name, analyst, mechanism)
            if key not in rows:
                cost = (f"to {analyst}; " if analyst else "") + _cost(state, mechanism, epsilon)
                rows[key] = LogRow(time, "answers", name, "", "", 0, cost)
            rows[key] = replace(rows[key], labels=rows[key].labels + 1)  # a question is about one label
        elif entry.kind == "budget":
            names = content.get("names", ())
            epsilon = float(content["epsilon"]) if content["scope"] == "all" else epsilon
            allowed = f"δ({content['epsilon']:g}) ≤ {content['delta']:g} allowed"
            rows[entry.seq] = LogRow(time, "budget", ", ".join(names) or "every label", "", "", len(names), allowed)
        elif entry.kind == "crowds":
            homes, folder = content["facts"].get("homes", 0), str(content["facts"].get("folder", ""))
            number = homes if isinstance(homes, int) else 0
            rows[entry.seq] = LogRow(time, "crowds", name, folder, content["table"], number, NOTHING)
        else:
            cost = f"μ = {content['mu']:g} of {content['cap']:g}"
            rows[entry.seq] = LogRow(time, "readings", name, "", "", len(content["labels"]), cost)
    return list(rows.values())


def _cost(state: State, digest: str, epsilon: float | None) -> str:
    """What a table through one mechanism costs, by its bound on record; "charged" where there is none."""
    bound = state.bound(digest) if epsilon is not None else None
    if bound is None or epsilon is None:
        return "charged"
    return f"δ({epsilon:g}) ≤ {upper(bound.table_at(epsilon), 3)} charged"
