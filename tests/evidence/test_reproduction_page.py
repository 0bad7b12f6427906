"""docs/reproduction.md states numbers: the cheap ones are computed again and compared with the page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import shoal
from evidence.paper import stated
from evidence.paper.clusters import cluster_graph
from evidence.paper.lines import NOTION_NAMES, edge_curves, measure, per_entry, shown
from evidence.paper.synthetic import TOTAL_BUDGETS, four_classes
from evidence.paper.synthetic_study import _draws

PAGE = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text(encoding="utf-8")
CHEAP = ("none", "white", "paper")


def table(first_column: str) -> list[dict[str, str]]:
    """The rows of the page's table whose header starts with ``first_column``."""
    lines = PAGE.splitlines()
    (start,) = [i for i, line in enumerate(lines) if line.startswith(f"| {first_column} |")]
    header, _, *rest = (line for line in lines[start:])
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in [header, *rest[: _length(rest)]]]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]


def _length(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))


def synthetic_delta(method: str, rho: float, notion: str) -> str:
    classes = four_classes()
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method, 1.0, rho)
    return shown(float(edge_curves(mechanism, graph, np.ones(1), notion).max()))


@pytest.mark.parametrize("method", CHEAP)
def test_budgets_of_the_synthetic_study(method):
    for row in table("budget, total"):
        budget = TOTAL_BUDGETS[np.abs(TOTAL_BUDGETS - float(row["budget, total"])).argmin()]
        assert row[method] == synthetic_delta(method, budget / 2, "pdp")


@pytest.mark.parametrize("method", CHEAP)
def test_notions_and_readings_of_the_synthetic_study(method):
    rows = table("notion, reading of ρ")
    assert len(rows) == 6
    for row in rows:
        name, reading = row["notion, reading of ρ"].split(", ")
        (notion,) = [key for key, value in NOTION_NAMES.items() if value == name]
        assert row[method] == synthetic_delta(method, per_entry(float(TOTAL_BUDGETS[1]), reading, 2), notion)


def test_what_the_paper_states_is_quoted_right():
    rows = table("method, budget, ε")
    assert len(rows) == len(stated.DELTAS)
    for row, said in zip(rows, stated.DELTAS, strict=True):
        assert row["method, budget, ε"] == f"{said.method}, {said.budget:.4g}, {said.epsilon:g}"
        assert float(row["stated"]) == said.delta
    for value in stated.NMSE:
        assert f"{value:.4e}".replace("e-03", "e-3") in PAGE


def test_white_noise_on_simulated_households():
    """Rows of the household table: 100 simulated households, both readings of ρ, the season in and out."""
    readings = shoal.simulate_meters(100, 16)
    forecasts = shoal.forecast(readings, origin=readings["timestamp"].unique().sort()[-12])
    graph = cluster_graph(forecasts, 6)
    laws = forecasts.classes("trajectory")
    residual = shoal.GaussianClasses(forecasts.log_mean - forecasts.season_part, laws.covs, laws.labels)
    rows = {row["method, budget, ε"]: row for row in table("method, budget, ε")}
    for name, law in (("season in", laws), ("season out", residual)):
        for convention in ("total", "per entry"):
            rho = per_entry(float(TOTAL_BUDGETS[1]), convention, 12)
            mechanism = shoal.design(law, graph, "white", 1.0, rho)
            (line,) = measure(
                mechanism, graph, np.array([0.1, 1.0]), query="", method="white", convention=convention,
                budget=0.0, rho=rho, notions=("pdp",),
            )  # fmt: skip
            for i, epsilon in enumerate(("0.1", "1")):
                found = rows[f"white, 0.6857, {epsilon}"][f"{name}, {convention}"]
                assert _numbers(found) == pytest.approx([line.worst[i], line.median[i]], abs=0.003)


@pytest.mark.slow
def test_the_share_of_draws_in_which_the_method_beats_white_noise():
    """As the command prints it: 20 draws of the covariances, one-sided PDP at ε = 1."""
    share = _draws(range(20), TOTAL_BUDGETS[[0, 7]]).better("pdp")
    said = re.search(r"it does in (\d+) % at 0\.45 and in (\d+) %\s+at 2\.1", PAGE)
    assert said is not None
    assert [float(x) / 100 for x in said.groups()] == pytest.approx(share.tolist())


def _numbers(cell: str) -> list[float]:
    return [float(x) for x in re.findall(r"[\d.]+", cell)]
