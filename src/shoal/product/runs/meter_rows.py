"""Meter files of any size to shards of repaired readings, in memory that does not grow with the number of rows.

The input is passed over twice: for the names, and to sort the rows into buckets of whole households. Every bucket is
repaired on one common grid, household by household as :func:`shoal.read_meters` would. A shard is a Parquet file of
household, timestamp and kw, with the step in its metadata; beside it lies the quality table.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from shoal.errors import InputError
from shoal.files import make_private_folder
from shoal.product.card.facts import LISTED, sum_counts
from shoal.product.runs.config import Config
from shoal.product.runs.folder import SHARDS, SimulatedMeters
from shoal.product.runs.shards import (
    Job,
    Listing,
    find_shard,
    run_jobs,
    seal_shard,
    shard_path,
    write_shard_file,
    write_shard_frame,
)
from shoal.product.sources.declared_files import open_by_header
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.columns import ColumnsError, parse_meter_kind
from shoal.product.sources.meters.meter_files import (
    ODD_ROWS,
    ROW_NUMBERS,
    MeterSource,
    OpenedSources,
    choose_spellings,
    household_names,
    household_of_file,
    order_rows,
    readable_names,
    understand_files,
)
from shoal.product.sources.meters.quality import (
    DAY,
    LARGE,
    NEGATIVE,
    REGISTER,
    Readings,
    are_registers,
    count_registers,
    household_intervals,
    most_common_interval,
    repair_readings,
)
from shoal.product.sources.meters.simulate import simulate_meters
from shoal.records import Record
from shoal.rounding import count_of

if TYPE_CHECKING:
    from shoal.product.runs.stage_work import Work
    from shoal.product.workers import Executor

#: Settings that decide how meter files are read.
READING = (
    "unit", "interval", "time_zone", "timestamp_format", "max_kw", "household_column", "timestamp_column",
    "value_column", "encoding",
)  # fmt: skip
#: First day of simulated readings.
SIMULATED_START = "2024-01-01"
#: The grid's step in the metadata of a shard, and the suffix of its quality table.
STEP, QUALITY = "step_us", "quality.parquet"
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Grid(Record):
    """What all shards share: the grid, in microseconds, and whether readings are the totals of registers."""

    step_us: int
    phase_us: int
    register: bool = False


@dataclass(frozen=True)
class MeterRows(Record):
    """Rows of meter files by bucket (:meth:`MeterSource.standard_batches`), and what all of them share."""

    folder: str  #: with a folder of pieces for each bucket that has rows
    buckets: int
    filled: tuple[int, ...]  #: buckets with rows
    grid: Grid = Grid(0, 0)  #: once it is known
    time_zone: str | None = None  #: zone of the instants
    energy: bool = False
    unit: str = "kW"  #: what the readings came in
    unit_reason: str = ""
    taken: str = ""  #: which columns were taken for what
    max_kw: float | None = None

    @property
    def step(self) -> timedelta:
        """The interval between readings."""
        return timedelta(microseconds=self.grid.step_us)


@dataclass(frozen=True)
class ShardFacts(Record):
    """What a shard holds; ``ends`` counts households by the microsecond of their last reading."""

    households: int
    ends: tuple[tuple[int, int], ...]
    large: int = 0  #: households above what a home draws
    reasons: tuple[tuple[str, int], ...] = ()  #: why households are left out
    number: int = 0  #: of the bucket


# ------------------------------------------------------------------ rows by bucket


def open_meter_files(files: Sequence[Path], config: Config) -> OpenedSources:
    """Return meter files that are read together with what is known of their columns, units and clocks."""
    columns = config.named_columns or None
    if config.declares:
        return open_by_header(files, config, instants=_declares_instants(config))
    return understand_files(files, columns, config.timestamp_format, config.unit, config.time_zone, config.encoding)


def sort_into_buckets(
    opened: OpenedSources,
    folder: Path,
    config: Config,
    buckets: int | None = None,
    on_record: Callable[[list[str]], Mapping[str, str]] = lambda _: {},
) -> MeterRows:
    """Sort the rows of meter files into buckets of about ``shard_size`` households; return what is known of them.

    ``on_record`` gives names their spelling on record, where that is another.
    """
    names = _household_names(opened.sources)
    other = choose_spellings(names.to_list(), on_record(names.to_list()), together=config.declares)
    names = names.replace(other).unique()
    count = max(-(-len(names) // config.shard_size), 1) if buckets is None else buckets

    def batches() -> Iterator[pl.DataFrame]:
        rows = 0
        for number, source in enumerate(opened.sources):
            for batch in source.standard_batches(number):
                rows += len(batch)
                yield batch.with_columns(pl.col("household").replace(other))
        if config.interval is None and opened.numbering is not None and len(names) == rows > 2:
            raise ColumnsError(ROW_NUMBERS.format(opened.numbering))

    return MeterRows(
        str(folder),
        count,
        write_buckets(batches(), folder, count),
        time_zone=opened.time_zone,
        energy=opened.energy,
        unit=opened.unit,
        unit_reason=opened.reason,
        taken=opened.taken,
        max_kw=config.max_kw,
    )


def bucket_of(name: str, buckets: int) -> int:
    """Return the bucket of a name among so many: a hash of the name alone, the same from day to day.

    >>> bucket_of("H0001", 1), bucket_of("H0001", 8) == bucket_of("H0001", 8)
    (0, True)
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % buckets


