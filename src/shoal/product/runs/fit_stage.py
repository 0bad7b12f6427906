"""The first stage: rows to shards by a hash of the name, and readings to forecasts, shard by shard.

A shard of forecasts is ``<key>.zip``; beside it ``<key>.curves.parquet``, one row per household with its value today,
usual day and what was metered later (:data:`CURVES`), and ``<key>.quality.parquet``, one row per household
read, those that could not be used included. A forecast needs no crowd: crowds come after it
(:mod:`shoal.product.runs.crowd_stage`).

The stage has three steps: :func:`read_meters`, :func:`ask_ledger` and :func:`fit_forecasts`. So the ledger is asked
before anything is fitted.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import polars as pl

from shoal.errors import InputError
from shoal.product.card.facts import LISTED, FitFacts, most_common, tally
from shoal.product.runs.config import Config
from shoal.product.runs.folder import FIT, FORECASTS, SHARDS
from shoal.product.runs.inputs import CURVES, write_curves
from shoal.product.runs.meter_rows import (
    MICROSECOND,
    QUALITY,
    Grid,
    MeterRows,
    ShardFacts,
    common_grid,
    declared_grid,
    make_shard,
    make_simulated_shard,
    open_files,
    read_readings,
    sort_files,
    survey,
)
from shoal.product.runs.owner_ledger import Book
from shoal.product.runs.rows import crowd_setting
from shoal.product.runs.shards import (
    Job,
    Listing,
    Part,
    find_shard,
    out_path,
    put_frame,
    put_whole,
    run_jobs,
    seal_shard,
)
from shoal.product.runs.work import Carry, StageOutcome, Work
from shoal.product.sources.frames import spreadsheet_safe
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.columns import ColumnsError, parse_meter_kind
from shoal.product.sources.meters.forecast import ABSENT, ShortHistory, forecast, update_forecasts
from shoal.product.sources.meters.neighborhoods import usual_day
from shoal.product.sources.meters.predictive import Forecasts, off_by
from shoal.product.sources.meters.quality import LARGE, NEGATIVE, REGISTER, NothingToForecast, Readings
from shoal.product.workers import tick
from shoal.rounding import count_of

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


def do(readings: str, origin: str, config: Config, before: str | None, lasting: bool, out: str) -> FitFacts:
    """Write the forecasts of a shard of readings; ``origin`` is ISO text, and all shards share it.

    Homes in crowds on record (``lasting``) need the training days that these were formed with. ``before`` is the shard
    of forecasts of an earlier day, to go on from: a home without readings since then has no row in the curves today.
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
                export=config.exports,
                interval=data.step if config.declares else None,
            )
        except NothingToForecast as error:
            if config.declares:  # whether its shard has others must not decide about a home
                return _nobody(path, data)
            if not lasting or not isinstance(error, ShortHistory):
                raise
            raise InputError(SHORT.format(config.train_days)) from None
        heard = frozenset(forecasts.households)
    else:
        forecasts, heard = update_forecasts(
            Forecasts.load(before), data, origin=instant, horizon=config.horizon, export=config.exports
        )
    names = forecasts.households
    part = data.window(data.find_origin(forecasts.origin, anywhere=True), forecasts.horizon)
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
    return replace(forecasts.facts(), later_known=known, later_absolute=off)


def _nobody(path: Path, data: Readings) -> FitFacts:
    """Write a shard of which no home can be forecast."""
    out = pl.when(pl.col("verdict") == "left out").then("reason").otherwise(pl.lit(UNUSED))
    quality = data.quality.with_columns(reason=out, verdict=pl.lit("left out"))
    put_frame(path.with_suffix(f".{QUALITY}"), quality)
    put_frame(path.with_suffix(f".{CURVES}"), pl.DataFrame(schema={"label": pl.String}))
    put_whole(path, lambda file: Path(file).write_bytes(b""))
    return FitFacts(noun="household")


# ------------------------------------------------------------------ readings


def readings_shards(work: Work, buckets: int | None) -> tuple[Listing, MeterRows]:
    """Repaired readings in shards by a hash of the name, and what they share; ``buckets`` keeps the number of shards.

    Rows are sorted into buckets once, which is noted, and again where a shard is lacking and the sorted rows are gone.
    """
    executor, root, config, homes = work.executor, work.path / SHARDS, work.settings, work.source.simulated

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
        return run_jobs(executor, "simulating", jobs, work.tell, for_good=True), rows
    settings = {
        **config.part(*READING, "shard_size"),
        "source": work.source.digest,
        "buckets": buckets,
        # Under the readings' promise the origin lies on the grid, whatever the readings are.
        "grid": config.origin if work.kind.declares else None,
    }
    note = out_path(root, "sort", "sorted", settings)
    folder, part = root / "rows" / Path(note).stem, find_shard(note)
    sorted_rows = None if part is None else replace(part.facts_as(MeterRows), folder=str(folder))
    if sorted_rows is None or (
        not folder.is_dir() and any(find_shard(out(**settings, number=number)) is None for number in sorted_rows.filled)
    ):
        try:
            sorted_rows = _sort(work, folder, buckets)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        seal_shard(note, sorted_rows)
    jobs = [
        Job(partial(make_shard, sorted_rows, number), out(**settings, number=number)) for number in sorted_rows.filled
    ]
    shards = run_jobs(executor, "reading meters", jobs, work.tell, for_good=True)
    if not shards.failed:
        shutil.rmtree(folder, ignore_errors=True)  # all of it is in the shards now
    return shards, sorted_rows


