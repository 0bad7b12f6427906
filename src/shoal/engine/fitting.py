"""The first stage: readings to forecasts and to the graph of who must stay indistinguishable."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.engine import sources
from shoal.engine.config import Config
from shoal.engine.folder import Folder
from shoal.errors import InputError
from shoal.graph import NeighborGraph
from shoal.meters import window
from shoal.meters.forecast import Forecasts, forecast
from shoal.meters.neighborhoods import LonelyWarning, cluster_graph, column_graph
from shoal.meters.quality import Readings
from shoal.validation import FloatArray

FORECASTS, GRAPH, TRUTH, QUALITY = "forecasts.zip", "graph.json", "truth.npy", "quality.csv"
#: Called with (done, total).
Progress = Callable[[int, int], None]
#: Households up to which a run in one piece is a good idea.
MANY = 2_000
ALONE = "no neighbor in its group: nothing would hide it"


def fit(
    folder: Folder, source: dict[str, Any], config: Config, progress: Progress | None = None
) -> tuple[list[str], dict[str, Any]]:
    """Write forecasts, graph, quality table and, where it is known, what came later."""
    readings = sources.load(source, config)
    if len(readings.quality) > MANY:
        warnings.warn(
            f"{len(readings.quality)} households in one piece take much memory and time, and groups of hundreds; "
            "--engine processes runs them in shards, with groups of bounded size",
            stacklevel=2,
        )
    forecasts = forecast(
        readings,
        order=(config.order[0], config.order[1]),
        train_days=config.train_days,
        horizon=config.horizon,
        season=config.period,
        origin=config.origin,
        progress=progress,
    )
    graph, forecasts = _neighbors(forecasts, config)
    truth = later(readings, forecasts)
    folder.write(FORECASTS, forecasts.save)
    listed = {"labels": list(graph.labels), "edges": graph.edges.tolist()}
    folder.put(GRAPH, json.dumps(listed))
    folder.write(TRUTH, lambda path: _save(path, truth))
    folder.write(QUALITY, forecasts.quality.write_csv)
    sizes = Counter(int(c) for c in graph.components)
    facts = {
        "source": sources.describe(source),
        "households": len(forecasts.households),
        "left_out": dict(forecasts.left_out),
        "repaired": int((forecasts.quality["verdict"] == "repaired").sum()),
        "origin": forecasts.origin.isoformat(),
        "horizon": forecasts.horizon,
        "step_minutes": forecasts.step.total_seconds() / 60,
        "train_days": config.train_days,
        "season": config.period,
        "season_chosen": config.season == "auto",
        "groups": sorted(sizes.values()),
        "edges": int(graph.n_edges),
        "truth_known": bool(np.isfinite(truth).any()),
        "smaller_model": int(forecasts.models.fallback.sum()),
    }
    return [FORECASTS, GRAPH, TRUTH, QUALITY], facts


def load_graph(path: Path) -> NeighborGraph:
    """The graph of a run."""
    try:
        listed = json.loads(path.read_text())
        return NeighborGraph(listed["labels"], np.array(listed["edges"], dtype=np.int64).reshape(-1, 2))
    except (OSError, KeyError, TypeError, json.JSONDecodeError):
        raise InputError(f"dir: {path.name} is missing or damaged; run `shoal fit` again") from None


def _neighbors(forecasts: Forecasts, config: Config) -> tuple[NeighborGraph, Forecasts]:
    """Groups, and the forecasts of those who have someone to hide among; the others are left out with the reason."""
    if config.table is None and config.clusters > len(forecasts.households):
        raise InputError(f"clusters must not exceed the {len(forecasts.households)} households that could be fitted")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LonelyWarning)
        if config.table is not None and config.column is not None:
            graph = column_graph(forecasts, config.table, config.column)
        else:
            graph = cluster_graph(forecasts, config.clusters, config.seed, by=config.cluster_by)
    return sheltered(graph, forecasts)


def sheltered(graph: NeighborGraph, forecasts: Forecasts) -> tuple[NeighborGraph, Forecasts]:
    """Only those who have a neighbor; the others are left out with the reason."""
    keep = np.unique(graph.edges)
    if not len(keep):
        raise InputError("clusters: every household is a group of its own, so nothing hides any; use fewer groups")
    if len(keep) == graph.n_labels:
        return graph, forecasts
    names = [forecasts.households[i] for i in keep]
    place = {int(i): position for position, i in enumerate(keep)}
    edges = np.array([[place[int(a)], place[int(b)]] for a, b in graph.edges])
    alone = {name: ALONE for i, name in enumerate(forecasts.households) if i not in place}
    return NeighborGraph(names, edges), forecasts.take(keep, alone)


def later(readings: Readings, forecasts: Forecasts) -> FloatArray:
    """(n, h) readings of the horizon in kW; NaN where none is known, as of a household without new readings."""
    at = window.place_origin(readings, forecasts.origin)
    part = window.cut(readings, at, forecasts.horizon)
    place = {name: i for i, name in enumerate(part.households)}
    unknown = np.full(forecasts.horizon, np.nan)
    return np.array([part.kw[place[name]] if name in place else unknown for name in forecasts.households])


def _save(path: Path, values: FloatArray) -> None:
    with path.open("wb") as file:
        np.save(file, values, allow_pickle=False)
