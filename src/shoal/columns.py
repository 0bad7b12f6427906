"""The columns of public tables: name, type and meaning of each, in this one place.

The tables that leave, the owner's with the same figures, ``datapackage.json``, the service, the studies and the pages
read :data:`PUBLIC_COLUMNS`. All other columns of a table are figures.

>>> public_columns("meters")
('crowd', 'members', 'step', 'timestamp', 'kw')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Which table: means of meters, means of a table of figures, a row per label under a method, and curves with noise.
TableKind = Literal["meters", "figures", "rows", "noisy"]


@dataclass(frozen=True)
class PublicColumn:
    """A column of public tables; ``type`` is that of Frictionless Table Schema."""

    name: str
    type: str
    meaning: str
    tables: tuple[TableKind, ...]  #: those that have it
    unit: str = ""
    noisy_type: str = ""  #: type and meaning under the readings' promise, where they differ
    noisy_meaning: str = ""

    def description(self, *, noisy: bool) -> tuple[str, str]:
        """Return type and meaning of the column, in a release with noise or without."""
        return (self.noisy_type if noisy else "") or self.type, (self.noisy_meaning if noisy else "") or self.meaning


#: In the order of the tables.
PUBLIC_COLUMNS = (
    PublicColumn(
        "crowd",
        "integer",
        "number of the crowd: drawn once at random, the same in every later table",
        ("meters", "figures", "rows", "noisy"),
        noisy_meaning="a curve, numbered by its level; it does not represent any one home",
    ),
    PublicColumn("row", "integer", "number of the row inside its crowd, drawn at random", ("rows",)),
    PublicColumn(
        "members",
        "integer",
        "members of the crowd: the size of the set, fixed for its life",
        ("meters", "figures", "noisy"),
        noisy_type="number",
        noisy_meaning="how many homes are like it, with noise: fractions occur",
    ),
    PublicColumn("step", "integer", "step of the horizon, from 1 on", ("meters", "rows", "noisy")),
    PublicColumn("timestamp", "datetime", "beginning of the step", ("meters", "rows", "noisy")),
    PublicColumn(
        "kw",
        "number",
        "mean power over the members of the crowd, a multiple of its precision; empty where a rule withholds it",
        ("meters", "rows", "noisy"),
        unit="kW",
        noisy_meaning="mean power in the step, with noise",
    ),
    PublicColumn("count", "number", "labels in the cell, with noise: fractions occur", ()),
)
#: Column by name.
BY_NAME = {column.name: column for column in PUBLIC_COLUMNS}
#: Columns that say which row, crowd or instant it is; all others are figures.
PLACES = tuple(column.name for column in PUBLIC_COLUMNS if column.type != "number")


def public_columns(table: TableKind) -> tuple[str, ...]:
    """Return the names of a table's own columns, in order; a table of figures has its figures after them."""
    return tuple(column.name for column in PUBLIC_COLUMNS if table in column.tables)
