"""An analyst's own names for the labels of a question.

    handle = base32(HMAC-SHA-256(secret of the ledger, analyst, question, label))[:20]

Without the secret a handle says nothing about its label, two analysts cannot compare theirs, and the same analyst
cannot follow a label from one question to the next. Sorted by handle, labels stand in an order that is drawn by the
secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable


def handles(secret: bytes, analyst: str, question: str, labels: Iterable[str]) -> dict[str, str]:
    """Handle -> label, sorted by handle.

    >>> sorted(handles(b"secret", "ada", "january", ["north", "south"]).values())
    ['north', 'south']
    """
    key = hmac.digest(secret, f"shoal handles\0{analyst}\0{question}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    found = {}
    for label in labels:
        digest = hmac.digest(key, label.encode("utf-8", "surrogatepass"), hashlib.sha256)
        found[base64.b32encode(digest).decode()[:20].lower()] = label
    return dict(sorted(found.items()))
