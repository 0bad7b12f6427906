"""What the stages over shards leave for one another: lists of shards, by name, and those of the day before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shoal.engine.config import Config
from shoal.engine.folder import Folder
from shoal.fleet.jobs import (
    Job,
    Part,
    parts_of,
    read_list,
)
from shoal.workers.executor import Executor, open_executor

SHARDS, RELEASED = "shards", "released"
FIT, DESIGN, RELEASE, AUDIT, MANIFEST = "fit.json", "design.json", "release.json", "audit.json", "manifest.json"
LEFT_OUT = "left_out.csv"

#: The files that a stage wrote, and what to tell about it.
Made = tuple[list[str], dict[str, Any]]


@dataclass(frozen=True)
class Yesterday:
    """What the day before left: groups, and by number of their shard the forecasts and the mechanisms."""

    assignment: Part
    forecasts: dict[int, Part]
    mechanisms: dict[int, Part]


def yesterday(folder: Folder, previous: str) -> Yesterday:
    """The lists that were put aside in ``previous``."""
    fitted, _, more = read_list(folder / previous / FIT, folder.path)
    numbers = [part.facts["number"] for part in parts_of(more["readings"], folder.path)]
    forecasts = dict(zip(numbers, fitted, strict=True))
    designed, _, beside = read_list(folder / previous / DESIGN, folder.path)
    by_key = dict(zip((part.key for part in parts_of(beside["forecasts"], folder.path)), designed, strict=True))
    mechanisms = {number: by_key[part.key] for number, part in forecasts.items() if part.key in by_key}
    return Yesterday(parts_of(more["assignment"], folder.path)[0], forecasts, mechanisms)


def executor_of(config: Config) -> Executor:
    return open_executor(config.engine or "auto", config.workers)


def total(shards: Iterable[Part], name: str) -> Any:
    return sum(shard.facts[name] for shard in shards)


def beside(made: list[Part], jobs: list[Job], inputs: list[Part]) -> list[Part]:
    """The input of each shard that was made."""
    place = {job.out: part for job, part in zip(jobs, inputs, strict=True)}
    return [place[part.path] for part in made]


def weighted(shards: list[Part], value: str, weight: str) -> float | None:
    known = [s.facts for s in shards if s.facts[value] is not None and s.facts[weight]]
    if not known:
        return None
    return float(sum(f[value] * f[weight] for f in known) / sum(f[weight] for f in known))
