"""x = ln max(p, floor) − seasonal mean: exact inverse, training window alone, gaps, clock changes."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evidence.backtest import inflation
from shoal.errors import InputError
from shoal.sources.meters.season import fit_season, log_power, phases

QUARTER = timedelta(minutes=15)


def weeks(n: int, zone: str | None = None, start: datetime = datetime(2024, 1, 1)) -> pl.Series:
    stamps = pl.datetime_range(start, start + timedelta(weeks=n), "15m", closed="left", eager=True)
    return stamps.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else stamps


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    hnp.arrays(np.float64, (2, 2 * 96), elements=st.floats(0, 50) | st.just(np.nan)),
    st.floats(1e-4, 1.0),
)
def test_inverse_is_exact(kw: np.ndarray, floor: float) -> None:
    phase = phases(weeks(1)[: kw.shape[1]], "day", QUARTER)
    season = fit_season(kw, phase, period="day", step=QUARTER, floor=floor)
    back = np.exp(season.remove(kw, phase) + season.profile[:, phase])
    np.testing.assert_allclose(back, np.maximum(kw, floor), rtol=1e-14)


@pytest.mark.parametrize("period", ["day", "week"])
def test_mean_of_every_phase_is_removed(period: str) -> None:
    rng = np.random.default_rng(1)
    stamps = weeks(3)
    kw = rng.lognormal(size=(4, len(stamps)))
    kw[rng.random(kw.shape) < 0.1] = np.nan
    phase = phases(stamps, period, QUARTER)
    season = fit_season(kw, phase, period=period, step=QUARTER)
    x = season.remove(kw, phase)
    assert season.profile.shape == (4, {"day": 96, "week": 7 * 96}[period])
    for k in range(0, season.profile.shape[1], 37):
        part = x[:, phase == k]
        seen = np.isfinite(part)
        np.testing.assert_array_equal(season.repeats[:, k], seen.sum(axis=1))
        rows = season.repeats[:, k] > 0
        np.testing.assert_allclose(np.nansum(part[rows], axis=1), 0, atol=1e-12)


def test_phases_follow_the_wall_clock() -> None:
    stamps = weeks(1, "Europe/Zurich", datetime(2024, 3, 28))
    day, week = phases(stamps, "day", QUARTER), phases(stamps, "week", QUARTER)
    local = stamps.dt.replace_time_zone(None).to_list()
    for i in range(0, len(stamps), 53):
        slot = local[i].hour * 4 + local[i].minute // 15
        assert day[i] == slot
        assert week[i] == local[i].weekday() * 96 + slot
    skipped = np.arange(8, 12)  # 02:00 to 02:45 on 2024-03-31 do not exist: one occurrence fewer
    counts = np.bincount(day, minlength=96)
    assert (counts[skipped] == counts[:4].max() - 1).all()


def test_unseen_phase_borrows_from_other_days() -> None:
    stamps = weeks(2)
    phase = phases(stamps, "week", QUARTER)
    kw = np.full((2, len(stamps)), 2.0)
    kw[0, phase == 5] = np.nan  # Monday 01:15, both weeks
    kw[1, phase % 96 == 5] = np.nan  # 01:15 on every day
    season = fit_season(kw, phase, period="week", step=QUARTER)
    assert season.repeats[0, 5] == 0
    np.testing.assert_allclose(season.profile[:, 5], np.log(2.0))
    assert np.isfinite(season.profile).all()


def test_floor_and_refusals() -> None:
    np.testing.assert_array_equal(log_power(np.array([0.0, 0.02, 1.0]), 0.02), np.log([0.02, 0.02, 1.0]))
    kw = np.ones((1, 96))
    phase = np.arange(96)
    with pytest.raises(InputError, match="floor must be above 0"):
        fit_season(kw, phase, period="day", step=QUARTER, floor=0)
    with pytest.raises(InputError, match="season must be one of"):
        fit_season(kw, phase, period="year", step=QUARTER)
    with pytest.raises(InputError, match="phase"):
        fit_season(kw, phase[:5], period="day", step=QUARTER)


@pytest.mark.parametrize("repeats", [2, 3, 15])
def test_inflation_is_what_estimating_the_mean_costs(repeats: int) -> None:
    """Independent readings: error variance of the next one over the variance of the residuals, by simulation."""
    rng = np.random.default_rng(repeats)
    n = 4000
    logs = rng.standard_normal((n, (repeats + 1) * 96))
    phase = np.tile(np.arange(96), repeats)
    season = fit_season(np.exp(logs[:, : repeats * 96]), phase, period="day", step=QUARTER, floor=1e-9)
    inside = season.remove(np.exp(logs[:, : repeats * 96]), phase).var()
    ahead = (logs[:, repeats * 96 :] - season.profile[:, np.arange(96)]).var()
    factor = inflation(season, np.arange(96))
    assert (factor == factor[0, 0]).all()
    assert ahead / inside == pytest.approx(factor[0, 0], rel=0.02)
