"""The one way functions are compiled: cached on disk, GIL released, plain IEEE arithmetic.

No fast-math, except that long sums may be told to be ``summing``; and a division by zero gives an infinity instead of
an exception, as it does in NumPy.

Numba's cache notices when a function's own file changes, not when a kernel that it calls from another file does. A
stale kernel would give wrong figures, so the cache is dropped as a whole whenever a source file of the package has
changed since it was filled. The rooms at the edge do not count: they hold no kernel, and nothing below imports them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

PACKAGE = Path(__file__).parent
#: Rooms without kernels that no room with kernels may import from (ARCHITECTURE.md; a test checks both).
EDGE = ("card", "cli", "ledger", "runs", "workers")


def kernel(function: Function) -> Function:
    """Compile on first call; later processes load the result from the cache."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: Function) -> Function:
    """The same for a few operations that must not cost a call."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", inline="always")(function))


def summing(function: Function) -> Function:
    """The same for inner products and recursions over a series: sums in any order, multiply and add in one rounding.

    What the order is depends on the machine, as it does in BLAS, never on the run; infinities and NaN are respected.
    Not for anything that a privacy figure rests on.
    """
    compiler = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
    return cast(Function, compiler(function))


def drop_stale_kernels(package: Path = PACKAGE) -> bool:
    """Remove cached kernels if a source file of the package is not the one they were compiled from.

    Returns whether they were removed. A folder that cannot be written to holds no cache of ours: Numba then keeps it in
    the user's own folder, keyed by the installed files, which only a new installation replaces.
    """
    state = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        if source.relative_to(package).parts[0] in EDGE:
            continue
        found = source.stat()
        state.update(f"{source.relative_to(package)}:{found.st_mtime_ns}:{found.st_size};".encode())
    stamp = package / "__pycache__" / "kernels.stamp"
    with contextlib.suppress(OSError):
        if stamp.read_text() == state.hexdigest():
            return False
    try:
        for index in package.rglob("*.nbi"):
            index.unlink(missing_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        fresh = stamp.with_suffix(f".{os.getpid()}")
        fresh.write_text(state.hexdigest())
        fresh.replace(stamp)
    except OSError:
        return False
    return True


drop_stale_kernels()
