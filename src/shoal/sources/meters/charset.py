"""Text files in other encodings than UTF-8, written anew as UTF-8 where they are.

UTF-16 and UTF-32 are known by their byte order mark or by the zeros between letters; what is not valid UTF-8 is read
as Windows-1252, the superset of Latin-1 in use, in which every byte that occurs in practice is a character.
"""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: Bytes taken at a time.
CHUNK = 1 << 22
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8"),
)  # fmt: skip


def opened(file: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if its name ends in .gz."""
    return gzip.open(file, "rb") if file.name.lower().endswith(".gz") else file.open("rb")  # type: ignore[return-value]


def encoding_of(file: Path) -> str:
    """The encoding of a text file; the whole of it is looked at unless its first bytes tell."""
    with opened(file) as handle:
        start = handle.read(400)
        for mark, name in _MARKS:
            if start.startswith(mark):
                return name
        if start[1::2].count(0) > 0.4 * len(start[1::2]) > 4:
            return "utf-16-le"
        if start[::2].count(0) > 0.4 * len(start[::2]) > 4:
            return "utf-16-be"
        handle.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while chunk := handle.read(CHUNK):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8"


def write_utf8(file: Path, encoding: str, target: Path) -> None:
    """The text of a file as UTF-8; a byte that its encoding does not know becomes a replacement character."""
    with opened(file) as source, target.open("wb") as out:
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        while chunk := source.read(CHUNK):
            out.write(decoder.decode(chunk).encode())
        out.write(decoder.decode(b"", final=True).encode())


def lines(file: Path) -> Iterator[str]:
    """The lines of a text file in any of these encodings."""
    encoding = encoding_of(file)
    with opened(file) as handle:
        name = "utf-8-sig" if encoding == "utf-8" else encoding
        for line in io.TextIOWrapper(handle, encoding=name, errors="replace"):
            yield line.rstrip("\n")
