"""Questions answered inside a transaction: from the record, or by a release within all budgets.

The entries that answer them are applied to the state of the ledger, every budget is held against what that gives, and
either all of it is written or nothing. What a pair has spent never falls as releases are added, so that what holds
after the last of them holds after each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import or_, select

from shoal import validation
from shoal.errors import BudgetError, InputError
from shoal.ledger import chain, crowds
from shoal.ledger.accounts import Cost, account, exceeding
from shoal.ledger.bounds import HEADROOM, MechanismBound, mechanism_bound
from shoal.ledger.budgets import Budget, Limit
from shoal.ledger.chain import Entry, present
from shoal.ledger.memory import graph_digest
from shoal.ledger.questions import Question, later, word
from shoal.ledger.state import State
from shoal.ledger.storage import ENTRIES, Transaction
from shoal.mechanism.releasable import Releasable
from shoal.rounding import lower, upper
from shoal.validation import FloatArray

NO_BUDGET = "no budget is set that covers this label: call budget(epsilon=..., delta=...) first"
NOTHING_CHARGED = "Nothing was released and nothing was charged"
NOTHING_RECORDED = "Nothing was recorded"
OTHER_QUESTION = (
    "query_id was already used for another question about this label (another mechanism or another answer); "
    "give the new question a new query_id"
)
SAME_ANSWER = (
    "answer: this very answer was already released about the label under another query_id. Its own randomness protects "
    "once only, so the two releases are not independent: ask with the earlier query_id, or stack both into one release "
    "with GaussianClasses.joint"
)


def charged(
    state: State,
    mechanism: Releasable,
    questions: list[Question],
    drawn: FloatArray,
    bound: MechanismBound | None = None,
    series: str = "",
) -> FloatArray:
    """One answer per question: the recorded one, or the one ``drawn``, (m, k), within all budgets.

    Entries are appended to the state.
    """
    transaction = state.transaction
    on_record = chain.recorded(transaction, [(q.label, q.query_id) for q in questions])
    fresh = [q for q in questions if (q.label, q.query_id) not in on_record]
    refuse_seen(transaction, [(q.label, q.readings) for q in fresh if q.readings is not None], series)
    if fresh:
        _admit(state, mechanism, [q.label for q in fresh])
        if bound is not None:
            state.store_bound(bound)
    tv = mechanism.finite_precision_tv
    answers: dict[tuple[str, str], tuple[str, FloatArray]] = {}
    decided: dict[tuple[str, str | None], bool] = {}  # whether the label itself was charged
    for row, question in enumerate(questions):
        name, analyst = (question.label, question.query_id), question.analyst
        if name in answers:
            if answers[name][0] != question.answer:
                raise InputError(OTHER_QUESTION)
            continue
        if name in on_record:
            values, kind, content = _again(transaction, mechanism, question, on_record[name])
        else:
            values, kind = drawn[row], "release"
            content = present(
                label=question.label,
                query_id=question.query_id,
                mechanism=mechanism.digest,
                answer=question.answer,
                tv=tv,
                released=values.tolist(),
                analyst=analyst,
                readings=question.readings,
            )
        answers[name] = (question.answer, values)
        if content is not None:
            state.append(kind, content)
            decided[question.label, analyst] = kind == "release" or decided.get((question.label, analyst), False)
    _refuse_same_answers(state, mechanism, fresh)
    for (label, analyst), whole in decided.items():
        limits = limits_on(state, label, analyst) if whole else list(state.budgets.of_analysts(label, analyst))
        _hold(state, limits)
    return np.array([answers[q.label, q.query_id][1] for q in questions]).reshape(len(questions), mechanism.n_dims)


def _admit(state: State, mechanism: Releasable, labels: Sequence[str]) -> None:
    """Refuse a mechanism that may not be used for some labels; record it at its first use."""
    state.hold(mechanism)
    graph, new = _refuse_apart(state, mechanism, labels)
    if new:
        for name in mechanism.graph.labels:
            word(label=name)
        state.record(mechanism, graph)
    state.read(labels)
    state.read(name for label in labels for name in state.neighbors(label))


def refuse_apart(state: State, mechanisms: Iterable[Releasable]) -> None:
    """Refuse mechanisms that could not be used one after the other, each for all its labels."""
    for mechanism in mechanisms:
        state.hold(mechanism)
        graph, _ = _refuse_apart(state, mechanism, mechanism.graph.labels)
        state.join(mechanism.digest, graph)


def _refuse_apart(state: State, mechanism: Releasable, labels: Sequence[str]) -> tuple[str, bool]:
    """Refuse a mechanism without neighbors that some labels have on record, in crowds or through mechanisms.

    One that is not on record yet is held against all its labels. Returns its graph's digest, and whether it is new.
    """
    new = not state.has(mechanism.digest)
    graph = graph_digest(mechanism.graph) if new else state.graph_name(mechanism.digest)
    names = mechanism.graph.labels if new else list(dict.fromkeys(labels))
    state.read(names)
    crowds.refuse_apart(state.transaction, mechanism.graph, list(dict.fromkeys(labels)))
    if any(state.of(name).readings.spent for name in names):
        raise InputError(
            "labels: readings of a label of the mechanism were released under the readings' promise, which does not "
            f"cover answers made from them. {NOTHING_CHARGED}"
        )
    lacking = state.lacking(mechanism.graph, graph, names)
    if lacking:
        raise InputError(
            f"mechanism: its graph lacks neighbors: {lacking} label(s) have neighbors on record in this ledger that it "
            "does not join them to, so that nothing hides them among each other. New labels may join, but two that "
            "were neighbors stay neighbors, under any name: design it with the neighbors as they are now. "
            f"{NOTHING_CHARGED}"
        )
    return graph, new


def limits_on(state: State, label: str, analyst: str | None) -> list[Limit]:
    """Everything a release must stay within; there must be something."""
    if not state.budgets.cover(label):
        raise InputError(NO_BUDGET)
    return state.budgets.limits(label, analyst, state.neighbors(label))


def _hold(state: State, limits: list[Limit]) -> None:
    """Raise unless every limit holds."""
    for limit in limits:
        spent = exceeding(state, limit, HEADROOM)
        if spent is None:
            continue
        so_far = account(State(state.transaction, state.memory), limit)
        chosen = " (adaptive: it holds whatever was chosen in the light of earlier answers)"
        raise BudgetError(
            f"{limit.name}: this release would raise δ({limit.epsilon:g}) to {upper(spent)}, above its budget "
            f"of {limit.delta:g}{chosen if limit.mode == 'adaptive' else ''}. Spent so far: "
            f"{upper(so_far.spent)}; remaining: {lower(so_far.remaining)}. {NOTHING_CHARGED}",
            remaining=so_far.remaining,
            epsilon=limit.epsilon,
            limit=limit.name,
        )


def _refuse_same_answers(state: State, mechanism: Releasable, fresh: list[Question]) -> None:
    """Refuse fresh noise on a random answer: it is not an independent release."""
    names = [(q.label, q.answer) for q in {(q.label, q.query_id): q for q in fresh}.values()]
    twice = len(set(names)) < len(names)
    query = select(ENTRIES.c.mechanism)
    earlier = {str(row[0]) for row in chain.matching(state.transaction, query, "answer", names)}
    used = [state.mechanism(digest) for digest in earlier]
    if ((twice or earlier) and not mechanism.constant) or not all(other.constant for other in used):
        raise InputError(SAME_ANSWER)


def _again(
    transaction: Transaction, mechanism: Releasable, question: Question, entry: Entry
) -> tuple[FloatArray, str, dict[str, Any] | None]:
    """The recorded answer, and the entry to write where it is shown to someone new: that counts for them."""
    content = entry.content
    if content["mechanism"] != mechanism.digest or content.get("answer") != question.answer:
        raise InputError(OTHER_QUESTION)
    shown = None
    if not was_shown(transaction, entry, question.analyst):
        shown = present(
            label=question.label,
            release=entry.seq,
            mechanism=mechanism.digest,
            tv=content["tv"],
            analyst=question.analyst,
        )
    return np.array(content["released"], dtype=np.float64), "shown", shown


def was_shown(transaction: Transaction, entry: Entry, analyst: str | None) -> bool:
    """Whether an answer was already shown to the analyst, or to everyone."""
    content = entry.content
    if content.get("analyst") in (None, analyst):
        return True
    row = transaction.one(
        select(ENTRIES.c.seq).where(
            ENTRIES.c.kind == chain.SHOWN,
            ENTRIES.c.label == content["label"],
            ENTRIES.c.release == entry.seq,
            or_(ENTRIES.c.analyst.is_(None), ENTRIES.c.analyst == analyst),
        )
    )
    return row is not None


def released_values(mechanism: Releasable, drawn: Any, count: int) -> FloatArray:
    """``drawn`` as (count, k) numbers that the mechanism can release."""
    values = validation.array(ndim=2, drawn=drawn)
    if values.shape != (count, mechanism.n_dims):
        raise InputError(f"drawn must hold one row of {mechanism.n_dims} entries per answer, {count} rows")
    if not mechanism.can_release(values):
        raise InputError("drawn: an entry does not lie on the mechanism's grid; draw with mechanism.release")
    return values


def refuse_seen(transaction: Transaction, pairs: list[tuple[str, str]], series: str) -> None:
    """Refuse labels and readings of which an answer was released under a name that does not begin with ``series``."""
    seen = {}
    query = select(ENTRIES.c.label, ENTRIES.c.query_id, ENTRIES.c.seq)
    for label, query_id, seq in chain.matching(transaction, query, "readings", pairs):
        if not series or not str(query_id).startswith(series):
            seen[str(label)] = (int(seq), str(query_id))
    if seen:
        first, name = min(seen.values())
        entry = chain.entry_at(transaction, first)
        time = "" if entry is None else str(entry.content["time"])
        raise InputError(
            f"readings: {len(seen)} label(s) of this release had an answer from the same readings released on "
            f"{time[:10]} at {time[11:16]} UTC, as {name!r}. The same readings under another name are the same "
            f"question; what was released then stands. {NOTHING_CHARGED}"
        )


def bound_for(
    state: State, mechanism: Releasable, questions: list[Question], given: MechanismBound | None
) -> MechanismBound | None:
    """The bound to decide by: the one given, or a new one where that is less work than composing label by label.

    Where there is none, what the labels' own compositions share is computed instead, before anything is locked.
    """
    if given is not None:
        if not isinstance(given, MechanismBound) or given.digest != mechanism.digest:
            raise InputError("bounds must be the mechanism_bound of this very mechanism")
        return given
    labels, graph = {question.label for question in questions}, mechanism.graph
    limits = (state.budgets.limits(q.label, q.analyst, graph.neighbors(q.label)) for q in questions)
    epsilons = {limit.epsilon for several in limits for limit in several}
    known = state.bound(mechanism.digest)
    if not epsilons or (known is not None and epsilons <= known.delta.keys() & known.table.keys()):
        return None
    inside = np.array([name in labels for name in graph.labels])
    # Composing label by label looks at an edge from each end that is asked about.
    if int(inside[graph.edges].sum()) >= graph.n_edges and len(epsilons) <= 4:
        return mechanism_bound(mechanism, sorted(epsilons))
    for label in labels:
        state.memory.composer.prepare(mechanism, label)
    return None


def cost(
    state: State, mechanism: Releasable, names: list[str], query_id: str | None, analyst: str | None, times: int
) -> Cost:
    """What ``times`` releases about each of some labels would cost; nothing is written."""
    transaction = state.transaction
    state.hold(mechanism)
    graph, _ = _refuse_apart(state, mechanism, names)
    state.join(mechanism.digest, graph)
    on_record = {} if query_id is None else chain.recorded(transaction, [(name, query_id) for name in names])
    limits: list[Limit] = []
    coming: list[tuple[str, str]] = []
    for name in names:
        held = limits_on(state, name, analyst)
        entry = on_record.get((name, query_id or ""))
        if entry is None:
            coming += [("release", name)] * times
            limits += held
        elif entry.content["mechanism"] != mechanism.digest:
            raise InputError(OTHER_QUESTION)
        elif not was_shown(transaction, entry, analyst):
            coming.append(("shown", name))  # the label was charged, the analyst was not
            limits += [limit for limit in held if limit.analyst is not None]
    if not coming:
        limits = [limit for name in names for limit in limits_on(state, name, analyst)]
    before = after = tuple(account(state, limit) for limit in limits)
    digest, tv = mechanism.digest, mechanism.finite_precision_tv
    for kind, name in coming:
        state.append(kind, present(label=name, mechanism=digest, tv=tv, analyst=analyst))
    if coming:
        after = tuple(account(state, limit) for limit in limits)
    allowed = not coming or all(each.spent * (1 + HEADROOM) <= each.budget for each in after)
    return Cost(allowed, not coming, before, after)


def refuse_fixed(state: State, content: Mapping[str, Any]) -> None:
    """Refuse a budget for a series fixed in advance where answers may have been chosen in the light of others."""
    if may_be_chosen(state, content):
        raise InputError(
            "mode: answers were released under a budget for any way of choosing, so that what follows may have been "
            "chosen in their light; a series that is fixed in advance is recorded before. Keep mode='adaptive'"
        )


def may_be_chosen(state: State, content: Mapping[str, Any]) -> bool:
    """Whether releases that a new budget counts were made while an adaptive one held."""
    budgets, scope, names = state.budgets, content["scope"], content.get("names", ())
    if scope == "analyst" and names[0] not in budgets.analysts:  # the labels' budgets were all there was
        return any(budgets.mode("label", label) == "adaptive" for label in state.released(analyst=names[0]))
    if scope == "analyst":
        return budgets.mode(scope, names[0]) == "adaptive" and bool(state.released(analyst=names[0]))
    if scope == "label":
        chosen = [name for name in names if budgets.mode(scope, name) == "adaptive"]
        near = {other for name in chosen for other in (name, *state.neighbors(name))}
        return bool(state.released(sorted(near)))
    return budgets.mode(scope, None) == "adaptive" and bool(state.released())


def is_stricter(state: State, budget: Budget) -> bool:
    """Whether a budget implies the common one, which was set for want of any and before anything was released."""
    every = state.budgets.every
    last = chain.last_of_kind(state.transaction, "budget")
    return (
        every is not None
        and every != budget
        and budget.implies(every)
        and last is not None
        and bool(last.content.get("default"))
        and not state.released()
    )


def readings_refusal(state: State, content: Mapping[str, Any]) -> BudgetError | InputError | None:
    """Why a release of readings must not be recorded, where it must not; None where it may."""
    labels, cap = content["labels"], float(content["cap"])
    state.read(labels)
    accounts = [state.of(label).readings for label in labels]
    if any(account.cap not in (0.0, cap) for account in accounts):
        return InputError(
            f"cap: a label has another cap on record, fixed with the first release about it. {NOTHING_RECORDED}"
        )
    if any(account.after(content).exceeded for account in accounts):
        return BudgetError(
            f"mu: the release would raise the sum of squares of a label above that of its cap. {NOTHING_RECORDED}",
            limit="readings",
        )
    if any(state.of(label).graphs for label in labels):
        return InputError(
            "labels: a mechanism on record was made for a label, under the labels' promise, which the promise about "
            f"readings does not cover. {NOTHING_RECORDED}"
        )
    return None


def recorded_readings(state: State, content: dict[str, Any]) -> Entry:
    """Decide a release of readings and record it; the entry on record where it was recorded before."""
    for entry in chain.of_kind(state.transaction, "readings", query_id=content["query_id"]):
        if {key: value for key, value in entry.content.items() if key not in ("time", "salt")} != content:
            raise InputError("name: another release of readings is on record under it; give the new one its own name")
        return entry
    refused = readings_refusal(state, content)
    if refused is not None:
        raise refused
    periods = crowds.periods(state.transaction, content["labels"])
    if any(not later(content["period"], last) for last in periods.values()):
        raise InputError(
            "period: the crowd of a label was released for this period or a later one, under the labels' promise. "
            f"{NOTHING_RECORDED}"
        )
    return state.append("readings", content)
