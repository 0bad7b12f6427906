"""Algorithm 1 as printed: it ends at once, and the repaired one is better."""

import numpy as np
import pytest

import shoal
from evidence.paper.as_printed import algorithm_1_as_printed


@pytest.mark.parametrize("primes", [False, True])
def test_it_spends_the_budget_and_ends_after_its_first_step(primes):
    rng = np.random.default_rng(0)
    classes = shoal.GaussianClasses(rng.standard_normal((4, 2)), np.eye(2) * 0.5)
    graph = shoal.NeighborGraph.complete(classes.labels)
    made = algorithm_1_as_printed(classes, graph, 1.0, primes=primes)
    assert made.steps == 1
    np.testing.assert_allclose(np.trace(made.noise_covs, axis1=1, axis2=2), 1.0)
    assert (np.linalg.eigvalsh(made.noise_covs) >= -1e-12).all()
    laws = shoal.GaussianClasses(classes.means, classes.covs + made.noise_covs)
    repaired = shoal.design(classes, graph, "paper", epsilon=1.0, rho=1.0, rho_is_total=True)
    assert repaired.certificate.delta_upper <= float(shoal.privacy_curve(laws, graph, 1.0).delta_upper) * (1 + 1e-9)
