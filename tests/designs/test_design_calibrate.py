"""calibrate ends on the safe side and wastes little; frontier never rises; the lower bound lies below everything."""

from __future__ import annotations

import numpy as np
import pytest
from design_cases import family

import shoal
from shoal import GaussianClasses, NeighborGraph
from shoal.designs.methods import METHODS


@pytest.mark.parametrize("method", ["white", "center", "paper"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (0.5, 1e-6), (3.0, 0.2)])
def test_calibration_is_one_sided_and_not_wasteful(method: str, epsilon: float, delta: float) -> None:
    for seed in (0, 1):
        classes, graph = family(seed, 3, 2)
        mechanism = shoal.calibrate(classes, graph, method, epsilon, delta)
        assert mechanism.certificate.delta_upper <= delta
        if method != "paper" and mechanism.method != "none":
            less = shoal.design(classes, graph, method, epsilon, 0.98 * mechanism.rho.max())
            assert less.certificate.delta_upper > delta


def test_calibration_of_constants() -> None:
    """White noise on two constants is the analytic Gaussian mechanism."""
    classes = GaussianClasses.deterministic([[0.0, 0.0], [0.6, 0.8]])
    graph = NeighborGraph.complete(classes.labels)
    mechanism = shoal.calibrate(classes, graph, "white", 1.0, 1e-5, tolerance=1e-6)
    assert mechanism.certificate.delta_upper <= 1e-5
    assert np.sqrt(mechanism.rho.max()) == pytest.approx(shoal.analytic_sigma(1.0, 1.0, 1e-5), rel=1e-5)
    moved = shoal.calibrate(classes, graph, "additive", 1.0, 1e-5, tolerance=0.02, iterations=8)
    assert moved.certificate.delta_upper <= 1e-5
    assert moved.rho.max() <= 0.125 * (1 + 1e-6)


def test_nothing_is_spent_where_nothing_is_needed() -> None:
    classes = GaussianClasses([[0.0], [0.01]], np.eye(1))
    mechanism = shoal.calibrate(classes, NeighborGraph.complete(classes.labels), "transport", 1.0, 0.1)
    assert mechanism.method == "none"
    assert mechanism.rho.max() == 0


@pytest.mark.parametrize("method", METHODS)
def test_frontier_never_rises(method: str) -> None:
    classes, graph = family(5, 3, 2)
    budgets = [0.4, 0.1, 0.2]
    found = shoal.frontier(classes, graph, method, 1.0, budgets, iterations=3)
    np.testing.assert_array_equal(found.rho, sorted(budgets))
    if method != "paper":  # its surrogate promises nothing about δ
        assert (np.diff(found.delta_upper[method]) <= 0).all()
    for mechanism, budget in zip(found.mechanisms[method], found.rho, strict=True):
        assert mechanism.rho.max() <= budget


@pytest.mark.parametrize(
    ("method", "scope"), [("white", "table"), ("paper", "answer"), ("center", "table"), ("mean", "table")]
)
def test_a_weaker_guarantee_never_costs_more(method: str, scope: str) -> None:
    rng = np.random.default_rng(11)
    means, roots = rng.standard_normal((4, 2)), rng.standard_normal((4, 2, 2))
    families = [
        shoal.GaussianClasses.deterministic(means),
        shoal.GaussianClasses(0.4 * means, roots @ roots.transpose(0, 2, 1)),
    ]
    for classes in families:
        graph = shoal.NeighborGraph.complete(classes.labels)
        spent = {
            (epsilon, delta): shoal.calibrate(classes, graph, method, epsilon, delta, scope=scope, tolerance=0.02).rho
            for epsilon, delta in [(0.3, 1e-6), (1.0, 1e-6), (4.0, 1e-6), (4.0, 0.01)]
        }
        largest = [float(rho.max()) for rho in spent.values()]
        assert largest == sorted(largest, reverse=True)
