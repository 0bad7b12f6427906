"""Put readings on a regular grid and say, household by household, what had to be done for it.

Nothing is invented and nothing disappears without a trace. A missing reading stays missing (null): the exact
likelihood of ``arma`` skips it, so no filled-in value ever enters a model. What cannot be used is
counted in the quality table, and a household that cannot be used keeps its row there with the reason.

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
| gaps | how gaps were treated: ``"none"`` or ``"left missing"`` |
| verdict, reason | ``"ok"``, ``"repaired"`` or ``"left out"``, and why |

Registers are meters that show a total, whose differences are the energy of intervals. A
household's values are like those of a register where rises outnumber falls :data:`RATIO` to one, of at least
:data:`LEAST` changes: a reading of an interval falls about as often as it rises. Where most households that can be
judged are like that, all are taken for registers.

The energy between two totals belongs to the interval that begins at the first. Where a total is missing, or falls (the
meter was replaced, or began again at zero), what lies between is unknown, and the interval is missing. A household
whose totals fall more often than once in :data:`RATIO` readings is no register and is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import polars as pl

from shoal import validation
from shoal.errors import InputError
from shoal.sources import frames
from shoal.sources.meters import clock

#: A household with readings at fewer than this share of the grid points between its first and last is left out:
#: its timestamps are wrong or its interval is not the file's.
LEAST_COVERAGE = 0.1

#: A household with more than this share of rows between grid points has another interval than the file.
MOST_OFF_GRID = 0.1

#: Microseconds of a day.
DAY = timedelta(days=1) // timedelta(microseconds=1)
#: The rule of plausible power: a home's supply is 10 to 45 kW, so that a day's mean above the one, or a reading above
#: the other, is a business, a fault, or a wrong unit.
LARGEST_DAY, LARGEST_READING = 50.0, 100.0
LARGE = (
    f"draw more than a home (the rule of plausible power: on some day a mean above {LARGEST_DAY:g} kW, or a reading "
    f"above {LARGEST_READING:,.0f} kW)"
)
#: Days that a home may send out power without ever drawing any.
DAYS_BELOW = 3
NEGATIVE = "never above zero and often below: a meter of generation, or the sign is turned round"

RATIO = 20
LEAST = 20

#: What is added to the reason of a unit.
REGISTER = ", and they only rise, so that they are totals of a register and differences are taken"
RISING_POWER = (
    "unit: the readings only rise, like the totals of a register, and are said to be power; pass unit='kwh' (or 'wh') "
    "for the totals of a register, or meter='interval' if they are power all the same"
)

COLUMNS = ("household", "timestamp", "kw")

_FAULTS = ("bad_time", "no_such_time", "invalid")
_REPAIRS = (*_FAULTS, "above_max", "out_of_order", "off_grid", "falls", "duplicates", "missing")
_COUNTS = (*_FAULTS, "negative", *_REPAIRS[3:-1], "conflicts", "missing")


class QualityWarning(UserWarning):
    """Some readings were repaired or some households left out; the quality table says which and why."""


@dataclass(frozen=True, repr=False)
class Readings:
    """Readings on a regular grid with the account of how they got there.

    ``frame`` has one row per household and grid point (household, timestamp, kw; null where no reading is
    usable), ``quality`` one row per household, those left out included, ``step`` is the grid's interval, ``unit``
    what the readings came in and ``unit_reason`` how that is known.
    """

    frame: pl.DataFrame
    quality: pl.DataFrame
    step: timedelta
    unit: str = "kW"
    unit_reason: str = "the column's name says so ('kw')"

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

    def notes(self) -> list[str]:
        """What an owner should settle about these readings, in sentences with the option that settles it."""
        totals, sentences = self.summary(), []
        if totals["conflicts"]:
            homes = int((self.quality["conflicts"] > 0).sum())
            zone = (
                " If it is the hour that the autumn clock change repeats, name the zone of the timestamps: time_zone "
                "(--time-zone), for example 'Europe/London'."
                if self.time_zone is None
                else ""
            )
            sentences.append(
                f"{totals['conflicts']} instants of {homes} homes have several readings that differ; the last one in "
                f"the file was taken.{zone} Otherwise take the wrong rows out of the file."
            )
        if totals["no_such_time"]:
            sentences.append(
                f"{totals['no_such_time']} readings are at wall times that the spring clock change skips, and were "
                "left missing. If the meter ignores summer time, name a fixed zone: time_zone "
                "(--time-zone), 'Etc/GMT-1' for UTC+1."
            )
        if totals["negative"]:
            homes = int((self.quality["negative"] > 0).sum())
            sentences.append(
                f"{totals['negative']} readings of {homes} homes are below zero and count as export. If these homes "
                "export nothing, they are faults: take them out of the file."
            )
        return sentences

    def summary(self) -> dict[str, int]:
        """Totals over households: how many of each verdict, and each count of the table."""
        verdicts = self.quality["verdict"].to_list()
        counts = {v: verdicts.count(v) for v in ("ok", "repaired", "left out")}
        return counts | {c: int(self.quality[c].sum()) for c in (*_COUNTS, "zeros", "flat", "large")}


def repair(
    frame: Any,
    *,
    interval: Any = None,
    max_kw: float | None = None,
    energy: bool = False,
    register: bool = False,
    phase: int | None = None,
    unit: str = "kW",
    unit_reason: str = Readings.unit_reason,
) -> Readings:
    """Readings on a regular grid, from any frame with household, timestamp, kw.

    Args:
        frame: rows in any order, with repeats and gaps; a row's order counts only among repeats.
        interval: grid interval (timedelta or minutes); by default the most common one in the frame.
        max_kw: readings above it are taken for meter faults and become missing.
        energy: values are kWh per interval and are turned into mean kW.
        register: values are totals in kWh, and differences are taken (:func:`decided`).
        phase: microseconds from midnight UTC to a grid point; by default where most readings lie.
        unit: what the values came in, for the account.
        unit_reason: how that is known.
    """
    rows = _standard(frame)
    if not len(rows):
        raise InputError("readings must hold at least one row")
    ceiling = float("inf") if max_kw is None else validation.positive(max_kw=max_kw)
    own = own_intervals(rows)
    step = clock.step(interval) or common_interval(Counter(own["own"].drop_nulls().to_list()))
    width = step // timedelta(microseconds=1)
    per_hour = timedelta(hours=1) / step
    rows = rows.with_columns(kw=pl.col("kw") * per_hour) if energy and not register else rows

    time = pl.col("timestamp").dt.epoch("us")
    if phase is None:
        phase = int(rows.select((time % width).drop_nulls().mode().min()).item() or 0)
    number = pl.col("kw")
    above = (number.is_finite() & (number.abs() > ceiling)).fill_null(False) if not register else pl.lit(False)
    usable = number.is_finite() & ~above & (number >= 0 if register else pl.lit(True))
    rows = rows.with_columns(
        slot=(time - phase) // width,
        off_grid=((time - phase) % width != 0).fill_null(False),
        out_of_order=(time < time.shift(1).over("household")).fill_null(False),
        invalid=pl.col("invalid") | number.is_infinite().fill_null(False),
        negative=(number < 0).fill_null(False),
        above_max=above,
        kw=pl.when(usable).then(number),
    )
    counted = rows.group_by("household").agg(
        pl.len().alias("rows"),
        *(pl.col(c).sum().cast(pl.Int64) for c in (*_FAULTS, "negative", "above_max", "out_of_order", "off_grid")),
    )
    on_grid = rows.filter(pl.col("slot").is_not_null() & ~pl.col("off_grid")).select("household", "slot", "kw")
    if on_grid.select(pl.struct("household", "slot").is_duplicated().any()).item():
        merged = on_grid.group_by("household", "slot").agg(
            kw=pl.col("kw").drop_nulls().last(), n=pl.len(), values=pl.col("kw").drop_nulls().n_unique()
        )
    else:
        merged = on_grid.with_columns(n=pl.lit(1, pl.UInt32), values=pl.lit(1, pl.UInt32))
    merged = merged.sort("household", "slot")
    if register:
        power = differences(merged).with_columns(pl.col("kw") * per_hour)
        over = (pl.col("kw") > ceiling).fill_null(False)
        merged = power.with_columns(over=over, kw=pl.when(~over).then("kw"))
        found = merged.group_by("household").agg(pl.col("over", "falls").sum().cast(pl.Int64))
        counted = counted.join(found, on="household", how="left").with_columns(
            above_max=pl.col("over").fill_null(0), falls=pl.col("falls").fill_null(0)
        )
    else:
        counted = counted.with_columns(falls=pl.lit(0, pl.Int64))
    zone = getattr(rows.schema["timestamp"], "time_zone", None)
    table = _table(counted, merged, own, step, phase, zone).with_columns(unit=pl.lit(unit))
    kept = table.filter(pl.col("verdict") != "left out").select("household", "_first", "_last", "missing")
    values = merged.select("household", "slot", "kw")
    if len(kept) == len(table) and kept["missing"].sum() == 0 and not values["kw"].has_nulls():
        grid = values  # complete as it stands
    else:
        grid = kept.select("household", slot=pl.int_ranges(pl.col("_first"), pl.col("_last") + 1)).explode("slot")
        grid = grid.join(values, on=["household", "slot"], how="left", maintain_order="left")
    final = grid.select(
        pl.col("household").cast(pl.String),
        timestamp=clock.on_clock(pl.col("slot") * width + phase, zone),
        kw=pl.col("kw"),
    )
    quality = table.drop("_first", "_last").with_columns(pl.col("household").cast(pl.String))
    return Readings(final, quality, step, unit, unit_reason)


def _standard(frame: Any) -> pl.DataFrame:
    """The three columns in their standard types plus one flag column per fault found while reading."""
    table = None if isinstance(frame, str) else frames.table_of(frame, "readings")
    if table is None:
        raise InputError("readings must be a frame (Polars, pandas, Arrow, DuckDB) with household, timestamp, kw")
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


def own_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Most common distance between a household's successive instants, in microseconds: household, own."""
    time = pl.col("timestamp").dt.epoch("us").drop_nulls()
    return rows.group_by("household").agg(own=time.unique().sort().diff().drop_nulls().mode().min())


