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
from shoal.product.runs.shards import Part, put_frame
from shoal.product.sources.class_table import ClassTable
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.neighborhoods import crowd_points
from shoal.product.sources.meters.predictive import phases
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


class MeterInput:
    """Forecasts of households, one figure per step."""

    kind = "forecast"  #: in the setting of a crowd
    who, several = "household", "households"  #: column of names, and their noun
    unit, error_unit, page_unit = "kW", "kW", "kW"
    of_meters = True

    def columns(self, shards: Sequence[Part]) -> tuple[str, ...]:
        """Columns of a table; none."""
        return ()

    def curves(
        self, settings: Config, fit: FitFacts, shards: Sequence[Part], among: Sequence[str] | None = None
    ) -> Curves:
        """Curves of some households, or of all; forecast and usual day together make homes alike."""
        frame = _among(read_curves(shards), among)
        times = phases(horizon_stamps(fit, settings.horizon), "day", timedelta(minutes=fit.step_minutes or 0))
        points = crowd_points(frame["value"].to_numpy(), frame["stored"].to_numpy(), times)
        boundaries = read_boundaries(settings, frame["label"].to_list())
        return Curves(frame, points, boundaries, tuple(times.tolist()), fit.origin or "")

    def setting(self, settings: Config, fit: FitFacts, columns: Sequence[str], curves: Curves | None) -> dict[str, Any]:
        """What is fixed about the figures for a crowd's life."""
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

    def time_text(self, fit: FitFacts, period: str) -> str:
        """The time that a release is about: the first instant of the forecasts."""
        return fit.origin or ""

    def time_zone(self, fit: FitFacts, declared: str) -> str | None:
        """The zone of the period."""
        return fit.time_zone

    def entries(self, settings: Config, plan: CrowdFacts) -> Sequence[str]:
        """Names of the figures of a row."""
        return [str(step) for step in range(1, settings.horizon + 1)]

    def axis(self, settings: Config, plan: CrowdFacts) -> str:
        """Words for the axis of a chart: none, since its instants stand there."""
        return ""

    def spread(self, values: FloatArray) -> FloatArray | float:
        """The unit in which errors are counted, entry by entry."""
        return 1.0

    def public_rows(self, settings: Config, plan: CrowdFacts, table: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        """The rows of crowds as they are passed on, and the order of the owner's."""
        stamps = horizon_stamps(plan.fit, settings.horizon)
        steps = pl.DataFrame({"step": np.arange(1, settings.horizon + 1), "timestamp": stamps})
        kw = pl.col("values").list.get(pl.col("step") - 1, null_on_oob=True).alias("kw")
        long = table.join(steps, how="cross").sort("crowd", "step")
        return long.with_columns(kw.fill_nan(None)).select(public_columns("meters")), [self.who, "step"]

    def own_rows(self, released: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """label, crowd and row, from the owner's table."""
        return released.sort("step").group_by(pl.col("household").alias("label"), "crowd").agg(row="kw")


class TableInput:
    """Rows of any table, with a label in each; one figure per column. It is asked as :class:`MeterInput`."""

    kind = "table"
    who, several = "label", "labels"
    unit, error_unit, page_unit = "", "standard deviations of the columns", "sd"
    of_meters = False

    def columns(self, shards: Sequence[Part]) -> tuple[str, ...]:
        """The columns that are released."""
        return ClassTable.load(shards[0].path).columns

    def curves(
        self, settings: Config, fit: FitFacts, shards: Sequence[Part], among: Sequence[str] | None = None
    ) -> Curves:
        """Curves of some labels, or of all; alike in what the first stage wrote as habits."""
        frame = _among(read_curves(shards), among)
        boundaries = read_boundaries(settings, frame["label"].to_list())
        return Curves(frame, frame["habits"].to_numpy(), boundaries, None, fit.origin or "")

    def setting(self, settings: Config, fit: FitFacts, columns: Sequence[str], curves: Curves | None) -> dict[str, Any]:
        """Columns, those that are sensitive, and how close crowds are to all labels in what is protected."""
        unknown = next((name for name in settings.sensitive if name not in columns), None) if columns else None
        if unknown is not None:
            raise InputError(
                f"sensitive: the table has no column {unknown!r} that is released; name one of its columns"
            )
        sensitive = sorted(settings.sensitive)
        return {"kind": self.kind, "columns": list(columns), "sensitive": sensitive, "closeness": settings.closeness}

    def time_text(self, fit: FitFacts, period: str) -> str:
        """The time that a release is about, as it was declared."""
        return period

    def time_zone(self, fit: FitFacts, declared: str) -> str | None:
        """The zone of the period: a declared instant may have one."""
        has_time_zone = len(declared) > 10 and datetime.fromisoformat(declared).tzinfo is not None
        return "UTC" if has_time_zone else fit.time_zone

    def entries(self, settings: Config, plan: CrowdFacts) -> Sequence[str]:
        return plan.columns

    def axis(self, settings: Config, plan: CrowdFacts) -> str:
        return f"{len(plan.columns)} columns"

    def spread(self, values: FloatArray) -> FloatArray | float:
        spread: FloatArray = values.std(axis=0)
        return spread

    def public_rows(self, settings: Config, plan: CrowdFacts, table: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        entry = pl.col("values").list
        values = [entry.get(j, null_on_oob=True).fill_nan(None).alias(name) for j, name in enumerate(plan.columns)]
        return table.select(*public_columns("figures"), *values), [self.who]

    def own_rows(self, released: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """label, crowd and row, from the owner's table; of several rows of a label their mean."""
        means = released.group_by("label", "crowd").agg(pl.col(list(columns)).mean())
        return means.select("label", "crowd", row=pl.concat_list(list(columns)))


Input = MeterInput | TableInput
METERS, TABLE = MeterInput(), TableInput()


def input_of(settings: Config) -> Input:
    """Meters, or a table where a column of labels is named."""
    return METERS if settings.label is None else TABLE


def horizon_stamps(fit: FitFacts, horizon: int) -> pl.Series:
    """The instants of the horizon, on the clock of the readings."""
    instant = datetime.fromisoformat(fit.origin or "")
    return clock.stamps(clock.epoch(instant), timedelta(minutes=fit.step_minutes or 0), horizon, fit.time_zone)


def _among(frame: pl.DataFrame, labels: Sequence[str] | None) -> pl.DataFrame:
    return frame if labels is None else frame.filter(pl.col("label").is_in(labels))
