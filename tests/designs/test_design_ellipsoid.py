"""The best common covariance: against a convex solver, its promises, and what contains it."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from design_cases import Array, family

import shoal
from shoal import GaussianClasses, NeighborGraph


def constants(seed: int, n: int, k: int) -> tuple[GaussianClasses, NeighborGraph]:
    means = np.random.default_rng(seed).standard_normal((n, k)) * np.linspace(1.0, 3.0, k)
    classes = GaussianClasses.deterministic(means)
    return classes, NeighborGraph.complete(classes.labels)


def least_trace(gaps: Array) -> float:
    """min Tr S subject to d'S⁻¹d ≤ 1, as a semidefinite program."""
    k = gaps.shape[1]
    shape = cp.Variable((k, k), symmetric=True)
    rules = [cp.bmat([[shape, gap[:, None]], [gap[None, :], np.eye(1)]]) >> 0 for gap in gaps]
    cp.Problem(cp.Minimize(cp.trace(shape)), rules).solve(solver=cp.CLARABEL)
    return float(cp.trace(shape).value)


@pytest.mark.parametrize(("seed", "n", "k"), [(0, 5, 3), (1, 8, 2), (2, 3, 4), (3, 4, 1)])
def test_agrees_with_a_convex_solver(seed: int, n: int, k: int) -> None:
    classes, graph = constants(seed, n, k)
    rho = 4.0
    mechanism = shoal.design(classes, graph, "ellipsoid", epsilon=1.0, rho=rho)
    noise = mechanism.noise_cov
    assert (noise == noise[0]).all()
    assert not mechanism.shift.any()
    gaps = classes.means[graph.edges[:, 0]] - classes.means[graph.edges[:, 1]]
    largest = float(np.einsum("er,er->e", gaps, np.linalg.lstsq(noise[0], gaps.T, rcond=1e-7)[0].T).max())
    # Scaled to trace kρ, the optimum tells the worst edge apart by least trace / kρ.
    assert largest == pytest.approx(least_trace(gaps) / (k * rho), rel=3e-4)
    assert (mechanism.rho <= rho).all()
    assert mechanism.rho.min() >= rho * (1 - 1e-9)


def test_many_edges_are_found_by_need() -> None:
    """With more edges than carry weight at first, none sticks out in the end."""
    classes, graph = constants(5, 60, 3)
    shoal_noise = shoal.design(classes, graph, "ellipsoid", epsilon=1.0, rho=1.0).noise_cov[0]
    gaps = classes.means[graph.edges[:, 0]] - classes.means[graph.edges[:, 1]]
    largest = float((gaps * np.linalg.solve(shoal_noise, gaps.T).T).sum(axis=1).max())
    assert largest == pytest.approx(least_trace(gaps) / 3.0, rel=3e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_never_worse_than_equal_noise(seed: int) -> None:
    for classes, graph in (constants(seed, 6, 4), family(seed, 5, 3)):
        for rho in (0.3, 3.0):
            white, own = (shoal.design(classes, graph, name, 1.0, rho) for name in ("white", "ellipsoid"))
            assert own.certificate.delta_upper <= white.certificate.delta_upper * (1 + 1e-9)


@pytest.mark.parametrize("budget", [4.0, 25.0, 100.0])
@pytest.mark.parametrize(("seed", "n", "k"), [(0, 6, 4), (1, 5, 9)])
def test_covariance_is_never_above_it(seed: int, n: int, k: int, budget: float) -> None:
    """Where constants span fewer directions than there are entries, and where they span all."""
    classes, graph = constants(seed, n, k)
    rho = budget * shoal.perfect_rho(classes, graph, "mean")
    common, own = (shoal.design(classes, graph, name, 1.0, rho) for name in ("ellipsoid", "covariance"))
    assert own.certificate.delta_upper <= common.certificate.delta_upper
    assert (own.rho <= own.budget).all()


def test_a_design_in_the_span_tells_nothing_outside_it() -> None:
    """Two constants in nine entries: noise along their difference, and a sliver elsewhere; the certificate is whole."""
    classes, graph = constants(4, 2, 9)
    mechanism = shoal.design(classes, graph, "covariance", 1.0, 1.0)
    gap = classes.means[1] - classes.means[0]
    along = gap @ mechanism.noise_cov[0] @ gap / (gap @ gap)
    assert along == pytest.approx(9.0, rel=1e-3)
    assert np.linalg.eigvalsh(mechanism.noise_cov[0]).min() > 0
    line = GaussianClasses.deterministic([[0.0], [float(np.linalg.norm(gap))]])
    best = line.with_noise(9.0)
    exact = shoal.privacy_curve(best, NeighborGraph.complete(best.labels), 1.0)
    assert float(exact.delta) <= mechanism.certificate.delta_upper
    assert mechanism.certificate.delta == pytest.approx(float(exact.delta), rel=1e-5)


def test_budgets_that_differ_share_the_smallest() -> None:
    classes, graph = constants(1, 3, 2)
    mechanism = shoal.design(classes, graph, "ellipsoid", 1.0, [1.0, 2.0, 4.0])
    assert (mechanism.noise_cov == mechanism.noise_cov[0]).all()
    assert (mechanism.rho <= mechanism.budget).all()


def test_calibrated() -> None:
    classes, graph = constants(2, 5, 3)
    mechanism = shoal.calibrate(classes, graph, "ellipsoid", epsilon=1.0, delta=1e-4)
    white = shoal.calibrate(classes, graph, "white", epsilon=1.0, delta=1e-4)
    assert mechanism.certificate.delta_upper <= 1e-4
    assert mechanism.method == "ellipsoid"
    assert mechanism.rho.max() < white.rho.max()
