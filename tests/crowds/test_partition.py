"""Cells are bounded, even and compact; neighbors found through them are nearly always the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from shoal.crowds.partition import cut_into_cells, near_pairs
from shoal.laws import graph as graph_module
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph


def cloud(n: int, d: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 5)) @ rng.standard_normal((5, d)) + 0.3 * rng.standard_normal((n, d))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(1, 200), st.integers(1, 30), st.integers(0, 5), st.booleans())
def test_sizes(n: int, most: int, seed: int, equal: bool) -> None:
    points = np.zeros((n, 3)) if equal else cloud(n, 3, seed)
    cell = cut_into_cells(points, most)
    sizes = np.bincount(cell)
    assert len(sizes) == -(-n // most)
    assert sizes.max() <= most
    assert sizes.max() - sizes.min() <= 1


def test_cells_are_compact() -> None:
    """Clearly fewer squares inside cells than along the widest direction alone, and blobs of equal size are found."""
    points = cloud(600)
    cell = cut_into_cells(points, 25)
    spread = sum(((points[cell == c] - points[cell == c].mean(axis=0)) ** 2).sum() for c in range(cell.max() + 1))
    centered = points - points.mean(axis=0)
    widest = np.linalg.svd(centered, full_matrices=False)[2][0]
    rank = np.argsort(np.argsort(centered @ widest)) // 25
    along = sum(((points[rank == c] - points[rank == c].mean(axis=0)) ** 2).sum() for c in range(rank.max() + 1))
    assert spread < 0.5 * along
    centers = np.array([[0, 0], [50, 0], [0, 80], [70, 70]], dtype=float)
    blobs = np.repeat(centers, 10, axis=0) + np.random.default_rng(1).standard_normal((40, 2))
    assert [len(set(cut_into_cells(blobs, 10)[i : i + 10])) for i in range(0, 40, 10)] == [1, 1, 1, 1]


def test_the_number_of_threads_changes_nothing() -> None:
    points = cloud(3000, 40)
    with threadpool_limits(limits=1):
        alone = cut_into_cells(points, 50)
    with threadpool_limits(limits=2):
        assert np.array_equal(cut_into_cells(points, 50), alone)


def test_all_cells_give_the_exact_neighbors() -> None:
    points = cloud(300)
    away = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(away, np.inf)
    expected = np.argsort(away, axis=1)[:, :4]
    pairs = near_pairs(points, 4, most=20, beside=100).reshape(300, 4, 2)
    assert np.array_equal(pairs[:, :, 0], np.repeat(np.arange(300), 4).reshape(300, 4))
    assert np.array_equal(pairs[:, :, 1], expected)
    # Fewer points in the cells than neighbors asked for: more cells are looked at.
    assert near_pairs(points, 50, most=5, beside=0).shape == (300 * 50, 2)
    same = near_pairs(np.zeros((40, 3)), 3, most=8, beside=1)
    assert (same[:, 0] != same[:, 1]).all()


def test_recall_on_two_thousand_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    spread = np.exp(0.4 * rng.standard_normal((2000, 12)))
    classes = GaussianClasses(cloud(2000), np.einsum("ni,ij->nij", spread, np.eye(12)))
    exact = NeighborGraph.nearest(classes, 5)
    found = near_pairs(classes.embedding(), 5, most=64, beside=16)  # half of the 32 cells
    edges = {tuple(sorted(p)) for p in found.tolist()}
    wanted = {tuple(e) for e in exact.edges.tolist()}
    assert len(edges & wanted) / len(wanted) > 0.95
    # The graph: every label has its neighbors, and where all cells are looked at it is the exact one.
    monkeypatch.setattr(graph_module, "EXACT", 1999)
    near = NeighborGraph.nearest(classes, 5)
    assert np.bincount(near.edges.ravel(), minlength=2000).min() >= 5
    assert np.array_equal(near.edges, exact.edges)
