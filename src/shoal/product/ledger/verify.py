"""Checking a whole ledger against itself, from the first entry to the last.

Everything is derived anew from the payloads: the chain, the columns for lookup, the mechanisms, that neighbors stayed
neighbors, and whether every release was within the budgets in force when it was made. What a pair has spent never falls
as releases are added, so only the state right before the budgets change, and at the end, is composed. Where that is too
much, the chain is walked once more to name the first entry that was. At the end the ledger's index and tables must say
what the chain says. A budget that was lowered may overdraw an account: that is noted, and no release may follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import func, select

from shoal.errors import LedgerError
from shoal.product.ledger import chain, crowds
from shoal.product.ledger.accounts import compose_account
from shoal.product.ledger.budgets import Budget
from shoal.product.ledger.chain import NOTES, START, Entry, Head, lookup_columns
from shoal.product.ledger.composition import Composer
from shoal.product.ledger.decide import may_be_adaptive, readings_refusal
from shoal.product.ledger.state import Memory, State, graph_digest, restore_mechanism
from shoal.product.ledger.storage import INDEX, MECHANISMS, META, Transaction

WRONG_INDEX = "the index of labels and of what was released differs from the record; rebuild() writes it anew"
#: Kinds of entries with a name that is used once: what names them, and what is wrong where it was used before.
ONCE = {
    "release": (("label", "query_id"), "its question had been answered before"),
    "crowds": (("query_id",), "its name was used before"),
    "readings": (("query_id",), "its name was used before"),
    "receipt": (("analyst", "query_id"), "its question had been given to the analyst before"),
}


@dataclass(frozen=True)
class Verification:
    """Whether the record holds; ``problem`` says what is wrong first, at the entry ``bad_entry`` where there is one."""

    ok: bool
    entries: int
    head: Head
    bad_entry: int | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        where = "" if self.bad_entry is None else f" at entry {self.bad_entry}"
        verdict = "intact" if self.ok else f"NOT intact{where}: {self.problem}"
        return "\n".join([f"{self.entries} entries, {verdict}", *(f"note: {note}" for note in self.notes)])


class _Broken(Exception):
    """The first fault of a chain, at entry ``seq``; ``overspent`` are labels whose budgets it exceeded."""

    def __init__(self, seq: int | None, problem: str, overspent: frozenset[str] = frozenset()) -> None:
        super().__init__(problem)
        self.seq, self.problem, self.overspent = seq, problem, overspent


def verify(transaction: Transaction, composer: Composer, seal: Head | None) -> Verification:
    """Check entries, digests, budgets, the index, and that the chain contains ``seal``; returns the first fault."""
    walk = _Walk(transaction, composer, seal)
    try:
        try:
            walk.check_all()
        except _Broken as broken:
            if broken.overspent:
                _Walk(transaction, composer, seal, broken.overspent).check_all()
            raise
        _check_index(walk.state)
    except (_Broken, LedgerError) as error:
        seq = error.seq if isinstance(error, _Broken) else None
        return Verification(False, walk.last.seq, walk.last, seq, str(error), tuple(walk.notes))
    notes = [*walk.notes, *walk.overdrawn_notes()]
    if transaction.postgres and transaction.value("SHOW fsync") == "off":
        notes.append("the server runs with fsync off: a power failure can lose what was recorded")
    if seal is None:
        notes.append(
            "without a head kept elsewhere, a chain that was rewritten or cut short as a whole cannot be detected"
        )
    return Verification(True, walk.last.seq, walk.last, None, "", tuple(notes))


class _Walk:
    """One pass over the chain. Labels in ``closely`` are composed after each of their entries."""

    def __init__(
        self, transaction: Transaction, composer: Composer, seal: Head | None, closely: frozenset[str] = frozenset()
    ) -> None:
        self.state = State(transaction, Memory(composer), replayed=True)
        self.last = Head(0, START)
        self.notes: list[str] = []
        self._transaction, self._seal, self._closely = transaction, seal, closely
        self._once: set[tuple[str, ...]] = set()
        #: Labels since the budgets last changed, with the first entry of each; the last batch and its last entry.
        self._since: dict[str, int] = {}
        self._settled: set[str] = set()
        self._batch = (0, 0)

    def check_all(self) -> None:
        """Check every entry, the head and all budgets; raise _Broken at the first fault."""
        before, seal = "", self._seal
        for entry, columns in chain.read_entries(self._transaction):
            content = _next_content(self.last, entry, columns)
            self.last = entry.head
            if seal is not None and seal.seq == entry.seq and seal != entry.head:
                raise _Broken(entry.seq, "it is not the entry that the given head seals: the chain was rewritten")
            try:
                time = str(content.get("time", ""))
                if time < before:
                    self.notes.append(f"the clock went backwards before entry {entry.seq}; nothing depends on it")
                before = time
                self._check_entry(entry, content)
                self.state.apply(entry, content)
                if entry.kind == "release" and content["label"] in self._closely:
                    problem = self._budget_fault(content["label"])
                    if problem:
                        raise _Broken(entry.seq, problem)
            except (KeyError, TypeError, ValueError) as error:
                if isinstance(error, LedgerError):
                    raise
                raise _Broken(entry.seq, "its content does not make sense") from error
        stated, last = chain.read_head(self._transaction), self.last
        if stated.seq > last.seq:
            raise _Broken(last.seq + 1, f"it is missing: the head names {stated.seq} entries, there are {last.seq}")
        if stated != last:
            raise _Broken(last.seq, "it is not the entry that the head names as the last")
        if seal is not None and seal.seq > last.seq:
            raise _Broken(last.seq + 1, f"it is missing: the given head seals {seal.seq} entries, there are {last.seq}")
        self._compare_budgets()

    def overdrawn_notes(self) -> Iterator[str]:
        """Notes on labels whose accounts exceed the budget in force."""
        budget = self.state.budget or Budget(0.0, 0.0)  # without one nothing was released
        for label in sorted(self.state.labels.keys() - self._settled):
            if compose_account(self.state, label, budget).spent > budget.delta:
                yield f"label {label} is overdrawn, by a lowered budget; nothing more is released"

    def _check_entry(self, entry: Entry, content: Mapping[str, Any]) -> None:
        """Raise _Broken if an entry must not follow those before it."""
        seq, kind, problem = entry.seq, entry.kind, ""
        if (kind == "created") != (seq == 1):
            problem = "a ledger begins with the entry 'created', once"
        elif kind == "created":
            meta = {str(row[0]): str(row[1]) for row in self._transaction.rows(select(META.c.name, META.c.value))}
            key = bytes.fromhex(meta.get("answer_key", ""))
            if meta.get("ledger") != content["ledger"] or hashlib.sha256(key).hexdigest() != content["key"]:
                problem = "the database's identity or key is not the one recorded"
        elif kind == "budget":
            self._compare_budgets()
            if content.get("mode") == "fixed" and may_be_adaptive(self.state):
                problem = "it calls a series fixed in advance, but its releases may have been chosen adaptively"
        elif kind == "mechanism":
            problem = self._mechanism_fault(content)
        elif kind == "release":
            problem = self._release_fault(seq, content)
        elif kind == "crowds":
            if content["before"] != self.state.crowds:
                problem = "the crowds before it are not those that the release before it left"
        elif kind == "readings":
            problem = str(readings_refusal(self.state, content) or "")
        elif kind not in NOTES:
            problem = "its kind is unknown"
        if kind in ONCE and not problem:
            columns, twice = ONCE[kind]
            name = (kind, *(content[column] for column in columns))
            problem = twice if name in self._once else ""
            self._once.add(name)
        if problem:
            raise _Broken(seq, problem)

    def _mechanism_fault(self, content: Mapping[str, Any]) -> str:
        """What is wrong with an entry that records a mechanism; empty if nothing is. The mechanism is cached."""
        digest, state = content["mechanism"], self.state
        stored = self._transaction.value(select(MECHANISMS.c.content).where(MECHANISMS.c.digest == digest))
        if stored is None:
            return "the mechanism it records is missing"
        if hashlib.sha256(bytes(stored)).hexdigest() != content["content"]:
            return "the mechanism it records was altered"
        mechanism = restore_mechanism(bytes(stored), digest)
        if graph_digest(mechanism.graph) != content["graph"]:
            return "the mechanism's graph is not the one recorded with it"
        if state.count_lacking_neighbors(mechanism.graph, content["graph"], mechanism.graph.labels):
            return "the mechanism's graph lacks neighbors that were recorded before"
        state.memory.remember_mechanism(mechanism)
        return ""

    def _release_fault(self, seq: int, content: Mapping[str, Any]) -> str:
        """What is wrong with a release entry, budgets aside; empty if nothing is."""
        label, digest, state = content["label"], content["mechanism"], self.state
        if digest not in state.mechanisms or label not in (mechanism := state.mechanism(digest)).graph:
            return "it uses a mechanism that was not recorded before it, or not for this label"
        if len(content["released"]) != mechanism.n_dims:
            return "its answer has another length than the mechanism's"
        if state.count_lacking_neighbors(mechanism.graph, state.mechanisms[digest], [label]):
            return "it uses a mechanism that lacks neighbors of its label recorded before"
        number, (batch, last) = content.get("batch"), self._batch
        if not isinstance(number, int):
            return "it does not say what it was chosen with"
        if number > seq or (number != batch and number <= last):
            return "it says that it was chosen with an entry that was shown before"
        self._batch = (number, seq)
        self._since.setdefault(label, seq)
        return ""

    def _compare_budgets(self) -> None:
        """Raise _Broken if labels released about since the last budget change exceed the budget in force."""
        over = {label: problem for label in self._since if (problem := self._budget_fault(label))}
        if over:
            first = min(over, key=lambda label: self._since[label])
            raise _Broken(self._since[first], over[first], frozenset(over))
        self._settled = set(self._since)
        self._since.clear()

    def _budget_fault(self, label: str) -> str:
        """What is wrong with a label's account under the budget in force; empty if nothing is."""
        if self.state.budget is None:
            return "it was released without a budget"
        over = compose_account(self.state, label, self.state.budget).spent > self.state.budget.delta
        return f"it exceeds the budget of label {label}" if over else ""