def _sort(work: Work, folder: Path, buckets: int | None) -> MeterRows:
    """The rows of the source by bucket, with the grid of all of them: the declared one, or what most have."""
    config = work.settings
    work.tell("sorting readings by household", 0, 0)
    try:
        opened = open_files(work.source.paths, config)
        rows = sort_files(opened, folder, config, buckets, work.spellings)
        if work.kind.declares:
            grid = declared_grid(config, energy=rows.energy)
        else:
            surveys = work.executor.every([partial(survey, rows, number) for number in rows.filled])
            grid = common_grid(surveys, config.interval, energy=rows.energy, meter=parse_meter_kind(config.unit))
    except ColumnsError as error:
        raise InputError(f"{error.what}. Name them: household_column=, timestamp_column= and value_column=") from None
    return replace(rows, grid=grid, unit_reason=rows.unit_reason + (REGISTER if grid.register else ""))


def _refuse_implausible(shards: Sequence[ShardFacts], config: Config, unit: str) -> None:
    """Before anything is made of readings: refuse those of which none can be used, and those no home has."""
    large = sum(facts.large for facts in shards)
    usable = sum(facts.households for facts in shards)
    of_readings = config.declares  # then no home decides whether there is a release
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


# ------------------------------------------------------------------ the steps


@dataclass(frozen=True)
class MeterShards:
    """Readings in shards, and what all of them share."""

    readings: Listing
    rows: MeterRows
    names: list[str]  #: of the households that can be used
    origin: str
    before: Listing | None  #: forecasts of the release before, to go on from

    @property
    def facts(self) -> list[tuple[Part, ShardFacts]]:
        """Every shard with its facts."""
        return [(part, part.facts_as(ShardFacts)) for part in self.readings.parts]

    @property
    def minutes(self) -> float:
        """Between readings."""
        return self.rows.step / timedelta(minutes=1)


def read_meters(work: Work) -> StageOutcome:
    """Readings of every household, in shards by a hash of the name, and the first instant to forecast."""
    settings, before = work.settings, _forecasts_before(work)
    readings, rows = readings_shards(work, None if before is None else before.buckets)
    facts = [part.facts_as(ShardFacts) for part in readings.parts]
    if work.source.simulated is None:  # among very many simulated homes a few are large
        _refuse_implausible(facts, settings, rows.unit)
    origin = _origin(facts, rows, settings.origin)
    names = pl.concat([pl.read_parquet(part.path, columns=["household"]).unique() for part in readings.parts])
    meters = MeterShards(readings, rows, names["household"].to_list(), origin, before)
    return StageOutcome(carry=Carry(meters))


def _forecasts_before(work: Work) -> Listing | None:
    """Forecasts of the release before, to go on from; where they are lost, the readings have to hold all training days.

    Under the readings' promise no stored window is used: it is kept with a shard, which is there while one of its homes
    is usable.
    """
    if work.state.previous is None or work.kind.declares:
        return None
    try:
        listing = work.listing(FIT, work.state.previous)
        for part in listing.parts:
            part.check()
    except InputError:
        work.tell("the forecasts of the last release are lost; they are made anew", 0, 0)
        return None
    return listing


def ask_ledger(work: Work) -> StageOutcome:
    """Before anything is fitted: is the ledger the one it should be, and do crowds on record allow this?

    The settings take the size on record where no other was asked for, and a horizon in steps. Under the readings'
    promise the ledger decides with the release: no home does before it.
    """
    assert work.carry.meters is not None
    meters, settings = work.carry.meters, with_steps(work.settings, work.horizon, work.carry.meters.minutes)
    if work.kind.declares:
        return StageOutcome(settings=settings, carry=work.carry)
    book = Book.read(work.find_ledger(), meters.names)
    if book.size is not None and work.any_crowd:
        settings = replace(settings, crowd=book.size)
    fit = FitFacts(origin=meters.origin, step_minutes=meters.minutes)
    steps = None if work.kind.row_per_label else settings.horizon
    book.allow(crowd_setting(work, settings, fit), meters.origin, steps)
    return StageOutcome(settings=settings, carry=replace(work.carry, lasting=book.size is not None))


