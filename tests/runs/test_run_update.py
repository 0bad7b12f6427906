"""A run that goes on from day to day: new releases, charged, about groups that stay as they are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from shoal.runs.regroup import Received
from small_run import (
    CONFIG,
    GAP,
    LATE,
    SHORT,
    SILENT,
    assert_released_as_charged,
    charged,
    damage,
    go,
    left_out,
    listing,
    mechanisms,
    opened,
    remove,
)
from typer.testing import CliRunner

import shoal
from shoal.card.facts import DesignFacts
from shoal.cli.main import app
from shoal.designs.reuse import AIMED_ANEW, KEPT, REDESIGN, UNCHANGED
from shoal.errors import InputError
from shoal.ledger.ledger import Ledger
from shoal.runs.config import Config
from shoal.runs.jobs import Listing
from shoal.runs.run import Run
from shoal.runs.stages.fit_stage import SHARE, crowds_of
from shoal.runs.stages.fit_stage import update as fit_update
from shoal.sources.meters.forecast import Forecasts


def update(out: Path, meters: Path, config: Config | None = None) -> Run:
    return go(out, meters, config, update=True)


@pytest.fixture(scope="module")
def updated_once(
    made_once: tuple[Path, Path], days: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = Path(shutil.copytree(made_once[1], tmp_path_factory.mktemp("updated") / "run"))
    update(out, days[1])
    return out


@pytest.fixture
def updated(updated_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(updated_once, tmp_path / "run"))


def names_of(answers: dict[tuple[str, str], Any], release: int) -> set[str]:
    return {household for household, name in answers if name.endswith(f" release {release}")}


def test_a_new_day_is_a_new_release_about_the_same_groups(updated: Path, made_once: tuple[Path, Path]) -> None:
    answers = charged(updated)
    first, second = names_of(answers, 1), names_of(answers, 2)
    assert set(answers) >= set(charged(made_once[1]))
    assert second == (first - {SILENT, GAP}) | {LATE}
    assert {SILENT, GAP} <= first
    assert assert_released_as_charged(updated) == second
    told = Run.open(updated).fit
    assert told is not None
    assert told.goes_on
    assert told.silent == 2
    assert told.joined == 1
    assert told.carried + told.joined == len(second)
    now, before = (
        {frozenset((m.graph.labels[i], m.graph.labels[j])) for m in mechanisms(out) for i, j in m.graph.edges}
        for out in (updated, made_once[1])
    )
    assert before < now
    assert all(LATE in edge for edge in now - before)


def test_everyone_who_is_not_released_has_a_reason(updated: Path, days: tuple[Path, Path, Path]) -> None:
    left = left_out(updated)
    second = names_of(charged(updated), 2)
    present = set(pl.read_parquet(days[1])["household"].unique())
    assert SHORT in present
    assert SHORT not in second
    assert SHORT in left
    assert present - second == {name for name in left if name in present}


def test_a_share_is_held_at_every_release(updated: Path, tmp_path: Path) -> None:
    """With a limit between the largest shares of two crowds the one above it is left out, and says why."""
    before = {
        old.told(Received).number: part for part, old in Listing.read(updated / "earlier/1/fit.json", updated).pairs
    }
    loads: dict[int, list[float]] = {}
    for part, source in listing(updated, "fit").pairs:
        forecasts, crowds, readings = Forecasts.load(part.path), crowds_of(part.path), source
        loads = {}
        for name, power in zip(forecasts.households, forecasts.power, strict=True):
            loads.setdefault(crowds[name], []).append(float(power.sum()))
        if len(loads) > 1:
            break
    low, high = sorted(max(loads[crowd]) / sum(loads[crowd]) for crowd in loads)[-2:]
    old = before[readings.told(Received).number].path
    origin = forecasts.origin.isoformat()
    out = str(tmp_path / "limited.zip")
    told = fit_update(old, readings.path, origin, replace(CONFIG, largest_share=(low + high) / 2), out)
    worst = max(loads, key=lambda crowd: max(loads[crowd]) / sum(loads[crowd]))
    assert dict(told.reasons)[SHARE] == len(loads[worst])
    assert set(Forecasts.load(out).households) == {name for name in forecasts.households if crowds[name] != worst}


def test_the_same_update_twice_changes_nothing(updated: Path, days: tuple[Path, Path, Path]) -> None:
    answers = charged(updated)
    assert update(updated, days[1]).did == []
    assert go(updated).did == []
    assert charged(updated) == answers


def test_who_was_without_readings_is_back_with_them(updated: Path, days: tuple[Path, Path, Path]) -> None:
    then = charged(updated)
    update(updated, days[2])
    now = charged(updated)
    assert now.items() > then.items()
    assert GAP in names_of(now, 3)
    assert names_of(now, 2) - {LATE} < names_of(now, 3) <= names_of(now, 1)
    assert LATE not in names_of(now, 3)  # it has no readings on the third day, and keeps its place
    assert (assert_released_as_charged(updated)) == names_of(now, 3)


def test_an_interrupted_update_goes_on(
    finished: Path, days: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    charge, calls = Ledger.charge, 0

    def stopped(self: Ledger, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        found = charge(self, *arguments, **named)
        if calls == 1:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", stopped)
        with pytest.raises(KeyboardInterrupt):
            update(finished, days[1])
    then = charged(finished)
    assert names_of(then, 2)
    with pytest.raises(InputError, match="Nothing was changed"):
        update(finished, days[1], replace(CONFIG, delta=1e-9))
    update(finished, days[1])
    now = charged(finished)
    assert now.items() > then.items()
    assert (assert_released_as_charged(finished)) == names_of(now, 2) == (names_of(now, 1) - {SILENT, GAP}) | {LATE}


@pytest.mark.parametrize("point", ["_archive", "_remember"])
def test_an_update_interrupted_at_its_beginning_goes_on(
    finished: Path, days: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    done: Callable[..., Any] = getattr(Run, point)

    def stopped(self: Run, *arguments: Any) -> None:
        done(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, point, stopped)
        with pytest.raises(KeyboardInterrupt):
            update(finished, days[1])
    update(finished, days[1])
    answers = charged(finished)
    assert names_of(answers, 2) == (names_of(answers, 1) - {SILENT, GAP}) | {LATE}
    assert not names_of(answers, 3)


def lost(out: Path) -> list[str]:
    facts = Run.open(out).design
    assert facts is not None
    return [one.message for one in facts.failed]


def test_a_damaged_shard_of_the_day_before_is_left_out_of_an_update(
    finished: Path, days: tuple[Path, Path, Path]
) -> None:
    part = listing(finished, "design").parts[0]
    names = set(shoal.Mechanism.load(part.path).classes.labels)
    damage(part.path)
    update(finished, days[1])
    failed = lost(finished)
    assert len(failed) == 1
    assert part.key in failed[0]
    answers = charged(finished)
    assert names_of(answers, 2) == names_of(answers, 1) - names - {SILENT, GAP}
    remove(part.path)
    update(finished, days[1])  # yesterday's mechanism is not made anew: its shard stays out, and says so
    assert part.key in lost(finished)[0]
    assert charged(finished) == answers


def test_a_second_release_under_marginal_is_refused(tmp_path: Path, days: tuple[Path, Path, Path]) -> None:
    """The history's randomness protects once: releases of overlapping histories are not independent."""
    config = replace(CONFIG, query="marginal", method="center", horizon=2, delta=0.01)
    designed = tmp_path / "run"
    go(designed, days[0], config, "release")
    then = charged(designed)
    with pytest.raises(InputError, match="'marginal'"):
        update(designed, days[1])
    for query in ("marginal", "point"):
        again = replace(config, query=query, delta=0.005)
        with pytest.raises(InputError, match="'marginal'"):
            opened(designed, config=again).everything(again=True)
    assert charged(designed) == then
    assert_released_as_charged(designed)


