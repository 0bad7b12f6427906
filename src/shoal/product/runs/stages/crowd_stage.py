"""The second stage: crowds over everybody at once, in memory, by the rules of crowds for life (:mod:`membership`).

Whoever has a crowd on record in the ledger stays in it. A population of which nobody is on record is formed anew, by
likeness; newcomers beside crowds that exist wait, and are divided by lot. Nothing is recorded here: the release does
that, and draws the public number of each new crowd. Until then a new crowd has a negative number.

| file | holds |
| --- | --- |
| crowds.parquet | label, crowd, value and truth today, stored, last, block, news, changed, waits: the owner's |
| rows.parquet | crowd, homes, news, values, retired, changed: what each crowd has for this release |
| left_out.csv | who has no row, and why |
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.crowds.membership import can_have_news, crowd_row, form_crowds, formation_size, value_digest, with_blocks
from shoal.errors import InputError
from shoal.plaintext import as_cells, name_key
from shoal.product.card.facts import LISTED, FitFacts, most_common
from shoal.product.ledger.ledger import Ledger
from shoal.product.runs.config import Config
from shoal.product.runs.folder import FIT, Context, StageOutcome
from shoal.product.runs.shards import Part
from shoal.product.runs.stages.fit_stage import CURVES, QUALITY_TABLE
from shoal.product.sources.class_table import ClassTable
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.neighborhoods import blend
from shoal.product.sources.meters.season import phases
from shoal.records import Record
from shoal.rounding import count_of
from shoal.validation import FloatArray

SETTINGS = (
    "crowd", "largest_share", "boundaries", "method", "rho", "query", "label", "order", "train_days",
    "horizon",
)  # fmt: skip
DOING = "forming crowds"
CROWDS, ROWS, LEFT_OUT = "crowds.parquet", "rows.parquet", "left_out.csv"
#: Days without news after which a member counts as one that cannot have any more.
GONE = 30.0
#: Decimals of kW that mean something: watts.
WATTS = 3
#: Where a public name is taken for a household in a table of boundaries.
NAMES = ("household", "label", "id", "meter", "customer")

EARLIER = (
    "period: something was released about these labels for {}, and this is about {}. Every release about a label needs "
    "a later period than the last: a later origin= for forecasts, a later period= for a table. Nothing was released"
)
OTHER_FIGURES = (
    "period: rows about these labels are on record for {}, made of other figures than those given now. Give the period "
    "that these are about (period='2024-03'), later than the last; a table about others of the same names "
    "belongs into another ledger (ledger=). Nothing was released"
)
WAITS = "new: it waits until enough newcomers are there to form crowds of their own"
FEW = "fewer than a crowd share its boundary: nothing would hide it"
REST = "its crowd was retired: its rest waits, together, for a new one"
LATE = "its crowd was retired while it was silent: nothing is released about it any more"


@dataclass(frozen=True)
class CrowdFacts(Record):
    """What the stage found, beside the facts of the fit: the setting and period that are recorded, and the book."""

    fit: FitFacts
    setting: str
    period: str
    book: str  #: digest of what was on record about these labels
    columns: tuple[str, ...] = ()  #: of a table
    repeated: int = 0  #: rows that are repeated for lack of news
    recorded: int = 0  #: rows that were released before for this period


@dataclass(frozen=True)
class Book:
    """What the ledger has on record about some labels and whoever shares a crowd with them."""

    members: dict[str, dict[str, Any]] = field(default_factory=dict)  #: label -> crowd, stored, last, block
    crowds: dict[int, dict[str, Any]] = field(default_factory=dict)  #: number -> setting, period, row, homes, retired
    ledger_digest: str = ""

    @classmethod
    def of(cls, context: Context, labels: Sequence[str]) -> Book:
        """From the ledger of a run; empty where there is none yet."""
        with context.existing_ledger() as ledger:
            return cls() if ledger is None else cls.read(ledger, labels)

    @classmethod
    def read(cls, ledger: Ledger, labels: Sequence[str]) -> Book:
        """From an open ledger."""
        book = ledger.crowds(list(labels))
        members = {entry.pop("label"): entry for entry in book.members.to_dicts()}
        return cls(members, {entry.pop("crowd"): entry for entry in book.crowds.to_dicts()}, book.digest)

    @property
    def digest(self) -> str:
        """The digest of these entries alone, whatever else the ledger holds."""
        state = hashlib.sha256()
        for entries in (self.members, self.crowds):
            for key, entry in entries.items():  # in the order of the ledger, by label and by number
                state.update(repr((key, *entry.values())).encode())
        return state.hexdigest()

    @property
    def lasting(self) -> list[dict[str, Any]]:
        """The crowds that are not retired."""
        return [entry for entry in self.crowds.values() if not entry["retired"]]

    @property
    def size(self) -> int | None:
        """Members promised of the lasting crowds, the least of them; None where there are none."""
        return min((int(json.loads(entry["setting"])["m"]) for entry in self.lasting), default=None)

    def allow(self, config: Config, origin: str, step_minutes: float) -> None:
        """Refuse, before anything is fitted, a setting or a period that the crowds on record do not allow."""
        fit = FitFacts("", 0, 0, 0, 0, 0, origin=origin, step_minutes=step_minutes)
        same_setting(setting_of(config, fit, (), None), self)
        period = as_period(origin)
        later = [entry["period"] for entry in self.lasting if entry["period"] > period]
        if later:
            raise InputError(EARLIER.format(max(later), period))
        released = [entry["row"] for entry in self.lasting if entry["period"] == period]
        steps = max((len(row_values(row)) for row in released), default=0)
        if config.label is None and not config.charged and 0 < steps < config.horizon:
            raise InputError(
                f"horizon: forecasts from {origin} are on record with {count_of(steps, 'step')}, and a period is "
                f"released once; horizon={steps} gives them again, a later origin= may have more. Nothing was "
                "released"
            )


@dataclass(frozen=True)
class Curves:
    """Everybody's figures from one origin, and what crowds are formed by."""

    frame: pl.DataFrame  #: label, value, truth, stored and, of a table, habits; sorted by label
    points: FloatArray  #: (n, d) what crowds are alike in
    boundaries: Any = None  #: (n,) texts that crowds do not cross
    ahead: tuple[int, ...] | None = None  #: time of the day, in steps, of each entry; None for a table
    origin: str = ""

    @classmethod
    def gathered(
        cls, config: Config, fit: FitFacts, shards: Sequence[Part], among: Sequence[str] | None = None
    ) -> Curves:
        """From the files beside shards, of some labels or of everybody.

        Forecast and usual day together make homes alike, and labels of a table what its stage wrote as habits.
        """
        frame = gathered(shards)
        frame = frame if among is None else frame.filter(pl.col("label").is_in(among))
        if config.label is None:
            step = timedelta(minutes=fit.step_minutes or 0)
            times = phases(horizon_stamps(fit, config.horizon), "day", step)
            points = blend(frame["value"].to_numpy(), frame["stored"].to_numpy(), times)
            ahead: tuple[int, ...] | None = tuple(times.tolist())
        else:
            points, ahead = frame["habits"].to_numpy(), None
        return cls(frame, points, boundaries_of(config, frame["label"].to_list()), ahead, fit.origin or "")

    @property
    def labels(self) -> list[str]:
        return self.frame["label"].to_list()

    @property
    def values(self) -> FloatArray:
        """(n, k) figures of today."""
        return self.frame["value"].to_numpy()

    @property
    def truth(self) -> FloatArray:
        """(n, k) what was metered later; NaN where it is not known."""
        return self.frame["truth"].to_numpy()

    @property
    def most(self) -> int:
        """The largest crowd that can be formed of everybody."""
        return len(self.frame) if self.boundaries is None else max(Counter(self.boundaries).values(), default=0)

    def limits(self, share: float | None, at: Any = slice(None)) -> dict[str, Any]:
        """What :func:`formed` takes beside the points, of some rows."""
        values = self.values[at]
        return {
            "boundaries": None if self.boundaries is None else self.boundaries[at],
            "totals": None if share is None else np.abs(values).sum(axis=1),
            "largest_share": share,
            "beside": values,
        }


