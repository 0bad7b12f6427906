"""Findings of an adversarial review, kept as tests: each once gave a figure on the unsafe side."""

from __future__ import annotations

import math

import numpy as np
import pytest

import oracle
import shoal
from campaign import confirmed
from shoal.accounting.curve import edge_brackets


def _pair(a: tuple, b: tuple) -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    classes = shoal.GaussianClasses(np.array([a[0], b[0]], dtype=float), np.array([a[1], b[1]], dtype=float))
    return classes, shoal.NeighborGraph.complete(classes.labels)


def test_an_accidental_agreement_of_two_steps_is_not_trusted() -> None:
    lam = np.array([-0.000804807068547043, -0.002843405711486331, -1.5537609313760306e-05, 0.0002610303310770706,
                    0.000257296187170499, 0.014530416848254879, -9.697903906287604e-06, 0.317296189605132,
                    0.26295817528458193, 0.08276254189728603])  # fmt: skip
    w = np.zeros(10)
    w[:4] = 1.877354539262375e-08, 0.07409534894828057, 8.747100597489968e-10, 1.2596057152177872e-08
    w[4:8] = 2.056462407094353e-10, 4.5690689985128463e-10, 1.334219644549731e-06, 0.0005717633397422752
    classes = shoal.GaussianClasses.diagonal([np.zeros(10), w], [np.exp(lam), np.ones(10)])
    graph = shoal.NeighborGraph.complete(classes.labels)
    _, low, high = edge_brackets(classes, graph, 0.2779856203527551, "pdp")[0, 0]
    gamma = np.exp(lam)
    exact = oracle.log_upper_tail(gamma, w / np.sqrt(gamma), 0.2779856203527551)
    assert exact == pytest.approx(-1.6296, abs=1e-4)
    assert low <= exact <= high


def test_an_eigenvalue_lost_to_rounding_gives_no_bracket_that_excludes_the_truth() -> None:
    s1, s2, r = 1e-12, 1e-3, -0.96
    classes, graph = _pair(
        ([0, 0], [[s1 * s1, r * s1 * s2], [r * s1 * s2, s2 * s2]]), ([0, 0], [[1, 0.72e-3], [0.72e-3, 1e-6]])
    )
    _, low, high = edge_brackets(classes, graph, 26.53866609924767)[0, 0]
    # The exact value, from determinants in ball arithmetic, rounded down and up.
    assert low <= -0.2096693004916496
    assert high >= -0.2096693004916484


@pytest.mark.filterwarnings("ignore::shoal.laws.supports.RankWarning")
def test_a_large_entry_does_not_excuse_a_gap_in_another() -> None:
    cov = [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
    classes, graph = _pair(([1e10, 0, 0], cov), ([1e10, 0, 1e-4], cov))
    assert shoal.privacy_curve(classes, graph, 1.0).delta_upper == 1.0


def test_renyi_next_to_its_last_finite_order_is_not_understated() -> None:
    classes, graph = _pair(([0], [[1.5271775516394999]]), ([0], [[1.4108331647858696]]))
    assert shoal.renyi_curve(classes, graph, 13.126353517688834).divergence_upper == math.inf


@pytest.mark.parametrize("condition", [1e6, 1e10, 1e12])
def test_a_certificate_covers_the_rounding_of_its_own_parameters(condition: float) -> None:
    rng = np.random.default_rng(3)
    covs = []
    for _ in range(3):
        turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        cov = (turn * np.array([1.0, condition**-0.5, 1 / condition])) @ turn.T
        covs.append(0.5 * (cov + cov.T))
    classes = shoal.GaussianClasses(rng.standard_normal((3, 3)), np.array(covs))
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "center", 0.01, 0.9 * shoal.perfect_rho(classes, graph))
    assert mechanism.certificate.delta_upper >= confirmed(mechanism, None, "answer").delta_lower


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_brackets_of_a_designed_family_are_tight(share: float, epsilon: float) -> None:
    """A design leaves directions with γ near 1 and a gap: the bend that decays far out is then the wrong one."""
    rng = np.random.default_rng(5)
    factors = rng.standard_normal((30, 6, 12)) / np.sqrt(12)
    covs = factors @ np.swapaxes(factors, 1, 2) * rng.uniform(0.5, 2.0, 30)[:, None, None]
    classes = shoal.GaussianClasses(rng.standard_normal((30, 6)), covs)
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "center", epsilon, share * shoal.perfect_rho(classes, graph))
    _, lower, upper = np.moveaxis(edge_brackets(mechanism.output, graph, epsilon), 2, 0)
    large = upper > -20.0
    assert large.sum() > 400
    assert (upper[large] - lower[large]).max() < 1e-7
