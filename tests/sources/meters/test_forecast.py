"""From a frame of readings to class laws: windows, origins, households left out, shapes and agreement of parts."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from shoal import Forecasts, InputError, forecast, simulate_meters

START = datetime(2024, 1, 1)
SMALL = {"order": (2, 1), "train_days": 15, "horizon": 6}


@pytest.fixture(scope="module")
def readings() -> pl.DataFrame:
    return simulate_meters(6, 17, seed=11)


@pytest.fixture(scope="module")
def fc(readings: pl.DataFrame) -> Forecasts:
    return forecast(readings, season="day", **SMALL)


def test_shapes_and_clock(fc: Forecasts, readings: pl.DataFrame) -> None:
    n, h = 6, 6
    assert fc.households == tuple(f"H{i:04d}" for i in range(n))
    assert fc.log_mean.shape == fc.season_part.shape == (n, h)
    assert fc.error_cov.shape == fc.mean_cov.shape == (n, h, h)
    assert fc.origin == readings["timestamp"].max() + timedelta(minutes=15)
    assert fc.timestamps.to_list() == [fc.origin + i * timedelta(minutes=15) for i in range(h)]
    assert fc.models.ar.shape == (n, 2)
    assert fc.models.ma.shape == (n, 1)
    assert len(fc.checks.verdict) == n
    assert fc.left_out == {}


def test_laws_are_sound(fc: Forecasts) -> None:
    for covs in (fc.error_cov, fc.mean_cov):
        np.testing.assert_allclose(covs, np.swapaxes(covs, 1, 2), atol=1e-12)
        assert np.linalg.eigvalsh(covs).min() > -1e-9
    variances = np.diagonal(fc.error_cov, axis1=1, axis2=2)
    np.testing.assert_allclose(variances[:, 0], fc.models.innovation_var, rtol=1e-6)
    assert (np.diff(variances, axis=1) >= -1e-12).all()
    # Error and mean covariance add up to the covariance of the process: a Toeplitz matrix.
    total = fc.error_cov + fc.mean_cov
    np.testing.assert_allclose(total[:, 1:, 1:], total[:, :-1, :-1], atol=1e-8)


def test_classes_of_each_query(fc: Forecasts) -> None:
    np.testing.assert_array_equal(fc.classes().means, fc.log_mean)
    np.testing.assert_array_equal(fc.classes("point").covs, 0)
    np.testing.assert_allclose(fc.classes("trajectory").covs, fc.error_cov, atol=1e-12)
    np.testing.assert_array_equal(fc.classes("marginal").means, fc.season_part)
    assert fc.classes("marginal").labels == fc.households
    draw = fc.answer("trajectory", np.zeros_like(fc.log_mean))
    np.testing.assert_array_equal(draw, fc.log_mean)


def test_power(fc: Forecasts) -> None:
    np.testing.assert_allclose(np.log(fc.to_power(fc.log_mean)), fc.log_mean, atol=1e-14)
    np.testing.assert_array_equal(fc.to_power(fc.log_mean), fc.power)
    with pytest.raises(InputError, match="log_values"):
        fc.to_power([1.0])


@pytest.mark.parametrize("season", ["day", "week"])
def test_the_future_has_no_influence(readings: pl.DataFrame, season: str) -> None:
    """Whatever comes after the origin changes nothing: season, model and forecast come from the training window."""
    origin = START + timedelta(days=16, hours=5)
    whole = forecast(readings, season=season, origin=origin, **SMALL)
    changed = readings.with_columns(kw=pl.when(pl.col("timestamp") >= origin).then(9.0).otherwise(pl.col("kw")))
    altered = forecast(changed, season=season, origin=origin.isoformat(), **SMALL)
    np.testing.assert_array_equal(whole.log_mean, altered.log_mean)
    np.testing.assert_array_equal(whole.error_cov, altered.error_cov)
    assert whole.origin == origin
    cut = forecast(readings.filter(pl.col("timestamp") < origin), season=season, **SMALL)
    np.testing.assert_array_equal(whole.log_mean, cut.log_mean)
    # And nothing from before the window either.
    recent = readings.filter(pl.col("timestamp") >= origin - timedelta(days=15))
    np.testing.assert_array_equal(whole.log_mean, forecast(recent, season=season, origin=origin, **SMALL).log_mean)


def test_a_household_does_not_depend_on_the_others(readings: pl.DataFrame, fc: Forecasts) -> None:
    alone = forecast(readings.filter(pl.col("household") == "H0003"), season="day", **SMALL)
    np.testing.assert_allclose(alone.log_mean[0], fc.log_mean[3], rtol=1e-10)


def test_bad_households_are_reported_and_stop_nobody(readings: pl.DataFrame, fc: Forecasts) -> None:
    kw, time, home = pl.col("kw"), pl.col("timestamp"), pl.col("household")
    repeating = pl.lit(1.0) + time.dt.hour() / 10  # the same every day: nothing is left beyond the season
    broken = readings.with_columns(
        kw=pl.when(home == "H0000").then(0.0).when(home == "H0001").then(repeating).otherwise(kw)
    ).filter((home != "H0002") | (time >= START + timedelta(days=10)))
    stray = pl.DataFrame({"household": "lost", "timestamp": [START, datetime(2090, 1, 1)], "kw": 1.0})
    result = forecast(pl.concat([broken, stray]), season="day", **SMALL)
    assert result.households == ("H0003", "H0004", "H0005")
    np.testing.assert_allclose(result.log_mean, fc.log_mean[3:], rtol=1e-10)
    assert set(result.left_out) == {"H0000", "H0001", "H0002", "lost"}
    assert "constant" in result.left_out["H0000"]
    assert "season" in result.left_out["H0001"]
    assert "too short a history: fewer than 80% of the 1440 readings that 15 days need" in result.left_out["H0002"]
    table = {row["household"]: row for row in result.quality.to_dicts()}
    assert [table[n]["verdict"] for n in sorted(table)] == ["left out"] * 3 + ["ok"] * 3 + ["left out"]
    assert table["H0000"]["floored"] == 1440
    assert all(table[name]["reason"] == reason for name, reason in result.left_out.items())
    assert table["H0004"]["model"] == result.checks.verdict[1]


def test_gaps_stay_missing(readings: pl.DataFrame, fc: Forecasts) -> None:
    rng = np.random.default_rng(2)
    holes = readings.filter(pl.Series(rng.random(len(readings)) > 0.03))
    result = forecast(holes, season="day", **SMALL)
    assert result.households == fc.households
    assert result.quality["missing"].sum() > 0
    assert np.isfinite(result.log_mean).all()
    # Three percent of holes move the forecast by a fraction of its own error.
    moved = np.abs(result.log_mean - fc.log_mean) / np.sqrt(np.diagonal(fc.error_cov, axis1=1, axis2=2))
    assert np.median(moved) < 0.5


def test_default_origin_is_where_half_of_the_households_end(readings: pl.DataFrame) -> None:
    """One meter that stopped early, or one that runs longer, does not move the origin of the others."""
    home, time = pl.col("household"), pl.col("timestamp")
    end = START + timedelta(days=17)
    early = readings.filter((home != "H0001") | (time < end - timedelta(days=1)))
    assert forecast(early, season="day", **SMALL).origin == end
    late = readings.filter((home == "H0001") | (time < end - timedelta(days=1)))
    assert forecast(late, season="day", **SMALL).origin == end - timedelta(days=1)


def test_floor_is_counted(readings: pl.DataFrame) -> None:
    high = forecast(readings, season="day", floor=0.3, **SMALL)
    for row in high.quality.to_dicts():
        window = readings.filter(
            (pl.col("household") == row["household"]) & (pl.col("timestamp") >= START + timedelta(days=2))
        )
        assert row["floored"] == (window["kw"] < 0.3).sum()
    assert (high.season.profile >= np.log(0.3) - 1e-12).all()


@pytest.mark.parametrize("season", ["day", "week"])
def test_the_season_is_the_mean_of_each_time_and_borrows_where_none_was_seen(
    readings: pl.DataFrame, season: str
) -> None:
    home, time = pl.col("household"), pl.col("timestamp")
    early = (time.dt.hour() == 1) & (time.dt.minute() == 15)
    gone = early & ((home == "H0000") & (time.dt.weekday() == 1) | (home == "H0001"))
    holes = readings.filter(~gone).filter(
        pl.Series(np.random.default_rng(1).random((~readings.select(gone).to_series()).sum()) > 0.05)
    )
    fc = forecast(holes, season=season, **SMALL)
    stamps = fc.history.timestamps
    slot = (stamps.dt.hour().cast(int) * 4 + stamps.dt.minute() // 15).to_numpy()
    phase = slot if season == "day" else (stamps.dt.weekday().to_numpy().astype(int) - 1) * 96 + slot
    logs = np.log(np.maximum(fc.training_kw, fc.season.floor))
    assert fc.season.profile.shape == (6, {"day": 96, "week": 7 * 96}[season])
    for k in range(0, fc.season.profile.shape[1], 37):
        part, seen = logs[:, phase == k], fc.season.repeats[:, k] > 0
        np.testing.assert_array_equal(fc.season.repeats[:, k], np.isfinite(part).sum(axis=1))
        np.testing.assert_allclose(fc.season.profile[seen, k], np.nanmean(part[seen], axis=1), atol=1e-12)
    assert fc.season.repeats[1, 5] == 0
    assert fc.season.profile[1, 5] == pytest.approx(np.nanmean(logs[1]))
    if season == "week":
        assert fc.season.repeats[0, 5] == 0
        assert fc.season.profile[0, 5] == pytest.approx(np.nanmean(logs[0, slot == 5]))


def test_clock_change_inside_the_window() -> None:
    """The horizon counts instants, the season wall-clock times: an hour is skipped on 2024-03-31."""
    frame = simulate_meters(2, 20, seed=3, start="2024-03-12")
    zoned = frame.with_columns(pl.col("timestamp").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Zurich"))
    result = forecast(zoned, season="day", origin="2024-03-31T01:30", **SMALL)
    wall = result.timestamps.dt.strftime("%H:%M").to_list()
    assert wall == ["01:30", "01:45", "03:00", "03:15", "03:30", "03:45"]
    np.testing.assert_array_equal(result.season_part[:, 2], result.season.profile[:, 12])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"order": (0, 0)}, "order must have at least one"),
        ({"order": (-1, 2)}, "order must be at least 0"),
        ({"order": 3}, "order must be a pair of whole numbers"),
        ({"order": (200, 1)}, "order does not fit: (200, 1) needs 2020 training readings"),
        ({"train_days": 13}, "train_days must be at least 14 for season='week'"),
        ({"train_days": 0}, "train_days must be at least 1"),
        ({"train_days": 60}, "train_days=60 needs 5760 readings before origin"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"horizon": 5000}, "horizon must not exceed the training window of 1440 steps"),
        ({"season": "year"}, "season must be one of"),
        ({"floor": 0}, "floor must be above 0"),
        ({"origin": "2030-01-01"}, "origin lies after the last reading"),
        ({"origin": "2020-01-01"}, "origin lies before the first reading"),
        ({"origin": "2024-01-17T00:07"}, "origin must fall on the grid"),
        ({"origin": "soon"}, "origin must be a datetime or ISO text"),
        ({"origin": "2024-01-17T00:00+01:00"}, "origin has a time zone"),
        ({"origin": 5}, "origin must be a datetime"),
    ],
)
def test_refusals(readings: pl.DataFrame, kwargs: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        forecast(readings, **({"order": (2, 1)} | kwargs))  # type: ignore[arg-type]


def test_the_first_step_is_close_to_the_last_reading() -> None:
    """A slow series is predicted near where it stands, not at its mean: signs and order of the past are right."""
    rng = np.random.default_rng(8)
    length = 15 * 96
    x = np.empty(length)
    x[0] = 0
    for t in range(1, length):
        x[t] = 0.98 * x[t - 1] + 0.1 * rng.standard_normal()
    x[-30:] = 1.5 + 0.05 * rng.standard_normal(30)
    stamps = [START + t * timedelta(minutes=15) for t in range(length)]
    frame = pl.DataFrame({"household": "a", "timestamp": stamps, "kw": np.exp(x)})
    result = forecast(frame, order=(1, 0), season="day", horizon=3)
    now = result.log_mean[0] - result.season_part[0]
    last = x[-1] - result.season.profile[0, 95]
    ar = result.models.ar[0, 0]
    np.testing.assert_allclose(now, last * ar ** np.arange(1, 4), rtol=1e-6)


def test_progress_counts_the_households(readings: pl.DataFrame) -> None:
    steps: list[tuple[int, int]] = []
    forecast(readings, season="day", **SMALL, progress=lambda *step: steps.append(step))
    assert steps[-1] == (6, 6)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
