"""The one way functions are compiled: cached on disk, GIL released, plain IEEE arithmetic.

No fast-math, and a division by zero gives an infinity instead of an exception, as it does in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on first call; later processes load the result from the cache."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: Function) -> Function:
    """The same for a few operations that must not cost a call."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", inline="always")(function))
