"""Mechanisms and graphs that the ledger knows.

A mechanism is stored once, as its file, under its digest: what was spent can be recomputed from the database alone, and
answers are drawn by the mechanism as recorded.
"""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import func, select

from shoal.errors import InputError, LedgerError
from shoal.laws.graph import NeighborGraph
from shoal.ledger.bounds import POINTS, MechanismBound
from shoal.ledger.recent import Recent
from shoal.ledger.schema import BOUNDS, MECHANISMS
from shoal.ledger.storage import Transaction
from shoal.mechanism import reader as mechanism_reader
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.reader import Releaser

MISSING = "ledger: a mechanism that was used is missing; run verify() and restore a backup"


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
        mechanism = self._known.get(digest)
        if mechanism is None:
            content = transaction.value(select(MECHANISMS.c.content).where(MECHANISMS.c.digest == digest))
            if content is None:
                raise LedgerError(MISSING, reason="damaged")
            mechanism = restored(bytes(content), digest)
            self.know(mechanism)
        return mechanism

    def know(self, mechanism: Releaser, graph: str | None = None) -> None:
        """Keep a mechanism in memory, and its graph under the digest of that."""
        self._known.put(mechanism.digest, mechanism, _size(mechanism))
        if graph is not None:
            self._graphs.put(graph, mechanism.graph, mechanism.graph.edges.nbytes + 100 * mechanism.graph.n_labels)

    def has(self, transaction: Transaction, digest: str) -> bool:
        """Whether a mechanism is on record."""
        return transaction.one(select(MECHANISMS.c.digest).where(MECHANISMS.c.digest == digest)) is not None

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
        copy = mechanism_reader.from_bytes(content, "mechanism")
        if isinstance(mechanism, Releaser) and copy.digest != mechanism.digest:
            raise InputError("mechanism: its parameters were changed after it was made; design or load it again")
        self.know(copy)
        self._contents.put(copy.digest, content, len(content))
        return copy

    def graph_name(self, transaction: Transaction, digest: str) -> str:
        """The digest of the graph of a recorded mechanism."""
        name = self._names.get(digest)
        if name is None:
            name = transaction.value(select(MECHANISMS.c.graph).where(MECHANISMS.c.digest == digest))
            if name is None:
                raise LedgerError(MISSING, reason="damaged")
            self._names.put(digest, str(name), 200)
        return str(name)

    def graph(self, transaction: Transaction, name: str) -> NeighborGraph:
        """A recorded graph by its digest, from a mechanism that was recorded with it."""
        graph = self._graphs.get(name)
        if graph is None:
            digest = transaction.value(select(func.min(MECHANISMS.c.digest)).where(MECHANISMS.c.graph == name))
            if digest is None:
                raise LedgerError(MISSING, reason="damaged")
            mechanism = self.mechanism(transaction, str(digest))
            self.know(mechanism, name)
            graph = mechanism.graph
        return graph

    def bound(self, transaction: Transaction, digest: str) -> MechanismBound | None:
        """What is known of a mechanism's cost at a few points; None where nothing is stored."""
        bound = self._bounds.get(digest)
        if bound is None:
            bound = stored_bound(transaction, digest)
            if bound is not None:
                self.remember(bound)
        return bound

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
            BOUNDS,
            *(
                {"mechanism": bound.digest, "kind": kind, "point": point, "value": value}
                for kind in POINTS
                for point, value in bound.points(kind)
                if point not in old[kind]
            ),
        )

    def store(self, transaction: Transaction, mechanism: Releaser, graph: str) -> dict[str, Any]:
        """Store a mechanism's file; returns the content of the entry that records it."""
        digest = mechanism.digest
        content = self._contents.get(digest) or mechanism.to_bytes()
        transaction.insert(MECHANISMS, {"digest": digest, "graph": graph, "content": content})
        return {"mechanism": digest, "graph": graph, "content": hashlib.sha256(content).hexdigest()}


def stored_bound(transaction: Transaction, digest: str) -> MechanismBound | None:
    """The bound of a mechanism as the database has it; one that makes no sense is refused."""
    points: dict[str, dict[float, float]] = {kind: {} for kind in POINTS}
    rows = transaction.rows(select(BOUNDS.c.kind, BOUNDS.c.point, BOUNDS.c.value).where(BOUNDS.c.mechanism == digest))
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
