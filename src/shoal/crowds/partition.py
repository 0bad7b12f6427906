"""Compact cells of bounded, nearly equal size that many points are cut into, and neighbors found through them.

A set is cut in two along a direction, which starts as that of the widest spread and then joins the means of the two
parts until nothing moves (2-means with fixed sizes). Deterministic: ties go by position, and matrix products run on one
thread, so that the number of threads changes no bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from shoal.validation import FloatArray

#: Points per cell, and cells looked at beside a point's own, where neighbors are searched.
CELL, BESIDE = 256, 16

#: Steps towards the direction of widest spread, and of 2-means.
_POWER, _MEANS = 4, 12

#: Numbers in a block of differences.
_BLOCK = 4_000_000


def cut_into_cells(points: FloatArray, most: int) -> NDArray[np.int64]:
    """(n,) cell of each row of (n, d), in as few cells 0, 1, … as hold at most ``most`` rows each.

    Cells with near numbers tend to be near: they were cut apart last.
    """
    return balanced_cells(points, -(-len(points) // most))


def balanced_cells(points: FloatArray, number: int) -> NDArray[np.int64]:
    """(n,) cell of each row of (n, d), for this number of compact cells whose sizes differ by at most one."""
    x = np.ascontiguousarray(points, dtype=np.float64)
    cell = np.zeros(len(x), dtype=np.int64)
    work = [(np.arange(len(x)), number, 0)]  # members, cells to make of them, number of the first
    with threadpool_limits(limits=1):
        while work:
            members, cells, first = work.pop()
            if cells <= 1:
                cell[members] = first
                continue
            left = cells // 2
            here, there = split_in_half(x, members, len(members) * left // cells)
            work += [(there, cells - left, first + left), (here, left, first)]
    return cell


def split_in_half(x: FloatArray, members: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions ``members`` (ascending) of rows of ``x`` in two compact parts, the first with ``size`` of them."""
    points = x[members]
    points = points - points.mean(axis=0)
    direction = points[np.argmax(np.einsum("ij,ij->i", points, points))]
    for _ in range(_POWER):
        direction = (points @ direction) @ points
        length = np.sqrt(direction @ direction)
        if not length > 0:
            break
        direction = direction / length
    chosen = _mask_of_lowest(points @ direction, size)
    for _ in range(_MEANS):
        direction = points[~chosen].mean(axis=0) - points[chosen].mean(axis=0)
        again = _mask_of_lowest(points @ direction, size)
        if np.array_equal(again, chosen):
            break
        chosen = again
    return members[chosen], members[~chosen]


def _mask_of_lowest(values: FloatArray, size: int) -> NDArray[np.bool_]:
    """(n,) whether each value is among the ``size`` least; of equals the first."""
    bound = np.partition(values, max(size - 1, 0))[max(size - 1, 0)]
    chosen = values < bound
    chosen[np.flatnonzero(values == bound)[: size - np.count_nonzero(chosen)]] = True
    return np.asarray(chosen)


def near_pairs(points: FloatArray, k: int, *, most: int = CELL, beside: int = BESIDE) -> NDArray[np.int64]:
    """(n k, 2) pairs of each row of (n, d) with its ``k`` nearest in its own cell and the ``beside`` nearest cells.

    These are not certain to be the nearest of all. Cells have at most ``most`` rows, which bounds the memory.
    """
    x = np.ascontiguousarray(points, dtype=np.float64)
    cell = cut_into_cells(x, most)
    order = np.argsort(cell, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(cell[order])) + 1)
    centers = np.stack([x[m].mean(axis=0) for m in members])
    smallest = min(len(m) for m in members)
    looked = min(max(beside + 1, -(-(k + 1) // smallest)), len(members))
    pairs = np.empty((len(x), k, 2), dtype=np.int64)
    with threadpool_limits(limits=1):
        for number, own in enumerate(members):
            away = ((centers - centers[number]) ** 2).sum(axis=1)
            away[number] = -1.0
            others = np.sort(np.concatenate([members[c] for c in np.argsort(away, kind="stable")[:looked]]))
            pairs[own, :, 0] = own[:, None]
            pairs[own, :, 1] = _nearest_rows(x, own, others, k, centers[number])
    return pairs.reshape(-1, 2)


def _nearest_rows(
    x: FloatArray, own: NDArray[np.int64], others: NDArray[np.int64], k: int, center: FloatArray
) -> NDArray[np.int64]:
    """(len(own), k) the k rows among ``others`` nearest to each of ``own``, without itself; of equals the first."""
    a, b = x[own] - center, x[others] - center
    rough = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * (a @ b.T)
    rough[np.arange(len(own)), np.searchsorted(others, own)] = np.inf
    # The expanded square loses digits: a few more are kept and measured again.
    kept = min(k + 8, len(others) - 1)
    near = np.sort(np.argpartition(rough, kept - 1, axis=1)[:, :kept], axis=1)
    exact = np.empty(near.shape)
    rows = max(_BLOCK // (kept * x.shape[1]), 1)
    for i in range(0, len(own), rows):
        part = slice(i, i + rows)
        exact[part] = ((a[part, None, :] - b[near[part]]) ** 2).sum(axis=2)
    nearest = np.argsort(exact, axis=1, kind="stable")[:, :k]
    return np.asarray(others[np.take_along_axis(near, nearest, axis=1)])