def test_a_random_query_keeps_designs_and_is_certified_anew(tmp_path: Path, days: tuple[Path, Path, Path]) -> None:
    config = replace(
        CONFIG,
        query="trajectory",
        method="center",
        horizon=2,
        delta=0.01,
        rho_tolerance=1.0,
        budget_epsilon=1.0,
        budget_delta=0.5,
    )
    designed = tmp_path / "run"
    go(designed, days[0], config, "release")
    update(designed, days[1])
    run = Run.open(designed)
    assert run.fit is not None
    assert run.design is not None
    decisions = dict(run.design.decisions)
    assert sum(decisions.values()) == run.fit.groups
    assert set(decisions) <= {UNCHANGED, KEPT, AIMED_ANEW, REDESIGN}
    worst = 0.0
    for part in listing(designed, "design").parts:
        mechanism = shoal.Mechanism.load(part.path)
        fresh = shoal.privacy_curve(mechanism.output, mechanism.graph, 1.0, scope="table")
        worst = max(worst, float(fresh.delta.max()))
        assert part.told(DesignFacts).delta >= mechanism.certificate.delta_upper >= fresh.delta.max()
    assert worst <= run.design.delta <= 0.01
    assert_released_as_charged(designed)


def test_what_cannot_be_updated_is_refused(
    finished: Path, designed_only: Path, days: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    then = charged(finished)
    assert update(finished, days[0]).did == []
    with pytest.raises(InputError, match="not finished"):
        update(designed_only, days[1])
    with pytest.raises(InputError, match="leave out --crowds once"):
        update(tmp_path / "new", days[1], replace(CONFIG, crowds="once"))
    for change in ({"horizon": 3}, {"order": (1, 0)}, {"train_days": 13}, {"crowd": 4}, {"shard_size": 10}):
        with pytest.raises(InputError, match=r"update: .*stay as they are"):
            update(finished, days[1], replace(CONFIG, **change))  # type: ignore[arg-type]
    assert charged(finished) == then
    assert go(finished).did == []


@pytest.fixture
def designed_only(made_once: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_once[0], tmp_path / "designed"))


def test_the_command_updates(finished: Path, days: tuple[Path, Path, Path]) -> None:
    arguments = ["run", str(days[1]), "--out", str(finished), "--update", "--json", "--workers", "serial"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    assert "release" in json.loads(result.stdout)["did"]
    answers = charged(finished)
    assert names_of(answers, 2) == (names_of(answers, 1) - {SILENT, GAP}) | {LATE}
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["did"] == []
    assert charged(finished) == answers
