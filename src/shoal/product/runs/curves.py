"""Curves: everybody's figures from one origin, as the first stage left them beside its shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.errors import InputError
from shoal.plaintext import name_key
from shoal.product.runs.config import Config
from shoal.product.runs.shards import Part, put_frame
from shoal.rounding import count_of
from shoal.validation import FloatArray

#: Suffix of the curves beside a shard.
CURVES = "curves.parquet"
#: Where a public name is taken for a household in a table of boundaries.
NAMES = ("household", "label", "id", "meter", "customer")


@dataclass(frozen=True)
class Curves:
    """Everybody's figures from one origin, and what crowds are formed by."""

    frame: pl.DataFrame  #: label, value, truth, stored and, of a table, habits; sorted by label
    points: FloatArray  #: (n, d) what crowds are alike in
    boundaries: Any = None  #: (n,) texts that crowds do not cross
    ahead: tuple[int, ...] | None = None  #: time of the day, in steps, of each entry; None for a table
    origin: str = ""

    @property
    def labels(self) -> list[str]:
        return self.frame["label"].to_list()

    @property
    def values(self) -> FloatArray:
        """(n, k) figures of today."""
        return self.frame["value"].to_numpy()

    @property
    def truth(self) -> FloatArray:
        """(n, k) what was metered later; NaN where it is not known."""
        return self.frame["truth"].to_numpy()

    @property
    def most(self) -> int:
        """The largest crowd that can be formed of everybody."""
        return len(self.frame) if self.boundaries is None else max(Counter(self.boundaries).values(), default=0)

    def limits(self, share: float | None, at: Any = slice(None)) -> dict[str, Any]:
        """The arguments of :func:`formed` beside the points, of some rows."""
        values = self.values[at]
        return {
            "boundaries": None if self.boundaries is None else self.boundaries[at],
            "totals": None if share is None else np.abs(values).sum(axis=1),
            "largest_share": share,
            "beside": values,
        }


def write_curves(shard: Path, labels: Sequence[str], here: Sequence[bool], **columns: FloatArray) -> None:
    """Write beside a shard what crowds and rows of those here need: label, value, truth, stored (and habits)."""
    arrays = {
        name: pl.Series(np.ascontiguousarray(rows), dtype=pl.Array(pl.Float64, rows.shape[1]))
        for name, rows in columns.items()
    }
    frame = pl.DataFrame({"label": pl.Series(list(labels), dtype=pl.String), **arrays})
    put_frame(shard.with_suffix(f".{CURVES}"), frame.filter(pl.Series(list(here), dtype=pl.Boolean)))


def read_curves(shards: Sequence[Part]) -> pl.DataFrame:
    """The curves of every shard: label, value, truth, stored and, of a table, habits."""
    parts = [pl.read_parquet(part.beside(CURVES)) for part in shards]
    return pl.concat([part for part in parts if "value" in part.columns] or parts[:1]).sort("label")


def read_boundaries(config: Config, labels: Sequence[str]) -> Any:
    """(n,) the boundary of each label, from the file that the settings name; None where they name none."""
    if config.boundaries is None:
        return None
    file, colon, column = config.boundaries.rpartition(":")
    if not colon:
        file, column = config.boundaries, ""
    try:
        table = pl.read_csv(file, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"boundaries: {Path(file).name} cannot be read as a CSV file; give FILE:COLUMN") from None
    known = {name.lower(): name for name in table.columns}
    who = next((known[name] for name in (*NAMES, str(config.label).lower()) if name in known), table.columns[0])
    rest = [name for name in table.columns if name != who]
    column = column or (rest[0] if len(rest) == 1 else "")
    if column not in rest:
        raise InputError(
            f"boundaries: name the column that crowds do not cross, FILE:COLUMN; {Path(file).name} has "
            f"{', '.join(rest[:12])}"
        )
    if table[who].n_unique() != len(table):
        raise InputError(f"boundaries: {Path(file).name} must have one row per label, and some occur twice")
    keys = [name_key(name or "") for name in table[who].to_list()]
    if len(set(keys)) < len(keys):
        raise InputError(f"boundaries: {Path(file).name} must have one row per label, and some occur in two spellings")
    value = dict(zip(keys, table[column].fill_null("").to_list(), strict=True))
    missing = sum(name_key(label) not in value for label in labels)
    if missing:
        raise InputError(f"boundaries: {Path(file).name} has no row for {count_of(missing, 'label')}; add them")
    return np.array([value[name_key(label)] for label in labels], dtype=object)
