"""The rules of a row (:mod:`shoal.crowds`) applied to what is on record: one object for meters, one for tables.

In the ledger ``kept`` of a crowd is JSON with bases, secret offsets, decimals of its unit, and the period of the last
row that was not withheld; a member has its last figures (``stored``) and, of meters, what entered the last row
(``entered``), as integers of that unit.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from shoal.crowds.diversity import CLOSENESS
from shoal.crowds.formation import Limits
from shoal.crowds.loads import LARGEST, NANOWATTS, LoadCrowd, new_load_crowd, next_load_row
from shoal.crowds.publish import explain_failed_rules
from shoal.crowds.rules import (
    Units,
    add_units,
    exact_units,
    figures_of_multiples,
    keeps_dominance,
    offset_count,
    round_sums,
    to_units,
    unit_decimals,
)
from shoal.crowds.tables import (
    ColumnRoles,
    TableCrowd,
    column_bases,
    common_gaps,
    formation_limits,
    nearly_equal_columns,
    new_table_crowd,
    next_table_rows,
    rules_hold,
    wall_groups,
)
from shoal.errors import InputError
from shoal.product.runs.inputs import Curves
from shoal.product.sources.meters import clock
from shoal.rounding import count_of
from shoal.validation import BoolArray, FloatArray, IndexArray

Draw = Callable[[int], int]
#: Names in a warning, at most.
NAMED = 6
COPIES = (
    "Rounding hides a figure column by column: to someone who knows the other members, 4 copies of a column show a "
    "constant figure to 0.21 of a usual one, 24 copies to 0.10 (one column: 0.5). Leave copies out."
)
#: What a figure is stored as, in units.
STORED = np.dtype("<i8")


@dataclass(frozen=True)
class MadeRow:
    """The row of a crowd, NaN where withheld; sums of what entered, in units; who is held, (n,) or (n, k)."""

    values: list[float]
    sums: list[str]
    held: BoolArray
    crowd: LoadCrowd | TableCrowd


class RowRules:
    """What the rules of rows of meters and of tables share: figures of today, and what the ledger keeps of a member."""

    units: Units  #: (n, k) figures of today, as integers of the last decimal
    usual: Units  #: (n, steps of a day or columns) what a new crowd begins with
    names: Sequence[str] = ()  #: columns of a table

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        self.decided: dict[str, Any] = {}  #: by the first release, for the life of all crowds
        self.protected: dict[str, str] = {}  #: column that crowds are not alike in -> why

    @property
    def copies(self) -> list[str]:
        """A warning about columns that say nearly the same, where there are any."""
        return []

    @property
    def doubts(self) -> list[str]:
        """Warnings to the owner about columns, once the rows are made."""
        return []

    def stored_figures(self, rows: Sequence[bytes]) -> Units:
        """Return the figures (n, k) of members from what the ledger keeps of them."""
        return np.array([np.frombuffer(row, dtype=STORED) for row in rows]).astype(np.int64)

    def is_another(self, stored: bytes, held: str, at: int) -> bool:
        """Return whether a label's figures of today differ from those on record for the same period."""
        return False


