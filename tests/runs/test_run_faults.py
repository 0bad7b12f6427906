"""A run that is interrupted, damaged or out of space: nothing twice, nothing uncharged, nothing lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_run import (
    CHARGED,
    Days,
    assert_released_as_charged,
    charged,
    damage,
    digests,
    go,
    left_out,
    on_call,
    released,
    remove,
    shards,
)

import shoal
from shoal.product.runs.shards import Part
from shoal.product.workers import DIED, Executor

Patch = pytest.MonkeyPatch


def interrupted(out: Path, number: int, patch: Patch, *, after: bool = False, **more: Any) -> None:
    """A release that ends at the n-th charge of the ledger."""
    with patch.context() as context:
        stopped = on_call(number, shoal.Ledger.charge, KeyboardInterrupt(), after=after)
        context.setattr(shoal.Ledger, "charge", stopped)
        with pytest.raises(KeyboardInterrupt):
            go(out, **more)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_release_goes_on(designed: Path, monkeypatch: Patch, after: bool, number: int) -> None:
    interrupted(designed, number, monkeypatch, after=after)
    then = charged(designed)
    assert not released(designed)
    go(designed)
    now = charged(designed)
    assert now.items() >= then.items()
    assert assert_released_as_charged(designed) == set(released(designed))
    assert len(now) == len(released(designed))


def test_a_trajectory_is_drawn_once(designed: Path, monkeypatch: Patch) -> None:
    interrupted(designed, 2, monkeypatch, config=replace(CHARGED, query="trajectory", delta=0.01))
    drawn = {path.name: path.read_bytes() for path in (designed / "shards" / "draws").glob("*.f8")}
    then = charged(designed)
    assert len(drawn) == 2
    go(designed)
    assert {path.name: path.read_bytes() for path in (designed / "shards" / "draws").glob("*.f8")} == drawn
    assert charged(designed).items() >= then.items()
    assert_released_as_charged(designed)


def test_settings_may_not_change_within_a_release(designed: Path, monkeypatch: Patch) -> None:
    interrupted(designed, 2, monkeypatch)
    then = charged(designed)
    assert then
    for change in ({"delta": 1e-9}, {"horizon": 3}, {"crowd": 4}):
        with pytest.raises(shoal.InputError, match="Nothing was changed"):
            go(designed, config=replace(CHARGED, **change))  # type: ignore[arg-type]
    assert charged(designed) == then
    go(designed)
    assert charged(designed).items() > then.items()
    assert_released_as_charged(designed)


def test_another_ledger_is_noticed(designed: Path, monkeypatch: Patch) -> None:
    interrupted(designed, 2, monkeypatch)
    aside = designed.parent / "aside.db"
    for suffix in ("", "-wal", "-shm"):
        if (designed / f"ledger.db{suffix}").exists():
            shutil.move(designed / f"ledger.db{suffix}", f"{aside}{suffix}")
    with pytest.raises(shoal.LedgerError, match=r"is missing, in which the releases.*Nothing was released"):
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


def forget(out: Path, *stages: str) -> None:
    """As if the run had ended before these stages."""
    state = json.loads((out / "state.json").read_text())
    state["stages"] = {name: done for name, done in state["stages"].items() if name not in stages}
    (out / "state.json").write_text(json.dumps(state))


@pytest.mark.parametrize("charges", [0, 1])
@pytest.mark.parametrize("what", ["mechanism", "block"])
def test_a_damaged_block_is_named_and_made_anew(designed: Path, monkeypatch: Patch, what: str, charges: int) -> None:
    """Before anything was charged, and in a release that was interrupted after its first block."""
    part = shards(designed, "design", "inputs" if what == "block" else "parts")[1]
    if charges:
        interrupted(designed, 2, monkeypatch)
    answers, before = charged(designed), digests(designed)
    assert bool(answers) == bool(charges)
    damage(part.path)
    with pytest.raises(shoal.InputError, match=rf"{part.key} is damaged; delete its files {part.key}\.\* .*run again"):
        go(designed)
    assert charged(designed) == answers
    assert not released(designed)
    remove(part.path)
    go(designed)
    assert digests(designed) == before
    assert_released_as_charged(designed)
    assert charged(designed).items() > answers.items()


def test_damaged_forecasts_are_named_before_crowds_are_formed(days: Days, tmp_path: Path) -> None:
    out = tmp_path / "run"
    go(out, days[0], CHARGED, "fit")
    forget(out, "crowds")
    part = shards(out, "fit")[0]
    damage(part.path.with_suffix(".curves.parquet"))
    with pytest.raises(shoal.InputError, match=f"{part.key} is damaged"):
        go(out)
    remove(part.path)
    go(out)
    assert_released_as_charged(out)


def test_a_shard_with_another_schema_is_named(days: Days, tmp_path: Path) -> None:
    out = tmp_path / "run"
    go(out, days[0], CHARGED, "fit")
    readings = shards(out, "fit", "inputs")[0]
    pl.DataFrame({"household": ["x"], "kw": ["y"]}).write_parquet(readings.path)
    forget(out, "fit", "crowds")
    shutil.rmtree(out / "forecasts")
    with pytest.raises(shoal.InputError, match=f"{readings.key} is damaged"):
        go(out)
    remove(readings.path)
    go(out)
    assert_released_as_charged(out)


def test_homes_of_a_shard_without_any_forecast_are_left_out_with_the_reason(tmp_path: Path) -> None:
    flat = pl.col("household") == "H0003"
    every = shoal.simulate_meters(12, 16, seed=1)
    every.with_columns(kw=pl.when(flat).then(1.0).otherwise("kw")).write_parquet(tmp_path / "homes.parquet")
    run = go(tmp_path / "run", tmp_path / "homes.parquet", replace(CHARGED, shard_size=1))
    assert set(left_out(tmp_path / "run")) == {"H0003"}
    assert run.exit_code == 0
    assert run.work.facts.people is not None
    assert (run.work.facts.people.labels, run.work.facts.people.left_out) == (11, 1)
    assert_released_as_charged(tmp_path / "run")


@pytest.mark.parametrize("stage", ["readings", "forecasts"])
def test_crowds_are_not_formed_without_shards_whose_workers_died(
    days: Days, tmp_path: Path, monkeypatch: Patch, stage: str
) -> None:
    run, out = Executor.run, tmp_path / "run"

    def dying(self: Executor, work: Any, tasks: Any) -> Any:
        for number, result in run(self, work, tasks):
            if number == 1 and isinstance(result, Part) and Path(result.path).parent.name == stage:
                raise shoal.WorkerError(DIED)
            yield number, result

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "run", dying)
        with pytest.raises(shoal.WorkerError, match="worker died 3 times"):
            go(out, days[0], CHARGED)
    assert not charged(out)
    go(out, days[0], CHARGED, "fit")


@pytest.mark.parametrize("content", ["changed", "", "[]", "{}", "other"])
def test_a_damaged_receipt_is_not_believed(designed: Path, content: str) -> None:
    before = digests(designed)
    part, other = shards(designed, "design")[:2]
    receipt = part.path.with_suffix(".json")
    if content == "changed":
        facts = json.loads(receipt.read_text())
        facts["facts"]["delta"] = 0.0
        content = json.dumps(facts)
    receipt.write_text(other.path.with_suffix(".json").read_text() if content == "other" else content)
    (designed / "design.json").unlink()
    go(designed, until="design")
    assert digests(designed) == before
    assert json.loads(receipt.read_text())["facts"]["delta"] == part.facts["delta"]


def test_what_killed_workers_leave_is_swept_away(designed: Path) -> None:
    part = shards(designed, "fit")[0]
    rough = part.path.with_name(f".{part.path.name}.0123.part")
    rough.write_text("half")
    go(designed, until="design")
    assert not rough.exists()


# ------------------------------------------------------------------ full disk


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("stage", ["forecasts", "mechanism", "blocks"])
def test_a_full_disk_leaves_a_resumable_state(
    days: Days, tmp_path: Path, monkeypatch: Patch, stage: str, call: str
) -> None:
    out, real = tmp_path / "run", getattr(os, call)

    def full(*given: Any) -> Any:
        finished = [path for path in (out / stage).glob("*") if path.suffix != ".part"]
        if finished and list((out / stage).glob("*.part")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(shoal.StorageError, match=r"the disk is full.*free some space and run"):
            go(out, days[0], CHARGED)
    assert not charged(out)
    assert not list(out.glob("*/*.part"))
    go(out)
    assert_released_as_charged(out)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_noticed_where_polars_writes(designed: Path, days: Days, monkeypatch: Patch) -> None:
    """Polars keeps the code of the error in its text only, Polars 1 not always there."""
    write = pl.DataFrame.write_parquet

    def to_a_full_disk(frame: pl.DataFrame, path: Path, **how: Any) -> None:
        path.unlink()
        path.symlink_to("/dev/full")
        write(frame, path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, "write_parquet", to_a_full_disk)
        with pytest.raises(shoal.StorageError, match="the disk is full"):
            go(designed.parent / "other", days[0], CHARGED)
