"""One ledger per data owner: which one it is, that it is still the same, and what is charged to it once."""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_run import CHARGED, CONFIG, Days, charged, go, on_call

import shoal
from shoal.product.ledger import decide
from shoal.product.runs import release_check

Patch = pytest.MonkeyPatch


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The data owner's ledger, in the user's data directory."""
    monkeypatch.delenv("SHOAL_LEDGER")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "shoal" / "ledger.db"


def names(url: Path) -> set[str]:
    """Names under which something was released."""
    with shoal.Ledger.open(url, create=False) as ledger:
        return {entry.content["query_id"] for entry in ledger.entries() if entry.kind == "release"}


def image(folder: Path) -> dict[str, str]:
    """Every file but the lock and the ledger, by the digest of its content."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if not path.name.startswith("ledger.db")
    }


# ---------------------------------------------------------------------- which one


def test_where_the_ledger_is(tmp_path: Path, monkeypatch: Patch, owner: Path, days: Days) -> None:
    folder = tmp_path / "run"

    def where(source: Any = days[0], **settings: Any) -> str:
        run = shoal.Run(folder, source, **settings)
        assert "s3cret" not in str(run.to_dict()) + repr(run)
        return str(run.to_dict()["ledger"]["where"])

    assert where() == str(owner)
    assert where(shoal.SimulatedMeters(10)) == where(ledger="folder") == "run/ledger.db"
    assert where(ledger=str(tmp_path / "x.db")) == str(tmp_path / "x.db")
    password = "postgresql://a:s3cret@h:5/d?sslmode=require&password=s3cret"
    assert where(ledger=password) == "postgresql://a@h:5/d?sslmode=require"
    with pytest.raises(shoal.InputError, match="ledger must be a path") as refused:
        where(ledger="postgresql://a:s3cret@h:port/d")
    assert "s3cret" not in str(refused.value)
    monkeypatch.setenv("SHOAL_LEDGER", "postgresql://owner:s3cret@db/books")
    assert where() == "postgresql://owner@db/books"
    monkeypatch.setenv("SHOAL_LEDGER", str(tmp_path / "named.db"))
    assert where() == str(tmp_path / "named.db")
    folder.mkdir()
    (folder / "ledger.db").touch()  # a folder that has one keeps it
    assert where() == "run/ledger.db"


def test_a_new_folder_does_not_start_afresh(designed: Path, owner: Path, tmp_path: Path) -> None:
    """The same readings from another folder, and the same command, are the same question."""
    other = Path(shutil.copytree(designed, tmp_path / "other"))
    state = (other / "state.json").read_text()
    run = shoal.Run.open(other).state.run
    (other / "state.json").write_text(state.replace(run, "f" * 32))  # a run of its own
    first = go(designed)
    assert not (designed / "ledger.db").exists()
    assert first.to_dict()["ledger"]["where"] == str(owner)
    assert any(str(owner) in line for _, lines in first.summary(verbose=True) for line in lines)
    before = names(owner)
    with pytest.raises(shoal.InputError, match=r"all were released for this period; nothing was released"):
        go(other)
    assert names(owner) == before == {first.work.release_name}
    assert not list(other.glob("released/*.parquet"))
    with shoal.Ledger.open(owner) as ledger:
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


def test_a_ledger_that_is_not_the_one(designed: Path, owner: Path, tmp_path: Path, days: Days) -> None:
    go(designed)
    then = names(owner)
    copy = tmp_path / "copy.db"
    moved(owner, copy)

    def refused(words: str) -> None:
        before = image(designed)
        for action in (
            lambda: go(designed, days[1], update=True),
            lambda: shoal.Run.open(designed).work.open_ledger(create=True).close(),
        ):
            with pytest.raises(shoal.LedgerError, match=words):
                action()
        assert image(designed) == before

    refused(r"is missing, in which the releases.*restore its newest copy")
    assert not owner.exists()
    with shoal.Ledger.open(owner) as other:
        other.budget(1.0, 1e-5)
    refused(r"is another ledger")
    owner.unlink()
    shutil.copy(copy, owner)
    with sqlite3.connect(owner) as database:  # an older copy of the same one
        for name in ("update", "delete"):
            database.execute(f"DROP TRIGGER entries_no_{name}")
        database.execute("DELETE FROM entries WHERE seq > 5")
        database.execute("UPDATE head SET seq = 5, hash = (SELECT hash FROM entries WHERE seq = 5)")
    refused(r"was rolled back: it has 5 entries, and \d+ when")
    owner.unlink()
    moved_to = tmp_path / "elsewhere.db"  # it may lie anywhere
    shutil.move(copy, moved_to)
    run = go(designed, ledger=str(moved_to))
    assert names(moved_to) == then
    assert run.did == []


