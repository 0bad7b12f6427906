"""The first stage: rows to shards by a hash of the name, and readings to forecasts, shard by shard.

A shard of forecasts is ``<key>.zip``; beside it ``<key>.curves.parquet``, one row per household with its value today,
habits, usual day and what was metered later (:data:`CURVES`), and ``<key>.quality.parquet``, one row per household
read, those that could not be used included. A forecast needs no crowd: crowds come after it
(:mod:`shoal.runs.stages.crowd_stage`).
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shoal.card.facts import LISTED, FitFacts, Lost, Record, most_common, tallied
from shoal.errors import InputError
from shoal.plaintext import as_cells
from shoal.runs import partition, secret
from shoal.runs.config import Config
from shoal.runs.context import FIT, FORECASTS, SHARDS, Context, Made
from shoal.runs.jobs import Job, Listing, Tell, noted, out_path, run_jobs
from shoal.runs.pieces import Pieces, sort_files
from shoal.runs.shards import quality_path, readings_of, write_array, write_frame
from shoal.runs.sources import SimulatedMeters, Source
from shoal.runs.store import Part, finished, put_whole
from shoal.sources.meters import clock, window
from shoal.sources.meters.answered import TRUTH, off_by
from shoal.sources.meters.columns import ColumnsError
from shoal.sources.meters.forecast import Forecasts, forecast
from shoal.sources.meters.neighborhoods import hourly_habits, usual_day
from shoal.sources.meters.quality import LARGE, NEGATIVE, Readings
from shoal.sources.meters.update import ABSENT, update_forecasts
from shoal.validation import FloatArray
from shoal.workers.executor import Executor, tick

if TYPE_CHECKING:
    import polars as pl

#: Settings that decide how meter files are read.
READING = (
    "unit", "meter", "interval", "time_zone", "timestamp_format", "max_kw", "household_column", "timestamp_column",
    "value_column", "only",
)  # fmt: skip
SETTINGS = (*READING, "train_days", "horizon", "order", "season", "origin", "shard_size", "secret")
#: Those that may differ from day to day.
DAILY = ("origin", "horizon")

QUALITY_TABLE = "quality.csv"
#: Suffixes of a shard's files.
CURVES, QUALITY = "curves.parquet", "quality.parquet"


def do(readings: str, origin: str, config: Config, before: str | None, out: str) -> FitFacts:
    """Write the forecasts of a shard of readings; ``origin`` is ISO text, and all shards share it.

    ``before`` is the shard of forecasts of an earlier day, to go on from: who has no readings since then has no row in
    the curves today, and stays in the forecasts for the day when its readings are back.
    """
    data = readings_of(readings)
    instant = datetime.fromisoformat(origin)
    p, q = config.order
    if before is None:
        forecasts = forecast(
            data,
            order=(p, q),
            train_days=config.train_days,
            horizon=config.horizon,
            season=config.season_period,
            origin=instant,
            progress=tick,
        )
        heard = frozenset(forecasts.households)
    else:
        forecasts, heard = update_forecasts(Forecasts.load(before), data, origin=instant, horizon=config.horizon)
    truth = later(data, forecasts)
    path = Path(out)
    write_array(path.with_suffix(f".{TRUTH}"), truth)
    write_curves(
        path,
        forecasts.households,
        forecasts.power,
        truth=truth,
        habits=hourly_habits(forecasts),
        stored=usual_day(forecasts),
        here=[name in heard for name in forecasts.households],
    )
    write_frame(path.with_suffix(f".{QUALITY}"), _with_absent(forecasts, heard))
    put_whole(path, forecasts.save)
    known, off = off_by(truth, forecasts.power)
    facts = forecasts.facts(None)
    return replace(facts, later_known=known, later_absolute=off, goes_on=before is not None)


def later(readings: Readings, forecasts: Forecasts) -> FloatArray:
    """(n, h) readings of the horizon in kW; NaN where none is known, as of a household without new readings."""
    at = window.place_origin(readings, forecasts.origin)
    part = window.cut(readings, at, forecasts.horizon)
    place = {name: i for i, name in enumerate(part.households)}
    unknown = np.full(forecasts.horizon, np.nan)
    return np.array([part.kw[place[name]] if name in place else unknown for name in forecasts.households])


def _with_absent(forecasts: Forecasts, heard: frozenset[str]) -> pl.DataFrame:
    """The quality table, those without new readings marked as left out."""
    import polars as pl

    silent = [name for name in forecasts.households if name not in heard]
    here = pl.col("household").is_in(silent)
    return forecasts.quality.with_columns(
        verdict=pl.when(here).then(pl.lit("left out")).otherwise(pl.col("verdict")),
        reason=pl.when(here).then(pl.lit(ABSENT)).otherwise(pl.col("reason")),
    )


def write_curves(
    shard: Path,
    labels: Sequence[str],
    values: FloatArray,
    *,
    truth: FloatArray,
    habits: FloatArray,
    stored: FloatArray,
    here: Sequence[bool],
) -> None:
    """Write beside a shard what crowds and rows are made from: label, value, truth, habits, stored, of who is here."""
    import polars as pl

    columns = {"value": values, "truth": truth, "habits": habits, "stored": stored}
    frame = pl.DataFrame(
        {
            "label": pl.Series(list(labels), dtype=pl.String),
            **{
                name: pl.Series(np.ascontiguousarray(rows), dtype=pl.Array(pl.Float64, rows.shape[1]))
                for name, rows in columns.items()
            },
        }
    )
    write_frame(shard.with_suffix(f".{CURVES}"), frame.filter(pl.Series(list(here), dtype=pl.Boolean)))


# ------------------------------------------------------------------ readings


@dataclass(frozen=True)
class SortedReadings(Record):
    """Rows of meter files by bucket, and the grid that all of them share."""

    pieces: Pieces
    grid: partition.Grid


def readings_shards(
    executor: Executor, root: Path, source: Source, config: Config, tell: Tell, buckets: int | None
) -> tuple[list[Part], list[Lost]]:
    """Repaired readings on the common grid, in shards by a hash of the name; ``buckets`` keeps their number."""
    if source.simulated is not None:
        jobs = _simulated(root, source.simulated, config)
        executor.expect(len(jobs))
        return run_jobs(executor, "simulating", jobs, tell, for_good=True)
    settings = {**config.part(*READING), "source": source.digest, "shard_size": config.shard_size, "buckets": buckets}
    if config.secret == secret.READINGS:
        settings["grid"] = config.origin  # which then lies on it, whatever the readings are

    def sort(folder: Path) -> SortedReadings:
        tell("sorting readings by household", 0, 0)
        try:
            return _sorted(executor, source, config, folder, buckets)
        except ColumnsError as error:
            raise InputError(
                f"{error.what}. Name them: --household-column, --timestamp-column and --value-column, or the same "
                "settings in a file (--config)"
            ) from None

    def out(number: int) -> str:
        return out_path(root, "readings", "parquet", {**settings, "number": number})

    def lacking(rows: SortedReadings) -> bool:
        gone = not Path(rows.pieces.folder).is_dir()
        return gone and any(finished(out(number)) is None for number in rows.pieces.filled)

    rows = noted(root, settings, SortedReadings, sort, lacking)
    executor.expect(len(rows.pieces.filled))
    jobs = [
        Job(partial(partition.make_shard, rows.pieces, number, rows.grid), out(number)) for number in rows.pieces.filled
    ]
    shards, lost = run_jobs(executor, "reading meters", jobs, tell, for_good=True)
    if not lost:
        shutil.rmtree(rows.pieces.folder, ignore_errors=True)  # all of it is in the shards now
    return shards, lost


def _simulated(root: Path, source: SimulatedMeters, config: Config) -> list[Job]:
    if config.only:
        raise InputError("only: a simulated neighborhood is taken as a whole; simulate fewer households")
    n, size = source.households, config.shard_size
    return [
        Job(
            partial(partition.make_simulated_shard, source, first, last),
            out_path(root, "readings", "parquet", {**asdict(source), "first": first, "last": last}),
        )
        for first, last in ((first, min(first + size, n)) for first in range(0, n, size))
    ]


def _sorted(executor: Executor, source: Source, config: Config, folder: Path, buckets: int | None) -> SortedReadings:
    """The rows of all files by bucket, and the grid that all of them share."""
    if config.secret == secret.READINGS:
        secret.check_files(config, source)
    pieces = sort_files(
        source.path,
        folder,
        shard_size=config.shard_size,
        buckets=buckets,
        unit=config.unit,
        time_zone=config.time_zone,
        columns=config.named_columns or None,
        timestamp_format=config.timestamp_format,
        max_kw=config.max_kw,
        interval=config.interval,
        only=config.only,
    )
    executor.expect(len(pieces.filled))
    if config.secret == secret.READINGS:
        return SortedReadings(pieces, secret.declared_grid(config, energy=pieces.energy))
    surveys = executor.every([partial(partition.survey, pieces, number) for number in pieces.filled])
    grid = partition.common_grid(surveys, config.interval, energy=pieces.energy, meter=config.meter)
    return SortedReadings(pieces, grid)


def _refuse_implausible(shards: Sequence[partition.ShardFacts], config: Config) -> None:
    """Before anything is made of readings: refuse those of which none can be used, and those no home has."""
    large = sum(facts.large for facts in shards)
    usable = sum(facts.households for facts in shards)
    if large and "large" not in config.accept:
        raise InputError(
            f"readings: {large} of {usable} households {LARGE}. Nothing was released. If the unit is wrong, name it "
            f"with --unit (read were {shards[0].unit}); if they are totals, say --set meter=register; if single "
            "readings are faults, leave them out with --set max_kw=50; if these are large customers, go on with --set "
            "accept=large"
        )
    if not usable and shards:
        reasons = tallied(facts.reasons for facts in shards)
        why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
        more = ""
        if reasons[NEGATIVE]:
            more = ". Consumption is positive: name its column with --value-column, or turn the sign round in the file"
        raise InputError(f"readings: none of the {reasons.total()} households can be used: {why}{more}")


# ------------------------------------------------------------------ the stage


def stage(context: Context) -> Made:
    """Forecasts of every household, in shards by a hash of the name."""
    config = context.config
    # Under the readings' promise no stored window is used: it is kept with a shard, which is there while one of its
    # homes is usable.
    before = None if config.secret == secret.READINGS else _earlier(context)
    with context.workers() as executor:
        buckets = None if before is None else before.buckets
        shards, failed = readings_shards(executor, context.path / SHARDS, context.source, config, context.tell, buckets)
        known = [shard.told(partition.ShardFacts) for shard in shards]
        _refuse_implausible(known, config)
        if len({facts.time_zone for facts in known}) > 1 or len({facts.step_us for facts in known}) > 1:
            raise InputError("shard: readings shards differ in time zone or interval; use a new folder")
        origin = _origin(known, config.origin)
        if context.horizon is not None:
            step = timedelta(microseconds=known[0].step_us)
            config = replace(config, horizon=clock.steps(context.horizon, step))
        context.foresee(_names(shards), origin, known[0].step_us / 60e6)
        usable = [shard for shard, facts in zip(shards, known, strict=True) if facts.households]
        jobs = [fit_job(context.path, shard, config, origin, _same_bucket(before, shard)) for shard in usable]
        try:
            made, lost = run_jobs(executor, "fitting forecasts", jobs, context.tell, for_good=True)
        except InputError as error:
            if context.previous is None or before is not None:
                raise
            raise InputError(
                f"{error}. The forecasts of the last release, from which an update goes on, are lost: give a file with "
                "all days of training"
            ) from None
    every = (*failed, *lost)
    context.put(FIT, Listing.of(jobs, usable, made, every, max(len(shards), 1) if buckets is None else buckets))
    reasons, notes = _quality(
        context, made, known[0], [quality_path(s.path) for s, f in zip(shards, known, strict=True) if f.left_out]
    )
    facts = FitFacts.merged([part.told(FitFacts) for part in made])
    return Made(
        (FIT, QUALITY_TABLE),
        _described(replace(facts, failed=every[:LISTED]), reasons, known[0], context, config, origin, notes),
    )


def _earlier(context: Context) -> Listing | None:
    """The forecasts of the release before, to go on from; None where there are none, or where they are lost.

    Without them forecasts are made anew from the readings given, which then have to hold all days of training.
    """
    if context.previous is None:
        return None
    try:
        before = context.listing(FIT, context.previous)
        for part in before.parts:
            part.check()
    except InputError:
        context.tell("the forecasts of the last release are lost; they are made anew", 0, 0)
        return None
    return before


def _names(shards: Sequence[Part]) -> list[str]:
    """The households of all shards."""
    import polars as pl

    return [name for shard in shards for name in pl.read_parquet(shard.path, columns=["household"])["household"]]


def _described(
    facts: FitFacts,
    reasons: Mapping[str, int],
    shard: partition.ShardFacts,
    context: Context,
    config: Config,
    origin: str,
    notes: Sequence[str],
) -> FitFacts:
    """What all shards share, in words and figures."""
    hours, minutes = config.horizon * shard.step_us / 3.6e9, shard.step_us / 60e6
    columns = f"; {shard.taken}" if shard.taken else ""
    by_day = config.season == "auto" and config.season_period == "day"
    chosen = " (chosen: with less than four weeks a season by week fits badly)" if by_day else ""
    return replace(
        facts,
        source=str(context.source),
        left_out=sum(reasons.values()),
        reasons=tuple(most_common(reasons)[:LISTED]),
        about=(
            f"Forecasts: {config.horizon} steps ({hours:g} h) from {origin}, trained on {config.train_days} days, "
            f"season by {config.season_period}{chosen}.",
            f"Readings: {shard.unit} every {minutes:g} minutes: {shard.unit_reason}{columns}.",
            *(f"Readings: {note}" for note in notes),
        ),
        unit=shard.unit,
        unit_reason=shard.unit_reason,
        origin=origin,
        step_minutes=minutes,
        time_zone=shard.time_zone,
        crowd=config.crowd,
    )


def fit_job(home: Path, shard: Part, config: Config, origin: str, before: Part | None) -> Job:
    """One shard's forecasts: anew, or from those of an earlier day."""
    settings = {**config.part("train_days", "horizon", "order"), "season": config.season_period, "origin": origin}
    inputs = [shard] if before is None else [before, shard]
    work = partial(do, shard.path, origin, config, None if before is None else before.path)
    return Job(work, out_path(home, FORECASTS, "zip", settings, inputs), tuple(inputs))