def write_buckets(batches: Iterable[pl.DataFrame], folder: Path, buckets: int) -> tuple[int, ...]:
    """Write the rows of every batch to the buckets of their households; return the buckets that have rows.

    What was in the folder is replaced. A piece is an Arrow file of one bucket and one batch, so that no more than a
    batch is in memory.
    """
    shutil.rmtree(folder, ignore_errors=True)
    filled: set[int] = set()
    for number, batch in enumerate(batches):
        names = batch["household"].unique()
        key = pl.DataFrame({"household": names, "bucket": [bucket_of(n, buckets) for n in names]})
        rows = batch.join(key, on="household", how="left", maintain_order="left")
        for (bucket,), piece in rows.partition_by("bucket", as_dict=True, include_key=False).items():
            into = folder / f"{bucket:06d}"
            make_private_folder(into)
            write_shard_file(into / f"{number:06d}.arrow", partial(piece.write_ipc, compression="lz4"))
            filled.add(int(bucket))
    return tuple(sorted(filled))


def _household_names(sources: Sequence[MeterSource]) -> pl.Series:
    """Return the names of all households in some files, each once, sorted."""
    fixed: set[str] = set()
    parts = []
    for source in sources:
        if source.layout.shape == "households":
            fixed |= {name.strip() for name in source.layout.across}
        elif source.layout.household is None:
            fixed.add(household_of_file(source.file))
        else:
            name = readable_names() if source.declared else household_names()
            column = source.table.raw.select(household=pl.col(source.layout.household)).select(name)
            try:
                parts.append(column.unique().collect(engine="streaming")["household"])
            except (pl.exceptions.PolarsError, OSError, UnicodeError):
                raise InputError(ODD_ROWS.format(source.file.name)) from None
    parts.append(pl.Series("household", sorted(fixed), dtype=pl.String))
    return pl.concat([part.fill_null("") for part in parts]).unique().sort()


def read_rows(rows: MeterRows, bucket: int) -> pl.DataFrame:
    """Return the rows of one bucket in the order of the input."""
    files = sorted((Path(rows.folder) / f"{bucket:06d}").glob("*.arrow"))
    try:
        frame = pl.concat([pl.read_ipc(file.read_bytes()) for file in files])
    except (pl.exceptions.PolarsError, OSError, ValueError):
        raise InputError(f"shard: the rows of bucket {bucket} cannot be read; sort the input again") from None
    return order_rows(frame, rows.time_zone)


# ------------------------------------------------------------------ the grid of all


@dataclass(frozen=True)
class Survey:
    """What one bucket says about the grid.

    ``intervals`` counts households by their most common distance between readings, ``times`` rows by time of the day,
    both in microseconds: at most 86,400 different times where clocks show whole seconds.
    """

    intervals: Counter[int]
    times: Counter[int]
    rising: tuple[int, int] = (0, 0)  #: households whose readings only rise, of how many that can be judged


