"""What the service keeps beside the ledger's chain: people, keys, sessions, grants and idempotency keys.

Each call is one transaction. What is granted and ended is in the chain too, where nobody can change it.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, select, update

from shoal import validation
from shoal.errors import InputError
from shoal.ledger import chain
from shoal.ledger.storage import Storage
from shoal.service.people import (
    FIRST_OWNER,
    GRANTS,
    KEYS,
    MADE,
    METADATA,
    PEOPLE,
    REQUESTS,
    SESSION,
    SESSIONS,
    Caller,
    Grant,
    Key,
    KeyRecord,
    NotNow,
    Person,
    Unknown,
    admitted,
    digest_of,
    end,
    grants_in,
    in_force,
    instant,
    keys_in,
    make_key,
    maker,
    new_id,
    now,
    people_in,
    refuse_without_owner,
    replace,
    spelled,
    visible,
)


class Register:
    """People, keys, sessions and grants in a ledger's database; what is granted and ended is in its chain too."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        with storage.writing() as transaction:
            METADATA.create_all(transaction.connection)

    # ------------------------------------------------------------------ people

    def people(self) -> list[Person]:
        """Everybody who has not been dismissed, in the order in which they came."""
        with self._storage.reading() as transaction:
            return people_in(transaction)

    def named(self, name: str) -> Person | None:
        """The person of this name, unless dismissed."""
        name = spelled(name)
        return next((person for person in self.people() if person.name == name), None)

    def admit(self, name: str, role: str, by: Caller | None = None, expires: str | None = None) -> tuple[Person, Key]:
        """Admit someone, with a first key; who was dismissed comes back as the same person, with the same account."""
        with self._storage.writing() as transaction:
            person = admitted(transaction, name, role, by)
            return person, make_key(transaction, person, by, expires)[1]

    def dismiss(self, id: str) -> None:
        """End someone's grants, keys and sessions, all that was made with these keys, and what they made without."""
        with self._storage.writing() as transaction:
            if id not in {person.id for person in people_in(transaction)}:
                raise Unknown("there is no such person")
            end(transaction, PEOPLE, [id])
            for table in MADE:
                made = transaction.rows(select(table.c.id).where(table.c.made_by == id, table.c.parent.is_(None)))
                end(transaction, table, [str(row[0]) for row in made])
            refuse_without_owner(transaction)

    # ------------------------------------------------------------------ keys

    def list_keys(self, person: str | None = None) -> list[KeyRecord]:
        """All keys, or those of someone, in order."""
        with self._storage.reading() as transaction:
            return [key for key in keys_in(transaction) if person in (None, key.person)]

    def holder(self, text: str) -> Caller | None:
        """Who holds a key that is in force."""
        key = Key.parse(text.strip())
        return None if key is None else self._caller(KEYS.c.digest == key.digest)

    def first_key(self) -> Key | None:
        """The first owner's key, on the very first call; None ever after."""
        with self._storage.writing() as transaction:
            if transaction.one(select(PEOPLE.c.id).where(PEOPLE.c.role == "owner")) is not None:
                return None
            return make_key(transaction, admitted(transaction, FIRST_OWNER, "owner", None), None, root=True)[1]

    def new_owner_key(self) -> Key:
        """A key for the first owner in the place of a lost one, for whoever holds the ledger's file."""
        with self._storage.writing() as transaction:
            person = next((person for person in people_in(transaction) if person.name == FIRST_OWNER), None)
            if person is None:
                person = admitted(transaction, FIRST_OWNER, "owner", None)
            elif person.role != "owner":
                transaction.run(update(PEOPLE).where(PEOPLE.c.id == person.id).values(role="owner"))
                person = Person(person.id, FIRST_OWNER, "owner")
            record, key = make_key(transaction, person, None, root=True)
            for old in keys_in(transaction):
                if old.person == person.id and old.parent is None and old.in_force and old.id != record.id:
                    replace(transaction, old, record)
            return key

    def new_key(self, person: Person, by: Caller, expires: str | None = None) -> tuple[KeyRecord, Key]:
        """A further key for someone, which ends with the key that it is made with."""
        with self._storage.writing() as transaction:
            return make_key(transaction, person, by, expires)

    def replace_key(self, id: str, by: Caller) -> tuple[KeyRecord, Key]:
        """A key in the place of another, which ends: of the caller's own key, or of one that was made with it."""
        with self._storage.writing() as transaction:
            old = visible(transaction, id, by)
            above = {key.id: key.parent for key in keys_in(transaction)}
            step: str | None = old.id
            while step is not None and step != by.key:
                step = above[step]
            if step != by.key:
                raise Unknown("there is no such key")
            person = next(person for person in people_in(transaction) if person.id == old.person)
            record, key = make_key(
                transaction, person, Caller(by.person, old.parent), old.expires, old.for_grant, root=not old.expires
            )
            replace(transaction, old, record)
            return record, key

    def end_key(self, id: str, by: Caller) -> int:
        """End a key at once, with all that was made with it; how many keys ended."""
        with self._storage.writing() as transaction:
            count = end(transaction, KEYS, [visible(transaction, id, by).id])
            refuse_without_owner(transaction)
            return count

    # ------------------------------------------------------------------ sessions of the pages

    def sign_in(self, caller: Caller) -> str:
        """A new session: the text of its cookie, which is kept as a digest only. It ends with the key."""
        text = secrets.token_urlsafe(32)
        with self._storage.writing(chain=False) as transaction:
            transaction.run(delete(SESSIONS).where(SESSIONS.c.expires <= now()))
            transaction.insert(SESSIONS, {"digest": digest_of(text), "key_id": caller.key, "expires": now(SESSION)})
        return text

    def session(self, cookie: str) -> Caller | None:
        """Who is signed in with a cookie, by a key that is still in force."""
        current = select(SESSIONS.c.key_id).where(SESSIONS.c.digest == digest_of(cookie), SESSIONS.c.expires > now())
        return self._caller(KEYS.c.id == current.scalar_subquery())

    def sign_out(self, cookie: str) -> None:
        with self._storage.writing(chain=False) as transaction:
            transaction.run(delete(SESSIONS).where(SESSIONS.c.digest == digest_of(cookie)))

    def _caller(self, which: Any) -> Caller | None:
        fields = (PEOPLE.c.id, PEOPLE.c.name, PEOPLE.c.role, KEYS.c.id, KEYS.c.expires)
        both = select(*fields).join_from(KEYS, PEOPLE, PEOPLE.c.id == KEYS.c.person)
        with self._storage.reading() as transaction:
            row = transaction.one(both.where(which, KEYS.c.ended.is_(None), PEOPLE.c.ended.is_(None)))
        return None if row is None or not in_force(None, row[4]) else Caller(Person(*row[:3]), str(row[3]))

    # ------------------------------------------------------------------ grants and requests

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
        """Grant questions to an analyst who is known, or who is ``new`` and admitted with it.

        Args:
            analyst: their name; all their grants share one account.
            questions: ids.
            epsilon, delta: what the analyst may know about any label, in all; None for what is never charged.
            expires: an instant to come, ISO 8601.
            by: who grants it.
            new: admit the analyst.
            with_key: make a key that ends with the grant.
        """
        if (epsilon is None) != (delta is None):
            raise InputError("epsilon and delta are one budget: give both, or neither for what is never charged")
        if epsilon is not None and delta is not None:
            validation.non_negative(epsilon=epsilon)
            validation.probability(delta=delta, below_one=True)
        until = None if expires is None else instant(expires)
        with self._storage.writing() as transaction:
            name = spelled(analyst)
            person = next((person for person in people_in(transaction) if person.name == name), None)
            if person is None and not new:
                raise NotNow(
                    "nobody of this name is known here: look at the spelling, or admit them (under People, with "
                    'POST /v1/people, or with "new": true in this call)'
                )
            if person is not None and (person.role != "analyst" or new):
                raise NotNow("somebody of this name is here already; grants are for known analysts, or for new ones")
            person = person or admitted(transaction, name, "analyst", by)
            grant = Grant(new_id("g"), person.id, tuple(questions), epsilon, delta, until, now())
            transaction.insert(GRANTS, asdict(grant) | {"questions": json.dumps(questions)} | maker(transaction, by))
            made_by = None if by is None else by.person.id
            content = asdict(grant) | {"questions": list(questions), "grant": grant.id, "by": made_by}
            chain.append(transaction, "grant", content)
            return grant, make_key(transaction, person, by, until, grant.id)[1] if with_key else None

    def grants(self, person: str | None = None) -> list[Grant]:
        """All grants, or those of someone, in order."""
        with self._storage.reading() as transaction:
            return [grant for grant in grants_in(transaction) if person in (None, grant.person)]

    def end_grant(self, id: str) -> None:
        """End a grant and the key that came with it."""
        with self._storage.writing() as transaction:
            if id not in {grant.id for grant in grants_in(transaction) if grant.ended is None}:
                raise Unknown("there is no such grant")
            end(transaction, GRANTS, [id])

    def count_refusal(self, grant: Grant) -> None:
        """For the owner to see that a budget is too small for what is asked."""
        with self._storage.writing(chain=False) as transaction:
            transaction.run(update(GRANTS).where(GRANTS.c.id == grant.id).values(refused=GRANTS.c.refused + 1))

    def bind(self, person: str, name: str, body: str) -> bool:
        """Bind an idempotency key of someone to a body; False where it is bound to another."""
        id = digest_of(f"{person}\0{name}")
        known = select(REQUESTS.c.body).where(REQUESTS.c.id == id)
        with self._storage.reading() as transaction:
            bound = transaction.value(known)
        if bound is None:
            with self._storage.writing(chain=False) as transaction:
                transaction.insert(REQUESTS, {"id": id, "body": body}, otherwise="ON CONFLICT DO NOTHING")
                bound = transaction.value(known)
        return hmac.compare_digest(str(bound).encode(), body.encode())