class LoadRules(RowRules):
    """The rules of rows of meters: one base and one offset per crowd, members held as a whole."""

    def __init__(self, curves: Curves, share: float | None, setting: Mapping[str, Any], period: str) -> None:
        super().__init__(curves)
        assert curves.ahead is not None
        self.share, self.phases = share, np.array(curves.ahead)
        self.outgrown = 0  #: crowds whose last row is withheld since their bases hide too little
        self.step, self.period = timedelta(minutes=float(setting["step_minutes"])), period
        if len(curves.frame) and np.abs(curves.values).max() > LARGEST:
            raise InputError("readings: some forecasts are beyond 2 GW; give the unit of the readings (unit=)")
        self.units = to_units(curves.values, NANOWATTS)
        self.usual = to_units(curves.frame["stored"].to_numpy(), NANOWATTS)

    @property
    def doubts(self) -> list[str]:
        """A warning about crowds whose loads have grown beyond what their bases hide."""
        out = (
            f"Withheld: the rows of {count_of(self.outgrown, 'crowd')}. Loads have grown to several times what "
            "rounding and offset of a crowd hide, and both are permanent. They need new crowds: another folder with a "
            "ledger of its own, in place of this series."
        )
        return [out] if self.outgrown else []

    def first_figures(self, stored: bytes, at: int) -> Units:
        """Return the usual day with which a label enters a new crowd: the one on record, else that of today."""
        day: Units = self.stored_figures([stored])[0] if stored else self.usual[at]
        return day

    def figures(self, stored: bytes, at: int) -> Units:
        """Return the figures (k,) of a label: those of today, or the last ones on record where it has none (at −1)."""
        last: Units = self.units[at] if at >= 0 else self.first_figures(stored, at)[self.phases]
        return last

    def has_entered(self, stored: bytes, entered: bytes, at: int) -> bool:
        """Return whether a label's figures of today are those that entered its row."""
        return np.array_equal(self.units[at], np.frombuffer(entered, dtype=STORED))

    def likeness(self, at: IndexArray) -> FloatArray:
        """Return what crowds of some homes of today are alike in, (n, d)."""
        return self.curves.points[at]

    def limits(self, at: IndexArray) -> Limits:
        """Return what crowds have to keep as they are formed: no home dominates the load over the horizon."""
        total = np.abs(self.units[at]).astype(np.float64).sum(axis=1, keepdims=True)
        share = np.array([1.0 if self.share is None else self.share])
        return Limits(total, share, np.ones(1, dtype=np.bool_), np.zeros((len(at), 0)))

    def may_be_crowd(self, figures: Units) -> bool:
        """Return whether members with these loads (n, k) can be a crowd: none dominates their sum."""
        return bool(keeps_dominance(add_units(np.abs(figures), 1), self.share))

    def failure_of_crowds(self, crowds: Sequence[IndexArray]) -> str | None:
        """Return why first crowds do not keep the rules, with the ways out; None where they do."""
        bad = [at for at in crowds if not self.may_be_crowd(self.units[at])]
        if not bad:
            return None
        loads = np.abs(self.curves.values).sum(axis=1)
        names = sorted(self.curves.labels[at[int(np.argmax(loads[at]))]] for at in bad)
        return (
            "rules of a row: no crowds were found that keep them: one home makes most of its row over the horizon "
            f"(dominance, {len(bad)} of {len(crowds)} rows): {', '.join(names[:5])}. Ways out: a larger crowd; leave "
            "the label out; or the promise about the readings, which has no crowds. Nothing was released"
        )

    def begin_crowd(self, last: Units, everyone: Units, draw: Draw) -> LoadCrowd:
        """Return a new crowd of members with these usual days (n, steps); ``everyone``: those of all labels."""
        return new_load_crowd(last, Fraction(int(add_units(np.abs(everyone).ravel())), max(everyone.size, 1)), draw)

    def decode_crowd(self, kept: str, stored: Sequence[bytes], entered: Sequence[bytes]) -> LoadCrowd:
        """Return a crowd from what the ledger keeps of it and of its members."""
        fixed = json.loads(kept)
        day, base = self.stored_figures(stored), Decimal(fixed["bases"][0])
        if not fixed["from"]:
            return LoadCrowd(base, fixed["offsets"][0], day)
        last = self.stored_figures(entered)
        return LoadCrowd(base, fixed["offsets"][0], day, self._instants(fixed["from"], last.shape[1]), last)

    def encode_crowd(self, crowd: LoadCrowd, period: str) -> tuple[str, list[bytes], list[bytes]]:
        """Return what the ledger keeps of a crowd whose last row is about this period, and of its members."""
        entered = np.zeros((len(crowd.day), 0)) if crowd.last is None else crowd.last
        kept = _pack_kept([crowd.base], [crowd.offset], [NANOWATTS], period)
        return (
            kept,
            [row.astype(STORED).tobytes() for row in crowd.day],
            [row.astype(STORED).tobytes() for row in entered],
        )

    def make_rows(self, crowds: Sequence[LoadCrowd], at: Sequence[IndexArray]) -> list[MadeRow]:
        """Return the rows of all crowds; ``at``: where their members stand today, −1 for those who are not there."""
        instants, made, self.outgrown = self._instants(self.period, len(self.phases)), [], 0
        for crowd, places in zip(crowds, at, strict=True):
            here = places >= 0
            figures = np.zeros((len(places), len(self.phases)), dtype=np.int64)
            figures[here] = self.units[places[here]]
            step = next_load_row(crowd, figures, here, instants, self.phases, self.share)
            values = [np.nan] * len(self.phases) if step.row is None else step.row.tolist()
            self.outgrown += step.outgrown
            made.append(MadeRow(values, list(map(str, add_units(step.entered))), step.held, step.crowd))
        return made

    def _instants(self, period: str, number: int) -> tuple[int, ...]:
        """Return the microseconds since 1970 of the entries of a row from a period on."""
        start, step = clock.microseconds_of(datetime.fromisoformat(period)), self.step // clock.MICROSECOND
        return tuple(range(start, start + step * number, step))


