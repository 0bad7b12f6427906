"""``publish_rows``: rows of averages without a run, and the state that the next release needs.

The first call forms permanent crowds (:mod:`membership`); every row keeps the rules of size, precision, dominance,
difference and diversity (:mod:`tables`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.archive import pack, read_file_of, unpack
from shoal.crowds.diversity import CLOSENESS
from shoal.crowds.membership import Shuffle, admit_newcomers
from shoal.crowds.rules import Draw, KeptFigures, Units
from shoal.crowds.tables import ColumnRoles, TableRules
from shoal.errors import InputError
from shoal.files import write_private
from shoal.plaintext import name_key
from shoal.validation import FloatArray, IndexArray

FORM, VERSION = "shoal rows state", 3


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
    table: KeptFigures
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
            table = KeptFigures(bases, tuple(one["offsets"]), tuple(one["decimals"]), last)
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
    are rounded to a unit u first, so K rows add K u/(n b), about 10^−8 for a hundred rows: docs/theory.md, 12.1.) Over
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
    draw: Draw = secrets.randbelow,
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
    walls = None if limits is None else [str(one) for one in limits]
    whole, k = int(np.isfinite(values).all(axis=1).sum()), values.shape[1]
    roles, decimals = None, tuple[int, ...]()
    if state.releases:
        roles, decimals = state.columns, next(iter(state.crowds.values())).table.decimals
        if k != len(roles.few):
            raise InputError(f"figures must have {len(roles.few)} columns, those of the first release")
    elif any(j >= k for j in sensitive):
        raise InputError(f"sensitive must name columns by position, 0 to {k - 1}")
    elif whole < size:
        raise InputError(f"figures: {whole} labels have a figure in every column; a crowd of {size} needs {size}")
    terms: dict[str, Any] = {"closeness": state.closeness, "largest_share": state.largest_share}
    rules = TableRules(values, size, walls, roles=roles, decimals=decimals, sensitive=sensitive, **terms)
    place = {label: i for i, label in enumerate(labels)}
    boundaries = None if walls is None else dict(zip(labels, walls, strict=True))
    crowds, waiting = _renew_crowds(state, rules, place, boundaries, draw, shuffle)
    return _make_rows(replace(state, columns=rules.columns, crowds=crowds, waiting=waiting), rules, place)


def _renew_crowds(
    state: RowsState,
    rules: TableRules,
    place: Mapping[str, int],
    boundaries: Mapping[str, str] | None,
    draw: Draw,
    shuffle: Shuffle | None,
) -> tuple[dict[int, KeptCrowd], tuple[str, ...]]:
    """Crowds of this release, small ones retired, with new ones of new labels and of rests; and labels that wait."""
    m, now, crowds = state.size, state.releases + 1, dict(state.crowds)
    for number, kept in crowds.items():
        pairs = zip(kept.labels, kept.seen, strict=True)
        left = tuple(label for label, seen in pairs if label in place or seen >= now - 1)
        if not kept.retired and len(left) < m:
            crowds[number] = replace(kept, retired=True, rest=left)
    last = {label: own for kept in crowds.values() for label, own in zip(kept.labels, kept.table.last, strict=True)}
    new = [label for label in place if label not in last]
    rests = {number: kept.rest for number, kept in crowds.items() if kept.rest}
    members = [name for kept in crowds.values() if not kept.retired for name in kept.labels]

    def figures(names: Sequence[str]) -> Units:
        before = np.array([last.get(name, np.zeros(len(rules.decimals), dtype=np.int64)) for name in names])
        return rules.figures_or_last(_rows_of(names, place), before.reshape(-1, len(rules.decimals)))

    ordered, waits = admit_newcomers(
        rules,
        {label: place[label] for label in new if rules.present[place[label]].all()},
        m,
        draw,
        (shuffle or draw_permutation) if state.releases else None,
        members=members,
        rests=rests,
        figures=figures,
        boundaries=boundaries,
    )
    if not ordered and not state.releases:
        raise InputError(f"boundaries: fewer than {m} labels share a value; choose a smaller size or wider ones")
    for number in rests.keys() - waits:
        crowds[number] = replace(crowds[number], rest=())
    joined = [name for own in ordered for name in own]
    everyone = figures([*members, *joined])
    while ordered:  # numbered by a draw over the order of their figures: no number tells names or figures
        names = ordered.pop(draw(len(ordered)))
        table = rules.begin_crowd(figures(names), everyone, draw)
        crowds[len(crowds)] = KeptCrowd(tuple(names), table, (now,) * len(names), np.zeros_like(table.last))
    every = {*new, *(name for rest in rests.values() for name in rest)}
    return crowds, tuple(sorted(every - set(joined)))


def _make_rows(state: RowsState, rules: TableRules, place: Mapping[str, int]) -> tuple[PublicRows, RowsState]:
    """The rows of all lasting crowds, and the state after them."""
    now, lasting = state.releases + 1, {number: kept for number, kept in state.crowds.items() if not kept.retired}
    at, k = [_rows_of(kept.labels, place) for kept in lasting.values()], len(rules.decimals)
    steps = rules.next_rows([kept.table for kept in lasting.values()], at)
    after = dict(state.crowds)
    for (number, kept), rows, step in zip(lasting.items(), at, steps, strict=True):
        since = np.where(step.held, np.where(kept.since > 0, kept.since, now), 0)
        seen = tuple(np.where(rules.known_figures(rows).any(axis=1), now, kept.seen).tolist())
        after[number] = KeptCrowd(kept.labels, step.crowd, seen, since)
    public = PublicRows(
        np.array(list(lasting), dtype=np.int64),
        np.array([len(kept.labels) for kept in lasting.values()], dtype=np.int64),
        np.array([step.row for step in steps]).reshape(-1, k),
        np.array([[float(base) for base in step.crowd.bases] for step in steps]).reshape(-1, k),
    )
    outgrown = np.array([step.outgrown for step in steps], dtype=np.bool_).reshape(-1, k).any(axis=0)
    return public, replace(state, releases=now, crowds=after, outgrown=tuple(np.flatnonzero(outgrown).tolist()))


def _rows_of(names: Sequence[str], place: Mapping[str, int]) -> IndexArray:
    """(n,) rows of some labels in this release, −1 for those that are not there."""
    return np.array([place.get(name, -1) for name in names], dtype=np.intp)


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
    return secrets.SystemRandom().sample(range(n), n)
