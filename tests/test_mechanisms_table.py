"""The table of ``python -m benchmarks mechanisms`` on a few labels: who meets the target, and that ours errs least."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks import _rivals as rivals
from benchmarks import mechanisms


def test_pac_noise_has_the_least_trace_for_its_information():
    """Half the sum of λ/e at equal trace: any other noise with these eigenvectors leaves more."""
    rng = np.random.default_rng(0)
    means, cov = rng.standard_normal((6, 3)) * [1.0, 2.0, 5.0], np.diag([0.1, 0.2, 0.3])
    shape = rivals.pac_shape(means, cov)
    spread = np.cov(means.T, bias=True) + cov
    assert np.allclose(shape @ shape, spread, rtol=1e-12)
    values, vectors = np.linalg.eigh(spread)
    own = np.diagonal(vectors.T @ shape @ vectors)
    assert (values / own).sum() == pytest.approx(own.sum(), rel=1e-12)
    for _ in range(20):
        other = own * np.exp(0.1 * rng.standard_normal(3))
        assert (values / other).sum() * other.sum() > (values / own).sum() * own.sum()


@pytest.mark.slow
@pytest.mark.parametrize("constant", [True, False])
def test_every_line_meets_the_target_and_ours_errs_least(constant):
    crowds = mechanisms.random_crowds(constant, size=3, entries=2)
    lines = {name: (error, delta) for name, error, delta, _ in mechanisms.compare_all(crowds, iterations=10)}
    assert set(lines) == {"none", *mechanisms.RIVALS, "microaggregation", *mechanisms.OURS}
    assert math.isinf(lines["none"][0])
    least = min(error for error, _ in lines.values())
    assert lines["transport"][0] <= 1.01 * least
    assert lines["transport"][1] <= min(delta for delta, _ in lines.values() if not math.isnan(delta)) * 1.01
    assert lines["transport"][1] <= mechanisms.DELTA * (1 + 1e-9)
    for own_accounting in ("Wasserstein", "Rényi Pufferfish"):
        assert lines[own_accounting][0] > lines["white"][0], "exact accounting asks for the least"
        assert lines[own_accounting][1] == lines["white"][1], "at one error they are one mechanism"
    for laws in crowds:
        for name, (std, noise) in mechanisms.RIVALS.items():
            level = std(laws)
            covs = noise(laws, level**2)
            assert mechanisms.delta_of(laws, covs) <= mechanisms.DELTA, name
            assert np.trace(covs, axis1=1, axis2=2) == pytest.approx(laws.n_dims * level**2), name
