"""A cluster that is not there, and a package that is not installed: what to do is said at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal

METERS: dict[str, Any] = {"source": shoal.SimulatedMeters(10, 5, 60), "train_days": 4, "order": (1, 0), "horizon": 2}


def refused(folder: Path, workers: str) -> str:
    """What is said to who names these workers."""
    with pytest.raises(shoal.InputError) as caught:
        shoal.run(out=folder / "run", workers=workers, **METERS)
    return str(caught.value)


def test_an_unreachable_cluster_is_named(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{probe.getsockname()[1]}"
    text = refused(tmp_path, address)
    assert text.startswith(f"workers: no Ray cluster answers at {address} ")
    assert "check host and port" in text


#: In a process of its own: a client of Ray that failed stays switched on in the process it failed in.
LISTENING = """
import socket, sys
import ray.util.client.worker as client
import shoal

client.INITIAL_TIMEOUT_SEC = client.MAX_TIMEOUT_SEC = 1
with socket.socket() as listening:
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    try:
        workers = f"ray://127.0.0.1:{listening.getsockname()[1]}"
        shoal.run(shoal.SimulatedMeters(10, 5, 60), sys.argv[1], workers=workers)
    except shoal.InputError as error:
        print(error)
"""


def test_something_else_that_listens_is_no_cluster(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Ray's client is not installed: pip install shoal[ray]")
    pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    done = subprocess.run(
        [sys.executable, "-c", LISTENING, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.startswith("workers: no Ray cluster answers"), done.stderr


@pytest.mark.parametrize("workers", ["ray://", "ray://:10001", "ray://host:port", "ray://host:1/path", "ray://h:99999"])
def test_a_malformed_address_is_refused(tmp_path: Path, workers: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    assert refused(tmp_path, workers).startswith("workers: a Ray cluster is named ray://host:port")


def test_without_the_package_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'shoal[ray]'" in refused(tmp_path, "ray")
