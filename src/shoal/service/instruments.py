"""What the service tells about itself: counts and times for Prometheus, and one line of JSON per request.

Series and lines know routes, statuses and roles: no question, handle, analyst, answer or address.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TextIO

#: Upper ends of the buckets of response times, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0)


class Instruments:
    """Counts since the start."""

    def __init__(self, log: TextIO | None = None) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._times: Counter[float] = Counter()
        self._seconds = 0.0
        self._begun = time.time()
        self._log = log

    def count(self, method: str, route: str, status: int, seconds: float, role: str) -> None:
        """Count a request and write its line."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._times[next((end for end in BUCKETS if seconds <= end), float("inf"))] += 1
            self._seconds += seconds
        self.line("request", method=method, route=route, status=status, ms=round(1000 * seconds, 1), role=role)

    def line(self, event: str, **facts: object) -> None:
        """One line of JSON on the log."""
        if self._log is not None:
            stamped = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
            print(json.dumps(stamped), file=self._log, flush=True)

    def exposition(self, entries: int) -> str:
        """The text that Prometheus reads; ``entries`` is how many the ledger holds."""
        with self._lock:
            requests, times, seconds = dict(self._requests), dict(self._times), self._seconds
        lines = ["# TYPE shoal_requests_total counter"]
        for (method, route, status), count in sorted(requests.items()):
            lines.append(f'shoal_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}')
        lines.append("# TYPE shoal_request_seconds histogram")
        below = 0
        for end in (*BUCKETS, float("inf")):
            below += times.get(end, 0)
            lines.append(f'shoal_request_seconds_bucket{{le="{"+Inf" if end == float("inf") else end}"}} {below}')
        lines += [f"shoal_request_seconds_sum {seconds:.6f}", f"shoal_request_seconds_count {below}"]
        lines += ["# TYPE shoal_ledger_entries gauge", f"shoal_ledger_entries {entries}"]
        lines += ["# TYPE shoal_start_time_seconds gauge", f"shoal_start_time_seconds {self._begun:.0f}"]
        return "\n".join(lines) + "\n"


def standard_log() -> Instruments:
    """Instruments that write to standard error."""
    return Instruments(sys.stderr)
