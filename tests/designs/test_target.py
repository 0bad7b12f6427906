"""Meeting a target group by group, and what it costs in kW."""

from __future__ import annotations

import numpy as np
import pytest

import shoal
from shoal.designs import descent
from shoal.designs.design import design
from shoal.designs.target import meet, part_of
from shoal.meters.traces import power_accuracy


@pytest.fixture(scope="module")
def two_groups():
    rng = np.random.default_rng(5)
    means = np.concatenate([rng.normal(0, 0.2, (4, 3)), rng.normal(2, 1.0, (3, 3)), [[9.0, 9.0, 9.0]]])
    covs = np.array([np.eye(3) * v for v in rng.uniform(0.2, 0.4, 8)])
    classes = shoal.GaussianClasses(means, covs)
    return classes, shoal.NeighborGraph.within_groups(classes.labels, ["a"] * 4 + ["b"] * 3 + ["alone"])


@pytest.mark.parametrize("method", ["transport", "additive", "center", "white"])
@pytest.mark.parametrize("delta", [0.05, 1e-6])
def test_the_target_is_met(two_groups, method, delta):
    mechanism = meet(*two_groups, method=method, epsilon=1.0, delta=delta, seconds=2.0)
    assert mechanism.certificate.delta_upper <= delta
    assert mechanism.method == method
    # The group that is easy to hide in does not pay for the other, and nobody pays for the one without neighbors.
    assert mechanism.rho[:4].max() < mechanism.rho[4:7].max()
    assert mechanism.rho[7] == 0
    assert (mechanism.weighted_rho <= mechanism.budget).all()


def test_less_error_than_perfection_where_the_target_is_loose(two_groups):
    mechanism = meet(*two_groups, method="transport", epsilon=1.0, delta=0.2, seconds=4.0)
    assert mechanism.rho.max() < shoal.perfect_rho(*two_groups)


def test_constants_meet_in_their_center():
    classes = shoal.GaussianClasses.deterministic([[0.0, 0.0], [1.0, 0.0], [0.2, 0.7]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = meet(classes, graph, method="transport", epsilon=1.0, delta=1e-5, seconds=1.0)
    assert mechanism.certificate.delta_upper <= 1e-5
    assert mechanism.rho.max() == pytest.approx(shoal.perfect_rho(classes, graph), rel=0.05)


def test_nothing_is_done_where_nothing_is_needed(two_groups):
    classes, graph = two_groups
    same = shoal.GaussianClasses(np.zeros((8, 3)), np.eye(3), classes.labels)
    mechanism = meet(same, graph, method="transport", epsilon=1.0, delta=1e-3, seconds=1.0)
    assert mechanism.rho.max() == 0


def test_below_finite_precision_is_unreachable(two_groups):
    with pytest.raises(shoal.UnreachableError, match="larger delta"):
        meet(*two_groups, method="transport", epsilon=1.0, delta=1e-80, seconds=1.0)


@pytest.mark.parametrize("limit", [{"seconds": 5.0}, {"iterations": 3}])
def test_an_interrupt_goes_through(two_groups, monkeypatch, limit):
    """A search of its own ends with its best; one that is part of a run ends the run."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(descent, "minimize", interrupted)
    assert design(*two_groups, "transport", 1.0, 0.1).method == "transport"
    for method in ("transport", "covariance"):
        with pytest.raises(KeyboardInterrupt):
            meet(*two_groups, method=method, epsilon=1.0, delta=0.05, **limit)


def test_progress_counts_the_groups(two_groups):
    seen = []
    meet(*two_groups, method="center", epsilon=1.0, delta=1e-3, progress=lambda a, b: seen.append((a, b)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("method", ["white", "additive", "transport"])
def test_cost_in_kw_agrees_with_sampling(two_groups, method):
    classes, graph = two_groups
    # A small error: the squares of wider log-normals have tails that no sample of this size settles.
    mechanism = design(classes, graph, method, 1.0, 0.15, time_limit=1.0)
    rng = np.random.default_rng(0)
    for i, name in enumerate(classes.labels[:5]):
        q = rng.multivariate_normal(classes.means[i], classes.covs[i], size=200_000)
        off = np.exp(np.asarray(mechanism.sample(q, name, seed=1000 + i))) - np.exp(q)
        error = power_accuracy(part_of(mechanism, [name]))
        spread = off.std(axis=0) / np.sqrt(len(off))
        assert (np.abs(off.mean(axis=0) - error.biases) < 5 * spread).all()
        squares = off**2
        assert (np.abs(squares.mean(axis=0) - error.squares) < 6 * squares.std(axis=0) / np.sqrt(len(off))).all()
