"""Bad input: clear errors that name the argument and carry no data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shoal
from shoal import GaussianClasses, InputError, NeighborGraph, UnreachableError

SECRET = 12345.678
CLASSES = GaussianClasses([[SECRET, 0.0], [0.0, SECRET], [1.0, 1.0]], SECRET * np.eye(2))
GRAPH = NeighborGraph.complete(CLASSES.labels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rho": None}, "rho must be given"),
        ({"rho": 0.0}, "rho must be above 0"),
        ({"rho": -SECRET}, "rho must be above 0"),
        ({"rho": np.nan}, "rho must be finite"),
        ({"rho": np.inf}, "rho must be finite"),
        ({"rho": "much"}, "rho must be"),
        ({"rho": [0.1, 0.2]}, "rho must be one number or one per label"),
        ({"rho": [0.1, 0.2, 0.0]}, "rho must be above 0"),
        ({"rho": {"0": 1.0, "1": 1.0}}, "rho must name every label"),
        ({"rho": {"0": 1.0, "1": 1.0, "2": 1.0, "3": 1.0}}, "rho must name every label"),
        ({"method": "magic"}, "method must be one of"),
        ({"method": 3}, "method must be one of"),
        ({"notion": "renyi"}, "notion must be one of"),
        ({"epsilon": -1.0}, "epsilon must not be negative"),
        ({"epsilon": np.nan}, "epsilon must be finite"),
        ({"epsilon": [1.0, 2.0]}, "epsilon must be one number or one per edge"),
        ({"noise_floor": 1.5}, "noise_floor must not exceed rho"),
        ({"noise_floor": -0.1}, "noise_floor must not be negative"),
        ({"noise_floor": 0.1, "method": "none"}, "noise_floor"),
        ({"time_limit": 0.0}, "time_limit must be above 0"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"iterations": 2.5}, "iterations must be a whole number"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_design_refuses(arguments: dict[str, Any], message: str) -> None:
    given = {"method": "white", "epsilon": 1.0, "rho": 1.0, **arguments}
    with pytest.raises(InputError, match=message) as caught:
        shoal.design(CLASSES, GRAPH, **given)
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize("method", ["design", "calibrate", "frontier", "perfect_rho"])
def test_labels_that_differ(method: str) -> None:
    other = NeighborGraph.complete(["0", "1", "x"])
    extra = {"design": {"rho": 1.0}, "frontier": {"rho": [1.0]}}.get(method, {})
    with pytest.raises(InputError, match="label"):
        getattr(shoal, method)(CLASSES, other, **extra)


def test_graph_without_edges() -> None:
    with pytest.raises(InputError, match="no edges"):
        shoal.design(CLASSES, NeighborGraph(CLASSES.labels, np.empty((0, 2), dtype=int)), "white", 1.0, 1.0)


def test_classes_of_another_type() -> None:
    with pytest.raises(InputError, match="classes must be a GaussianClasses"):
        shoal.design(CLASSES.means, GRAPH, "white", 1.0, 1.0)  # type: ignore[arg-type]


def test_start_for_other_labels() -> None:
    other = GaussianClasses(np.eye(2), np.eye(2), ["a", "b"])
    start = shoal.design(other, NeighborGraph.complete(other.labels), "white", 1.0, 1.0)
    with pytest.raises(InputError, match="start must be"):
        shoal.design(CLASSES, GRAPH, "transport", 1.0, 1.0, start=start)


@pytest.mark.parametrize(("delta", "message"), [(1.0, "delta"), (-0.1, "delta"), (np.nan, "delta"), ("small", "delta")])
def test_calibrate_refuses(delta: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shoal.calibrate(CLASSES, GRAPH, "white", 1.0, delta)


def test_unreachable_target_says_so() -> None:
    with pytest.raises(UnreachableError, match=r"'none' gives delta") as caught:
        shoal.calibrate(CLASSES, GRAPH, "none", 1e-3, 1e-6)
    assert "12345" not in str(caught.value)


def test_frontier_and_perfect_rho_refuse() -> None:
    with pytest.raises(InputError, match="rho must hold at least one"):
        shoal.frontier(CLASSES, GRAPH, "white", 1.0, [])
    with pytest.raises(InputError, match="method must be one of"):
        shoal.perfect_rho(CLASSES, GRAPH, "white")


def test_sample_refuses() -> None:
    mechanism = shoal.design(CLASSES, GRAPH, "white", 1.0, 1.0)
    with pytest.raises(InputError, match="label is not one"):
        mechanism.sample([0.0, 0.0], "nobody", seed=0)
    with pytest.raises(InputError, match="answers must have 2 entries"):
        mechanism.sample([0.0, 0.0, 0.0], "0", seed=0)


def test_representations_show_no_data() -> None:
    mechanism = shoal.design(CLASSES, GRAPH, "white", 1.0, 1.0)
    assert "12345" not in repr(mechanism)
    assert "12345" not in repr(shoal.frontier(CLASSES, GRAPH, "white", 1.0, [1.0]))
