"""Databases as they come: old, new, damaged, full, read-only, away."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from releasing import answer, point
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

import shoal
from shoal import BudgetError, InputError, Ledger, LedgerError, mechanism_bound
from shoal.ledger import schema
from shoal.ledger.chain import START, Head, follow
from shoal.ledger.storage import Storage, _explained


def ask(ledger: Ledger, query: object, label: str = "h0") -> np.ndarray:
    mechanism = point()
    return ledger.release(mechanism, answer(mechanism, label), label, query_id=str(query))


# ---------------------------------------------------------------------- versions

#: The tables of version 1, written out: what an old database looks like must not follow the code.
VERSION_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entries (seq BIGINT PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, previous TEXT NOT NULL,
    hash TEXT NOT NULL, label TEXT, query_id TEXT, analyst TEXT, mechanism TEXT, answer TEXT, release BIGINT,
    times BIGINT, tv DOUBLE PRECISION);
CREATE UNIQUE INDEX entries_question ON entries (label, query_id) WHERE kind = 'release';
CREATE INDEX entries_kind ON entries (kind, seq);
CREATE TABLE head (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), seq BIGINT NOT NULL, hash TEXT);
CREATE TABLE mechanisms (digest TEXT PRIMARY KEY, content {blob} NOT NULL);
CREATE TABLE labels (label TEXT PRIMARY KEY, graph TEXT NOT NULL)
"""
#: Tables and what a version-1 database has of them in a newer one.
TABLES = {
    "meta": "SELECT * FROM meta",
    "mechanisms": "SELECT * FROM mechanisms",
    "labels": "SELECT label, graph FROM members",
}
COLUMNS = ("label", "query_id", "analyst", "mechanism", "answer", "release", "times", "tv")


def downgraded(source: Ledger, url: str, delta: float = 0.01, without: tuple[str, ...] = ()) -> Head:
    """A version-1 database by hand, with the content of a ledger as it was written before accounts of pairs."""
    old = Storage.open(url, 10.0)
    head, chain = Head(0, START), []
    for entry in source.entries():
        content = {name: value for name, value in entry.content.items() if name not in ("accounts", "batch", *without)}
        chain.append(follow(head, entry.kind, {**content, "delta": delta} if entry.kind == "budget" else content))
        head = chain[-1].head
    with source._storage.reading() as from_, old.writing(migrating=True) as into:
        for statement in VERSION_1.format(blob="BYTEA" if into.postgres else "BLOB").split(";"):
            into.run(statement)
        for table, statement in TABLES.items():
            for row in from_.rows(statement):
                values = {f"v{i}": value for i, value in enumerate(row)}
                into.run(f"INSERT INTO {table} VALUES ({', '.join(':' + name for name in values)})", **values)
        for entry in chain:
            parts = {name: getattr(entry, name) for name in ("seq", "kind", "payload", "previous", "hash")}
            parts |= {name: entry.columns()[name] for name in COLUMNS}
            into.run(f"INSERT INTO entries ({', '.join(parts)}) VALUES ({', '.join(':' + n for n in parts)})", **parts)
        into.run("INSERT INTO head (only_row, seq, hash) VALUES (1, :seq, :hash)", seq=head.seq, hash=head.hash)
        into.run("UPDATE meta SET value = '1' WHERE name = 'schema_version'")
    old.close()
    return head


def test_version_1_becomes_the_newest(url: str, tmp_path: Path) -> None:
    with Ledger.open(f"sqlite:///{tmp_path / 'source.db'}") as source:
        source.budget(1.0, 0.01)
        first = ask(source, "a")
        head = downgraded(source, url)
    with Ledger.open(url, create=False) as ledger:
        with ledger._storage.reading() as transaction:
            assert schema.version(transaction) == schema.NEWEST
        assert ledger.head.seq == head.seq + 1  # from here on accounts are those of pairs, and the chain says so
        assert (ledger.entries()[-1].kind, ledger.entries()[-1].content["accounts"]) == ("accounts", "pairs")
        assert ask(ledger, "a").tobytes() == first.tobytes()
        with pytest.raises(LedgerError), ledger._storage.writing() as transaction:
            transaction.run("DELETE FROM entries")  # the guards of version 2 are there
        ask(ledger, "b")
        with ledger._storage.reading() as transaction:  # the table and the indexes of version 3
            assert transaction.rows("SELECT * FROM bounds") == []
            catalog = "indexname FROM pg_indexes" if transaction.postgres else "name FROM sqlite_master"
            names = {str(row[0]) for row in transaction.rows(f"SELECT {catalog}")}
        assert {"entries_question", "entries_kind", "entries_account", "entries_answer"} <= names
        assert "entries_label" not in names
        mechanism = point()
        true = answer(mechanism, "h1")[None]
        drawn = mechanism.release(true, ["h1"])
        bound = mechanism_bound(mechanism, 1.0)
        ledger.charge(mechanism, true, drawn, ["h1"], query_ids="c", bounds=bound)
        with ledger._storage.reading() as transaction:
            stored = transaction.value("SELECT COUNT(*) FROM bounds")
            assert stored == sum(len(bound.points(kind)) for kind in ("delta", "renyi", "table"))
        assert ledger.verify(head=head)
        seal = ledger.head
    with Ledger.open(url) as again:  # and opening it again changes nothing
        assert again.head == seal


