"""From meter files to readings shards that hold whole groups: partition, profile, cluster, group, regroup.

Every step is jobs over shards (:mod:`shoal.fleet.jobs`); what the driver does itself is small: sorting the names,
the centers of the clusters, and which household belongs to which group.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shoal.engine.config import Config
from shoal.errors import InputError
from shoal.files import file_digest
from shoal.fleet import clustering, grouping, partition, profiles, regroup
from shoal.fleet.jobs import Job, Part, Tell, do, done, out_path, run_jobs
from shoal.fleet.manifest import Failed
from shoal.fleet.pieces import Pieces, sort_files
from shoal.fleet.shards import MICROSECOND, read_quality, read_shard
from shoal.fleet.store import put_whole, shard_key
from shoal.workers.executor import Executor, Failure

#: Settings that decide how meter files are read.
READING = ("unit", "interval", "time_zone", "max_kw", "household_column", "timestamp_column", "value_column")


@dataclass(frozen=True)
class Grouped:
    """Readings shards of whole groups, what was lost on the way, and what all shards share."""

    shards: list[Part]
    failed: list[Failed]
    assignment: Part
    ends: dict[int, int]  #: last instant in microseconds -> households that end there
    step_us: int
    time_zone: str | None
    newcomers: int = 0  #: households that joined after the groups were fixed
    unusable: dict[str, str] = field(default_factory=dict)  #: household -> why its readings could not be used


def grouped_readings(
    executor: Executor, root: Path, source: dict[str, Any], config: Config, tell: Tell, assignment: Part | None = None
) -> Grouped:
    """Readings of a source in shards of whole groups; ``assignment`` keeps the groups of an earlier day."""
    if config.only:
        raise InputError("only: sharded runs use all households; run without --engine for some of them")
    readings, failed = partitioned(executor, root, source, config, tell)
    later = assignment is not None
    if assignment is None:
        assignment, more = assigned(executor, root, readings, config, tell)
        failed = failed + more
    shards, lost = regrouped(executor, root, readings, assignment, tell, known_only=later)
    ends: Counter[int] = Counter()
    for shard in readings:
        ends.update({int(end): count for end, count in shard.facts["ends"]})
    zones = {shard.facts["time_zone"] for shard in readings}
    steps = {shard.facts["step_us"] for shard in readings}
    if len(zones) > 1 or len(steps) > 1:
        raise InputError("shard: readings shards differ in time zone or interval; use a new folder")
    came, kept = (sum(shard.households for shard in parts) for parts in (readings, shards))
    newcomers = came - kept if later and not lost else 0
    unusable = _unusable(readings)
    return Grouped(shards, failed + lost, assignment, dict(ends), steps.pop(), zones.pop(), newcomers, unusable)


def _unusable(readings: list[Part]) -> dict[str, str]:
    """Households that reading left out, with the reason; they are in no shard, only in its quality table."""
    import polars as pl

    found: dict[str, str] = {}
    for part in readings:
        if part.facts["left_out"]:
            gone = read_quality(part.path).filter(pl.col("verdict") == "left out")
            found.update(zip(gone["household"].to_list(), gone["reason"].to_list(), strict=True))
    return found


# ------------------------------------------------------------------ partition


def partitioned(
    executor: Executor, root: Path, source: dict[str, Any], config: Config, tell: Tell
) -> tuple[list[Part], list[Failed]]:
    """Readings shards by name, from files or simulated."""
    if source["kind"] == "simulated":
        n, size = source["households"], config.shard_size
        jobs = []
        for first in range(0, n, size):
            settings = {**source, "first": first, "last": min(first + size, n)}
            out = out_path(root, "partition", "parquet", settings)
            task = partition.SimulatedTask(
                first, settings["last"], source["days"], source["step_minutes"], source["seed"], SIMULATED_START, out
            )
            jobs.append(Job(simulated_shard, task, out))
        return run_jobs(executor, "simulating", jobs, tell, for_good=True)
    settings = {**config.part(*READING), "source": source["digest"], "shard_size": config.shard_size}
    key = shard_key("sort", settings, [])
    folder = root / "sort"
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / f"{key}.sorted"
    if note.is_file():
        pieces, grid, n_shards = _read_note(note)
    else:
        tell("sorting readings by household", 0, 0)
        pieces = sort_files(
            source["path"],
            folder / f"{key}.pieces",
            shard_size=config.shard_size,
            unit=config.unit,
            time_zone=config.time_zone,
            columns=config.columns or None,
            max_kw=config.max_kw,
        )
        surveys = _all(executor, partition.survey, [partition.SurveyTask(pieces, i) for i in range(pieces.n_shards)])
        grid, n_shards = partition.common_grid(surveys, config.interval), pieces.n_shards
        content = json.dumps({"pieces": asdict(pieces), "grid": asdict(grid)})
        put_whole(note, lambda rough: rough.write_text(content))
    jobs = []
    for number in range(n_shards):
        out = out_path(root, "partition", "parquet", {**settings, "number": number})
        jobs.append(Job(read_pieces_shard, partition.ShardTask(pieces, number, grid, out), out))
    result = run_jobs(executor, "reading meters", jobs, tell, for_good=True)
    if not result[1]:
        shutil.rmtree(pieces.folder, ignore_errors=True)  # all of it is in the shards now
    return result


#: First day of simulated readings.
SIMULATED_START = "2024-01-01"


def simulated_shard(task: partition.SimulatedTask) -> dict[str, Any]:
    return {**asdict(partition.make_simulated_shard(task)), **_span(task.out)}


def read_pieces_shard(task: partition.ShardTask) -> dict[str, Any]:
    return {**asdict(partition.make_shard(task)), **_span(task.out)}


def _span(path: str) -> dict[str, Any]:
    """Where a shard's households end, and the clock they are on."""
    rows, step = read_shard(path)
    width = step // MICROSECOND
    ends = Counter(
        (
            rows["first"].dt.epoch("us").to_numpy() + (rows["kw"].list.len().to_numpy().astype("int64") - 1) * width
        ).tolist()
    )
    zone = getattr(rows.schema["first"], "time_zone", None)
    return {"ends": sorted(ends.items()), "step_us": width, "time_zone": zone}


