"""Inference: honest rows raise no more alarms than stated, planted leaks are found, and areas are right."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import shoal
from evidence.inference import infer_from_noisy_sum
from shoal.product.cli.main import app
from shoal.product.studies.findings import Finding, isolation_chances
from shoal.product.studies.inference import (
    AREA,
    RIGHT,
    ReleasedRows,
    area_under,
    infer_columns,
    infer_property,
)
from shoal.readings.crowds import home_vectors
from shoal.readings.plan import noisy_crowds_plan

CROWDS, SIZE = 50, 12
MEMBER = np.repeat(np.arange(CROWDS), SIZE)


def test_the_area_against_all_pairs() -> None:
    draw = np.random.default_rng(0)
    count = draw.integers(1, 4, 9).astype(float)
    having = draw.integers(0, count + 1).astype(float)
    scores = draw.integers(0, 4, 9).astype(float)  # with ties
    wins = total = 0.0
    for i, j in product(range(9), repeat=2):
        pairs = having[i] * (count[j] - having[j])
        wins, total = wins + pairs * ((scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])), total + pairs
    assert area_under(scores[None, None], having[None, None], count[None, None])[0] == pytest.approx(wins / total)


def leaky(seed: int, strength: float, origins: int = 4) -> list[Finding]:
    """600 members in 50 crowds; half have a fact, and each row shows its crowd's share behind noise."""
    draw = np.random.default_rng([2, seed])
    truth = np.repeat((draw.random(CROWDS * SIZE) < 0.5)[None].astype(float), origins, axis=0)
    share = truth[0].reshape(CROWDS, SIZE).mean(axis=1)
    share = (share - share.mean()) / share.std()
    rows = tuple((strength * share + draw.standard_normal(CROWDS))[:, None] for _ in range(origins))
    return infer_property(ReleasedRows("averages", rows, MEMBER), truth, "a fact")


