"""Questions put to the ledger, checked before anything is locked."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.mechanism.releasable import Releasable, releasable
from shoal.validation import FloatArray


@dataclass(frozen=True)
class Question:
    """One answer to be released; ``answer`` is a keyed digest of ``values``."""

    values: FloatArray
    answer: str
    label: str
    query_id: str
    analyst: str | None
    readings: str | None = None  #: a keyed digest of what the answer was made from


def as_questions(
    mechanism: Releasable,
    answers: Any,
    labels: Sequence[Any],
    query_ids: Sequence[str] | None,
    analyst: str | None,
    key: bytes,
    readings: Sequence[str] | None = None,
) -> list[Question]:
    """One question per row of ``answers``. Without a query_id, equal answers through one mechanism are one question."""
    values = validation.array(ndim=2, answers=answers)
    if isinstance(labels, (str, bytes)) or len(labels) != len(values):
        raise InputError(f"labels must hold one label per answer: expected {len(values)}")
    if query_ids is not None and (isinstance(query_ids, (str, bytes)) or len(query_ids) != len(values)):
        raise InputError(f"query_ids must hold one name per answer: expected {len(values)}")
    if readings is not None and len(readings) != len(values):
        raise InputError(f"readings must hold one digest per answer: expected {len(values)}")
    names = [word(label=name) for name in known_labels(mechanism, labels)]
    if values.shape[1] != mechanism.n_dims:
        raise InputError(f"answer must have {mechanism.n_dims} entries, got {values.shape[1]}")
    mechanism.refuse_excluded(values, [mechanism.position(name) for name in names], "answer")
    who = None if analyst is None else word(analyst=analyst)
    questions = []
    for row, (content, name) in enumerate(zip(values, names, strict=True)):
        plain = (content + 0.0).astype("<f8").tobytes()  # −0 and 0 are one answer
        answer = hmac.new(key, plain, hashlib.sha256).hexdigest()
        if query_ids is None:
            query_id = "answer " + hashlib.sha256(f"{mechanism.digest} {answer}".encode()).hexdigest()
        else:
            query_id = word(query_id=query_ids[row])
        source = None if readings is None else keyed(key, readings[row])
        questions.append(Question(content, answer, name, query_id, who, source))
    return questions


def keyed(key: bytes, readings: str) -> str:
    """A digest of readings that tells nothing to who lacks the ledger's key."""
    return hmac.new(key, f"readings {readings}".encode(), hashlib.sha256).hexdigest()


def known_labels(mechanism: Releasable, labels: Sequence[Any]) -> list[str]:
    """The labels' names, if all are the mechanism's and have neighbors to hide among."""
    releasable(mechanism=mechanism)
    names = [str(label) for label in labels]
    if not set(names).issubset(mechanism.labels):
        raise InputError("label is not one of this mechanism's labels")
    graph = mechanism.graph
    if not {graph.labels[i] for i in np.unique(graph.edges)}.issuperset(names):
        raise InputError("label has no neighbors in the mechanism's graph: nothing would hide it. Join it to others")
    return names


def word(**named: Any) -> str:
    """A non-empty text that every database can store."""
    ((name, value),) = named.items()
    if not isinstance(value, str) or not value or len(value) > 1000:
        raise InputError(f"{name} must be a text of 1 to 1000 characters")
    if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InputError(f"{name} must not contain null or unpaired surrogate characters")
    if not unicodedata.is_normalized("NFC", value):
        raise InputError(
            f"{name} must be in Unicode normal form C, so that one name has one spelling: "
            "unicodedata.normalize('NFC', name)"
        )
    return value


def later(period: str, than: str) -> bool:
    """Whether a period surely comes after another.

    Two days, or times that both have an offset or both have none, are compared as such, and a day with a time by the
    days; two texts that are no times are compared as texts. Of different kinds neither is later than the other.
    """
    time, other = _moment(period), _moment(than)
    if time is None and other is None:
        return period.strip().casefold() > than.strip().casefold()
    if time is None or other is None:
        return False
    if not (isinstance(time, datetime) and isinstance(other, datetime)):
        days = [moment.date() if isinstance(moment, datetime) else moment for moment in (time, other)]
        return days[0] > days[1]
    return (time.tzinfo is None) == (other.tzinfo is None) and time > other


def _moment(period: str) -> date | None:
    """A day, or a time; None for any other text."""
    for kind in (date, datetime):
        try:
            return kind.fromisoformat(period)
        except ValueError:
            continue
    return None


def repeated(query_ids: str | Sequence[str], count: int) -> Sequence[str]:
    """One name for all questions, or the names as given."""
    return [query_ids] * count if isinstance(query_ids, str) else query_ids
