"""The noise that is really drawn, at the standard deviation that (ε, δ) needs and at a fifth less."""

import numpy as np
import pytest

import shoal


@pytest.mark.parametrize(("share", "verdict"), [(1.0, "consistent"), (0.8, "violated")])
def test_white_noise_from_the_cryptographic_source(share, verdict):
    classes = shoal.GaussianClasses.deterministic(np.random.default_rng(0).standard_normal((2, 12)))
    graph = shoal.NeighborGraph.complete(classes.labels)
    std = share * shoal.analytic_sigma(shoal.sensitivity(classes.means, graph), 1.0, 1e-2)
    mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=std**2)
    drawn = {
        name: iter(mechanism.release(np.tile(q, (4000, 1)), name)) for name, q in zip("01", classes.means, strict=True)
    }
    result = shoal.testing.check_mechanism(lambda label: next(drawn[label]), classes, graph, 1.0, 1e-2, n=4000)
    assert result.verdict == verdict
    assert result.gaussian
    assert result.power > 0.95