def _next_content(last: Head, entry: Entry, columns: dict[str, Any]) -> dict[str, Any]:
    """The content of the entry that follows a head; raise _Broken if it is missing, moved or altered."""
    expected = last.seq + 1
    if entry.seq != expected:
        raise _Broken(expected, f"it is missing: entry {entry.seq} follows entry {last.seq}")
    if entry.previous != last.hash:
        raise _Broken(entry.seq, "it does not follow the entry before it: one of the two was replaced or moved")
    if not entry.is_intact:
        raise _Broken(entry.seq, "it was altered: its content does not give its hash")
    try:
        content = entry.content
    except ValueError:
        content = None
    if content is None or lookup_columns(content) != columns:
        raise _Broken(entry.seq, "what the database looks up differs from what was recorded")
    return content


def _check_index(state: State) -> None:
    """Raise _Broken unless the index and the tables of crowds say what the chain says."""
    transaction = state.transaction
    stored = {str(row[0]): str(row[1]) for row in transaction.rows(select(MECHANISMS.c.digest, MECHANISMS.c.graph))}
    if stored != state.mechanisms:
        raise _Broken(None, "the table of mechanisms differs from what was recorded")
    index = State(transaction, state.memory)  # as decisions read it, which another way of reading may not show
    index.read_labels(state.labels)
    rows = np.array([(len(a.graphs), len(a.totals), a.readings.spent > 0) for a in state.labels.values()], dtype=int)
    counts = [transaction.value(select(func.count()).select_from(table)) for table in INDEX]
    if index.labels != state.labels or counts != rows.reshape(-1, 3).sum(axis=0).tolist():
        raise _Broken(None, WRONG_INDEX)
    crowds.read_intact_crowds(transaction, None)
    if crowds.digest_of_tables(transaction) != state.crowds:
        raise LedgerError(crowds.ALTERED, reason="damaged")