def test_a_password_is_used_and_written_nowhere(designed: Path, monkeypatch: Patch, tmp_path: Path) -> None:
    opened: list[str] = []
    real = shoal.Ledger.open

    def elsewhere(url: Any, **named: Any) -> shoal.Ledger:
        opened.append(str(url))
        return real(tmp_path / "server.db", **named)

    read = release_check.read_record
    monkeypatch.setattr(shoal.Ledger, "open", elsewhere)
    monkeypatch.setattr(release_check, "read_record", lambda url, *more: read(str(tmp_path / "server.db"), *more))
    run = go(designed, ledger="postgresql://owner:s3cret@one/books?password=s3cret")
    assert opened
    assert all("s3cret" in url for url in opened)
    rotated = go(designed, ledger="postgresql://owner:other@two/books")  # another password, another server
    assert rotated.did == []
    opened.clear()
    go(designed)  # PGPASSWORD or .pgpass
    assert set(opened) == {"postgresql://owner@two/books"}
    for path in designed.rglob("*"):
        if path.is_file():
            assert b"s3cret" not in path.read_bytes(), path
            assert b"other@" not in path.read_bytes(), path
    assert "s3cret" not in str(run.to_dict()) + repr(run.state) + str(run.summary())


# ---------------------------------------------------------------------- once


def test_a_new_day_is_charged_once_however_often_it_is_interrupted(
    finished: Path, days: Days, monkeypatch: Patch
) -> None:
    then = charged(finished)
    with monkeypatch.context() as patch:
        stopped = on_call(2, shoal.Ledger.charge, KeyboardInterrupt(), after=True)
        patch.setattr(shoal.Ledger, "charge", stopped)
        with pytest.raises(KeyboardInterrupt):
            go(finished, days[1], CHARGED, update=True)
    go(finished, days[1], CHARGED, update=True)
    now = charged(finished)
    assert now.items() > then.items()
    assert len({query for _, query in now}) == 2
    go(finished, days[1], CHARGED, update=True)
    assert charged(finished) == now


def test_a_refused_new_day_leaves_the_folder_as_it_was(finished: Path, days: Days, monkeypatch: Patch) -> None:
    before = image(finished)
    refusal = shoal.BudgetError("label x: no", remaining=0.0, epsilon=1.0, limit="label x")

    def refused(charge: int, config: shoal.Config) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(shoal.Ledger, "charge", on_call(charge, shoal.Ledger.charge, refusal, after=False))
            with pytest.raises(shoal.BudgetError):
                go(finished, days[1], config, update=True)

    for config in (CHARGED, replace(CHARGED, horizon=3)):
        refused(1, config)
        assert image(finished) == before
    refused(2, CHARGED)  # but not where a shard was charged
    assert image(finished) != before
    assert shoal.Run.open(finished).state.release == 2


def test_a_budget_comes_with_the_first_release_or_not_at_all(designed: Path, monkeypatch: Patch) -> None:
    """A run that failed before its release left its budget, and the next one was held to it."""
    with monkeypatch.context() as patch:
        refusal = shoal.InputError("release: no")
        patch.setattr(
            "shoal.product.ledger.decide.charge_answers", on_call(1, decide.charge_answers, refusal, after=False)
        )
        with pytest.raises(shoal.InputError, match="release: no"):
            go(designed)
    with shoal.Ledger.open(designed / "ledger.db", create=False) as ledger:
        assert [entry for entry in ledger.entries() if entry.kind == "budget"] == []
        assert not ledger.has_budget
    go(designed)
    with shoal.Ledger.open(designed / "ledger.db", create=False) as ledger:
        assert ledger.has_budget
        kinds = [entry.kind for entry in ledger.entries() if entry.kind in ("budget", "release")]
        assert kinds[:2] == ["budget", "release"]
        assert kinds.count("budget") == 1
        assert ledger.verify()


