"""Several releases about one label: exact composition, and stacking."""

import numpy as np
import pytest

import shoal
from families import complete, equal_covariance_delta, random_family, random_laws
from shoal.accounting.curve import edge_brackets

NOTIONS = ["dp", "pdp", "pdp-two-sided", "chernoff"]


def log_deltas(released, graph, epsilon, notion="dp"):
    return edge_brackets(released, graph, epsilon, notion)[..., 0]


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("epsilon", [0.0, 2.0, 12.0])
def test_joint_of_independent_parts_equals_composition(epsilon, notion):
    parts = [random_family(4, 2, 0), random_family(4, 3, 1), random_family(4, 1, 2)]
    graph = complete(parts[0])
    joint = shoal.GaussianClasses.joint(parts)
    composed = log_deltas(parts, graph, epsilon, notion)
    assert log_deltas(joint, graph, epsilon, notion) == pytest.approx(composed, rel=1e-10, abs=1e-10)


def test_repeats_are_counted_however_they_are_written():
    means, covs = random_laws(3, 2, 4)
    a, twin = shoal.GaussianClasses(means, covs), shoal.GaussianClasses(means, covs)
    other = random_family(3, 4, 5)
    graph = complete(a)
    expected = log_deltas([a, a, other, a], graph, 4.0)
    assert log_deltas([a, other, twin, twin], graph, 4.0) == pytest.approx(expected, rel=1e-11)
    assert log_deltas([a], graph, 4.0) == pytest.approx(log_deltas(a, graph, 4.0), rel=1e-14)


@pytest.mark.parametrize("times", [10, 100, 1000])
def test_equal_covariances_compose_by_the_root_of_the_count(times):
    classes = shoal.GaussianClasses([[0.0], [0.1]], np.eye(1))
    graph = complete(classes)
    for epsilon in (0.1, 1.0, 5.0):
        for notion in NOTIONS[:3]:
            found = shoal.privacy_curve([classes] * times, graph, epsilon, notion).delta
            closed = equal_covariance_delta(0.1 * times**0.5, epsilon, notion)
            assert found == pytest.approx(closed, rel=1e-9, abs=1e-15)


def test_different_forms_compose():
    """Shared, diagonal and full families side by side have spectra of different lengths."""
    means, covs = random_laws(3, 3, 8)
    shared = shoal.GaussianClasses(means, covs[0])
    diagonal = shoal.GaussianClasses.diagonal(means, np.abs(means) + 0.5)
    full = random_family(3, 2, 9)
    graph = complete(shared)
    joint = shoal.GaussianClasses.joint([shared, diagonal, full])
    composed = log_deltas([shared, diagonal, full], graph, 2.0)
    assert log_deltas(joint, graph, 2.0) == pytest.approx(composed, rel=1e-10)
