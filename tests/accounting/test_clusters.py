"""Covariances whose relative eigenvalues lie in clusters: brackets hold the truth, and nothing raises."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shoal
from campaign import Tally, confirmed
from families import clustered
from shoal.accounting.curve import edge_brackets

GRAPH = shoal.NeighborGraph.complete(["a", "b"])


def family(seed: int) -> shoal.GaussianClasses:
    difference = clustered(seed)
    k = len(difference)
    gap = np.random.default_rng(seed).standard_normal(k) * 0.5
    return shoal.GaussianClasses([np.zeros(k), gap], np.array([np.eye(k) + difference, np.eye(k)]), ["a", "b"])


@pytest.mark.parametrize("seed", [871, 5528, 6385, 11740])
def test_brackets_are_narrow(seed: int) -> None:
    found = edge_brackets(family(seed), GRAPH, 8.0)[0]
    assert (found[:, 2] - found[:, 1] < 1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [871, 5528, 6385, 11740])
def test_brackets_hold_the_truth(seed: int) -> None:
    """Against proofs that the checker confirmed: it computes no eigenvalue."""
    classes, tally = family(seed), Tally()
    curve, proof = shoal.privacy_curve(classes, GRAPH, 8.0), confirmed(classes, 8.0, "answer")
    tally.compare(
        "worst", float(curve.log_delta_upper), math.log(curve.delta_lower), proof.delta_lower, proof.delta_upper
    )
    assert not tally.violations
    assert not tally.false_lower
