"""Shards: files named by all that goes into them, with a receipt, made by jobs that are done once.

A shard is ``<stage>/<key>.<suffix>`` and what lies beside it; the receipt ``<key>.json``, written last, has the files'
digests and a few facts. A worker killed at any moment leaves no receipt. Two workers that make the same shard write the
same bytes. Inputs are held against their digests before they are used.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

import shoal
from shoal.errors import InputError
from shoal.files import digest_of, file_digest, make_private_folder, raise_storage_error, write_whole
from shoal.product.workers import Executor
from shoal.records import Record

RECEIPT = "json"
#: Called with (what is happening, done, total); total 0 where it is not known.
Tell = Callable[[str, float, int], None]
Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True)
class Part(Record):
    """A finished shard: where its main file lies, the digest of each file by suffix, and the facts about it."""

    path: str
    files: dict[str, str]
    facts: dict[str, Any]  #: plain JSON values

    @property
    def key(self) -> str:
        """The name of the shard's files, before the suffix."""
        return _key(self.path)

    def facts_as(self, kind: type[Kind]) -> Kind:
        """Return the facts about the shard, as the record that its job returned."""
        return kind.from_json(self.facts)

    def sibling_file(self, suffix: str) -> Path:
        """Return the path of the shard's file with another suffix."""
        return Path(self.path).with_name(f"{self.key}.{suffix}")

    def check_digests(self) -> None:
        """Raise InputError unless the shard's files are there and as they were written; each is read through once."""
        for suffix, digest in self.files.items():
            try:
                fault = "" if file_digest(self.sibling_file(suffix)) == digest else "is damaged"
            except OSError as error:
                fault = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
            if fault:
                stage = Path(self.path).parent.name
                raise InputError(
                    f"shards: the {stage} shard {self.key} {fault}; delete its files {self.key}.* in the folder "
                    f"{stage} and run again, it is made anew"
                )


def shard_path(root: Path, stage: str, suffix: str, settings: dict[str, Any], inputs: Sequence[Part] = ()) -> str:
    """Return the path of the shard that a stage makes of these inputs with these settings; its folder is made.

    A new version of shoal makes new shards: the code is one of the inputs.
    """
    make_private_folder(root / stage)
    key = digest_of([stage, shoal.__version__, settings, [part.key for part in inputs]])[:32]
    return str(root / stage / f"{key}.{suffix}")


def seal_shard(path: str | Path, facts: Record) -> Part:
    """Write the receipt of a shard whose files are written; return the finished shard."""
    key = _key(path)
    receipt = Path(path).with_name(f"{key}.{RECEIPT}")
    beside = (file for file in sorted(receipt.parent.glob(f"{key}.*")) if file != receipt)
    files = {file.name.removeprefix(f"{key}."): file_digest(file) for file in beside}
    body = json.loads(json.dumps(Part(Path(path).name, files, facts.to_json()).to_json()))  # as it will be read
    content = json.dumps({**body, "seal": digest_of(body)}, indent=1, ensure_ascii=False).encode()
    write_shard_file(receipt, lambda rough: rough.write_bytes(content))
    return Part(str(path), files, body["facts"])


def find_shard(path: str | Path) -> Part | None:
    """Return the shard at a path if its receipt and files are all there; None where it has to be made.

    Contents are checked where they are read, by ``Part.check``.
    """
    try:
        content = json.loads(Path(path).with_name(f"{_key(path)}.{RECEIPT}").read_bytes())
        seal = content.pop("seal")
        stored = Part.from_json(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    part = replace(stored, path=str(path))
    # Its facts are figures of privacy: damaged ones are not taken for true.
    good = seal == digest_of(content) and stored.path == Path(path).name
    return part if good and all(part.sibling_file(suffix).is_file() for suffix in part.files) else None


def remove_unfinished(root: str | Path) -> None:
    """Remove the unfinished files that killed workers left in a folder's shards."""
    for path in Path(root).glob("*/.*.part"):
        path.unlink(missing_ok=True)


def write_shard_file(path: str | Path, put: Callable[[Path], Any]) -> None:
    """Let ``put`` write a file, whole or not at all, under a temporary name that no other worker uses."""
    target = Path(path)
    with raise_storage_error():
        write_whole(target, target.with_name(f".{target.name}.{uuid.uuid4().hex}.part"), put)


def write_shard_frame(path: str | Path, frame: pl.DataFrame, metadata: dict[str, str] | None = None) -> None:
    """Write a table as Parquet, whole or not at all; the same bytes for the same table."""
    write_shard_file(path, partial(frame.write_parquet, compression="zstd", compression_level=1, metadata=metadata))


def _key(path: str | Path) -> str:
    """Return the name of a shard's file before its suffix."""
    return Path(path).name.split(".")[0]


@dataclass(frozen=True)
class Job:
    """Work on inputs that must be as they were; ``work``, given ``out``, writes the shard there.

    It is a function of a module, or a ``partial`` of one over plain values, so that it can travel to any worker.
    """

    work: Callable[[str], Record]
    out: str
    inputs: tuple[Part, ...] = ()


def run_job(job: Job) -> Part:
    """Run one job where it is: check its inputs, work, and leave a receipt; return the finished shard."""
    for part in job.inputs:
        part.check_digests()
    return seal_shard(job.out, job.work(job.out))


def run_jobs(executor: Executor, text: str, jobs: Sequence[Job], tell: Tell) -> Listing:
    """Do the jobs whose shards are not there; return all shards in the order of the jobs.

    The first job that fails ends it, and what is finished is kept: no stage goes on without some of its shards.
    """
    found = [find_shard(job.out) for job in jobs]
    missing = [partial(run_job, job) for job, part in zip(jobs, found, strict=True) if part is None]
    kept = len(jobs) - len(missing)
    tell(text, kept, len(jobs))
    made = iter(executor.call_all(missing, lambda done: tell(text, kept + done, len(jobs))))
    parts = tuple(next(made) if part is None else part for part in found)
    return Listing(parts, tuple(job.inputs[-1] for job in jobs if job.inputs))


@dataclass(frozen=True)
class Listing(Record):
    """The shards that a stage made, what each was made of, and the number of buckets of names."""

    parts: tuple[Part, ...]
    inputs: tuple[Part, ...] = ()  #: of each part, in order
    buckets: int = 1

    @property
    def pairs(self) -> list[tuple[Part, Part]]:
        """The shards, each with the one that it was made of."""
        return list(zip(self.parts, self.inputs, strict=True))

    def to_text(self, folder: Path) -> str:
        """Return the content of the list's file: JSON, with paths relative to the run's folder."""
        base = folder.resolve()
        relative = self._with_paths(lambda path: Path(path).resolve().relative_to(base).as_posix())
        return json.dumps(relative.to_json(), indent=1)

    @classmethod
    def read(cls, path: Path, folder: Path) -> Listing:
        """Return the list from the file that :meth:`text` describes."""
        try:
            return cls.from_json(json.loads(path.read_bytes()))._with_paths(lambda inside: str(folder / inside))
        except (OSError, ValueError, TypeError, AttributeError):
            raise InputError(f"dir: {path.name} is missing or damaged; run the stage again") from None

    def _with_paths(self, move: Callable[[str], str]) -> Listing:
        """Return the list with every path changed by a function."""
        parts, inputs = (
            tuple(replace(part, path=move(part.path)) for part in each) for each in (self.parts, self.inputs)
        )
        return replace(self, parts=parts, inputs=inputs)
