"""What a run takes, before it starts: unit costs measured on this machine, times the number of households.

A pilot of simulated households with the readings' length and interval goes through every stage, in a process of its
own and on one core: twice, with different numbers of households, so that what a stage costs once (compiling, opening)
is told from what each household costs. Time is then units × households / workers, but for the ledger, which one process
keeps. Memory of a worker is what the pilot held, at the size of a shard; it does not grow with the number of shards.

Of a class table the pilots have simulated rows of as many columns, and follow each other in one process, after one that
is not counted. Where labels have several rows, a third one with more of them tells what a row costs from what a label
does.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from shoal.errors import InputError, WorkerError
from shoal.numerics.threads import n_threads
from shoal.runs.config import Config, shared
from shoal.runs.sources import SimulatedMeters, Source, frame_of, in_words_of_a_run
from shoal.runs.table_rows import shard_labels
from shoal.workers.executor import Executor, Failure
from shoal.workers.processes import Processes

if TYPE_CHECKING:
    from shoal.runs.store import Part

Result = TypeVar("Result")

#: Households of the two pilots.
PILOTS = (80, 320)
#: Crowds of the two pilots of a class table, with one row per label or several; rows of a label in them, at most; and
#: how many times as many a third one has.
CROWDS, SAMPLED, ROWS, MORE = (8, 32), (2, 6), 12, 10
#: Bytes held for each entry of a shard of a class table, seen at 50,000 rows of 32.
ENTRY = 150.0
#: What a stage costs is unsure by about this factor either way.
DOUBT = 1.5
STAGES = ("readings", "groups", "fit", "design", "draw", "charge")
TABLE_STAGES = ("rows", "fit", "design", "draw", "charge")
#: Stages that one process does, whatever the number of workers.
ALONE = ("rows", "charge")


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
    nouns: tuple[str, str] = ("households", "readings")

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
                    f"{self.households} {self.nouns[0]}, {self.readings} {self.nouns[1]}, {self.shards} shard(s), "
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
                [f"A pilot of simulated {self.nouns[0]}, just now, on this machine. Nothing was released."],
            ),
        ]


def plan(source: Any, out: str | Path = "shoal-run", *, config: Config | None = None, **settings: Any) -> Plan:
    """What :func:`shoal.run` with the same arguments would take; nothing is read into memory, and nothing released.

    Returns:
        Seconds, bytes of memory and bytes on the disk of ``out``, from a pilot on this machine.

    >>> shoal.plan("meters.parquet", "city", workers="processes").words()  # doctest: +SKIP
    """
    if source is None:
        raise InputError("file: name the meter file, or the table, to plan for")
    chosen, speed = shared(settings)
    config = (config or Config()).changed(**chosen)
    if config.label is not None:
        households, rows, entries = table_extent(source, config)
        units = measured_table(config, entries, max(round(rows / households), 1))
        readings, most = rows, shard_labels(config, households, rows, entries)
    else:
        read = Source.of(source)
        households, steps = _extent(read, config)
        units = measured(config, simulated=read.simulated is not None)
        readings, most = households * steps, config.shard_size
    size_of_shard = min(most, households)
    groups = max(math.ceil(households / config.crowd), 1)
    mean = households / groups
    n_shards = math.ceil(households / size_of_shard)
    workers = 1 if speed.workers == "serial" else min(speed.cores or n_threads(), n_shards)
    full = Path(out).resolve()
    stat = os.statvfs(next(one for one in (full, *full.parents) if one.exists()))  # the disk that it will be on
    return Plan(
        households=households,
        readings=readings,
        groups=groups,
        edges=round(households * (mean - 1) / 2),
        shards=n_shards,
        workers=workers,
        seconds={name: each * households / (1 if name in ALONE else workers) for name, each in units.seconds.items()},
        memory=(workers + 1) * units.memory_once + workers * units.memory * size_of_shard,
        disk=sum(units.disk.values()) * households,
        disk_free=float(stat.f_bavail * stat.f_frsize),
        units=units,
        nouns=("households", "readings") if config.label is None else ("labels", "rows"),
    )


def measured(config: Config, *, simulated: bool) -> Units:
    """Unit costs from two pilots, each in a process of its own."""
    few, many = (_elsewhere(partial(pilot, config, simulated, n)) for n in PILOTS)
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


def measured_table(config: Config, entries: int, rows: int) -> Units:
    """Unit costs per label with so many rows of so many entries, from two pilots, or three where rows are several."""
    each = min(rows, max(ROWS, 2 + (entries + 2) // config.crowd))
    few, many = (config.crowd * crowds for crowds in (CROWDS if rows == 1 else SAMPLED))
    asked = [(few, each), (many, each), *([(few, MORE * each)] if rows > 1 else [])]
    runs = _elsewhere(partial(table_pilots, config, entries, asked))

    def at(kind: str, name: str) -> float:
        """A label's cost at its number of rows: what one costs in the pilots, and what each row beyond adds."""
        costs = [float(run[kind][name]) for run in runs]
        label = (costs[1] - costs[0]) / (many - few) if costs[1] > costs[0] else costs[1] / many
        row = max(costs[2] - costs[0], 0.0) / ((MORE - 1) * each * few) if rows > 1 else 0.0
        return label + row * (rows - each)

    return Units(
        seconds={name: at("seconds", name) for name in TABLE_STAGES},
        disk={name: at("disk", name) for name in runs[0]["disk"]},
        memory=ENTRY * rows * entries,
        memory_once=max(run["memory"] for run in runs),
    )


