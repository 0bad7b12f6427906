"""Draws that are kept: charged once, and looked up in every later day's curves for nothing.

A label's draw y from a codebook was charged when it was released. A later day's answer about it is that day's curve y,
a function of y and of all members' data and never of the label, so nothing is charged (docs/theory.md, section 11.4).
What has to hold is checked here and again by verification: the draw is on record, and the later codebook continues the
one it was drawn from (:meth:`Codebook.continues`), so that the odds that others are held against are the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.errors import InputError, LedgerError
from shoal.ledger import journal
from shoal.ledger.books import Books
from shoal.ledger.chain import told
from shoal.ledger.charging import OTHER_QUESTION, was_shown
from shoal.ledger.journal import Journal
from shoal.ledger.storage import Transaction
from shoal.mechanism.codebook import Codebook
from shoal.validation import FloatArray


def renewed(
    books: Books,
    transaction: Transaction,
    writer: Journal,
    book: Codebook,
    asked: Sequence[tuple[str, str]],
    analyst: str | None,
) -> list[FloatArray | None]:
    """The day's answer for each (label, query_id) whose draw is kept, on record from now on; None for the others."""
    on_record = journal.recorded_many(transaction, asked)
    drawn = journal.releases_of(transaction, [label for label, name in asked if (label, name) not in on_record])
    coming: list[tuple[str, dict[str, Any]]] = []
    found: list[FloatArray | None] = []
    for label, name in asked:
        entry = on_record.get((label, name))
        if entry is not None:
            if entry.content["mechanism"] != book.digest or not was_shown(transaction, entry, analyst):
                raise InputError(OTHER_QUESTION)
            found.append(np.array(entry.content["released"]))
            continue
        answer = None
        for first in reversed(drawn.get(label, ())):
            before = books.registry.mechanism(transaction, first.content["mechanism"])
            if isinstance(before, Codebook) and was_shown(transaction, first, analyst):
                answer = looked_up(book, before, label, first.content["released"])
            if answer is not None:
                kept = told(
                    label=label,
                    query_id=name,
                    mechanism=book.digest,
                    release=first.seq,
                    released=answer.tolist(),
                    analyst=analyst,
                )
                coming.append(("renewed", kept))
                break
        found.append(answer)
    if coming:
        books.registry.admit(transaction, writer, book)
        writer.extend(coming)
    return found


def looked_up(book: Codebook, before: Codebook, label: str, released: Sequence[float]) -> FloatArray | None:
    """The curve of a kept draw in a later codebook; None where that does not continue the one it was drawn from."""
    if label not in before.labels or label not in book.labels or not book.continues(before, label):
        return None
    position = before.drawn(label, np.array(released, dtype=np.float64))
    if position is None:
        raise LedgerError("ledger: a recorded answer is none of its codebook's curves; run verify()")
    return np.array(book.curves(label)[position])
