"""State after the entries of a ledger, one after the other: the only bookkeeping there is.

A decision starts from the ledger's index (:data:`~shoal.product.ledger.storage.INDEX`), applies the entries that it is
about to write, and asks; verification starts from nothing, applies every entry, and compares the result with the index.
Two labels that are neighbors on record stay neighbors: a mechanism whose graph does not join a label to all of these is
not used for it, under any name (docs/theory.md, section 5, "Neighbors that join").
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import bindparam, func, select

from shoal.errors import InputError, LedgerError
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.releasable import Releasable, check_releasable, from_bytes
from shoal.product.ledger import chain
from shoal.product.ledger.budgets import REGISTER, Budget, ReadingsTotal
from shoal.product.ledger.chain import Entry, Journal
from shoal.product.ledger.composition import NOTHING, Charges, Composer, LeastRecentlyUsed, PairAccount, sum_tv
from shoal.product.ledger.crowds import NOBODY
from shoal.product.ledger.storage import (
    GRAPH_LABELS,
    INDEX,
    MECHANISMS,
    READINGS,
    TOTALS,
    Transaction,
    keep_spellings,
    split_into_chunks,
)

#: The account of a label whose readings were never released.
NO_READINGS = ReadingsTotal()
MISSING = "ledger: a mechanism that was used is missing; run verify() and restore a backup"
#: Queries for what the index says about some labels, and for the graphs of some mechanisms.
_ABOUT = {table: select(*table.c).where(table.c.label.in_(bindparam("labels", expanding=True))) for table in INDEX}
_GRAPHS = select(MECHANISMS.c.digest, MECHANISMS.c.graph).where(
    MECHANISMS.c.digest.in_(bindparam("digests", expanding=True))
)


class Memory:
    """Caches of a process between transactions: mechanisms and spectra, which could be read or computed again.

    Everything here could be read or computed again: nothing rests on it.
    """

    def __init__(self, composer: Composer | None = None) -> None:
        self.composer = Composer() if composer is None else composer
        #: Mechanisms by digest.
        self.mechanisms: LeastRecentlyUsed[Releasable] = LeastRecentlyUsed(256 * 2**20)

    def trusted_copy(self, mechanism: Releasable) -> Releasable:
        """A copy of a mechanism that has the digest it states: the caller's arrays could change later."""
        digest = check_releasable(mechanism=mechanism).digest
        copy = self.mechanisms.get(digest)
        if copy is None:
            copy = from_bytes(mechanism.to_bytes(), "mechanism")
            if copy.digest != digest:
                raise InputError("mechanism: its parameters were changed after it was made; design or load it again")
            self.remember_mechanism(copy)
        return copy

    def remember_mechanism(self, mechanism: Releasable) -> None:
        """Cache a trusted mechanism, with an estimate of its size in bytes."""
        n, k = mechanism.classes.means.shape
        self.mechanisms.put(mechanism.digest, mechanism, 24 * n * k * k + mechanism.graph.edges.nbytes)


class Total(NamedTuple):
    """Uses of a mechanism: their number, the total variation in all, and in which batches first and last."""

    times: int
    tv: float
    first: int
    last: int


@dataclass
class LabelState:
    """Record about a label: graphs that hold it, uses of mechanisms by digest, its account of readings."""

    graphs: frozenset[str] = frozenset()
    totals: dict[str, Total] = field(default_factory=dict)
    readings: ReadingsTotal = NO_READINGS


class Tie(NamedTuple):
    """Neighbors of a label that are joined to it in the same graphs, by the graphs' digests."""

    names: tuple[str, ...]
    graphs: frozenset[str]


