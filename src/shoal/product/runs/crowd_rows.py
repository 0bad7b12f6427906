"""Rows of crowds: made by the rules of crowds for life (:mod:`shoal.crowds.membership`), stored, and recorded.

:class:`CrowdPlan` makes members and rows, and :class:`CrowdTables` are their two files. A release draws the number of
each new crowd and records everything in one transaction. Until then a new crowd has a negative number.

| file | holds |
| --- | --- |
| crowds.parquet | label, crowd, value and truth today, what the ledger keeps, own, changed, waits: the owner's |
| rows.parquet | crowd, members, values, kept (the secret offset in it), retired: the row of each crowd |
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shoal.crowds.membership import admit_newcomers, can_have_figures
from shoal.crowds.publish import draw_permutation as shuffle
from shoal.errors import InputError, LedgerError
from shoal.product.runs.config import Config
from shoal.product.runs.inputs import Curves, input_of
from shoal.product.runs.owner_ledger import Book, row_values
from shoal.product.runs.row_rules import row_rules_of
from shoal.validation import IndexArray

if TYPE_CHECKING:
    from shoal.product.card.facts import FitFacts
    from shoal.product.ledger.ledger import Ledger
    from shoal.product.runs.folder import Folder
    from shoal.product.runs.stage_work import Work

CROWDS, ROWS = "crowds.parquet", "rows.parquet"
#: Where what is drawn, numbers of new crowds and the order of rows, is written before it is used: an interrupted
#: release goes on with it.
NUMBERS = "numbers.json"
#: Days without figures after which a member counts as one that cannot have any more.
GONE = 30.0

OTHER_FIGURES = (
    "period: rows about these labels are on record for {}, made of other figures than those given now. Give the period "
    "that these are about (period='2024-03'), later than the last; a table about others of the same names "
    "belongs into another ledger (ledger=). Nothing was released"
)
WAITS = "new: it waits until enough newcomers are there to form crowds of their own"
FEW = "fewer than a crowd share its boundary: nothing would hide it"
REST = "its crowd was retired: its rest waits, together, for a new one"
LATE = "its crowd was retired while it was silent: nothing is released about it any more"
STALE = (
    "ledger: another release about the same labels was recorded while this one was made. Nothing was recorded; run "
    "again to continue from what is on record now"
)


@dataclass(frozen=True)
class CrowdTables:
    """Members of crowds, and the row of each crowd."""

    members: pl.DataFrame
    rows: pl.DataFrame

    @classmethod
    def load(cls, folder: Folder) -> CrowdTables:
        """Read both tables from the folder of a run."""
        return cls(pl.read_parquet(folder / CROWDS), pl.read_parquet(folder / ROWS))

    def write(self, folder: Folder) -> None:
        """Write both tables into the folder of a run."""
        folder.write(CROWDS, lambda path: self.members.write_parquet(path))
        folder.write(ROWS, lambda path: self.rows.write_parquet(path))

    @property
    def lasting_rows(self) -> pl.DataFrame:
        """The rows of the crowds that are not retired."""
        return self.rows.filter(~pl.col("retired"))

    def members_with_rows(self) -> pl.DataFrame:
        """Return members with a figure today beside the row of their crowd, where no figure of it is withheld."""
        table = self.lasting_rows.select("crowd", "members", row="values")
        known = self.members.filter(pl.col("value").is_not_null() & ~pl.col("waits"))
        whole = ~pl.col("row").list.eval(pl.element().is_nan()).list.any()
        both = known.join(table, on="crowd", how="inner").filter(whole).sort("label")
        width = both.schema["value"].shape[0] if len(both) else 0  # type: ignore[attr-defined]
        return both.filter(pl.col("row").list.len() == width)


def crowd_setting(work: Work, settings: Config, fit: FitFacts, columns: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the part of the settings that is fixed for a crowd's life, but for what the first release decides."""
    boundaries = (settings.boundaries or "").rpartition(":")[2] or None
    common = {"m": settings.crowd, "boundaries": boundaries} | work.kind.crowd_terms(settings, fit)
    return common | work.input.setting(settings, fit, columns)


