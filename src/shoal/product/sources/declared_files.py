"""Files under the readings' promise: what one line holds decides about that line alone, and one home's cells about it.

Whatever another run sees from the rows is declared or fixed here (docs/promise.md, "Where another home's readings could
enter"). Let F be any input and F without h the same without the values of a home h and whatever is there because of
them alone: every other home's readings are the same to the last bit.

| cannot be read | then |
| --- | --- |
| a character | it becomes U+FFFD, for itself |
| a quote that does not close before the next separator or the end of the line | it is a character |
| a timestamp, a reading | that reading is missing |
| a name | the row is of no household |
| a line with another number of fields than the header | is left out; refused with a column per household |
| a file, where all others hold one household each | that household is left out |
| any other file | refused |
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from shoal.errors import InputError
from shoal.files import raise_storage_error
from shoal.product.sources import frames
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.columns import MeterColumns, Unit, parse_unit, recognize_columns
from shoal.product.sources.meters.meter_files import MeterSource, OpenedSources, long_table

if TYPE_CHECKING:
    from shoal.product.runs.config import Config

#: What stands between fields, and for a decoding error, in the file that is written here.
UNIT, LOST = "\x1f", "\ufffd"


def open_declared(file: Path, encoding: str, is_whole: Callable[[list[str]], bool]) -> frames.FileTable:
    """Open a CSV, Parquet or Arrow file as a lazy table; text is read line by line, by the rules of this module.

    ``is_whole`` says from the header whether every row must have all its fields (else a wrong one is left out).
    """
    try:
        if not file.name.lower().endswith((*frames.PARQUET, *frames.ARROW)):
            return _rewrite_lines(file, encoding, is_whole)
        table = frames.open_table_file(file)
        table.raw.collect_schema()
        return table
    except frames.UNREADABLE:
        raise InputError(f"path: {file.name} is empty or cannot be read as a table") from None


def _rewrite_lines(file: Path, encoding: str, is_whole: Callable[[list[str]], bool]) -> frames.FileTable:
    """Open a CSV file as a lazy table of text, rewritten to a temporary file line by line."""
    scratch = frames.ScratchFile("lines.csv")
    with raise_storage_error(), frames.open_text(file, encoding, newline="\n") as source, scratch.path.open(
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
        separator = max(frames.SEPARATORS, key=first.count)
        header = _column_names(next(csv.reader([first], delimiter=separator), []), file)
        whole, rows = is_whole(header), _rewritten_lines(source, separator, len(header))
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
    return frames.FileTable(table, separator != ",", scratch)


def _column_names(header: list[str], file: Path) -> list[str]:
    """Names of the columns in the first line; a column without a name gets one that numbers it."""
    names = [name.strip().replace(UNIT, " ").replace("\n", " ") for name in header]
    names = [name or f"unnamed: {at}" for at, name in enumerate(names)]
    if len(set(names)) < len(names) or not names:
        raise InputError(f"path: the first line of {file.name} must name every column once")
    return names


def _rewritten_lines(lines: Iterator[str], separator: str, width: int) -> Iterator[str | None]:
    """Every line with :data:`UNIT` between its fields; None for one whose number of fields is not ``width``."""
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
    """Split a line into fields; a separator inside quotes does not split."""
    parts, at = [], 0
    while True:
        match = field.match(text, at)
        assert match is not None  # the pattern matches nothing, too
        parts.append(match[0])
        at = match.end() + 1
        if at > len(text):
            return parts


def _strip_quotes(part: str) -> str:
    """A field without the quotes around it, and with doubled quotes inside as single ones."""
    inner = part.strip()
    return inner[1:-1].replace('""', '"') if len(inner) > 1 and inner[0] == inner[-1] == '"' else part


#: Every layout of a timestamp that has one meaning; 03/04/2024 has two, and has to be named.
FORMS = tuple(form for forms in clock.LAYOUTS.values() for form in forms)


def open_by_header(files: Sequence[Path], settings: Config, *, instants: bool) -> OpenedSources:
    """Open files that are read together, understood by what was declared and by their headers alone.

    ``instants``: timestamps have an offset from UTC.
    """
    unit, zone, encoding = (
        parse_unit(settings.unit),
        clock.parse_time_zone(settings.time_zone),
        frames.declared_encoding(settings.encoding),
    )
    assert unit is not None
    read: dict[Path, MeterSource] = {}
    faults: list[InputError] = []
    for file in files:
        try:
            read[file] = _open_by_header(file, settings, instants, encoding, unit)
        except InputError as error:
            faults.append(error)
    first = next(iter(read.values()), None)
    if first is None or (faults and any(one.layout.household or one.layout.across for one in read.values())):
        raise faults[0]
    # Where a file of one household cannot be read, the household is there, without a reading.
    empty = pl.LazyFrame({"timestamp": pl.Series([None], dtype=first.types["timestamp"]), "kw": ["?"]})
    unreadable = replace(first, table=frames.FileTable(empty), layout=MeterColumns("single", None, "timestamp", "kw"),
                         types={**first.types, "kw": pl.String()})  # fmt: skip
    sources = [read.get(file) or replace(unreadable, file=file) for file in files]
    return OpenedSources(sources, unit.energy, unit.name, first.reason, first.columns_in_words, zone, None)


def _open_by_header(file: Path, settings: Config, instants: bool, encoding: str, unit: Unit) -> MeterSource:
    """Open one file, understood by what was declared and by its header."""
    columns = settings.named_columns or None
    # With a column per household every row must have all its fields.
    table = open_declared(file, encoding, lambda row: recognize_columns(row, columns, file.name).shape == "households")
    layout = recognize_columns(list(table.raw.collect_schema()), columns, file.name)
    types = long_table(table.raw, layout, file).collect_schema()
    stamp, value = types["timestamp"], types["kw"]
    text = isinstance(stamp, pl.String)
    if not text and not isinstance(stamp, (pl.Datetime, pl.Date)):
        raise InputError(f"path: {file.name} counts time since 1970, or has no column of times; with secret='readings' "
                         "give ISO 8601 text or a column of datetimes")  # fmt: skip
    if not isinstance(value, pl.String) and not value.is_numeric():
        raise InputError(f"columns: the values of {file.name} must be numbers")
    has_time_zone = instants if text else getattr(stamp, "time_zone", None) is not None
    if has_time_zone != instants:
        how = "with" if has_time_zone else "without"
        raise InputError(f"origin: write it {how} an offset from UTC, as the timestamps of {file.name} are: with "
                         "secret='readings' it declares which")  # fmt: skip
    named = settings.timestamp_format is not None and text
    forms = () if not text else (str(settings.timestamp_format),) if named else FORMS
    return MeterSource(file, table, layout, dict(types), unit, "you said so (unit)", forms, named,
                       offsets=text and instants, declared=True)  # fmt: skip
