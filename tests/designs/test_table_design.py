"""Designs for who holds the whole table: certified, calibrated and stored for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from design_cases import random_covs
from mpmath import mp, mpf

import shoal

METHODS = ("white", "paper", "covariance", "additive", "transport", "center")


@pytest.fixture(scope="module")
def problem() -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    rng = np.random.default_rng(11)
    classes = shoal.GaussianClasses(0.7 * rng.standard_normal((4, 3)), random_covs(rng, 4, 3) + 0.3 * np.eye(3))
    return classes, shoal.NeighborGraph.complete(classes.labels)


@pytest.mark.parametrize("method", METHODS)
def test_certificates_are_for_the_table(
    method: str, problem: tuple[shoal.GaussianClasses, shoal.NeighborGraph], tmp_path: Path
) -> None:
    classes, graph = problem
    table = shoal.design(classes, graph, method, epsilon=1.0, rho=0.3, scope="table", iterations=15)
    answer = shoal.design(classes, graph, method, epsilon=1.0, rho=0.3, iterations=15)
    assert table.certificate.scope == "table"
    assert answer.certificate.scope == "answer"
    exact = shoal.privacy_curve(table.output, graph, 1.0, scope="table")
    assert table.certificate.delta == pytest.approx(exact.delta, rel=1e-9)
    assert table.certificate.delta_upper >= exact.delta_upper
    assert table.curve(1.0).scope == "table"
    assert table.curve(1.0, scope="answer").delta_upper < table.certificate.delta_upper
    assert table.certificate_for("answer").delta_upper < table.certificate_for("table").delta_upper
    # A design for the table is at least as good there as one for single answers, up to what a bounded search leaves.
    assert table.certificate.delta <= answer.certificate_for("table").delta * 1.02
    table.save(tmp_path / "table.shoal")
    loaded = shoal.Mechanism.load(tmp_path / "table.shoal")
    assert loaded.scope == "table"
    assert loaded.digest == table.digest
    assert loaded.certificate.delta_upper == table.certificate.delta_upper


@pytest.mark.parametrize("method", ["white", "transport", "center"])
def test_calibrated_for_the_table(method: str, problem: tuple[shoal.GaussianClasses, shoal.NeighborGraph]) -> None:
    classes, graph = problem
    found = shoal.calibrate(classes, graph, method, epsilon=1.0, delta=0.05, scope="table", iterations=2)
    assert found.certificate.delta_upper <= 0.05
    assert shoal.privacy_curve(found.output, graph, 1.0, scope="table").delta_upper <= 0.05
    alone = shoal.calibrate(classes, graph, method, epsilon=1.0, delta=0.05, iterations=2)
    assert found.rho.max() >= alone.rho.max() * (1 - 5e-3)
    if method == "white":  # what one answer is certified for is not what the table keeps
        assert alone.certificate_for("table").delta_upper > 0.05


def test_finite_precision_counts_for_both_rows(problem: tuple[shoal.GaussianClasses, shoal.NeighborGraph]) -> None:
    classes, graph = problem
    found = shoal.design(classes, graph, "white", epsilon=1.0, rho=0.3, scope="table")
    worst = float(found.rounding_tv.max())
    with mp.workdps(60):
        assert found.certificate.finite_precision >= 2 * mpf(worst) * (1 + mp.e)
    assert found.certificate_for("answer").finite_precision <= worst * (1 + np.e) * (1 + 1e-9)


def test_labels_that_meet_cost_the_same(problem: tuple[shoal.GaussianClasses, shoal.NeighborGraph]) -> None:
    classes, graph = problem
    assert shoal.perfect_rho(classes, graph, scope="table") == shoal.perfect_rho(classes, graph)
    constants = shoal.GaussianClasses.deterministic(classes.means)
    found = shoal.calibrate(constants, graph, "center", epsilon=1.0, delta=1e-6, scope="table")
    assert found.certificate.delta_upper < 1e-25
