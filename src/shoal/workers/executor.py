"""One interface for all places where tasks run. A task is a function of a module and one small argument.

The function is pure and the argument names files rather than holding arrays, so that a task can run anywhere, and again
after its worker has died. Which executor runs it never changes what it returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import call
from typing import Any, Self, TypeVar

from shoal.errors import InputError
from shoal.workers.ticks import listening

Task = TypeVar("Task")
Result = TypeVar("Result")

#: A task that has ended this many workers is given up.
TRIES = 3


@dataclass(frozen=True)
class Failure:
    """A task that could not be done, and why; the others are not affected."""

    message: str
    died: bool = False  #: its workers died: nothing is known to be wrong with the task itself
    unreachable: bool = False  #: a guarantee that cannot be met, which concerns more than this task


class Executor(ABC):
    """Runs a function over many tasks. Used in a ``with`` statement, which ends its workers."""

    #: How many tasks run at the same time.
    workers: int

    @abstractmethod
    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result | Failure]]:
        """Yield (position of the task, its result or failure) as tasks end, each exactly once.

        A ``ShoalError`` of a task is a ``Failure``, as is a task that ends its worker ``TRIES`` times. A full disk is
        raised, because it concerns every task; so is any other exception, as a ``TaskError``, because it is a bug.
        """

    def every(
        self, works: Sequence[Callable[[], Result]], heard: Callable[[float], None] = lambda _: None
    ) -> list[Result]:
        """Call all functions and return their results in order; the first failure is raised.

        ``heard`` is called with the number of functions done.
        """
        results: dict[int, Result] = {}
        with listening(lambda share: heard(len(results) + min(share, 1.0))):
            for position, result in self.run(call, works):
                if isinstance(result, Failure):
                    raise InputError(result.message)
                results[position] = result
                heard(len(results))
        return [results[position] for position in range(len(works))]

    def expect(self, shards: int) -> None:
        """Prepare for a run of so many shards, before its tasks come."""
        return

    @abstractmethod
    def close(self) -> None:
        """End the workers. An executor can be closed twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def died(times: int) -> Failure:
    """Describe a task whose workers died so many times."""
    text = f"the worker died {times} times on this task; out of memory? Use fewer workers or smaller shards"
    return Failure(text, died=True)


def open_executor(workers: str = "auto", cores: int | None = None) -> Executor:
    """Open "serial", "processes", "ray", "ray://host:port" or "auto", with ``cores`` tasks at a time.

    "auto" is "processes" for a run of several shards where more than one core may be used, otherwise "serial".
    """
    from shoal.numerics.threads import n_threads
    from shoal.validation import count
    from shoal.workers.processes import Processes
    from shoal.workers.serial import Auto, Serial

    wanted = None if cores is None else count(cores=cores)
    word: Any = workers
    if word == "serial":
        return Serial()
    if word in ("auto", "processes"):
        local = Processes(wanted or n_threads())
        return local if word == "processes" else Auto(local)
    if isinstance(word, str) and (word == "ray" or word.startswith("ray://")):
        from shoal.workers.cluster import Cluster

        return Cluster(word, wanted)
    raise InputError("workers must be one of: serial, processes, ray, ray://host:port, auto")
