"""The ledger's tables, and transactions on SQLite or PostgreSQL: one writer at a time, durable when they end well.

SQLite writes ahead (WAL) with ``synchronous=EXTRA``, and a writer begins with BEGIN IMMEDIATE. PostgreSQL writers lock
the ledger's head row (an advisory lock while tables are made), and ``synchronous_commit`` is turned on.

| table | holds |
| --- | --- |
| meta | schema version, identity, the key of the answer digests |
| entries, head | the chain, with parts of the payload for lookup; number and hash of its last entry |
| mechanisms | their files by digest |
| graph_labels, totals, readings_accounts | the chain by label (:mod:`shoal.product.ledger.state`) |
| crowd_members, crowds, crowd_numbers | lasting crowds (:mod:`shoal.product.ledger.crowds`); the chain has a digest |
| spellings | every label on record, as it came first, by its :func:`shoal.plaintext.name_key` |
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from shoal.errors import InputError, LedgerError
from shoal.plaintext import name_key

if TYPE_CHECKING:
    from sqlalchemy import Executable, Select
    from sqlalchemy.engine import URL, Connection, Engine

#: The version of this schema. Those before it were never released.
VERSION = 12
#: Parts of a payload that are columns as well, so that the database can look them up.
LOOKED_UP = ("label", "query_id", "analyst", "mechanism", "answer", "readings")

METADATA = sa.MetaData()
BIG, REAL, BYTES = sa.BigInteger(), sa.Float(53), sa.LargeBinary()


def _column(name: str, kind: Any = sa.Text, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, **({"nullable": False} | options))


def _key(name: str, kind: Any = sa.Text) -> sa.Column[Any]:
    return _column(name, kind, primary_key=True, autoincrement=False)


def _table(name: str, *columns: Any, **options: Any) -> sa.Table:
    return sa.Table(name, METADATA, *columns, **options)


META = _table("meta", _key("name"), _column("value"))
ENTRIES = _table(
    "entries",
    _key("seq", BIG.with_variant(sa.Integer, "sqlite")),
    *(_column(name) for name in ("kind", "payload", "previous", "hash")),
    *(_column(name, nullable=True) for name in LOOKED_UP),
)
_ALONE = sa.CheckConstraint("only_row = 1")
HEAD = _table("head", _key("only_row", sa.Integer), _column("seq", BIG), _column("hash"), _ALONE)
MECHANISMS = _table("mechanisms", _key("digest"), _column("graph"), _column("content", BYTES))
GRAPH_LABELS = _table("graph_labels", _key("label"), _key("graph"), sqlite_with_rowid=False)
TOTALS = _table(
    "totals",
    *(_key(name) for name in ("label", "mechanism")),
    *(_column(name, kind) for name, kind in (("times", BIG), ("tv", REAL), ("first", BIG), ("last", BIG))),
    sqlite_with_rowid=False,
)
#: Σμ², an exact fraction, and the cap M as texts.
READINGS = _table("readings_accounts", _key("label"), *map(_column, ("spent", "cap", "period")))
CROWD_MEMBERS = _table(
    "crowd_members",
    _key("label"),
    _column("crowd", BIG, index=True),
    _column("stored", BYTES),
    _column("last"),
    _column("block", BIG, nullable=True, index=True),
    _column("entered", BYTES),
    _column("held"),
)
CROWDS = _table(
    "crowds",
    _key("crowd", BIG),
    *(_column(name) for name in ("setting", "period", "digest")),
    _column("row", BYTES),
    _column("members", sa.Integer),
    _column("retired", sa.Boolean),
    _column("kept"),
)
CROWD_NUMBERS = _table("crowd_numbers", _key("crowd", BIG))
SPELLINGS = _table("spellings", _key("key"), _column("label"))
#: What the chain says about labels; :meth:`Ledger.rebuild` writes it anew.
INDEX = (GRAPH_LABELS, TOTALS, READINGS)

# Releases are looked up by their labels, and an index of all kinds would only tempt a planner.
for _name, _columns, _where in (
    ("kind", ("kind", "seq"), "kind <> 'release'"),
    ("question", ("label", "query_id"), "kind = 'release'"),
    ("answer", ("label", "answer"), "kind = 'release'"),
    ("readings", ("label", "readings"), "kind = 'release' AND readings IS NOT NULL"),
):
    _parts: dict[str, Any] = {f"{system}_where": sa.text(_where) for system in ("sqlite", "postgresql")}
    sa.Index(f"entries_{_name}", *(ENTRIES.c[column] for column in _columns), unique=_name == "question", **_parts)
sa.Index("mechanisms_graph", MECHANISMS.c.graph, MECHANISMS.c.digest)
sa.Index("graph_labels_graph", GRAPH_LABELS.c.graph, GRAPH_LABELS.c.label)

#: Key of the advisory lock under which tables are made on PostgreSQL ("shoal" in ASCII).
ADVISORY = 0x73686F616C
#: Rows fetched at a time when walking the chain.
CHUNK = 500
WRONG_URL = (
    "url must look like sqlite:///ledger.db or postgresql://user@host:5432/database, with a port from 1 to 65535"
)
UNKNOWN = (
    "It is not known whether the last step was recorded: do the same again, under the same name; what is on record is "
    "not charged twice"
)
OTHER_SPELLING = (
    "labels: {} label(s) are on record in another spelling (capitals, spaces or accents differ), and would count as "
    "other people. Write them as they were at first. Nothing was recorded"
)
#: How the codes of a database begin -> the reason of the error, and what it means.
CAUSES = {
    ("SQLITE_FULL", "SQLITE_IOERR_SHM", "53100"): ("full", "the disk is full; free some space and do the same again"),
    ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03"): ("busy", "another writer held the ledger for too long; try again"),
    ("SQLITE_READONLY", "25006"): ("read-only", "the ledger is read-only"),
    ("SQLITE_IOERR",): ("", "the disk does not read or write as it should; see whether it is full or failing"),
    ("SQLITE_CORRUPT", "SQLITE_NOTADB", "XX"): ("damaged", "the file is damaged, or is not a ledger"),
    ("SQLITE_CANTOPEN", "08", "57", "28", "3D", "OperationalError"): (
        "unreachable",
        "the database cannot be reached or does not work",
    ),
}
#: What libpq says when it cannot connect, for which there is no code -> what it means. Names are not repeated.
AWAY = {
    "password authentication failed": "the server refuses the password; set PGPASSWORD or ~/.pgpass",
    "no password supplied": "the server asks for a password; set PGPASSWORD or ~/.pgpass",
    "translate host name|resolve host": "there is no server of this name; check the host in the url",
    "Connection refused": "nothing listens at this host and port; start the server or check the port in the url",
    "timeout": "the server does not answer; check the host in the url, and the network",
    r'database ".*" does not exist': "the server has no such database; create it or check its name in the url",
    r'role ".*" does not exist': "the server knows no such user; check the user in the url",
}


class Transaction:
    """Statements inside one transaction; parameters are named, ``:label``."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.postgres = connection.dialect.name == "postgresql"

    def _send(self, statement: str | Executable, parameters: Mapping[str, Any]) -> Any:
        return self.connection.execute(sa.text(statement) if isinstance(statement, str) else statement, parameters)

    def rows(self, statement: str | Executable, **parameters: Any) -> Sequence[Any]:
        """All rows of a query."""
        rows: Sequence[Any] = self._send(statement, parameters).fetchall()
        return rows

    def first(self, statement: str | Executable, **parameters: Any) -> Any:
        """The first row, or None."""
        return self._send(statement, parameters).first()

    def value(self, statement: str | Executable, **parameters: Any) -> Any:
        """The first column of the first row, or None."""
        row = self.first(statement, **parameters)
        return None if row is None else row[0]

    def execute(self, statement: str | Executable, **parameters: Any) -> None:
        """Run a statement that returns no rows."""
        self._send(statement, parameters)

    def pair_query(self, values: Sequence[tuple[str, str]]) -> Select[Any]:
        """A subquery whose rows are pairs of texts, for ``IN``, which SQLite answers by an index."""
        if self.postgres:
            pair = sa.func.json_array_elements(sa.cast(values, sa.JSON)).table_valued("value").c.value
            return sa.select(pair.op("->>")(0), pair.op("->>")(1))
        pair = sa.func.json_each(json.dumps(values)).table_valued("value").c.value
        return sa.select(sa.func.json_extract(pair, "$[0]"), sa.func.json_extract(pair, "$[1]"))

    def insert(self, table: sa.Table | str, *rows: Mapping[str, Any], otherwise: str = "") -> None:
        """Insert rows with the same columns into a table; ``otherwise`` is an ON CONFLICT clause."""
        if rows:
            names = list(rows[0])
            places = ", ".join(f"%({name})s" if self.postgres else f":{name}" for name in names)
            statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places}) {otherwise}"
            self.connection.exec_driver_sql(statement, list(rows))

    def upsert(self, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows into a table, or replace those with the same primary key."""
        if rows:
            keys = [column.name for column in table.primary_key]
            rest = ", ".join(f"{name} = excluded.{name}" for name in rows[0] if name not in keys)
            self.insert(table, *rows, otherwise=f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {rest}")


def check_text(**named: Any) -> str:
    """The named argument, if it is a text of 1 to 1000 characters that every database can store; else InputError."""
    ((name, value),) = named.items()
    if not isinstance(value, str) or not value or len(value) > 1000:
        raise InputError(f"{name} must be a text of 1 to 1000 characters")
    if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InputError(f"{name} must not contain null or unpaired surrogate characters")
    if not unicodedata.is_normalized("NFC", value):
        raise InputError(
            f"{name} must be in Unicode normal form C, so that one name has one spelling: "
            "unicodedata.normalize('NFC', name)"
        )
    return value


def split_into_chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Lists of the values, each as long as one SQL statement takes."""
    every = list(values)
    for start in range(0, len(every), CHUNK):
        yield every[start : start + CHUNK]


class Storage:
    """A database that holds one ledger."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._process = os.getpid()
        self._inherited: list[object] = []
        self.postgres = engine.dialect.name == "postgresql"

    @classmethod
    def open(cls, url: str | Path, timeout: float) -> Storage:
        """Connect; a new SQLite file is created readable by its owner only."""
        try:
            address = make_url(f"sqlite:///{url}" if isinstance(url, Path) else str(url))
        except (ArgumentError, ValueError):  # a port that is no number
            raise InputError(WRONG_URL) from None
        if address.port is not None and not 0 < address.port < 2**16:
            raise InputError(WRONG_URL)
        if address.drivername == "sqlite":
            return cls(_sqlite(address, timeout))
        if address.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
            return cls(_postgres(address.set(drivername="postgresql+psycopg"), timeout))
        raise InputError("url must begin with sqlite:/// or postgresql://; other databases are not supported")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A consistent view that waits for no writer."""
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if self.postgres else "BEGIN"
        with self._transaction(begin, "") as transaction:
            yield transaction

    @contextlib.contextmanager
    def writing(self, *, creating: bool = False, chain: bool = True) -> Iterator[Transaction]:
        """The only writer until the block ends, committed durably; without ``chain``, tables beside the chain alone."""
        undone = "Nothing was recorded by this step; what was recorded before stands"
        with self._transaction("BEGIN" if self.postgres else "BEGIN IMMEDIATE", undone) as transaction:
            if self.postgres and creating:
                transaction.execute("SELECT pg_advisory_xact_lock(:key)", key=ADVISORY)
            elif self.postgres and chain:
                transaction.execute("SELECT seq FROM head WHERE only_row = 1 FOR UPDATE")
            yield transaction

    @contextlib.contextmanager
    def _transaction(self, begin: str, undone: str) -> Iterator[Transaction]:
        """``undone`` says what became of it where it does not come to its end."""
        if os.getpid() != self._process:
            # A connection must not be shared across a fork, nor closed by the child.
            self._inherited.append(self._engine.pool)
            self._engine.dispose(close=False)
            self._process = os.getpid()
        after = undone
        try:
            with self._engine.connect() as connection:
                try:
                    connection.exec_driver_sql(begin)
                    yield Transaction(connection)
                    after = UNKNOWN if undone else ""
                    connection.exec_driver_sql("COMMIT")
                except BaseException:
                    try:
                        connection.exec_driver_sql("ROLLBACK")
                    except SQLAlchemyError:
                        connection.invalidate()
                    raise
        except SQLAlchemyError as error:
            raise _explained_error(error, after) from None

    def close(self) -> None:
        self._engine.dispose()


def _explained_error(error: Exception, after: str = "") -> LedgerError:
    """A LedgerError for a database error, by its code alone: its texts may quote data.

    ``after`` says what became of the transaction.
    """
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None) or type(error).__name__
    causes = (cause for begins, cause in CAUSES.items() if code.startswith(begins))
    reason, words = next(causes, ("", "the database refused a statement"))
    if reason == "unreachable":
        words += next((f": {why}" for said, why in AWAY.items() if re.search(said, str(original))), "")
    return LedgerError(f"ledger: {words} ({code})" + (f". {after}" if after else ""), reason=reason)


