"""Dataclasses as JSON and back: the one codec of the package; and records of shards, which merge.

:func:`to_plain` makes what JSON knows of any dataclass, :func:`from_plain` makes the dataclass again and refuses
whatever its annotations do not allow. A :class:`Record` has both as methods. A record of several shards says what
holds for all of them, by the rule beside each field (:func:`merging`); a field without a rule is taken from the first.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from typing import Any, Self

from shoal.errors import InputError


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields, read once."""
    return typing.get_type_hints(kind)


def to_plain(value: Any) -> Any:
    """Return a value as JSON can hold it: dictionaries, lists, numbers, texts; None for a number that is not finite."""
    if is_dataclass(value):
        return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_plain(kind: Any, value: Any) -> Any:
    """Return a JSON value as an annotation wants it; raise ValueError, TypeError or KeyError if it is another."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inside:
            return None
        return from_plain(next(one for one in inside if one is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError("not a list")
        kinds = [inside[0]] * len(value) if inside[-1] is Ellipsis else inside
        return tuple(from_plain(one, item) for one, item in zip(kinds, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {name: from_plain(inside[1], item) for name, item in value.items()}
    if kind is Any:
        return value
    if is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        return kind(**{name: from_plain(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if kind is float and value is None:
        return math.inf  # an error without a bound; where None means something else, the annotation has it
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError("of another type")
    return value


def merging(rule: Callable[[Any], Any], default: Any = MISSING) -> Any:
    """Return a dataclass field whose value of all shards is ``rule`` of the list of their values."""
    return field(default=default, metadata={"merge": rule})


def merged_by_records(rule: Callable[[Any], Any], default: Any = MISSING) -> Any:
    """Return a dataclass field whose value of all shards is ``rule`` of their whole records."""
    return field(default=default, metadata={"merge_parts": rule})


def first_value(values: Sequence[Any]) -> Any:
    """Return the first value: the rule of a field that is the same in all shards."""
    return values[0]


class Record:
    """A frozen dataclass that goes to JSON, comes back, and merges with others of its kind."""

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON can hold them."""
        content: dict[str, Any] = to_plain(self)
        return content

    def part(self, *names: str) -> dict[str, Any]:
        """Return some of the fields as JSON can hold them."""
        return {name: to_plain(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the record that :meth:`to_json` wrote down; refuse anything else."""
        try:
            record: Self = from_plain(cls, content)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"facts: this is not what a stage wrote down as {cls.__name__}; run it again") from None
        return record

    @classmethod
    def from_attributes(cls, source: Any) -> Self:
        """Return a record with what another object has under the names of its fields."""
        return cls(**{one.name: getattr(source, one.name) for one in fields(cls)})  # type: ignore[arg-type]

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Return the record of all parts together: every field by the rule that stands beside it."""
        values = {}
        for one in fields(cls):  # type: ignore[arg-type]
            if "merge_parts" in one.metadata:
                values[one.name] = one.metadata["merge_parts"](parts)
            else:
                values[one.name] = one.metadata.get("merge", first_value)([getattr(part, one.name) for part in parts])
        return cls(**values)
