"""Tasks for the tests of executors: functions of one argument that any worker can import."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import shoal
from shoal.numerics.threads import ONE_THREAD

SECRET = "8675309"


@dataclass(frozen=True)
class Errand:
    number: int
    seconds: float = 0.0
    folder: str = ""


def square(errand: Errand) -> int:
    time.sleep(errand.seconds)
    return errand.number**2


def arithmetic(errand: Errand) -> str:
    """A digest of linear algebra and random numbers, seeded by the task."""
    import numpy as np
    import scipy.linalg

    rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(errand.number,)))
    a = rng.standard_normal((300, 300))
    content = np.concatenate([(a @ a.T).ravel(), scipy.linalg.eigvalsh(a @ a.T), a.sum(axis=0)])
    return hashlib.sha256(content.tobytes()).hexdigest()


def settings(_: Errand) -> dict[str, str | int | None]:
    """Thread settings as a worker and the libraries in it see them."""
    import numba
    import numpy as np
    import polars as pl
    from threadpoolctl import threadpool_info

    from shoal.numerics.threads import n_threads

    np.ones((2, 2)) @ np.ones((2, 2))
    variables: dict[str, str | int | None] = {name: os.environ.get(name) for name in ONE_THREAD}
    blas = max(entry["num_threads"] for entry in threadpool_info())
    return variables | {
        "shoal": n_threads(),
        "numba": numba.config.NUMBA_NUM_THREADS,
        "polars": pl.thread_pool_size(),
        "blas": blas,
    }


def refuse_odd(errand: Errand) -> int:
    if errand.number % 2:
        raise shoal.InputError(f"shard {errand.number} is refused")
    return errand.number


def exhaust(errand: Errand) -> int:
    raise MemoryError


def fill_disk(errand: Errand) -> int:
    if errand.number == 2:
        raise shoal.StorageError("the disk is full")
    return errand.number


def fail(errand: Errand) -> int:
    if errand.number == 2:
        raise KeyError(SECRET)
    return errand.number


def unpicklable(errand: Errand) -> object:
    return lambda: errand


def die_at_three(errand: Errand) -> int:
    if errand.number == 3:
        (Path(errand.folder) / f"{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return errand.number


def die_once(errand: Errand) -> int:
    """Ends its worker the first time it runs."""
    mark = Path(errand.folder) / str(errand.number)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return errand.number


def present(errand: Errand) -> int:
    """Leaves its process id, stays a while."""
    (Path(errand.folder) / f"{os.getpid()}").touch()
    time.sleep(errand.seconds)
    return errand.number


def process(_: Errand) -> int:
    """Where a task runs."""
    return os.getpid()
