"""A new day: the window moves, every home is fitted on it again, and who has news is known."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.product.sources.meters.meter_files import meter_readings

START = datetime(2024, 1, 1)
ORIGIN = START + timedelta(days=7)
SETTINGS = {"order": (2, 1), "train_days": 6, "horizon": 4, "season": "day"}


def _until(readings: pl.DataFrame, days: float) -> pl.DataFrame:
    return readings.filter(pl.col("timestamp") < START + timedelta(days=days))


def _since(readings: pl.DataFrame, days: float) -> pl.DataFrame:
    return readings.filter(pl.col("timestamp") >= START + timedelta(days=days))


@pytest.fixture(scope="module")
def readings() -> pl.DataFrame:
    made = shoal.simulate_meters(6, 10, step_minutes=30, seed=4)
    names = made["household"].unique().sort().to_list()
    # The second home misses readings here and there, the first a whole morning of the new day.
    gone = (
        (pl.col("household") == names[1])
        & (pl.col("timestamp").dt.minute() == 30)
        & (pl.col("timestamp").dt.hour() % 7 == 3)
    )
    morning = pl.col("timestamp").is_between(ORIGIN + timedelta(hours=3), ORIGIN + timedelta(hours=9))
    return made.filter(~gone & ~((pl.col("household") == names[0]) & morning))


@pytest.fixture(scope="module")
def yesterday(readings) -> shoal.Forecasts:
    return shoal.forecast(_until(readings, 7), **SETTINGS)


def test_days_one_by_one_are_days_at_once(yesterday, readings):
    step = yesterday
    for day in (8, 9, 10):
        step, _ = shoal.update_forecasts(step, _until(_since(readings, day - 1), day))
    once, _ = shoal.update_forecasts(yesterday, _since(readings, 7))
    assert np.array_equal(step.log_mean, once.log_mean)
    assert np.array_equal(step.error_cov, once.error_cov)
    assert np.array_equal(step.history.kw, once.history.kw, equal_nan=True)


@pytest.mark.parametrize("hours", [1, 24, 60])
@pytest.mark.parametrize("whole", [False, True])
def test_an_update_is_the_forecast_at_the_new_origin(yesterday, readings, hours, whole):
    given = _until(readings if whole else _since(readings, 7), 7 + hours / 24)
    made, news = shoal.update_forecasts(yesterday, given)
    fresh = shoal.forecast(_until(readings, 7 + hours / 24), **SETTINGS)
    assert made.origin == fresh.origin == ORIGIN + timedelta(hours=hours)
    assert news == set(made.households) == set(fresh.households)
    assert np.array_equal(made.history.kw, fresh.history.kw, equal_nan=True)
    assert np.array_equal(made.log_mean, fresh.log_mean)
    assert np.array_equal(made.error_cov, fresh.error_cov)
    assert np.array_equal(made.season.profile, fresh.season.profile)
    assert made.quality["household"].to_list() == fresh.quality["household"].to_list()
    assert made.quality["trained"].to_list() == fresh.quality["trained"].to_list()


def test_files_keep_what_the_next_day_needs(yesterday, readings, tmp_path):
    yesterday.save(tmp_path / "f.zip")
    back = shoal.Forecasts.load(tmp_path / "f.zip")
    new = _until(_since(readings, 7), 8)
    made, _ = shoal.update_forecasts(back, new)
    direct, _ = shoal.update_forecasts(yesterday, new)
    made.save(tmp_path / "a.zip")
    direct.save(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_zones_with_a_clock_change():
    readings = shoal.simulate_meters(3, 10, step_minutes=30, seed=2, start="2024-03-25")
    readings = readings.with_columns(
        pl.col("timestamp").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Zurich")
    )
    cut = datetime(2024, 4, 1)
    wall = pl.col("timestamp").dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    first = shoal.forecast(readings.filter(wall < cut), **SETTINGS)
    new = readings.filter((wall >= cut) & (wall < cut + timedelta(days=1)))
    made, _ = shoal.update_forecasts(first, new)
    fresh = shoal.forecast(readings.filter(wall < cut + timedelta(days=1)), **SETTINGS)
    assert made.timestamps.to_list() == fresh.timestamps.to_list()
    assert np.array_equal(made.season.profile, fresh.season.profile)


def test_homes_come_and_go(readings):
    names = readings["household"].unique().sort().to_list()
    late, gone, flat = names[2], names[3], names[4]
    stays = ~((pl.col("household") == late) & (pl.col("timestamp") < START + timedelta(days=2.5)))
    leaves = ~((pl.col("household") == gone) & (pl.col("timestamp") >= ORIGIN))
    day = pl.when((pl.col("household") == flat) & (pl.col("timestamp") >= ORIGIN)).then(0.3).otherwise(pl.col("kw"))
    data = readings.filter(stays & leaves).with_columns(kw=day)
    made = shoal.forecast(_until(data, 7), **SETTINGS)
    assert "too short a history" in made.left_out[late]
    seen = []
    for number in (8, 9, 10):
        made, news = shoal.update_forecasts(made, _until(_since(data, number - 1), number))
        whole = shoal.forecast(_until(data, number), **SETTINGS)
        assert made.households == whole.households
        assert dict(made.left_out) == dict(whole.left_out)
        assert news == set(names) - {gone}
        seen.append(set(made.households))
    assert late in seen[0]
    assert gone in seen[0]
    assert "ended before the forecast begins" in made.left_out[gone]
    row = made.quality.filter(pl.col("household") == gone)
    assert row["verdict"].item() == "left out"


def test_a_home_with_only_faulty_new_readings_is_forecast_across_the_gap(yesterday, readings):
    name = yesterday.households[5]
    faulty = pl.when(pl.col("household") == name).then(float("inf")).otherwise(pl.col("kw"))
    made, news = shoal.update_forecasts(yesterday, _until(_since(readings, 7), 8).with_columns(kw=faulty))
    assert name in made.households
    assert name not in made.left_out
    assert news == set(yesterday.households) - {name}
    assert made.quality.filter(pl.col("household") == name)["verdict"].item() == "repaired"


def test_refusals(yesterday, readings):
    new = _until(_since(readings, 7), 8)
    with pytest.raises(shoal.InputError, match="nothing new"):
        shoal.update_forecasts(yesterday, _until(readings, 7))
    with pytest.raises(shoal.InputError, match="zone"):
        shoal.update_forecasts(yesterday, new.with_columns(pl.col("timestamp").dt.replace_time_zone("UTC")))
    with pytest.raises(shoal.InputError, match="grid"):
        shoal.update_forecasts(yesterday, new.with_columns(pl.col("timestamp") + timedelta(minutes=7)))
    hourly = meter_readings(new.filter(pl.col("timestamp").dt.minute() == 0), interval=60)
    with pytest.raises(shoal.InputError, match="every 0:30:00"):
        shoal.update_forecasts(yesterday, hourly)
    with pytest.raises(shoal.InputError, match="horizon"):
        shoal.update_forecasts(yesterday, new, horizon=10**4)


def test_the_horizon_may_change(yesterday, readings):
    new = _until(_since(readings, 7), 8)
    short, _ = shoal.update_forecasts(yesterday, new)
    long, _ = shoal.update_forecasts(yesterday, new, horizon=9)
    assert (short.horizon, long.horizon) == (4, 9)
    assert np.array_equal(long.log_mean[:, :4], short.log_mean)
