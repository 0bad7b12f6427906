"""Mechanisms in other people's accountants: never below ours, and back."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from opendp.combinators import make_composition, make_fix_delta

import shoal
from peer_cases import law, mp, mpf
from shoal.mechanism.interchange import _profile

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


def test_a_measurement(mechanism: shoal.Mechanism) -> None:
    measurement = shoal.to_opendp(mechanism, mechanism.classes.means)
    released = np.array([measurement("a") for _ in range(16)])
    assert mechanism.can_release(released)
    assert len(np.unique(released, axis=0)) == 16
    profile = measurement.map(1)
    for epsilon in GRID:
        assert profile.delta(epsilon) >= mechanism.curve(epsilon).delta_upper
    assert measurement.map(0).delta(0.0) == 0.0
    with pytest.raises(Exception, match="label is not one of this"):
        measurement("nobody")
    parts = shoal.NeighborGraph.within_groups(["a", "b", "c", "d"], [0, 0, 1, 1])
    four = shoal.GaussianClasses.deterministic(np.eye(4), labels=["a", "b", "c", "d"])
    grouped = shoal.design(four, parts, "white", epsilon=1.0, rho=4.0)
    with pytest.raises(shoal.InputError, match="knows no groups"):
        shoal.to_opendp(grouped, four.means)


def test_a_measurement_there_and_back(mechanism: shoal.Mechanism) -> None:
    """ε for a δ by OpenDP's own search in the profile, and two of them composed there: never less than here."""
    measurement = shoal.to_opendp(mechanism, mechanism.classes.means)
    profile = measurement.map(1)
    for delta in (1e-6, 1e-3, 0.05):
        there = profile.epsilon(delta)
        here = float(shoal.epsilon_at(mechanism.output, mechanism.graph, delta))
        assert here <= there <= here * (1 + 1e-6)
        assert profile.delta(there) <= delta
    fixed = make_fix_delta(measurement, 1e-6)
    assert fixed.map(1) == (profile.epsilon(1e-6), 1e-6)
    twice = make_composition([fixed, fixed])
    epsilon, delta = twice.map(1)
    assert delta >= 2e-6
    assert shoal.privacy_curve([mechanism.output] * 2, mechanism.graph, epsilon).delta_upper <= delta
    assert [len(answer) for answer in twice("b")] == [2, 2]


def test_a_codebook_as_a_measurement(book: shoal.Codebook) -> None:
    measurement = shoal.to_opendp(book, [[0.0], [1.0], [3.0]])
    assert measurement("b")[0] in book.curves("b").ravel().tolist()
    assert measurement.map(1).delta(1.5) == 0.0
    pure = measurement.map(1).epsilon(0.0)
    assert pure == pytest.approx(1.5, rel=1e-9)
    # Odds are integers rounded to the safe side, so that a little less than ε may do; never less than their ratio.
    ratios = [
        p / q for a, b in itertools.permutations("abc", 2) for p, q in zip(law(book, a), law(book, b), strict=True)
    ]
    assert max(ratios) <= mp.exp(mpf(pure))


@pytest.mark.parametrize("scope", ["answer", "table"])
@pytest.mark.parametrize("times", [1, 3])
def test_finite_precision_is_counted_for_every_answer(scope: str, times: int) -> None:
    """What is handed on is no less than the curve of all that is released, where finite precision is most of it."""
    classes = shoal.GaussianClasses.deterministic([[0.0], [1e-3]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    one = shoal.design(classes, graph, "white", epsilon=1.0, rho=4.0, scope=scope, times=times)
    for epsilon in (0.5, 1.0, 3.0):
        handed_on = _profile(one, np.array([epsilon]), scope)[0]
        assert handed_on >= one.released_curve(epsilon, scope=scope).delta_upper > 0
