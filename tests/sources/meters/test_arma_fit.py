"""Fitting: where the search ends, missing values, fallbacks, forecasts, determinism, threads and refusals."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from arma_cases import given_models, log_likelihood, simulate_arma, stable_model, stable_models

from shoal.errors import InputError, ShoalError
from shoal.sources.meters.arma import ArmaModels, fit_arma, predict
from shoal.sources.meters.arma.likelihood import best_variance, profile
from shoal.sources.meters.arma.search import (
    burg_residuals,
    is_stable,
    minimize,
    products,
    regression_start,
    solve_positive,
)

SWISS = Path(__file__).parents[3].parent / "shared" / "data" / "swiss_residential_15min" / "swiss15_clean.parquet"


def random_models(order: tuple[int, int], n: int, spread: float = 0.5) -> ArmaModels:
    return stable_models(order, range(n), 1.5, spread)


def value(x: np.ndarray, coef: np.ndarray, p: int) -> float:
    return float(profile(x, coef, p, np.empty(len(x)), np.empty((0, len(x))))[0])


def exact(models: ArmaModels, series: np.ndarray) -> np.ndarray:
    return np.array(
        [
            log_likelihood(x, a, m, v)
            for x, a, m, v in zip(series, models.ar, models.ma, models.innovation_var, strict=True)
        ]
    )


def check_end(fitted: ArmaModels, series: np.ndarray) -> None:
    """The likelihood is that of the parameters, the model is stable, and a start there ends at most a nat higher."""
    best = exact(fitted, series)
    np.testing.assert_allclose(fitted.log_likelihood, best, rtol=1e-9)
    for i, x in enumerate(series):
        coef = np.r_[fitted.ar[i], fitted.ma[i]]
        assert is_stable(coef, fitted.order[0])
        for factor in (0.99, 1.01):
            assert log_likelihood(x, fitted.ar[i], fitted.ma[i], factor * fitted.innovation_var[i]) < best[i]
        if coef.size:
            before = value(x, coef, fitted.order[0])
            after, _ = minimize(x, coef, fitted.order[0])
            assert before - 1.0 < after <= before


@pytest.mark.parametrize("order", [(6, 5), (2, 1), (1, 0), (0, 2), (0, 0), (3, 1)])
@pytest.mark.parametrize("gaps", [False, True])
def test_fit_is_as_likely_as_the_truth(order, gaps):
    """At least as likely but for what the search leaves: (p + q)/2 nats on average if it found the maximum."""
    truth = random_models(order, 4)
    series = simulate_arma(truth, 500, seed=1)
    if gaps:
        series[np.random.default_rng(3).random(series.shape) < 0.1] = np.nan
        series[0, 100:140] = np.nan
    fitted = fit_arma(series, order)
    assert fitted.ok.all()
    assert (fitted.status == "full").all()
    assert not fitted.fallback.any()
    assert (fitted.n_obs == np.isfinite(series).sum(axis=1)).all()
    lead = fitted.log_likelihood - exact(truth, series)
    assert lead.min() > -1.0
    assert lead.mean() > 0.25 * (sum(order) + 1)
    check_end(fitted, series)


@pytest.mark.parametrize("order", [(6, 5), (3, 2), (1, 1)])
@pytest.mark.parametrize("spread", [0.5, 1.0])
def test_no_end_is_less_likely_than_its_start(order, spread):
    for i, x in enumerate(simulate_arma(random_models(order, 6, spread), 300, seed=2)):
        coef = regression_start(x, *order)
        assert is_stable(coef, order[0])
        before = value(x, coef, order[0])
        after, _ = minimize(x, coef, order[0])
        assert after <= before
        assert after == value(x, coef, order[0])
        assert is_stable(coef, order[0]), i


def test_gaps_at_the_ends_change_nothing():
    series = simulate_arma(random_models((2, 1), 2), 300, seed=4)
    padded = np.concatenate([np.full((2, 20), np.nan), series, np.full((2, 30), np.nan)], axis=1)
    plain, longer = fit_arma(series, (2, 1)), fit_arma(padded, (2, 1))
    np.testing.assert_allclose(longer.log_likelihood, plain.log_likelihood, atol=0.5)


def test_forecasts_are_as_good_as_those_of_statsmodels():
    """Twelve steps ahead of series with known futures: within 2 % of the absolute error of full maximum likelihood."""
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax").SARIMAX
    series = simulate_arma(random_models((2, 1), 6, 0.8), 262, seed=5)
    past, future = series[:, :250], series[:, 250:]
    fitted = fit_arma(past, (2, 1))
    theirs = [sarimax(x, order=(2, 0, 1), trend="n").fit(disp=0, maxiter=50) for x in past]
    assert np.mean(fitted.log_likelihood - [other.llf for other in theirs]) > -0.5
    errors = [
        np.abs(ahead - future).mean() for ahead in (predict(fitted, past, 12).mean, [f.forecast(12) for f in theirs])
    ]
    assert errors[0] < 1.02 * errors[1]


def test_scale_moves_only_the_variance():
    series = simulate_arma(random_models((2, 2), 2), 300, seed=6)
    one = fit_arma(series, (2, 2))
    for scale in (1e-120, 1e150):
        other = fit_arma(series * scale, (2, 2))
        np.testing.assert_allclose(other.ar, one.ar, atol=1e-6)
        np.testing.assert_allclose(other.innovation_var / scale**2, one.innovation_var, rtol=1e-6)
        np.testing.assert_allclose(other.log_likelihood, one.log_likelihood - 300 * np.log(scale), rtol=1e-9)


def test_rows_threads_and_repeats_do_not_matter(monkeypatch):
    series = simulate_arma(random_models((6, 5), 40), 200, seed=7)
    seen: list[tuple[int, int]] = []
    monkeypatch.setenv("SHOAL_THREADS", "1")
    one = fit_arma(series, (6, 5), progress=lambda done, total: seen.append((done, total)))
    some = fit_arma(series[[3, 17]], (6, 5))
    monkeypatch.setenv("SHOAL_THREADS", "3")
    two = fit_arma(series, (6, 5))
    for name in ("ar", "ma", "innovation_var", "log_likelihood"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        np.testing.assert_array_equal(getattr(one, name)[[3, 17]], getattr(some, name))
    assert seen[-1] == (40, 40)


@pytest.mark.parametrize("threads", [1, 2])
def test_fitting_starts_no_thread_beyond_its_share(monkeypatch, threads):
    monkeypatch.setenv("SHOAL_THREADS", str(threads))
    series = simulate_arma(random_models((1, 1), 80), 100, seed=7)
    fit_arma(series[:2], (1, 1))
    before, most = threading.active_count(), []
    fit_arma(series, (1, 1), progress=lambda done, total: most.append(threading.active_count()))
    assert max(most) - before == (0 if threads == 1 else threads)


def test_bad_rows_are_flagged_and_never_stop_the_others():
    series = simulate_arma(random_models((2, 1), 9), 120, seed=9)
    clean = fit_arma(series, (4, 3))
    bad = series.copy()
    bad[1] = np.nan
    bad[2] = 0.0
    bad[3] = 7.25
    bad[4, 17] = np.inf
    bad[5, 5:] = np.nan
    bad[6, 20:] = np.nan
    bad[7, 14:] = np.nan
    bad[8, 10:] = np.nan
    fitted = fit_arma(bad, (4, 3))
    expected = ["full", "empty", "constant", "constant", "infinite", "short", "reduced", "reduced", "ar1"]
    assert list(fitted.status) == expected
    assert list(fitted.ok) == [True, False, False, False, False, False, True, True, True]
    assert list(fitted.fallback) == [False] * 6 + [True] * 3
    assert (fitted.ar[8, 1:] == 0).all()
    assert (fitted.ma[8] == 0).all()
    assert np.isnan(fitted.ar[1:6]).all()
    assert np.isnan(fitted.log_likelihood[1:6]).all()
    np.testing.assert_array_equal(fitted.ar[0], clean.ar[0])
    check_end(fit_arma(bad[6:7], (4, 3)), bad[6:7])


def test_results_cannot_be_changed_by_accident():
    fitted = fit_arma(simulate_arma(random_models((1, 0), 1), 50, seed=10), (1, 0))
    with pytest.raises(ValueError, match="read-only"):
        fitted.ar[0, 0] = 0.0


def test_near_unit_root_and_overdifferenced_series():
    generator = np.random.default_rng(11)
    walk = np.cumsum(generator.normal(size=(1, 400)), axis=1)
    difference = np.diff(generator.normal(size=(1, 401)), axis=1)
    fitted = fit_arma(np.concatenate([walk, difference]), (2, 2))
    assert fitted.ok.all()
    assert np.isfinite(fitted.log_likelihood).all()
    assert np.abs(np.roots(np.r_[1, fitted.ma[1]])).max() > 0.95


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"series": np.zeros(30)}, "series must have 2 dimensions"),
        ({"series": np.zeros((0, 30))}, "series must not be empty"),
        ({"series": [[1.0, 2.0], [3.0]]}, "series must be an array of numbers"),
        ({"series": [["a"] * 40]}, "series must be an array of numbers"),
        ({"series": np.full((2, 90), np.nan)}, "series must hold at least one finite value"),
        (
            {"series": np.ones((2, 20))},
            r"series is too short for order \(6, 5\): it has 20 samples and needs at least 36",
        ),
        ({"order": (1, -1)}, "order must be at least 0"),
        ({"order": (1.5, 1)}, "order must be a whole number"),
        ({"order": 3}, "order must be a pair"),
        ({"order": (1, 2, 3)}, "order must be a pair"),
    ],
)
def test_refusals_name_the_argument(arguments, message):
    call = {"series": np.random.default_rng(0).normal(size=(2, 90)), **arguments}
    with pytest.raises(InputError, match=message) as caught:
        fit_arma(**call)
    assert isinstance(caught.value, ShoalError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.skipif(not SWISS.exists(), reason="the Swiss meters are not on this machine")
def test_real_households():
    polars = pytest.importorskip("polars")
    kw = polars.read_parquet(SWISS)["kw"].to_numpy().astype(float).reshape(-1, 4704)[::120, :1440]
    x = np.log(np.maximum(kw, 0.01))
    slot = np.arange(1440) % 672
    x -= np.stack([x[:, slot == s].mean(axis=1) for s in range(672)], axis=1)[:, slot]
    fitted = fit_arma(x)
    assert (fitted.status == "full").all()
    check_end(fitted, x)
    assert (fitted.log_likelihood >= fit_arma(x, (3, 2)).log_likelihood).all()


def test_nearly_noninvertible_series():
    """Four of five moving-average roots within 0.006 of the unit circle, where the plain recursion forgets slowly."""
    ar, ma = stable_model((6, 5), 5035, 1.0)
    truth = given_models(ar, ma, 1.0)
    series = simulate_arma(truth, 1440, seed=5035)
    fitted = fit_arma(series)
    assert fitted.ok.all()
    coef = np.r_[ar, ma]
    minimize(series[0], coef, 6)
    assert best_variance(series[0], coef, 6)[1] >= exact(truth, series)[0]


@pytest.mark.parametrize("order", [(6, 5), (2, 0), (0, 3), (1, 1), (3, 1)])
def test_slopes_are_those_of_finite_differences_once_the_filter_has_settled(order):
    p, k, n = order[0], sum(order), 300
    coef = np.concatenate(stable_model(order, 4, 0.4))
    x = np.random.default_rng(5).normal(size=n)
    x[[3, 40, 41, 42]] = np.nan

    def innovations(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z, slopes = np.empty(n), np.empty((k, n))
        profile(x, at, p, z, slopes)
        return z, slopes

    z, slopes = innovations(coef)
    np.testing.assert_array_equal(np.isnan(z), np.isnan(x))
    assert not slopes[:, np.isnan(x)].any()
    for i in range(k):
        shift = np.zeros(k)
        shift[i] = 1e-6
        expected = (innovations(coef + shift)[0] - innovations(coef - shift)[0]) / 2e-6
        np.testing.assert_allclose(slopes[i, 200:], expected[200:], atol=1e-6)


@pytest.mark.parametrize("gaps", [False, True])
def test_slopes_leave_out_only_what_is_zero_in_expectation(gaps):
    """Σ z dz, averaged over many series of the model itself, is zero within its own error."""
    truth = random_models((2, 2), 1)
    coef = np.r_[truth.ar[0], truth.ma[0]]
    scores = []
    for x in simulate_arma(truth.take(np.zeros(3000, dtype=int)), 60, seed=6):
        if gaps:
            x[np.arange(60) % 7 == 3] = np.nan
        z, slopes = np.empty(60), np.empty((4, 60))
        profile(x, coef, 2, z, slopes)
        scores.append(slopes @ np.nan_to_num(z))
    mean, spread = np.mean(scores, axis=0), np.std(scores, axis=0) / np.sqrt(3000)
    assert (np.abs(mean) < 4 * spread).all()


def test_normal_equations_are_those_of_numpy():
    rows, target = np.random.default_rng(8).normal(size=(5, 70)), np.random.default_rng(9).normal(size=70)
    normal, right, out = np.empty((5, 5)), np.empty(5), np.empty(5)
    products(rows, target, normal, right)
    np.testing.assert_allclose(normal, rows @ rows.T, atol=1e-12)
    np.testing.assert_allclose(right, rows @ target, atol=1e-12)
    assert solve_positive(normal.copy(), right, out)
    np.testing.assert_allclose(out, np.linalg.lstsq(rows.T, target)[0], atol=1e-10)
    assert not solve_positive(-normal, right, out)


def test_regression_recovers_long_series():
    ar, ma = np.array([0.6, -0.4]), np.array([0.5])
    x = simulate_arma(given_models(ar, ma, 1.0), 20_000, seed=3)[0]
    np.testing.assert_allclose(regression_start(x, 2, 1), np.r_[ar, ma], atol=0.05)
    assert burg_residuals(x, 24)[24:].var() == pytest.approx(1.0, rel=0.05)


def test_a_search_from_the_truth_never_ends_below_it():
    truth = random_models((6, 5), 6, 1.0)
    series = simulate_arma(truth, 400, seed=4)
    for x, ar, ma, least in zip(series, truth.ar, truth.ma, exact(truth, series), strict=True):
        coef = np.r_[ar, ma]
        minimize(x, coef, 6)
        assert best_variance(x, coef, 6)[1] >= least