def common_interval(counts: Mapping[int, int]) -> timedelta:
    """The grid's interval, from how many households have which (in microseconds): the most common, then the least."""
    if not counts:
        raise InputError("interval cannot be inferred: no household has two readings; pass interval=")
    common = min(counts, key=lambda own: (-counts[own], own))
    if DAY % common:
        raise InputError(
            "interval cannot be inferred: the most common distance between readings does not divide one day; "
            "pass interval= in minutes"
        )
    return timedelta(microseconds=common)


def _table(
    counted: pl.DataFrame,
    merged: pl.DataFrame,
    own: pl.DataFrame,
    step: timedelta,
    phase: int,
    zone: str | None,
) -> pl.DataFrame:
    """One row per household: counts, verdict and reason."""
    width = step // timedelta(microseconds=1)
    present = merged.filter(pl.col("kw").is_not_null())
    grids = present.group_by("household").agg(
        _first=pl.col("slot").min(),
        _last=pl.col("slot").max(),
        present=pl.len().cast(pl.Int64),
        longest_gap=pl.col("slot").diff().max().fill_null(1) - 1,
        zeros=(pl.col("kw") == 0).sum().cast(pl.Int64),
        flat=pl.col("kw").min() == pl.col("kw").max(),
        _never_above=(pl.col("kw").max() <= 0) & (pl.col("kw").min() < 0),
    )
    day = (pl.col("slot") * width + phase) // DAY
    suspects = present.filter(pl.col("kw").abs().max().over("household") > LARGEST_DAY)
    means = suspects.group_by("household", day=day).agg(mean=pl.col("kw").mean().abs(), most=pl.col("kw").abs().max())
    large = means.group_by("household").agg(
        large=(pl.col("mean").max() > LARGEST_DAY) | (pl.col("most").max() > LARGEST_READING)
    )
    repeats = merged.group_by("household").agg(
        duplicates=(pl.col("n").cast(pl.Int64) - 1).sum(), conflicts=(pl.col("values") > 1).sum().cast(pl.Int64)
    )
    span = pl.col("_last") - pl.col("_first") + 1
    table = (
        counted.join(repeats, on="household", how="left")
        .join(grids, on="household", how="left")
        .join(own, on="household", how="left")
        .join(large, on="household", how="left")
        .with_columns(pl.col("duplicates", "conflicts", "present", "longest_gap", "zeros").fill_null(0))
        .with_columns(missing=(span - pl.col("present")).fill_null(0), flat=pl.col("flat").fill_null(False))
        .with_columns(pl.col("large").fill_null(False))
    )
    minutes = f"{step / timedelta(minutes=1):g}"
    other = (pl.col("own") != width) & (pl.col("own") <= DAY)
    sparse = pl.col("present") < LEAST_COVERAGE * span
    reason = (
        pl.when(pl.col("household").cast(pl.String) == "")
        .then(pl.lit("rows without a household id"))
        .when(pl.col("present") == 0)
        .then(pl.lit("no usable reading"))
        .when(pl.col("_never_above") & (span * width >= DAYS_BELOW * DAY))
        .then(pl.lit(NEGATIVE))
        .when(pl.col("off_grid") > MOST_OFF_GRID * pl.col("rows"))
        .then(pl.lit(f"mixed intervals: most readings do not fall on the {minutes}-minute grid of the others"))
        .when(other & (pl.col("present") < 0.6 * span))
        .then(pl.format(f"mixed intervals: {{}} minutes, while the grid has {minutes}", pl.col("own") / 60e6))
        .when(pl.col("falls") * RATIO > pl.col("present"))
        .then(pl.lit("its readings fall too often for the register that the others are"))
        .when(sparse)
        .then(pl.lit("readings are strewn over too long a time: some timestamps must be wrong"))
    )
    repaired = pl.any_horizontal(pl.col(c) > 0 for c in _REPAIRS)
    table = table.with_columns(
        **{end: clock.on_clock(pl.col(f"_{end}") * width + phase, zone) for end in ("first", "last")},
        gaps=pl.when(pl.col("missing") > 0).then(pl.lit("left missing")).otherwise(pl.lit("none")),
        reason=reason,
    ).with_columns(
        verdict=pl.when(pl.col("reason").is_not_null())
        .then(pl.lit("left out"))
        .when(repaired)
        .then(pl.lit("repaired"))
        .otherwise(pl.lit("ok"))
    )
    order = (
        "household",
        "verdict",
        "reason",
        "rows",
        "first",
        "last",
        *_COUNTS,
        "longest_gap",
        "gaps",
        "zeros",
        "flat",
    )
    return table.select(*order, "large", "_first", "_last").sort("household")


