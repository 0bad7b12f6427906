"""A running service: in a thread of this process, or as a process that can be killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


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


class Service:
    """``shoal serve`` as a process of its own."""

    def __init__(self, folder: Path, ledger: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "shoal", "serve", str(folder), "--port", str(self.port), "--ledger", ledger]
        quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=quiet)
        self.key = ""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = re.search(r"shoal_o_\S+", line)
            self.key = found[0] if found else self.key
            if '"started"' in line:
                break
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        self._wait()

    def _wait(self) -> None:
        for _ in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise TimeoutError("the service does not listen")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)
