"""Mixtures: the bound is never below direct integration, and exact where it must be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import shoal
from shoal.mechanism.mixtures import SHIFTS, _shared_out

GRAPH = shoal.NeighborGraph.complete(["a", "b"])


def _family(weights: list[list[float]], means: list[list[list[float]]], covs: list) -> shoal.GaussianMixtureClasses:
    owner = np.repeat([0, 1], [len(w) for w in weights])
    parts = shoal.GaussianClasses(np.concatenate([np.array(m, dtype=float) for m in means]), covs)
    return shoal.GaussianMixtureClasses(("a", "b"), np.concatenate(weights), parts, owner)


def _lower_end(family: shoal.GaussianMixtureClasses, source: int, epsilon: float) -> float:
    """P(S) − e^ε Q(S) with exact probabilities of intervals, in one dimension: never above H_ε."""
    grid = np.linspace(-30.0, 30.0, 6001)
    ends = np.concatenate([[-np.inf], 0.5 * (grid[1:] + grid[:-1]), [np.inf]])
    density, mass = [], []
    for label in (source, 1 - source):
        own = family.owner == label
        law = stats.norm(family.components.means[own], np.sqrt(family.components.covs[own][:, :, 0]))
        density.append(family.weights[own] @ law.pdf(grid))
        mass.append(np.diff(family.weights[own] @ law.cdf(ends)))
    chosen = density[0] > math.exp(epsilon) * density[1]
    return float(mass[0][chosen].sum() - math.exp(epsilon) * mass[1][chosen].sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_never_below_integration_in_one_dimension(epsilon):
    rng = np.random.default_rng(7)
    for _ in range(3):
        sizes = rng.integers(1, 4, size=2)
        family = _family(
            [rng.dirichlet(np.full(n, 2.0)) for n in sizes],
            [rng.normal(size=(n, 1)) for n in sizes],
            rng.uniform(1.0, 4.0, size=(sizes.sum(), 1, 1)),
        )
        true = max(_lower_end(family, 0, epsilon), _lower_end(family, 1, epsilon))
        assert true <= family.delta(GRAPH, epsilon).delta_upper <= 1


def test_never_below_integration_in_two_dimensions():
    rng = np.random.default_rng(8)
    family = _family([[0.4, 0.6], [0.7, 0.3]], rng.normal(size=(2, 2, 2)).tolist(), np.stack([np.eye(2)] * 4) * 2.0)
    axis, step = np.linspace(-9.0, 9.0, 361, retstep=True)
    points = np.stack(np.meshgrid(axis, axis), axis=-1)
    density = []
    for label in (0, 1):
        own = np.flatnonzero(family.owner == label)
        laws = [stats.multivariate_normal(family.components.means[i], family.components.covs[i]) for i in own]
        density.append(sum(family.weights[i] * law.pdf(points) for i, law in zip(own, laws, strict=True)))
    for epsilon in (0.0, 0.5):
        sums = [np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * step**2 for p, q in (density, density[::-1])]
        true = max(sums) * (1 - 1e-3)  # the sum's own error, outward
        assert true <= family.delta(GRAPH, epsilon).delta_upper <= 1


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_one_component_is_exact_and_equal_mixtures_cannot_be_told_apart(scope):
    single = _family([[1.0], [1.0]], [[[0.0]], [[0.7]]], [[1.0]])
    exact = shoal.privacy_curve(
        shoal.GaussianClasses([[0.0], [0.7]], [[1.0]], ["a", "b"]), GRAPH, 0.5, scope=scope
    ).delta_upper
    assert exact <= single.delta(GRAPH, 0.5, scope=scope).delta_upper <= exact * (1 + 1e-6) + 1e-12
    same = _family([[0.3, 0.7], [0.7, 0.3]], [[[0.0], [9.0]], [[9.0], [0.0]]], [[1.0]])
    assert same.delta(GRAPH, 0.5, scope=scope).delta_upper <= 1e-9


def test_unequal_weights_are_worth_their_ratio():
    """The same two far components with other weights: δ = (w − e^ε v)₊, which a coupling alone does not see."""
    family = _family([[0.6, 0.4], [0.4, 0.6]], [[[0.0], [99.0]], [[0.0], [99.0]]], [[1.0]])
    assert family.delta(GRAPH, 0.0).delta_upper == pytest.approx(0.2, abs=0.02)
    assert family.delta(GRAPH, 0.5).delta_upper <= 1e-9
    coupled = _shared_out(np.array([0.6, 0.4]), np.array([0.4, 0.6]), np.ones((len(SHIFTS), 2, 2)))
    assert coupled == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["white", "center"])
def test_released_mixtures_follow_the_mechanism(method):
    means = [[[0.0, 0.0], [5.0, 5.0]], [[1.0, 1.0], [6.0, 6.0]]]
    family = _family([[0.5, 0.5], [0.4, 0.6]], means, np.stack([np.eye(2)] * 4))
    mechanism = shoal.design(family.gaussian, GRAPH, method, epsilon=1.0, rho=20.0)
    released = family.through(mechanism)
    np.testing.assert_allclose(released.gaussian.means, mechanism.output.means, atol=1e-9)
    np.testing.assert_allclose(released.gaussian.covs, mechanism.output.covs, rtol=1e-9)
    found = released.delta(GRAPH, 1.0)
    assert mechanism.classes.labels == family.labels
    assert found.delta_upper < family.delta(GRAPH, 1.0).delta_upper
    assert found.delta_upper >= found.delta_upper - released.tv.max() > 0


def test_refusals():
    family = _family([[1.0], [1.0]], [[[0.0]], [[0.7]]], [[1.0]])
    with pytest.raises(shoal.InputError, match="graph must have the labels"):
        family.delta(shoal.NeighborGraph.complete(["x", "y"]), 1.0)


@pytest.mark.parametrize("weights", [[math.nan, 1.0], [math.nan, math.nan], [math.inf, 1.0], [-0.5, 1.0], [0.4, 1.0]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    laws = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]])
    with pytest.raises(shoal.InputError, match="weights must be numbers"):
        shoal.GaussianMixtureClasses(("a", "b"), np.array(weights), laws, np.arange(2))


@pytest.mark.parametrize("scope", ["answer", "table"])
@pytest.mark.parametrize("off", [9e-10, -9e-10, 2.0**-53])
def test_weights_that_miss_one_are_counted(scope: str, off: float) -> None:
    """Far-apart components, so that δ(0) of the normalized laws is a distance of their weights, in fractions."""
    parts = shoal.GaussianClasses([[-50.0], [50.0], [-50.0], [50.0]], [[1.0]])
    family = shoal.GaussianMixtureClasses(
        ("a", "b"), np.array([0.5, 0.5, 0.5 + off, 0.5]), parts, np.array([0, 0, 1, 1])
    )
    one, other = Fraction(1, 2), Fraction(0.5 + off) / (Fraction(0.5 + off) + Fraction(1, 2))
    distance = abs(one - other)
    if scope == "table":
        distance = abs(one * (1 - other) - other * (1 - one))  # both rows known: left and right, or right and left
    assert Fraction(family.delta(shoal.NeighborGraph.complete(family.labels), 0.0, scope=scope).delta_upper) >= distance


def test_one_component_with_a_weight_below_one_is_the_whole_law() -> None:
    laws = shoal.GaussianClasses([[0.0], [3.0]], [[1.0]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(laws.labels)
    family = shoal.GaussianMixtureClasses(laws.labels, np.array([1 - 9e-10, 1 - 9e-10]), laws, np.arange(2))
    for epsilon in (0.0, 1.0, 3.0):
        exact = shoal.privacy_curve(laws, graph, epsilon).delta_lower
        assert family.delta(graph, epsilon).delta_upper >= exact


def test_what_was_not_exact_before_a_mechanism_is_not_after_it() -> None:
    laws = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(laws.labels)
    mechanism = shoal.design(laws, graph, "white", epsilon=1.0, rho=5.0)
    family = shoal.GaussianMixtureClasses(laws.labels, np.ones(2), laws, np.arange(2), tv=np.array([1e-3, 0.0]))
    found = family.through(mechanism).tv
    assert found is not None
    assert (found >= np.array([1e-3, 0.0]) + mechanism.precision_tv).all()
