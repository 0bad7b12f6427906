"""Entries that spend nothing: what the service grants, and to whom an answer was given.

| kind | content |
| --- | --- |
| grant | who may ask which questions within which budget, and until when |
| revoked | the grant that ended |
| receipt | what an analyst was given: the question, what it costs, and the root of a tree over all its answers |

They are part of the chain like any other. A receipt is made once for an analyst and a question.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from shoal.ledger.chain import Entry
from shoal.ledger.journal import append, fetched, of_kind
from shoal.ledger.schema import ENTRIES
from shoal.ledger.storage import Transaction

KINDS = ("grant", "revoked", "receipt")


def noted(transaction: Transaction, kind: str, content: dict[str, Any]) -> Entry:
    """Append a note and return it as recorded."""
    return append(transaction, kind, content)


def receipts(transaction: Transaction, analyst: str | None = None) -> list[Entry]:
    """All receipts in order, or those of an analyst."""
    mine = () if analyst is None else (ENTRIES.c.analyst == analyst,)
    return fetched(transaction, of_kind("receipt"), *mine)


def hashes(transaction: Transaction, after: int) -> list[str]:
    """The hashes of the entries after number ``after``, in order."""
    query = select(ENTRIES.c.hash).where(ENTRIES.c.seq > after).order_by(ENTRIES.c.seq)
    return [str(row[0]) for row in transaction.rows(query)]
