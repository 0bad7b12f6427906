"""Which values can be released."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.noise.grid import LIMIT, NoiseGrid


@pytest.mark.parametrize("exponent", [-1074, -60, -3, 0, 40, 970])
def test_holds_whole_multiples_within_reach_and_nothing_else(exponent: int) -> None:
    grid = NoiseGrid((exponent,))
    step = math.ldexp(1.0, exponent)
    inside = np.array([[0.0], [-0.0], [step], [-7 * step], [LIMIT * step], [-LIMIT * step]])
    assert grid.contains(inside)
    outside = [(LIMIT + 1) * step, 2.0 * LIMIT * step, math.nan, math.inf, -math.inf]
    if exponent > -1074:
        outside += [step / 2, 1.5 * step, (LIMIT / 4 + 0.5) * step, 5e-324]
    for value in outside:
        assert not grid.contains(np.array([[step], [value]])), value


def test_every_entry_has_its_own_step() -> None:
    grid = NoiseGrid((0, -1))
    assert grid.contains(np.array([[2.0, 0.5]]))
    assert not grid.contains(np.array([[0.5, 2.0]]))
