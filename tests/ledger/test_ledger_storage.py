"""Databases as they come: old, new, damaged, full, read-only, away."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from releasing import answer, point
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from shoal import InputError, Ledger, LedgerError
from shoal.product.ledger import chain
from shoal.product.ledger.storage import VERSION, _explained_error


def ask(ledger: Ledger, query: object, label: str = "h0") -> np.ndarray:
    mechanism = point()
    return ledger.release(mechanism, answer(mechanism, label), label, query_id=str(query))


@pytest.mark.parametrize(("version", "words"), [(VERSION + 1, "newer than this"), (7, "never released")])
def test_another_version_is_refused_untouched(ledger: Ledger, url: str, version: int, words: str) -> None:
    head = ledger.head
    with ledger.storage.writing() as transaction:
        transaction.execute("UPDATE meta SET value = :version WHERE name = 'schema_version'", version=str(version))
    with pytest.raises(LedgerError, match=words):
        Ledger.open(url)
    assert ledger.head == head


def test_tables_that_were_not_all_made_are_none(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(chain, "append_note", lambda transaction, *_: transaction.execute("this is not SQL"))
        with pytest.raises(LedgerError, match="Nothing was recorded"):
            Ledger.open(sqlite_url)
    with pytest.raises(LedgerError) as refused:
        Ledger.open(sqlite_url, create=False)
    assert refused.value.reason == "absent"
    with Ledger.open(sqlite_url) as ledger:
        assert ledger.verify()


def test_many_open_a_new_database_at_once(url: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        for opened in [threads.submit(Ledger.open, url) for _ in range(8)]:
            opened.result().close()
    with Ledger.open(url, create=False) as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["created"]


# ---------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "wrong",
    ["sqlite://", "sqlite:///:memory:", "mysql://host/db", "no url", "", 7]
    + [f"postgresql://owner@db:{port}/ledger" for port in ("abc", "70000", "0")],
)
def test_addresses_that_cannot_hold_a_ledger(wrong: Any) -> None:
    with pytest.raises(InputError, match="url"):
        Ledger.open(wrong)


def test_a_path_is_an_address(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="create is False"):
        Ledger.open(tmp_path / "ledger.db", create=False)
    Ledger.open(tmp_path / "ledger.db").close()
    Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", create=False).close()
    with pytest.raises(LedgerError, match="folder"):
        Ledger.open(tmp_path / "absent" / "ledger.db")
    with pytest.raises(InputError, match="timeout"):
        Ledger.open(tmp_path / "ledger.db", timeout=0)


def test_an_unreachable_server_is_an_error_without_secrets(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be reached") as error:
        Ledger.open(f"postgresql://user:secret@/db?host={tmp_path}", timeout=1)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('FATAL:  password authentication failed for user "anna"', "refuses the password; set PGPASSWORD"),
        ("fe_sendauth: no password supplied", "asks for a password; set PGPASSWORD"),
        ('could not translate host name "db.exmaple" to address', "no server of this name"),
        ("[Errno -2] failed to resolve host 'db.exmaple': Name or service not known", "no server of this name"),
        ("Connection refused\n\tIs the server running", "nothing listens at this host and port"),
        ('FATAL:  database "ledgr" does not exist', "no such database"),
        ('FATAL:  role "anna" does not exist', "no such user"),
        ("connection timeout expired", "does not answer"),
    ],
)
def test_why_there_is_no_connection(said: str, remedy: str) -> None:
    message = str(_explained_error(OperationalError("", {}, Exception(said))))
    assert "cannot be reached" in message
    assert remedy in message
    assert not any(name in message for name in ("anna", "exmaple", "ledgr"))


def test_a_server_says_what_is_wrong(postgres: Callable[[], str]) -> None:
    """No such database, no such user, a port where nothing is: as the driver really puts it."""
    url = make_url(postgres())
    wrong = {
        "no such database": url.set(database="none_such"),
        "no such user": url.set(username="nobody_such"),
        "nothing listens": make_url("postgresql://shoal@127.0.0.1:9/ledger"),
        "no server of this name": make_url("postgresql://shoal@none.invalid/ledger"),
    }
    for told, address in wrong.items():
        with pytest.raises(LedgerError, match=told):
            Ledger.open(address.render_as_string(hide_password=False), timeout=5)


def test_a_failed_reading_says_nothing_about_what_was_recorded(sqlite_url: str) -> None:
    """It may come after a charge that stands."""
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.01)
        ask(ledger, "a")
        for transaction, silent in ((ledger.storage.reading, True), (ledger.storage.writing, False)):
            with pytest.raises(LedgerError) as error, transaction() as inside:
                inside.execute("this is not SQL")
            assert ("recorded" not in str(error.value)) is silent
        assert "what was recorded before stands" in str(error.value)


def test_a_copy_in_a_folder_that_cannot_be_written_to() -> None:
    """A backup medium: file and folder read-only; root is asked to be somebody else meanwhile."""
    folder = Path(tempfile.mkdtemp())
    try:
        with Ledger.open(folder / "ledger.db") as ledger:
            ledger.budget(1.0, 0.01)
            ask(ledger, "a")
            head = ledger.head
        assert not list(folder.glob("*-wal"))
        (folder / "ledger.db").chmod(0o444)
        folder.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            with Ledger.open(folder / "ledger.db", create=False) as copy:
                assert copy.verify(head=str(head))
                assert copy.spent()["h0"].releases == 1
                with pytest.raises(LedgerError, match="read-only"):
                    copy.budget(2.0, 0.5)
        finally:
            if root:
                os.seteuid(0)
        assert [path.name for path in folder.iterdir()] == ["ledger.db"]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_server_that_goes_away(postgres: Callable[[], str]) -> None:
    """Connections cut while idle are renewed; a connection cut within a release loses nothing."""
    ledger = Ledger.open(postgres())
    ledger.budget(1.0, 0.01)
    first = ask(ledger, "a")

    def cut() -> None:
        import psycopg

        address = ledger.storage._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    cut()
    assert np.array_equal(ask(ledger, "a"), first)
    head = ledger.head

    def cut_within() -> None:
        with ledger.storage.writing() as transaction:
            transaction.execute("UPDATE head SET seq = 0")
            cut()
            transaction.execute("SELECT 1")

    with pytest.raises(LedgerError, match="cannot be reached"):
        cut_within()
    assert ledger.head == head
    ask(ledger, "b")
    assert ledger.verify()
    ledger.close()


# ---------------------------------------------------------------------- SQLite files


def test_a_file_that_is_not_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"these are not the bytes you are looking for" * 100)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger.open(path)
    assert path.read_bytes().startswith(b"these are")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE meta (name TEXT, value TEXT)")
    with pytest.raises(LedgerError, match="its own database"):
        Ledger.open(other)


def test_damaged_files_never_pass(sqlite_url: str, tmp_path: Path) -> None:
    """Flipped bits are refused or reported, or lie in what nobody reads; what was spent never changes. So are cuts."""
    path = tmp_path / "ledger.db"
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.1)
        for i in range(40):
            ask(ledger, i, f"h{i % 3}")
        spent, head = repr(ledger.spent()), ledger.head
    content = path.read_bytes()
    damaged = [content[:length] for length in (len(content) // 2, len(content) - 4096, 4096, 100, 0)]
    for number, position in enumerate(np.random.default_rng(0).permutation(len(content))[:60]):
        flipped = content[position] ^ 1 << number % 8
        damaged.append(content[:position] + bytes([flipped]) + content[position + 1 :])
    passed = []
    for number, wrong in enumerate(damaged):
        copy = tmp_path / f"copy{number}.db"
        copy.write_bytes(wrong)
        try:
            with Ledger.open(copy, create=False, timeout=1) as ledger:
                if ledger.verify(head=head):
                    passed.append(len(wrong))
                    assert repr(ledger.spent()) == spent
        except LedgerError:
            continue
    assert set(passed) <= {len(content)}  # nothing that was cut short
    assert len(passed) < 55


def fill(ledger: Ledger, shown: dict[str, np.ndarray], count: int) -> None:
    for i in range(len(shown), count):
        shown[str(i)] = ask(ledger, i)


@pytest.mark.parametrize("code", ["SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"])
def test_a_disk_that_is_full_at_the_very_end_says_what_to_do(sqlite_url: str, code: str) -> None:
    from sqlalchemy import event

    def at_the_end(_cursor: Any, statement: str, *_: Any) -> None:
        if statement == "COMMIT":
            error = sqlite3.OperationalError("quotes what was being written")
            error.sqlite_errorname = code
            raise error

    with Ledger.open(sqlite_url) as ledger:
        event.listen(ledger.storage._engine, "do_execute", at_the_end)
        with pytest.raises(LedgerError, match=r"the disk is full; free some space.*do the same again") as caught:
            ledger.budget(1.0, 0.01)
        assert caught.value.reason == "full"
        assert "query_id" not in str(caught.value)
        assert "quotes" not in str(caught.value)


def test_a_full_disk_charges_and_shows_nothing(sqlite_url: str) -> None:
    from sqlalchemy import event

    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.01)
        shown = {"0": ask(ledger, 0)}
        ledger.storage._engine.dispose()
        pages = {"limit": 0}

        def small(connection: Any, _record: Any) -> None:
            size = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages['limit'] or size + 3}")

        event.listen(ledger.storage._engine, "connect", small)
        with pytest.raises(LedgerError, match=r"disk is full.*Nothing was recorded"):
            fill(ledger, shown, 200)
        made = len(shown)
        assert 1 < made < 200
        assert ledger.spent()["h0"].releases == made
        assert ledger.verify()
        pages["limit"] = 10**6  # someone made room
        ledger.storage._engine.dispose()
        ask(ledger, "more")
        for query, content in shown.items():
            assert ask(ledger, query).tobytes() == content.tobytes()
        assert ledger.spent()["h0"].releases == made + 1
        assert ledger.verify()


def test_a_really_full_disk(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = shutil.which("mount") and os.geteuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)], capture_output=True
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    try:
        with Ledger.open(folder / "ledger.db") as ledger:
            ledger.budget(1.0, 0.01)
            shown: dict[str, np.ndarray] = {}
            with pytest.raises(LedgerError, match=r"full|does not work"):
                fill(ledger, shown, 400)
            made = ledger.spent()["h0"].releases
            assert len(shown) <= made <= len(shown) + 1  # a failed commit may have reached the disk
            assert ledger.verify()
            subprocess.run(["mount", "-o", "remount,size=4m", str(folder)], check=True)
            for query, content in shown.items():
                assert ask(ledger, query).tobytes() == content.tobytes()
            ask(ledger, "more")
            assert ledger.verify()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_writer_in_the_way_is_waited_for_then_reported(ledger: Ledger, url: str) -> None:
    ask(ledger, "a")
    impatient = Ledger.open(url, timeout=0.2)
    with ledger.storage.writing():
        assert impatient.spent()["h0"].releases == 1  # readers do not wait
        assert impatient.verify()
        with pytest.raises(LedgerError, match="another writer"):
            ask(impatient, "b")
    ask(impatient, "b")
    assert ledger.verify()
    impatient.close()
