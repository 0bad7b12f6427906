"""Rows of crowds over a table, release after release: every rule of a row, column by column.

A figure is a whole number of its column's unit; a member without one enters with the last one that entered. Where a
rule fails, the figure of that crowd in that column is withheld.

- **Few-valued** columns have at most ten values, and at most half as many as there are labels, when the first crowds
  are formed; one with more than ten values later is few-valued no more, but stays protected.
- **Protected** are few-valued columns, those in which half of the labels or more are alike or at most ten values cover
  90 % of the labels (contributed labels with other values make no difference), and those named sensitive: crowds are
  not alike in them but close to all labels (:mod:`diversity`). Where crowds keep boundaries, half of the labels, or
  90 %, inside of one boundary are enough.
- **Ruled by dominance** are all columns that are not few-valued, by |figure|, and the difference of two columns in
  which more than half of the labels agree: where all members but one agree they are two tables in one.

A base is permanent. Where the usual figure of all labels outgrows n b, the base hides too little, and the figure is
withheld: the column needs new crowds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.crowds.diversity import CLOSENESS, closeness_scores, keeps_closeness
from shoal.crowds.formation import Limits
from shoal.crowds.rules import (
    Draw,
    Units,
    add_units,
    base_for_few_values,
    base_for_usual,
    figures_of_multiples,
    held_members,
    keeps_dominance,
    offset_count,
    round_sums,
    smallest_base_above,
    usual_figure,
)
from shoal.validation import BoolArray, FloatArray, IndexArray

#: Values of a few-valued column, at most.
FEW = 10
#: Share of the labels that at most so many values cover in a column that is protected like a few-valued one.
COVERED = 0.9
#: The usual figure of all labels over n b of a crowd, at most; in columns that had few values or many alike, sooner.
OUTGROWN, SOONER = 5, 2
#: |correlation| of columns that are nearly copies.
COPIES = 0.95


@dataclass(frozen=True)
class ColumnRoles:
    """Roles of the columns of a table: few-valued, many labels alike, named sensitive; each (k,)."""

    few: BoolArray
    alike: BoolArray
    sensitive: BoolArray

    @classmethod
    def of(
        cls, values: FloatArray, sensitive: Iterable[int] = (), groups: Sequence[IndexArray] | None = None
    ) -> ColumnRoles:
        """The roles of columns by the figures of all labels (n, k) and the positions of sensitive columns.

        ``groups`` are the positions of the labels inside of each boundary that can have crowds (:func:`wall_groups`).

        >>> ColumnRoles.of(np.array([[0, 1.0], [1, 2.0], [0, 3.0], [1, 4.0]])).few.tolist()
        [True, False]
        """
        inside = groups or [np.arange(len(values))]
        ordered = np.sort(values[np.concatenate(inside)], axis=0)
        n, k = ordered.shape
        changes = ordered[1:] != ordered[:-1]
        few = 1 + changes.sum(axis=0) <= min(FEW, n // 2)
        alike = np.zeros(k, dtype=np.bool_)
        for own in (values[at] for at in inside):
            half = [2 * _count_of_most_common(column) >= len(own) for column in np.sort(own, axis=0).T]
            alike |= np.array(half, dtype=np.bool_) | np.array([len(common_values(column)) > 1 for column in own.T])
        named = np.zeros(k, dtype=np.bool_)
        named[list(sensitive)] = True
        return cls(few, alike, named)

    def with_later_figures(self, values: FloatArray) -> ColumnRoles:
        """The roles from a later release on, with its figures (n, k), NaN where one is missing.

        >>> roles = ColumnRoles(*np.array([[True], [False], [False]])).with_later_figures(np.arange(11.0)[:, None])
        >>> roles.few.tolist(), roles.protected.tolist()
        ([False], [True])
        """
        grown = np.array([len(np.unique(column[np.isfinite(column)])) > FEW for column in values.T]) & self.few
        return ColumnRoles(self.few & ~grown, self.alike | grown, self.sensitive)

    @property
    def protected(self) -> BoolArray:
        """(k,) columns that crowds are not alike in."""
        return self.few | self.alike | self.sensitive


def common_values(column: FloatArray) -> FloatArray:
    """The fewest values of a column that cover 90 % of its labels, ascending; none where these are many.

    >>> common_values(np.array([0, 1] * 10 + [0.47])).tolist(), common_values(np.arange(30.0)).tolist()
    ([0.0, 1.0], [])
    """
    values, counts = np.unique(column, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    needed = 1 + int(np.searchsorted(np.cumsum(counts[order]), COVERED * len(column) - 1e-9))
    return np.sort(values[order[:needed]]) if needed <= min(FEW, len(column) // 2) else np.zeros(0)


def common_gaps(values: FloatArray, groups: Sequence[IndexArray] | None = None) -> FloatArray:
    """(k,) the largest gap between neighbors of each column's common values, over all groups; 0 where there is none.

    >>> common_gaps(np.array([[0, 1, 0, 1], [1.0, 2, 3, 9]]).T).tolist()
    [1.0, 0.0]
    """
    inside = groups or [np.arange(len(values))]
    every = [[np.diff(common_values(column)).max(initial=0.0) for column in values[at].T] for at in inside]
    gaps: FloatArray = np.array(every, dtype=np.float64).reshape(len(inside), values.shape[1]).max(axis=0, initial=0.0)
    return gaps


def wall_groups(boundaries: Sequence[Any] | None, least: int) -> list[IndexArray] | None:
    """Positions of the labels of each boundary that at least ``least`` share; None without boundaries or such groups.

    >>> [at.tolist() for at in wall_groups(["a", "b", "a"], 2)]
    [[0, 2]]
    """
    if boundaries is None or not len(boundaries):
        return None
    _, group = np.unique(np.array([str(one) for one in boundaries]), return_inverse=True)
    return [at for at in rows_by_crowd(group.astype(np.int64)) if len(at) >= least] or None


def _count_of_most_common(ordered: FloatArray) -> int:
    """Number of entries of a sorted column that have its most common value."""
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    return int(np.diff(ends, prepend=-1).max())


def dominance_columns(values: NDArray[Any], few: BoolArray) -> list[tuple[int, ...]]:
    """Columns, and pairs of columns by their difference, that the dominance rule is about.

    >>> dominance_columns(np.array([[1, 1, -1], [2, 2, 0], [3, 3, 5], [9, 4, 6]]), np.array([False, False, False]))
    [(0,), (1,), (2,), (0, 1)]
    """
    n, k = values.shape
    plain: list[tuple[int, ...]] = [(j,) for j in np.flatnonzero(~few).tolist()]
    for j in range(k - 1):
        agree = 2 * (values[:, j + 1 :] == values[:, j : j + 1]).sum(axis=0) > n
        plain += [(j, j + 1 + other) for other in np.flatnonzero(agree & ~(few[j] & few[j + 1 :])).tolist()]
    return plain


def nearly_equal_columns(values: FloatArray, few: BoolArray) -> list[int]:
    """Positions of columns that nearly repeat another one, up to its unit: |correlation| of at least 0.95 where neither
    is few-valued, of 1 where both are.

    >>> x = np.array([0.0, 1, 2, 3, 9])
    >>> nearly_equal_columns(np.column_stack([x, -2 * x, x**0]), np.array([False, False, True]))
    [0, 1]
    """
    centered = values - values.mean(axis=0)
    length = np.sqrt((centered**2).sum(axis=0))
    unit = centered / np.where(length > 0, length, 1.0)
    needed = np.where(few[:, None] | few, 1 - 1e-9, COPIES) + (few[:, None] != few)
    alike = np.triu(np.abs(unit.T @ unit) >= needed, 1)
    return np.flatnonzero(alike.any(axis=0) | alike.any(axis=1)).tolist()


def dominance_amounts(values: NDArray[Any], ruled: list[tuple[int, ...]]) -> NDArray[Any]:
    """(n, len(ruled)) amounts ≥ 0 that the dominance rule is about: |v| of a column, or of the difference of two.

    >>> dominance_amounts(np.array([[1, 4], [3, 3]]), [(0,), (0, 1)]).tolist()
    [[1, 3], [3, 0]]
    """
    first = values[:, [one[0] for one in ruled]]
    second = np.stack([values[:, one[1]] if len(one) > 1 else np.zeros_like(values[:, 0]) for one in ruled] or
                      [values[:, 0]], axis=1)[:, : len(ruled)]  # fmt: skip
    return np.asarray(np.abs(first - second))


@dataclass(frozen=True)
class TableCrowd:
    """What is kept of a crowd of a table; everything but ``bases`` is its owner's."""

    bases: tuple[Decimal, ...]  #: per column
    offsets: tuple[int, ...]  #: per column, in its unit, over all members
    last: Units  #: (n, k) figures that entered last
    decimals: tuple[int, ...]  #: of each column's unit

    @property
    def offset_counts(self) -> Units:
        """(k,) values of the offset of each column, n b in its unit."""
        n = len(self.last)
        pairs = zip(self.bases, self.decimals, strict=True)
        return np.array([offset_count(base, n, places) for base, places in pairs], dtype=np.int64)

    def round_row(self, entered: Units) -> FloatArray:
        """(k,) the rounded and shifted row of the figures that enter, (n, k) in units."""
        multiples = round_sums(add_units(entered), self.offset_counts, np.array(self.offsets, dtype=np.int64))
        return np.array([figures_of_multiples(m, base) for m, base in zip(multiples, self.bases, strict=True)])


