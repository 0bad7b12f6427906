"""Meter files to readings shards, in memory that does not grow with the number of rows.

:func:`shoal.runs.pieces.sort_files` sorts the rows by shard; :func:`survey` looks at each shard; :func:`common_grid`
takes from all of them the interval and the phase that a look at everything would have found; :func:`make_shard` repairs
each shard on that grid. The result is, household by household, that of ``meter_readings`` on all files at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from shoal.card.facts import Record
from shoal.meters.quality import Readings, common_interval, own_intervals, repair
from shoal.meters.simulate import simulate_meters
from shoal.runs.pieces import Pieces, grid_step, read_pieces
from shoal.runs.shards import MICROSECOND, shard_of, write_shard

DAY = timedelta(days=1) // MICROSECOND


@dataclass(frozen=True)
class SurveyTask:
    """Which shard to look at."""

    pieces: Pieces
    number: int


@dataclass(frozen=True)
class Survey:
    """What one shard says about the grid: (microseconds, how often), ascending.

    ``intervals`` counts households by their most common distance between readings, ``times`` rows by time of the day;
    as many entries as there are different times of the day, so at most 86,400 where clocks show whole seconds.
    """

    intervals: tuple[tuple[int, int], ...]
    times: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Grid:
    """The grid all shards share, in microseconds."""

    step_us: int
    phase_us: int


@dataclass(frozen=True)
class ShardTask:
    """Which shard to make, on which grid, and where."""

    pieces: Pieces
    number: int
    grid: Grid
    out: str


@dataclass(frozen=True)
class SimulatedTask:
    """Simulated households first .. last − 1 of ``seed``, and where to write them."""

    first: int
    last: int
    days: int
    step_minutes: int
    seed: int
    start: str
    out: str


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


def survey(task: SurveyTask) -> Survey:
    """Intervals and times of the day in one shard."""
    import polars as pl

    rows = read_pieces(task.pieces, task.number)
    intervals = Counter(own_intervals(rows)["own"].drop_nulls().to_list())
    times = rows.select((pl.col("timestamp").dt.epoch("us") % DAY).drop_nulls().alias("time"))
    counted = times.group_by("time").len().sort("time")
    return Survey(tuple(sorted(intervals.items())), tuple((int(t), int(n)) for t, n in counted.iter_rows()))


def common_grid(surveys: Iterable[Survey], interval: Any = None) -> Grid:
    """The interval most households have (the least of equals) and the phase most readings have."""
    intervals: Counter[int] = Counter()
    times: Counter[int] = Counter()
    for found in surveys:
        intervals.update(dict(found.intervals))
        times.update(dict(found.times))
    step = grid_step(interval) or common_interval(intervals) // MICROSECOND
    phases: Counter[int] = Counter()
    for time, count in times.items():
        phases[time % step] += count
    return Grid(step, min(phases, key=lambda phase: (-phases[phase], phase), default=0))


def make_shard(task: ShardTask) -> ShardFacts:
    """Repair one shard's rows and write the shard with its quality table."""
    pieces, grid = task.pieces, task.grid
    readings = repair(
        read_pieces(pieces, task.number),
        interval=timedelta(microseconds=grid.step_us),
        max_kw=pieces.max_kw,
        energy=pieces.energy,
        phase=grid.phase_us,
    )
    return _write(task.out, readings)


def make_simulated_shard(task: SimulatedTask) -> ShardFacts:
    """Write a shard of simulated households."""
    frame = simulate_meters(
        task.last - task.first, task.days, task.step_minutes, task.seed, start=task.start, first=task.first
    )
    return _write(task.out, repair(frame, interval=task.step_minutes, phase=0))


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
    )
