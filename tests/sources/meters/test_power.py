"""Released power in kW: closed forms against integration."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.product.sources.meters.predictive_laws import power_error


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
    bias, mse = power_error([[a]], m, s2, log_var=v, log_noise_cov=c)
    assert bias[0, 0] == pytest.approx((weight * gap).sum(), rel=1e-12)
    assert mse[0, 0] == pytest.approx((weight * gap**2).sum(), rel=1e-12)


def test_small_noise_does_not_cancel() -> None:
    """E(p̃ − p)² = p²s²(1 + O(s²)): the plain formula loses all digits at s² = 1e-17."""
    bias, mse = power_error([[0.0]], 0.0, 1e-17)
    assert mse[0, 0] == pytest.approx(1e-17, rel=1e-12)
    assert bias[0, 0] == pytest.approx(0.5e-17, rel=1e-12)
    assert power_error([[1.0]], 0.0, 0.0)[1][0, 0] == 0
