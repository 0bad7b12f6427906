"""One validator idea: the keyword becomes the name in the message, ``positive(rho=rho)``.

Each function checks one value and returns it in the type the rest of the library works with. Nothing here
prints the value itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
IndexArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]


def _only_keyword(named: dict[str, Any]) -> tuple[str, Any]:
    """Return name and value of the one keyword argument."""
    ((name, value),) = named.items()
    return name, value


def real(**named: Any) -> float:
    """Return a finite number."""
    name, value = _only_keyword(named)
    if value is None or np.asarray(value).dtype.kind in "bSUc":
        raise InputError(f"{name} must be a number", argument=name)
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number", argument=name) from error
    if not math.isfinite(number):
        raise InputError(f"{name} must be finite", argument=name)
    return number


def positive(**named: Any) -> float:
    """Return a finite number above zero."""
    name, value = _only_keyword(named)
    number = real(**{name: value})
    if number <= 0:
        raise InputError(f"{name} must be above 0", argument=name)
    return number


def non_negative(**named: Any) -> float:
    """Return a finite number that is not below zero."""
    name, value = _only_keyword(named)
    number = real(**{name: value})
    if number < 0:
        raise InputError(f"{name} must not be negative", argument=name)
    return number


def probability(*, below_one: bool = False, above_zero: bool = False, **named: Any) -> float:
    """Return a number in [0, 1], with either end left out on request."""
    name, value = _only_keyword(named)
    number = real(**{name: value})
    low, high = ("(" if above_zero else "["), (")" if below_one else "]")
    if number < 0 or number > 1 or (below_one and number == 1) or (above_zero and number == 0):
        raise InputError(f"{name} must lie in {low}0, 1{high}", argument=name)
    return number


def count(*, at_least: int = 1, **named: Any) -> int:
    """Return a whole number of at least ``at_least``."""
    name, value = _only_keyword(named)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{name} must be a whole number", argument=name)
    if value < at_least:
        raise InputError(f"{name} must be at least {at_least}", argument=name)
    return int(value)


def choice(options: Sequence[str], **named: Any) -> str:
    """Return one of a fixed set of words."""
    name, value = _only_keyword(named)
    if not isinstance(value, str) or value not in options:
        raise InputError(f"{name} must be one of {', '.join(map(repr, options))}", argument=name)
    return value


def array(*, ndim: int | tuple[int, ...], finite: bool = True, **named: Any) -> FloatArray:
    """Return a new float64 array with one of the given numbers of dimensions; finite unless ``finite`` is False."""
    name, value = _only_keyword(named)
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    try:
        given = np.asarray(value)
        text = given.dtype.kind in ("SUcb" if 0 in allowed else "SUc") or (
            given.dtype.kind == "O" and any(isinstance(one, (str, bytes)) for one in given.flat)
        )
        result = np.zeros(given.shape) if text else np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers with equal row lengths", argument=name) from error
    if text:
        raise InputError(f"{name} must be a number, or numbers, and not text", argument=name)
    if result.ndim not in allowed:
        wanted = " or ".join(str(d) for d in allowed)
        raise InputError(f"{name} must have {wanted} dimension(s), got shape {result.shape}", argument=name)
    if finite and not np.isfinite(result).all():
        raise InputError(f"{name} must be finite: it contains NaN or infinite entries", argument=name)
    return result


def grid(*, at_least: float | None = 0.0, **named: Any) -> tuple[FloatArray, bool]:
    """Return a number or a 1-D array of numbers as an array, and whether it was a single number."""
    name, value = _only_keyword(named)
    values = array(ndim=(0, 1), **{name: value})
    scalar = values.ndim == 0
    values = np.atleast_1d(values)
    if values.size == 0:
        raise InputError(f"{name} must hold at least one value", argument=name)
    if at_least is not None and (values < at_least).any():
        raise InputError(f"{name} must be at least {at_least:g}", argument=name)
    return values, scalar


def by_label(names: Sequence[str], **named: Any) -> Any:
    """Return the values of a mapping from labels, in the order of their ``names``; anything else as it is."""
    name, value = _only_keyword(named)
    if not isinstance(value, Mapping):
        return value
    known = {str(key): one for key, one in value.items()}
    if set(known) != set(names):
        raise InputError(f"{name} must name every label exactly once", argument=name)
    return [known[one] for one in names]


def labels(n: int, value: Sequence[Any] | None, **_: Any) -> tuple[str, ...]:
    """Return unique label strings, ``"0" .. "n-1"`` by default."""
    if value is None:
        return tuple(str(i) for i in range(n))
    if isinstance(value, (str, bytes)):
        raise InputError("labels must be a sequence of strings, not one string", argument="labels")
    result = tuple(str(v) for v in value)
    if len(result) != n:
        raise InputError(f"labels must hold one entry per class: expected {n}, got {len(result)}")
    if len(set(result)) != len(result):
        raise InputError("labels must be unique: at least one label occurs twice", argument="labels")
    return result