def _elsewhere(pilot: Callable[[], Result]) -> Result:
    """What a pilot finds in a process of its own."""
    with Processes(1) as executor:
        ((_, found),) = executor.run(call, [pilot])
    if isinstance(found, Failure):
        if found.died:
            raise WorkerError("plan: the pilot did not come to an end; run a small file without --plan to see why")
        raise InputError(f"plan: the pilot cannot run with these settings: {found.message}")
    return found


def pilot(config: Config, simulated: bool, households: int) -> dict[str, Any]:
    """Seconds of each stage, bytes on disk, and the most memory held, for simulated households in one shard."""
    from shoal.runs.jobs import do
    from shoal.runs.neighborhood import assigned, partitioned, regrouped
    from shoal.runs.stages.fit_stage import fit_job
    from shoal.sources.meters.simulate import simulate_meters

    days, step = config.train_days + 1, config.interval or 15
    config = replace(config, shard_size=households, only=(), table=None, column=None)

    def fitted(executor: Executor, root: Path, timed: Timed) -> tuple[list[Part], list[Part]]:
        source = Source.of(SimulatedMeters(households, days, step))
        if not simulated:
            simulate_meters(households, days, step).write_parquet(root / "meters.parquet")
            source = Source.of(root / "meters.parquet")
        readings, _ = timed("readings", lambda: partitioned(executor, root, source, config, _quiet))

        def grouped() -> list[Part]:
            assignment, _ = assigned(executor, root, readings, config, _quiet)
            return regrouped(executor, root, readings, assignment, _quiet)[0]

        shards = timed("groups", grouped)
        origin = (datetime(2024, 1, 1) + timedelta(days=config.train_days)).isoformat()
        return timed("fit", lambda: [do(fit_job(root, shard, config, origin, None)) for shard in shards]), shards

    return _piloted(config, fitted)


