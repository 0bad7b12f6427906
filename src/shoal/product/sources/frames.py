"""Rows wherever they are, as a lazy table: files, and frames of any library.

| what is given | how it is read |
| --- | --- |
| a frame of Polars | as it is |
| a frame of pandas | column by column, without pyarrow |
| an object with ``__arrow_c_stream__``: an Arrow table or reader, a DuckDB relation | by the Arrow stream |
| a file | CSV, Parquet or Arrow; text in UTF-8, UTF-16 or Windows-1252, the superset of Latin-1 in use |

The columns of CSV stay text. No message quotes a cell.
"""

from __future__ import annotations

import codecs
import glob
import gzip
import io
import json
import os
import shutil
import tempfile
import types
import typing
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, TypeVar
from zoneinfo import available_timezones

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal.archive import Arrays, pack, read_file_of, unpack
from shoal.errors import InputError
from shoal.files import make_private_file, raise_storage_error, write_private
from shoal.plaintext import FORMULA, cell

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)

WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
_WORKBOOK_BYTES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".ipc", ".feather")
SUFFIXES = (".csv", ".csv.gz", ".txt", ".tsv", *PARQUET, *ARROW)
#: One path, a pattern or a folder, or several of them.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
#: Name of rows that came as a frame of Python.
FRAME = "a frame"
#: Rows of a group in the Parquet files that are written here.
ROW_GROUP = 1 << 18
#: Separators of columns, the likeliest first.
SEPARATORS = ",;\t|"
#: What Polars raises on a file that it cannot read; the texts may quote data.
UNREADABLE = (pl.exceptions.PolarsError, OSError, UnicodeError, EOFError)

#: Encodings that may be named: in these no wrong byte can take in the next character, which could be a separator.
ENCODINGS = (
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp437", "cp850", *(f"cp125{i}" for i in range(9)),
    *(f"iso8859-{i}" for i in range(1, 17)),
)  # fmt: skip
#: Bytes or characters of text taken at a time.
CHUNK = 1 << 22


