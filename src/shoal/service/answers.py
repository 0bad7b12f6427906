"""All answers of a question as one analyst gets them, and the receipt that commits to them.

    handle = base32(HMAC-SHA-256(secret of the ledger, analyst, question, label))[:20]

Without the secret a handle says nothing about its label, two analysts cannot compare theirs, and the same analyst
cannot follow a label from one question to the next. Sorted by handle, labels stand in an order drawn by the secret.

Nothing else depends on which label a handle hides: every body has the same length, and after the first request each is
one look into a table.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shoal.ledger.chain import Entry, canonical
from shoal.service.catalog import ReleasedTable
from shoal.service.merkle import Tree

Answers = Mapping[str, list[float]]


@dataclass(frozen=True)
class AnswerSheet:
    """Answers by handle with the entry of the ledger that is their receipt, and the table to pass on."""

    entry: Entry
    answers: Answers
    entries: tuple[str, ...]
    timed: bool
    table: ReleasedTable

    @cached_property
    def _tree(self) -> Tree:
        return commitment(self.entry.content["question"], self.answers)

    @property
    def root(self) -> str:
        return self._tree.root().hex()

    @cached_property
    def bodies(self) -> dict[str, bytes]:
        """Handle -> the bytes to send, all of the same length."""
        plain = {handle: self._body(handle, place) for place, handle in enumerate(self.answers)}
        longest = max(map(len, plain.values()), default=0)
        return {handle: body.ljust(longest) for handle, body in plain.items()}

    @cached_property
    def table_body(self) -> bytes:
        """The public table of the run as the bytes to send."""
        receipt = {"id": self.entry.content["receipt"], "entry": vars(self.entry)}
        table = {"columns": self.table.columns, "rows": self.table.rows}
        return _json(self._common() | {"table": table, "receipt": receipt})

    def csv(self) -> str:
        """All answers as CSV: handle, step, timestamp (or entry) and value."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            ["handle", "step", "timestamp" if self.timed else "entry", self.entry.content["unit"] or "value"]
        )
        for handle, values in self.answers.items():
            for step, (column, value) in enumerate(zip(self.entries, values, strict=True)):
                writer.writerow([handle, step + 1, column, value])
        return out.getvalue()

    def _common(self) -> dict[str, Any]:
        content = self.entry.content
        return {name: content[name] for name in ("question", "unit", "error", "statement")} | {
            "times": self.entries if self.timed else None,
            "entries": self.entries,
            "released": content["time"],
        }

    def _body(self, handle: str, place: int) -> bytes:
        path = [step.hex() for step in self._tree.inclusion(place, self._tree.size)]
        receipt = {
            "id": self.entry.content["receipt"],
            "question": self.entry.content["question"],
            "handle": handle,
            "inside": {"index": place, "size": self._tree.size, "path": path},
            "entry": vars(self.entry),
        }
        return _json(self._common() | {"handle": handle, "answer": self.answers[handle], "receipt": receipt})


def handles(secret: bytes, analyst: str, question: str, labels: Iterable[str]) -> dict[str, str]:
    """Handle -> label, sorted by handle.

    >>> sorted(handles(b"secret", "ada", "january", ["north", "south"]).values())
    ['north', 'south']
    """
    key = hmac.digest(secret, f"shoal handles\0{analyst}\0{question}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    names = {}
    for label in labels:
        digest = hmac.digest(key, label.encode("utf-8", "surrogatepass"), hashlib.sha256)
        names[base64.b32encode(digest).decode()[:20].lower()] = label
    return dict(sorted(names.items()))


def commitment(question: str, answers: Answers) -> Tree:
    """The tree over what is told of each handle, in the order of handles."""
    leaves = ({"question": question, "handle": handle, "answer": answer} for handle, answer in answers.items())
    return Tree(canonical(leaf).encode() for leaf in leaves)


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=True, allow_nan=False).encode()