def survey_bucket(rows: MeterRows, bucket: int) -> Survey:
    """Count intervals between readings and times of the day in one bucket."""
    frame = read_rows(rows, bucket)
    times = frame.select((pl.col("timestamp").dt.epoch("us") % DAY).drop_nulls().alias("time"))
    counted = dict(times.group_by("time").len().iter_rows())
    return Survey(
        Counter(household_intervals(frame)["own"].drop_nulls().to_list()), Counter(counted), count_registers(frame)
    )


def common_grid(
    surveys: Iterable[Survey], interval: Any = None, *, energy: bool = False, meter: str | None = None
) -> Grid:
    """Return the grid with the interval that most households have and the phase that most readings have."""
    every = list(surveys)
    intervals = sum_counts(one.intervals.items() for one in every)
    times = sum_counts(one.times.items() for one in every)
    like, judged = (sum(one.rising[i] for one in every) for i in (0, 1))
    register = are_registers(like, judged, energy=energy, meter=meter)
    step = (clock.parse_step(interval) or most_common_interval(intervals)) // MICROSECOND
    phases: Counter[int] = Counter()
    for time, count in times.items():
        phases[time % step] += count
    return Grid(step, min(phases, key=lambda phase: (-phases[phase], phase), default=0), register)


# ------------------------------------------------------------------ nothing inferred from readings


def _declares_instants(config: Config) -> bool:
    """Return whether timestamps are declared to have an offset from UTC; refuse settings that are lacking."""
    needed = {"unit": "the unit of the readings (unit='kw')", "interval": "the minutes between them (interval=15)"}
    missing = [name for name in needed if getattr(config, name) is None]
    if missing:
        raise InputError(f"{missing[0]}: secret='readings' needs {' and '.join(needed[name] for name in missing)}")
    try:
        instants = datetime.fromisoformat(str(config.origin)).tzinfo is not None
    except ValueError:
        instants = clock.parse_instant(str(config.origin), None, name="origin").tzinfo is not None  # says what is wrong
    if instants and config.time_zone is None:
        raise InputError(
            "time_zone: the timestamps have an offset; name the zone of the homes' clocks, such as Europe/Zurich"
        )
    return instants


def declared_grid(config: Config, *, energy: bool) -> Grid:
    """Return the grid that the declared origin lies on, with the declared interval; readings have no say."""
    width = clock.parse_step(config.interval)
    assert width is not None
    step = width // MICROSECOND
    at = clock.microseconds_of(clock.parse_instant(str(config.origin), config.time_zone, name="origin"))
    return Grid(step, at % step, are_registers(0, 0, energy=energy, meter=parse_meter_kind(config.unit) or "interval"))


# ------------------------------------------------------------------ shards of readings


def make_shard(rows: MeterRows, bucket: int, out: str) -> ShardFacts:
    """Repair one bucket's rows, and write them as a shard with its quality table; return what it holds."""
    readings = repair_readings(
        read_rows(rows, bucket),
        interval=rows.step,
        max_kw=rows.max_kw,
        energy=rows.energy,
        register=rows.grid.register,
        phase=rows.grid.phase_us,
        unit=rows.unit,
    )
    return replace(write_readings(out, readings), number=bucket)


def make_simulated_shard(source: SimulatedMeters, first: int, last: int, out: str) -> ShardFacts:
    """Write a shard of the simulated households first .. last − 1; return what it holds."""
    step = source.step_minutes
    frame = simulate_meters(last - first, source.days, step, source.seed, start=SIMULATED_START, first=first)
    return replace(write_readings(out, repair_readings(frame, interval=step, phase=0)), number=first)


