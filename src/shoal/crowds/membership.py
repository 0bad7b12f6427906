"""Permanent crowds: who is averaged with whom, from one release to the next (docs/theory.md, section 12).

m is the size that is promised. First crowds are formed from points with a secret noise (:data:`BLUR`): without it
someone who knows all other labels could repeat formation for every figure of the last one. Everything here is a pure
function of its arguments and of the *multiset* of values: exchanging two members of a crowd, or listing labels in
another order, changes no row. What is drawn comes in as ``shuffle`` and ``seed``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.crowds.formation import Limits, least_spread_crowds
from shoal.crowds.rules import Draw, Units
from shoal.errors import UnreachableError
from shoal.validation import FloatArray, IndexArray

#: Members of a new crowd, at least, over those promised.
ROOM = 1.2
#: Newcomers that begin new crowds, over the members promised.
WAIT = 2.4
#: Newcomers that are divided by lot alone, over the members promised; more are divided into lots of this size.
LOT = 10.0
#: Deviation of the noise of what first crowds are alike in, over that of each column. Prices do not show it.
BLUR = 0.1
#: Secret seeds.
SEEDS = 2**63

#: Puts n things in a drawn order: a permutation of range(n).
Shuffle = Callable[[int], Sequence[int]]


def formation_size(m: int) -> int:
    """Least number of members with which a crowd of promised size m is formed.

    >>> formation_size(10), formation_size(2)
    (12, 3)
    """
    return math.ceil(ROOM * m - 1e-9)


def waiting_size(m: int) -> int:
    """Number of newcomers from which on new crowds of promised size m are formed.

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
    beside: FloatArray | None = None,
    limits: Limits | None = None,
    keeps: Callable[[IndexArray], bool] | None = None,
    seed: int | None = None,
) -> NDArray[np.int64]:
    """(n,) crowd of each row at the first release about a population; −1 where fewer than m share a boundary.

    With ``shuffle`` rows are newcomers beside crowds that exist: they are divided by lot, and −1 is who waits.
    ``keeps`` says whether some of them can be a crowd by the rules of a row. At a first release the caller checks
    whether ``limits`` are kept, and ``seed`` is that of the noise of ``points`` (n, d), secret where rows are released;
    None for none. The other arguments are those of :func:`shoal.crowds.formation.least_spread_crowds`.

    >>> form_crowds(np.arange(5.0)[:, None], 2).tolist()
    [0, 0, 0, 0, 0]
    >>> form_crowds(np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    n, size, least = len(points), formation_size(m), m if shuffle is None else waiting_size(m)
    member = np.full(n, -1, dtype=np.int64)
    values = np.asarray([""] * n if boundaries is None else [str(value) for value in boundaries], dtype=object)
    known = np.concatenate(
        [points, *([] if beside is None else [beside]), *([] if limits is None else [limits.by_row])], axis=1
    )
    if seed is not None:
        points = _add_secret_noise(points, known, values, seed)
    number = 0
    for value in sorted(set(values.tolist())):
        rows = np.flatnonzero(values == value)
        if len(rows) < least:
            continue
        lots = [rows]
        if shuffle is not None:  # in order of their values first: the draw does not depend on how rows are named
            rows = rows[np.lexsort(known[rows].T[::-1])]
            rows = rows[list(shuffle(len(rows)))]
            lots = np.array_split(rows, max(len(rows) // math.ceil(LOT * m), 1))
        for lot in lots:
            if shuffle is not None and len(rows) <= LOT * m:
                inside = np.arange(len(lot)) % (len(lot) // size)
            else:
                inside = least_spread_crowds(
                    points[lot],
                    min(size, len(lot)),
                    beside=None if beside is None else beside[lot],
                    limits=None if limits is None else limits.take(lot),
                )
            for c in range(int(inside.max()) + 1):
                if shuffle is None or keeps is None or keeps(lot[inside == c]):
                    member[lot[inside == c]] = number
                    number += 1
    return member


def _add_secret_noise(points: FloatArray, known: FloatArray, values: NDArray[Any], seed: int) -> FloatArray:
    """Points (n, d) with secret noise, drawn in the order of all figures: it does not depend on how rows are named."""
    order = np.lexsort((*known.T[::-1], np.unique(values, return_inverse=True)[1]))
    scale = BLUR * np.sort(points, axis=0).std(axis=0)
    noise = np.empty_like(points)
    noise[order] = np.random.default_rng(seed).standard_normal(points.shape)
    return points + noise * (scale if scale.any() else 1.0)


class CrowdRules:
    """What crowds keep, by the rows of labels in a release or their figures (n, k); of itself nothing but likeness."""

    def __init__(self, values: FloatArray, points: FloatArray, largest_share: float | None = None) -> None:
        self.values, self.points, self.largest_share = values, points, largest_share

    def likeness(self, at: IndexArray) -> FloatArray:
        """(n, d) what crowds of some labels are alike in."""
        return np.asarray(self.points[at])

    def limits(self, at: IndexArray, everyone: Units | None = None) -> Limits | None:
        """What crowds of some labels have to keep as they are formed, beside ``everyone`` (N, k) who has a crowd."""
        share = self.largest_share
        return None if share is None else Limits.of_share(np.abs(self.values[at]).sum(axis=1), share)

    def may_be_crowd(self, figures: Units, everyone: Units) -> bool:
        """Whether labels with these figures (n, k) keep the rules as one crowd beside ``everyone`` who has a crowd."""
        return True

    def failure_of_crowds(self, crowds: Sequence[IndexArray]) -> str | None:
        """Why first crowds of labels at these rows do not keep the rules, and the ways out; None where they do."""
        return None


def admit_newcomers(
    rules: CrowdRules,
    newcomers: Mapping[str, int],
    m: int,
    draw: Draw,
    shuffle: Shuffle | None,
    *,
    members: Sequence[str],
    rests: Mapping[int, Sequence[str]],
    figures: Callable[[Sequence[str]], Units],
    boundaries: Mapping[str, str] | None,
) -> tuple[list[list[str]], set[int]]:
    """Labels of each new crowd, in the order of their figures, and the numbers of the rests that still wait.

    In that order numbers and offsets are drawn: neither depends on what anybody is called. Without ``shuffle`` it is
    the first release about the population, and UnreachableError tells which rule its crowds do not keep.

    Args:
        rules: what crowds keep.
        newcomers: label -> its row in this release, of labels without a crowd.
        m: size that is promised.
        draw: of a number below n.
        shuffle: order of newcomers, drawn.
        members: labels in crowds that last.
        rests: number of a retired crowd -> its labels that wait (:func:`join_waiting_rests`).
        figures: of labels, (n, k): those of now, or the last ones.
        boundaries: label -> the value that its crowd does not cross, of all who are there.
    """
    names, at = list(newcomers), np.array(list(newcomers.values()), dtype=np.intp)
    if not names or (shuffle is not None and len(names) < waiting_size(m)):
        return [], set(rests)
    everyone = figures(members)

    def may_be_crowd(some: Sequence[str]) -> bool:
        return rules.may_be_crowd(figures(some), everyone)

    crowd = form_crowds(
        rules.likeness(at),
        m,
        shuffle,
        boundaries=None if boundaries is None else [boundaries[name] for name in names],
        beside=rules.values[at],
        limits=rules.limits(at, everyone),
        keeps=lambda own: may_be_crowd([names[i] for i in own]),
        seed=draw(SEEDS) if shuffle is None else None,
    )
    formed = [np.flatnonzero(crowd == c) for c in range(int(crowd.max(initial=-1)) + 1)]
    failure = rules.failure_of_crowds([at[own] for own in formed]) if formed and shuffle is None else None
    if failure is not None:
        raise UnreachableError(failure)
    joined = {names[i]: c for c, own in enumerate(formed) for i in own.tolist()}
    together, waits = join_waiting_rests(joined, rests, m, may_be_crowd, boundaries)
    inside: dict[int, list[str]] = {}
    for name, c in together.items():
        inside.setdefault(c, []).append(name)
    return sorted(inside.values(), key=lambda own: sorted(figures(own).tolist())), waits


def can_have_figures(last: str, period: str, today: bool, days: float) -> bool:
    """Whether a member has figures ``today``, or had its ``last`` ones at most ``days`` before ``period``.

    ``last`` and ``period`` are instants, ISO 8601; an empty ``last`` is of a member that never had any.
    """
    if today or not last:
        return today
    return (datetime.fromisoformat(period) - datetime.fromisoformat(last)).total_seconds() <= days * 86400


def join_waiting_rests(
    newcomers: Mapping[str, int],
    blocks: Mapping[int, Sequence[str]],
    m: int,
    keeps: Callable[[Sequence[str]], bool] | None = None,
    boundaries: Mapping[str, str] | None = None,
) -> tuple[dict[str, int], set[int]]:
    """Label -> new crowd, with the rests of retired crowds (``blocks``) put into crowds of newcomers, and who waits.

    A rest enters a crowd of at least m newcomers, as a whole, and no crowd takes two. With ``keeps`` only where the
    rest and the newcomers together can be a crowd by the rules of a row; with ``boundaries``, of newcomers and of the
    members of rests that are there, only where they are the same. Returned second: numbers of rests that still wait.

    >>> join_waiting_rests({"a": 0, "b": 0, "c": 1, "d": 1}, {7: ["x"]}, 2)
    ({'a': 0, 'b': 0, 'c': 1, 'd': 1, 'x': 0}, set())
    """
    free = sorted(crowd for crowd, size in Counter(newcomers.values()).items() if size >= m)
    joined, waits = dict(newcomers), set(blocks)
    for block in sorted(blocks):
        walls = {boundaries[name] for name in blocks[block] if name in boundaries} if boundaries is not None else None
        for crowd in free:
            new = [name for name, c in newcomers.items() if c == crowd]
            inside = walls is None or boundaries is None or walls == {boundaries[name] for name in new}
            if inside and (keeps is None or keeps([*new, *blocks[block]])):
                joined |= dict.fromkeys(blocks[block], crowd)
                free.remove(crowd)
                waits.discard(block)
                break
    return joined, waits
