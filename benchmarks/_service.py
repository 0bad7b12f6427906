"""``shoal serve`` as a process that can be killed, and a small run for it to offer."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import shoal

#: A small neighborhood with codebooks, so that a release costs something.
SETTINGS = {"order": (1, 1), "train_days": 7, "horizon": 3, "crowd": 4, "epsilon": 2.0}


def released(folder: Path, ledger: str | None = None, households: int = 16, **settings: object) -> Path:
    """A run of simulated meters in ``folder`` that has released, by default through codebooks, on a ledger."""
    source = shoal.SimulatedMeters(households, 8, 60)
    run = shoal.Run(folder, source, ledger=ledger, **{"method": "codebook", **SETTINGS, **settings})
    run.do_all_stages("release")
    return folder


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class NotServed(Exception):
    """The process ended before it served anything: with which code, and what it said."""


class Service:
    """``shoal serve`` as a process of its own; ``key`` is the owner's, where one was made."""

    def __init__(self, folder: Path, ledger: str, port: int | None = None, *options: str) -> None:
        self.port = port or free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "shoal", "serve", str(folder), "--port", str(self.port)]
        command += ["--ledger", ledger, *options]
        quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=quiet
        )
        self.log: list[str] = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if '"started"' in line:
                break
        else:
            raise NotServed(self._process.wait(), "".join(self.log))
        file = folder / "owner-key.txt"
        self.key = file.read_text().strip() if file.is_file() else ""
        threading.Thread(target=self._read, daemon=True).start()
        for _ in range(400):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise TimeoutError("the service does not listen")

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)
