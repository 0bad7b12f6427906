"""What a task came to, as a value that crosses a process boundary without carrying data it should not.

An exception of a library can quote readings in its text. What leaves a worker is therefore the text of errors that
shoal raises on purpose, and of all others only the type and the lines of code.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, TypeVar

from shoal.errors import ShoalError, StorageError, UnreachableError
from shoal.workers.executor import Failure

Task = TypeVar("Task")

#: Innermost lines of code shown of a bug.
LINES = 6


class TaskError(RuntimeError):
    """A bug in a task: which exception, and where in the code. Its text is left out, since it may hold data."""


@dataclass(frozen=True)
class Outcome:
    """``done`` with a value; or the text of what went wrong: for this task, for all tasks, or in the code."""

    kind: Literal["done", "failed", "unreachable", "disk", "bug"]
    value: Any


def attempt(work: Callable[[Task], Any], task: Task) -> Outcome:
    """Run one task, whatever comes of it."""
    try:
        return Outcome("done", work(task))
    except StorageError as error:
        return Outcome("disk", str(error))
    except UnreachableError as error:
        return Outcome("unreachable", str(error))
    except ShoalError as error:
        return Outcome("failed", str(error))
    except MemoryError:
        return Outcome("failed", "the memory is not enough for this task; use fewer workers or smaller shards")
    except Exception as error:  # noqa: BLE001 - the boundary: a bug is raised in the driver, by settled()
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Outcome("disk", "the disk is full; make room and run again, what is finished is kept")
        return Outcome("bug", described(error))


def settled(outcome: Outcome) -> Any:
    """In the driver: the value, a ``Failure``, or the exception that ends the run."""
    if outcome.kind == "done":
        return outcome.value
    if outcome.kind in ("failed", "unreachable"):
        return Failure(outcome.value, unreachable=outcome.kind == "unreachable")
    if outcome.kind == "disk":
        raise StorageError(outcome.value)
    raise TaskError(outcome.value)


def described(error: BaseException) -> str:
    """The type of an exception and where it was raised, without its text."""
    reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
    frames = traceback.extract_tb(error.__traceback__)[-LINES:]
    places = "; ".join(f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
    return f"a task ended with {type(error).__name__}{reason} at {places or 'an unknown place'}"
