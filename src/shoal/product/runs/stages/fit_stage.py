"""The first stage: rows to shards by a hash of the name, and readings to forecasts, shard by shard.

A shard of forecasts is ``<key>.zip``; beside it ``<key>.curves.parquet``, one row per household with its value today,
usual day and what was metered later (:data:`CURVES`), and ``<key>.quality.parquet``, one row per household
read, those that could not be used included. A forecast needs no crowd: crowds come after it
(:mod:`shoal.product.runs.stages.crowd_stage`).
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import polars as pl

from shoal.errors import InputError
from shoal.plaintext import as_cells
from shoal.product.card.facts import LISTED, FitFacts, most_common, tally
from shoal.product.runs import secret
from shoal.product.runs.config import Config
from shoal.product.runs.folder import FIT, FORECASTS, SHARDS, Context, StageOutcome
from shoal.product.runs.meter_rows import (
    MICROSECOND,
    QUALITY,
    Grid,
    MeterRows,
    ShardFacts,
    common_grid,
    make_shard,
    make_simulated_shard,
    open_files,
    read_readings,
    sort_files,
    survey,
)
from shoal.product.runs.shards import Job, Listing, Part, finished, out_path, put_frame, put_whole, receipted, run_jobs
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.answers import off_by
from shoal.product.sources.meters.columns import ColumnsError, named_meter
from shoal.product.sources.meters.forecast import ABSENT, ShortHistory, forecast, update_forecasts
from shoal.product.sources.meters.neighborhoods import usual_day
from shoal.product.sources.meters.predictive import Forecasts
from shoal.product.sources.meters.quality import LARGE, NEGATIVE, REGISTER, NothingToForecast, Readings
from shoal.product.workers.executor import Executor, tick
from shoal.rounding import count_of
from shoal.validation import FloatArray

#: Settings that decide how meter files are read.
READING = (
    "unit", "interval", "time_zone", "timestamp_format", "max_kw", "household_column", "timestamp_column",
    "value_column", "encoding",
)  # fmt: skip
SETTINGS = (*READING, "train_days", "horizon", "order", "origin", "shard_size", "secret", "query")
#: Those that may differ from day to day: how a file is read is no property of a crowd.
DAILY = (*READING, "origin", "horizon", "query")

#: Where homes on record come with too few readings, and no forecasts of an earlier day are there to go on from.
SHORT = (
    "readings: these homes are in crowds on record, formed with train_days={0}, and no earlier forecasts are here to "
    "go on from. Use update=True in the folder of their last release, or give a file with the last {0} days. Nothing "
    "was released"
)
QUALITY_TABLE = "quality.csv"
#: Why a home of a shard in which none can be forecast has no curve.
UNUSED = "too few readings in the training window"
#: Suffix of the curves beside a shard.
CURVES = "curves.parquet"


def do(readings: str, origin: str, config: Config, before: str | None, lasting: bool, out: str) -> FitFacts:
    """Write the forecasts of a shard of readings; ``origin`` is ISO text, and all shards share it.

    Homes in crowds on record (``lasting``) were formed with these days of training and need as many again.

    ``before`` is the shard of forecasts of an earlier day, to go on from: who has no readings since then has no row in
    the curves today, and stays in the forecasts for the day when its readings are back.
    """
    data, instant, path = read_readings(readings), datetime.fromisoformat(origin), Path(out)
    if before is None:
        p, q = config.order
        try:
            forecasts = forecast(
                data,
                order=(p, q),
                train_days=config.train_days,
                horizon=config.horizon,
                season=config.season,
                origin=instant,
                progress=tick,
                export=exports(config),
                interval=data.step if config.secret == secret.READINGS else None,
            )
        except NothingToForecast as error:
            if config.secret == secret.READINGS:  # whether its shard has others must not decide about a home
                return _nobody(path, data, origin)
            if not lasting or not isinstance(error, ShortHistory):
                raise
            raise InputError(SHORT.format(config.train_days)) from None
        heard = frozenset(forecasts.households)
    else:
        forecasts, heard = update_forecasts(
            Forecasts.load(before), data, origin=instant, horizon=config.horizon, export=exports(config)
        )
    names = forecasts.households
    part = data.cut(data.place(forecasts.origin, anywhere=True), forecasts.horizon)
    later = dict(zip(part.households, part.kw, strict=True))
    unknown = np.full(forecasts.horizon, np.nan)
    truth = np.array([later.get(name, unknown) for name in names])
    write_curves(
        path, names, [name in heard for name in names], value=forecasts.power, truth=truth, stored=usual_day(forecasts)
    )
    silent = pl.col("household").is_in([name for name in names if name not in heard])
    quality = forecasts.quality.with_columns(
        verdict=pl.when(silent).then(pl.lit("left out")).otherwise("verdict"),
        reason=pl.when(silent).then(pl.lit(ABSENT)).otherwise("reason"),
    )
    put_frame(path.with_suffix(f".{QUALITY}"), quality)
    put_whole(path, forecasts.save)
    known, off = off_by(truth, forecasts.power)
    return replace(forecasts.facts(None), later_known=known, later_absolute=off)


def _nobody(path: Path, data: Readings, origin: str) -> FitFacts:
    """Write a shard of which no home can be forecast."""
    out = pl.when(pl.col("verdict") == "left out").then("reason").otherwise(pl.lit(UNUSED))
    quality = data.quality.with_columns(reason=out, verdict=pl.lit("left out"))
    put_frame(path.with_suffix(f".{QUALITY}"), quality)
    put_frame(path.with_suffix(f".{CURVES}"), pl.DataFrame(schema={"label": pl.String}))
    put_whole(path, lambda file: Path(file).write_bytes(b""))
    minutes = data.step.total_seconds() / 60
    return FitFacts("", 0, 0, 0, 0, 0, left_out=len(quality), noun="household", origin=origin, step_minutes=minutes)


def exports(config: Config) -> bool:
    """Whether readings below zero are export; answers in log power and the readings' promise are of consumption."""
    return config.answers == "kw" and config.secret != secret.READINGS


