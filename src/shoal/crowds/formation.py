"""Formation of crowds: groups of m to 2m − 1 alike points with the least total spread (k-anonymous microaggregation).

The spread of a crowd is its sum of squared distances from its mean. Points are cut into compact cells (``partition``),
then improved by moves until none is left: a member changes to a crowd with room, or two members of different crowds
change places. With centers c_A, c_B,

    move of i from A to B:      n_B/(n_B + 1) |x_i − c_B|² − n_A/(n_A − 1) |x_i − c_A|²
    exchange of i and j, d = x_j − x_i:      −2 d·(c_A − c_B) − |d|² (1/n_A + 1/n_B)

are the exact changes of the spread. Sweeps then take a few neighboring crowds apart and form as many, or fewer or more,
anew from other seeds (simulated annealing); the best of all sweeps is returned. Everything is deterministic, but for
what a time limit ends, and a function of the multiset of rows (docs/theory.md, section 12). Where crowds have to keep
limits (:class:`Limits`), what exceeds them comes first and the spread second.
"""

from __future__ import annotations

import math
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from shoal import validation
from shoal.crowds.diversity import deal_to_blocks, deal_to_crowds
from shoal.crowds.partition import balanced_cells, cut_into_cells, near_pairs
from shoal.crowds.rules import COALITION, PERCENT
from shoal.errors import InputError
from shoal.numerics.compilation import kernel, summing_kernel
from shoal.numerics.threads import map_batches
from shoal.validation import FloatArray

#: Points whose crowds are formed together; more are cut into cells first.
BLOCK = 32_768

#: Points near each point whose crowds it may change to, at least.
_NEAR = 32
#: Crowds that are taken apart together at most.
_TOGETHER = 4
#: Points times sweeps, about, and the bounds of the number of sweeps that makes: gains are small beyond. Few points
#: need fewer: this many, and one more for every four points. Very many get fewer, within the second bound of the work.
_WORK, _FEWEST, _MOST, _FEW_POINTS = 1_000_000, 20, 300, 100
_MOST_WORK, _LEAST = 8_000_000, 8
#: What a crowd made anew may be worse by at first, in mean spreads of a crowd: at most, and per sweep, since few sweeps
#: cool from less; and the share of sweeps that allow it.
_WORSE, _WORSE_PER_SWEEP, _WARM = 3.0, 1 / 16, 0.8
#: Passes over all points until no move is left; far more than it takes.
_PASSES = 200
#: Members and columns looked at for each point, about, in the search for crowds that keep their limits, and sweeps that
#: help it.
_EFFORT, _TRIES = 150_000, 2


class Limits(NamedTuple):
    """Limits of n rows that crowds have to keep beside their size; the caller of the formation checks them exactly."""

    amounts: FloatArray  #: (n, p) ≥ 0: what each row has of its crowd's totals
    shares: FloatArray  #: (p,) no row has more than this share of a total; 1 for any
    ruled: NDArray[np.bool_]  #: (p,) whether the amounts keep dominance (:mod:`shoal.crowds.rules`)
    close: FloatArray  #: (n, r) crowds keep the means of these within ±1 (``diversity.closeness_scores``)

    @classmethod
    def of_share(cls, totals: FloatArray, largest_share: float | None) -> Limits:
        """The limit that no row has more than this share of its crowd's sum of ``totals`` (n,) ≥ 0; None for any."""
        share = [] if largest_share is None else [validation.probability(above_zero=True, largest_share=largest_share)]
        amounts = np.tile(totals[:, None], (1, len(share)))
        return cls(amounts, np.array(share), np.zeros(len(share), dtype=np.bool_), np.zeros((len(totals), 0)))

    @property
    def by_row(self) -> FloatArray:
        """(n, p + r) amounts and closeness scores of each row."""
        return np.concatenate([self.amounts, self.close], axis=1)

    def take(self, rows: Any) -> Limits:
        """The limits of some rows."""
        return Limits(self.amounts[rows], self.shares, self.ruled, self.close[rows])

    def scale(self) -> Limits:
        """The limits with each amount divided by its mean, so that excesses of all columns weigh alike."""
        mean = np.sort(self.amounts, axis=0).mean(axis=0)
        return Limits(np.ascontiguousarray(self.amounts / np.where(mean > 0, mean, 1.0)), self.shares, self.ruled,
                      np.ascontiguousarray(self.close))  # fmt: skip


