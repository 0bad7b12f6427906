"""Deterministic queries: sensitivity, the Gaussian mechanism's δ and its calibration."""

import math

import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from mpmath import mp, mpf

import shoal
from families import equal_covariance_delta
from shoal.accounting.deterministic import gaussian_delta

PATH = shoal.NeighborGraph.from_edges(list("abc"), [("a", "b"), ("b", "c")])
EPSILONS = np.geomspace(1e-3, 50, 40)
DELTAS = np.geomspace(1e-12, 0.5, 40)


def exact_delta(ratio, epsilon):
    """Balle & Wang's formula in 50 digits; ratio = sensitivity / sigma."""
    with mp.workdps(50):
        r, e = mpf(ratio), mpf(epsilon)
        return mp.ncdf(r / 2 - e / r) - mp.exp(e) * mp.ncdf(-r / 2 - e / r)


def test_sensitivity_looks_at_edges_only():
    means = [[0.0, 0.0], [3.0, 4.0], [100.0, 4.0]]
    one_edge = shoal.NeighborGraph.from_edges(list("abc"), [("a", "b")])
    for p, expected in ((1, 7.0), (2, 5.0), (math.inf, 4.0), (3, (27 + 64) ** (1 / 3))):
        found = shoal.sensitivity(means, one_edge, p)
        assert expected <= found <= expected * (1 + 1e-13)
    assert shoal.sensitivity(means, PATH) == pytest.approx(97.0)


@pytest.mark.parametrize("p", [1, 2, 2.5, 400, math.inf])
@pytest.mark.parametrize("size", [1e-300, 1e-200, 0.1, 10.0, 1e200])
def test_sensitivity_does_not_vanish_or_overflow(size, p):
    means = np.array([[0.0, 0.0], [size, 0.0], [size, 0.0]])
    found = shoal.sensitivity(means, PATH, p)
    assert size <= found <= size * (1 + 1e-13)


@pytest.mark.parametrize("ratio", [0.01, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0])
def test_gaussian_delta_is_the_closed_form_rounded_up(ratio, epsilon):
    exact = exact_delta(ratio, epsilon)
    found = gaussian_delta(ratio, 1.0, epsilon)
    assert exact <= found <= max(exact * (1 + 1e-10), 5e-324)
    assert gaussian_delta(3 * ratio, 3.0, epsilon) == pytest.approx(found, rel=1e-11)
    assert gaussian_delta(ratio, 1.0, epsilon, "pdp") == pytest.approx(
        equal_covariance_delta(ratio, epsilon, "pdp"), rel=1e-11
    )


def test_gaussian_delta_far_out():
    exact = exact_delta(0.05, 1.8)
    assert mpf(10) ** -290 < exact < mpf(10) ** -270
    found = gaussian_delta(0.05, 1.0, 1.8)
    assert exact <= found <= exact * (1 + 1e-9)
    assert gaussian_delta(0.01, 1.0, 5.0) > 0.0  # underflows: the upper end does not read as zero
    assert gaussian_delta(0.0, 1.0, 0.0) == 0.0


@pytest.mark.parametrize("ratio", [1e-12, 1e-20, 1e-60, 1e-95, 1e-150, 1e-250])
def test_a_minute_gap_is_not_no_gap(ratio):
    exact = ratio / math.sqrt(2 * math.pi)
    found = gaussian_delta(ratio, 1.0, 0.0)
    assert found >= exact
    if ratio > 1e-99:
        assert found == pytest.approx(exact, rel=1e-9)
    assert found < 1e-11


def test_analytic_sigma_is_safe_and_tight_on_a_grid():
    """Zero tolerance on the unsafe side at 1,600 points; 1e-9 on the other."""
    for epsilon in EPSILONS:
        for delta in DELTAS:
            sigma = shoal.analytic_sigma(1.0, epsilon, delta)
            assert gaussian_delta(1.0, sigma, epsilon) <= delta
            assert gaussian_delta(1.0, sigma * (1 - 1e-9), epsilon) > delta


def test_analytic_sigma_in_fifty_digits():
    """The same by the formula itself, which shares no code with the library, on every 7th point of the grid."""
    unsafe_elsewhere = 0
    points = [(e, d) for e in EPSILONS for d in DELTAS][::7]
    for epsilon, delta in points:
        sigma = shoal.analytic_sigma(1.0, epsilon, delta)
        assert exact_delta(1 / mpf(sigma), epsilon) <= delta
        assert exact_delta(1 / (mpf(sigma) * (1 - mpf("1e-9"))), epsilon) > delta
        unsafe_elsewhere += exact_delta(1 / mpf(get_sigma_gaussian(epsilon, delta)), epsilon) > delta
    assert unsafe_elsewhere > len(points) // 10  # so the test can tell the difference


