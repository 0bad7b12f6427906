"""Mechanisms and graphs that the ledger knows.

A mechanism is stored once, as its file, under its digest: what was spent can be recomputed from the database alone, and
answers are drawn by the mechanism as recorded. A label's neighbors are fixed when the label is first used: composition
is about edges, and edges that came and went between releases would leave nothing to compose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from shoal import mechanism_reader, validation
from shoal.codebooks.codebook import Codebook
from shoal.errors import InputError, LedgerError
from shoal.graph import NeighborGraph
from shoal.ledger.bounds import POINTS, MechanismBound
from shoal.ledger.journal import Journal
from shoal.ledger.questions import word
from shoal.ledger.recent import Recent
from shoal.ledger.storage import CHUNK, Transaction
from shoal.mechanism_reader import Releaser
from shoal.validation import FloatArray


def drawn(mechanism: Releaser, values: FloatArray, label: str) -> FloatArray:
    """A released answer, with noise from the mechanism's cryptographic source."""
    given = mechanism.release(label) if isinstance(mechanism, Codebook) else mechanism.release(values, label)
    released = validation.array(ndim=1, released=given)
    if released.shape != values.shape:
        raise LedgerError("ledger: the mechanism returned an answer of another length; nothing was recorded")
    return released


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

    def graph_of(self, transaction: Transaction, label: str) -> NeighborGraph | None:
        """The graph that was recorded for a label; None where the label is unknown."""
        digest = transaction.value("SELECT graph FROM labels WHERE label = :label", label=label)
        return None if digest is None else self.graph(transaction, str(digest))

    def graph(self, transaction: Transaction, digest: str) -> NeighborGraph:
        """A recorded graph, from the first mechanism that was recorded with it."""
        found = self._graphs.get(digest)
        if found is None:
            named = transaction.value(
                "SELECT mechanism FROM entries WHERE kind = 'mechanism' AND payload LIKE :graph ORDER BY seq LIMIT 1",
                graph=f'%"graph":"{digest}"%',
            )
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
        transaction.run_many(
            "INSERT INTO bounds (mechanism, kind, point, value) VALUES (:mechanism, :kind, :point, :value)",
            [
                {"mechanism": bound.digest, "kind": kind, "point": point, "value": value}
                for kind in POINTS
                for point, value in bound.points(kind)
                if point not in old[kind]
            ],
        )

    def admit(self, transaction: Transaction, journal: Journal, mechanism: Releaser) -> None:
        """Record a mechanism at its first use, and its graph; refuse a graph that contradicts a recorded one."""
        digest = mechanism.digest
        if transaction.one("SELECT 1 FROM mechanisms WHERE digest = :digest", digest=digest) is not None:
            return
        graph = compatible(transaction, mechanism)
        if graph is None:
            for name in mechanism.graph.labels:
                word(label=name)
            graph = graph_digest(mechanism.graph)
            journal.append("graph", {"graph": graph, "labels": mechanism.graph.n_labels})
            transaction.run_many(
                "INSERT INTO labels (label, graph) VALUES (:label, :graph)",
                [{"label": name, "graph": graph} for name in mechanism.graph.labels],
            )
        content = self._contents.get(digest) or mechanism.to_bytes()
        transaction.run(
            "INSERT INTO mechanisms (digest, content) VALUES (:digest, :content)", digest=digest, content=content
        )
        journal.append(
            "mechanism",
            {"mechanism": digest, "graph": graph, "content": hashlib.sha256(content).hexdigest()},
        )


def compatible(transaction: Transaction, mechanism: Releaser) -> str | None:
    """The recorded graph that is the mechanism's own; None where all its labels are new; anything else is refused."""
    found, count = _graphs(transaction, mechanism.graph.labels)
    if not found:
        return None
    digest = graph_digest(mechanism.graph)
    if found != {digest} or count != mechanism.graph.n_labels:
        raise InputError(
            "mechanism: its graph differs from the one this ledger has recorded for some of its labels. A ledger fixes "
            "every label's neighbors at first use; design the mechanism on the recorded graph, or on new labels only"
        )
    return digest


def one_graph(transaction: Transaction, labels: Sequence[str]) -> bool:
    """Whether all labels are recorded, and as labels of one graph."""
    found, count = _graphs(transaction, labels)
    return len(found) == 1 and count == len(labels)


def _graphs(transaction: Transaction, labels: Sequence[str]) -> tuple[set[str], int]:
    """The graphs recorded for some labels, and for how many of the labels there is one."""
    found: set[str] = set()
    count = 0
    for start in range(0, len(labels), CHUNK):
        part = {f"n{i}": name for i, name in enumerate(labels[start : start + CHUNK])}
        places = ", ".join(f":{key}" for key in part)
        rows = transaction.rows(f"SELECT graph FROM labels WHERE label IN ({places})", **part)
        count += len(rows)
        found.update(str(row[0]) for row in rows)
    return found, count


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
