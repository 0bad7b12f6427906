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
from shoal.crowds.membership import CrowdRules, formation_size
from shoal.crowds.rules import (
    Draw,
    KeptFigures,
    NextRow,
    Units,
    base_for_few_values,
    base_for_usual,
    exact_units,
    figures_of_multiples,
    held_members,
    keeps_dominance,
    offset_count,
    smallest_base_above,
    unit_decimals,
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
#: Columns that a refusal names, at most.
_NAMED = 5


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
            half = [2 * int(np.unique(column, return_counts=True)[1].max()) >= len(own) for column in own.T]
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


def dominance_columns(values: NDArray[Any], few: BoolArray) -> list[tuple[int, int]]:
    """Pairs of columns that the dominance rule is about by their difference, and single columns, each with −1.

    >>> dominance_columns(np.array([[1, 1, -1], [2, 2, 0], [3, 3, 5], [9, 4, 6]]), np.array([False, False, False]))
    [(-1, 0), (-1, 1), (-1, 2), (0, 1)]
    """
    ruled = [(-1, j) for j in np.flatnonzero(~few).tolist()]
    for j in range(values.shape[1] - 1):
        agree = 2 * (values[:, j + 1 :] == values[:, j : j + 1]).sum(axis=0) > len(values)
        ruled += [(j, j + 1 + other) for other in np.flatnonzero(agree & ~(few[j] & few[j + 1 :])).tolist()]
    return ruled


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


def dominance_amounts(values: NDArray[Any], ruled: Sequence[tuple[int, int]]) -> NDArray[Any]:
    """(n, len(ruled)) amounts ≥ 0 that the dominance rule is about: |v| of a column, or of the difference of two.

    >>> dominance_amounts(np.array([[1, 4], [3, 3]]), [(-1, 0), (0, 1)]).tolist()
    [[1, 3], [3, 0]]
    """
    first, second = np.array(ruled, dtype=np.intp).reshape(-1, 2).T
    padded = np.concatenate([values, np.zeros_like(values[:, :1])], axis=1)  # its last column: nothing to differ from
    return np.asarray(np.abs(padded[:, first] - padded[:, second]))


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


class TableRules(CrowdRules):
    """Figures (n, k) of a release, NaN where one is missing, the roles of its columns, and the rules of its rows.

    The first release decides roles and units (``columns``, ``decimals``); later ones give them.
    """

    names: Sequence[str] | None = None  #: of the columns, where they have some

    def __init__(
        self,
        values: FloatArray,
        m: int,
        boundaries: Sequence[Any] | None = None,
        *,
        roles: ColumnRoles | None = None,
        decimals: Sequence[int] = (),
        sensitive: Iterable[int] = (),
        closeness: float = CLOSENESS,
        largest_share: float | None = None,
        what: str = "figures",
    ) -> None:
        present = np.isfinite(values)
        whole = np.flatnonzero(present.all(axis=1))
        groups = wall_groups(None if boundaries is None else [boundaries[i] for i in whole.tolist()], m)
        CrowdRules.__init__(self, values, values, largest_share)
        self.closeness = closeness
        self.gaps = common_gaps(values[whole], groups)
        if roles is None:
            self.columns = ColumnRoles.of(values[whole], sensitive, groups)
        else:
            self.columns = roles.with_later_figures(values)
        if not decimals:
            most_members = 2 * formation_size(m) - 1 + m - 1  # of a new crowd that takes a rest
            smallest = column_bases(values[whole], self.columns, most_members, self.gaps)
            largest = np.abs(values[whole]).max(axis=0).tolist()
            decimals = [unit_decimals([base], most) for base, most in zip(smallest, largest, strict=True)]
        self.decimals, self.present = tuple(decimals), present
        self.units = exact_units(np.nan_to_num(values), self.decimals, what)

    def known_figures(self, at: IndexArray) -> BoolArray:
        """(n, k) whether labels at these rows have figures in this release; −1 is a label that is not there."""
        return np.asarray(self.present[at] & (at >= 0)[:, None])

    def figures_or_last(self, at: IndexArray, last: Units) -> Units:
        """(n, k) figures of labels in this release, and their ``last`` ones where they have none."""
        return np.where(self.known_figures(at), self.units[at], last)

    def likeness(self, at: IndexArray) -> FloatArray:
        """(n, d) what crowds are alike in: columns that are not protected, each over its standard deviation."""
        plain = self.values[at][:, ~self.columns.protected]
        deviation = np.sort(plain, axis=0).std(axis=0)
        return plain / np.where(deviation > 0, deviation, 1.0) if plain.shape[1] else np.zeros((len(at), 1))

    def limits(self, at: IndexArray, everyone: Units | None = None) -> Limits:
        """Dominance and diversity for crowds to form of some labels, beside ``everyone`` (N, k) who has a crowd."""
        values, protected = self.values[at], self.columns.protected
        among = values if everyone is None else np.concatenate([self._to_figures(everyone), values])
        ruled = dominance_columns(among, self.columns.few)
        return Limits(
            dominance_amounts(values, ruled).astype(np.float64),
            np.full(len(ruled), 1.0 if self.largest_share is None else self.largest_share),
            np.ones(len(ruled), dtype=np.bool_),
            closeness_scores(values[:, protected], self.closeness, among[:, protected]),
        )

    def rules_hold(self, figures: Units, crowd: IndexArray, among: Units | None = None) -> BoolArray:
        """(crowds, k) whether each crowd keeps dominance and diversity in each column.

        Where the difference of two columns does not, the second of them fails. ``figures`` (n, k) are those of all
        members, ``crowd`` (n,) their crowds; ``among`` (N, k) are the figures of all labels, where these are more.
        """
        everyone = figures if among is None else among
        alike: list[NDArray[Any]] = [everyone, figures]
        if len(set(self.decimals)) > 1:  # columns in one unit
            scale = np.array([10 ** (max(self.decimals) - places) for places in self.decimals], dtype=object)
            alike = [one * scale for one in alike]
        ruled = dominance_columns(alike[0], self.columns.few)
        amounts = dominance_amounts(alike[1], ruled)
        amounts = amounts.astype(np.float64) if amounts.dtype == object else amounts
        kept = np.ones((int(crowd.max()) + 1, figures.shape[1]), dtype=np.bool_)
        for c, inside in enumerate(rows_by_crowd(crowd)):
            fails = ~keeps_dominance(amounts[inside], self.largest_share)
            kept[c, [ruled[j][1] for j in np.flatnonzero(fails).tolist()]] = False
        protected = np.flatnonzero(self.columns.protected)
        if len(protected):
            kept[:, protected] &= keeps_closeness(figures[:, protected], crowd, self.closeness, everyone[:, protected])
        return kept

    def may_be_crowd(self, figures: Units, everyone: Units) -> bool:
        one = np.zeros(len(figures), dtype=np.int64)
        return bool(self.rules_hold(figures, one, np.concatenate([everyone, figures])).all())

    def failure_of_crowds(self, crowds: Sequence[IndexArray]) -> str | None:
        crowd = np.repeat(np.arange(len(crowds)), [len(at) for at in crowds])
        kept = self.rules_hold(self.units[np.concatenate(crowds)], crowd)
        return None if kept.all() else explain_failed_rules(kept, self.columns, self.names)

    def _to_figures(self, units: Units) -> FloatArray:
        """(n, k) figures as the doubles nearest to them."""
        pairs = zip(units.T, self.decimals, strict=True)
        return np.stack([figures_of_multiples(own, Decimal(1).scaleb(-places)) for own, places in pairs], axis=1)

    def begin_crowd(self, last: Units, everyone: Units, draw: Draw) -> KeptFigures:
        """A new crowd of members with figures ``last`` (n, k): permanent bases and an offset for each column.

        Bases rest on ``everyone`` (N, k), members too: newcomers could be chosen so that their base hides nothing.
        Offsets are independent: had columns one in common, a member's figure that is known in one of them would show
        it in all others. The price is that K copies of a column leave 1/√K of the error (:func:`nearly_equal_columns`).
        """
        values, n = self._to_figures(everyone), len(last)
        bases = column_bases(values, self.columns, n, np.maximum(common_gaps(values), self.gaps))
        finest = [max(base, Decimal(1).scaleb(-d)) for base, d in zip(bases, self.decimals, strict=True)]
        offsets = [draw(offset_count(base, n, d)) for base, d in zip(finest, self.decimals, strict=True)]
        return KeptFigures(tuple(finest), tuple(offsets), self.decimals, last)

    def next_rows(self, crowds: Sequence[KeptFigures], at: Sequence[IndexArray]) -> list[NextRow]:
        """The rows of all crowds; ``at``: the rows of their members in this release, −1 for those who have none.

        Example: one of twelve salaries rises by 7,300 while all other figures stay; who earns it is held.

        >>> pay, everyone = 4000.0 + 100 * np.arange(12)[:, None], [np.arange(12)]
        >>> first = TableRules(pay, 10)
        >>> crowd = first.begin_crowd(first.units, first.units, lambda n: 0)
        >>> raised = TableRules(pay + 7300 * np.eye(12, 1), 10, roles=first.columns, decimals=first.decimals)
        >>> one, two = (rules.next_rows([crowd], everyone)[0] for rules in (first, raised))
        >>> int(two.held.sum()), bool(two.row == one.row)
        (1, True)
        """
        if not crowds:
            return []
        entered, every_held = [], []
        for crowd, places in zip(crowds, at, strict=True):
            entering = self.figures_or_last(places, crowd.last)
            amounts, windows = np.abs(entering - crowd.last), crowd.offset_counts
            held = np.stack([held_members(a, a, n_b) for a, n_b in zip(amounts.T, windows, strict=True)], axis=1)
            entered.append(np.where(held, crowd.last, entering))
            every_held.append(held)
        member = np.repeat(np.arange(len(crowds)), [len(one) for one in entered])
        everyone = np.concatenate(entered)
        usual = [usual_figure(column) for column in everyone.T]
        most = [SOONER if half else OUTGROWN for half in (self.columns.alike & ~self.columns.few).tolist()]
        kept, steps = self.rules_hold(everyone, member), list[NextRow]()
        for crowd, own, held, known in zip(crowds, entered, every_held, kept, strict=True):
            hidden = zip(usual, most, crowd.offset_counts, strict=True)
            outgrown = np.array([figure > times * window for figure, times, window in hidden])
            shown = known & ~outgrown
            row, after = np.where(shown, crowd.round_row(own), np.nan), np.where(shown, own, crowd.last)
            steps.append(NextRow(row, own, held, replace(crowd, last=after), outgrown))
        return steps


def explain_failed_rules(kept: BoolArray, columns: ColumnRoles, names: Sequence[str] | None = None) -> str:
    """Sentence that explains which rule of a row fails, in which columns and how many rows, and the ways out.

    ``kept`` (crowds, k) says where the rules hold; ``names`` are those of the columns.
    """
    failed = np.flatnonzero(~kept.all(axis=0)).tolist()
    words = []
    for j in failed[:_NAMED]:
        rule = "diversity" if columns.protected[j] else "dominance"
        name = f"column {j}" if names is None else f"column {names[j]!r}"
        words.append(f"{name} ({rule}, {int((~kept[:, j]).sum())} of {len(kept)} rows)")
    more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return (
        f"rules of a row: no crowds were found that keep them in {', '.join(words)}{more}. Ways out: a larger crowd; "
        "naming the column as sensitive, so that crowds are not alike in it; leaving the column out; or the promise "
        "about the readings, which has no crowds. Nothing was released"
    )


def rows_by_crowd(crowd: NDArray[np.int64]) -> list[IndexArray]:
    """Positions of the rows of each crowd 0, 1, …, ascending."""
    order = np.argsort(crowd, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(crowd[order])) + 1)
