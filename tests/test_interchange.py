"""Mechanisms in other people's accountants: never below ours above, never above it below."""

from __future__ import annotations

import numpy as np
import pytest

import shoal

GRID = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)


@pytest.fixture(scope="module")
def mechanism() -> shoal.Mechanism:
    draw = np.random.default_rng(5)
    roots = 0.3 * draw.standard_normal((3, 2, 2))
    covs = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(2)
    classes = shoal.GaussianClasses(0.5 * draw.standard_normal((3, 2)), covs, labels=["a", "b", "c"])
    return shoal.design(classes, shoal.NeighborGraph.complete(classes.labels), "white", epsilon=1.0, rho=4.0)


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_above_and_below(mechanism: shoal.Mechanism, scope: str) -> None:
    above = shoal.to_pld(mechanism, scope=scope, interval=2e-3)
    below = shoal.to_pld(mechanism, scope=scope, interval=2e-3, pessimistic=False)
    for epsilon in GRID:
        ours = mechanism.curve(epsilon, scope=scope)
        assert above.get_delta_for_epsilon(epsilon) >= ours.delta_upper
        assert below.get_delta_for_epsilon(epsilon) <= ours.delta_upper
        assert above.get_delta_for_epsilon(epsilon) <= ours.delta_upper * 1.01 + 1e-6
    assert below.get_delta_for_epsilon(0.5) >= 0.9 * mechanism.curve(0.5, scope=scope).delta


def test_composed_there_and_here(mechanism: shoal.Mechanism) -> None:
    above = shoal.to_pld(mechanism, interval=2e-3).self_compose(4)
    below = shoal.to_pld(mechanism, interval=2e-3, pessimistic=False).self_compose(4)
    for epsilon in (0.5, 1.0, 3.0):
        exact = shoal.privacy_curve([mechanism.output] * 4, mechanism.graph, epsilon)
        assert above.get_delta_for_epsilon(epsilon) >= exact.delta
        assert below.get_delta_for_epsilon(epsilon) <= exact.delta_upper


def test_a_codebook() -> None:
    graph = shoal.NeighborGraph.complete(["a", "b", "c"])
    book = shoal.codebook([[0.0], [1.0], [3.0]], graph, epsilon=1.5)
    above = shoal.to_pld(book, interval=1e-3)
    for epsilon in (0.0, 0.5, 1.0, 1.6):
        assert above.get_delta_for_epsilon(epsilon) >= book.curve(epsilon).delta_upper
    assert above.get_delta_for_epsilon(1.51) <= 1e-9
    measurement = shoal.to_opendp(book, [[0.0], [1.0], [3.0]])
    assert measurement("b")[0] in book.curves("b").ravel().tolist()


def test_a_measurement(mechanism: shoal.Mechanism) -> None:
    measurement = shoal.to_opendp(mechanism, mechanism.classes.means)
    assert len(measurement("a")) == 2
    for epsilon in GRID:
        assert measurement.map(1).delta(epsilon) >= mechanism.curve(epsilon).delta_upper
    assert measurement.map(0).delta(0.0) == 0.0
    parts = shoal.NeighborGraph.within_groups(["a", "b", "c", "d"], [0, 0, 1, 1])
    four = shoal.GaussianClasses.deterministic(np.eye(4), labels=["a", "b", "c", "d"])
    grouped = shoal.design(four, parts, "white", epsilon=1.0, rho=4.0)
    with pytest.raises(shoal.InputError, match="knows no groups"):
        shoal.to_opendp(grouped, four.means)
