"""The library's path to noisy crowds: forecasts from a frame, with origin and interval named."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.readings.crowds import check_curves, sum_of_home_vectors


def test_one_home_moves_nobodys_origin_or_grid() -> None:
    """Finding 6: thirty homes end early, and one more decided the origin of all; now the sum moves by its vector."""
    readings = shoal.simulate_meters(61, days=9, step_minutes=60, seed=1)
    end = readings["timestamp"].max()
    early = pl.col("household").is_in([f"H{i:04d}" for i in range(30)])
    assert isinstance(end, dt.datetime)
    readings = readings.filter(~(early & (pl.col("timestamp") > end - dt.timedelta(hours=9))))
    odd = readings.filter(pl.col("household") == "H0060")
    rest = readings.filter(pl.col("household") != "H0060")
    fine = [odd.with_columns(pl.col("timestamp").dt.offset_by(f"{minutes}m")) for minutes in range(0, 60, 7)]
    plan = shoal.noisy_crowds_plan(customers=61, epsilon=1.0, typical_kw=0.5)
    sums, curves = [], []
    for frame in (readings, pl.concat([rest, *fine]), rest):
        made = shoal.forecast(
            frame, order=(1, 1), train_days=7, horizon=6, season="day", origin="2024-01-09T12:00", interval=60
        )
        curves.append({home: own.tobytes() for home, own in zip(made.households, made.power, strict=True)})
        sums.append(sum_of_home_vectors(check_curves(np.maximum(made.power, 0), plan), plan))
    assert set(curves[2]) >= {f"H{i:04d}" for i in range(31, 60)}
    for world in curves[:2]:
        assert {home: own for home, own in world.items() if home != "H0060"} == curves[2]
    assert all(((total - sums[2]) ** 2).sum() <= plan.squared_sensitivities[0] for total in sums[:2])


def test_a_typical_load_is_asked_for() -> None:
    with pytest.raises(TypeError, match="typical_kw"):
        shoal.noisy_crowds_plan(customers=61, epsilon=1.0)  # type: ignore[call-arg]
