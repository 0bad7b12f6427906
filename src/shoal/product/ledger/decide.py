"""Questions answered inside a transaction: from the record, or by a release within all budgets.

Entries are applied to the state of the ledger, every budget is held against the result, and either all of it is written
or nothing. What a pair has spent never falls as releases are added, so what holds after the last holds after each.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from sqlalchemy import select

from shoal import validation
from shoal.errors import BudgetError, InputError
from shoal.mechanism.releasable import Releasable, check_releasable
from shoal.product.ledger import chain, crowds
from shoal.product.ledger.accounts import compose_account
from shoal.product.ledger.budgets import REGISTER, Budget, is_window_after
from shoal.product.ledger.chain import Entry
from shoal.product.ledger.state import State, graph_digest
from shoal.product.ledger.storage import ENTRIES, Transaction, check_text, recorded_spellings, refuse_other_spellings
from shoal.readings.account import MOST_READINGS
from shoal.rounding import exactly, lower, percent, upper
from shoal.validation import FloatArray

#: Room that a new release leaves for the rounding of another machine, or of another order of edges, so that its δ is
#: within the budget when it is verified elsewhere too.
HEADROOM = 1e-9
NOTHING_CHARGED = "Nothing was released and nothing was charged"
NOTHING_RECORDED = "Nothing was recorded"
OTHER_QUESTION = (
    "query_id was already used for another question about this label (another mechanism or another answer); "
    "give the new question a new query_id"
)


@dataclass(frozen=True)
class Question:
    """One answer to be released; ``answer`` is a keyed digest of its values."""

    answer: str
    label: str
    query_id: str
    readings: str | None = None  #: a keyed digest of what the answer was made from

    @property
    def name(self) -> tuple[str, str]:
        return self.label, self.query_id


def make_questions(
    mechanism: Releasable,
    values: FloatArray,
    labels: Sequence[Any],
    query_ids: str | Sequence[str] | None,
    key: bytes,
    readings: Sequence[str] | None = None,
) -> list[Question]:
    """One question per row of (m, k) answers; without query_ids, equal answers by one mechanism are one question."""
    ids = [query_ids] * len(values) if isinstance(query_ids, str) else query_ids
    each = {"labels": (labels, "label"), "query_ids": (ids, "name"), "readings": (readings, "digest")}
    for name, (given, noun) in each.items():
        if given is not None and (isinstance(given, (str, bytes)) or len(given) != len(values)):
            raise InputError(f"{name} must hold one {noun} per answer: expected {len(values)}")
    names = [check_text(label=name) for name in check_labels(mechanism, labels)]
    if values.shape[1] != mechanism.n_dims:
        raise InputError(f"answer must have {mechanism.n_dims} entries, got {values.shape[1]}")
    mechanism.refuse_impossible_answers(values, [mechanism.position(name) for name in names], "answer")
    questions = []
    for row, (content, name) in enumerate(zip(values, names, strict=True)):
        plain = (content + 0.0).astype("<f8").tobytes()  # −0 and 0 are one answer
        answer = hmac.new(key, plain, hashlib.sha256).hexdigest()
        if ids is None:
            query_id = "answer " + hashlib.sha256(f"{mechanism.digest} {answer}".encode()).hexdigest()
        else:
            query_id = check_text(query_id=ids[row])
        source = None if readings is None else keyed_digest(key, readings[row])
        questions.append(Question(answer, name, query_id, source))
    return questions


def keyed_digest(key: bytes, readings: str) -> str:
    """A digest of readings that tells nothing to who lacks the ledger's key."""
    return hmac.new(key, f"readings {readings}".encode(), hashlib.sha256).hexdigest()


def check_labels(mechanism: Releasable, labels: Sequence[Any]) -> list[str]:
    """The labels as texts; InputError unless all are the mechanism's and have neighbors in its graph."""
    check_releasable(mechanism=mechanism)
    names = [str(label) for label in labels]
    if not set(names).issubset(mechanism.labels):
        raise InputError("label is not one of this mechanism's labels")
    graph = mechanism.graph
    if not {graph.labels[i] for i in np.unique(graph.edges)}.issuperset(names):
        raise InputError("label has no neighbors in the mechanism's graph: nothing would hide it. Join it to others")
    return names


