"""Reading and appending entries inside a transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from shoal.errors import LedgerError
from shoal.ledger.chain import COLUMNS, START, Entry, Head, follow
from shoal.ledger.storage import CHUNK, Transaction

_FIELDS = "seq, kind, payload, previous, hash"

#: Kinds of entries that tell when something was chosen.
CHOSEN = ("release", "shown", "declared")
ALTERED = "ledger: the recorded answer was altered; run verify() and restore a backup"


class Journal:
    """The end of the chain, held by the only writer."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._head = checked_head(transaction)
        self._batch = batch(transaction)

    def append(self, kind: str, content: dict[str, Any]) -> None:
        """Add an entry. The time is told, and nothing depends on it."""
        self.extend([(kind, content)])

    def extend(self, several: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Add entries of the given kinds and contents, in their order."""
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        head, rows = self._head, []
        for kind, content in several:
            stamped = {**content, "time": time}
            if kind in CHOSEN:
                stamped["batch"] = self._batch
            entry = follow(head, kind, stamped)
            rows.append(vars(entry) | {name: stamped.get(name) for name in COLUMNS})
            head = entry.head
        if rows:
            self._transaction.insert("entries", *rows)
            self._transaction.run("UPDATE head SET seq = :seq, hash = :hash", seq=head.seq, hash=head.hash)
            self._head = head


def batch(transaction: Transaction) -> int:
    """The number of this transaction: what it writes was chosen together, before any of it was shown."""
    if transaction.first is None:
        transaction.first = head(transaction).seq + 1
    return transaction.first


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


def fetched(transaction: Transaction, which: str, **parameters: Any) -> list[Entry]:
    """Entries by the rest of a query."""
    return [Entry(*row) for row in transaction.rows(f"SELECT {_FIELDS} FROM entries {which}", **parameters)]


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
    """The release or the renewal that answered a question about a label, if there is one."""
    return recorded_many(transaction, [(label, query_id)]).get((label, query_id))


def recorded_many(transaction: Transaction, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Entry]:
    """The releases that answered questions (label, query_id), or renewed an answer, where there are any."""
    found = {}
    for row in matching(transaction, f"label, query_id, {_FIELDS}", ("label", "query_id"), asked):
        found[str(row[0]), str(row[1])] = _intact(Entry(*row[2:]))
    wanted = {name for name in asked if name not in found}
    for label, entries in _about(transaction, "renewed", list(dict.fromkeys(label for label, _ in wanted))).items():
        found |= {
            (label, one.content["query_id"]): one for one in entries if (label, one.content["query_id"]) in wanted
        }
    return found


def releases_of(transaction: Transaction, labels: Sequence[str]) -> dict[str, list[Entry]]:
    """All releases about some labels, in their order."""
    return _about(transaction, "release", labels)


def _about(transaction: Transaction, kind: str, labels: Sequence[str]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for start in range(0, len(labels), CHUNK):
        for row in transaction.rows(
            f"SELECT label, {_FIELDS} FROM entries WHERE kind = '{kind}' AND label IN "
            f"({transaction.listed('labels')}) ORDER BY seq",
            labels=json.dumps(list(labels[start : start + CHUNK])),
        ):
            found.setdefault(str(row[0]), []).append(_intact(Entry(*row[1:])))
    return found


def _intact(entry: Entry) -> Entry:
    if not entry.intact:
        raise LedgerError(ALTERED)
    return entry


def matching(
    transaction: Transaction, columns: str, names: tuple[str, str], wanted: Sequence[tuple[str, str]]
) -> Iterator[Any]:
    """Columns of the releases whose two named columns hold one of the wanted pairs."""
    distinct = list(dict.fromkeys(wanted))
    there = " AND readings IS NOT NULL" if names[1] == "readings" else ""  # the condition of its index
    for start in range(0, len(distinct), CHUNK):
        yield from transaction.rows(
            f"SELECT {columns} FROM entries WHERE kind = 'release' AND ({names[0]}, {names[1]}) IN "
            f"({transaction.listed_pairs('wanted')}){there}",
            wanted=json.dumps(distinct[start : start + CHUNK]),
        )
