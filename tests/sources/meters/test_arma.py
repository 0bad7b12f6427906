"""ARMA models of many series: the stated likelihood, where the search ends, forecasts and checks against dense laws."""

from __future__ import annotations

import math
import threading
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import linalg, signal, stats

import shoal

QUARTER = timedelta(minutes=15)
TWO_DAYS = {"train_days": 2, "season": "day"}


def coefficients(partials: np.ndarray) -> np.ndarray:
    """c of 1 − Σ c_j B^j with these partial autocorrelations: stable where they are inside (−1, 1)."""
    c = np.zeros(0)
    for r in partials:
        c = np.append(c - r * c[::-1], r)
    return c


def stable(order: tuple[int, int], seed: int, spread: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """(ar, ma), stationary and invertible."""
    partials = np.tanh(np.random.default_rng(seed).normal(size=sum(order)) * spread)
    return coefficients(partials[: order[0]]), -coefficients(partials[order[0] :])


def drawn(models: list[tuple[np.ndarray, np.ndarray]], length: int, seed: int) -> np.ndarray:
    """One series per model; what comes before has been forgotten when it begins."""
    shocks = np.random.default_rng(seed).standard_normal((len(models), length + 3000))
    rows = zip(models, shocks, strict=True)
    return np.stack([signal.lfilter(np.r_[1, ma], np.r_[1, -ar], e)[-length:] for (ar, ma), e in rows])


def covariance(ar: np.ndarray, ma: np.ndarray, var: float, length: int) -> np.ndarray:
    """The (length, length) covariance of one model, without truncating its impulse response.

    γ_k − Σ_i ar_i γ_|k−i| = σ² Σ_{j≥k} ma_j ψ_{j−k}, ma_0 = 1 (Brockwell & Davis 1991, section 3.3, third method): p +
    1 equations for γ_0 … γ_p, and a recursion beyond.
    """
    p, full = len(ar), np.r_[1.0, ma]
    psi = signal.lfilter(full, np.r_[1, -ar], np.eye(1, len(full))[0])
    right = np.zeros(max(length, p + 1))
    for k in range(min(len(full), len(right))):
        right[k] = var * full[k:] @ psi[: len(full) - k]
    system = np.eye(p + 1)
    for k in range(p + 1):
        for i in range(1, p + 1):
            system[k, abs(k - i)] -= ar[i - 1]
    gamma = np.zeros(len(right))
    gamma[: p + 1] = np.linalg.solve(system, right[: p + 1])
    for k in range(p + 1, len(right)):
        gamma[k] = right[k] + ar @ gamma[k - p : k][::-1]
    return np.asarray(linalg.toeplitz(gamma[:length]))


def log_density(x: np.ndarray, ar: np.ndarray, ma: np.ndarray, var: float) -> float:
    """Of the samples that are there, under the dense normal law."""
    seen = np.isfinite(x)
    root = np.linalg.cholesky(covariance(ar, ma, var, len(x))[np.ix_(seen, seen)])
    white = np.linalg.solve(root, x[seen])
    return float(-0.5 * (white @ white + seen.sum() * math.log(2 * math.pi)) - np.log(np.diag(root)).sum())


def check_fit(fitted: object, series: np.ndarray, rel: float = 1e-9) -> None:
    """The stated likelihood is that of the parameters, the variance is the best one, and the model is stable."""
    for x, ar, ma, var, stated in zip(
        series, fitted.ar, fitted.ma, fitted.innovation_var, fitted.log_likelihood, strict=True
    ):
        assert stated == pytest.approx(log_density(x, ar, ma, var), rel=rel)
        for factor in (0.99, 1.01):
            assert log_density(x, ar, ma, factor * var) < stated
        for polynomial in (np.r_[1, -ar], np.r_[1, ma]):
            assert np.abs(np.roots(polynomial)).max(initial=0.0) < 1


# ---------------------------------------------------------------------- fitting


@pytest.mark.parametrize("order", [(6, 5), (2, 1), (1, 0), (0, 2), (0, 0), (3, 1)])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_fit_is_as_likely_as_the_truth(order, gaps):
    """But for what the search leaves, and a lower maximum where it ends now and then."""
    truth = [stable(order, seed) for seed in range(4)]
    series = drawn(truth, 500, seed=1)
    if gaps:
        series[np.random.default_rng(3).random(series.shape) < 0.1] = np.nan
        series[0, 100:140] = np.nan
    fitted = shoal.fit_arma(series, order)
    assert (fitted.status == "full").all()
    assert fitted.ok.all()
    assert (fitted.n_obs == np.isfinite(series).sum(axis=1)).all()
    lead = fitted.log_likelihood - [log_density(x, ar, ma, 1.0) for x, (ar, ma) in zip(series, truth, strict=True)]
    assert (lead > -1.0).sum() >= 3
    assert np.median(lead) > 0
    check_fit(fitted, series)


def test_exact_near_unit_roots_and_over_long_gaps():
    draw = np.random.default_rng(11)
    walk, difference = np.cumsum(draw.normal(size=300)), np.diff(draw.normal(size=301))
    fitted = shoal.fit_arma(np.stack([walk, difference]), (2, 2))
    assert fitted.ok.all()
    check_fit(fitted, np.stack([walk, difference]), rel=1e-6)
    assert np.abs(np.roots(np.r_[1, fitted.ma[1]])).max() > 0.95
    # A hundred samples with long gaps between them: the product of the prediction variances exceeds any double.
    strewn = np.full((1, 4000), np.nan)
    strewn[0, ::40] = 1e3 * np.cumsum(draw.normal(size=100))
    fitted = shoal.fit_arma(strewn, (1, 0))
    assert fitted.log_likelihood[0] == pytest.approx(
        log_density(strewn[0], fitted.ar[0], fitted.ma[0], fitted.innovation_var[0]), rel=1e-6
    )
    # Four of five moving-average roots within 0.006 of the unit circle, where the plain recursion forgets slowly.
    near = stable((6, 5), 5035, 1.0)
    series = drawn([near], 500, seed=5035)
    check_fit(shoal.fit_arma(series), series, rel=1e-6)


def test_forecasts_are_as_good_as_those_of_statsmodels():
    """As likely as full maximum likelihood, and forecasts of known futures within 5 % of its absolute error."""
    sarimax = pytest.importorskip("statsmodels.tsa.statespace.sarimax").SARIMAX
    series = drawn([stable((2, 1), seed, 0.8) for seed in range(6)], 262, seed=5)
    past, future = series[:, :250], series[:, 250:]
    fitted = shoal.fit_arma(past, (2, 1))
    theirs = [sarimax(x, order=(2, 0, 1), trend="n").fit(disp=0, maxiter=50) for x in past]
    assert np.mean(fitted.log_likelihood - [other.llf for other in theirs]) > -0.5
    with_ours = [
        other.model.smooth(np.r_[ar, ma, var]).forecast(12)
        for other, ar, ma, var in zip(theirs, fitted.ar, fitted.ma, fitted.innovation_var, strict=True)
    ]
    ours, best = (np.abs(np.array(ahead) - future).mean() for ahead in (with_ours, [f.forecast(12) for f in theirs]))
    assert ours < 1.05 * best


def test_gaps_at_the_ends_and_scale_change_nothing_else():
    series = drawn([stable((2, 2), seed) for seed in range(2)], 300, seed=6)
    plain = shoal.fit_arma(series, (2, 2))
    padded = np.concatenate([np.full((2, 20), np.nan), series, np.full((2, 30), np.nan)], axis=1)
    np.testing.assert_allclose(shoal.fit_arma(padded, (2, 2)).log_likelihood, plain.log_likelihood, atol=0.5)
    for scale in (1e-120, 1e150):
        other = shoal.fit_arma(series * scale, (2, 2))
        np.testing.assert_allclose(other.ar, plain.ar, atol=1e-6)
        np.testing.assert_allclose(other.innovation_var / scale**2, plain.innovation_var, rtol=1e-6)
        np.testing.assert_allclose(other.log_likelihood, plain.log_likelihood - 300 * np.log(scale), rtol=1e-9)


def test_rows_threads_and_repeats_do_not_matter(monkeypatch):
    series = drawn([stable((6, 5), seed) for seed in range(40)], 200, seed=7)
    before, results = threading.active_count(), []
    for threads, rows in ((1, slice(None)), (2, slice(None)), (1, [3, 17])):
        monkeypatch.setenv("SHOAL_THREADS", str(threads))
        seen: list[tuple[int, int, int]] = []
        more = lambda *done, seen=seen: seen.append((*done, threading.active_count() - before))  # noqa: E731
        results.append(shoal.fit_arma(series[rows], (6, 5), progress=more))
        assert seen[-1][:2] == (len(results[-1]), len(results[-1]))
        started = max(started for *_, started in seen)  # a pool starts a thread when all others are busy
        assert started == 0 if threads == 1 else 1 <= started <= threads
    for name in ("ar", "ma", "innovation_var", "log_likelihood"):
        one, two, some = (getattr(fitted, name) for fitted in results)
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one[[3, 17]], some)
        with pytest.raises(ValueError, match="read-only"):
            one[0] = 0.0


