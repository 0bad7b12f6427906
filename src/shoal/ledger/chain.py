"""Entries of the ledger, each bound to the one before it by a hash.

    hash = SHA-256("shoal ledger 1", seq, kind, hash of the entry before, payload)

The payload is canonical JSON. Changing, removing, inserting or moving an entry breaks the chain from there on. Someone
who may rewrite the whole database can also rewrite the whole chain: against that, write :class:`Head` down elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from shoal.errors import InputError

#: Part of every hash; changes if what is hashed ever changes.
FORMAT = "shoal ledger 1"
#: What stands before the first entry.
START = "0" * 64

#: Parts of a payload that are columns as well, so that the database can look them up.
COLUMNS = ("label", "query_id", "analyst", "mechanism", "answer", "release", "readings", "batch")


@dataclass(frozen=True)
class Head:
    """How many entries there are and the hash of the last: a seal on everything before."""

    seq: int
    hash: str

    @classmethod
    def parse(cls, head: Head | str) -> Head:
        """A head as written by ``str(head)``."""
        if isinstance(head, Head):
            return head
        seq, _, digest = str(head).partition(":")
        if not seq.isdigit() or len(digest) != 64:
            raise InputError("head must be a Head, or its text: a number, a colon and 64 hexadecimal digits")
        return cls(int(seq), digest)

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"


@dataclass(frozen=True)
class Entry:
    """One line of the ledger; ``payload`` is JSON text as it was hashed."""

    seq: int
    kind: str
    payload: str
    previous: str
    hash: str

    @property
    def content(self) -> dict[str, Any]:
        """The payload, parsed."""
        parsed = json.loads(self.payload)
        return parsed if isinstance(parsed, dict) else {}

    @property
    def head(self) -> Head:
        return Head(self.seq, self.hash)

    @property
    def intact(self) -> bool:
        """Whether the hash is that of this content in this place."""
        return self.hash == link(self.seq, self.kind, self.previous, self.payload)

    def columns(self) -> dict[str, Any]:
        """What the database indexes of this entry."""
        content = self.content
        return {name: content.get(name) for name in COLUMNS}


def follow(head: Head, kind: str, content: dict[str, Any]) -> Entry:
    """The entry that comes after ``head``."""
    payload = canonical(content)
    seq = head.seq + 1
    return Entry(seq, kind, payload, head.hash, link(seq, kind, head.hash, payload))


def present(**content: Any) -> dict[str, Any]:
    """The content of an entry: the values that are not None."""
    return {name: value for name, value in content.items() if value is not None}


def canonical(content: dict[str, Any]) -> str:
    """JSON with one spelling: sorted keys, no spaces, ASCII, shortest digits that give the same double back."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def link(seq: int, kind: str, previous: str, payload: str) -> str:
    """The hash of an entry."""
    text = "\n".join((FORMAT, str(seq), kind, previous, payload))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
