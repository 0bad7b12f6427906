"""A whole run in shards: everyone released once and charged once, within what is promised, the same on every engine."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_fleet import CONFIG, SHORT, assert_released_as_charged, charged, digests, facts, go, going, released
from typer.testing import CliRunner

import shoal
from shoal.cli.main import app
from shoal.engine.run import Run
from shoal.errors import BudgetError, InputError
from shoal.fleet.jobs import parts_of, read_list
from shoal.fleet.manifest import read_manifest
from shoal.meters.forecast import Forecasts

TOML = "[forecast]\ntrain_days = 14\n[audit]\naudit_samples = 100\n[scale]\naudit_groups = 2\n"
OPTIONS = ["--engine", "serial", "--shard-size", "12", "--group-cap", "5", "--horizon", "4", "--order", "2,1"]


def called(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_everyone_is_released_once_and_charged_once(finished: Path, days: tuple[Path, Path, Path]) -> None:
    everyone = set(pl.read_parquet(days[0])["household"].unique())
    figures, answers = released(finished), charged(finished)
    assert len(answers) == len(figures)
    assert {name for name, _ in answers} == set(figures)
    assert len({query for _, query in answers}) == 1
    assert all(len(row) == 4 and np.isfinite(row).all() and min(row) > 0 for row in figures.values())
    assert_released_as_charged(finished)
    left = {}
    for part in read_list(finished / "fit.json", finished)[0]:
        left.update(Forecasts.load(part.path).left_out)
    assert SHORT in left
    assert not set(left) & set(figures)
    assert set(left) | set(figures) == everyone
    assert facts(finished, "fit")["left_out_count"] == len(left)
    assert json.loads((finished / "card.json").read_text())["left_out"]["households"] == len(left)


def test_nobody_is_released_without_a_neighbor(finished: Path) -> None:
    for part in read_list(finished / "design.json", finished)[0]:
        graph = shoal.Mechanism.load(part.path).graph
        assert set(graph.edges.ravel().tolist()) == set(range(graph.n_labels))


def test_the_card_covers_every_certificate(finished: Path) -> None:
    card = json.loads((finished / "card.json").read_text())
    parts = read_list(finished / "design.json", finished)[0]
    assert len(parts) > 1
    fresh = [shoal.privacy_curve(m.output, m.graph, CONFIG.epsilon).delta_upper.max() for m in loaded(finished)]
    assert card["guarantee"]["delta"] >= max(m.certificate.delta_upper for m in loaded(finished)) >= max(fresh)
    assert card["guarantee"]["delta"] <= 1e-5
    assert card["guarantee"]["directed_edges_certified"] == 2 * sum(m.graph.n_edges for m in loaded(finished))
    assert card["ledger"]["spent"] <= card["ledger"]["budget_delta"]
    manifest = read_manifest(finished)
    assert manifest.households("released") == len(released(finished))
    assert not manifest.failures


def loaded(out: Path) -> list[shoal.Mechanism]:
    return [shoal.Mechanism.load(part.path) for part in read_list(out / "design.json", out)[0]]


def test_a_second_run_does_nothing(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*.parquet")}
    answers = charged(finished)
    assert go(finished).did == []
    assert charged(finished) == answers
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*.parquet")} == before


def test_a_new_release_has_to_be_asked_for(finished: Path) -> None:
    first = charged(finished)
    with going(finished) as run:
        run.release(again=True)
        assert run.state.release == 2
    both = charged(finished)
    assert len(both) == 2 * len(first)
    assert both.items() >= first.items()
    assert {name for name, _ in set(both) - set(first)} == {name for name, _ in first}
    assert_released_as_charged(finished)


def test_a_command_runs_it_and_the_second_time_nothing(tmp_path: Path, days: tuple[Path, Path, Path]) -> None:
    (tmp_path / "settings.toml").write_text(TOML)
    arguments = ["run", days[0], "--out", tmp_path / "fleet", "--config", tmp_path / "settings.toml", *OPTIONS]
    code, out, err = called(*arguments, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["did"] == ["fit", "design", "release", "audit", "card", "report"]
    assert (tmp_path / "fleet" / "report.html").is_file()
    answers = charged(tmp_path / "fleet")
    assert len(answers) == told["stages"]["release"]["households"]
    code, out, _ = called("run", "--out", tmp_path / "fleet", "--json")
    assert code == 0
    assert json.loads(out)["did"] == []
    assert charged(tmp_path / "fleet") == answers


def test_an_unreachable_cluster_ends_with_2(designed: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    code, _, err = called("run", "--out", designed, "--engine", "ray://127.0.0.1:9")
    assert code == 2
    assert "no Ray cluster answers" in err
    assert not charged(designed)
    assert not (designed / "released").exists()


def test_an_exhausted_budget_ends_with_3_and_can_be_raised(designed: Path) -> None:
    config = replace(CONFIG, budget_epsilon=1.0, budget_delta=0.0)
    with pytest.raises(BudgetError):
        go(designed, config=config)
    code, _, err = called("run", "--out", designed)
    assert code == 3
    assert "0 household(s) of other shards" in err
    assert not charged(designed)
    assert not released(designed)
    code, _, err = called("ledger", "budget", designed, "--epsilon", "1", "--delta", "1e-5")
    assert code == 0, err
    go(designed)
    assert_released_as_charged(designed)


def test_a_changed_setting_is_recomputed_before_a_release(designed: Path) -> None:
    before = digests(designed)
    run = go(designed, config=replace(CONFIG, delta=1e-7))
    assert run.did == ["design", "release", "audit", "card"]
    assert len(set(before) & set(digests(designed))) == len(read_list(designed / "fit.json", designed)[0])
    assert json.loads((designed / "card.json").read_text())["guarantee"]["delta"] <= 1e-7


@pytest.mark.parametrize("change", [{"delta": 1e-7}, {"horizon": 3}, {"group_cap": 4}, {"query": "marginal"}])
def test_a_changed_setting_is_refused_after_a_release(finished: Path, change: dict[str, object]) -> None:
    answers, figures = charged(finished), released(finished)
    with pytest.raises(InputError, match=r"Nothing was changed.*--again"):
        go(finished, config=replace(CONFIG, **change))  # type: ignore[arg-type]
    assert charged(finished) == answers
    assert released(finished) == figures
    assert go(finished).did == []


def test_a_run_in_one_piece_does_not_take_over(finished: Path) -> None:
    answers = charged(finished)
    whole = replace(CONFIG, engine=None, design_seconds=0.5)
    with Run.start(finished, None, whole) as run, pytest.raises(InputError, match="holds a release"):
        run.everything()
    assert charged(finished) == answers


@pytest.mark.parametrize("engine", ["processes", "ray"])
def test_every_engine_makes_the_same_shards(
    made_once: tuple[Path, Path],
    days: tuple[Path, Path, Path],
    tmp_path: Path,
    engine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    go(tmp_path / "other", days[0], replace(CONFIG, engine=engine, workers=2), "release")
    assert digests(tmp_path / "other") == digests(made_once[1])
    here, there = released(made_once[1]), released(tmp_path / "other")
    assert set(here) == set(there)
    ours, theirs = (
        {name: row for (name, _), row in charged(out).items()} for out in (made_once[1], tmp_path / "other")
    )
    assert all(ours[name] != theirs[name] for name in ours)  # noise is drawn anew
    assert_released_as_charged(tmp_path / "other")


def test_lists_name_forecasts_beside_their_mechanisms(finished: Path) -> None:
    made, _, more = read_list(finished / "design.json", finished)
    for mechanism, forecast in zip(made, parts_of(more["forecasts"], finished), strict=True):
        assert shoal.Mechanism.load(mechanism.path).classes.labels == Forecasts.load(forecast.path).households


def test_a_household_that_cannot_be_read_is_named_with_its_reason(
    tmp_path: Path, days: tuple[Path, Path, Path]
) -> None:
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
    out = tmp_path / "fleet"
    run = go(out, meters, CONFIG, "fit")
    table = dict(pl.read_csv(out / "left_out.csv").iter_rows())
    assert set(table) == {SHORT, "Z9"}
    assert all(table.values())
    assert run.facts("fit")["left_out_count"] == 2
