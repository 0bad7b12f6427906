"""Errors at equal ε: the codebook lies between the bound and the crowd's curve, equal noise far above."""

from __future__ import annotations

import numpy as np
import pytest

import shoal


def test_methods_at_equal_epsilon() -> None:
    answers = np.random.default_rng(1).gamma(2.0, 1.0, (12, 3))
    graph = shoal.NeighborGraph.within_groups([str(i) for i in range(12)], [0] * 6 + [1] * 6)
    grid = [0.5, 1.0, 2.0, 4.0]
    found = shoal.epsilon_frontier(answers, graph, grid, ("mean", "codebook", "white"))
    book, mean = found.rho["codebook"], found.rho["mean"]
    assert (found.lower_bound <= book).all()
    assert book == pytest.approx(found.lower_bound, rel=1e-3)
    assert (np.diff(book) < 0).all()
    assert (book <= mean * (1 + 1e-6)).all()
    assert (found.rho["white"] > mean).all()
    center = [((answers[g] - answers[g].mean(axis=0)) ** 2).mean() for g in (slice(0, 6), slice(6, 12))]
    assert mean == pytest.approx(np.full(4, np.mean(center)), rel=1e-3)


def test_two_labels_in_a_table() -> None:
    graph = shoal.NeighborGraph.complete(["a", "b"])
    found = shoal.epsilon_frontier([[-1.0], [1.0]], graph, [2.0], ("codebook",), scope="table")
    assert found.rho["codebook"][0] == pytest.approx(1 - np.tanh(0.5) ** 2, rel=1e-9)  # each row has ε/2
    with pytest.raises(shoal.InputError, match="epsilon"):
        shoal.epsilon_frontier([[0.0], [1.0]], graph, [0.0])
