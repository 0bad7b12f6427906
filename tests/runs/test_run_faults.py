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
    CHARGED,
    assert_released_as_charged,
    charged,
    damage,
    digests,
    go,
    listing,
    released,
    remove,
)

import shoal
from shoal.card.facts import Lost
from shoal.errors import InputError, LedgerError, StorageError, WorkerError
from shoal.ledger.ledger import Ledger
from shoal.runs.blocks import crowds_of
from shoal.runs.folder import Folder
from shoal.runs.shards import Job
from shoal.runs.stages import release_stage
from shoal.workers.executor import TRIES, Executor, died

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
    "before the table": (release_stage, "released_table", False),
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


@pytest.mark.parametrize("file", ["public/released.csv", "released.csv", "released.parquet"])
def test_a_release_that_ends_before_a_table_is_written_goes_on(designed: Path, monkeypatch: Patch, file: str) -> None:
    write = Folder.write

    def stopped(self: Folder, name: str, put: Callable[[Path], Any]) -> Path:
        if name == file:
            raise KeyboardInterrupt
        return write(self, name, put)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write", stopped)
        with pytest.raises(KeyboardInterrupt):
            go(designed)
    then = charged(designed)
    go(designed)
    assert charged(designed) == then
    assert_released_as_charged(designed)


@pytest.mark.parametrize("point", ["before the charge", "before the table"])
def test_a_trajectory_is_drawn_once(designed: Path, monkeypatch: Patch, point: str) -> None:
    config = replace(CHARGED, query="trajectory", delta=0.01)
    where, name, after = POINTS[point]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, on_call(2, getattr(where, name), KeyboardInterrupt(), after=after))
        with pytest.raises(KeyboardInterrupt):
            go(designed, config=config)
    drawn = {path.name: path.read_bytes() for path in (designed / "shards" / "draws").glob("*.f8")}
    then = charged(designed)
    assert len(drawn) == 2
    go(designed)
    assert {path.name: path.read_bytes() for path in (designed / "shards" / "draws").glob("*.f8")} == drawn
    assert charged(designed).items() >= then.items()
    assert_released_as_charged(designed)


def test_settings_may_not_change_within_a_release(designed: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", on_call(2, Ledger.charge, KeyboardInterrupt(), after=False))
        with pytest.raises(KeyboardInterrupt):
            go(designed)
    then = charged(designed)
    assert then
    for change in ({"delta": 1e-9}, {"horizon": 3}, {"crowd": 4}):
        with pytest.raises(InputError, match="Nothing was changed"):
            go(designed, config=replace(CHARGED, **change))  # type: ignore[arg-type]
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
    with pytest.raises(LedgerError, match=r"is missing, in which the releases.*Nothing was released"):
        go(designed)
    assert not charged(designed)


def test_a_lost_table_is_written_from_the_record(finished: Path) -> None:
    then, shown = charged(finished), released(finished)
    (finished / "released.parquet").unlink()
    assert not released(finished)
    go(finished)
    assert released(finished) == shown
    assert charged(finished) == then


# ------------------------------------------------------------------ damaged shards


def forget_forecasts(out: Path) -> None:
    """As if the run had ended before the forecasts, which are all that is made of readings."""
    state = json.loads((out / "state.json").read_text())
    state["stages"] = {}
    (out / "state.json").write_text(json.dumps(state))
    for folder in ("forecasts", "blocks", "mechanism"):
        shutil.rmtree(out / folder, ignore_errors=True)


@pytest.mark.parametrize("what", ["mechanism", "block"])
def test_a_damaged_block_is_named_and_the_rest_is_released(designed: Path, what: str) -> None:
    mechanism, block = sorted(listing(designed, "design").pairs, key=lambda pair: pair[0].key)[0]
    part = mechanism if what == "mechanism" else block
    names = set(crowds_of(block.path))
    damage(part.path)
    assert go(designed).exit_code == 2
    [lost] = failed(designed)
    assert f"{part.key} is damaged" in lost.message
    answers, shown = charged(designed), released(designed)
    assert shown
    assert not names & set(shown)
    assert not names & {name for name, _ in answers}
    assert_released_as_charged(designed)
    assert lost.message not in (designed / "card.md").read_text()  # which is public
    assert any(lost.message in line for _, lines in shoal.Run.open(designed).summary(verbose=True) for line in lines)
    remove(part.path)
    go(designed)
    assert not failed(designed)
    assert assert_released_as_charged(designed) == set(shown) | names
    assert charged(designed).items() > answers.items()
    assert {name: row for name, row in released(designed).items() if name in shown} == shown


def test_damaged_forecasts_are_named_before_crowds_are_formed(days: tuple[Path, Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    go(out, days[0], CHARGED, "fit")
    part = listing(out, "fit").parts[0]
    damage(Path(part.path).with_suffix(".curves.parquet"))
    with pytest.raises(InputError, match=f"{part.key} is damaged"):
        go(out)
    remove(part.path)
    go(out)
    assert_released_as_charged(out)


def test_a_shard_with_another_schema_is_named(days: tuple[Path, Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    go(out, days[0], CHARGED, "fit")
    readings = listing(out, "fit").inputs
    pl.DataFrame({"household": ["x"], "kw": ["y"]}).write_parquet(readings[0].path)
    forget_forecasts(out)
    go(out)
    assert len(failed(out)) == 1
    assert readings[0].key in failed(out)[0].message
    assert_released_as_charged(out)


@pytest.mark.parametrize("stage", ["readings", "forecasts"])
def test_crowds_are_not_formed_without_shards_whose_workers_died(
    days: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: Patch, stage: str
) -> None:
    run, out = Executor.run, tmp_path / "run"

    def dying(self: Executor, work: Any, tasks: Any) -> Any:
        for number, result in run(self, work, tasks):
            mine = isinstance(tasks[number], Job) and Path(tasks[number].out).parent.name == stage
            yield number, died(TRIES) if mine and number == 1 else result

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "run", dying)
        with pytest.raises(WorkerError, match="worker died 3 times"):
            go(out, days[0], CHARGED)
    assert not charged(out)
    go(out, days[0], CHARGED, "crowds")
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


@pytest.mark.parametrize("stage", ["forecasts", "mechanism", "blocks"])
def test_a_full_disk_leaves_a_resumable_state(
    days: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: Patch, stage: str
) -> None:
    from shoal.runs import shards

    out, write = tmp_path / "run", shards.write_whole
    written = 0

    def full(target: Path, rough: Path, put: Callable[[Path], Any]) -> None:
        nonlocal written
        written += target.parent.name == stage and target.suffix != ".json"
        if written > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(target, rough, put)

    with monkeypatch.context() as patch:
        patch.setattr(shards, "write_whole", full)
        with pytest.raises(StorageError, match="disk is full"):
            go(out, days[0], CHARGED)
    then = charged(out)
    assert {name for name, _ in then} >= set(released(out))
    go(out)
    assert charged(out).items() >= then.items()
    assert_released_as_charged(out)
