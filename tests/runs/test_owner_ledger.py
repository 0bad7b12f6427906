"""One ledger per data owner: which one it is, that it is still the same, and what is charged to it once."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_run import CHARGED, charged, go, opened
from test_run_faults import on_call

import shoal
from shoal.errors import BudgetError, InputError, LedgerError
from shoal.ledger.ledger import Ledger
from shoal.runs.owner_ledger import at, open_ledger, place, user_ledger, without_password
from shoal.runs.run import Run
from shoal.runs.stages import design_stage

Patch = pytest.MonkeyPatch


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The data owner's ledger, in the user's data directory."""
    monkeypatch.delenv("SHOAL_LEDGER")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "shoal" / "ledger.db"


def names(url: Path) -> set[str]:
    """Names under which something was released."""
    with Ledger.open(url, create=False) as ledger:
        return {entry.content["query_id"] for entry in ledger.entries() if entry.kind == "release"}


def image(folder: Path) -> dict[str, str]:
    """Every file but the lock, by the digest of its content; a database by what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".lock" and not path.name.startswith("ledger.db"):
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


# ---------------------------------------------------------------------- which one


def test_where_the_ledger_is(tmp_path: Path, monkeypatch: Patch, owner: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    assert place(folder, None, None, simulated=False).url == f"sqlite:///{owner}" == f"sqlite:///{user_ledger()}"
    assert place(folder, None, None, simulated=True).url == f"sqlite:///{folder / 'ledger.db'}"
    monkeypatch.setenv("SHOAL_LEDGER", "postgresql://owner:secret@db/books")
    found = place(folder, None, None, simulated=False)
    assert (found.url, found.where) == ("postgresql://owner:secret@db/books", "postgresql://owner@db/books")
    assert "secret" not in repr(found)
    assert place(folder, str(tmp_path / "x.db"), None, simulated=False).url == f"sqlite:///{tmp_path / 'x.db'}"
    assert place(folder, "folder", None, simulated=False).own
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "named.db"))
    assert place(folder, None, None, simulated=False).url == f"sqlite:///{tmp_path / 'named.db'}" == at().url
    (folder / "ledger.db").touch()  # a folder that has one keeps it
    assert place(folder, None, None, simulated=False).own
    assert (
        without_password("postgresql://a:b@h:5/d?sslmode=require&password=c") == "postgresql://a@h:5/d?sslmode=require"
    )
    with pytest.raises(InputError, match="ledger must be a path") as refused:
        without_password("postgresql://a:secret@h:port/d")
    assert "secret" not in str(refused.value)


def test_a_new_folder_does_not_start_afresh(designed: Path, owner: Path, tmp_path: Path) -> None:
    """The same readings from another folder, and the same command, are the same question."""
    other = Path(shutil.copytree(designed, tmp_path / "other"))
    state = (other / "state.json").read_text()
    run = Run.open(other).state.run
    (other / "state.json").write_text(state.replace(run, "f" * 32))  # a run of its own
    first = go(designed, until="release")
    assert not (designed / "ledger.db").exists()
    assert first.to_dict()["ledger"]["where"] == str(owner)
    assert any(str(owner) in line for _, lines in first.summary(verbose=True) for line in lines)
    before = names(owner)
    with pytest.raises(InputError, match=r"all were released for this period; nothing was released"):
        go(other, until="release")
    assert names(owner) == before == {first.release_name}
    assert not list(other.glob("released/*.parquet"))
    with Ledger.open(owner) as ledger:
        assert ledger.verify()
        digests = {e.content["readings"] for e in ledger.entries() if e.kind == "release"}
        assert len(digests) == len([e for e in ledger.entries() if e.kind == "release"])


# ---------------------------------------------------------------------- still the same


def moved(url: Path, to: Path) -> None:
    with sqlite3.connect(url) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.move(url, to)
    for suffix in ("-wal", "-shm"):
        Path(f"{url}{suffix}").unlink(missing_ok=True)


def test_a_ledger_that_is_not_the_one(designed: Path, owner: Path, tmp_path: Path, days: Any) -> None:
    go(designed, until="release")
    then = names(owner)
    kept = tmp_path / "kept.db"
    moved(owner, kept)

    def refused(words: str) -> None:
        before = image(designed)
        for action in (
            lambda: go(designed, days[1], until="release", update=True),
            lambda: opened(designed).ledger(create=True).close(),
            lambda: open_ledger(designed).close(),
        ):
            with pytest.raises(LedgerError, match=words):
                action()
        assert image(designed) == before

    refused(r"is missing, in which the releases.*restore its newest copy")
    assert not owner.exists()
    with Ledger.open(owner) as other:
        other.budget(1.0, 1e-5)
    refused(r"is another ledger")
    owner.unlink()
    shutil.copy(kept, owner)
    with sqlite3.connect(owner) as database:  # an older copy of the same one
        for name in ("update", "delete"):
            database.execute(f"DROP TRIGGER entries_no_{name}")
        database.execute("DELETE FROM entries WHERE seq > 5")
        database.execute("UPDATE head SET seq = 5, hash = (SELECT hash FROM entries WHERE seq = 5)")
    refused(r"was rolled back: it has 5 entries, and \d+ when")
    owner.unlink()
    moved_to = tmp_path / "elsewhere.db"  # it may lie anywhere
    shutil.move(kept, moved_to)
    run = Run(designed, ledger=str(moved_to))
    run.everything("release")
    assert names(moved_to) == then
    assert run.did == []


def test_a_password_is_used_and_written_nowhere(designed: Path, monkeypatch: Patch, tmp_path: Path) -> None:
    asked: list[str] = []
    real = Ledger.open.__func__  # type: ignore[attr-defined]

    def elsewhere(cls: type[Ledger], url: Any, **named: Any) -> Ledger:
        asked.append(str(url))
        return Ledger(real(cls, tmp_path / "server.db", **named).storage)

    monkeypatch.setattr(Ledger, "open", classmethod(elsewhere))
    run = Run(designed, ledger="postgresql://owner:s3cret@one/books?password=s3cret")
    run.everything("release")
    assert asked
    assert all("s3cret" in url for url in asked)
    rotated = Run(designed, ledger="postgresql://owner:other@two/books")  # another password, another server
    assert rotated.is_done("release")
    rotated.everything("release")
    without = Run(designed)  # PGPASSWORD or .pgpass
    assert without.place.url == "postgresql://owner@two/books"
    for path in designed.rglob("*"):
        if path.is_file():
            assert b"s3cret" not in path.read_bytes(), path
            assert b"other@" not in path.read_bytes(), path
    assert "s3cret" not in str(run.to_dict()) + repr(run.state) + str(run.summary())


# ---------------------------------------------------------------------- once


def everything(out: Path, meters: Path, **changes: Any) -> None:
    """`shoal run --update` but for the report, which takes longest."""
    run = opened(out, meters, replace(CHARGED, **changes))
    with run.held():
        run.go_on()
        for stage in run.stages("release"):
            run.do(stage)


@pytest.mark.parametrize("point", ["after the charge", "in the audit"])
def test_a_new_day_is_charged_once_however_often_it_is_interrupted(
    finished: Path, days: Any, monkeypatch: Patch, point: str
) -> None:
    where, name, number, after = {
        "after the charge": (Ledger, "charge", 2, True),
        "in the audit": (design_stage, "audit_stage", 1, False),
    }[point]
    then = charged(finished)
    with monkeypatch.context() as patch:
        patch.setattr(where, name, on_call(number, getattr(where, name), KeyboardInterrupt(), after=after))
        with pytest.raises(KeyboardInterrupt):
            everything(finished, days[1])
    everything(finished, days[1])
    now = charged(finished)
    assert now.items() > then.items()
    assert len({query for _, query in now}) == 2
    everything(finished, days[1])
    assert charged(finished) == now


def test_a_refused_new_day_leaves_the_folder_as_it_was(finished: Path, days: Any, monkeypatch: Patch) -> None:
    before = image(finished)
    refusal = BudgetError("label x: no", remaining=0.0, epsilon=1.0, limit="label x")
    for change in ({}, {"horizon": 3}):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "charge", on_call(1, Ledger.charge, refusal, after=False))
            with pytest.raises(BudgetError):
                everything(finished, days[1], **change)
        assert image(finished) == before
    with monkeypatch.context() as patch:  # but not where a shard was charged
        patch.setattr(Ledger, "charge", on_call(2, Ledger.charge, refusal, after=False))
        with pytest.raises(BudgetError):
            everything(finished, days[1])
    assert image(finished) != before
    assert shoal.Run.open(finished).state.release == 2


def test_two_operators_find_one_budget_and_the_stricter_holds(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.ensure_budget(1.0, 1e-3)
        assert not ledger.ensure_budget(2.0, 1e-3)
        assert not ledger.ensure_budget(1.0, 1e-3)
        assert ledger.ensure_budget(1.0, 1e-5)
        assert not ledger.ensure_budget(1.0, 1e-3)
        ledger.budget(1.0, 1e-2)  # the owner's word
        assert not ledger.ensure_budget(1.0, 1e-5)
