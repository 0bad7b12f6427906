"""The first stage: rows to shards by a hash of the name, and readings to forecasts, shard by shard.

A shard of forecasts is ``<key>.zip``; beside it ``<key>.curves.parquet``, one row per household with its value today,
habits, usual day and what was metered later (:data:`CURVES`), and ``<key>.quality.parquet``, one row per household
read, those that could not be used included. A forecast needs no crowd: crowds come after it
(:mod:`shoal.runs.stages.crowd_stage`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from shoal.card.facts import LISTED, FitFacts, most_common, tallied
from shoal.errors import InputError
from shoal.plaintext import as_cells
from shoal.runs import secret
from shoal.runs.config import Config
from shoal.runs.context import FIT, FORECASTS, SHARDS, Context, Made
from shoal.runs.meter_rows import (
    QUALITY,
    MeterRows,
    ShardFacts,
    common_grid,
    make_shard,
    make_simulated_shard,
    read_readings,
    sort_files,
    survey,
)
from shoal.runs.shards import Job, Listing, Part, make_shards, out_path, put_frame, put_whole, run_jobs
from shoal.sources.meters import clock
from shoal.sources.meters.answered import off_by
from shoal.sources.meters.columns import ColumnsError, named_meter
from shoal.sources.meters.forecast import ABSENT, forecast, update_forecasts
from shoal.sources.meters.neighborhoods import hourly_habits, usual_day
from shoal.sources.meters.predictive import Forecasts
from shoal.sources.meters.quality import LARGE, NEGATIVE, Readings
from shoal.validation import FloatArray
from shoal.workers.executor import Executor, tick

#: Settings that decide how meter files are read.
READING = (
    "unit", "interval", "time_zone", "timestamp_format", "max_kw", "household_column", "timestamp_column",
    "value_column",
)  # fmt: skip
SETTINGS = (*READING, "train_days", "horizon", "order", "origin", "shard_size", "secret", "query")
#: Those that may differ from day to day.
DAILY = ("origin", "horizon", "query")

QUALITY_TABLE = "quality.csv"
#: Suffix of the curves beside a shard.
CURVES = "curves.parquet"


def do(readings: str, origin: str, config: Config, before: str | None, out: str) -> FitFacts:
    """Write the forecasts of a shard of readings; ``origin`` is ISO text, and all shards share it.

    ``before`` is the shard of forecasts of an earlier day, to go on from: who has no readings since then has no row in
    the curves today, and stays in the forecasts for the day when its readings are back.
    """
    data = read_readings(readings)
    instant = datetime.fromisoformat(origin)
    p, q = config.order
    if before is None:
        forecasts = forecast(
            data,
            order=(p, q),
            train_days=config.train_days,
            horizon=config.horizon,
            season=config.season,
            origin=instant,
            progress=tick,
            export=exports(config),
        )
        heard = frozenset(forecasts.households)
    else:
        forecasts, heard = update_forecasts(
            Forecasts.load(before), data, origin=instant, horizon=config.horizon, export=exports(config)
        )
    truth = later(data, forecasts)
    path = Path(out)
    write_curves(
        path,
        forecasts.households,
        forecasts.power,
        truth=truth,
        habits=hourly_habits(forecasts),
        stored=usual_day(forecasts),
        here=[name in heard for name in forecasts.households],
    )
    put_frame(path.with_suffix(f".{QUALITY}"), _with_absent(forecasts, heard))
    put_whole(path, forecasts.save)
    known, off = off_by(truth, forecasts.power)
    facts = forecasts.facts(None)
    return replace(facts, later_known=known, later_absolute=off)


def exports(config: Config) -> bool:
    """Whether readings below zero are export; answers in log power and the readings' promise are of consumption."""
    return config.answers == "kw" and config.secret != secret.READINGS


def later(readings: Readings, forecasts: Forecasts) -> FloatArray:
    """(n, h) readings of the horizon in kW; NaN where none is known, as of a household without new readings."""
    at = readings.place(forecasts.origin)
    part = readings.cut(at, forecasts.horizon)
    place = {name: i for i, name in enumerate(part.households)}
    unknown = np.full(forecasts.horizon, np.nan)
    return np.array([part.kw[place[name]] if name in place else unknown for name in forecasts.households])


def _with_absent(forecasts: Forecasts, heard: frozenset[str]) -> pl.DataFrame:
    """The quality table, those without new readings marked as left out."""
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
    put_frame(shard.with_suffix(f".{CURVES}"), frame.filter(pl.Series(list(here), dtype=pl.Boolean)))


# ------------------------------------------------------------------ readings


def readings_shards(executor: Executor, context: Context, buckets: int | None) -> Listing:
    """Repaired readings on the common grid, in shards by a hash of the name; ``buckets`` keeps their number."""
    root, source, config = context.path / SHARDS, context.source, context.config
    homes = source.simulated
    if homes is not None:
        n, size = homes.households, config.shard_size
        jobs = [
            Job(
                partial(make_simulated_shard, homes, first, last),
                out_path(root, "readings", "parquet", {**asdict(homes), "first": first, "last": last}),
            )
            for first, last in ((first, min(first + size, n)) for first in range(0, n, size))
        ]
        executor.expect(len(jobs))
        return replace(run_jobs(executor, "simulating", jobs, context.tell, for_good=True), buckets=len(jobs))
    settings = {**config.part(*READING), "source": source.digest, "shard_size": config.shard_size, "buckets": buckets}
    if config.secret == secret.READINGS:
        settings["grid"] = config.origin  # which then lies on it, whatever the readings are

    def sort(folder: Path) -> MeterRows:
        context.tell("sorting readings by household", 0, 0)
        if config.secret == secret.READINGS:
            secret.check_files(config, source)
        try:
            rows = sort_files(source.path, folder, config, buckets)
            if config.secret == secret.READINGS:
                return replace(rows, grid=secret.declared_grid(config, energy=rows.energy))
            executor.expect(len(rows.filled))
            surveys = executor.every([partial(survey, rows, number) for number in rows.filled])
            grid = common_grid(surveys, config.interval, energy=rows.energy, meter=named_meter(config.unit))
        except ColumnsError as error:
            raise InputError(
                f"{error.what}. Name them: --household-column, --timestamp-column and --value-column, or the same "
                "settings in a file (--config)"
            ) from None
        return replace(rows, grid=grid)

    def out(number: int) -> str:
        return out_path(root, "readings", "parquet", {**settings, "number": number})

    return make_shards(executor, root, settings, MeterRows, sort, make_shard, out, "reading meters", context.tell)[1]