def test_bad_rows_are_flagged_and_never_stop_the_others():
    series = drawn([stable((2, 1), seed) for seed in range(9)], 120, seed=9)
    clean = shoal.fit_arma(series, (4, 3))
    bad = series.copy()
    bad[1] = np.nan
    bad[2] = 0.0
    bad[3] = 7.25
    bad[4, 17] = np.inf
    for row, length in ((5, 5), (6, 20), (7, 14), (8, 10)):
        bad[row, length:] = np.nan
    fitted = shoal.fit_arma(bad, (4, 3))
    expected = ["full", "empty", "constant", "constant", "infinite", "short", "reduced", "reduced", "ar1"]
    assert list(fitted.status) == expected
    assert list(fitted.ok) == [True, False, False, False, False, False, True, True, True]
    assert (fitted.ar[8, 1:] == 0).all()
    assert (fitted.ma[8] == 0).all()
    assert np.isnan(fitted.ar[1:6]).all()
    assert np.isnan(fitted.log_likelihood[1:6]).all()
    np.testing.assert_array_equal(fitted.ar[0], clean.ar[0])
    check_fit(fitted.take([6, 7, 8]), bad[6:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"series": np.zeros(30)}, "series must have 2 dimension"),
        ({"series": np.zeros((0, 30))}, "series must hold at least one finite value"),
        ({"series": [[1.0, 2.0], [3.0]]}, "series must be an array of numbers"),
        ({"series": [["a"] * 40]}, "series must be a number, or numbers"),
        ({"series": np.full((2, 90), np.nan)}, "series must hold at least one finite value"),
        ({"series": np.ones((2, 20))}, r"too short for order \(6, 5\): it has 20 samples and needs at least 36"),
        ({"order": (1, -1)}, "order must be at least 0"),
        ({"order": (1.5, 1)}, "order must be a whole number"),
        ({"order": 3}, "order must be a pair"),
        ({"order": (1, 2, 3)}, "order must be a pair"),
    ],
)
def test_refusals_name_the_argument(arguments, message):
    with pytest.raises(shoal.InputError, match=message):
        shoal.fit_arma(**{"series": np.random.default_rng(0).normal(size=(2, 90)), **arguments})


