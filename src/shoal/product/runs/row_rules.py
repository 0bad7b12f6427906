"""The rules of a row (:mod:`shoal.crowds`) applied to what is on record: one object for meters, one for tables.

In the ledger ``kept`` of a crowd is JSON with bases, secret offsets, decimals of its unit, and the period of the last
row that was not withheld; a member has its last figures (``stored``) and, of meters, what entered the last row
(``entered``), as integers of that unit.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal.crowds.diversity import CLOSENESS
from shoal.crowds.formation import Limits
from shoal.crowds.loads import LARGEST, NANOWATTS, new_load_crowd, next_load_row
from shoal.crowds.membership import CrowdRules
from shoal.crowds.rules import (
    Draw,
    KeptFigures,
    NextRow,
    Units,
    add_units,
    figures_of_multiples,
    keeps_dominance,
    offset_count,
    to_units,
)
from shoal.crowds.tables import ColumnRoles, TableRules, nearly_equal_columns
from shoal.errors import InputError
from shoal.product.runs.config import Config
from shoal.product.runs.inputs import Curves
from shoal.product.sources.meters import clock
from shoal.rounding import count_of
from shoal.validation import FloatArray, IndexArray

#: Names in a warning, at most.
NAMED = 6
COPIES = (
    "Rounding hides a figure column by column: to someone who knows the other members, 4 copies of a column show a "
    "constant figure to 0.21 of a usual one, 24 copies to 0.10 (one column: 0.5). Leave copies out."
)
#: Said to the owner where a base hides too little by now.
OUTGROWN = (
    "Withheld in {} have grown to several times what rounding and offset of a crowd hide, and both are permanent. They "
    "need new crowds: another folder with a ledger of its own, in place of this series."
)
#: What a figure is stored as, in units.
STORED = np.dtype("<i8")


def decode_figures(kept: str, stored: Sequence[bytes], entered: Sequence[bytes]) -> KeptFigures:
    """Return what the ledger keeps of a crowd and of its members, without instants."""
    fixed = {"bases": [], "offsets": [], "decimals": []} | json.loads(kept or "{}")
    last, row = (
        np.array([np.frombuffer(one, dtype=STORED) for one in of_all]).astype(np.int64) for of_all in (stored, entered)
    )
    bases, offsets, decimals = map(Decimal, fixed["bases"]), fixed["offsets"], fixed["decimals"]
    return KeptFigures(tuple(bases), tuple(offsets), tuple(decimals), last, entered=row if row.size else None)


class RowRules(CrowdRules):
    """The rules of rows under a method, none but a base where rows are rounded; and what all rules have in common.

    ``stored`` is what the ledger keeps of each label, and ``at`` where it stands today, −1 where it is not there.
    """

    units: NDArray[Any]
    usual: NDArray[Any]

    def __init__(self, curves: Curves, share: float | None = None, rounding: RowRules | None = None) -> None:
        super().__init__(curves.values, curves.points, share)
        self.curves, self._rounding = curves, rounding
        #: (n, k) figures of today and (n, steps of a day or columns) what new crowds begin with; averages: whole units
        self.units = curves.values
        self.usual = curves.frame["stored"].to_numpy() if rounding is None else rounding.usual
        self.decided: dict[str, Any] = {}  #: by the first release, for the life of all crowds
        self.grown: list[int] = [] if rounding is None else rounding.grown  #: columns that were few-valued at first
        self.protected: dict[str, str] = {}  #: column that crowds are not alike in -> why

    def doubts(self, made: Sequence[NextRow] = ()) -> list[str]:
        """Return warnings to the owner about columns, and about the rows that were made."""
        return []

    def figures(self, stored: Sequence[bytes], at: IndexArray) -> NDArray[Any]:
        """Return the figures (n, k) of labels: those of today, or the last ones where they have none."""
        return np.where(at[:, None] >= 0, self.units[at], 0)

    def first_figures(self, stored: Sequence[bytes], at: IndexArray) -> NDArray[Any]:
        """Return what labels enter a new crowd with."""
        return np.where(at[:, None] >= 0, self.usual[at], 0)

    def has_entered(self, last: bytes, at: int) -> bool:
        """Return whether a label's figures of today are those of its ``last`` row, where these are known."""
        return at >= 0 and (not last or np.array_equal(self.units[at], np.frombuffer(last, dtype=STORED)))

    def is_another(self, stored: bytes, held: str, at: int) -> bool:
        """Return whether a label's figures of today differ from those on record for the same period."""
        return False

    def begin_crowd(self, last: Units, everyone: Units, draw: Draw) -> KeptFigures:
        """Return a new crowd of members with these first figures (n, k); ``everyone``: those of all members."""
        if self._rounding is None:
            return KeptFigures((), (), (), last[:, :0])
        return replace(self._rounding.begin_crowd(last, everyone, draw), last=last[:, :0])

    def next_rows(self, crowds: Sequence[KeptFigures], at: Sequence[IndexArray]) -> list[NextRow]:
        """Return the rows of all crowds; ``at``: where their members stand today, −1 for those who are not there."""
        none = np.zeros(0, dtype=np.bool_)
        return [NextRow(np.zeros(0), one.last, np.zeros(len(one.last), dtype=np.bool_), one, none) for one in crowds]

    decode_crowd = staticmethod(decode_figures)

    def encode_crowd(self, crowd: KeptFigures, period: str) -> tuple[str, Sequence[bytes], Sequence[bytes]]:
        """Return what the ledger keeps of a crowd whose last row is about this period, and of each of its members."""
        fixed = {"bases": list(map(str, crowd.bases)), "offsets": crowd.offsets, "decimals": crowd.decimals}
        fixed |= {"from": period} | ({"grown": self.grown} if self.grown else {})
        rows = crowd.last, crowd.last[:, :0] if crowd.entered is None else crowd.entered
        stored, entered = ([one.astype(STORED).tobytes() for one in of_all] for of_all in rows)
        return json.dumps(fixed, sort_keys=True) if crowd.bases else "", stored, entered


