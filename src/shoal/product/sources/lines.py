"""Tables of text line by line, for the readings' promise: what one line holds decides about that line alone.

A CSV parser reads a file as one text: a quote that is not closed takes in the lines after it, a byte that the encoding
does not have decides the encoding of all, a line with a field too many is an error of the file. Here the encoding is
declared, the first line is the header, and every other line is a row by itself:

- characters that cannot be decoded become U+FFFD, each for itself;
- a quote counts where it closes before the next separator or the end of the line, else it is a character;
- a line with more or fewer fields than the header is no row. Where a row is of one household, it is left out.
  Where it has a column for every household nobody knows whose cell is wrong, and the file is refused.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl

from shoal.errors import InputError
from shoal.files import disk_space
from shoal.product.sources.frames import ARROW, PARQUET, SEPARATORS, UNREADABLE, FileTable, Scratch, text_of

#: What stands between fields, and for a decoding error, in the file that is written here.
UNIT, LOST = "\x1f", "\ufffd"
#: What some encodings read as other characters than it holds.
ESCAPES = b"\\u0041,\\x41,+AGE-,~{!!~},\x1b$B!!\x1b(B"


def encoding_named(encoding: str | None) -> str:
    """The encoding of text files as it was declared; UTF-8 by default.

    One in which a wrong byte can take in the next character is refused: it could be a separator.
    """
    if encoding is None:
        return "utf-8"
    try:
        name = codecs.lookup(encoding).name
        single = all(len(part.decode(name, errors="replace")) == len(part) for part in (bytes(range(256)), ESCAPES))
    except (LookupError, UnicodeError, TypeError):
        raise InputError("encoding must name a text encoding, such as utf-8, cp1252, latin-1 or utf-16") from None
    if not single and not name.startswith(("utf-8", "utf-16", "utf-32")):
        raise InputError("encoding: one byte may change the meaning of the next there; convert the file to UTF-8")
    return name


def open_declared(file: Path, encoding: str, is_whole: Callable[[list[str]], bool]) -> FileTable:
    """A CSV, Parquet or Arrow file as a lazy table that is read line by line.

    ``is_whole`` says from the header whether every row must have all its fields (else a wrong one is left out).
    """
    try:
        if file.name.lower().endswith((*PARQUET, *ARROW)):
            table = pl.scan_parquet(file) if file.name.lower().endswith(PARQUET) else pl.scan_ipc(file)
            table.collect_schema()
            return FileTable(table)
        return _rewrite(file, encoding, is_whole)
    except UNREADABLE:
        raise InputError(f"path: {file.name} is empty or cannot be read as a table") from None


def _rewrite(file: Path, encoding: str, is_whole: Callable[[list[str]], bool]) -> FileTable:
    scratch = Scratch("lines.csv")
    with disk_space(), text_of(file, encoding, newline="\n") as source, scratch.path.open(
        "w", encoding="utf-8", newline=""
    ) as out:  # fmt: skip
        first = next(source, "").lstrip("\ufeff").rstrip("\r\n")
        if LOST in first or "\x00" in first:
            raise InputError(
                f"encoding: the first line of {file.name} is not {encoding.upper()}; name the encoding of the file, "
                "such as encoding='cp1252', or save it as UTF-8"
            )
        if first.startswith(("<", "100,NEM1", '100,"NEM1')):
            raise InputError(
                f"path: {file.name} is in a format with units of its own; with secret='readings' give CSV or Parquet"
            )
        separator = max(SEPARATORS, key=first.count)
        header = _column_names(next(csv.reader([first], delimiter=separator), []), file)
        whole, rows = is_whole(header), _rows(source, separator, len(header))
        out.write(UNIT.join(header) + "\n")
        for row in rows:
            if row is not None:
                out.write(row)
            elif whole:
                raise InputError(
                    f"path: {file.name} cannot be read as a table: some row has more or fewer fields than its header, "
                    "and in a file with a column for every household it is unknown which cell is wrong. Repair the row"
                )
    table = pl.scan_csv(scratch.path, separator=UNIT, quote_char=None, infer_schema=False)
    return FileTable(table, separator != ",", scratch)


def _column_names(header: list[str], file: Path) -> list[str]:
    """The names of the columns, without what separates them; columns without a name get one that numbers them."""
    names = [name.strip().replace(UNIT, " ").replace("\n", " ") for name in header]
    names = [name or f"unnamed: {at}" for at, name in enumerate(names)]
    if len(set(names)) < len(names) or not names:
        raise InputError(f"path: the first line of {file.name} must name every column once")
    return names


def _rows(lines: Iterator[str], separator: str, width: int) -> Iterator[str | None]:
    """Every line as it is written anew; None where it has another number of fields."""
    field = re.compile(f'"(?:[^"]|"")*"(?={re.escape(separator)}|$)|[^{re.escape(separator)}]*')
    for line in lines:
        text = line.rstrip("\r\n").replace(UNIT, " ").replace("\r", " ")
        if not text.strip():
            continue
        fields = text.split(separator)
        if '"' in text:
            if len(fields) != width:
                fields = _split_quoted(text, field)
            fields = [_strip_quotes(part) for part in fields]
        yield UNIT.join(fields) + "\n" if len(fields) == width else None


def _split_quoted(text: str, field: re.Pattern[str]) -> list[str]:
    """The fields of a line, those in quotes with the separators in them."""
    parts, at = [], 0
    while True:
        match = field.match(text, at)
        assert match is not None  # the pattern matches nothing, too
        parts.append(match[0])
        at = match.end() + 1
        if at > len(text):
            return parts


def _strip_quotes(part: str) -> str:
    inner = part.strip()
    return inner[1:-1].replace('""', '"') if len(inner) > 1 and inner[0] == inner[-1] == '"' else part
