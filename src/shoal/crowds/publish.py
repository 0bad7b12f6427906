"""``publish_rows``: rows of averages without a run, and the state that the next release needs.

The first call forms permanent crowds (:mod:`membership`); every row keeps the rules of size, precision, dominance,
difference and diversity (:mod:`tables`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.archive import pack, read_file_of, unpack
from shoal.crowds.diversity import CLOSENESS
from shoal.crowds.membership import SEEDS, Shuffle, form_crowds, join_waiting_rests, waiting_size
from shoal.crowds.rules import Units, exact_units, unit_decimals
from shoal.crowds.tables import (
    ColumnRoles,
    TableCrowd,
    column_bases,
    common_gaps,
    formation_limits,
    likeness_points,
    new_table_crowd,
    next_table_rows,
    rows_by_crowd,
    rules_hold,
    wall_groups,
)
from shoal.errors import InputError, UnreachableError
from shoal.files import write_private
from shoal.plaintext import name_key
from shoal.validation import BoolArray, FloatArray

FORM, VERSION = "shoal rows state", 3
#: Columns that a refusal names, at most.
_NAMED = 5


@dataclass(frozen=True)
class PublicRows:
    """What may be shown of one release: a row per crowd; a figure that is withheld is NaN."""

    crowd: NDArray[np.int64]  #: (crowds,)
    members: NDArray[np.int64]  #: (crowds,) size of each, for life
    values: FloatArray  #: (crowds, k)
    precision: FloatArray  #: (crowds, k) the base that each figure is a multiple of

    def __len__(self) -> int:
        return len(self.crowd)


@dataclass(frozen=True)
class KeptCrowd:
    """A crowd in the state: who is in it, in the order of ``table.last``, and when each last had figures."""

    labels: tuple[str, ...]
    table: TableCrowd
    seen: tuple[int, ...]  #: the last release with a figure of each
    since: NDArray[np.int64]  #: (n, k) the first release of those in a row in which a member is held; 0: not held
    retired: bool = False
    rest: tuple[str, ...] = ()  #: of a retired crowd: who waits, together, for a new one


@dataclass(frozen=True)
class RowsState:
    """All that is kept from one release to the next. It is the owner's: figures and secret offsets are in it."""

    size: int
    closeness: float
    largest_share: float | None
    columns: ColumnRoles
    releases: int
    crowds: Mapping[int, KeptCrowd] = field(repr=False)
    waiting: tuple[str, ...] = field(default=(), repr=False)  #: new labels, and rests of retired crowds
    bounded: bool = False  #: whether crowds keep boundaries
    #: Columns of which some figure was withheld in the last release since its base hides too little by now: figures
    #: have grown since the crowds were formed, and need new crowds.
    outgrown: tuple[int, ...] = ()

    @property
    def held(self) -> dict[str, dict[int, int]]:
        """For each member who is held: column -> since which release (the first is 1) an older figure of it enters."""
        return {
            label: {int(j): int(since[j]) for j in np.flatnonzero(since)}
            for kept in self.crowds.values()
            if not kept.retired
            for label, since in zip(kept.labels, kept.since, strict=True)
            if since.any()
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state for this user alone."""
        crowds = [
            {
                "crowd": number,
                "labels": list(kept.labels),
                "seen": list(kept.seen),
                "retired": kept.retired,
                "rest": list(kept.rest),
                "bases": [str(base) for base in kept.table.bases],
                "offsets": list(kept.table.offsets),
                "decimals": list(kept.table.decimals),
            }
            for number, kept in self.crowds.items()
        ]
        header: dict[str, Any] = {
            "format": FORM, "version": VERSION, "size": self.size, "closeness": self.closeness, "crowds": crowds,
            "largest_share": self.largest_share, "releases": self.releases, "waiting": list(self.waiting),
            "bounded": self.bounded, "outgrown": list(self.outgrown),
        }  # fmt: skip
        arrays: dict[str, NDArray[Any]] = {name: getattr(self.columns, name) for name in ("few", "alike", "sensitive")}
        for number, kept in self.crowds.items():
            arrays |= {f"last-{number}": kept.table.last, f"since-{number}": kept.since}
        write_private(path, pack(header, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RowsState:
        """Read what :meth:`save` wrote; a file that is damaged or altered is refused."""
        header, arrays = unpack(read_file_of(Path(path), FORM), FORM, VERSION, f"path: {Path(path).name}")
        crowds = {}
        for one in header["crowds"]:
            bases, last = tuple(map(Decimal, one["bases"])), arrays[f"last-{one['crowd']}"]
            table = TableCrowd(bases, tuple(one["offsets"]), last, tuple(one["decimals"]))
            kept = KeptCrowd(tuple(one["labels"]), table, tuple(one["seen"]), arrays[f"since-{one['crowd']}"])
            crowds[int(one["crowd"])] = replace(kept, retired=one["retired"], rest=tuple(one["rest"]))
        columns = ColumnRoles(*(arrays[name] for name in ("few", "alike", "sensitive")))
        size, closeness, share = header["size"], header["closeness"], header["largest_share"]
        more = header["bounded"], tuple(header["outgrown"])
        return cls(size, closeness, share, columns, header["releases"], crowds, tuple(header["waiting"]), *more)


def publish_rows(
    figures: Any,
    state: RowsState | None = None,
    size: int = 10,
    boundaries: Any = None,
    *,
    sensitive: Sequence[int] = (),
    closeness: float = CLOSENESS,
    largest_share: float | None = None,
) -> tuple[PublicRows, RowsState]:
    """A row of averages per crowd that may be shown, and the state for the next release about the same labels.

    Crowds are formed at the first call, with about a fifth more members than ``size``, and kept for life: labels are
    alike in the columns that are not protected. New labels wait until there are enough of them for crowds of their own.
    Rows are rounded, shifted by a secret constant, and take in a large change of one member only beside changes of
    others. For one constant figure d of a member, whatever is known of the others, the whole series of a crowd differs
    by at most d/(n b) in total variation, in one column, given the crowds; b is the ``precision`` of the row. (Figures
    are rounded to a unit u first, so K rows add K u/(n b), 10^−8 for a hundred rows: docs/theory.md, 12.1.) Over
    columns these bounds add: leave out columns that say nearly what another one says. No differential privacy
    about figures.
    Another spelling of a name is the same label (:func:`shoal.plaintext.name_key`).

    Args:
        figures: a mapping from labels to figures, or (labels, (n, k) array); NaN where a figure is missing.
        state: what the last call returned; None at the first. Keep it: without it the same labels would be divided in
            another way, and two divisions reveal members.
        size: least members of a crowd.
        boundaries: a mapping from labels to values that crowds never cross, or one value per label; at every call, or
            at none.
        sensitive: positions of columns that crowds must not be alike in, beside few-valued ones (first call).
        closeness: how far a crowd's mean may be from that of all labels in a protected column, in standard deviations.
        largest_share: no member has more than this share of a figure's total.

    Returns:
        The rows of all crowds, NaN where a figure is withheld, and the state, with ``held``, ``outgrown`` and ``save``.

    Raises:
        UnreachableError: the first crowds cannot keep a rule; the text names it and the ways out.

    >>> rows, state = publish_rows({str(i): [20.0 + i, i % 2] for i in range(12)}, size=4)
    >>> len(rows), int(rows.members.sum()), state.held
    (2, 12, {})
    """
    setting = RowsState(
        validation.count(at_least=2, size=size),
        validation.positive(closeness=closeness),
        None if largest_share is None else validation.probability(above_zero=True, largest_share=largest_share),
        ColumnRoles(*np.zeros((3, 0), dtype=np.bool_)),
        0,
        {},
        bounded=boundaries is not None,
    )
    if np.ndim(sensitive) != 1:
        raise InputError("sensitive must be a sequence of positions of columns")
    positions = [validation.count(at_least=0, sensitive=j) for j in sensitive]
    if state is None:
        return next_public_rows(figures, setting, size, boundaries, positions)
    if not isinstance(state, RowsState):
        raise InputError("state must be what the last call returned, or None at the first")
    for name, given, kept in (
        ("closeness", {closeness} - {CLOSENESS}, {state.closeness}),
        ("largest_share", {largest_share} - {None}, {state.largest_share}),
        ("sensitive", set(positions), set(np.flatnonzero(state.columns.sensitive).tolist())),
    ):
        if not given <= kept:
            raise InputError(f"{name}: the first call fixed it, and crowds are permanent; leave it out")
    return next_public_rows(figures, state, size, boundaries)


def next_public_rows(
    figures: Any,
    state: RowsState,
    size: int,
    boundaries: Any = None,
    sensitive: Sequence[int] = (),
    draw: Callable[[int], int] = secrets.randbelow,
    shuffle: Shuffle | None = None,
) -> tuple[PublicRows, RowsState]:
    """:func:`publish_rows` with given draws: rows are then a function of the multiset of figures and the state."""
    labels, values = _parse_figures(figures)
    limits = validation.by_label(labels, boundaries=boundaries)
    if limits is not None and np.shape(limits) != (len(labels),):
        raise InputError("boundaries must hold one value per label")
    if state.releases and size != state.size:
        raise InputError(f"size: these labels are in crowds formed with size {state.size}, which is permanent")
    if state.releases and (limits is not None) != state.bounded:
        before = "with boundaries, which new crowds keep too" if state.bounded else "without boundaries"
        raise InputError(f"boundaries: these labels are in crowds formed {before}")
    known = {name_key(name): name for kept in state.crowds.values() for name in kept.labels}
    labels = tuple(known.get(name_key(label), label) for label in labels)  # in the spelling of the first release
    release = _Release(labels, values, None if limits is None else [str(one) for one in limits], state, draw)
    if not state.releases:
        release.form_first_crowds(sensitive)
    elif values.shape[1] != len(state.columns.few):
        raise InputError(f"figures must have {len(state.columns.few)} columns, those of the first release")
    else:
        release.columns = state.columns.with_later_figures(values)
        release.admit_newcomers(draw_permutation if shuffle is None else shuffle)
    return release.make_rows()


class _Release:
    """A release in the making: its figures, its draws, and the crowds and column roles that it changes."""

    def __init__(
        self,
        labels: tuple[str, ...],
        values: FloatArray,
        boundaries: list[str] | None,
        state: RowsState,
        draw: Callable[[int], int],
    ) -> None:
        self.labels, self.values, self.boundaries, self.state, self.draw = labels, values, boundaries, state, draw
        self.now, self.columns = state.releases + 1, state.columns
        self.place = {label: i for i, label in enumerate(labels)}
        self.crowds = dict(state.crowds)
        self.waiting: tuple[str, ...] = ()
        self.decimals: tuple[int, ...] = ()

    def form_first_crowds(self, sensitive: Sequence[int]) -> None:
        """Form the first crowds; raise UnreachableError if they do not keep the rules of a row."""
        whole = np.flatnonzero(np.isfinite(self.values).all(axis=1))
        values, m, k = self.values[whole], self.state.size, self.values.shape[1]
        if any(j >= k for j in sensitive):
            raise InputError(f"sensitive must name columns by position, 0 to {k - 1}")
        if len(whole) < m:
            raise InputError(f"figures: {len(whole)} labels have a figure in every column; a crowd of {m} needs {m}")
        walls = None if self.boundaries is None else [self.boundaries[i] for i in whole]
        groups = wall_groups(walls, m)
        self.columns, gaps = ColumnRoles.of(values, sensitive, groups), common_gaps(values, groups)
        limits = formation_limits(values, self.columns, self.state.closeness, self.state.largest_share)
        points, seed = likeness_points(values, self.columns), self.draw(SEEDS)
        crowd = form_crowds(points, m, boundaries=walls, beside=values, limits=limits, seed=seed)
        if (crowd < 0).all():
            raise InputError(f"boundaries: fewer than {m} labels share a value; choose a smaller size or wider ones")
        inside = crowd >= 0
        values, rows, crowd = values[inside], whole[inside], crowd[inside]
        bases = [column_bases(values, self.columns, int(n), gaps) for n in np.bincount(crowd)]
        largest = np.abs(values).max(axis=0).tolist()
        self.decimals = tuple(map(unit_decimals, zip(*bases, strict=True), largest))
        units = exact_units(values, self.decimals)
        kept = rules_hold(
            units, crowd, self.columns, self.state.closeness, self.state.largest_share, decimals=self.decimals
        )
        if not kept.all():
            raise UnreachableError(explain_failed_rules(kept, self.columns))
        names = [self.labels[i] for i in rows]
        self.add_crowds(names, units, crowd, bases)
        self.waiting = tuple(sorted(set(self.labels) - set(names)))

    def add_crowds(self, names: Sequence[str], units: Units, crowd: NDArray[np.int64], bases: Sequence[Any]) -> None:
        """Add new crowds, numbered by a draw over the order of their figures: no number tells names or figures."""
        every = [(sorted(units[at].tolist()), at, base) for at, base in zip(rows_by_crowd(crowd), bases, strict=True)]
        ordered = sorted(every, key=lambda one: one[0])
        while ordered:
            _, at, base = ordered.pop(self.draw(len(ordered)))
            table = new_table_crowd(units[at], base, self.decimals, self.draw)
            empty = np.zeros(units[at].shape, dtype=np.int64)
            inside = tuple(names[i] for i in at)
            self.crowds[len(self.crowds)] = KeptCrowd(inside, table, (self.now,) * len(at), empty)

    def admit_newcomers(self, shuffle: Shuffle) -> None:
        """Retire crowds with too few members left, and form crowds of new labels and of rests."""
        m = self.state.size
        self.decimals = next(iter(self.crowds.values())).table.decimals
        for number, kept in self.crowds.items():
            pairs = zip(kept.labels, kept.seen, strict=True)
            left = tuple(label for label, seen in pairs if label in self.place or seen >= self.now - 1)
            if not kept.retired and len(left) < m:
                self.crowds[number] = replace(kept, retired=True, rest=left)
        rests = {number: kept.rest for number, kept in self.crowds.items() if kept.rest}
        known = {label for kept in self.crowds.values() for label in kept.labels}
        new = [label for label in self.labels if label not in known]
        whole = [label for label in new if np.isfinite(self.values[self.place[label]]).all()]
        members = [name for kept in self.crowds.values() if not kept.retired for name in kept.labels]
        everyone = self._current_figures(members)
        joined = self._divide_newcomers(whole, everyone, shuffle) if len(whole) >= waiting_size(m) else {}
        walls = None if self.boundaries is None else dict(zip(self.labels, self.boundaries, strict=True))
        joined, waits = join_waiting_rests(
            joined, rests, m, lambda names: self._can_be_crowd(self._current_figures(names), everyone), walls
        )
        every = {*new, *(name for rest in rests.values() for name in rest)}
        self.waiting = tuple(sorted(every - joined.keys()))
        names = sorted(joined)
        values = self._current_figures(names)
        for number in rests.keys() - waits:
            self.crowds[number] = replace(self.crowds[number], rest=())
        if names:
            crowd = np.unique([joined[name] for name in names], return_inverse=True)[1].astype(np.int64)
            of_all = np.concatenate([everyone, values])
            whole_now = np.flatnonzero(np.isfinite(self.values).all(axis=1))
            own = None if self.boundaries is None else [self.boundaries[i] for i in whole_now]
            gaps = np.maximum(common_gaps(of_all), common_gaps(self.values[whole_now], wall_groups(own, m)))
            bases = [column_bases(of_all, self.columns, int(n), gaps) for n in np.bincount(crowd)]
            self.add_crowds(names, exact_units(values, self.decimals), crowd, bases)

    def _current_figures(self, names: Sequence[str]) -> FloatArray:
        """(n, k) figures of some labels: those of now, or the last that entered a row, NaN where there are none."""
        power = 10.0 ** -np.array(self.decimals)
        last = {
            label: figures * power
            for kept in self.crowds.values()
            for label, figures in zip(kept.labels, kept.table.last, strict=True)
        }
        now = self._figures_now(names)
        before = np.array([last.get(name, np.full(len(power), np.nan)) for name in names]).reshape(now.shape)
        return np.where(np.isfinite(now), now, before)

    def _divide_newcomers(self, names: list[str], everyone: FloatArray, shuffle: Shuffle) -> dict[str, int]:
        """New label -> number of its new crowd, of those who enter one; ``everyone``: figures of all members."""
        values = self._current_figures(names)
        among = np.concatenate([everyone, values])
        limits = formation_limits(values, self.columns, self.state.closeness, self.state.largest_share, among)
        crowd = form_crowds(
            likeness_points(values, self.columns),
            self.state.size,
            shuffle,
            boundaries=None if self.boundaries is None else [self.boundaries[self.place[name]] for name in names],
            beside=values,
            limits=limits,
            keeps=lambda at: self._can_be_crowd(values[at], everyone),
        )
        return {name: c for name, c in zip(names, crowd.tolist(), strict=True) if c >= 0}

    def _can_be_crowd(self, values: FloatArray, everyone: FloatArray) -> bool:
        """Whether labels with these figures (n, k) keep the rules of a row as one crowd among ``everyone`` (N, k)."""
        units = exact_units(values, self.decimals)
        among = np.concatenate([exact_units(everyone, self.decimals), units])
        crowd = np.zeros(len(units), dtype=np.int64)
        share = self.state.largest_share
        return bool(rules_hold(units, crowd, self.columns, self.state.closeness, share, among, self.decimals).all())

    def _figures_now(self, names: Sequence[str]) -> FloatArray:
        """(n, k) figures of some labels in this release, NaN where one is missing."""
        at = np.array([self.place.get(name, -1) for name in names], dtype=np.intp)
        return np.where(at[:, None] >= 0, self.values[at], np.nan)

    def make_rows(self) -> tuple[PublicRows, RowsState]:
        """The rows of all lasting crowds, and the state after them."""
        lasting = [number for number, kept in self.crowds.items() if not kept.retired]
        every = [self.crowds[number] for number in lasting]
        now = [self._figures_now(kept.labels) for kept in every]
        present = [np.isfinite(figures) for figures in now]
        units = [exact_units(np.nan_to_num(figures), self.decimals) for figures in now]
        tables = [kept.table for kept in every]
        step = next_table_rows(tables, units, present, self.columns, self.state.closeness, self.state.largest_share)
        for number, kept, held, there, table in zip(lasting, every, step.held, present, step.crowds, strict=True):
            since = np.where(held, np.where(kept.since > 0, kept.since, self.now), 0)
            figures = [bool(row.any()) for row in there]
            seen = tuple(self.now if any_ else before for before, any_ in zip(kept.seen, figures, strict=True))
            self.crowds[number] = KeptCrowd(kept.labels, table, seen, since)
        rows = PublicRows(
            np.array(lasting, dtype=np.int64),
            np.array([len(kept.labels) for kept in every], dtype=np.int64),
            step.rows,
            np.array([[float(base) for base in table.bases] for table in tables]).reshape(step.rows.shape),
        )
        after = replace(self.state, columns=self.columns, releases=self.now, crowds=self.crowds, waiting=self.waiting,
                        outgrown=tuple(np.flatnonzero(step.outgrown.any(axis=0)).tolist()))  # fmt: skip
        return rows, after


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


def _parse_figures(figures: Any) -> tuple[tuple[str, ...], FloatArray]:
    """Labels and their figures (n, k), NaN where one is missing."""
    if isinstance(figures, Mapping):
        given, rows = tuple(figures), list(figures.values())
    elif isinstance(figures, tuple) and len(figures) == 2:
        given, rows = tuple(figures[0]), figures[1]
    else:
        raise InputError("figures must be a mapping from labels to figures, or (labels, array)")
    try:
        values = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("figures must hold numbers, as many for each label") from None
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.shape[1] or np.isinf(values).any():
        raise InputError("figures must have one row of finite numbers per label, or NaN where one is missing")
    names = validation.labels(len(values), [str(label) for label in given])
    if len({name_key(name) for name in names}) < len(names):
        raise InputError("figures: two labels are one name in two spellings", argument="figures")
    return names, values + 0.0


def draw_permutation(n: int) -> list[int]:
    """A random permutation of range(n) from the cryptographic source."""
    order = list(range(n))
    secrets.SystemRandom().shuffle(order)
    return order
