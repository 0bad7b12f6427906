"""Tasks on Ray: one started on this machine, one already running here, or a cluster elsewhere.

Ray is told not to repeat anything by itself: a task whose worker or whose machine has died is submitted again here,
so that the number of tries is the same as with local processes. Exceptions of tasks never reach Ray.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from shoal.errors import InputError, WorkerError
from shoal.numerics.threads import ONE_THREAD, n_threads
from shoal.workers.executor import TRIES, Executor, Failure, Result, Task, died
from shoal.workers.outcome import TaskError, attempt, settled
from shoal.workers.versions import differences, version_probe, versions

#: Seconds until a cluster that does not answer is given up, and one whose workers do not.
CONNECT_SECONDS = 5.0
PROBE_SECONDS = 120.0
#: Bytes of shared memory for a Ray started here; tasks name files, so little travels.
OBJECT_STORE = 128 * 2**20
PORT = 10001
#: Read by Ray when it is imported: no statistics sent, and no log lines of workers in the driver's output.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class Cluster(Executor):
    """Workers on Ray, checked to run the same software as the driver before they get any work."""

    def __init__(self, address: str, cores: int | None = None) -> None:
        self._address = address
        self._ray = _package()
        self._mine = not self._ray.is_initialized()
        self._wanted = cores
        self._open = True
        if self._mine:
            # Ray's own convention: RAY_ADDRESS names the cluster to join, or "local" for one of our own.
            _connect(self._ray, address if address != "ray" else os.environ.get("RAY_ADDRESS") or "auto", cores)
        try:
            self.workers = self._places()
            _refuse_other_versions(worker_versions(self._ray))
        except BaseException:
            self.close()
            raise

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result | Failure]]:
        if not self._open:
            raise RuntimeError("this executor is closed")
        ray, errors = self._ray, self._ray.exceptions
        again = (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError, errors.ObjectLostError,
                 errors.LocalRayletDiedError)  # fmt: skip
        self.workers = self._places()
        ahead = self.workers if self._wanted is not None else 2 * self.workers
        settings = {} if self._mine else {"runtime_env": _environment(self._address)}
        remote = ray.remote(num_cpus=1, max_retries=0, **settings)(attempt)
        waiting = iter(range(len(tasks)))
        deaths: Counter[int] = Counter()
        flying: dict[Any, int] = {}
        try:
            while True:
                while len(flying) < ahead and (index := next(waiting, None)) is not None:
                    flying[remote.remote(work, tasks[index])] = index
                if not flying:
                    return
                (reference,), _ = ray.wait(list(flying), num_returns=1)
                index = flying.pop(reference)
                try:
                    answer = settled(ray.get(reference))
                except again:
                    deaths[index] += 1
                    if deaths[index] < TRIES:
                        flying[remote.remote(work, tasks[index])] = index
                        continue
                    answer = died(TRIES)
                yield index, answer
        except errors.RayTaskError as error:
            raise TaskError(f"a task ended with {type(error.cause).__name__} between driver and worker") from None
        except (errors.RayError, ConnectionError) as error:
            raise WorkerError(
                f"workers: Ray is gone or refuses work ({type(error).__name__}); what is finished is kept, run again"
            ) from None
        finally:
            if flying and self._open and ray.is_initialized():
                with contextlib.suppress(errors.RayError, ConnectionError, RuntimeError, ValueError):
                    for reference in flying:
                        ray.cancel(reference, force=True)

    def close(self) -> None:
        if self._open and self._mine:
            self._ray.shutdown()
        self._open = False

    def _places(self) -> int:
        """Cores of the cluster, or fewer if fewer workers are wanted."""
        cores = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
        return cores if self._wanted is None else min(cores, self._wanted)


def worker_versions(ray: Any) -> list[dict[str, str]]:
    """What runs on every machine of the cluster that has cores to offer."""
    strategy = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    probe = ray.remote(num_cpus=0, max_retries=TRIES)(version_probe())
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    if not nodes:
        raise WorkerError("workers: the Ray cluster has no machine with cores; add one and run again")
    asked = [probe.options(scheduling_strategy=strategy(node_id=node, soft=True)).remote() for node in nodes]
    try:
        found: list[dict[str, str]] = ray.get(asked, timeout=PROBE_SECONDS)
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise WorkerError(
            f"workers: the Ray cluster does not answer ({type(error).__name__}); check it with `ray status`"
        ) from None
    return found


def _refuse_other_versions(found: list[dict[str, str]]) -> None:
    other = differences(versions(), found)
    if other:
        raise InputError(
            f"workers: the cluster runs other versions than this machine: {'; '.join(other)}. "
            "Results would depend on where they are made: install the same versions everywhere"
        )


def _package() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray")
    except ImportError:
        raise InputError("workers: ray needs a package that is not installed; pip install 'shoal[ray]'") from None


def _environment(address: str) -> dict[str, dict[str, str]]:
    """One thread per worker; on this machine, workers also import from where the driver does."""
    paths = {} if address.startswith("ray://") else {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return {"env_vars": {**ONE_THREAD, **paths}}


def _connect(ray: Any, address: str, cores: int | None) -> None:
    """Join the cluster at an address; "auto": the one on this machine or else a new one; "local": a new one."""
    common: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": "ERROR",
        "runtime_env": _environment(address),
    }
    if address.startswith("ray://"):
        host, port = _reachable(address)
        common["address"] = f"ray://{host}:{port}"
    else:
        common["address"] = address
    if address == "local":
        common |= {
            "num_cpus": cores or n_threads(),
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE,
        }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(**common)
    except ImportError:
        raise InputError("workers: this Ray cannot join a cluster; pip install 'shoal[ray]'") from None
    except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        if address == "auto" and isinstance(error, ConnectionError):
            _connect(ray, "local", cores)
            return
        text = str(error)
        if "ersion mismatch" in text:
            raise InputError(
                "workers: the cluster runs another version of Ray or Python than this machine; "
                "install the same versions everywhere"
            ) from None
        if "ray[client]" in text:
            raise InputError("workers: this Ray cannot join a cluster; pip install 'shoal[ray]'") from None
        if address != "local":
            raise _unreachable(address) from None
        raise WorkerError(f"workers: Ray does not start on this machine ({type(error).__name__})") from None


def _reachable(address: str) -> tuple[str, int]:
    """Host and port of an address that answers."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, 0
    if not host or parts.path not in ("", "/") or parts.query:
        raise InputError("workers: a Ray cluster is named ray://host:port, for example ray://head:10001")
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        raise _unreachable(address) from None
    return (f"[{host}]" if ":" in host else host), port


def _unreachable(address: str) -> InputError:
    return InputError(
        f"workers: no Ray cluster answers at {address}; check host and port (Ray's client server listens on {PORT}) "
        "and, if the cluster asks for a token, RAY_AUTH_MODE and RAY_AUTH_TOKEN; or use --workers processes"
    )