class State:
    """The state of a ledger inside one transaction.

    Args:
        transaction: where the index and the mechanisms are read.
        memory: mechanisms that were read before.
        replayed: True starts from nothing, whatever the index says, for entries that are applied from the first on.
    """

    def __init__(self, transaction: Transaction, memory: Memory, *, replayed: bool = False) -> None:
        self.transaction = transaction
        self.memory = memory
        last = None if replayed else chain.last_entry_of_kind(transaction, "budget")
        self.budget = None if last is None else Budget.from_content(last.content)
        #: The digest of the crowds that last.
        self.crowds = NOBODY
        self.labels: dict[str, LabelState] = {}
        #: The digest of the graph of each mechanism, as far as it was asked for.
        self.mechanisms: dict[str, str] = {}
        #: Mechanisms that are about to be used, on record or not.
        self.held: dict[str, Releasable] = {}
        self._replayed = replayed
        self._journal: Journal | None = None
        self._graphs: dict[str, NeighborGraph] = {}
        #: What the index does not hold yet: uses of mechanisms, labels of graphs, accounts of readings.
        self._changed: set[tuple[str, str]] = set()
        self._joined: list[tuple[str, str]] = []
        self._spent: set[str] = set()
        self._ties: dict[str, tuple[Tie, ...]] = {}
        self._charges: dict[str, Charges] = {}
        # Equal charges, and equal sets of graphs, are one object.
        self._equal: dict[Charges, Charges] = {NOTHING: NOTHING}
        self._cuts: dict[tuple[int, frozenset[str]], Charges] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    # ------------------------------------------------------------------ entries

    def apply(self, entry: Entry, content: Mapping[str, Any] | None = None) -> None:
        """Update the state with an entry; ``content`` is its parsed payload, if known."""
        content = entry.content if content is None else content
        if entry.kind == "budget":
            self.budget = Budget.from_content(content)
        elif entry.kind == "mechanism":
            self.join_graph(content["mechanism"], content["graph"])
        elif entry.kind == "release":
            label, mechanism, batch = content["label"], content["mechanism"], int(content["batch"])
            totals, total = self.label_state(label).totals, Total(1, float(content["tv"]), batch, batch)
            if mechanism in totals:
                before = totals[mechanism]
                total = Total(before.times + 1, sum_tv(before.tv, total.tv), before.first, batch)
            totals[mechanism] = total
            self._changed.add((label, mechanism))
            self._charges.pop(label, None)
        elif entry.kind == "crowds":
            self.crowds = content["crowds"]
        elif entry.kind == "readings":
            labels = (REGISTER, *content["labels"])
            self.read_labels(labels)
            for label in labels:
                self.labels[label].readings = self.labels[label].readings.add_release(content)
                self._spent.add(label)

    def append(self, kind: str, content: dict[str, Any]) -> Entry:
        """Append an entry to the chain and apply it; :meth:`write` stores it."""
        if self._journal is None:
            self._journal = Journal(self.transaction)
        entry, stamped = self._journal.append(kind, content)
        self.apply(entry, stamped)
        return entry

    def join_graph(self, mechanism: str, graph: str) -> None:
        """Register a mechanism with its graph's digest, and join the graph's labels as neighbors."""
        self.mechanisms[mechanism] = graph
        self._graphs[graph] = self.mechanism(mechanism).graph
        names = self._graphs[graph].labels
        if graph in self.label_state(names[0]).graphs:
            return
        self.read_labels(names)
        for label in names:
            state = self.labels[label]
            graphs = state.graphs | {graph}
            state.graphs = self._sets.setdefault(graphs, graphs)
            self._joined.append((label, graph))
            self._ties.pop(label, None)

    # ------------------------------------------------------------------ the index

    def read_labels(self, labels: Iterable[str]) -> None:
        """Load the recorded state of labels from the index, unless already loaded."""
        wanted = [label for label in dict.fromkeys(labels) if label not in self.labels]
        self.labels |= {label: LabelState() for label in wanted}
        rows = self.transaction.rows
        for part in split_into_chunks(() if self._replayed else wanted):
            graphs: dict[str, list[str]] = {}
            for label, graph in rows(_ABOUT[GRAPH_LABELS], labels=part):
                graphs.setdefault(str(label), []).append(str(graph))
            for label, held in graphs.items():
                together = frozenset(held)
                self.labels[label].graphs = self._sets.setdefault(together, together)
            for label, mechanism, times, tv, first, last in rows(_ABOUT[TOTALS], labels=part):
                self.labels[label].totals[str(mechanism)] = Total(int(times), float(tv), int(first), int(last))
            for label, spent, cap, period in rows(_ABOUT[READINGS], labels=part):
                self.labels[label].readings = ReadingsTotal(Fraction(spent), float(cap), str(period))

    def write(self) -> None:
        """Store appended entries, and update the index with what they changed."""
        if self._journal is not None:
            self._journal.write()
        self.transaction.insert(GRAPH_LABELS, *({"label": label, "graph": graph} for label, graph in self._joined))
        rows: list[dict[str, Any]] = [
            {"label": label, "mechanism": digest, **self.labels[label].totals[digest]._asdict()}
            for label, digest in sorted(self._changed)
        ]
        self.transaction.upsert(TOTALS, rows)
        accounts = [(label, self.labels[label].readings) for label in sorted(self._spent)]
        rows = [{"label": label, **a._asdict(), "spent": str(a.spent), "cap": repr(a.cap)} for label, a in accounts]
        self.transaction.upsert(READINGS, rows)
        keep_spellings(self.transaction, [*(label for label, _ in self._joined), *sorted(self._spent)])
        for stored in (self._joined, self._changed, self._spent):
            stored.clear()

    def label_state(self, label: str) -> LabelState:
        """The recorded state of a label, loaded if necessary."""
        if label not in self.labels:
            self.read_labels([label])
        return self.labels[label]

    def charges(self, label: str) -> Charges:
        """Charges of the releases about a label itself; equal charges are one object."""
        charges = self._charges.get(label)
        if charges is None:
            totals = self.label_state(label).totals
            charges = NOTHING
            if totals:
                batches = {min(total.first for total in totals.values()), max(total.last for total in totals.values())}
                uses = tuple((digest, total.times, total.tv) for digest, total in sorted(totals.items()))
                charges = Charges(uses, frozenset(batches))
            charges = self._charges[label] = self._equal.setdefault(charges, charges)
        return charges

    def released_labels(self) -> list[str]:
        """Labels that at least one answer was released about."""
        if self._replayed:
            return [label for label, state in self.labels.items() if state.totals]
        query = select(TOTALS.c.label).distinct().order_by(TOTALS.c.label)
        return [str(row[0]) for row in self.transaction.rows(query)]

    # ------------------------------------------------------------------ mechanisms

    def mechanism(self, digest: str) -> Releasable:
        """The mechanism with a digest, from memory or the database; LedgerError if it is missing or damaged."""
        mechanism = self.held.get(digest) or self.memory.mechanisms.get(digest)
        if mechanism is None:
            content = self.transaction.value(select(MECHANISMS.c.content).where(MECHANISMS.c.digest == digest))
            if content is None:
                raise LedgerError(MISSING, reason="damaged")
            mechanism = restore_mechanism(bytes(content), digest)
            self.memory.remember_mechanism(mechanism)
        return mechanism

    def digest_of_graph(self, digest: str) -> str | None:
        """The digest of a mechanism's graph; None if the mechanism is not on record."""
        if digest not in self.mechanisms:
            name = self.transaction.value(select(MECHANISMS.c.graph).where(MECHANISMS.c.digest == digest))
            if name is None:
                return None
            self.mechanisms[digest] = str(name)
        return self.mechanisms[digest]

    def graph(self, name: str) -> NeighborGraph:
        """The neighbor graph with a digest, from a mechanism that was registered or recorded with it."""
        if name not in self._graphs:
            digest = self.transaction.value(select(func.min(MECHANISMS.c.digest)).where(MECHANISMS.c.graph == name))
            if digest is None:
                raise LedgerError(MISSING, reason="damaged")
            self._graphs[name] = self.mechanism(str(digest)).graph
        return self._graphs[name]

    def record_mechanism(self, mechanism: Releasable, graph: str) -> None:
        """Store a mechanism's file, and append the entry that records it with its graph's digest."""
        digest = mechanism.digest
        content = mechanism.to_bytes()
        self.transaction.insert(MECHANISMS, {"digest": digest, "graph": graph, "content": content})
        seal = hashlib.sha256(content).hexdigest()
        self.append("mechanism", {"mechanism": digest, "graph": graph, "content": seal})

    # ------------------------------------------------------------------ neighbors and accounts

    def ties(self, label: str) -> tuple[Tie, ...]:
        """The label's neighbors, grouped by the graphs that join them to it."""
        ties = self._ties.get(label)
        if ties is None:
            graphs = self.label_state(label).graphs
            around = {digest: self.graph(digest).neighbors(label) for digest in sorted(graphs)}
            if len(graphs) == 1:
                alike = {graphs: around.popitem()[1]}
            else:
                joined: dict[str, frozenset[str]] = {}
                for digest, names in around.items():
                    joined |= {name: joined.get(name, frozenset()) | {digest} for name in names}
                alike = {where: tuple(name for name in joined if joined[name] == where) for where in joined.values()}
            ties = self._ties[label] = tuple(Tie(names, where) for where, names in alike.items() if names)
        return ties

    def neighbors(self, label: str) -> tuple[str, ...]:
        """Names of all neighbors that a label has on record."""
        ties = self.ties(label)
        return ties[0].names if len(ties) == 1 else tuple(name for tie in ties for name in tie.names)

    def count_lacking_neighbors(self, graph: NeighborGraph, name: str, labels: Iterable[str]) -> int:
        """Number of labels that have a neighbor on record to which this graph does not join them."""
        return sum(
            not {*self.neighbors(label)} <= {*graph.neighbors(label)}
            for label in labels
            if not self.label_state(label).graphs <= {name}
        )

    def pairs(self, label: str) -> tuple[PairAccount, ...]:
        """Accounts of the label's pairs, which its budget is held against; one without names if it has no neighbors."""
        about, ties = self.charges(label), self.ties(label)
        self.read_labels(name for tie in ties for name in tie.names)
        pairs: dict[tuple[int, int], tuple[Charges, Charges, list[str]]] = {}
        for number, tie in enumerate(ties):
            own = self._charges_through(label, about, tie.graphs)
            for name in tie.names:
                opposite = self._charges_through(name, self.charges(name), tie.graphs)
                pairs.setdefault((number, id(opposite)), (own, opposite, []))[2].append(name)
        if about.uses and not ties:
            raise LedgerError(
                "ledger: the index lacks the neighbors of a label; run verify(), and rebuild() where only the index is "
                "wrong",
                reason="damaged",
            )
        accounts = (PairAccount(own, other, tuple(names), key[0]) for key, (own, other, names) in pairs.items())
        return tuple(accounts) or (PairAccount(about, NOTHING, ()),)

    def _charges_through(self, label: str, charges: Charges, graphs: frozenset[str]) -> Charges:
        """The part of a label's charges made through mechanisms with some graphs; equal parts are one object."""
        if self.labels[label].graphs <= graphs:  # a mechanism is used about labels of its graph
            return charges
        key = (id(charges), graphs)  # charges live as long as the state
        cut = self._cuts.get(key)
        if cut is None:
            unknown = (digest for digest, _, _ in charges.uses if digest not in self.mechanisms)
            for part in split_into_chunks(unknown):
                rows = self.transaction.rows(_GRAPHS, digests=part)
                self.mechanisms |= {str(digest): str(graph) for digest, graph in rows}
            cut = charges.keep_mechanisms(lambda digest: self.digest_of_graph(digest) in graphs)
            cut = self._cuts[key] = self._equal.setdefault(cut, cut)
        return cut


def graph_digest(graph: NeighborGraph) -> str:
    """SHA-256 over the labels and the edges, whatever order they were given in."""
    total = hashlib.sha256()
    order = sorted(range(graph.n_labels), key=lambda i: graph.labels[i])
    for i in order:
        name = graph.labels[i].encode("utf-8", "surrogatepass")
        total.update(f"{len(name)}:".encode() + name)
    edges = np.sort(np.argsort(order)[graph.edges], axis=1)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    total.update(b"edges")
    total.update(",".join(f"{i}-{j}" for i, j in edges.tolist()).encode())
    return total.hexdigest()


def restore_mechanism(content: bytes, digest: str) -> Releasable:
    """A mechanism from its stored file; LedgerError unless its digest is the expected one."""
    try:
        mechanism = from_bytes(content, "mechanism")
    except InputError:
        raise LedgerError("ledger: a recorded mechanism is damaged; run verify() and restore a backup") from None
    if mechanism.digest != digest:
        raise LedgerError("ledger: a recorded mechanism is not the one its digest names; restore a backup")
    return mechanism
