"""One interface for all places where tasks run. A task is a function of a module and one small argument.

The argument names files rather than holding arrays, so that a task can run anywhere, and again after its worker has
died. What leaves a worker of an error is its text where shoal raised it on purpose, else only the type and the lines of
code: an exception of a library can quote readings.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import multiprocessing
import os
import re
import signal
import sys
import threading
import traceback
import types
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from operator import call
from pathlib import PurePath
from typing import Any, Self, TypeVar

from shoal.errors import InputError, ShoalError, StorageError, UnreachableError, WorkerError
from shoal.files import FULL, is_disk_full
from shoal.numerics.threads import ONE_THREAD, n_threads, one_library_thread

Task = TypeVar("Task")
Result = TypeVar("Result")
#: A task that has ended this many workers is given up.
TRIES = 3
#: Innermost lines of code shown of a bug.
LINES = 6
#: Seconds after which the driver looks for Ctrl-C, on systems where that does not end a wait.
LOOK = 0.5
#: Who hears how far the task under way in this process is; a task elsewhere is heard by nobody.
_listeners: list[Callable[[float], None]] = []


@contextlib.contextmanager
def forward_progress(hear: Callable[[float], None]) -> Iterator[None]:
    """Call ``hear`` with the share done, between 0 and 1, of every task that runs in this process meanwhile."""
    _listeners.append(hear)
    try:
        yield
    finally:
        _listeners.remove(hear)


def report_task_progress(done: float, total: float) -> None:
    """Report that ``done`` of ``total`` of the task under way is done; for a task to call now and then."""
    if _listeners and total > 0:
        _listeners[-1](done / total)


def return_freed_memory() -> None:
    """Return memory that this process has freed to the system, where its C library can (glibc)."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


#: A task that is given up.
DIED = (
    f"the worker died {TRIES} times on this task; out of memory? Use fewer workers or smaller shards. What is finished "
    "is kept; run again"
)


class TaskError(RuntimeError):
    """A bug in a task: which exception, and where in the code. Its text is left out, since it may hold data."""


def attempt(work: Callable[[Task], Any], task: Task) -> Any:
    """Run one task; return its result, or the exception that ends the run, as a value."""
    try:
        return work(task)
    except StorageError as error:
        return StorageError(str(error))
    except ShoalError as error:
        return (UnreachableError if isinstance(error, UnreachableError) else InputError)(str(error))
    except MemoryError:
        return InputError("the memory is not enough for this task; use fewer workers or smaller shards")
    except Exception as error:  # noqa: BLE001 - the boundary: a bug is raised in the driver, by settled()
        if isinstance(error, OSError) and is_disk_full(error):
            return StorageError(FULL)
        reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        frames = traceback.extract_tb(error.__traceback__)[: -LINES - 1 : -1]
        places = "; ".join(f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)
        return TaskError(f"a task ended with {type(error).__name__}{reason} at {places or 'an unknown place'}")


