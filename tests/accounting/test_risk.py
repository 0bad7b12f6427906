"""identification_risk: the best attacker against guessing."""

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import ndtr

import shoal
from families import random_family


@pytest.mark.parametrize("gap", [0.01, 1.0, 5.0])
def test_two_labels_are_exact(gap):
    """Equal covariances and prior ½: success = Φ(‖ν₀‖/2)."""
    classes = shoal.GaussianClasses([[0.0], [gap]], np.eye(1))
    risk = shoal.identification_risk(classes)
    assert risk.exact
    assert risk.confidence == 1.0
    assert risk.success == pytest.approx(ndtr(gap / 2), rel=1e-11)
    assert risk.success_lower <= ndtr(gap / 2) <= risk.success_upper
    assert risk.success_upper - risk.success_lower < 1e-9
    assert risk.prior_success == 0.5


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9, 1 - 1e-9])
def test_two_labels_with_a_prior(weight):
    gap = 1.3
    classes = shoal.GaussianClasses([[0.0], [gap]], np.eye(1), ["a", "b"])
    with mp.workdps(40):
        first, second, apart = mpf(weight), mpf(1 - weight), mpf(gap)
        cut = apart / 2 + mp.log(first / second) / apart  # name a below the cut
        exact = (first * mp.ncdf(cut) + second * mp.ncdf(apart - cut)) / (first + second)
    risk = shoal.identification_risk(classes, prior={"a": weight, "b": 1 - weight})
    assert risk.success_lower <= exact <= risk.success_upper
    assert risk.success == pytest.approx(float(exact), rel=1e-11)
    assert risk.prior_success == pytest.approx(max(weight, 1 - weight))
    assert risk.success >= risk.prior_success


def test_many_labels_on_a_line():
    """n equal steps on the line: success = (1 + (n − 1)(2Φ(gap/2) − 1)) / n; the interval must hold it."""
    n, gap = 6, 1.5
    classes = shoal.GaussianClasses(gap * np.arange(n)[:, None], np.eye(1))
    exact = (1 + (n - 1) * (2 * ndtr(gap / 2) - 1)) / n
    for seed in range(5):
        risk = shoal.identification_risk(classes, seed=seed)
        assert not risk.exact
        assert risk.success_lower <= exact <= risk.success_upper
        assert risk.success == pytest.approx(exact, abs=0.01)
    assert risk.success_upper - risk.success_lower < 0.05
    assert shoal.identification_risk(classes, seed=3) == shoal.identification_risk(classes, seed=3)


def test_monte_carlo_attacker_full_covariances():
    classes = random_family(5, 3, 1)
    risk = shoal.identification_risk(classes, n_samples=40_000)
    rng = np.random.default_rng(2)
    hits = []
    for label in range(5):
        q = rng.multivariate_normal(classes.means[label], classes.covs[label], 20_000)
        scores = []
        for other in range(5):
            gap = q - classes.means[other]
            shape = (gap * np.linalg.solve(classes.covs[other], gap.T).T).sum(axis=1)
            scores.append(-0.5 * shape - 0.5 * np.linalg.slogdet(classes.covs[other])[1])
        hits.append((np.argmax(scores, axis=0) == label).mean())
    assert np.mean(hits) == pytest.approx(risk.success, abs=0.01)
    assert risk.success_lower <= np.mean(hits) + 0.006
    assert np.mean(hits) - 0.006 <= risk.success_upper


def test_the_graph_tells_the_component():
    classes = shoal.GaussianClasses([[0.0], [1.0], [0.0], [1.0]], np.eye(1))
    groups = shoal.NeighborGraph.within_groups(classes.labels, [0, 0, 1, 1])
    told = shoal.identification_risk(classes, groups)
    assert told.exact
    assert told.success == pytest.approx(ndtr(0.5), rel=1e-11)
    assert told.prior_success == pytest.approx(0.5)
    untold = shoal.identification_risk(classes)
    assert untold.success == pytest.approx(ndtr(0.5) / 2, abs=0.02)
    assert untold.prior_success == 0.25
    lonely = shoal.identification_risk(classes, shoal.NeighborGraph.from_edges(classes.labels, [(0, 1)]))
    assert lonely.success == pytest.approx(0.5 + 0.5 * ndtr(0.5), rel=1e-11)


def test_supports_give_themselves_away():
    apart = shoal.GaussianClasses.deterministic([[0.0], [1.0], [2.0]])
    assert shoal.identification_risk(apart).success == 1.0
    same = shoal.GaussianClasses.deterministic(np.zeros((4, 1)))
    risk = shoal.identification_risk(same, prior=[0.4, 0.3, 0.2, 0.1])
    assert (risk.success, risk.success_upper) == pytest.approx((0.4, 0.4))
    assert risk.exact
    assert risk.success_upper == pytest.approx(risk.prior_success, abs=1e-12)
    mixed = shoal.GaussianClasses.diagonal([[0.0], [0.0], [1.0]], [[1.0], [0.0], [1.0]])
    assert shoal.identification_risk(mixed).success == pytest.approx(1 / 3 + 2 / 3 * ndtr(0.5), rel=1e-11)
