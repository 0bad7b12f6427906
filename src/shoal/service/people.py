"""Whom the service knows: people, their keys, and their sessions on the pages.

Every key but the owner's first has a parent, the key with which it was made, and ends with it at the latest: whoever
steals a key cannot make one that outlives it. A key is *ended* with all keys made with it, or *replaced* by one that
takes its place, under which they go on. A key that may have been stolen is ended, never replaced.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from shoal import validation
from shoal.errors import InputError, ShoalError
from shoal.ledger.notes import noted
from shoal.ledger.questions import word
from shoal.ledger.storage import Storage, Transaction
from shoal.service.keys import ROLES, Key, new_key
from shoal.service.tables import now

#: How long a sign-in on the pages lasts.
SESSION = timedelta(hours=12)
#: How long a key is good for unless something else is said.
LIFETIME = timedelta(days=365)
FIRST_OWNER = "owner"


class Unknown(ShoalError):
    """There is no such thing, or none that this person may see: the two look alike."""


class NotNow(ShoalError):
    """It is understood, and cannot be done as things are."""


@dataclass(frozen=True)
class Person:
    """Someone who may ask or decide."""

    id: str
    name: str
    role: str


@dataclass(frozen=True)
class Caller:
    """Who makes a call, and with which key; without one where a proxy vouches for them."""

    person: Person
    key: str | None = None

    @property
    def is_owner(self) -> bool:
        return self.person.role == "owner"


@dataclass(frozen=True)
class KeyRecord:
    """A key as it is listed: never the key itself."""

    id: str
    person: str
    hint: str
    created: str
    expires: str | None
    ended: str | None
    parent: str | None
    made_by: str | None
    for_grant: str | None

    def in_force(self, instant: str) -> bool:
        return self.ended is None and (self.expires is None or instant < self.expires)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"in_force": self.in_force(now())}


_PEOPLE = "SELECT id, name, role FROM service_people"
_KEYS = "SELECT id, person, hint, created, expires, ended, parent, made_by, for_grant FROM service_keys"


class Register:
    """People, keys and sessions in a ledger's database."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    # ------------------------------------------------------------------ people

    def people(self) -> list[Person]:
        """Everybody who has not been dismissed, in the order in which they came."""
        with self._storage.reading() as transaction:
            rows = transaction.rows(f"{_PEOPLE} WHERE dismissed IS NULL ORDER BY created, id")
        return [Person(*row) for row in rows]

    def named(self, name: str) -> Person | None:
        """The person of this name, unless dismissed."""
        with self._storage.reading() as transaction:
            row = transaction.one(f"{_PEOPLE} WHERE name = :name AND dismissed IS NULL", name=name)
        return None if row is None else Person(*row)

    def add_person(self, name: str, role: str) -> Person:
        """Admit someone without a key; who was dismissed comes back as the same person, with the same account."""
        validation.choice(tuple(ROLES), role=role)
        with self._storage.writing() as transaction:
            return _admitted(transaction, word(name=name), role)

    def admit(self, name: str, role: str, by: Caller | None = None, expires: str | None = None) -> tuple[Person, Key]:
        """Admit someone, with a first key."""
        validation.choice(tuple(ROLES), role=role)
        with self._storage.writing() as transaction:
            person = _admitted(transaction, word(name=name), role)
            return person, _make_key(transaction, person, by, expires)[1]

    def dismiss(self, person: str) -> None:
        """End someone's keys with all that were made with them, their sessions, and what they made without a key."""
        with self._storage.writing() as transaction:
            row = transaction.one(f"{_PEOPLE} WHERE id = :id AND dismissed IS NULL", id=person)
            if row is None:
                raise Unknown("there is no such person")
            transaction.run("UPDATE service_people SET dismissed = :now WHERE id = :id", now=now(), id=person)
            keys = _keys(transaction)
            roots = {key.id for key in keys.values() if key.person == person}
            roots |= {key.id for key in keys.values() if key.made_by == person and key.parent is None}
            _end_keys(transaction, keys, roots)
            transaction.run("DELETE FROM service_sessions WHERE person = :person", person=person)
            if str(row[2]) == "owner":
                _refuse_without_owner(transaction)
            noted(transaction, "revoked", {"person": person})

    # ------------------------------------------------------------------ keys

    def list_keys(self, person: str | None = None) -> list[KeyRecord]:
        """All keys, or those of someone, in order."""
        with self._storage.reading() as transaction:
            every = _keys(transaction).values()
        return [key for key in every if person in (None, key.person)]

    def holder(self, key: Key) -> Caller | None:
        """Who holds a key that is in force."""
        return self._caller(
            "SELECT p.id, p.name, p.role, k.id, k.expires FROM service_keys k JOIN service_people p ON p.id = k.person "
            "WHERE k.digest = :digest AND k.ended IS NULL AND p.dismissed IS NULL",
            key.digest,
        )

    def first_key(self) -> Key | None:
        """The first owner's key, on the very first call; None ever after."""
        with self._storage.writing() as transaction:
            if transaction.one("SELECT 1 FROM service_people WHERE role = 'owner'") is not None:
                return None
            return _make_key(transaction, _admitted(transaction, FIRST_OWNER, "owner"), None, root=True)[1]

    def new_owner_key(self) -> Key:
        """A key for the first owner in the place of a lost one, for whoever holds the ledger's file."""
        with self._storage.writing() as transaction:
            row = transaction.one(f"{_PEOPLE} WHERE name = :name AND dismissed IS NULL", name=FIRST_OWNER)
            person = Person(*row) if row else _admitted(transaction, FIRST_OWNER, "owner")
            record, key = _make_key(transaction, person, None, root=True)
            for old in _keys(transaction).values():
                if old.person == person.id and old.parent is None and old.id != record.id:
                    _replace(transaction, old, record)
            return key

    def new_key(self, person: Person, by: Caller, expires: str | None = None) -> tuple[KeyRecord, Key]:
        """A further key for someone, which ends with the key that it is made with."""
        with self._storage.writing() as transaction:
            return _make_key(transaction, person, by, expires)

    def replace_key(self, id: str, by: Caller) -> tuple[KeyRecord, Key]:
        """A key in the place of another, which ends; keys made with the old one go on under the new one."""
        with self._storage.writing() as transaction:
            old = _visible(transaction, id, by)
            row = transaction.one(f"{_PEOPLE} WHERE id = :id", id=old.person)
            under = Caller(by.person, old.parent)
            root = old.expires is None
            record, key = _make_key(transaction, Person(*row), under, old.expires, old.for_grant, root)
            _replace(transaction, old, record)
            return record, key

    def end_key(self, id: str, by: Caller) -> int:
        """End a key at once, with the keys made with it and the sessions they opened; how many keys ended."""
        with self._storage.writing() as transaction:
            count = _end_keys(transaction, _keys(transaction), {_visible(transaction, id, by).id})
            _refuse_without_owner(transaction)
            return count

    # ------------------------------------------------------------------ sessions of the pages

    def sign_in(self, caller: Caller) -> str:
        """A new session: the text of its cookie, which is kept as a digest only. It ends with the key."""
        text = secrets.token_urlsafe(32)
        session = {"digest": _digest(text), "person": caller.person.id, "key_id": caller.key, "expires": now(SESSION)}
        with self._storage.writing(chain=False) as transaction:
            transaction.run("DELETE FROM service_sessions WHERE expires <= :now", now=now())
            transaction.insert("service_sessions", session)
        return text

    def session(self, cookie: str) -> Caller | None:
        """Who is signed in with a cookie, by a key that is still in force."""
        return self._caller(
            "SELECT p.id, p.name, p.role, k.id, k.expires, s.expires FROM service_sessions s "
            "JOIN service_people p ON p.id = s.person JOIN service_keys k ON k.id = s.key_id "
            "WHERE s.digest = :digest AND k.ended IS NULL AND p.dismissed IS NULL",
            _digest(cookie),
        )

    def sign_out(self, cookie: str) -> None:
        with self._storage.writing(chain=False) as transaction:
            transaction.run("DELETE FROM service_sessions WHERE digest = :digest", digest=_digest(cookie))

    def _caller(self, statement: str, digest: str) -> Caller | None:
        with self._storage.reading() as transaction:
            row = transaction.one(statement, digest=digest)
        if row is None or any(end is not None and str(end) <= now() for end in row[4:]):
            return None
        return Caller(Person(*map(str, row[:3])), str(row[3]))


