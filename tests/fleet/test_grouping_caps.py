"""The table of caps against the closed form of equal noise on constants."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.accounting.deterministic import analytic_sigma, gaussian_delta
from shoal.cells import cut
from shoal.classes import GaussianClasses
from shoal.errors import InputError
from shoal.fleet.caps import cap_table

RHO, EPSILON, DELTA = 4.0, 1.0, 1e-4


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((24, 3))


def reach(points: np.ndarray, members: np.ndarray) -> float:
    """Largest distance inside a group: its sensitivity."""
    inside = points[members]
    return float(np.sqrt(((inside[:, None] - inside[None]) ** 2).sum(axis=2)).max())


def test_equal_noise(points: np.ndarray) -> None:
    classes = GaussianClasses.deterministic(points)
    table = cap_table(classes, points, [4, 12, 24], rho=RHO, epsilon=EPSILON, delta=DELTA, method="white")
    assert table["groups"].to_list() == [6, 2, 1]
    assert table["edges"].to_list() == [36, 132, 276]
    assert table["delta_worst"].is_sorted()
    assert table["rho_mean"].is_sorted()
    for cap, row in zip((4, 12, 24), table.iter_rows(named=True), strict=True):
        cell = cut(points, cap)
        reaches = [reach(points, np.flatnonzero(cell == c)) for c in range(cell.max() + 1)]
        left = [gaussian_delta(r, RHO**0.5, EPSILON) for r in reaches]
        needed = [analytic_sigma(r, EPSILON, DELTA) ** 2 for r in reaches]
        assert row["delta_worst"] == pytest.approx(max(left), rel=1e-3)
        assert row["delta_worst"] >= max(left) * (1 - 1e-9)
        assert row["delta_median"] == pytest.approx(np.quantile(left, 0.5, method="higher"), rel=1e-3)
        assert row["rho_worst"] == pytest.approx(max(needed), rel=0.03)
        assert row["rho_mean"] == pytest.approx(np.mean(needed), rel=0.03)
        assert row["met"] == pytest.approx(np.mean(np.array(left) <= DELTA))


def test_clusters_and_samples(points: np.ndarray) -> None:
    classes = GaussianClasses.deterministic(points)
    apart = np.repeat([0, 1, 2], 8)
    options = {"rho": RHO, "delta": DELTA, "method": "white", "clusters": apart}
    row = cap_table(classes, points, [100], **options).row(0, named=True)
    assert (row["groups"], row["largest"], row["designed"]) == (3, 8, 3)
    part = cap_table(classes, points, [100], sample=1, **options).row(0, named=True)
    assert (part["groups"], part["edges"], part["designed"]) == (3, row["edges"], 1)
    assert part["delta_worst"] <= row["delta_worst"]
    with pytest.raises(InputError, match="one entry per label"):
        cap_table(classes, points[:-1], [4], rho=RHO)
    with pytest.raises(InputError, match="caps must be at least 2"):
        cap_table(classes, points, [1], rho=RHO)
