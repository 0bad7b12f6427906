"""Diversity of crowds: in every protected column a crowd keeps close to all labels.

    |mean of the crowd − mean of all|  ≤  κ · standard deviation of all,      κ = 0.6

t-closeness (Li, Li, Venkatasubramanian 2007) with the distance of means (docs/theory.md, section 12.1, rule 5). Whole
numbers are compared exactly. :func:`deal_to_crowds` gives formation a start that keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shoal.crowds.partition import balanced_cells, split_in_half
from shoal.crowds.rules import Units
from shoal.validation import BoolArray, FloatArray, IndexArray

#: κ, in standard deviations of all labels.
CLOSENESS = 0.6
#: Crowds that labels are dealt to at a time; more are cut in two first, each half with its share of every stratum.
TABLE = 256
#: Times that labels are dealt, each time to the means of the crowds of the last time.
_ROUNDS = 3


def keeps_closeness(
    values: Units, crowd: NDArray[np.int64], closeness: float = CLOSENESS, among: Units | None = None
) -> BoolArray:
    """(crowds, r) whether each crowd is close to all labels in each protected column, of whole numbers (n, r).

    ``among`` (N, r) are the figures of all labels, where that is more than ``values``.

    >>> keeps_closeness(np.array([[0], [0], [1], [1]]), np.array([0, 1, 0, 1])).tolist()
    [[True], [True]]
    >>> keeps_closeness(np.array([[0], [0], [1], [1]]), np.array([0, 0, 1, 1])).tolist()
    [[False], [False]]
    """
    everyone = values if among is None else among
    bound, n_all = Fraction(str(closeness)) ** 2, len(everyone)
    sizes = np.bincount(crowd).tolist()
    kept = np.ones((len(sizes), values.shape[1]), dtype=np.bool_)
    for e in range(values.shape[1]):
        whole = everyone[:, e].tolist()
        total, squares = sum(whole), sum(v * v for v in whole)
        sums = [0] * len(sizes)
        for c, value in zip(crowd.tolist(), values[:, e].tolist(), strict=True):
            sums[c] += value
        room = bound * (n_all * squares - total * total)  # κ² N² var
        kept[:, e] = [(s * n_all - total * n) ** 2 <= room * n * n for s, n in zip(sums, sizes, strict=True)]
    return kept


def closeness_scores(values: FloatArray, closeness: float = CLOSENESS, among: FloatArray | None = None) -> FloatArray:
    """(n, r) protected figures in the unit of closeness, (figure − mean of all) / (κ · standard deviation).

    A crowd is close to all labels where its mean is within ±1.

    >>> closeness_scores(np.array([[0.0], [1.0]]), 0.5).tolist()
    [[-2.0], [2.0]]
    """
    everyone = np.sort(values if among is None else among, axis=0)
    deviation = everyone.std(axis=0)
    return np.asarray((values - everyone.mean(axis=0)) / np.where(deviation > 0, closeness * deviation, 1.0))


def deal_to_crowds(points: FloatArray, protected: FloatArray, number: int) -> NDArray[np.int64]:
    """(n,) crowd of each row, 0 … number − 1: alike in ``points`` (n, d), mixed in ``protected`` (n, r).

    Rows that are alike in the protected columns are dealt one to each crowd, to near crowds by linear assignment.

    >>> deal_to_crowds(np.array([[0.0], [0.1], [9.0], [9.1]]), np.array([[0.0], [1.0], [0.0], [1.0]]), 2).tolist()
    [1, 1, 0, 0]
    """
    from scipy.optimize import linear_sum_assignment  # takes long to load

    n = len(points)
    order = np.argsort(balanced_cells(protected, -(-n // number)), kind="stable")
    strata = [order[i : i + number] for i in range(0, n, number)]
    crowd = np.zeros(n, dtype=np.int64)
    for inside, crowds, first in _split_strata(points, strata, number, TABLE):
        rows = np.sort(np.concatenate(inside))
        centers = _crowd_means(points[rows], balanced_cells(points[rows], crowds), crowds)
        for _ in range(_ROUNDS):
            for stratum in inside:
                away = ((points[stratum][:, None] - centers) ** 2).sum(axis=2)
                label, place = linear_sum_assignment(away)
                crowd[stratum[label]] = first + place
            centers = _crowd_means(points[rows], crowd[rows] - first, crowds)
    return crowd


def deal_to_blocks(points: FloatArray, protected: FloatArray, number: int) -> NDArray[np.int64]:
    """(n,) block of each row, 0 … number − 1: alike in ``points``, with equal shares of rows alike in ``protected``."""
    n = len(points)
    order = np.argsort(balanced_cells(protected, -(-n // (TABLE * number))), kind="stable")
    strata = np.array_split(order, max(n // (TABLE * number), 1))
    block = np.zeros(n, dtype=np.int64)
    for inside, _, first in _split_strata(points, strata, number, 1):
        block[np.concatenate(inside)] = first
    return block


def _crowd_means(points: FloatArray, crowd: NDArray[np.int64], number: int) -> FloatArray:
    """(number, d) mean of each crowd's rows."""
    sums = np.zeros((number, points.shape[1]))
    np.add.at(sums, crowd, points)
    return np.asarray(sums / np.maximum(np.bincount(crowd, minlength=number), 1)[:, None])


def _split_strata(
    points: FloatArray, strata: list[IndexArray], number: int, most: int
) -> Iterator[tuple[list[IndexArray], int, int]]:
    """Halve all strata along directions of likeness until each part is for at most ``most`` of ``number`` crowds.

    Yields each part's share of every stratum, its number of crowds, and the number of the first of them.
    """
    if number <= most:
        yield strata, number, 0
        return
    left, rows = number // 2, np.sort(np.concatenate(strata))
    here, there = split_in_half(points, rows, len(rows) * left // number)
    direction = points[there].mean(axis=0) - points[here].mean(axis=0)
    ordered = [stratum[np.argsort(points[stratum] @ direction, kind="stable")] for stratum in strata]
    cuts = [len(stratum) * left // number for stratum in strata]
    nearer = [np.sort(stratum[:cut]) for stratum, cut in zip(ordered, cuts, strict=True)]
    farther = [np.sort(stratum[cut:]) for stratum, cut in zip(ordered, cuts, strict=True)]
    yield from _split_strata(points, nearer, left, most)
    for part, crowds, first in _split_strata(points, farther, number - left, most):
        yield part, crowds, left + first
