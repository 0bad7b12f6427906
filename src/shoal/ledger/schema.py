"""The ledger's tables, and how an older database becomes a newer one.

``MIGRATIONS[v - 1]`` leads from version v − 1 to version v; a new database takes all of them. They run in one
transaction under a lock, so two processes that open an old ledger at once migrate it once. A released migration is
never edited: what changes is a new one at the end.

| table | holds |
| --- | --- |
| meta | schema version, identity, the key of the answer digests |
| entries | the chain; columns after ``hash`` repeat parts of the payload for lookup |
| head | one row: number and hash of the last entry; locked by whoever writes |
| mechanisms | mechanism files by digest |
| graphs | the graph of each mechanism, by digest |
| members | the graphs that each label belongs to |
| outgrown | graphs that lack an edge recorded since between two of their labels: nothing is released through them |
| bounds | what a mechanism costs at most at a few points; derived from it, and safe to delete |
| people, keys, sessions, grants, requests, asked | who may ask what through the service; no part of the chain |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, MetaData, Table, Text

from shoal.errors import LedgerError

if TYPE_CHECKING:
    from shoal.ledger.storage import Transaction


METADATA = MetaData()

#: Crowds that last, beside the chain: their digest is in the entry of the release that changed them.
CROWD_MEMBERS = Table(
    "crowd_members",
    METADATA,
    Column("label", Text, primary_key=True),
    Column("crowd", BigInteger, nullable=False, index=True),
    Column("stored", LargeBinary, nullable=False),
    Column("last", Text, nullable=False),
    Column("block", BigInteger, index=True),
)
CROWDS = Table(
    "crowds",
    METADATA,
    Column("crowd", BigInteger, primary_key=True, autoincrement=False),
    Column("setting", Text, nullable=False),
    Column("period", Text, nullable=False),
    Column("row", LargeBinary, nullable=False),
    Column("homes", Integer, nullable=False),
    Column("retired", Boolean, nullable=False),
    Column("digest", Text, nullable=False),
)
#: Numbers that were drawn for crowds, used or not.
CROWD_NUMBERS = Table("crowd_numbers", METADATA, Column("crowd", BigInteger, primary_key=True, autoincrement=False))


def _crowds(transaction: Transaction) -> None:
    """Version 8: crowds that last."""
    transaction.create(METADATA)


def _tables(transaction: Transaction) -> None:
    """Version 1: the tables."""
    blob = "BYTEA" if transaction.postgres else "BLOB"
    for statement in (
        """CREATE TABLE entries (
            seq BIGINT PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, previous TEXT NOT NULL,
            hash TEXT NOT NULL, label TEXT, query_id TEXT, analyst TEXT, mechanism TEXT, answer TEXT,
            release BIGINT, times BIGINT, tv DOUBLE PRECISION)""",
        "CREATE UNIQUE INDEX entries_question ON entries (label, query_id) WHERE kind = 'release'",
        "CREATE INDEX entries_kind ON entries (kind, seq)",
        "CREATE TABLE head (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), seq BIGINT NOT NULL, hash TEXT)",
        f"CREATE TABLE mechanisms (digest TEXT PRIMARY KEY, content {blob} NOT NULL)",
        "CREATE TABLE labels (label TEXT PRIMARY KEY, graph TEXT NOT NULL)",
    ):
        transaction.run(statement)


def _guards(transaction: Transaction) -> None:
    """Version 2: what is recorded cannot be changed by mistake, and a label's entries are found at once."""
    transaction.run("CREATE INDEX entries_label ON entries (label, kind, mechanism)")
    transaction.run("CREATE INDEX entries_answer ON entries (label, answer)")
    if transaction.postgres:
        transaction.run(
            """CREATE FUNCTION shoal_append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"""
        )
    for table in ("entries", "mechanisms", "labels"):
        _append_only(transaction, table)
    if transaction.postgres:
        transaction.run(
            "CREATE TRIGGER entries_no_truncate BEFORE TRUNCATE ON entries EXECUTE FUNCTION shoal_append_only()"
        )


