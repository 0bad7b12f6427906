"""Neighbor graphs from meters: who must be indistinguishable from whom.

A graph learned from the readings (clusters, nearest households) is itself a statement about them. Publishing it, or
letting it change with one household's data, is outside the guarantee; a graph from facts known anyway (feeder,
postcode, dwelling type) has no such cost.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.classes import GaussianClasses
from shoal.errors import InputError
from shoal.graph import NeighborGraph
from shoal.meters.forecast import Forecasts
from shoal.meters.quality import from_pandas, is_pandas
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl


class LonelyWarning(UserWarning):
    """A household has no neighbor: nothing hides it, and no figure of the graph speaks about it."""


def cluster_graph(
    source: Forecasts | Any,
    n_clusters: int = 6,
    seed: int = 0,
    *,
    by: str = "profile",
    labels: Sequence[Any] | None = None,
) -> NeighborGraph:
    """Complete inside each k-means cluster of households (the paper's study has six clusters).

    ``source`` is a :class:`Forecasts` or an (n, d) array of profiles with its ``labels``. For forecasts, ``by``
    says what is clustered: ``"profile"``, the mean log power over the season's period in the training window, or
    ``"forecast"``, the point forecast in log power.

    Returns:
        The graph over the households; a :class:`shoal.LonelyWarning` says how many have no neighbor.

    >>> import shoal
    >>> shoal.cluster_graph([[0.0], [0.1], [5.0], [5.1]], n_clusters=2).edges.tolist()
    [[0, 1], [2, 3]]
    """
    points, names = _points(source, by, labels)
    members = clusters(points, n_clusters, seed)
    return _checked(NeighborGraph.within_groups(names, [str(m) for m in members]))


def clusters(points: Any, n_clusters: int = 6, seed: int = 0) -> NDArray[np.int64]:
    """(n,) cluster number of each row: scikit-learn's k-means, best of ten starts."""
    from sklearn.cluster import KMeans

    x = validation.array(ndim=2, points=points)
    n_clusters = validation.count(n_clusters=n_clusters)
    seed = validation.count(at_least=0, seed=seed)
    if n_clusters > len(x):
        raise InputError(f"n_clusters must not exceed the number of households ({len(x)})")
    found = KMeans(n_clusters=n_clusters, n_init=10, random_state=seed).fit_predict(x)
    return np.asarray(found, dtype=np.int64)


def nearest_graph(
    source: Forecasts | Any, n_neighbors: int, *, by: str = "forecast", labels: Sequence[Any] | None = None
) -> NeighborGraph:
    """Join each household to its ``n_neighbors`` closest, by forecast or by profile; see :func:`cluster_graph`.

    Returns:
        :meth:`shoal.NeighborGraph.nearest` over the households.

    >>> import shoal
    >>> shoal.nearest_graph([[0.0], [0.1], [5.0], [5.1]], 1).edges.tolist()
    [[0, 1], [2, 3]]
    """
    points, names = _points(source, by, labels)
    return NeighborGraph.nearest(GaussianClasses.deterministic(points, names), n_neighbors)


def distance_graph(
    source: Forecasts | Any, threshold: float, *, by: str = "forecast", labels: Sequence[Any] | None = None
) -> NeighborGraph:
    """Join households whose forecasts or profiles differ by at most ``threshold`` (root mean square, ln kW).

    ``source``, ``by`` and ``labels`` are as in :func:`cluster_graph`.

    Returns:
        The graph over the households; a :class:`shoal.LonelyWarning` says how many have no neighbor.

    >>> import shoal
    >>> shoal.distance_graph([[0.0], [0.1], [5.0], [5.1]], 0.2).edges.tolist()
    [[0, 1], [2, 3]]
    """
    from scipy.spatial.distance import pdist, squareform

    points, names = _points(source, by, labels)
    apart = squareform(pdist(points)) / np.sqrt(points.shape[1])
    return _checked(NeighborGraph.from_distance(names, apart, threshold))


def column_graph(
    source: Forecasts | Sequence[Any],
    table: Any,
    column: str,
    *,
    household: str = "household",
) -> NeighborGraph:
    """Complete among households that share a value of ``column``: feeder, postcode, dwelling type.

    ``source`` is a :class:`Forecasts` or the household labels; ``table`` a polars or pandas frame or a CSV file with
    one row per household. Households without an entry form a group of their own: they are unknown alike.

    Returns:
        The graph over the households; a :class:`shoal.LonelyWarning` says how many have no neighbor.

    >>> import polars as pl
    >>> import shoal
    >>> table = pl.DataFrame({"household": ["a", "b", "c", "d"], "feeder": [1, 2, 1, 2]})
    >>> shoal.column_graph(["a", "b", "c", "d"], table, "feeder").edges.tolist()
    [[0, 2], [1, 3]]
    """
    import polars as pl

    names = source.households if isinstance(source, Forecasts) else tuple(str(s) for s in source)
    if is_pandas(table):
        table = from_pandas(table, "table")
    frame = table if isinstance(table, pl.DataFrame) else _table(table)
    missing = [c for c in (household, column) if c not in frame.columns]
    if missing:
        raise InputError(f"table lacks the column(s) {missing}; found {frame.columns[:12]}")
    keys = frame[household].cast(pl.String).to_list()
    if len(set(keys)) != len(keys):
        raise InputError("table must have one row per household: at least one household occurs twice")
    known = dict(zip(keys, frame[column].cast(pl.String).fill_null("").to_list(), strict=True))
    absent = [name for name in names if name not in known]
    if absent:
        raise InputError(f"table has no row for {len(absent)} household(s), the first being {absent[0]!r}")
    return _checked(NeighborGraph.within_groups(names, [known[name] for name in names]))


def _table(path: str | Path) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"table: {Path(path).name} cannot be read as a CSV file") from None


def _points(source: Forecasts | Any, by: str, labels: Sequence[Any] | None) -> tuple[FloatArray, tuple[str, ...]]:
    if isinstance(source, Forecasts):
        by = validation.choice(("profile", "forecast"), by=by)
        return (source.season.profile if by == "profile" else source.log_mean), source.households
    points = validation.array(ndim=2, profiles=source)
    return points, validation.labels(len(points), labels)


def _checked(graph: NeighborGraph) -> NeighborGraph:
    alone = graph.n_labels - len(np.unique(graph.edges))
    if alone:
        warnings.warn(f"{alone} household(s) have no neighbor in this graph", LonelyWarning, stacklevel=3)
    return graph
