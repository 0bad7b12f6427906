"""NeighborGraph: builders, questions, and arrays instead of objects."""

import tracemalloc

import numpy as np
import pytest

import shoal
from families import random_family

NAMES = list("abcde")


def pairs_of(graph):
    return {(graph.labels[i], graph.labels[j]) for i, j in graph.edges}


def test_edges_are_canonical_whatever_the_input():
    expected = shoal.NeighborGraph.from_edges(NAMES, [("a", "b"), ("b", "d")])
    again = shoal.NeighborGraph.from_edges(NAMES, [("d", "b"), ("b", "a"), ("a", "b")])
    assert np.array_equal(expected.edges, [[0, 1], [1, 3]])
    assert np.array_equal(again.edges, expected.edges)
    assert not again.edges.flags.writeable
    assert again.edges.dtype.kind == "i"


def test_complete_has_every_pair():
    graph = shoal.NeighborGraph.complete(NAMES)
    assert graph.n_edges == 10
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert len(pairs_of(graph)) == 10


def test_complete_over_2000_labels_is_arrays():
    """Two million edges: below 200 MB on the way, 16 MB kept; Python objects would take far more."""
    names = [str(i) for i in range(2000)]
    tracemalloc.start()
    graph = shoal.NeighborGraph.complete(names)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert graph.n_edges == 1_999_000
    assert graph.edges.nbytes == 16 * graph.n_edges // 2
    assert kept < 20e6
    assert peak < 200e6


def test_within_groups():
    graph = shoal.NeighborGraph.within_groups(NAMES, [1, "x", 1, "x", 1])
    assert pairs_of(graph) == {("a", "c"), ("a", "e"), ("c", "e"), ("b", "d")}
    assert shoal.NeighborGraph.within_groups(NAMES, NAMES).n_edges == 0


def test_nearest_joins_the_most_alike():
    classes = shoal.GaussianClasses(np.array([[0.0], [0.1], [10.0], [10.3], [11.0]]), np.eye(1), NAMES)
    graph = shoal.NeighborGraph.nearest(classes, 1)
    assert pairs_of(graph) == {("a", "b"), ("c", "d"), ("d", "e")}


def test_nearest_sees_covariances_and_ties():
    variances = np.array([[1.0], [4.0], [4.1], [1.1]])
    graph = shoal.NeighborGraph.nearest(shoal.GaussianClasses.diagonal(np.zeros((4, 1)), variances), 1)
    assert pairs_of(graph) == {("0", "3"), ("1", "2")}
    tied = shoal.GaussianClasses(np.zeros((30, 2)), np.eye(2))
    degrees = np.bincount(shoal.NeighborGraph.nearest(tied, 2).edges.ravel(), minlength=30)
    assert (degrees >= 2).all()


def test_nearest_against_all_distances():
    classes = random_family(25, 3, 6)
    values, vectors = np.linalg.eigh(classes.covs)
    roots = (vectors * np.sqrt(values)[:, None]) @ vectors.transpose(0, 2, 1)
    gaps = np.linalg.norm(classes.means[:, None] - classes.means, axis=2) ** 2
    gaps += np.linalg.norm(roots[:, None] - roots, axis=(2, 3)) ** 2
    np.fill_diagonal(gaps, np.inf)
    expected = {tuple(sorted((i, int(j)))) for i in range(25) for j in np.argsort(gaps[i])[:3]}
    assert {tuple(edge) for edge in shoal.NeighborGraph.nearest(classes, 3).edges.tolist()} == expected


def test_components():
    graph = shoal.NeighborGraph.from_edges(NAMES, [("a", "b"), ("b", "c"), ("d", "e")])
    assert graph.components[0] == graph.components[1] == graph.components[2] != graph.components[3]
    assert graph.components[3] == graph.components[4]
    assert graph.neighbors("b") == ("a", "c")


@pytest.mark.parametrize("labels", [["a"], []])
def test_too_few_labels_for_an_edge(labels):
    assert shoal.NeighborGraph.complete(labels).n_edges == 0


def test_from_edges_takes_edges_alone():
    graph = shoal.NeighborGraph.from_edges([("b", "a"), ("c", "b"), ("a", "b")])
    assert graph.labels == ("b", "a", "c")
    assert pairs_of(graph) == {("b", "a"), ("b", "c")}
    assert shoal.NeighborGraph.from_edges([(1, 2)]).labels == ("1", "2")
    for labels in (["a", "b"], ["ab", "cd"], [("a", "b"), ("c",)], [3]):
        with pytest.raises(shoal.InputError, match=r"two labels each.*from_edges\(labels, pairs\)"):
            shoal.NeighborGraph.from_edges(labels)


@pytest.mark.parametrize("seed", range(5))
def test_from_distance_joins_all_pairs_within_and_no_other(seed):
    rng = np.random.default_rng(seed)
    points, within = rng.standard_normal((40, 2)), 0.7
    graph = shoal.NeighborGraph.from_distance(points, within)
    expected = {(i, j) for i in range(40) for j in range(i + 1, 40) if np.linalg.norm(points[i] - points[j]) <= within}
    assert {tuple(edge) for edge in graph.edges.tolist()} == expected


def test_from_distance_of_laws_ties_and_refusals():
    laws = random_family(4, 6, 2)
    apart = np.linalg.norm(laws.embedding()[0] - laws.embedding()[1])
    graph = shoal.NeighborGraph.from_distance(laws, apart)
    assert graph.labels == laws.labels
    assert [0, 1] in graph.edges.tolist()
    same = shoal.NeighborGraph.from_distance([[1.0], [1.0], [4.0]], 0.0, labels=NAMES[:3])
    assert pairs_of(same) == {("a", "b")}
    for points, within, message in (([1.0, 2.0], 1.0, "points must have 2"), ([[1.0]], -1.0, "within must not be")):
        with pytest.raises(shoal.InputError, match=message):
            shoal.NeighborGraph.from_distance(points, within)
