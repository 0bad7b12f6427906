"""Merkle trees as RFC 9162 hashes them: roots, and short proofs of inclusion.

    leaf  SHA-256(0x00 ‖ data)        node  SHA-256(0x01 ‖ left ‖ right)        no leaves  SHA-256()

A tree of n leaves splits at the largest power of two below n. :class:`Tree` keeps the roots of its complete subtrees,
so that a proof over a million leaves takes a few dozen hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from shoal.errors import InputError


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """A tree that grows at its end.

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
        upto = self.size if size is None else self._within(size)
        return hashlib.sha256().digest() if upto == 0 else self._range(0, upto)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """The hashes that lead from leaf ``index`` to the root of the first ``size`` leaves (RFC 9162, 2.1.3.1)."""
        if not 0 <= index < self._within(size):
            raise InputError("index must be that of a leaf of the tree")
        path: list[bytes] = []
        low, high = 0, size
        while high - low > 1:
            middle = low + _split(high - low)
            if index < middle:
                path.append(self._range(middle, high))
                high = middle
            else:
                path.append(self._range(low, middle))
                low = middle
        return path[::-1]

    def _within(self, size: int) -> int:
        if not 0 <= size <= self.size:
            raise InputError("size must be at most that of the tree")
        return size

    def _range(self, low: int, high: int) -> bytes:
        """The root of the leaves from ``low`` to ``high``, where ``low`` is a multiple of a power of two as large."""
        count = high - low
        height = count.bit_length() - 1
        if count == 1 << height and low % count == 0:
            return self._levels[height][low >> height]
        middle = low + _split(count)
        return node_hash(self._range(low, middle), self._range(middle, high))


def _split(count: int) -> int:
    """The largest power of two below ``count``."""
    return 1 << ((count - 1).bit_length() - 1)