def test_analytic_sigma_scales_with_sensitivity():
    assert shoal.analytic_sigma(7.0, 1.0, 1e-6) == pytest.approx(7 * shoal.analytic_sigma(1.0, 1.0, 1e-6), rel=1e-12)


def test_analytic_sigma_through_the_whole_library():
    """A deterministic query plus that noise has the δ asked for over its graph."""
    means = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]])
    classes = shoal.GaussianClasses.deterministic(means, list("abc"))
    assert shoal.privacy_curve(classes, PATH, 3.0).delta_upper == 1.0
    sigma = shoal.analytic_sigma(shoal.sensitivity(means, PATH), 1.0, 1e-5)
    curve = shoal.privacy_curve(classes.with_noise(sigma**2), PATH, 1.0)
    assert curve.delta_upper == pytest.approx(1e-5, rel=1e-9)
    assert curve.worst_edge in (("a", "b"), ("b", "a"))
    # σ² is rounded once, which the last digits of δ notice; nothing else may.
    assert curve.delta_lower <= 1e-5 * (1 + 1e-12)


@pytest.mark.parametrize("p", [1, 2, 3.5, math.inf])
@pytest.mark.parametrize("gap", [5e-324, 1e-323, 3e-320, 1e-310, 2.3e-308, 1e-300])
def test_sensitivity_of_subnormal_gaps(gap, p):
    for entries in (1, 2, 9):
        found = shoal.sensitivity([[0.0] * entries, [gap] * entries], shoal.NeighborGraph.complete(["a", "b"]), p)
        with mp.workdps(60):
            exact = mpf(gap) * (1 if p == math.inf else mpf(entries) ** (1 / mpf(p)))
            assert exact <= mpf(found) <= exact * (1 + mpf(10) ** -13) + 4 * mpf(5e-324)


def test_a_gap_beyond_doubles_is_not_no_gap():
    with pytest.raises(shoal.InputError, match="means"):
        shoal.sensitivity([[-1.7e308], [1.7e308]], shoal.NeighborGraph.complete(["a", "b"]))


@pytest.mark.parametrize("delta", [1e-90, 1e-101, 4.9e-167, 1e-290])
def test_analytic_sigma_for_the_smallest_delta(delta):
    """At ε = 0, δ = 2Φ(Δ/2σ) − 1; and a σ that no double holds is refused."""
    sigma = shoal.analytic_sigma(1.0, 0.0, delta)
    with mp.workdps(400):
        exact = mp.erf(1 / mpf(sigma) / 2 / mp.sqrt(2))
        assert exact <= mpf(delta) <= exact * (1 + mpf(10) ** -4)
        assert exact <= mpf(gaussian_delta(1.0, sigma, 0.0)) <= mpf(delta)
    with pytest.raises(shoal.UnreachableError):
        shoal.analytic_sigma(1e250, 0.0, delta)


@pytest.mark.parametrize("gap", [1e-99, 1e-100, 1e-160, 1e-300])
@pytest.mark.parametrize("ratio", [2.0, 1000.0])
def test_a_minute_gap_beside_different_variances(gap, ratio):
    """δ is that of equal means, to 60 digits: N(0, 1) and N(0, r), whose closed form has one threshold."""
    classes = shoal.GaussianClasses([[0.0], [gap]], [[[1.0]], [[ratio]]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    for epsilon in (0.0, 0.5, 3.0):
        found = shoal.privacy_curve(classes, graph, epsilon)
        with mp.workdps(60):
            r, e = mpf(ratio), mp.exp(mpf(epsilon))
            scale = 1 - 1 / r
            inner = mp.sqrt(max(mp.log(r) - 2 * epsilon, mpf(0)) / scale)
            outer = mp.sqrt((mp.log(r) + 2 * epsilon) / scale)
            within = mp.erf(inner / mp.sqrt(2)) - e * mp.erf(inner / mp.sqrt(2 * r))
            beyond = mp.erfc(outer / mp.sqrt(2 * r)) - e * mp.erfc(outer / mp.sqrt(2))
            exact = max(within, beyond)
            assert mpf(found.delta_lower) <= exact <= mpf(found.delta_upper)
