"""What a run takes, before it starts: unit costs measured on this machine, times the number of households.

A pilot of simulated households with the readings' length and interval goes through every stage, in a process of its
own and on one core: twice, with different numbers of households, so that what a stage costs once (compiling, opening)
is told from what each household costs. Time is then units × households / workers, but for the ledger, which one process
keeps. Memory of a worker is what the pilot held, at the size of a shard; it does not grow with the number of shards.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from operator import call
from pathlib import Path
from typing import Any

from shoal.errors import InputError, WorkerError
from shoal.runs.config import Config, shared
from shoal.runs.sources import SimulatedMeters, Source, in_words_of_a_run
from shoal.threads import n_threads
from shoal.workers.executor import Failure
from shoal.workers.processes import Processes

#: Households of the two pilots.
PILOTS = (80, 320)
#: What a stage costs is unsure by about this factor either way.
DOUBT = 1.5
STAGES = ("readings", "groups", "fit", "design", "draw", "charge")


@dataclass(frozen=True)
class Units:
    """Seconds of one core and bytes on disk per household, and bytes of memory per household of a shard and once."""

    seconds: dict[str, float]
    disk: dict[str, float]
    memory: float
    memory_once: float


@dataclass(frozen=True)
class Plan:
    """What a run would take."""

    households: int
    readings: int
    groups: int
    edges: int
    shards: int
    workers: int
    seconds: dict[str, float]
    memory: float
    disk: float
    disk_free: float
    units: Units

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "total_seconds": self.total_seconds}

    def words(self) -> list[tuple[str, list[str]]]:
        """For people."""
        stages = [f"{name:<9}{duration(s):>10}" for name, s in self.seconds.items()]
        room = "enough" if self.disk < 0.9 * self.disk_free else "NOT ENOUGH: name another --out, or make room"
        low, high = duration(self.total_seconds / DOUBT), duration(self.total_seconds * DOUBT)
        return [
            (
                "What it would take",
                [
                    f"{self.households} households, {self.readings} readings, {self.shards} shard(s), "
                    f"about {self.groups} groups and {self.edges} pairs to keep apart.",
                    f"Time: {duration(self.total_seconds)} on {self.workers} worker(s), likely {low} to {high}.",
                    f"Memory: {size(self.memory)} for {self.workers} worker(s) and the driver together, whatever the "
                    "number of shards; --shard-size makes it smaller.",
                    f"Disk: {size(self.disk)} in the folder; {size(self.disk_free)} are free: {room}.",
                ],
            ),
            ("Stage by stage", stages),
            (
                "How this is known",
                ["A pilot of simulated households, just now, on this machine. Nothing was released."],
            ),
        ]


def plan(source: Any, out: str | Path = "shoal-run", *, config: Config | None = None, **settings: Any) -> Plan:
    """What :func:`shoal.run` with the same arguments would take; nothing is read into memory, and nothing released.

    Returns:
        Seconds, bytes of memory and bytes on the disk of ``out``, from a pilot on this machine.

    >>> shoal.plan("meters.parquet", "city", workers="processes").words()  # doctest: +SKIP
    """
    if source is None:
        raise InputError("meters: name the meter file to plan for")
    chosen, speed = shared(settings)
    config = (config or Config()).changed(**chosen)
    if config.label is not None:
        raise InputError("label: a plan is measured for runs on meter files; try a table with fewer rows first")
    read = Source.of(source)
    households, steps = _extent(read, config)
    units = measured(config, simulated=read.simulated is not None)
    size_of_shard = min(config.shard_size, households)
    groups = max(math.ceil(households / config.crowd), 1)
    mean = households / groups
    n_shards = math.ceil(households / size_of_shard)
    workers = 1 if speed.workers == "serial" else min(speed.cores or n_threads(), n_shards)
    share = {name: 1.0 if name == "charge" else 1.0 / workers for name in STAGES}
    full = Path(out).resolve()
    stat = os.statvfs(next(one for one in (full, *full.parents) if one.exists()))  # the disk that it will be on
    return Plan(
        households=households,
        readings=households * steps,
        groups=groups,
        edges=round(households * (mean - 1) / 2),
        shards=n_shards,
        workers=workers,
        seconds={name: units.seconds[name] * households * share[name] for name in STAGES},
        memory=(workers + 1) * units.memory_once + workers * units.memory * size_of_shard,
        disk=sum(units.disk.values()) * households,
        disk_free=float(stat.f_bavail * stat.f_frsize),
        units=units,
    )


def measured(config: Config, *, simulated: bool) -> Units:
    """Unit costs from two pilots, each in a process of its own."""
    runs = [_pilot_elsewhere(config, simulated, n) for n in PILOTS]
    few, many = runs
    between = PILOTS[1] - PILOTS[0]

    def slope(a: float, b: float) -> float:
        """Per household; what the larger pilot spent in all, where noise hides the difference."""
        return (b - a) / between if b > a else b / PILOTS[1]

    return Units(
        seconds={name: slope(few["seconds"][name], many["seconds"][name]) for name in STAGES},
        disk={name: many["disk"][name] / PILOTS[1] for name in many["disk"]},
        memory=max(slope(few["memory"], many["memory"]), 0.0),
        memory_once=few["memory"] - slope(few["memory"], many["memory"]) * PILOTS[0],
    )


def _pilot_elsewhere(config: Config, simulated: bool, households: int) -> dict[str, Any]:
    with Processes(1) as executor:
        ((_, found),) = executor.run(call, [partial(pilot, config, simulated, households)])
    if isinstance(found, Failure):
        if found.died:
            raise WorkerError("plan: the pilot did not come to an end; run a small file without --plan to see why")
        raise InputError(f"plan: the pilot cannot run with these settings: {found.message}")
    return found


def pilot(config: Config, simulated: bool, households: int) -> dict[str, Any]:
    """Seconds of each stage, bytes on disk, and the most memory held, for simulated households in one shard."""
    from shoal.ledger.ledger import Ledger
    from shoal.meters.simulate import simulate_meters
    from shoal.runs.jobs import do
    from shoal.runs.neighborhood import assigned, partitioned, regrouped
    from shoal.runs.stages import release_stage
    from shoal.runs.stages.design_stage import bound_of, design_job
    from shoal.runs.stages.fit_stage import fit_job
    from shoal.workers.serial import Serial

    days = config.train_days + 1
    config = replace(config, shard_size=households, only=(), table=None, column=None)
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        begun = time.process_time()
        made = work()
        seconds[name] = time.process_time() - begun
        return made

    def quiet(*_: Any) -> None:
        return None

    with tempfile.TemporaryDirectory() as folder, Serial() as executor:
        root = Path(folder)
        step = config.interval or 15
        source = Source.of(SimulatedMeters(households, days, step))
        if not simulated:
            simulate_meters(households, days, step).write_parquet(root / "meters.parquet")
            source = Source.of(root / "meters.parquet")
        readings, _ = timed("readings", lambda: partitioned(executor, root, source, config, quiet))

        def grouped() -> Any:
            assignment, _ = assigned(executor, root, readings, config, quiet)
            return regrouped(executor, root, readings, assignment, quiet)[0]

        shards = timed("groups", grouped)
        origin = (datetime(2024, 1, 1) + timedelta(days=config.train_days)).isoformat()
        fitted = timed("fit", lambda: [do(fit_job(root, shard, config, origin, None)) for shard in shards])
        designed = timed(
            "design",
            lambda: [do(design_job(root, fit, shard, config, None)) for fit, shard in zip(fitted, shards, strict=True)],
        )

        drawn = timed(
            "draw",
            lambda: [
                release_stage.do(mechanism, fit, config, f"{mechanism.path}.normals.npy")
                for mechanism, fit in zip(designed, fitted, strict=True)
            ],
        )
        ledger_file = root / "pilot.db"
        with Ledger.open(f"sqlite:///{ledger_file}") as ledger:
            ledger.budget(config.epsilon, config.target or 0.5)

            def charged() -> None:
                for mechanism, answers in zip(designed, drawn, strict=True):
                    ledger.charge(
                        Path(mechanism.path).read_bytes(),
                        answers.answers,
                        answers.drawn,
                        answers.labels,
                        query_ids="pilot",
                        bounds=bound_of(mechanism),
                    )

            timed("charge", charged)
        disk = {
            "shards": sum(f.stat().st_size for f in root.rglob("*") if f.is_file() and f != ledger_file),
            "ledger": ledger_file.stat().st_size,
        }
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": seconds, "disk": disk, "memory": held}


def _extent(source: Source, config: Config) -> tuple[int, int]:
    """Households and readings of each, looked up without reading everything into memory."""
    if source.simulated is not None:
        return source.simulated.households, source.simulated.days * 1440 // source.simulated.step_minutes
    from shoal.runs.pieces import extent

    try:
        households, rows = extent(source.path, config.named_columns or None, config.unit, config.timestamp_format)
    except InputError as error:
        raise in_words_of_a_run(error) from None
    return households, max(rows // max(households, 1), 1)


def duration(seconds: float) -> str:
    """Seconds in a unit that reads well."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def size(count: float) -> str:
    """Bytes in a unit that reads well."""
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"
