"""Put readings on a regular grid and say, household by household, what had to be done for it.

A missing reading stays missing (null): the exact likelihood of ``arma`` skips it. What cannot be used is counted in the
quality table, and a household that cannot be used keeps its row there with the reason.

| column | counts |
| --- | --- |
| rows | rows read for the household |
| first, last | first and last instant on the grid |
| bad_time, no_such_time | unreadable timestamps; wall times that the spring clock change skips |
| invalid, above_max | text or infinite; above ``max_kw``, or as far below zero: both become missing |
| negative | below zero: what a home exports, which stays as it is; of a register's totals they become missing |
| out_of_order, off_grid | rows earlier than the row before (sorted); rows between grid points (taken out) |
| duplicates, conflicts | repeated rows for one instant (the last one counts); instants whose rows disagreed |
| missing, longest_gap | grid points without a reading from first to last; the longest run of them |
| zeros, flat | zero readings; whether all readings are equal |
| unit, falls | what was read (kWh, say); falls of a register, each a missing reading |
| large | above what a home draws: on some day a mean above 50 kW, or a reading above 100 kW |
| verdict, reason | ``"ok"``, ``"repaired"`` or ``"left out"``, and why |

Registers are meters that show a total, whose differences are the energy of intervals (docs/wrong-files.md). A household
is like one where rises outnumber falls :data:`RATIO` to one, of at least :data:`LEAST` changes; where most that can be
judged are, all are taken for registers. One whose totals fall more often than once in :data:`RATIO` readings is left
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from shoal import validation
from shoal.errors import InputError
from shoal.product.sources import frames
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.clock import MICROSECOND
from shoal.rounding import count_of
from shoal.validation import FloatArray

#: A household with readings at fewer than this share of the grid points between its first and last is left out:
#: its timestamps are wrong or its interval is not the file's.
LEAST_COVERAGE = 0.1

#: A household with more than this share of rows between grid points has another interval than the file.
MOST_OFF_GRID = 0.1

#: Microseconds of a day.
DAY = timedelta(days=1) // MICROSECOND
#: The rule of plausible power: a home's supply is 10 to 45 kW, so that a day's mean above the one, or a reading above
#: the other, is a business, a fault, or a wrong unit.
LARGEST_DAY, LARGEST_READING = 50.0, 100.0
LARGE = (
    f"draw more than a home (the rule of plausible power: on some day a mean above {LARGEST_DAY:g} kW, or a reading "
    f"above {LARGEST_READING:,.0f} kW)"
)
#: No meter reads more, in any unit: what is beyond is no number to add, and the reading is missing.
LARGEST = 1e15
#: Days that a home may send out power without ever drawing any.
DAYS_BELOW = 3
NEGATIVE = "never above zero and often below: a meter of generation, or the sign is turned round"

RATIO, LEAST = 20, 20

#: What is added to the reason of a unit.
REGISTER = ", and they only rise, so that they are totals of a register and differences are taken"
RISING_POWER = (
    "unit: the readings only rise, like the totals of a register, and are said to be power; pass unit='kwh' (or 'wh') "
    "for the totals of a register, or unit='kw-interval' if they are power all the same"
)

#: What the quality table counts -> what its owner should settle, with the total and the number of homes.
NOTES = {
    "conflicts": "{total} with several readings that differ, in {homes}; the last one in the file was taken.{zone} "
    "Otherwise take the wrong rows out of the file.",
    "no_such_time": "{total} at wall times that the spring clock change skips, in {homes}, left missing. If the meter "
    "ignores summer time, name a fixed zone: --time-zone Etc/GMT-1 for UTC+1.",
    "bad_time": "{total} with a timestamp that cannot be read, in {homes}, left missing. Write all of them in one "
    "way: with an offset from UTC, or without.",
    "invalid": "{total} that are no numbers, in {homes}, left missing. If they have a decimal comma, separate "
    "columns by semicolons.",
    "duplicates": "{total} that are in the input more than once, in {homes}, counted once. Was a file given twice?",
    "export": "{total} below zero, in {homes}, taken for export. If there is none, they are faults: take them out of "
    "the file.",
    "no export": "{total} below zero, in {homes}, taken for missing: export is forecast only where the mean of each "
    "crowd or a codebook is released.",
}
AUTUMN = (
    " If it is the hour that the autumn clock change repeats, name the zone of the timestamps, such as --time-zone "
    "Europe/London."
)

COLUMNS = ("household", "timestamp", "kw")

#: Counts of the quality table: of faults while reading, of rows, and of the grid; all but two of them are repairs.
_FAULTS = ("bad_time", "no_such_time", "invalid")
_OF_ROWS = (*_FAULTS, "negative", "above_max", "out_of_order", "off_grid")
_COUNTS = (*_OF_ROWS, "falls", "duplicates", "conflicts", "missing")


class NothingToForecast(InputError):
    """No household of these readings can be forecast from the origin that was named."""


class QualityWarning(UserWarning):
    """Some readings were repaired or some households left out; the quality table says which and why."""


@dataclass(frozen=True, repr=False)
class TrainingWindow:
    """A stretch of readings: ``kw`` (n, T) of the ``households`` at ``timestamps`` (T,), NaN where missing."""

    households: tuple[str, ...]
    timestamps: pl.Series
    kw: FloatArray


@dataclass(frozen=True, repr=False)
class Readings:
    """Readings on a regular grid with the account of how they got there.

    ``frame`` has one row per household and grid point (household, timestamp, kw; null where no reading is
    usable), ``quality`` one row per household, those left out included, ``step`` is the grid's interval and ``unit``
    what the readings came in.
    """

    frame: pl.DataFrame
    quality: pl.DataFrame
    step: timedelta
    unit: str = "kW"

    def __repr__(self) -> str:
        """Sizes only: a printed object must not release readings."""
        return f"Readings({len(self.quality)} households, {len(self.frame)} rows every {self.step})"

    @property
    def time_zone(self) -> str | None:
        """Zone of the timestamps; None for wall-clock time."""
        return getattr(self.frame.schema["timestamp"], "time_zone", None)

    @property
    def left_out(self) -> dict[str, str]:
        """Household -> why it is not in ``frame``."""
        gone = self.quality.filter(pl.col("verdict") == "left out")
        return dict(zip(gone["household"].to_list(), gone["reason"].to_list(), strict=True))

    def window(self, at: int, steps: int) -> TrainingWindow:
        """The readings of ``steps`` grid points from ``at``, microseconds of the epoch; before it if negative."""
        width, length = self.step // MICROSECOND, abs(steps)
        start = min(at, at + steps * width)
        households, time = self._ends["household"], pl.col("timestamp").dt.epoch("us")
        inside = self.frame.filter(time.is_between(start, start + length * width - 1))
        part = inside.select("household", "kw", slot=(time - start) // width)
        kw = np.full((len(households), length), np.nan)
        row = part["household"].cast(pl.Enum(households)).to_physical().to_numpy()
        kw[row, part["slot"].to_numpy()] = part["kw"].fill_null(float("nan")).to_numpy()
        return TrainingWindow(
            tuple(households.to_list()), clock.grid_instants(start, self.step, length, self.time_zone), kw
        )

    @cached_property
    def _ends(self) -> pl.DataFrame:
        """First and last instant of each household in microseconds of the epoch: household, first, end."""
        time = pl.col("timestamp").dt.epoch("us")
        return self.frame.group_by("household").agg(first=time.min(), end=time.max()).sort("household")

    def find_origin(self, origin: datetime | str | None, *, anywhere: bool = False) -> int:
        """Find the end of the training window, in microseconds of the epoch.

        By default the latest one that at least half of the households reach with their readings. One that no household
        reaches is refused, unless it may be ``anywhere``: then no home decides whether others have a forecast.
        """
        width, ends = self.step // MICROSECOND, self._ends["end"].sort()
        if not len(ends):
            raise NothingToForecast("readings: no household is left; the quality table says why")
        if origin is None:
            return int(ends[(len(ends) - 1) // 2]) + width
        at = clock.microseconds_of(clock.parse_instant(origin, self.time_zone, name="origin"))
        first = int(self._ends["first"].sort()[0])
        if (at - first) % width:
            raise InputError("origin must fall on the grid of the readings", argument="origin")
        if not anywhere and at > ends[-1] + width:
            raise NothingToForecast("origin lies after the last reading of every household")
        if not anywhere and at <= first:
            raise NothingToForecast("origin lies before the first reading of every household: nothing to train on")
        return at

    def owner_notes(self, *, export: bool = True) -> list[str]:
        """Sentences on what the owner should settle about these readings, with the option that settles it.

        ``export``: readings below zero are forecast, but for those of homes that are left out.
        """
        zone = AUTUMN if self.time_zone is None else ""
        used = self.quality.filter(pl.col("verdict") != "left out")
        counts = {name: self.quality[name] for name in ("conflicts", "no_such_time", "bad_time", "invalid")}
        counts["duplicates"] = (self.quality["duplicates"] - self.quality["conflicts"]).clip(0)
        counts |= {"export": used["negative"]} if export else {"no export": self.quality["negative"]}
        sentences = []
        for name, column in counts.items():
            total, homes = int(column.sum()), int((column > 0).sum())
            if total:
                things = count_of(total, "instant" if name == "conflicts" else "reading")
                sentences.append(NOTES[name].format(total=things, homes=count_of(homes, "household"), zone=zone))
        return sentences

    def totals(self) -> dict[str, int]:
        """How many households have each verdict, and the sum of each count of the quality table."""
        verdicts = self.quality["verdict"].to_list()
        counts = {v: verdicts.count(v) for v in ("ok", "repaired", "left out")}
        return counts | {c: int(self.quality[c].sum()) for c in (*_COUNTS, "zeros", "flat", "large")}


def as_readings(
    readings: Readings | pl.DataFrame, interval: Any = None, origin: datetime | str | None = None
) -> Readings:
    """Readings as they are; a frame is put on its grid first: with an interval and an origin, on that of the origin."""
    if isinstance(readings, Readings):
        return readings
    width, phase = clock.parse_step(interval), None
    if width is not None and origin is not None:
        kind = frames.lazy_table(readings, "readings")
        zone = None if kind is None else getattr(kind.collect_schema().get("timestamp"), "time_zone", None)
        phase = clock.microseconds_of(clock.parse_instant(origin, zone, name="origin")) % (width // MICROSECOND)
    return repair_readings(readings, interval=interval, phase=phase)


def repair_readings(
    frame: Any,
    *,
    interval: Any = None,
    max_kw: float | None = None,
    energy: bool = False,
    register: bool = False,
    phase: int | None = None,
    unit: str = "kW",
) -> Readings:
    """Put any frame with household, timestamp, kw, in any order, with repeats and gaps, on a regular grid.

    Values are kW, with ``energy`` kWh per interval, with ``register`` totals in kWh; those above ``max_kw`` are taken
    for faults. The grid has an ``interval`` (by default the most common one) and a ``phase`` in microseconds from
    midnight UTC (by default where most readings lie).
    """
    rows = _standard_columns(frame)
    if not len(rows):
        raise InputError("readings must hold at least one row")
    ceiling = float("inf") if max_kw is None else validation.positive(max_kw=max_kw)
    own = household_intervals(rows)
    step = clock.parse_step(interval) or most_common_interval(Counter(own["own"].drop_nulls().to_list()))
    width = step // MICROSECOND
    per_hour = timedelta(hours=1) / step
    time, number = pl.col("timestamp").dt.epoch("us"), pl.col("kw")
    if energy and not register:
        rows = rows.with_columns(number * per_hour)
    if phase is None:
        phase = int(rows.select((time % width).drop_nulls().mode().min()).item() or 0)
    finite = number.is_finite() & (number.abs() <= LARGEST)
    above = pl.lit(False) if register else (finite & (number.abs() > ceiling)).fill_null(False)
    usable = finite & ~above & (number >= 0 if register else pl.lit(True))
    rows = rows.with_columns(
        slot=(time - phase) // width,
        off_grid=((time - phase) % width != 0).fill_null(False),
        out_of_order=(time < time.shift(1).over("household")).fill_null(False),
        invalid=pl.col("invalid") | (~finite & number.is_not_nan()).fill_null(False),
        negative=(number < 0).fill_null(False),
        above_max=above,
        kw=pl.when(usable).then(number),
    )
    counted = rows.group_by("household").agg(
        pl.len().alias("rows"), *(pl.col(c).sum().cast(pl.Int64) for c in _OF_ROWS)
    )
    merged = rows.filter(pl.col("slot").is_not_null() & ~pl.col("off_grid")).select("household", "slot", "kw")
    if merged.select(pl.struct("household", "slot").is_duplicated().any()).item():
        values = number.drop_nulls()
        merged = merged.group_by("household", "slot").agg(kw=values.last(), n=pl.len(), values=values.n_unique())
    else:
        merged = merged.with_columns(n=pl.lit(1, pl.UInt32), values=pl.lit(1, pl.UInt32))
    merged = merged.sort("household", "slot").with_columns(falls=pl.lit(False), over=pl.lit(False))
    if register:  # energy of the interval that begins at a total, where the next one is there and does not fall
        after = pl.col("slot").shift(-1).over("household") == pl.col("slot") + 1
        change = pl.when(after).then(number.shift(-1).over("household") - number)
        power = pl.when(change >= 0).then(change * per_hour)
        merged = merged.with_columns(
            falls=(change < 0).fill_null(False),
            over=(power > ceiling).fill_null(False),
            kw=pl.when((power > ceiling).fill_null(False).not_()).then(power),
        )
    zone = getattr(rows.schema["timestamp"], "time_zone", None)
    table = _quality_table(counted, merged, own, step, phase, zone).with_columns(unit=pl.lit(unit))
    kept = table.filter(pl.col("verdict") != "left out").select("household", "_first", "_last", "missing")
    grid = merged.select("household", "slot", "kw")
    if len(kept) < len(table) or kept["missing"].sum() or grid["kw"].has_nulls():
        every = kept.select("household", slot=pl.int_ranges(pl.col("_first"), pl.col("_last") + 1)).explode("slot")
        grid = every.join(grid, on=["household", "slot"], how="left", maintain_order="left")
    name = pl.col("household").cast(pl.String)
    final = grid.select(name, timestamp=clock.on_clock(pl.col("slot") * width + phase, zone), kw="kw")
    return Readings(final, table.drop("_first", "_last").with_columns(name), step, unit)


def _standard_columns(frame: Any) -> pl.DataFrame:
    """Household, timestamp and kw in their standard types, and a flag column per fault found while reading."""
    table = frames.lazy_table(frame, "readings")
    if table is None:
        raise InputError("readings must be a frame (Polars, pandas, Arrow) with household, timestamp, kw")
    schema = table.collect_schema()
    missing = [c for c in COLUMNS if c not in schema]
    if missing:
        raise InputError(f"readings lacks the column(s) {missing}; found {list(schema)[:12]}")
    if not isinstance(schema["timestamp"], pl.Datetime):
        raise InputError("readings: timestamp must be a datetime column; read_meters() turns text into one")
    if not schema["kw"].is_numeric():
        raise InputError("readings: kw must be a numeric column")
    lazy = table.with_columns(
        pl.col("household").cast(pl.String).fill_null(""),
        pl.col("timestamp").dt.cast_time_unit("us"),
        pl.col("kw").cast(pl.Float64),
        *(pl.lit(False).alias(c) for c in _FAULTS if c not in schema),
    )
    rows = lazy.select(*COLUMNS, *_FAULTS).collect()
    # Sorting and grouping by whole numbers is several times faster than by text.
    rows = rows.with_columns(pl.col("household").cast(pl.Enum(rows["household"].unique().sort())))
    known_before = pl.col("bad_time") | pl.col("no_such_time")
    return rows.with_columns(bad_time=pl.col("bad_time") | (pl.col("timestamp").is_null() & ~known_before))


def household_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Most common distance between a household's successive instants, in microseconds: household, own."""
    time = pl.col("timestamp").dt.epoch("us").drop_nulls()
    return rows.group_by("household").agg(own=time.unique().sort().diff().drop_nulls().mode().min())


