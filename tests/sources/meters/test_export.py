"""Homes that export: readings below zero are data, on a scale that allows them; the others' forecasts do not change."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shoal
from shoal import Forecasts
from shoal.product.sources.meters.meter_files import meter_readings

SETTINGS = {"order": (1, 1), "train_days": 7, "horizon": 24, "season": "day"}
ORIGIN = datetime(2024, 1, 10)
SOLAR = ("H0000", "H0001", "H0002", "H0003")


def with_solar(homes: tuple[str, ...] = SOLAR, n: int = 8, days: int = 10) -> pl.DataFrame:
    """Simulated homes, some of them with panels on the roof: a bell around noon, cloudy on some days."""
    readings = shoal.simulate_meters(n, days, step_minutes=60, seed=4)
    hour = pl.col("timestamp").dt.hour()
    sun = (1 - ((hour - 12) / 4.5) ** 2).clip(0) * (4 + 2 * (pl.col("timestamp").dt.day() * 7 % 5) / 4)
    net = pl.when(pl.col("household").is_in(homes)).then(pl.col("kw") - sun).otherwise(pl.col("kw"))
    return readings.with_columns(kw=net)


@pytest.fixture(scope="module")
def readings() -> pl.DataFrame:
    return with_solar()


@pytest.fixture(scope="module")
def forecasts(readings: pl.DataFrame) -> Forecasts:
    return shoal.forecast(readings, origin=ORIGIN - timedelta(days=1), export=True, **SETTINGS)


def test_every_home_has_a_forecast_and_noon_is_below_zero(forecasts: Forecasts, readings: pl.DataFrame) -> None:
    assert not forecasts.left_out
    assert tuple(np.array(forecasts.households)[forecasts.exports]) == SOLAR
    noon = forecasts.power[:, 11:14]
    assert (noon[forecasts.exports] < -1).all()
    assert (forecasts.power[~forecasts.exports] > 0).all()
    truth = readings.filter(pl.col("timestamp").is_between(ORIGIN - timedelta(days=1), ORIGIN, closed="left"))
    metered = truth.sort("household", "timestamp")["kw"].to_numpy().reshape(-1, 24)[forecasts.exports]
    off = np.abs(forecasts.power[forecasts.exports] - metered).mean()
    assert off < 0.5 * np.abs(metered - metered.mean(axis=1, keepdims=True)).mean()
    low, high = (forecasts.season.to_kilowatts(forecasts.log_mean + z * forecasts.error_std) for z in (-1.645, 1.645))
    assert ((low < forecasts.power) & (forecasts.power < high)).all()
    inside = ((low[forecasts.exports] <= metered) & (metered <= high[forecasts.exports])).mean()
    assert inside > 0.6


def test_the_others_do_not_notice(forecasts: Forecasts, readings: pl.DataFrame) -> None:
    plain = shoal.forecast(readings, origin=ORIGIN - timedelta(days=1), **SETTINGS)
    assert set(plain.left_out) == set(SOLAR)
    assert all(reason.startswith("below zero too often (export?)") for reason in plain.left_out.values())
    assert np.array_equal(plain.power, forecasts.power[~forecasts.exports])
    assert np.array_equal(plain.error_cov, forecasts.error_cov[~forecasts.exports])


def test_answers_are_in_kilowatts(forecasts: Forecasts) -> None:
    classes = forecasts.classes("point", unit="kw")
    assert np.array_equal(classes.means, forecasts.power)
    assert np.array_equal(forecasts.answer("point", unit="kw"), forecasts.power)
    for query in ("point", "trajectory", "marginal"):
        with pytest.raises(shoal.InputError, match="4 homes export"):
            forecasts.classes(query)


def test_homes_hide_among_their_like(forecasts: Forecasts) -> None:
    for by in ("forecast", "profile"):
        groups = shoal.crowd_graph(forecasts, 4, by=by, largest_share=0.9).groups
        assert {frozenset(group) for group in groups} == {
            frozenset(SOLAR),
            frozenset(forecasts.households) - set(SOLAR),
        }


def test_files_and_the_next_day(forecasts: Forecasts, readings: pl.DataFrame, tmp_path: Path) -> None:
    forecasts.save(tmp_path / "forecasts.zip")
    back = Forecasts.load(tmp_path / "forecasts.zip")
    assert np.array_equal(back.power, forecasts.power)
    assert np.array_equal(back.exports, forecasts.exports)
    news = readings.filter(pl.col("timestamp") >= ORIGIN - timedelta(days=1))
    moved, heard = shoal.update_forecasts(back, news, origin=ORIGIN, export=True)
    fresh = shoal.forecast(readings, origin=ORIGIN, export=True, **SETTINGS)
    assert heard == set(fresh.households)
    assert np.array_equal(moved.power, fresh.power)


def test_the_scale_is_the_homes_own(readings: pl.DataFrame) -> None:
    """A home with a single reading below zero, a fault or noise of the meter, stays on the logarithm."""
    once = (pl.col("household") == "H0007") & (pl.col("timestamp") == ORIGIN - timedelta(days=3))
    data = readings.with_columns(kw=pl.when(once).then(-0.01).otherwise("kw"))
    made = shoal.forecast(data, origin=ORIGIN - timedelta(days=1), export=True, **SETTINGS)
    expected = np.nanmedian(np.abs(made.training_kw), axis=1) * np.isin(made.households, SOLAR)
    np.testing.assert_allclose(made.season.scale, expected)


def test_what_is_never_above_zero_is_no_home(readings: pl.DataFrame, tmp_path: Path) -> None:
    generation = readings.with_columns(
        kw=pl.when(pl.col("household") == "H0004").then(-pl.col("kw").abs()).otherwise("kw")
    )
    (home, reason), *others = meter_readings(generation).left_out.items()
    assert (home, others) == ("H0004", [])
    assert reason.startswith("never above zero and often below: a meter of generation")
    generation.write_parquet(tmp_path / "meters.parquet")
    data = meter_readings(tmp_path / "meters.parquet")
    assert data.totals()["left out"] == 1
    (note,) = data.owner_notes()
    assert "in 4 households, taken for export" in note  # the meter of generation is left out, and is not among them
    (note,) = data.owner_notes(export=False)
    assert "in 5 households, taken for missing" in note
    short = generation.filter(pl.col("timestamp") < datetime(2024, 1, 2))
    assert not meter_readings(short).left_out  # a day without drawing any is possible
