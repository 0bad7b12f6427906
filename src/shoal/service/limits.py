"""How much may be asked: bytes of a body, and requests of a key or an address."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

#: Bytes of a body.
BODY = 64 * 1024
#: Callers that are remembered.
CALLERS = 10_000


class Pace:
    """A bucket of tokens per caller: ``rate`` requests a second, ``burst`` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, caller: str) -> bool:
        """Take a token, if there is one.

        >>> pace = Pace(rate=0.001, burst=2)
        >>> [pace.allows("a"), pace.allows("a"), pace.allows("a"), pace.allows("b")]
        [True, True, False, True]
        """
        instant = time.monotonic()
        with self._lock:
            left, before = self._left.pop(caller, (self._burst, instant))
            left = min(left + (instant - before) * self._rate, self._burst)
            allowed = left >= 1.0
            self._left[caller] = (left - 1.0 if allowed else left, instant)
            if len(self._left) > CALLERS:
                self._left.popitem(last=False)
        return allowed
