"""From meter files to readings shards that hold whole groups: partition, profile, cluster, group, regroup.

Every step is jobs over shards (:mod:`shoal.runs.jobs`); what the driver does itself is small: sorting the names,
the centers of the clusters, and which household belongs to which group.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shoal.card.facts import Lost, Record, tallied
from shoal.errors import InputError
from shoal.files import file_digest
from shoal.runs import clusters, groups, partition, profiles, regroup
from shoal.runs.config import Config
from shoal.runs.exchange import Sent
from shoal.runs.jobs import Job, Tell, here, noted, out_path, run_jobs
from shoal.runs.pieces import Pieces, sort_files
from shoal.runs.shards import quality_path
from shoal.runs.sources import SimulatedMeters, Source, in_words_of_a_run
from shoal.runs.store import Part
from shoal.sources.meters.quality import LARGE, NEGATIVE
from shoal.workers.executor import Executor

#: Settings that decide how meter files are read.
READING = (
    "unit", "meter", "interval", "time_zone", "timestamp_format", "max_kw", "household_column", "timestamp_column",
    "value_column", "only",
)  # fmt: skip


@dataclass(frozen=True)
class SortedReadings(Record):
    """Rows of meter files by shard, and the grid that all of them share."""

    pieces: Pieces
    grid: partition.Grid


@dataclass(frozen=True)
class Grouped(regroup.Regrouped):
    """Readings shards of whole groups, and what all of them share."""

    ends: dict[int, int]  #: last instant in microseconds -> households that end there
    step_us: int
    time_zone: str | None
    unusable: list[Path]  #: quality tables that name households whose readings could not be used
    unit: str  #: what the readings came in
    unit_reason: str
    taken: str  #: which columns were taken for what


def grouped_readings(
    executor: Executor, root: Path, source: Source, config: Config, tell: Tell, assignment: Part | None = None
) -> Grouped:
    """Readings of a source in shards of whole groups; ``assignment`` keeps the groups of an earlier day."""
    readings, failed = partitioned(executor, root, source, config, tell)
    told = [shard.told(partition.ShardFacts) for shard in readings]
    _refuse_implausible(told, config)
    later = assignment is not None
    if assignment is None:
        assignment, more = assigned(executor, root, readings, config, tell)
    else:
        assignment, more = extended(executor, root, readings, assignment, config, tell)
    failed = failed + more
    shards, lost = regrouped(executor, root, readings, assignment, tell, known_only=later)
    zones, steps = {facts.time_zone for facts in told}, {facts.step_us for facts in told}
    if len(zones) > 1 or len(steps) > 1:
        raise InputError("shard: readings shards differ in time zone or interval; use a new folder")
    unusable = [quality_path(part.path) for part, facts in zip(readings, told, strict=True) if facts.left_out]
    one = told[0]
    return Grouped(
        shards, failed + lost, assignment, tallied(facts.ends for facts in told), steps.pop(), zones.pop(), unusable,
        one.unit, one.unit_reason, one.taken,
    )  # fmt: skip


def _refuse_implausible(told: Sequence[partition.ShardFacts], config: Config) -> None:
    """Before anything is made of readings: refuse those of which none can be used, and those no home has."""
    large = sum(facts.large for facts in told)
    usable = sum(facts.households for facts in told)
    if large and not config.accept_large:
        raise InputError(
            f"readings: {large} of {usable} households {LARGE}. Nothing was released. If the unit is wrong, name it "
            f"with --unit (read were {told[0].unit}); if they are totals, say --meter register; if single readings are "
            "faults, leave them out with --max-kw; if these are large customers, go on with --accept-large"
        )
    if not usable and told:
        reasons = tallied(facts.reasons for facts in told)
        why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
        more = ""
        if reasons[NEGATIVE]:
            more = ". Consumption is positive: name its column with --value-column, or turn the sign round in the file"
        raise InputError(f"readings: none of the {reasons.total()} households can be used: {why}{more}")


# ------------------------------------------------------------------ partition


def partitioned(
    executor: Executor, root: Path, source: Source, config: Config, tell: Tell
) -> tuple[list[Part], list[Lost]]:
    """Readings shards by name, from files or simulated."""
    if source.simulated is not None:
        jobs = _simulated(root, source.simulated, config)
        executor.expect(len(jobs))
        return run_jobs(executor, "simulating", jobs, tell, for_good=True)
    settings = {**config.part(*READING), "source": source.digest, "shard_size": config.shard_size}

    def sort(folder: Path) -> SortedReadings:
        tell("sorting readings by household", 0, 0)
        try:
            return _sorted(executor, source, config, folder)
        except InputError as error:
            raise in_words_of_a_run(error) from None

    found = noted(root, settings, SortedReadings, sort)
    pieces, grid = found.pieces, found.grid
    executor.expect(pieces.n_shards)
    jobs = [
        Job(
            partial(partition.make_shard, pieces, number, grid),
            out_path(root, "partition", "parquet", {**settings, "number": number}),
        )
        for number in range(pieces.n_shards)
    ]
    result = run_jobs(executor, "reading meters", jobs, tell, for_good=True)
    if not result[1]:
        shutil.rmtree(pieces.folder, ignore_errors=True)  # all of it is in the shards now
    return result


def _simulated(root: Path, source: SimulatedMeters, config: Config) -> list[Job]:
    if config.only:
        raise InputError("only: a simulated neighborhood is taken as a whole; simulate fewer households")
    n, size = source.households, config.shard_size
    return [
        Job(
            partial(partition.make_simulated_shard, source, first, last),
            out_path(root, "partition", "parquet", {**asdict(source), "first": first, "last": last}),
        )
        for first, last in ((first, min(first + size, n)) for first in range(0, n, size))
    ]


def _sorted(executor: Executor, source: Source, config: Config, folder: Path) -> SortedReadings:
    """The rows of all files by shard, and the grid that all of them share."""
    pieces = sort_files(
        source.path,
        folder,
        shard_size=config.shard_size,
        unit=config.unit,
        time_zone=config.time_zone,
        columns=config.named_columns or None,
        timestamp_format=config.timestamp_format,
        max_kw=config.max_kw,
        interval=config.interval,
        only=config.only,
    )
    executor.expect(pieces.n_shards)
    surveys = executor.every([partial(partition.survey, pieces, number) for number in range(pieces.n_shards)])
    grid = partition.common_grid(surveys, config.interval, energy=pieces.energy, meter=config.meter)
    return SortedReadings(pieces, grid)


# ------------------------------------------------------------------ groups


def assigned(
    executor: Executor, root: Path, readings: list[Part], config: Config, tell: Tell
) -> tuple[Part, list[Lost]]:
    """Which household belongs to which group, and which group to which shard."""
    made, failed = _profiled(executor, root, readings, tell)
    assignment, more = cells_of_profiles(executor, root, made, config, tell, config.shard_size, config.cell)
    return assignment, failed + more


def cells_of_profiles(
    executor: Executor, root: Path, made: list[Part], config: Config, tell: Tell, shard_size: int, cell: int
) -> tuple[Part, list[Lost]]:
    """Cells of at most ``cell`` alike profiles, and which shard of about ``shard_size`` each belongs to."""
    total = sum(shard.households for shard in made)
    if config.table is not None and config.column is not None:
        settings: dict[str, Any] = {"table": _table_digest(config.table), **config.part("column", "table_household")}
        known = _values(root, config.table, config.column, config.table_household)
        work: Callable[[str, str, str], Sent] = clusters.assign_by_value
    else:
        count = clusters.cluster_count(total, cell)
        settings = {"clusters": count, "seed": config.seed}
        out = out_path(root, "centers", "npy", settings, made)
        tell("clusters of profiles", 0, 0)
        paths, sizes = [s.path for s in made], [s.households for s in made]
        known = here(Job(partial(clusters.fit_centers, paths, sizes, count, seed=config.seed), out))
        work = clusters.assign_by_center
    jobs = [
        Job(
            partial(work, shard.path, known.path),
            out_path(root, "assign", "arrow", settings, [known, shard]),
            (known, shard),
        )
        for shard in made
    ]
    sorted_shards, more = run_jobs(executor, "nearest clusters", jobs, tell, for_good=True)
    counts = tallied(shard.told(Sent).counts for shard in sorted_shards)
    bounds = {"cap": cell, "floor": config.crowd, "shard_size": shard_size}
    tell("forming cells", 0, 0)
    forming = partial(
        groups.form_groups,
        [s.path for s in sorted_shards],
        dict(sorted(counts.items())),
        cap=cell,
        floor=config.crowd,
        shard_size=shard_size,
        join=config.table is None,
    )
    return here(Job(forming, out_path(root, "groups", "parquet", bounds, sorted_shards))), more


def extended(
    executor: Executor, root: Path, readings: list[Part], assignment: Part, config: Config, tell: Tell
) -> tuple[Part, list[Lost]]:
    """The assignment of an earlier day with the households that came since; the same one where none did."""
    if not _came(readings, assignment):
        return assignment, []
    made, failed = _profiled(executor, root, readings, tell)
    return with_newcomers(root, made, assignment, config), failed


def with_newcomers(root: Path, made: list[Part], assignment: Part, config: Config) -> Part:
    """The assignment with those whose profiles are new; the same one where there are none."""
    if not _came(made, assignment):
        return assignment
    inputs = [assignment, *made]
    values = None
    if config.table is not None and config.column is not None:
        values = _values(root, config.table, config.column, config.table_household)
        inputs.append(values)
    out = out_path(root, "groups", "parquet", {}, inputs)
    paths = [part.path for part in made]
    work = partial(groups.places_given, paths, assignment.path, None if values is None else values.path)
    return here(Job(work, out, tuple(inputs)))


def _came(parts: list[Part], assignment: Part) -> bool:
    """Whether some of these households are not in the assignment."""
    import polars as pl

    known = pl.scan_parquet(assignment.path).select("household")
    came = pl.concat([pl.scan_parquet(part.path).select("household") for part in parts])
    new = came.join(known, on="household", how="anti").select(pl.len()).collect(engine="streaming").item()
    return bool(new)


def _profiled(executor: Executor, root: Path, readings: list[Part], tell: Tell) -> tuple[list[Part], list[Lost]]:
    jobs = [
        Job(partial(profiles.make_profiles, shard.path), out_path(root, "profile", "parquet", {}, [shard]), (shard,))
        for shard in readings
    ]
    return run_jobs(executor, "profiles of the day", jobs, tell, for_good=True)


def _values(root: Path, table: str, column: str, household: str | None) -> Part:
    """The number of each household's value in a household table."""
    settings = {"table": _table_digest(table), "column": column, "household": household}
    work = partial(clusters.write_values, table, column, household=household)
    return here(Job(work, out_path(root, "values", "parquet", settings)))


def _table_digest(table: str) -> str:
    try:
        return file_digest(Path(table))
    except OSError:
        raise InputError(f"table: {Path(table).name} cannot be read") from None


# ------------------------------------------------------------------ regroup


def regrouped(
    executor: Executor, root: Path, readings: list[Part], assignment: Part, tell: Tell, *, known_only: bool = False
) -> tuple[list[Part], list[Lost]]:
    """Readings shards once more, whole groups in each; with ``known_only``, of households that have a group."""
    sending = [(shard, partial(regroup.send, shard.path, assignment.path, known_only)) for shard in readings]
    return regroup.regrouped(executor, root, "readings", sending, regroup.receive, assignment, tell)
