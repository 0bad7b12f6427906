"""The service without HTTP: offer, quote, charge, record, then show.

Before an answer is shown, its idempotency key is bound to what is asked; one transaction notes a receipt that charges
the question to the analyst and commits to all of the answers; and a checkpoint that covers the receipt is on disk. The
answer is the same ever after. A question is charged as a whole, so whether it is refused is the same for all of its
handles (docs/service.md). Prices of questions that share a label add up (basic composition).

    handle = base32(HMAC-SHA-256(secret of the ledger, analyst, question, label))[:20]

Nothing else depends on which label a handle hides: labels are sorted by handle, and every body has the same length.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal.errors import InputError, LedgerError, ShoalError
from shoal.product.ledger import chain
from shoal.product.ledger.chain import Entry, canonical_json
from shoal.product.ledger.ledger import Ledger
from shoal.product.service.catalog import Catalog, OfferedQuestion, TableStatement, change_times, read_catalog
from shoal.product.service.record import LedgerRecord, Tree
from shoal.product.service.register import Caller, Grant, Key, Person, Register, Unknown

#: Handle -> the bytes of an answer; None -> those with the public table.
Bodies = dict[str | None, bytes]
REFUSAL = "the budget of your grant does not allow this question"


class NotAllowed(ShoalError):
    """It may not be shown; the same for every handle of a question."""


class IdempotencyConflict(ShoalError):
    """The idempotency key was used for something else."""


@dataclass(frozen=True)
class GrantAccount:
    """A budget (ε, δ) and what was charged to it, exactly."""

    budget: tuple[Fraction, ...]
    spent: tuple[Fraction, ...]

    @classmethod
    def from_receipts(cls, grant: Grant, charged: Iterable[Entry]) -> GrantAccount:
        """The account of a grant after the receipts that were charged to it."""
        prices = [entry.content["statement"] for entry in charged]
        spent = (sum((Fraction(price[name] or 0) for price in prices), Fraction()) for name in ("epsilon", "delta"))
        return cls(_exact_figures(grant), tuple(spent))

    def may_afford(self, question: OfferedQuestion) -> bool:
        """Whether the rest of the budget covers a question's price."""
        every = zip(self.spent, _exact_figures(question.statement), self.budget, strict=True)
        return all(spent + price <= budget for spent, price, budget in every)

    @property
    def share(self) -> float:
        """The spent part of the budget, from 0 to 1."""
        pairs = zip(self.spent, self.budget, strict=True)
        return float(max(min(used / budget, Fraction(1)) if budget else Fraction(used > 0) for used, budget in pairs))

    def remaining(self) -> dict[str, float]:
        """The rest of ε and δ, rounded down."""
        left = {}
        for name, budget, used in zip(("epsilon", "delta"), self.budget, self.spent, strict=True):
            exact = max(budget - used, Fraction())
            left[name] = float(exact) if Fraction(float(exact)) <= exact else math.nextafter(float(exact), 0.0)
        return left


