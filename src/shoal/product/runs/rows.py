"""Rows of crowds: made by the rules of crowds for life (:mod:`shoal.crowds.membership`), stored, and recorded.

Labels with a crowd on record in the ledger stay in it. A population of which no label is on record is formed anew, by
likeness; newcomers beside crowds that exist wait, and are divided by lot. :class:`Plan` makes members and rows,
:class:`CrowdTables` are their two files, and a release draws the public number of each new crowd and records
everything in one transaction. Until then a new crowd has a negative number.

| file | holds |
| --- | --- |
| crowds.parquet | label, crowd, value and truth today, stored, last, block, news, changed, waits: the owner's |
| rows.parquet | crowd, members, news, values, retired, changed: the row of each crowd for this release |
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

from shoal.crowds.membership import can_have_news, crowd_row, form_crowds, value_digest, with_blocks
from shoal.errors import InputError, LedgerError
from shoal.product.ledger.ledger import Ledger
from shoal.product.runs.book import EARLIER, Book, row_values
from shoal.product.runs.config import Config
from shoal.product.runs.curves import Curves
from shoal.product.runs.inputs import input_of

if TYPE_CHECKING:
    from shoal.product.card.facts import FitFacts
    from shoal.product.runs.folder import Folder
    from shoal.product.runs.work import Work

CROWDS, ROWS = "crowds.parquet", "rows.parquet"
#: Where what is drawn, numbers of new crowds and the order of rows, is written before it is used: an interrupted
#: release goes on with it.
NUMBERS = "numbers.json"
#: Days without news after which a member counts as one that cannot have any more.
GONE = 30.0
#: Decimals of kW that mean something: watts.
WATTS = 3

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
    "ledger: somebody else released about the same labels while this release was made. Nothing was recorded; run "
    "again, and it goes on from what is on record now"
)


@dataclass(frozen=True)
class CrowdTables:
    """Members of crowds, and the row of each crowd."""

    members: pl.DataFrame
    rows: pl.DataFrame

    @classmethod
    def load(cls, folder: Folder) -> CrowdTables:
        """From the folder of a run."""
        return cls(pl.read_parquet(folder / CROWDS), pl.read_parquet(folder / ROWS))

    def write(self, folder: Folder) -> None:
        """Into the folder of a run."""
        folder.write(CROWDS, lambda path: self.members.write_parquet(path))
        folder.write(ROWS, lambda path: self.rows.write_parquet(path))

    @property
    def lasting(self) -> pl.DataFrame:
        """The rows of the crowds that are not retired."""
        return self.rows.filter(~pl.col("retired"))

    def with_rows(self) -> pl.DataFrame:
        """Members with a figure today and the row of their crowd."""
        table = self.lasting.select("crowd", "members", row="values")
        known = self.members.filter(pl.col("value").is_not_null() & ~pl.col("waits"))
        both = known.join(table, on="crowd", how="inner").sort("label")
        width = both.schema["value"].shape[0] if len(both) else 0  # type: ignore[attr-defined]
        return both.filter(pl.col("row").list.len() == width)


# ------------------------------------------------------------------ made


def crowd_setting(
    work: Work, settings: Config, fit: FitFacts, columns: tuple[str, ...] = (), curves: Curves | None = None
) -> dict[str, Any]:
    """The part of the settings that is fixed for a crowd's life; without ``curves``, but for decimals of a table."""
    boundaries = (settings.boundaries or "").rpartition(":")[2] or None
    common = {"m": settings.crowd, "release": work.kind.method(settings), "boundaries": boundaries}
    return common | work.input.setting(settings, fit, columns, curves)


@dataclass
class PlannedMember:
    """A label in a crowd: where it stands in today's curves (−1: it has none), and what is recorded of it."""

    crowd: int
    stored: bytes = b""
    last: str = ""
    block: int | None = None
    at: int = -1
    changed: bool = False
    news: bool = False


@dataclass
class PlannedRow:
    """The row of a crowd for this release."""

    crowd: int
    members: int
    news: bool
    values: list[float]
    recorded: bool = False  #: it was released before for this period, from this folder or another
    retired: bool = False


