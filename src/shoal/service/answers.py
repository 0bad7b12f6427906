"""All answers of a question as one analyst gets them, and the receipt that commits to them.

Nothing depends on which label a handle hides: every body has the same length, and after the first request each is one
look into a table.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shoal.ledger.chain import Entry, canonical
from shoal.service.catalog import PublicTable
from shoal.service.merkle import Tree

Answers = Mapping[str, list[float]]


@dataclass(frozen=True)
class AnswerSheet:
    """Answers by handle with the entry of the ledger that is their receipt, and the table to pass on."""

    entry: Entry
    answers: Answers
    entries: tuple[str, ...]
    timed: bool
    table: PublicTable | None = None

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
        """The whole table as the bytes to send: the public one of the run, or all answers by handle."""
        columns, rows = self.listing if self.table is None else (self.table.columns, self.table.rows)
        receipt = {"id": self.entry.content["receipt"], "entry": vars(self.entry)}
        return _json(self._common() | {"table": {"columns": columns, "rows": rows}, "receipt": receipt})

    @property
    def listing(self) -> tuple[Sequence[str], list[list[Any]]]:
        """Columns and rows of all answers: handle, step, timestamp (or entry) and value."""
        names = ["handle", "step", "timestamp" if self.timed else "entry", self.entry.content["unit"] or "value"]
        rows = [
            [handle, step + 1, column, value]
            for handle, values in self.answers.items()
            for step, (column, value) in enumerate(zip(self.entries, values, strict=True))
        ]
        return names, rows

    def csv(self, public: bool = False) -> str:
        """All answers, or the table to pass on, as CSV."""
        columns, rows = self.listing if self.table is None or not public else (self.table.columns, self.table.rows)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
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


def commitment(question: str, answers: Answers) -> Tree:
    """The tree over what is told of each handle, in the order of handles."""
    leaves = ({"question": question, "handle": handle, "answer": answer} for handle, answer in answers.items())
    return Tree(canonical(leaf).encode() for leaf in leaves)


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=True, allow_nan=False).encode()
