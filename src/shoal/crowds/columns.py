"""What the columns of a table are, as far as the rules of a row are concerned.

- **Few-valued**: at most ten values, and at most half as many as there are labels (a small table of measurements is
  not a table of categories). Fixed when the first crowds are formed.
- **Protected**: few-valued columns, those in which half of the labels or more are alike, and those named sensitive.
  They take no part in likeness, and crowds keep close to all labels in them (:mod:`diversity`).
- **Ruled by dominance**: columns of non-negative numbers, and the difference of two columns in which more than half of
  the labels agree; never few-valued columns, and no difference of two of them. Two columns that agree for all members
  but one are two tables in one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.validation import BoolArray, FloatArray

#: Values of a few-valued column, at most.
FEW = 10


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns are few-valued, half alike and named sensitive, each (k,)."""

    few: BoolArray
    alike: BoolArray
    sensitive: BoolArray

    @classmethod
    def of(cls, values: FloatArray, sensitive: Iterable[int] = ()) -> ColumnRoles:
        """From the figures of all labels (n, k) and the positions of sensitive columns.

        >>> ColumnRoles.of(np.array([[0, 1.0], [1, 2.0], [0, 3.0], [1, 4.0]])).few.tolist()
        [True, False]
        """
        ordered = np.sort(values, axis=0)
        n, k = values.shape
        changes = ordered[1:] != ordered[:-1]
        few = 1 + changes.sum(axis=0) <= min(FEW, n // 2)
        alike = np.array([2 * _most_common(column) >= n for column in ordered.T], dtype=np.bool_).reshape(k)
        named = np.zeros(k, dtype=np.bool_)
        named[list(sensitive)] = True
        return cls(few, alike, named)

    @property
    def protected(self) -> BoolArray:
        """(k,) columns that crowds are not alike in."""
        return self.few | self.alike | self.sensitive


def _most_common(ordered: FloatArray) -> int:
    """How many entries of a sorted column have its most common value."""
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    return int(np.diff(ends, prepend=-1).max())


def ruled_columns(values: NDArray[Any], few: BoolArray) -> list[tuple[int, ...]]:
    """Columns, and pairs of columns, whose amounts keep dominance.

    >>> ruled_columns(np.array([[1, 1, -1], [2, 2, 0], [3, 3, 5], [9, 4, 6]]), np.array([False, False, False]))
    [(0,), (1,), (0, 1)]
    """
    n, k = values.shape
    plain: list[tuple[int, ...]] = [(j,) for j in np.flatnonzero((values >= 0).all(axis=0) & ~few).tolist()]
    for j in range(k - 1):
        agree = 2 * (values[:, j + 1 :] == values[:, j : j + 1]).sum(axis=0) > n
        plain += [(j, j + 1 + other) for other in np.flatnonzero(agree & ~(few[j] & few[j + 1 :])).tolist()]
    return plain


def amounts_of(values: NDArray[Any], ruled: list[tuple[int, ...]]) -> NDArray[Any]:
    """(n, len(ruled)) amounts ≥ 0: the figures of a column, or the differences of two.

    >>> amounts_of(np.array([[1, 4], [3, 3]]), [(0,), (0, 1)]).tolist()
    [[1, 3], [3, 0]]
    """
    first = values[:, [one[0] for one in ruled]]
    second = np.stack([values[:, one[1]] if len(one) > 1 else np.zeros_like(values[:, 0]) for one in ruled] or
                      [values[:, 0]], axis=1)[:, : len(ruled)]  # fmt: skip
    return np.asarray(np.abs(first - second))