class Plan:
    """Crowds with their members and rows: the rules of crowds for life, applied to today's values."""

    def __init__(self, settings: Config, curves: Curves, book: Book, period: str, setting: dict[str, Any]) -> None:
        lasting = book.lasting_setting(setting)
        self.setting = json.dumps(lasting, sort_keys=True)
        self.period, self.m, self.share = period, int(lasting["m"]), settings.largest_share
        self.rows: list[PlannedRow] = []
        self.waiting: dict[str, str] = {}  #: label -> why it has no row
        self._curves, self._book, self._values, self._settings = curves, book, curves.values, settings
        self._place = {name: i for i, name in enumerate(curves.labels)}
        self._decimals = lasting.get("decimals") or [WATTS] * self._values.shape[1]
        self.members = {
            name: PlannedMember(at=self._place.get(name, -1), **entry)
            for name, entry in book.members.items()
            if not book.crowds[entry["crowd"]]["retired"] or entry["block"] == entry["crowd"]
        }
        self._retire()
        self._admit()
        for number, names in self._by_crowd(name for name in self.members if name not in self.waiting).items():
            self.rows.append(self._row(number, [self.members[name] for name in names]))
        self._renumber()

    def _by_crowd(self, names: Iterable[str]) -> dict[int, list[str]]:
        crowds: dict[int, list[str]] = defaultdict(list)
        for name in names:
            crowds[self.members[name].crowd].append(name)
        return crowds

    def _retire(self) -> None:
        """Crowds of which fewer than m can still have news end; who can of them stays together and waits."""
        for number, names in self._by_crowd(self.members).items():
            entry = self._book.crowds[number]
            if entry["retired"] or entry["period"] >= self.period:
                continue
            # Who had news at the crowd's last release, or not long ago, can still have some.
            last = {name: self.members[name].last.partition(" ")[0] for name in names}
            left = {
                name
                for name in names
                if last[name] == entry["period"]
                or can_have_news(last[name], self.period, self.members[name].at >= 0, GONE)
            }
            if len(left) >= self.m:
                continue
            self.rows.append(PlannedRow(number, entry["members"], False, row_values(entry["row"]), retired=True))
            for name in names:
                if name in left:
                    self.members[name].block, self.members[name].changed = number, True
                else:
                    del self.members[name]

    def _admit(self) -> None:
        """Crowds of those who have none: by likeness where nobody has one, else by lot once enough are there."""
        without = [name for name in self._place if name not in self.members]
        self.waiting = {name: LATE for name in without if name in self._book.members}
        newcomers = [name for name in without if name not in self.waiting]
        at = np.array([self._place[name] for name in newcomers], dtype=np.intp)
        points, limits, first = self._curves.points[at], self._curves.limits(self.share, at), not self._book.members
        crowd = (
            form_crowds(points, self.m, None if first else shuffle, **limits)
            if len(at)
            else np.empty(0, dtype=np.int64)
        )
        if first and (crowd < 0).all():
            raise InputError(too_few(self.m, self._curves, input_of(self._settings).several))
        joined = {name: int(c) for name, c in zip(newcomers, crowd.tolist(), strict=True) if c >= 0}
        self.waiting |= {name: FEW if first else WAITS for name in newcomers if name not in joined}
        blocks = self._by_crowd(name for name, member in self.members.items() if member.block == member.crowd)
        together, waits = with_blocks(joined, blocks, self.m)
        for block in waits:
            self.waiting |= dict.fromkeys(blocks[block], REST)
        stored = self._curves.frame["stored"].to_numpy()
        for name, number in together.items():
            if name not in self.members:
                own = np.asarray(stored[self._place[name]], dtype="<f8").tobytes()
                self.members[name] = PlannedMember(0, own, at=self._place[name])
            self.members[name].crowd, self.members[name].changed = -1 - number, True

    def _row(self, number: int, members: Sequence[PlannedMember]) -> PlannedRow:
        """The row of a crowd; its members remember which of their values entered."""
        entry = self._book.crowds.get(number)
        at = np.array([member.at for member in members])
        today = np.where((at >= 0)[:, None], self._values[at], 0.0)
        digests = [value_digest(today[i], self._decimals) if at[i] >= 0 else "" for i in range(len(members))]
        pairs = list(zip(members, digests, strict=True))
        news = np.array([digest not in ("", member.last.rpartition(" ")[2]) for member, digest in pairs])
        if entry is not None and entry["period"] == self.period:
            if self._curves.ahead is None and news.sum() >= self.m:  # of a table: they would have entered then
                raise InputError(OTHER_FIGURES.format(self.period))
            had_news = bool(np.frombuffer(entry["row"], dtype="<f8")[:1].any())
            return PlannedRow(number, entry["members"], had_news, row_values(entry["row"]), recorded=True)
        if entry is not None and entry["period"] > self.period:
            raise InputError(EARLIER.format(entry["period"], self.period))
        stored = np.array([np.frombuffer(member.stored, dtype="<f8") for member in members])
        filler = stored if self._curves.ahead is None else stored[:, self._curves.ahead]
        row = crowd_row(today, filler, news, self.m, self.share)
        for (member, digest), has_news in zip(pairs, news.tolist(), strict=True):
            member.news = has_news and row is not None
            if member.news:
                member.last, member.changed = f"{self.period} {digest}", True
        if row is not None:
            rounded = [round(x, d) + 0.0 for x, d in zip(row.tolist(), self._decimals, strict=True)]
            return PlannedRow(number, len(members), True, rounded)
        if entry is None:
            raise InputError("crowd: a new crowd exceeds the largest share; choose a larger crowd= or share")
        return PlannedRow(number, len(members), False, row_values(entry["row"]))

    def _renumber(self) -> None:
        """Number new crowds by their rows, so that no number depends on what anybody is called."""
        fresh = sorted((row for row in self.rows if row.crowd < 0), key=lambda row: (row.values, row.members))
        number = {row.crowd: -1 - i for i, row in enumerate(fresh)}
        for member in self.members.values():
            member.crowd = number.get(member.crowd, member.crowd)
        for row in self.rows:
            row.crowd = number.get(row.crowd, row.crowd)
        self.rows.sort(key=lambda row: (row.retired, row.crowd))

    def frames(self, everybody: Iterable[str]) -> CrowdTables:
        """Members and rows, as tables; a label without a place is among the members, and waits."""
        kinds: dict[str, Any] = {
            "label": pl.String, "crowd": pl.Int64, "stored": pl.Binary, "last": pl.String, "block": pl.Int64,
            "at": pl.Int64, "changed": pl.Boolean, "news": pl.Boolean, "waits": pl.Boolean,
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
            "crowd": pl.Int64, "members": pl.Int64, "news": pl.Boolean, "values": pl.List(pl.Float64),
            "recorded": pl.Boolean, "retired": pl.Boolean,
        }  # fmt: skip
        rows = pl.DataFrame([vars(row) for row in self.rows], schema=columns)
        return CrowdTables(frame.drop("at").with_columns(**known), rows)


