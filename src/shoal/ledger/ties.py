"""Which releases count for which pair of labels, as graphs grow from one release to the next.

A release counts for a pair if its mechanism has the edge between the two: there the two worlds that are compared, the
labels as they are and the labels exchanged, differ. In a release that holds only one of them, or that came before they
became neighbors, both worlds are the same, and nothing is added (docs/theory.md, section 5). What must not happen is a
release that holds both without the edge: exchanging them would then cost what nobody has bounded. So an edge, once
recorded, is in every later graph that holds both of its ends. Labels may leave, labels may join with edges to any
others, and two labels that were not neighbors may become neighbors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.laws.graph import NeighborGraph


@dataclass(frozen=True)
class Tie:
    """Neighbors of a label that are joined to it in the same graphs, by the graphs' digests."""

    names: tuple[str, ...]
    graphs: frozenset[str]


def ties(label: str, graphs: Mapping[str, NeighborGraph]) -> tuple[Tie, ...]:
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


@dataclass(frozen=True)
class Changes:
    """Edges between labels of two graphs that only the old one has, as codes, and how many only the new one has."""

    lost: NDArray[np.int64]
    gained: int


def changes(new: NeighborGraph, old: NeighborGraph) -> Changes:
    """What became of the edges between labels that both graphs hold; an edge (i, j) of ``new`` has the code i n + j."""
    at = np.array([new.index(name) if name in new else -1 for name in old.labels], dtype=np.int64)
    shared = np.zeros(new.n_labels, dtype=np.bool_)
    shared[at[at >= 0]] = True
    before = at[old.edges].reshape(-1, 2)
    before = np.sort(before[(before >= 0).all(axis=1)], axis=1)
    now = new.edges[shared[new.edges].all(axis=1)].astype(np.int64)
    had, has = (pairs[:, 0] * new.n_labels + pairs[:, 1] for pairs in (before, now))
    return Changes(np.setdiff1d(had, has), int(np.setdiff1d(has, had).size))
