"""Entries of the ledger, each bound to the one before it by a hash.

    hash = SHA-256("shoal ledger 1", seq, kind, hash of the entry before, payload)

The payload is canonical JSON. Changing, removing, inserting or moving an entry breaks the chain from there on. Someone
who may rewrite the whole database can also rewrite the whole chain: against that, write :class:`Head` down elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, literal_column, select, tuple_, update

from shoal.errors import InputError, LedgerError
from shoal.product.ledger.storage import CHUNK, ENTRIES, HEAD, LOOKED_UP, Transaction, split_into_chunks

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Select

#: Part of every hash; changes if what is hashed ever changes.
FORMAT = "shoal ledger 1"
#: What stands before the first entry.
START = "0" * 64


@dataclass(frozen=True)
class Head:
    """The number of entries and the hash of the last: a seal on everything before."""

    seq: int
    hash: str

    @classmethod
    def parse(cls, head: Head | str) -> Head:
        """Read a head from its text, a number, a colon and 64 hexadecimal digits; InputError for any other text."""
        if isinstance(head, Head):
            return head
        seq, _, digest = str(head).partition(":")
        if not seq.isdigit() or len(digest) != 64:
            raise InputError("head must be a Head, or its text: a number, a colon and 64 hexadecimal digits")
        return cls(int(seq), digest)

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


@dataclass(frozen=True)
class Entry:
    """One line of the ledger; ``payload`` is JSON text as it was hashed."""

    seq: int
    kind: str
    payload: str
    previous: str
    hash: str

    @property
    def content(self) -> dict[str, Any]:
        """The payload parsed from JSON, as a dictionary; empty if it is no JSON object."""
        parsed = json.loads(self.payload)
        return parsed if isinstance(parsed, dict) else {}

    @property
    def head(self) -> Head:
        return Head(self.seq, self.hash)

    @property
    def is_intact(self) -> bool:
        """Whether the entry's hash is the one of its number, kind, payload and predecessor."""
        return self.hash == entry_hash(self.seq, self.kind, self.previous, self.payload)