def _append_only(transaction: Transaction, table: str) -> None:
    for action in ("UPDATE", "DELETE"):
        name = f"{table}_no_{action.lower()}"
        if transaction.postgres:
            transaction.run(f"CREATE TRIGGER {name} BEFORE {action} ON {table} EXECUTE FUNCTION shoal_append_only()")
        else:
            transaction.run(
                f"CREATE TRIGGER {name} BEFORE {action} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
            )


def _bounds(transaction: Transaction) -> None:
    """Version 3: bounds of mechanisms; an account is read from an index alone, an earlier answer found at once."""
    transaction.run(
        """CREATE TABLE bounds (
            mechanism TEXT NOT NULL, kind TEXT NOT NULL, point DOUBLE PRECISION NOT NULL,
            value DOUBLE PRECISION NOT NULL, PRIMARY KEY (mechanism, kind, point))"""
    )
    transaction.run("CREATE INDEX entries_account ON entries (label, kind, mechanism, tv, times)")
    transaction.run("DROP INDEX entries_label")
    transaction.run("DROP INDEX entries_answer")
    # After the other: of two that look alike to it, SQLite takes the newer.
    transaction.run("CREATE INDEX entries_answer ON entries (label, answer) WHERE kind = 'release'")


def _pairs(transaction: Transaction) -> None:
    """Version 4: accounts are kept for pairs. The chain says from where on; what was recorded before stays as it is."""
    from shoal.ledger.chain import follow
    from shoal.ledger.journal import checked_head

    if transaction.postgres:  # a writer of an older version may hold the head
        transaction.run("SELECT seq FROM head WHERE only_row = 1 FOR UPDATE")
    if transaction.one("SELECT 1 FROM head WHERE only_row = 1") is not None:  # a new ledger says it when it is created
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        entry = follow(checked_head(transaction), "accounts", {"accounts": ACCOUNTS, "time": time})
        transaction.run(  # with the columns of this version
            "INSERT INTO entries (seq, kind, payload, previous, hash) VALUES (:seq, :kind, :payload, :previous, :hash)",
            **{name: getattr(entry, name) for name in ("seq", "kind", "payload", "previous", "hash")},
        )
        transaction.run("UPDATE head SET seq = :seq, hash = :hash", seq=entry.seq, hash=entry.hash)
    transaction.run("DELETE FROM bounds")  # made without headroom and without tables; derived, and made again


def _service(transaction: Transaction) -> None:
    """Version 7: whom the service knows. Grants and receipts are in the chain as well; these rows may change."""
    for statement in (
        "CREATE TABLE people (id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, created TEXT NOT NULL)",
        "CREATE UNIQUE INDEX people_name ON people (role, name)",
        """CREATE TABLE keys (
            digest TEXT PRIMARY KEY, person TEXT NOT NULL, hint TEXT NOT NULL, created TEXT NOT NULL,
            expires TEXT, revoked TEXT, for_grant TEXT)""",
        "CREATE INDEX keys_person ON keys (person)",
        """CREATE TABLE sessions (
            digest TEXT PRIMARY KEY, person TEXT NOT NULL, key_digest TEXT, expires TEXT NOT NULL)""",
        """CREATE TABLE grants (
            id TEXT PRIMARY KEY, person TEXT NOT NULL, questions TEXT NOT NULL, epsilon DOUBLE PRECISION NOT NULL,
            delta DOUBLE PRECISION NOT NULL, expires TEXT, days DOUBLE PRECISION, window_epsilon DOUBLE PRECISION,
            window_delta DOUBLE PRECISION, created TEXT NOT NULL, revoked TEXT)""",
        "CREATE INDEX grants_person ON grants (person)",
        """CREATE TABLE requests (
            id TEXT PRIMARY KEY, person TEXT NOT NULL, question TEXT NOT NULL, reason TEXT NOT NULL,
            state TEXT NOT NULL, answer TEXT NOT NULL, decided_by TEXT, created TEXT NOT NULL)""",
        """CREATE TABLE asked (
            person TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (person, name))""",
    ):
        transaction.run(statement)


