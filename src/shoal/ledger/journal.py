"""Reading and appending entries inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from shoal.errors import LedgerError
from shoal.ledger.chain import COLUMNS, START, Entry, Head, follow
from shoal.ledger.storage import CHUNK, Transaction

_FIELDS = "seq, kind, payload, previous, hash"
_INSERT = (
    f"INSERT INTO entries ({_FIELDS}, {', '.join(COLUMNS)}) "
    f"VALUES (:seq, :kind, :payload, :previous, :hash, {', '.join(':' + name for name in COLUMNS)})"
)


class Journal:
    """The end of the chain, held by the only writer."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._head = checked_head(transaction)

    def append(self, kind: str, content: dict[str, Any]) -> Entry:
        """Add an entry. The time is told, and nothing depends on it."""
        stamped = {**content, "time": datetime.now(UTC).isoformat(timespec="microseconds")}
        entry = follow(self._head, kind, stamped)
        self._transaction.run(
            _INSERT,
            seq=entry.seq,
            kind=entry.kind,
            payload=entry.payload,
            previous=entry.previous,
            hash=entry.hash,
            **entry.columns(),
        )
        self._transaction.run("UPDATE head SET seq = :seq, hash = :hash", seq=entry.seq, hash=entry.hash)
        self._head = entry.head
        return entry


def begin(transaction: Transaction, content: dict[str, Any]) -> None:
    """The first entry of a new ledger."""
    transaction.run("INSERT INTO head (only_row, seq, hash) VALUES (1, 0, :hash)", hash=START)
    Journal(transaction).append("created", content)


def head(transaction: Transaction) -> Head:
    """The head row."""
    row = transaction.one("SELECT seq, hash FROM head WHERE only_row = 1")
    if row is None:
        raise LedgerError("ledger: the head row is missing; run verify() and restore a backup")
    return Head(int(row[0]), str(row[1]))


def checked_head(transaction: Transaction) -> Head:
    """The head row, compared with the last entry: nothing is added to a chain whose end does not hold."""
    found = head(transaction)
    last = transaction.one(f"SELECT {_FIELDS} FROM entries ORDER BY seq DESC LIMIT 1")
    if found.seq == 0 and last is None:
        return found
    if last is None or Entry(*last).head != found or not Entry(*last).intact:
        raise LedgerError("ledger: the last entry is not the one the head names; run verify() and restore a backup")
    return found


def entries(transaction: Transaction) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Every entry in order, with its columns as the database has them."""
    seq: int | None = None
    while True:
        after = "" if seq is None else "WHERE seq > :seq"
        rows = transaction.rows(
            f"SELECT {_FIELDS}, {', '.join(COLUMNS)} FROM entries {after} ORDER BY seq LIMIT {CHUNK}",
            **({} if seq is None else {"seq": seq}),
        )
        for row in rows:
            yield Entry(*row[:5]), dict(zip(COLUMNS, row[5:], strict=True))
        if len(rows) < CHUNK:
            return
        seq = int(rows[-1][0])


def recorded(transaction: Transaction, label: str, query_id: str) -> Entry | None:
    """The release that answered a question about a label, if there is one."""
    row = transaction.one(
        f"SELECT {_FIELDS} FROM entries WHERE kind = 'release' AND label = :label AND query_id = :query_id",
        label=label,
        query_id=query_id,
    )
    if row is None:
        return None
    entry = Entry(*row)
    if not entry.intact:
        raise LedgerError("ledger: the recorded answer was altered; run verify() and restore a backup")
    return entry
