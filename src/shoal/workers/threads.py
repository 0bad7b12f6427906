"""One thread per worker: many processes with many threads each would fight for the same cores.

It is also what makes results the same everywhere: BLAS and OpenMP add in an order that depends on their threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

#: Read by BLAS and OpenMP libraries when they are loaded.
LIBRARIES = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
#: All that a worker must find in its environment before it imports anything.
ONE_THREAD = {**LIBRARIES, "SHOAL_THREADS": "1", "NUMBA_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}


@contextlib.contextmanager
def one_library_thread() -> Iterator[None]:
    """In this process: BLAS and OpenMP on one thread, those loaded already and those loaded inside.

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
