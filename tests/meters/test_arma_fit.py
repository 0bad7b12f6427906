"""Fitting: maxima, missing values, fallbacks, determinism and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shoal.errors import InputError, ShoalError
from shoal.meters.arma import ArmaModels, fit_arma, simulate_arma
from shoal.meters.arma.kalman import gappy_log_likelihood
from shoal.meters.arma.parameters import arma_from_free, is_stable

SWISS = Path(__file__).parents[2].parent / "shared" / "data" / "swiss_residential_15min" / "swiss15_clean.parquet"


def random_models(order: tuple[int, int], n: int, spread: float = 0.5) -> ArmaModels:
    p, q = order
    rows = []
    for seed in range(n):
        free = np.random.default_rng(seed).normal(size=p + q) * spread
        rows.append(arma_from_free(free, p, np.empty((p, p)), np.empty((q, q))))
    return ArmaModels.from_coefficients(np.array([r[0] for r in rows]), np.array([r[1] for r in rows]), 1.5)


def exact(models: ArmaModels, series: np.ndarray) -> np.ndarray:
    return np.array(
        [
            gappy_log_likelihood(x, a, m, v)
            for x, a, m, v in zip(series, models.ar, models.ma, models.innovation_var, strict=True)
        ]
    )


def check_maximum(fitted: ArmaModels, series: np.ndarray) -> None:
    """The likelihood returned is that of the parameters returned, and no small change improves it."""
    best = exact(fitted, series)
    np.testing.assert_allclose(fitted.log_likelihood, best, rtol=1e-9)
    generator = np.random.default_rng(0)
    for i, x in enumerate(series):
        assert is_stable(fitted.ar[i])
        assert is_stable(-fitted.ma[i])
        for size in (1e-4, 1e-3):
            ar = fitted.ar[i] + size * generator.normal(size=fitted.order[0])
            ma = fitted.ma[i] + size * generator.normal(size=fitted.order[1])
            if is_stable(ar) and is_stable(-ma):
                assert gappy_log_likelihood(x, ar, ma, fitted.innovation_var[i]) < best[i] + 2e-3
        for factor in (0.99, 1.01):
            moved = gappy_log_likelihood(x, fitted.ar[i], fitted.ma[i], factor * fitted.innovation_var[i])
            assert moved < best[i]


@pytest.mark.parametrize("order", [(6, 5), (2, 1), (1, 0), (0, 2), (0, 0), (3, 1)])
def test_fit_beats_the_truth_and_is_a_maximum(order):
    truth = random_models(order, 4)
    series = simulate_arma(truth, 500, seed=1)
    fitted = fit_arma(series, order, threads=1)
    assert fitted.ok.all()
    assert (fitted.status == "full").all()
    assert not fitted.fallback.any()
    assert (fitted.log_likelihood >= exact(truth, series) - 1e-6).all()
    check_maximum(fitted, series)


def test_fit_of_gappy_series_is_a_maximum():
    truth = random_models((2, 1), 3)
    series = simulate_arma(truth, 400, seed=2)
    series[np.random.default_rng(3).random(series.shape) < 0.15] = np.nan
    series[0, 100:140] = np.nan
    fitted = fit_arma(series, (2, 1), threads=1)
    assert (fitted.status == "full").all()
    assert (fitted.n_obs == np.isfinite(series).sum(axis=1)).all()
    assert (fitted.log_likelihood >= exact(truth, series) - 1e-6).all()
    check_maximum(fitted, series)


def test_gaps_at_the_ends_change_nothing():
    series = simulate_arma(random_models((2, 1), 2), 300, seed=4)
    padded = np.concatenate([np.full((2, 20), np.nan), series, np.full((2, 30), np.nan)], axis=1)
    plain, longer = fit_arma(series, (2, 1), threads=1), fit_arma(padded, (2, 1), threads=1)
    np.testing.assert_allclose(longer.log_likelihood, plain.log_likelihood, atol=1e-3)
    np.testing.assert_allclose(longer.ar, plain.ar, atol=0.02)


def test_at_least_as_good_as_statsmodels():
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax").SARIMAX
    series = simulate_arma(random_models((3, 2), 3), 300, seed=5)
    fitted = fit_arma(series, (3, 2), threads=1)
    for i, x in enumerate(series):
        theirs = sarimax(x, order=(3, 0, 2), trend="n").fit(disp=0, maxiter=200)
        assert fitted.log_likelihood[i] > theirs.llf - 0.01


def test_scale_moves_only_the_variance():
    series = simulate_arma(random_models((2, 2), 2), 300, seed=6)
    one = fit_arma(series, (2, 2), threads=1)
    for scale in (1e-120, 1e150):
        other = fit_arma(series * scale, (2, 2), threads=1)
        np.testing.assert_allclose(other.ar, one.ar, atol=1e-6)
        np.testing.assert_allclose(other.innovation_var / scale**2, one.innovation_var, rtol=1e-6)
        np.testing.assert_allclose(other.log_likelihood, one.log_likelihood - 300 * np.log(scale), rtol=1e-9)


def test_rows_threads_and_repeats_do_not_matter():
    series = simulate_arma(random_models((6, 5), 20), 200, seed=7)
    seen = []
    one = fit_arma(series, (6, 5), threads=1, effort="quick", progress=lambda done, total: seen.append((done, total)))
    two = fit_arma(series, (6, 5), threads=2, effort="quick")
    some = fit_arma(series[[3, 17]], (6, 5), threads=1, effort="quick")
    for name in ("ar", "ma", "innovation_var", "log_likelihood"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        np.testing.assert_array_equal(getattr(one, name)[[3, 17]], getattr(some, name))
    assert seen[-1] == (20, 20)


def test_more_effort_is_not_worse():
    series = simulate_arma(random_models((6, 5), 4), 300, seed=8)
    quick, thorough = fit_arma(series, effort="quick", threads=1), fit_arma(series, effort="thorough", threads=1)
    assert thorough.log_likelihood.sum() >= quick.log_likelihood.sum() - 1e-3


def test_bad_rows_are_flagged_and_never_stop_the_others():
    series = simulate_arma(random_models((2, 1), 9), 120, seed=9)
    clean = fit_arma(series, (4, 3), threads=1)
    bad = series.copy()
    bad[1] = np.nan
    bad[2] = 0.0
    bad[3] = 7.25
    bad[4, 17] = np.inf
    bad[5, 5:] = np.nan
    bad[6, 20:] = np.nan
    bad[7, 14:] = np.nan
    bad[8, 10:] = np.nan
    fitted = fit_arma(bad, (4, 3), threads=1)
    expected = ["full", "empty", "constant", "constant", "infinite", "short", "reduced", "reduced", "ar1"]
    assert list(fitted.status) == expected
    assert list(fitted.ok) == [True, False, False, False, False, False, True, True, True]
    assert list(fitted.fallback) == [False] * 6 + [True] * 3
    assert (fitted.ar[8, 1:] == 0).all()
    assert (fitted.ma[8] == 0).all()
    assert np.isnan(fitted.ar[1:6]).all()
    assert np.isnan(fitted.log_likelihood[1:6]).all()
    np.testing.assert_array_equal(fitted.ar[0], clean.ar[0])
    check_maximum(fit_arma(bad[6:7], (4, 3), threads=1), bad[6:7])


def test_results_cannot_be_changed_by_accident():
    fitted = fit_arma(simulate_arma(random_models((1, 0), 1), 50, seed=10), (1, 0), threads=1)
    with pytest.raises(ValueError, match="read-only"):
        fitted.ar[0, 0] = 0.0


def test_near_unit_root_and_overdifferenced_series():
    generator = np.random.default_rng(11)
    walk = np.cumsum(generator.normal(size=(1, 400)), axis=1)
    difference = np.diff(generator.normal(size=(1, 401)), axis=1)
    fitted = fit_arma(np.concatenate([walk, difference]), (2, 2), threads=1)
    assert fitted.ok.all()
    assert np.isfinite(fitted.log_likelihood).all()
    assert np.abs(np.roots(np.r_[1, fitted.ma[1]])).max() > 0.98


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
        ({"effort": "heroic"}, "effort must be one of"),
        ({"threads": 0}, "threads must be at least 1"),
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
    fitted = fit_arma(x, threads=1)
    assert (fitted.status == "full").all()
    check_maximum(fitted, x)
    assert (fitted.log_likelihood >= fit_arma(x, (3, 2), threads=1).log_likelihood).all()


def test_nearly_noninvertible_series_beats_the_truth():
    """Four of five moving-average roots within 0.006 of the unit circle: Gauss–Newton alone crawls here."""
    free = np.random.default_rng(5035).normal(size=11)
    ar, ma = arma_from_free(free, 6, np.empty((6, 6)), np.empty((5, 5)))
    truth = ArmaModels.from_coefficients(ar, ma, 1.0)
    series = simulate_arma(truth, 1440, seed=5035)
    fitted = fit_arma(series, threads=1)
    assert fitted.log_likelihood[0] > exact(truth, series)[0]
