"""Which labels must stay indistinguishable: an undirected graph over the labels.

Edges are one integer array, never Python objects: the complete graph over 2,000 labels (two million edges)
takes 16 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.crowds.partition import near_pairs
from shoal.errors import InputError
from shoal.validation import IntArray

if TYPE_CHECKING:
    from shoal.laws.classes import GaussianClasses

#: Labels up to which the nearest are found among all others: a minute or less.
EXACT = 10_000
#: How far beyond a distance, relative to it, a pair still counts as being at this distance.
ROUNDING = 1e-12


class NeighborGraph:
    """An undirected graph without self-loops over string labels.

    ``edges`` is an integer array of shape (n_edges, 2) with ``i < j`` in every row, sorted and without repeats.
    Build one with :meth:`complete`, :meth:`from_edges`, :meth:`within_groups`, :meth:`nearest` or
    :meth:`from_distance`.
    """

    labels: tuple[str, ...]
    edges: IntArray

    def __init__(self, labels: Sequence[Any], edges: Any) -> None:
        self.labels = validation.labels(len(labels), labels)
        self.edges = _canonical_edges(np.asarray(edges), len(self.labels))
        self.edges.flags.writeable = False

    # ------------------------------------------------------------------ builders

    @classmethod
    def complete(cls, labels: Sequence[Any]) -> NeighborGraph:
        """Return the graph in which every pair of labels is an edge: the strictest choice.

        Returns:
            The graph with n (n − 1) / 2 edges.

        >>> import shoal
        >>> shoal.NeighborGraph.complete(["a", "b", "c"])
        NeighborGraph(3 labels, 3 edges)
        """
        n = len(labels)
        i, j = np.triu_indices(n, k=1)
        return cls(labels, np.stack([i, j], axis=1).astype(np.int32))

    @classmethod
    def from_edges(cls, labels: Sequence[Any], pairs: Iterable[tuple[Any, Any]] | None = None) -> NeighborGraph:
        """Return the graph of explicit pairs of labels; order within a pair and repeats do not matter.

        With pairs alone, ``from_edges(pairs)``, the labels are those that the pairs name, in order of appearance.

        Returns:
            The graph over all ``labels``; those that no pair names have no neighbor.

        >>> import shoal
        >>> graph = shoal.NeighborGraph.from_edges(["a", "b", "c"], [("b", "a"), ("c", "b")])
        >>> graph.edges.tolist()
        [[0, 1], [1, 2]]
        >>> shoal.NeighborGraph.from_edges([("b", "a"), ("c", "b")]).labels
        ('b', 'a', 'c')
        """
        rows = [_label_pair(pair, number) for number, pair in enumerate(labels if pairs is None else pairs)]
        if pairs is None:
            labels = list(dict.fromkeys(name for row in rows for name in row))
        names = validation.labels(len(labels), labels)
        index = {name: i for i, name in enumerate(names)}
        missing = next((number for number, row in enumerate(rows) if not index.keys() >= set(row)), None)
        if missing is not None:
            raise InputError(f"pairs names a label that is not in labels (entry {missing})")
        positions = np.array([[index[name] for name in row] for row in rows], dtype=np.int32)
        return cls(names, positions.reshape(-1, 2))

    @classmethod
    def from_distance(cls, points: Any, within: float, labels: Sequence[Any] | None = None) -> NeighborGraph:
        """Join labels whose points lie at most ``within`` apart: the paper's distance graph.

        Args:
            points: (n, d) array, one row of public facts per label, such as a place; or laws, whose distance is the
                bound on the 2-Wasserstein distance that :meth:`nearest` uses.
            within: the largest Euclidean distance between neighbors.
            labels: n labels; ``"0" .. "n-1"``, or those of the laws, by default.

        Returns:
            The graph over all labels; those with nobody so near have no neighbor.

        >>> import shoal
        >>> shoal.NeighborGraph.from_distance([[0.0, 0.0], [3.0, 4.0], [9.0, 9.0]], within=5.0).edges.tolist()
        [[0, 1]]
        """
        from scipy.spatial import cKDTree

        if hasattr(points, "embedding"):
            labels, points = points.labels if labels is None else labels, points.embedding()
        rows = validation.array(ndim=2, points=points)
        within = validation.non_negative(within=within)
        names = validation.labels(len(rows), labels)
        # The tree proposes with a little to spare; a pair at this distance but for rounding is joined.
        pairs = cKDTree(rows).query_pairs(within * (1 + 1e-9), output_type="ndarray")
        apart = np.linalg.norm(rows[pairs[:, 0]] - rows[pairs[:, 1]], axis=1)
        return cls(names, pairs[apart <= within * (1 + ROUNDING)])

    @classmethod
    def within_groups(cls, labels: Sequence[Any], groups: Sequence[Any]) -> NeighborGraph:
        """Return the graph that is complete inside each group; ``groups`` holds one group name per label.

        Returns:
            The graph whose connected components are the groups.

        >>> import shoal
        >>> shoal.NeighborGraph.within_groups(["a", "b", "c", "d"], ["x", "y", "x", "y"]).neighbors("a")
        ('c',)
        """
        if len(groups) != len(labels):
            raise InputError(f"groups must hold one entry per label: expected {len(labels)}, got {len(groups)}")
        numbers: dict[str, int] = {}
        member_of = np.array([numbers.setdefault(str(group), len(numbers)) for group in groups], dtype=np.int64)
        order = np.argsort(member_of, kind="stable").astype(np.int32)
        sizes = np.bincount(member_of, minlength=len(numbers))
        starts = np.cumsum(sizes) - sizes
        blocks = [np.empty((0, 2), dtype=np.int32)]
        for size in np.unique(sizes).tolist():  # all groups of a size together
            members = order[starts[sizes == size][:, None] + np.arange(size)]
            pairs = np.stack(np.triu_indices(size, k=1), axis=1)
            blocks.append(members[:, pairs].reshape(-1, 2))
        return cls(labels, np.concatenate(blocks))

    @classmethod
    def nearest(cls, classes: GaussianClasses, n_neighbors: int) -> NeighborGraph:
        """Join each label to its ``n_neighbors`` most alike labels (an edge if either names the other).

        Alike means a small distance between (μ, Σ^{1/2}) and (μ', Σ'^{1/2}), Euclidean and Frobenius. This is
        an upper bound of the 2-Wasserstein distance of the two laws, equal to it when the covariances commute,
        and it works for singular and zero covariances alike.

        Up to :data:`EXACT` labels all others are considered. Beyond, they are looked for among a few thousand of the
        most alike (``cells``), which misses some; guarantees always speak about the edges that are there.

        Returns:
            The graph over the labels of ``classes``.

        >>> import shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0], [10.0], [11.0]])
        >>> shoal.NeighborGraph.nearest(classes, 1).edges.tolist()
        [[0, 1], [2, 3]]
        """
        from scipy.spatial import cKDTree

        n_neighbors = validation.count(n_neighbors=n_neighbors)
        if n_neighbors >= classes.n_classes:
            raise InputError(
                f"n_neighbors must be below the number of labels ({classes.n_classes}); use complete() for all"
            )
        points = classes.embedding()
        if classes.n_classes > EXACT:
            return cls(classes.labels, near_pairs(points, n_neighbors))
        _, neighbors = cKDTree(points).query(points, k=n_neighbors + 1)
        own = neighbors == np.arange(len(points))[:, None]
        own[~own.any(axis=1), -1] = True  # with exact ties a point may be missing from its own list
        source = np.repeat(np.arange(len(points)), n_neighbors)
        return cls(classes.labels, np.stack([source, neighbors[~own]], axis=1))

    # ------------------------------------------------------------------ questions

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return len(self.labels)

    @property
    def n_edges(self) -> int:
        """The number of edges."""
        return len(self.edges)

    @cached_property
    def _position_of(self) -> dict[str, int]:
        """The position of each label, by name."""
        return {name: i for i, name in enumerate(self.labels)}

    def __contains__(self, label: object) -> bool:
        return str(label) in self._position_of

    def index(self, label: Any) -> int:
        """Return the position of a label; raise InputError where the graph has no such label."""
        try:
            return self._position_of[str(label)]
        except KeyError:
            raise InputError("label is not one of this graph's labels") from None

    @cached_property
    def _neighbor_lists(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The neighbors of all labels, label by label, and where those of each label begin and end."""
        ends = np.vstack([self.edges, self.edges[:, ::-1]])
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        return ends[:, 1], np.searchsorted(ends[:, 0], np.arange(self.n_labels + 1))

    def neighbors(self, label: Any) -> tuple[str, ...]:
        """Return the labels joined to ``label`` by an edge."""
        (others, places), own = self._neighbor_lists, self.index(label)
        return tuple(self.labels[i] for i in others[places[own] : places[own + 1]].tolist())

    @cached_property
    def components(self) -> NDArray[np.int32]:
        """The number of the connected component that each label belongs to, (n,)."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        ones, shape = np.ones(self.n_edges, dtype=np.int8), (self.n_labels, self.n_labels)
        _, member_of = connected_components(coo_array((ones, tuple(self.edges.T)), shape=shape), directed=False)
        return np.asarray(member_of, dtype=np.int32)

    def components_of(self, labels: Sequence[str]) -> NDArray[np.intp]:
        """Return the component numbers of these labels, in their order."""
        return self.components[[self._position_of[name] for name in labels]].astype(np.intp)

    def restrict(self, labels: Sequence[str]) -> NeighborGraph:
        """Return the graph over some of the labels, in this order, with the edges between them."""
        place = np.full(self.n_labels, -1)
        place[[self.index(name) for name in labels]] = np.arange(len(labels))
        pairs = place[self.edges]
        return NeighborGraph(labels, pairs[(pairs >= 0).all(axis=1)])

    @cached_property
    def groups(self) -> list[tuple[str, ...]]:
        """Labels of each connected component, in order of their first labels.

        >>> import shoal
        >>> shoal.NeighborGraph.within_groups(["a", "b", "c", "d"], ["x", "y", "x", "y"]).groups
        [('a', 'c'), ('b', 'd')]
        """
        members_of: dict[int, list[str]] = {}
        for label, component in zip(self.labels, self.components.tolist(), strict=True):
            members_of.setdefault(component, []).append(label)
        return [tuple(members) for members in members_of.values()]

    def __repr__(self) -> str:
        return f"NeighborGraph({self.n_labels} labels, {self.n_edges} edges)"


def _label_pair(pair: Any, number: int) -> tuple[str, str]:
    """Return the two labels of a pair as strings; an InputError for anything else, a text included."""
    try:
        first, second = iter(()) if isinstance(pair, str) else pair
    except (TypeError, ValueError) as error:
        raise InputError(
            f"pairs must hold two labels each: entry {number} does not. Give from_edges(labels, pairs), or only the "
            "pairs"
        ) from error
    return str(first), str(second)


def _canonical_edges(edges: NDArray[Any], n: int) -> IntArray:
    """Return the edges as rows (i, j) with i < j, sorted, without repeats."""
    if edges.size == 0:
        return np.empty((0, 2), dtype=np.int32)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise InputError(f"edges must be an integer array of shape (n_edges, 2), got shape {edges.shape}")
    if edges.min() < 0 or edges.max() >= n:
        raise InputError(f"edges must hold label positions from 0 to {n - 1}")
    low, high = edges.min(axis=1).astype(np.int32), edges.max(axis=1).astype(np.int32)
    if (low == high).any():
        raise InputError("edges must not join a label to itself (self-loop)")
    key = np.multiply(low, n, dtype=np.int64)
    key += high
    if not (key[1:] > key[:-1]).all():
        key = np.unique(key)
        low, high = (key // n).astype(np.int32), (key % n).astype(np.int32)
    return np.stack([low, high], axis=1)
