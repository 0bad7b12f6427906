"""The two inputs of a run: meters, of which households are forecast, and tables with a label in every row.

Everything in which crowds, rows and pages differ by the input stands here, side by side: stages ask their input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shoal.columns import public_columns
from shoal.errors import InputError
from shoal.plaintext import name_key
from shoal.product.card.facts import FitFacts
from shoal.product.runs.config import Config
from shoal.product.runs.folder import CrowdFacts
from shoal.product.runs.shards import Part, write_shard_frame
from shoal.product.sources.class_table import ClassTable
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.crowd_points import points_of_homes
from shoal.product.sources.meters.predictive_laws import phase_numbers
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
        """Figures of today, (n, k)."""
        return self.frame["value"].to_numpy()

    @property
    def truth(self) -> FloatArray:
        """What was metered later, (n, k); NaN where it is not known."""
        return self.frame["truth"].to_numpy()

    @property
    def largest_crowd(self) -> int:
        """The number of members of the largest crowd that can be formed of everybody."""
        return len(self.frame) if self.boundaries is None else max(Counter(self.boundaries).values(), default=0)


def write_curves(shard: Path, labels: Sequence[str], here: Sequence[bool], **columns: FloatArray) -> None:
    """Write beside a shard what crowds and rows of the labels that are here need, one row a label."""
    arrays = {
        name: pl.Series(np.ascontiguousarray(rows), dtype=pl.Array(pl.Float64, rows.shape[1]))
        for name, rows in columns.items()
    }
    frame = pl.DataFrame({"label": pl.Series(list(labels), dtype=pl.String), **arrays})
    write_shard_frame(shard.with_suffix(f".{CURVES}"), frame.filter(pl.Series(list(here), dtype=pl.Boolean)))


def read_curves(shards: Sequence[Part]) -> pl.DataFrame:
    """Return the curves of every shard: label, value, truth, stored and, of a table, habits; sorted by label."""
    parts = [pl.read_parquet(part.sibling_file(CURVES)) for part in shards]
    return pl.concat([part for part in parts if "value" in part.columns] or parts[:1]).sort("label")


def read_boundaries(config: Config, labels: Sequence[str]) -> Any:
    """Return (n,) the boundary of each label, from the file that the settings name; None where they name none."""
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


class Input:
    """What crowds, rows and pages ask about the figures of a run: where they come from, and how they are written."""

    kind: str  #: in the setting of a crowd
    who: str  #: column of names
    several: str  #: noun of the names
    error_unit: str
    page_unit: str
    of_meters: bool

    def columns(self, shards: Sequence[Part]) -> tuple[str, ...]:
        """Return the columns of a table that are released; none of meters."""
        return ()

    def curves(
        self, settings: Config, fit: FitFacts, shards: Sequence[Part], among: Sequence[str] | None = None
    ) -> Curves:
        """Return figures of some labels, or of all, with what crowds are formed by."""
        frame = read_curves(shards)
        frame = frame if among is None else frame.filter(pl.col("label").is_in(among))
        points, ahead = self.likeness(settings, fit, frame)
        return Curves(frame, points, read_boundaries(settings, frame["label"].to_list()), ahead, fit.origin or "")

    def likeness(self, settings: Config, fit: FitFacts, frame: pl.DataFrame) -> tuple[FloatArray, Any]:
        """Return what crowds are alike in (n, d), and of meters the time of the day of each entry."""
        raise NotImplementedError

    def setting(self, settings: Config, fit: FitFacts, columns: Sequence[str]) -> dict[str, Any]:
        """Return what is fixed about the figures for a crowd's life."""
        raise NotImplementedError

    def error_scale(self, values: FloatArray) -> FloatArray | float:
        """Return the unit in which errors are counted, entry by entry."""
        return 1.0

    def in_error_units(self, values: FloatArray, off: FloatArray | None = None) -> FloatArray:
        """Return figures, or how far some are ``off``, in the unit in which errors of these values are counted."""
        scale = self.error_scale(values)
        return (values if off is None else off) / np.where(scale > 0, scale, 1.0)

    def public_rows(self, settings: Config, plan: CrowdFacts, table: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        """Return the rows of crowds as they are passed on, and the columns that the owner's table is sorted by."""
        raise NotImplementedError

    def own_rows(self, released: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """Return label, crowd and row, from the owner's table; of several rows of a label their mean."""
        raise NotImplementedError


class MeterInput(Input):
    """Forecasts of households, one figure per step."""

    kind, who, several = "forecast", "household", "households"
    error_unit, page_unit = "kW", "kW"
    of_meters = True

    def likeness(self, settings: Config, fit: FitFacts, frame: pl.DataFrame) -> tuple[FloatArray, Any]:
        """Return forecast and usual day together, which make homes alike, and the time of the day of each step."""
        times = phase_numbers(horizon_stamps(fit, settings.horizon), "day", timedelta(minutes=fit.step_minutes or 0))
        return points_of_homes(frame["value"].to_numpy(), frame["stored"].to_numpy(), times), tuple(times.tolist())

    def setting(self, settings: Config, fit: FitFacts, columns: Sequence[str]) -> dict[str, Any]:
        """Return the query and the settings of the forecasts, which are fixed for a crowd's life."""
        return {
            "kind": self.kind,
            "query": settings.query,
            "unit": "kw",
            "order": list(settings.order),
            "train_days": settings.train_days,
            "season": settings.season,
            "step_minutes": fit.step_minutes,
            "largest_share": settings.largest_share,
        }

    def public_rows(self, settings: Config, plan: CrowdFacts, table: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        stamps = horizon_stamps(plan.fit, settings.horizon)
        steps = pl.DataFrame({"step": np.arange(1, settings.horizon + 1), "timestamp": stamps})
        kw = pl.col("values").list.get(pl.col("step") - 1, null_on_oob=True).alias("kw")
        long = table.join(steps, how="cross").sort("crowd", "step")
        return long.with_columns(kw.fill_nan(None)).select(public_columns("meters")), [self.who, "step"]

    def own_rows(self, released: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        return released.sort("step").group_by(pl.col("household").alias("label"), "crowd").agg(row="kw")


class TableInput(Input):
    """Rows of any table, with a label in each; one figure per column."""

    kind, who, several = "table", "label", "labels"
    error_unit, page_unit = "standard deviations of the columns", "sd"
    of_meters = False

    def columns(self, shards: Sequence[Part]) -> tuple[str, ...]:
        return ClassTable.load(shards[0].path).columns

    def likeness(self, settings: Config, fit: FitFacts, frame: pl.DataFrame) -> tuple[FloatArray, Any]:
        return frame["habits"].to_numpy(), None

    def setting(self, settings: Config, fit: FitFacts, columns: Sequence[str]) -> dict[str, Any]:
        """Return columns, those that are sensitive, and how close crowds are to all labels in what is protected."""
        unknown = next((name for name in settings.sensitive if name not in columns), None) if columns else None
        if unknown is not None:
            raise InputError(
                f"sensitive: the table has no column {unknown!r} that is released; name one of its columns"
            )
        sensitive = sorted(settings.sensitive)
        return {"kind": self.kind, "columns": list(columns), "sensitive": sensitive, "closeness": settings.closeness}

    def error_scale(self, values: FloatArray) -> FloatArray | float:
        return np.asarray(np.sort(values, axis=0).std(axis=0))  # whatever the order of the rows

    def public_rows(self, settings: Config, plan: CrowdFacts, table: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        entry = pl.col("values").list
        values = [entry.get(j, null_on_oob=True).fill_nan(None).alias(name) for j, name in enumerate(plan.columns)]
        return table.select(*public_columns("figures"), *values), [self.who]

    def own_rows(self, released: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        means = released.group_by("label", "crowd").agg(pl.col(list(columns)).mean())
        return means.select("label", "crowd", row=pl.concat_list(list(columns)))


METERS, TABLE = MeterInput(), TableInput()


def input_of(settings: Config) -> Input:
    """Return meters, or a table where a column of labels is named."""
    return METERS if settings.label is None else TABLE


def horizon_stamps(fit: FitFacts, horizon: int) -> pl.Series:
    """Return the instants of the horizon, on the clock of the readings."""
    instant = datetime.fromisoformat(fit.origin or "")
    return clock.grid_instants(
        clock.microseconds_of(instant), timedelta(minutes=fit.step_minutes or 0), horizon, fit.time_zone
    )
