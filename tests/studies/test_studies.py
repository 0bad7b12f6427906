"""The re-identification study on homes that do not exist, small: what it finds is what was put in."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import shoal
from evidence.boosted import Boosted, weekly_blocks
from evidence.reidentification import Hits
from shoal.product.cli.main import app
from shoal.product.studies.attackers import (
    curve_metrics,
    fingerprint_metrics,
    rank_rows,
    score_rows,
    week_fingerprint,
)
from shoal.product.studies.findings import Finding, Study
from shoal.product.studies.meter_attack import EXPECTED, FEATURES, OWN


@pytest.fixture(scope="module")
def study() -> Study:
    """24 homes, one more with half of its readings, and one that lacks two days before the last origin."""
    readings = shoal.simulate_meters(26, 44, step_minutes=60)
    names, last = sorted(readings["household"].unique()), readings["timestamp"].max()
    day = (last - pl.col("timestamp")).dt.total_days()
    gaps = (pl.col("household") == names[24]) & (day < 22)
    away = (pl.col("household") == names[25]) & day.is_between(11, 12)
    return shoal.attack_meters(
        readings.filter(~(gaps | away)),
        crowd=6, order=(1, 1), train_days=15, horizon=4, origins=3,
    )  # fmt: skip


# ---------------------------------------------------------------------- attackers


def test_ties_are_decided_by_lot() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    first, ten = rank_rows(scores)
    assert first.tolist() == [0.5, 0.0, pytest.approx(1 / 3)]
    assert ten.tolist() == [1.0, 1.0, 1.0]
    hits = Hits.over([(np.ones(50), np.ones(50))] * 2)
    assert hits.top_1 == 1.0
    assert hits.top_1_interval[0] > 0.9


def _homes(draw: np.random.Generator) -> tuple[list[NDArray[np.float64]], NDArray[np.float64], tuple[int, ...]]:
    usual = np.exp(draw.standard_normal((60, 1, 96)) * 0.5)
    weeks = [usual * np.exp(0.3 * draw.standard_normal((60, 7, 96))) for _ in range(5)]
    weekend = np.array([False] * 5 + [True] * 2)
    made = [week_fingerprint(week, weekend) for week in weeks]
    return weeks, np.stack([one for one, _ in made], axis=1), made[0][1]


def test_attackers_find_what_repeats_and_nothing_else() -> None:
    weeks, prints, ends = _homes(np.random.default_rng(0))
    tables = [(prints[:30, week], prints[:30, week + 1]) for week in range(3)]
    for attacker in (*fingerprint_metrics(tables, ends), Boosted(partial(weekly_blocks, ends=ends)).learned(tables)):
        scores = score_rows(attacker, prints[30:, 3], prints[30:, 4])
        assert rank_rows(scores)[0].mean() > 0.6
        assert rank_rows(scores[:, ::-1])[0].mean() < 0.2, "the row of another home"
    rows = np.log(np.stack([week[:, 0, 40:52] for week in weeks], axis=1))
    expected = [np.log(week[:, :, 40:52]).mean(axis=1) for week in weeks]
    known = [np.concatenate([prints[:, week], expected[week]], axis=1) for week in range(4)]
    tables = [(known[week][:30], rows[:30, week + 1]) for week in range(3)]
    for attacker in (curve_metrics(tables)[0], Boosted(curve_metrics).learned(tables)):
        assert rank_rows(score_rows(attacker, known[3][30:], rows[30:, 4]))[1].mean() > 0.6
    rows = prints[:, :, 24:36]  # what the fingerprint of the week before says, and no forecast
    tables = [(np.concatenate([prints[:30, w], np.zeros((30, 12))], axis=1), rows[:30, w + 1]) for w in range(3)]
    found = score_rows(
        curve_metrics(tables)[1], np.concatenate([prints[30:, 3], np.zeros((30, 12))], axis=1), rows[30:, 4]
    )
    assert rank_rows(found)[1].mean() > 0.6


def test_rows_that_are_the_same_get_the_same_score() -> None:
    _, prints, ends = _homes(np.random.default_rng(2))
    rows = prints[:, 4].copy()
    rows[30:] = rows[:30]
    tables = [(prints[:30, week], prints[:30, week + 1]) for week in range(3)]
    for attacker in (fingerprint_metrics(tables, ends)[0], Boosted(partial(weekly_blocks, ends=ends)).learned(tables)):
        scores = score_rows(attacker, prints[:, 3], rows)
        assert (scores[:, 30:] == scores[:, :30]).all()


def found(study: Study, question: str, release: str, attacker: str) -> Finding:
    (one,) = (one for one in study.findings_of(question, release) if one.what.endswith(f"({attacker})"))
    return one


def test_three_questions_about_meters(tmp_path: Path, study: Study) -> None:
    assert found(study, "linkability", "raw readings", FEATURES).interval[0] > 0.5
    assert found(study, "linkability", "unprotected forecasts", OWN).interval[0] > 0.5
    assert found(study, "linkability", "averages", OWN).figure < 0.3
    inside = found(study, "singling out", "averages", EXPECTED)
    assert inside.figure == pytest.approx(inside.guess) == inside.bound  # rows of a crowd are the same: a guess
    assert found(study, "linkability", "raw readings", FEATURES).tests == study.members == 24
    (unique,) = study.findings_of("singling out", "raw readings")
    assert unique.interval[0] > 0.5 > unique.guess == 1 / 24
    assert {one.release for one in study.findings_of("inference")} >= {"raw readings", "unprotected forecasts"}
    assert study.exceeded == ()
    assert {path.name for path in study.save(tmp_path)} == {"attack.html", "attack.json", "attack.md"}
    assert (tmp_path / "attack.md").read_text(encoding="utf-8") == f"{study}\n"
    assert Study.load(tmp_path / "attack.json") == study
    assert study.left_out == {"with less than 95% of the readings": 1, "without a forecast": 1}
    assert "Left out: 1 with less than 95% of the readings; 1 without a forecast." in str(study)
    page = (tmp_path / "attack.html").read_text(encoding="utf-8")
    assert all(f"<h2>{question.capitalize()}</h2>" in page for question in ("singling out", "linkability", "inference"))
    assert "What was not looked at" in page
    with pytest.raises(shoal.InputError, match="attack:"):
        Study.load(tmp_path / "attack.md")


def test_the_command_ends_with_4_where_a_bound_is_exceeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study
) -> None:
    inside = found(study, "singling out", "averages", EXPECTED)
    told = replace(inside, figure=1.0, interval=(0.5, 1.0))  # what rows that are not the same would give
    broken = replace(study, findings=(told,))
    assert broken.exceeded == broken.findings
    monkeypatch.setattr(shoal, "read_meters", lambda file: None)
    for shown, code in ((study, 0), (broken, 4)):
        monkeypatch.setattr(shoal, "attack_meters", lambda readings, shown=shown, **settings: shown)
        done = CliRunner().invoke(app, ["attack", "meters.csv", "--out", str(tmp_path), "--json"])
        assert done.exit_code == code
        assert json.loads(done.stdout)["members"] == 24


def test_what_attack_meters_refuses() -> None:
    readings = shoal.simulate_meters(24, 37, step_minutes=60)
    with pytest.raises(shoal.InputError, match="too few"):
        shoal.attack_meters(readings, crowd=20)
    with pytest.raises(shoal.InputError, match="weeks"):
        shoal.attack_meters(shoal.simulate_meters(24, 12, step_minutes=60), crowd=6)
