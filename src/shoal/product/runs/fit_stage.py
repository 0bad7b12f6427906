"""The first stage: forecasts of every household, shard by shard, or the rows of a class table.

A shard of forecasts is ``<key>.zip``; beside it ``<key>.curves.parquet``, one row per household with its value today,
usual day and what was metered later, and ``<key>.quality.parquet``, one row per household read. A table is one shard,
``<key>.table``; its curves have what crowds are alike in: the scaled mean row, and of many rows their spreads too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median_low

import numpy as np
import polars as pl

from shoal.errors import InputError
from shoal.product.card.facts import LISTED, FitFacts, sort_by_count, sum_counts
from shoal.product.runs.config import Config
from shoal.product.runs.crowd_rows import crowd_setting
from shoal.product.runs.folder import FIT, FORECASTS, LAWS, Source
from shoal.product.runs.inputs import CURVES, write_curves
from shoal.product.runs.meter_rows import (
    QUALITY,
    READING,
    MeterRows,
    ShardFacts,
    make_readings_shards,
    read_readings,
    refuse_implausible,
)
from shoal.product.runs.owner_ledger import Book
from shoal.product.runs.shards import (
    Job,
    Listing,
    Part,
    find_shard,
    run_jobs,
    seal_shard,
    shard_path,
    write_shard_file,
    write_shard_frame,
)
from shoal.product.runs.stage_work import Stage, StageOutcome, Work
from shoal.product.sources.class_table import (
    LABEL,
    MOST_COPIES,
    SOURCE_ROW,
    SUFFIX,
    ClassTable,
    distinct_rows,
    label_means,
    table_rows,
)
from shoal.product.sources.frames import spreadsheet_safe
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.crowd_points import usual_day
from shoal.product.sources.meters.forecast import ABSENT, ShortHistory, forecast, update_forecasts
from shoal.product.sources.meters.meter_files import choose_spellings
from shoal.product.sources.meters.predictive_laws import Forecasts, absolute_errors
from shoal.product.sources.meters.quality import NothingToForecast, Readings
from shoal.product.workers import report_task_progress
from shoal.rounding import count_of, upper

SETTINGS = (*READING, "train_days", "horizon", "order", "origin", "shard_size", "secret", "query")
#: Those that may differ from day to day: how a file is read is no property of a crowd.
DAILY = (*READING, "origin", "horizon", "query")
#: Settings that decide how a table is read.
TABLE_SETTINGS = ("label", "columns", "timestamp_column", "value_column", "encoding")
READING_TABLE = "reading the table"
Spellings = Callable[[list[str]], Mapping[str, str]]
#: Largest magnitude of an entry of a table: squares of what is larger overflow.
LARGEST = 1e150
#: Rows of every label from which on crowds look at their spreads too.
SPREAD = 10

#: Where homes on record come with too few readings, and no forecasts of an earlier day are there to go on from.
SHORT = (
    "readings: these homes are in crowds on record, formed with train_days={0}, and no earlier forecasts are here to "
    "go on from. Use update=True in the folder of their last release, or give a file with the last {0} days. Nothing "
    "was released"
)
QUALITY_TABLE = "quality.csv"
#: Why a home of a shard in which none can be forecast has no curve.
UNUSED = "too few readings in the training window"


def forecast_shard(readings: str, origin: str, config: Config, before: str | None, lasting: bool, out: str) -> FitFacts:
    """Write the forecasts of a shard of readings from ``origin``, ISO text that all shards share; return its facts.

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
                progress=report_task_progress,
                export=config.takes_export,
                interval=data.step if config.declares else None,
            )
        except NothingToForecast as error:  # whether its shard has others must not decide about a home
            short = lasting and isinstance(error, ShortHistory)
            return _write_empty_shard(path, data, SHORT.format(config.train_days) if short else str(error))
        heard = frozenset(forecasts.households)
    else:
        forecasts, heard = update_forecasts(
            Forecasts.load(before), data, origin=instant, horizon=config.horizon, export=config.takes_export
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
    write_shard_frame(path.with_suffix(f".{QUALITY}"), quality)
    write_shard_file(path, forecasts.save)
    known, off = absolute_errors(truth, forecasts.power)
    return replace(forecasts.facts(), later_known=known, later_absolute=off)


def _write_empty_shard(path: Path, data: Readings, why: str) -> FitFacts:
    """Write a shard of which no home can be forecast; return its facts, with the reason in ``doubts``."""
    out = pl.when(pl.col("verdict") == "left out").then("reason").otherwise(pl.lit(UNUSED))
    quality = data.quality.with_columns(reason=out, verdict=pl.lit("left out"))
    write_shard_frame(path.with_suffix(f".{QUALITY}"), quality)
    write_shard_frame(path.with_suffix(f".{CURVES}"), pl.DataFrame(schema={"label": pl.String}))
    write_shard_file(path, lambda file: Path(file).write_bytes(b""))
    return FitFacts(noun="household", doubts=(why,))


def shards_with_homes(shards: Listing) -> Listing:
    """Return the shards of forecasts that hold some; raise InputError where no home can be forecast."""
    pairs = [pair for pair in shards.pairs if pair[0].facts["labels"]]
    if not pairs:
        raise InputError(shards.parts[0].facts["doubts"][0])
    parts, inputs = zip(*pairs, strict=True)
    return replace(shards, parts=parts, inputs=inputs)


def fit_meters(work: Work) -> StageOutcome:
    """Write the forecasts of every household, shard by shard; before any is fitted, the ledger is asked.

    The settings take the size of the crowds on record where no other was asked for, and a horizon in steps.
    """
    before = _forecasts_before(work)
    with work.open_workers() as executor:
        readings, rows = make_readings_shards(work, executor, None if before is None else before.buckets)
        shards = [(part, part.facts_as(ShardFacts)) for part in readings.parts]
        if work.source.simulated is None:  # among very many simulated homes a few are large
            refuse_implausible([facts for _, facts in shards], work.settings, rows.unit)
        origin = _choose_origin([facts for _, facts in shards], rows, work.settings.origin)
        every = pl.concat([pl.read_parquet(part.path, columns=["household"]).unique() for part in readings.parts])
        names, minutes = every["household"].to_list(), rows.step / timedelta(minutes=1)
        settings, lasting = _ask_ledger(work, names, origin, minutes)
        pairs = [] if before is None else before.pairs
        earlier = {shard.facts_as(ShardFacts).number: part for part, shard in pairs}  # by the bucket of the homes
        jobs = [
            forecast_job(work.path, part, settings, origin, earlier.get(facts.number), lasting)
            for part, facts in shards
            if facts.households
        ]
        forecasts = run_jobs(executor, "fitting forecasts", jobs, work.report)
    listing = forecasts if settings.declares else shards_with_homes(forecasts)
    work.write_listing(FIT, replace(listing, buckets=rows.buckets))
    reasons, notes = _write_quality(work, forecasts.parts, readings.parts, rows)
    columns = f"; {rows.taken}" if rows.taken else ""
    chosen = " (chosen: with less than four weeks a season by week fits badly)" if settings.train_days < 28 else ""
    facts = replace(
        FitFacts.merge([part.facts_as(FitFacts) for part in forecasts.parts]),
        source=str(work.source),
        left_out=sum(reasons.values()),
        reasons=tuple(sort_by_count(reasons)[:LISTED]),
        about=(
            f"Forecasts: {settings.horizon} steps ({settings.horizon * minutes / 60:g} h) from {origin}, trained on "
            f"{settings.train_days} days, season by {settings.season}{chosen}.",
            f"Readings: {rows.unit} every {minutes:g} minutes: {rows.unit_reason}{columns}.",
        ),
        doubts=(*work.doubts_of_other_ledgers(names), *notes),
        unit=rows.unit,
        origin=origin,
        step_minutes=minutes,
        time_zone=rows.time_zone,
        crowd=settings.crowd,
    )
    return StageOutcome((FIT, QUALITY_TABLE), facts, settings)


def _forecasts_before(work: Work) -> Listing | None:
    """Return the forecasts of the release before, to go on from; None where there are none, or they are lost.

    Under the readings' promise no stored window is used: it is kept with a shard, which is there while one of its homes
    is usable.
    """
    if work.state.previous is None or work.settings.declares:
        return None
    try:
        return work.read_intact(FIT, work.state.previous)
    except InputError:
        work.report("the forecasts of the last release are lost; they are made anew", 0, 0)
        return None


def _ask_ledger(work: Work, names: list[str], origin: str, minutes: float) -> tuple[Config, bool]:
    """Return the settings that hold from here on, and whether homes are in crowds on record.

    Refuses a ledger that is not the one it should be, and what crowds on record do not allow. Under the readings'
    promise the ledger decides with the release: no home does before it.
    """
    settings = horizon_in_steps(work.settings, work.horizon, minutes)
    if settings.declares:
        return settings, False
    book = Book.read(work.find_ledger(), names)
    if book.least_size is not None and work.any_crowd:
        settings = replace(settings, crowd=book.least_size)
    fit = FitFacts(origin=origin, step_minutes=minutes)
    book.refuse_conflicts(crowd_setting(work, settings, fit), origin, settings.horizon)
    return settings, book.least_size is not None


def horizon_in_steps(settings: Config, horizon: str | None, step_minutes: float | None) -> Config:
    """Return settings in which a horizon that was given as a time, such as 3h, is a number of steps."""
    if horizon is None or not step_minutes:
        return settings
    return replace(settings, horizon=clock.parse_steps(horizon, timedelta(minutes=step_minutes)))


def forecast_job(
    home: Path, shard: Part, config: Config, origin: str, before: Part | None, lasting: bool = False
) -> Job:
    """Return the job that forecasts one shard: anew, or from those of an earlier day."""
    settings = {**config.part("train_days", "horizon", "order"), "season": config.season, "origin": origin}
    settings["export"] = config.takes_export
    inputs = [shard] if before is None else [before, shard]
    work = partial(forecast_shard, shard.path, origin, config, None if before is None else before.path, lasting)
    return Job(work, shard_path(home, FORECASTS, "zip", settings, inputs), tuple(inputs))


def _write_quality(
    work: Work, forecasts: Sequence[Part], shards: Sequence[Part], rows: MeterRows
) -> tuple[Counter[str], list[str]]:
    """Write the quality table of all shards; return why households are left out, counted, and warnings."""
    gone = [pl.scan_parquet(part.sibling_file(QUALITY)).filter(pl.col("verdict") == "left out") for part in shards]
    tables = [*(pl.scan_parquet(part.sibling_file(QUALITY)) for part in forecasts), *gone]
    every = pl.concat(tables, how="diagonal_relaxed").unique("household", keep="first", maintain_order=True)
    table = every.sort("household").collect()
    work.folder.write(QUALITY_TABLE, lambda path: spreadsheet_safe(table).write_csv(path))
    frame = pl.DataFrame(schema={"household": pl.String, "timestamp": pl.Datetime("us", rows.time_zone)})
    notes = Readings(frame, table, rows.step).owner_notes(export=work.settings.takes_export)
    return Counter(table.filter(pl.col("verdict") == "left out")["reason"].drop_nulls().to_list()), notes


def _choose_origin(shards: Sequence[ShardFacts], rows: MeterRows, given: str | None) -> str:
    """Return the given origin, else the latest one that at least half of the households reach, as ISO text."""
    if given is not None:
        return clock.parse_instant(given, rows.time_zone, name="origin").isoformat()
    ends = sum_counts(facts.ends for facts in shards)
    if not ends:
        raise InputError(f"readings: no household is left; {QUALITY_TABLE} says why")
    return clock.instant_in_zone(median_low(ends.elements()) + rows.grid.step_us, rows.time_zone).isoformat()


def fit_table(work: Work) -> StageOutcome:
    """Write the rows of every label, with the columns of the release before where there is one."""
    config, known = work.settings, None
    if work.state.previous is not None:
        known = ClassTable.load(work.read_listing(FIT, work.state.previous).parts[0].path).columns
    settings = {**config.part(*TABLE_SETTINGS), "source": work.source.digest, "known": known, "charged": config.charged}
    out = shard_path(work.path, LAWS, SUFFIX, settings)
    work.report(READING_TABLE, 0, 0)
    part = find_shard(out)
    if part is None:
        part = seal_shard(out, read_table(work.source, config, known, Path(out), work.spellings_on_record))
    work.write_listing(FIT, Listing((part,)))
    doubts = work.doubts_of_other_ledgers(ClassTable.load(part.path).labels)
    facts = replace(part.facts_as(FitFacts), source=str(work.source), crowd=config.crowd, doubts=doubts)
    if facts.labels < 2:
        raise InputError("label: all rows have one label, and a crowd needs several. Name another column")
    return StageOutcome((FIT,), facts)


def read_table(
    source: Source,
    config: Config,
    known: Sequence[str] | None,
    out: Path,
    on_record: Spellings,
) -> FitFacts:
    """Write the rows of a table and their curves; ``known`` columns are those of an earlier table that goes on.

    ``on_record`` gives labels their spelling on record, where that is another.
    """
    columns = config.columns, config.timestamp_column, config.value_column
    rows, entries, left_out = table_rows(source.paths, str(config.label), *columns, config.encoding)
    given = rows[LABEL].unique().to_list()
    rows = rows.with_columns(pl.col(LABEL).replace(choose_spellings(given, on_record(given))))
    whole = rows.drop_nulls().sort(LABEL, SOURCE_ROW)
    incomplete = len(rows) - len(whole)
    if not len(whole):
        raise InputError(
            f"table: no row has a number in every entry ({incomplete} have an empty cell); leave out the columns that "
            "are empty (columns='-NAME'), or fill them in"
        )
    values = np.ascontiguousarray(whole.select(entries).to_numpy(), dtype=np.float64)
    if np.abs(values).max() > LARGEST:
        raise InputError(f"columns: some entries are beyond {LARGEST:g}; give them in a larger unit")
    ordered = np.sort(values, axis=0)  # figures over all rows do not depend on their order
    places = list(range(len(entries)))
    if known is not None:
        missing = [name for name in known if name not in entries]
        if missing:
            raise InputError(f"columns: the new table has no entry {missing[0]!r}, which the last release had")
        places = [entries.index(name) for name in known]
    elif config.charged or all(name.startswith("-") for name in config.columns):  # whoever names columns gets them
        places = np.flatnonzero(ordered[0] < ordered[-1]).tolist()
        if not places:
            raise InputError("columns: every entry has one value in all rows; there is nothing to hide")
    chosen = tuple(entries[i] for i in places)
    without = [name for name in entries if name not in chosen]
    spread = ordered[:, places].std(axis=0)
    exponents = np.rint(-np.log2(np.where(spread > 0, spread, 1.0))).astype(np.int64)
    labels = whole[LABEL].unique().sort()
    names, owner = tuple(labels.to_list()), labels.search_sorted(whole[LABEL]).to_numpy().astype(np.intp)
    scaled, numbers = np.ldexp(values[:, places], exponents), whole[SOURCE_ROW].to_numpy()
    first = distinct_rows(scaled, owner)
    copies = len(scaled) - len(first)
    few = copies <= MOST_COPIES * len(scaled)  # many are refused where a law is fitted
    if few:
        scaled, owner, numbers = scaled[first], owner[first], numbers[first]
    shard = ClassTable(names, chosen, exponents, scaled, owner, numbers)
    counts = np.bincount(owner)
    # Laws with the same correlations are apart by the squared distance of mean rows and standard deviations (Bures &
    # Wasserstein).
    spreads = np.zeros_like(shard.means)
    if counts.min() >= SPREAD:
        spreads = np.sqrt(label_means((shard.values - shard.means[owner]) ** 2, owner, len(names)))
    own = np.ldexp(shard.means, -exponents)
    write_curves(
        out,
        names,
        [True] * len(names),
        value=own,
        truth=np.full(own.shape, np.nan),
        habits=np.concatenate([shard.means, spreads], axis=1),
        stored=own,
    )
    write_shard_file(out, shard.save)
    fewest, most = int(counts.min()), int(counts.max())
    gone = [
        *([f"{count_of(incomplete, 'row')} with an empty cell"] if incomplete else []),
        *([f"{count_of(copies, 'row')} with the same figures as another of the label"] if few and copies else []),
        *([f"{count_of(len(left_out), 'column')} not asked for or without numbers"] if left_out else []),
        *([f"{count_of(len(without), 'column')} with one value in all rows"] if without else []),
    ]  # fmt: skip
    about = _describe_rows(len(scaled), len(chosen), fewest, most)
    about += [f"Not in it: {'; '.join(gone)}."] if gone else []
    noun = label_noun(str(config.label))
    return FitFacts(labels=len(names), most_rows=most, noun=noun, entry="column", about=tuple(about))


def label_noun(column: str) -> str:
    """Return a noun for a label: what its column is called, where that is a word, else "label"."""
    return column.lower() if re.fullmatch("[A-Za-z]{4,}", column) and not column.endswith("s") else "label"


def _describe_rows(rows: int, columns: int, fewest: int, most: int) -> list[str]:
    """Return sentences on the size of a table, its units, and what its rows by themselves can support."""
    k = count_of(columns, "column")
    if most == 1:
        return [f"A table of one row per label, {k}."]
    span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return [
        f"A table of {rows} rows, {span} per label, {k}: every row is released, and the promise is about all rows of a "
        "label together.",
        "Errors are counted in units of the columns: the power of two next to a column's spread.",
        f"The rows by themselves support no δ below about {upper(3 / fewest, 2)}, three over the fewest rows of a "
        "label: a smaller one rests on the Gaussian law of the rows.",
    ]


#: The first stage, over meters or a table.
FITTING = Stage("reading meters", SETTINGS, fit_meters, DAILY)
READING_ROWS = Stage(READING_TABLE, TABLE_SETTINGS, fit_table, ("period",))