def most_common_interval(counts: Mapping[int, int]) -> timedelta:
    """The grid's interval: the most common one, then the shortest, by how many households have which (microseconds)."""
    if not counts:
        raise InputError("interval cannot be inferred: no household has two readings; pass interval=")
    common = min(counts, key=lambda own: (-counts[own], own))
    if DAY % common:
        raise InputError(
            "interval cannot be inferred: the most common distance between readings does not divide one day; "
            "pass interval= in minutes"
        )
    return timedelta(microseconds=common)


def _quality_table(
    counted: pl.DataFrame, merged: pl.DataFrame, own: pl.DataFrame, step: timedelta, phase: int, zone: str | None
) -> pl.DataFrame:
    """A row per household with counts, verdict and reason, from its rows ``counted`` and its grid points ``merged``."""
    width, kw = step // MICROSECOND, pl.col("kw")
    slot = pl.col("slot").filter(kw.is_not_null())
    grids = merged.group_by("household").agg(
        pl.col("over", "falls").sum().cast(pl.Int64),
        _first=slot.min(),
        _last=slot.max(),
        present=kw.count().cast(pl.Int64),
        longest_gap=slot.diff().max().fill_null(1) - 1,
        zeros=(kw == 0).sum().cast(pl.Int64),
        flat=kw.min() == kw.max(),
        never_above=(kw.max() <= 0) & (kw.min() < 0),
        duplicates=(pl.col("n").cast(pl.Int64) - 1).sum(),
        conflicts=(pl.col("values") > 1).sum().cast(pl.Int64),
    )
    day = (pl.col("slot") * width + phase) // DAY
    suspects = merged.filter(kw.abs().max().over("household") > LARGEST_DAY)
    means = suspects.group_by("household", day=day).agg(mean=kw.mean().abs(), most=kw.abs().max())
    large = means.group_by("household").agg(
        large=(pl.col("mean").max() > LARGEST_DAY) | (pl.col("most").max() > LARGEST_READING)
    )
    table = counted
    for more in (grids, own, large):
        table = table.join(more, on="household", how="left")
    rows, present = pl.col("rows"), pl.col("present")
    table = table.with_columns(
        pl.col("duplicates", "conflicts", "present", "longest_gap", "zeros", "falls").fill_null(0),
        pl.col("flat", "large").fill_null(False),
        above_max=pl.col("above_max") + pl.col("over").fill_null(0),
        span=pl.col("_last") - pl.col("_first") + 1,
    ).with_columns(missing=(pl.col("span") - present).fill_null(0))
    minutes, span = f"{step / timedelta(minutes=1):g}", pl.col("span")
    reasons = {
        "rows without a household id": pl.col("household").cast(pl.String) == "",
        "no usable reading: none is a number (a decimal comma needs columns separated by semicolons)":
            (pl.col("invalid") == rows) & (rows > 0),
        "no usable reading: no timestamp can be read (write all with an offset from UTC, or all without)":
            (pl.col("bad_time") == rows) & (rows > 0),
        "no usable reading": present == 0,
        NEGATIVE: pl.col("never_above") & (span * width >= DAYS_BELOW * DAY),
        f"mixed intervals: most readings do not fall on the {minutes}-minute grid of the others":
            pl.col("off_grid") > MOST_OFF_GRID * rows,
        f"mixed intervals: {{}} minutes, while the grid has {minutes}":
            (pl.col("own") != width) & (pl.col("own") <= DAY) & (present < 0.6 * span),
        "its readings fall too often for the register that the others are": pl.col("falls") * RATIO > present,
        "readings are strewn over too long a time: some timestamps must be wrong": present < LEAST_COVERAGE * span,
    }  # fmt: skip
    texts = [pl.when(holds).then(pl.lit(text)) for text, holds in reasons.items()]
    reason = pl.coalesce(texts).str.replace("{}", (pl.col("own") / 60e6).cast(pl.String).fill_null(""), literal=True)
    repaired = pl.any_horizontal(pl.col(c) > 0 for c in _COUNTS if c not in ("negative", "conflicts"))
    table = table.with_columns(
        **{end: clock.on_clock(pl.col(f"_{end}") * width + phase, zone) for end in ("first", "last")},
        reason=reason,
        verdict=pl.when(reason.is_not_null()).then(pl.lit("left out"))
        .otherwise(pl.when(repaired).then(pl.lit("repaired")).otherwise(pl.lit("ok"))),
    )  # fmt: skip
    front = ("household", "verdict", "reason", "rows", "first", "last")
    return table.select(*front, *_COUNTS, "longest_gap", "zeros", "flat", "large", "_first", "_last").sort("household")


def count_registers(rows: pl.DataFrame) -> tuple[int, int]:
    """How many households only rise, as registers do, and how many have changes enough to judge that."""
    change = pl.col("kw").sort_by("timestamp").diff()
    homes = rows.filter(pl.col("kw").is_finite() & pl.col("timestamp").is_not_null()).group_by("household")
    counts = homes.agg(rises=(change > 0).sum().cast(pl.Int64), falls=(change < 0).sum().cast(pl.Int64))
    rises, falls = counts["rises"], counts["falls"]
    return int(((rises >= LEAST) & (rises >= RATIO * falls)).sum()), int((rises + falls >= LEAST).sum())


def are_registers(like: int, judged: int, *, energy: bool, meter: str | None) -> bool:
    """Whether readings are totals: as the caller says (``meter``), or as most of the ``judged`` households look."""
    if meter is not None:
        if validation.choice(("register", "interval"), unit=meter) == "register" and not energy:
            raise InputError("unit: the total of a register is energy; pass unit='kwh-register' (or 'wh-', 'mwh-')")
        return meter == "register"
    register = judged > 0 and 2 * like > judged
    if register and not energy:
        raise InputError(RISING_POWER)
    return register
