"""Crowds of meters: by forecast, by likeness, within boundaries and shares."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from shoal.errors import InputError
from shoal.sources.meters.forecast import forecast
from shoal.sources.meters.neighborhoods import (
    AHEAD_WEIGHT,
    CURVE_WEIGHT,
    blend,
    crowd_graph,
    hourly_habits,
    hours_ahead,
    likeness,
)
from shoal.sources.meters.simulate import simulate_meters


def test_crowds_of_forecasts_and_of_answers() -> None:
    forecasts = forecast(simulate_meters(23, 8, 60, seed=3), order=(1, 1), train_days=7, horizon=3, season="day")
    by = {way: crowd_graph(forecasts, 5, by=way) for way in ("forecast", "profile")}
    for graph in (*by.values(), crowd_graph(forecasts, 5, by=forecasts.season.profile)):
        sizes = [len(group) for group in graph.groups]
        assert 5 <= min(sizes) <= max(sizes) <= 9
        assert sum(n * (n - 1) // 2 for n in sizes) == graph.n_edges
        assert sorted(name for group in graph.groups for name in group) == sorted(forecasts.households)
    same = crowd_graph(forecasts.power, 5, labels=forecasts.households)
    assert same.groups == by["forecast"].groups
    assert crowd_graph(forecasts, 5, by=likeness(forecasts)).groups == by["profile"].groups
    with pytest.raises(InputError, match="by must have one row per label: expected 23, got 4"):
        crowd_graph(forecasts, 5, by=np.zeros((4, 2)))
    with pytest.raises(InputError, match='by="profile" needs forecasts'):
        crowd_graph(forecasts.power, 5, by="profile")
    with pytest.raises(InputError, match="only 23; choose a smaller size"):
        crowd_graph(forecasts, 24)
    with pytest.raises(InputError, match="answers must be finite"):
        crowd_graph([[1.0], [np.nan]], 2)


def test_the_15_15_rule() -> None:
    rng = np.random.default_rng(2)
    answers = np.exp(0.9 * rng.standard_normal((90, 1)) + 0.2 * rng.standard_normal((90, 4)))
    graph = crowd_graph(answers, 15, largest_share=0.15)
    totals = dict(zip(graph.labels, answers.sum(axis=1), strict=True))
    for group in graph.groups:
        inside = np.array([totals[name] for name in group])
        assert len(inside) >= 15
        assert inside.max() <= 0.15 * inside.sum()


def test_likeness_is_the_stated_blend_of_forecast_and_habits() -> None:
    readings = simulate_meters(20, 9, seed=2)
    made = forecast(readings, order=(1, 1), train_days=7, horizon=6, season="day", origin="2024-01-08T18:00")
    assert made.history is not None
    roots = np.sqrt(made.history.kw)
    hour = made.history.timestamps.dt.hour().to_numpy()
    by_hour = np.stack([roots[:, hour == h].mean(axis=1) for h in range(24)], axis=1)
    assert hourly_habits(made) == pytest.approx(by_hour, rel=1e-12)
    ahead = np.unique(made.timestamps.dt.hour().to_numpy())
    assert hours_ahead(made).tolist() == ahead.tolist()
    parts = [(1.0, by_hour), (AHEAD_WEIGHT, by_hour[:, ahead]), (CURVE_WEIGHT, np.sqrt(made.power))]
    expected = np.concatenate([w * x / np.sqrt(x.var(axis=0).sum()) for w, x in parts], axis=1)
    assert likeness(made) == pytest.approx(expected, rel=1e-12)


def test_likeness_is_the_same_to_the_last_bit_in_any_order_and_in_any_shards() -> None:
    draw = np.random.default_rng(0)
    readings = simulate_meters(30, 9, seed=3).filter(pl.Series(draw.random(30 * 9 * 96) > 0.02))
    made = forecast(readings, order=(1, 1), train_days=7, horizon=6, season="day")
    points = likeness(made)
    for _ in range(5):
        order = draw.permutation(30)
        assert likeness(made.take(order)).tobytes() == points[order].tobytes()
    shards = [made.take(rows) for rows in np.array_split(draw.permutation(30), [1, 9])]
    place = [made.households.index(name) for shard in shards for name in shard.households]
    habits_of_all = np.concatenate([hourly_habits(shard) for shard in shards])
    curves = np.concatenate([shard.power for shard in shards])
    assert blend(curves, habits_of_all, hours_ahead(made)).tobytes() == points[place].tobytes()


def test_likeness_of_homes_that_are_all_alike_or_export() -> None:
    alike = blend(np.ones((5, 3)), np.ones((5, 24)), np.arange(2))
    assert (alike == 0).all()
    export = blend(np.array([[-4.0], [4.0]]), np.array([[-2.0], [2.0]]), np.arange(1))
    assert export.tolist() == [[-1.0, -AHEAD_WEIGHT, -CURVE_WEIGHT], [1.0, AHEAD_WEIGHT, CURVE_WEIGHT]]