def charge_answers(
    state: State,
    mechanism: Releasable,
    questions: list[Question],
    drawn: FloatArray,
    series: str = "",
) -> FloatArray:
    """Answers (m, k) to m questions: those on record as they are, new ones as ``drawn``, charged or all refused."""
    on_record = chain.recorded_answers(state.transaction, [question.name for question in questions])
    fresh = [question for question in questions if question.name not in on_record]
    labels = list(dict.fromkeys(question.label for question in fresh))
    refuse_seen_readings(state.transaction, [(q.label, q.readings) for q in fresh if q.readings is not None], series)
    if fresh:
        graph, new = _check_against_record(state, mechanism, labels)
        if new:
            for name in mechanism.graph.labels:
                check_text(label=name)
            state.record_mechanism(mechanism, graph)
        state.read_labels(name for label in labels for name in state.neighbors(label))
    digest, tv = mechanism.digest, mechanism.finite_precision_tv
    answers = {name: entry.content for name, entry in on_record.items()}
    for question, values in zip(questions, drawn, strict=True):
        content = answers.get(question.name)
        if content is None:
            content = {
                "label": question.label,
                "query_id": question.query_id,
                "mechanism": digest,
                "answer": question.answer,
                "tv": tv,
                "released": values.tolist(),
            }
            if question.readings is not None:
                content["readings"] = question.readings
            answers[question.name] = content
            state.append("release", content)
        elif (content["mechanism"], content["answer"]) != (digest, question.answer):
            raise InputError(OTHER_QUESTION)
    _refuse_same_answers(state, mechanism, fresh)
    for label in labels:
        _refuse_over_budget(state, label)
    released = [answers[question.name]["released"] for question in questions]
    return np.array(released, dtype=np.float64).reshape(len(questions), mechanism.n_dims)


def refuse_unusable(state: State, mechanisms: Iterable[Releasable]) -> None:
    """Refuse mechanisms that could not be used one after the other, each for all its labels."""
    for mechanism in mechanisms:
        graph, _ = _check_against_record(state, mechanism, mechanism.graph.labels)
        state.join_graph(mechanism.digest, graph)


def _check_against_record(state: State, mechanism: Releasable, labels: Sequence[str]) -> tuple[str, bool]:
    """Digest of a mechanism's graph, and whether the mechanism is new; InputError if the record forbids its use."""
    state.held[mechanism.digest] = mechanism
    known = state.digest_of_graph(mechanism.digest)
    graph = graph_digest(mechanism.graph) if known is None else known
    names = mechanism.graph.labels if known is None else labels
    if known is None:
        refuse_other_spellings(state.transaction, names)
    state.read_labels(names)
    crowds.refuse_split_crowds(state.transaction, mechanism.graph, labels)
    if any(state.label_state(name).readings.spent for name in names):
        raise InputError(
            "labels: readings of a label of the mechanism were released under the readings' promise, which does not "
            f"cover answers made from them. {NOTHING_CHARGED}"
        )
    lacking = state.count_lacking_neighbors(mechanism.graph, graph, names)
    if lacking:
        raise InputError(
            f"mechanism: its graph lacks neighbors: {lacking} label(s) have neighbors on record in this ledger that it "
            "does not join them to, so that nothing hides them among each other. New labels may join, but two that "
            "were neighbors stay neighbors, under any name: design it with the neighbors as they are now. "
            f"{NOTHING_CHARGED}"
        )
    return graph, known is None


def budget_in_force(state: State) -> Budget:
    """The budget in force; InputError if none was set."""
    if state.budget is None:
        raise InputError("no budget is set: call budget(epsilon=..., delta=...) first")
    return state.budget


def _refuse_over_budget(state: State, label: str) -> None:
    """Raise BudgetError if the label's account, with what was just appended, exceeds the budget."""
    spent = compose_account(state, label, budget_in_force(state)).spent
    if spent * (1 + HEADROOM) <= budget_in_force(state).delta:
        return
    so_far = compose_account(State(state.transaction, state.memory), label, budget_in_force(state))
    chosen = " (adaptive: it holds whatever was chosen in the light of earlier answers)"
    raise BudgetError(
        f"{so_far.name}: this release would raise δ({exactly(so_far.epsilon)}) to {upper(spent)}, above its budget "
        f"of {exactly(so_far.budget)}{chosen if so_far.mode == 'adaptive' else ''}. Spent so far: "
        f"{upper(so_far.spent)}; remaining: {lower(so_far.remaining)}. {NOTHING_CHARGED}. The budget is that of "
        "the first charged release, or what the owner set: `shoal ledger budget --epsilon E --delta D` sets another",
        remaining=so_far.remaining,
        epsilon=so_far.epsilon,
        limit=so_far.name,
    )


def _refuse_same_answers(state: State, mechanism: Releasable, fresh: list[Question]) -> None:
    """Refuse fresh noise on a random answer that was released before: the two would not be independent."""
    names = [(q.label, q.answer) for q in {q.name: q for q in fresh}.values()]
    twice = len(set(names)) < len(names)
    query = select(ENTRIES.c.mechanism)
    earlier = {str(row[0]) for row in chain.match_releases(state.transaction, query, "answer", names)}
    used = [state.mechanism(digest) for digest in earlier]
    if ((twice or earlier) and not mechanism.has_constant_answers) or not all(
        other.has_constant_answers for other in used
    ):
        raise InputError(
            "answer: this very answer was already released about the label under another query_id. Its own randomness "
            "protects once only, so the two releases are not independent: ask with the earlier query_id, or stack both "
            "into one release with GaussianClasses.joint"
        )


