"""Mechanisms in other people's accountants: never below ours, and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

import shoal

GRID = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
STEP = 2e-3


@pytest.fixture(scope="module")
def mechanism() -> shoal.Mechanism:
    draw = np.random.default_rng(5)
    roots = 0.3 * draw.standard_normal((3, 2, 2))
    covs = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(2)
    classes = shoal.GaussianClasses(0.5 * draw.standard_normal((3, 2)), covs, labels=["a", "b", "c"])
    return shoal.design(classes, shoal.NeighborGraph.complete(classes.labels), "white", epsilon=1.0, rho=4.0)


@pytest.fixture(scope="module")
def book() -> shoal.Codebook:
    return shoal.codebook([[0.0], [1.0], [3.0]], shoal.NeighborGraph.complete(["a", "b", "c"]), epsilon=1.5)


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_above_and_not_far(mechanism: shoal.Mechanism, scope: str) -> None:
    above = shoal.to_pld(mechanism, scope=scope, interval=STEP)
    for epsilon in GRID:
        ours = mechanism.curve(epsilon, scope=scope)
        assert above.get_delta_for_epsilon(epsilon) >= ours.delta_upper
        assert above.get_delta_for_epsilon(epsilon) <= ours.delta_upper * 1.01 + 1e-6


@pytest.mark.parametrize("times", [2, 16])
def test_composed_there_and_here(mechanism: shoal.Mechanism, times: int) -> None:
    above = shoal.to_pld(mechanism, interval=STEP).self_compose(times)
    for epsilon in (0.5, 1.0, 3.0):
        exact = shoal.privacy_curve([mechanism.output] * times, mechanism.graph, epsilon)
        assert above.get_delta_for_epsilon(epsilon) >= exact.delta
    level = 0.5 * math.sqrt(times)
    exact = shoal.privacy_curve([mechanism.output] * times, mechanism.graph, level)
    assert above.get_delta_for_epsilon(level) <= 1.02 * exact.delta


def test_composed_with_what_is_theirs(mechanism: shoal.Mechanism) -> None:
    """Beside Gaussian noise that dp_accounting accounts for itself: exported and composed, or composed here."""
    theirs = privacy_loss_distribution.from_gaussian_mechanism(2.0, value_discretization_interval=STEP)
    together = shoal.to_pld(mechanism, interval=STEP).compose(theirs)
    labels = mechanism.classes.labels
    # Three labels of which every two are as far apart as the sensitivity.
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(0.75)]])
    noisy = shoal.GaussianClasses(corners, 4.0 * np.eye(2), labels=labels)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = shoal.privacy_curve([mechanism.output, noisy], mechanism.graph, epsilon)
        assert exact.delta <= together.get_delta_for_epsilon(epsilon) <= 1.1 * exact.delta + 1e-6


def test_epsilon_to_delta_and_back(mechanism: shoal.Mechanism, book: shoal.Codebook) -> None:
    for exported in (mechanism, book):
        pld = shoal.to_pld(exported, interval=STEP)
        for epsilon in (0.1, 0.5, 1.0):
            delta = float(pld.get_delta_for_epsilon(epsilon))
            assert pld.get_epsilon_for_delta(delta) == pytest.approx(epsilon, abs=1e-6)
            assert exported.curve(pld.get_epsilon_for_delta(delta)).delta_upper <= delta * (1 + 1e-9)
    for delta in (1e-6, 1e-3, 0.05):
        there = float(shoal.to_pld(mechanism, interval=STEP).get_epsilon_for_delta(delta))
        here = float(shoal.epsilon_at(mechanism.output, mechanism.graph, delta))
        assert here <= there <= here + 0.02


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_a_codebook(book: shoal.Codebook, scope: str) -> None:
    above = shoal.to_pld(book, scope=scope, interval=1e-3)
    top = 1.5 if scope == "answer" else 3.0
    for epsilon in (0.0, 0.5, 1.0, top + 0.1):
        ours = book.curve(epsilon, scope)
        assert above.get_delta_for_epsilon(epsilon) >= ours.delta_upper
    assert above.get_delta_for_epsilon(top + 0.01) <= 1e-9
    for times in (2, 8):
        ours = float(shoal.composed_delta([book] * times, book.graph, 2.0, scope=scope).delta_upper)
        assert ours <= above.self_compose(times).get_delta_for_epsilon(2.0) <= 1.05 * ours + 1e-9


def test_the_extremes() -> None:
    """Everybody gets the same: nothing is lost. Nothing is hidden: everything is."""
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    same = shoal.design(classes, graph, "center", epsilon=1.0, rho=0.5)
    assert shoal.to_pld(same).get_delta_for_epsilon(0.0) <= 1e-9
    bare = shoal.design(classes, graph, "none", epsilon=1.0, rho=0.5)
    with pytest.raises(shoal.InputError, match="cannot compose"):  # dp_accounting ends in a math domain error
        shoal.to_pld(bare)
    far = shoal.design(classes, graph, "white", epsilon=1.0, rho=1e-3)
    with pytest.raises(shoal.InputError, match="larger value for largest"):
        shoal.to_pld(far, largest=1.0)
    near = shoal.design(classes, graph, "white", epsilon=1.0, rho=0.05)
    assert shoal.to_pld(near, largest=30.0).self_compose(2).get_delta_for_epsilon(9.0) > 0.9
