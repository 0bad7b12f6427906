"""One process at a time: lock files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from shoal.errors import ShoalError


@contextlib.contextmanager
def hold_lock(path: Path, busy: ShoalError) -> Iterator[None]:
    """Hold a lock file until the block ends, or raise ``busy`` where another process holds it.

    A process that is killed holds nothing any more.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o600)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise busy from None
    try:
        yield
    finally:
        lock.release()
