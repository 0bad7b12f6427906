"""Standard normals from cryptographic sources: their exact form, their law, and what is left behind."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shoal.noise.source import RESOLUTION, Resolution, standard_normals


@pytest.mark.parametrize("resolution", [Resolution(), Resolution(2, 3), Resolution(4, 0)])
def test_units(resolution: Resolution) -> None:
    """z = h (n + u + u') with u at the midpoints of the 2^f equal parts of (−½, ½), exactly."""
    f = 2**resolution.fine_bits
    for n, w, v in [(0, 0, 0), (5, f - 1, f - 1), (-3, f // 2, 0), (-(2**20), 0, f - 1)]:
        u, t = (Fraction(2 * x + 1, 2 * f) - Fraction(1, 2) for x in (w, v))
        wanted = (n + u + t) / 2**resolution.scale_bits
        assert Fraction(resolution.combine(n, w, v), 2**resolution.unit_bits) == wanted


def test_law() -> None:
    """Against the normal law: distribution, moments and no correlation between draws. Errors at 1 in 10⁶."""
    found = standard_normals(40_000)
    assert len(found) == 40_000
    z = np.array([float(v) for v in found]) / 2.0**RESOLUTION.unit_bits
    assert stats.kstest(z, "norm").pvalue > 1e-6
    n = len(z)
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 5 * np.sqrt(96 / n)
    assert abs((z[1:] * z[:-1]).mean()) < 5 / np.sqrt(n)


def test_low_bits_are_uniform_and_two_calls_differ() -> None:
    one, two = standard_normals(8000), standard_normals(8000)
    assert not set(one) & set(two)
    low = np.array([v % 16 for v in one])
    assert stats.chisquare(np.bincount(low, minlength=16)).pvalue > 1e-6
    # The bits just below the discrete Gaussian's unit follow the triangular law of two uniform words.
    middle = np.array([(v >> (RESOLUTION.fine_bits - 4)) % 16 for v in one])
    assert len(set(middle.tolist())) == 16


def test_nothing_asked_nothing_drawn() -> None:
    assert standard_normals(0) == []
