"""Files of arrays and a JSON header in one zip, with a digest over all of it; no pickle is written or read.

The digest guards against damage and careless edits, not against someone who recomputes it. What a file unpacks to is
bounded by its own size (:func:`room`) and known from its directory before anything is unpacked.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError

Arrays = Mapping[str, NDArray[Any]]

#: Fast rather than small: doubles hardly shrink.
LEVEL = 1
#: What a file may unpack to: so many bytes, or so many times its size. A file whose arrays shrink more is not packed.
LEAST_ROOM, MOST_RATIO = 1 << 28, 100
#: What reading a damaged file raises.
DAMAGED = (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, RuntimeError)


def digest(header: Mapping[str, Any], arrays: Arrays) -> str:
    """Return SHA-256, in hexadecimal, over the header and every array with its name, type and shape."""
    total = hashlib.sha256(json.dumps({k: v for k, v in header.items() if k != "digest"}, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        total.update(f"{name}:{values.dtype.str}:{values.shape}:".encode())
        total.update(values.tobytes())
    return total.hexdigest()


def unpacked_limit(size: int) -> int:
    """Return how many bytes a file of this size may unpack to."""
    return max(LEAST_ROOM, MOST_RATIO * size)


def pack(header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return the content of a file with a header, which names its ``format`` and ``version``, and arrays."""
    sealed = json.dumps({**header, "digest": digest(header, arrays)}, sort_keys=True)
    content = _zip_bytes(sealed, arrays, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        total = sum(entry.file_size for entry in archive.infolist())
    return content if total <= unpacked_limit(len(content)) else _zip_bytes(sealed, arrays, zipfile.ZIP_STORED)


def _zip_bytes(sealed: str, arrays: Arrays, kind: int) -> bytes:
    """Return a zip of the header and of each array in NumPy's format; ``kind``: packed or stored."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:

        def add(name: str, data: str | bytes) -> None:
            entry = zipfile.ZipInfo(name)  # without the time of day: equal content makes equal files
            archive.writestr(entry, data, kind, LEVEL)

        add("header.json", sealed)
        for name, values in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, values, allow_pickle=False)
            add(f"{name}.npy", buffer.getvalue())
    return content.getvalue()


def _read_array(content: bytes) -> NDArray[Any]:
    """Return an array from NumPy's format; raise ValueError unless it has as many bytes as its header says."""
    buffer = io.BytesIO(content)
    version = np.lib.format.read_magic(buffer)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(buffer)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - buffer.tell():
        raise ValueError("an array that is not as long as it says")
    return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))


def _read_header(archive: zipfile.ZipFile, size: int) -> Any:
    """Return the header; raise ValueError where the zip would unpack to more than it may, or has a name twice.

    Reading an entry stops at the size that the directory says.
    """
    entries = archive.infolist()
    if sum(entry.file_size for entry in entries) > unpacked_limit(size) or len({one.filename for one in entries}) < len(
        entries
    ):
        raise ValueError("unpacks to more than it may")
    return json.loads(archive.read("header.json"))


def unpack(
    content: bytes, form: str, version: int, name: str, remedy: str = "upgrade shoal"
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of a file of this format; refuse one that is damaged, altered or of another version.

    ``name`` is what messages call the file, and ``remedy`` what to do about another version.
    """
    kind = form.removeprefix("shoal ")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            header = _read_header(archive, len(content))
            arrays = {
                entry.removesuffix(".npy"): _read_array(archive.read(entry))
                for entry in archive.namelist()
                if entry.endswith(".npy")
            }
    except DAMAGED as error:
        raise InputError(f"{name} is not a {kind} file, or it is damaged") from error
    if not isinstance(header, dict) or header.get("format") != form:
        raise InputError(f"{name} is not a {kind} file")
    if header.get("version") != version:
        raise InputError(f"{name} has another format version than this shoal reads ({version}); {remedy}")
    stated = header.pop("digest", None)
    if stated != digest(header, arrays):
        raise InputError(f"{name} does not match its digest: it was altered or damaged")
    return header, arrays


def format_of(content: bytes) -> str | None:
    """Return the format that a file says it has; None where it says nothing readable. Nothing is checked here."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            header = _read_header(archive, len(content))
    except DAMAGED:
        return None
    form = header.get("format") if isinstance(header, dict) else None
    return form if isinstance(form, str) else None


def read_file_of(path: str | Path, form: str) -> bytes:
    """Return the bytes of a file; an ``InputError`` names it without its folder, and the ``form`` it should have."""
    name, kind = Path(path).name, form.removeprefix("shoal ")
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"path: there is no file {name}") from None
    except OSError as error:
        raise InputError(f"path: {name} is not a {kind} file, or it cannot be read") from error
