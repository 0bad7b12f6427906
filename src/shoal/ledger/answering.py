"""Answering one question inside a transaction: from the record, or by a new release within all budgets."""

from __future__ import annotations

import numpy as np

from shoal.errors import InputError
from shoal.ledger import journal
from shoal.ledger.books import Books
from shoal.ledger.chain import Entry
from shoal.ledger.journal import Journal
from shoal.ledger.questions import Question
from shoal.ledger.registry import drawn
from shoal.ledger.storage import Transaction
from shoal.mechanisms.mechanism import Mechanism
from shoal.validation import FloatArray

OTHER_QUESTION = (
    "query_id was already used for another question about this label (another mechanism or another answer); "
    "give the new question a new query_id"
)


def answered(
    books: Books, transaction: Transaction, writer: Journal, mechanism: Mechanism, question: Question
) -> FloatArray:
    entry = journal.recorded(transaction, question.label, question.query_id)
    if entry is not None:
        return _again(books, transaction, writer, mechanism, question, entry)
    books.registry.admit(transaction, writer, mechanism)
    books.refuse_reuse(transaction, mechanism, question)
    limits = books.limits(transaction, question.label, question.analyst)
    tv = mechanism.finite_precision_tv
    books.within(transaction, limits, (mechanism.digest, tv, 1))
    released = drawn(mechanism, question.values, question.label)
    content = {
        "label": question.label,
        "query_id": question.query_id,
        "mechanism": mechanism.digest,
        "answer": question.answer,
        "tv": tv,
        "released": released.tolist(),
    }
    if question.analyst is not None:
        content["analyst"] = question.analyst
    writer.append("release", content)
    return released


def _again(
    books: Books, transaction: Transaction, writer: Journal, mechanism: Mechanism, question: Question, entry: Entry
) -> FloatArray:
    """The recorded answer; showing it to someone new counts for them."""
    content = entry.content
    if content["mechanism"] != mechanism.digest or content["answer"] != question.answer:
        raise InputError(OTHER_QUESTION)
    if not was_shown(transaction, entry, question.analyst):
        budgets = books.in_force(transaction)
        limits = list(budgets.of_analysts(question.label, question.analyst))
        books.within(transaction, limits, (content["mechanism"], content["tv"], 1))
        shown = {"label": question.label, "release": entry.seq, "mechanism": content["mechanism"]}
        if question.analyst is not None:
            shown["analyst"] = question.analyst
        writer.append("shown", shown)
    return np.array(content["released"], dtype=np.float64)


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
