"""One realistic release for all tests of the report, and a real browser to look at its page."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_page import write_report

import shoal
from evidence.paper.clusters import cluster_graph

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def release() -> dict[str, Any]:
    """Arguments of ``write_report`` for a neighborhood of 30 homes."""
    from shoal.sources.meters.window import as_readings, cut, place_origin

    readings = shoal.simulate_meters(30, 17, seed=3)
    data = as_readings(readings)
    origin = readings["timestamp"].max() - timedelta(minutes=15 * 11)
    forecasts = shoal.forecast(data, order=(2, 1), season="day", origin=origin)
    later = cut(data, place_origin(data, origin), forecasts.horizon)
    truth = later.kw[[later.households.index(name) for name in forecasts.households]]
    truth[1, 3] = np.nan

    classes = forecasts.classes("trajectory")
    graph = cluster_graph(forecasts, 6, by="forecast")
    dearest = shoal.perfect_rho(classes, graph)
    options: dict[str, Any] = {"epsilon": 1.0, "iterations": 3}
    mechanism = shoal.design(classes, graph, method="transport", rho=0.9 * dearest, **options)
    alternatives = {
        name: shoal.design(classes, graph, method=name, rho=0.9 * dearest, **options)
        for name in ("none", "white", "paper", "center")
    }
    budgets = dearest * np.array([0.1, 0.5, 0.9])
    frontier = shoal.frontier(classes, graph, method=["white", "center"], rho=budgets, **options)
    answers = forecasts.answer("trajectory", np.random.default_rng(5).standard_normal(classes.means.shape))
    found = shoal.audit(mechanism, n_samples=100, repeats=2)
    guard = shoal.model_guard(mechanism, forecasts, query="trajectory", n_draws=20, fitted_on_private_data=True)
    card = shoal.release_card(
        mechanism, query="trajectory", unit="household", forecasts=forecasts, audit=found, guard=guard
    )
    return {
        "mechanism": mechanism,
        "graph": graph,
        "card": card,
        "released": mechanism.release(answers, list(classes.labels)),
        "forecasts": forecasts,
        "truth": truth,
        "alternatives": alternatives,
        "frontier": frontier,
        "timings": {"fit": 3.25, "design": 8.0, "release": 0.25, "audit": 2.5},
        "title": "A simulated neighborhood",
    }


@pytest.fixture(scope="session")
def required(release: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a report cannot do without."""
    return {name: release[name] for name in ("mechanism", "graph", "released")} | {
        "card": shoal.release_card(release["mechanism"])
    }


@pytest.fixture(scope="session")
def written(release: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole report on disk."""
    return write_report(tmp_path_factory.mktemp("report") / "report.html", **release)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: the documentation with SHOAL_SCREENSHOTS=1, else a temporary folder."""
    if os.environ.get("SHOAL_SCREENSHOTS") == "1":
        return ROOT / "docs" / "pictures"
    return tmp_path_factory.mktemp("pictures")