def lookup_columns(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a payload that the database stores as columns for lookup; None for absent ones."""
    return {name: content.get(name) for name in LOOKED_UP}


def next_entry(head: Head, kind: str, content: dict[str, Any]) -> Entry:
    """The entry of this kind and content that follows a head, with its hash."""
    payload = canonical_json(content)
    seq = head.seq + 1
    return Entry(seq, kind, payload, head.hash, entry_hash(seq, kind, head.hash, payload))


def canonical_json(content: dict[str, Any]) -> str:
    """JSON with one spelling: sorted keys, no spaces, ASCII, shortest digits that give the same double back."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def entry_hash(seq: int, kind: str, previous: str, payload: str) -> str:
    """SHA-256 of an entry's format, number, kind, predecessor's hash and payload, in hexadecimal."""
    text = "\n".join((FORMAT, str(seq), kind, previous, payload))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ---------------------------------------------------------------------- the chain in its database

#: The kind of a release as partial indexes spell it.
RELEASE: ColumnElement[str] = literal_column("'release'")
#: Kinds that spend nothing: who may ask, which grant ended, and what an analyst was given, once for a question.
NOTES = ("grant", "revoked", "receipt")
ALTERED = "ledger: the recorded answer was altered; run verify() and restore a backup"
_FIELDS = tuple(ENTRIES.c[name] for name in ("seq", "kind", "payload", "previous", "hash"))


class Journal:
    """The end of the chain, held by the only writer. Entries are linked at once and stored by :meth:`write`."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._head = read_intact_head(transaction)
        self._batch = self._head.seq + 1
        self._time = datetime.now(UTC).isoformat(timespec="microseconds")
        self._rows: list[dict[str, Any]] = []
        self._salt = secrets.token_hex(16)

    def append(self, kind: str, content: dict[str, Any]) -> tuple[Entry, dict[str, Any]]:
        """The next entry, and its content. It says when it was written, and nothing depends on that.

        The first of a transaction is salted: who holds the hash before and the hash after it, as an analyst does with
        receipts, cannot try out what was recorded in between. The batch of an entry is the number of its transaction:
        what that wrote was chosen together, before any of it was shown.
        """
        stamped = {**content, "time": self._time}
        if self._salt:
            stamped["salt"], self._salt = self._salt, ""
        if kind == "release":
            stamped["batch"] = self._batch
        entry = next_entry(self._head, kind, stamped)
        self._rows.append(vars(entry) | lookup_columns(stamped))
        self._head = entry.head
        return entry, stamped

    def write(self) -> None:
        """Store the entries since the last time."""
        if self._rows:
            self._transaction.insert(ENTRIES, *self._rows)
            self._transaction.execute(update(HEAD).values(seq=self._head.seq, hash=self._head.hash))
            self._rows = []


def append_note(transaction: Transaction, kind: str, content: dict[str, Any]) -> Entry:
    """Add one entry that spends no budget to the chain, and return it as recorded."""
    journal = Journal(transaction)
    entry, _ = journal.append(kind, content)
    journal.write()
    return entry


def read_head(transaction: Transaction) -> Head:
    """The number and hash of the last entry, from the table of the head."""
    row = transaction.first(select(HEAD.c.seq, HEAD.c.hash))
    if row is None:
        raise LedgerError("ledger: the head row is missing; run verify() and restore a backup", reason="damaged")
    return Head(int(row[0]), str(row[1]))


def read_intact_head(transaction: Transaction) -> Head:
    """The head, compared with the last entry; LedgerError if they differ, since nothing may follow then."""
    stated = read_head(transaction)
    last = transaction.first(select(*_FIELDS).order_by(ENTRIES.c.seq.desc()).limit(1))
    if stated.seq == 0 and last is None:
        return stated
    if last is None or Entry(*last).head != stated or not Entry(*last).is_intact:
        raise LedgerError(
            "ledger: the last entry is not the one the head names; run verify() and restore a backup", reason="damaged"
        )
    return stated


def read_entries(transaction: Transaction) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """All entries in order, each with its lookup columns as the database has them."""
    seq: int | None = None
    query = select(*_FIELDS, *(ENTRIES.c[name] for name in LOOKED_UP)).order_by(ENTRIES.c.seq).limit(CHUNK)
    while True:
        rows = transaction.rows(query if seq is None else query.where(ENTRIES.c.seq > seq))
        for row in rows:
            yield Entry(*row[:5]), dict(zip(LOOKED_UP, row[5:], strict=True))
        if len(rows) < CHUNK:
            return
        seq = int(rows[-1][0])


def read_hashes(transaction: Transaction, after: int) -> list[str]:
    """Hashes of the entries after number ``after``, in order."""
    query = select(ENTRIES.c.hash).where(ENTRIES.c.seq > after).order_by(ENTRIES.c.seq)
    return [str(row[0]) for row in transaction.rows(query)]


def kind_condition(kind: str) -> ColumnElement[bool]:
    """SQL condition that selects entries of a kind other than "release", by the index of kinds."""
    return and_(ENTRIES.c.kind == kind, ENTRIES.c.kind != RELEASE)


def entries_of_kind(transaction: Transaction, kind: str, **columns: str) -> list[Entry]:
    """All entries of a kind other than "release", in order, whose columns have the given values."""
    which = (ENTRIES.c[name] == value for name, value in columns.items())
    query = select(*_FIELDS).where(kind_condition(kind), *which).order_by(ENTRIES.c.seq)
    return [Entry(*row) for row in transaction.rows(query)]


def last_entry_of_kind(transaction: Transaction, kind: str) -> Entry | None:
    """The last entry of a kind other than "release"; None if there is none."""
    row = transaction.first(select(*_FIELDS).where(kind_condition(kind)).order_by(ENTRIES.c.seq.desc()).limit(1))
    return None if row is None else Entry(*row)


def recorded_answers(transaction: Transaction, questions: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
    """Questions (label, query_id) -> the release entries that answered them; LedgerError for altered ones."""
    query = select(ENTRIES.c.label, ENTRIES.c.query_id, *_FIELDS)
    answers = {}
    for row in match_releases(transaction, query, "query_id", questions):
        entry = Entry(*row[2:])
        if not entry.is_intact:
            raise LedgerError(ALTERED, reason="damaged")
        answers[str(row[0]), str(row[1])] = entry
    return answers


def match_releases(
    transaction: Transaction, query: Select[Any], column: str, wanted: Iterable[tuple[str, str]]
) -> Iterator[Any]:
    """Rows of a query on release entries whose label and second column are one of the wanted pairs."""
    pair = tuple_(ENTRIES.c.label, ENTRIES.c[column])
    query = query.where(ENTRIES.c.kind == RELEASE)
    if column == "readings":
        query = query.where(ENTRIES.c.readings.is_not(None))  # the condition of its index
    for part in split_into_chunks(dict.fromkeys(wanted)):
        yield from transaction.rows(query.where(pair.in_(transaction.pair_query(part))))