@dataclass(frozen=True)
class TableRows:
    """Rows of all crowds for one release, NaN where withheld, and who entered with an older figure, for the owner."""

    rows: FloatArray  #: (crowds, k)
    held: tuple[BoolArray, ...]  #: per crowd (n, k)
    crowds: tuple[TableCrowd, ...]  #: after the release
    outgrown: BoolArray  #: (crowds, k) withheld since the base of the crowd hides too little by now


def column_bases(
    values: FloatArray, columns: ColumnRoles, n: int, gaps: FloatArray | None = None
) -> tuple[Decimal, ...]:
    """The base of each column in a crowd of n members, from the figures of all labels (N, k).

    With ``gaps`` (k,) n b is at least twice the largest gap of common values too (:func:`common_gaps`).

    >>> values = np.array([[0, 10.0], [1, 20.0], [0, 30.0], [1, 40.0]])
    >>> [str(base) for base in column_bases(values, ColumnRoles.of(values), 12)]
    ['0.2', '1']
    """
    bases = []
    for column, few in zip(values.T, columns.few.tolist(), strict=True):
        usual = Fraction(0) if few else usual_figure(column)
        bases.append(base_for_usual(usual, n) if usual else base_for_few_values(column.tolist(), n))
    wide = common_gaps(values) if gaps is None else gaps
    least = [smallest_base_above(2 * Fraction(gap) / n) if gap else Decimal(0) for gap in wide.tolist()]
    return tuple(max(pair) for pair in zip(bases, least, strict=True))


