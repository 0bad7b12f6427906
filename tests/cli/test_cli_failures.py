"""What goes wrong ends with a sentence that says what to do, the right exit code, and no traceback."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import sys
from pathlib import Path

import polars as pl
import pytest
from calls import SMALL, call

import shoal


def refused(*arguments: object, code: int, says: str) -> str:
    done = call(*arguments)
    assert done.code == code, done.err
    assert says in done.err
    assert "Traceback" not in done.err + done.out
    assert done.out == ""
    return done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.csv"], "none.csv is not a file"),
        ([], "name a meter file"),
        (["two.csv"], "found 'alpha', 'beta'. Name them: --household-column"),
        (["short.csv", "--crowd", "3"], "--train-days 15"),
        (["meters.csv", "--delta", "0.1", "--rho", "0.1"], "exclude each other"),
        (["meters.csv", "--set", "order=six"], "order must be"),
        (["meters.csv", "--method", "magic"], "method must be one of"),
        (["meters.csv", "--epsilon", "-1"], "epsilon must not be negative"),
        (["meters.csv", *SMALL, "--query", "as_in_paper", "--method", "white", "--rho", "0.5"], "as_in_paper"),
    ],
)
def test_what_is_given_wrong(arguments, says, meters, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("meters.csv").symlink_to(meters)
    Path("two.csv").write_text("alpha,beta\n1,2\n")
    shoal.simulate_meters(3, 3).write_csv("short.csv")
    refused("run", *arguments, "--out", "x", code=2, says=says)
    assert not Path("x", "ledger.db").exists()


def test_columns_are_named_on_the_command_line(meters, tmp_path):
    names = {"household": "Zähler", "timestamp": "Zeit", "kw": "Wert"}
    pl.read_csv(meters).rename(names).write_csv(tmp_path / "m.csv", separator=";")
    named = ["--household-column", "Zähler", "--timestamp-column", "Zeit", "--value-column", "Wert", "--unit", "kw"]
    done = call("run", tmp_path / "m.csv", "--out", tmp_path / "x", "--until", "fit", *SMALL, *named, "--json")
    assert done.code == 0, done.err
    assert done.json["stages"]["fit"]["labels"] == 12


def test_a_guarantee_that_cannot_be_met(unreleased):
    refused("run", "--out", unreleased, "--until", "design", "--delta", "1e-60", code=4, says="finite precision")


def test_a_poor_guarantee_is_released_only_when_it_is_accepted(unreleased):
    """No budget comes from what a release happens to cost: it has to be named as well."""
    poor = ["--rho", "0.5", "--method", "white", "--epsilon", "4"]
    assert call("run", "--out", unreleased, "--until", "design", *poor).code == 0
    stated = json.loads((unreleased / "state.json").read_text())["stages"]["design"]["facts"]["delta"]
    assert 0.01 < stated < 1
    refused("run", "--out", unreleased, code=4, says="shoal frontier")
    assert not (unreleased / "ledger.db").exists()


def test_a_release_beyond_the_budget(unreleased):
    assert call("ledger", "budget", unreleased, "--epsilon", "1", "--delta", "1e-200").code == 0
    done = call("run", "--out", unreleased, "--until", "release", "--json")
    assert done.code == 3
    assert done.json["kind"] == "BudgetError"
    assert done.json["exit_code"] == 3
    assert "budget" in done.err
    assert not (unreleased / "released.csv").exists()
    # The refusal is not the end: with room in the budget the same command goes on.
    assert call("ledger", "budget", unreleased, "--epsilon", "1", "--delta", "1e-5").code == 0
    assert call("run", "--out", unreleased, "--until", "release", "--json").json["did"] == ["release"]


def test_a_folder_that_is_not_a_run(tmp_path, meters):
    (tmp_path / "thesis.txt").write_text("years of work")
    refused("run", meters, "--out", tmp_path, code=2, says="is not a shoal run")
    refused("curve", tmp_path, code=2, says="is not a shoal run")
    refused("run", meters, "--out", tmp_path / "thesis.txt", code=2, says="is a file")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "x"), "no permission to use x; change its permissions"),
        (PermissionError(errno.EACCES, "Permission denied", "x/.lock"), "no permission to use x; change its"),
        (
            PermissionError(errno.EROFS, "Read-only file system", "x/.card.md.part"),
            "no permission to use x; change its",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file", "x.csv"), "there is no x.csv; check the path"),
        (OSError(errno.EDQUOT, "Quota exceeded"), "your quota on the disk is used up"),
        (OSError(errno.EIO, "Input/output error", "x"), "Input/output error: x; put it right"),
        (MemoryError(), "the memory is not enough; use fewer labels"),
    ],
)
def test_what_the_system_refuses_is_a_sentence(error, says, meters, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(shoal, "run", fail)
    refused("run", meters, "--out", tmp_path / "x", code=2, says=says)


@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root, or Windows, may write anywhere")
def test_no_write_permission_for_real(tmp_path, meters):
    (tmp_path / "closed").mkdir(mode=0o500)
    refused("run", meters, "--out", tmp_path / "closed" / "x", code=2, says="no permission")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_temporary_folder_is_not_called_an_empty_file(tmp_path, meters, monkeypatch):
    file = tmp_path / "wide.csv"
    file.write_text(Path(meters).read_text(), encoding="utf-16")

    class FullFolder:
        def __init__(self, name):
            self.name, self.path = name, Path("/dev/full")

    monkeypatch.setattr("shoal.product.sources.frames.ScratchFile", FullFolder)
    refused("check", file, code=2, says="the disk is full")


@pytest.mark.skipif(not Path("/proc").is_dir() or sys.platform != "linux", reason="needs a folder nobody writes to")
def test_a_folder_that_cannot_be_made_is_named_with_the_reason(meters, tmp_path):
    file = tmp_path / "file"
    file.touch()
    for out, says in (
        ("/proc/shoal", "out: no folder can be made in /proc: you have no permission to write there; name another"),
        ("/proc/shoal/january", "out: no folder can be made in /proc: you have no permission"),
        (file / "january", f"out: {file} is a file, in which there can be no folder; name another folder"),
        ("", "out: name a folder"),
    ):
        for command in ("run", "attack"):
            refused(command, meters, "--out", out, code=2, says=says)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_full_disk_as_a_package_reports_it_is_a_sentence(meters, tmp_path, monkeypatch):
    """Polars and SQLite raise errors of their own, which hold the system's words."""

    def full(*_: object, **__: object) -> None:
        raise pl.exceptions.ComputeError(f"{os.strerror(errno.ENOSPC)} (os error {errno.ENOSPC})")

    monkeypatch.setattr(shoal, "run", full)
    refused("run", meters, "--out", tmp_path / "x", code=2, says="the disk is full. Nothing that was finished is lost")