def instant(text: str) -> str:
    """An instant to come, as it is stored."""
    try:
        parsed = datetime.fromisoformat(text)
        stored = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise InputError("expires must be an instant such as 2030-01-31T00:00:00Z") from None
    if stored.isoformat(timespec="microseconds") <= now():
        raise InputError("expires must lie in the future: what has ended already would allow nothing")
    return stored.isoformat(timespec="microseconds")


def new_id(letter: str) -> str:
    """A name for a row that says nothing."""
    return f"{letter}_{secrets.token_hex(8)}"


def grant_key(transaction: Transaction, person: Person, by: Caller | None, expires: str | None, grant: str) -> Key:
    """A key that comes with a grant and ends with it."""
    return _make_key(transaction, person, by, expires, grant)[1]


def end_grant_keys(transaction: Transaction, grant: str) -> None:
    """End the keys that came with a grant."""
    keys = _keys(transaction)
    _end_keys(transaction, keys, {key.id for key in keys.values() if key.for_grant == grant})


def _admitted(transaction: Transaction, name: str, role: str) -> Person:
    row = transaction.one("SELECT id, dismissed FROM service_people WHERE name = :name", name=name)
    if row is None:
        person = Person(new_id("p"), name, role)
        transaction.insert("service_people", asdict(person) | {"created": now()})
        return person
    if row[1] is None:
        raise NotNow("somebody of this name is here already; a new key for them is made under keys")
    transaction.run("UPDATE service_people SET dismissed = NULL, role = :role WHERE id = :id", role=role, id=row[0])
    return Person(str(row[0]), name, role)