@dataclass
class PlannedMember:
    """A label in a crowd: what is recorded of it, and where it stands in today's curves (−1: it has none)."""

    crowd: int
    stored: bytes = b""  #: last figures by time of day, or of the columns
    last: str = ""  #: period of the last release for which it had figures
    block: int | None = None
    entered: bytes = b""  #: what entered the last row, of meters
    held: str = ""  #: since which period an older figure enters, in JSON of a table column by column
    at: int = -1
    changed: bool = False
    own: bool = False  #: its own figures of today are in the row


@dataclass
class PlannedRow:
    """The row of a crowd for this release; figures that are withheld are NaN."""

    crowd: int
    members: int
    values: list[float]
    kept: str  #: bases, secret offsets, decimals
    answered: bool = False  #: the members promised have figures today
    recorded: bool = False  #: it was released before for this period, from this folder or another
    retired: bool = False


class CrowdPlan:
    """Crowds with their members and rows: the rules of crowds for life, applied to today's figures."""

    def __init__(self, settings: Config, curves: Curves, book: Book, period: str, setting: dict[str, Any]) -> None:
        lasting = book.lasting_setting(setting)
        book.refuse_earlier(period)
        self.period, self.m = period, int(lasting["m"])
        self.rows: list[PlannedRow] = []
        self.waiting: dict[str, str] = {}  #: label -> why it has no row
        self._settings, self._curves, self._book, self._is_first = settings, curves, book, book.is_first(lasting)
        grown = {j for entry in book.lasting_crowds for j in json.loads(entry["kept"] or "{}").get("grown", ())}
        self.rules = row_rules_of(settings, curves, lasting, period, sorted(grown))
        self.setting = json.dumps(lasting | self.rules.decided, sort_keys=True)
        self._place = {name: i for i, name in enumerate(curves.labels)}
        self.members = {
            name: PlannedMember(at=self._place.get(name, -1), **entry)
            for name, entry in book.members.items()
            if not book.crowds[entry["crowd"]]["retired"] or entry["block"] == entry["crowd"]
        }
        self._begun: dict[int, tuple[list[str], Any]] = {}  #: new crowd -> its members, in the order of its figures
        self._retire_small_crowds()
        self._place_newcomers()
        self._make_rows()
        self.rows.sort(key=lambda row: (row.retired, row.crowd))

    def _by_crowd(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Return crowd -> those of the names that are its members."""
        crowds: dict[int, list[str]] = defaultdict(list)
        for name in names:
            crowds[self.members[name].crowd].append(name)
        return crowds

    def _retire_small_crowds(self) -> None:
        """Retire crowds of which fewer than m can still have figures; those who can stay together, and wait."""
        for number, names in self._by_crowd(self.members).items():
            entry = self._book.crowds[number]
            if entry["retired"] or entry["period"] >= self.period:
                continue
            # Who had figures at the crowd's last release, or not long ago, can still have some.
            left = {
                name
                for name in names
                if self.members[name].last == entry["period"]
                or can_have_figures(self.members[name].last, self.period, self.members[name].at >= 0, GONE)
            }
            if len(left) >= self.m:
                continue
            row = row_values(entry["row"])
            self.rows.append(PlannedRow(number, entry["members"], row, entry["kept"], retired=True))
            for name in names:
                if name in left:
                    self.members[name].block, self.members[name].changed = number, True
                else:
                    del self.members[name]

    def _place_newcomers(self) -> None:
        """Form crowds of those who have none: by likeness where the ledger has no crowd yet, else by lot, once enough.

        Rests of retired crowds enter them as blocks.
        """
        without = [name for name in self._place if name not in self.members]
        self.waiting = {name: LATE for name in without if name in self._book.members}
        newcomers = {name: self._place[name] for name in without if name not in self.waiting}
        blocks = self._by_crowd(name for name, member in self.members.items() if member.block == member.crowd)
        inside = [name for name, member in self.members.items() if member.block != member.crowd]
        first, walls = self._is_first, self._curves.boundaries
        ordered, waits = admit_newcomers(
            self.rules,
            newcomers,
            self.m,
            draw_offset,
            None if first else shuffle,
            members=inside,
            rests=blocks,
            figures=lambda names: self.rules.figures(*self._record_of(names)),
            boundaries=None if walls is None else dict(zip(self._place, walls.tolist(), strict=True)),
        )
        ordered.sort(key=lambda names: sorted(self._first_figures(names).tolist()))  # by the whole day, of homes
        if first and not ordered:
            raise InputError(too_few_message(self.m, self._curves, input_of(self._settings).several))
        self.waiting |= dict.fromkeys(newcomers, FEW if first else WAITS)
        self.waiting |= {name: REST for block in waits for name in blocks[block]}
        for i, names in enumerate(ordered):
            for name in names:
                self.waiting.pop(name, None)
                member = self.members.setdefault(name, PlannedMember(0, at=self._place.get(name, -1)))
                member.crowd, member.changed = -1 - i, True
        if ordered:
            everyone = self._first_figures([*inside, *(name for names in ordered for name in names)])
            for i, names in enumerate(ordered):
                self._begun[-1 - i] = names, self.rules.begin_crowd(self._first_figures(names), everyone, draw_offset)

    def _first_figures(self, names: Sequence[str]) -> Any:
        """Return what labels enter a new crowd with: usual days (n, steps of a day), or figures (n, k)."""
        return self.rules.first_figures(*self._record_of(names))

    def _record_of(self, names: Sequence[str]) -> tuple[list[bytes], IndexArray]:
        """Return the last figures of labels on record, and where they stand in today's curves."""
        stored = [self.members[name].stored if name in self.members else b"" for name in names]
        return stored, np.array([self._place.get(name, -1) for name in names], dtype=np.intp)

    def _make_rows(self) -> None:
        """Make the rows of all crowds; members remember what of theirs entered."""
        inside = self._by_crowd(name for name in self.members if name not in self.waiting)
        inside |= {number: names for number, (names, _) in self._begun.items()}
        rules, crowds = self.rules, list[Any]()
        for number, names in inside.items():
            if number in self._begun:
                crowds.append(self._begun[number][1])
            else:
                every = [self.members[name] for name in names]
                last = [member.stored for member in every], [member.entered for member in every]
                crowds.append(rules.decode_crowd(self._book.crowds[number]["kept"], *last))
        places = [self._record_of(names)[1] for names in inside.values()]
        made = rules.next_rows(crowds, places)
        self.doubts = rules.doubts(made)  #: for the owner
        for (number, names), at, step in zip(inside.items(), places, made, strict=True):
            entry, members = self._book.crowds.get(number, {}), [self.members[name] for name in names]
            if entry.get("period") == self.period:
                if sum(rules.is_another(one.stored, one.held, one.at) for one in members) >= self.m:
                    raise InputError(OTHER_FIGURES.format(self.period))
                row = row_values(entry["row"])
                planned = PlannedRow(number, entry["members"], row, entry["kept"], bool(row), recorded=True)
            else:
                shown = not np.isnan(step.row).all()
                last_shown = self.period if shown else json.loads(entry.get("kept") or "{}").get("from", "")
                kept, *figures = rules.encode_crowd(step.crowd, last_shown)
                for member, stored, entered, held in zip(members, *figures, step.held, strict=True):
                    if member.at >= 0:
                        member.last = self.period
                    member.stored, member.entered, member.changed = stored, entered, True
                    member.held = _held_since(member.held, held, self.period)
                answered = int((at >= 0).sum()) >= self.m
                planned = PlannedRow(number, len(names), step.row.tolist(), kept, answered)
            self.rows.append(planned)
            for member in members:
                member.own = rules.has_entered(member.entered or member.stored, member.at)

    def tables(self, everybody: Iterable[str]) -> CrowdTables:
        """Return members and rows as tables; a label without a place is among the members, and waits."""
        kinds: dict[str, Any] = {
            "label": pl.String, "crowd": pl.Int64, "stored": pl.Binary, "last": pl.String, "block": pl.Int64,
            "entered": pl.Binary, "held": pl.String, "at": pl.Int64, "changed": pl.Boolean, "own": pl.Boolean,
            "waits": pl.Boolean,
        }  # fmt: skip
        members = [
            (name, *vars(self.members.get(name, PlannedMember(0))).values(),
             name in self.waiting or name not in self.members)
            for name in sorted({*self.members, *everybody})
        ]  # fmt: skip
        frame = pl.DataFrame(members, schema=kinds, orient="row")
        at = frame["at"].set(frame["at"] < 0, None)
        known = {name: self._curves.frame[name].gather(at) for name in ("value", "truth")}
        columns: dict[str, Any] = {
            "crowd": pl.Int64, "members": pl.Int64, "values": pl.List(pl.Float64), "kept": pl.String,
            "answered": pl.Boolean, "recorded": pl.Boolean, "retired": pl.Boolean,
        }  # fmt: skip
        rows = pl.DataFrame([vars(row) for row in self.rows], schema=columns)
        return CrowdTables(frame.drop("at").with_columns(**known), rows)


def _held_since(before: str, held: Any, period: str) -> str:
    """Return since when a member is held, as text: a period, or in JSON one for each column; empty where it is not."""
    if np.ndim(held) == 0:
        return (before or period) if held else ""
    known = json.loads(before) if before else {}
    since = {str(j): known.get(str(j), period) for j in np.flatnonzero(held).tolist()}
    return json.dumps(since, sort_keys=True) if since else ""


def too_few_message(m: int, curves: Curves, noun: str) -> str:
    """Return why no crowd of m can be formed, and the size that would work."""
    where, wider = f"{curves.largest_crowd} {noun} can be used", ""
    if curves.boundaries is not None:
        where, wider = f"at most {curves.largest_crowd} {noun} share a boundary", " or wider boundaries"
    remedy = f"crowd={curves.largest_crowd} would work, or" if curves.largest_crowd >= 2 else "one label has no crowd:"
    return (
        f"crowd: {where}, and a crowd of {m} needs {m}; {remedy} have more of them{wider}. `shoal check` says who "
        "cannot be used, and why. Nothing was released"
    )


def draw_offset(n: int) -> int:
    """Return a secret offset below n, from the cryptographic source."""
    return secrets.randbelow(n)


def public_crowd_numbers(work: Work, ledger: Ledger | None) -> tuple[dict[int, int], bytes]:
    """Return new crowd -> its public number, and the key of the order of rows: as the folder has them, or drawn now.

    Without a ledger, in a rehearsal, numbers are 1, 2, 3 and mean nothing.
    """
    fresh = sorted((number for number in work.tables.rows["crowd"].to_list() if number < 0), reverse=True)
    if ledger is None:
        return {number: i + 1 for i, number in enumerate(fresh)}, b""
    path: Path = work.folder / NUMBERS
    known: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    if known.get("release") != work.release_name or len(known.get("numbers", ())) != len(fresh):
        drawn = ledger.draw_crowd_numbers(len(fresh)) if fresh else []
        known = {"release": work.release_name, "numbers": drawn, "order": secrets.token_hex(32)}
        work.folder.write_content(NUMBERS, json.dumps(known))
    return dict(zip(fresh, known["numbers"], strict=True)), bytes.fromhex(known["order"])


def record_rows(
    work: Work, numbers: Mapping[int, int], table_digest: str, book: Book | None = None, *, with_figures: bool
) -> None:
    """Record the crowds of this release in the ledger, once; nothing happens where all of it is on record.

    ``book``: what is on record about their members, where it was read already;
    ``with_figures``: the rows are what is released, and are recorded too.
    """
    ledger, plan, tables = work.ledger, work.facts.plan, work.tables
    if ledger.recorded_crowds(work.release_name) is not None:
        return
    members, lines = tables.members, tables.rows.filter(~pl.col("recorded"))
    if not len(lines):
        return
    book = Book.read(ledger, members["label"].to_list()) if book is None else book
    if book.digest != plan.book:
        raise LedgerError(STALE)

    crowds = []
    for line in lines.drop("answered", "recorded").to_dicts():
        row = np.array(line.pop("values"), dtype="<f8")
        known = book.crowds.get(line["crowd"], {"setting": plan.setting})
        line |= {"crowd": numbers.get(line["crowd"], line["crowd"]), "setting": known["setting"]}
        last = known if line["retired"] else {"period": plan.period, "row": row.tobytes() if with_figures else b""}
        crowds.append(line | {"period": last["period"], "row": last["row"]})
    try:
        ledger.record_crowds(
            work.release_name,
            book_digest=book.ledger_digest,
            members=members.filter("changed").select(
                "label", pl.col("crowd").replace(numbers), "stored", "last", "block", "entered", "held"
            ),
            crowds=pl.DataFrame(crowds),
            table_digest=table_digest,
            facts={
                "members": int(lines["members"].sum()),
                "crowds": len(lines),
                "period": plan.period,
                "folder": work.path.resolve().name,
            },
        )
    except LedgerError as error:
        if error.reason == "stale":
            raise LedgerError(STALE) from None
        raise