class QuestionService:
    """The service over one ledger and one folder of runs."""

    def __init__(self, ledger: Ledger, folder: str | Path, log: Callable[..., None] | None = None) -> None:
        self.ledger, self.record = ledger, LedgerRecord(ledger, Path(folder))
        self.register = Register(ledger.storage, self.record.keep_checkpoint)
        self._folder, self._log = Path(folder), log or (lambda event, **facts: None)
        self._lock, self._charging = threading.RLock(), threading.Lock()
        self._catalog, self._seen = Catalog({}, {}), dict[str, int]()
        self._handles: dict[tuple[str, str], dict[str, str]] = {}
        self._bodies: dict[tuple[str, str], Bodies] = {}

    # ------------------------------------------------------------------ questions and grants

    @property
    def catalog(self) -> Catalog:
        """The questions on offer, read again if a run changed."""
        with self._lock:
            seen = change_times(self._folder)
            if seen != self._seen or not self._seen:
                self._catalog, self._seen = read_catalog(self._folder, self.ledger), seen
            return self._catalog

    def questions(self, caller: Caller) -> list[dict[str, Any]]:
        """Every question; to an analyst with handles where it was granted, and without where it may be asked for."""
        every = self.catalog.questions.values()
        if caller.is_owner:
            return [question.description() for question in every]
        granted = {id for grant in self._grants_in_force(caller.person) for id in grant.questions}
        names = {q.id: list(self._handles_of(caller.person, q)) for q in every if q.id in granted}
        return [q.description() | {"granted": q.id in granted, "handles": names.get(q.id, [])} for q in every]

    def quote(self, person: Person, id: str) -> dict[str, Any]:
        """Cost of the next release of a question to the analyst, whether it is allowed, and what is left."""
        question, grant = self._find_granted(person, id)
        given, price = self._receipts(person.id), question.statement
        again = any(entry.content["question"] == id for entry in given)
        budget = remaining = None
        if price.epsilon is not None and grant is not None:
            account = GrantAccount.from_receipts(grant, self._entries_counted(given, question))
            remaining = account.remaining() | {"share": 1.0 - account.share}
            budget = {"epsilon": grant.epsilon, "delta": grant.delta}
        free, allowed = again and budget is not None, again or self._is_allowed(given, question, grant)
        return {
            "question": id,
            "error": question.error,
            "unit": question.unit,
            "given": again,
            "epsilon": 0.0 if free else price.epsilon,
            "delta": 0.0 if free else price.delta,
            "allowed": allowed,
            "reason": None if allowed else REFUSAL,
            "remaining": remaining,
            "budget": budget,
        }

    def grant(
        self, analyst: str, questions: Sequence[str], *budget: float | None, **terms: Any
    ) -> tuple[Grant, Key | None]:
        """Grant an analyst questions on offer, with (ε, δ) if one is charged; its key too, if one was made."""
        offered = self.catalog.questions
        if not questions or not set(questions) <= set(offered):
            raise Unknown("question must be the id of a question on offer; see GET /v1/questions")
        charged = any(offered[id].statement.epsilon is not None for id in questions)
        if charged and (not budget or budget[0] is None):
            raise InputError("epsilon and delta are needed: answers to this question are charged to a budget")
        return self.register.grant(analyst, questions, *budget, **terms)

    def list_grants(self) -> list[dict[str, Any]]:
        """Every grant, with what its analyst has spent of it, and how often it was too small."""
        people, given = {person.id: person.name for person in self.register.people()}, self._receipts()
        listed = []
        for grant in self.register.grants():
            shown = {name: getattr(grant, name) for name in ("epsilon", "delta", "expires", "refused", "in_force")}
            shown |= {"grant": grant.id, "analyst": people.get(grant.person, ""), "questions": list(grant.questions)}
            own = [entry for entry in given if entry.content["analyst"] == grant.person]
            account = None if grant.epsilon is None else GrantAccount.from_receipts(grant, own)
            listed.append(shown | {"share": account and account.share, "remaining": account and account.remaining()})
        return listed

    # ------------------------------------------------------------------ releases and receipts

    def release(self, person: Person, id: str, handle: str | None, name: str) -> bytes:
        """One answer, or the whole table without a handle, as the bytes to send.

        It is charged and on record, and a checkpoint on disk, before this returns; it is the same ever after.

        Raises:
            Unknown: no such question or handle for this person.
            IdempotencyConflict: the idempotency key ``name`` was used for another body.
            NotAllowed: the budget of the grant does not allow the question.
        """
        question, grant = self._find_granted(person, id)
        if handle is not None and handle not in self._handles_of(person, question):
            raise Unknown("there is no such question or handle")
        if not self.register.bind_request(person.id, name, canonical_json({"question": id, "handle": handle})):
            raise IdempotencyConflict("this Idempotency-Key was used for another request; use a new one")
        return self._charge_and_answer(person, question, grant)[handle]

    def given_table(self, person: Person, id: str) -> bytes:
        """The public table of a question that the person was given before, as bytes of CSV."""
        question, grant = self._find_granted(person, id)
        if not any(entry.content["question"] == id for entry in self._receipts(person.id)):
            raise Unknown("there is no such question or handle")
        self._charge_and_answer(person, question, grant)
        return question.table

    def receipts(self, caller: Caller) -> list[dict[str, Any]]:
        """All receipts in order to an owner, their own to an analyst."""
        names = ("receipt", "question", "analyst", "time")
        given = self._receipts(None if caller.is_owner else caller.person.id)
        return [{name: entry.content[name] for name in names} | {"entry": entry.seq} for entry in given]

    def proof(self, caller: Caller, receipt: str, size: int | None = None) -> dict[str, Any]:
        """Path from a receipt's entry to a checkpoint: to the analyst who holds it, and to owners."""
        for entry in self._receipts(None if caller.is_owner else caller.person.id):
            if entry.content["receipt"] == receipt:
                return self.record.inclusion(entry, size)
        raise Unknown("there is no such receipt")

    # ------------------------------------------------------------------ how it is done

    def _receipts(self, analyst: str | None = None) -> list[Entry]:
        """Receipt entries of the ledger, of one analyst or of all."""
        with self.ledger.storage.reading() as transaction:
            return chain.entries_of_kind(transaction, "receipt", **({} if analyst is None else {"analyst": analyst}))

    def _grants_in_force(self, person: Person) -> list[Grant]:
        """A person's grants that are in force, oldest first."""
        return [grant for grant in self.register.grants(person.id) if grant.in_force]

    def _find_granted(self, person: Person, id: str) -> tuple[OfferedQuestion, Grant | None]:
        """A granted question, and the newest grant in force with a budget, which counts for all questions."""
        question, grants = self.catalog.questions.get(id), self._grants_in_force(person)
        if question is None or not any(id in grant.questions for grant in grants):
            raise Unknown("there is no such question or handle")
        return question, next((grant for grant in reversed(grants) if grant.epsilon is not None), None)

    def _handles_of(self, person: Person, question: OfferedQuestion) -> dict[str, str]:
        """Handle -> label for an analyst and a question."""
        key = (person.id, question.id)
        if key not in self._handles:
            self._handles[key] = make_handles(self.ledger.secret, person.id, question.id, question.rows)
        return self._handles[key]

    def _charge_and_answer(self, person: Person, question: OfferedQuestion, grant: Grant | None) -> Bodies:
        """All answers to an analyst, charged now unless they are on record; a checkpoint covers them on return."""
        if (person.id, question.id) in self._bodies:
            return self._bodies[person.id, question.id]
        with self._charging:
            question.check_record(self.ledger)
            told = leaf_contents(question, self._handles_of(person, question))
            tree = Tree(canonical_json(leaf).encode() for leaf in told.values())
            content = _receipt_content(person, question, grant, tree)
            with self.ledger.storage.writing() as transaction:
                given = chain.entries_of_kind(transaction, "receipt", analyst=person.id)
                entry = next((entry for entry in given if entry.content["question"] == question.id), None)
                if entry is None and self._is_allowed(given, question, grant):
                    entry = chain.append_note(transaction, "receipt", content)
            if entry is None:
                if grant is not None:
                    self.register.count_refusal(grant)
                self._log("refused", cause="grant", advice="the owner's page shows which grants are too small")
                raise NotAllowed(REFUSAL)
            if any(content[name] != entry.content[name] for name in ("answers", "table")):
                raise LedgerError(
                    f"ledger: the answers in {question.title} are not those of the receipt; restore its folder"
                )
            self.record.keep_checkpoint()
            return self._bodies.setdefault((person.id, question.id), answer_bodies(entry, told, tree))

    def _is_allowed(self, given: Sequence[Entry], question: OfferedQuestion, grant: Grant | None) -> bool:
        """Whether a question may be charged to a grant, after the receipts given so far."""
        if question.statement.epsilon is None:
            return True
        counted = self._entries_counted(given, question)
        return grant is not None and GrantAccount.from_receipts(grant, counted).may_afford(question)

    def _entries_counted(self, given: Sequence[Entry], question: OfferedQuestion) -> list[Entry]:
        """Receipts whose prices add to a question's: all but those known to be about other labels."""
        every = self.catalog.questions

        def apart(id: str) -> bool:
            mine, other = question.rows.keys(), every[id].rows.keys() if id in every else set()
            return bool(mine) and bool(other) and mine.isdisjoint(other)

        return [entry for entry in given if not apart(entry.content["question"])]


