"""Tasks in processes of this machine. Each worker has its own socket, so that a death concerns one task only.

Workers are started afresh rather than forked, because the threads of Numba and Polars do not survive a fork. A worker
holds one task at a time: never more tasks are under way than there are workers, and when one is killed it is known
whose task has to be run again.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from shoal.errors import WorkerError
from shoal.numerics.threads import ONE_THREAD
from shoal.workers.executor import TRIES, Executor, Failure, Result, Task, died
from shoal.workers.outcome import settled
from shoal.workers.worker import READY

#: Workers that may die in a row before one of them has come up.
STARTS = 10
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from shoal.workers.worker import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)


class _Worker:
    """A process, the socket to it, and the task it has."""

    def __init__(self, alive: int) -> None:
        self.socket, theirs = Pipe()
        handles = (theirs.fileno(), alive)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOT, json.dumps(sys.path), *map(str, handles)],
                env={**os.environ, **ONE_THREAD},
                pass_fds=handles,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # standard output belongs to the driver's results
                process_group=0,  # Ctrl-C is for the driver, which ends its workers
            )
        finally:
            theirs.close()
        self.ready = False
        self.task: int | None = None

    def give(self, index: int, message: bytes) -> bool:
        """Hand over a task; False if the worker is gone."""
        try:
            self.socket.send_bytes(message)
        except OSError:
            return False
        self.task = index
        return True

    def hear(self) -> bytes | None:
        """What the worker says; None if it has died."""
        try:
            return self.socket.recv_bytes()
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.close()


class Processes(Executor):
    """``workers`` processes, started when they are first needed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._staff: list[_Worker] = []
        # Workers hold the reading end; the writing end closes with this process, however it ends.
        self._alive: tuple[int, int] | None = os.pipe()
        self._running = False

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result | Failure]]:
        if self._running or self._alive is None:
            raise RuntimeError("this executor is closed, or already running tasks")
        if getattr(work, "__module__", "") == "__main__":
            raise TypeError("work must be a function of a module that a worker can import, not of the main script")
        self._running = True
        ahead, again = iter(range(len(tasks))), deque[int]()
        deaths: Counter[int] = Counter()
        left, starts = len(tasks), 0
        answers: list[tuple[int, Any]] = []
        try:
            while left:
                self._recruit(min(self.workers, left))
                self._feed(work, tasks, ahead, again)
                for answer in answers:  # workers have their next task before the driver handles an answer
                    left -= 1
                    yield answer
                answers = []
                if not left:
                    break
                for worker in self._heard():
                    message = worker.hear()
                    index, worker.task = worker.task, None
                    if message is None:
                        self._dismiss(worker)
                        if index is not None:
                            deaths[index] += 1
                            if deaths[index] < TRIES:
                                again.append(index)
                            else:
                                answers.append((index, died(TRIES)))
                        elif not worker.ready:
                            starts += 1
                            if starts >= STARTS:
                                raise WorkerError(f"workers: {STARTS} worker processes in a row did not start")
                    elif index is not None:
                        answers.append((index, settled(pickle.loads(message))))
                    else:
                        worker.ready, starts = message == READY, 0
        finally:
            for worker in [worker for worker in self._staff if worker.task is not None]:
                self._dismiss(worker)
            self._running = False

    def close(self) -> None:
        for worker in list(self._staff):
            self._dismiss(worker)
        if self._alive is not None:
            for handle in self._alive:
                os.close(handle)
            self._alive = None

    def _recruit(self, wanted: int) -> None:
        """Start workers until there are as many as wanted."""
        if self._alive is None:
            raise RuntimeError("this executor is closed")
        while len(self._staff) < wanted:
            self._staff.append(_Worker(self._alive[0]))

    def _feed(self, work: Callable[[Any], Any], tasks: Sequence[Any], ahead: Iterator[int], again: deque[int]) -> None:
        """Give every idle worker a task, first those whose worker has died."""
        for worker in [worker for worker in self._staff if worker.ready and worker.task is None]:
            index = again.popleft() if again else next(ahead, None)
            if index is None:
                return
            if not worker.give(index, pickle.dumps((work, tasks[index]), pickle.HIGHEST_PROTOCOL)):
                again.appendleft(index)
                self._dismiss(worker)

    def _heard(self) -> list[_Worker]:
        """Wait until a worker that owes an answer has said something or died."""
        owing: dict[Connection, _Worker] = {
            worker.socket: worker for worker in self._staff if worker.task is not None or not worker.ready
        }
        return [owing[socket] for socket in wait(list(owing)) if isinstance(socket, Connection)]

    def _dismiss(self, worker: _Worker) -> None:
        with contextlib.suppress(ValueError):
            self._staff.remove(worker)
        worker.end()
