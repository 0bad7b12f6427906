"""A stage as jobs over shards: each known by the digest of all that goes into it, and done once.

A job makes one shard of the store (:mod:`shoal.runs.store`). Where the shard's receipt is there, the job is done.
Inputs are held against their digests before they are used, so a shard that was damaged on disk is found where it is
read, and named.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from shoal.card.facts import Lost, Record
from shoal.errors import InputError, UnreachableError, WorkerError
from shoal.files import file_digest, private_folder
from shoal.runs.store import RECEIPT, Shard, Store, shard_key, shard_of
from shoal.workers.executor import Executor, Failure
from shoal.workers.ticks import listening

#: Called with (what is happening, done, total); total 0 where it is not known.
Tell = Callable[[str, float, int], None]
Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True)
class Part:
    """A finished shard and where its main file lies."""

    path: str
    shard: Shard

    @property
    def key(self) -> str:
        return self.shard.key

    @property
    def households(self) -> int:
        return self.shard.households

    def told(self, kind: type[Kind]) -> Kind:
        """What the job that made it had to tell."""
        return kind.from_json(self.shard.facts)

    def beside(self, suffix: str) -> Path:
        """Another file of the same shard."""
        return Path(self.path).with_name(f"{self.key}.{suffix}")

    def check(self) -> None:
        """Raise unless the shard's files are as they were written."""
        store, stage = _place(self.path)
        for suffix, digest in self.shard.files.items():
            store.checked(stage, self.key, suffix, digest)


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
    path = Store(str(root)).file(stage, shard_key(stage, settings, [part.key for part in inputs]), suffix)
    private_folder(path.parent)
    return str(path)


def done(path: str | Path) -> Part | None:
    """The shard at a path, if it is finished."""
    store, stage = _place(path)
    shard = store.finished(stage, _key(path))
    return None if shard is None else Part(str(path), shard)


def do(job: Job) -> Part:
    """Run one job where it is: check its inputs, work, and leave a receipt."""
    for part in job.inputs:
        part.check()
    begun = time.monotonic()
    return receipted(job.out, job.work(job.out), time.monotonic() - begun)


def here(job: Job) -> Part:
    """A job that the driver does itself."""
    return done(job.out) or do(job)


def receipted(path: str | Path, facts: Record, seconds: float = 0.0) -> Part:
    """Leave the receipt of a shard whose files are written."""
    store, stage = _place(path)
    key = _key(path)
    files = {
        file.name.removeprefix(f"{key}."): file_digest(file)
        for file in sorted(Path(path).parent.glob(f"{key}.*"))
        if file.name != f"{key}.{RECEIPT}"
    }
    count = getattr(facts, "labels", getattr(facts, "households", 0))
    return Part(str(path), store.finish(stage, Shard(key, files, count, round(seconds, 3), facts.to_json())))


def run_jobs(
    executor: Executor, text: str, jobs: Sequence[Job], tell: Tell, *, for_good: bool = False
) -> tuple[list[Part], list[Lost]]:
    """Do what is not done; finished shards in the order of the jobs, and those that failed.

    ``for_good``: what is left out here stays out, so that workers that die are no reason to go on without a shard.
    """
    found = {number: part for number, job in enumerate(jobs) if (part := done(job.out)) is not None}
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
                failed.append(Lost(path.parent.name, _key(path), result.message))
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
    """The shards that a stage made, what each was made of, what failed, and the groups they rest on."""

    parts: tuple[Part, ...]
    inputs: tuple[Part, ...] = ()  #: of each part, in order
    failed: tuple[Lost, ...] = ()
    assignment: Part | None = None

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
        assignment: Part | None = None,
    ) -> Listing:
        """What jobs over inputs, one each, have ``made``, some of them having failed."""
        of = {job.out: part for job, part in zip(jobs, inputs, strict=True)}
        return cls(tuple(made), tuple(of[part.path] for part in made), tuple(failed), assignment)

    def text(self, folder: Path) -> str:
        """As its file holds it, paths relative to the run's folder."""
        content = {
            "shards": _listed(self.parts, folder),
            "inputs": _listed(self.inputs, folder),
            "failed": [one.to_json() for one in self.failed],
            "assignment": _listed([] if self.assignment is None else [self.assignment], folder),
        }
        return json.dumps(content, indent=1)

    @classmethod
    def read(cls, path: Path, folder: Path) -> Listing:
        """What :meth:`text` wrote."""
        try:
            content = json.loads(path.read_text())
            groups = _parts(content["assignment"], folder)
            return cls(
                _parts(content["shards"], folder),
                _parts(content["inputs"], folder),
                tuple(Lost.from_json(one) for one in content["failed"]),
                groups[0] if groups else None,
            )
        except (OSError, ValueError, TypeError, KeyError):
            raise InputError(f"dir: {path.name} is missing or damaged; run the stage again") from None


def _listed(parts: Sequence[Part], folder: Path) -> list[dict[str, Any]]:
    base = folder.resolve()
    return [{"path": str(Path(p.path).resolve().relative_to(base)), **asdict(p.shard)} for p in parts]


def _parts(content: Sequence[dict[str, Any]], folder: Path) -> tuple[Part, ...]:
    return tuple(
        Part(str(folder / one["path"]), shard_of({k: v for k, v in one.items() if k != "path"})) for one in content
    )


def _place(path: str | Path) -> tuple[Store, str]:
    folder = Path(path).parent
    return Store(str(folder.parent)), folder.name


def _key(path: str | Path) -> str:
    return Path(path).name.split(".")[0]