def make_handles(secret: bytes, analyst: str, question: str, labels: Iterable[str]) -> dict[str, str]:
    """Handle -> label, sorted by handle: an analyst's own names for the labels of a question."""
    key = hmac.digest(secret, f"shoal handles\0{analyst}\0{question}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    names = {}
    for label in labels:
        digest = hmac.digest(key, label.encode("utf-8", "surrogatepass"), hashlib.sha256)
        names[base64.b32encode(digest).decode()[:20].lower()] = label
    return dict(sorted(names.items()))


def leaf_contents(question: OfferedQuestion, handles: Mapping[str, str]) -> dict[str | None, dict[str, Any]]:
    """Handle -> the content that its leaf commits to, in the order of ``handles``; None, last -> the public table."""
    common = {"question": question.id, "times": question.entries if question.has_timestamps else None}
    common["entries"] = question.entries
    table = {"columns": question.cells[0], "rows": question.cells[1:]}
    each: dict[str | None, dict[str, Any]] = {
        handle: common | {"handle": handle, "answer": question.rows[label]} for handle, label in handles.items()
    }
    return each | {None: common | {"handle": None, "table": table}}


def answer_bodies(entry: Entry, told: Mapping[str | None, dict[str, Any]], tree: Tree) -> Bodies:
    """Response bytes, of the same length for every handle: receipt ``entry``, contents ``told``, and their ``tree``."""
    content = entry.content
    common = {name: content[name] for name in ("question", "unit", "error", "statement")}
    common["released"] = content["time"]
    receipt = {"id": content["receipt"], "question": content["question"], "entry": vars(entry)}
    bodies = {}
    for place, (handle, answer) in enumerate(told.items()):
        path = [step.hex() for step in tree.inclusion(place, tree.size)]
        inside = {"handle": handle, "inside": {"index": place, "size": tree.size, "path": path}}
        body = common | answer | {"receipt": receipt | inside}
        bodies[handle] = json.dumps(body, ensure_ascii=True, allow_nan=False).encode()
    longest = max((len(body) for handle, body in bodies.items() if handle is not None), default=0)
    return {handle: body if handle is None else body.ljust(longest) for handle, body in bodies.items()}


def _exact_figures(figures: Grant | TableStatement) -> tuple[Fraction, Fraction]:
    """(ε, δ) of a budget or a price as exact fractions, 0 for None."""
    return Fraction(figures.epsilon or 0.0), Fraction(figures.delta or 0.0)


def _receipt_content(person: Person, question: OfferedQuestion, grant: Grant | None, tree: Tree) -> dict[str, Any]:
    """Content of the ledger entry that charges a question to an analyst and commits to its answers."""
    root = tree.root().hex()
    name = canonical_json({"receipt": [person.id, question.id, root]})
    return {
        "receipt": f"rc_{hashlib.sha256(name.encode()).hexdigest()[:24]}",
        "analyst": person.id,
        "query_id": question.id,
        "question": question.id,
        "grant": None if grant is None else grant.id,
        "answers": root,
        "leaves": tree.size,
        "table": question.table_digest,
        "unit": question.unit,
        "error": question.error,
        "statement": question.statement.to_json(),
    }
