"""One table of all methods: figures that hold for the mechanisms that they are about."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shoal
from shoal.designs.comparison import compare_with_averages

MEANS = np.random.default_rng(5).standard_normal((4, 3))
LAWS = shoal.GaussianClasses(MEANS, np.diag([0.3, 0.5, 0.9]))
GRAPH = shoal.NeighborGraph.complete(LAWS.labels)


@pytest.mark.parametrize("constant", [True, False])
def test_every_method_at_one_guarantee_and_at_one_error(constant):
    classes = shoal.GaussianClasses.deterministic(MEANS) if constant else LAWS
    table = shoal.compare(classes, GRAPH, epsilon=1.0, delta=1e-4, iterations=10)
    rows = {row["method"]: row for row in table.rows}
    wanted = {"none", "white", "paper", "covariance", "additive", "transport"}
    assert wanted <= set(rows) <= wanted | {"ellipsoid"}
    assert rows["none"]["rho"] is None
    assert rows["none"]["delta_at_equal_error"] > 0.5
    for name in wanted - {"none"}:
        assert rows[name]["delta"] <= 1e-4
        assert rows[name]["error"] > 0
    stronger = ["white", "covariance", "additive", "transport"]
    for weak, strong in itertools.pairwise(stronger):
        assert rows[strong]["rho"] <= rows[weak]["rho"] * (1 + 1e-9)
        assert rows[strong]["delta_at_equal_error"] <= rows[weak]["delta_at_equal_error"]
    assert rows["transport"]["naming"] < rows["white"]["naming"] <= 1.0
    # The figures are those of mechanisms that can be made.
    white = shoal.design(classes, GRAPH, "white", 1.0, rows["white"]["rho"])
    assert white.certificate.delta_upper == pytest.approx(rows["white"]["delta"], rel=1e-6)
    shown = str(table)
    assert "unprotected" in shown
    assert "shoal" in shown
    assert "transport" not in shown
    assert max(map(len, shown.splitlines())) <= 78
    assert "<table" in table._repr_html_()
    assert table.frame.shape == (len(rows), 7)


def test_averages_stand_beside_methods():
    values, crowd = np.random.default_rng(0).standard_normal((9, 4)), np.array([0] * 4 + [1] * 4 + [-1])
    table = compare_with_averages(values, crowd, 1.0, 1e-5)
    averages = table.rows[-1]
    spread = np.concatenate([values[:4] - values[:4].mean(axis=0), values[4:8] - values[4:8].mean(axis=0)])
    assert averages["method"] == "averages"
    assert averages["error"] == pytest.approx(np.sqrt((spread**2).mean()))
    assert averages["naming"] == 0.25
    assert averages["delta"] == 0.0
    with pytest.raises(shoal.InputError, match="at least one label"):
        compare_with_averages(values, np.full(9, -1), 1.0, 1e-5)


def test_refusals():
    with pytest.raises(shoal.InputError, match="methods must be one of"):
        shoal.compare(LAWS, GRAPH, methods=["best"])
    with pytest.raises(shoal.InputError, match="at least one method"):
        shoal.compare(LAWS, GRAPH, methods=[])
    with pytest.raises(shoal.InputError, match="delta must lie in"):
        shoal.compare(LAWS, GRAPH, delta=1.0)