def write_curves(shard: Path, labels: Sequence[str], here: Sequence[bool], **columns: FloatArray) -> None:
    """Write beside a shard what crowds and rows of those here need: label, value, truth, stored (and habits)."""
    arrays = {
        name: pl.Series(np.ascontiguousarray(rows), dtype=pl.Array(pl.Float64, rows.shape[1]))
        for name, rows in columns.items()
    }
    frame = pl.DataFrame({"label": pl.Series(list(labels), dtype=pl.String), **arrays})
    put_frame(shard.with_suffix(f".{CURVES}"), frame.filter(pl.Series(list(here), dtype=pl.Boolean)))


# ------------------------------------------------------------------ readings


def readings_shards(executor: Executor, context: Context, buckets: int | None) -> tuple[Listing, MeterRows]:
    """Repaired readings in shards by a hash of the name, and what they share; ``buckets`` keeps the number of shards.

    Rows are sorted into buckets once, which is noted, and again where a shard is lacking and the sorted rows are gone.
    """
    root, config, homes = context.path / SHARDS, context.config, context.source.simulated

    def out(**settings: Any) -> str:
        return out_path(root, "readings", "parquet", settings)

    if homes is not None:
        firsts = range(0, homes.households, config.shard_size)
        spans = [(first, min(first + config.shard_size, homes.households)) for first in firsts]
        jobs = [
            Job(partial(make_simulated_shard, homes, first, last), out(**asdict(homes), first=first, last=last))
            for first, last in spans
        ]
        grid = Grid(timedelta(minutes=homes.step_minutes) // MICROSECOND, 0)
        rows = MeterRows("", len(jobs), (), grid, unit_reason="they are simulated so")
        return run_jobs(executor, "simulating", jobs, context.tell, for_good=True), rows
    settings = {
        **config.part(*READING, "shard_size"),
        "source": context.source.digest,
        "buckets": buckets,
        "dates": context.state.dates,
        # Under the readings' promise the origin lies on the grid, whatever the readings are.
        "grid": config.origin if config.secret == secret.READINGS else None,
    }
    note = out_path(root, "sort", "sorted", settings)
    folder, part = root / "rows" / Path(note).stem, finished(note)
    sorted_rows = None if part is None else replace(part.facts_as(MeterRows), folder=str(folder))
    if sorted_rows is None or (
        not folder.is_dir() and any(finished(out(**settings, number=number)) is None for number in sorted_rows.filled)
    ):
        try:
            sorted_rows = _sorted(executor, context, folder, buckets)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        receipted(note, sorted_rows)
    jobs = [
        Job(partial(make_shard, sorted_rows, number), out(**settings, number=number)) for number in sorted_rows.filled
    ]
    shards = run_jobs(executor, "reading meters", jobs, context.tell, for_good=True)
    if not shards.failed:
        shutil.rmtree(folder, ignore_errors=True)  # all of it is in the shards now
    return shards, sorted_rows


def _sorted(executor: Executor, context: Context, folder: Path, buckets: int | None) -> MeterRows:
    """The rows of the source by bucket, with the grid of all of them: the declared one, or what most have."""
    config = context.config
    context.tell("sorting readings by household", 0, 0)
    try:
        opened = open_files(context.source.paths, config, context.state.dates)
        with context.existing_ledger() as ledger:
            rows = sort_files(opened, folder, config, buckets, None if ledger is None else ledger.spellings)
        if config.secret == secret.READINGS:
            grid = secret.declared_grid(config, energy=rows.energy)
        else:
            surveys = executor.every([partial(survey, rows, number) for number in rows.filled])
            grid = common_grid(surveys, config.interval, energy=rows.energy, meter=named_meter(config.unit))
    except ColumnsError as error:
        raise InputError(
            f"{error.what}. Name them: household_column=, timestamp_column= and value_column=, or the same settings "
            "in a file (config=)"
        ) from None
    return replace(rows, grid=grid, unit_reason=rows.unit_reason + (REGISTER if grid.register else ""))


def _refuse_implausible(shards: Sequence[ShardFacts], config: Config, unit: str) -> None:
    """Before anything is made of readings: refuse those of which none can be used, and those no home has."""
    large = sum(facts.large for facts in shards)
    usable = sum(facts.households for facts in shards)
    of_readings = config.secret == secret.READINGS  # then no home decides whether there is a release
    if large and "large" not in config.accept and not of_readings:
        raise InputError(
            f"readings: {large} of {count_of(usable, 'household')} {LARGE}. Nothing was released. If the unit is "
            f"wrong, name it with unit= (it was read as {unit}); if they are totals, say unit='kwh-register'; if "
            "single readings are faults, leave them out with max_kw=50; if these are large customers, go on with "
            "accept='large'"
        )
    if not usable and shards:
        reasons = tally(facts.reasons for facts in shards)
        why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
        more = ""
        if reasons[NEGATIVE]:
            more = ". Consumption is positive: name its column with value_column=, or turn the sign round in the file"
        if of_readings:
            more += (
                ". With secret='readings' timestamps are ISO 8601, with an offset where origin= has one, or as "
                "timestamp_format= says; numbers have a decimal point, or a comma where columns are not separated by "
                "commas; text is UTF-8, or as encoding= says"
            )
        raise InputError(f"readings: none of the {reasons.total()} households can be used: {why}{more}")


# ------------------------------------------------------------------ the stage


def stage(context: Context) -> StageOutcome:
    """Forecasts of every household, in shards by a hash of the name."""
    config = context.config
    # Forecasts go on from those of the release before; where they are lost, the readings have to hold all days of
    # training. Under the readings' promise no stored window is used: it is kept with a shard, which is there while one
    # of its homes is usable.
    before: Listing | None = None
    if context.state.previous is not None and config.secret != secret.READINGS:
        try:
            listing = context.listing(FIT, context.state.previous)
            for part in listing.parts:
                part.check()
            before = listing
        except InputError:
            context.tell("the forecasts of the last release are lost; they are made anew", 0, 0)
    with context.workers() as executor:
        readings, rows = readings_shards(executor, context, None if before is None else before.buckets)
        shards = [(part, part.facts_as(ShardFacts)) for part in readings.parts]
        if context.source.simulated is None:  # among very many simulated homes a few are large
            _refuse_implausible([facts for _, facts in shards], config, rows.unit)
        origin = _origin([facts for _, facts in shards], rows, config.origin)
        if context.horizon is not None:
            config = replace(config, horizon=clock.steps(context.horizon, rows.step))
        names = pl.concat([pl.read_parquet(part.path, columns=["household"]).unique() for part in readings.parts])
        minutes = rows.step / timedelta(minutes=1)
        # Under the readings' promise the ledger decides with the release: no home does before it.
        lasting = config.secret != secret.READINGS and context.foresee(names["household"].to_list(), origin, minutes)
        # The forecasts of an earlier day, by the bucket of the homes in them.
        earlier = {} if before is None else {shard.facts_as(ShardFacts).number: part for part, shard in before.pairs}
        jobs = [
            fit_job(context.path, part, config, origin, earlier.get(facts.number), lasting)
            for part, facts in shards
            if facts.households
        ]
        forecasts = run_jobs(executor, "fitting forecasts", jobs, context.tell, for_good=True)
    failed = (*readings.failed, *forecasts.failed)
    context.put(FIT, replace(forecasts, failed=failed, buckets=rows.buckets))
    reasons, notes = _quality(context, forecasts.parts, readings.parts, rows)
    columns = f"; {rows.taken}" if rows.taken else ""
    chosen = " (chosen: with less than four weeks a season by week fits badly)" if config.train_days < 28 else ""
    facts = replace(
        FitFacts.merge([part.facts_as(FitFacts) for part in forecasts.parts]),
        failed=failed[:LISTED],
        source=str(context.source),
        left_out=sum(reasons.values()),
        reasons=tuple(most_common(reasons)[:LISTED]),
        about=(
            f"Forecasts: {config.horizon} steps ({config.horizon * minutes / 60:g} h) from {origin}, trained on "
            f"{config.train_days} days, season by {config.season}{chosen}.",
            f"Readings: {rows.unit} every {minutes:g} minutes: {rows.unit_reason}{columns}.",
        ),
        doubts=(*context.elsewhere(names["household"].to_list()), *notes),
        unit=rows.unit,
        origin=origin,
        step_minutes=minutes,
        time_zone=rows.time_zone,
        dates=rows.dates,
        crowd=config.crowd,
    )
    return StageOutcome((FIT, QUALITY_TABLE), facts)


def fit_job(home: Path, shard: Part, config: Config, origin: str, before: Part | None, lasting: bool = False) -> Job:
    """One shard's forecasts: anew, or from those of an earlier day; ``lasting``: crowds of its homes are on record."""
    settings = {**config.part("train_days", "horizon", "order"), "season": config.season, "origin": origin}
    settings["export"] = exports(config)
    inputs = [shard] if before is None else [before, shard]
    work = partial(do, shard.path, origin, config, None if before is None else before.path, lasting)
    return Job(work, out_path(home, FORECASTS, "zip", settings, inputs), tuple(inputs))


def _quality(
    context: Context, forecasts: Sequence[Part], shards: Sequence[Part], rows: MeterRows
) -> tuple[Counter[str], list[str]]:
    """Write the quality table of all shards; reasons for leaving households out, counted, and what to settle."""
    gone = [pl.scan_parquet(part.beside(QUALITY)).filter(pl.col("verdict") == "left out") for part in shards]
    tables = [*(pl.scan_parquet(part.beside(QUALITY)) for part in forecasts), *gone]
    every = pl.concat(tables, how="diagonal_relaxed").unique("household", keep="first", maintain_order=True)
    table = every.sort("household").collect()
    context.folder.write(QUALITY_TABLE, lambda path: as_cells(table).write_csv(path))
    frame = pl.DataFrame(schema={"household": pl.String, "timestamp": pl.Datetime("us", rows.time_zone)})
    notes = Readings(frame, table, rows.step).notes(export=exports(context.config))
    return Counter(table.filter(pl.col("verdict") == "left out")["reason"].drop_nulls().to_list()), notes


def _origin(shards: Sequence[ShardFacts], rows: MeterRows, given: str | None) -> str:
    """The given origin, else the latest one that at least half of the households reach."""
    if given is not None:
        return clock.instant(given, rows.time_zone, name="origin").isoformat()
    ends = tally(facts.ends for facts in shards)
    if not ends:
        raise InputError(f"readings: no household is left; {QUALITY_TABLE} says why")
    return clock.in_zone(median_low(ends.elements()) + rows.grid.step_us, rows.time_zone).isoformat()