def write_readings(out: str | Path, readings: Readings) -> ShardFacts:
    """Write a shard of readings and, before it, its quality table; return what it holds."""
    write_shard_frame(Path(out).with_suffix(f".{QUALITY}"), readings.quality)
    write_shard_frame(out, readings.frame, {STEP: str(readings.step // MICROSECOND)})
    ends = readings.frame.group_by("household").agg(pl.col("timestamp").max().dt.epoch("us"))["timestamp"]
    return ShardFacts(
        households=len(ends),
        ends=tuple(sorted(Counter(ends.to_list()).items())),
        large=int(readings.quality["large"].sum()),
        reasons=tuple(Counter(readings.quality["reason"].drop_nulls().to_list()).most_common(LISTED)),
    )


def read_readings(path: str | Path) -> Readings:
    """Return the readings in a shard, as :func:`shoal.forecast` takes them."""
    step = timedelta(microseconds=int(pl.read_parquet_metadata(path)[STEP]))
    return Readings(pl.read_parquet(path), pl.read_parquet(Path(path).with_suffix(f".{QUALITY}")), step)


# ------------------------------------------------------------------ all shards


def make_readings_shards(work: Work, executor: Executor, buckets: int | None) -> tuple[Listing, MeterRows]:
    """Write repaired readings in shards by a hash of the name; return the list of them, and what they share.

    Rows are sorted into buckets once, which is noted, and again where a shard is lacking and the sorted rows are gone.
    """
    root, config, homes = work.path / SHARDS, work.settings, work.source.simulated

    def out(**settings: Any) -> str:
        return shard_path(root, "readings", "parquet", settings)

    if homes is not None:
        firsts = range(0, homes.households, config.shard_size)
        spans = [(first, min(first + config.shard_size, homes.households)) for first in firsts]
        jobs = [
            Job(partial(make_simulated_shard, homes, first, last), out(**asdict(homes), first=first, last=last))
            for first, last in spans
        ]
        grid = Grid(timedelta(minutes=homes.step_minutes) // MICROSECOND, 0)
        rows = MeterRows("", len(jobs), (), grid, unit_reason="they are simulated so")
        return run_jobs(executor, "simulating", jobs, work.report), rows
    settings = {
        **config.part(*READING, "shard_size"),
        "source": work.source.digest,
        "buckets": buckets,
        # Under the readings' promise the origin lies on the grid, whatever the readings are.
        "grid": config.origin if config.declares else None,
    }
    note = shard_path(root, "sort", "sorted", settings)
    folder, part = root / "rows" / Path(note).stem, find_shard(note)
    sorted_rows = None if part is None else replace(part.facts_as(MeterRows), folder=str(folder))
    if sorted_rows is None or (
        not folder.is_dir() and any(find_shard(out(**settings, number=number)) is None for number in sorted_rows.filled)
    ):
        try:
            sorted_rows = _sort_source(work, executor, folder, buckets)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        seal_shard(note, sorted_rows)
    jobs = [
        Job(partial(make_shard, sorted_rows, number), out(**settings, number=number)) for number in sorted_rows.filled
    ]
    shards = run_jobs(executor, "reading meters", jobs, work.report)
    shutil.rmtree(folder, ignore_errors=True)  # all of it is in the shards now
    return shards, sorted_rows


def _sort_source(work: Work, executor: Executor, folder: Path, buckets: int | None) -> MeterRows:
    """Sort the rows of the source into buckets; return them with the declared grid, or the one that most have."""
    config = work.settings
    work.report("sorting readings by household", 0, 0)
    try:
        opened = open_meter_files(work.source.paths, config)
        rows = sort_into_buckets(opened, folder, config, buckets, work.spellings_on_record)
        if config.declares:
            grid = declared_grid(config, energy=rows.energy)
        else:
            surveys = executor.call_all([partial(survey_bucket, rows, number) for number in rows.filled])
            grid = common_grid(surveys, config.interval, energy=rows.energy, meter=parse_meter_kind(config.unit))
    except ColumnsError as error:
        raise InputError(f"{error.what}. Name them: household_column=, timestamp_column= and value_column=") from None
    return replace(rows, grid=grid, unit_reason=rows.unit_reason + (REGISTER if grid.register else ""))


def refuse_implausible(shards: Sequence[ShardFacts], config: Config, unit: str) -> None:
    """Raise InputError where no household's readings can be used, or some are larger than any home's."""
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
    if not usable:
        reasons = sum_counts(facts.reasons for facts in shards)
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
