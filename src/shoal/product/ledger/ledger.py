"""The ledger: what was released about whom, what it cost in all, and what may still be released.

Noise is drawn first. One transaction then looks the question up, composes everything released about the label and its
neighbors, compares with every budget, and writes charge and answer together. Killed before the commit, nothing was
charged and nothing was shown; killed after it, the charge stands and asking again returns the recorded answer. Order is
the order of the entries; no decision reads a clock. Guard a ledger like the data: it holds answers and mechanisms.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import delete, insert, or_, select

import shoal
from shoal import validation
from shoal.errors import InputError, LedgerError
from shoal.mechanism.releasable import Releasable
from shoal.product.ledger import chain, decide
from shoal.product.ledger import crowds as lasting
from shoal.product.ledger import storage as database
from shoal.product.ledger.accounts import Spent, compose_account
from shoal.product.ledger.budgets import budget_entry, readings_entry
from shoal.product.ledger.chain import Entry, Head
from shoal.product.ledger.crowds import CrowdsRelease, LastingCrowds
from shoal.product.ledger.state import Memory, State
from shoal.product.ledger.storage import ENTRIES, INDEX, META, Storage, Transaction, recorded_spellings
from shoal.product.ledger.verify import Verification, verify
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl


class Ledger:
    """An append-only record of releases and budgets in a database; see :meth:`open`."""

    #: The database, for whoever keeps tables of their own beside the chain.
    storage: Storage
    #: The name that this ledger was given when it was made.
    identity: str
    #: The key of this ledger's digests; it never leaves the data owner.
    secret: bytes

    def __init__(self, storage: Storage) -> None:
        with storage.reading() as transaction:
            meta = {str(name): str(value) for name, value in transaction.rows(select(META.c.name, META.c.value))}
        if not meta.get("answer_key") or not meta.get("ledger"):
            raise LedgerError("ledger: the database lacks a part of a ledger; restore a backup", reason="damaged")
        self.storage, self.identity, self.secret = storage, meta["ledger"], bytes.fromhex(meta["answer_key"])
        self._memory = Memory()

    @classmethod
    def open(cls, url: str | Path, *, create: bool = True, timeout: float = 30.0) -> Ledger:
        """Open a ledger, and make one where there is none.

        Args:
            url: ``sqlite:///ledger.db``, a :class:`pathlib.Path`, or ``postgresql://user@host/database``.
            create: False refuses where no ledger exists. An empty ledger remembers nothing, so an operator who expects
                one should not be handed a new one.
            timeout: seconds to wait for other writers.

        Returns:
            The ledger, to be closed after use; a ``with`` statement does.

        >>> import tempfile, shoal
        >>> with tempfile.TemporaryDirectory() as folder, shoal.Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
        ...     bool(ledger.verify())
        True
        """
        storage = Storage.open(url, validation.positive(timeout=timeout))
        try:
            with storage.reading() as transaction:
                exists = database.has_ledger(transaction)
            if not exists and not create:
                raise LedgerError("ledger: there is none in this database, and create is False", reason="absent")
            if not exists:
                with storage.writing(creating=True) as transaction:
                    if not database.has_ledger(transaction):  # another process may have made it meanwhile
                        _create(transaction)
            return cls(storage)
        except LedgerError:
            storage.close()
            raise

    @contextmanager
    def _reading(self) -> Iterator[State]:
        """The state of the ledger as it is now."""
        with self.storage.reading() as transaction:
            yield State(transaction, self._memory)

    @contextmanager
    def _writing(self) -> Iterator[State]:
        """The state for the only writer; what was appended to it when the block ends is stored."""
        with self.storage.writing() as transaction:
            state = State(transaction, self._memory)
            yield state
            state.write()

    def close(self) -> None:
        """Give the database connections back."""
        self.storage.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ budgets

    def budget(self, epsilon: float, delta: float, *, mode: str | None = None) -> None:
        """Set the budget δ(``epsilon``) ≤ ``delta`` of every label from here on.

        It is held against pairs of neighbors: what was released about either counts, in the direction from that label
        to the other. So a release about one label can use up what is left for its neighbors.

        Args:
            mode: ``"adaptive"``, the default: releases may be chosen in the light of earlier answers, and a filter that
                holds for any choice decides. ``"fixed"`` for a series that is fixed in advance, whose exact composition
                counts and lets through somewhat more; set it before the first answer. Not said, a mode stays.

        >>> import tempfile, shoal
        >>> with tempfile.TemporaryDirectory() as folder, shoal.Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
        ...     ledger.budget(1.0, 1e-5)
        ...     ledger.has_budget
        True
        """
        with self._writing() as state:
            content = budget_entry(epsilon, delta, state.budget, mode)
            if mode == "fixed" and decide.may_be_adaptive(state):
                raise InputError(
                    "mode: answers were released under a budget for any way of choosing, so that what follows may have "
                    "been chosen in their light; a series that is fixed in advance is recorded before. Keep "
                    "mode='adaptive'"
                )
            state.append("budget", content)

    @property
    def has_budget(self) -> bool:
        """Whether a budget is in force: one that was set, or one that came with a release."""
        with self._reading() as state:
            return state.budget is not None

    def spent(self, label: Any = None) -> Spent:
        """Spent budget: δ at the budget's ε for a label or every label.

        An account of a label is that of the worst pair it belongs to: what was released about the neighbor counts too.

        Returns:
            One account per label: the δ spent at the budget's ε, an upper end, what remains, and the worst pair.

        >>> import tempfile, shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], ["a", "b"])
        >>> mechanism = shoal.design(classes, shoal.NeighborGraph.complete(["a", "b"]), "white", epsilon=1.0, rho=16.0)
        >>> with tempfile.TemporaryDirectory() as folder, shoal.Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
        ...     ledger.budget(1.0, 1e-5)
        ...     answer = ledger.release(mechanism, [0.0], "a")
        ...     account = ledger.spent()["a"]
        >>> account.releases, account.pair, 0 < account.spent <= account.budget
        (1, ('a', 'b'), True)
        """
        with self._reading() as state:
            budget = decide.budget_in_force(state)
            names = state.released_labels() if label is None else [str(label)]
            state.read_labels(names)
            return Spent({name: compose_account(state, name, budget) for name in names})

    # ------------------------------------------------------------------ releases

    def release(self, mechanism: Releasable, answer: Any, label: Any, *, query_id: str | None = None) -> FloatArray:
        """Release one answer about a label; returns once the charge is durable.

        Args:
            mechanism: how to perturb; recorded at its first use, together with its graph.
            answer: (k,) the true answer.
            label: whom it is about.
            query_id: names the question. The same question about the same label gets its recorded answer again, free of
                charge; without a name, equal answers through one mechanism are the same question.

        Raises:
            BudgetError: a budget would be exceeded. Nothing was released and nothing was charged.

        Returns:
            (k,) the answer that may be shown.

        >>> import tempfile, shoal
        >>> classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], ["a", "b"])
        >>> mechanism = shoal.design(classes, shoal.NeighborGraph.complete(["a", "b"]), "white", epsilon=1.0, rho=16.0)
        >>> with tempfile.TemporaryDirectory() as folder, shoal.Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
        ...     ledger.budget(1.0, 1e-5)
        ...     first = ledger.release(mechanism, [0.0], "a", query_id="today")
        ...     again = ledger.release(mechanism, [0.0], "a", query_id="today")
        >>> bool(first == again)
        True
        """
        values = validation.array(ndim=1, answer=answer)
        ids = None if query_id is None else [query_id]
        return np.asarray(self.charge(mechanism, values[None], None, [label], query_ids=ids)[0])

    def charge(
        self,
        mechanism: Releasable,
        answers: Any,
        drawn: Any,
        labels: Sequence[Any],
        *,
        query_ids: str | Sequence[str] | None = None,
        readings: Sequence[str] | None = None,
        series: str = "",
        budget: tuple[float, float] | None = None,
    ) -> FloatArray:
        """Charge answers that were drawn elsewhere with ``mechanism.release``; all or none, in one transaction.

        Returns, once the charge is durable, what may be shown: for a question on record the recorded answer (the drawn
        one is thrown away), otherwise the drawn one. Nothing of ``drawn`` may be shown or kept before this returns. The
        caller vouches that ``drawn`` came from this mechanism's ``release``, for these answers and labels.

        Args:
            answers, drawn: (m, k) the true and the noisy answers; None draws them here.
            labels: m labels.
            query_ids: one name per answer, or one for all; without, equal answers are the same question.
            readings: digests of what each answer was made from. They are recorded under the ledger's key, and the same
                readings of a label are refused under another name, unless both begin with ``series``.
            budget: (ε, δ) of the budget that is set with this release where none is in force; it goes if this fails.
        """
        own = self._memory.trusted_copy(mechanism)
        true = validation.array(ndim=2, answers=answers)
        questions = decide.make_questions(own, true, labels, query_ids, self.secret, readings)
        names = [question.label for question in questions]
        own.prepare_release()
        if drawn is None:
            drawn = own.release(true, names)
        values = decide.check_drawn(own, drawn, len(names))
        self._memory.composer.prepare_spectra(own, names)
        with self._writing() as state:
            if budget is not None and state.budget is None:
                state.append("budget", budget_entry(*budget, None) | {"default": True})
            return decide.charge_answers(state, own, questions, values, series)

    def refuse_seen(self, labels: Sequence[Any], readings: Sequence[str], series: str) -> None:
        """Raise if an answer about a label was released from the same readings, under a name outside of ``series``."""
        digests = (decide.keyed_digest(self.secret, digest) for digest in readings)
        pairs = list(zip(map(str, labels), digests, strict=True))
        with self.storage.reading() as transaction:
            decide.refuse_seen_readings(transaction, pairs, series)

    def refuse_unusable(self, mechanisms: Iterable[Releasable]) -> None:
        """Raise if the mechanisms of one table could not be used together, before the first of them is.

        Each must join every label to all its neighbors on record, in mechanisms and in crowds, and in those before it.
        """
        with self._reading() as state:
            decide.refuse_unusable(state, mechanisms)

    def has(self, name: str) -> bool:
        """Whether anything was released under a name, or under one that begins with it and a space."""
        with self.storage.reading() as transaction:
            named = or_(ENTRIES.c.query_id == name, ENTRIES.c.query_id.startswith(f"{name} ", autoescape=True))
            return transaction.first(select(ENTRIES.c.seq).where(named).limit(1)) is not None

    # ------------------------------------------------------------------ crowds that last

    def crowds(self, labels: Sequence[Any] | None = None) -> LastingCrowds:
        """The crowds on record of some labels, each with all its members; or all crowds.

        Returns:
            Two frames, members and crowds, and the digest that :meth:`record_crowds` wants back.
        """
        with self.storage.reading() as transaction:
            return lasting.read_crowds(transaction, labels)

    def on_record(self, labels: Sequence[str], kind: str) -> int:
        """Number of given labels in crowds of a ``kind`` ("forecast", "table"), or have released readings."""
        with self.storage.reading() as transaction:
            return lasting.count_on_record(transaction, labels, kind)

    def spellings(self, labels: Sequence[str]) -> dict[str, str]:
        """Label -> its spelling on record, for labels that are on record in another (:func:`plaintext.name_key`)."""
        with self.storage.reading() as transaction:
            return recorded_spellings(transaction, labels)

    def draw_crowd_numbers(self, n: int) -> list[int]:
        """``n`` public numbers for new crowds, from the cryptographic source; none was drawn in this ledger before."""
        with self.storage.writing() as transaction:
            return lasting.draw_crowd_numbers(transaction, validation.count(n=n))

    def record_crowds(
        self,
        name: str,
        *,
        book_digest: str,
        members: pl.DataFrame,
        crowds: pl.DataFrame,
        table_digest: str,
        facts: Mapping[str, Any],
    ) -> Entry:
        """Record a release of one row per crowd, which charges nothing; decided and recorded in one transaction.

        The same release under the same name is on record already: its entry is returned and nothing changes.

        Args:
            book_digest: the ``digest`` of what :meth:`crowds` gave: crowds that were changed since are refused.
            members, crowds: the rows that change, with the columns of :class:`LastingCrowds`.
            table_digest: SHA-256 of the public table's bytes.
            facts: a small mapping for people who read the record: homes, crowds, period, folder.

        Raises:
            LedgerError: with the reason ``"stale"``, the crowds were changed since they were read.
            InputError: a rule for lasting crowds is broken (:mod:`shoal.product.ledger.crowds`). Nothing was recorded.
        """
        release = CrowdsRelease.from_frames(name, members, crowds, table_digest, facts)
        with self._writing() as state:
            return lasting.record_release(state, release, book_digest)

    def recorded_crowds(self, name: str) -> Entry | None:
        """The entry of the release of crowds under a name, or None."""
        with self.storage.reading() as transaction:
            return lasting.crowds_entry(transaction, name)

    def record_readings(
        self, name: str, *, period: str, labels: Sequence[Any], mu: float, cap: float, since: str | None = None
    ) -> Entry:
        """Record a release that is ``mu``-GDP for the whole readings of every label; decided in one transaction.

        The same release under the same name is on record already: its entry is returned and nothing changes.

        Args:
            period: what time it is about, as in :meth:`record_crowds`.
            labels: whose readings are in it. Everybody on the register is charged.
            mu: what the release costs, as a Gaussian parameter: for a label with its readings or without, and at least
                1/√2.4 of that for readings replaced by others.
            cap: M, fixed with the first release of this ledger: Σμ² over all releases stays at most M². Another
                register, or another cap, takes another ledger.
            since: the first instant of the readings that it is made from, where it ends with ``period``: the training
                windows of releases under both promises about the same homes do not overlap.

        Raises:
            BudgetError: the cap would be exceeded.
            InputError: another cap is on record, or something was released about a label under the labels' promise.
        """
        content = readings_entry(name, period, labels, mu, cap, since)
        with self._writing() as state:
            return decide.record_readings(state, content)

    # ------------------------------------------------------------------ the record

    def contains(self, head: Head | str) -> bool:
        """Whether the chain still has the entry that a head seals; :meth:`verify` checks the whole chain."""
        seal = Head.parse(head)
        with self.storage.reading() as transaction:
            return bool(transaction.value(select(ENTRIES.c.hash).where(ENTRIES.c.seq == seal.seq)) == seal.hash)

    @property
    def head(self) -> Head:
        """The seal on all entries so far. Kept elsewhere, it shows even a chain that was rewritten as a whole."""
        with self.storage.reading() as transaction:
            return chain.read_head(transaction)

    def rebuild(self) -> None:
        """Write the index of the chain anew, from the first entry on; :meth:`verify` says where it is wrong."""
        with self.storage.writing() as transaction:
            state = State(transaction, self._memory, replayed=True)
            for entry, _ in chain.read_entries(transaction):
                state.apply(entry)
            for table in INDEX:
                transaction.execute(delete(table))
            state.write()

    def entries(self) -> tuple[Entry, ...]:
        """Every entry, in order."""
        with self.storage.reading() as transaction:
            return tuple(entry for entry, _ in chain.read_entries(transaction))

    def verify(self, head: Head | str | None = None) -> Verification:
        """Recompute the whole chain, every digest and every budget; the report is true where all is well.

        ``head`` is a seal written down earlier: the chain must still contain it.

        Returns:
            The report; ``bool(report)`` says whether all is well.

        >>> import tempfile, shoal
        >>> with tempfile.TemporaryDirectory() as folder, shoal.Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
        ...     seal = ledger.head
        ...     ledger.budget(1.0, 1e-5)
        ...     bool(ledger.verify(seal))
        True
        """
        seal = None if head is None else Head.parse(head)
        with self.storage.reading() as transaction:
            return verify(transaction, self._memory.composer, seal)


def _create(transaction: Transaction) -> None:
    """Make the tables and the first entry of a new ledger."""
    database.create_tables(transaction)
    key, identity = secrets.token_bytes(32), str(uuid.uuid4())
    for name, value in (("ledger", identity), ("answer_key", key.hex())):
        transaction.execute(insert(META).values(name=name, value=value))
    content = {"ledger": identity, "key": hashlib.sha256(key).hexdigest(), "shoal": shoal.__version__}
    transaction.insert(database.HEAD, {"only_row": 1, "seq": 0, "hash": chain.START})
    chain.append_note(transaction, "created", content)
