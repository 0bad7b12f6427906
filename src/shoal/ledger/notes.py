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

from shoal.ledger.chain import Entry, told
from shoal.ledger.journal import Journal, fetched
from shoal.ledger.storage import Transaction

KINDS = ("grant", "revoked", "receipt")


def noted(transaction: Transaction, kind: str, content: dict[str, Any]) -> Entry:
    """Append a note and return it as recorded."""
    Journal(transaction).append(kind, content)
    return fetched(transaction, "ORDER BY seq DESC LIMIT 1")[0]


def receipt(transaction: Transaction, analyst: str, question: str) -> Entry | None:
    """The receipt of an analyst for a question, where there is one."""
    which = "WHERE kind = 'receipt' AND analyst = :analyst AND query_id = :question"
    return next(iter(fetched(transaction, which, analyst=analyst, question=question)), None)


def receipts(transaction: Transaction, analyst: str | None = None) -> list[Entry]:
    """All receipts in order, or those of an analyst."""
    mine = "" if analyst is None else "AND analyst = :analyst"
    return fetched(transaction, f"WHERE kind = 'receipt' {mine} ORDER BY seq", **told(analyst=analyst))


def hashes(transaction: Transaction, after: int) -> list[str]:
    """The hashes of the entries after number ``after``, in order."""
    return [
        str(row[0]) for row in transaction.rows("SELECT hash FROM entries WHERE seq > :after ORDER BY seq", after=after)
    ]
