"""How hard to search, and what ends a search: its deadline or an interrupt, with the best so far."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic

from shoal.mechanism.mechanism import Ending

#: Called with (rounds, rounds at most, best ln δ so far); rounds of one search take about equally long.
Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Settings:
    """How hard to search. Speed settings: none of them can change what a certificate means.

    ``deadline`` is a time of the monotonic clock after which every search returns its best so far; an interrupt does
    the same to this search and to all that would follow it, unless ``interruptible``: then it goes through.
    ``iterations`` bounds the steps of every stage; without it a stage has as many as its size deserves.
    """

    iterations: int | None = None
    deadline: float = math.inf
    report: Report | None = None
    seed: int = 0
    interrupted: threading.Event = field(default_factory=threading.Event)
    interruptible: bool = False

    @property
    def late(self) -> bool:
        return self.interrupted.is_set() or monotonic() > self.deadline

    @property
    def ending(self) -> Ending:
        """How the searches that had these settings ended."""
        if self.interrupted.is_set():
            return Ending.INTERRUPTED
        return Ending.OUT_OF_TIME if self.late else Ending.COMPLETE

    def part(self, share: float) -> Settings:
        """These settings with a share of the time that is left."""
        now = monotonic()
        return replace(self, deadline=now + share * max(self.deadline - now, 0.0))

    def steps(self, usual: int) -> int:
        """Steps of a stage that usually has so many."""
        return usual if self.iterations is None else self.iterations

    @contextlib.contextmanager
    def interrupts(self) -> Iterator[None]:
        """An interrupt of the work inside ends it and sets the event, or goes through."""
        try:
            yield
        except KeyboardInterrupt:
            if self.interruptible:
                raise
            self.interrupted.set()


#: No deadline, and interrupts go through.
UNHURRIED = Settings(interruptible=True)
