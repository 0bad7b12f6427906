"""Shards on disk: ``<stage>/<key>.<suffix>``, where the key says all that went into the file.

A shard is made of one or more files and of a receipt ``<key>.json``, written last, with the files' digests and a few
facts. Work is done where its receipt is there; a worker killed at any moment leaves no receipt, and what it leaves of a
file has a temporary name. Two workers may make the same shard at the same time: they write the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import shoal
from shoal.errors import InputError, StorageError
from shoal.files import digest_of, file_digest, write_whole
from shoal.records import Record

RECEIPT = "json"
_STAGE = re.compile(r"[a-z][a-z0-9_-]*")
_SUFFIX = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*")
_KEY = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True)
class Part:
    """A finished shard: where its main file lies, the digest of each file by suffix, and what to tell about it."""

    path: str
    files: dict[str, str]
    households: int
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)  #: plain JSON values

    @property
    def key(self) -> str:
        """The name of its files, before the suffix."""
        return _key(self.path)

    def told(self, kind: type[Kind]) -> Kind:
        """What the job that made it had to tell."""
        return kind.from_json(self.facts)

    def beside(self, suffix: str) -> Path:
        """Another file of the same shard."""
        return Path(self.path).with_name(f"{self.key}.{suffix}")

    def check(self) -> None:
        """Raise unless the shard's files, each read through once, are as they were written."""
        for suffix, digest in self.files.items():
            try:
                found = file_digest(_file(self.path, suffix))
            except FileNotFoundError:
                raise self._broken("is missing") from None
            except OSError:
                raise self._broken("cannot be read") from None
            if found != digest:
                raise self._broken("is damaged")

    def _broken(self, what: str) -> InputError:
        stage = Path(self.path).parent.name
        return InputError(
            f"shards: the {stage} shard {self.key} {what}; delete its files {self.key}.* in the folder {stage} and run "
            "again, it is made anew"
        )

    def to_json(self) -> dict[str, Any]:
        """All but where it lies."""
        names = ("key", "files", "households", "seconds", "facts")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_json(cls, path: str | Path, content: Any) -> Part:
        """From its JSON form; a ValueError if it is not that of a shard at this path."""
        try:
            part = cls(str(path), **{name: value for name, value in content.items() if name != "key"})
            good = (
                _KEY.fullmatch(content["key"]) is not None
                and content["key"] == part.key
                and all(_SUFFIX.fullmatch(name) and _DIGEST.fullmatch(digest) for name, digest in part.files.items())
                and type(part.households) is int
                and isinstance(part.seconds, (int, float))
                and isinstance(part.facts, dict)
            )
        except (KeyError, TypeError, AttributeError):
            good = False
        if not good:
            raise ValueError("not a shard")
        return part


def shard_key(stage: str, settings: Mapping[str, Any], inputs: Sequence[str]) -> str:
    """The name of what a stage makes of these inputs (keys or digests, in order) with these settings.

    A new version of shoal makes new shards: the code is one of the inputs.
    """
    return digest_of([stage, shoal.__version__, dict(settings), list(inputs)])[:32]


def receipted(path: str | Path, facts: Record, seconds: float = 0.0) -> Part:
    """Leave the receipt of a shard whose files are written: from now on it is done."""
    key = _key(path)
    files = {
        file.name.removeprefix(f"{key}."): file_digest(file)
        for file in sorted(Path(path).parent.glob(f"{key}.*"))
        if file.name != f"{key}.{RECEIPT}"
    }
    count = getattr(facts, "labels", getattr(facts, "households", 0))
    part = Part(str(path), files, count, round(seconds, 3), facts.to_json())
    body = json.loads(json.dumps(part.to_json()))  # as it will be read: names of numbers become text
    content = json.dumps({**body, "seal": digest_of(body)}, indent=1, ensure_ascii=False).encode()
    put_whole(_file(path, RECEIPT), lambda rough: rough.write_bytes(content))
    return part


def finished(path: str | Path) -> Part | None:
    """The shard at a path if its receipt and its files are all there, or None: then it has to be made.

    Contents are checked where they are read, by ``Part.check``.
    """
    try:
        content = json.loads(_file(path, RECEIPT).read_bytes())
        seal = content.pop("seal", None) if isinstance(content, dict) else None
        part = Part.from_json(path, content)
        # Its facts are figures of privacy: damaged ones are not taken for true.
        good = seal == digest_of(content) and all(_file(path, suffix).is_file() for suffix in part.files)
    except (OSError, ValueError):
        return None
    return part if good else None


def sweep(root: str | Path) -> int:
    """Remove what killed workers have left unfinished of a folder's shards; how many files. Not while workers write."""
    left = list(Path(root).glob("*/.*.part"))
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


def put_whole(path: str | Path, put: Callable[[Path], Any]) -> None:
    """Let ``put`` write a file, whole or not at all, under a temporary name that no other worker uses."""
    target = Path(path)
    with disk_space():
        write_whole(target, target.with_name(f".{target.name}.{uuid.uuid4().hex}.part"), put)


@contextlib.contextmanager
def disk_space() -> Iterator[None]:
    """A full disk, as Python or Polars reports it, becomes a ``StorageError``."""
    try:
        yield
    except _writing_errors() as error:
        if _is_full(error):
            raise StorageError(
                "the disk is full. Nothing that was finished is lost: free some space and run the same command again"
            ) from None
        raise


def _writing_errors() -> tuple[type[Exception], ...]:
    polars = sys.modules.get("polars.exceptions")
    return (OSError,) if polars is None else (OSError, polars.PolarsError)


def _is_full(error: BaseException) -> bool:
    codes = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in codes
    # Polars keeps the code in the text only. The text itself is not passed on.
    return any(f"os error {code})" in str(error) or os.strerror(code) in str(error) for code in codes)


def _file(path: str | Path, suffix: str) -> Path:
    """A file of the shard at a path; names that are none of a shard's files are refused."""
    folder, key = Path(path).parent, _key(path)
    if not (_STAGE.fullmatch(folder.name) and _KEY.fullmatch(key) and _SUFFIX.fullmatch(suffix)):
        raise InputError("shards: a stage, key or suffix is not a name of a shard file")
    return folder / f"{key}.{suffix}"


def _key(path: str | Path) -> str:
    return Path(path).name.split(".")[0]