def test_a_budget_that_the_owner_set_stays(designed: Path) -> None:
    with shoal.Ledger.open(designed / "ledger.db") as ledger:
        ledger.budget(2.0, 1e-2)
        assert ledger.has_budget
    go(designed)
    with shoal.Ledger.open(designed / "ledger.db") as ledger:
        assert [entry.content["epsilon"] for entry in ledger.entries() if entry.kind == "budget"] == [2.0]


# ---------------------------------------------------------------------- crowds are for life in every ledger


def people(n: int = 24, month: int = 1) -> pl.DataFrame:
    return pl.DataFrame({"person": [str(i) for i in range(n)], "age": [float((7 * i * month) % 60) for i in range(n)]})


def table(out: Path, month: int = 1, rows: pl.DataFrame | None = None, **more: Any) -> shoal.Run:
    given = {"label": "person", "crowd": 5, "period": f"2024-{month:02}", "until": "release", "workers": "serial"}
    return shoal.run(people(month=month) if rows is None else rows, out, **{**given, **more})


def told(run: shoal.Run) -> str:
    """What the owner's summary says of other ledgers; the public files say nothing of them."""
    lines = [line for _, lines in run.summary() for line in lines if "on record in another ledger" in line]
    assert len(lines) <= 1
    for file in (run.path / "public").glob("*"):
        assert "another ledger" not in file.read_text(encoding="utf-8")
    return "".join(lines)


@pytest.mark.parametrize("ledger", ["folder", "other.db"])
def test_homes_of_the_owners_ledger_are_told_in_another(
    tmp_path: Path, owner: Path, days: Days, ledger: str, monkeypatch: Patch
) -> None:
    """A second division of the same homes gives members away by intersection: the owner is told, without names."""
    monkeypatch.chdir(tmp_path)
    assert told(go(tmp_path / "january", days[0], CONFIG)) == ""
    for settings in ({"rehearse": True}, {}):
        said = told(go(tmp_path / f"second {len(settings)}", days[0], CONFIG, ledger=ledger, **settings))
        assert re.search(r"2\d of these homes are on record", said)
        assert str(owner) in said
        assert "H00" not in said
    checked = shoal.check(days[0], ledger=ledger, **CONFIG.part("crowd", "horizon", "order", "train_days"))
    assert any("on record in another ledger" in line for _, lines in checked.parts() for line in lines)


def test_strangers_persons_and_simulated_homes_are_no_matter(tmp_path: Path, owner: Path, days: Days) -> None:
    table(tmp_path / "one")
    strangers = people().with_columns(pl.col("person") + "x")
    assert told(table(tmp_path / "three", ledger="folder", rows=strangers)) == ""
    homes = pl.read_parquet(days[0]).with_columns(pl.col("household").str.tail(2).str.strip_chars_start("0"))
    homes.write_parquet(tmp_path / "homes.parquet")
    assert told(go(tmp_path / "four", tmp_path / "homes.parquet", CONFIG, ledger="folder")) == ""  # not person 7
    for name in ("five", "six"):
        run = go(
            tmp_path / name, shoal.SimulatedMeters(30, days=16), CONFIG, ledger=None if name == "five" else "folder"
        )
        assert told(run) == ""


def test_readings_count_as_crowds_do(tmp_path: Path, owner: Path) -> None:
    noisy = {"secret": "readings", "customers": 24, "epsilon": 1.0, "bounds": ("age=0:60",), "crowd": 10}
    table(tmp_path / "noisy", **noisy)
    assert "24 of these labels" in told(table(tmp_path / "means", ledger="folder"))
    assert "24 of these labels" in told(table(tmp_path / "again", ledger=str(tmp_path / "third.db"), **noisy))


def test_another_ledger_that_cannot_be_read_is_told(tmp_path: Path, owner: Path) -> None:
    owner.parent.mkdir(parents=True)
    owner.write_bytes(b"no database, but something that lies in its place")
    run = table(tmp_path / "one", ledger="folder")
    assert any("cannot be read" in line and str(owner) in line for _, lines in run.summary() for line in lines)
