"""Transactions on SQLite or PostgreSQL: one writer at a time, durable when they end well, gone when they do not.

SQLite writes ahead (WAL: readers never wait for a writer) with ``synchronous=EXTRA``, and a writer takes the write lock
at once with BEGIN IMMEDIATE. PostgreSQL writers lock the ledger's head row (an advisory lock while tables are made);
``synchronous_commit`` is turned on if the server has it off. Transactions are spelled out here rather than left to a
library, because everything rests on where they begin and end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import JSON, cast, create_engine, event, func, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from shoal.errors import InputError, LedgerError

if TYPE_CHECKING:
    from sqlalchemy import Executable, Select, Table
    from sqlalchemy.engine import URL, Connection, Engine

#: Key of the advisory lock under which tables are made on PostgreSQL ("shoal" in ASCII).
ADVISORY = 0x73686F616C
#: Rows fetched at a time when walking the chain.
CHUNK = 500
WRONG_URL = (
    "url must look like sqlite:///ledger.db or postgresql://user@host:5432/database, with a port from 1 to 65535"
)
UNKNOWN = (
    "It is not known whether the last step was recorded: ask again, with the same query_id, and find out at no cost"
)
#: What libpq says when it cannot connect, for which there is no code -> what it means.
AWAY = {
    "password authentication failed": "the server refuses the password; set PGPASSWORD or ~/.pgpass",
    "no password supplied": "the server asks for a password; set PGPASSWORD or ~/.pgpass",
    "could not translate host name": "there is no server of this name; check the host in the url",
    "failed to resolve host": "there is no server of this name; check the host in the url",
    "Connection refused": "nothing listens at this host and port; start the server or check the port in the url",
    "timeout": "the server does not answer; check the host in the url, and the network",
}
#: The same in words of which one is quoted: a name.
ABSENT = {
    r'database ".*" does not exist': "the server has no such database; create it or check its name in the url",
    r'role ".*" does not exist': "the server knows no such user; check the user in the url",
}


class Transaction:
    """Statements inside one transaction; parameters are named, ``:label``."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.postgres = connection.dialect.name == "postgresql"
        #: The entry that would be, or was, the first of this transaction; known once somebody asked.
        self.first: int | None = None

    def rows(self, statement: str | Executable, **parameters: Any) -> Sequence[Any]:
        """All rows of a query."""
        return self.connection.execute(_executable(statement), parameters).fetchall()

    def one(self, statement: str | Executable, **parameters: Any) -> Any:
        """The first row, or None."""
        return self.connection.execute(_executable(statement), parameters).first()

    def value(self, statement: str | Executable, **parameters: Any) -> Any:
        """The first column of the first row, or None."""
        row = self.one(statement, **parameters)
        return None if row is None else row[0]

    def run(self, statement: str | Executable, **parameters: Any) -> None:
        """Execute a statement that returns no rows."""
        self.connection.execute(_executable(statement), parameters)

    def pairs(self, values: Sequence[tuple[str, str]]) -> Select[Any]:
        """A query whose rows are pairs of texts, for ``IN``: by an index, where SQLite would scan for written pairs."""
        if self.postgres:
            pair = func.json_array_elements(cast(values, JSON)).table_valued("value").c.value
            return select(pair.op("->>")(0), pair.op("->>")(1))
        pair = func.json_each(json.dumps(values)).table_valued("value").c.value
        return select(func.json_extract(pair, "$[0]"), func.json_extract(pair, "$[1]"))

    def insert(self, table: Table | str, *rows: Mapping[str, Any], otherwise: str = "") -> None:
        """Add rows with the same columns to a table, handed to the driver as they are."""
        if rows:
            names = list(rows[0])
            places = ", ".join(f"%({name})s" if self.postgres else f":{name}" for name in names)
            statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places}) {otherwise}"
            self.connection.exec_driver_sql(statement, list(rows))

    def upsert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to a table, or replace those with the same primary key."""
        if rows:
            keys = [column.name for column in table.primary_key]
            rest = ", ".join(f"{name} = excluded.{name}" for name in rows[0] if name not in keys)
            self.insert(table, *rows, otherwise=f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {rest}")


def _executable(statement: str | Executable) -> Executable:
    return text(statement) if isinstance(statement, str) else statement


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
        """The only writer until the block ends; committed durably if it ends well, undone if it raises.

        Without ``chain``, for tables beside the chain: PostgreSQL then lets several write at once.
        """
        undone = "Nothing was recorded by this step; what was recorded before stands"
        with self._transaction("BEGIN" if self.postgres else "BEGIN IMMEDIATE", undone) as transaction:
            if self.postgres and creating:
                transaction.run("SELECT pg_advisory_xact_lock(:key)", key=ADVISORY)
            elif self.postgres and chain:
                transaction.run("SELECT seq FROM head WHERE only_row = 1 FOR UPDATE")
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
            raise _explained(error, after) from None

    def close(self) -> None:
        self._engine.dispose()


def _explained(error: Exception, after: str = "") -> LedgerError:
    """What the database said, by its code only: its own texts may quote what was being written.

    ``after`` says what became of the transaction.
    """
    original = getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None) or type(error).__name__
    if code == "SQLITE_FULL" or code == "53100":
        reason, words = "full", "the disk is full"
    elif code in ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03"):
        reason, words = "busy", "another writer held the ledger for too long; try again"
    elif str(code).startswith("SQLITE_READONLY") or code == "25006":
        reason, words = "read-only", "the ledger is read-only"
    elif code in ("SQLITE_CORRUPT", "SQLITE_NOTADB") or str(code).startswith("XX"):
        reason, words = "damaged", "the file is damaged, or is not a ledger"
    elif str(code).startswith(("SQLITE_CANTOPEN", "08", "57", "28", "3D")) or code == "OperationalError":
        reason, words = "unreachable", "the database cannot be reached or does not work" + _away(str(original))
    else:
        reason, words = "", "the database refused a statement"
    return LedgerError(f"ledger: {words} ({code})" + (f". {after}" if after else ""), reason=reason)


def _away(said: str) -> str:
    """Why there is no connection, in our words: a colon and a sentence, or nothing where it is not known."""
    why = next((why for words, why in AWAY.items() if words in said), None)
    why = why or next((why for words, why in ABSENT.items() if re.search(words, said)), None)
    return f": {why}" if why else ""


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
        address = _as_it_lies(address, Path(address.database))
    engine = create_engine(
        address, isolation_level="AUTOCOMMIT", hide_parameters=True, connect_args={"timeout": timeout}
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA synchronous = EXTRA")

    deadline = time.monotonic() + timeout
    while True:
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            return engine
        except SQLAlchemyError as error:
            explained = _explained(error)
            # Several processes may be turning a new file to write-ahead at once; a read-only file keeps its mode.
            if explained.reason == "read-only":
                return engine
            if explained.reason != "busy" or time.monotonic() > deadline:
                raise explained from None
            time.sleep(0.01)


def _as_it_lies(address: URL, file: Path) -> URL:
    """A file in a folder that cannot be written to, as on a backup medium, is read as one that nobody changes.

    SQLite would want to write beside it. With a write-ahead log there is somebody at work, or part of the record is in
    that log: then it is left to SQLite, which reads both if it can.
    """
    log = file.with_name(f"{file.name}-wal")
    effective = os.access in os.supports_effective_ids
    if os.access(file.parent, os.W_OK, effective_ids=effective) or (log.exists() and log.stat().st_size > 0):
        return address
    return address.set(database=f"file:{quote(str(file.resolve()))}", query={"immutable": "1", "uri": "true"})


def _postgres(address: URL, timeout: float) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise InputError("a ledger on PostgreSQL needs psycopg: pip install 'shoal[postgres]'") from None
    engine = create_engine(
        address,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        pool_pre_ping=True,
        pool_size=10,
        max_overflow=20,
        connect_args={"client_encoding": "utf8", "connect_timeout": max(2, int(timeout))},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.execute(f"SET lock_timeout = {max(1, int(timeout * 1000))}")
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        connection.commit()

    return engine