def table_pilots(config: Config, entries: int, sizes: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Pilots of class tables with so many (labels, rows of each), after one that nobody looks at."""
    return [table_pilot(config, entries, labels, rows) for labels, rows in (sizes[0], *sizes)][1:]


def table_pilot(config: Config, entries: int, labels: int, rows: int) -> dict[str, Any]:
    """The same for labels with so many simulated rows each."""
    import numpy as np
    import polars as pl

    from shoal.runs.jobs import do
    from shoal.runs.stages.table_stage import table_job
    from shoal.runs.table_rows import grouped_rows

    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(labels), rows)
    values = rng.normal(size=(labels, entries))[who] + rng.normal(size=(len(who), entries))
    config = replace(
        config, label="who", columns=(), drop=(), weights=(), timestamp_column=None, value_column=None, only=(),
        table=None, column=None,
    )  # fmt: skip

    def fitted(executor: Executor, root: Path, timed: Timed) -> tuple[list[Part], list[Part]]:
        frame = pl.DataFrame({"who": who, **{f"entry {j}": values[:, j] for j in range(entries)}})
        frame.write_parquet(root / "table.parquet")
        source = Source.of(root / "table.parquet", table=True)
        grouped = timed("rows", lambda: grouped_rows(executor, root, source, config, _quiet))
        jobs = [table_job(root, shard, config, grouped, None) for shard in grouped.shards]
        return timed("fit", lambda: [do(job) for job in jobs]), grouped.shards

    return _piloted(config, fitted)


class Timed(Protocol):
    """Do some work, and note how long it took under a name."""

    def __call__(self, name: str, work: Callable[[], Result], /) -> Result: ...


def _quiet(*_: Any) -> None:
    return None


def _piloted(config: Config, first: Callable[[Executor, Path, Timed], tuple[list[Part], list[Part]]]) -> dict[str, Any]:
    """What all stages take; ``first`` gives the fitted shards, and what they were made of."""
    from shoal.ledger.ledger import Ledger
    from shoal.runs.fitted import fitted
    from shoal.runs.jobs import do
    from shoal.runs.stages import release_stage
    from shoal.runs.stages.design_stage import bound_of, design_job
    from shoal.workers.serial import Serial

    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Result]) -> Result:
        begun = time.process_time()
        made = work()
        seconds[name] = time.process_time() - begun
        return made

    with tempfile.TemporaryDirectory() as folder, Serial() as executor:
        root = Path(folder)
        shards, inputs = first(executor, root, timed)
        both = list(zip(shards, inputs, strict=True))
        designed = timed("design", lambda: [do(design_job(root, fit, made_of, config, None)) for fit, made_of in both])

        drawn = timed(
            "draw",
            lambda: [
                release_stage.do(mechanism, fit, config, f"{mechanism.path}.normals.npy")
                for mechanism, fit in zip(designed, shards, strict=True)
            ],
        )
        ledger_file = root / "pilot.db"
        with Ledger.open(f"sqlite:///{ledger_file}") as ledger:
            ledger.budget(config.epsilon, config.target or 0.5)

            def charged() -> None:
                for mechanism, fit, answers in zip(designed, shards, drawn, strict=True):
                    ledger.charge(
                        Path(mechanism.path).read_bytes(),
                        answers.answers,
                        answers.drawn,
                        answers.labels,
                        query_ids=fitted(fit.path, config.query, config.answers).questions("pilot"),
                        bounds=bound_of(mechanism),
                    )

            timed("charge", charged)
        disk = {
            "shards": sum(f.stat().st_size for f in root.rglob("*") if f.is_file() and f != ledger_file),
            "ledger": ledger_file.stat().st_size,
        }
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": seconds, "disk": disk, "memory": held}


def table_extent(source: Any, config: Config) -> tuple[int, int, int]:
    """Labels, rows and entries of a class table, looked up without reading everything into memory."""
    import polars as pl

    from shoal.sources.tables.table_file import layout_of, open_table

    frame = frame_of(source)
    raw = open_table(Source.of(source, table=True).paths) if frame is None else frame.lazy()
    asked = (config.columns, config.drop, config.timestamp_column, config.value_column)
    layout = layout_of(raw, str(config.label), *asked)
    name = pl.col(layout.label).cast(pl.String)
    kept = raw.filter(name.is_in(config.only)) if config.only else raw
    counts = [name.n_unique().alias("labels"), pl.len().alias("rows")]
    if layout.time is not None:
        counts.append(pl.col(layout.time).n_unique().alias("times"))
    try:
        found = kept.select(counts).collect(engine="streaming").row(0)
    except (pl.exceptions.PolarsError, OSError, UnicodeError):
        raise InputError("table: its rows do not have the columns of its header, or it is damaged") from None
    if found[0] < 2:
        raise InputError("label: fewer than two labels are in the table; nobody is there to hide among")
    return (found[0], found[1], len(layout.entries)) if layout.time is None else (found[0], found[0], found[2])


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
