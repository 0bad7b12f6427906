"""Answering one question inside a transaction: from the record, or by a new release within all budgets."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.ledger import journal
from shoal.ledger.books import Books, limits_on
from shoal.ledger.chain import Entry
from shoal.ledger.journal import Journal
from shoal.ledger.questions import Question
from shoal.ledger.registry import drawn
from shoal.ledger.storage import Transaction
from shoal.ledger.tallies import Tallies
from shoal.mechanism_reader import Releaser
from shoal.validation import FloatArray

OTHER_QUESTION = (
    "query_id was already used for another question about this label (another mechanism or another answer); "
    "give the new question a new query_id"
)


def answered(books: Books, tallies: Tallies, writer: Journal, mechanism: Releaser, question: Question) -> FloatArray:
    """The recorded answer, or a new one within all budgets; what is written is told to ``tallies``."""
    transaction = tallies.transaction
    entry = journal.recorded(transaction, question.label, question.query_id)
    if entry is not None:
        released, shown = again(books, transaction, tallies, mechanism, question, entry)
        if shown is not None:
            writer.append("shown", shown)
            tallies.clear()
        return released
    books.registry.admit(transaction, writer, mechanism)
    books.refuse_apart(tallies, mechanism, [(question.label, question.query_id)])
    earlier = journal.matching(transaction, "mechanism", ("label", "answer"), [(question.label, question.answer)])
    books.refuse_reuse(transaction, mechanism, {str(row[0]) for row in earlier})
    limits = limits_on(books.in_force(transaction), tallies, question.label, question.analyst)
    tv = mechanism.finite_precision_tv
    books.within(limits, tallies, question.label, (mechanism.digest, tv, 1, question.analyst is not None))
    released = drawn(mechanism, question.values, question.label)
    writer.append("release", content(mechanism, tv, question, released.tolist()))
    tallies.written(question.label, mechanism.digest, tv, question.analyst)
    return released


def content(mechanism: Releaser, tv: float, question: Question, released: list[float]) -> dict[str, Any]:
    """The entry of a release."""
    found = {
        "label": question.label,
        "query_id": question.query_id,
        "mechanism": mechanism.digest,
        "answer": question.answer,
        "tv": tv,
        "released": released,
    }
    if question.analyst is not None:
        found["analyst"] = question.analyst
    if question.readings is not None:
        found["readings"] = question.readings
    return found


def again(
    books: Books,
    transaction: Transaction,
    tallies: Tallies,
    mechanism: Releaser,
    question: Question,
    entry: Entry,
) -> tuple[FloatArray, dict[str, Any] | None]:
    """The recorded answer, and the entry to write where it is shown to someone new: that counts for them."""
    found = entry.content
    if found["mechanism"] != mechanism.digest or found.get("answer") != question.answer:
        raise InputError(OTHER_QUESTION)
    shown = None
    if not was_shown(transaction, entry, question.analyst):
        budgets = books.in_force(transaction)
        limits = list(budgets.of_analysts(question.label, question.analyst))
        named = question.analyst is not None
        books.within(limits, tallies, question.label, (found["mechanism"], found["tv"], 1, named))
        shown = {"label": question.label, "release": entry.seq, "mechanism": found["mechanism"]}
        if question.analyst is not None:
            shown["analyst"] = question.analyst
    return np.array(found["released"], dtype=np.float64), shown


def was_shown(transaction: Transaction, entry: Entry, analyst: str | None) -> bool:
    """Whether an answer was already shown to the analyst, or to everyone."""
    told = entry.content.get("analyst")
    if told is None or told == analyst:
        return True
    row = transaction.one(
        "SELECT 1 FROM entries WHERE kind = 'shown' AND label = :label AND release = :release "
        "AND (analyst IS NULL OR analyst = :analyst)",
        label=entry.content["label"],
        release=entry.seq,
        analyst=analyst,
    )
    return row is not None