def _make_key(
    transaction: Transaction,
    person: Person,
    by: Caller | None,
    expires: str | None = None,
    grant: str | None = None,
    root: bool = False,
) -> tuple[KeyRecord, Key]:
    """A key of someone, made by someone. It ends no later than the key that it was made with."""
    end = expires or (None if root else now(LIFETIME))
    parent = None if by is None or by.key is None else _keys(transaction).get(by.key)
    if by is not None and by.key is not None:
        if parent is None or not parent.in_force(now()):
            raise Unknown("the key is not in force")
        end = min(filter(None, (end, parent.expires)), default=None)
    key = new_key(person.role)
    made_by = None if by is None else by.person.id
    record = KeyRecord(
        new_id("k"), person.id, key.hint, now(), end, None, None if parent is None else parent.id, made_by, grant
    )
    transaction.insert("service_keys", asdict(record) | {"digest": key.digest})
    return record, key


def _keys(transaction: Transaction) -> dict[str, KeyRecord]:
    return {str(row[0]): KeyRecord(*row) for row in transaction.rows(f"{_KEYS} ORDER BY created, id")}


def _visible(transaction: Transaction, id: str, by: Caller) -> KeyRecord:
    """A key in force that someone may end or replace: their own, or any where they are an owner."""
    key = _keys(transaction).get(id)
    if key is None or not key.in_force(now()) or not (by.is_owner or key.person == by.person.id):
        raise Unknown("there is no such key")
    return key


def _end_keys(transaction: Transaction, keys: Mapping[str, KeyRecord], roots: set[str]) -> int:
    """End keys and all that were made with them."""
    ending = set(roots)
    while more := {key.id for key in keys.values() if key.parent in ending} - ending:
        ending |= more
    ending = {id for id in ending if keys[id].ended is None}
    for id in sorted(ending):
        transaction.run("UPDATE service_keys SET ended = :now WHERE id = :id", now=now(), id=id)
        transaction.run("DELETE FROM service_sessions WHERE key_id = :id", id=id)
    if ending:
        noted(transaction, "revoked", {"keys": sorted(ending)})
    return len(ending)


def _replace(transaction: Transaction, old: KeyRecord, new: KeyRecord) -> None:
    """End a key; those made with it now hang on another."""
    transaction.run("UPDATE service_keys SET parent = :new WHERE parent = :old", new=new.id, old=old.id)
    _end_keys(transaction, {old.id: old}, {old.id})


def _refuse_without_owner(transaction: Transaction) -> None:
    """Raise, and so undo the transaction, where no owner would have a key in force."""
    owners = transaction.rows(
        "SELECT k.expires FROM service_keys k JOIN service_people p ON p.id = k.person "
        "WHERE p.role = 'owner' AND p.dismissed IS NULL AND k.ended IS NULL"
    )
    if not any(row[0] is None or str(row[0]) > now() for row in owners):
        raise NotNow(
            "this would leave no owner with a key. Admit another owner first; a lost key is replaced with "
            "`shoal serve --new-owner-key` by whoever holds the ledger's file"
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
