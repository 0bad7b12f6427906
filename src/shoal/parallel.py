"""Blocks of work on the machine's cores. Kernels release the GIL, so threads are enough.

How work is spread never changes a result: blocks are fixed, and they are combined in order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")
#: Called with (done, total) as work proceeds.
Progress = Callable[[int, int], None]


def n_threads() -> int:
    """Threads to use: the environment variable SHOAL_THREADS, or the cores this process may run on."""
    wanted = os.environ.get("SHOAL_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def map_blocks(
    work: Callable[[slice], Result], n_items: int, block: int, progress: Progress | None = None
) -> Iterator[Result]:
    """Apply ``work`` to consecutive slices of at most ``block`` items; yield the results in order.

    At most a few results wait in memory at a time.
    """
    slices = [slice(start, min(start + block, n_items)) for start in range(0, n_items, block)]
    threads = min(n_threads(), len(slices))
    if threads <= 1:
        for part in slices:
            yield work(part)
            if progress is not None:
                progress(part.stop, n_items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting = []
        ahead = iter(slices)
        for part in ahead:
            waiting.append((part, pool.submit(work, part)))
            if len(waiting) < 2 * threads:
                continue
            done, future = waiting.pop(0)
            yield future.result()
            if progress is not None:
                progress(done.stop, n_items)
        for done, future in waiting:
            yield future.result()
            if progress is not None:
                progress(done.stop, n_items)
