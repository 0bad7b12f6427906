"""The one place that knows how many threads there are: how work is spread over them, and how workers keep to one.

Kernels release the GIL, so threads are enough inside a process; where there are many processes, each keeps to one. How
work is spread never changes a result: blocks are fixed and combined in order. BLAS and OpenMP add in an order that
depends on their threads: in a worker they keep to one too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")
#: Called with (done, total) as work proceeds.
Progress = Callable[[int, int], None]

#: Read by BLAS and OpenMP libraries when they are loaded.
NAMES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
LIBRARIES = dict.fromkeys(NAMES, "1")
#: All that a worker must find in its environment before it imports anything.
ONE_THREAD = {**LIBRARIES, "SHOAL_THREADS": "1", "NUMBA_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}


def n_threads() -> int:
    """Return the number of threads to use: the environment variable SHOAL_THREADS, or the cores of this process."""
    wanted = os.environ.get("SHOAL_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def map_batches(
    work: Callable[[slice], Result], n_items: int, block: int, progress: Progress | None = None
) -> Iterator[Result]:
    """Apply ``work`` to consecutive slices of at most ``block`` items; yield the results in order.

    At most a few results wait in memory at a time.
    """
    slices = [slice(start, min(start + block, n_items)) for start in range(0, n_items, block)]
    threads = min(n_threads(), len(slices))
    with ThreadPoolExecutor(threads) if threads > 1 else contextlib.nullcontext() as pool:
        waiting: list[Future[Result]] = []
        for number, part in enumerate(slices):
            if pool is not None:
                ahead = slices[number + len(waiting) : number + 2 * threads]
                waiting += [pool.submit(work, later) for later in ahead]
            yield work(part) if pool is None else waiting.pop(0).result()
            if progress is not None:
                progress(part.stop, n_items)


@contextlib.contextmanager
def one_library_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP on one thread inside the block, those loaded already and those loaded inside.

    Numba and Polars cannot change their threads once loaded, and shoal's own never change a result: they stay.
    """
    from threadpoolctl import threadpool_limits

    before = {name: os.environ.get(name) for name in LIBRARIES}
    os.environ.update(LIBRARIES)
    try:
        with threadpool_limits(1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
