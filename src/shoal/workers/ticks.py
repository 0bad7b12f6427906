"""How far a task is: heard where the task runs in the driver's own process, and by nobody elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

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
    """For a task to call now and then."""
    if _listeners and total > 0:
        _listeners[-1](done / total)
