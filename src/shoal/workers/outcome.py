"""The outcome of a task, as a value that crosses a process boundary without carrying data it should not.

An exception of a library can quote readings in its text. What leaves a worker is therefore the text of errors that
shoal raises on purpose, and of all others only the type and the lines of code.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, TypeVar

from shoal.errors import ShoalError, StorageError, UnreachableError
from shoal.workers.executor import Failure

Task = TypeVar("Task")

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
