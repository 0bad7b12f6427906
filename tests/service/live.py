"""A running service: in a thread of this process, or as the process that benchmarks kill."""

from __future__ import annotations

import contextlib
import importlib.util
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_spec = importlib.util.spec_from_file_location(
    "bench_service", Path(__file__).parents[2] / "benchmarks" / "_service.py"
)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _module
_spec.loader.exec_module(_module)
NotServed, Service, released, free_port = _module.NotServed, _module.Service, _module.released, _module.free_port


SETTINGS = _module.SETTINGS


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
