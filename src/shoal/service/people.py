"""Whom the service knows: people, their keys and sessions, what they were granted and what they asked to be granted.

Rows of the ledger's own database, changed in its transactions. What was granted and when it ended is in the chain too
(:mod:`shoal.ledger.notes`), where nobody can change it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from shoal import validation
from shoal.errors import InputError
from shoal.ledger.chain import told
from shoal.ledger.notes import noted
from shoal.ledger.questions import word
from shoal.ledger.storage import Storage, Transaction
from shoal.service.keys import ROLES, Key, new_key

#: How long a sign-in on the page lasts.
SESSION = timedelta(hours=12)
_REQUESTS = "SELECT id, person, question, reason, state, answer, decided_by, created FROM requests"


@dataclass(frozen=True)
class Person:
    """Someone who may ask or decide."""

    id: str
    name: str
    role: str


@dataclass(frozen=True)
class Grant:
    """What an analyst may ask, and within which budget. ``days`` is the length of a window that renews."""

    id: str
    person: str
    questions: tuple[str, ...]
    epsilon: float
    delta: float
    expires: str | None = None
    days: float | None = None
    window_epsilon: float | None = None
    window_delta: float | None = None
    created: str = ""
    revoked: str | None = None

    def holds(self, now: str) -> bool:
        """Whether it is in force."""
        return self.revoked is None and (self.expires is None or now < self.expires)


@dataclass(frozen=True)
class Request:
    """An analyst's wish to be granted a question, and what became of it: pending, approved or denied."""

    id: str
    person: str
    question: str
    reason: str
    state: str
    answer: str
    decided_by: str | None
    created: str


