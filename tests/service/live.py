"""A running service: in a thread of this process, or as the process that benchmarks kill."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks._service import SETTINGS as SETTINGS
from benchmarks._service import NotServed as NotServed
from benchmarks._service import Service as Service
from benchmarks._service import free_port as free_port
from benchmarks._service import released as released


def copied(source: Path, target: Path) -> None:
    """A backup as an operator makes it; what lay at the target is gone, its write-ahead log too."""
    for end in ("", "-wal", "-shm"):
        Path(f"{target}{end}").unlink(missing_ok=True)
    one, two = sqlite3.connect(source), sqlite3.connect(target)
    one.backup(two)
    one.close()
    two.close()


@contextlib.contextmanager
def threaded(app: Any) -> Iterator[str]:
    """The address of an application that runs in a thread."""
    import uvicorn

    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)
