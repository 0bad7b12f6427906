"""Meter files under the readings' promise: one home's cells decide about that home, and about no other.

Whatever another run sees from the rows is declared or fixed here: encoding (UTF-8 unless named), the layout (from the
header alone), the unit, the layouts of timestamps, and whether they have an offset from UTC (as the origin has). A cell
that cannot be read is a missing reading of its home. Let F be any input and F without h the same without the values of
a home h and whatever is there because of them alone: every other home's readings are the same to the last bit.

| cannot be read | then |
| --- | --- |
| a timestamp, a reading | that reading is missing |
| a name | the row is of no household |
| a line with another number of fields than the header | is left out; refused with a column per household |
| a file, where all others hold one household each | that household is left out |
| any other file | refused |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from shoal.errors import InputError
from shoal.product.sources.lines import encoding_named, open_declared
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.columns import MeterColumns, Unit, named_unit, recognize
from shoal.product.sources.meters.readings import MeterSource, Opened, file_household, melt

#: Every layout of a timestamp that has one meaning; 03/04/2024 has two, and has to be named.
FORMS = tuple(form for forms in clock.LAYOUTS.values() for form in forms)


@dataclass(frozen=True)
class Declared:
    """What is said about meter files before any row is read; ``instants``: timestamps have an offset from UTC."""

    unit: str
    instants: bool
    columns: Mapping[str, str] | None = None
    timestamp_format: str | None = None
    time_zone: str | None = None
    encoding: str | None = None


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


def open_by_header(files: Sequence[Path], declared: Declared) -> Opened:
    """Understand files that are read together by what was declared and their headers alone."""
    unit, zone, encoding = named_unit(declared.unit), clock.zone(declared.time_zone), encoding_named(declared.encoding)
    assert unit is not None
    read: dict[Path, MeterSource] = {}
    faults: list[InputError] = []
    for file in files:
        try:
            read[file] = _open(file, declared, encoding, unit)
        except InputError as error:
            faults.append(error)
    first = next(iter(read.values()), None)
    if first is None or (faults and any(one.layout.household or one.layout.across for one in read.values())):
        raise faults[0]
    nobody = {**vars(first), "layout": MeterColumns("single", None, None, None)}
    sources = [read[file] if file in read else UnreadableFile(**{**nobody, "file": file}) for file in files]
    return Opened(sources, unit.energy, unit.name, first.reason, first.taken, zone, None)


def _open(file: Path, declared: Declared, encoding: str, unit: Unit) -> MeterSource:
    """A file by its header and what was declared."""

    def is_whole(header: list[str]) -> bool:
        return recognize(header, declared.columns, file.name).shape == "households"

    table = open_declared(file, encoding, is_whole)
    layout = recognize(list(table.raw.collect_schema()), declared.columns, file.name)
    types = melt(table.raw, layout, file).collect_schema()
    stamp, value = types["timestamp"], types["kw"]
    text = isinstance(stamp, pl.String)
    if not text and not isinstance(stamp, (pl.Datetime, pl.Date)):
        raise InputError(f"path: {file.name} counts time since 1970, or has no column of times; with secret='readings' "
                         "give ISO 8601 text or a column of datetimes")  # fmt: skip
    if not isinstance(value, pl.String) and not value.is_numeric():
        raise InputError(f"columns: the values of {file.name} must be numbers")
    zoned = declared.instants if text else getattr(stamp, "time_zone", None) is not None
    if zoned != declared.instants:
        how = "with" if zoned else "without"
        raise InputError(f"origin: write it {how} an offset from UTC, as the timestamps of {file.name} are: with "
                         "secret='readings' it declares which")  # fmt: skip
    named = declared.timestamp_format is not None and text
    forms = () if not text else (str(declared.timestamp_format),) if named else FORMS
    return MeterSource(file, table, layout, dict(types), unit, "you said so (unit)", forms, named,
                       offsets=text and declared.instants, declared=True)  # fmt: skip