class TableRules(RowRules):
    """The rules of rows of a table, asked as :class:`LoadRules`: a base, an offset and who is held for each column."""

    def __init__(
        self, curves: Curves, setting: Mapping[str, Any], sensitive: Sequence[str], closeness: float | None,
        grown: Sequence[int] = (),
    ) -> None:  # fmt: skip
        super().__init__(curves)
        self.names = list(setting["columns"])
        self.outgrown: list[str] = []  #: columns in which the last rows lack figures, since bases hide too little
        self.closeness = CLOSENESS if closeness is None else closeness
        k = len(self.names)
        groups = wall_groups(curves.boundaries, int(setting["m"]))
        self._gaps = common_gaps(curves.values, groups)
        if "few" in setting:  # decided by the first release
            few, alike, more = (np.isin(np.arange(k), at) for at in (setting["few"], setting["alike"], grown))
            named = np.isin(self.names, list(sensitive))
            self.columns = ColumnRoles(few & ~more, alike | more, named).with_later_figures(curves.values)
            self.grown = np.flatnonzero(np.isin(np.arange(k), setting["few"]) & ~self.columns.few).tolist()
        else:
            self.columns = ColumnRoles.of(curves.values, [self.names.index(name) for name in sensitive], groups)
            self.grown = []  #: columns that were few-valued when the first crowds were formed
        self.decimals: tuple[int, ...] = tuple(setting.get("decimals") or ())
        if not self.decimals:
            smallest = column_bases(curves.values, self.columns, 2 * int(setting["m"]) + 2, self._gaps)
            largest = np.abs(curves.values).max(axis=0).tolist()
            self.decimals = tuple(unit_decimals([base], most) for base, most in zip(smallest, largest, strict=True))
        self.units = self.usual = exact_units(curves.values, self.decimals, "columns")
        decided = {"few": self.columns.few, "alike": self.columns.alike}
        self.decided = {"decimals": list(self.decimals)} | {
            name: np.flatnonzero(mask).tolist() for name, mask in decided.items()
        }
        whys = {"few values": self.columns.few, "many labels alike": self.columns.alike,
                "named sensitive": self.columns.sensitive}  # fmt: skip
        self.protected = {
            name: ", ".join(why for why, mask in whys.items() if mask[j])
            for j, name in enumerate(self.names)
            if self.columns.protected[j]
        }

    @property
    def copies(self) -> list[str]:
        """A warning about columns that say nearly what others say, where there are any."""
        values = self.curves.values
        names = [self.names[j] for j in nearly_equal_columns(values, self.columns.few)] if len(values) else []
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return [f"Columns that say nearly what others say: {', '.join(names[:NAMED])}{more}. {COPIES}"] if names else []

    @property
    def doubts(self) -> list[str]:
        """Warnings about copies of columns, and about columns whose figures outgrew what their crowds hide."""
        grown, outgrown = ", ".join(self.names[j] for j in self.grown), ", ".join(self.outgrown)
        more = f"More than ten values by now in {grown}: one member may no longer make most of a row there."
        out = (
            f"Withheld in {outgrown}: figures have grown to several times what rounding and offset of a crowd hide, "
            "and both are permanent. They need new crowds: another folder with a ledger of its own, in "
            "place of this series."
        )
        return [*self.copies, *(text for text, names in ((more, grown), (out, outgrown)) if names)]

    def figures(self, stored: bytes, at: int) -> Units:
        """Return the figures (k,) of a label: those of today, or the last ones on record where it has none (at −1)."""
        last: Units = self.units[at] if at >= 0 else self.stored_figures([stored])[0]
        return last

    first_figures = figures  #: with which a label enters a new crowd

    def has_entered(self, stored: bytes, entered: bytes, at: int) -> bool:
        """Return whether a label's figures of today are those that entered its row."""
        return np.array_equal(self.units[at], np.frombuffer(stored, dtype=STORED))

    def is_another(self, stored: bytes, held: str, at: int) -> bool:
        """Return whether a label's figures of today differ from those on record, held columns aside."""
        here = ~np.isin(np.arange(len(self.names)), [int(j) for j in json.loads(held or "{}")])
        return at >= 0 and bool((self.units[at] != np.frombuffer(stored, dtype=STORED))[here].any())

    def likeness(self, at: IndexArray) -> FloatArray:
        """Return what crowds of some labels are alike in (n, d): their habits without the protected columns."""
        habits = self.curves.points[at]
        plain = np.tile(~self.columns.protected, habits.shape[1] // len(self.names))
        return habits[:, plain] if plain.any() else np.zeros((len(at), 1))

    def limits(self, at: IndexArray) -> Limits:
        """Return what crowds have to keep as they are formed: dominance and closeness to all labels."""
        return formation_limits(self.curves.values[at], self.columns, self.closeness, None, self.curves.values)

    def may_be_crowd(self, figures: Units) -> bool:
        """Return whether members with these figures (n, k) can be a crowd."""
        crowd = np.zeros(len(figures), dtype=np.int64)
        return bool(rules_hold(figures, crowd, self.columns, self.closeness, None, self.units, self.decimals).all())

    def failure_of_crowds(self, crowds: Sequence[IndexArray]) -> str | None:
        """Return why first crowds do not keep the rules, with the columns; None where they do."""
        at = np.concatenate(crowds)
        crowd = np.repeat(np.arange(len(crowds)), [len(one) for one in crowds])
        kept = rules_hold(self.units[at], crowd, self.columns, self.closeness, decimals=self.decimals)
        return None if kept.all() else explain_failed_rules(kept, self.columns, self.names)

    def begin_crowd(self, last: Units, everyone: Units, draw: Draw) -> TableCrowd:
        """Return a new crowd of members with these figures (n, k); ``everyone``: those of all labels."""
        values = everyone * 10.0 ** -np.array(self.decimals)
        return new_table_crowd(
            last,
            column_bases(values, self.columns, len(last), np.maximum(common_gaps(values), self._gaps)),
            self.decimals,
            draw,
        )

    def decode_crowd(self, kept: str, stored: Sequence[bytes], entered: Sequence[bytes]) -> TableCrowd:
        """Return a crowd from what the ledger keeps of it and of its members."""
        fixed = json.loads(kept)
        bases = tuple(map(Decimal, fixed["bases"]))
        return TableCrowd(bases, tuple(fixed["offsets"]), self.stored_figures(stored), tuple(fixed["decimals"]))

    def encode_crowd(self, crowd: TableCrowd, period: str) -> tuple[str, list[bytes], list[bytes]]:
        """Return what the ledger keeps of a crowd whose last row is about this period, and of its members."""
        kept = _pack_kept(crowd.bases, crowd.offsets, crowd.decimals, period, self.grown)
        return kept, [row.astype(STORED).tobytes() for row in crowd.last], [b""] * len(crowd.last)

    def make_rows(self, crowds: Sequence[TableCrowd], at: Sequence[IndexArray]) -> list[MadeRow]:
        """Return the rows of all crowds, figures that would break a rule withheld."""
        figures, present = [], []
        for places in at:
            here = places >= 0
            now = np.zeros((len(places), len(self.names)), dtype=np.int64)
            now[here] = self.units[places[here]]
            figures.append(now)
            present.append(np.repeat(here[:, None], len(self.names), axis=1))
        step = next_table_rows(crowds, figures, present, self.columns, self.closeness)
        self.outgrown = [self.names[j] for j in np.flatnonzero(step.outgrown.any(axis=0)).tolist()]
        return [
            MadeRow(row.tolist(), list(map(str, add_units(crowd.last))), held, crowd)
            for row, held, crowd in zip(step.rows, step.held, step.crowds, strict=True)
        ]


Rules = LoadRules | TableRules


def round_rows(rows: pl.DataFrame, kept: Mapping[int, tuple[int, str]], columns: Sequence[str]) -> pl.DataFrame:
    """Return rows under a method rounded and shifted: y -> b ⌊y/b + U/N⌋, with base and offset of their crowd.

    ``kept``: public number of a crowd -> its members and what the ledger keeps of it; ``columns``: the figures.
    """
    crowd, rounded = rows["crowd"].to_list(), {}
    for j, name in enumerate(columns):
        shifts: dict[int, tuple[Decimal, float]] = {}
        for number, (members, text) in kept.items():
            fixed = json.loads(text)
            at = min(j, len(fixed["bases"]) - 1)
            base = Decimal(fixed["bases"][at])
            shifts[number] = base, fixed["offsets"][at] / offset_count(base, members, fixed["decimals"][at])
        pairs = zip(rows[name].to_list(), (shifts[number] for number in crowd), strict=True)
        rounded[name] = [
            float(figures_of_multiples(np.array(math.floor(y / float(base) + shift)), base))
            for y, (base, shift) in pairs
        ]
    return rows.with_columns(pl.Series(name, figures, dtype=pl.Float64) for name, figures in rounded.items())


def redraw_row(kept: str, members: int, sums: Sequence[str], shown: Sequence[float]) -> list[float]:
    """Return a row for a rehearsal, with offsets that are thrown away; what is withheld stays so."""
    fixed = json.loads(kept)
    entries = len(sums) if len(fixed["bases"]) == 1 else 1
    row: list[float] = []
    for j, (base, places) in enumerate(zip(map(Decimal, fixed["bases"]), fixed["decimals"], strict=True)):
        window = offset_count(base, members, places)
        part = np.array([int(one) for one in sums[j * entries : (j + 1) * entries]], dtype=object)
        row += figures_of_multiples(round_sums(part, window, secrets.randbelow(window)), base).tolist()
    return [figure if np.isfinite(before) else before for figure, before in zip(row, shown, strict=True)]


def _pack_kept(
    bases: Sequence[Decimal], offsets: Sequence[int], decimals: Sequence[int], period: str, grown: Sequence[int] = ()
) -> str:
    """Return what the ledger keeps of a crowd, as JSON."""
    fixed = {"bases": [str(base) for base in bases], "offsets": list(offsets), "decimals": list(decimals)}
    return json.dumps(fixed | {"from": period} | ({"grown": list(grown)} if grown else {}), sort_keys=True)
