"""The one way functions are compiled: cached on disk, GIL released, IEEE arithmetic kept (no fast-math)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on first call; later processes load the result from the cache."""
    return cast(Function, njit(cache=True, nogil=True, fastmath=False)(function))


def inlined(function: Function) -> Function:
    """The same for a few operations that must not cost a call."""
    return cast(Function, njit(cache=True, nogil=True, fastmath=False, inline="always")(function))
