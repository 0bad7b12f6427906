"""An integrand that dies out and rises again: sums over different steps agree on what is not there."""

from __future__ import annotations

import numpy as np
import pytest

import campaign
import shoal
from shoal.accounting.curve import edge_brackets

#: ε -> ends of δ in both directions, enclosed in ball arithmetic from determinants alone.
TRUTH = {
    1.5693125: ((0.0006610810231805719, 0.0006610810231805726), (2.2466502286522856e-06, 2.2466502286522885e-06)),
    1.5703125: ((0.0006578361067288084, 0.000657836106728809), (2.211829905054368e-06, 2.211829905054371e-06)),
    1.5713125: ((0.0006546061806909582, 0.0006546061806909589), (2.177511764304365e-06, 2.1775117643043675e-06)),
    1.5803125: ((0.0006262009273098353, 0.000626200927309836), (1.8901743172838338e-06, 1.8901743172838361e-06)),
}


@pytest.mark.parametrize("epsilon", TRUTH)
def test_what_rises_again_is_doubt(epsilon: float) -> None:
    """42 composed releases, whose right bend has a second hump of 1e-9 of the first; the bracket was off by 1e-10."""
    rng = np.random.default_rng([16, 15])
    released = []
    for _ in range(int(rng.integers(2, 5))):
        k = int(rng.integers(1, 5))
        half = campaign.rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-2.0, 0.0, k))
        times = int(rng.choice([1, 1, 2, 5, 40, 330]))
        spread = float(rng.choice([0.0, 1e-6, 0.2])) / np.sqrt(times)
        other, gap = campaign.likeness_points(rng, half, spread, float(10.0 ** rng.uniform(-2, 0)) / np.sqrt(times))
        classes = shoal.GaussianClasses(np.array([np.zeros(k), gap]), np.array([half @ half.T, other]))
        released += [classes] * times
    tally = campaign.Tally()
    found = edge_brackets(released, shoal.NeighborGraph.complete(("0", "1")), epsilon)[0]
    for direction in range(2):
        tally.compare("δ", found[direction, 2], found[direction, 1], *TRUTH[epsilon][direction])
        assert found[direction, 2] - found[direction, 1] < 1e-8
    assert tally.violations == []
    assert tally.false_lower == []
