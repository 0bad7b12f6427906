"""The service's own tables, beside the chain in the ledger's database. What was granted and ended is in the chain too.

| table | holds |
| --- | --- |
| service_people | who may ask or decide; a name is one person for ever, so that nobody gets a second budget |
| service_keys | digests of keys, each with its end and the key that it was made with |
| service_sessions | digests of cookies |
| service_grants | who may ask what, within which budget |
| service_requests | idempotency keys, each bound to one body |
| service_refusals | what was refused and why, for the owner |
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shoal.ledger.storage import Storage

STATEMENTS = (
    """CREATE TABLE IF NOT EXISTS service_people (
        id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, role TEXT NOT NULL, created TEXT NOT NULL, dismissed TEXT)""",
    """CREATE TABLE IF NOT EXISTS service_keys (
        id TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, person TEXT NOT NULL, hint TEXT NOT NULL,
        created TEXT NOT NULL, expires TEXT, ended TEXT, parent TEXT, made_by TEXT, for_grant TEXT)""",
    """CREATE TABLE IF NOT EXISTS service_sessions (
        digest TEXT PRIMARY KEY, person TEXT NOT NULL, key_id TEXT NOT NULL, expires TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS service_grants (
        id TEXT PRIMARY KEY, person TEXT NOT NULL, questions TEXT NOT NULL, epsilon DOUBLE PRECISION,
        delta DOUBLE PRECISION, expires TEXT, created TEXT NOT NULL, ended TEXT)""",
    """CREATE TABLE IF NOT EXISTS service_requests (
        person TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (person, name))""",
    """CREATE TABLE IF NOT EXISTS service_refusals (
        person TEXT NOT NULL, question TEXT NOT NULL, cause TEXT NOT NULL, reason TEXT NOT NULL,
        times BIGINT NOT NULL, latest TEXT NOT NULL, PRIMARY KEY (person, question, cause))""",
)


def make_tables(storage: Storage) -> None:
    """Make the tables that are not there yet."""
    with storage.writing() as transaction:
        for statement in STATEMENTS:
            transaction.run(statement)


def now(later: timedelta = timedelta()) -> str:
    """The instant as it is stored and compared: UTC, ISO 8601, microseconds."""
    return (datetime.now(UTC) + later).isoformat(timespec="microseconds")
