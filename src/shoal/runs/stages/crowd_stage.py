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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.card.facts import LISTED, FitFacts, most_common
from shoal.errors import InputError
from shoal.laws.membership import (
    admitted,
    can_have_news,
    crowd_row,
    formation_size,
    formed,
    value_digest,
    with_blocks,
)
from shoal.plaintext import as_cells
from shoal.records import Record
from shoal.rounding import counted
from shoal.runs.config import Config
from shoal.runs.context import FIT, Context, Made
from shoal.runs.stages.fit_stage import CURVES, QUALITY, QUALITY_TABLE
from shoal.sources.meters import window
from shoal.sources.meters.neighborhoods import blend
from shoal.sources.meters.season import phases
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl

    from shoal.ledger.ledger import Ledger

SETTINGS = (
    "crowd", "largest_share", "boundaries", "method", "rho", "query", "label", "order", "train_days", "season",
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
    "a later period than the last: a later --origin for forecasts, a later --period for a table. Nothing was released"
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
    known: int = 0  #: crowds that were on record before
    fresh: int = 0  #: crowds that are formed now
    repeated: int = 0  #: rows that are repeated for lack of news
    recorded: int = 0  #: rows that were released before for this period
    retired: int = 0


@dataclass(frozen=True)
class Book:
    """What the ledger has on record about some labels and whoever shares a crowd with them."""

    members: dict[str, dict[str, Any]] = field(default_factory=dict)  #: label -> crowd, stored, last, block
    crowds: dict[int, dict[str, Any]] = field(default_factory=dict)  #: number -> setting, period, row, homes, retired
    ledger_digest: str = ""

    @property
    def digest(self) -> str:
        """Of these entries alone, whatever else the ledger holds."""
        state = hashlib.sha256()
        for label in sorted(self.members):
            entry = self.members[label]
            state.update(json.dumps([label, entry["crowd"], entry["last"], entry["block"]]).encode())
            state.update(entry["stored"])
        for number in sorted(self.crowds):
            entry = self.crowds[number]
            state.update(
                json.dumps([number, entry["setting"], entry["period"], entry["homes"], entry["retired"]]).encode()
            )
            state.update(entry["row"])
        return state.hexdigest()

    @classmethod
    def read(cls, ledger: Ledger | None, labels: Sequence[str]) -> Book:
        """From the ledger; empty where there is none yet."""
        if ledger is None:
            return cls()
        book = ledger.crowds(list(labels))
        members = {entry.pop("label"): entry for entry in book.members.to_dicts()}
        return cls(members, {entry.pop("crowd"): entry for entry in book.crowds.to_dicts()}, book.digest)


# ------------------------------------------------------------------ the stage


def stage(context: Context, fit: FitFacts) -> Made:
    """Who is in which crowd, and the row of every crowd; nothing is recorded."""
    config, listing = context.config, context.listing(FIT)
    for part in listing.parts:
        part.check()
    curves = gathered([part.path for part in listing.parts])
    labels = curves["label"].to_list()
    before = [] if context.previous is None else _earlier(context)
    known = set(labels)
    asked = [*labels, *(name for name in before if name not in known)]
    with context.existing_ledger() as ledger:
        book = Book.read(ledger, asked)
    period, ahead = period_of(context, fit), None
    columns: tuple[str, ...] = ()
    if config.label is None:
        ahead = times_of_day(fit, config.horizon)
    else:
        columns = tuple(table_columns(listing.parts[0].path))
    plan = Plan.of(
        config, curves, book, period, setting_of(config, fit, columns, curves), ahead, boundaries_of(config, labels)
    )
    _write(context, plan, curves, asked)
    gone = dict(plan.waiting)
    reasons = Counter(gone.values())
    _left_out(context, listing.parts, gone)
    facts = CrowdFacts(
        fit=_fit_facts(fit, plan, reasons, config),
        setting=plan.setting,
        period=period,
        book=book.digest,
        columns=columns,
        known=sum(number >= 0 for number in plan.rows),
        fresh=sum(number < 0 for number in plan.rows),
        repeated=sum(not row.news and not row.recorded for row in plan.rows.values()),
        recorded=sum(row.recorded for row in plan.rows.values()),
        retired=len(plan.retired),
    )
    return Made((CROWDS, ROWS, LEFT_OUT), facts)


def gathered(shards: Sequence[str]) -> pl.DataFrame:
    """The curves of every shard: label, value, truth, habits, stored."""
    import polars as pl

    frames = [pl.read_parquet(Path(path).with_suffix(f".{CURVES}")) for path in shards]
    return pl.concat(frames).sort("label")


def table_columns(shard: str) -> tuple[str, ...]:
    """The columns of a shard of a class table."""
    from shoal.sources.tables.class_table import ClassTable

    return ClassTable.load(shard).columns


def period_of(context: Context, fit: FitFacts) -> str:
    """What this release is about, as an instant of UTC: the origin, or the period that was declared for a table."""
    if context.config.label is None:
        return as_period(fit.origin or "")
    return as_period(context.config.period or context.day)


def as_period(text: str) -> str:
    """An ISO year, month, day or instant as an instant of UTC; periods are ordered as texts.

    >>> as_period("2024-03"), as_period("2018-12-05T18:00:00+01:00")
    ('2024-03-01T00:00:00Z', '2018-12-05T17:00:00Z')
    """
    try:
        if len(text) in (4, 7):
            moment = datetime.combine(date.fromisoformat(f"{text}-01-01"[:10]), datetime.min.time())
        else:
            moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError("period must be a year, a month, a day or an instant: 2024, 2024-03, 2024-03-31") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def setting_of(config: Config, fit: FitFacts, columns: Sequence[str], curves: pl.DataFrame) -> dict[str, Any]:
    """What is fixed for a crowd's life."""
    kind = config.way if config.charged or fit.most_rows > 1 else "mean"
    common = {"m": config.crowd, "release": kind, "boundaries": (config.boundaries or "").rpartition(":")[2] or None}
    if config.label is not None:
        return common | {"kind": "table", "columns": list(columns), "decimals": _decimals(curves)}
    return common | {
        "kind": "forecast",
        "query": config.query,
        "unit": "kw",
        "order": list(config.order),
        "train_days": config.train_days,
        "season": config.season_period,
        "step_minutes": fit.step_minutes,
        "largest_share": config.largest_share,
    }


def _decimals(curves: pl.DataFrame) -> list[int]:
    """Decimals of a table's columns that mean something: thousandths of a column's spread."""
    spread = np.sort(curves["value"].to_numpy(), axis=0).std(axis=0)
    return [3 - int(np.floor(np.log10(one))) if one > 0 else 6 for one in spread.tolist()]


def horizon_stamps(fit: FitFacts, horizon: int) -> pl.Series:
    """The instants of the horizon, on the clock of the readings."""
    instant = datetime.fromisoformat(fit.origin or "")
    naive = instant if instant.tzinfo is None else instant.astimezone(UTC).replace(tzinfo=None)
    start = (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return window.stamps(start, timedelta(minutes=fit.step_minutes or 0), horizon, fit.time_zone)


def times_of_day(fit: FitFacts, horizon: int) -> list[int]:
    """Time of the day, in steps, of each entry of the horizon."""
    step = timedelta(minutes=fit.step_minutes or 0)
    return [int(slot) for slot in phases(horizon_stamps(fit, horizon), "day", step)]


def points_of(curves: pl.DataFrame, ahead: Sequence[int] | None) -> FloatArray:
    """(n, d) what crowds are alike in: habits and forecast together; of a table, what its stage wrote as habits."""
    habits: FloatArray = curves["habits"].to_numpy()
    if ahead is None:
        return habits
    per_hour = max(curves.schema["stored"].shape[0] // 24, 1)  # type: ignore[attr-defined]
    return blend(curves["value"].to_numpy(), habits, np.unique(np.array(ahead) // per_hour))


def boundaries_of(config: Config, labels: Sequence[str]) -> list[str] | None:
    """The boundary of each label, from the file that the settings name."""
    if config.boundaries is None:
        return None
    import polars as pl

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
    value = dict(zip(table[who].str.strip_chars().to_list(), table[column].fill_null("").to_list(), strict=True))
    missing = sum(label not in value for label in labels)
    if missing:
        raise InputError(f"boundaries: {Path(file).name} has no row for {counted(missing, 'label')}; add them")
    return [value[label] for label in labels]


# ------------------------------------------------------------------ the rules, applied


@dataclass
class PlannedMember:
    """A label in a crowd: where it stands in today's curves (−1: it has none), and what is recorded of it."""

    crowd: int
    at: int
    stored: bytes
    last: str
    block: int | None
    changed: bool = False
    news: bool = False


@dataclass
class PlannedRow:
    """What a crowd has for this release."""

    values: FloatArray
    homes: int
    news: bool
    recorded: bool = False  #: it was released before for this period, from this folder or another


@dataclass
class Plan:
    """Who is in which crowd, and every crowd's row."""

    setting: str
    period: str
    members: dict[str, PlannedMember]
    rows: dict[int, PlannedRow]
    retired: dict[int, dict[str, Any]]
    waiting: dict[str, str]
    first: bool  #: nobody of these labels was on record

    @classmethod
    def of(
        cls,
        config: Config,
        curves: pl.DataFrame,
        book: Book,
        period: str,
        setting: dict[str, Any],
        ahead: Sequence[int] | None,
        boundaries: Sequence[str] | None,
    ) -> Plan:
        """Apply the rules of crowds for life to today's values and to what is on record."""
        labels = curves["label"].to_list()
        values, stored = curves["value"].to_numpy(), curves["stored"].to_numpy()
        points = points_of(curves, ahead)
        lasting = same_setting(setting, book)
        m, share = int(lasting["m"]), config.largest_share
        decimals = lasting.get("decimals") or [WATTS] * values.shape[1]
        place = {name: i for i, name in enumerate(labels)}
        members = {
            name: PlannedMember(entry["crowd"], place.get(name, -1), entry["stored"], entry["last"], entry["block"])
            for name, entry in book.members.items()
            if not book.crowds[entry["crowd"]]["retired"] or entry["block"] == entry["crowd"]
        }
        plan = cls(json.dumps(lasting, sort_keys=True), period, members, {}, {}, {}, not book.members)
        plan._retire(book, m)
        plan.waiting |= {name: LATE for name in labels if name in book.members and name not in members}
        newcomers = [name for name in labels if name not in members and name not in plan.waiting]
        plan._admit(newcomers, points, values, stored, place, m, share, boundaries)
        plan._fill(book, values, ahead, decimals, m, share)
        return plan._in_order()

    def _retire(self, book: Book, m: int) -> None:
        """Crowds of which fewer than m can still have news end; who can of them stays together and waits."""
        of: dict[int, list[str]] = defaultdict(list)
        for name, member in self.members.items():
            of[member.crowd].append(name)
        for number, names in of.items():
            entry = book.crowds[number]
            if entry["retired"] or entry["period"] >= self.period:
                continue
            left = [name for name in names if self._can_have_news(self.members[name], entry["period"])]
            if len(left) >= m:
                continue
            self.retired[number] = entry
            for name in names:
                if name in left:
                    self.members[name].block, self.members[name].changed = number, True
                else:
                    del self.members[name]

    def _can_have_news(self, member: PlannedMember, released: str) -> bool:
        """Whether a member can still have news: it had some at the crowd's last release, or not long ago."""
        last = member.last.partition(" ")[0]
        return last == released or can_have_news(last, self.period, member.at >= 0, GONE)

    def _admit(
        self,
        newcomers: Sequence[str],
        points: FloatArray,
        values: FloatArray,
        stored: FloatArray,
        place: Mapping[str, int],
        m: int,
        share: float | None,
        boundaries: Sequence[str] | None,
    ) -> None:
        """Crowds of those who have none: by likeness where nobody has one, else by lot once enough are there."""
        at = np.array([place[name] for name in newcomers], dtype=np.intp)
        inside = None if boundaries is None else [boundaries[i] for i in at]
        totals = None if share is None else np.abs(values[at]).sum(axis=1)
        given: dict[str, Any] = {"boundaries": inside, "totals": totals, "largest_share": share, "beside": values[at]}
        if not len(at):
            crowd = np.empty(0, dtype=np.int64)
        elif self.first:
            crowd = formed(points[at], m, **given)
            if (crowd < 0).all():
                noun = "households" if json.loads(self.setting)["kind"] == "forecast" else "labels"
                most = len(at) if inside is None else max(Counter(inside).values())
                raise InputError(too_few(m, most, noun, within=inside is not None))
        else:
            crowd = admitted(points[at], m, shuffle, **given)
        joined = {name: int(c) for name, c in zip(newcomers, crowd.tolist(), strict=True) if c >= 0}
        self.waiting |= {name: FEW if self.first else WAITS for name in newcomers if name not in joined}
        blocks: dict[int, list[str]] = defaultdict(list)
        for name, member in self.members.items():
            if member.block == member.crowd:
                blocks[member.crowd].append(name)
        together, waits = with_blocks(joined, blocks, m)
        for block in waits:
            self.waiting |= dict.fromkeys(blocks[block], REST)
        for name, number in together.items():
            if name in self.members:
                member = self.members[name]
                member.crowd, member.changed = -1 - number, True
            else:
                frozen = np.asarray(stored[place[name]], dtype="<f8").tobytes()
                self.members[name] = PlannedMember(-1 - number, place[name], frozen, "", None, changed=True)

    def _fill(
        self,
        book: Book,
        values: FloatArray,
        ahead: Sequence[int] | None,
        decimals: Sequence[int],
        m: int,
        share: float | None,
    ) -> None:
        """The row of every crowd."""
        of: dict[int, list[PlannedMember]] = defaultdict(list)
        for name, member in self.members.items():
            if name not in self.waiting and member.crowd not in self.retired:
                of[member.crowd].append(member)
        k = values.shape[1]
        places = [(decimals[j] if j < len(decimals) else decimals[-1]) for j in range(k)]
        for number, members in of.items():
            entry = book.crowds.get(number)
            if entry is not None and entry["period"] == self.period:
                before = np.frombuffer(entry["row"], dtype="<f8")
                self.rows[number] = PlannedRow(before[1:], entry["homes"], bool(before[:1].any()), recorded=True)
                continue
            if entry is not None and entry["period"] > self.period:
                raise InputError(EARLIER.format(entry["period"], self.period))
            frozen = np.array([np.frombuffer(one.stored, dtype="<f8") for one in members])
            filler = frozen if ahead is None else frozen[:, list(ahead)]
            at = np.array([one.at for one in members])
            today = np.where((at >= 0)[:, None], values[at], 0.0)
            digests = [value_digest(today[i], places) if at[i] >= 0 else "" for i in range(len(members))]
            news = np.array([
                digest != "" and digest != one.last.rpartition(" ")[2]
                for one, digest in zip(members, digests, strict=True)
            ])  # fmt: skip
            row = crowd_row(today, filler, news, m, share)
            for one, digest, entered in zip(members, digests, row.entered.tolist(), strict=True):
                one.news = bool(entered)
                if entered:
                    one.last, one.changed = f"{self.period} {digest}", True
            if row.values is not None:
                rounded = np.array([round(x, d) + 0.0 for x, d in zip(row.values.tolist(), places, strict=True)])
                self.rows[number] = PlannedRow(rounded, len(members), True)
            elif entry is not None:
                self.rows[number] = PlannedRow(np.frombuffer(entry["row"], dtype="<f8")[1:], len(members), False)
            else:
                raise InputError("crowd: a new crowd exceeds the largest share; choose a larger --crowd or share")

    def _in_order(self) -> Plan:
        """New crowds numbered by their rows, so that no number depends on what anybody is called."""
        fresh = sorted(
            (n for n in self.rows if n < 0), key=lambda n: (self.rows[n].values.tolist(), self.rows[n].homes)
        )
        number = {old: -1 - i for i, old in enumerate(fresh)}
        for member in self.members.values():
            member.crowd = number.get(member.crowd, member.crowd)
        self.rows = {number.get(old, old): row for old, row in self.rows.items()}
        return self


def foreseen(config: Config, book: Book, origin: str, step_minutes: float) -> None:
    """Refuse, before anything is fitted, a setting or a period that the crowds on record do not allow."""
    import polars as pl

    fit = FitFacts("", 0, 0, 0, 0, 0, origin=origin, step_minutes=step_minutes)
    same_setting(setting_of(config, fit, (), pl.DataFrame()), book)
    period = as_period(origin)
    later = [entry["period"] for entry in book.crowds.values() if not entry["retired"] and entry["period"] > period]
    if later:
        raise InputError(EARLIER.format(max(later), period))


def recorded_size(book: Book) -> int | None:
    """Members promised of the crowds on record, the least of them; None where there are none."""
    sizes = [int(json.loads(entry["setting"])["m"]) for entry in book.crowds.values() if not entry["retired"]]
    return min(sizes, default=None)


def same_setting(setting: dict[str, Any], book: Book) -> dict[str, Any]:
    """The setting of the crowds on record, which must be this one; what was decided for good stays decided."""
    for entry in book.crowds.values():
        if entry["retired"]:
            continue
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


def too_few(m: int, most: int, noun: str, *, within: bool) -> str:
    """Why no crowd can be formed, and the number that would work."""
    where = f"at most {most} {noun} share a boundary" if within else f"{most} {noun} can be used"
    remedy = f"--crowd {most} would work" if most >= 2 else "nobody could hide"
    return (
        f"crowd: {where}, and a crowd of {m} needs {m}; {remedy}, or have more of them"
        f"{' or wider boundaries' if within else ''}. `shoal check` says who cannot be used, and why. Nothing was "
        "released"
    )


def shuffle(n: int) -> list[int]:
    """A drawn order of n things, from the cryptographic source."""
    order = list(range(n))
    secrets.SystemRandom().shuffle(order)
    return order


# ------------------------------------------------------------------ files


def _write(context: Context, plan: Plan, curves: pl.DataFrame, asked: Sequence[str]) -> None:
    """Write who is in which crowd, and what each crowd has; whoever has no place is in the first file, and waits."""
    import polars as pl

    names = sorted({*plan.members, *asked})
    nowhere = PlannedMember(0, -1, b"", "", None)
    members = [plan.members.get(name, nowhere) for name in names]
    at = pl.Series([one.at if one.at >= 0 else None for one in members], dtype=pl.UInt32)
    frame = pl.DataFrame(
        {
            "label": pl.Series(names, dtype=pl.String),
            "crowd": pl.Series([one.crowd for one in members], dtype=pl.Int64),
            "value": curves["value"].gather(at),
            "truth": curves["truth"].gather(at),
            "stored": pl.Series([one.stored for one in members], dtype=pl.Binary),
            "last": pl.Series([one.last for one in members], dtype=pl.String),
            "block": pl.Series([one.block for one in members], dtype=pl.Int64),
            "news": pl.Series([one.news for one in members], dtype=pl.Boolean),
            "changed": pl.Series([one.changed for one in members], dtype=pl.Boolean),
            "waits": pl.Series([name in plan.waiting or name not in plan.members for name in names], dtype=pl.Boolean),
        }
    )
    rows = [(number, plan.rows[number]) for number in sorted(plan.rows)]
    ended = [(number, plan.retired[number]) for number in sorted(plan.retired)]
    table = pl.DataFrame(
        {
            "crowd": pl.Series([n for n, _ in rows] + [n for n, _ in ended], dtype=pl.Int64),
            "homes": pl.Series([r.homes for _, r in rows] + [e["homes"] for _, e in ended], dtype=pl.Int64),
            "news": pl.Series([r.news for _, r in rows] + [False] * len(ended), dtype=pl.Boolean),
            "values": pl.Series(
                [r.values.tolist() for _, r in rows] + [np.frombuffer(e["row"], "<f8")[1:].tolist() for _, e in ended],
                dtype=pl.List(pl.Float64),
            ),
            "recorded": pl.Series([r.recorded for _, r in rows] + [False] * len(ended), dtype=pl.Boolean),
            "retired": pl.Series([False] * len(rows) + [True] * len(ended), dtype=pl.Boolean),
        }
    )
    context.folder.write(CROWDS, lambda path: frame.write_parquet(path))
    context.folder.write(ROWS, lambda path: table.write_parquet(path))


def _left_out(context: Context, parts: Sequence[Any], waiting: Mapping[str, str]) -> None:
    """Who has no row, and why: those whose readings or rows cannot be used, and those who wait."""
    import polars as pl

    schema = {"household": pl.String, "reason": pl.String}
    tables = [pl.DataFrame(list(waiting.items()), schema=schema, orient="row")]
    for part in parts:
        if QUALITY in part.files:
            quality = pl.read_parquet(part.beside(QUALITY))
            tables.append(quality.filter(pl.col("verdict") == "left out").select("household", "reason"))
    if (context.folder / QUALITY_TABLE).is_file():
        quality = pl.read_csv(context.folder / QUALITY_TABLE, infer_schema=False)
        tables.append(quality.filter(pl.col("verdict") == "left out").select("household", "reason"))
    left = pl.concat(tables, how="vertical_relaxed").unique("household", keep="first", maintain_order=True)
    context.folder.write(LEFT_OUT, lambda path: as_cells(left.sort("household")).write_csv(path))


def _fit_facts(fit: FitFacts, plan: Plan, reasons: Mapping[str, int], config: Config) -> FitFacts:
    sizes = [row.homes for row in plan.rows.values()]
    if not sizes:
        raise InputError("crowd: nobody has a crowd yet; left_out.csv says who waits for what")
    about = list(fit.about)
    tight = [size for size in sizes if size < formation_size(config.crowd)]
    if tight:
        about.append(
            f"{counted(len(tight), 'crowd')} of fewer than {formation_size(config.crowd)}: little room for members who "
            "leave before a crowd has too few with news and its row is only repeated."
        )
    if not plan.first:
        about.append("Crowds are those on record in the ledger: they are formed once, for life.")
    every = Counter(dict(fit.reasons)) + Counter(reasons)
    return replace(
        fit,
        labels=sum(sizes),
        groups=len(sizes),
        smallest_group=min(sizes),
        largest_group=max(sizes),
        edges=sum(size * (size - 1) // 2 for size in sizes),
        left_out=fit.left_out + sum(reasons.values()),
        reasons=tuple(most_common(every)[:LISTED]),
        newcomers=sum(reason == WAITS for reason in plan.waiting.values()),
        about=tuple(about),
        crowd=config.crowd,
    )


def _earlier(context: Context) -> list[str]:
    """Labels of the release before, in a folder that goes on."""
    import polars as pl

    path = context.folder.path / str(context.previous) / CROWDS
    return [] if not path.is_file() else pl.read_parquet(path, columns=["label"])["label"].to_list()