def test_a_full_disk_loses_nothing(unreleased, monkeypatch):
    def kept() -> dict[str, bytes]:
        return {
            str(path.relative_to(unreleased)): path.read_bytes()
            for path in unreleased.rglob("*")
            if path.is_file() and path.name != ".lock"
        }

    before = kept()
    real = os.fsync

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused("run", "--out", unreleased, "--until", "design", "--epsilon", "3", code=2, says="disk is full")
    monkeypatch.setattr(os, "fsync", real)
    assert kept() == before
    assert call("run", "--out", unreleased, "--until", "design", "--epsilon", "3", "--json").json["did"] == ["design"]


def test_an_interrupt_leaves_what_run_continues(unreleased, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shoal.product.runs.design_stage.sample_crowds", interrupted)
        refused("run", "--out", unreleased, code=130, says="the same `shoal run` continues")
    assert call("run", "--out", unreleased, "--json").json["did"] == ["audit", "release", "card", "report"]


def test_two_at_once(january):
    with shoal.Run.open(january).hold_folder():
        refused("run", "--out", january, code=2, says="another shoal is working")


def test_a_damaged_state(january):
    (january / "state.json").write_text("{")
    refused("run", "--out", january, code=2, says="state.json in january is damaged")
    (january / "state.json").write_text(json.dumps({"format": "shoal run", "version": 99}))
    refused("run", "--out", january, code=2, says="another version")


def test_a_foreign_ledger(january):
    (january / "ledger.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    done = call("ledger", "verify", january)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_a_tampered_ledger_is_found(charged):
    with sqlite3.connect(charged / "ledger.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE entries SET payload = replace(payload, 'H0001', 'H0002') WHERE kind = 'release'")
    done = call("ledger", "verify", charged, "--json")
    assert done.code == 2
    assert done.json["ok"] is False


def test_bad_numbers(charged):
    for text in ("1:2", "b", "2:1:5", "0:1:1"):
        refused("curve", charged, "--epsilon", text, code=2, says="epsilon must be numbers")


def test_usage_errors_end_with_two():
    assert call("run", "--no-such-option").code == 2
    assert call("no-such-command").code == 2


def test_debug_shows_the_error(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_DEBUG", "1")
    with pytest.raises(shoal.InputError):
        call("run", tmp_path / "none.csv", "--out", tmp_path / "x")


def test_a_parquet_file_works_like_a_csv(meters, tmp_path):
    pl.read_csv(meters, try_parse_dates=True).write_parquet(tmp_path / "m.parquet")
    done = call(
        "run", tmp_path / "m.parquet", "--out", tmp_path / "x", "--until", "fit", "--set", "order=1,0", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["stages"]["fit"]["labels"] == 12


def test_a_violated_audit_is_a_guarantee_not_met(charged):
    state = json.loads((charged / "state.json").read_text())
    state["stages"]["audit"]["facts"] |= {"verdict": "violated", "violations": 1}
    (charged / "state.json").write_text(json.dumps(state))
    done = call("run", "--out", charged)
    assert done.code == 4
    assert "Do not use this release" in done.out