class LoadRules(RowRules):
    """The rules of rows of meters: one base and one offset per crowd, members held as a whole."""

    def __init__(self, curves: Curves, share: float | None, setting: Mapping[str, Any], period: str) -> None:
        super().__init__(curves, share)
        assert curves.ahead is not None
        self.phases = np.array(curves.ahead)
        self.step, self.period = timedelta(minutes=float(setting["step_minutes"])), period
        if len(curves.frame) and np.abs(curves.values).max() > LARGEST:
            raise InputError("readings: some forecasts are beyond 2 GW; give the unit of the readings (unit=)")
        self.units = to_units(curves.values, NANOWATTS)
        self.usual = to_units(self.usual, NANOWATTS)

    def doubts(self, made: Sequence[NextRow] = ()) -> list[str]:
        withheld = sum(bool(step.outgrown.any()) for step in made)
        return [OUTGROWN.format(f"the rows of {count_of(withheld, 'crowd')}: loads")] if withheld else []

    def first_figures(self, stored: Sequence[bytes], at: IndexArray) -> Units:
        """Return the usual days with which labels enter a new crowd: those on record, else those of today."""
        pairs = zip(stored, at.tolist(), strict=True)
        days = [np.frombuffer(own, dtype=STORED) if own else self.usual[i] for own, i in pairs]
        return np.array(days, dtype=np.int64).reshape(len(at), self.usual.shape[1])

    def figures(self, stored: Sequence[bytes], at: IndexArray) -> Units:
        return np.where(at[:, None] >= 0, self.units[at], self.first_figures(stored, at)[:, self.phases])

    def limits(self, at: IndexArray, everyone: Units | None = None) -> Limits:
        """Return what crowds have to keep as they are formed: no home dominates the load over the horizon."""
        total = np.abs(self.units[at]).astype(np.float64).sum(axis=1, keepdims=True)
        share = np.array([1.0 if self.largest_share is None else self.largest_share])
        return Limits(total, share, np.ones(1, dtype=np.bool_), np.zeros((len(at), 0)))

    def may_be_crowd(self, figures: Units, everyone: Units) -> bool:
        """Return whether members with these loads (n, k) can be a crowd: none dominates their sum."""
        return bool(keeps_dominance(add_units(np.abs(figures), 1), self.largest_share))

    def failure_of_crowds(self, crowds: Sequence[IndexArray]) -> str | None:
        bad = [at for at in crowds if not self.may_be_crowd(self.units[at], self.units)]
        if not bad:
            return None
        loads = np.abs(self.curves.values).sum(axis=1)
        names = sorted(self.curves.labels[at[int(np.argmax(loads[at]))]] for at in bad)
        return (
            "rules of a row: no crowds were found that keep them: one home makes most of its row over the horizon "
            f"(dominance, {len(bad)} of {len(crowds)} rows): {', '.join(names[:5])}. Ways out: a larger crowd; leave "
            "the label out; or the promise about the readings, which has no crowds. Nothing was released"
        )

    def begin_crowd(self, last: Units, everyone: Units, draw: Draw) -> KeptFigures:
        return new_load_crowd(last, Fraction(int(add_units(np.abs(everyone).ravel())), max(everyone.size, 1)), draw)

    def decode_crowd(self, kept: str, stored: Sequence[bytes], entered: Sequence[bytes]) -> KeptFigures:
        crowd = decode_figures(kept, stored, entered)
        if crowd.entered is None:
            return crowd
        return replace(crowd, instants=self._instants(json.loads(kept)["from"], crowd.entered.shape[1]))

    def next_rows(self, crowds: Sequence[KeptFigures], at: Sequence[IndexArray]) -> list[NextRow]:
        instants = self._instants(self.period, len(self.phases))
        return [
            next_load_row(crowd, self.units[places], places >= 0, instants, self.phases, self.largest_share)
            for crowd, places in zip(crowds, at, strict=True)
        ]

    def _instants(self, period: str, number: int) -> tuple[int, ...]:
        """Return the microseconds since 1970 of the entries of a row from a period on."""
        start, step = clock.microseconds_of(datetime.fromisoformat(period)), self.step // clock.MICROSECOND
        return tuple(range(start, start + step * number, step))


