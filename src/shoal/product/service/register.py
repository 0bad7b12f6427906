"""Whom the service knows: people, their keys, their sessions on the pages, and what they were granted.

A key is 256 random bits, shown once, stored as a digest:

    shoal_<o or a>_<43 characters, base64url of 32 bytes>_<8 hexadecimal digits, CRC-32 of all before it>

Whatever was made with a key (keys, people who were admitted, grants) ends when that key is *ended*, and goes on under
the new one when it is *replaced* (docs/service.md). What is granted and ended is in the ledger's chain too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Column, Float, MetaData, Table, Text, and_, delete, or_, select, update

from shoal.errors import InputError, ShoalError
from shoal.product.ledger import chain
from shoal.product.ledger.storage import Storage, Transaction, check_text

#: Roles, and the letter of each in a key.
ROLES = {"owner": "o", "analyst": "a"}
#: How long a sign-in on the pages lasts, and a key unless something else is said.
SESSION, LIFETIME = timedelta(hours=12), timedelta(days=365)
FIRST_OWNER = "owner"

METADATA = MetaData()


def _table(name: str, columns: str, *more: Column[Any]) -> Table:
    """A table of texts: the first column is its key, those with a question mark may be empty."""
    texts = [
        Column(column.rstrip("?"), Text, primary_key=place == 0, nullable=column.endswith("?"))
        for place, column in enumerate(columns.split())
    ]
    return Table(f"service_{name}", METADATA, *texts, *more)


#: A name is one person for ever, so that nobody gets a second budget.
PEOPLE = _table("people", "id role created ended? made_by? parent?", Column("name", Text, nullable=False, unique=True))
KEYS = _table(
    "keys",
    "id person hint created expires? ended? made_by? parent? for_grant?",
    Column("digest", Text, nullable=False, unique=True),
)
SESSIONS = _table("sessions", "digest key_id expires")
GRANTS = _table(
    "grants",
    "id person questions expires? created ended? made_by? parent?",
    Column("epsilon", Float(53)),
    Column("delta", Float(53)),
    Column("refused", BigInteger, nullable=False),
)
#: Idempotency keys, each bound to one body.
REQUESTS = _table("requests", "id body")
#: What can be made with a key; and what ends with each, by the column that names it.
MADE = (PEOPLE, KEYS, GRANTS)
BELOW = {
    PEOPLE.name: ((KEYS, "person"), (GRANTS, "person")),
    KEYS.name: tuple((table, "parent") for table in MADE),
    GRANTS.name: ((KEYS, "for_grant"),),
}


class Unknown(ShoalError):
    """There is no such thing, or none that this person may see: the two look alike."""


class NotNow(ShoalError):
    """It is understood, and cannot be done as things are."""


@dataclass(frozen=True)
class Key:
    """A key in plain text; it shows itself nowhere by accident."""

    text: str = field(repr=False)

    @classmethod
    def draw(cls, role: str) -> Key:
        """A new key of a role, from the cryptographic source."""
        body = f"shoal_{ROLES[role]}_{secrets.token_urlsafe(32)}"
        return cls(f"{body}_{zlib.crc32(body.encode()):08x}")

    @property
    def hint(self) -> str:
        """The first and last characters of the key, by which owners tell keys apart."""
        return f"{self.text[:8]}…{self.text[-4:]}"


@dataclass(frozen=True)
class Person:
    """Someone who may ask or decide."""

    id: str
    name: str
    role: str


@dataclass(frozen=True)
class Caller:
    """The person who makes a call, and the key; without one where a proxy vouches for them."""

    person: Person
    key: str | None = None

    @property
    def is_owner(self) -> bool:
        return self.person.role == "owner"


@dataclass(frozen=True)
class _Ending:
    """A thing that ends by itself, or is ended."""

    id: str
    person: str
    created: str
    expires: str | None
    ended: str | None

    @property
    def in_force(self) -> bool:
        return self.ended is None and (self.expires is None or _utc() < self.expires)


@dataclass(frozen=True)
class KeyRecord(_Ending):
    """A key as it is listed: never the key itself."""

    hint: str
    made_by: str | None  #: who made it
    parent: str | None  #: the key that it was made with
    for_grant: str | None


@dataclass(frozen=True)
class Grant(_Ending):
    """A question that an analyst may ask, and its budget; without one only what is never charged."""

    questions: tuple[str, ...]
    epsilon: float | None
    delta: float | None
    refused: int = 0  #: how often its budget did not allow what was asked


class Register:
    """People, keys, sessions and grants in a ledger's database.

    Args:
        storage: the database.
        recorded: called when something may be in the chain that was not, before anybody gets an answer.
    """

    def __init__(self, storage: Storage, recorded: Callable[[], None] = lambda: None) -> None:
        self._storage, self._recorded = storage, recorded
        with storage.writing() as transaction:
            METADATA.create_all(transaction.connection)

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        with self._storage.writing() as transaction:
            yield transaction
        self._recorded()

    # ------------------------------------------------------------------ people

    def people(self) -> list[Person]:
        """All people who were not dismissed, in the order of their admission."""
        with self._storage.reading() as transaction:
            return _current_people(transaction)

    def find_person(self, name: str) -> Person | None:
        """The person of this name, unless dismissed."""
        with self._storage.reading() as transaction:
            return _find_person(transaction, PEOPLE.c.name == _normal_name(name))

    def admit_person(
        self, name: str, role: str, by: Caller | None = None, expires: datetime | None = None
    ) -> tuple[Person, Key]:
        """Admit someone, with a first key; who was dismissed comes back as the same person, with the same account."""
        with self._writing() as transaction:
            person = _admit_person(transaction, name, role, by)
            return person, _new_key(transaction, person, by, _future_expiry(expires))[1]

    def dismiss_person(self, id: str) -> None:
        """End someone's grants, keys and sessions, all that was made with these keys, and what they made without."""
        with self._writing() as transaction:
            if not _end_rows(transaction, PEOPLE, PEOPLE.c.id == id):
                raise Unknown("there is no such person")
            for table in MADE:
                _end_rows(transaction, table, and_(table.c.made_by == id, table.c.parent.is_(None)))
            _refuse_without_owner(transaction)

    # ------------------------------------------------------------------ keys

    def list_keys(self, caller: Caller) -> list[KeyRecord]:
        """All keys in order to an owner, their own to an analyst."""
        with self._storage.reading() as transaction:
            return [key for key in _select_keys(transaction) if caller.is_owner or key.person == caller.person.id]

    def key_holder(self, text: str) -> Caller | None:
        """The holder of a key in force; None for any other text."""
        return self._find_caller(KEYS.c.digest == _text_digest(text.strip()))

    def first_key(self) -> Key | None:
        """A key for the first owner, if there is no owner yet; else None."""
        with self._storage.reading() as transaction:
            known = transaction.first(select(PEOPLE.c.id).where(PEOPLE.c.role == "owner"))
        return None if known is not None else self.new_owner_key()

    def new_owner_key(self) -> Key:
        """A new key for the first owner in the place of lost ones, for whoever holds the ledger's file."""
        with self._writing() as transaction:
            person = _find_person(transaction, PEOPLE.c.name == FIRST_OWNER)
            person = person or _admit_person(transaction, FIRST_OWNER, "owner", None)
            transaction.execute(update(PEOPLE).where(PEOPLE.c.id == person.id).values(role="owner"))
            record, key = _new_key(transaction, replace(person, role="owner"), None, lasting=True)
            for old in _select_keys(transaction):
                if old.person == person.id and old.parent is None and old.in_force and old.id != record.id:
                    _replace_key(transaction, old, record)
            return key

    def new_key(self, id: str, by: Caller, expires: datetime | None = None) -> tuple[KeyRecord, Key]:
        """A further key for oneself, or by an owner for anybody, which ends with the key that it is made with."""
        with self._writing() as transaction:
            person = _find_person(transaction, PEOPLE.c.id == id)
            if person is None or not (by.is_owner or id == by.person.id):
                raise Unknown("there is no such person")
            return _new_key(transaction, person, by, _future_expiry(expires))

    def replace_key(self, id: str, by: Caller) -> tuple[KeyRecord, Key]:
        """A key in the place of another, which ends: of the caller's own key, or of one that was made with it."""
        with self._writing() as transaction:
            old = _changeable_key(transaction, id, by)
            person = _find_person(transaction, PEOPLE.c.id == old.person)
            above = {key.id: key.parent for key in _select_keys(transaction)}
            step: str | None = old.id
            while step is not None and step != by.key:
                step = above[step]
            if step != by.key or person is None:
                raise Unknown("there is no such key")
            maker = Caller(by.person, old.parent)
            record, key = _new_key(transaction, person, maker, old.expires, old.for_grant, lasting=not old.expires)
            _replace_key(transaction, old, record)
            return record, key

    def end_key(self, id: str, by: Caller) -> None:
        """End a key at once, with all that was made with it."""
        with self._writing() as transaction:
            _end_rows(transaction, KEYS, KEYS.c.id == _changeable_key(transaction, id, by).id)
            _refuse_without_owner(transaction)

    # ------------------------------------------------------------------ sessions of the pages

    def sign_in(self, caller: Caller) -> str:
        """Start a session on the pages, and return the text of its cookie; it ends with the caller's key."""
        text = secrets.token_urlsafe(32)
        with self._storage.writing(chain=False) as transaction:
            transaction.execute(delete(SESSIONS).where(SESSIONS.c.expires <= _utc()))
            transaction.insert(SESSIONS, {"digest": _text_digest(text), "key_id": caller.key, "expires": _utc(SESSION)})
        return text

    def session_holder(self, cookie: str) -> Caller | None:
        """The person signed in with a cookie by a key in force; None for any other cookie."""
        current = select(SESSIONS.c.key_id).where(
            SESSIONS.c.digest == _text_digest(cookie), SESSIONS.c.expires > _utc()
        )
        return self._find_caller(KEYS.c.id == current.scalar_subquery())

    def sign_out(self, cookie: str) -> None:
        with self._storage.writing(chain=False) as transaction:
            transaction.execute(delete(SESSIONS).where(SESSIONS.c.digest == _text_digest(cookie)))

    def _find_caller(self, which: Any) -> Caller | None:
        """The person and key that a condition selects, if both are in force; else None."""
        both = select(PEOPLE.c.id, PEOPLE.c.name, PEOPLE.c.role, KEYS.c.id.label("key")).where(
            which,
            PEOPLE.c.id == KEYS.c.person,
            KEYS.c.ended.is_(None),
            PEOPLE.c.ended.is_(None),
            or_(KEYS.c.expires.is_(None), KEYS.c.expires > _utc()),
        )
        with self._storage.reading() as transaction:
            row = transaction.first(both)
        return None if row is None else Caller(Person(*row[:3]), str(row[3]))

    # ------------------------------------------------------------------ grants and requests

    def grant(
        self,
        analyst: str,
        questions: Sequence[str],
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        expires: datetime | None = None,
        by: Caller | None = None,
        new: bool = False,
        with_key: bool = True,
    ) -> tuple[Grant, Key | None]:
        """Grant questions to an analyst who is known, or who is ``new`` and admitted with it.

        All grants of an analyst share one account: (ε, δ) is what they may know about any label, in all, and None for
        what is never charged. ``with_key`` makes a key that ends with the grant.
        """
        if (epsilon is None) != (delta is None):
            raise InputError("epsilon and delta are one budget: give both, or neither for what is never charged")
        until, name = _future_expiry(expires), _normal_name(analyst)
        with self._writing() as transaction:
            person = _find_person(transaction, PEOPLE.c.name == name)
            if person is None and not new:
                raise NotNow(
                    "this name is unknown here: check the spelling, or admit them (under People, with "
                    'POST /v1/people, or with "new": true in this call)'
                )
            if person is not None and (person.role != "analyst" or new):
                raise NotNow("this name is taken; grants are for known analysts, or for new ones")
            person = person or _admit_person(transaction, name, "analyst", by)
            grant = Grant(f"g_{secrets.token_hex(8)}", person.id, _utc(), until, None, tuple(questions), epsilon, delta)
            origin = _maker_columns(transaction, by)
            transaction.insert(GRANTS, asdict(grant) | {"questions": json.dumps(questions)} | origin)
            content = asdict(grant) | {"questions": list(questions), "grant": grant.id, "by": origin["made_by"]}
            chain.append_note(transaction, "grant", content)
            return grant, _new_key(transaction, person, by, until, grant.id)[1] if with_key else None

    def grants(self, person: str | None = None) -> list[Grant]:
        """Grants in order, of all people or of one."""
        with self._storage.reading() as transaction:
            rows = _read_records(transaction, GRANTS, Grant, *(() if person is None else (GRANTS.c.person == person,)))
        return [Grant(**row | {"questions": tuple(json.loads(row["questions"]))}) for row in rows]

    def end_grant(self, id: str) -> None:
        """End a grant, and the key that came with it."""
        with self._writing() as transaction:
            if not _end_rows(transaction, GRANTS, GRANTS.c.id == id):
                raise Unknown("there is no such grant")

    def count_refusal(self, grant: Grant) -> None:
        """Count that a grant's budget refused a question, for the owner to see."""
        with self._storage.writing(chain=False) as transaction:
            transaction.execute(update(GRANTS).where(GRANTS.c.id == grant.id).values(refused=GRANTS.c.refused + 1))

    def bind_request(self, person: str, name: str, body: str) -> bool:
        """Bind a person's idempotency key to a request body; False if it is bound to another body."""
        id = _text_digest(f"{person}\0{name}")
        known = select(REQUESTS.c.body).where(REQUESTS.c.id == id)
        with self._storage.reading() as transaction:
            bound = transaction.value(known)
        if bound is None:
            with self._storage.writing(chain=False) as transaction:
                transaction.insert(REQUESTS, {"id": id, "body": body}, otherwise="ON CONFLICT DO NOTHING")
                bound = transaction.value(known)
        return hmac.compare_digest(str(bound).encode(), body.encode())


