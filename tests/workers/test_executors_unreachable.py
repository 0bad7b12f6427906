"""A cluster that is not there, and a package that is not installed: what to do is said at once."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from shoal.errors import InputError
from shoal.workers.executor import open_executor


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_unreachable_cluster_is_named() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    address = f"ray://127.0.0.1:{_closed_port()}"
    with pytest.raises(InputError, match=f"^workers: no Ray cluster answers at {address} .*check host and port"):
        open_executor(address)


#: In a process of its own: a client of Ray that failed stays switched on in the process it failed in.
LISTENING = """
import socket
import ray.util.client.worker as client
from shoal.errors import InputError
from shoal.workers.executor import open_executor

client.INITIAL_TIMEOUT_SEC = client.MAX_TIMEOUT_SEC = 1
with socket.socket() as listening:
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    try:
        open_executor(f"ray://127.0.0.1:{listening.getsockname()[1]}")
    except InputError as error:
        print(error)
"""


def test_something_else_that_listens_is_no_cluster() -> None:
    pytest.importorskip("grpc", reason="Ray's client is not installed: pip install shoal[ray]")
    pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    done = subprocess.run([sys.executable, "-c", LISTENING], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("workers: no Ray cluster answers"), done.stderr


@pytest.mark.parametrize("workers", ["ray://", "ray://:10001", "ray://host:port", "ray://host:1/path", "ray://h:99999"])
def test_a_malformed_address_is_refused(workers: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install shoal[ray]")
    with pytest.raises(InputError, match=r"^workers: a Ray cluster is named ray://host:port"):
        open_executor(workers)


def test_without_the_package_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"^workers: .*pip install 'shoal\[ray\]'"):
        open_executor("ray")
