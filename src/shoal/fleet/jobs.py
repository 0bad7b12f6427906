"""A stage as jobs over shards: each known by the digest of all that goes into it, and done once.

A job makes one shard of the store (:mod:`shoal.fleet.store`). Where the shard's receipt is there, the job is done.
Inputs are held against their digests before they are used, so a shard that was damaged on disk is found where it is
read, and named.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.errors import EngineError, InputError
from shoal.files import file_digest
from shoal.fleet.manifest import Failed
from shoal.fleet.store import RECEIPT, Shard, Store, shard_key, shard_of
from shoal.workers.executor import Executor, Failure

#: Called with (what is happening, done, total).
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Part:
    """A finished shard and where its main file lies."""

    path: str
    shard: Shard

    @property
    def key(self) -> str:
        return self.shard.key

    @property
    def facts(self) -> dict[str, Any]:
        return self.shard.facts

    @property
    def households(self) -> int:
        return self.shard.households

    def check(self) -> None:
        """Raise unless the shard's files are as they were written."""
        store, stage = _place(self.path)
        for suffix, digest in self.shard.files.items():
            store.checked(stage, self.key, suffix, digest)


@dataclass(frozen=True)
class Job:
    """Work on inputs that must be as they were; ``work`` is a function of a module, ``task`` its one argument."""

    work: Callable[[Any], dict[str, Any]]
    task: Any
    out: str
    inputs: tuple[Part, ...] = ()


def out_path(root: Path, stage: str, suffix: str, settings: dict[str, Any], inputs: Sequence[Part] = ()) -> str:
    """Where the shard that a stage makes of these inputs, with these settings, lies; its folder is made."""
    path = Store(str(root)).file(stage, shard_key(stage, settings, [part.key for part in inputs]), suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
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
    return receipted(job.out, job.work(job.task), time.monotonic() - begun)


def receipted(path: str | Path, facts: dict[str, Any], seconds: float = 0.0) -> Part:
    """Leave the receipt of a shard whose files are written."""
    store, stage = _place(path)
    key = _key(path)
    files = {
        file.name.removeprefix(f"{key}."): file_digest(file)
        for file in sorted(Path(path).parent.glob(f"{key}.*"))
        if file.name != f"{key}.{RECEIPT}"
    }
    shard = Shard(key, files, int(facts.get("households", 0)), round(seconds, 3), facts)
    return Part(str(path), store.finish(stage, shard))


def run_jobs(
    executor: Executor, text: str, jobs: Sequence[Job], tell: Tell, *, for_good: bool = False
) -> tuple[list[Part], list[Failed]]:
    """Do what is not done; finished shards in the order of the jobs, and those that failed.

    ``for_good``: what is left out here stays out, so that workers that die are no reason to go on without a shard.
    """
    found = {number: part for number, job in enumerate(jobs) if (part := done(job.out)) is not None}
    failed: list[Failed] = []
    waiting = [number for number in range(len(jobs)) if number not in found]
    tell(text, len(found), len(jobs))
    for position, result in executor.run(do, [jobs[number] for number in waiting]):
        number = waiting[position]
        if isinstance(result, Failure):
            if for_good and result.died:
                raise EngineError(f"{text}: {result.message}. What is finished is kept; run again")
            path = Path(jobs[number].out)
            failed.append(Failed(path.parent.name, _key(path), result.message))
        else:
            found[number] = result
        tell(text, len(found) + len(failed), len(jobs))
    if not found:
        reason = f" The first: {failed[0].message}" if failed else ""
        raise InputError(f"{text}: none of the {len(failed)} shard(s) could be made.{reason}")
    return [found[number] for number in sorted(found)], sorted(failed, key=lambda one: one.key)


# ------------------------------------------------------------------ lists of shards


def listed(parts: Sequence[Part], folder: Path) -> list[dict[str, Any]]:
    """Shards as JSON can hold them, their paths relative to the run's folder."""
    base = folder.resolve()
    return [{"path": str(Path(p.path).resolve().relative_to(base)), **asdict(p.shard)} for p in parts]


def parts_of(content: Sequence[dict[str, Any]], folder: Path) -> list[Part]:
    """What :func:`listed` made; a ValueError if it is something else."""
    return [Part(str(folder / one["path"]), shard_of({k: v for k, v in one.items() if k != "path"})) for one in content]


def list_text(parts: Sequence[Part], failed: Sequence[Failed], folder: Path, **more: Any) -> str:
    """The list of a stage's shards, as its file holds it."""
    return json.dumps({"shards": listed(parts, folder), "failed": [asdict(f) for f in failed], **more}, indent=1)


def read_list(path: Path, folder: Path) -> tuple[list[Part], list[Failed], dict[str, Any]]:
    """Shards, failures and whatever else a stage wrote down."""
    try:
        content = json.loads(path.read_text())
        parts = parts_of(content.pop("shards"), folder)
        failed = [Failed(**one) for one in content.pop("failed")]
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"dir: {path.name} is missing or damaged; run the stage again") from None
    return parts, failed, content


def _place(path: str | Path) -> tuple[Store, str]:
    folder = Path(path).parent
    return Store(str(folder.parent)), folder.name


def _key(path: str | Path) -> str:
    return Path(path).name.split(".")[0]
