"""The synthetic study: lines are the accounting's, budgets are read as it says, files hold what was found."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import shoal
from evidence.paper import synthetic_study
from evidence.paper.lines import CONVENTIONS, NOTIONS, edge_curves, shown
from evidence.paper.synthetic import TOTAL_BUDGETS, four_classes
from evidence.paper.synthetic_study import METHODS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("synthetic") / "new" / "folder"


@pytest.fixture(scope="module")
def study(folder: Path) -> synthetic_study.SyntheticStudy:
    return synthetic_study.reproduce_synthetic(folder, quick=True)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize(("convention", "share"), [("total", 0.5), ("per entry", 1.0)])
def test_white_noise_has_the_variance_that_the_convention_says(study, convention, share, notion):
    classes = four_classes()
    graph = shoal.NeighborGraph.complete(classes.labels)
    for budget in study.budgets:
        line = study.lines.one(method="white", convention=convention, budget=budget, notion=notion)
        direct = shoal.privacy_curve(classes.with_noise(share * budget), graph, study.lines.epsilon, notion)
        assert line.rho == pytest.approx(share * budget)
        np.testing.assert_allclose(line.worst, direct.delta_upper, rtol=1e-9)


def test_no_noise_is_the_same_at_every_budget(study):
    graph = shoal.NeighborGraph.complete(study.classes.labels)
    direct = shoal.privacy_curve(study.classes, graph, study.lines.epsilon, "pdp")
    for convention in CONVENTIONS:
        line = study.lines.one(method="none", convention=convention, budget=study.budgets[0], notion="pdp")
        np.testing.assert_allclose(line.worst, direct.delta_upper, rtol=1e-9)


def test_stronger_methods_are_no_worse(study):
    for convention in CONVENTIONS:
        for budget in study.budgets:
            at = {m: study.lines.at(1.0, method=m, convention=convention, budget=budget, notion="dp") for m in METHODS}
            assert at["covariance"] <= min(at["white"], at["paper"]) * (1 + 1e-9)
            assert at["transport"] <= at["additive"] * (1 + 1e-9) <= at["covariance"] * (1 + 2e-9)
            assert at["transport"] < 0.9 * at["white"]


def test_notions_are_ordered(study):
    """Pr(|L| > ε) ≥ Pr(L > ε) ≥ E(1 − e^{ε−L})₊, edge by edge and so for the worst."""
    for line in study.lines.pick(notion="pdp"):
        same = {"method": line.method, "convention": line.convention, "budget": line.budget}
        two_sided, dp = (study.lines.one(notion=n, **same).worst for n in ("pdp-two-sided", "dp"))
        assert (two_sided >= line.worst * (1 - 1e-9)).all()
        assert (line.worst >= dp).all()


def test_worst_and_median_are_over_edges():
    classes = four_classes(3)
    graph = shoal.NeighborGraph.complete(classes.labels)
    curves = edge_curves(classes, graph, np.array([0.3, 1.0]), "dp")
    exact = shoal.edge_deltas(classes, graph, 1.0).max(axis=1)
    np.testing.assert_allclose(curves[:, 1], exact, rtol=1e-9)
    assert (curves[:, 1] >= exact).all()


def test_the_median_is_rounded_to_an_edge_that_exists_on_the_safe_side(study):
    classes, graph = study.classes, shoal.NeighborGraph.complete(study.classes.labels)
    exact = np.sort(shoal.edge_deltas(classes, graph, 1.0).max(axis=1))
    line = study.lines.one(method="none", notion="dp")
    assert line.median[-1] == pytest.approx(exact[3], rel=1e-9)


def test_draws_follow_the_seed(study):
    other = synthetic_study.reproduce_synthetic(quick=True, seed=1)
    np.testing.assert_allclose(other.draws.white_dp[0], study.draws.white_dp[1], rtol=1e-12)
    assert (other.classes.covs == study.classes.covs).all()
    white, paper = study.draws.white_pdp, study.draws.paper_pdp
    assert study.draws.better("pdp").tolist() == (paper < white).mean(axis=0).tolist()


def test_files_hold_what_was_found(study, folder):
    assert {p.name for p in study.files} == {p.name for p in folder.iterdir()}
    assert json.loads((folder / "synthetic.json").read_text()) == json.loads(json.dumps(study.to_dict()))
    with (folder / "synthetic_curves.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(study.lines.lines) * len(study.lines.epsilon)
    assert float(rows[0]["delta_worst_edge"]) == study.lines.lines[0].worst[0]
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 10_000


def test_the_text_shows_every_method_and_rounds_up(study):
    text = str(study)
    for name in (*METHODS, "one-sided PDP", "two-sided PDP", "hockey-stick DP", "per entry", "total"):
        assert name in text
    delta = study.lines.at(1.0, method="transport", convention="total", budget=TOTAL_BUDGETS[1], notion="dp")
    assert shown(delta) in text
    assert float(shown(delta)) >= delta