def _same_bucket(before: Listing | None, shard: Part) -> Part | None:
    """The forecasts of an earlier day of the homes that are in this shard."""
    if before is None:
        return None
    number = shard.told(partition.ShardFacts).number
    return next((part for part, made_of in before.pairs if made_of.told(partition.ShardFacts).number == number), None)


def _quality(
    context: Context, made: Sequence[Part], shard: partition.ShardFacts, unusable: Sequence[Path]
) -> tuple[Counter[str], list[str]]:
    """Write the quality table of all shards; reasons for leaving households out, counted, and what to settle."""
    import polars as pl

    gone = [pl.scan_parquet(path).filter(pl.col("verdict") == "left out") for path in unusable]
    tables = [pl.scan_parquet(part.beside(QUALITY)) for part in made]
    every = pl.concat([*tables, *gone], how="diagonal_relaxed").unique("household", keep="first", maintain_order=True)
    table = every.sort("household").collect()
    context.folder.write(QUALITY_TABLE, lambda path: as_cells(table).write_csv(path))
    frame = pl.DataFrame(schema={"household": pl.String, "timestamp": pl.Datetime("us", shard.time_zone)})
    notes = Readings(frame, table, timedelta(microseconds=shard.step_us)).notes()
    return Counter(table.filter(pl.col("verdict") == "left out")["reason"].drop_nulls().to_list()), notes


def _origin(shards: Sequence[partition.ShardFacts], asked: str | None) -> str:
    """The origin asked for, else the latest one that at least half of the households reach."""
    zone, step = shards[0].time_zone, shards[0].step_us
    if asked is not None:
        return clock.instant(asked, zone, name="origin").isoformat()
    ends = tallied(facts.ends for facts in shards)
    half = (sum(ends.values()) - 1) // 2
    seen = 0
    for end in sorted(ends):
        seen += ends[end]
        if seen > half:
            return window.in_zone(end + step, zone).isoformat()
    raise InputError(f"readings: no household is left; {QUALITY_TABLE} says why")
