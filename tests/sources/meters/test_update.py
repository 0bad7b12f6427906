"""A new day with the old coefficients: the forecasts that they give on the moved window, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from arma_cases import simulate_arma
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.sources.meters.arma import ArmaModels, fit_arma, predict
from shoal.sources.meters.arma.predict import filtered
from shoal.sources.meters.drift import comparable, drift_p, drifted
from shoal.sources.meters.quality import repair
from shoal.sources.meters.season import fit_season, phases
from shoal.sources.meters.update import _due

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


def _by_hand(old: shoal.Forecasts, readings: pl.DataFrame, origin: datetime) -> np.ndarray:
    """Season and prediction on the window before ``origin``, from the raw readings and the old models alone."""
    stamps = pl.datetime_range(
        origin - timedelta(days=old.train_days), origin, old.step, closed="left", eager=True, time_unit="us"
    )
    ahead = pl.datetime_range(origin, origin + old.horizon * old.step, old.step, closed="left", eager=True)
    period = old.season.period
    rows = []
    for name in old.households:
        one = readings.filter(pl.col("household") == name).select("timestamp", "kw")
        grid = pl.DataFrame({"timestamp": stamps}).join(
            one.with_columns(pl.col("timestamp").dt.cast_time_unit("us")), on="timestamp", how="left"
        )
        rows.append(grid["kw"].fill_null(float("nan")).to_numpy())
    kw, phase = np.array(rows), phases(stamps, period, old.step)
    season = fit_season(kw, phase, period=period, step=old.step, floor=old.season.floor)
    found = predict(old.models, season.remove(kw, phase), old.horizon)
    return season.at(phases(ahead, period, old.step)) + found.mean


@pytest.mark.parametrize("hours", [1, 24, 60])
@pytest.mark.parametrize("whole", [False, True])
def test_carried_forecasts_are_those_of_the_old_models_on_the_new_window(yesterday, readings, hours, whole):
    origin = ORIGIN + timedelta(hours=hours)
    given_ = _until(readings if whole else _since(readings, 7), 7 + hours / 24)
    made, report = shoal.update_forecasts(yesterday, given_, refit_days=None, drift_level=0)
    assert made.origin == origin
    assert report.carried == made.households == yesterday.households
    np.testing.assert_allclose(made.log_mean, _by_hand(yesterday, readings, origin), atol=1e-9)
    assert np.array_equal(made.models.ar, yesterday.models.ar)
    assert (made.fitted_at == yesterday.fitted_at).all()


def test_days_one_by_one_are_days_at_once(yesterday, readings):
    step = yesterday
    for day in (8, 9, 10):
        step, _ = shoal.update_forecasts(step, _until(_since(readings, day - 1), day), refit_days=None, drift_level=0)
    once, _ = shoal.update_forecasts(yesterday, _since(readings, 7), refit_days=None, drift_level=0)
    assert np.array_equal(step.log_mean, once.log_mean)
    assert np.array_equal(step.error_cov, once.error_cov)
    assert np.array_equal(step.history.kw, once.history.kw, equal_nan=True)


def test_refitting_everything_is_a_forecast_or_likelier(yesterday, readings):
    made, report = shoal.update_forecasts(yesterday, _until(_since(readings, 7), 8), refit_days=1)
    fresh = shoal.forecast(_until(readings, 8), **SETTINGS)
    assert report.scheduled == made.households == fresh.households
    assert (made.models.log_likelihood >= fresh.models.log_likelihood).all()
    same = made.models.log_likelihood == fresh.models.log_likelihood
    assert same.any()
    assert np.array_equal(made.log_mean[same], fresh.log_mean[same])
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
    made, _ = shoal.update_forecasts(first, new, refit_days=1)
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
        made, report = shoal.update_forecasts(made, _until(_since(data, number - 1), number))
        whole = shoal.forecast(_until(data, number), **SETTINGS)
        assert made.households == whole.households
        assert dict(made.left_out) == dict(whole.left_out)
        assert set(made.households) == {*report.carried, *report.scheduled, *report.drifted, *report.appeared}
        seen.append(report)
    assert [late in report.appeared for report in seen] == [True, False, False]
    assert gone in {*seen[0].carried, *seen[0].scheduled}
    assert "too short a history" in seen[2].left_out[gone]
    row = made.quality.filter(pl.col("household") == gone)
    assert row["verdict"].item() == "left out"


def test_a_home_with_only_faulty_new_readings_is_forecast_across_the_gap(yesterday, readings):
    name = yesterday.households[5]
    faulty = pl.when(pl.col("household") == name).then(-1.0).otherwise(pl.col("kw"))
    made, report = shoal.update_forecasts(
        yesterday, _until(_since(readings, 7), 8).with_columns(kw=faulty), refit_days=None
    )
    assert name in report.carried
    assert name not in made.left_out
    assert made.quality.filter(pl.col("household") == name)["verdict"].item() == "repaired"


def test_a_changed_home_is_fitted_again_and_only_that(readings):
    names = readings["household"].unique().sort().to_list()
    made = shoal.forecast(_until(readings, 7), **SETTINGS)
    rng = np.random.default_rng(0)
    new = _until(_since(readings, 7), 8)
    wild = pl.Series("kw", np.exp(rng.normal(-1, 2.5, len(new))))
    new = new.with_columns(kw=pl.when(pl.col("household") == names[4]).then(wild).otherwise(pl.col("kw")))
    again, report = shoal.update_forecasts(made, new, refit_days=None)
    assert report.drifted == (names[4],)
    assert "1 on drift" in repr(report)
    moved = again.fitted_at != made.fitted_at[0]
    assert [again.households[i] for i in np.flatnonzero(moved)] == [names[4]]


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    days=st.integers(1, 12), first=st.integers(0, 10**5), pieces=st.lists(st.integers(1, 200), min_size=1, max_size=60)
)
def test_everyone_is_fitted_once_in_so_many_days(days, first, pieces):
    names = [f"home {i}" for i in range(30)]
    hour = 3_600_000_000
    total = np.zeros(30, dtype=int)
    at = first * hour
    for piece in pieces:
        total += _due(names, at, at + piece * hour, days)
        at += piece * hour
    elapsed = at // (24 * hour) - first // 24
    assert (total <= elapsed // days + 1).all()
    once = _due(names, first * hour, (first + 24 * days) * hour, days)
    assert once.all()


def test_the_schedule_is_spread_over_the_days():
    names = [f"home {i}" for i in range(7000)]
    day = 86_400_000_000
    counts = [int(_due(names, k * day, (k + 1) * day, 7).sum()) for k in range(7)]
    assert sum(counts) == 7000
    assert max(abs(c - 1000) for c in counts) < 150
    assert not _due(names, 0, 100 * day, None).any()


def test_refits_are_never_less_likely_than_a_fresh_search():
    true = ArmaModels.from_coefficients(np.full((6, 2), [0.6, -0.2]), np.full((6, 1), 0.5), 1.0)
    x = simulate_arma(true, 300, seed=1)
    x[0, 40:60] = np.nan
    start = fit_arma(x[:, :250], (2, 1))
    again, fresh = fit_arma(x, (2, 1), start=start), fit_arma(x, (2, 1))
    assert (again.log_likelihood >= fresh.log_likelihood).all()
    known = fit_arma(x, (2, 1), start=true)
    assert (known.log_likelihood >= fresh.log_likelihood).all()
    nobody = fit_arma(x, (2, 1), start=replace(true, ok=np.zeros(6, dtype=bool)))
    assert np.array_equal(nobody.ar, fresh.ar)


@pytest.fixture(scope="module")
def innovations() -> np.ndarray:
    models = ArmaModels.from_coefficients([0.7], [0.2], 2.0).take(np.zeros(4000, dtype=int))
    return filtered(models, simulate_arma(models, 960, seed=3))[1]


def test_innovations_are_standard_normal(innovations):
    assert innovations.mean() == pytest.approx(0, abs=0.003)
    assert innovations.std() == pytest.approx(1, abs=0.003)


@pytest.mark.parametrize("level", [0.1, 0.01])
def test_false_alarms_stay_below_the_level(innovations, level):
    alarms = drifted(innovations, 96, None, level).sum()
    # Within four standard deviations of a binomial count at the level itself.
    assert alarms <= 4000 * level + 4 * np.sqrt(4000 * level)
    assert alarms > 0.05 * 4000 * level
    heavy = np.sign(innovations) * np.abs(innovations) ** 2 / np.sqrt(3)
    assert drifted(heavy, 96, None, level).sum() <= 4000 * level + 4 * np.sqrt(4000 * level)


@pytest.mark.parametrize("change", [lambda z: 2 * z, lambda z: 0.4 * z, lambda z: z + 1.0])
def test_changes_are_seen(innovations, change):
    z = innovations[:300].copy()
    z[:, -96:] = change(z[:, -96:])
    assert drifted(z, 96, None, 1e-3).mean() > 0.95


def test_few_readings_say_nothing_and_short_windows_lean_on_the_model(innovations):
    z = innovations[:5].copy()
    z[:, -96:-7] = np.nan
    assert (drift_p(z, 96)[0] == 1).all()
    z = 3 * innovations[:5, :300]
    assert (drift_p(z, 96)[0] < 1e-6).all()  # two stretches before: no reference but the model's


def test_weekdays_seen_more_often_are_no_drift():
    rng = np.random.default_rng(0)
    day, n = 48, 2000
    z = rng.standard_normal((n, 15 * day))
    repeats = np.full((n, 15 * day), 2)
    for k in (0, 7, 14):
        z[:, k * day : (k + 1) * day] *= np.sqrt(4 / 3)
        repeats[:, k * day : (k + 1) * day] = 3
    plain = drifted(z, day, 7 * day, 0.01).mean()
    fair = drifted(comparable(z, repeats), day, 7 * day, 0.01).mean()
    assert fair < 0.015 < plain
    once = comparable(z, np.where(np.arange(15 * day) < 5, 1, repeats))
    assert np.isnan(once[:, :5]).all()
    assert np.isfinite(once[:, 5:]).all()


def test_refusals(yesterday, readings):
    new = _until(_since(readings, 7), 8)
    with pytest.raises(shoal.InputError, match="nothing new"):
        shoal.update_forecasts(yesterday, _until(readings, 7))
    with pytest.raises(shoal.InputError, match="zone"):
        shoal.update_forecasts(yesterday, new.with_columns(pl.col("timestamp").dt.replace_time_zone("UTC")))
    with pytest.raises(shoal.InputError, match="grid"):
        shoal.update_forecasts(yesterday, new.with_columns(pl.col("timestamp") + timedelta(minutes=7)))
    hourly = repair(new.filter(pl.col("timestamp").dt.minute() == 0), interval=60)
    with pytest.raises(shoal.InputError, match="every 0:30:00"):
        shoal.update_forecasts(yesterday, hourly)
    with pytest.raises(shoal.InputError, match="refit_days"):
        shoal.update_forecasts(yesterday, new, refit_days=0)
    with pytest.raises(shoal.InputError, match="drift_level"):
        shoal.update_forecasts(yesterday, new, drift_level=-1)