def too_few(m: int, curves: Curves, noun: str) -> str:
    """Why no crowd can be formed, and the number that would work."""
    where, wider = f"{curves.most} {noun} can be used", ""
    if curves.boundaries is not None:
        where, wider = f"at most {curves.most} {noun} share a boundary", " or wider boundaries"
    remedy = f"crowd={curves.most} would work, or" if curves.most >= 2 else "nobody hides alone:"
    return (
        f"crowd: {where}, and a crowd of {m} needs {m}; {remedy} have more of them{wider}. `shoal check` says who "
        "cannot be used, and why. Nothing was released"
    )


def shuffle(n: int) -> list[int]:
    """A drawn order of n things, from the cryptographic source."""
    order = list(range(n))
    secrets.SystemRandom().shuffle(order)
    return order


# ------------------------------------------------------------------ recorded


def draw_numbers(work: Work, ledger: Ledger | None) -> tuple[dict[int, int], bytes]:
    """New crowd -> its public number, and the key of the order of rows: as the folder has them, or drawn now.

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
        work.folder.put(NUMBERS, json.dumps(known))
    return dict(zip(fresh, known["numbers"], strict=True)), bytes.fromhex(known["order"])


def record_rows(work: Work, numbers: Mapping[int, int], table_digest: str, *, with_figures: bool) -> None:
    """Record the crowds of this release, once; nothing happens where all of it was on record before.

    ``with_figures``: the rows are what is released, and are recorded too.
    """
    ledger, plan, tables = work.ledger, work.facts.plan, work.tables
    if ledger.recorded_crowds(work.release_name) is not None:
        return
    members, lines = tables.members, tables.rows.filter(~pl.col("recorded"))
    if not len(lines):
        return
    book = Book.read(ledger, members["label"].to_list())
    if book.digest != plan.book:
        raise LedgerError(STALE)

    crowds = []
    for number, homes, news, values, _, retired in lines.iter_rows():
        known = book.crowds.get(number, {"setting": plan.setting})
        row = np.array([float(news), *(values if with_figures else [])], dtype="<f8").tobytes()
        entry = {"crowd": numbers.get(number, number), "setting": known["setting"], "period": plan.period, "row": row}
        entry |= {"members": homes, "retired": retired}
        crowds.append(entry | ({"period": known["period"], "row": known["row"]} if retired else {}))
    kinds = {"crowd": pl.Int64, "setting": pl.String, "period": pl.String, "row": pl.Binary, "members": pl.Int64}
    try:
        ledger.record_crowds(
            work.release_name,
            book_digest=book.ledger_digest,
            members=members.filter("changed").select(
                "label", pl.col("crowd").replace(numbers), "stored", "last", "block"
            ),
            crowds=pl.DataFrame(crowds, schema={**kinds, "retired": pl.Boolean}),
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
