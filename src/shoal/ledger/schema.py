"""The ledger's tables: one schema for SQLite and PostgreSQL.

| table | holds |
| --- | --- |
| meta | schema version, identity, the key of the answer digests |
| entries | the chain; columns after ``hash`` repeat parts of the payload for lookup |
| head | one row: number and hash of the last entry; locked by whoever writes |
| mechanisms | mechanism files by digest, each with the digest of its graph |
| graph_labels, totals | an index of the chain (:mod:`shoal.ledger.state`): the graphs of each label, and how often each mechanism was used about it and for whom. Both can be rebuilt from the chain |
| bounds | what a mechanism costs at most at a few points; derived from it, and safe to delete |
| crowd_members, crowds, crowd_numbers | crowds that last (:mod:`shoal.ledger.crowds`); their digest is in the chain |
| readings_accounts | an index of the chain: what releases of readings have cost each label (:mod:`shoal.ledger.readings`) |
"""  # noqa: E501

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
)

from shoal.errors import LedgerError

if TYPE_CHECKING:
    from shoal.ledger.storage import Transaction

#: The version of this schema. Those before it were never released.
VERSION = 9

METADATA = MetaData()


def _table(name: str, *columns: Any, **options: Any) -> Table:
    return Table(name, METADATA, *columns, **options)


def _key(name: str, kind: Any = Text) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _text(name: str, *, optional: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=optional)


META = _table("meta", _key("name"), _text("value"))
ENTRIES = _table(
    "entries",
    _key("seq", BigInteger().with_variant(Integer, "sqlite")),
    _text("kind"),
    _text("payload"),
    _text("previous"),
    _text("hash"),
    *(_text(name, optional=True) for name in ("label", "query_id", "analyst", "mechanism", "answer", "readings")),
    Column("release", BigInteger),
    Column("batch", BigInteger),
)
HEAD = _table(
    "head",
    Column("only_row", Integer, CheckConstraint("only_row = 1"), primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    _text("hash"),
)
MECHANISMS = _table("mechanisms", _key("digest"), _text("graph"), Column("content", LargeBinary, nullable=False))
GRAPH_LABELS = _table("graph_labels", _key("label"), _key("graph"), sqlite_with_rowid=False)
TOTALS = _table(
    "totals",
    _key("label"),
    _key("analyst"),  # empty: anyone
    _key("mechanism"),
    _key("shown", Boolean),  # whether an answer on record was shown to someone new, or released
    Column("times", BigInteger, nullable=False),
    Column("tv", Float(53), nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
BOUNDS = _table(
    "bounds", _key("mechanism"), _key("kind"), _key("point", Float(53)), Column("value", Float(53), nullable=False)
)
CROWD_MEMBERS = _table(
    "crowd_members",
    _key("label"),
    Column("crowd", BigInteger, nullable=False, index=True),
    Column("stored", LargeBinary, nullable=False),
    _text("last"),
    Column("block", BigInteger, index=True),
)
CROWDS = _table(
    "crowds",
    _key("crowd", BigInteger),
    _text("setting"),
    _text("period"),
    Column("row", LargeBinary, nullable=False),
    Column("homes", Integer, nullable=False),
    Column("retired", Boolean, nullable=False),
    _text("digest"),
)
CROWD_NUMBERS = _table("crowd_numbers", _key("crowd", BigInteger))
READINGS_ACCOUNTS = _table(
    "readings_accounts",
    _key("label"),
    _text("spent"),  # Σμ², an exact fraction
    _text("cap"),  # M, fixed before the first release
    _text("period"),
)


def _where(name: str, *columns: Column[Any], where: str, unique: bool = False) -> None:
    Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


# Releases are looked up by their labels, and an index of all kinds would only tempt a planner.
_where("entries_kind", ENTRIES.c.kind, ENTRIES.c.seq, where="kind <> 'release'")
_where("entries_question", ENTRIES.c.label, ENTRIES.c.query_id, where="kind = 'release'", unique=True)
_where("entries_answer", ENTRIES.c.label, ENTRIES.c.answer, where="kind = 'release'")
_where("entries_readings", ENTRIES.c.label, ENTRIES.c.readings, where="kind = 'release' AND readings IS NOT NULL")
_where("entries_shown", ENTRIES.c.label, ENTRIES.c.release, where="kind = 'shown'")
Index("mechanisms_graph", MECHANISMS.c.graph, MECHANISMS.c.digest)
Index("graph_labels_graph", GRAPH_LABELS.c.graph, GRAPH_LABELS.c.label)


def exists(transaction: Transaction) -> bool:
    """Whether the database holds a ledger of this version; another version, or another program's table, is refused."""
    if not inspect(transaction.connection).has_table("meta"):
        return False
    version = transaction.value(select(META.c.value).where(META.c.name == "schema_version"))
    if version is None or not str(version).isdigit():
        raise LedgerError("the database has a table 'meta' that is not a ledger's; give the ledger its own database")
    if int(version) > VERSION:
        raise LedgerError(
            f"the ledger has schema version {int(version)}, newer than this shoal knows ({VERSION}); upgrade shoal"
        )
    if int(version) < VERSION:
        raise LedgerError(
            f"the ledger has schema version {int(version)}, of a shoal that was never released; begin a new ledger"
        )
    return True


def create(transaction: Transaction) -> None:
    """Make all tables, and have the database itself refuse changes of what is recorded."""
    METADATA.create_all(transaction.connection)
    transaction.run(insert(META).values(name="schema_version", value=str(VERSION)))
    refused = "the ledger is append-only"
    if transaction.postgres:
        transaction.run(
            f"""CREATE FUNCTION shoal_append_only() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION '{refused}'; END $$"""
        )
        then = "EXECUTE FUNCTION shoal_append_only()"
        transaction.run(f"CREATE TRIGGER entries_no_truncate BEFORE TRUNCATE ON entries {then}")
    else:
        then = f"BEGIN SELECT RAISE(ABORT, '{refused}'); END"
    for table in ("entries", "mechanisms"):
        for action in ("UPDATE", "DELETE"):
            transaction.run(f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} {then}")
