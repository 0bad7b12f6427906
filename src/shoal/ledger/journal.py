"""Reading and appending entries inside a transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, insert, literal_column, select, tuple_, update

from shoal.errors import LedgerError
from shoal.ledger.chain import COLUMNS, START, Entry, Head, follow
from shoal.ledger.schema import ENTRIES, HEAD
from shoal.ledger.storage import CHUNK, Transaction

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Select

#: Kinds of entries as their partial indexes spell them.
RELEASE: ColumnElement[str] = literal_column("'release'")
SHOWN: ColumnElement[str] = literal_column("'shown'")
#: Kinds of entries that tell when something was chosen.
CHOSEN = ("release", "shown")
ALTERED = "ledger: the recorded answer was altered; run verify() and restore a backup"
_FIELDS = tuple(ENTRIES.c[name] for name in ("seq", "kind", "payload", "previous", "hash"))
_LAST = select(*_FIELDS).order_by(ENTRIES.c.seq.desc()).limit(1)


class Journal:
    """The end of the chain, held by the only writer. Entries are linked at once and stored by :meth:`write`."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._head = checked_head(transaction)
        self._batch = batch(transaction)
        self._time = datetime.now(UTC).isoformat(timespec="microseconds")
        self._rows: list[dict[str, Any]] = []
        self._salt = secrets.token_hex(16)

    def append(self, kind: str, content: dict[str, Any]) -> Entry:
        """The next entry. The time is told, and nothing depends on it.

        The first of a transaction is salted: who holds the hash before and the hash after it, as an analyst does with
        receipts, cannot try out what was recorded in between.
        """
        stamped = {**content, "time": self._time}
        if self._salt:
            stamped["salt"], self._salt = self._salt, ""
        if kind in CHOSEN:
            stamped["batch"] = self._batch
        entry = follow(self._head, kind, stamped)
        self._rows.append(vars(entry) | {name: stamped.get(name) for name in COLUMNS})
        self._head = entry.head
        return entry

    def write(self) -> None:
        """Store the entries since the last time."""
        if self._rows:
            self._transaction.insert(ENTRIES, *self._rows)
            self._transaction.run(update(HEAD).values(seq=self._head.seq, hash=self._head.hash))
            self._rows = []


def append(transaction: Transaction, kind: str, content: dict[str, Any]) -> Entry:
    """Add one entry to the chain."""
    journal = Journal(transaction)
    entry = journal.append(kind, content)
    journal.write()
    return entry


def batch(transaction: Transaction) -> int:
    """The number of this transaction: what it writes was chosen together, before any of it was shown."""
    if transaction.first is None:
        transaction.first = head(transaction).seq + 1
    return transaction.first


def begin(transaction: Transaction, content: dict[str, Any]) -> None:
    """The first entry of a new ledger."""
    transaction.run(insert(HEAD).values(only_row=1, seq=0, hash=START))
    append(transaction, "created", content)


def head(transaction: Transaction) -> Head:
    """The head row."""
    row = transaction.one(select(HEAD.c.seq, HEAD.c.hash))
    if row is None:
        raise LedgerError("ledger: the head row is missing; run verify() and restore a backup", reason="damaged")
    return Head(int(row[0]), str(row[1]))


def checked_head(transaction: Transaction) -> Head:
    """The head row, compared with the last entry: nothing is added to a chain whose end does not hold."""
    stated = head(transaction)
    last = transaction.one(_LAST)
    if stated.seq == 0 and last is None:
        return stated
    if last is None or Entry(*last).head != stated or not Entry(*last).intact:
        raise LedgerError(
            "ledger: the last entry is not the one the head names; run verify() and restore a backup", reason="damaged"
        )
    return stated


def fetched(transaction: Transaction, *which: ColumnElement[bool]) -> list[Entry]:
    """The entries that meet some conditions on the columns of :data:`ENTRIES`, in order."""
    return [Entry(*row) for row in transaction.rows(select(*_FIELDS).where(*which).order_by(ENTRIES.c.seq))]


def of_kind(kind: str) -> ColumnElement[bool]:
    """The condition that an entry is of a kind other than a release, by its index."""
    return and_(ENTRIES.c.kind == kind, ENTRIES.c.kind != RELEASE)


def entries(transaction: Transaction) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Every entry in order, with its columns as the database has them."""
    seq: int | None = None
    query = select(*_FIELDS, *(ENTRIES.c[name] for name in COLUMNS)).order_by(ENTRIES.c.seq).limit(CHUNK)
    while True:
        rows = transaction.rows(query if seq is None else query.where(ENTRIES.c.seq > seq))
        for row in rows:
            yield Entry(*row[:5]), dict(zip(COLUMNS, row[5:], strict=True))
        if len(rows) < CHUNK:
            return
        seq = int(rows[-1][0])


def recorded(transaction: Transaction, questions: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
    """The releases that answered questions (label, query_id), where there are any."""
    query = select(ENTRIES.c.label, ENTRIES.c.query_id, *_FIELDS)
    answers = {}
    for row in matching(transaction, query, "query_id", questions):
        entry = Entry(*row[2:])
        if not entry.intact:
            raise LedgerError(ALTERED, reason="damaged")
        answers[str(row[0]), str(row[1])] = entry
    return answers


def matching(
    transaction: Transaction, query: Select[Any], column: str, wanted: Iterable[tuple[str, str]]
) -> Iterator[Any]:
    """The rows of a query on the releases whose label and a second column are one of the wanted pairs."""
    pair = tuple_(ENTRIES.c.label, ENTRIES.c[column])
    query = query.where(ENTRIES.c.kind == RELEASE)
    if column == "readings":
        query = query.where(ENTRIES.c.readings.is_not(None))  # the condition of its index
    for part in chunks(dict.fromkeys(wanted)):
        yield from transaction.rows(query.where(pair.in_(transaction.pairs(part))))


def chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    """The values, as many at a time as one statement takes."""
    every = list(values)
    for start in range(0, len(every), CHUNK):
        yield every[start : start + CHUNK]
