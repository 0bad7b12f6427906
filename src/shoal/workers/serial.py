"""Tasks one after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shoal.threads import one_library_thread
from shoal.workers.executor import Executor, Failure, Result, Task
from shoal.workers.outcome import attempt, settled


class Serial(Executor):
    """No workers: what a task does to memory and files, it does here."""

    name = "serial"
    workers = 1

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result | Failure]]:
        for index in range(len(tasks)):
            with one_library_thread():
                outcome = attempt(work, tasks[index])
            yield index, settled(outcome)

    def close(self) -> None:
        return
