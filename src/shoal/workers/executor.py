"""One interface for all places where tasks run. A task is a function of a module and one small argument.

The function is pure and the argument names files rather than holding arrays, so that a task can run anywhere, and again
after its worker has died. Which executor runs it never changes what it returns.

What a task came to is a value that crosses a process boundary. An exception of a library can quote readings in its
text: what leaves a worker is therefore the text of errors that shoal raises on purpose, and of all others only the type
and the lines of code.
"""

from __future__ import annotations

import contextlib
import errno
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import call
from pathlib import PurePath
from typing import Any, Self, TypeVar

from shoal.errors import InputError, ShoalError, StorageError, UnreachableError
from shoal.numerics.threads import one_library_thread

#: Who hears how far the task under way in this process is; a task elsewhere is heard by nobody.
_listeners: list[Callable[[float], None]] = []


@contextlib.contextmanager
def listening(hear: Callable[[float], None]) -> Iterator[None]:
    """``hear`` is called with the share done, between 0 and 1, of the task under way in this process."""
    _listeners.append(hear)
    try:
        yield
    finally:
        _listeners.remove(hear)


def tick(done: float, total: float) -> None:
    """Tell the listener how far this task is; for a task to call now and then."""
    if _listeners and total > 0:
        _listeners[-1](done / total)


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


#: Innermost lines of code shown of a bug.
LINES = 6


class TaskError(RuntimeError):
    """A bug in a task: which exception, and where in the code. Its text is left out, since it may hold data."""


def attempt(work: Callable[[Task], Any], task: Task) -> Any:
    """Run one task; its result, a ``Failure``, or as a value the exception that ends the run."""
    try:
        return work(task)
    except StorageError as error:
        return StorageError(str(error))
    except ShoalError as error:
        return Failure(str(error), unreachable=isinstance(error, UnreachableError))
    except MemoryError:
        return Failure("the memory is not enough for this task; use fewer workers or smaller shards")
    except Exception as error:  # noqa: BLE001 - the boundary: a bug is raised in the driver, by settled()
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            return StorageError("the disk is full; make room and run again, what is finished is kept")
        return TaskError(described(error))


def settled(outcome: Any) -> Any:
    """In the driver: return the result or ``Failure``, or raise the exception that ends the run."""
    if isinstance(outcome, StorageError | TaskError):
        raise outcome
    return outcome


def described(error: BaseException) -> str:
    """The type of an exception and where it was raised, without its text."""
    reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    frames = traceback.extract_tb(error.__traceback__)[-LINES:]
    places = "; ".join(f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    return f"a task ended with {type(error).__name__}{reason} at {places or 'an unknown place'}"


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
