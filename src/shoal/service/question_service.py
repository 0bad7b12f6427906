"""What the service does for whoever asks, without HTTP: offer, quote, charge, record, then show.

An answer is shown in five steps. Its idempotency key is bound to what is asked. The run makes its release, where it has
not: charged to the ledger and on record. One transaction looks at the analyst's account and notes a receipt that
charges the question to it and commits to all of the answers. A checkpoint that covers the receipt is put on disk,
outside of the ledger. Only then is the answer shown, and it is the same whenever it is asked for again.

A question is charged as a whole, so whether it is refused is the same for all of its handles.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shoal.errors import BudgetError, InputError, LedgerError, ShoalError, UnreachableError
from shoal.ledger import notes
from shoal.ledger.chain import Entry, canonical
from shoal.ledger.ledger import Ledger
from shoal.ledger.storage import Transaction
from shoal.service.allowance import Allowance, Price
from shoal.service.answers import AnswerSheet, commitment
from shoal.service.catalog import Catalog, Question, Rows, catalog, changes
from shoal.service.grants import Grant, Grants, check_terms
from shoal.service.handles import handles
from shoal.service.keys import Key
from shoal.service.people import Caller, NotNow, Person, Register, Unknown
from shoal.service.record import CHECKPOINTS, CheckpointFile, LedgerRecord
from shoal.service.tables import make_tables, now


class Refused(ShoalError):
    """It may not be shown; the same for every handle of a question."""


class IdempotencyConflict(ShoalError):
    """The idempotency key was used for something else."""


#: What an analyst is told, by cause. The owner reads the ledger's own words on the pages and at /v1/refusals.
TOLD = {
    "grant": "the budget of your grant does not allow this question",
    "owner_budget": "the data owner's budget does not allow this question",
    "ledger_rule": "the ledger does not allow this question as it stands; the data owner can see why",
}


class QuestionService:
    """The service over one ledger and one folder of runs."""

    def __init__(
        self, ledger: Ledger, folder: str | Path, url: str | None = None, log: Callable[..., None] | None = None
    ) -> None:
        """``url`` is where the ledger is, for runs that have not released yet."""
        make_tables(ledger.storage)
        self.ledger = ledger
        self.register, self.grants = Register(ledger.storage), Grants(ledger.storage)
        self.record = LedgerRecord(ledger)
        self.checkpoints = CheckpointFile(Path(folder) / CHECKPOINTS, self.record)
        self._folder, self._url = Path(folder), url
        self._log = log or (lambda event, **facts: None)
        self._lock, self._charging = threading.RLock(), threading.Lock()
        self._catalog, self._seen = Catalog({}, {}), dict[str, int]()
        self._handles: dict[tuple[str, str], dict[str, str]] = {}
        self._sheets: dict[tuple[str, str], AnswerSheet] = {}
        self._verdicts: dict[tuple[str, str], tuple[int, str | None]] = {}

    # ------------------------------------------------------------------ questions

    @property
    def catalog(self) -> Catalog:
        """What the folder offers, read again where a run has changed."""
        with self._lock:
            seen = changes(self._folder)
            if seen != self._seen or not self._seen:
                self._catalog, self._seen = catalog(self._folder, self.record.identity, self._url), seen
            return self._catalog

    def questions(self, caller: Caller) -> list[dict[str, Any]]:
        """Every question; to an analyst with handles where it was granted, and without where it may be asked for."""
        every = self.catalog.questions.values()
        if caller.is_owner:
            return [_described(question) for question in every]
        granted = {id for grant in self.grants.in_force(caller.person.id) for id in grant.questions}
        return [
            _described(question)
            | {
                "granted": question.id in granted,
                "handles": list(self._handles_of(caller.person, question)) if question.id in granted else [],
            }
            for question in every
        ]

    def quote(self, person: Person, id: str) -> dict[str, Any]:
        """What the next release of a question would cost the analyst, whether it is allowed, and what is left."""
        question, grant = self._granted(person, id)
        with self.ledger.storage.reading() as transaction:
            given = notes.receipts(transaction, person.id)
        again = any(entry.content["question"] == id for entry in given)
        quote = {"question": id, "error": question.error, "unit": question.unit, "given": again}
        if question.price is None or grant is None:
            nothing = {"epsilon": None, "delta": None, "remaining": None, "budget": None}
            return quote | nothing | {"allowed": question.price is None, "reason": None}
        account = self._allowance(given, question, grant)
        cause = None if again else "grant" if not account.allowed else self._verdict(person, question)
        statement = question.statement
        return quote | {
            "epsilon": 0.0 if again else statement.epsilon,
            "delta": 0.0 if again else statement.delta,
            "allowed": cause is None,
            "reason": None if cause is None else TOLD[cause],
            "remaining": {
                "epsilon": account.remaining_epsilon,
                "delta": account.remaining,
                "share": 1.0 - account.share,
            },
            "budget": {"epsilon": account.epsilon, "delta": account.delta},
        }

    # ------------------------------------------------------------------ people and grants

    def grant(
        self,
        analyst: str,
        questions: Sequence[str],
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        expires: str | None = None,
        by: Caller | None = None,
        new: bool = False,
        with_key: bool = True,
    ) -> tuple[Grant, Key | None]:
        """Grant questions that are on offer to an analyst who is known, or who is ``new`` and admitted with it.

        Labels of a charged question that have no budget in the ledger get the one that a run would give them.
        """
        offered = self.catalog.questions
        if not questions or not set(questions) <= set(offered):
            raise Unknown("question must be the id of a question on offer; see GET /v1/questions")
        charged = [offered[id] for id in questions if offered[id].price is not None]
        if charged and epsilon is None:
            raise InputError("epsilon and delta are needed: answers to this question are charged to a budget")
        check_terms(epsilon, delta, expires)
        person = self.register.named(analyst)
        if person is None and not new:
            raise NotNow(
                "nobody of this name is known here: look at the spelling, or admit them (under People, with "
                'POST /v1/people, or with "new": true in this call)'
            )
        if person is not None and (person.role != "analyst" or new):
            raise NotNow("somebody of this name is here already; grants are for known analysts, or for new ones")
        for question in charged:
            question.set_budget(self.ledger)
        if person is None:
            person = self.register.add_person(analyst, "analyst")
        granted = self.grants.add(person, questions, epsilon, delta, expires=expires, by=by, with_key=with_key)
        self.checkpoints.keep()
        return granted

    def end_grant(self, id: str) -> None:
        if not self.grants.end(id):
            raise Unknown("there is no such grant")
        self.checkpoints.keep()

    def dismiss(self, id: str) -> None:
        """End someone's grants, keys and sessions."""
        if id not in {person.id for person in self.register.people()}:
            raise Unknown("there is no such person")
        self.grants.end_all(id)
        self.register.dismiss(id)
        self.checkpoints.keep()

    def end_key(self, id: str, by: Caller) -> int:
        count = self.register.end_key(id, by)
        self.checkpoints.keep()
        return count

    def list_grants(self) -> list[dict[str, Any]]:
        """Every grant, with what its analyst has spent of it."""
        people = {person.id: person.name for person in self.register.people()}
        with self.ledger.storage.reading() as transaction:
            given = notes.receipts(transaction)
        listed = []
        for grant in self.grants.all():
            shown = {name: getattr(grant, name) for name in ("epsilon", "delta", "expires")}
            shown |= {"grant": grant.id, "analyst": people.get(grant.person, ""), "questions": list(grant.questions)}
            account = None
            if grant.epsilon is not None and grant.delta is not None:
                prices = _prices(entry for entry in given if entry.content["analyst"] == grant.person)
                account = Allowance.of(prices, None, grant.epsilon, grant.delta)
            remaining = None if account is None else {"epsilon": account.remaining_epsilon, "delta": account.remaining}
            share = None if account is None else account.share
            listed.append(shown | {"share": share, "remaining": remaining, "in_force": grant.in_force(now())})
        return listed

    def refusals(self) -> list[dict[str, Any]]:
        """What was refused, to whom and why: for the owner."""
        people = {person.id: person.name for person in self.register.people()}
        titles = {id: question.title for id, question in self.catalog.questions.items()}
        return [
            asdict(refusal)
            | {"analyst": people.get(refusal.person, ""), "title": titles.get(refusal.question, refusal.question)}
            for refusal in self.grants.refusals()
        ]

    def receipts(self, caller: Caller) -> list[dict[str, Any]]:
        """What was given, in order: to an analyst their own."""
        with self.ledger.storage.reading() as transaction:
            entries = notes.receipts(transaction, None if caller.is_owner else caller.person.id)
        names = ("receipt", "question", "analyst", "time")
        return [{name: entry.content[name] for name in names} | {"entry": entry.seq} for entry in entries]

    def proof(self, caller: Caller, receipt: str, size: int | None = None) -> dict[str, Any]:
        """How a receipt's entry leads to a checkpoint: to the analyst who holds it, and to owners."""
        with self.ledger.storage.reading() as transaction:
            entries = notes.receipts(transaction, None if caller.is_owner else caller.person.id)
        entry = next((entry for entry in entries if entry.content["receipt"] == receipt), None)
        if entry is None:
            raise Unknown("there is no such receipt")
        return self.record.inclusion(entry, size)

    # ------------------------------------------------------------------ releases

    def release(self, person: Person, id: str, handle: str | None, name: str) -> bytes:
        """One answer, or the whole table without a handle, as the bytes to send.

        It is charged and on record, and a checkpoint on disk, before this returns; it is the same ever after.

        Raises:
            Unknown: no such question or handle for this person.
            IdempotencyConflict: the idempotency key ``name`` was used for another body.
            Refused: a budget or a rule of the ledger does not allow the question.
        """
        question, grant = self._granted(person, id)
        if handle is not None and handle not in self._handles_of(person, question):
            raise Unknown("there is no such question or handle")
        if not self.grants.bind(person.id, name, canonical({"question": id, "handle": handle})):
            raise IdempotencyConflict("this Idempotency-Key was used for another request; use a new one")
        sheet = self._sheets.get((person.id, id)) or self._give(person, question, grant)
        return sheet.table_body if handle is None else sheet.bodies[handle]

    def sheet(self, person: Person, id: str) -> AnswerSheet:
        """All answers of a question that was given already."""
        question, grant = self._granted(person, id)
        with self.ledger.storage.reading() as transaction:
            if notes.receipt(transaction, person.id, id) is None:
                raise Unknown("there is no such question or handle")
        return self._sheets.get((person.id, id)) or self._give(person, question, grant)

    # ------------------------------------------------------------------ how it is done

    def _granted(self, person: Person, id: str) -> tuple[Question, Grant | None]:
        """A question that was granted, and the grant whose budget holds: the newest with one, for all questions.

        An analyst who could end under one budget in one case and under another in the other would be within neither.
        """
        question = self.catalog.questions.get(id)
        grants = self.grants.in_force(person.id)
        if question is None or not any(id in grant.questions for grant in grants):
            raise Unknown("there is no such question or handle")
        return question, next((grant for grant in reversed(grants) if grant.epsilon is not None), None)

    def _handles_of(self, person: Person, question: Question) -> dict[str, str]:
        """The analyst's handles of a question, each with its label."""
        key = (person.id, question.id)
        known = self._handles.get(key)
        if known is None or len(known) != len(question.labels):
            known = handles(self.ledger.secret, person.id, question.id, question.labels)
            self._handles[key] = known
        return known

    def _give(self, person: Person, question: Question, grant: Grant | None) -> AnswerSheet:
        """The sheet of an analyst, charged now or from the record; a checkpoint covers it when this returns."""
        with self._charging:
            known = self._sheets.get((person.id, question.id))
            if known is not None:
                return known
            with self.ledger.storage.reading() as transaction:
                entry = notes.receipt(transaction, person.id, question.id)
            if entry is None:
                entry, question = self._charge(person, question, grant)
            sheet = self._sheet(person, question, entry)
            self.checkpoints.keep()
            self._sheets[person.id, question.id] = sheet
            return sheet

    def _charge(self, person: Person, question: Question, grant: Grant | None) -> tuple[Entry, Question]:
        """Have the question released, charge it to an analyst, and note the receipt; the question as it is then."""
        try:
            with self.ledger.storage.reading() as transaction:
                self._refuse_overdraft(transaction, person, question, grant)
            question.refuse(self.ledger)  # before anything of it is begun
            question.release()
            question = self.catalog.questions.get(question.id) or question
            answers = self._by_handle(person, question, question.rows(self.ledger))
            with self.ledger.storage.writing() as transaction:
                entry = notes.receipt(transaction, person.id, question.id)
                if entry is None:
                    self._refuse_overdraft(transaction, person, question, grant)
                    content = self._receipt(person, question, grant, commitment(question.id, answers).root().hex())
                    entry = notes.noted(transaction, "receipt", content)
            return entry, question
        except (BudgetError, InputError, UnreachableError) as error:
            cause = _cause(error)
            self._refuse(person, question, cause, str(error))
            raise Refused(TOLD[cause]) from None
        except Refused:
            self._refuse(
                person, question, "grant", "the budget of the grant does not allow it; a new grant sets another"
            )
            raise

    def _refuse_overdraft(
        self, transaction: Transaction, person: Person, question: Question, grant: Grant | None
    ) -> None:
        """Raise where the analyst's account does not allow the question."""
        if question.price is not None:
            given = notes.receipts(transaction, person.id)
            if grant is None or not self._allowance(given, question, grant).allowed:
                raise Refused(TOLD["grant"])

    def _receipt(self, person: Person, question: Question, grant: Grant | None, root: str) -> dict[str, Any]:
        return {
            "receipt": _receipt_name(person.id, question.id, root),
            "analyst": person.id,
            "query_id": question.id,
            "question": question.id,
            "grant": None if grant is None else grant.id,
            "price": None if question.price is None else question.price.to_json(),
            "answers": root,
            "table": None if question.table is None else question.table.digest,
            "unit": question.unit,
            "error": question.error,
            "statement": question.statement.to_json(),
        }

    def _sheet(self, person: Person, question: Question, entry: Entry) -> AnswerSheet:
        """All answers as they are on record, if they are those that the receipt commits to."""
        answers = self._by_handle(person, question, question.rows(self.ledger))
        sheet = AnswerSheet(entry, answers, question.entries, question.timed, question.table)
        table = None if question.table is None else question.table.digest
        if sheet.root != entry.content["answers"] or entry.content.get("table") != table:
            raise LedgerError(
                f"ledger: the answers in {question.title} are not those of the receipt; restore the folder of the run"
            )
        return sheet

    def _by_handle(self, person: Person, question: Question, rows: Rows) -> dict[str, list[float]]:
        return {handle: rows[label] for handle, label in self._handles_of(person, question).items()}

    def _verdict(self, person: Person, question: Question) -> str | None:
        """Why the ledger would refuse the question now, or None."""
        key, size = (person.id, question.id), self.ledger.head.seq
        known = self._verdicts.get(key)
        if known is None or known[0] != size:
            cause = None
            try:
                question.refuse(self.ledger)
            except (BudgetError, InputError) as error:
                cause = _cause(error)
                self._refuse(person, question, cause, str(error))
            self._verdicts[key] = known = (size, cause)
        return known[1]

    def _refuse(self, person: Person, question: Question, cause: str, reason: str) -> None:
        """Tell the owner: the whole reason on the pages, which cause in the log, where no label may be named."""
        self.grants.note_refusal(person.id, question.id, cause, reason)
        self._log("refused", cause=cause, advice="the owner's page and GET /v1/refusals say why")

    def _allowance(self, given: Sequence[Entry], question: Question, grant: Grant) -> Allowance:
        """A grant's account with this question in it, which counts once however often it is asked."""
        again = any(entry.content["question"] == question.id for entry in given)
        counted = [
            entry
            for entry in given
            if entry.content["question"] == question.id or not self._apart(entry.content["question"], question)
        ]
        price = None if again else question.price
        return Allowance.of(_prices(counted), price, grant.epsilon or 0.0, grant.delta or 0.0)

    def _apart(self, id: str, question: Question) -> bool:
        """Whether another question is known to be about other labels, whose answers do not add up with these."""
        other = self.catalog.questions.get(id)
        return other is not None and other.labels.isdisjoint(question.labels)


def _prices(entries: Any) -> list[Price]:
    """What was charged with these receipts."""
    prices = (entry.content.get("price") for entry in entries)
    return [Price.from_json(price) for price in prices if price is not None]


def _cause(error: ShoalError) -> str:
    return "owner_budget" if isinstance(error, BudgetError) else "ledger_rule"


def _receipt_name(*parts: str) -> str:
    """A name for a receipt."""
    return f"rc_{hashlib.sha256(canonical({'receipt': list(parts)}).encode()).hexdigest()[:24]}"


def _described(question: Question) -> dict[str, Any]:
    return {
        "question": question.id,
        "title": question.title,
        "entries": len(question.entries) if question.released or question.facts is None else question.facts.entries,
        "times": list(question.entries) if question.timed else None,
        "unit": question.unit,
        "error": question.error,
        "charged": question.price is not None,
        "guarantee": question.statement.to_json(),
    }
