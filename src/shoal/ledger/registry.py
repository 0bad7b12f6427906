"""Mechanisms and graphs that the ledger knows.

A mechanism is stored once, as its file, under its digest: what was spent can be recomputed from the database alone, and
answers are drawn by the mechanism as recorded. Graphs may grow from one mechanism to the next, and labels may leave;
neighbors that are both there remain neighbors (:mod:`shoal.ledger.ties`).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from shoal.errors import InputError, LedgerError
from shoal.laws.graph import NeighborGraph
from shoal.ledger.bounds import POINTS, MechanismBound
from shoal.ledger.journal import Journal
from shoal.ledger.questions import word
from shoal.ledger.recent import Recent
from shoal.ledger.storage import CHUNK, Transaction
from shoal.ledger.ties import changes
from shoal.mechanism import reader as mechanism_reader
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.reader import Releaser

OUTGROWN = (
    "mechanism: some of its labels have become neighbors since it was recorded, and it does not hide them among each "
    "other; design it anew with the neighbors as they are now"
)


def graph_digest(graph: NeighborGraph) -> str:
    """SHA-256 over the labels and the edges, whatever order they were given in."""
    total = hashlib.sha256()
    order = sorted(range(graph.n_labels), key=lambda i: graph.labels[i])
    rank = {i: position for position, i in enumerate(order)}
    for i in order:
        name = graph.labels[i].encode("utf-8", "surrogatepass")
        total.update(f"{len(name)}:".encode() + name)
    if graph.labels == tuple(graph.labels[i] for i in order):
        edges = [(int(i), int(j)) for i, j in graph.edges]
    else:
        edges = sorted((min(rank[i], rank[j]), max(rank[i], rank[j])) for i, j in graph.edges.tolist())
    total.update(b"edges")
    total.update(",".join(f"{i}-{j}" for i, j in edges).encode())
    return total.hexdigest()


class Registry:
    """Mechanisms by digest, each read from the database once per process while memory allows."""

    def __init__(self) -> None:
        self._known: Recent[Releaser] = Recent(256 * 2**20)
        self._contents: Recent[bytes] = Recent(32 * 2**20)
        self._bounds: Recent[MechanismBound] = Recent(32 * 2**20)
        self._graphs: Recent[NeighborGraph] = Recent(64 * 2**20)
        self._names: Recent[str] = Recent(16 * 2**20)

    def mechanism(self, transaction: Transaction, digest: str) -> Releaser:
        """A recorded mechanism, its digest derived anew when it is read."""
        found = self._known.get(digest)
        if found is None:
            content = transaction.value("SELECT content FROM mechanisms WHERE digest = :digest", digest=digest)
            if content is None:
                raise LedgerError("ledger: a mechanism that was used is missing; run verify() and restore a backup")
            found = restored(bytes(content), digest)
            self._known.put(digest, found, _size(found))
        return found

    def trusted(self, mechanism: Releaser | bytes) -> Releaser:
        """A copy that is what its digest says: arrays of the caller's own object can change under our hands.

        The content of a mechanism's file is read as it is, and is what will be recorded.
        """
        if isinstance(mechanism, Releaser):
            known = self._known.get(mechanism.digest)
            if known is not None:
                return known
            content = mechanism.to_bytes()
        elif isinstance(mechanism, bytes):
            content = mechanism
        else:
            raise InputError("mechanism must be a Mechanism or a Codebook, as design, calibrate and codebook return it")
        found = mechanism_reader.from_bytes(content, "mechanism")
        if isinstance(mechanism, Releaser) and found.digest != mechanism.digest:
            raise InputError("mechanism: its parameters were changed after it was made; design or load it again")
        self._known.put(found.digest, found, _size(found))
        self._contents.put(found.digest, content, len(content))
        return found

    def graph_name(self, transaction: Transaction, mechanism: Releaser | str) -> str:
        """The digest of the graph of a mechanism, which is on record or given."""
        digest = mechanism if isinstance(mechanism, str) else mechanism.digest
        found = self._names.get(digest)
        if found is None:
            stored = transaction.value("SELECT graph FROM graphs WHERE mechanism = :digest", digest=digest)
            if stored is None and isinstance(mechanism, str):
                raise LedgerError("ledger: the graph of a mechanism is missing; run verify() and restore a backup")
            found = graph_digest(mechanism.graph) if isinstance(mechanism, Releaser) and stored is None else str(stored)
            self._names.put(digest, found, 200)
        return found

    def graph(self, transaction: Transaction, digest: str) -> NeighborGraph:
        """A recorded graph, from a mechanism that was recorded with it."""
        found = self._graphs.get(digest)
        if found is None:
            named = transaction.value("SELECT MIN(mechanism) FROM graphs WHERE graph = :digest", digest=digest)
            if named is None:
                raise LedgerError("ledger: the graph of a label is missing; run verify() and restore a backup")
            found = self.mechanism(transaction, str(named)).graph
            self._graphs.put(digest, found, found.edges.nbytes + 100 * found.n_labels)
        return found

    def bound(self, transaction: Transaction, digest: str) -> MechanismBound | None:
        """What is known of a mechanism's cost at a few points; None where nothing is stored."""
        found = self._bounds.get(digest)
        if found is None:
            found = stored_bound(transaction, digest)
            if found is not None:
                self.remember(found)
        return found

    def remember(self, bound: MechanismBound) -> None:
        """Keep a bound in memory, with the points known before."""
        known = self._bounds.get(bound.digest)
        merged = bound if known is None else known.with_points_of(bound)
        self._bounds.put(bound.digest, merged, 64 * (len(merged.epsilons) + len(merged.orders)) + 1000)

    def keep(self, transaction: Transaction, bound: MechanismBound) -> None:
        """Store the points of a bound that are not stored yet; the mechanism must have been admitted."""
        stored = stored_bound(transaction, bound.digest)
        if stored is not None:
            self.remember(stored)
        self.remember(bound)
        old = {kind: dict(stored.points(kind)) if stored is not None else {} for kind in POINTS}
        transaction.insert(
            "bounds",
            *(
                {"mechanism": bound.digest, "kind": kind, "point": point, "value": value}
                for kind in POINTS
                for point, value in bound.points(kind)
                if point not in old[kind]
            ),
        )

    def admit(self, transaction: Transaction, journal: Journal, mechanism: Releaser) -> None:
        """Record a mechanism at its first use, and its graph where it is new; refuse one that may not be used."""
        outgrown = self.compatible(transaction, mechanism)
        digest, graph = mechanism.digest, self.graph_name(transaction, mechanism)
        if transaction.one("SELECT 1 FROM graphs WHERE mechanism = :digest", digest=digest) is not None:
            return
        if transaction.one("SELECT 1 FROM graphs WHERE graph = :graph", graph=graph) is None:
            for name in mechanism.graph.labels:
                word(label=name)
            journal.append("graph", {"graph": graph, "labels": mechanism.graph.n_labels})
            transaction.insert("members", *({"label": name, "graph": graph} for name in mechanism.graph.labels))
            transaction.insert("outgrown", *({"graph": name} for name in outgrown))
        content = self._contents.get(digest) or mechanism.to_bytes()
        transaction.insert("mechanisms", {"digest": digest, "content": content})
        named = {"mechanism": digest, "graph": graph}
        transaction.insert("graphs", named)
        journal.append("mechanism", named | {"content": hashlib.sha256(content).hexdigest()})

    def compatible(self, transaction: Transaction, mechanism: Releaser) -> list[str]:
        """Refuse a graph that lacks an edge on record between two of its labels.

        Returns the recorded graphs that lack an edge which this one has between two of theirs: with its first use they
        may not be used any more.
        """
        graph = self.graph_name(transaction, mechanism)
        if transaction.one("SELECT 1 FROM outgrown WHERE graph = :graph", graph=graph) is not None:
            raise InputError(OUTGROWN)
        if transaction.one("SELECT 1 FROM graphs WHERE graph = :graph", graph=graph) is not None:
            return []
        labels = mechanism.graph.labels
        related: set[str] = set()
        for start in range(0, len(labels), CHUNK):
            rows = transaction.rows(
                f"SELECT DISTINCT graph FROM members WHERE label IN ({transaction.listed('labels')})",
                labels=json.dumps(labels[start : start + CHUNK]),
            )
            related.update(str(row[0]) for row in rows)
        found = {name: changes(mechanism.graph, self.graph(transaction, name)) for name in sorted(related)}
        lost = np.unique(np.concatenate([change.lost for change in found.values()])).size if found else 0
        if lost:
            raise InputError(
                f"mechanism: its graph lost neighbors: {lost} pair(s) of its labels are neighbors on record in this "
                "ledger and are not in it. Labels may leave, and new ones join, but two that stay remain neighbors: "
                "keep the groups of the earlier release"
            )
        known = {str(row[0]) for row in transaction.rows("SELECT graph FROM outgrown")} if found else set()
        return [name for name, change in found.items() if change.gained and name not in known]