class Register:
    """People and grants in a ledger's database."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    # ------------------------------------------------------------------ people and keys

    def founded(self) -> Key | None:
        """The first owner's key, on the very first call; None ever after."""
        with self._storage.writing() as transaction:
            if transaction.one("SELECT 1 FROM people WHERE role = 'owner'") is not None:
                return None
            return _key(transaction, _person(transaction, "owner", "owner"))

    def person(self, name: str, role: str) -> Key:
        """Admit someone; their key is returned here and nowhere else. Who is known gets one key more."""
        validation.choice(tuple(ROLES), role=role)
        with self._storage.writing() as transaction:
            return _key(transaction, _person(transaction, word(name=name), role))

    def people(self) -> list[Person]:
        with self._storage.reading() as transaction:
            return [Person(*row) for row in transaction.rows("SELECT id, name, role FROM people ORDER BY created, id")]

    def holder(self, key: Key) -> Person | None:
        """Who holds a key that is in force."""
        return self._bearer(
            "SELECT p.id, p.name, p.role, k.expires FROM keys k JOIN people p ON p.id = k.person "
            "WHERE k.digest = :digest AND k.revoked IS NULL",
            key.digest,
        )

    def rotated(self, key: Key) -> Key:
        """A second key for the holder of one; the first works until it is revoked."""
        with self._storage.writing() as transaction:
            row = transaction.one(
                "SELECT p.id, p.name, p.role, k.expires, k.for_grant FROM keys k JOIN people p ON p.id = k.person "
                "WHERE k.digest = :digest AND k.revoked IS NULL",
                digest=key.digest,
            )
            if row is None:
                raise InputError("key: it is not in force")
            return _key(transaction, Person(*row[:3]), row[3], row[4])

    def revoke_key(self, digest: str) -> None:
        """End a key at once, and every session that it opened."""
        with self._storage.writing() as transaction:
            _end_key(transaction, digest)

    def revoke_person(self, person: str) -> None:
        """End all keys, sessions and grants of someone."""
        with self._storage.writing() as transaction:
            ended = "UPDATE keys SET revoked = :now WHERE person = :person AND revoked IS NULL"
            transaction.run(ended, now=now(), person=person)
            transaction.run("DELETE FROM sessions WHERE person = :person", person=person)
            for row in transaction.rows(
                "SELECT id FROM grants WHERE person = :person AND revoked IS NULL", person=person
            ):
                _end_grant(transaction, str(row[0]))

    # ------------------------------------------------------------------ sessions of the page

    def signed_in(self, person: Person, key: Key | None = None) -> str:
        """A new session: the text of its cookie, which is kept as a digest only."""
        text = secrets.token_urlsafe(32)
        with self._storage.writing(chain=False) as transaction:
            transaction.run("DELETE FROM sessions WHERE expires <= :now", now=now())
            opened_by = None if key is None else key.digest
            session = {"digest": _digest(text), "person": person.id, "key_digest": opened_by, "expires": now(SESSION)}
            transaction.insert("sessions", session)
        return text

    def session(self, cookie: str) -> Person | None:
        """Who is signed in with a cookie."""
        return self._bearer(
            "SELECT p.id, p.name, p.role, s.expires FROM sessions s JOIN people p ON p.id = s.person "
            "WHERE s.digest = :digest",
            _digest(cookie),
        )

    def signed_out(self, cookie: str) -> None:
        with self._storage.writing() as transaction:
            transaction.run("DELETE FROM sessions WHERE digest = :digest", digest=_digest(cookie))

    def _bearer(self, statement: str, digest: str) -> Person | None:
        with self._storage.reading() as transaction:
            row = transaction.one(statement, digest=digest)
        if row is None or (row[3] is not None and str(row[3]) <= now()):
            return None
        return Person(str(row[0]), str(row[1]), str(row[2]))

    # ------------------------------------------------------------------ grants

    def grant(
        self,
        analyst: str,
        questions: tuple[str, ...],
        epsilon: float,
        delta: float,
        *,
        expires: str | None = None,
        window: tuple[float, float, float] | None = None,
        by: Person | None = None,
        keyed: bool = True,
    ) -> tuple[Grant, Key | None]:
        """Grant questions to an analyst, known or new, with a key for a program unless they have one already.

        Args:
            analyst: a name; grants of one name share one account.
            questions: their ids.
            epsilon, delta: what the analyst may know about any label, in all.
            expires: instant, ISO 8601.
            window: (days, ε, δ): what may be spent in any so many days; the total wins.
            by: who granted it.
            keyed: make a key.
        """
        validation.non_negative(epsilon=epsilon)
        validation.probability(delta=delta, below_one=True)
        ends = None if expires is None else _instant(expires)
        if window is not None:
            validation.positive(days=window[0])
            validation.non_negative(window_epsilon=window[1])
            validation.probability(window_delta=window[2], below_one=True)
        with self._storage.writing() as transaction:
            person = _person(transaction, word(analyst=analyst), "analyst")
            days, part, share = window or (None, None, None)
            made = Grant(_id("g"), person.id, questions, float(epsilon), float(delta), ends, days, part, share, now())
            transaction.insert("grants", vars(made) | {"questions": json.dumps(questions)})
            content = vars(made) | {"questions": list(questions), "grant": made.id, "by": None if by is None else by.id}
            noted(transaction, "grant", content)
            return made, _key(transaction, person, ends, made.id) if keyed else None

    def grants(self, person: str | None = None) -> list[Grant]:
        """All grants, or those of someone, in order."""
        mine = "" if person is None else "WHERE person = :person"
        with self._storage.reading() as transaction:
            rows = transaction.rows(
                "SELECT id, person, questions, epsilon, delta, expires, days, window_epsilon, window_delta, created, "
                f"revoked FROM grants {mine} ORDER BY created, id",
                **told(person=person),
            )
        return [Grant(str(r[0]), str(r[1]), tuple(json.loads(r[2])), *r[3:]) for r in rows]

    def revoke(self, grant: str) -> bool:
        """End a grant and the key that came with it; False where there is none."""
        with self._storage.writing() as transaction:
            row = transaction.one("SELECT person FROM grants WHERE id = :id AND revoked IS NULL", id=grant)
            if row is None:
                return False
            _end_grant(transaction, grant)
            digests = transaction.rows("SELECT digest FROM keys WHERE for_grant = :id AND revoked IS NULL", id=grant)
            for (digest,) in digests:
                _end_key(transaction, str(digest))
            return True

    # ------------------------------------------------------------------ requests to be granted something

    def requested(self, person: Person, question: str, reason: str) -> Request:
        made = Request(_id("r"), person.id, question, word(reason=reason), "pending", "", None, now())
        with self._storage.writing() as transaction:
            transaction.insert("requests", vars(made))
        return made

    def requests(self, person: str | None = None) -> list[Request]:
        mine = "" if person is None else "WHERE person = :person"
        with self._storage.reading() as transaction:
            rows = transaction.rows(f"{_REQUESTS} {mine} ORDER BY created DESC, id", **told(person=person))
        return [Request(*row) for row in rows]

    def decided(self, request: str, state: str, answer: str, by: Person) -> Request | None:
        """Approve or deny a pending request, once; None where there is none."""
        validation.choice(("approved", "denied"), state=state)
        with self._storage.writing() as transaction:
            row = transaction.one(f"{_REQUESTS} WHERE id = :id AND state = 'pending'", id=request)
            if row is None:
                return None
            made = replace(Request(*row), state=state, answer=answer, decided_by=by.id)
            transaction.run(
                "UPDATE requests SET state = :state, answer = :answer, decided_by = :decided_by WHERE id = :id",
                **vars(made),
            )
            return made

    # ------------------------------------------------------------------ names of requests, each for one body

    def bound(self, person: str, name: str, body: str) -> bool:
        """Bind an idempotency key of someone to a body; False where it is bound to another."""
        with self._storage.reading() as transaction:
            known = _bound(transaction, person, name)
        if known is None:
            with self._storage.writing(chain=False) as transaction:
                asked = {"person": person, "name": name, "body": body}
                transaction.insert("asked", asked, otherwise="ON CONFLICT DO NOTHING")
                known = _bound(transaction, person, name)
        return known is not None and hmac.compare_digest(known, body)