# ---------------------------------------------------------------------- inside a transaction


def _utc(later: timedelta = timedelta()) -> str:
    """The instant as it is stored and compared: UTC, ISO 8601, microseconds."""
    return (datetime.now(UTC) + later).isoformat(timespec="microseconds")


def _future_expiry(expires: datetime | None) -> str | None:
    """Refuse an expiry that is past; else the text to store, ISO 8601 in UTC, None for None."""
    if expires is None:
        return None
    try:
        stored = (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise InputError("expires must be an instant such as 2030-01-31T00:00:00Z") from None
    text = stored.isoformat(timespec="microseconds")
    if text <= _utc():
        raise InputError("expires must lie in the future: what has ended already would allow nothing")
    return text


def _text_digest(text: str) -> str:
    """SHA-256 of a text, as stored of keys and cookies, whose 256 random bits need no salt."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _normal_name(name: str) -> str:
    """A name in Unicode normal form without outer spaces, so that one person has one name."""
    return check_text(name=unicodedata.normalize("NFC", name).strip())


def _read_records(transaction: Transaction, table: Table, kind: Any, *where: Any) -> list[dict[str, Any]]:
    """The rows of a table in the order in which they were made, each as the fields of ``kind``."""
    columns = [table.c[name] for name in kind.__dataclass_fields__]
    query = select(*columns).where(*where).order_by(table.c.created, table.c.id)
    return [row._asdict() for row in transaction.rows(query)]


def _current_people(transaction: Transaction, *where: Any) -> list[Person]:
    """People who were not dismissed and whom the conditions select."""
    return [Person(**row) for row in _read_records(transaction, PEOPLE, Person, PEOPLE.c.ended.is_(None), *where)]


def _find_person(transaction: Transaction, which: Any) -> Person | None:
    """The person who was not dismissed and whom a condition selects; None if there is none."""
    return next(iter(_current_people(transaction, which)), None)


def _select_keys(transaction: Transaction, *where: Any) -> list[KeyRecord]:
    return [KeyRecord(**row) for row in _read_records(transaction, KEYS, KeyRecord, *where)]


def _key_in_force(transaction: Transaction, id: str) -> KeyRecord:
    """The key with an id; Unknown is raised unless it is in force."""
    for key in _select_keys(transaction, KEYS.c.id == id):
        if key.in_force:
            return key
    raise Unknown("there is no such key")


def _maker_columns(transaction: Transaction, by: Caller | None) -> dict[str, str | None]:
    """The columns that say who made something and with which key, which must be in force."""
    if by is not None and by.key is not None:
        _key_in_force(transaction, by.key)
    return {"made_by": None, "parent": None} if by is None else {"made_by": by.person.id, "parent": by.key}


def _admit_person(transaction: Transaction, name: str, role: str, by: Caller | None) -> Person:
    """Insert a person, or restore a dismissed one of this name."""
    name, origin = _normal_name(name), _maker_columns(transaction, by)
    row = transaction.first(select(PEOPLE.c.id, PEOPLE.c.ended).where(PEOPLE.c.name == name))
    if row is not None and row[1] is None:
        raise NotNow("this name is taken; make a new key for that person under keys")
    person = Person(f"p_{secrets.token_hex(8)}" if row is None else str(row[0]), name, role)
    transaction.upsert(PEOPLE, [asdict(person) | {"created": _utc(), "ended": None} | origin])
    return person


def _new_key(
    transaction: Transaction,
    person: Person,
    by: Caller | None,
    expires: str | None = None,
    grant: str | None = None,
    lasting: bool = False,
) -> tuple[KeyRecord, Key]:
    """A key of someone, made by someone. It ends no later than the key that it was made with."""
    origin = _maker_columns(transaction, by)
    above = None if by is None or by.key is None else _key_in_force(transaction, by.key).expires
    until = min(filter(None, (expires or (None if lasting else _utc(LIFETIME)), above)), default=None)
    key = Key.draw(person.role)
    record = KeyRecord(f"k_{secrets.token_hex(8)}", person.id, _utc(), until, None, key.hint, **origin, for_grant=grant)
    transaction.insert(KEYS, asdict(record) | {"digest": _text_digest(key.text)})
    return record, key


def _changeable_key(transaction: Transaction, id: str, by: Caller) -> KeyRecord:
    """The key in force that a caller may end or replace: an own one, or any for an owner; else Unknown."""
    key = _key_in_force(transaction, id)
    if not by.is_owner and key.person != by.person.id:
        raise Unknown("there is no such key")
    return key


def _end_rows(transaction: Transaction, table: Table, which: Any) -> bool:
    """End the selected rows, and everything made with them; False if none of them is in force."""
    rows = transaction.rows(select(table.c.id).where(which, table.c.ended.is_(None)))
    ending = sorted(str(row[0]) for row in rows)
    if ending:
        transaction.execute(update(table).where(table.c.id.in_(ending)).values(ended=_utc()))
        chain.append_note(transaction, "revoked", {table.name.removeprefix("service_"): ending})
        if table is KEYS:
            transaction.execute(delete(SESSIONS).where(SESSIONS.c.key_id.in_(ending)))
        for below, column in BELOW[table.name]:
            _end_rows(transaction, below, below.c[column].in_(ending))
    return bool(ending)


def _replace_key(transaction: Transaction, old: KeyRecord, new: KeyRecord) -> None:
    """End a key; what was made with it belongs to the new key from now on."""
    for table in MADE:
        transaction.execute(update(table).where(table.c.parent == old.id).values(parent=new.id))
    _end_rows(transaction, KEYS, KEYS.c.id == old.id)


def _refuse_without_owner(transaction: Transaction) -> None:
    """Raise NotNow, which undoes the transaction, if no owner would have a key in force."""
    owners = {person.id for person in _current_people(transaction, PEOPLE.c.role == "owner")}
    if not any(key.person in owners and key.in_force for key in _select_keys(transaction)):
        raise NotNow(
            "this would leave no owner with a key. Admit another owner first; a lost key is replaced with "
            "`shoal serve --new-owner-key` by someone who has the ledger's file"
        )
