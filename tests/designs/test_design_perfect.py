"""The price of perfect indistinguishability, against a convex solver, and what happens on either side of it."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from design_cases import family, random_covs

import shoal
from shoal import GaussianClasses, NeighborGraph
from shoal.designs import barycenter

EXACT = {"tol_gap_rel": 1e-10, "tol_gap_abs": 1e-10, "tol_feas": 1e-10}


def transport_price(classes: GaussianClasses) -> float:
    """Semidefinite program of the minimax Bures–Wasserstein center, per entry."""
    k = classes.n_dims
    center, cov, price = cp.Variable(k), cp.Variable((k, k), symmetric=True), cp.Variable()
    rules = []
    for mean, own in zip(classes.means, classes.covs, strict=True):
        block = cp.Variable((2 * k, 2 * k), PSD=True)
        rules += [block[:k, :k] == own, block[k:, k:] == cov]
        cost = cp.sum_squares(mean - center) + np.trace(own) + cp.trace(cov) - 2 * cp.trace(block[:k, k:])
        rules.append(cost <= price)
    cp.Problem(cp.Minimize(price), rules).solve(solver=cp.CLARABEL, **EXACT)
    return float(price.value) / k


def additive_price(classes: GaussianClasses) -> float:
    k = classes.n_dims
    center, cov, price = cp.Variable(k), cp.Variable((k, k), symmetric=True), cp.Variable()
    rules = []
    for mean, own in zip(classes.means, classes.covs, strict=True):
        rules += [cov - own >> 0, cp.sum_squares(mean - center) + cp.trace(cov) - np.trace(own) <= price]
    cp.Problem(cp.Minimize(price), rules).solve(solver=cp.CLARABEL, **EXACT)
    return float(price.value) / k


@pytest.mark.parametrize(("seed", "n", "k"), [(0, 2, 1), (1, 4, 2), (2, 5, 3), (3, 3, 4), (4, 7, 2)])
def test_prices_agree_with_a_convex_solver(seed: int, n: int, k: int) -> None:
    classes, graph = family(seed, n, k)
    assert shoal.perfect_rho(classes, graph) == pytest.approx(transport_price(classes), rel=1e-6)
    assert shoal.perfect_rho(classes, graph, "additive") == pytest.approx(additive_price(classes), rel=1e-6)


def test_prices_of_special_families() -> None:
    rng = np.random.default_rng(1)
    means = rng.standard_normal((5, 3))
    for classes in (
        GaussianClasses(means, random_covs(rng, 1, 3)[0]),
        GaussianClasses.deterministic(means),
        GaussianClasses.diagonal(means, rng.uniform(0.1, 1.0, (5, 3))),
    ):
        graph = NeighborGraph.complete(classes.labels)
        assert shoal.perfect_rho(classes, graph) == pytest.approx(transport_price(classes), rel=1e-6)
        assert shoal.perfect_rho(classes, graph, "additive") == pytest.approx(additive_price(classes), rel=1e-6)


def test_dearest_component_sets_the_price() -> None:
    classes, _ = family(8, 5, 2)
    graph = NeighborGraph.from_edges(classes.labels, [("0", "1"), ("2", "3")])
    prices = []
    for pair in ((0, 1), (2, 3)):
        part = classes.take(pair)
        prices.append(shoal.perfect_rho(part, NeighborGraph.complete(part.labels)))
    assert shoal.perfect_rho(classes, graph) == pytest.approx(max(prices), rel=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_center_is_perfect_from_its_price_on(seed: int) -> None:
    classes, graph = family(seed, 4, 2)
    price = shoal.perfect_rho(classes, graph)
    above = shoal.design(classes, graph, "center", 1.0, price * (1 + 1e-6))
    assert above.curve(1.0).delta_upper <= 5e-324
    assert above.certificate.delta_upper < 1e-20
    below = shoal.design(classes, graph, "center", 0.0, price * (1 - 1e-3))
    assert below.certificate.delta > 1e-9


def test_center_of_constants_is_perfect_at_its_price() -> None:
    """An ulp between two constants would tell them apart; a sliver of noise hides it."""
    for seed in range(5):
        classes = GaussianClasses.deterministic(np.random.default_rng(seed).standard_normal((6, 3)))
        graph = NeighborGraph.complete(classes.labels)
        price = shoal.perfect_rho(classes, graph)
        above = shoal.design(classes, graph, "center", 1.0, price * (1 + 1e-6))
        assert above.curve(1.0).delta_upper < 1e-300
        assert above.certificate.delta_upper < 1e-20
        assert shoal.design(classes, graph, "center", 1.0, price * (1 - 1e-6)).certificate.delta == 1.0


def test_entries_without_variance_do_not_stall_the_barycenter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants of every label leave the fixed point as it is; their rounding once kept it from ever being reached."""
    rng = np.random.default_rng(0)
    varying = np.setdiff1d(np.arange(30), [0, 15, 22])
    inside = np.ix_(np.arange(6), varying, varying)
    covs, means = np.zeros((6, 30, 30)), rng.normal(size=(6, 30))
    covs[inside] = random_covs(rng, 6, 27)
    turns, rotations = [], barycenter._closest_rotations
    monkeypatch.setattr(barycenter, "_closest_rotations", lambda *given: turns.append(1) or rotations(*given))
    whole = barycenter.mean_center(means, covs)
    part = barycenter.mean_center(means[:, varying], covs[inside])
    assert len(turns) < 200  # 27 and 27; it was 2,001
    np.testing.assert_allclose(whole.cov[np.ix_(varying, varying)], part.cov, rtol=1e-9, atol=1e-12)
    assert np.trace(whole.cov) == pytest.approx(np.trace(part.cov), rel=1e-12)