def result_or_raise(outcome: Any) -> Any:
    """Return the outcome of a task in the driver, or raise it where it is an exception that ends the run."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class Executor:
    """Runs a function over many tasks, in this process. Used in a ``with`` statement, which ends the workers."""

    #: How many tasks run at the same time.
    workers = 1

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield (position of the task, its result) as tasks end, each exactly once.

        The first task that fails ends it: a ``ShoalError`` of a task is raised here, any other exception as a
        ``TaskError``, because it is a bug, and a ``WorkerError`` for a task that ends its worker ``TRIES`` times.
        """
        for position, task in enumerate(tasks):
            with one_library_thread():
                outcome = attempt(work, task)
            yield position, result_or_raise(outcome)

    def call_all(
        self, works: Sequence[Callable[[], Result]], report: Callable[[float], None] = lambda _: None
    ) -> list[Result]:
        """Call all functions and return their results in order; raise the first failure."""
        results: dict[int, Result] = {}
        with forward_progress(lambda share: report(len(results) + min(share, 1.0))):
            for position, result in self.run(call, works):
                results[position] = result
                report(len(results))
        return [results[position] for position in range(len(works))]

    def close(self) -> None:
        """End the workers. An executor can be closed twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Processes(Executor):
    """Processes of this machine, started when they are first needed: a pool, and a fresh one when a worker has died.

    Workers are started afresh rather than forked, because the threads of Numba and Polars do not survive a fork. One
    death takes every task under way with it (``shared_fate``): all of them count one and run again one by one, so that
    every further death is their own and no task is given up for what another one did. With ``auto``, a single task runs
    in this process and need not wait for a start.
    """

    shared_fate = True
    deadly: tuple[type[Exception], ...] = (BrokenProcessPool,)  #: what a future raises when its worker has died
    _open = True

    def __init__(self, workers: int, *, auto: bool = False) -> None:
        self.workers = min(workers, 61) if sys.platform == "win32" else workers  # Windows waits for no more at a time
        self._auto = auto
        self._pool: ProcessPoolExecutor | None = None

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yield as :meth:`Executor.run` does, from processes; a task whose worker died runs again."""
        if not self._open:
            raise RuntimeError("this executor is closed")
        if self._auto and len(tasks) == 1:
            yield from super().run(work, tasks)
            return
        waiting, again = deque(range(len(tasks))), deque[int]()
        deaths: Counter[int] = Counter()
        flying: dict[Future[Any], int] = {}
        answers: list[tuple[int, Any]] = []
        try:
            while waiting or again or flying or answers:
                one_by_one = self.shared_fate and (again or deaths.keys() & flying.values())
                while (again or waiting) and len(flying) < (1 if one_by_one else self.workers):
                    position = (again or waiting).popleft()
                    flying[self.submit_task(work, tasks[position])] = position
                yield from answers  # workers have their next task before the driver handles an answer
                answers = []
                for future in wait(flying, LOOK, FIRST_COMPLETED).done:
                    position, error = flying.pop(future), future.exception()
                    if error is None:
                        answers.append((position, result_or_raise(future.result())))
                        continue
                    if not isinstance(error, self.deadly):
                        raise self.travel_error(error) from None
                    if self.shared_fate:
                        self.kill_workers()
                    deaths[position] += 1
                    if deaths[position] == TRIES:
                        raise WorkerError(DIED)
                    again.append(position)
        finally:
            if flying:
                self.kill_workers()

    def submit_task(self, work: Callable[[Any], Any], task: Any) -> Future[Any]:
        """Hand ``attempt(work, task)`` to a worker; return the future of its outcome."""
        if getattr(work, "__module__", "") == "__main__":
            raise TypeError("work must be a function of a module that a worker can import, not of the main script")
        while True:
            if self._pool is None:
                self._pool = ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"), _prepare_worker)
            with contextlib.suppress(BrokenProcessPool), _isolated_start():
                return self._pool.submit(attempt, work, task)
            self.kill_workers()

    def travel_error(self, error: BaseException) -> Exception:
        """Return the exception that is raised for one on the way to or from a worker, whose text may quote data."""
        return TaskError(f"a task, or what a task returns does not travel: {type(error).__name__}")

    def kill_workers(self) -> None:
        """Kill the workers, and with them all tasks under way."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for worker in list((pool._processes or {}).values()):
                worker.kill()
            pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        self._open = False
        self.kill_workers()


@contextlib.contextmanager
def _isolated_start() -> Iterator[None]:
    """Start processes that do not hear Ctrl-C and do not import the driver's main script."""
    main, masked = sys.modules["__main__"], hasattr(signal, "pthread_sigmask")
    sys.modules["__main__"] = types.ModuleType("__main__")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if masked else set()
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_worker() -> None:
    """Prepare a new worker before it loads anything: one thread, no output, an end with the driver however it dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(ONE_THREAD)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - standard output belongs to the driver's results
    os.dup2(sys.stdout.fileno(), 1)
    driver = multiprocessing.parent_process()

    def end_with_driver() -> None:
        if driver is not None:
            driver.join()
        os._exit(1)

    threading.Thread(target=end_with_driver, daemon=True).start()


def open_executor(workers: str = "auto", cores: int | None = None, shards: int | None = None) -> Executor:
    """Open the executor named "serial", "processes", "ray", "ray://host:port" or "auto".

    "auto" is "processes" where more than one core may be used, and "serial" for a run of one shard (``shards``: their
    number, where it is known).
    """
    from shoal.validation import count  # loads NumPy, whose threads a worker sets before it does

    wanted = None if cores is None else count(cores=cores)
    at_a_time = wanted or n_threads()
    if workers == "serial" or (workers == "auto" and (shards == 1 or at_a_time == 1)):
        return Executor()
    if workers in ("auto", "processes"):
        return Processes(at_a_time, auto=workers == "auto")
    if isinstance(workers, str) and (workers == "ray" or workers.startswith("ray://")):
        return Cluster(workers, wanted)
    raise InputError("workers must be one of: serial, processes, ray, ray://host:port, auto")


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


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python, shoal and the libraries that results depend on, on this machine."""
    installed = {name: importlib.metadata.version(name) for name in ("shoal", "numpy", "numba", "polars")}
    return {"python": f"{sys.version_info.major}.{sys.version_info.minor}"} | installed


