"""What the entries of a ledger say, one after the other: the only bookkeeping there is.

:meth:`State.apply` takes an entry into account. Deciding, telling what was spent and verifying all ask a
:class:`State`. A decision starts from the ledger's index, tables that hold the state of every label
(:data:`~shoal.ledger.storage.INDEX`), applies the entries that it is about to write, and asks; verification starts from
nothing and applies every entry. The index is what applying all entries gives: verification compares the two, and
:meth:`Ledger.rebuild` writes it anew.

**Which releases count for which pair.** A release counts for a pair if its mechanism has the edge between the two:
there the two worlds that are compared, the labels as they are and the labels exchanged, differ. In a release that came
before they became neighbors both worlds are the same, and nothing is added (docs/theory.md, section 5). Two labels that
are neighbors on record stay neighbors: a mechanism whose graph does not join a label to all its neighbors on record is
not used for it, under any name. So labels may join with edges to any others, and two that were not neighbors may become
neighbors; nobody leaves. Otherwise two neighbors answered through two mechanisms would be told apart at no charge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import bindparam, func, select

from shoal.errors import InputError, LedgerError
from shoal.laws.graph import NeighborGraph
from shoal.ledger import chain
from shoal.ledger.bounds import POINTS, MechanismBound
from shoal.ledger.budgets import Budgets, Limit, ReadingsTotal
from shoal.ledger.chain import Entry, Journal
from shoal.ledger.composition import NOTHING, Charges, LabelAccount, PairAccount, Span, sum_tv
from shoal.ledger.crowds import NOBODY
from shoal.ledger.memory import Memory, restored
from shoal.ledger.storage import (
    BOUNDS,
    GRAPH_LABELS,
    INDEX,
    MECHANISMS,
    READINGS_ACCOUNTS,
    TOTALS,
    Transaction,
    chunks,
)
from shoal.mechanism.releasable import Releasable

DAMAGED = "ledger: the index lacks the neighbors of a label; run verify(), and rebuild() where only the index is wrong"

#: The account of a label whose readings were never released.
NO_READINGS = ReadingsTotal()
MISSING = "ledger: a mechanism that was used is missing; run verify() and restore a backup"
#: Queries for what the index says about some labels, and for the graphs of some mechanisms.
_ABOUT = {table: select(*table.c).where(table.c.label.in_(bindparam("labels", expanding=True))) for table in INDEX}
_GRAPHS = select(MECHANISMS.c.digest, MECHANISMS.c.graph).where(
    MECHANISMS.c.digest.in_(bindparam("digests", expanding=True))
)


class Use(NamedTuple):
    """Whom (empty: anyone) uses of a mechanism count for; ``shown``: an answer on record shown to someone new."""

    analyst: str
    mechanism: str
    shown: bool


class Total(NamedTuple):
    """How often, with which total variation in all, and in which batches first and last."""

    times: int
    tv: float
    first: int
    last: int


@dataclass
class LabelState:
    """What is on record about a label: graphs that hold it, what was released about it, and its account of readings."""

    graphs: frozenset[str] = frozenset()
    totals: dict[Use, Total] = field(default_factory=dict)
    readings: ReadingsTotal = NO_READINGS

    def charges(self, analyst: str | None) -> Charges:
        """What counts about the label; for an analyst, what that analyst was shown."""
        counted = [
            (use.mechanism, total)
            for use, total in self.totals.items()
            if (use.analyst in ("", analyst) if analyst is not None else not use.shown)
        ]
        if not counted:
            return NOTHING
        span = Span(min(total.first for _, total in counted), max(total.last for _, total in counted))
        return Charges.of(((mechanism, total.times, total.tv) for mechanism, total in counted), span)


class Tie(NamedTuple):
    """Neighbors of a label that are joined to it in the same graphs, by the graphs' digests."""

    names: tuple[str, ...]
    graphs: frozenset[str]


