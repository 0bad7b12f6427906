"""The likelihood against dense multivariate normals and statsmodels; which coefficients are stable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from arma_cases import autocovariance, from_partials, log_likelihood, stable_model
from scipy.linalg import toeplitz

from shoal.sources.meters.arma import impulse_response
from shoal.sources.meters.arma.likelihood import best_variance, profile, state_factor
from shoal.sources.meters.arma.search import is_stable, pull_in

ORDERS = [(6, 5), (5, 6), (2, 3), (3, 0), (0, 4), (1, 0), (0, 1), (1, 1), (0, 0), (3, 7), (8, 2)]


def random_model(order: tuple[int, int], seed: int, spread: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    return stable_model(order, seed, spread)


def dense_log_density(cov: np.ndarray, x: np.ndarray) -> float:
    root = np.linalg.cholesky(cov)
    white = np.linalg.solve(root, x)
    return float(-0.5 * (white @ white + len(x) * math.log(2 * math.pi)) - np.log(np.diag(root)).sum())


def with_gaps(x: np.ndarray, seed: int) -> np.ndarray:
    out = x.copy()
    out[np.random.default_rng(seed).random(len(x)) < 0.2] = np.nan
    out[0] = np.nan
    out[len(x) // 3 : len(x) // 3 + 6] = np.nan
    return out


@pytest.mark.parametrize("order", ORDERS)
def test_likelihood_is_that_of_the_dense_normal(order):
    ar, ma = random_model(order, seed=1)
    x = np.random.default_rng(2).normal(size=90)
    cov = toeplitz(autocovariance(ar, ma, 1.3, len(x)))
    expected = dense_log_density(cov, x)
    assert log_likelihood(x, ar, ma, 1.3) == pytest.approx(expected, rel=1e-11)
    y = with_gaps(x, 3)
    seen = ~np.isnan(y)
    expected = dense_log_density(cov[np.ix_(seen, seen)], y[seen])
    assert log_likelihood(y, ar, ma, 1.3) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("order", [(6, 5), (2, 1), (0, 3), (4, 0)])
def test_likelihood_is_that_of_statsmodels(order):
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax").SARIMAX
    ar, ma = random_model(order, seed=4)
    x = np.random.default_rng(5).normal(size=400)
    for series in (x, with_gaps(x, 6)):
        model = sarimax(series, order=(order[0], 0, order[1]), trend="n")
        model.ssm.tolerance = 0
        assert log_likelihood(series, ar, ma, 0.8) == pytest.approx(model.loglike(np.r_[ar, ma, 0.8]), rel=1e-9)


@pytest.mark.parametrize("order", [(6, 5), (1, 0), (0, 2)])
def test_profiled_variance_is_where_the_likelihood_is_largest(order):
    ar, ma = random_model(order, seed=7)
    x = with_gaps(np.random.default_rng(8).normal(size=90), 9)
    coef = np.r_[ar, ma]
    var, best = best_variance(x, coef, len(ar))
    assert best == pytest.approx(log_likelihood(x, ar, ma, var), rel=1e-12)
    for factor in (0.99, 1.01):
        assert log_likelihood(x, ar, ma, factor * var) < best


def test_exact_near_unit_roots_and_near_cancellation():
    x = np.cumsum(np.random.default_rng(10).normal(size=300))
    cases = [([0.9999], []), ([0.999, 0.0005], [-0.9995]), ([1.8, -0.8101], [-0.99]), ([0.7], [-0.7 + 1e-12])]
    cases += [([0.5, 0.3], [0.999999])]
    for ar, ma in cases:
        ar, ma = np.array(ar, dtype=float), np.array(ma, dtype=float)
        assert is_stable(np.r_[ar, ma], len(ar))
        expected = dense_log_density(toeplitz(autocovariance(ar, ma, 1.0, len(x))), x)
        assert log_likelihood(x, ar, ma, 1.0) == pytest.approx(expected, rel=1e-6)


def test_logarithms_of_large_variances_do_not_overflow():
    """Fifty long gaps in a near unit root: the product of the prediction variances exceeds the largest double."""
    x = np.random.default_rng(1).normal(size=4000)
    x[np.arange(4000) % 40 != 0] = np.nan
    seen = ~np.isnan(x)
    cov = toeplitz(autocovariance([0.9999999], [], 1.0, len(x)))[np.ix_(seen, seen)]
    expected = dense_log_density(cov, x[seen])
    total = float(np.linalg.slogdet(cov)[1])
    assert total > 300
    assert log_likelihood(x, np.array([0.9999999]), np.zeros(0), 1.0) == pytest.approx(expected, rel=1e-6)


def test_not_stationary_has_no_likelihood():
    x = np.random.default_rng(0).normal(size=30)
    assert profile(x, np.array([1.1, 0.2]), 1, np.empty(30), np.empty((0, 30)))[0] == math.inf
    assert log_likelihood(x, np.array([1.0]), np.array([0.2]), 1.0) == -math.inf


@pytest.mark.parametrize("order", ORDERS)
def test_state_factor_solves_the_lyapunov_equation(order):
    ar, ma = random_model(order, seed=11)
    r = max(*order, 1)
    phi, theta = np.zeros(r), np.zeros(r)
    phi[: len(ar)], theta[: len(ma)] = ar, ma
    factor = np.empty((r, r))
    assert state_factor(ar, ma, factor)
    v = factor @ factor.T
    a = np.eye(r, k=1)
    a[:, 0] += phi
    gain = phi + theta
    np.testing.assert_allclose(v, a @ v @ a.T + np.outer(gain, gain), atol=1e-10 * max(1.0, np.abs(v).max()))
    np.testing.assert_allclose(v[0, 0] + 1, autocovariance(ar, ma, 1.0, 1)[0], rtol=1e-10)


def test_stability_is_that_of_the_roots():
    generator = np.random.default_rng(12)
    met = set()
    for _ in range(200):
        ar, ma = generator.normal(size=3) * 0.5, generator.normal(size=2) * 0.6
        expected = bool(max(np.abs(np.roots(np.r_[1, -ar])).max(), np.abs(np.roots(np.r_[1, ma])).max()) < 1)
        assert is_stable(np.r_[ar, ma], 3) == expected
        met.add(expected)
    assert met == {True, False}
    assert is_stable(np.zeros(0), 0)
    assert not is_stable(np.array([1.0]), 1)
    assert not is_stable(np.array([np.nan]), 1)


def test_pulling_in_moves_no_more_than_it_must():
    for seed in range(30):
        c = from_partials(np.tanh(np.random.default_rng(seed).normal(size=5)))
        same = c.copy()
        pull_in(same)
        np.testing.assert_array_equal(same, c)
        wild = np.random.default_rng(seed).normal(size=5) * 3
        pull_in(wild)
        assert is_stable(wild, 5)
        assert wild.any()


@pytest.mark.parametrize("order", ORDERS)
def test_autocovariance_is_that_of_statsmodels(order):
    process = pytest.importorskip("statsmodels.tsa.arima_process")
    ar, ma = random_model(order, seed=16)
    theirs = process.arma_acovf(np.r_[1, -ar], np.r_[1, ma], nobs=30, sigma2=1.7)
    np.testing.assert_allclose(autocovariance(ar, ma, 1.7, 30), theirs, rtol=1e-9, atol=1e-9)
    psi = process.arma_impulse_response(np.r_[1, -ar], np.r_[1, ma], leads=30)
    np.testing.assert_allclose(impulse_response(ar, ma, 30), psi, rtol=1e-9, atol=1e-12)


def test_impulse_responses_of_many_models_at_once():
    models = [random_model((3, 2), seed=s) for s in range(4)]
    ar, ma = np.array([m[0] for m in models]), np.array([m[1] for m in models])
    together = impulse_response(ar, ma, 4000)
    for i in range(4):
        np.testing.assert_array_equal(together[i], impulse_response(ar[i], ma[i], 4000))
        by_sum = [2.0 * (together[i, k:] * together[i, : 4000 - k]).sum() for k in range(6)]
        np.testing.assert_allclose(autocovariance(ar[i], ma[i], 2.0, 6), by_sum, rtol=1e-9)
