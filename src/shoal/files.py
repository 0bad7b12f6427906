"""Files that are there whole or not at all, and digests that say what is in them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shoal.errors import ShoalError, StorageError

FULL = "the disk is full. Nothing that was finished is lost: free some space and run the same command again"


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner can read and write, or give the one that is there these rights."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    path.chmod(0o600)  # a system without such modes keeps the file writable, and nothing more


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner can open, and those above it that are missing."""
    for one in reversed([path, *path.parents]):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


def write_private(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file, in place, that only its owner can read and write; :func:`write_whole` is for what must be whole."""
    make_private_file(Path(path))
    Path(path).write_bytes(content)


def write_whole(target: Path, rough: Path, put: Callable[[Path], Any]) -> None:
    """Let ``put`` write the file ``rough``, flush it to disk and rename it to ``target`` in the same folder."""
    rough.unlink(missing_ok=True)
    os.close(os.open(rough, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        try:
            put(rough)
        except Exception as error:
            if "transport error" in str(error):  # Polars 1 has lost the reason; whoever writes more is told it
                with rough.open("ab") as file:
                    file.write(bytes(1 << 16))
            raise
        with rough.open("r+b") as file:  # Windows flushes what is open for writing only
            os.fsync(file.fileno())
        os.replace(rough, target)
    finally:
        rough.unlink(missing_ok=True)
    flush_folder(target.parent)


def file_digest(path: Path) -> str:
    """Return SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """Return SHA-256, in hexadecimal, of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a new name survives a crash of the machine."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_disk_full(error: Exception) -> bool:
    """Return whether an error of Python or Polars says that the disk, or a user's share of it, is full."""
    codes, code = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)), getattr(error, "errno", None)
    if code is not None:
        return code in codes
    # Polars keeps the code in the text only, on Windows that of the system (disk full, quota exceeded).
    own = (39, 112, 1295) if sys.platform == "win32" else codes
    texts = (*(f"os error {number})" for number in own), *map(os.strerror, codes))
    return any(text in str(error) for text in texts)


@contextlib.contextmanager
def raise_storage_error() -> Iterator[None]:
    """Turn errors of a full disk, from Python or Polars, into a ``StorageError`` that does not quote their text."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, ShoalError) and is_disk_full(error):
            raise StorageError(FULL) from None
        raise