def _sqlite(address: URL, timeout: float) -> Engine:
    if not address.database or address.database == ":memory:":
        raise InputError("url must name a file: a ledger in memory would be forgotten, and with it what was spent")
    if not address.database.startswith("file:"):
        try:
            os.close(os.open(address.database, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass
        except OSError:
            raise LedgerError("ledger: the database file cannot be created; does its folder exist?") from None
        file = Path(address.database)
        log = file.with_name(f"{file.name}-wal")
        writable = os.access(file.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        if not writable and not (log.exists() and log.stat().st_size):
            # On a backup medium SQLite would want to write beside the file: it is read as one that nobody changes.
            uri = f"file:{quote(str(file.resolve()))}"
            address = address.set(database=uri, query={"immutable": "1", "uri": "true"})
    engine = sa.create_engine(
        address, isolation_level="AUTOCOMMIT", hide_parameters=True, connect_args={"timeout": timeout}
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous = EXTRA")

    deadline = time.monotonic() + timeout
    while True:
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            return engine
        except SQLAlchemyError as error:
            explained = _explained_error(error)
            # Several processes may be turning a new file to write-ahead at once; a read-only file keeps its mode.
            if explained.reason == "read-only":
                return engine
            if explained.reason != "busy" or time.monotonic() > deadline:
                raise explained from None
            time.sleep(0.01)


def _postgres(address: URL, timeout: float) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise InputError("a ledger on PostgreSQL needs psycopg: pip install 'shoal[postgres]'") from None
    engine = sa.create_engine(
        address,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        pool_pre_ping=True,
        pool_size=10,
        max_overflow=20,
        connect_args={"client_encoding": "utf8", "connect_timeout": max(2, int(timeout))},
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.execute(f"SET lock_timeout = {max(1, int(timeout * 1000))}")
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()

    return engine


def has_ledger(transaction: Transaction) -> bool:
    """Whether the database holds a ledger of this schema version; LedgerError for any other content."""
    if not sa.inspect(transaction.connection).has_table("meta"):
        return False
    version = transaction.value(sa.select(META.c.value).where(META.c.name == "schema_version"))
    if version is None or not str(version).isdigit():
        raise LedgerError("the database has a table 'meta' that is not a ledger's; give the ledger its own database")
    if int(version) != VERSION:
        newer = f"newer than this shoal knows ({VERSION}); upgrade shoal"
        older = "of a shoal that was never released; begin a new ledger"
        raise LedgerError(f"the ledger has schema version {version}, {newer if int(version) > VERSION else older}")
    return True


def create_tables(transaction: Transaction) -> None:
    """Create all tables, with triggers by which the database refuses changes of recorded rows."""
    METADATA.create_all(transaction.connection)
    transaction.execute(sa.insert(META).values(name="schema_version", value=str(VERSION)))
    refused = "the ledger is append-only"
    if transaction.postgres:
        transaction.execute(
            f"""CREATE FUNCTION shoal_append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION '{refused}'; END $$"""
        )
        then = "EXECUTE FUNCTION shoal_append_only()"
        transaction.execute(f"CREATE TRIGGER entries_no_truncate BEFORE TRUNCATE ON entries {then}")
    else:
        then = f"BEGIN SELECT RAISE(ABORT, '{refused}'); END"
    for table in ("entries", "mechanisms"):
        for action in ("UPDATE", "DELETE"):
            transaction.execute(f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} {then}")


def recorded_spellings(transaction: Transaction, labels: Iterable[str]) -> dict[str, str]:
    """Label -> its spelling on record, for the labels that are on record in another one."""
    key_of = {label: name_key(label) for label in labels}
    known: dict[str, str] = {}
    for part in split_into_chunks(dict.fromkeys(key_of.values())):
        rows = transaction.rows(sa.select(SPELLINGS.c.key, SPELLINGS.c.label).where(SPELLINGS.c.key.in_(part)))
        known |= {str(key): str(label) for key, label in rows}
    return {label: known[key] for label, key in key_of.items() if known.get(key, label) != label}


def refuse_other_spellings(transaction: Transaction, labels: Iterable[str]) -> None:
    """Refuse labels that are on record in another spelling, or that are two spellings of one label."""
    names = dict.fromkeys(labels)
    others = len(recorded_spellings(transaction, names)) + len(names) - len({name_key(name) for name in names})
    if others:
        raise InputError(OTHER_SPELLING.format(others))


def keep_spellings(transaction: Transaction, labels: Iterable[str]) -> None:
    """Store the spelling of labels that something is recorded about; the first spelling stays."""
    rows = ({"key": name_key(label), "label": label} for label in dict.fromkeys(labels))
    transaction.insert(SPELLINGS, *rows, otherwise="ON CONFLICT DO NOTHING")
