"""A run that is interrupted, damaged or out of space: nothing twice, nothing uncharged, nothing lost."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_run import (
    CONFIG,
    assert_released_as_charged,
    charged,
    damage,
    digests,
    go,
    listing,
    released,
    remove,
)
from typer.testing import CliRunner

import shoal
from shoal.card.facts import DesignFacts, Lost
from shoal.cli.main import app
from shoal.errors import InputError, LedgerError, StorageError, WorkerError
from shoal.ledger.ledger import Ledger
from shoal.runs.folder import Folder
from shoal.runs.jobs import Job
from shoal.runs.stages import design_stage, fit_stage, release_stage
from shoal.runs.store import Part
from shoal.workers.executor import TRIES, died
from shoal.workers.serial import Serial

Patch = pytest.MonkeyPatch


def failed(out: Path) -> list[Lost]:
    """Shards that a stage could not do."""
    run = shoal.Run.open(out)
    return [one for facts in (run.fit, run.design, run.release) if facts is not None for one in facts.failed]


def on_call(number: int, function: Callable[..., Any], error: BaseException, *, after: bool) -> Callable[..., Any]:
    """The function, which at its n-th call raises instead of, or after, doing its work."""
    calls = 0

    def stopped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != number:
            return function(*arguments, **named)
        if after:
            function(*arguments, **named)
        raise error

    return stopped


POINTS = {
    "before the charge": (Ledger, "charge", False),
    "right after the charge": (Ledger, "charge", True),
    "before the file": (release_stage, "_written", False),
    "after the file, before the receipt": (release_stage, "receipted", False),
    "after the receipt": (release_stage, "receipted", True),
    "after the draw": (release_stage, "do", True),
}


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_an_interrupted_release_goes_on(designed: Path, monkeypatch: Patch, point: str, number: int) -> None:
    where, name, after = POINTS[point]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, on_call(number, getattr(where, name), KeyboardInterrupt(), after=after))
        with pytest.raises(KeyboardInterrupt):
            go(designed)
    then, shown = charged(designed), released(designed)
    assert set(shown) <= {household for household, _ in then}
    go(designed)
    now = charged(designed)
    assert now.items() >= then.items()
    assert {household: row for household, row in released(designed).items() if household in shown} == shown
    assert assert_released_as_charged(designed) == set(released(designed))
    assert len(now) == len(released(designed))


def test_a_release_that_ends_before_its_list_goes_on(designed: Path, monkeypatch: Patch) -> None:
    put = Folder.put

    def stopped(self: Folder, name: str, content: str | bytes) -> Path:
        if name == release_stage.RELEASE:
            raise KeyboardInterrupt
        return put(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "put", stopped)
        with pytest.raises(KeyboardInterrupt):
            go(designed)
    then, shown = charged(designed), released(designed)
    assert len(then) == len(shown)
    go(designed)
    assert charged(designed) == then
    assert released(designed) == shown


@pytest.mark.parametrize("point", ["before the charge", "before the file"])
def test_a_trajectory_is_drawn_once(designed: Path, monkeypatch: Patch, point: str) -> None:
    config = replace(CONFIG, query="trajectory", method="center", delta=0.01)
    where, name, after = POINTS[point]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, on_call(2, getattr(where, name), KeyboardInterrupt(), after=after))
        with pytest.raises(KeyboardInterrupt):
            go(designed, config=config)
    drawn = {path.name: path.read_bytes() for path in (designed / "shards" / "draws").glob("*.npy")}
    then = charged(designed)
    assert len(drawn) == 2
    go(designed)
    assert {path.name: path.read_bytes() for path in (designed / "shards" / "draws").glob("*.npy")} == drawn
    assert charged(designed).items() >= then.items()
    assert_released_as_charged(designed)


def test_settings_may_not_change_within_a_release(designed: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", on_call(2, Ledger.charge, KeyboardInterrupt(), after=False))
        with pytest.raises(KeyboardInterrupt):
            go(designed)
    then = charged(designed)
    assert then
    for change in ({"delta": 1e-9}, {"horizon": 3}, {"shard_size": 10}):
        with pytest.raises(InputError, match="Nothing was changed"):
            go(designed, config=replace(CONFIG, **change))  # type: ignore[arg-type]
    assert charged(designed) == then
    go(designed)
    assert charged(designed).items() > then.items()
    assert_released_as_charged(designed)


def test_another_ledger_is_noticed(designed: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", on_call(2, Ledger.charge, KeyboardInterrupt(), after=False))
        with pytest.raises(KeyboardInterrupt):
            go(designed)
    aside = designed.parent / "aside.db"
    for suffix in ("", "-wal", "-shm"):
        if (designed / f"ledger.db{suffix}").exists():
            shutil.move(designed / f"ledger.db{suffix}", f"{aside}{suffix}")
    with pytest.raises(LedgerError, match=r"is missing, to which the releases.*Nothing was released"):
        go(designed)
    assert not charged(designed)


def test_a_lost_released_shard_is_written_from_the_record(finished: Path) -> None:
    then, shown = charged(finished), released(finished)
    remove(sorted((finished / "released").glob("*.parquet"))[0])
    assert released(finished) != shown
    go(finished)
    assert released(finished) == shown
    assert charged(finished) == then


# ------------------------------------------------------------------ damaged shards


def chosen(out: Path, what: str) -> tuple[Part, set[str]]:
    """A shard of a kind, and the households it stands for."""
    pairs = sorted(listing(out, "design").pairs, key=lambda pair: (pair[0].told(DesignFacts).delta, pair[0].key))
    readings = {part.key: made_of for part, made_of in listing(out, "fit").pairs}
    mechanism, forecasts = pairs[-1] if what.startswith("worst") else pairs[0]
    part = {"mechanism": mechanism, "forecasts": forecasts, "readings": readings[forecasts.key]}
    names = pl.read_parquet(readings[forecasts.key].path)["household"].to_list()
    return part[what.split()[-1]], set(names)


def forget_forecasts(out: Path) -> None:
    """As if the run had ended before the forecasts, which are all that is made of readings."""
    state = json.loads((out / "state.json").read_text())
    state["stages"] = {}
    (out / "state.json").write_text(json.dumps(state))
    for folder in ("forecasts", "mechanism"):
        shutil.rmtree(out / folder, ignore_errors=True)


@pytest.mark.parametrize("what", ["mechanism", "worst mechanism", "forecasts", "worst forecasts", "readings"])
def test_a_damaged_shard_is_named_and_the_rest_is_released(designed: Path, what: str) -> None:
    part, names = chosen(designed, what)
    damage(part.path)
    if what == "readings":
        forget_forecasts(designed)
    if what.startswith("worst"):  # the page is about the worst shard: through the whole command
        result = CliRunner().invoke(app, ["run", "--out", str(designed), "--json", "--workers", "serial"])
        assert result.exit_code == 2
        told = json.loads(result.stdout)
        assert sum(len(told["stages"][stage]["failed"]) for stage in ("design", "release")) == 1
    else:
        assert go(designed).exit_code == 2
    [lost] = failed(designed)
    assert f"{part.key} is damaged" in lost.message
    answers, shown = charged(designed), released(designed)
    assert shown
    assert not names & set(shown)
    assert not names & {name for name, _ in answers}
    assert_released_as_charged(designed)
    card = (designed / "card.md").read_text()  # which is public: the shard, and not why
    assert f"{lost.stage} `{lost.key[:12]}`" in card
    assert lost.message not in card
    remove(part.path)
    go(designed)
    assert not failed(designed)
    now = assert_released_as_charged(designed)
    assert now > set(shown)
    assert now & names
    assert charged(designed).items() > answers.items()
    assert {name: row for name, row in released(designed).items() if name in shown} == shown


def test_mending_can_be_interrupted(designed: Path, monkeypatch: Patch) -> None:
    part, _ = chosen(designed, "forecasts")
    damage(part.path)
    go(designed)
    then = charged(designed)
    remove(part.path)
    with monkeypatch.context() as patch:
        patch.setattr(design_stage, "do", on_call(1, design_stage.do, KeyboardInterrupt(), after=False))
        patch.setattr(Ledger, "charge", on_call(1, Ledger.charge, KeyboardInterrupt(), after=True))
        with pytest.raises(KeyboardInterrupt):
            go(designed)
    with pytest.raises(InputError, match="Nothing was changed"):
        go(designed, config=replace(CONFIG, delta=1e-9))
    go(designed)
    assert charged(designed).items() > then.items()
    assert_released_as_charged(designed)


def test_a_shard_with_another_schema_is_named(days: tuple[Path, Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    go(out, days[0], CONFIG, "fit")
    readings = listing(out, "fit").inputs
    pl.DataFrame({"household": ["x"], "kw": ["y"]}).write_parquet(readings[0].path)
    forget_forecasts(out)
    go(out)
    assert len(failed(out)) == 1
    assert readings[0].key in failed(out)[0].message
    assert_released_as_charged(out)


def test_groups_do_not_change_after_a_release(
    days: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: Patch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("shoal.runs.neighborhood.assigned", on_call(1, fit_stage.stage, KeyboardInterrupt(), after=False))
        with pytest.raises(KeyboardInterrupt):
            go(out, days[0], CONFIG)
    broken = sorted((out / "shards" / "partition").glob("*[0-9a-f].parquet"))
    broken = [path for path in broken if ".quality." not in path.name]
    damage(broken[0])
    go(out)
    assert failed(out)
    then = charged(out)
    go(out)  # as damaged as before: nothing new
    assert charged(out) == then
    remove(broken[0])
    with pytest.raises(InputError, match=r"neighbors at first use\. Nothing more was released"):
        go(out)
    assert charged(out) == then
    assert_released_as_charged(out)


@pytest.mark.parametrize("stage", ["partition", "profile", "assign", "send", "readings"])
def test_groups_are_not_formed_without_shards_whose_workers_died(
    days: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: Patch, stage: str
) -> None:
    run, out = Serial.run, tmp_path / "run"

    def dying(self: Serial, work: Any, tasks: Any) -> Any:
        for number, result in run(self, work, tasks):
            mine = isinstance(tasks[number], Job) and Path(tasks[number].out).parent.name == stage
            yield number, died(TRIES) if mine and number == 1 else result

    with monkeypatch.context() as patch:
        patch.setattr(Serial, "run", dying)
        with pytest.raises(WorkerError, match="worker died 3 times"):
            go(out, days[0], CONFIG)
    assert not charged(out)
    go(out, days[0], CONFIG, "fit")
    assert not failed(out)


def test_a_damaged_receipt_is_not_believed(designed: Path) -> None:
    before = digests(designed)
    part = listing(designed, "design").parts[0]
    receipt = Path(part.path).with_suffix(".json")
    content = json.loads(receipt.read_text())
    content["facts"]["delta"] = 0.0
    receipt.write_text(json.dumps(content))
    (designed / "design.json").unlink()
    go(designed)
    assert digests(designed) == before
    assert json.loads(receipt.read_text())["facts"]["delta"] == part.facts["delta"]


# ------------------------------------------------------------------ full disk


@pytest.mark.parametrize("stage", ["forecasts", "mechanism", "released"])
def test_a_full_disk_leaves_a_resumable_state(
    days: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: Patch, stage: str
) -> None:
    from shoal.runs import store

    out, write = tmp_path / "run", store.write_whole
    written = 0

    def full(target: Path, rough: Path, put: Callable[[Path], Any]) -> None:
        nonlocal written
        written += target.parent.name == stage and target.suffix != ".json"
        if written > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(target, rough, put)

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_whole", full)
        with pytest.raises(StorageError, match="disk is full"):
            go(out, days[0], CONFIG)
    then = charged(out)
    assert {name for name, _ in then} >= set(released(out))
    go(out)
    assert charged(out).items() >= then.items()
    assert_released_as_charged(out)
