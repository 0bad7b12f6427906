"""The method "mean": everybody becomes the group's mean, its sum is kept, and no common answer has less mean error."""

from __future__ import annotations

import numpy as np
import pytest

import shoal


@pytest.fixture(scope="module")
def constants() -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    rng = np.random.default_rng(0)
    classes = shoal.GaussianClasses.deterministic(np.exp(rng.standard_normal((11, 3))))
    return classes, shoal.NeighborGraph.within_groups(classes.labels, [0] * 5 + [1] * 6)


def test_constants_meet_in_their_mean(constants: tuple[shoal.GaussianClasses, shoal.NeighborGraph]) -> None:
    classes, graph = constants
    mechanism = shoal.calibrate(classes, graph, "mean", epsilon=0.1, delta=1e-9, scope="table")
    assert mechanism.method == "mean"
    assert mechanism.certificate.delta_upper <= 1e-9
    means = mechanism.output.means
    for rows in (slice(0, 5), slice(5, 11)):
        assert (means[rows] == means[rows][0]).all()
        np.testing.assert_allclose(means[rows][0], classes.means[rows].mean(axis=0), rtol=1e-14)
    center = shoal.calibrate(classes, graph, "center", epsilon=0.1, delta=1e-9, scope="table")
    assert mechanism.rho.mean() < center.rho.mean()
    assert mechanism.rho.max() > center.rho.max()


def test_the_price_is_the_error_of_the_farthest(constants: tuple[shoal.GaussianClasses, shoal.NeighborGraph]) -> None:
    classes, graph = constants
    away = [
        ((classes.means[rows] - classes.means[rows].mean(axis=0)) ** 2).mean(axis=1).max()
        for rows in (slice(0, 5), slice(5, 11))
    ]
    assert shoal.perfect_rho(classes, graph, "mean") == pytest.approx(max(away), rel=1e-9)
    assert shoal.perfect_rho(classes, graph, "mean") >= shoal.perfect_rho(classes, graph)


def test_random_answers_meet_in_the_barycenter() -> None:
    """One entry: the mean of the means, and the square of the mean deviation."""
    classes = shoal.GaussianClasses([[0.0], [1.0], [5.0]], [[[1.0]], [[4.0]], [[9.0]]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    rho = shoal.perfect_rho(classes, graph, "mean")
    assert rho == pytest.approx(9.0 + 1.0, rel=1e-9)  # the label at 5 with deviation 3, to 2 with deviation 2
    mechanism = shoal.design(classes, graph, "mean", 1.0, rho * (1 + 1e-7))
    np.testing.assert_allclose(mechanism.output.means, 2.0, rtol=1e-6)
    np.testing.assert_allclose(mechanism.output.covs, 4.0, rtol=1e-5)
