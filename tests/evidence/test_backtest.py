"""Rolling origins: the figures are those of a plain recomputation, and a true model covers what it claims."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from evidence.backtest import backtest, inflation
from evidence.homes import SWISS
from shoal import InputError, forecast, simulate_meters
from shoal.product.sources.meters.predictive_laws import fit_season

START = datetime(2024, 1, 1)


def test_figures_are_those_of_a_plain_recomputation() -> None:
    frame = simulate_meters(3, 19, seed=4)
    origins = [START + timedelta(days=16, hours=7), START + timedelta(days=18, hours=20)]
    result = backtest(frame, origins, order=(1, 1), season="day", horizon=4)
    kw = frame["kw"].to_numpy().reshape(3, -1)
    assert result.cases == tuple((i, f"H{j:04d}") for i in range(2) for j in range(3))
    for i, origin in enumerate(origins):
        fc = forecast(frame, (1, 1), 15, 4, "day", origin)
        at = (origin - START) // timedelta(minutes=15)
        rows = slice(3 * i, 3 * i + 3)
        np.testing.assert_allclose(result.error[rows], fc.power - kw[:, at : at + 4])
        np.testing.assert_allclose(result.naive_error[rows], kw[:, at - 96 : at - 92] - kw[:, at : at + 4])
        low, high = (fc.to_power(fc.log_mean + z * fc.error_std) for z in (-1.2815515655446004, 1.2815515655446004))
        truth = np.maximum(kw[:, at : at + 4], 0.02)
        np.testing.assert_array_equal(np.abs(result.z[rows]) <= 1.2815515655446004, (low <= truth) & (truth <= high))
    table = result.table()
    np.testing.assert_allclose(table["rmse_kw"], np.sqrt((result.error**2).mean(axis=0)))
    np.testing.assert_allclose(table["naive_mae_kw"], np.abs(result.naive_error).mean(axis=0))


def test_default_origins_leave_a_whole_horizon() -> None:
    frame = simulate_meters(2, 18, seed=4)
    result = backtest(frame, 2, order=(1, 0), season="day", horizon=4)
    end = START + timedelta(days=18)
    assert result.origins == (end - timedelta(hours=30), end - timedelta(hours=1))
    assert np.isfinite(result.error).all()


def test_a_true_model_is_covered() -> None:
    """Log-Gaussian AR(1) around a daily profile: intervals hold what they claim."""
    rng = np.random.default_rng(9)
    n, days = 60, 40
    length = days * 96
    x = np.zeros((n, length))
    shocks = rng.standard_normal((n, length))
    for t in range(1, length):
        x[:, t] = 0.8 * x[:, t - 1] + 0.4 * shocks[:, t]
    kw = np.exp(x + np.sin(2 * np.pi * np.arange(length) / 96))
    stamps = [START + t * timedelta(minutes=15) for t in range(length)]
    frame = pl.DataFrame(
        {"household": np.repeat([f"h{i:02d}" for i in range(n)], length), "timestamp": stamps * n, "kw": kw.ravel()}
    )
    result = backtest(frame, 4, order=(1, 0), train_days=35, season="day", horizon=4)
    # 240 cases a step. Estimating the season from 35 days costs a few percent of the error variance.
    np.testing.assert_allclose(result.coverage().mean(axis=1), [0.5, 0.8, 0.95], atol=0.05)
    assert (result.table()["rmse_kw"] < result.table()["naive_rmse_kw"]).all()


@pytest.mark.skipif(not SWISS.there, reason="the Swiss homes are not here")
def test_on_real_readings() -> None:
    """Forty homes, daily season: better than seasonal naive, and intervals near what they claim."""
    data = SWISS.read()
    some = data.frame["household"].unique().sort().gather_every(12).implode()
    result = backtest(data.frame.filter(pl.col("household").is_in(some)), 4, season="day", order=(2, 1))
    table = result.table()
    assert (table["log_rmse"] < table["naive_log_rmse"]).all()
    assert table["mae_kw"].mean() < table["naive_mae_kw"].mean()
    assert table["inside_80"].mean() == pytest.approx(0.8, abs=0.06)
    assert table["inside_95"].mean() == pytest.approx(0.93, abs=0.04)


def test_refusals() -> None:
    frame = simulate_meters(1, 16, seed=4)
    with pytest.raises(InputError, match="origins"):
        backtest(frame, 0)
    with pytest.raises(InputError, match="origins"):
        backtest(frame, [])
    with pytest.raises(InputError, match="every must be a multiple"):
        backtest(frame, 2, every=timedelta(minutes=7))
    with pytest.raises(InputError, match="levels"):
        backtest(frame, 2, levels=[1.0])


@pytest.mark.parametrize("repeats", [2, 3, 15])
def test_inflation_is_what_estimating_the_mean_costs(repeats: int) -> None:
    """Independent readings: error variance of the next one over the variance of the residuals, by simulation."""
    rng = np.random.default_rng(repeats)
    n = 4000
    logs = rng.standard_normal((n, (repeats + 1) * 96))
    phase = np.tile(np.arange(96), repeats)
    season = fit_season(np.exp(logs[:, : repeats * 96]), phase, period="day", step=timedelta(minutes=15), floor=1e-9)
    inside = season.residuals(np.exp(logs[:, : repeats * 96]), phase).var()
    ahead = (logs[:, repeats * 96 :] - season.profile[:, np.arange(96)]).var()
    factor = inflation(season, np.arange(96))
    assert (factor == factor[0, 0]).all()
    assert ahead / inside == pytest.approx(factor[0, 0], rel=0.02)