def test_an_older_ledger_says_what_its_pairs_have_spent(url: str, tmp_path: Path) -> None:
    """Each label was within its budget by itself, the pair is not: nothing is rewritten, and nothing more leaves."""
    mechanism = point()
    with Ledger.open(f"sqlite:///{tmp_path / 'source.db'}") as source:
        source.budget(1.0, 0.9)
        for i in range(4):
            for label in ("h1", "h2"):
                ask(source, i, label)
        pair = source.spent()["h1"].spent
        alone, both = (np.exp(shoal.edge_brackets([mechanism] * n, mechanism.graph, 1.0)[..., 2].max()) for n in (4, 8))
        delta = float(np.sqrt(alone * both))  # between the two
        assert alone < delta < pair <= both * (1 + 1e-9)
        head = downgraded(source, url, delta)
    with Ledger.open(url, create=False) as ledger:
        report = ledger.verify(head=head)
        assert report
        assert any("label h1 is overdrawn" in note and "before" in note for note in report.notes)
        assert ledger.spent()["h1"].spent == pytest.approx(pair, rel=1e-12)
        assert ledger.spent()["h1"].remaining == 0
        assert ledger.overview().largest_share > 1
        before = ledger.head
        for label in ("h1", "h2"):
            with pytest.raises(BudgetError, match="label h"):
                ask(ledger, "more", label)
        assert ask(ledger, 0, "h2").shape == (2,)  # what is on record is still there for nothing
        assert ledger.head == before
        assert ledger.verify(head=head)


def test_a_failed_migration_leaves_the_old_version(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(f"sqlite:///{tmp_path / 'source.db'}") as source:
        source.budget(1.0, 0.01)
        downgraded(source, sqlite_url)

    def fails(transaction: Any) -> None:
        transaction.run("CREATE TABLE half_done (x INTEGER)")
        transaction.run("this is not SQL")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (schema.MIGRATIONS[0], fails))
        with pytest.raises(LedgerError, match="Nothing was recorded"):
            Ledger.open(sqlite_url)
    storage = Storage.open(sqlite_url, 5.0)
    with storage.reading() as transaction:
        assert schema.version(transaction) == 1
        assert transaction.one("SELECT 1 FROM sqlite_master WHERE name = 'half_done'") is None
    storage.close()
    with Ledger.open(sqlite_url) as ledger:
        assert ledger.verify()


def test_a_newer_ledger_is_refused_untouched(ledger: Ledger, url: str) -> None:
    head = ledger.head
    with ledger._storage.writing() as transaction:
        transaction.run(f"UPDATE meta SET value = '{schema.NEWEST + 1}' WHERE name = 'schema_version'")
    with pytest.raises(LedgerError, match="newer than this shoal knows"):
        Ledger.open(url)
    assert ledger.head == head


def test_many_open_a_new_database_at_once(url: str) -> None:
    failed: list[BaseException] = []

    def opens() -> None:
        try:
            Ledger.open(url).close()
        except BaseException as error:  # noqa: BLE001 - a thread must report, whatever it was
            failed.append(error)

    threads = [threading.Thread(target=opens) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with Ledger.open(url, create=False) as ledger:
        assert [entry.kind for entry in ledger.entries()] == ["created"]


# ---------------------------------------------------------------------- addresses


@pytest.mark.parametrize("wrong", ["sqlite://", "sqlite:///:memory:", "mysql://host/db", "no url", "", 7])
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
    ("said", "told"),
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
def test_why_there_is_no_connection(said: str, told: str) -> None:
    found = str(_explained(OperationalError("", {}, Exception(said))))
    assert "cannot be reached" in found
    assert told in found
    assert not any(name in found for name in ("anna", "exmaple", "ledgr"))


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


@pytest.mark.parametrize("port", ["abc", "70000", "0"])
def test_a_malformed_port(port: str) -> None:
    with pytest.raises(InputError, match="port from 1 to 65535"):
        Ledger.open(f"postgresql://owner@db:{port}/ledger")


def test_a_failed_reading_says_nothing_about_what_was_recorded(sqlite_url: str) -> None:
    """It may come after a charge that stands."""
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.01)
        ask(ledger, "a")
        for transaction, silent in ((ledger._storage.reading, True), (ledger._storage.writing, False)):
            with pytest.raises(LedgerError) as error, transaction() as inside:
                inside.run("this is not SQL")
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

        address = ledger._storage._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    cut()
    assert np.array_equal(ask(ledger, "a"), first)
    head = ledger.head

    def cut_within() -> None:
        with ledger._storage.writing() as transaction:
            transaction.run("UPDATE head SET seq = 0")
            cut()
            transaction.run("SELECT 1")

    with pytest.raises(LedgerError, match="cannot be reached"):
        cut_within()
    assert ledger.head == head
    ask(ledger, "b")
    assert ledger.verify()
    ledger.close()


