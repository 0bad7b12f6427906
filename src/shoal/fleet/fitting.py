"""The fit of one shard: readings to forecasts, and to the groups that have someone to hide among."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from shoal.engine.cost import error_against
from shoal.engine.fitting import later, sheltered
from shoal.errors import InputError
from shoal.fleet.shards import read_shard, readings_of
from shoal.fleet.store import put_whole
from shoal.graph import NeighborGraph
from shoal.meters.forecast import Forecasts, forecast
from shoal.meters.quality import Readings
from shoal.meters.update import ABSENT, update_forecasts
from shoal.validation import FloatArray

#: The end of the name of a shard's forecasts with those that are left out today.
ALL = ".all.zip"
LATE = "joined after the groups were fixed: no group would hide it"


@dataclass(frozen=True)
class FitTask:
    """Which shard to fit, how, and where to write. ``origin`` is ISO text: all shards share it."""

    readings: str
    out: str
    order: tuple[int, int]
    train_days: int
    horizon: int
    season: str
    origin: str


def fit_shard(task: FitTask) -> dict[str, Any]:
    """Write the forecasts of a shard; what to tell about them."""
    readings = readings_of(task.readings)
    forecasts = forecast(
        readings,
        order=task.order,
        train_days=task.train_days,
        horizon=task.horizon,
        season=task.season,
        origin=datetime.fromisoformat(task.origin),
    )
    graph, forecasts = sheltered(group_graph(forecasts.households, groups_of(task.readings)), forecasts)
    truth = later(readings, forecasts)
    put_whole(task.out, forecasts.save)
    return {
        **_told(forecasts, truth),
        "groups": len(set(graph.components.tolist())),
        "edges": int(graph.n_edges),
    }


def _told(forecasts: Forecasts, truth: FloatArray) -> dict[str, Any]:
    return {
        "households": len(forecasts.households),
        "left_out": dict(forecasts.left_out),
        "repaired": int((forecasts.quality["verdict"] == "repaired").sum()),
        "smaller_model": int(forecasts.models.fallback.sum()),
        "model_holds": sum(verdict == "holds" for verdict in forecasts.checks.verdict),
        "truth_known": int(np.isfinite(truth).sum()),
        "mae_forecast_kw": error_against(truth, forecasts.power),
    }


@dataclass(frozen=True)
class UpdateTask:
    """Yesterday's forecasts, the readings since, and where to write today's."""

    forecasts: str
    readings: str
    out: str
    origin: str
    refit_days: int
    drift_level: float


def update_shard(task: UpdateTask) -> dict[str, Any]:
    """Write the forecasts of a new day, of the households that were there the day before and have new readings.

    A household that joins later has no place in a group that the ledger has fixed: it is left out with that reason.
    One without new readings is left out today, since there is nothing new to release about it; it is kept beside the
    others, in ``<key>.all.zip``, so that it is back when its readings are.
    """
    everyone = Path(task.forecasts).with_suffix(ALL)
    before = Forecasts.load(everyone if everyone.is_file() else task.forecasts)
    readings = readings_of(task.readings)
    made, report = update_forecasts(
        before,
        readings,
        origin=datetime.fromisoformat(task.origin),
        refit_days=task.refit_days,
        drift_level=task.drift_level,
    )
    known = set(before.households)
    late = {name: LATE for name in made.households if name not in known}
    whole = made.take([i for i, name in enumerate(made.households) if name in known], late)
    heard = _heard(readings, before)
    absent = {name: ABSENT for name in whole.households if name not in heard}
    if len(absent) == len(whole.households):
        raise InputError("readings: no household of this shard has new readings")
    forecasts = whole.take([i for i, name in enumerate(whole.households) if name in heard], absent)
    truth = later(readings, forecasts)
    if absent:
        put_whole(Path(task.out).with_suffix(ALL), whole.save)
    put_whole(task.out, forecasts.save)
    drifted = heard.intersection(report.drifted)
    return {
        **_told(forecasts, truth),
        "carried": len(heard.intersection(report.carried)),
        "refitted": len(heard.intersection(report.scheduled)) + len(drifted),
        "drifted": len(drifted),
        "silent": len(known - set(forecasts.households)),
    }


def _heard(readings: Readings, before: Forecasts) -> set[str]:
    """Households with a reading since the origin of the day before."""
    import polars as pl

    new = readings.frame.filter((pl.col("timestamp") >= before.origin) & pl.col("kw").is_finite())
    return set(new["household"].unique())


def groups_of(readings: str | Path) -> dict[str, int]:
    """Household -> group, as a regrouped shard has them."""
    frame, _ = read_shard(readings)
    if "group" not in frame.columns:
        raise InputError(f"shard: {Path(readings).name} has no groups; it is not a regrouped readings shard")
    return dict(zip(frame["household"].to_list(), frame["group"].to_list(), strict=True))


def group_graph(households: tuple[str, ...], groups: dict[str, int]) -> NeighborGraph:
    """Complete inside each group."""
    return NeighborGraph.within_groups(households, [groups[name] for name in households])


def shard_graph(forecasts: Forecasts, readings: str | Path) -> NeighborGraph:
    """The graph of the households that a shard's forecasts are about."""
    return group_graph(forecasts.households, groups_of(readings))
