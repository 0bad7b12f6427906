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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from shoal.errors import InputError
from shoal.files import disk_space
from shoal.product.sources.frames import (
    ARROW,
    PARQUET,
    SEPARATORS,
    UNREADABLE,
    FileTable,
    Scratch,
    encoding_named,
    text_of,
)
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.columns import MeterColumns, Unit, named_unit, recognize
from shoal.product.sources.meters.readings import MeterSource, Opened, file_household, melt

if TYPE_CHECKING:
    from shoal.product.runs.config import Config

#: What stands between fields, and for a decoding error, in the file that is written here.
UNIT, LOST = "\x1f", "\ufffd"


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


#: Every layout of a timestamp that has one meaning; 03/04/2024 has two, and has to be named.
FORMS = tuple(form for forms in clock.LAYOUTS.values() for form in forms)


@dataclass(frozen=True, repr=False)
class UnreadableFile(MeterSource):
    """A file of one household that cannot be read: the household is there, without a reading."""

    def pieces(self, number: int) -> Iterator[pl.DataFrame]:
        """One row without a reading."""
        kinds = {"household": pl.String, "file": pl.UInt32, "turn": pl.UInt32, "time": pl.Int64, "wall": pl.Boolean}
        row = (file_household(self.file), number, 0, None, self.time_zone is None, None, True, False)
        yield pl.DataFrame(
            [row], schema={**kinds, "kw": pl.Float64, "invalid": pl.Boolean, "empty": pl.Boolean}, orient="row"
        )


def open_by_header(files: Sequence[Path], settings: Config, *, instants: bool) -> Opened:
    """Understand files that are read together by what was declared and their headers alone.

    ``instants``: timestamps have an offset from UTC.
    """
    unit, zone, encoding = named_unit(settings.unit), clock.zone(settings.time_zone), encoding_named(settings.encoding)
    assert unit is not None
    read: dict[Path, MeterSource] = {}
    faults: list[InputError] = []
    for file in files:
        try:
            read[file] = _open(file, settings, instants, encoding, unit)
        except InputError as error:
            faults.append(error)
    first = next(iter(read.values()), None)
    if first is None or (faults and any(one.layout.household or one.layout.across for one in read.values())):
        raise faults[0]
    nobody = {**vars(first), "layout": MeterColumns("single", None, None, None)}
    sources = [read[file] if file in read else UnreadableFile(**{**nobody, "file": file}) for file in files]
    return Opened(sources, unit.energy, unit.name, first.reason, first.taken, zone, None)


def _open(file: Path, settings: Config, instants: bool, encoding: str, unit: Unit) -> MeterSource:
    """A file by its header and what was declared."""
    columns = settings.named_columns or None

    def is_whole(header: list[str]) -> bool:
        return recognize(header, columns, file.name).shape == "households"

    table = open_declared(file, encoding, is_whole)
    layout = recognize(list(table.raw.collect_schema()), columns, file.name)
    types = melt(table.raw, layout, file).collect_schema()
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
