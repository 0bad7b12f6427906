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
from shoal.product.cli.main import app
from shoal.product.studies.attackers import Hits, curves, fingerprint, rank_rows, score_rows, weekly
from shoal.product.studies.reidentification import Reidentification


@pytest.fixture(scope="module")
def study() -> Reidentification:
    """24 homes, one more with half of its readings, and one that lacks two days before the last origin."""
    readings = shoal.simulate_meters(26, 44, step_minutes=60)
    names, last = sorted(readings["household"].unique()), readings["timestamp"].max()
    day = (last - pl.col("timestamp")).dt.total_days()
    gaps = (pl.col("household") == names[24]) & (day < 22)
    away = (pl.col("household") == names[25]) & day.is_between(11, 12)
    return shoal.reidentify(
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
    made = [fingerprint(week, weekend) for week in weeks]
    return weeks, np.stack([one for one, _ in made], axis=1), made[0][1]


def test_attackers_find_what_repeats_and_nothing_else() -> None:
    weeks, prints, ends = _homes(np.random.default_rng(0))
    tables = [(prints[:30, week], prints[:30, week + 1]) for week in range(3)]
    for attacker in (*weekly(tables, ends), Boosted(partial(weekly_blocks, ends=ends)).learned(tables)):
        scores = score_rows(attacker, prints[30:, 3], prints[30:, 4])
        assert rank_rows(scores)[0].mean() > 0.6
        assert rank_rows(scores[:, ::-1])[0].mean() < 0.2, "the row of another home"
    rows = np.log(np.stack([week[:, 0, 40:52] for week in weeks], axis=1))
    expected = [np.log(week[:, :, 40:52]).mean(axis=1) for week in weeks]
    known = [np.concatenate([prints[:, week], expected[week]], axis=1) for week in range(4)]
    tables = [(known[week][:30], rows[:30, week + 1]) for week in range(3)]
    for attacker in (curves(tables)[0], Boosted(curves).learned(tables)):
        assert rank_rows(score_rows(attacker, known[3][30:], rows[30:, 4]))[1].mean() > 0.6
    rows = prints[:, :, 24:36]  # what the fingerprint of the week before says, and no forecast
    tables = [(np.concatenate([prints[:30, w], np.zeros((30, 12))], axis=1), rows[:30, w + 1]) for w in range(3)]
    found = score_rows(curves(tables)[1], np.concatenate([prints[30:, 3], np.zeros((30, 12))], axis=1), rows[30:, 4])
    assert rank_rows(found)[1].mean() > 0.6


def test_rows_that_are_the_same_get_the_same_score() -> None:
    _, prints, ends = _homes(np.random.default_rng(2))
    rows = prints[:, 4].copy()
    rows[30:] = rows[:30]
    tables = [(prints[:30, week], prints[:30, week + 1]) for week in range(3)]
    for attacker in (weekly(tables, ends)[0], Boosted(partial(weekly_blocks, ends=ends)).learned(tables)):
        scores = score_rows(attacker, prints[:, 3], rows)
        assert (scores[:, 30:] == scores[:, :30]).all()


def test_reidentify(tmp_path: Path, study: Reidentification) -> None:
    by = {(one.what, one.attacker.split()[0]): one for one in study.findings}
    raw, curve, crowds = by["raw readings", "features,"], by["unprotected forecasts", "own"], by["crowds", "own"]
    assert raw.everywhere.top_1_interval[0] > 0.5
    assert curve.everywhere.top_1_interval[0] > 0.5
    assert crowds.everywhere.top_1 < 0.3
    for one in study.findings:
        if one.what == "crowds":
            assert one.inside is not None
            assert one.inside.top_1 <= (one.bound or 0.0) + 1e-12  # rows of a crowd are the same: a guess
    assert study.exceeded == ()
    assert {path.name for path in study.save(tmp_path)} == {"reidentify.md", "reidentify.json"}
    assert (tmp_path / "reidentify.md").read_text(encoding="utf-8") == f"{study}\n"
    stored = json.loads((tmp_path / "reidentify.json").read_text())
    assert stored["homes"] == 24
    assert stored["left_out"] == {"with less than 95% of the readings": 1, "without a forecast": 1}
    assert "Left out: 1 with less than 95% of the readings; 1 without a forecast." in str(study)


def test_the_command_ends_with_4_where_a_bound_is_exceeded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    study: Reidentification,
) -> None:
    crowds = study.findings[-1]
    assert crowds.inside is not None
    told = replace(crowds.inside, top_1=1.0, top_1_interval=(0.5, 1.0))  # what rows that are not the same would give
    broken = replace(study, findings=(replace(crowds, inside=told),))
    assert broken.exceeded == broken.findings
    monkeypatch.setattr(shoal, "read_meters", lambda file: None)
    for shown, code in ((study, 0), (broken, 4)):
        monkeypatch.setattr(shoal, "reidentify", lambda readings, shown=shown, **settings: shown)
        monkeypatch.setattr(Reidentification, "save", lambda study, out: [])
        done = CliRunner().invoke(app, ["attack", "meters.csv", "--out", str(tmp_path), "--json"])
        assert done.exit_code == code
        assert json.loads(done.stdout)["homes"] == 24


def test_what_reidentify_refuses() -> None:
    readings = shoal.simulate_meters(24, 37, step_minutes=60)
    with pytest.raises(shoal.InputError, match="too few"):
        shoal.reidentify(readings, crowd=20)
    with pytest.raises(shoal.InputError, match="weeks"):
        shoal.reidentify(shoal.simulate_meters(24, 12, step_minutes=60), crowd=6)