class RecordedTableRules(TableRules, RowRules):
    """The rules of rows of a table, with what the ledger keeps; members are held column by column."""

    names: Sequence[str]

    def __init__(
        self, curves: Curves, setting: Mapping[str, Any], sensitive: Sequence[str], closeness: float | None,
        grown: Sequence[int] = (),
    ) -> None:  # fmt: skip
        RowRules.__init__(self, curves)
        self.names = list(setting["columns"])
        every, named = np.arange(len(self.names)), np.isin(self.names, list(sensitive))
        was_few, roles = np.isin(every, setting.get("few", ())), None
        if "few" in setting:  # decided by the first release
            more = np.isin(every, grown)
            roles = ColumnRoles(was_few & ~more, np.isin(every, setting["alike"]) | more, named)
        TableRules.__init__(
            self,
            curves.values,
            int(setting["m"]),
            curves.boundaries,
            roles=roles,
            decimals=setting.get("decimals") or (),
            sensitive=np.flatnonzero(named).tolist(),
            closeness=CLOSENESS if closeness is None else closeness,
            what="columns",
        )
        self.usual = self.units
        self.grown = np.flatnonzero(was_few & ~self.columns.few).tolist()
        few, alike = (np.flatnonzero(mask).tolist() for mask in (self.columns.few, self.columns.alike))
        self.decided = {"decimals": list(self.decimals), "few": few, "alike": alike}
        whys = {"few values": self.columns.few, "many labels alike": self.columns.alike,
                "named sensitive": self.columns.sensitive}  # fmt: skip
        self.protected = {
            name: ", ".join(why for why, mask in whys.items() if mask[j])
            for j, name in enumerate(self.names)
            if self.columns.protected[j]
        }

    def doubts(self, made: Sequence[NextRow] = ()) -> list[str]:
        copies = [self.names[j] for j in nearly_equal_columns(self.values, self.columns.few)]
        more = f" and {len(copies) - NAMED} more" if len(copies) > NAMED else ""
        outgrown = np.flatnonzero(np.any([step.outgrown for step in made], axis=0)).tolist()
        grown, withheld = (", ".join(self.names[j] for j in at) for at in (self.grown, outgrown))
        texts = (
            (copies, f"Columns that say nearly what others say: {', '.join(copies[:NAMED])}{more}. {COPIES}"),
            (grown, f"More than ten values by now in {grown}: one member may no longer make most of a row there."),
            (withheld, OUTGROWN.format(f"{withheld}: figures")),
        )
        return [text for names, text in texts if names]

    def figures(self, stored: Sequence[bytes], at: IndexArray) -> Units:
        width = len(self.names)
        last = np.frombuffer(b"".join(own or bytes(STORED.itemsize * width) for own in stored), dtype=STORED)
        return self.figures_or_last(at, last.reshape(len(at), width))

    first_figures = figures

    def is_another(self, stored: bytes, held: str, at: int) -> bool:
        """Return whether a label's figures of today differ from those on record, held columns aside."""
        here = ~np.isin(np.arange(len(self.names)), [int(j) for j in json.loads(held or "{}")])
        return at >= 0 and bool((self.units[at] != np.frombuffer(stored, dtype=STORED))[here].any())

    def likeness(self, at: IndexArray) -> FloatArray:
        """Return what crowds of some labels are alike in (n, d): their habits without the protected columns."""
        habits = self.curves.points[at]
        plain = np.tile(~self.columns.protected, habits.shape[1] // len(self.names))
        return habits[:, plain] if plain.any() else np.zeros((len(at), 1))


def row_rules_of(
    settings: Config, curves: Curves, setting: Mapping[str, Any], period: str, grown: Sequence[int] = ()
) -> RowRules:
    """Return the rules of the rows of a release; those of averages where its rows are means.

    Rows of constants under a method are only rounded, and draws of a law not even that.
    """
    means = setting["release"] == "mean"
    rules: RowRules | None = None
    if setting["kind"] == "forecast" and settings.query == "point" and len(curves.frame):
        rules = LoadRules(curves, settings.largest_share, setting, period)
    elif setting["kind"] == "table" and (means or setting.get("constants")) and len(curves.frame):
        rules = RecordedTableRules(curves, setting, settings.sensitive, settings.closeness, grown)
    return rules if means and rules is not None else RowRules(curves, settings.largest_share, rules)


def round_rows(rows: pl.DataFrame, kept: Mapping[int, tuple[int, str]], columns: Sequence[str]) -> pl.DataFrame:
    """Return rows under a method rounded and shifted: y -> b ⌊y/b + U/N⌋, with base and offset of their crowd.

    ``kept``: public number of a crowd -> its members and what the ledger keeps of it; ``columns``: the figures.
    """
    crowds = {number: (members, json.loads(text)) for number, (members, text) in kept.items()}
    rounded = list[pl.Series]()
    for j, name in enumerate(columns):
        figures = list[float]()
        for y, number in zip(rows[name].to_list(), rows["crowd"].to_list(), strict=True):
            members, fixed = crowds[number]
            at = min(j, len(fixed["bases"]) - 1)
            base = Decimal(fixed["bases"][at])
            shift = fixed["offsets"][at] / offset_count(base, members, fixed["decimals"][at])
            figures.append(float(figures_of_multiples(np.array(math.floor(y / float(base) + shift)), base)))
        rounded.append(pl.Series(name, figures, dtype=pl.Float64))
    return rows.with_columns(rounded)


def redraw_row(crowd: KeptFigures, shown: Sequence[float]) -> list[float]:
    """Return the row of a crowd for a rehearsal, with offsets that are thrown away; what is withheld stays so."""
    other = replace(crowd, offsets=tuple(map(secrets.randbelow, crowd.offset_counts)))
    row = other.round_row(crowd.last if crowd.entered is None else crowd.entered)
    return [figure if np.isfinite(before) else before for figure, before in zip(row.tolist(), shown, strict=True)]
