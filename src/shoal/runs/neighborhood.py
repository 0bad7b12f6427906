"""From meter files to readings shards that hold whole groups: partition, profile, cluster, group, regroup.

Every step is jobs over shards (:mod:`shoal.runs.jobs`); what the driver does itself is small: sorting the names,
the centers of the clusters, and which household belongs to which group.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.card.facts import Lost
from shoal.errors import InputError
from shoal.files import file_digest, private_folder
from shoal.meters.quality import LARGE, NEGATIVE
from shoal.runs import clusters, groups, partition, profiles, regroup
from shoal.runs.config import Config
from shoal.runs.jobs import Job, Part, Tell, done, here, out_path, run_jobs
from shoal.runs.pieces import Pieces, sort_files
from shoal.runs.shards import quality_path
from shoal.runs.sources import SimulatedMeters, Source, in_words_of_a_run
from shoal.runs.store import put_whole, shard_key
from shoal.workers.executor import Executor, Failure

#: Settings that decide how meter files are read.
READING = (
    "unit", "meter", "interval", "time_zone", "timestamp_format", "max_kw", "household_column", "timestamp_column",
    "value_column", "only",
)  # fmt: skip
#: First day of simulated readings.
SIMULATED_START = "2024-01-01"


@dataclass(frozen=True)
class Grouped:
    """Readings shards of whole groups, what was lost on the way, and what all shards share."""

    shards: list[Part]
    failed: list[Lost]
    assignment: Part
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
    ends: Counter[int] = Counter()
    for facts in told:
        ends.update(dict(facts.ends))
    zones, steps = {facts.time_zone for facts in told}, {facts.step_us for facts in told}
    if len(zones) > 1 or len(steps) > 1:
        raise InputError("shard: readings shards differ in time zone or interval; use a new folder")
    unusable = [quality_path(part.path) for part, facts in zip(readings, told, strict=True) if facts.left_out]
    one = told[0]
    return Grouped(
        shards, failed + lost, assignment, dict(ends), steps.pop(), zones.pop(), unusable, one.unit,
        one.unit_reason, one.taken,
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
        reasons: Counter[str] = Counter()
        for facts in told:
            reasons.update(dict(facts.reasons))
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
    folder = root / "sort"
    private_folder(folder)
    key = shard_key("sort", settings, [])
    note = folder / f"{key}.sorted"
    if note.is_file():
        pieces, grid = _read_note(note)
        executor.expect(pieces.n_shards)
    else:
        tell("sorting readings by household", 0, 0)
        try:
            pieces, grid = _sorted(executor, source, config, folder / f"{key}.pieces")
        except InputError as error:
            raise in_words_of_a_run(error) from None
        content = json.dumps({"pieces": asdict(pieces), "grid": asdict(grid)})
        put_whole(note, lambda rough: rough.write_text(content))
    jobs = []
    for number in range(pieces.n_shards):
        out = out_path(root, "partition", "parquet", {**settings, "number": number})
        jobs.append(Job(partition.make_shard, partition.ShardTask(pieces, number, grid, out), out))
    result = run_jobs(executor, "reading meters", jobs, tell, for_good=True)
    if not result[1]:
        shutil.rmtree(pieces.folder, ignore_errors=True)  # all of it is in the shards now
    return result


def _simulated(root: Path, source: SimulatedMeters, config: Config) -> list[Job]:
    if config.only:
        raise InputError("only: a simulated neighborhood is taken as a whole; simulate fewer households")
    n, size = source.households, config.shard_size
    jobs = []
    for first in range(0, n, size):
        last = min(first + size, n)
        out = out_path(root, "partition", "parquet", {**asdict(source), "first": first, "last": last})
        task = partition.SimulatedTask(first, last, source.days, source.step_minutes, source.seed, SIMULATED_START, out)
        jobs.append(Job(partition.make_simulated_shard, task, out))
    return jobs


def _sorted(executor: Executor, source: Source, config: Config, folder: Path) -> tuple[Pieces, partition.Grid]:
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
    surveys = _all(executor, partition.survey, [partition.SurveyTask(pieces, i) for i in range(pieces.n_shards)])
    return pieces, partition.common_grid(surveys, config.interval, energy=pieces.energy, meter=config.meter)


def _read_note(path: Path) -> tuple[Pieces, partition.Grid]:
    try:
        content = json.loads(path.read_text())
        return Pieces(**content["pieces"]), partition.Grid(**content["grid"])
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"dir: {path.name} is damaged; remove it, and run the same command again") from None


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
        work: Callable[[clusters.ClusterTask], clusters.Clustered] = clusters.assign_by_value
    else:
        count = clusters.cluster_count(total, cell)
        settings = {"clusters": count, "seed": config.seed}
        out = out_path(root, "centers", "npy", settings, made)
        tell("clusters of profiles", 0, 0)
        centers = clusters.CentersTask(
            tuple(s.path for s in made), tuple(s.households for s in made), count, config.seed, out
        )
        known = here(Job(clusters.centers_found, centers, out))
        work = clusters.assign_by_center
    jobs = []
    for shard in made:
        out = out_path(root, "assign", "arrow", settings, [known, shard])
        jobs.append(Job(work, clusters.ClusterTask(shard.path, known.path, out), out, (known, shard)))
    sorted_shards, more = run_jobs(executor, "nearest clusters", jobs, tell, for_good=True)
    counts: Counter[int] = Counter()
    for shard in sorted_shards:
        counts.update(dict(shard.told(clusters.Clustered).counts))
    settings = {"cap": cell, "floor": config.crowd, "shard_size": shard_size}
    out = out_path(root, "groups", "parquet", settings, sorted_shards)
    tell("forming cells", 0, 0)
    paths = tuple(s.path for s in sorted_shards)
    found = tuple(sorted(counts.items()))
    join = config.table is None
    forming = groups.GroupsTask(paths, found, cell, config.crowd, shard_size, join, out)
    return here(Job(groups.groups_formed, forming, out)), more


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
    paths = tuple(part.path for part in made)
    task = groups.PlacesTask(paths, assignment.path, None if values is None else values.path, out)
    return here(Job(groups.places_given, task, out, tuple(inputs)))


def _came(parts: list[Part], assignment: Part) -> bool:
    """Whether some of these households are not in the assignment."""
    import polars as pl

    known = pl.scan_parquet(assignment.path).select("household")
    came = pl.concat([pl.scan_parquet(part.path).select("household") for part in parts])
    new = came.join(known, on="household", how="anti").select(pl.len()).collect(engine="streaming").item()
    return bool(new)


def _profiled(executor: Executor, root: Path, readings: list[Part], tell: Tell) -> tuple[list[Part], list[Lost]]:
    jobs = []
    for shard in readings:
        out = out_path(root, "profile", "parquet", {}, [shard])
        jobs.append(Job(profiles.make_profiles, profiles.ProfileTask(shard.path, out), out, (shard,)))
    return run_jobs(executor, "profiles of the day", jobs, tell, for_good=True)


def _values(root: Path, table: str, column: str, household: str | None) -> Part:
    """The number of each household's value in a household table."""
    settings = {"table": _table_digest(table), "column": column, "household": household}
    out = out_path(root, "values", "parquet", settings)
    return here(Job(clusters.values_known, clusters.ValuesTask(table, column, out, household), out))


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
    senders = [assignment, *readings]
    outs = [
        out_path(root, "readings", "parquet", {"number": number}, senders)
        for number in range(assignment.told(groups.Grouping).shards)
    ]
    finished = [done(out) for out in outs]
    if all(finished):
        return [shard for shard in finished if shard is not None], []
    jobs = []
    for shard in readings:
        out = out_path(root, "send", "arrow", {}, [assignment, shard])
        task = regroup.SendTask(shard.path, assignment.path, out, known_only)
        jobs.append(Job(regroup.send, task, out, (assignment, shard)))
    sent, failed = run_jobs(executor, "sorting by group", jobs, tell, for_good=True)
    if failed:  # what is made without some senders must not pass for the whole later
        keys = [part.key for part in sent]
        outs = [
            out_path(root, "readings", "parquet", {"number": number, "sent": keys}, senders)
            for number in range(len(outs))
        ]
    paths = tuple(s.path for s in sent)
    receiving = [Job(regroup.receive, regroup.ReceiveTask(paths, i, out), out) for i, out in enumerate(outs)]
    shards, lost = run_jobs(executor, "shards of whole groups", receiving, tell, for_good=True)
    if not failed and not lost:
        shutil.rmtree(root / "send", ignore_errors=True)
    return shards, failed + lost


def _all(executor: Executor, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
    """Every task's result, in order; the first failure ends it."""
    found: dict[int, Any] = {}
    for number, result in executor.run(work, tasks):
        if isinstance(result, Failure):
            raise InputError(result.message)
        found[number] = result
    return [found[number] for number in range(len(tasks))]
