"""Tasks in processes of this machine: a pool of ``concurrent.futures``, and a fresh one whenever a worker has died.

Workers are started afresh rather than forked, because the threads of Numba and Polars do not survive a fork. The pool
does not say whose worker died. All tasks under way then count one death and run again one by one, where every further
death is their own: a task ends at most ``TRIES`` workers, and no task is given up for what another one did.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import types
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from shoal.numerics.threads import ONE_THREAD
from shoal.workers.executor import TRIES, Executor, Failure, Result, Task, TaskError, attempt, described, died, settled

#: Seconds after which the driver looks for Ctrl-C, on systems where that does not end a wait.
LOOK = 0.5
_NOT_TRAVELING = (pickle.PickleError, AttributeError, ImportError, TypeError, ValueError, EOFError, RecursionError)


class Processes(Executor):
    """``workers`` processes, started when they are first needed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: _Pool | None = None
        self._open, self._running = True, False

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result | Failure]]:
        if self._running or not self._open:
            raise RuntimeError("this executor is closed, or already running tasks")
        if getattr(work, "__module__", "") == "__main__":
            raise TypeError("work must be a function of a module that a worker can import, not of the main script")
        self._running = True
        waiting, alone = deque(range(len(tasks))), deque[int]()
        deaths: Counter[int] = Counter()
        flying: dict[Future[bytes], int] = {}
        answers: list[tuple[int, Any]] = []
        try:
            while waiting or alone or flying or answers:
                if alone and not flying:
                    flying |= self._sent(work, tasks, alone.popleft())
                while waiting and not alone and not deaths.keys() & flying.values() and len(flying) < self.workers:
                    flying |= self._sent(work, tasks, waiting.popleft())
                yield from answers  # workers have their next task before the driver handles an answer
                answers = []
                for future in wait(flying, LOOK, FIRST_COMPLETED).done:
                    position = flying.pop(future)
                    try:
                        answers.append((position, settled(pickle.loads(future.result()))))
                    except BrokenProcessPool:
                        self._end()
                        deaths[position] += 1
                        if deaths[position] < TRIES:
                            alone.append(position)
                        else:
                            answers.append((position, died(TRIES)))
        finally:
            if flying:
                self._end()
            self._running = False

    def close(self) -> None:
        self._open = False
        self._end()

    def _sent(self, work: Callable[[Any], Any], tasks: Sequence[Any], position: int) -> dict[Future[bytes], int]:
        """Hand a task to the pool, or to a fresh one where a worker has died meanwhile."""
        message = pickle.dumps((work, tasks[position]), pickle.HIGHEST_PROTOCOL)
        while True:
            self._pool = self._pool or _Pool(self.workers)
            with contextlib.suppress(BrokenProcessPool):
                return {self._pool.submit(_answer, message): position}
            self._end()

    def _end(self) -> None:
        """End the workers at once, whatever they do."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.end()


class _Worker(SpawnProcess):
    """A process that Ctrl-C does not reach and that does not import the driver's main script."""

    def start(self) -> None:
        main, masked = sys.modules["__main__"], hasattr(signal, "pthread_sigmask")
        sys.modules["__main__"] = types.ModuleType("__main__")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if masked else set()
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main
            if masked:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    """Starts workers of a pool and remembers them."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[_Worker] = []

    def Process(self, *args: Any, **settings: Any) -> _Worker:  # type: ignore[override]
        self.started.append(_Worker(*args, **settings))
        return self.started[-1]


class _Pool(ProcessPoolExecutor):
    def __init__(self, workers: int) -> None:
        self._context = _Context()
        super().__init__(workers, self._context, _begin)

    def end(self) -> None:
        for worker in self._context.started:
            with contextlib.suppress(ValueError):  # closed already
                worker.kill()
        self.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """In a new worker, before it loads anything: one thread, no output, an end with the driver, however that dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(ONE_THREAD)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - standard output belongs to the driver's results
    os.dup2(sys.stdout.fileno(), 1)
    threading.Thread(target=_end_with_driver, daemon=True).start()


def _end_with_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
    os._exit(1)


def _answer(message: bytes) -> bytes:
    """The pickled outcome of a pickled (function, argument)."""
    try:
        work, task = pickle.loads(message)
    except _NOT_TRAVELING as error:
        return pickle.dumps(TaskError(f"a task does not arrive in its worker: {described(error)}"))
    try:
        return pickle.dumps(attempt(work, task), pickle.HIGHEST_PROTOCOL)
    except _NOT_TRAVELING as error:
        return pickle.dumps(TaskError(f"what a task returns does not travel: {described(error)}"))
