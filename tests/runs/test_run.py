"""A whole run: everyone released once and charged once, within what is promised, the same however it is worked off."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_run import (
    CHARGED,
    SHORT,
    Days,
    assert_released_as_charged,
    charged,
    digests,
    go,
    left_out,
    mechanisms,
    released,
    shards,
)
from typer.testing import CliRunner

import shoal
from shoal.product.cli.main import app

OPTIONS = (
    "--train-days 14 --set shard_size=12 --workers serial --crowd 5 --horizon 4 --set order=2,1 --method center "
    "--epsilon 1 --delta 1e-5"
)


def called(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_everyone_is_released_once_and_charged_once(finished: Path, days: Days) -> None:
    everyone = set(pl.read_parquet(days[0])["household"].unique())
    figures, answers = released(finished), charged(finished)
    assert len(answers) == len(figures)
    assert {name for name, _ in answers} == set(figures)
    assert len({query for _, query in answers}) == 1
    assert all(len(row) == 4 and np.isfinite(row).all() and min(row) > 0 for row in figures.values())
    assert assert_released_as_charged(finished) == set(figures)
    left = left_out(finished)
    assert SHORT in left
    assert all(left.values())
    assert not set(left) & set(figures)
    assert set(left) | set(figures) == everyone
    quality = pl.read_csv(finished / "quality.csv")
    assert set(quality["household"]) == everyone
    run = shoal.Run.open(finished)
    assert run.work.facts.people is not None
    assert run.work.facts.people.left_out == len(left)
    assert run.card.to_dict()["left_out"]["labels"] == len(left)


def test_nobody_is_released_without_a_neighbor(finished: Path) -> None:
    for mechanism in mechanisms(finished):
        graph = mechanism.graph
        assert set(graph.edges.ravel().tolist()) == set(range(graph.n_labels))
        sizes = np.bincount(graph.components)
        assert sizes.min() >= CHARGED.crowd
        assert sizes.max() < 12  # twice the size they are formed with, 1.2 times that promised


def test_the_card_covers_every_certificate(finished: Path) -> None:
    card = go(finished, until="report").card.to_dict()
    assert json.loads((finished / "card.json").read_text()) == card
    blocks = mechanisms(finished)
    assert len(blocks) > 1
    fresh = [shoal.privacy_curve(m.output, m.graph, CHARGED.epsilon).delta_upper.max() for m in blocks]
    assert 1e-5 >= card["guarantee"]["delta"] >= max(m.certificate.delta_upper for m in blocks) >= max(fresh)
    assert card["graph"]["edges"] == sum(m.graph.n_edges for m in blocks)
    # What holds at an ε holds at every larger one.
    worst = [np.minimum.accumulate(m.released_curve(card["curve"]["epsilon"]).delta_upper) for m in blocks]
    assert (np.array(card["curve"]["delta"]) >= np.max(worst, axis=0)).all()
    assert card["accuracy"]["rho_largest"] is None  # that of one household
    assert card["accuracy"]["rho_mean"] >= np.concatenate([m.rho for m in blocks]).mean()
    assert card["composition"]["largest"]["spent"] <= card["composition"]["largest"]["budget"]


def test_a_command_runs_it_and_the_second_time_nothing(tmp_path: Path, days: Days) -> None:
    arguments = ["run", days[0], "--out", tmp_path / "run", *OPTIONS.split()]
    code, out, err = called(*arguments, "--json")
    assert code == 0, err
    done = json.loads(out)
    assert done["did"] == ["fit", "crowds", "design", "audit", "release", "card", "report"]
    assert (tmp_path / "run" / "report.html").is_file()
    answers = charged(tmp_path / "run")
    assert len(answers) == done["stages"]["release"]["labels"]
    code, out, _ = called("run", "--out", tmp_path / "run", "--json")
    assert code == 0
    assert json.loads(out)["did"] == []
    assert charged(tmp_path / "run") == answers


def test_an_exhausted_budget_ends_with_3_and_can_be_raised(designed: Path) -> None:
    with shoal.Run.open(designed).work.open_ledger(create=True) as ledger:
        ledger.budget(1.0, 0.0)
    with pytest.raises(shoal.BudgetError):
        go(designed)
    code, _, err = called("run", "--out", designed, "--workers", "serial")
    assert code == 3
    assert "0 label(s) of other shards" in err
    assert not charged(designed)
    assert not released(designed)
    code, _, err = called("ledger", "budget", designed, "--epsilon", "1", "--delta", "1e-5")
    assert code == 0, err
    go(designed)
    assert_released_as_charged(designed)


def test_a_changed_setting_is_recomputed_before_a_release(designed: Path) -> None:
    before = digests(designed)
    run = go(designed, config=replace(CHARGED, delta=1e-7))
    assert run.did == ["design", "audit", "release"]
    assert len(set(before) & set(digests(designed))) == len(shards(designed, "fit"))
    assert run.card.to_dict()["guarantee"]["delta"] <= 1e-7


@pytest.mark.parametrize("change", [{"delta": 1e-7}, {"horizon": 3}, {"crowd": 4}])
def test_a_changed_setting_is_refused_after_a_release(finished: Path, change: dict[str, object]) -> None:
    answers, figures = charged(finished), released(finished)
    named = ", ".join(change)
    with pytest.raises(
        shoal.InputError, match=rf"has released, and this is another {named}\. Nothing was changed.*update=True"
    ):
        go(finished, config=replace(CHARGED, **change))  # type: ignore[arg-type]
    assert charged(finished) == answers
    assert released(finished) == figures
    assert go(finished).did == []


def test_a_household_that_cannot_be_read_is_named_with_its_reason(tmp_path: Path, days: Days) -> None:
    """It is in no shard of readings: only the quality table of the partition knows it."""
    sparse = pl.DataFrame(
        {
            "household": ["Z9", "Z9"],
            "timestamp": [datetime(2024, 1, 1), datetime(2024, 1, 16)],
            "kw": [1.0, 2.0],
        },
        schema_overrides={"timestamp": pl.read_parquet_schema(days[0])["timestamp"]},
    )
    meters = tmp_path / "meters.parquet"
    pl.concat([pl.read_parquet(days[0]), sparse]).write_parquet(meters)
    out = tmp_path / "run"
    run = go(out, meters, CHARGED, "fit")
    assert set(left_out(out)) == {SHORT, "Z9"}
    assert all(left_out(out).values())
    assert run.work.facts.people is not None
    assert run.work.facts.people.left_out == 2
    assert "Z9" in pl.read_csv(out / "quality.csv")["household"].to_list()


def test_every_shard_has_its_proof_and_the_card_says_so(designed: Path) -> None:
    for part in shards(designed, "design"):
        proof = part.path.with_suffix(".proof.json")
        stated, mechanism = json.loads(proof.read_text()), shoal.Mechanism.load(part.path)
        assert (stated["digest"], stated["own_graph"], stated["scope"]) == (mechanism.digest, True, mechanism.scope)
        assert {float.fromhex(stated["epsilon"])} == set(mechanism.epsilon.tolist())
        checker = [sys.executable, "-m", "shoal.proofs.checker", str(proof), str(part.path)]
        assert subprocess.run(checker, capture_output=True, text=True).stdout.startswith("confirmed")
    design = shoal.Run.open(designed).work.facts.design
    assert design is not None
    assert design.proof_words.startswith("proved (ball arithmetic")