def gathered(shards: Sequence[Part]) -> pl.DataFrame:
    """The curves of every shard: label, value, truth, stored and, of a table, habits."""
    parts = [pl.read_parquet(part.beside(CURVES)) for part in shards]
    return pl.concat([part for part in parts if "value" in part.columns] or parts[:1]).sort("label")


# ------------------------------------------------------------------ the stage


def stage(context: Context, fit: FitFacts) -> StageOutcome:
    """Who is in which crowd, and the row of every crowd; nothing is recorded."""
    config, folder, parts = context.config, context.folder, context.listing(FIT).parts
    for part in parts:
        part.check()
    curves = Curves.gathered(config, fit, parts)
    earlier = folder.path / str(context.state.previous) / CROWDS  # of the release before, in a folder that goes on
    everybody = set(curves.labels)
    if context.state.previous is not None and earlier.is_file():
        everybody |= set(pl.read_parquet(earlier, columns=["label"])["label"])
    book = Book.of(context, sorted(everybody))
    columns = ClassTable.load(parts[0].path).columns if config.label is not None else ()
    declared = (config.period or context.state.day) if config.label is not None else fit.origin or ""
    period = as_period(declared)
    plan = Plan(config, curves, book, period, setting_of(config, fit, columns, curves))
    members, rows = plan.frames(everybody)
    folder.write(CROWDS, lambda path: members.write_parquet(path))
    folder.write(ROWS, lambda path: rows.write_parquet(path))
    who = "household" if config.label is None else "label"
    schema = {who: pl.String, "reason": pl.String}
    left = [as_cells(pl.DataFrame(list(plan.waiting.items()), schema=schema, orient="row"))]
    if (folder / QUALITY_TABLE).is_file():
        quality = pl.read_csv(folder / QUALITY_TABLE, infer_schema=False).filter(pl.col("verdict") == "left out")
        left.append(quality.select(pl.col("household").fill_null(""), "reason"))
    out = pl.concat(left).unique(who, keep="first", maintain_order=True).sort(who)
    shown = rows.filter(~pl.col("retired"))
    placed = members.filter(~pl.col("waits") & pl.col("crowd").is_in(shown["crowd"].to_list()))
    doubts = list(fit.doubts)
    if charged(config, fit):  # else who has no new readings and is in a crowd has a row all the same
        placed = placed.filter(pl.col("value").is_not_null())
    elif len(quiet := placed.filter(pl.col("value").is_null())):
        last = Counter(text[:10] for text in sorted(quiet["last"].to_list()))
        when = ", ".join(f"{day} ({count})" for day, count in last.items())
        doubts.append(f"No news of {count_of(len(quiet), fit.noun)} in crowds since {when}: what is on record stands "
                      "in, or the crowd's last row is repeated.")  # fmt: skip
    before = max((entry["period"] for entry in book.lasting if entry["period"] < period), default=period)
    skipped = (datetime.fromisoformat(period) - datetime.fromisoformat(before)).days - 1
    if config.label is None and skipped > 0:
        doubts.append(f"Since the last release, about {before[:16]}, {count_of(skipped, 'day')} skipped.")
    has_row = pl.col(who).is_in(as_cells(placed.select("label"))["label"].to_list())
    silent = Counter(out.filter(has_row)["reason"].to_list())
    folder.write(LEFT_OUT, lambda path: out.filter(~has_row).write_csv(path))
    if not len(shown):
        raise InputError("crowd: nobody has a crowd yet; left_out.csv says who waits for what")
    sizes, usual, about = shown["homes"].to_list(), formation_size(config.crowd), list(fit.about)
    tight = sum(size < usual for size in sizes)
    if tight:
        about.append(
            f"{count_of(tight, 'crowd')} of fewer than {usual}: little room for members who leave before a crowd has "
            "too few with news and its row is only repeated."
        )
    if book.members:
        about.append("Crowds are those on record in the ledger: they are formed once, for life.")
    reasons = Counter(plan.waiting.values())
    others = Counter(dict(fit.reasons)) - silent
    zoned = config.label is not None and len(declared) > 10 and datetime.fromisoformat(declared).tzinfo is not None
    fit = replace(
        fit,
        time_zone="UTC" if zoned else fit.time_zone,
        labels=sum(sizes),
        groups=len(sizes),
        smallest_group=min(sizes),
        largest_group=max(sizes),
        edges=sum(size * (size - 1) // 2 for size in sizes),
        left_out=fit.left_out - silent.total() + reasons.total(),
        reasons=tuple(most_common(others + reasons)[:LISTED]),
        newcomers=reasons[WAITS],
        about=tuple(about),
        doubts=tuple(doubts),
        crowd=config.crowd,
    )
    repeated, recorded = (~shown["news"] & ~shown["recorded"]).sum(), shown["recorded"].sum()
    facts = CrowdFacts(fit, plan.setting, period, book.digest, columns, int(repeated), int(recorded))
    return StageOutcome((CROWDS, ROWS, LEFT_OUT), facts)


def members_and_rows(context: Context) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the stage wrote: who is in which crowd, and what each crowd has."""
    return pl.read_parquet(context.folder / CROWDS), pl.read_parquet(context.folder / ROWS)


def with_rows(members: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Members with a figure today and the row of their crowd."""
    table = rows.filter(~pl.col("retired")).select("crowd", "homes", row="values")
    known = members.filter(pl.col("value").is_not_null() & ~pl.col("waits"))
    both = known.join(table, on="crowd", how="inner").sort("label")
    width = both.schema["value"].shape[0] if len(both) else 0  # type: ignore[attr-defined]
    return both.filter(pl.col("row").list.len() == width)


def as_period(text: str) -> str:
    """An ISO year, month, day or instant as an instant of UTC; periods are ordered as texts.

    >>> as_period("2024-03"), as_period("2018-12-05T18:00:00+01:00")
    ('2024-03-01T00:00:00Z', '2018-12-05T17:00:00Z')
    """
    try:
        moment = datetime.fromisoformat(f"{text}-01-01"[:10] if len(text) in (4, 7) else text)
    except ValueError:
        raise InputError("period must be a year, a month, a day or an instant: 2024, 2024-03, 2024-03-31") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def charged(config: Config, fit: FitFacts) -> bool:
    """Whether rows are released one by one under an ε: by a method, or where labels have several."""
    return config.charged or fit.most_rows > 1


def setting_of(config: Config, fit: FitFacts, columns: Sequence[str], curves: Curves | None) -> dict[str, Any]:
    """What is fixed for a crowd's life; without ``curves``, but for the decimals of a table."""
    kind = config.way if charged(config, fit) else "mean"
    common = {"m": config.crowd, "release": kind, "boundaries": (config.boundaries or "").rpartition(":")[2] or None}
    if config.label is not None:
        # Decimals that mean something: thousandths of a column's spread.
        spread = [] if curves is None else np.sort(curves.values, axis=0).std(axis=0).tolist()
        decimals = [3 - int(np.floor(np.log10(width))) if width > 0 else 6 for width in spread]
        return common | {"kind": "table", "columns": list(columns), "decimals": decimals}
    return common | {
        "kind": "forecast",
        "query": config.query,
        "unit": "kw",
        "order": list(config.order),
        "train_days": config.train_days,
        "season": config.season,
        "step_minutes": fit.step_minutes,
        "largest_share": config.largest_share,
    }


def horizon_stamps(fit: FitFacts, horizon: int) -> pl.Series:
    """The instants of the horizon, on the clock of the readings."""
    instant = datetime.fromisoformat(fit.origin or "")
    naive = instant if instant.tzinfo is None else instant.astimezone(UTC).replace(tzinfo=None)
    start = (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return clock.stamps(start, timedelta(minutes=fit.step_minutes or 0), horizon, fit.time_zone)


def boundaries_of(config: Config, labels: Sequence[str]) -> Any:
    """(n,) the boundary of each label, from the file that the settings name; None where they name none."""
    if config.boundaries is None:
        return None
    file, colon, column = config.boundaries.rpartition(":")
    if not colon:
        file, column = config.boundaries, ""
    try:
        table = pl.read_csv(file, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"boundaries: {Path(file).name} cannot be read as a CSV file; give FILE:COLUMN") from None
    known = {name.lower(): name for name in table.columns}
    who = next((known[name] for name in (*NAMES, str(config.label).lower()) if name in known), table.columns[0])
    rest = [name for name in table.columns if name != who]
    column = column or (rest[0] if len(rest) == 1 else "")
    if column not in rest:
        raise InputError(
            f"boundaries: name the column that crowds do not cross, FILE:COLUMN; {Path(file).name} has "
            f"{', '.join(rest[:12])}"
        )
    if table[who].n_unique() != len(table):
        raise InputError(f"boundaries: {Path(file).name} must have one row per label, and some occur twice")
    keys = [name_key(name or "") for name in table[who].to_list()]
    if len(set(keys)) < len(keys):
        raise InputError(f"boundaries: {Path(file).name} must have one row per label, and some occur in two spellings")
    value = dict(zip(keys, table[column].fill_null("").to_list(), strict=True))
    missing = sum(name_key(label) not in value for label in labels)
    if missing:
        raise InputError(f"boundaries: {Path(file).name} has no row for {count_of(missing, 'label')}; add them")
    return np.array([value[name_key(label)] for label in labels], dtype=object)


# ------------------------------------------------------------------ the rules, applied


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
    """What a crowd has for this release."""

    crowd: int
    homes: int
    news: bool
    values: list[float]
    recorded: bool = False  #: it was released before for this period, from this folder or another
    retired: bool = False


class Plan:
    """Who is in which crowd, and every crowd's row: the rules of crowds for life, applied to today's values."""

    def __init__(self, config: Config, curves: Curves, book: Book, period: str, setting: dict[str, Any]) -> None:
        lasting = same_setting(setting, book)
        self.setting = json.dumps(lasting, sort_keys=True)
        self.period, self.m, self.share = period, int(lasting["m"]), config.largest_share
        self.rows: list[PlannedRow] = []
        self.waiting: dict[str, str] = {}  #: label -> why it has no row
        self._curves, self._book, self._values = curves, book, curves.values
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
            self.rows.append(PlannedRow(number, entry["homes"], False, row_values(entry["row"]), retired=True))
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
            noun = "labels" if self._curves.ahead is None else "households"
            raise InputError(too_few(self.m, self._curves, noun))
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
            return PlannedRow(number, entry["homes"], had_news, row_values(entry["row"]), recorded=True)
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
        fresh = sorted((row for row in self.rows if row.crowd < 0), key=lambda row: (row.values, row.homes))
        number = {row.crowd: -1 - i for i, row in enumerate(fresh)}
        for member in self.members.values():
            member.crowd = number.get(member.crowd, member.crowd)
        for row in self.rows:
            row.crowd = number.get(row.crowd, row.crowd)
        self.rows.sort(key=lambda row: (row.retired, row.crowd))

    def frames(self, everybody: Iterable[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Who is in which crowd, and what each crowd has; whoever has no place is in the first table, and waits."""
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
            "crowd": pl.Int64, "homes": pl.Int64, "news": pl.Boolean, "values": pl.List(pl.Float64),
            "recorded": pl.Boolean, "retired": pl.Boolean,
        }  # fmt: skip
        return frame.drop("at").with_columns(**known), pl.DataFrame([vars(row) for row in self.rows], schema=columns)


def row_values(row: bytes) -> list[float]:
    """The figures of a row on record, which come after the mark of its news."""
    values: list[float] = np.frombuffer(row, dtype="<f8")[1:].tolist()
    return values


def same_setting(setting: dict[str, Any], book: Book) -> dict[str, Any]:
    """The setting of the crowds on record, which must be this one; what was decided for good stays decided."""
    for entry in book.lasting:
        recorded = json.loads(entry["setting"])
        names = [name for name in {**recorded, **setting} if name != "decimals"]
        other = next((name for name in names if recorded.get(name) != setting.get(name)), None)
        if other is not None:
            raise InputError(_differs(other, recorded.get(other), setting.get(other)))
        setting = {**setting, **{name: recorded[name] for name in ("decimals",) if name in recorded}}
    return setting


def _differs(name: str, recorded: Any, given: Any) -> str:
    setting = {"m": "crowd", "release": "method"}.get(name, name)

    def worded(value: Any) -> str:
        if value is None or (name == "release" and value == "mean"):
            return f"no {setting}"
        return f"{setting} {','.join(map(str, value)) if isinstance(value, list) else value}"

    return (
        f"{setting}: these labels are in crowds that were formed with {worded(recorded)}, and now it is "
        f"{worded(given)}. It is fixed for a crowd's life: a second kind of figure about the same crowd would give its "
        "members away. Go on with the one on record. Nothing was released"
    )


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
