"""The household study: claims and truths recomputed another way, errors sampled, no readings in what is printed."""

from __future__ import annotations

import csv
import json
import math
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shoal
from evidence.paper import meters_study, stated
from evidence.paper.clusters import cluster_graph
from evidence.paper.homes import nmse
from evidence.paper.meters_text import stated_rows
from shoal.accounting.deterministic import gaussian_delta

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "swiss_residential_15min"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("meters") / "out"


@pytest.fixture(scope="module")
def study(folder: Path) -> meters_study.MetersStudy:
    return meters_study.reproduce_meters(None, folder, quick=True)


@pytest.fixture(scope="module")
def forecasts() -> tuple[shoal.Forecasts, shoal.NeighborGraph]:
    """The same forecasts, made by hand."""
    readings = shoal.simulate_meters(16, 16)
    origin = readings["timestamp"].unique().sort()[-12]
    found = shoal.forecast(readings, order=(6, 5), train_days=15, horizon=12, season="week", origin=origin)
    return found, cluster_graph(found, 2)


def test_the_setting_is_the_papers():
    assert meters_study.HOUSEHOLDS == 100
    assert meters_study.CLUSTERS == 6
    assert meters_study.ORDER == (6, 5)
    assert (meters_study.TRAIN_DAYS, meters_study.HORIZON) == (15, 12)
    np.testing.assert_allclose(meters_study.SEARCHED_BUDGETS[:3], [0.45, 0.68571, 1.4], rtol=0.006)
    assert {round(s.budget, 2) for s in stated.DELTAS} == {0.45, 0.69, 1.39}


@pytest.mark.parametrize(("convention", "share"), [("total", 1 / 12), ("per entry", 1.0)])
@pytest.mark.parametrize("notion", ["dp", "pdp"])
def test_the_truth_of_white_noise_is_the_classical_gaussian_mechanism(study, forecasts, convention, share, notion):
    found, graph = forecasts
    gap = shoal.sensitivity(found.log_mean, graph)
    for budget in study.budgets:
        sigma = math.sqrt(share * budget * (1 + 1e-6))
        line = study.lines.one(query="as_released", method="white", convention=convention, budget=budget, notion=notion)
        closed = [gaussian_delta(gap, sigma, e, notion) for e in study.lines.epsilon]
        np.testing.assert_allclose(line.worst, closed, rtol=1e-9)


def test_the_claim_is_the_accounting_of_the_papers_query(study, forecasts):
    found, graph = forecasts
    with pytest.warns(UserWarning, match="as_in_paper"):
        laws = found.classes("as_in_paper")
    for budget in study.budgets:
        direct = shoal.privacy_curve(laws.with_noise(budget), graph, study.lines.epsilon, "pdp")
        line = study.lines.one(query="as_in_paper", method="white", convention="per entry", budget=budget, notion="pdp")
        np.testing.assert_allclose(line.worst, direct.delta_upper, rtol=1e-9)


def test_without_its_season_the_query_is_the_residual(study, forecasts):
    found, graph = forecasts
    residual = shoal.GaussianClasses(found.log_mean - found.season_part, found.error_cov, found.households).with_noise(
        study.budgets[0]
    )
    direct = shoal.privacy_curve(residual, graph, 1.0, "dp").delta_upper
    wanted = {"method": "white", "convention": "per entry", "budget": study.budgets[0], "notion": "dp"}
    assert study.lines.at(1.0, query="no_season", **wanted) == pytest.approx(direct, rel=1e-9)


def test_the_claim_is_not_the_truth(study):
    """The paper's covariance hides pairs that are visible, and tells apart by their covariances pairs that are not."""
    for budget in study.budgets:
        wanted = {"edges": "median", "method": "white", "convention": "per entry", "budget": budget, "notion": "dp"}
        claimed, true = (study.lines.at(1.0, query=q, **wanted) for q in ("as_in_paper", "as_released"))
        assert true > claimed + 0.01
        claimed, true = (study.lines.at(1.0, query=q, **wanted) for q in ("no_season", "no_season_released"))
        assert true < claimed - 0.01


def test_our_mechanisms_go_below_the_papers_and_not_below_the_bound(study):
    budget = study.budgets[0]
    wanted = {"convention": "per entry", "budget": budget, "notion": "dp"}
    ours = study.lines.at(1.0, query="trajectory", method="transport", **wanted)
    theirs = study.lines.at(1.0, query="as_in_paper", method="paper", **wanted)
    assert study.lower_bounds["per entry"][0] <= ours < 0.9 * theirs


def test_normalized_errors_agree_with_samples():
    rng = np.random.default_rng(0)
    log_kw = rng.normal(-1.0, 0.7, 12)
    root = 0.05 * rng.standard_normal((12, 12))
    cov = root @ root.T
    drawn = log_kw + rng.standard_normal((400_000, 12)) @ root.T
    in_log, in_kw = nmse(log_kw, cov)
    watts = log_kw + math.log(1000)
    assert in_log == pytest.approx(((drawn - log_kw) ** 2).sum(axis=1).mean() / (watts**2).sum(), rel=0.01)
    power = np.exp(log_kw)
    assert in_kw == pytest.approx(((np.exp(drawn) - power) ** 2).sum(axis=1).mean() / (power**2).sum(), rel=0.02)


def test_homes_spend_the_papers_budget(study, forecasts):
    found, _ = forecasts
    watts = found.log_mean + math.log(1000)
    possible = 0.45 / (watts**2).sum(axis=1)
    assert len(study.homes) == 3
    for home in study.homes:
        assert np.isclose(home.nmse_log_watts, possible, rtol=1e-6).any()
        assert home.forecast.shape == home.truth.shape == home.released.shape == (12,)
        assert home.past.shape == (96,)
        assert not np.allclose(home.released, home.forecast)


def test_stated_figures_are_set_beside_ours(study):
    rows = stated_rows(study)
    assert len(rows) == 5 * 4
    row = next(r for r in rows if r["method"] == "paper" and r["epsilon"] == 0.1)
    assert row["stated"] == 0.72
    assert 0 < row["median"] <= row["worst"] <= 1


def test_files_hold_what_was_found_and_no_household(study, folder, forecasts):
    assert {p.name for p in study.files} == {p.name for p in folder.iterdir()}
    text = (folder / "meters.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(study.to_dict()))
    with (folder / "meters_curves.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(study.lines.lines) * len(study.lines.epsilon)
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    printed = str(study) + repr(study.homes) + text
    assert not any(name in printed for name in forecasts[0].households)
    assert f"{study.homes[0].past[0]:.6g}" not in repr(study.homes)


def test_the_text_warns_about_the_claim(study):
    text = str(study)
    assert "NOT a guarantee" in text
    assert "16 households (simulated households), clusters of" in text


def test_one_household_is_refused():
    with pytest.raises(shoal.InputError, match="at least two households"):
        meters_study.reproduce_meters(shoal.simulate_meters(1, 16), quick=True)


def test_real_readings_when_present():
    if not (REAL / "swiss15_clean.parquet").exists():
        pytest.skip(f"real readings are not at ../shared/data/{REAL.name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        readings = pl.read_parquet(REAL / "swiss15_clean.parquet")
        study = meters_study.reproduce_meters(readings, quick=True)
    assert study.source == "the readings given"
    assert study.n_households == 16
    assert study.lines.at(1.0, query="as_in_paper", method="none", notion="dp") > 0.99
