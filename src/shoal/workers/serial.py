"""Tasks one after the other, in this process; or in others, once a run has several shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shoal.numerics.threads import one_library_thread
from shoal.workers.executor import Executor, Failure, Result, Task
from shoal.workers.outcome import attempt, settled


class Serial(Executor):
    """No workers: what a task does to memory and files, it does here."""

    workers = 1

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result | Failure]]:
        for position in range(len(tasks)):
            with one_library_thread():
                outcome = attempt(work, tasks[position])
            yield position, settled(outcome)

    def close(self) -> None:
        return


class Auto(Executor):
    """In this process while a run has one shard, whose start costs nothing; in others once it has more."""

    def __init__(self, others: Executor) -> None:
        self._others, self._here, self._many = others, Serial(), False
        self.workers = others.workers

    def expect(self, shards: int) -> None:
        self._many = shards > 1 and self._others.workers > 1

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result | Failure]]:
        return (self._others if self._many and len(tasks) > 1 else self._here).run(work, tasks)

    def close(self) -> None:
        self._others.close()
