"""Released power in kW: closed forms against the theory notes, integration and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sources.meters.answered import power_error


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.floats(-3, 3), st.floats(-2, 2), st.floats(1e-3, 2))
def test_formulas_of_the_notes(a: float, m: float, s2: float) -> None:
    """Theory notes, section 7, written as they stand there, for a point forecast."""
    result = power_error([[a]], m, s2)
    p = np.exp(a)
    bias = p * (np.exp(m + s2 / 2) - 1)
    mse = p**2 * (np.exp(2 * m + 2 * s2) - 2 * np.exp(m + s2 / 2) + 1)
    scale = p * (np.exp(m + s2) + 1)
    assert abs(result.bias[0, 0] - bias) <= 1e-13 * scale
    assert abs(result.mse[0, 0] - mse) <= 1e-13 * scale**2


@pytest.mark.parametrize(("a", "v", "m", "s2", "c"), [(0.3, 0.0, 0.1, 0.4, 0.0), (-1.0, 0.5, -0.2, 0.3, -0.25)])
def test_by_integration(a: float, v: float, m: float, s2: float, c: float) -> None:
    """Gauss–Hermite integration over the joint law of answer and noise: no log-normal formula in it."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    slope = c / v if v else 0.0
    q = a + np.sqrt(v) * nodes[:, None]
    eta = m + slope * (q - a) + np.sqrt(s2 - slope * c) * nodes[None, :]
    gap = np.exp(q + eta) - np.exp(q)
    weight = weights[:, None] * weights[None, :]
    result = power_error([[a]], m, s2, log_var=v, log_noise_cov=c)
    assert result.bias[0, 0] == pytest.approx((weight * gap).sum(), rel=1e-12)
    assert result.mse[0, 0] == pytest.approx((weight * gap**2).sum(), rel=1e-12)


def test_by_simulation() -> None:
    rng = np.random.default_rng(3)
    a, m, s2 = np.array([[0.2, -1.0]]), np.array([0.1, -0.3]), np.array([0.2, 0.5])
    eta = m + np.sqrt(s2) * rng.standard_normal((400_000, 2))
    gap = np.exp(a) * np.expm1(eta)
    result = power_error(a, m, s2)
    for found, drawn in ((result.bias[0], gap), (result.mse[0], gap**2)):
        five_sigma = 5 * drawn.std(axis=0) / np.sqrt(len(gap))
        assert (np.abs(drawn.mean(axis=0) - found) < five_sigma).all()


def test_small_noise_does_not_cancel() -> None:
    """E(p̃ − p)² = p²s²(1 + O(s²)): the plain formula loses all digits at s² = 1e-17."""
    result = power_error([[0.0]], 0.0, 1e-17)
    assert result.mse[0, 0] == pytest.approx(1e-17, rel=1e-12)
    assert result.bias[0, 0] == pytest.approx(0.5e-17, rel=1e-12)
    assert power_error([[1.0]], 0.0, 0.0).mse[0, 0] == 0
