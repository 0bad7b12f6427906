"""Files that are there whole or not at all, and digests that say what is in them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def private(path: Path) -> None:
    """Make a file that only its owner reads and writes, or make the one that is there such a file."""
    handle = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def private_folder(path: Path) -> None:
    """Make a folder that only its owner opens, and those above it that are missing."""
    for one in reversed([path, *path.parents]):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


def write_private(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that only its owner reads and writes."""
    private(Path(path))
    Path(path).write_bytes(content)


def write_whole(target: Path, rough: Path, put: Callable[[Path], Any]) -> None:
    """Let ``put`` write the file ``rough``, flush it to disk and rename it to ``target`` in the same folder."""
    rough.unlink(missing_ok=True)
    os.close(os.open(rough, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        put(rough)
        with rough.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(rough, target)
    finally:
        rough.unlink(missing_ok=True)
    _settle(target.parent)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _settle(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
