"""A stage as jobs over shards: each known by the digest of all that goes into it, and done once.

A job makes one shard of the store (:mod:`shoal.runs.store`). Where the shard's receipt is there, the job is done.
Inputs are held against their digests before they are used, so a shard that was damaged on disk is found where it is
read, and named.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.card.facts import Lost
from shoal.errors import InputError, UnreachableError, WorkerError
from shoal.files import private_folder
from shoal.records import Record
from shoal.runs.store import Kind, Part, finished, put_whole, receipted, shard_key
from shoal.workers.executor import Executor, Failure, listening

#: Called with (what is happening, done, total); total 0 where it is not known.
Tell = Callable[[str, float, int], None]


@dataclass(frozen=True)
class Job:
    """Work on inputs that must be as they were; ``work``, given ``out``, writes the shard there.

    It is a function of a module, or a ``partial`` of one over plain values, so that it can travel to any worker.
    """

    work: Callable[[str], Record]
    out: str
    inputs: tuple[Part, ...] = ()


def out_path(root: Path, stage: str, suffix: str, settings: dict[str, Any], inputs: Sequence[Part] = ()) -> str:
    """Where the shard that a stage makes of these inputs, with these settings, lies; its folder is made."""
    private_folder(root / stage)
    return str(root / stage / f"{shard_key(stage, settings, [part.key for part in inputs])}.{suffix}")


def do(job: Job) -> Part:
    """Run one job where it is: check its inputs, work, and leave a receipt."""
    for part in job.inputs:
        part.check()
    begun = time.monotonic()
    return receipted(job.out, job.work(job.out), time.monotonic() - begun)


def noted(
    root: Path,
    settings: dict[str, Any],
    kind: type[Kind],
    sort: Callable[[Path], Kind],
    lacking: Callable[[Kind], bool] = lambda _: False,
) -> Kind:
    """What sorting a source into a folder came to, done once for the source and what is asked of it.

    It is done again where something is ``lacking`` that only the sorted rows, which are gone by then, can make.
    """
    folder, key = root / "sort", shard_key("sort", settings, [])
    private_folder(folder)
    note = folder / f"{key}.sorted"
    if note.is_file():
        try:
            known = kind.from_json(json.loads(note.read_text()))
        except (OSError, ValueError):
            raise InputError(f"dir: {note.name} is damaged; remove it, and run the same command again") from None
        if not lacking(known):
            return known
    rows = sort(folder / f"{key}.rows")
    content = json.dumps(rows.to_json())
    put_whole(note, lambda rough: rough.write_text(content))
    return rows


def run_jobs(
    executor: Executor, text: str, jobs: Sequence[Job], tell: Tell, *, for_good: bool = False
) -> tuple[list[Part], list[Lost]]:
    """Do what is not done; finished shards in the order of the jobs, and those that failed.

    ``for_good``: what is left out here stays out, so that workers that die are no reason to go on without a shard.
    """
    found = {number: part for number, job in enumerate(jobs) if (part := finished(job.out)) is not None}
    failed: list[Lost] = []
    waiting = [number for number in range(len(jobs)) if number not in found]
    tell(text, len(found), len(jobs))

    def within(share: float) -> None:
        tell(text, len(found) + len(failed) + min(share, 1.0), len(jobs))

    with listening(within):
        for position, result in executor.run(do, [jobs[number] for number in waiting]):
            number = waiting[position]
            if isinstance(result, Failure):
                if for_good and result.died:
                    raise WorkerError(f"{text}: {result.message}. What is finished is kept; run again")
                if result.unreachable:
                    raise UnreachableError(result.message)
                path = Path(jobs[number].out)
                failed.append(Lost(path.parent.name, path.name.split(".")[0], result.message))
            else:
                found[number] = result
            tell(text, len(found) + len(failed), len(jobs))
    if not found:
        if len(failed) == 1:
            raise InputError(failed[0].message)
        reason = f" The first: {failed[0].message}" if failed else ""
        raise InputError(f"{text}: none of the {len(failed)} shard(s) could be made.{reason}")
    return [found[number] for number in sorted(found)], sorted(failed, key=lambda one: one.key)


# ------------------------------------------------------------------ lists of shards


@dataclass(frozen=True)
class Listing:
    """The shards that a stage made, what each was made of, what failed, and the number of buckets of names."""

    parts: tuple[Part, ...]
    inputs: tuple[Part, ...] = ()  #: of each part, in order
    failed: tuple[Lost, ...] = ()
    buckets: int = 1

    @property
    def pairs(self) -> list[tuple[Part, Part]]:
        """(part, its input)"""
        return list(zip(self.parts, self.inputs, strict=True))

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        inputs: Sequence[Part],
        made: Sequence[Part],
        failed: Sequence[Lost],
        buckets: int = 1,
    ) -> Listing:
        """What jobs over inputs, one each, have ``made``, some of them having failed."""
        of = {job.out: part for job, part in zip(jobs, inputs, strict=True)}
        return cls(tuple(made), tuple(of[part.path] for part in made), tuple(failed), buckets)

    def text(self, folder: Path) -> str:
        """As its file holds it, paths relative to the run's folder."""
        content = {
            "shards": _listed(self.parts, folder),
            "inputs": _listed(self.inputs, folder),
            "failed": [one.to_json() for one in self.failed],
            "buckets": self.buckets,
        }
        return json.dumps(content, indent=1)

    @classmethod
    def read(cls, path: Path, folder: Path) -> Listing:
        """What :meth:`text` wrote."""
        try:
            content = json.loads(path.read_text())
            return cls(
                _parts(content["shards"], folder),
                _parts(content["inputs"], folder),
                tuple(Lost.from_json(one) for one in content["failed"]),
                int(content["buckets"]),
            )
        except (OSError, ValueError, TypeError, KeyError):
            raise InputError(f"dir: {path.name} is missing or damaged; run the stage again") from None


def _listed(parts: Sequence[Part], folder: Path) -> list[dict[str, Any]]:
    base = folder.resolve()
    return [{"path": str(Path(part.path).resolve().relative_to(base)), **part.to_json()} for part in parts]


def _parts(content: Sequence[dict[str, Any]], folder: Path) -> tuple[Part, ...]:
    return tuple(
        Part.from_json(folder / one["path"], {name: value for name, value in one.items() if name != "path"})
        for one in content
    )
