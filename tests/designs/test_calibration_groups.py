"""Meeting a target group by group, and what it costs in kW."""

from __future__ import annotations

import numpy as np
import pytest

import shoal
from shoal.designs.design import design
from shoal.mechanism.mechanism import Ending
from shoal.product.sources.meters.predictive_laws import power_accuracy


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
    mechanism = shoal.calibrate(*two_groups, method, 1.0, delta, tolerance=0.02, time_limit=2.0)
    assert mechanism.certificate.delta_upper <= delta
    assert mechanism.method == method
    # The group that is easy to hide in does not pay for the other, and nobody pays for the one without neighbors.
    assert mechanism.rho[:4].max() < mechanism.rho[4:7].max()
    assert mechanism.rho[7] == 0
    assert (mechanism.rho <= mechanism.budget).all()


def test_less_error_than_perfection_where_the_target_is_loose(two_groups):
    mechanism = shoal.calibrate(*two_groups, "transport", 1.0, 0.2, tolerance=0.02, time_limit=4.0)
    assert mechanism.rho.max() < shoal.perfect_rho(*two_groups)


def test_an_interrupt_goes_through_a_calibration_and_ends_a_design(two_groups, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.designs.descent.minimize", interrupt)
    cut = design(*two_groups, "transport", 1.0, 0.1)
    assert cut.ending is Ending.INTERRUPTED
    assert Ending.INTERRUPTED.value in cut.notes
    with pytest.raises(KeyboardInterrupt):
        shoal.calibrate(*two_groups, "transport", 1.0, 0.05)


def test_progress_counts_the_groups(two_groups):
    seen = []
    shoal.calibrate(*two_groups, "center", 1.0, 1e-3, progress=lambda a, b: seen.append((a, b)))
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
        error = power_accuracy(mechanism.for_labels([name]))
        spread = off.std(axis=0) / np.sqrt(len(off))
        assert (np.abs(off.mean(axis=0) - error.biases) < 5 * spread).all()
        squares = off**2
        assert (np.abs(squares.mean(axis=0) - error.squares) < 6 * squares.std(axis=0) / np.sqrt(len(off))).all()