def test_real_households(real_data: Path):
    kw = pl.read_parquet(real_data / "swiss15_clean.parquet")["kw"].to_numpy().astype(float)
    x = np.log(np.maximum(kw.reshape(-1, 4704)[::120, :1440], 0.01))
    slot = np.arange(1440) % 672
    x -= np.stack([x[:, slot == s].mean(axis=1) for s in range(672)], axis=1)[:, slot]
    fitted = shoal.fit_arma(x)
    assert (fitted.status == "full").all()
    check_fit(fitted, x)
    assert (fitted.log_likelihood >= shoal.fit_arma(x, (3, 2)).log_likelihood).all()


# ---------------------------------------------------------------------- forecasts and checks


def readings(logs: np.ndarray) -> pl.DataFrame:
    """Homes whose log power is this at quarter hours."""
    start, (n, length) = datetime(2024, 1, 1), logs.shape
    stamps = [start + i * QUARTER for i in range(length)]
    names = np.repeat([f"h{i:03d}" for i in range(n)], length)
    return pl.DataFrame({"household": names, "timestamp": stamps * n, "kw": np.exp(logs).ravel()})


def residuals(fc: shoal.Forecasts) -> np.ndarray:
    """(n, T) log power of the training window without its season."""
    slot = (fc.history.timestamps.dt.hour().cast(int) * 4 + fc.history.timestamps.dt.minute() // 15).to_numpy()
    return np.log(np.maximum(fc.training_kw, fc.season.floor)) - fc.season.profile[:, slot]


@pytest.mark.parametrize("order", [(6, 5), (2, 4), (3, 0), (0, 3)])
def test_a_forecast_is_the_law_of_the_future_given_the_past(order):
    """Conditioning the dense covariance of past and future on what was observed, gaps included."""
    x = drawn([stable(order, 100 + seed, 0.6) for seed in range(3)], 192, seed=1)
    frame = readings(x).filter(np.random.default_rng(5).random(x.size) > 0.1)
    fc = shoal.forecast(frame, order=order, horizon=12, origin=datetime(2024, 1, 3), **TWO_DAYS)
    for i, past in enumerate(residuals(fc)):
        cov = covariance(fc.models.ar[i], fc.models.ma[i], fc.models.innovation_var[i], 204)
        seen = np.flatnonzero(np.isfinite(past))
        gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[seen, 192:]).T
        size = cov[0, 0]
        mean = fc.season_part[i] + gain @ past[seen]
        np.testing.assert_allclose(fc.log_mean[i], mean, atol=1e-8 * np.sqrt(size))
        np.testing.assert_allclose(fc.mean_cov[i], gain @ cov[seen, 192:], atol=1e-8 * size)
        np.testing.assert_allclose(fc.error_cov[i] + fc.mean_cov[i], cov[192:, 192:], atol=1e-8 * size)


