"""Keys that people and programs hold: 256 random bits, shown once, kept as a digest.

    shoal_<role>_<43 characters, base64url of 32 bytes>_<8 hexadecimal digits, CRC-32 of all before it>

The prefix lets scanners of source code find a key that was checked in by mistake; the checksum tells a mistyped key
from a revoked one without a look at the database. A digest without salt is enough for 256 random bits.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass

#: Roles, and the letter of each in a key.
ROLES = {"owner": "o", "analyst": "a"}
_FORM = re.compile(r"shoal_([oa])_([A-Za-z0-9_-]{43})_([0-9a-f]{8})")


@dataclass(frozen=True)
class Key:
    """A key in plain text; it shows itself nowhere by accident."""

    text: str

    @property
    def digest(self) -> str:
        """What is stored."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def hint(self) -> str:
        """Enough to tell one's keys apart, too little to use one."""
        return f"{self.text[:8]}…{self.text[-4:]}"

    def __repr__(self) -> str:
        return f"Key({self.hint})"


def new_key(role: str) -> Key:
    """A key of a role.

    >>> key = new_key("analyst")
    >>> parse_key(key.text) == key, len(key.text)
    (True, 60)
    """
    body = f"shoal_{ROLES[role]}_{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip('=')}"
    return Key(f"{body}_{_checksum(body)}")


def parse_key(text: str) -> Key | None:
    """The key that a text is, or None where it cannot be one.

    >>> parse_key("shoal_a_no-key") is None
    True
    """
    match = _FORM.fullmatch(text) if len(text) < 100 else None
    body = text.rpartition("_")[0]
    return Key(text) if match is not None and match[3] == _checksum(body) else None


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
