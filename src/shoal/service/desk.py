"""What the service does for whoever asks, without HTTP: offer, quote, charge, record, then show.

An answer is shown in three steps. Its idempotency key is bound to what is asked. Then one transaction of the ledger
looks at the analyst's account, charges every label of the question at once, and notes a receipt that commits to all of
the answers. Only then is the answer read from that record, and so it is the same whenever it is asked for again.

Nothing depends on which label a handle hides. A question is charged as a whole, so whether it is refused is the same
for all of its handles; bodies are padded to one length; after the first, every request is one look into a table.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import BudgetError, InputError, LedgerError, ShoalError
from shoal.ledger import notes
from shoal.ledger.chain import Entry, canonical
from shoal.ledger.ledger import Ledger
from shoal.ledger.storage import Transaction
from shoal.service.allowance import Allowance, Price
from shoal.service.catalog import Offer, offers
from shoal.service.handles import handles
from shoal.service.keys import Key
from shoal.service.merkle import Tree
from shoal.service.people import Grant, Person, Register, now
from shoal.service.people import Request as Wish
from shoal.validation import FloatArray


class Unknown(ShoalError):
    """There is no such thing, or none that this person may see: the two look alike."""


class Refused(ShoalError):
    """A budget does not allow it; the same for every handle of a question."""


class Clash(ShoalError):
    """The idempotency key was used for something else."""


@dataclass
class Sheet:
    """All answers of a question as one analyst gets them: by handle, every body of the same length."""

    entry: Entry
    answers: Mapping[str, list[float]]
    tree: Tree
    places: Mapping[str, int]
    bodies: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        return self.entry.content

    def receipt(self, handle: str) -> dict[str, Any]:
        """What the analyst keeps: what was given, and where it is on record."""
        place = self.places[handle]
        return {
            "id": self.content["receipt"],
            "question": self.content["question"],
            "handle": handle,
            "inside": {
                "index": place,
                "size": self.tree.size,
                "path": [step.hex() for step in self.tree.inclusion(place, self.tree.size)],
            },
            "entry": vars(self.entry),
        }


class Desk:
    """The service over one ledger and one folder of runs."""

    def __init__(self, ledger: Ledger, folder: str | Path) -> None:
        self.ledger = ledger
        self.register = Register(ledger.storage)
        self._folder = Path(folder)
        self._lock, self._charging = threading.RLock(), threading.Lock()
        self._offers: dict[str, Offer] = {}
        self._seen: dict[str, int] = {}
        self._labels: dict[str, frozenset[str]] = {}
        self._maps: dict[tuple[str, str], dict[str, str]] = {}
        self._sheets: dict[tuple[str, str], Sheet] = {}
        self._tree = Tree()
        self.identity = ledger.identity

    # ------------------------------------------------------------------ questions

    def offers(self) -> dict[str, Offer]:
        """Every question of the folder, read again where a run has changed."""
        with self._lock:
            states = [self._folder / "state.json", *sorted(self._folder.glob("*/state.json"))]
            seen = {str(path): path.stat().st_mtime_ns for path in states if path.is_file()}
            if seen != self._seen:
                self._offers, self._seen = offers(self._folder), seen
            return self._offers

    def questions(self, person: Person) -> list[dict[str, Any]]:
        """What someone may ask: an owner or approver sees everything, without handles."""
        every = self.offers()
        if person.role != "analyst":
            return self.every_question()
        mine = {name for grant in self._in_force(person) for name in grant.questions}
        return [
            {**_described(offer), "handles": list(self._map(person, offer))}
            for name, offer in every.items()
            if name in mine
        ]

    def every_question(self) -> list[dict[str, Any]]:
        """All questions without handles: what an admitted analyst can ask to be granted."""
        return [_described(offer) for offer in self.offers().values()]

    def quote(self, person: Person, question: str) -> dict[str, Any]:
        """What the next release of a question would cost the analyst, and what is left."""
        offer, grant = self._granted(person, question)
        with self.ledger.storage.reading() as transaction:
            again = notes.receipt(transaction, person.id, question) is not None
            account = self._allowance(transaction, person, offer, grant)
        facts = offer.facts
        return {
            "question": question,
            "epsilon": 0.0 if again else facts.epsilon,
            "delta": 0.0 if again else offer.certificate["delta"],
            "error": offer.error,
            "unit": offer.unit,
            "allowed": again or account.allowed,
            "remaining": {
                "epsilon": account.remaining_epsilon,
                "delta": account.remaining,
                "share": 1.0 - account.share,
            },
            "budget": {"epsilon": account.epsilon, "delta": account.delta},
        }

    # ------------------------------------------------------------------ grants

    def grant(
        self,
        analyst: str,
        questions: tuple[str, ...],
        epsilon: float,
        delta: float,
        **how: Any,
    ) -> tuple[Grant, Key | None]:
        """Grant questions that are on offer, as :meth:`Register.grant` does."""
        if not questions or not set(questions) <= set(self.offers()):
            raise Unknown("question must be the id of a question on offer; see GET /v1/questions")
        return self.register.grant(analyst, questions, epsilon, delta, **how)

    def grants(self) -> list[dict[str, Any]]:
        """Every grant, with what its analyst has spent of it."""
        people = {person.id: person.name for person in self.register.people()}
        instant = now()
        with self.ledger.storage.reading() as transaction:
            given = notes.receipts(transaction)
        found = []
        for grant in self.register.grants():
            mine = [Price.from_json(e.content["price"]) for e in given if e.content["analyst"] == grant.person]
            account = Allowance.of(mine, None, grant.epsilon, grant.delta)
            found.append(
                {
                    "grant": grant.id,
                    "analyst": people.get(grant.person, ""),
                    "questions": list(grant.questions),
                    "epsilon": grant.epsilon,
                    "delta": grant.delta,
                    "share": account.share,
                    "remaining": {"epsilon": account.remaining_epsilon, "delta": account.remaining},
                    "expires": grant.expires,
                    "in_force": grant.holds(instant),
                }
            )
        return found

    def requested(self, person: Person, question: str, reason: str) -> Wish:
        """An analyst asks to be granted a question."""
        if question not in self.offers():
            raise Unknown("there is no such question")
        return self.register.requested(person, question, reason)

    def approved(
        self, request: str, epsilon: float, delta: float, expires: str | None, answer: str, by: Person
    ) -> dict[str, Any]:
        """Approve a request: a grant for whoever made it, who has a key already."""
        people = {person.id: person for person in self.register.people()}
        wish = next((one for one in self.register.requests() if one.id == request), None)
        if wish is None or wish.state != "pending" or wish.person not in people:
            raise Unknown("there is no such request")
        made, _ = self.grant(
            people[wish.person].name, (wish.question,), epsilon, delta, expires=expires, by=by, keyed=False
        )
        self.register.decided(request, "approved", answer, by)
        return {"grant": made.id}

    def denied(self, request: str, answer: str, by: Person) -> dict[str, Any]:
        """Deny a request, with the reason."""
        if self.register.decided(request, "denied", answer, by) is None:
            raise Unknown("there is no such request")
        return {"state": "denied"}

    def receipts(self, person: Person) -> list[dict[str, Any]]:
        """What was given, in order: to an analyst their own."""
        with self.ledger.storage.reading() as transaction:
            found = notes.receipts(transaction, person.id if person.role == "analyst" else None)
        return [
            {name: entry.content[name] for name in ("receipt", "question", "analyst", "time")} | {"entry": entry.seq}
            for entry in found
        ]

    # ------------------------------------------------------------------ releases

    def release(self, person: Person, question: str, handle: str, name: str) -> bytes:
        """One answer as the bytes to send: charged and on record before this returns, and the same ever after.

        Raises:
            Unknown: no such question or handle for this person.
            Clash: the idempotency key ``name`` was used for another body.
            Refused: a budget does not allow the question.
        """
        offer, grant = self._granted(person, question)
        if handle not in self._map(person, offer):
            raise Unknown("there is no such question or handle")
        if not self.register.bound(person.id, name, canonical({"question": question, "handle": handle})):
            raise Clash("this Idempotency-Key was used for another request; use a new one")
        sheet = self._sheets.get((person.id, question))
        if sheet is None:
            sheet = self._given(person, offer, grant)
        return sheet.bodies[handle]

    def sheet(self, person: Person, question: str) -> dict[str, list[float]]:
        """All answers of a question that was charged already, by handle."""
        offer, grant = self._granted(person, question)
        with self.ledger.storage.reading() as transaction:
            if notes.receipt(transaction, person.id, question) is None:
                raise Unknown("there is no such question or handle")
        return dict(self._given(person, offer, grant).answers)

    def proof(self, person: Person, receipt: str, size: int | None = None) -> dict[str, Any]:
        """How a receipt's entry leads to a checkpoint: the newest, or the one of ``size`` entries.

        To the analyst who holds it; an owner or auditor gets it without an answer.
        """
        with self.ledger.storage.reading() as transaction:
            entry = next((one for one in notes.receipts(transaction) if one.content["receipt"] == receipt), None)
        if entry is None or (person.role == "analyst" and entry.content["analyst"] != person.id):
            raise Unknown("there is no such receipt")
        tree = self._grown()
        upto = tree.size if size is None else size
        if not entry.seq <= upto <= tree.size:
            raise Unknown("size must be that of a checkpoint that holds the receipt")
        path = [step.hex() for step in tree.inclusion(entry.seq - 1, upto)]
        return {
            "checkpoint": self._checkpoint(tree, upto),
            "inclusion": {"index": entry.seq - 1, "size": upto, "path": path},
            "entry": vars(entry),
        }

    def checkpoint(self, size: int | None = None) -> dict[str, Any]:
        """The root of the tree over all entries, to be written down elsewhere."""
        tree = self._grown()
        return self._checkpoint(tree, tree.size if size is None else size)

    def consistency(self, first: int, second: int | None = None) -> dict[str, Any]:
        """That the record only grew between two checkpoints."""
        tree = self._grown()
        upto = tree.size if second is None else second
        if not 0 < first <= upto <= tree.size:
            raise Unknown("there are no such checkpoints")
        path = tree.consistency(first, upto)
        return {
            "first": self._checkpoint(tree, first),
            "second": self._checkpoint(tree, upto),
            "consistency": [step.hex() for step in path],
        }

    # ------------------------------------------------------------------ how it is done

    def _in_force(self, person: Person) -> list[Grant]:
        instant = now()
        return [grant for grant in self.register.grants(person.id) if grant.holds(instant)]

    def _granted(self, person: Person, question: str) -> tuple[Offer, Grant]:
        """A question that was granted, and the grant whose budget holds: the newest one, for all of them.

        An analyst who could end under one budget in one case and under another in the other would be within neither.
        """
        offer = self.offers().get(question)
        grants = self._in_force(person)
        if offer is None or not any(question in grant.questions for grant in grants):
            raise Unknown("there is no such question or handle")
        return offer, grants[-1]

    def _map(self, person: Person, offer: Offer) -> dict[str, str]:
        """The analyst's handles of a question, each with its label."""
        key = (person.id, offer.id)
        found = self._maps.get(key)
        if found is None:
            found = self._maps[key] = handles(self.ledger.secret, person.id, offer.id, self._labels_of(offer))
        return found

    def _given(self, person: Person, offer: Offer, grant: Grant) -> Sheet:
        """The sheet of an analyst: from the record, or charged now."""
        with self._charging:  # one at a time here; other processes are held off by the ledger's own lock
            known = self._sheets.get((person.id, offer.id))
            if known is not None:
                return known
            with self.ledger.storage.reading() as transaction:
                entry = notes.receipt(transaction, person.id, offer.id)
            entry = entry or self._charged(person, offer, grant)
            sheet = self._sheet(person, offer, entry)
            self._sheets[person.id, offer.id] = sheet
            return sheet

    def _charged(self, person: Person, offer: Offer, grant: Grant) -> Entry:
        """Charge every label of a question to an analyst, and note the receipt: all of it or nothing."""
        charges: list[tuple[Sequence[str], Callable[[Transaction], FloatArray]]] = []
        for content, bound, drawn in offer.drawn():
            charge = self.ledger.ready(content, drawn.answers, drawn.drawn, drawn.labels, offer.name, person.id, bound)
            charges.append((drawn.labels, charge))
        try:
            with self.ledger.storage.writing() as transaction:
                entry = notes.receipt(transaction, person.id, offer.id)
                if entry is not None:
                    return entry
                if not self._allowance(transaction, person, offer, grant).allowed:
                    raise Refused(f"the budget of {person.name} does not allow this question")
                by_label: dict[str, list[float]] = {}
                for labels, charge in charges:
                    by_label.update(zip(labels, offer.shown(labels, charge(transaction)).tolist(), strict=True))
                _, tree = _committed(offer.id, self._map(person, offer), by_label)
                return notes.noted(
                    transaction,
                    "receipt",
                    {
                        "receipt": f"rc_{tree.root().hex()[:24]}",
                        "analyst": person.id,
                        "query_id": offer.id,
                        "question": offer.id,
                        "grant": grant.id,
                        "price": offer.price.to_json(),
                        "answers": tree.root().hex(),
                        "unit": offer.unit,
                        "error": offer.error,
                        "certificate": offer.certificate,
                    },
                )
        except (BudgetError, InputError):
            # The ledger's own words name accounts of labels. `shoal ledger budget` and its log have them for the owner.
            raise Refused("the data owner's budget does not allow this question") from None

    def _sheet(self, person: Person, offer: Offer, entry: Entry) -> Sheet:
        """All answers as they are on record, and the bytes to send for each."""
        by_label: dict[str, list[float]] = {}
        for part in offer.listing.parts:
            labels = offer.labels(part)
            found = self.ledger.recorded(labels, offer.name, analyst=person.id)
            known = [values for values in found if values is not None]
            if len(known) < len(labels):
                raise LedgerError("ledger: answers of a receipt are not on record; run `shoal ledger verify`")
            by_label.update(zip(labels, offer.shown(labels, np.array(known)).tolist(), strict=True))
        answers, tree = _committed(offer.id, self._map(person, offer), by_label)
        if tree.root().hex() != entry.content["answers"]:
            raise LedgerError("ledger: the recorded answers are not those of the receipt; run `shoal ledger verify`")
        sheet = Sheet(entry, answers, tree, {handle: place for place, handle in enumerate(answers)})
        plain = {handle: self._body(sheet, handle) for handle in answers}
        longest = max(map(len, plain.values()), default=0)
        sheet.bodies = {handle: body.ljust(longest) for handle, body in plain.items()}
        return sheet

    def _body(self, sheet: Sheet, handle: str) -> bytes:
        content = {
            "question": sheet.content["question"],
            "handle": handle,
            "answer": sheet.answers[handle],
            "unit": sheet.content["unit"],
            "error": sheet.content["error"],
            "certificate": sheet.content["certificate"],
            "receipt": sheet.receipt(handle),
        }
        return json.dumps(content, ensure_ascii=True, allow_nan=False).encode()

    def _allowance(self, transaction: Transaction, person: Person, offer: Offer, grant: Grant) -> Allowance:
        """A grant's account with this question in it, which counts once however often it is asked."""
        given = notes.receipts(transaction, person.id)
        total = self._account(given, offer, grant.epsilon, grant.delta)
        if grant.days is None or grant.window_epsilon is None or grant.window_delta is None:
            return total
        since = now(-timedelta(days=grant.days))
        recent = [entry for entry in given if str(entry.content["time"]) >= since]
        window = self._account(recent, offer, grant.window_epsilon, grant.window_delta)
        return window if total.allowed and not window.allowed else total

    def _account(self, given: Sequence[Entry], offer: Offer, epsilon: float, delta: float) -> Allowance:
        before = [
            Price.from_json(entry.content["price"])
            for entry in given
            if entry.content["question"] == offer.id or not self._apart(entry.content["question"], offer)
        ]
        again = any(entry.content["question"] == offer.id for entry in given)
        return Allowance.of(before, None if again else offer.price, epsilon, delta)

    def _apart(self, question: str, offer: Offer) -> bool:
        """Whether another question is known to be about other labels, whose answers do not add up with these."""
        other = self.offers().get(question)
        return other is not None and self._labels_of(other).isdisjoint(self._labels_of(offer))

    def _labels_of(self, offer: Offer) -> frozenset[str]:
        if offer.id not in self._labels:
            self._labels[offer.id] = frozenset(name for part in offer.listing.parts for name in offer.labels(part))
        return self._labels[offer.id]

    def _grown(self) -> Tree:
        """The tree over all entries, with those that came since."""
        with self._lock:
            with self.ledger.storage.reading() as transaction:
                for text in notes.hashes(transaction, self._tree.size):
                    self._tree.append(bytes.fromhex(text))
            return self._tree

    def _checkpoint(self, tree: Tree, size: int) -> dict[str, Any]:
        return {"ledger": self.identity, "size": size, "root": tree.root(size).hex()}


def _committed(
    question: str, names: Mapping[str, str], by_label: Mapping[str, list[float]]
) -> tuple[dict[str, list[float]], Tree]:
    """Handle -> answer in the order of handles, and the tree over what is told of each."""
    answers = {handle: by_label[label] for handle, label in names.items()}
    told = ({"question": question, "handle": handle, "answer": answer} for handle, answer in answers.items())
    return answers, Tree(canonical(one).encode() for one in told)


def _described(offer: Offer) -> dict[str, Any]:
    return {
        "question": offer.id,
        "title": offer.title,
        "entries": offer.entries,
        "unit": offer.unit,
        "error": offer.error,
        "guarantee": offer.certificate,
    }
