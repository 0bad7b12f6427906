"""The ledger's chain as a Merkle tree, and the file of checkpoints that holds it to what was shown.

A checkpoint is the size and the root of the tree over all entries (RFC 9162). One is on disk, outside of the ledger's
own file, before an answer that it covers is shown. So a ledger that was restored from an older copy, or rewritten, is
recognized at the next start, whether the service was stopped or killed.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from shoal.errors import LedgerError
from shoal.files import private, settle
from shoal.ledger import chain
from shoal.ledger.chain import Entry
from shoal.ledger.ledger import Ledger
from shoal.service.merkle import Tree
from shoal.service.people import Unknown

CHECKPOINTS = "checkpoints.jsonl"


class LedgerRecord:
    """The tree over a ledger's entries, and proofs in it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._tree = Tree()
        self._last = ""
        self.identity = ledger.identity

    def checkpoint(self, size: int | None = None) -> dict[str, Any]:
        """Size and root of the tree, of all entries or of the first ``size``: to be written down elsewhere."""
        return self._checkpoint(self._grown(), size)

    def consistency(self, first: int, second: int | None = None) -> dict[str, Any]:
        """That the record only grew between two checkpoints."""
        tree = self._grown()
        upto = tree.size if second is None else second
        if not 0 < first <= upto <= tree.size:
            raise Unknown("there are no such checkpoints")
        return {
            "first": self._checkpoint(tree, first),
            "second": self._checkpoint(tree, upto),
            "consistency": [step.hex() for step in tree.consistency(first, upto)],
        }

    def inclusion(self, entry: Entry, size: int | None = None) -> dict[str, Any]:
        """How an entry leads to a checkpoint: the newest, or the one of ``size`` entries."""
        tree = self._grown()
        upto = tree.size if size is None else size
        if not entry.seq <= upto <= tree.size:
            raise Unknown("size must be that of a checkpoint that holds the receipt")
        path = [step.hex() for step in tree.inclusion(entry.seq - 1, upto)]
        return {
            "checkpoint": self._checkpoint(tree, upto),
            "inclusion": {"index": entry.seq - 1, "size": upto, "path": path},
            "entry": vars(entry),
        }

    def _grown(self) -> Tree:
        """The tree with the entries that came since, which must continue it."""
        with self._lock, self._ledger.storage.reading() as transaction:
            since = max(self._tree.size - 1, 0)
            hashes = chain.hashes(transaction, since)
            if self._tree.size and (not hashes or hashes.pop(0) != self._last):
                raise LedgerError(
                    "ledger: it was exchanged or cut while the service runs; stop it, and restore the newest copy"
                )
            for text in hashes:
                self._tree.append(bytes.fromhex(text))
                self._last = text
            return self._tree

    def _checkpoint(self, tree: Tree, size: int | None) -> dict[str, Any]:
        upto = tree.size if size is None else size
        return {"ledger": self.identity, "size": upto, "root": tree.root(upto).hex()}


class CheckpointFile:
    """Checkpoints in a file, a line of JSON each, flushed to disk one by one."""

    def __init__(self, path: Path, record: LedgerRecord) -> None:
        self._path, self._record = path, record
        self._lock = threading.Lock()
        self._size = 0

    def compare(self) -> None:
        """Raise unless the ledger continues the last checkpoint on file; then keep the newest."""
        last = self._last()
        if last is not None:
            if last["ledger"] != self._record.identity:
                raise LedgerError(
                    "ledger: it is not the one whose checkpoints lie in this folder; name that one with --ledger"
                )
            entries = self._record.checkpoint()["size"]
            if last["size"] > entries:
                raise LedgerError(
                    f"ledger: it has {entries} entries, and {last['size']} when the service showed something last: an "
                    "old copy was restored, which does not know what was given since. Restore the newest copy"
                )
            if self._record.checkpoint(last["size"])["root"] != last["root"]:
                raise LedgerError("ledger: its history was rewritten since the last checkpoint; restore a true copy")
        self.keep()

    def keep(self) -> None:
        """Have the newest checkpoint on disk when this returns; nothing that it covers may be shown before."""
        with self._lock:
            newest = self._record.checkpoint()
            if newest["size"] == self._size:
                return
            try:
                self._append(json.dumps(newest, sort_keys=True).encode() + b"\n")
            except OSError:
                raise LedgerError(
                    f"ledger: {self._path.name} cannot be written beside the runs, so nothing is shown; make room "
                    "there, or give the service the right to write"
                ) from None
            self._size = int(newest["size"])

    def _append(self, line: bytes) -> None:
        """Add a line after the last whole one: what a crash cut short was never relied on."""
        private(self._path)
        with self._path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(size - 4096, 0))
            file.seek(start + file.read().rfind(b"\n") + 1)
            file.write(line)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        settle(self._path.parent)

    def _last(self) -> dict[str, Any] | None:
        if not self._path.is_file():
            return None
        lines = [line for line in self._path.read_bytes().split(b"\n")[:-1] if line]
        try:
            last = json.loads(lines[-1]) if lines else None
            if last is None or {"ledger", "size", "root"} <= set(last):
                return last
        except (ValueError, TypeError):
            pass
        raise LedgerError(
            f"ledger: {self._path.name} in the served folder is damaged, so it is not known what was shown; restore it"
        )