def new_table_crowd(last: Units, bases: Sequence[Decimal], decimals: Sequence[int], draw: Draw) -> TableCrowd:
    """A new crowd with figures ``last`` (n, k) in units: permanent bases of at least one unit, an offset per column.

    Offsets are independent: had columns one in common, a member's figure that is known in one of them would show it in
    all others. The price is that K copies of a column leave 1/√K of the error (:func:`nearly_equal_columns`).
    """
    finest = [max(base, Decimal(1).scaleb(-places)) for base, places in zip(bases, decimals, strict=True)]
    offset_counts = [offset_count(base, len(last), places) for base, places in zip(finest, decimals, strict=True)]
    return TableCrowd(tuple(finest), tuple(draw(window) for window in offset_counts), last, tuple(decimals))


def next_table_rows(
    crowds: Sequence[TableCrowd],
    figures: Sequence[Units],
    present: Sequence[BoolArray],
    columns: ColumnRoles,
    closeness: float = CLOSENESS,
    largest_share: float | None = None,
) -> TableRows:
    """The rows of all crowds for the next release, from figures (n, k) of each, in units, where they are ``present``.

    Example: one of twelve salaries rises by 730 while all other figures stay; who earns it is held.

    >>> crowd = new_table_crowd(np.full((12, 1), 4000), [Decimal(50)], [0], lambda n: 0)
    >>> raised, known = np.full((12, 1), 4000), np.full((12, 1), True)
    >>> raised[0] += 730
    >>> plain = ColumnRoles(*np.zeros((3, 1), dtype=bool))
    >>> step = next_table_rows([crowd], [raised], [known], plain)
    >>> int(step.held[0].sum()), step.rows.tolist()
    (1, [[4000.0]])
    """
    if not crowds:
        none = np.zeros((0, len(columns.few)))
        return TableRows(none, (), (), none.astype(np.bool_))
    entered, every_held = [], []
    for crowd, now, there in zip(crowds, figures, present, strict=True):
        entering = np.where(there, now, crowd.last)
        amounts, offset_counts = np.abs(entering - crowd.last), crowd.offset_counts.tolist()
        columnwise = [held_members(one, one, window) for one, window in zip(amounts.T, offset_counts, strict=True)]
        held = np.array(columnwise).reshape(entering.shape[::-1]).T
        entered.append(np.where(held, crowd.last, entering))
        every_held.append(held)
    member = np.repeat(np.arange(len(crowds)), [len(one) for one in entered])
    everyone = np.concatenate(entered)
    usual = [usual_figure(column) for column in everyone.T]
    most = [SOONER if half else OUTGROWN for half in (columns.alike & ~columns.few).tolist()]
    largest = [[times * int(w) for times, w in zip(most, one.offset_counts, strict=True)] for one in crowds]
    outgrown = np.array([[s > limit for s, limit in zip(usual, row, strict=True)] for row in largest])
    kept = rules_hold(everyone, member, columns, closeness, largest_share, decimals=crowds[0].decimals)
    kept &= ~outgrown
    rows = np.array([crowd.round_row(own) for crowd, own in zip(crowds, entered, strict=True)])
    after = [
        replace(crowd, last=np.where(known, own, crowd.last))
        for crowd, own, known in zip(crowds, entered, kept, strict=True)
    ]
    return TableRows(np.where(kept, rows, np.nan), tuple(every_held), tuple(after), outgrown)