class State:
    """The state of a ledger inside one transaction.

    Args:
        transaction: where the index and the mechanisms are read.
        memory: mechanisms, graphs, bounds and budgets that were read before.
        replayed: True starts from nothing, whatever the index says, for entries that are applied from the first on.
    """

    def __init__(self, transaction: Transaction, memory: Memory, *, replayed: bool = False) -> None:
        self.transaction = transaction
        self.memory = memory
        self.budgets = Budgets() if replayed else self._budgets()
        #: The digest of the crowds that last.
        self.crowds = NOBODY
        self.labels: dict[str, LabelState] = {}
        #: The digest of the graph of each mechanism, as far as it was asked for.
        self.mechanisms: dict[str, str] = {}
        #: What pairs have spent of limits at most, by their charges.
        self.uppers: dict[object, float] = {}
        self._replayed = replayed
        self._held: dict[str, Releasable] = {}
        #: What the index does not hold yet: uses of mechanisms, labels of graphs, accounts of readings.
        self._changed: set[tuple[str, Use]] = set()
        self._joined: list[tuple[str, str]] = []
        self._spent: set[str] = set()
        self._graphs: set[str] = set()
        #: Mechanisms without a stored bound.
        self._unbounded: set[str] = set()
        self._ties: dict[str, tuple[Tie, ...]] = {}
        self._charges: dict[str, dict[str | None, Charges]] = {}
        self._equal: dict[Charges, Charges] = {NOTHING: NOTHING}
        self._cuts: dict[tuple[int, frozenset[str]], Charges] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    # ------------------------------------------------------------------ entries

    def apply(self, entry: Entry, content: Mapping[str, Any] | None = None) -> None:
        """Take an entry into account; ``content`` is its content, where that is known already."""
        content = entry.content if content is None else content
        if entry.kind == "budget":
            self.budgets = self.budgets.after(content)
        elif entry.kind == "mechanism":
            self.join(content["mechanism"], content["graph"])
        elif entry.kind in chain.CHOSEN:
            use = Use(content.get("analyst", ""), content["mechanism"], entry.kind == "shown")
            self._charge(content["label"], use, float(content.get("tv", 0.0)), int(content["batch"]))
        elif entry.kind == "crowds":
            self.crowds = content["crowds"]
        elif entry.kind == "readings":
            self.read(content["labels"])
            for label in content["labels"]:
                self.labels[label].readings = self.labels[label].readings.after(content)
                self._spent.add(label)

    def append(self, kind: str, content: dict[str, Any]) -> Entry:
        """The next entry of the chain, taken into account; :meth:`write` stores it."""
        entry, stamped = self._journal.append(kind, content)
        self.apply(entry, stamped)
        return entry

    @cached_property
    def _journal(self) -> Journal:
        return Journal(self.transaction)

    def _budgets(self) -> Budgets:
        """The budgets in force, by the entries that set them."""
        last = chain.last_of_kind(self.transaction, "budget")
        if last is not None and last.hash != self.memory.budgets[0]:  # a hash stands for everything up to its entry
            budgets = Budgets()
            for entry in chain.of_kind(self.transaction, "budget"):
                budgets = budgets.after(entry.content)
            self.memory.budgets = (last.hash, budgets)
        return Budgets() if last is None else self.memory.budgets[1]

    def hold(self, mechanism: Releasable) -> None:
        """Have a mechanism at hand that is about to be used, on record or not."""
        self._held[mechanism.digest] = mechanism

    def join(self, mechanism: str, graph: str) -> None:
        """Take a mechanism into account, and its graph where that is new."""
        self.mechanisms[mechanism] = graph
        if graph in self._graphs or (not self._replayed and self._is_recorded(graph)):
            return
        self._graphs.add(graph)
        names = self.mechanism(mechanism).graph.labels
        self.read(names)
        for label in names:
            state = self.labels[label]
            graphs = state.graphs | {graph}
            state.graphs = self._sets.setdefault(graphs, graphs)
            self._joined.append((label, graph))
            self._ties.pop(label, None)

    def _is_recorded(self, graph: str) -> bool:
        query = select(GRAPH_LABELS.c.label).where(GRAPH_LABELS.c.graph == graph).limit(1)
        return self.transaction.one(query) is not None

    def _charge(self, label: str, use: Use, tv: float, batch: int) -> None:
        totals = self.of(label).totals
        before = totals.get(use)
        if before is None:
            totals[use] = Total(1, tv, batch, batch)
        else:
            totals[use] = Total(before.times + 1, sum_tv(before.tv, tv), before.first, batch)
        self._changed.add((label, use))
        self._charges.pop(label, None)

    # ------------------------------------------------------------------ the index

    def read(self, labels: Iterable[str]) -> None:
        """Fetch what the index says about labels."""
        wanted = [label for label in dict.fromkeys(labels) if label not in self.labels]
        self.labels |= {label: LabelState() for label in wanted}
        if self._replayed:
            return
        rows = self.transaction.rows
        for part in chunks(wanted):
            graphs: dict[str, list[str]] = {}
            for label, graph in rows(_ABOUT[GRAPH_LABELS], labels=part):
                graphs.setdefault(str(label), []).append(str(graph))
            for label, held in graphs.items():
                together = frozenset(held)
                self.labels[label].graphs = self._sets.setdefault(together, together)
            for label, analyst, mechanism, shown, times, tv, first, last in rows(_ABOUT[TOTALS], labels=part):
                total = Total(int(times), float(tv), int(first), int(last))
                self.labels[label].totals[Use(analyst, mechanism, bool(shown))] = total
            for label, spent, cap, period in rows(_ABOUT[READINGS_ACCOUNTS], labels=part):
                self.labels[label].readings = ReadingsTotal(Fraction(spent), float(cap), str(period))

    def write(self) -> None:
        """Store the entries that were appended, and bring the index up to what was applied since it was read."""
        if not self._replayed:
            self._journal.write()
        self.transaction.insert(GRAPH_LABELS, *({"label": label, "graph": graph} for label, graph in self._joined))
        rows = []
        for label, use in sorted(self._changed):
            total = self.labels[label].totals[use]
            rows.append({"label": label, **use._asdict(), **total._asdict()})
        self.transaction.upsert(TOTALS, rows)
        accounts = [(label, self.labels[label].readings) for label in sorted(self._spent)]
        self.transaction.upsert(
            READINGS_ACCOUNTS,
            [{"label": label, **a._asdict(), "spent": str(a.spent), "cap": repr(a.cap)} for label, a in accounts],
        )
        self._changed.clear()
        self._joined.clear()
        self._spent.clear()

    # ------------------------------------------------------------------ what is asked

    def of(self, label: str) -> LabelState:
        """What is on record about a label."""
        if label not in self.labels:
            self.read([label])
        return self.labels[label]

    def charges(self, label: str, analyst: str | None = None) -> Charges:
        """What counts about a label; for an analyst, what that analyst was shown. Equal charges are one object."""
        known = self._charges.setdefault(label, {})
        charges = known.get(analyst)
        if charges is None:
            charges = self.of(label).charges(analyst)
            charges = known[analyst] = self._equal.setdefault(charges, charges)
        return charges

    # ------------------------------------------------------------------ mechanisms

    def has(self, digest: str) -> bool:
        """Whether a mechanism is on record."""
        return self.transaction.one(select(MECHANISMS.c.digest).where(MECHANISMS.c.digest == digest)) is not None

    def mechanism(self, digest: str) -> Releasable:
        """A mechanism that is held, or on record; its digest is derived anew when it is read."""
        held = self._held.get(digest)
        mechanism = self.memory.mechanisms.get(digest) if held is None else held
        if mechanism is None:
            content = self.transaction.value(select(MECHANISMS.c.content).where(MECHANISMS.c.digest == digest))
            if content is None:
                raise LedgerError(MISSING, reason="damaged")
            mechanism = restored(bytes(content), digest)
            self.memory.remember_mechanism(mechanism)
        return mechanism

    def graph_name(self, digest: str) -> str:
        """The digest of the graph of a mechanism."""
        if digest not in self.mechanisms:
            name = self.transaction.value(select(MECHANISMS.c.graph).where(MECHANISMS.c.digest == digest))
            if name is None:
                raise LedgerError(MISSING, reason="damaged")
            self.mechanisms[digest] = str(name)
        return self.mechanisms[digest]

    def graph(self, name: str) -> NeighborGraph:
        """A graph by its digest, from a mechanism that is held or was recorded with it."""
        held = next((m for digest, m in self._held.items() if self.mechanisms.get(digest) == name), None)
        graph = self.memory.graphs.get(name) if held is None else held.graph
        if graph is None:
            digest = self.transaction.value(select(func.min(MECHANISMS.c.digest)).where(MECHANISMS.c.graph == name))
            if digest is None:
                raise LedgerError(MISSING, reason="damaged")
            graph = self.mechanism(str(digest)).graph
            self.memory.remember_graph(name, graph)
        return graph

    def bound(self, digest: str) -> MechanismBound | None:
        """What a mechanism costs at most at a few points, where that is known."""
        bound = self.memory.bounds.get(digest)
        if bound is None and digest not in self._unbounded:
            bound = self.stored_bound(digest)
            if bound is None:
                self._unbounded.add(digest)
            else:
                self.memory.remember_bound(bound)
        return bound

    def stored_bound(self, digest: str) -> MechanismBound | None:
        """The bound of a mechanism as the database has it; one that makes no sense is refused."""
        points: dict[str, dict[float, float]] = {kind: {} for kind in POINTS}
        query = select(BOUNDS.c.kind, BOUNDS.c.point, BOUNDS.c.value).where(BOUNDS.c.mechanism == digest)
        rows = self.transaction.rows(query)
        try:
            for kind, point, value in rows:
                points[kind][float(point)] = float(value)
            return MechanismBound(digest, **points) if rows else None
        except (KeyError, TypeError, InputError):
            raise LedgerError(
                "ledger: the stored bound of a mechanism makes no sense; run verify() and delete it from the table "
                "bounds"
            ) from None

    def store_bound(self, bound: MechanismBound) -> None:
        """Store the points of a bound that are not stored yet; the mechanism must be on record."""
        self.bound(bound.digest)  # what is stored stands
        self.memory.remember_bound(bound)
        rows = (
            {"mechanism": bound.digest, "kind": kind, "point": point, "value": value}
            for kind in POINTS
            for point, value in getattr(bound, kind).items()
        )
        self.transaction.insert(BOUNDS, *rows, otherwise="ON CONFLICT DO NOTHING")

    def record(self, mechanism: Releasable, graph: str) -> None:
        """Store a mechanism's file, and append the entry that records it with the digest of its graph."""
        digest = mechanism.digest
        content = self.memory.files.get(digest) or mechanism.to_bytes()
        self.transaction.insert(MECHANISMS, {"digest": digest, "graph": graph, "content": content})
        seal = hashlib.sha256(content).hexdigest()
        self.append("mechanism", {"mechanism": digest, "graph": graph, "content": seal})

    # ------------------------------------------------------------------ neighbors and accounts

    def ties(self, label: str) -> tuple[Tie, ...]:
        """The label's neighbors by the graphs that join them."""
        ties = self._ties.get(label)
        if ties is None:
            ties = self._ties[label] = _ties(label, {name: self.graph(name) for name in sorted(self.of(label).graphs)})
        return ties

    def neighbors(self, label: str) -> tuple[str, ...]:
        """The label's neighbors on record."""
        ties = self.ties(label)
        return ties[0].names if len(ties) == 1 else tuple(name for tie in ties for name in tie.names)

    def lacking(self, graph: NeighborGraph, name: str, labels: Iterable[str]) -> int:
        """How many labels have neighbors on record that the graph of this name does not join them to."""
        return sum(
            not {*self.neighbors(label)} <= {*graph.neighbors(label)}
            for label in labels
            if not self.of(label).graphs <= {name}
        )

    def account(self, limit: Limit) -> LabelAccount:
        """The pairs that a limit is held against."""
        label, analyst = limit.label, limit.analyst
        about = self.charges(label, analyst)
        ties = self.ties(label)
        missing = [name for tie in ties for name in tie.names if name not in self.labels]
        if missing:
            self.read(missing)
        pairs: dict[tuple[int, int], tuple[Charges, Charges, list[str]]] = {}
        for number, tie in enumerate(ties):
            own = self._cut(label, about, tie.graphs)
            for name in tie.names:
                if limit.against is None or name in limit.against:
                    opposite = self._cut(name, self.charges(name, analyst), tie.graphs)
                    pairs.setdefault((number, id(opposite)), (own, opposite, []))[2].append(name)
        if about.uses and not ties:
            raise LedgerError(DAMAGED, reason="damaged")
        accounts = (PairAccount(own, other, tuple(names), key[0]) for key, (own, other, names) in pairs.items())
        return LabelAccount(label, about.releases, tuple(accounts) or (PairAccount(about, NOTHING, ()),))

    def released(self, labels: Sequence[str] | None = None, analyst: str | None = None) -> list[str]:
        """The labels, of these or of all, that something was released about; for an analyst, that they were shown."""
        if self._replayed:
            among: Iterable[str] = self.labels if labels is None else labels
            return [label for label in among if self.charges(label, analyst).releases]
        query = select(TOTALS.c.label).distinct().order_by(TOTALS.c.label)
        query = query.where(TOTALS.c.shown.is_(False) if analyst is None else TOTALS.c.analyst.in_(["", analyst]))
        if labels is None:
            return [str(row[0]) for row in self.transaction.rows(query)]
        parts = (self.transaction.rows(query.where(TOTALS.c.label.in_(part))) for part in chunks(labels))
        return [str(row[0]) for rows in parts for row in rows]

    def _cut(self, label: str, charges: Charges, graphs: frozenset[str]) -> Charges:
        """The part of a label's charges that was made through mechanisms of some graphs; equal ones are one object."""
        if self.labels[label].graphs <= graphs:  # a mechanism is used about labels of its graph
            return charges
        key = (id(charges), graphs)  # charges live as long as the state
        cut = self._cuts.get(key)
        if cut is None:
            unknown = (digest for digest, _, _ in charges.uses if digest not in self.mechanisms)
            for part in chunks(unknown):
                rows = self.transaction.rows(_GRAPHS, digests=part)
                self.mechanisms |= {str(digest): str(graph) for digest, graph in rows}
            cut = charges.through(lambda digest: self.graph_name(digest) in graphs)
            cut = self._cuts[key] = self._equal.setdefault(cut, cut)
        return cut


def _ties(label: str, graphs: Mapping[str, NeighborGraph]) -> tuple[Tie, ...]:
    """The neighbors of a label in graphs that hold it, those joined to it in the same graphs together."""
    if len(graphs) == 1:
        ((digest, graph),) = graphs.items()
        names = graph.neighbors(label)
        return (Tie(names, frozenset((digest,))),) if names else ()
    joined: dict[str, list[str]] = {}
    for digest, graph in graphs.items():
        for name in graph.neighbors(label):
            joined.setdefault(name, []).append(digest)
    alike: dict[frozenset[str], list[str]] = {}
    for name, where in joined.items():
        alike.setdefault(frozenset(where), []).append(name)
    return tuple(Tie(tuple(names), where) for where, names in alike.items())
