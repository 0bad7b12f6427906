"""Tasks on Ray: one started on this machine, one already running here, or a cluster elsewhere.

Ray is told not to repeat anything by itself: a task whose worker or whose machine has died is submitted again here,
so that the number of tries is the same as with local processes. Exceptions of tasks never reach Ray.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from shoal.errors import InputError, WorkerError
from shoal.numerics.threads import ONE_THREAD, n_threads
from shoal.product.workers.executor import TRIES, Processes, attempt

#: Seconds until workers of a cluster that do not answer are given up.
PROBE_SECONDS = 120.0
#: Settings of a Ray started here: tasks name files, so little travels through its shared memory.
OWN = {"include_dashboard": False, "object_store_memory": 128 * 2**20}
#: Read by Ray when it is imported: no statistics sent, no log lines of workers in the driver's output.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
ADDRESS = re.compile(r"ray://(?:\[[0-9a-fA-F:]+\]|[^\s/:?#\[\]]+)(?::(?P<port>\d{1,5}))?/?")
PORT = 10001
INSTALL = "pip install 'shoal[ray]'"


class Cluster(Processes):
    """Workers on Ray, checked to run the same software as the driver before they get any work."""

    shared_fate = False

    def __init__(self, address: str, cores: int | None = None) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        try:
            self._ray = import_module("ray")
        except ImportError:
            raise InputError(f"workers: ray needs a package that is not installed; {INSTALL}") from None
        super().__init__(1)
        errors = self._ray.exceptions
        self.deadly = (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError,
                       errors.ObjectLostError, errors.LocalRayletDiedError)  # fmt: skip
        self._joined = not self._ray.is_initialized()
        # On this machine, workers import from where the driver does.
        paths = {} if address.startswith("ray://") else {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment = {"env_vars": {**ONE_THREAD, **paths}}
        settings = {} if self._joined else {"runtime_env": environment}
        self._remote = self._ray.remote(num_cpus=1, max_retries=0, **settings)(attempt)
        self._sent: dict[Future[Any], Any] = {}
        if self._joined:
            # Ray's own convention: RAY_ADDRESS names the cluster to join, or "local" for one of our own.
            place = address if address != "ray" else os.environ.get("RAY_ADDRESS") or "auto"
            _connect(self._ray, place, cores, environment)
        try:
            with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError):  # the probe will tell
                available = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
                self.workers = 2 * available if cores is None else min(available, cores)
            here, there = versions(), worker_versions(self._ray)
            others = {name: sorted({answer[name] for answer in there} - {here[name]}) for name in here}
            differences = [f"{name} {here[name]} here, {' and '.join(o)} on workers" for name, o in others.items() if o]
            if differences:
                raise InputError(
                    f"workers: the cluster runs other versions than this machine: {'; '.join(differences)}. "
                    "Results would depend on where they are made: install the same versions everywhere"
                )
        except BaseException:
            self.close()
            raise

    def send(self, work: Callable[[Any], Any], task: Any) -> Future[Any]:
        try:
            reference = self._remote.remote(work, task)
            future: Future[Any] = reference.future()
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            raise self.explain(error) from None
        self._sent[future] = reference
        future.add_done_callback(lambda ended: self._sent.pop(ended, None))
        return future

    def explain(self, error: BaseException) -> Exception:
        errors = self._ray.exceptions
        if isinstance(error, errors.RayError | ConnectionError) and not isinstance(error, errors.RayTaskError):
            return WorkerError(
                f"workers: Ray is gone or refuses work ({type(error).__name__}); what is finished is kept, run again"
            )
        return super().explain(getattr(error, "cause", error))

    def drop(self) -> None:
        if self._open and self._ray.is_initialized():
            with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError):
                for reference in list(self._sent.values()):
                    self._ray.cancel(reference, force=True)

    def close(self) -> None:
        if self._open and self._joined:
            self._ray.shutdown()
        self._open = False


def _version_probe() -> Callable[[], dict[str, str]]:
    """A function defined inside another one travels as code: a worker without shoal can run it and say so."""

    def versions() -> dict[str, str]:
        import importlib.metadata
        import sys

        installed = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
        for name in ("shoal", "numpy", "numba", "polars"):
            try:
                installed[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                installed[name] = "missing"
        return installed

    return versions


#: The versions of shoal, Python and the libraries that results depend on, of the machine on which it is called.
versions = _version_probe()


def worker_versions(ray: Any) -> list[dict[str, str]]:
    """The versions on every machine of the cluster that has cores to offer."""
    strategy = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    probe = ray.remote(num_cpus=0, max_retries=TRIES)(versions)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    if not nodes:
        raise WorkerError("workers: the Ray cluster has no machine with cores; add one and run again")
    probes = [probe.options(scheduling_strategy=strategy(node_id=node, soft=True)).remote() for node in nodes]
    try:
        answers: list[dict[str, str]] = ray.get(probes, timeout=PROBE_SECONDS)
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise WorkerError(
            f"workers: the Ray cluster does not answer ({type(error).__name__}); check it with `ray status`"
        ) from None
    return answers


def _connect(ray: Any, address: str, cores: int | None, environment: dict[str, Any]) -> None:
    """Join the cluster at an address; "auto": the one on this machine or else a new one; "local": a new one."""
    if address.startswith("ray://"):
        parts = ADDRESS.fullmatch(address)
        if parts is None or int(parts["port"] or PORT) > 65535:
            raise InputError("workers: a Ray cluster is named ray://host:port, for example ray://head:10001")
        address = address if parts["port"] else f"{address.rstrip('/')}:{PORT}"
    settings = {"num_cpus": cores or n_threads(), **OWN} if address == "local" else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address, log_to_driver=False, logging_level="ERROR", runtime_env=environment, **settings)
    except (ImportError, ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        if address == "auto" and isinstance(error, ConnectionError):
            _connect(ray, "local", cores, environment)
            return
        if address == "local":
            raise WorkerError(f"workers: Ray does not start on this machine ({type(error).__name__})") from None
        raise InputError(
            f"workers: no Ray cluster answers at {address} ({type(error).__name__}); check host and port (Ray's client "
            f"server listens on {PORT}), that both ends have {INSTALL} with the same versions of Ray and Python, and "
            "RAY_AUTH_TOKEN if the cluster asks for one; or use workers='processes'"
        ) from None
