"""What a process remembers of a ledger between transactions, and copies of mechanisms that it may trust.

Everything in :class:`Memory` could be read or computed again: nothing rests on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from shoal.errors import InputError, LedgerError
from shoal.laws.graph import NeighborGraph
from shoal.ledger.bounds import MechanismBound
from shoal.ledger.budgets import Budgets
from shoal.ledger.composition import Composer, Recent
from shoal.mechanism import releasable as mechanism_files
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable, releasable


class Memory:
    """Mechanisms, graphs, bounds and budgets that were read before, as far as memory allows."""

    def __init__(self, composer: Composer | None = None) -> None:
        self.composer = Composer() if composer is None else composer
        #: Mechanisms by digest, and their files where these were given.
        self.mechanisms: Recent[Releasable] = Recent(256 * 2**20)
        self.files: Recent[bytes] = Recent(32 * 2**20)
        #: Graphs by their digests, and what mechanisms cost at most at a few points.
        self.graphs: Recent[NeighborGraph] = Recent(64 * 2**20)
        self.bounds: Recent[MechanismBound] = Recent(32 * 2**20)
        #: The budgets in force after the entry with this hash.
        self.budgets: tuple[str, Budgets] = ("", Budgets())

    def trusted(self, mechanism: Releasable | bytes) -> Releasable:
        """A copy of a mechanism that is what its digest says: the caller's own arrays can change under our hands.

        The content of a mechanism's file is read as it is, and is what will be recorded.
        """
        if isinstance(mechanism, bytes):
            digest, content = None, mechanism
        else:
            digest = releasable(mechanism=mechanism).digest
            known = self.mechanisms.get(digest)
            if known is not None:
                return known
            content = mechanism.to_bytes()
        copy = mechanism_files.from_bytes(content, "mechanism")
        if digest not in (None, copy.digest):
            raise InputError("mechanism: its parameters were changed after it was made; design or load it again")
        self.remember_mechanism(copy)
        self.files.put(copy.digest, content, len(content))
        return copy

    def prepared(self, mechanism: Releasable, labels: Iterable[str]) -> Releasable:
        """A trusted copy of a mechanism, with all that can be computed for labels before anything is locked."""
        own = self.trusted(mechanism)
        own.prepare()
        for label in labels:
            self.composer.prepare(own, label)
        return own

    def remember_mechanism(self, mechanism: Releasable) -> None:
        """Keep a trusted mechanism in memory."""
        self.mechanisms.put(mechanism.digest, mechanism, mechanism.by_kind(mechanism=_size, codebook=_book_size))

    def remember_graph(self, name: str, graph: NeighborGraph) -> None:
        """Keep a graph in memory, under its digest."""
        self.graphs.put(name, graph, graph.edges.nbytes + 100 * graph.n_labels)

    def remember_bound(self, bound: MechanismBound) -> None:
        """Keep a bound in memory, with the points known before."""
        known = self.bounds.get(bound.digest)
        merged = bound if known is None else known.with_points_of(bound)
        self.bounds.put(bound.digest, merged, 64 * (len(merged.delta) + len(merged.renyi) + len(merged.table)) + 1000)


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


def restored(content: bytes, digest: str) -> Releasable:
    """A mechanism from its stored file, which must be the one that the digest names."""
    try:
        mechanism = mechanism_files.from_bytes(content, "mechanism")
    except InputError:
        raise LedgerError("ledger: a recorded mechanism is damaged; run verify() and restore a backup") from None
    if mechanism.digest != digest:
        raise LedgerError("ledger: a recorded mechanism is not the one its digest names; restore a backup")
    return mechanism


def _size(mechanism: Mechanism) -> int:
    """Bytes that a mechanism and its laws take, roughly."""
    arrays = [mechanism.noise_cov, mechanism.gain, mechanism.classes.means, mechanism.shift]
    n, k = mechanism.classes.means.shape
    return int(sum(a.nbytes for a in arrays if a is not None) + 24 * n * k * k + mechanism.graph.edges.nbytes)


def _book_size(book: Codebook) -> int:
    """Bytes that a codebook takes, roughly."""
    return int(sum(2 * g.counts.nbytes + g.curves.nbytes for g in book.crowds) + 2 * book.answers.nbytes)