class ScratchFile:
    """A file that only this user can read, in a temporary folder that is removed with this object."""

    def __init__(self, name: str) -> None:
        """Make the folder; the file in it is made by whoever writes to ``path``."""
        self.name = name
        folder = Path(tempfile.mkdtemp(prefix="shoal-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = folder / Path(name).name
        make_private_file(self.path)


def row_batches(table: pl.LazyFrame, rows: int) -> Iterator[pl.DataFrame]:
    """The rows of a table in order, about ``rows`` at a time."""
    if hasattr(table, "collect_batches"):
        yield from table.collect_batches(chunk_size=rows, maintain_order=True, engine="streaming")
        return
    start = 0
    while len(part := table.slice(start, rows).collect()):
        yield part
        start += len(part)


def find_meter_files(path: Paths) -> list[Path]:
    """Find the files that a path, a pattern, a folder or a sequence of these stands for, in sorted order."""
    if not isinstance(path, (str, os.PathLike)):
        if not isinstance(path, Sequence):
            raise InputError("path: expected a path, several, or a frame of Polars, pandas or Arrow")
        files = [file for part in path for file in find_meter_files(part)]
        if not files:
            raise InputError("path must name at least one file")
        return list(dict.fromkeys(files))
    place = Path(path)
    if os.path.isdir(place):
        if is_run_folder(place):
            raise InputError(f"path: {place.name} is a run of shoal, not a folder of meter files")
        every = sorted(_files_under(place))
        inside = [file for file in every if file.name.lower().endswith(SUFFIXES)]
        if not inside:
            books = any(file.name.lower().endswith(WORKBOOKS) for file in every)
            more = ", but spreadsheets: save them as CSV" if books else ""
            raise InputError(f"path: the folder {place.name} holds no CSV or Parquet file{more}")
        return inside
    matches = [path] if os.path.isfile(path) else glob.glob(os.fspath(path), recursive=True)
    files = sorted(Path(match) for match in matches if os.path.isfile(match))
    if not files:
        raise InputError(f"path: {place.name} is not a file, a folder or a pattern that matches any")
    return files


def is_run_folder(folder: str | Path) -> bool:
    """Whether a folder is a run of shoal: what lies there are its results, not readings."""
    try:
        content = json.loads(Path(folder, "state.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == "shoal run"


def _files_under(folder: Path) -> Iterator[Path]:
    """Files anywhere under a folder, without hidden ones and without runs of shoal."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and not is_run_folder(Path(where, name))]
        yield from (Path(where, name) for name in names if not name.startswith("."))


@dataclass(frozen=True)
class FileTable:
    """A file as a lazy table; ``scratch`` is the temporary file that it reads from, if any."""

    raw: pl.LazyFrame
    decimal_comma: bool = False
    scratch: Any = None


def open_table_file(file: Path, named: str | None = None) -> FileTable:
    """Open a CSV, Parquet or Arrow file as a lazy table; text in the encoding ``named``, or in a guessed one."""
    name = file.name.lower()
    if name.endswith(PARQUET):
        return FileTable(pl.scan_parquet(file))
    if name.endswith(ARROW):
        return FileTable(pl.scan_ipc(file))
    encoding, text = read_beginning(file, named)
    table, scratch = file, None
    if encoding != "utf-8":
        scratch = ScratchFile("rows.csv")
        table = scratch.path
        with (
            raise_storage_error(),
            open_text(file, encoding) as source,
            table.open("w", encoding="utf-8", newline="") as out,
        ):
            shutil.copyfileobj(source, out, CHUNK)
    header = text.splitlines()[0] if text else ""
    separator = max(SEPARATORS, key=header.count)
    return FileTable(pl.scan_csv(table, separator=separator, infer_schema=False), separator != ",", scratch)


def number_of(cell: Any, kind: Any, *, decimal_comma: bool = False) -> Any:
    """Convert a column or expression of this type to numbers; null where a text is none."""
    if kind == pl.String:
        cell = cell.str.strip_chars()
        cell = cell.str.replace(",", ".", literal=True) if decimal_comma else cell
    return cell.cast(pl.Float64, strict=False)


def read_beginning(file: Path, named: str | None = None) -> tuple[str, str]:
    """Encoding of a text file and its first characters; archives and workbooks are refused."""
    name = file.name.lower()
    with open_unpacked(file) as handle:
        start = handle.read(4096)
    if name.endswith(".zip"):
        raise InputError(f"path: {file.name} is a ZIP archive; unpack it, and name what is inside")
    if name.endswith(WORKBOOKS) or start.startswith(_WORKBOOK_BYTES):
        raise InputError(
            f"path: {file.name} is a spreadsheet workbook (Excel or OpenDocument), which shoal does not read; open it, "
            "save the sheet with the readings as CSV (UTF-8), and name that file"
        )
    encoding = named or guess_encoding(file)
    text = start.decode(encoding, errors="ignore").lstrip("\ufeff \r\n")
    if "\x00" in text[:200]:
        raise InputError(
            f"encoding: that of {file.name} is not recognized; name it, such as utf-16-le, or save as UTF-8"
        )
    return encoding, text


def open_unpacked(file: Path) -> IO[bytes]:
    """Open a file for its bytes, unpacked if its name ends in .gz."""
    return gzip.open(file, "rb") if file.name.lower().endswith(".gz") else file.open("rb")  # type: ignore[return-value]


def guess_encoding(file: Path) -> str:
    """Guess the encoding of a text file; the whole of it is read unless its first bytes tell.

    UTF-16 is known by its byte order mark; what is not valid UTF-8 is taken for Windows-1252, in which every byte that
    occurs in practice is a character.
    """
    with open_unpacked(file) as handle:
        if handle.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
    try:
        with io.TextIOWrapper(open_unpacked(file), encoding="utf-8") as text:
            while text.read(CHUNK):
                pass
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def declared_encoding(encoding: str | None) -> str:
    """Check the encoding that a caller declared for text files, one of :data:`ENCODINGS`; UTF-8 by default."""
    try:
        name = codecs.lookup("utf-8" if encoding is None else encoding).name
    except (LookupError, TypeError, ValueError):
        name = ""
    if name not in ENCODINGS:
        raise InputError(
            "encoding must be UTF-8, UTF-16, or of one byte a character, such as cp1252 or latin-1; convert other files"
        )
    return name


def open_text(file: Path, encoding: str, newline: str = "") -> IO[str]:
    """Open a file as text in an encoding; a byte that the encoding does not know becomes a replacement character."""
    name = "utf-8-sig" if encoding == "utf-8" else encoding
    return io.TextIOWrapper(open_unpacked(file), encoding=name, errors="replace", newline=newline)


def lazy_table(source: Any, name: str = "source") -> pl.LazyFrame | None:
    """A frame of Polars, pandas or Arrow as a lazy table, None for anything else; messages begin with ``name``."""
    if isinstance(source, (pl.DataFrame, pl.LazyFrame)):
        return source.lazy()
    if is_pandas_frame(source):
        try:  # column by column, which needs no pyarrow
            return pl.LazyFrame({str(column): _polars_column(source[column]) for column in source.columns})
        except (TypeError, OverflowError, pl.exceptions.PolarsError):  # their texts quote values
            raise InputError(f"{name}: a column mixes numbers, text or times; give each column one type") from None
    try:
        return pl.DataFrame(source).lazy() if hasattr(source, "__arrow_c_stream__") else None
    except pl.exceptions.PolarsError:
        raise InputError(f"{name}: it has columns of a type that no table of numbers, text and times has") from None


def read_frame(source: Any, name: str) -> pl.DataFrame:
    """Read a frame of any library, or a CSV or Parquet file, into memory; ``name`` is the argument in messages."""
    frame = lazy_table(source, name)
    if frame is not None:
        return frame.collect()
    path = Path(source)
    if not path.is_file():
        raise InputError(f"{name}: there is no file {path.name}; name a CSV or Parquet file, or the folder of a run")
    try:
        return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema_length=None)
    except UNREADABLE:  # their texts may quote rows
        raise InputError(f"{name}: {path.name} cannot be read as a CSV or Parquet file") from None


def store_as_parquet(source: Any) -> ScratchFile | None:
    """Write the rows of a frame to a temporary Parquet file; None for anything but a frame.

    The same rows in the same order make the same bytes, whatever they came from.
    """
    table = lazy_table(source)
    if table is None:
        return None
    scratch = ScratchFile(FRAME)
    try:
        with raise_storage_error():
            table.sink_parquet(scratch.path, row_group_size=ROW_GROUP)
    except UNREADABLE:  # their texts may quote rows
        raise InputError("source: its rows cannot be read as a table; check what the frame is made from") from None
    return scratch


def is_pandas_frame(frame: Any) -> bool:
    """Whether an object is a frame of pandas, without importing pandas."""
    return type(frame).__module__.split(".")[0] == "pandas" and hasattr(frame, "columns")


def _polars_column(cells: Any) -> pl.Series:
    """Convert a column of pandas; times become microseconds, on the clock of their zone."""
    zone = getattr(cells.dtype, "tz", None)
    if zone is not None:
        utc = pl.Series(cells.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy().astype("datetime64[us]"))
        name = str(zone) if str(zone) in available_timezones() else "UTC"  # a fixed offset is no zone of the database
        return utc.dt.replace_time_zone("UTC").dt.convert_time_zone(name)
    if cells.dtype.kind == "M":
        return pl.Series(cells.to_numpy().astype("datetime64[us]"))
    if isinstance(cells.dtype, np.dtype) and cells.dtype.kind in "biuf":
        return pl.Series(cells.to_numpy(), nan_to_null=True)
    values = [cell if there else None for cell, there in zip(cells.tolist(), cells.notna().tolist(), strict=True)]
    if all(cell is None or type(cell) in (int, float) for cell in values):
        return pl.Series(values, dtype=pl.Float64, strict=False)
    return pl.Series(values, strict=True)


def spreadsheet_safe(frame: Frame) -> Frame:
    """A table whose texts and column names no spreadsheet runs as formulas (:mod:`shoal.plaintext`); numbers stay."""
    schema = frame.collect_schema()
    shown = frame.with_columns(
        pl.when(pl.col(name).str.contains(FORMULA)).then("'" + pl.col(name)).otherwise(pl.col(name)).alias(name)
        for name, kind in schema.items()
        if kind == pl.String
    )
    return shown.rename({name: cell(name) for name in schema})


Kind = TypeVar("Kind")


def save_record(record: Any, path: str | Path, form: str, version: int) -> None:
    """Write a dataclass of arrays, Polars frames and what JSON knows, also nested, to a file for this user alone."""
    arrays: dict[str, NDArray[Any]] = {}
    header = {"format": form, "version": version, "record": _split_arrays(record, "", arrays)}
    write_private(path, pack(header, arrays))


def load_record(kind: type[Kind], path: str | Path, form: str, version: int) -> Kind:
    """Read a file that :func:`save_record` wrote; one that is damaged, altered or of another version is refused."""
    name = f"path: {Path(path).name}"
    header, arrays = unpack(read_file_of(path, form), form, version, name, "fit again")
    try:
        record: Kind = _rebuild(kind, header["record"], "", arrays)
    except (KeyError, TypeError) as error:
        raise InputError(f"{name} lacks a part of a {form.removeprefix('shoal ')} file") from error
    return record


def _split_arrays(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Convert a value for JSON; its arrays, and frames as Parquet, go into ``arrays`` under their dotted names."""
    if is_dataclass(value):
        parts = ((one.name, f"{name}.{one.name}".lstrip(".")) for one in fields(value))
        return {part: _split_arrays(getattr(value, part), path, arrays) for part, path in parts}
    if isinstance(value, (pl.DataFrame, pl.Series)):
        buffer = io.BytesIO()
        (value if isinstance(value, pl.DataFrame) else value.to_frame()).write_parquet(buffer)
        value = np.frombuffer(buffer.getvalue(), dtype=np.uint8)
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return None
    return value // timedelta(microseconds=1) if isinstance(value, timedelta) else value


def _rebuild(kind: Any, value: Any, name: str, arrays: Arrays) -> Any:
    """Rebuild a value of the type ``kind`` from what :func:`_split_arrays` made of it."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    if name in arrays:
        if kind not in (pl.DataFrame, pl.Series):
            return arrays[name]
        frame = pl.read_parquet(io.BytesIO(arrays[name].tobytes()))
        return frame if kind is pl.DataFrame else frame.to_series()
    if is_dataclass(kind) and value is not None:
        hints = typing.get_type_hints(kind)
        inside = ((one.name, f"{name}.{one.name}".lstrip(".")) for one in fields(kind))
        parts = {part: _rebuild(hints[part], value[part], path, arrays) for part, path in inside}
        return kind(**parts)  # type: ignore[operator]
    if kind is timedelta:
        return timedelta(microseconds=value)
    return tuple(value) if isinstance(value, list) else value
