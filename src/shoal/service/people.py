"""Whom the service knows: people, their keys, their sessions on the pages, and what they were granted.

A key is 256 random bits, shown once, kept as a digest:

    shoal_<o or a>_<43 characters, base64url of 32 bytes>_<8 hexadecimal digits, CRC-32 of all before it>

The prefix lets scanners of source code find a key that was checked in by mistake. Every key but the owner's first is
made by somebody, with a key or through a proxy. Whatever was made with a key (keys, people who were admitted, grants)
ends when that key is *ended*: whoever steals one makes nothing that outlives it. A key can be *replaced* with itself or
with a key above it; what was made with it goes on under the new one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, Column, Float, MetaData, Table, Text, delete, select, update

from shoal import validation
from shoal.errors import InputError, ShoalError
from shoal.ledger import chain
from shoal.ledger.questions import word
from shoal.ledger.storage import Transaction

#: Roles, and the letter of each in a key.
ROLES = {"owner": "o", "analyst": "a"}
#: How long a sign-in on the pages lasts, and a key unless something else is said.
SESSION, LIFETIME = timedelta(hours=12), timedelta(days=365)
FIRST_OWNER = "owner"
_FORM = re.compile(r"shoal_[oa]_[A-Za-z0-9_-]{43}_[0-9a-f]{8}")

METADATA = MetaData()


def _table(name: str, *columns: str | Column[Any]) -> Table:
    """A table of texts: the first column is its key, those with a question mark may be empty."""
    made = [
        column
        if isinstance(column, Column)
        else Column(column.rstrip("?"), Text, primary_key=place == 0, nullable=column.endswith("?"))
        for place, column in enumerate(columns)
    ]
    return Table(f"service_{name}", METADATA, *made)


#: A name is one person for ever, so that nobody gets a second budget.
PEOPLE = _table(
    "people",
    "id",
    Column("name", Text, nullable=False, unique=True),
    "role",
    "created",
    "ended?",
    "made_by?",
    "parent?",
)
KEYS = _table(
    "keys", "id", Column("digest", Text, nullable=False, unique=True), "person", "hint", "created", "expires?",
    "ended?", "made_by?", "parent?", "for_grant?",
)  # fmt: skip
SESSIONS = _table("sessions", "digest", "key_id", "expires")
GRANTS = _table(
    "grants", "id", "person", "questions", Column("epsilon", Float(53)), Column("delta", Float(53)), "expires?",
    "created", "ended?", "made_by?", "parent?", Column("refused", BigInteger, nullable=False),
)  # fmt: skip
#: Idempotency keys, each bound to one body.
REQUESTS = _table("requests", "id", "body")
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

    text: str

    @classmethod
    def new(cls, role: str) -> Key:
        """A key of a role.

        >>> key = Key.new("analyst")
        >>> Key.parse(key.text) == key, len(key.text)
        (True, 60)
        """
        body = f"shoal_{ROLES[role]}_{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip('=')}"
        return cls(f"{body}_{zlib.crc32(body.encode()):08x}")

    @classmethod
    def parse(cls, text: str) -> Key | None:
        """The key that a text is, or None where it cannot be one.

        >>> Key.parse("shoal_a_no-key") is None
        True
        """
        body, _, checksum = text.rpartition("_")
        return cls(text) if _FORM.fullmatch(text) and checksum == f"{zlib.crc32(body.encode()):08x}" else None

    @property
    def digest(self) -> str:
        """What is stored: without salt, which 256 random bits do not need."""
        return digest_of(self.text)

    @property
    def hint(self) -> str:
        """Enough to tell one's keys apart, too little to use one."""
        return f"{self.text[:8]}…{self.text[-4:]}"

    def __repr__(self) -> str:
        return f"Key({self.hint})"


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
    made_by: str | None  #: who made it
    parent: str | None  #: the key that it was made with
    for_grant: str | None

    @property
    def in_force(self) -> bool:
        return in_force(self.ended, self.expires)


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
    refused: int = 0  #: how often its budget did not allow what was asked

    @property
    def in_force(self) -> bool:
        return in_force(self.ended, self.expires)


def now(later: timedelta = timedelta()) -> str:
    """The instant as it is stored and compared: UTC, ISO 8601, microseconds."""
    return (datetime.now(UTC) + later).isoformat(timespec="microseconds")


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


def in_force(ended: str | None, expires: str | None) -> bool:
    return ended is None and (expires is None or now() < expires)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def new_id(letter: str) -> str:
    """A name for a row that says nothing."""
    return f"{letter}_{secrets.token_hex(8)}"


def spelled(name: str) -> str:
    """A name in one spelling: what looks the same is the same person."""
    return word(name=unicodedata.normalize("NFC", name).strip() if isinstance(name, str) else name)