def attempt_alike(driver: dict[str, str], work: Callable[[Task], Any], task: Task) -> Any:
    """Run one task where the versions are those of the driver; elsewhere return the error that ends the run."""
    here = versions()
    differences = [
        f"{name} {driver[name]} here, {here[name]} on workers" for name in driver if driver[name] != here[name]
    ]
    if differences:
        return InputError(
            f"workers: the cluster runs other versions than this machine: {'; '.join(differences)}. "
            "Results would depend on where they are made: install the same versions everywhere"
        )
    return attempt(work, task)


class Cluster(Processes):
    """Workers on Ray; every task checks that its worker runs the same versions as the driver."""

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
        self._remote = self._ray.remote(num_cpus=1, max_retries=0, **settings)(attempt_alike)
        self._sent: dict[Future[Any], Any] = {}
        if self._joined:
            # Ray's own convention: RAY_ADDRESS names the cluster to join, or "local" for one of our own.
            place = address if address != "ray" else os.environ.get("RAY_ADDRESS") or "auto"
            _join_cluster(self._ray, place, cores, environment)
        try:
            available = int(self._ray.cluster_resources().get("CPU", 0))
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            self.close()
            raise self.travel_error(error) from None
        if not available:
            self.close()
            raise WorkerError("workers: the Ray cluster has no machine with cores; add one and run again")
        self.workers = 2 * available if cores is None else min(available, cores)

    def submit_task(self, work: Callable[[Any], Any], task: Any) -> Future[Any]:
        """Hand the task, with the driver's versions, to a worker on Ray; return the future of its outcome."""
        try:
            reference = self._remote.remote(versions(), work, task)
            future: Future[Any] = reference.future()
        except (self._ray.exceptions.RayError, ConnectionError) as error:
            raise self.travel_error(error) from None
        self._sent[future] = reference
        future.add_done_callback(lambda ended: self._sent.pop(ended, None))
        return future

    def travel_error(self, error: BaseException) -> Exception:
        errors = self._ray.exceptions
        if isinstance(error, errors.RayError | ConnectionError) and not isinstance(error, errors.RayTaskError):
            return WorkerError(
                f"workers: Ray is gone or refuses work ({type(error).__name__}); what is finished is kept, run again"
            )
        return super().travel_error(getattr(error, "cause", error))

    def kill_workers(self) -> None:
        """Cancel all tasks under way."""
        if self._open and self._ray.is_initialized():
            with contextlib.suppress(self._ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError):
                for reference in list(self._sent.values()):
                    self._ray.cancel(reference, force=True)

    def close(self) -> None:
        if self._open and self._joined:
            self._ray.shutdown()
        self._open = False


def _join_cluster(ray: Any, address: str, cores: int | None, environment: dict[str, Any]) -> None:
    """Join the Ray cluster at an address; "auto": the one on this machine or else a new one; "local": a new one."""
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
            _join_cluster(ray, "local", cores, environment)
            return
        if address == "local":
            raise WorkerError(f"workers: Ray does not start on this machine ({type(error).__name__})") from None
        raise InputError(
            f"workers: no Ray cluster answers at {address} ({type(error).__name__}); check host and port (Ray's client "
            f"server listens on {PORT}), that both ends have {INSTALL} with the same versions of Ray and Python, and "
            "RAY_AUTH_TOKEN if the cluster asks for one; or use workers='processes'"
        ) from None