def test_checks_are_those_of_scipy_and_statsmodels():
    diagnostic = pytest.importorskip("statsmodels.stats.diagnostic")
    fc = shoal.forecast(readings(drawn([stable((2, 1), 3)] * 4, 192, seed=2)), order=(2, 1), horizon=2, **TWO_DAYS)
    for i, x in enumerate(residuals(fc)):
        cov = covariance(fc.models.ar[i], fc.models.ma[i], fc.models.innovation_var[i], 192)
        z = np.linalg.solve(np.linalg.cholesky(cov), x)
        first, second = z[:96], z[96:]
        assert fc.checks.gaussian_p[i] == pytest.approx(stats.jarque_bera(z).pvalue, rel=1e-6)
        box = diagnostic.acorr_ljungbox(z - z.mean(), lags=[24], model_df=3)
        assert fc.checks.white_p[i] == pytest.approx(float(box["lb_pvalue"].iloc[0]), rel=1e-6)
        assert fc.checks.level_p[i] == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue, rel=1e-6)
        assert fc.checks.spread_p[i] == pytest.approx(stats.levene(first, second, center="median").pvalue, rel=1e-6)


@pytest.mark.parametrize("wrong", [None, "gaussian", "white", "stationary"])
def test_true_models_hold_and_false_ones_do_not(wrong):
    """30 homes of ten days; at a level of 1 % few are rejected by chance, and who is wrong is found."""
    draw, shape = np.random.default_rng(4), (30, 10 * 96 + 300)
    shocks = draw.standard_t(4, shape) if wrong == "gaussian" else draw.standard_normal(shape)
    shocks *= np.linspace(0.5, 1.7, shape[1]) if wrong == "stationary" else 1.0
    lag = np.r_[1.0, np.zeros(11), -0.8] if wrong == "white" else np.r_[1.0, -0.7]
    x = 0.3 * signal.lfilter([1.0], lag, shocks, axis=1)[:, 300:]
    fc = shoal.forecast(readings(x), order=(1, 0), horizon=2, train_days=10, season="day")
    if wrong is None:
        assert sum(verdict == "holds" for verdict in fc.checks.verdict) >= 24
    else:
        assert fc.checks.holds[wrong].sum() <= 3
        assert sum(f"not {wrong}" in verdict for verdict in fc.checks.verdict) >= 27