def _growth(transaction: Transaction) -> None:
    """Version 5: a label may belong to several graphs; readings that answers were made from are recognized."""
    transaction.run("CREATE TABLE members (label TEXT NOT NULL, graph TEXT NOT NULL, PRIMARY KEY (label, graph))")
    transaction.run("INSERT INTO members (label, graph) SELECT label, graph FROM labels")
    transaction.run("DROP TABLE labels")
    transaction.run("CREATE INDEX members_graph ON members (graph, label)")
    transaction.run("CREATE TABLE graphs (mechanism TEXT PRIMARY KEY, graph TEXT NOT NULL)")
    rows = transaction.rows("SELECT payload FROM entries WHERE kind = 'mechanism'")
    recorded = [json.loads(row[0]) for row in rows]
    transaction.run_many(
        "INSERT INTO graphs (mechanism, graph) VALUES (:mechanism, :graph)",
        [{name: str(content[name]) for name in ("mechanism", "graph")} for content in recorded],
    )
    transaction.run("CREATE INDEX graphs_graph ON graphs (graph, mechanism)")
    transaction.run("CREATE TABLE outgrown (graph TEXT PRIMARY KEY)")
    transaction.run("ALTER TABLE entries ADD COLUMN readings TEXT")
    transaction.run(
        "CREATE INDEX entries_readings ON entries (label, readings) WHERE kind = 'release' AND readings IS NOT NULL"
    )
    for table in ("members", "graphs", "outgrown"):
        _append_only(transaction, table)


def _batches(transaction: Transaction) -> None:
    """Version 6: what was chosen together is told from what was chosen in the light of earlier answers."""
    transaction.run("ALTER TABLE entries ADD COLUMN batch BIGINT")
    transaction.run("DROP INDEX entries_account")
    transaction.run("DROP INDEX entries_answer")
    transaction.run("CREATE INDEX entries_account ON entries (label, kind, mechanism, tv, times, batch, analyst, seq)")
    transaction.run("CREATE INDEX entries_answer ON entries (label, answer) WHERE kind = 'release'")
    transaction.run("DELETE FROM bounds")  # divergences are rounded further up; derived, and made again


MIGRATIONS: tuple[Callable[[Transaction], None], ...] = (
    _tables,
    _guards,
    _bounds,
    _pairs,
    _growth,
    _batches,
    _service,
    _crowds,
)
#: What accounts are kept for, as the chain says it.
ACCOUNTS = "pairs"
#: The version this shoal writes.
NEWEST = len(MIGRATIONS)


def version(transaction: Transaction) -> int:
    """The database's schema version; 0 where there is no ledger yet."""
    if transaction.postgres:
        # Not to_regclass: its answer may be older than the lock that was just waited for.
        there = transaction.value(
            "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = ANY (current_schemas(false)) AND tablename = 'meta'"
        )
    else:
        there = transaction.value("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'meta'")
    if there is None:
        return 0
    stated = transaction.value("SELECT value FROM meta WHERE name = 'schema_version'")
    if stated is None or not str(stated).isdigit():
        raise LedgerError("the database has a table 'meta' that is not a ledger's; give the ledger its own database")
    if int(stated) > NEWEST:
        raise LedgerError(
            f"the ledger has schema version {int(stated)}, newer than this shoal knows ({NEWEST}); upgrade shoal"
        )
    return int(stated)


def migrate(transaction: Transaction) -> int:
    """Bring the database to the newest version; returns the version it had."""
    had = version(transaction)
    if had == 0:
        transaction.run("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        transaction.run("INSERT INTO meta (name, value) VALUES ('schema_version', '0')")
    for number in range(had, NEWEST):
        MIGRATIONS[number](transaction)
        transaction.run("UPDATE meta SET value = :value WHERE name = 'schema_version'", value=str(number + 1))
    return had
