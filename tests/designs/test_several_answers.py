"""A certificate for several answers about each label is that of their exact composition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import shoal


@pytest.fixture(scope="module")
def problem() -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    rng = np.random.default_rng(3)
    roots = rng.normal(size=(3, 2, 2))
    classes = shoal.GaussianClasses(rng.normal(size=(3, 2)), roots @ np.swapaxes(roots, 1, 2) + np.eye(2))
    return classes, shoal.NeighborGraph.complete(classes.labels)


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_the_certificate_is_that_of_the_composition(problem, scope: str, tmp_path: Path) -> None:
    classes, graph = problem
    one = shoal.design(classes, graph, "white", epsilon=1.0, rho=30.0, scope=scope)
    many = shoal.design(classes, graph, "white", epsilon=1.0, rho=30.0, scope=scope, times=7)
    assert np.array_equal(one.noise_cov, many.noise_cov)
    composed = shoal.privacy_curve([many.output] * 7, graph, 1.0, scope=scope)
    certificate = many.certificate
    assert certificate.delta == pytest.approx(float(composed.delta), rel=1e-12)
    assert certificate.delta_upper >= float(composed.delta_upper)
    assert certificate.delta_upper > one.certificate.delta_upper
    assert certificate.finite_precision >= 7 * one.certificate.finite_precision
    assert float(many.released_curve(1.0).delta_upper) == pytest.approx(certificate.delta_upper, rel=1e-12)
    many.save(tmp_path / "many.shoal")
    again = shoal.Mechanism.load(tmp_path / "many.shoal")
    assert (again.times, again.digest) == (7, many.digest)
    assert again.digest != one.digest


def test_calibrated_for_several_answers(problem) -> None:
    classes, graph = problem
    found = shoal.calibrate(classes, graph, "mean", epsilon=1.0, delta=1e-5, scope="table", times=50)
    composed = shoal.privacy_curve([found.output] * 50, graph, 1.0, scope="table")
    assert float(composed.delta_upper) <= found.certificate.delta_upper <= 1e-5
