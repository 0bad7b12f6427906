"""Graphs from meters: clusters, nearest, close, and by a column of a household table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shoal.errors import InputError
from shoal.meters.forecast import forecast
from shoal.meters.neighborhoods import (
    LonelyWarning,
    cluster_graph,
    clusters,
    column_graph,
    distance_graph,
    nearest_graph,
)
from shoal.meters.simulate import simulate_meters


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, list[str], np.ndarray]:
    rng = np.random.default_rng(0)
    member = np.repeat(np.arange(3), 5)
    return 10 * member[:, None] + rng.standard_normal((15, 4)), [f"h{i}" for i in range(15)], member


def test_clusters_are_complete_and_apart(blobs: tuple[np.ndarray, list[str], np.ndarray]) -> None:
    points, labels, member = blobs
    graph = cluster_graph(points, 3, labels=labels)
    assert graph.n_edges == 3 * 10
    assert (member[graph.edges[:, 0]] == member[graph.edges[:, 1]]).all()
    assert np.array_equal(graph.edges, cluster_graph(points, 3, labels=labels).edges)
    assert len(np.unique(clusters(points, 3))) == 3


def test_nearest_and_close(blobs: tuple[np.ndarray, list[str], np.ndarray]) -> None:
    points, labels, member = blobs
    near = nearest_graph(points, 2, labels=labels)
    assert (member[near.edges[:, 0]] == member[near.edges[:, 1]]).all()
    apart = np.sqrt(((points[:, None] - points[None]) ** 2).mean(axis=2))
    close = distance_graph(points, 6.0, labels=labels)
    expected = np.argwhere(np.triu(apart <= 6.0, 1))
    assert np.array_equal(close.edges, expected)


def test_lonely_households_are_named_in_a_warning(blobs: tuple[np.ndarray, list[str], np.ndarray]) -> None:
    points, labels, _ = blobs
    with pytest.warns(LonelyWarning, match="1 household"):
        cluster_graph(np.vstack([points, [[100.0] * 4]]), 4, labels=[*labels, "far"])


def test_by_column(tmp_path: Path) -> None:
    table = pl.DataFrame({"household": ["c", "a", "b", "d", "x"], "feeder": ["1", "1", "2", None, "2"]})
    with pytest.warns(LonelyWarning):
        graph = column_graph(["a", "b", "c", "d"], table, "feeder")
    assert graph.edges.tolist() == [[0, 2]]
    table.write_csv(tmp_path / "homes.csv")
    with pytest.warns(LonelyWarning):
        assert column_graph(["a", "b", "c", "d"], tmp_path / "homes.csv", "feeder").edges.tolist() == [[0, 2]]
    with pytest.raises(InputError, match=r"lacks the column\(s\) \['postcode'\]; found"):
        column_graph(["a"], table, "postcode")
    with pytest.raises(InputError, match="no row for 1 household"):
        column_graph(["a", "z"], table, "feeder")
    with pytest.raises(InputError, match="occurs twice"):
        column_graph(["a"], pl.concat([table, table]), "feeder")
    with pytest.raises(InputError, match=r"gone\.csv"):
        column_graph(["a"], tmp_path / "gone.csv", "feeder")


def test_from_forecasts() -> None:
    fc = forecast(simulate_meters(8, 15, seed=2), order=(1, 0), season="day", horizon=4)
    by_profile = cluster_graph(fc, 2)
    assert by_profile.labels == fc.households
    expected = cluster_graph(fc.log_mean, 2, labels=fc.households)
    assert np.array_equal(cluster_graph(fc, 2, by="forecast").edges, expected.edges)
    assert nearest_graph(fc, 3).n_labels == 8
    with pytest.raises(InputError, match="by must be one of"):
        cluster_graph(fc, by="name")
    with pytest.raises(InputError, match="n_clusters must not exceed"):
        cluster_graph(fc, 9)
