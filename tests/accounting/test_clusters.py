"""Covariances whose relative eigenvalues lie in clusters: brackets hold the truth, and nothing raises."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

import determinants
import shoal
from families import clustered
from shoal.accounting.curve import edge_brackets

GRAPH = shoal.NeighborGraph.complete(["a", "b"])


@pytest.mark.parametrize("seed", [871, 5528, 6385, 11740])
def test_brackets_hold_the_truth(seed: int) -> None:
    """Against determinants and solves in ball arithmetic: no eigenvalue is computed there."""
    difference = clustered(seed)
    k = len(difference)
    gap = np.random.default_rng(seed).standard_normal(k) * 0.5
    covs = np.array([np.eye(k) + difference, np.eye(k)])
    classes = shoal.GaussianClasses([np.zeros(k), gap], covs, ["a", "b"])
    edge = determinants.Edge.of((determinants.law(np.zeros(k), covs[0]), determinants.law(gap, covs[1])))
    found = edge_brackets(classes, GRAPH, 8.0)[0]
    for direction in range(2):
        truth = edge.delta(8.0, reverse=bool(direction))
        _, lower, upper = found[direction]
        with determinants.bits(128):
            assert not arb(float(upper)).exp() < truth.lower
            assert not arb(float(lower)).exp() > truth.upper
        assert upper - lower < 1e-9