def people_in(transaction: Transaction) -> list[Person]:
    query = select(PEOPLE.c.id, PEOPLE.c.name, PEOPLE.c.role).where(PEOPLE.c.ended.is_(None))
    return [Person(*row) for row in transaction.rows(query.order_by(PEOPLE.c.created, PEOPLE.c.id))]


def keys_in(transaction: Transaction) -> list[KeyRecord]:
    fields = [KEYS.c[name] for name in KeyRecord.__dataclass_fields__]
    return [KeyRecord(*row) for row in transaction.rows(select(*fields).order_by(KEYS.c.created, KEYS.c.id))]


def grants_in(transaction: Transaction) -> list[Grant]:
    fields = [GRANTS.c[name] for name in Grant.__dataclass_fields__]
    rows = transaction.rows(select(*fields).order_by(GRANTS.c.created, GRANTS.c.id))
    return [Grant(row[0], row[1], tuple(json.loads(row[2])), *row[3:]) for row in rows]


def maker(transaction: Transaction, by: Caller | None) -> dict[str, str | None]:
    """Who makes something, and with which key; raised where that key is not in force."""
    used = None if by is None else by.key
    if used is not None and not any(key.id == used and key.in_force for key in keys_in(transaction)):
        raise Unknown("the key is not in force")
    return {"made_by": None if by is None else by.person.id, "parent": used}


def admitted(transaction: Transaction, name: str, role: str, by: Caller | None) -> Person:
    validation.choice(tuple(ROLES), role=role)
    name, made = spelled(name), maker(transaction, by)
    row = transaction.one(select(PEOPLE.c.id, PEOPLE.c.ended).where(PEOPLE.c.name == name))
    if row is not None and row[1] is None:
        raise NotNow("somebody of this name is here already; a new key for them is made under keys")
    person = Person(new_id("p") if row is None else str(row[0]), name, role)
    transaction.upsert(PEOPLE, [asdict(person) | {"created": now(), "ended": None} | made])
    return person


def make_key(
    transaction: Transaction,
    person: Person,
    by: Caller | None,
    expires: str | None = None,
    grant: str | None = None,
    root: bool = False,
) -> tuple[KeyRecord, Key]:
    """A key of someone, made by someone. It ends no later than the key that it was made with."""
    made = maker(transaction, by)
    above = next((key.expires for key in keys_in(transaction) if key.id == made["parent"]), None)
    until = min(filter(None, (expires or (None if root else now(LIFETIME)), above)), default=None)
    key = Key.new(person.role)
    record = KeyRecord(new_id("k"), person.id, key.hint, now(), until, None, made["made_by"], made["parent"], grant)
    transaction.insert(KEYS, asdict(record) | {"digest": key.digest})
    return record, key


def visible(transaction: Transaction, id: str, by: Caller) -> KeyRecord:
    """A key in force that someone may end or replace: their own, or any where they are an owner."""
    key = next((key for key in keys_in(transaction) if key.id == id), None)
    if key is None or not key.in_force or not (by.is_owner or key.person == by.person.id):
        raise Unknown("there is no such key")
    return key


def end(transaction: Transaction, table: Table, ids: Sequence[str]) -> int:
    """End rows and all that was made with them, or belongs to them; how many keys ended."""
    open_ones = transaction.rows(select(table.c.id).where(table.c.id.in_(ids), table.c.ended.is_(None)))
    ending = sorted(str(row[0]) for row in open_ones)
    if not ending:
        return 0
    transaction.run(update(table).where(table.c.id.in_(ending)).values(ended=now()))
    chain.append(transaction, "revoked", {table.name.removeprefix("service_"): ending})
    below = BELOW[table.name]
    count = len(ending) if table is KEYS else 0
    if table is KEYS:
        transaction.run(delete(SESSIONS).where(SESSIONS.c.key_id.in_(ending)))
    for made, column in below:
        rows = transaction.rows(select(made.c.id).where(made.c[column].in_(ending)))
        count += end(transaction, made, [str(row[0]) for row in rows])
    return count


def replace(transaction: Transaction, old: KeyRecord, new: KeyRecord) -> None:
    """End a key; what was made with it is from now on under another."""
    for table in MADE:
        transaction.run(update(table).where(table.c.parent == old.id).values(parent=new.id))
    end(transaction, KEYS, [old.id])


def refuse_without_owner(transaction: Transaction) -> None:
    """Raise, and so undo the transaction, where no owner would have a key in force."""
    owners = {person.id for person in people_in(transaction) if person.role == "owner"}
    if not any(key.person in owners and key.in_force for key in keys_in(transaction)):
        raise NotNow(
            "this would leave no owner with a key. Admit another owner first; a lost key is replaced with "
            "`shoal serve --new-owner-key` by whoever holds the ledger's file"
        )
