"""The two inputs of a run: meters, of which households are forecast, and tables with a label in every row.

Everything in which crowds, rows and pages differ by the input stands here, side by side: stages ask their input.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from shoal.columns import public_columns
from shoal.product.card.facts import FitFacts
from shoal.product.runs.config import Config
from shoal.product.runs.curves import Curves, read_boundaries, read_curves
from shoal.product.runs.facts import CrowdFacts
from shoal.product.runs.shards import Part
from shoal.product.sources.class_table import ClassTable
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.neighborhoods import blend
from shoal.product.sources.meters.season import phases
from shoal.validation import FloatArray


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
        points = blend(frame["value"].to_numpy(), frame["stored"].to_numpy(), times)
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
        return long.with_columns(kw).select(public_columns("meters")), [self.who, "step"]

    def own_rows(self, released: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """label, crowd and row, from the owner's table."""
        return released.sort("step").group_by(pl.col("household").alias("label"), "crowd").agg(row="kw")


class TableInput:
    """Rows of any table, with a label in each; one figure per column."""

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
        """Columns, and decimals that mean something: thousandths of a column's spread."""
        spread = [] if curves is None else np.sort(curves.values, axis=0).std(axis=0).tolist()
        decimals = [3 - int(np.floor(np.log10(width))) if width > 0 else 6 for width in spread]
        return {"kind": self.kind, "columns": list(columns), "decimals": decimals}

    def time_text(self, fit: FitFacts, period: str) -> str:
        """The time that a release is about, as it was declared."""
        return period

    def time_zone(self, fit: FitFacts, declared: str) -> str | None:
        """The zone of the period: a declared instant may have one."""
        zoned = len(declared) > 10 and datetime.fromisoformat(declared).tzinfo is not None
        return "UTC" if zoned else fit.time_zone

    def entries(self, settings: Config, plan: CrowdFacts) -> Sequence[str]:
        """Names of the figures of a row."""
        return plan.columns

    def axis(self, settings: Config, plan: CrowdFacts) -> str:
        """Words for the axis of a chart."""
        return f"{len(plan.columns)} columns"

    def spread(self, values: FloatArray) -> FloatArray | float:
        """The unit in which errors are counted, column by column."""
        spread: FloatArray = values.std(axis=0)
        return spread

    def public_rows(self, settings: Config, plan: CrowdFacts, table: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
        """The rows of crowds as they are passed on, and the order of the owner's."""
        entry = pl.col("values").list
        values = [entry.get(j, null_on_oob=True).alias(name) for j, name in enumerate(plan.columns)]
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
    naive = instant if instant.tzinfo is None else instant.astimezone(UTC).replace(tzinfo=None)
    start = (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return clock.stamps(start, timedelta(minutes=fit.step_minutes or 0), horizon, fit.time_zone)


def _among(frame: pl.DataFrame, labels: Sequence[str] | None) -> pl.DataFrame:
    return frame if labels is None else frame.filter(pl.col("label").is_in(labels))
