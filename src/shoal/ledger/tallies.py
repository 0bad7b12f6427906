"""What has been charged to many labels, read a block at a time inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from shoal.laws.graph import NeighborGraph
from shoal.ledger import journal
from shoal.ledger.accounts import one_graph, stars
from shoal.ledger.budgets import Limit
from shoal.ledger.chain import Head
from shoal.ledger.composition import Charges, Span, Star, claim
from shoal.ledger.recent import Recent
from shoal.ledger.registry import Registry
from shoal.ledger.storage import CHUNK, Transaction
from shoal.ledger.ties import Tie, ties
from shoal.mechanism.reader import Releaser

#: Entries since the last look from which on reading everything again is less work than telling what changed.
FORGET = 5000
#: Mechanism, total variation, times, and whether it is for a named analyst, of what is about to be released.
Coming = tuple[str, float, int, bool]
#: What is about to be released, by label, as an analyst (None: anyone) will count it.
Extra = Callable[[str | None], Mapping[str, Coming]]


def nothing_more(_analyst: str | None) -> Mapping[str, Coming]:
    """No release is coming."""
    return {}


def only(label: str, extra: Coming) -> Extra:
    """One release is coming, which counts for everyone."""
    return lambda _: {label: extra}


def every(coming: Mapping[str, Coming]) -> Extra:
    """Releases about several labels are coming, which count for everyone."""
    return lambda _: coming


@dataclass
class _Tally:
    used: list[tuple[str, float, int]] = field(default_factory=list)
    claims: list[tuple[float, float, int]] = field(default_factory=list)
    span: Span | None = None

    def seen(self, first: int, last: int, named: int | None) -> None:
        """Count batches."""
        span = Span(int(first), int(last), int(named or 0))
        self.span = span.joined(self.span)


class Memory:
    """Charges as of one head of the chain, kept from one transaction to the next; they could be read again.

    A hash stands for everything up to its entry. So what was read at one head still holds at a later one of the same
    chain, but for the labels that entries since then name. A transaction that sees an older chain, or one that was
    undone, gets nothing from here.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._head: Head | None = None
        self._kept: Recent[dict[str | None, Charges]] = Recent(64 * 2**20)

    def moved(self, transaction: Transaction) -> Head | None:
        """Bring the memory to the head that the transaction sees; None where it sees an older one."""
        head = journal.head(transaction)
        with self._lock:
            if self._head is not None and head.seq < self._head.seq:
                return None
            if head != self._head:
                for label in self._touched(transaction):
                    self._kept.drop(label)
                self._head = head
        return head

    def get(self, head: Head | None, label: str, analyst: str | None) -> Charges | None:
        with self._lock:
            return None if head is None or head != self._head else (self._kept.get(label) or {}).get(analyst)

    def put(self, head: Head | None, label: str, analyst: str | None, charges: Charges) -> None:
        with self._lock:
            if head is not None and head == self._head:
                kept = {**(self._kept.get(label) or {}), analyst: charges}
                self._kept.put(label, kept, 500 + 200 * sum(len(one.used) + 1 for one in kept.values()))

    def _touched(self, transaction: Transaction) -> Sequence[str]:
        """Labels named since the head that is remembered; everything is forgotten where that is not to be told."""
        known = self._head
        if known is not None:
            there = transaction.value("SELECT hash FROM entries WHERE seq = :seq", seq=known.seq)
            rows = transaction.rows(
                f"SELECT label FROM entries WHERE seq > :seq AND label IS NOT NULL ORDER BY seq LIMIT {FORGET}",
                seq=known.seq,
            )
            if there == known.hash and len(rows) < FORGET:
                return [str(row[0]) for row in rows]
        self._kept.clear()
        return ()


