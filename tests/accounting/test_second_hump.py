"""An integrand that dies out and rises again: sums over different steps agree on what is not there."""

from __future__ import annotations

import numpy as np
import pytest

import campaign
import shoal
from shoal.accounting.curve import edge_brackets


@pytest.mark.parametrize("epsilon", [1.5693125, 1.5703125, 1.5713125, 1.5803125])
def test_what_rises_again_is_doubt(epsilon: float) -> None:
    """42 composed releases, whose right bend has a second hump of 1e-9 of the first; the bracket was off by 1e-10."""
    rng = np.random.default_rng([16, 15])
    released, laws = [], []
    for _ in range(int(rng.integers(2, 5))):
        k = int(rng.integers(1, 5))
        half = campaign.rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-2.0, 0.0, k))
        times = int(rng.choice([1, 1, 2, 5, 40, 330]))
        spread = float(rng.choice([0.0, 1e-6, 0.2])) / np.sqrt(times)
        other, gap = campaign.likeness(rng, half, spread, float(10.0 ** rng.uniform(-2, 0)) / np.sqrt(times))
        classes = shoal.GaussianClasses(np.array([np.zeros(k), gap]), np.array([half @ half.T, other]))
        released += [classes] * times
        a, b = campaign.laws_of(classes)
        laws.append((a, b, times))
    edge = campaign.Edge.of(*laws)
    tally = campaign.Tally()
    found = edge_brackets(released, shoal.NeighborGraph.complete(("0", "1")), epsilon)[0]
    for direction in range(2):
        truth = edge.delta(epsilon, "dp", reverse=direction == 1)
        tally.compare("δ", found[direction, 2], found[direction, 1], truth)
        assert found[direction, 2] - found[direction, 1] < 1e-8
    assert tally.violations == []
    assert tally.false_lower == []