def _refuse_implausible(shards: Sequence[ShardFacts], config: Config, *, simulated: bool) -> None:
    """Before anything is made of readings: refuse those of which none can be used, and those no home has.

    Among very many simulated homes a few are large; nobody can have mistaken their unit.
    """
    large = sum(facts.large for facts in shards)
    usable = sum(facts.households for facts in shards)
    if large and "large" not in config.accept and not simulated:
        raise InputError(
            f"readings: {large} of {usable} households {LARGE}. Nothing was released. If the unit is wrong, name it "
            f"with --unit (read were {shards[0].unit}); if they are totals, say --unit kwh-register; if single "
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
        readings = readings_shards(executor, context, None if before is None else before.buckets)
        shards = readings.parts
        known = [shard.told(ShardFacts) for shard in shards]
        _refuse_implausible(known, config, simulated=context.source.simulated is not None)
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
            forecasts = run_jobs(executor, "fitting forecasts", jobs, context.tell, for_good=True)
        except InputError as error:
            if context.previous is None or before is not None:
                raise
            raise InputError(
                f"{error}. The forecasts of the last release, from which an update goes on, are lost: give a file with "
                "all days of training"
            ) from None
    failed = (*readings.failed, *forecasts.failed)
    context.put(FIT, replace(forecasts, failed=failed, buckets=readings.buckets))
    shard = known[0]
    reasons, notes = _quality(context, forecasts.parts, shards, shard)
    hours, minutes = config.horizon * shard.step_us / 3.6e9, shard.step_us / 60e6
    columns = f"; {shard.taken}" if shard.taken else ""
    chosen = " (chosen: with less than four weeks a season by week fits badly)" if config.train_days < 28 else ""
    facts = replace(
        FitFacts.merged([part.told(FitFacts) for part in forecasts.parts]),
        failed=failed[:LISTED],
        source=str(context.source),
        left_out=sum(reasons.values()),
        reasons=tuple(most_common(reasons)[:LISTED]),
        about=(
            f"Forecasts: {config.horizon} steps ({hours:g} h) from {origin}, trained on {config.train_days} days, "
            f"season by {config.season}{chosen}.",
            f"Readings: {shard.unit} every {minutes:g} minutes: {shard.unit_reason}{columns}.",
            *(f"Readings: {note}" for note in notes),
        ),
        unit=shard.unit,
        origin=origin,
        step_minutes=minutes,
        time_zone=shard.time_zone,
        crowd=config.crowd,
    )
    return Made((FIT, QUALITY_TABLE), facts)


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
    frames = [pl.read_parquet(shard.path, columns=["household"]).unique() for shard in shards]
    return pl.concat(frames)["household"].to_list()


def fit_job(home: Path, shard: Part, config: Config, origin: str, before: Part | None) -> Job:
    """One shard's forecasts: anew, or from those of an earlier day."""
    settings = {**config.part("train_days", "horizon", "order"), "season": config.season, "origin": origin}
    settings["export"] = exports(config)
    inputs = [shard] if before is None else [before, shard]
    work = partial(do, shard.path, origin, config, None if before is None else before.path)
    return Job(work, out_path(home, FORECASTS, "zip", settings, inputs), tuple(inputs))


def _same_bucket(before: Listing | None, shard: Part) -> Part | None:
    """The forecasts of an earlier day of the homes that are in this shard."""
    if before is None:
        return None
    number = shard.told(ShardFacts).number
    return next((part for part, origin in before.pairs if origin.told(ShardFacts).number == number), None)


def _quality(
    context: Context, forecasts: Sequence[Part], shards: Sequence[Part], shard: ShardFacts
) -> tuple[Counter[str], list[str]]:
    """Write the quality table of all shards; reasons for leaving households out, counted, and what to settle."""
    gone = [pl.scan_parquet(part.beside(QUALITY)).filter(pl.col("verdict") == "left out") for part in shards]
    tables = [*(pl.scan_parquet(part.beside(QUALITY)) for part in forecasts), *gone]
    every = pl.concat(tables, how="diagonal_relaxed").unique("household", keep="first", maintain_order=True)
    table = every.sort("household").collect()
    context.folder.write(QUALITY_TABLE, lambda path: as_cells(table).write_csv(path))
    frame = pl.DataFrame(schema={"household": pl.String, "timestamp": pl.Datetime("us", shard.time_zone)})
    notes = Readings(frame, table, timedelta(microseconds=shard.step_us)).notes()
    return Counter(table.filter(pl.col("verdict") == "left out")["reason"].drop_nulls().to_list()), notes


def _origin(shards: Sequence[ShardFacts], asked: str | None) -> str:
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
            return clock.in_zone(end + step, zone).isoformat()
    raise InputError(f"readings: no household is left; {QUALITY_TABLE} says why")