# ------------------------------------------------------------------ registers


def rising(rows: pl.DataFrame) -> tuple[int, int]:
    """Of the households in rows of household, timestamp and kw: how many only rise, and how many can be judged."""
    usable = pl.col("kw").is_finite() & pl.col("timestamp").is_not_null()
    change = pl.col("kw").sort_by("timestamp").diff()
    counted = (
        rows.lazy()
        .filter(usable)
        .group_by("household")
        .agg(rises=(change > 0).sum().cast(pl.Int64), falls=(change < 0).sum().cast(pl.Int64))
        .select(
            like=((pl.col("rises") >= LEAST) & (pl.col("rises") >= RATIO * pl.col("falls"))).sum(),
            judged=(pl.col("rises") + pl.col("falls") >= LEAST).sum(),
        )
        .collect()
    )
    return int(counted["like"].item()), int(counted["judged"].item())


def decided(like: int, judged: int, *, energy: bool, meter: str | None) -> bool:
    """Whether readings are totals: as the caller says, or as most households look."""
    if meter is not None:
        if validation.choice(("register", "interval"), meter=meter) == "register" and not energy:
            raise InputError("unit: the total of a register is energy; pass unit='kwh' (or 'wh', 'mwh')")
        return meter == "register"
    found = judged > 0 and 2 * like > judged
    if found and not energy:
        raise InputError(RISING_POWER)
    return found


def differences(totals: pl.DataFrame) -> pl.DataFrame:
    """Totals by household and slot, sorted, as energy of the interval that begins there; ``falls`` marks falls."""
    after = pl.col("slot").shift(-1).over("household") == pl.col("slot") + 1
    change = pl.when(after).then(pl.col("kw").shift(-1).over("household") - pl.col("kw"))
    return (
        totals.with_columns(change=change)
        .with_columns(kw=pl.when(pl.col("change") >= 0).then("change"), falls=(pl.col("change") < 0).fill_null(False))
        .drop("change")
    )
