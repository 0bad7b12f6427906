"""Who was granted what, what each idempotency key stands for, and what was refused: rows beside the ledger's chain.

A grant and its end are entries of the chain as well, where nobody can change them.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shoal import validation
from shoal.errors import InputError
from shoal.ledger.notes import noted
from shoal.ledger.storage import Storage, Transaction
from shoal.service.keys import Key
from shoal.service.people import Caller, Person, end_grant_keys, grant_key, instant, new_id
from shoal.service.tables import now

_GRANTS = "SELECT id, person, questions, epsilon, delta, expires, created, ended FROM service_grants"


@dataclass(frozen=True)
class Grant:
    """What an analyst may ask, and within which budget; without one only what is never charged."""

    id: str
    person: str
    questions: tuple[str, ...]
    epsilon: float | None
    delta: float | None
    expires: str | None
    created: str
    ended: str | None = None

    def in_force(self, instant: str) -> bool:
        return self.ended is None and (self.expires is None or instant < self.expires)


@dataclass(frozen=True)
class Refusal:
    """What an analyst was refused, how often, and why: for the owner's eyes."""

    person: str
    question: str
    cause: str
    reason: str
    times: int
    latest: str


class Grants:
    """Grants, idempotency keys and refusals in a ledger's database."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def add(
        self,
        person: Person,
        questions: Sequence[str],
        epsilon: float | None,
        delta: float | None,
        *,
        expires: str | None = None,
        by: Caller | None = None,
        with_key: bool = True,
    ) -> tuple[Grant, Key | None]:
        """Grant questions to an analyst.

        Args:
            person: the analyst; all their grants share one account.
            questions: their ids.
            epsilon, delta: what the analyst may know about any label, in all; None for what is never charged.
            expires: an instant to come, ISO 8601.
            by: who grants it.
            with_key: make a key that ends with the grant.
        """
        end = check_terms(epsilon, delta, expires)
        grant = Grant(new_id("g"), person.id, tuple(questions), epsilon, delta, end, now())
        with self._storage.writing() as transaction:
            transaction.insert("service_grants", asdict(grant) | {"questions": json.dumps(grant.questions)})
            content = {name: value for name, value in asdict(grant).items() if name != "id"}
            granted_by = None if by is None else by.person.id
            noted(transaction, "grant", content | {"questions": list(questions), "grant": grant.id, "by": granted_by})
            return grant, grant_key(transaction, person, by, end, grant.id) if with_key else None

    def all(self, person: str | None = None) -> list[Grant]:
        """All grants, or those of someone, in order."""
        with self._storage.reading() as transaction:
            rows = transaction.rows(f"{_GRANTS} ORDER BY created, id")
        every = [Grant(row[0], row[1], tuple(json.loads(row[2])), *row[3:]) for row in rows]
        return [grant for grant in every if person in (None, grant.person)]

    def in_force(self, person: str) -> list[Grant]:
        return [grant for grant in self.all(person) if grant.in_force(now())]

    def end(self, id: str) -> bool:
        """End a grant and the key that came with it; False where there is none."""
        with self._storage.writing() as transaction:
            row = transaction.one("SELECT 1 FROM service_grants WHERE id = :id AND ended IS NULL", id=id)
            if row is not None:
                _end(transaction, id)
            return row is not None

    def end_all(self, person: str) -> None:
        """End every grant of someone."""
        for grant in self.all(person):
            self.end(grant.id)

    def bind(self, person: str, name: str, body: str) -> bool:
        """Bind an idempotency key of someone to a body; False where it is bound to another."""
        with self._storage.reading() as transaction:
            known = _bound(transaction, person, name)
        if known is None:
            with self._storage.writing(chain=False) as transaction:
                row = {"person": person, "name": name, "body": body}
                transaction.insert("service_requests", row, otherwise="ON CONFLICT DO NOTHING")
                known = _bound(transaction, person, name)
        return known is not None and hmac.compare_digest(known.encode(), body.encode())

    def note_refusal(self, person: str, question: str, cause: str, reason: str) -> None:
        """Count a refusal; one row for each cause, however often somebody asks."""
        row = {"person": person, "question": question, "cause": cause, "reason": reason, "times": 1, "latest": now()}
        with self._storage.writing(chain=False) as transaction:
            again = (
                "ON CONFLICT (person, question, cause) DO UPDATE SET reason = excluded.reason, "
                "latest = excluded.latest, times = service_refusals.times + 1"
            )
            transaction.insert("service_refusals", row, otherwise=again)

    def refusals(self) -> list[Refusal]:
        """What was refused, the newest first."""
        names = "person, question, cause, reason, times, latest"
        with self._storage.reading() as transaction:
            rows = transaction.rows(f"SELECT {names} FROM service_refusals ORDER BY latest DESC LIMIT 200")
        return [Refusal(*row) for row in rows]


def check_terms(epsilon: float | None, delta: float | None, expires: str | None) -> str | None:
    """Raise unless a grant can be made of these; its end as it is stored."""
    if (epsilon is None) != (delta is None):
        raise InputError("epsilon and delta are one budget: give both, or neither for what is never charged")
    if epsilon is not None and delta is not None:
        validation.non_negative(epsilon=epsilon)
        validation.probability(delta=delta, below_one=True)
    return None if expires is None else instant(expires)


def _bound(transaction: Transaction, person: str, name: str) -> str | None:
    body: Any = transaction.value(
        "SELECT body FROM service_requests WHERE person = :person AND name = :name", person=person, name=name
    )
    return None if body is None else str(body)


def _end(transaction: Transaction, id: str) -> None:
    transaction.run("UPDATE service_grants SET ended = :now WHERE id = :id", now=now(), id=id)
    noted(transaction, "revoked", {"grant": id})
    end_grant_keys(transaction, id)
