"""Crowds of meters: by forecast, by likeness, within shares; the same whoever comes first."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from shoal import Forecasts, InputError, crowd_graph, forecast, simulate_meters
from shoal.product.sources.meters.crowd_points import likeness_points, points_of_homes


@pytest.fixture(scope="module")
def forecasts() -> Forecasts:
    """30 homes with readings missing here and there."""
    readings = simulate_meters(30, 9, seed=3).filter(pl.Series(np.random.default_rng(0).random(30 * 9 * 96) > 0.02))
    return forecast(readings, order=(1, 1), train_days=7, horizon=6, season="day", origin="2024-01-08T18:00")


def crowds(source: Forecasts, by: object = "profile") -> set[frozenset[str]]:
    return {frozenset(group) for group in crowd_graph(source, 5, by=by).groups}


def test_crowds_of_forecasts_and_of_answers(forecasts: Forecasts) -> None:
    by = {way: crowd_graph(forecasts, 5, by=way) for way in ("forecast", "profile")}
    for graph in (*by.values(), crowd_graph(forecasts, 5, by=forecasts.season.profile)):
        sizes = [len(group) for group in graph.groups]
        assert 5 <= min(sizes) <= max(sizes) <= 9
        assert sum(n * (n - 1) // 2 for n in sizes) == graph.n_edges
        assert sorted(name for group in graph.groups for name in group) == sorted(forecasts.households)
    assert crowd_graph(forecasts.power, 5, labels=forecasts.households).groups == by["forecast"].groups
    for call, message in (
        (lambda: crowd_graph(forecasts, 5, by=np.zeros((4, 2))), "by must have one row per label: expected 30, got 4"),
        (lambda: crowd_graph(forecasts.power, 5, by="profile"), 'by="profile" needs forecasts'),
        (lambda: crowd_graph(forecasts, 31), "only 30; choose a smaller size"),
        (lambda: crowd_graph([[1.0], [np.nan]], 2), "answers must be finite"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_the_15_15_rule() -> None:
    rng = np.random.default_rng(2)
    answers = np.exp(0.9 * rng.standard_normal((90, 1)) + 0.2 * rng.standard_normal((90, 4)))
    graph = crowd_graph(answers, 15, largest_share=0.15)
    totals = dict(zip(graph.labels, answers.sum(axis=1), strict=True))
    for group in graph.groups:
        inside = np.array([totals[name] for name in group])
        assert len(inside) >= 15
        assert inside.max() <= 0.15 * inside.sum()


def test_likeness_is_the_stated_blend_of_forecast_and_usual_day(forecasts: Forecasts) -> None:
    times, ahead = (
        [f"{time.hour:02d}:{time.minute:02d}" for time in series]
        for series in (forecasts.history.timestamps, forecasts.timestamps)
    )
    usual = {time: np.nanmean(forecasts.training_kw[:, np.array(times) == time], axis=1) for time in sorted(set(times))}
    at_times = np.sqrt([usual[time] for time in ahead]).T
    hours = np.sqrt([np.mean([usual[t] for t in usual if t.startswith(f"{h:02d}:")], axis=0) for h in range(24)]).T
    near = 0.8 * np.sqrt(forecasts.power) + 0.2 * at_times
    points = np.concatenate([near, 0.4 * at_times, 0.3 * np.sqrt(6 / 24) * hours], axis=1)
    assert crowds(forecasts) == crowds(forecasts, points)
    assert crowds(forecasts) != crowds(forecasts, hours)


def test_homes_are_alike_whatever_others_are_there(forecasts: Forecasts) -> None:
    """A home's point is a function of its own readings, to the last bit: shards may be made apart and put together."""
    points = likeness_points(forecasts)
    rows = np.random.default_rng(2).permutation(30)[:7]
    assert likeness_points(forecasts.take(rows)).tobytes() == points[rows].tobytes()
    export = points_of_homes(np.array([[-4.0]]), np.array([[-1.0, 4.0]]), np.array([0]), (0.5, 1.0, 2.0))
    assert export == pytest.approx(np.array([[-1.5, -1.0, -np.sqrt(2), 2 * np.sqrt(2)]]))


def test_crowds_are_the_same_in_any_order_of_homes(forecasts: Forecasts) -> None:
    draw = np.random.default_rng(1)
    for by in ("forecast", "profile"):
        expected = crowds(forecasts, by)
        assert all(crowds(forecasts.take(draw.permutation(30)), by) == expected for _ in range(4))
