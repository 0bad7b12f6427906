"""The likelihood against dense multivariate normals, statsmodels and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import toeplitz

from shoal.meters.arma import ArmaModels, autocovariance, impulse_response, simulate_arma
from shoal.meters.arma.kalman import evaluate_gappy, gappy_log_likelihood
from shoal.meters.arma.likelihood import evaluate, log_likelihood
from shoal.meters.arma.parameters import arma_from_free, free_from_arma, is_stable
from shoal.meters.arma.roots import (
    over_linear,
    over_quadratic,
    quadratic_factors,
    reflected,
    times_linear,
    times_quadratic,
)
from shoal.meters.arma.spectrum import power_spectrum, twiddle_factors
from shoal.meters.arma.state import padded, state_factor

ORDERS = [(6, 5), (5, 6), (2, 3), (3, 0), (0, 4), (1, 0), (0, 1), (1, 1), (0, 0), (3, 7), (8, 2)]


def random_model(order: tuple[int, int], seed: int, spread: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    p, q = order
    free = np.random.default_rng(seed).normal(size=p + q) * spread
    return arma_from_free(free, p, np.empty((p, p)), np.empty((q, q)))


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


def value_and_gradient(score, x, ar, ma):
    k = len(ar) + len(ma)
    gradient, normal, hessian = np.empty(k), np.empty((k, k)), np.empty((k, k))
    value, _ = score(x, ar, ma, gradient, normal, hessian, math.inf)
    return value, gradient, normal, hessian


@pytest.mark.parametrize("order", ORDERS)
def test_likelihood_is_that_of_the_dense_normal(order):
    ar, ma = random_model(order, seed=1)
    x = np.random.default_rng(2).normal(size=90)
    cov = toeplitz(autocovariance(ar, ma, 1.3, len(x)))
    expected = dense_log_density(cov, x)
    assert log_likelihood(x, ar, ma, 1.3) == pytest.approx(expected, rel=1e-11)
    assert gappy_log_likelihood(x, ar, ma, 1.3) == pytest.approx(expected, rel=1e-11)
    y = with_gaps(x, 3)
    seen = ~np.isnan(y)
    expected = dense_log_density(cov[np.ix_(seen, seen)], y[seen])
    assert gappy_log_likelihood(y, ar, ma, 1.3) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("order", [(6, 5), (2, 1), (0, 3), (4, 0)])
def test_likelihood_is_that_of_statsmodels(order):
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax").SARIMAX
    ar, ma = random_model(order, seed=4)
    x = np.random.default_rng(5).normal(size=400)
    for series, ours in ((x, log_likelihood), (with_gaps(x, 6), gappy_log_likelihood)):
        model = sarimax(series, order=(order[0], 0, order[1]), trend="n")
        model.ssm.tolerance = 0
        assert ours(series, ar, ma, 0.8) == pytest.approx(model.loglike(np.r_[ar, ma, 0.8]), rel=1e-9)


@pytest.mark.parametrize("order", [o for o in ORDERS if o != (0, 0)])
@pytest.mark.parametrize("gappy", [False, True])
def test_gradient_is_that_of_finite_differences(order, gappy):
    ar, ma = random_model(order, seed=7)
    x = np.random.default_rng(8).normal(size=70)
    score, series = (evaluate_gappy, with_gaps(x, 9)) if gappy else (evaluate, x)
    _, gradient, _, _ = value_and_gradient(score, series, ar, ma)
    p, step = order[0], 1e-5
    for i in range(sum(order)):
        shift = np.zeros(sum(order))
        shift[i] = step
        up = value_and_gradient(score, series, ar + shift[:p], ma + shift[p:])[0]
        down = value_and_gradient(score, series, ar - shift[:p], ma - shift[p:])[0]
        assert gradient[i] == pytest.approx((up - down) / (2 * step), abs=3e-6 * (1 + np.abs(gradient).max()))


def test_hessian_predicts_the_change_of_the_gradient():
    models = ArmaModels.from_coefficients([0.5, -0.3], [0.4], 1.0)
    x = simulate_arma(models, 4000, seed=3)[0]
    ar, ma = models.ar[0].copy(), models.ma[0].copy()
    _, gradient, _, hessian = value_and_gradient(evaluate, x, ar, ma)
    shift = np.array([1e-4, -2e-4, 1.5e-4])
    _, moved, _, _ = value_and_gradient(evaluate, x, ar + shift[:2], ma + shift[2:])
    np.testing.assert_allclose(moved - gradient, hessian @ shift, rtol=0.02, atol=1e-3)


def test_both_algorithms_agree_near_unit_roots_and_near_cancellation():
    x = np.cumsum(np.random.default_rng(10).normal(size=300))
    cases = [([0.9999], []), ([0.999, 0.0005], [-0.9995]), ([1.8, -0.8101], [-0.99]), ([0.7], [-0.7 + 1e-12])]
    cases += [([0.5, 0.3], [0.999999])]
    for ar, ma in cases:
        ar, ma = np.array(ar, dtype=float), np.array(ma, dtype=float)
        assert is_stable(ar)
        assert is_stable(-ma)
        fast, slow = log_likelihood(x, ar, ma, 1.0), gappy_log_likelihood(x, ar, ma, 1.0)
        assert fast == pytest.approx(slow, rel=1e-9)
        expected = dense_log_density(toeplitz(autocovariance(ar, ma, 1.0, len(x))), x)
        assert fast == pytest.approx(expected, rel=1e-6)


def test_not_stationary_has_no_likelihood():
    x = np.random.default_rng(0).normal(size=30)
    value, _, _, _ = value_and_gradient(evaluate, x, np.array([1.1]), np.array([0.2]))
    assert value == math.inf
    assert gappy_log_likelihood(x, np.array([1.0]), np.array([0.2]), 1.0) == -math.inf


@pytest.mark.parametrize("order", ORDERS)
def test_state_factor_solves_the_lyapunov_equation(order):
    ar, ma = random_model(order, seed=11)
    r = max(*order, 1)
    phi, theta = padded(ar, r), padded(ma, r)
    levinson, factor = np.empty((r, r)), np.empty((r, r))
    assert state_factor(phi, theta, levinson, factor)
    v = factor @ factor.T
    a = np.eye(r, k=1)
    a[:, 0] += phi
    gain = phi + theta
    np.testing.assert_allclose(v, a @ v @ a.T + np.outer(gain, gain), atol=1e-10 * max(1.0, np.abs(v).max()))
    np.testing.assert_allclose(v[0, 0] + 1, autocovariance(ar, ma, 1.0, 1)[0], rtol=1e-10)


def test_free_coordinates_round_trip_and_stay_stable():
    generator = np.random.default_rng(12)
    for _ in range(50):
        free = generator.normal(size=11) * 2
        ar, ma = arma_from_free(free, 6, np.empty((6, 6)), np.empty((5, 5)))
        assert is_stable(ar)
        assert is_stable(-ma)
        if np.abs(free).max() < 2.5:
            np.testing.assert_allclose(free_from_arma(ar, ma, 0.99999999), free, atol=1e-6)
        for c in (ar, -ma):
            assert np.abs(np.roots(np.r_[1, -c])).max() < 1 + 1e-6


def test_jacobian_is_that_of_finite_differences():
    free = np.random.default_rng(13).normal(size=9) * 0.7
    jac_ar, jac_ma = np.empty((5, 5)), np.empty((4, 4))
    arma_from_free(free, 5, jac_ar, jac_ma)
    blank = (np.empty((5, 5)), np.empty((4, 4)))
    for i in range(9):
        shift = np.zeros(9)
        shift[i] = 1e-6
        up, down = arma_from_free(free + shift, 5, *blank), arma_from_free(free - shift, 5, *blank)
        slope = (np.concatenate(up) - np.concatenate(down)) / 2e-6
        expected = np.r_[jac_ar[:, i], np.zeros(4)] if i < 5 else np.r_[np.zeros(5), jac_ma[:, i - 5]]
        np.testing.assert_allclose(slope, expected, atol=1e-8)


def test_factors_multiply_back():
    c = np.random.default_rng(14).normal(size=5)
    for b1, b2 in quadratic_factors(c):
        np.testing.assert_allclose(times_quadratic(over_quadratic(c, b1, b2), b1, b2), c, atol=1e-7)
    np.testing.assert_allclose(over_linear(times_linear(c, -0.7), -0.7), c, atol=1e-12)
    mirrored = reflected(np.array([2.5, 1.0]))
    np.testing.assert_allclose(mirrored, [1.0, 0.25], atol=1e-7)


def test_power_spectrum_is_that_of_numpy():
    x = np.random.default_rng(15).normal(size=100)
    expected = np.abs(np.fft.rfft(x, 128)) ** 2
    expected[[0, -1]] *= 0.5
    np.testing.assert_allclose(power_spectrum(x, twiddle_factors(128)), expected, atol=1e-10)


@pytest.mark.parametrize("order", ORDERS)
def test_autocovariance_is_that_of_statsmodels(order):
    process = pytest.importorskip("statsmodels.tsa.arima_process")
    ar, ma = random_model(order, seed=16)
    theirs = process.arma_acovf(np.r_[1, -ar], np.r_[1, ma], nobs=30, sigma2=1.7)
    np.testing.assert_allclose(autocovariance(ar, ma, 1.7, 30), theirs, rtol=1e-9, atol=1e-9)
    psi = process.arma_impulse_response(np.r_[1, -ar], np.r_[1, ma], leads=30)
    np.testing.assert_allclose(impulse_response(ar, ma, 30), psi, rtol=1e-9, atol=1e-12)


def test_autocovariance_of_many_models_at_once():
    models = [random_model((3, 2), seed=s) for s in range(4)]
    ar, ma = np.array([m[0] for m in models]), np.array([m[1] for m in models])
    var = np.arange(1.0, 5.0)
    together = autocovariance(ar, ma, var, 6)
    for i in range(4):
        np.testing.assert_allclose(together[i], autocovariance(ar[i], ma[i], var[i], 6), rtol=1e-12)
        psi = impulse_response(ar[i], ma[i], 4000)
        by_sum = [var[i] * (psi[k:] * psi[: len(psi) - k]).sum() for k in range(6)]
        np.testing.assert_allclose(together[i], by_sum, rtol=1e-9)