def rules_hold(
    values: Units,
    crowd: NDArray[np.int64],
    columns: ColumnRoles,
    closeness: float = CLOSENESS,
    largest_share: float | None = None,
    among: Units | None = None,
    decimals: Sequence[int] = (),
) -> BoolArray:
    """(crowds, k) whether each crowd keeps dominance and diversity in each column.

    Where the difference of two columns does not, the second of them fails. ``values`` (n, k) are the figures of all
    members in units of 10^−``decimals``, ``crowd`` (n,) their crowds; ``among`` (N, k) are the figures of all labels,
    where these are more.
    """
    everyone = values if among is None else among
    alike: list[NDArray[Any]] = [everyone, values]
    if len(set(decimals)) > 1:
        alike = [one * np.array([10 ** (max(decimals) - places) for places in decimals], dtype=object) for one in alike]
    ruled = dominance_columns(alike[0], columns.few)
    amounts = dominance_amounts(alike[1], ruled)
    amounts = amounts.astype(np.float64) if amounts.dtype == object else amounts
    number = int(crowd.max()) + 1
    kept = np.ones((number, values.shape[1]), dtype=np.bool_)
    for c, inside in enumerate(rows_by_crowd(crowd)):
        fails = ~keeps_dominance(amounts[inside], largest_share)
        kept[c, [ruled[j][-1] for j in np.flatnonzero(fails).tolist()]] = False
    protected = np.flatnonzero(columns.protected)
    if len(protected):
        kept[:, protected] &= keeps_closeness(values[:, protected], crowd, closeness, everyone[:, protected])
    return kept


def formation_limits(
    values: FloatArray,
    columns: ColumnRoles,
    closeness: float = CLOSENESS,
    largest_share: float | None = None,
    among: FloatArray | None = None,
) -> Limits:
    """The limits of dominance and diversity for forming crowds of a table; arguments as in :func:`rules_hold`."""
    everyone = values if among is None else among
    ruled = dominance_columns(everyone, columns.few)
    protected = columns.protected
    return Limits(
        dominance_amounts(values, ruled).astype(np.float64),
        np.full(len(ruled), 1.0 if largest_share is None else largest_share),
        np.ones(len(ruled), dtype=np.bool_),
        closeness_scores(values[:, protected], closeness, everyone[:, protected]),
    )


def likeness_points(values: FloatArray, columns: ColumnRoles) -> FloatArray:
    """(n, d) points by which crowds are formed: columns that are not protected, each over its standard deviation.

    >>> likeness_points(np.array([[0, 1.0], [1, 3.0]]), ColumnRoles(*np.array([[True, False]] * 3))).tolist()
    [[1.0], [3.0]]
    """
    plain = values[:, ~columns.protected]
    deviation = np.sort(plain, axis=0).std(axis=0)
    points = plain / np.where(deviation > 0, deviation, 1.0)
    return points if points.shape[1] else np.zeros((len(values), 1))


def rows_by_crowd(crowd: NDArray[np.int64]) -> list[IndexArray]:
    """Positions of the rows of each crowd 0, 1, …, ascending."""
    order = np.argsort(crowd, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(crowd[order])) + 1)
