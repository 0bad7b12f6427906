"""A stage as jobs over shards: each known by the digest of all that goes into it, and done once.

A job makes one shard of the store (:mod:`shoal.runs.store`). Where the shard's receipt is there, the job is done.
Inputs are held against their digests before they are used, so a shard that was damaged on disk is found where it is
read, and named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.card.facts import Lost
from shoal.errors import InputError, UnreachableError, WorkerError
from shoal.files import private_folder
from shoal.records import Record
from shoal.runs.store import Part, finished, receipted, shard_key
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
    return receipted(job.out, job.work(job.out))


def run_jobs(executor: Executor, text: str, jobs: Sequence[Job], tell: Tell, *, for_good: bool = False) -> Listing:
    """Do what is not done; finished shards in the order of the jobs, and those that failed.

    ``for_good``: what is left out here stays out, so that workers that die are no reason to go on without a shard.
    """
    parts = {number: part for number, job in enumerate(jobs) if (part := finished(job.out)) is not None}
    failed: list[Lost] = []
    waiting = [number for number in range(len(jobs)) if number not in parts]
    tell(text, len(parts), len(jobs))

    def within(share: float) -> None:
        tell(text, len(parts) + len(failed) + min(share, 1.0), len(jobs))

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
                parts[number] = result
            within(0.0)
    if not parts:
        if len(failed) == 1:
            raise InputError(failed[0].message)
        reason = f" The first: {failed[0].message}" if failed else ""
        raise InputError(f"{text}: none of the {len(failed)} shard(s) could be made.{reason}")
    done = sorted(parts)
    return Listing(
        tuple(parts[number] for number in done),
        tuple(jobs[number].inputs[-1] for number in done if jobs[number].inputs),
        tuple(sorted(failed, key=lambda lost: lost.key)),
    )


@dataclass(frozen=True)
class Listing(Record):
    """The shards that a stage made, what each was made of, what failed, and the number of buckets of names."""

    parts: tuple[Part, ...]
    inputs: tuple[Part, ...] = ()  #: of each part, in order
    failed: tuple[Lost, ...] = ()
    buckets: int = 1

    @property
    def pairs(self) -> list[tuple[Part, Part]]:
        """(part, its input)"""
        return list(zip(self.parts, self.inputs, strict=True))

    def text(self, folder: Path) -> str:
        """As its file holds it, paths relative to the run's folder."""
        base = folder.resolve()
        relative = self._moved(lambda path: str(Path(path).resolve().relative_to(base)))
        return json.dumps(relative.to_json(), indent=1)

    @classmethod
    def read(cls, path: Path, folder: Path) -> Listing:
        """What :meth:`text` wrote."""
        try:
            return cls.from_json(json.loads(path.read_text()))._moved(lambda inside: str(folder / inside))
        except (OSError, ValueError, TypeError, AttributeError):
            raise InputError(f"dir: {path.name} is missing or damaged; run the stage again") from None

    def _moved(self, move: Callable[[str], str]) -> Listing:
        parts, inputs = (
            tuple(replace(part, path=move(part.path)) for part in each) for each in (self.parts, self.inputs)
        )
        return replace(self, parts=parts, inputs=inputs)
