"""Dataclasses with frames of Polars as files of arrays (:mod:`shoal.archive`): fitted forecasts, tables of classes."""

from __future__ import annotations

import io
import types
import typing
from dataclasses import fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal.archive import Arrays, content_of, pack, unpack
from shoal.errors import InputError
from shoal.files import write_private

Kind = TypeVar("Kind")


def save_record(record: Any, path: str | Path, form: str, version: int) -> None:
    """Write a dataclass of arrays, frames of Polars and what JSON knows, others inside it too, for this user alone."""
    arrays: dict[str, NDArray[Any]] = {}
    header = {"format": form, "version": version, "record": _taken_apart(record, "", arrays)}
    write_private(path, pack(header, arrays))


def load_record(kind: type[Kind], path: str | Path, form: str, version: int) -> Kind:
    """Read a file that :func:`save_record` wrote; one that is damaged, altered or of another version is refused."""
    name = f"path: {Path(path).name}"
    header, arrays = unpack(content_of(path, form), form, version, name, "fit again")
    try:
        record: Kind = _put_together(kind, header["record"], "", arrays)
    except (KeyError, TypeError) as error:
        raise InputError(f"{name} lacks a part of a {form.removeprefix('shoal ')} file") from error
    return record


def _taken_apart(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """What JSON knows of a value; its arrays, under their names, and frames as Parquet, go into ``arrays``."""
    if is_dataclass(value):
        return {
            one.name: _taken_apart(getattr(value, one.name), f"{name}.{one.name}".lstrip("."), arrays)
            for one in fields(value)
        }
    if isinstance(value, (pl.DataFrame, pl.Series)):
        buffer = io.BytesIO()
        (value if isinstance(value, pl.DataFrame) else value.to_frame()).write_parquet(buffer)
        value = np.frombuffer(buffer.getvalue(), dtype=np.uint8)
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return None
    return value // timedelta(microseconds=1) if isinstance(value, timedelta) else value


def _put_together(kind: Any, value: Any, name: str, arrays: Arrays) -> Any:
    """A value of this annotation from what :func:`_taken_apart` made of it."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    if name in arrays:
        if kind not in (pl.DataFrame, pl.Series):
            return arrays[name]
        frame = pl.read_parquet(io.BytesIO(arrays[name].tobytes()))
        return frame if kind is pl.DataFrame else frame.to_series()
    if is_dataclass(kind) and value is not None:
        hints = typing.get_type_hints(kind)
        parts = {
            one.name: _put_together(hints[one.name], value[one.name], f"{name}.{one.name}".lstrip("."), arrays)
            for one in fields(kind)
        }
        return kind(**parts)  # type: ignore[operator]
    if kind is timedelta:
        return timedelta(microseconds=value)
    return tuple(value) if isinstance(value, list) else value
