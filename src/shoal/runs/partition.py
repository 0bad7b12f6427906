"""Meter files to readings shards, in memory that does not grow with the number of rows.

:func:`shoal.runs.pieces.sort_files` sorts the rows by shard; :func:`survey` looks at each shard; :func:`common_grid`
takes from all of them the interval and the phase that a look at everything would have found; :func:`make_shard` repairs
each shard on that grid. The result is, household by household, that of ``meter_readings`` on all files at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from shoal.card.facts import LISTED, tallied
from shoal.records import Record
from shoal.runs.pieces import Pieces, read_pieces
from shoal.runs.shards import MICROSECOND, shard_of, write_shard
from shoal.runs.sources import SimulatedMeters
from shoal.sources.meters import clock
from shoal.sources.meters.quality import (
    DAY,
    REGISTER,
    Readings,
    common_interval,
    decided,
    own_intervals,
    repair,
    rising,
)
from shoal.sources.meters.simulate import simulate_meters

#: First day of simulated readings.
SIMULATED_START = "2024-01-01"


@dataclass(frozen=True)
class Survey:
    """What one shard says about the grid: (microseconds, how often), ascending.

    ``intervals`` counts households by their most common distance between readings, ``times`` rows by time of the day;
    as many entries as there are different times of the day, so at most 86,400 where clocks show whole seconds.
    """

    intervals: tuple[tuple[int, int], ...]
    times: tuple[tuple[int, int], ...]
    rising: tuple[int, int] = (0, 0)  #: households whose readings only rise, of how many that can be judged


@dataclass(frozen=True)
class Grid(Record):
    """What all shards share: the grid, in microseconds, and whether readings are the totals of registers."""

    step_us: int
    phase_us: int
    register: bool = False


@dataclass(frozen=True)
class ShardFacts(Record):
    """What a shard holds: usable households, those left out, those repaired, grid points, and on which clock.

    ``ends`` counts households by the microsecond of their last reading.
    """

    households: int
    left_out: int
    repaired: int
    readings: int
    ends: tuple[tuple[int, int], ...]
    step_us: int
    time_zone: str | None
    large: int = 0  #: households above what a home draws
    reasons: tuple[tuple[str, int], ...] = ()  #: why households are left out
    unit: str = "kW"  #: what the readings came in
    unit_reason: str = ""
    taken: str = ""  #: which columns were taken for what
    number: int = 0  #: of the bucket


def survey(pieces: Pieces, number: int) -> Survey:
    """Intervals and times of the day in one shard."""
    import polars as pl

    rows = read_pieces(pieces, number)
    intervals = Counter(own_intervals(rows)["own"].drop_nulls().to_list())
    times = rows.select((pl.col("timestamp").dt.epoch("us") % DAY).drop_nulls().alias("time"))
    counted = times.group_by("time").len().sort("time")
    seen = tuple((int(t), int(n)) for t, n in counted.iter_rows())
    return Survey(tuple(sorted(intervals.items())), seen, rising(rows))


def common_grid(
    surveys: Iterable[Survey], interval: Any = None, *, energy: bool = False, meter: str | None = None
) -> Grid:
    """The interval most households have (the least of equals), the phase most readings have, and what they are."""
    seen = list(surveys)
    intervals, times = tallied(found.intervals for found in seen), tallied(found.times for found in seen)
    like, judged = (sum(found.rising[i] for found in seen) for i in (0, 1))
    register = decided(like, judged, energy=energy, meter=meter)
    step = (clock.step(interval) or common_interval(intervals)) // MICROSECOND
    phases: Counter[int] = Counter()
    for time, count in times.items():
        phases[time % step] += count
    return Grid(step, min(phases, key=lambda phase: (-phases[phase], phase), default=0), register)


def make_shard(pieces: Pieces, number: int, grid: Grid, out: str) -> ShardFacts:
    """Repair one shard's rows and write the shard with its quality table."""
    readings = repair(
        read_pieces(pieces, number),
        interval=timedelta(microseconds=grid.step_us),
        max_kw=pieces.max_kw,
        energy=pieces.energy,
        register=grid.register,
        phase=grid.phase_us,
        unit=pieces.unit,
        unit_reason=pieces.unit_reason + (REGISTER if grid.register else ""),
    )
    return replace(_write(out, readings), taken=pieces.taken, number=number)


def make_simulated_shard(source: SimulatedMeters, first: int, last: int, out: str) -> ShardFacts:
    """Write a shard of the simulated households first .. last − 1."""
    step = source.step_minutes
    frame = simulate_meters(last - first, source.days, step, source.seed, start=SIMULATED_START, first=first)
    readings = repair(frame, interval=step, phase=0, unit_reason="they are simulated so")
    return replace(_write(out, readings), number=first)


def _write(out: str, readings: Readings) -> ShardFacts:
    rows = shard_of(readings)
    write_shard(out, rows, readings.quality, readings.step)
    verdicts = Counter(readings.quality["verdict"].to_list())
    width = readings.step // MICROSECOND
    lengths = rows["kw"].list.len().to_numpy().astype("int64")
    ends = Counter((rows["first"].dt.epoch("us").to_numpy() + (lengths - 1) * width).tolist())
    return ShardFacts(
        households=len(rows),
        left_out=verdicts["left out"],
        repaired=verdicts["repaired"],
        readings=len(readings.frame),
        ends=tuple(sorted(ends.items())),
        step_us=width,
        time_zone=getattr(rows.schema["first"], "time_zone", None),
        large=int(readings.quality["large"].sum()),
        reasons=tuple(Counter(readings.quality["reason"].drop_nulls().to_list()).most_common(LISTED)),
        unit=readings.unit,
        unit_reason=readings.unit_reason,
    )
