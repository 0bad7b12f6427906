"""The ledger's chain as a Merkle tree (RFC 9162), and the files of checkpoints that hold it to what was shown.

    leaf  SHA-256(0x00 ‖ data)        node  SHA-256(0x01 ‖ left ‖ right)        no leaves  SHA-256()

A checkpoint is the size and the root of the tree over all entries. One is on disk, beside the ledger and in the served
folder, before an answer that it covers is shown; a start is held against both, and against those of folders above and
below. So a ledger that was restored from an older copy, or rewritten, is recognized.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.errors import LedgerError
from shoal.files import flush_folder, make_private_file, make_private_folder
from shoal.product.ledger import chain
from shoal.product.ledger.chain import Entry
from shoal.product.ledger.ledger import Ledger
from shoal.product.ledger.storage import Storage
from shoal.product.runs.owner_ledger import user_ledger_path
from shoal.product.service.receipt_verifier import leaf_hash, node_hash
from shoal.product.service.register import Unknown


class Tree:
    """A tree that grows at its end. It keeps the roots of complete subtrees, so that proofs take a few dozen hashes.

    >>> tree = Tree([b"a", b"b", b"c"])
    >>> tree.size, tree.root().hex()[:8], len(tree.inclusion(2, 3))
    (3, '36642e73', 1)
    """

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        #: ``_levels[h][i]`` is the root of the leaves from i 2^h to (i + 1) 2^h, all of which are there.
        self._levels: list[list[bytes]] = [[]]
        for data in leaves:
            self.append(data)

    @property
    def size(self) -> int:
        return len(self._levels[0])

    def append(self, data: bytes) -> None:
        """Add a leaf."""
        node, height = leaf_hash(data), 0
        self._levels[0].append(node)
        while len(self._levels[height]) % 2 == 0:
            node = node_hash(self._levels[height][-2], self._levels[height][-1])
            height += 1
            if height == len(self._levels):
                self._levels.append([])
            self._levels[height].append(node)

    def root(self, size: int | None = None) -> bytes:
        """The root of the first ``size`` leaves, by default of all."""
        upto = self.size if size is None else size
        return hashlib.sha256().digest() if upto == 0 else self._range_root(0, upto)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """The hashes that lead from leaf ``index`` to the root of the first ``size`` leaves (RFC 9162, 2.1.3.1)."""
        path: list[bytes] = []
        low, high = 0, size
        while high - low > 1:
            middle = low + _left_leaves(high - low)
            if index < middle:
                path.append(self._range_root(middle, high))
                high = middle
            else:
                path.append(self._range_root(low, middle))
                low = middle
        return path[::-1]

    def _range_root(self, low: int, high: int) -> bytes:
        """Root of the leaves from ``low`` to ``high``, where ``low`` is a multiple of a power of two as large."""
        count = high - low
        height = count.bit_length() - 1
        if count == 1 << height and low % count == 0:
            return self._levels[height][low >> height]
        middle = low + _left_leaves(count)
        return node_hash(self._range_root(low, middle), self._range_root(middle, high))


def _left_leaves(count: int) -> int:
    """Leaves in the left part of a tree of ``count`` > 1 leaves (RFC 9162): the largest power of two below it."""
    return 1 << ((count - 1).bit_length() - 1)


CHECKPOINTS = "checkpoints.jsonl"


class LedgerRecord:
    """The tree over a ledger's entries, proofs in it, and its checkpoints: a line of JSON each, in two files."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self._ledger, self._identity = ledger, ledger.identity
        self._reading, self._keeping = threading.Lock(), threading.Lock()
        self._tree, self._last, self._kept = Tree(), "", 0
        file = database_file(ledger.storage)
        beside = user_ledger_path() if file is None else file
        name = f"{self._identity if file is None else file.name}-{CHECKPOINTS}"
        self.files = (beside.with_name(name), folder / CHECKPOINTS)

    def checkpoint(self, size: int | None = None) -> dict[str, Any]:
        """Ledger, size and root of the tree over all entries, or over the first ``size``."""
        tree, upto = self._updated_tree(size)
        return {"ledger": self._identity, "size": upto, "root": tree.root(upto).hex()}

    def inclusion(self, entry: Entry, size: int | None = None) -> dict[str, Any]:
        """Path from an entry to a checkpoint: the newest, or the one of ``size`` entries."""
        tree, upto = self._updated_tree(size, entry.seq)
        path = [step.hex() for step in tree.inclusion(entry.seq - 1, upto)]
        inclusion = {"index": entry.seq - 1, "size": upto, "path": path}
        return {"checkpoint": self.checkpoint(upto), "inclusion": inclusion, "entry": vars(entry)}

    def _updated_tree(self, size: int | None = None, least: int = 0) -> tuple[Tree, int]:
        """The tree with the entries added since the last call, and ``size``, by default that of the tree."""
        with self._reading, self._ledger.storage.reading() as transaction:
            hashes = chain.read_hashes(transaction, max(self._tree.size - 1, 0))
            if self._tree.size and (not hashes or hashes.pop(0) != self._last):
                raise LedgerError(
                    "ledger: it was exchanged or cut while the service runs; stop it, and restore the newest copy"
                )
            for text in hashes:
                self._tree.append(bytes.fromhex(text))
                self._last = text
            upto = self._tree.size if size is None else size
            if not least <= upto <= self._tree.size:
                raise Unknown("there is no such checkpoint")
            return self._tree, upto

    def compare_checkpoints(self) -> None:
        """LedgerError unless the ledger continues every stored checkpoint; then store the newest."""
        known = []
        for file in self.files:
            known.append(_last_checkpoint(file))
            if known[-1].get("ledger", self._identity) != self._identity:
                raise LedgerError(
                    f"ledger: the checkpoints in {file} are those of another ledger; name that one with --ledger"
                )
        folder = self.files[-1].parent.resolve()
        for file in (folder.parent / CHECKPOINTS, *folder.glob(f"*/{CHECKPOINTS}")):
            with contextlib.suppress(LedgerError):  # a file of this name may be somebody else's
                known.append(_last_checkpoint(file))
        entries = self.checkpoint()["size"]
        for last in known:
            if last.get("ledger") != self._identity:
                continue
            if last["size"] > entries:
                raise LedgerError(
                    f"ledger: it has {entries} entries, and {last['size']} when the service showed something last: an "
                    "old copy was restored, which does not know what was given since. Restore the newest copy"
                )
            if self.checkpoint(last["size"])["root"] != last["root"]:
                raise LedgerError("ledger: its history was rewritten since the last checkpoint; restore a true copy")
        self.keep_checkpoint()

    def keep_checkpoint(self) -> None:
        """Store the newest checkpoint durably; nothing that it covers may be shown before."""
        with self._keeping:
            newest = self.checkpoint()
            if newest["size"] == self._kept:
                return
            for file in self.files:
                try:
                    _append_line(file, json.dumps(newest, sort_keys=True).encode() + b"\n")
                except OSError:
                    raise LedgerError(
                        f"ledger: {file} cannot be written, so nothing is shown; make room there, or give the service "
                        "the right to write"
                    ) from None
            self._kept = int(newest["size"])


def database_file(storage: Storage) -> Path | None:
    """The resolved path of a SQLite ledger's file; None on PostgreSQL."""
    if storage.postgres:
        return None
    with storage.reading() as transaction:
        return Path(str(transaction.first("PRAGMA database_list")[2])).resolve()


def _append_line(path: Path, line: bytes) -> None:
    """Append a line durably after the last whole one; a line that a crash cut short is overwritten."""
    make_private_folder(path.parent)
    make_private_file(path)
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(size - 4096, 0))
        file.seek(start + file.read().rfind(b"\n") + 1)
        file.write(line)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    flush_folder(path.parent)


def _last_checkpoint(path: Path) -> dict[str, Any]:
    """The last whole line of a file of checkpoints; empty if there is none, LedgerError if it is damaged."""
    try:
        lines = [line for line in path.read_bytes().split(b"\n")[:-1] if line] if path.is_file() else []
        last = json.loads(lines[-1]) if lines else {}
        if not lines or (isinstance(last, dict) and {"ledger", "size", "root"} <= set(last)):
            return last
    except (OSError, ValueError):
        pass
    raise LedgerError(f"ledger: {path} is damaged, so it is not known what was shown; restore it")