def check_drawn(mechanism: Releasable, drawn: Any, count: int) -> FloatArray:
    """Drawn answers as an array (count, k); InputError unless the mechanism can release each of them."""
    values = validation.array(ndim=2, drawn=drawn)
    if values.shape != (count, mechanism.n_dims):
        raise InputError(f"drawn must hold one row of {mechanism.n_dims} entries per answer, {count} rows")
    if not mechanism.can_release(values):
        raise InputError("drawn: an entry does not lie on the mechanism's grid; draw with mechanism.release")
    return values


def refuse_seen_readings(transaction: Transaction, pairs: list[tuple[str, str]], series: str) -> None:
    """Refuse (label, readings digest) pairs already answered under a name that does not begin with ``series``."""
    seen = {}
    query = select(ENTRIES.c.label, ENTRIES.c.query_id, ENTRIES.c.seq)
    for label, query_id, seq in chain.match_releases(transaction, query, "readings", pairs):
        if not series or not str(query_id).startswith(series):
            seen[str(label)] = (int(seq), str(query_id))
    if seen:
        first, name = min(seen.values())
        payload = transaction.value(select(ENTRIES.c.payload).where(ENTRIES.c.seq == first))
        time = str(json.loads(payload)["time"])
        raise InputError(
            f"readings: {len(seen)} label(s) of this release had an answer from the same readings released on "
            f"{time[:10]} at {time[11:16]} UTC, as {name!r}. The same readings under another name are the same "
            f"question; what was released then stands. {NOTHING_CHARGED}"
        )


def may_be_adaptive(state: State) -> bool:
    """Whether something was released under an adaptive budget, so that a fixed one may not follow."""
    return state.budget is not None and state.budget.mode == "adaptive" and bool(state.released_labels())


def readings_refusal(state: State, content: Mapping[str, Any]) -> BudgetError | InputError | None:
    """The error for a release of readings that must not be recorded; None if it may be."""
    labels, cap = content["labels"], float(content["cap"])
    charged = (REGISTER, *labels)  # the first has no less than any other
    state.read_labels(charged)
    accounts = [state.label_state(label).readings for label in charged]
    if any(account.cap not in (0.0, cap) for account in accounts):
        return InputError(
            "cap: a series of releases of readings is on record with another budget, which was fixed with its first "
            "release and holds for all on the register. Continue with that one; homes of another register need "
            f"another ledger. {NOTHING_RECORDED}"
        )
    if MOST_READINGS * Fraction(float(content["mu"])) ** 2 < Fraction(cap) ** 2:
        return InputError(
            f"mu: this release takes too small a part of the budget: a series of readings has at most {MOST_READINGS} "
            f"releases. Plan fewer of them. {NOTHING_RECORDED}"
        )
    if any(account.add_release(content).spent > Fraction(cap) ** 2 for account in accounts):
        return BudgetError(
            "the budget of the series does not allow another release of this strength: "
            f"{percent(float(accounts[0].spent / Fraction(cap) ** 2), 'upper')} of it is used, by the releases "
            "on record. It was fixed with the first of them, for all on the register; homes of another register "
            f"need another ledger. {NOTHING_RECORDED}",
            limit="readings",
        )
    if any(state.label_state(label).graphs for label in labels):
        return InputError(
            "labels: a mechanism on record was made for a label, under the labels' promise, which the promise about "
            f"readings does not cover. {NOTHING_RECORDED}"
        )
    return None


def record_readings(state: State, content: dict[str, Any]) -> Entry:
    """Record a release of readings and return its entry; the earlier entry if it is on record already."""
    known = recorded_spellings(state.transaction, content["labels"])
    content = {**content, "labels": sorted({known.get(label, label) for label in content["labels"]})}
    for entry in chain.entries_of_kind(state.transaction, "readings", query_id=content["query_id"]):
        if {key: value for key, value in entry.content.items() if key not in ("time", "salt")} != content:
            raise InputError("name: another release of readings is on record under it; give the new one its own name")
        return entry
    refused = readings_refusal(state, content)
    if refused is not None:
        raise refused
    begins, period = content.get("since"), content["period"]
    on_record = crowds.last_periods(state.transaction, content["labels"])
    if not all(is_window_after(begins, period, last) for last in on_record):
        raise InputError(
            "period: the crowd of a label was released under the labels' promise from readings of the same days, or of "
            f"later ones. Choose an origin with training days that begin where those end. {NOTHING_RECORDED}"
        )
    return state.append("readings", content)
