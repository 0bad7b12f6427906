"""Crowds for life: who is averaged with whom, from one release to the next.

A mean that changes by one member gives that member away: n'c' − nc. So does a mean in which only one member has news.
The rules below are those of the theory notes, section 10; m is the crowd that is promised.

1. **A crowd is a fixed set.** It is formed with about 1.2 m members (:data:`ROOM`) by likeness; m to 1.2 m labels are
   one crowd.
2. **The mean is over the whole set.** Who has no news enters with a stored value, frozen when the crowd was formed.
   News is a value other than the last one that entered, in the decimals that are released. Where fewer than m have
   news, the previous row is repeated.
3. **Newcomers wait** until they are 2.4 m (:data:`WAIT`). Up to 10 m of them (:data:`LOT`) are divided by lot, since
   nine invented labels would otherwise have the tenth; more are alike inside lots of 10 m.
4. **A crowd of which fewer than m can still have news is retired.** Its rest stays together and enters, as a block, a
   new crowd with at least m others: no difference of two rows isolates fewer than m.

Everything here is a pure function of its arguments, and of the *multiset* of values: exchanging two members of a crowd,
or listing labels in another order, changes no row. What is drawn by lot comes in as ``shuffle``.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from shoal.crowds.formation import crowds, means
from shoal.validation import FloatArray

#: Members of a new crowd, at least, over those promised.
ROOM = 1.2
#: Newcomers that begin new crowds, over the members promised.
WAIT = 2.4
#: Newcomers that are divided by lot alone, over the members promised; more are divided into lots of this size.
LOT = 10.0

#: Puts n things in a drawn order: a permutation of range(n).
Shuffle = Callable[[int], Sequence[int]]


def formation_size(m: int) -> int:
    """Members with which a crowd is formed, at least.

    >>> formation_size(10), formation_size(2)
    (12, 3)
    """
    return math.ceil(ROOM * m - 1e-9)


def waiting_size(m: int) -> int:
    """Newcomers from which on new crowds are formed.

    >>> waiting_size(10)
    24
    """
    return math.ceil(WAIT * m - 1e-9)


def form_crowds(
    points: FloatArray,
    m: int,
    shuffle: Shuffle | None = None,
    *,
    boundaries: Sequence[str] | None = None,
    totals: FloatArray | None = None,
    largest_share: float | None = None,
    beside: FloatArray | None = None,
) -> NDArray[np.int64]:
    """(n,) crowd of each row at the first release about a population; −1 where fewer than m share a boundary.

    With ``shuffle`` rows are newcomers beside crowds that exist: they are divided by lot, and −1 is who waits.

    Args:
        points: (n, d) what crowds are alike in.
        m: members promised.
        shuffle: draws the lots of newcomers.
        boundaries: (n,) values that crowds never cross.
        totals: (n,) what each row has of its crowd's total, for ``largest_share``.
        largest_share: no member has more than this share of its crowd's total.
        beside: (n, k) what will be averaged: it orders rows whose points are equal.

    >>> form_crowds(np.arange(5.0)[:, None], 2).tolist()
    [0, 0, 0, 0, 0]
    >>> form_crowds(np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    n, size, least = len(points), formation_size(m), m if shuffle is None else waiting_size(m)
    member = np.full(n, -1, dtype=np.int64)
    values = np.asarray([""] * n if boundaries is None else [str(value) for value in boundaries], dtype=object)
    number = 0
    for value in sorted(set(values.tolist())):
        rows = np.flatnonzero(values == value)
        if len(rows) < least:
            continue
        lots = [rows]
        if shuffle is not None:  # in order of their values first: the draw does not depend on how rows are named
            keys = points[rows] if beside is None else np.concatenate([points[rows], beside[rows]], axis=1)
            rows = rows[np.lexsort(keys.T[::-1])]
            rows = rows[list(shuffle(len(rows)))]
            lots = np.array_split(rows, max(len(rows) // math.ceil(LOT * m), 1))
        for lot in lots:
            if shuffle is not None and len(rows) <= LOT * m:
                inside = np.arange(len(lot)) % (len(lot) // size)
            else:
                inside = crowds(
                    points[lot],
                    min(size, len(lot)),
                    totals=None if totals is None else totals[lot],
                    largest_share=largest_share,
                    beside=None if beside is None else beside[lot],
                )
            member[lot] = number + inside
            number += int(inside.max()) + 1
    return member


def value_digest(value: FloatArray, decimals: Sequence[int]) -> str:
    """The digest by which a value is recognized when it comes again, in the decimals that are released.

    The unit, type or number of digits that it was read from does not matter. Figures of the last time with other last
    digits are no news: a crowd full of them would show what the one member who is silent this time had.

    >>> value_digest(np.array([1.25]), [3]) == value_digest(np.array([1.2500001]), [3])
    True
    """
    rounded = [round(entry, places) + 0.0 for entry, places in zip(value.tolist(), decimals, strict=True)]
    return hashlib.sha256(np.array(rounded, dtype="<f8").tobytes()).hexdigest()[:32]


def crowd_row(
    values: FloatArray, stored: FloatArray, news: NDArray[np.bool_], m: int, largest_share: float | None = None
) -> FloatArray | None:
    """The row of one crowd: the exactly rounded mean over the whole set, with at least m members' news in it.

    None where the previous row is repeated.

    Args:
        values: (n, k) members' values today; rows without news are not looked at.
        stored: (n, k) what enters for a member without news.
        news: (n,) who has news.
        m: members promised.
        largest_share: where a member has more than this share of the crowd's total, the previous row is repeated too;
            what is below zero counts as what is above.

    Example: ten members promised, nine with news: repeated.

    >>> crowd_row(np.ones((12, 1)), np.zeros((12, 1)), np.arange(12) < 9, 10) is None
    True
    >>> crowd_row(np.ones((12, 1)), np.zeros((12, 1)), np.arange(12) < 10, 10).tolist()
    [0.8333333333333334]
    """
    if int(news.sum()) < m:
        return None
    taken = np.where(news[:, None], values, stored)
    if largest_share is not None:
        loads = [math.fsum(map(abs, row)) for row in taken.tolist()]
        if max(loads) > largest_share * math.fsum(loads):
            return None
    return np.asarray(means(taken, np.zeros(len(taken), dtype=np.int64))[0])


def can_have_news(last: str, period: str, today: bool, days: float) -> bool:
    """Whether a member can still have news: it has a value today, or had news within so many days.

    ``last`` and ``period`` are instants, ISO 8601; an empty ``last`` is of a member that never had any.
    """
    if today or not last:
        return today
    return (datetime.fromisoformat(period) - datetime.fromisoformat(last)).total_seconds() <= days * 86400


def with_blocks(
    newcomers: Mapping[str, int], blocks: Mapping[int, Sequence[str]], m: int
) -> tuple[dict[str, int], set[int]]:
    """New crowds with the rests of retired ones in them: label -> crowd, and the blocks that still wait.

    A block enters a crowd of at least m newcomers, as a whole, and no crowd takes two.

    >>> with_blocks({"a": 0, "b": 0, "c": 1, "d": 1}, {7: ["x"]}, 2)
    ({'a': 0, 'b': 0, 'c': 1, 'd': 1, 'x': 0}, set())
    """
    free = sorted(crowd for crowd, size in Counter(newcomers.values()).items() if size >= m)
    joined = dict(newcomers)
    for block, crowd in zip(sorted(blocks), free, strict=False):
        joined |= dict.fromkeys(blocks[block], crowd)
    return joined, set(sorted(blocks)[len(free) :])
