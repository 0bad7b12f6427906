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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import shoal
from shoal.errors import InputError, StorageError
from shoal.files import digest_of, file_digest, private_folder, write_whole

RECEIPT = "json"
_STAGE = re.compile(r"[a-z][a-z0-9_-]*")
_SUFFIX = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*")
_KEY = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Shard:
    """A finished shard: its key, the digest of each file by suffix, and what to tell about it (plain JSON values)."""

    key: str
    files: dict[str, str]
    households: int
    seconds: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)


def shard_key(stage: str, settings: Mapping[str, Any], inputs: Sequence[str]) -> str:
    """The name of what a stage makes of these inputs (keys or digests, in order) with these settings.

    A new version of shoal makes new shards: the code is one of the inputs.
    """
    return digest_of([stage, shoal.__version__, dict(settings), list(inputs)])[:32]


@dataclass(frozen=True)
class Store:
    """The folder of all shards. A plain value, which travels with tasks."""

    path: str

    def file(self, stage: str, key: str, suffix: str) -> Path:
        """Where a file of a shard is, or would be."""
        if not (_STAGE.fullmatch(stage) and _KEY.fullmatch(key) and _SUFFIX.fullmatch(suffix)):
            raise InputError("shards: a stage, key or suffix is not a name of a shard file")
        return Path(self.path, stage, f"{key}.{suffix}")

    def write(self, stage: str, key: str, suffix: str, put: Callable[[Path], Any]) -> str:
        """Let ``put`` write one file of a shard, whole or not at all; its digest."""
        if suffix == RECEIPT:
            raise InputError(f"shards: the suffix {RECEIPT} is that of receipts; use another one")
        return self._write(stage, key, suffix, put)

    def finish(self, stage: str, shard: Shard) -> Shard:
        """Leave the receipt of a shard whose files are written: from now on it is done."""
        for suffix in shard.files:
            if not self.file(stage, shard.key, suffix).is_file():
                raise _broken(stage, shard.key, "is missing")
        body = json.loads(json.dumps(asdict(shard)))  # as it will be read: names of numbers become text
        content = json.dumps({**body, "seal": digest_of(body)}, indent=1, ensure_ascii=False).encode()
        self._write(stage, shard.key, RECEIPT, lambda path: path.write_bytes(content))
        return shard

    def finished(self, stage: str, key: str) -> Shard | None:
        """The receipt of a shard whose files are all there, or None: then it has to be made.

        Contents are checked where they are read, by ``checked``.
        """
        try:
            content = json.loads(self.file(stage, key, RECEIPT).read_bytes())
            seal = content.pop("seal", None) if isinstance(content, dict) else None
            shard = shard_of(content)
        except (OSError, ValueError):
            return None
        if seal != digest_of(content):  # its facts are figures of privacy: damaged ones are not taken for true
            return None
        if shard.key != key or not all(self.file(stage, key, suffix).is_file() for suffix in shard.files):
            return None
        return shard

    def checked(self, stage: str, key: str, suffix: str, digest: str) -> Path:
        """A file of a shard, read through once to see that it is as it was written."""
        path = self.file(stage, key, suffix)
        try:
            found = file_digest(path)
        except FileNotFoundError:
            raise _broken(stage, key, "is missing") from None
        except OSError:
            raise _broken(stage, key, "cannot be read") from None
        if found != digest:
            raise _broken(stage, key, "is damaged")
        return path

    def discard(self, stage: str, key: str) -> None:
        """Remove a shard, its receipt first, so that it is made anew."""
        receipt = self.file(stage, key, RECEIPT)
        receipt.unlink(missing_ok=True)
        for path in receipt.parent.glob(f"{key}.*"):
            path.unlink(missing_ok=True)

    def sweep(self) -> int:
        """Remove what killed workers have left unfinished; how many files. Not while workers are writing."""
        left = list(Path(self.path).glob("*/.*.part"))
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    def _write(self, stage: str, key: str, suffix: str, put: Callable[[Path], Any]) -> str:
        target = self.file(stage, key, suffix)
        digests = []

        def put_and_read(path: Path) -> None:
            put(path)
            digests.append(file_digest(path))

        with disk_space():
            private_folder(target.parent)
        put_whole(target, put_and_read)
        return digests[0]


def put_whole(path: str | Path, put: Callable[[Path], Any]) -> None:
    """Let ``put`` write a file, whole or not at all, under a temporary name that no other worker uses."""
    target = Path(path)
    with disk_space():
        write_whole(target, target.with_name(f".{target.name}.{uuid.uuid4().hex}.part"), put)


def shard_of(content: Any) -> Shard:
    """A shard from its JSON form; a ValueError if it is not one."""
    try:
        shard = Shard(**content)
        good = (
            _KEY.fullmatch(shard.key) is not None
            and all(_SUFFIX.fullmatch(name) and _DIGEST.fullmatch(digest) for name, digest in shard.files.items())
            and type(shard.households) is int
            and isinstance(shard.seconds, (int, float))
            and isinstance(shard.facts, dict)
        )
    except (TypeError, AttributeError):
        good = False
    if not good:
        raise ValueError("not a shard")
    return shard


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


def _broken(stage: str, key: str, what: str) -> InputError:
    return InputError(
        f"shards: the {stage} shard {key} {what}; delete its files {key}.* in the folder {stage} and run again, "
        "it is made anew"
    )