def _read_note(path: Path) -> tuple[Pieces, partition.Grid, int]:
    try:
        content = json.loads(path.read_text())
        pieces = Pieces(**content["pieces"])
        return pieces, partition.Grid(**content["grid"]), pieces.n_shards
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"dir: {path.name} is damaged; remove it, and run the same command again") from None


# ------------------------------------------------------------------ groups


@dataclass(frozen=True)
class CentersTask:
    profiles: tuple[str, ...]
    sizes: tuple[int, ...]
    clusters: int
    seed: int
    out: str


@dataclass(frozen=True)
class ValuesTask:
    table: str
    column: str
    out: str


@dataclass(frozen=True)
class GroupsTask:
    sorted_profiles: tuple[str, ...]
    counts: tuple[tuple[int, int], ...]
    cap: int
    shard_size: int
    out: str


def assigned(
    executor: Executor, root: Path, readings: list[Part], config: Config, tell: Tell
) -> tuple[Part, list[Failed]]:
    """Which household belongs to which group, and which group to which shard."""
    jobs = []
    for shard in readings:
        out = out_path(root, "profile", "parquet", {}, [shard])
        jobs.append(Job(profile_shard, profiles.ProfileTask(shard.path, out), out, (shard,)))
    made, failed = run_jobs(executor, "profiles of the day", jobs, tell, for_good=True)

    total = sum(shard.households for shard in made)
    if config.table is not None and config.column is not None:
        settings: dict[str, Any] = {"table": _table_digest(config.table), "column": config.column}
        out = out_path(root, "values", "parquet", settings)
        known = here(Job(values_known, ValuesTask(config.table, config.column, out), out))
        work: Any = assign_by_value
    else:
        clusters = max(min(config.clusters, total // 2), clustering.cluster_count(total, config.group_cap), 1)
        settings = {"clusters": clusters, "seed": config.seed}
        out = out_path(root, "centers", "npy", settings, made)
        tell("clusters of profiles", 0, 0)
        paths, sizes = tuple(s.path for s in made), tuple(s.households for s in made)
        known = here(Job(centers_found, CentersTask(paths, sizes, clusters, config.seed, out), out))
        work = assign_by_center
    jobs = []
    for shard in made:
        out = out_path(root, "assign", "arrow", settings, [known, shard])
        jobs.append(Job(work, clustering.ClusterTask(shard.path, known.path, out), out, (known, shard)))
    assigned_shards, more = run_jobs(executor, "nearest clusters", jobs, tell, for_good=True)
    counts: Counter[int] = Counter()
    for shard in assigned_shards:
        counts.update({int(cluster): count for cluster, count in shard.facts["counts"].items()})
    settings = {"cap": config.group_cap, "shard_size": config.shard_size}
    out = out_path(root, "groups", "parquet", settings, assigned_shards)
    tell("forming groups", 0, 0)
    task = GroupsTask(
        tuple(s.path for s in assigned_shards),
        tuple(sorted(counts.items())),
        config.group_cap,
        config.shard_size,
        out,
    )
    return here(Job(groups_formed, task, out)), failed + more


def profile_shard(task: profiles.ProfileTask) -> dict[str, Any]:
    return {"households": profiles.make_profiles(task)}


def centers_found(task: CentersTask) -> dict[str, Any]:
    clustering.fit_centers(task.profiles, task.sizes, task.clusters, task.out, task.seed)
    return {"clusters": task.clusters}


def values_known(task: ValuesTask) -> dict[str, Any]:
    return {"values": clustering.write_values(task.table, task.column, task.out)}


def assign_by_center(task: clustering.ClusterTask) -> dict[str, Any]:
    return {"counts": clustering.assign_by_center(task)}


def assign_by_value(task: clustering.ClusterTask) -> dict[str, Any]:
    return {"counts": clustering.assign_by_value(task)}


def groups_formed(task: GroupsTask) -> dict[str, Any]:
    made = grouping.form_groups(
        task.sorted_profiles, dict(task.counts), task.out, cap=task.cap, shard_size=task.shard_size
    )
    return asdict(made)


def _table_digest(table: str) -> str:
    try:
        return file_digest(Path(table))
    except OSError:
        raise InputError(f"table: {Path(table).name} cannot be read") from None


# ------------------------------------------------------------------ regroup


def regrouped(
    executor: Executor, root: Path, readings: list[Part], assignment: Part, tell: Tell, *, known_only: bool = False
) -> tuple[list[Part], list[Failed]]:
    """Readings shards once more, whole groups in each; with ``known_only``, of households that have a group."""
    senders = [assignment, *readings]
    outs = [
        out_path(root, "readings", "parquet", {"number": number}, senders)
        for number in range(int(assignment.facts["shards"]))
    ]
    finished = [done(out) for out in outs]
    if all(finished):
        return [shard for shard in finished if shard is not None], []
    jobs = []
    for shard in readings:
        out = out_path(root, "send", "arrow", {}, [assignment, shard])
        jobs.append(
            Job(send_shard, regroup.SendTask(shard.path, assignment.path, out, known_only), out, (assignment, shard))
        )
    sent, failed = run_jobs(executor, "sorting by group", jobs, tell, for_good=True)
    if failed:  # what is made without some senders must not pass for the whole later
        keys = [part.key for part in sent]
        outs = [
            out_path(root, "readings", "parquet", {"number": number, "sent": keys}, senders)
            for number in range(len(outs))
        ]
    paths = tuple(s.path for s in sent)
    receiving = [Job(receive_shard, regroup.ReceiveTask(paths, i, out), out) for i, out in enumerate(outs)]
    shards, lost = run_jobs(executor, "shards of whole groups", receiving, tell, for_good=True)
    if not failed and not lost:
        shutil.rmtree(root / "send", ignore_errors=True)
    return shards, failed + lost


def send_shard(task: regroup.SendTask) -> dict[str, Any]:
    return {"sent": regroup.send(task)}


def receive_shard(task: regroup.ReceiveTask) -> dict[str, Any]:
    return {**asdict(regroup.receive(task)), "number": task.number}


# ------------------------------------------------------------------ small things


def here(job: Job) -> Part:
    """A job that the driver does itself."""
    return done(job.out) or do(job)


def _all(executor: Executor, work: Any, tasks: list[Any]) -> list[Any]:
    """Every task's result, in order; the first failure ends it."""
    found: dict[int, Any] = {}
    for number, result in executor.run(work, tasks):
        if isinstance(result, Failure):
            raise InputError(result.message)
        found[number] = result
    return [found[number] for number in range(len(tasks))]