def now(later: timedelta = timedelta()) -> str:
    """The instant, as it is compared."""
    return (datetime.now(UTC) + later).isoformat(timespec="microseconds")


def _instant(text: str) -> str:
    try:
        found = datetime.fromisoformat(text)
        instant = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise InputError("expires must be an instant such as 2030-01-31T00:00:00Z") from None
    return instant.isoformat(timespec="microseconds")


def _bound(transaction: Transaction, person: str, name: str) -> str | None:
    found = transaction.value(
        "SELECT body FROM asked WHERE person = :person AND name = :name", person=person, name=name
    )
    return None if found is None else str(found)


def _person(transaction: Transaction, name: str, role: str) -> Person:
    row = transaction.one("SELECT id, name, role FROM people WHERE name = :name AND role = :role", name=name, role=role)
    if row is not None:
        return Person(*row)
    made = Person(_id("p"), name, role)
    transaction.insert("people", vars(made) | {"created": now()})
    return made


def _key(transaction: Transaction, person: Person, expires: str | None = None, grant: str | None = None) -> Key:
    key = new_key(person.role)
    kept = {"digest": key.digest, "person": person.id, "hint": key.hint, "created": now()}
    transaction.insert("keys", kept | {"expires": expires, "for_grant": grant})
    return key


def _end_grant(transaction: Transaction, grant: str) -> None:
    transaction.run("UPDATE grants SET revoked = :now WHERE id = :id", now=now(), id=grant)
    noted(transaction, "revoked", {"grant": grant})


def _end_key(transaction: Transaction, digest: str) -> None:
    transaction.run(
        "UPDATE keys SET revoked = :now WHERE digest = :digest AND revoked IS NULL", now=now(), digest=digest
    )
    transaction.run("DELETE FROM sessions WHERE key_digest = :digest", digest=digest)


def _id(letter: str) -> str:
    return f"{letter}_{secrets.token_hex(8)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