@pytest.mark.parametrize("runs", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_a_planted_leak_of_five_points_is_found_in_95_of_100_runs(runs: int) -> None:
    found = [leaky(seed, 0.8) for seed in range(runs)]
    area, right = ([one[i] for one in found] for i in range(2))
    excess = np.mean([one.figure - one.guess for one in right])
    assert excess == pytest.approx(0.05, abs=0.01)  # points above the guess, on 600 members
    assert sum(one.is_above_guess for one in right) >= 0.95 * runs
    assert sum(one.is_above_guess for one in area) >= 0.95 * runs
    assert np.mean([one.power or 1 for one in right]) < 0.06  # and it says so


@pytest.mark.slow
def test_honest_rows_raise_at_most_the_stated_share_of_alarms() -> None:
    """Facts that crowds share, and rows that have nothing to do with them: 2.5 % stated, 200 runs."""
    alarms = np.zeros(2)
    for seed in range(200):
        draw = np.random.default_rng([1, seed])
        shares = draw.beta(2, 2, CROWDS)  # crowds are alike in the fact
        truth = (draw.random((1, CROWDS * SIZE)) < shares[MEMBER]).astype(float)
        rows = ReleasedRows("averages", (draw.standard_normal((CROWDS, 3)),), MEMBER)
        alarms += [one.is_above_guess for one in infer_property(rows, truth, "a fact")]
    assert alarms.max() <= 11  # a binomial of 200 at 2.5 % is larger in 1 of 100 campaigns


@pytest.mark.slow
def test_the_most_of_many_columns_is_held_against_the_most_of_as_many() -> None:
    alarms = []
    for seed in range(20):
        draw = np.random.default_rng([3, seed])
        truth = (draw.random((CROWDS * SIZE, 12)) < 0.5).astype(float)
        rows = ReleasedRows("averages", (draw.standard_normal((CROWDS, 12)),), MEMBER)
        names = [f"column {j}" for j in range(12)]
        found = [one for how in ("own", "others") for one in infer_columns(rows, truth, names, "x", features=how)]
        alarms += [one.is_above_guess for one in found]
    assert len(alarms) == 80
    assert sum(alarms) <= 6


def test_a_promise_bounds_someone_who_knows_all_others_and_too_little_noise_is_a_violation() -> None:
    draw = np.random.default_rng(0)
    curves = np.concatenate([np.full((100, 4), 0.05), np.full((100, 4), 4.0)]) * draw.uniform(0.9, 1.1, (200, 1))
    truth = (np.arange(200) >= 100)[None].astype(float)
    plan = noisy_crowds_plan(200, 1.0, typical_kw=1.0)
    vectors = [home_vectors(curves, plan)]
    (kept,) = infer_from_noisy_sum(vectors, plan.account, truth, "level")
    assert kept.bound is not None
    assert not kept.is_violation
    loud = noisy_crowds_plan(200, 20.0, typical_kw=1.0)
    (told,) = infer_from_noisy_sum([home_vectors(curves, loud)], loud.account, truth, "level")
    assert told.figure > kept.bound  # the attack has the strength to see noise that is too small
    assert not told.is_violation


def test_facts_that_are_unknown_or_too_rare() -> None:
    rows = ReleasedRows("averages", (np.arange(50.0)[:, None],), MEMBER)
    truth = np.full((1, 600), np.nan)
    truth[0, :60] = np.arange(60) % 2  # five crowds are too few rows to learn from
    assert infer_property(rows, truth, "a fact") == []
    truth = np.zeros((1, 600))
    truth[0, :4] = 1
    assert infer_property(rows, truth, "a fact") == []
    assert isolation_chances(np.array([[1.0, 2.0], [1.0, 2.5], [7.0, 7.0]]), 2, 1.0, 0).tolist() == [0.5, 0.5, 1.0]


# ---------------------------------------------------------------------- tables


def people(n: int = 120) -> pl.DataFrame:
    draw = np.random.default_rng(5)
    age, smokes = draw.normal(50, 9, n), (draw.random(n) < 0.4).astype(int)
    return pl.DataFrame(
        {
            "person": [f"p{i}" for i in range(n)],
            "age": age,
            "lungs": draw.normal(0, 1, n) - 3 * smokes,
            "smokes": smokes,
        }
    )


def test_three_questions_about_a_table(tmp_path: Path) -> None:
    people().write_csv(tmp_path / "people.csv")
    options = ["--label", "person", "--sensitive", "smokes", "--crowd", "5", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["attack", str(tmp_path / "people.csv"), *options])
    assert done.exit_code == 0, done.output
    assert "Singling out" in done.stdout
    study = shoal.attack_table(people(), "person", sensitive=["smokes"], crowd=5)
    (raw,) = (
        one
        for one in study.findings_of("inference", "raw rows")
        if one.what.startswith("smokes") and one.measure == AREA
    )
    (row,) = (
        one
        for one in study.findings_of("inference", "averages")
        if one.what.startswith("smokes") and one.measure == AREA
    )
    assert raw.figure > 0.9 > row.figure  # the rule of diversity leaves a part
    assert study.findings_of("singling out", "raw rows")[0].figure == 1.0
    (named,) = study.findings_of("singling out", "averages")
    assert named.bound is not None
    assert named.figure <= named.bound <= 1 / 5
    for message, given in (
        ("label", {"label": "name"}),
        ("sensitive", {"sensitive": ["weight"]}),
        ("too few", {"crowd": 70}),
    ):
        with pytest.raises(shoal.InputError, match=message):
            shoal.attack_table(people(), **{"label": "person", "crowd": 5, **given})


def test_a_published_table_of_figures_is_judged_by_a_record_or_names() -> None:
    table = people()
    rows, state = shoal.publish_rows(dict(zip(table["person"], table.drop("person").rows(), strict=True)), size=5)
    crowd = {name: number for number, kept in state.crowds.items() for name in kept.labels}
    published = pl.DataFrame(rows.values, ["age", "lungs", "smokes"]).with_columns(
        crowd=pl.Series(rows.crowd), members=pl.Series(rows.members)
    )
    record = table.with_columns(crowd=pl.col("person").replace_strict(crowd))
    study = shoal.find_published(published, record, label="person")
    (named,) = study.findings_of("singling out")
    assert named.figure <= named.guess < 1 / 5 + 1e-12
    assert study.findings_of("linkability")[0].is_above_guess  # which crowd it is, is not hidden
    assert {one.measure for one in study.findings_of("inference")} == {AREA, RIGHT}
    alone = shoal.find_published(published, table, label="person")
    assert alone.findings == ()
    assert "unknown" in alone.about
    open_rows = shoal.find_published(table, table, label="person")
    assert open_rows.findings_of("linkability")[0].figure == 1.0
    with pytest.raises(shoal.InputError, match="known: two columns"):
        shoal.find_published(published.select("crowd", "age"), record, label="person")
