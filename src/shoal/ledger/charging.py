"""Questions answered inside a transaction: from the record, or by a release within all budgets.

Many are answered together, in a few statements for all of them. The outcome is that of asking for one after the other,
in their order. What is decided for a question counts for those after it before it is written; everything is written at
the end.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError, LedgerError
from shoal.ledger import crowds, journal
from shoal.ledger.books import Books, limits_on
from shoal.ledger.bounds import MechanismBound, mechanism_bound
from shoal.ledger.budgets import Budgets
from shoal.ledger.chain import Entry, told
from shoal.ledger.journal import Journal
from shoal.ledger.questions import Question
from shoal.ledger.storage import Transaction
from shoal.ledger.tallies import Tallies
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.reader import Releaser
from shoal.validation import FloatArray

OTHER_QUESTION = (
    "query_id was already used for another question about this label (another mechanism or another answer); "
    "give the new question a new query_id"
)


def released_values(mechanism: Releaser, drawn: Any, count: int) -> FloatArray:
    """``drawn`` as (count, k) numbers that the mechanism can release."""
    values = validation.array(ndim=2, drawn=drawn)
    if values.shape != (count, mechanism.classes.n_dims):
        raise InputError(f"drawn must hold one row of {mechanism.classes.n_dims} entries per answer, {count} rows")
    if not mechanism.can_release(values):
        raise InputError("drawn: an entry does not lie on the mechanism's grid; draw with mechanism.release")
    return values


def refuse_seen(transaction: Transaction, pairs: list[tuple[str, str]], series: str) -> None:
    """Refuse labels and readings of which an answer was released under a name that does not begin with ``series``."""
    found = {}
    for label, query_id, payload in journal.matching(
        transaction, "label, query_id, payload", ("label", "readings"), pairs
    ):
        if not series or not str(query_id).startswith(series):
            found[str(label)] = (str(json.loads(payload)["time"]), str(query_id))
    if found:
        when, name = min(found.values())
        raise InputError(
            f"readings: {len(found)} label(s) of this release had an answer from the same readings released on "
            f"{when[:10]} at {when[11:16]} UTC, as {name!r}. The same readings under another name are the same "
            "question; what was released then stands. A new release from them is made where that one was, with "
            "--again, and is charged. Nothing was released and nothing was charged"
        )


def bound_for(
    books: Books, transaction: Transaction, mechanism: Releaser, asked: list[Question], given: MechanismBound | None
) -> MechanismBound | None:
    """The bound to decide by: the one given, or a new one where that is less work than composing label by label.

    Where there is none, what the labels' own compositions share is computed instead, before anything is locked.
    """
    if given is not None:
        if not isinstance(given, MechanismBound) or given.digest != mechanism.digest:
            raise InputError("bounds must be the mechanism_bound of this very mechanism")
        return given
    labels = {question.label for question in asked}
    budgets = books.in_force(transaction)
    around = books.tallies(transaction, mechanism).neighbors
    epsilons = {limit.epsilon for q in asked for limit in budgets.limits(q.label, q.analyst, around(q.label))}
    known = books.registry.bound(transaction, mechanism.digest)
    if not epsilons or (known is not None and epsilons <= set(known.epsilons) & set(known.table_epsilons)):
        return None
    graph = mechanism.graph
    inside = np.array([name in labels for name in graph.labels])
    # Composing label by label looks at an edge from each end that is asked about.
    if int(inside[graph.edges].sum()) >= graph.n_edges and len(epsilons) <= 4:
        return mechanism_bound(mechanism, sorted(epsilons))
    for label in labels:
        books.composer.prepare(mechanism, label)
    return None


def all_settled(books: Books, budgets: Budgets, tallies: Tallies, mechanism: Releaser, fresh: list[Question]) -> bool:
    """Whether bounds show at once that all these releases stay within all budgets; tried where labels have several.

    Some of the releases tell no more than all of them, so that what holds after the last holds after each.
    """
    times = Counter(label for label, _ in {(q.label, q.query_id) for q in fresh})
    if times.total() == len(times):
        return False
    named = any(q.analyst is not None for q in fresh)
    coming = {label: (mechanism.digest, mechanism.finite_precision_tv, n, named) for label, n in times.items()}
    return all(
        books.settled(limits_on(budgets, tallies, label, analyst), tallies, coming)
        for label, analyst in dict.fromkeys((q.label, q.analyst) for q in fresh)
    )


def charged(
    books: Books,
    transaction: Transaction,
    mechanism: Releaser,
    asked: list[Question],
    elsewhere: FloatArray | None = None,
    bound: MechanismBound | None = None,
    series: str = "",
) -> FloatArray:
    """One answer per question: the recorded one, or a new one within all budgets. Entries are written.

    New answers are those drawn ``elsewhere``, (m, k), or drawn here once they are allowed.
    """
    writer = Journal(transaction)
    on_record = journal.recorded_many(transaction, [(q.label, q.query_id) for q in asked])
    fresh = [q for q in asked if (q.label, q.query_id) not in on_record]
    refuse_seen(transaction, [(q.label, q.readings) for q in fresh if q.readings is not None], series)
    if fresh:
        crowds.refuse_apart(transaction, mechanism.graph, list(dict.fromkeys(q.label for q in fresh)))
        books.registry.admit(transaction, writer, mechanism)
        if bound is not None:
            books.registry.keep(transaction, bound)
    earlier: dict[tuple[str, str], set[str]] = {}
    for label, answer, digest in journal.matching(
        transaction, "label, answer, mechanism", ("label", "answer"), [(q.label, q.answer) for q in fresh]
    ):
        earlier.setdefault((str(label), str(answer)), set()).add(str(digest))
    budgets, tallies = books.in_force(transaction), books.tallies(transaction, mechanism)
    books.refuse_apart(tallies, mechanism, [(q.label, q.query_id) for q in fresh])
    tallies.read(name for q in fresh for name in (q.label, *tallies.neighbors(q.label)))
    tv = mechanism.finite_precision_tv
    settled = all_settled(books, budgets, tallies, mechanism, fresh)
    coming: list[tuple[str, dict[str, Any]]] = []
    done: dict[tuple[str, str], tuple[str, FloatArray]] = {}
    for row, question in enumerate(asked):
        name = (question.label, question.query_id)
        if name in done:
            if done[name][0] != question.answer:
                raise InputError(OTHER_QUESTION)
            continue
        if name in on_record:
            recorded, shown = _again(books, transaction, tallies, mechanism, question, on_record[name])
            if shown is not None:
                writer.extend([*coming, ("shown", shown)])
                coming.clear()
                tallies.clear()
            done[name] = (question.answer, recorded)
            continue
        same = (question.label, question.answer)
        books.refuse_reuse(transaction, mechanism, earlier.get(same, ()))
        if not settled:
            extra = (mechanism.digest, tv, 1, question.analyst is not None)
            books.within(limits_on(budgets, tallies, question.label, question.analyst), tallies, question.label, extra)
        values = _drawn(mechanism, question) if elsewhere is None else elsewhere[row]
        content = told(
            label=question.label,
            query_id=question.query_id,
            mechanism=mechanism.digest,
            answer=question.answer,
            tv=tv,
            released=values.tolist(),
            analyst=question.analyst,
            readings=question.readings,
        )
        coming.append(("release", content))
        tallies.add(question.label, mechanism.digest, tv, question.analyst)
        earlier.setdefault(same, set()).add(mechanism.digest)
        done[name] = (question.answer, values)
    writer.extend(coming)
    return np.array([done[q.label, q.query_id][1] for q in asked]).reshape(len(asked), mechanism.classes.n_dims)


def _drawn(mechanism: Releaser, question: Question) -> FloatArray:
    """A released answer, with noise from the mechanism's cryptographic source."""
    values, label = question.values, question.label
    given = mechanism.release(label) if isinstance(mechanism, Codebook) else mechanism.release(values, label)
    released = validation.array(ndim=1, released=given)
    if released.shape != values.shape:
        raise LedgerError("ledger: the mechanism returned an answer of another length; nothing was recorded")
    return released


def _again(
    books: Books, transaction: Transaction, tallies: Tallies, mechanism: Releaser, question: Question, entry: Entry
) -> tuple[FloatArray, dict[str, Any] | None]:
    """The recorded answer, and the entry to write where it is shown to someone new: that counts for them."""
    found, label, analyst = entry.content, question.label, question.analyst
    if found["mechanism"] != mechanism.digest or found.get("answer") != question.answer:
        raise InputError(OTHER_QUESTION)
    shown = None
    if not was_shown(transaction, entry, analyst):
        limits = list(books.in_force(transaction).of_analysts(label, analyst))
        books.within(limits, tallies, label, (found["mechanism"], found["tv"], 1, analyst is not None))
        shown = told(label=label, release=entry.seq, mechanism=found["mechanism"], analyst=analyst)
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