class Tallies:
    """Charges by label and, where asked for, by analyst: those on record, and those about to be recorded.

    Reads go to the database once per label; what the transaction will still write is told with :meth:`add`. Equal
    charges are one object, so that neighbors of whom the same was released are told by identity.
    """

    def __init__(
        self, transaction: Transaction, registry: Registry, memory: Memory, coming: Releaser | None = None
    ) -> None:
        """``coming`` is a mechanism that is about to be used, on record or not yet."""
        self.transaction = transaction
        self._registry, self._own = registry, coming
        self._own_graph = "" if coming is None else registry.graph_name(transaction, coming)
        self._memory, self._head = memory, memory.moved(transaction)
        batch = journal.batch(transaction)
        self._spans = {named: Span(batch, batch, batch if named else 0) for named in (False, True)}
        self._graphs: dict[str, frozenset[str]] = {}
        self._ties: dict[str, tuple[Tie, ...]] = {}
        self._charges: dict[str | None, dict[str, Charges]] = {}
        self._coming: dict[str, list[tuple[str, float, str | None]]] = {}
        self._one: dict[Charges, Charges] = {}
        self._cuts: dict[tuple[Charges, frozenset[str]], Charges] = {}

    def place(self, labels: Iterable[str]) -> None:
        """Fetch which graphs hold some labels."""
        wanted = [label for label in dict.fromkeys(labels) if label not in self._graphs]
        for start in range(0, len(wanted), CHUNK):
            part = wanted[start : start + CHUNK]
            found: dict[str, list[str]] = {label: [] for label in part}
            for label, graph in self.transaction.rows(
                f"SELECT label, graph FROM members WHERE label IN ({self.transaction.listed('labels')})",
                labels=json.dumps(part),
            ):
                found[str(label)].append(str(graph))
            for label, graphs in found.items():
                if self._own is not None and label in self._own.graph:
                    graphs.append(self._own_graph)
                self._graphs[label] = frozenset(graphs)

    def graphs(self, label: str) -> frozenset[str]:
        """The graphs that hold a label; none where the ledger does not know it."""
        if label not in self._graphs:
            self.place(self._own.graph.labels if self._own is not None and label in self._own.graph else [label])
        return self._graphs[label]

    def ties(self, label: str) -> tuple[Tie, ...]:
        """The label's neighbors by the graphs that join them."""
        found = self._ties.get(label)
        if found is None:
            found = self._ties[label] = ties(label, {name: self._graph(name) for name in sorted(self.graphs(label))})
        return found

    def neighbors(self, label: str) -> tuple[str, ...]:
        """The label's neighbors; none where the ledger does not know it."""
        return tuple(name for tie in self.ties(label) for name in tie.names)

    def cut(self, charges: Charges, graphs: frozenset[str]) -> Charges:
        """The part of some charges that was made through mechanisms of some graphs; equal ones are one object."""
        key = (charges, graphs)
        if key not in self._cuts:
            self._cuts[key] = self._same(charges.through(lambda digest: self._graph_name(digest) in graphs))
        return self._cuts[key]

    def _graph(self, name: str) -> NeighborGraph:
        if self._own is not None and name == self._own_graph:
            return self._own.graph
        return self._registry.graph(self.transaction, name)

    def _graph_name(self, digest: str) -> str:
        own = self._own is not None and digest == self._own.digest
        return self._own_graph if own else self._registry.graph_name(self.transaction, digest)

    def read(self, labels: Iterable[str], analyst: str | None = None) -> None:
        """Fetch what is on record about labels; for an analyst, what that analyst was shown."""
        known = self._charges.setdefault(analyst, {})
        wanted = []
        for label in dict.fromkeys(labels):
            if label not in known:
                kept = self._memory.get(self._head, label, analyst)
                if kept is None:
                    wanted.append(label)
                else:
                    known[label] = self._now(label, analyst, kept)
        for start in range(0, len(wanted), CHUNK):
            part = {label: _Tally() for label in wanted[start : start + CHUNK]}
            self._fetch(part, analyst)
            for label, tally in part.items():
                recorded = Charges.of(tally.used, tally.claims, tally.span)
                self._memory.put(self._head, label, analyst, recorded)
                known[label] = self._now(label, analyst, recorded)

    def of(self, label: str, analyst: str | None = None) -> Charges:
        """What counts about a label; for an analyst, what that analyst was shown."""
        known = self._charges.get(analyst)
        if known is None or label not in known:
            self.read([label], analyst)
            known = self._charges[analyst]
        return known[label]

    def stars(self, limit: Limit, extra: Extra = nothing_more) -> Iterator[Star]:
        """The pairs that a limit is held against, with what is about to be released about some labels."""
        self.read((*limit.counted, *(name for label in limit.at for name in self.neighbors(label))), limit.analyst)
        known = self._charges[limit.analyst]
        coming = {
            label: self._same(known[label].plus(digest, tv, times, self._now_in(named)))
            for label, (digest, tv, times, named) in extra(limit.analyst).items()
            if label in known
        }
        if len(limit.counted) > 1 and any((coming.get(label) or known[label]).used for label in limit.counted):
            one_graph(limit, self.graphs)
        return stars(limit, lambda label: coming.get(label) or known[label], self.ties, self.cut)

    def add(self, label: str, digest: str, tv: float, analyst: str | None) -> None:
        """Count a release that will be recorded before the transaction ends."""
        self._coming.setdefault(label, []).append((digest, tv, analyst))
        for reader, known in self._charges.items():
            if label in known and _counts(analyst, reader):
                known[label] = self._same(known[label].plus(digest, tv, 1, self._now_in(analyst is not None)))

    def clear(self) -> None:
        """Forget everything: what was coming has been written, and may still be undone."""
        self._charges.clear()
        self._coming.clear()
        self._head = None

    def _now(self, label: str, analyst: str | None, charges: Charges) -> Charges:
        """Charges on record with those that are coming."""
        for digest, tv, shown_to in self._coming.get(label, ()):
            if _counts(shown_to, analyst):
                charges = charges.plus(digest, tv, 1, self._now_in(shown_to is not None))
        return self._same(charges)

    def _now_in(self, named: bool) -> Span:
        """The span of a release in this transaction."""
        return self._spans[named]

    def _same(self, charges: Charges) -> Charges:
        return self._one.setdefault(charges, charges)

    def _fetch(self, into: dict[str, _Tally], analyst: str | None) -> None:
        parameters = {"labels": json.dumps(list(into))}
        these = self.transaction.listed("labels")
        where = f"label IN ({these}) AND kind IN ('release', 'declared')"
        at = "COALESCE(batch, seq)"
        if analyst is not None:
            parameters["analyst"] = analyst
            direct = "(analyst = :analyst OR analyst IS NULL)"
            shown = f"FROM entries WHERE kind = 'shown' AND label IN ({these}) AND {direct}"
            where += f" AND ({direct} OR seq IN (SELECT release {shown}))"
            # What was shown later counts from then on: that it was shown may have been chosen.
            for label, first, last in self.transaction.rows(
                f"SELECT label, MIN({at}), MAX({at}) {shown} GROUP BY label", **parameters
            ):
                into[str(label)].seen(first, last, None)
            at = f"CASE WHEN {direct} THEN {at} END"
        batches = f"MIN({at}), MAX({at}), MIN(CASE WHEN analyst IS NOT NULL THEN {at} END)"
        for label, digest, tv, times, first, last, named in self.transaction.rows(
            f"SELECT label, mechanism, COALESCE(tv, 0), SUM(COALESCE(times, 1)), {batches} FROM entries WHERE {where} "
            "AND mechanism IS NOT NULL GROUP BY label, mechanism, COALESCE(tv, 0)",
            **parameters,
        ):
            tally = into[str(label)]
            tally.used.append((str(digest), float(tv), int(times)))
            if first is not None:
                tally.seen(first, last, named)
        for label, payload, seq in self.transaction.rows(
            f"SELECT label, payload, COALESCE(batch, seq) FROM entries WHERE {where} AND mechanism IS NULL",
            **parameters,
        ):
            content = json.loads(payload)
            into[str(label)].claims.append(claim(content))
            into[str(label)].seen(seq, seq, seq if "analyst" in content else None)


def _counts(shown_to: str | None, analyst: str | None) -> bool:
    """Whether what one analyst (None: anyone) is shown counts for another (None: for the label itself)."""
    return analyst is None or shown_to in (None, analyst)