def stored_bound(transaction: Transaction, digest: str) -> MechanismBound | None:
    """The bound of a mechanism as the database has it; one that makes no sense is refused."""
    points: dict[str, dict[float, float]] = {kind: {} for kind in POINTS}
    rows = transaction.rows("SELECT kind, point, value FROM bounds WHERE mechanism = :digest", digest=digest)
    try:
        for kind, point, value in rows:
            points[kind][float(point)] = float(value)
        return MechanismBound.of_points(digest, **points) if rows else None
    except (KeyError, TypeError, InputError):
        raise LedgerError(
            "ledger: the stored bound of a mechanism makes no sense; run verify() and delete it from the table bounds"
        ) from None


def restored(content: bytes, digest: str) -> Releaser:
    """A mechanism from its stored file, which must be the one that the digest names."""
    try:
        mechanism = mechanism_reader.from_bytes(content, "mechanism")
    except InputError:
        raise LedgerError("ledger: a recorded mechanism is damaged; run verify() and restore a backup") from None
    if mechanism.digest != digest:
        raise LedgerError("ledger: a recorded mechanism is not the one its digest names; restore a backup")
    return mechanism


def is_random(mechanism: Releaser) -> bool:
    """Whether the answer itself is random given the label, so that its own randomness was counted as protection."""
    return bool(mechanism.classes.stored_variances.any())


def _size(mechanism: Releaser) -> int:
    """Bytes that a mechanism and its laws take, roughly."""
    if isinstance(mechanism, Codebook):
        return int(sum(2 * g.counts.nbytes + g.curves.nbytes for g in mechanism.groups) + 2 * mechanism.answers.nbytes)
    arrays: list[Any] = [mechanism.noise_cov, mechanism.gain, mechanism.classes.means, mechanism.shift]
    n, k = mechanism.classes.means.shape
    return int(sum(a.nbytes for a in arrays if a is not None) + 24 * n * k * k + mechanism.graph.edges.nbytes)