def with_steps(settings: Config, horizon: str | None, step_minutes: float | None) -> Config:
    """Settings in which a horizon that was given as a time, such as 3h, is a number of steps."""
    if horizon is None or not step_minutes:
        return settings
    return replace(settings, horizon=clock.parse_steps(horizon, timedelta(minutes=step_minutes)))


def fit_forecasts(work: Work) -> StageOutcome:
    """Forecasts of every household, shard by shard."""
    settings, carry = work.settings, work.carry
    assert carry.meters is not None
    meters, rows, origin, minutes = carry.meters, carry.meters.rows, carry.meters.origin, carry.meters.minutes
    # The forecasts of an earlier day, by the bucket of the homes in them.
    pairs = [] if meters.before is None else meters.before.pairs
    earlier = {shard.facts_as(ShardFacts).number: part for part, shard in pairs}
    jobs = [
        fit_job(work.path, part, settings, origin, earlier.get(facts.number), carry.lasting)
        for part, facts in meters.facts
        if facts.households
    ]
    forecasts = run_jobs(work.executor, "fitting forecasts", jobs, work.tell, for_good=True)
    failed = (*meters.readings.failed, *forecasts.failed)
    work.put(FIT, replace(forecasts, failed=failed, buckets=rows.buckets))
    reasons, notes = _quality(work, forecasts.parts, meters.readings.parts, rows)
    columns = f"; {rows.taken}" if rows.taken else ""
    chosen = " (chosen: with less than four weeks a season by week fits badly)" if settings.train_days < 28 else ""
    facts = replace(
        FitFacts.merge([part.facts_as(FitFacts) for part in forecasts.parts]),
        failed=failed[:LISTED],
        source=str(work.source),
        left_out=sum(reasons.values()),
        reasons=tuple(most_common(reasons)[:LISTED]),
        about=(
            f"Forecasts: {settings.horizon} steps ({settings.horizon * minutes / 60:g} h) from {origin}, trained on "
            f"{settings.train_days} days, season by {settings.season}{chosen}.",
            f"Readings: {rows.unit} every {minutes:g} minutes: {rows.unit_reason}{columns}.",
        ),
        doubts=(*work.other_ledgers(meters.names), *notes),
        unit=rows.unit,
        origin=origin,
        step_minutes=minutes,
        time_zone=rows.time_zone,
        crowd=settings.crowd,
    )
    return StageOutcome((FIT, QUALITY_TABLE), facts, carry=Carry())


def fit_job(home: Path, shard: Part, config: Config, origin: str, before: Part | None, lasting: bool = False) -> Job:
    """One shard's forecasts: anew, or from those of an earlier day; ``lasting``: crowds of its homes are on record."""
    settings = {**config.part("train_days", "horizon", "order"), "season": config.season, "origin": origin}
    settings["export"] = config.exports
    inputs = [shard] if before is None else [before, shard]
    work = partial(do, shard.path, origin, config, None if before is None else before.path, lasting)
    return Job(work, out_path(home, FORECASTS, "zip", settings, inputs), tuple(inputs))


def _quality(
    work: Work, forecasts: Sequence[Part], shards: Sequence[Part], rows: MeterRows
) -> tuple[Counter[str], list[str]]:
    """Write the quality table of all shards; reasons for leaving households out, counted, and what to settle."""
    gone = [pl.scan_parquet(part.beside(QUALITY)).filter(pl.col("verdict") == "left out") for part in shards]
    tables = [*(pl.scan_parquet(part.beside(QUALITY)) for part in forecasts), *gone]
    every = pl.concat(tables, how="diagonal_relaxed").unique("household", keep="first", maintain_order=True)
    table = every.sort("household").collect()
    work.folder.write(QUALITY_TABLE, lambda path: spreadsheet_safe(table).write_csv(path))
    frame = pl.DataFrame(schema={"household": pl.String, "timestamp": pl.Datetime("us", rows.time_zone)})
    notes = Readings(frame, table, rows.step).owner_notes(export=work.settings.exports)
    return Counter(table.filter(pl.col("verdict") == "left out")["reason"].drop_nulls().to_list()), notes


def _origin(shards: Sequence[ShardFacts], rows: MeterRows, given: str | None) -> str:
    """The given origin, else the latest one that at least half of the households reach."""
    if given is not None:
        return clock.parse_instant(given, rows.time_zone, name="origin").isoformat()
    ends = tally(facts.ends for facts in shards)
    if not ends:
        raise InputError(f"readings: no household is left; {QUALITY_TABLE} says why")
    return clock.instant_in_zone(median_low(ends.elements()) + rows.grid.step_us, rows.time_zone).isoformat()