# ---------------------------------------------------------------------- SQLite files


def test_a_read_only_file(sqlite_url: str, tmp_path: Path) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.01)
        ask(ledger, "a")
        head = ledger.head
        only = Ledger.open(f"sqlite:///file:{tmp_path / 'ledger.db'}?mode=ro&uri=true", timeout=1)
        assert only.spent()["h0"].releases == 1  # reading works
        assert only.verify()
        with pytest.raises(LedgerError, match="read-only"):
            ask(only, "b")
        with pytest.raises(LedgerError, match="read-only"):
            only.budget(2.0, 0.5)
        only.close()
        assert ledger.head == head


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


def test_flipped_bytes_never_pass(sqlite_url: str, tmp_path: Path) -> None:
    """A damaged file is refused or reported, or the damage lies in what nobody reads; what was spent never changes."""
    path = tmp_path / "ledger.db"
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.1)
        for i in range(40):
            ask(ledger, i, f"h{i % 3}")
        spent = {name: account.spent for name, account in ledger.spent().by_label.items()}
        head = ledger.head
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = path.read_bytes()
    found = 0
    for number, position in enumerate(np.random.default_rng(0).permutation(len(content))[:60]):
        damaged = bytearray(content)
        damaged[position] ^= 1 << number % 8
        copy = tmp_path / f"copy{number}.db"
        copy.write_bytes(bytes(damaged))
        try:
            with Ledger.open(copy, create=False, timeout=1) as ledger:
                report = ledger.verify(head=head)
                if report:
                    assert {name: a.spent for name, a in ledger.spent().by_label.items()} == spent
                else:
                    found += 1
        except LedgerError:
            found += 1
    assert found > 10


def test_a_truncated_file(sqlite_url: str, tmp_path: Path) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.01)
        for i in range(20):
            ask(ledger, i)
        head = ledger.head
    path = tmp_path / "ledger.db"
    content = path.read_bytes()
    for length in (len(content) // 2, len(content) - 4096, 4096, 100):
        path.write_bytes(content[:length])
        with pytest.raises((LedgerError, AssertionError)), Ledger.open(path, create=False) as ledger:
            assert ledger.verify(head=head)
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="create is False"):
        Ledger.open(path, create=False)


def fill(ledger: Ledger, shown: dict[str, np.ndarray], count: int) -> None:
    for i in range(len(shown), count):
        shown[str(i)] = ask(ledger, i)


def test_a_full_disk_charges_and_shows_nothing(sqlite_url: str) -> None:
    from sqlalchemy import event

    with Ledger.open(sqlite_url) as ledger:
        ledger.budget(1.0, 0.01)
        shown = {"0": ask(ledger, 0)}
        ledger._storage._engine.dispose()
        pages = {"limit": 0}

        def small(connection: Any, _record: Any) -> None:
            size = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages['limit'] or size + 3}")

        event.listen(ledger._storage._engine, "connect", small)
        with pytest.raises(LedgerError, match=r"disk is full.*Nothing was recorded"):
            fill(ledger, shown, 200)
        made = len(shown)
        assert 1 < made < 200
        assert ledger.spent()["h0"].releases == made
        assert ledger.verify()
        pages["limit"] = 10**6  # someone made room
        ledger._storage._engine.dispose()
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
    with ledger._storage.writing():
        assert impatient.spent()["h0"].releases == 1  # readers do not wait
        assert impatient.verify()
        with pytest.raises(LedgerError, match="another writer"):
            ask(impatient, "b")
    ask(impatient, "b")
    assert ledger.verify()
    impatient.close()


def test_importing_the_ledger_needs_no_database_package() -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "import shoal; shoal.Ledger\n"
        "try: shoal.Ledger.open('sqlite:///x.db')\n"
        "except shoal.InputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install sqlalchemy" in done.stdout