def least_spread_crowds(
    points: Any,
    size: int,
    *,
    boundaries: Any = None,
    beside: Any = None,
    limits: Limits | None = None,
    time_limit: float | None = None,
) -> NDArray[np.int64]:
    """(n,) crowd of each row of (n, d), numbered in order of their first rows; each has size to 2·size − 1 rows.

    Args:
        points: (n, d) in the unit in which errors cost.
        size: least members of a crowd.
        boundaries: (n,) values; rows with different ones are never in one crowd.
        beside: (n, e) what will be averaged, where that is not ``points``: it orders rows whose points are equal.
        limits: what crowds have to keep beside that. The crowds with the least excess that was found are returned, even
            where it is not 0, and the caller checks whether they keep the rules; shares alone are refused here.
        time_limit: seconds after which the best crowds so far are returned. They depend on the machine's speed then.

    >>> least_spread_crowds([[0.0], [9.0], [1.0], [8.0]], 2).tolist()
    [0, 1, 0, 1]
    """
    x = validation.array(ndim=2, points=points)
    size = validation.count(at_least=2, size=size)
    limits = Limits.of_share(np.zeros(len(x)), None) if limits is None else limits
    alone = np.flatnonzero(~limits.ruled)
    if (limits.shares[alone] * (2 * size - 1) < 1).any():
        raise InputError(f"largest_share must be at least 1/{2 * size - 1}: crowds have up to {2 * size - 1} members")
    values, border = _boundary_positions(len(x), boundaries)
    known = np.zeros((len(x), 0)) if beside is None else validation.array(ndim=2, beside=beside)
    if len(known) != len(x):
        raise InputError(f"beside must have one row per point: expected {len(x)}, got {len(known)}")
    order = _row_order(np.concatenate([border[:, None], x, known, limits.by_row], axis=1))
    x, border, limits = x[order] + 0.0, border[order], limits.take(order).scale()
    blocks: list[NDArray[np.intp]] = []
    for rows in np.split(np.arange(len(x)), np.flatnonzero(np.diff(border)) + 1):
        if len(rows) < size:
            where = "" if values is None else " within one of the boundaries"
            raise InputError(
                f"size: a crowd has at least {size} members, and there are only {len(rows)}{where}; choose a smaller "
                f"size{' or wider boundaries' if where else ', or have more labels'}"
            )
        cells = np.zeros(len(rows), dtype=np.int64)
        if len(rows) > BLOCK:
            close, number = limits.close[rows], -(-len(rows) // BLOCK)
            cells = deal_to_blocks(x[rows], close, number) if close.shape[1] else cut_into_cells(x[rows], BLOCK)
        blocks += [rows[cells == cell] for cell in range(int(cells.max()) + 1)]
    end = math.inf if time_limit is None else monotonic() + validation.positive(time_limit=time_limit)
    fewest = min(_FEWEST, max(_MOST_WORK // len(x), _LEAST))
    sweeps = min(max(_WORK // len(x), fewest), _MOST, _FEW_POINTS + len(x) // 4)

    def form(part: slice) -> NDArray[np.int64]:
        inside = blocks[part.start]
        return _form_block(x[inside], size, limits.take(inside), sweeps, end)

    formed = np.empty(len(x), dtype=np.int64)
    number = 0
    with threadpool_limits(limits=1):  # here, since one thread must not change it for another
        for inside, crowd in zip(blocks, map_batches(form, len(blocks), 1), strict=True):
            formed[inside] = number + crowd
            number += int(crowd.max()) + 1
    if any(_share_excess(formed, limits.amounts[:, j], limits.shares[j]) > 0 for j in alone):
        raise InputError(
            f"largest_share: no grouping was found in which every member has at most {limits.shares[alone].min():g} of "
            f"its crowd's total, with crowds of {size} to {2 * size - 1}; choose a larger crowd or a larger share, or "
            "leave out the rows with the largest totals"
        )
    placed = np.empty(len(x), dtype=np.int64)
    placed[order] = formed
    _, first, crowd = np.unique(placed, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[crowd], dtype=np.int64)


def within_crowd_spread(points: FloatArray, crowd: NDArray[np.int64]) -> float:
    """Sum of squared distances of all rows from the means of their crowds, the same for every order of the rows."""
    return math.fsum(((points - crowd_means(points, crowd)[crowd]) ** 2).ravel())


def crowd_means(points: FloatArray, crowd: NDArray[np.int64]) -> FloatArray:
    """(crowds, d) mean of the rows of each crowd, from exactly rounded sums: the order of rows changes no bit.

    >>> crowd_means(np.array([[0.1], [0.2], [0.3], [7.0]]), np.array([0, 0, 0, 1])).tolist()
    [[0.19999999999999998], [7.0]]
    """
    order = np.argsort(crowd, kind="stable")
    counts = np.bincount(crowd)
    ends = np.cumsum(counts).tolist()
    starts = [0, *ends[:-1]]
    columns = points[order].T.tolist()
    sums = [[math.fsum(column[a:b]) for a, b in zip(starts, ends, strict=True)] for column in columns]
    return np.asarray(np.array(sums, dtype=np.float64).reshape(points.shape[1], len(counts)).T / counts[:, None])


def _boundary_positions(n: int, boundaries: Any) -> tuple[Any, NDArray[np.int64]]:
    """Distinct values of the boundaries (None without any), and (n,) the position of each row's value among them."""
    if boundaries is None:
        return None, np.zeros(n, dtype=np.int64)
    given = np.asarray([str(value) for value in boundaries])
    if len(given) != n:
        raise InputError(f"boundaries must hold one value per row: expected {n}, got {len(given)}")
    values, border = np.unique(given, return_inverse=True)
    return values, border.astype(np.int64)


def _row_order(rows: FloatArray) -> NDArray[np.int64]:
    """(n,) positions of rows in ascending order, by their first entry, then entry after entry; the same as ``lexsort``.

    >>> _row_order(np.array([[1.0, 2.0, 9.0], [1.0, 2.0, 3.0], [0.0, 5.0, 5.0]])).tolist()
    [2, 1, 0]
    """
    order = np.lexsort(rows[:, 1::-1].T)  # two entries leave few ties, and all entries take long
    same = np.zeros(len(rows) + 1, dtype=np.bool_)  # as the row before
    same[1:-1] = (rows[order[1:], :2] == rows[order[:-1], :2]).all(axis=1)
    tied = order[same[1:] | same[:-1]]
    order[same[1:] | same[:-1]] = tied[np.lexsort(rows[tied].T[::-1])]
    return order


def _form_block(x: FloatArray, size: int, limits: Limits, sweeps: int, end: float) -> NDArray[np.int64]:
    """(n,) crowd of each row of one block, in so many sweeps, or until the monotonic clock shows ``end``."""
    n = len(x)
    if n < 2 * size:
        return np.zeros(n, dtype=np.int64)
    x = np.ascontiguousarray(x - x.mean(axis=0))
    k = min(max(_NEAR, 2 * size), n - 1)
    near = np.ascontiguousarray(near_pairs(x, k)[:, 1])
    # The least change that counts: far above rounding, far below what anybody could notice.
    least = 1e-12 * float((x**2).sum()) / n
    crowd = deal_to_crowds(x, limits.close, n // size) if limits.close.shape[1] else balanced_cells(x, n // size)
    for j in np.flatnonzero(~limits.ruled):
        _improve_by_sweeps(x, crowd, size, near, limits, least, sweeps, end)
        if _share_excess(crowd, limits.amounts[:, j], limits.shares[j]) > 0:  # again, from rows with similar totals
            crowd = np.argsort(np.argsort(-limits.amounts[:, j], kind="stable")) * (n // size) // n
    _improve_by_sweeps(x, crowd, size, near, limits, least, sweeps, end)
    return np.asarray(np.unique(crowd, return_inverse=True)[1], dtype=np.int64)


def _share_excess(crowd: NDArray[np.int64], weights: FloatArray, share: float) -> float:
    """Sum over crowds of what the largest member has beyond its share."""
    largest = np.zeros(int(crowd.max()) + 1)
    np.maximum.at(largest, crowd, weights)
    return float(np.maximum(largest - share * np.bincount(crowd, weights), 0).sum())


# ------------------------------------------------------------------ kernels


@kernel
def _limit_excess(members: Any, count: int, out: int, into: int, limits: Any, top: Any) -> float:
    """Excess over the limits of a crowd without the member ``out`` and with the point ``into`` (−1: none).

    ``members`` holds ``count`` rows; ``top`` is scratch for the largest amounts.
    """
    size = count - (1 if out >= 0 else 0) + (1 if into >= 0 else 0)
    coalition = min(COALITION, (size - 1) // 3)
    excess = 0.0
    for j in range(limits.amounts.shape[1]):
        top[:] = 0.0
        total = 0.0
        for s in range(count + 1):
            i = members[s] if s < count else into
            if i < 0 or (i == out and s < count):
                continue
            amount = limits.amounts[i, j]
            total += amount
            for r in range(COALITION + 1):
                if amount > top[r]:
                    amount, top[r] = top[r], amount
        excess += max(top[0] - limits.shares[j] * total, 0.0)
        if limits.ruled[j]:
            rest = total
            for r in range(coalition + 1):
                rest -= top[r]
            # A little more than the rule asks, so that sums of rounded amounts do not break it in exact numbers.
            excess += max(top[0] * (1.0 + 1e-9) - 100.0 / PERCENT * rest, 0.0)
    for e in range(limits.close.shape[1]):
        total = 0.0
        for s in range(count):
            if members[s] != out:
                total += limits.close[members[s], e]
        if into >= 0:
            total += limits.close[into, e]
        excess += max(abs(total) / size - (1.0 - 1e-9), 0.0)
    return excess


@summing_kernel
def _along_and_square(a: Any, b: Any, direction: Any) -> tuple[float, float]:
    """(b − a)·direction and |b − a|² of two points."""
    along = square = 0.0
    for e in range(len(a)):
        d = b[e] - a[e]
        along += d * direction[e]
        square += d * d
    return along, square


@kernel
def _write_center(x: Any, members: Any, count: int, center: Any) -> None:
    """Write the mean of the first ``count`` members' points to ``center``."""
    center[:] = 0.0
    for s in range(count):
        for e in range(x.shape[1]):
            center[e] += x[members[s], e]
    for e in range(x.shape[1]):
        center[e] /= count


@kernel
def _move_until_stable(
    x: Any, crowd: Any, n_crowds: int, size: int, near: Any, limits: Any, least: float, passes: int
) -> None:
    """Improve ``crowd`` in place by moves and exchanges until none is left.

    ``near`` holds, point after point, the points whose crowds are looked at; ``least`` is the least gain that counts.
    """
    n, k = x.shape
    most, q = 2 * size - 1, len(near) // n
    members = np.zeros((n_crowds, most), dtype=np.int64)
    count = np.zeros(n_crowds, dtype=np.int64)
    place = np.zeros(n, dtype=np.int64)
    for i in range(n):
        a = crowd[i]
        place[i] = count[a]
        members[a, count[a]] = i
        count[a] += 1
    center = np.empty((n_crowds, k))
    over, top = np.zeros(n_crowds), np.zeros(COALITION + 1)
    limited = limits.amounts.shape[1] + limits.close.shape[1] > 0
    for a in range(n_crowds):
        _write_center(x, members[a], count[a], center[a])
        if limited:
            over[a] = _limit_excess(members[a], count[a], -1, -1, limits, top)
    # When a crowd last changed and when a point was last looked at: what has not changed since need not be tried again.
    changed = np.ones(n_crowds, dtype=np.int64)
    looked = np.zeros(n, dtype=np.int64)
    tried = np.full(n_crowds, -1)
    clock = 1
    apart = np.zeros(k)
    effort, each = 0, most * (limits.amounts.shape[1] + limits.close.shape[1])
    for turn in range(passes):
        moves = 0
        for i in range(n):
            a = crowd[i]
            gain, relief, target, partner = -least, 0.0, -1, -1
            from_a = _along_and_square(x[i], center[a], apart)[1]
            for r in range(q):
                b = crowd[near[i * q + r]]
                if b == a or tried[b] == turn * n + i:
                    continue
                tried[b] = turn * n + i
                if changed[a] < looked[i] and changed[b] < looked[i]:
                    continue
                for e in range(k):
                    apart[e] = center[a, e] - center[b, e]
                from_b = _along_and_square(x[i], center[b], apart)[1]
                both = 1.0 / count[a] + 1.0 / count[b]
                for s in range(-1, count[b]):
                    j = -1
                    if s < 0:
                        if count[a] <= size or count[b] >= most:
                            continue
                        change = count[b] / (count[b] + 1.0) * from_b - count[a] / (count[a] - 1.0) * from_a
                    else:
                        j = members[b, s]
                        along, square = _along_and_square(x[i], x[j], apart)
                        change = -2 * along - both * square
                    excess = 0.0
                    exceeds = limited and over[a] + over[b] > 0 and effort < _EFFORT * n
                    if exceeds:
                        effort += each
                    if exceeds or (limited and change < gain):
                        excess = _limit_excess(members[a], count[a], i, j, limits, top)
                        excess += _limit_excess(members[b], count[b], j, i, limits, top)
                        excess -= over[a] + over[b]
                        if abs(excess) < 1e-12 * (over[a] + over[b]):
                            excess = 0.0
                    if excess < relief or (excess == relief and change < gain):
                        relief, gain, target, partner = excess, change, b, j
            clock += 1
            looked[i] = clock
            if target < 0:
                continue
            moves += 1
            b, j = target, partner
            if j >= 0:
                members[a, place[i]], members[b, place[j]] = j, i
                place[i], place[j] = place[j], place[i]
                crowd[j] = a
            else:
                last = members[a, count[a] - 1]
                members[a, place[i]] = last
                place[last] = place[i]
                count[a] -= 1
                members[b, count[b]] = i
                place[i] = count[b]
                count[b] += 1
            crowd[i] = b
            clock += 1
            for c in (a, b):
                _write_center(x, members[c], count[c], center[c])
                if limited:
                    over[c] = _limit_excess(members[c], count[c], -1, -1, limits, top)
                changed[c] = clock
        if moves == 0:
            break


@kernel
def _excess_and_spread(x: Any, crowd: Any, n_crowds: int, limits: Any) -> tuple[float, float]:
    """Excess over the limits, and spread, of points in crowds 0 .. n_crowds − 1."""
    n, k = x.shape
    count = np.zeros(n_crowds)
    center = np.zeros((n_crowds, k))
    for i in range(n):
        count[crowd[i]] += 1
        for e in range(k):
            center[crowd[i], e] += x[i, e]
    for c in range(n_crowds):
        for e in range(k):
            center[c, e] /= count[c]
    spread_ = 0.0
    for i in range(n):
        spread_ += _along_and_square(x[i], center[crowd[i]], x[i])[1]
    excess, top = 0.0, np.zeros(COALITION + 1)
    if limits.amounts.shape[1] + limits.close.shape[1] > 0:
        members = np.empty(n, dtype=np.int64)
        for c in range(n_crowds):
            inside = 0
            for i in range(n):
                if crowd[i] == c:
                    members[inside] = i
                    inside += 1
            excess += _limit_excess(members, inside, -1, -1, limits, top)
    return excess, spread_


@kernel
def _seed_crowds(x: Any, n_crowds: int, draw: int) -> Any:
    """(n,) crowds of nearly equal size: a seed with the points nearest to it, and again with the rest.

    ``draw`` 0 takes the point farthest from the mean of the rest as seed, another any point.
    """
    n, k = x.shape
    crowd = np.full(n, -1)
    left = n
    away = np.empty(n)
    center = np.empty(k)
    for c in range(n_crowds - 1):
        center[:] = 0.0
        for i in range(n):
            if crowd[i] < 0:
                for e in range(k):
                    center[e] += x[i, e] / left
        seed, farthest, nth = -1, -1.0, draw % left
        for i in range(n):
            if crowd[i] >= 0:
                continue
            if draw > 0:
                if nth == 0:
                    seed = i
                nth -= 1
                continue
            d = _along_and_square(x[i], center, center)[1]
            if d > farthest:
                seed, farthest = i, d
        for i in range(n):
            away[i] = np.inf
            if crowd[i] < 0:
                away[i] = _along_and_square(x[i], x[seed], center)[1]
        take = left // (n_crowds - c)
        for i in np.argsort(away, kind="mergesort")[:take]:
            crowd[i] = c
        left -= take
        draw = draw * 16807 % 2147483647
    for i in range(n):
        if crowd[i] < 0:
            crowd[i] = n_crowds - 1
    return crowd


@kernel
def _reform_neighbors(
    x: Any, crowd: Any, n_crowds: int, size: int, near: Any, limits: Any, least: float, draw: int, worse: float
) -> int:
    """Take every crowd apart once with those nearest to it and form them anew, in place; return the next draw.

    Crowds may come and go, and their numbers have gaps after. What is formed anew may have up to ``worse`` more spread,
    by a draw that favors little; never more excess.
    """
    n, k = x.shape
    q, most = len(near) // n, 2 * size - 1
    room = 2 * n_crowds + _TOGETHER
    members = np.zeros((room, most), dtype=np.int64)
    count = np.zeros(room, dtype=np.int64)
    for i in range(n):
        members[crowd[i], count[crowd[i]]] = i
        count[crowd[i]] += 1
    center = np.zeros((room, k))
    for c in range(n_crowds):
        if count[c]:
            _write_center(x, members[c], count[c], center[c])
    tried = np.full(room, -1)
    beside = np.empty(most * q, dtype=np.int64)
    away = np.empty(most * q)
    chosen = np.empty(_TOGETHER, dtype=np.int64)
    used = n_crowds
    for a in range(n_crowds):
        if count[a] == 0:
            continue
        n_beside = 0
        for s in range(count[a]):
            for r in range(q):
                b = crowd[near[members[a, s] * q + r]]
                if b == a or tried[b] == a:
                    continue
                tried[b] = a
                beside[n_beside] = b
                away[n_beside] = _along_and_square(center[a], center[b], center[a])[1]
                n_beside += 1
        if n_beside == 0:
            continue
        draw = draw * 16807 % 2147483647
        wanted = min(1 + draw % (_TOGETHER - 1), n_beside)
        chosen[0] = a
        nearest = np.argsort(away[:n_beside], kind="mergesort")
        skip = min((draw // 64) % 3, n_beside - wanted)  # not always the very nearest
        for s in range(wanted):
            chosen[s + 1] = beside[nearest[s + (skip if s == wanted - 1 else 0)]]
        together = wanted + 1
        total = 0
        for s in range(together):
            total += count[chosen[s]]
        fewest, highest = -(-total // most), total // size
        draw = draw * 16807 % 2147483647
        made = fewest + draw % (highest - fewest + 1) if draw % 4 == 0 else min(max(together, fewest), highest)
        rows = np.empty(total, dtype=np.int64)
        before = np.empty(total, dtype=np.int64)
        at = 0
        for s in range(together):
            for t in range(count[chosen[s]]):
                rows[at] = members[chosen[s], t]
                before[at] = s
                at += 1
        if made > together and used + made - together > room:
            continue
        points = x[rows]
        own = Limits(limits.amounts[rows], limits.shares, limits.ruled, limits.close[rows])
        excess, was = _excess_and_spread(points, before, together, own)
        draw = draw * 16807 % 2147483647
        after = _seed_crowds(points, made, 0 if draw % 3 == 0 else draw)
        every = np.empty(total * total, dtype=np.int64)
        for i in range(total):
            for j in range(total):
                every[i * total + j] = j
        _move_until_stable(points, after, made, size, every, own, least, _PASSES)
        beyond, now = _excess_and_spread(points, after, made, own)
        draw = draw * 16807 % 2147483647
        share = draw / 2147483647.0
        if beyond > excess or (beyond == excess and now >= was - least + worse * share * share * share):
            continue
        for s in range(together):
            count[chosen[s]] = 0
        names = np.empty(made, dtype=np.int64)
        for s in range(made):
            if s < together:
                names[s] = chosen[s]
            else:
                names[s] = used
                used += 1
        for i in range(total):
            c = names[after[i]]
            crowd[rows[i]] = c
            members[c, count[c]] = rows[i]
            count[c] += 1
        for s in range(made):
            _write_center(x, members[names[s]], count[names[s]], center[names[s]])
    return draw


def _improve_by_sweeps(
    x: FloatArray,
    crowd: NDArray[np.int64],
    size: int,
    near: NDArray[np.int64],
    limits: Limits,
    least: float,
    sweeps: int,
    end: float,
) -> None:
    """Improve ``crowd`` in place by moves, then by sweeps with moves after each, to the best that was seen."""
    draw, first_worse = 1, min(_WORSE, _WORSE_PER_SWEEP * sweeps)
    trial, n_crowds = crowd.copy(), int(crowd.max()) + 1
    _move_until_stable(x, trial, n_crowds, size, near, limits, least, _PASSES)
    crowd[:], best = trial, _excess_and_spread(x, trial, n_crowds, limits)
    for sweep in range(sweeps):
        if monotonic() > end or (sweep >= _TRIES and best[0] > 0):
            break
        worse = first_worse * best[1] / n_crowds * max(1.0 - (sweep + 1) / (_WARM * sweeps), 0.0)
        draw = _reform_neighbors(x, trial, n_crowds, size, near, limits, least, draw, worse)
        trial[:] = np.unique(trial, return_inverse=True)[1]
        n_crowds = int(trial.max()) + 1
        _move_until_stable(x, trial, n_crowds, size, near, limits, least, _PASSES)
        score = _excess_and_spread(x, trial, n_crowds, limits)
        if score < best:
            crowd[:], best = trial, score


def call_every_kernel() -> None:
    """Compile all kernels that form crowds (:mod:`shoal.numerics.warmup`)."""
    least_spread_crowds(np.arange(12.0).reshape(6, 2) ** 2, 2)
