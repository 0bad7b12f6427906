"""Labels on record, other spellings of them, the same figures under others: one person, one label.

The ledger keeps each label as it came first, by its :func:`shoal.plaintext.name_key`. A run takes over the spelling on
record before it does anything else (:meth:`Ledger.spellings`), so that the same people in capitals, or with another
space, are those on record. Releases of readings are recorded under it; a mechanism or crowds with another spelling of a
label on record are refused, because their graphs and tables are fixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import select

from shoal.errors import InputError
from shoal.plaintext import name_key
from shoal.product.ledger.storage import CROWD_MEMBERS, CROWDS, SPELLINGS, chunks

if TYPE_CHECKING:
    from shoal.product.ledger.storage import Transaction
    from shoal.validation import FloatArray

OTHER_SPELLING = (
    "labels: {} label(s) are on record in another spelling (capitals, spaces or accents differ), and would count as "
    "other people. Write them as they were at first. Nothing was recorded"
)


def on_record(transaction: Transaction, labels: Iterable[str]) -> dict[str, str]:
    """Label -> its spelling on record, for the labels that are on record in another one."""
    key_of = {label: name_key(label) for label in labels}
    known: dict[str, str] = {}
    for part in chunks(dict.fromkeys(key_of.values())):
        rows = transaction.rows(select(SPELLINGS.c.key, SPELLINGS.c.label).where(SPELLINGS.c.key.in_(part)))
        known |= {str(key): str(label) for key, label in rows}
    return {label: known[key] for label, key in key_of.items() if known.get(key, label) != label}


def refuse_others(transaction: Transaction, labels: Iterable[str]) -> None:
    """Refuse labels that are on record in another spelling, or that are two spellings of one."""
    names = dict.fromkeys(labels)
    others = len(on_record(transaction, names)) + len(names) - len({name_key(name) for name in names})
    if others:
        raise InputError(OTHER_SPELLING.format(others))


def keep(transaction: Transaction, labels: Iterable[str]) -> None:
    """Note the spelling of labels that something is recorded about; the first one stays."""
    rows = ({"key": name_key(label), "label": label} for label in dict.fromkeys(labels))
    transaction.insert(SPELLINGS, *rows, otherwise="ON CONFLICT DO NOTHING")


# ------------------------------------------------------------------ the same people under other labels


#: Columns that rows are compared in, at least, and values of a column that is passed over as few-valued, at most.
COLUMNS, FEW = 3, 10
KNOWN = (
    "labels: {} rows of new labels are on record under other labels, with the same figures. Crowds are formed once: "
    "a second division of the same people gives them away. Write the labels as they were, or release others. Nothing "
    "was recorded"
)


def refuse_known(transaction: Transaction, setting: str, new: Mapping[str, bytes], least: int) -> None:
    """Refuse new labels, each with the bytes of its figures, of which ``least`` or more rows are on record.

    A first population forms crowds by likeness. Where it is one that is on record, under other names, its crowds are a
    second division of the same people, and the difference between two rows is a person. Rows are compared in the
    columns that both releases have: three at least, not counting few-valued ones. Of meters the usual day is compared.
    """
    described, labels = _parse_setting(setting), list(new)
    widths = {len(values) for values in new.values()}
    if described is None or len(widths) != 1:
        return
    rows = np.array([np.frombuffer(new[label], dtype="<f8") for label in labels])
    known = np.zeros(len(labels), dtype=np.bool_)
    for other in {str(row[0]) for row in transaction.rows(select(CROWDS.c.setting).distinct())}:
        here, there = _common(described, _parse_setting(other), rows)
        if len(here) < COLUMNS:
            continue
        wanted: dict[bytes, list[int]] = {}
        for i, key in enumerate(_keys(rows, here)):
            wanted.setdefault(key, []).append(i)
        numbers = [row[0] for row in transaction.rows(select(CROWDS.c.crowd).where(CROWDS.c.setting == other))]
        for part in chunks(numbers):
            members = select(CROWD_MEMBERS.c.label, CROWD_MEMBERS.c.stored).where(CROWD_MEMBERS.c.crowd.in_(part))
            stored = [bytes(values) for label, values in transaction.rows(members) if str(label) not in new]
            stored = [values for values in stored if len(values) > 8 * max(there)]
            if not stored:
                continue
            for key in _keys(np.array([np.frombuffer(values, dtype="<f8") for values in stored]), there):
                known[wanted.get(key, [])] = True
    if known.sum() >= least:
        raise InputError(KNOWN.format(int(known.sum())))


def _parse_setting(setting: str) -> dict[str, Any] | None:
    """The parts of a crowd's setting that say what its members' figures are."""
    try:
        content = json.loads(setting)
    except ValueError:
        return None
    kind = content.get("kind") if isinstance(content, dict) else None
    return {"kind": kind, **{name: content.get(name) for name in ("columns", "step_minutes")}} if kind else None


def _common(one: dict[str, Any], other: dict[str, Any] | None, rows: FloatArray) -> tuple[list[int], list[int]]:
    """Places of the common columns, in the new rows and in those on record, without few-valued ones."""
    if other is None or any(one[name] != other[name] for name in ("kind", "step_minutes")):
        return [], []
    names, others = (part["columns"] or list(range(rows.shape[1])) for part in (one, other))
    many = [name for at, name in enumerate(names[: rows.shape[1]]) if len(np.unique(rows[:, at])) > FEW]
    common = [name for name in many if name in others]
    return [names.index(name) for name in common], [others.index(name) for name in common]


def _keys(rows: FloatArray, places: list[int]) -> list[bytes]:
    """The figures at some places, a text of bytes for each row."""
    chosen = np.ascontiguousarray(rows[:, places] + 0.0)
    return [row.tobytes() for row in chosen]
