"""Labels on record and other spellings of them: one person, one label, whatever a file calls it.

The ledger keeps each label as it came first, by its :func:`shoal.plaintext.name_key`. A run takes over the spelling on
record before it does anything else (:meth:`Ledger.spellings`), so that the same people in capitals, or with another
space, are those on record. Releases of readings are recorded under it; a mechanism or crowds with another spelling of a
label on record are refused, because their graphs and tables are fixed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import select

from shoal.errors import InputError
from shoal.plaintext import name_key
from shoal.product.ledger.storage import SPELLINGS, chunks

if TYPE_CHECKING:
    from shoal.product.ledger.storage import Transaction

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
