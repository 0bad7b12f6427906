"""Forecasts against brute-force Toeplitz conditioning and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from arma_cases import autocovariance, condition_gaussian, given_models, simulate_arma, stable_models
from scipy.linalg import toeplitz

from shoal.errors import InputError
from shoal.sources.meters.arma import ArmaModels, fit_arma, predict


def models_of(order: tuple[int, int], n: int = 3, spread: float = 0.6) -> ArmaModels:
    return stable_models(order, range(100, 100 + n), np.linspace(0.5, 2.0, n), spread)


def gappy(series: np.ndarray) -> np.ndarray:
    out = series.copy()
    out[np.random.default_rng(5).random(out.shape) < 0.25] = np.nan
    out[0, -9:] = np.nan
    out[1, :30] = np.nan
    return out


@pytest.mark.parametrize("order", [(6, 5), (2, 4), (3, 0), (0, 3), (1, 0), (0, 0)])
@pytest.mark.parametrize("gaps", [False, True])
def test_predict_is_toeplitz_conditioning(order, gaps):
    models = models_of(order)
    series = simulate_arma(models, 120, seed=1)
    series = gappy(series) if gaps else series
    forecast = predict(models, series, 12)
    for i in range(len(models)):
        gamma = autocovariance(models.ar[i], models.ma[i], models.innovation_var[i], 132)
        brute = condition_gaussian(np.zeros(132), toeplitz(gamma), np.r_[series[i], np.full(12, np.nan)])
        future = slice(-12, None)
        size = gamma[0]
        np.testing.assert_allclose(forecast.mean[i], brute.mean[future], atol=1e-9 * np.sqrt(size))
        np.testing.assert_allclose(forecast.cov[i], brute.cov[future, future], atol=1e-9 * size)
        np.testing.assert_allclose(forecast.mean_cov[i], brute.mean_cov[future, future], atol=1e-9 * size)
        np.testing.assert_allclose(forecast.cov[i] + forecast.mean_cov[i], toeplitz(gamma[:12]), atol=1e-9 * size)


def test_predict_is_that_of_statsmodels():
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax").SARIMAX
    models = models_of((6, 5), n=2)
    series = simulate_arma(models, 300, seed=2)
    series[1, 100:110] = np.nan
    forecast = predict(models, series, 12)
    for i in range(2):
        model = sarimax(series[i], order=(6, 0, 5), trend="n")
        model.ssm.tolerance = 0
        theirs = model.smooth(np.r_[models.ar[i], models.ma[i], models.innovation_var[i]]).get_forecast(12)
        np.testing.assert_allclose(forecast.mean[i], theirs.predicted_mean, atol=1e-9)
        np.testing.assert_allclose(np.diag(forecast.cov[i]), theirs.var_pred_mean, rtol=1e-9)


@pytest.mark.parametrize("gaps", [False, True])
def test_innovations_are_those_of_the_dense_covariance(gaps):
    """Σ = L D L': the innovations of what was observed are D^{-1/2} L⁻¹ x, in order."""
    models = models_of((2, 4))
    series = simulate_arma(models, 120, seed=1)
    series = gappy(series) if gaps else series
    z = predict(models, series, 1).innovations
    np.testing.assert_array_equal(np.isnan(z), np.isnan(series))
    for i, x in enumerate(series):
        seen = np.flatnonzero(np.isfinite(x))
        cov = toeplitz(autocovariance(models.ar[i], models.ma[i], models.innovation_var[i], 120))
        white = np.linalg.solve(np.linalg.cholesky(cov[np.ix_(seen, seen)]), x[seen])
        np.testing.assert_allclose(z[i, seen], white, atol=1e-9)


def test_a_row_without_a_model_is_nan_and_leaves_the_others_alone():
    series = simulate_arma(models_of((1, 0)), 60, seed=4)
    series[1] = np.nan
    models = fit_arma(series, (1, 0))
    forecast = predict(models, series, 3)
    assert np.isnan(forecast.mean[1]).all()
    assert np.isnan(forecast.cov[1]).all()
    assert np.isfinite(forecast.mean[[0, 2]]).all()
    assert np.isfinite(forecast.cov[[0, 2]]).all()


def test_simulation_is_stationary_from_the_first_sample():
    models = given_models(np.tile([0.95, -0.2], (4000, 1)), np.tile([0.6], (4000, 1)), 2.0)
    x = simulate_arma(models, 3, seed=6)
    gamma = autocovariance([0.95, -0.2], [0.6], 2.0, 3)
    np.testing.assert_allclose(x.T @ x / 4000, toeplitz(gamma), atol=0.1 * gamma[0])
    np.testing.assert_array_equal(x, simulate_arma(models, 3, seed=6))
    assert (x != simulate_arma(models, 3, seed=7)).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict(models_of((1, 0)), np.zeros((3, 9)), 0), "horizon must be at least 1"),
        (lambda: predict(models_of((1, 0)), np.zeros((2, 9)), 3), "past must have one row per model"),
        (lambda: predict(models_of((1, 0)), np.full((3, 9), np.inf), 3), "past must be finite"),
        (lambda: predict(models_of((1, 0)), "readings", 3), "past must be an array of numbers"),
    ],
)
def test_refusals_name_the_argument(call, message):
    with pytest.raises(InputError, match=message):
        call()
