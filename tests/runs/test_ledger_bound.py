"""What the ledger is told about a shard's mechanism is never below what the mechanism costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.ledger.bounds import POINTS
from shoal.runs.shards import Part
from shoal.runs.stages.design_stage import BOUND, bound_of, ledger_bound


@pytest.fixture(scope="module")
def family() -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    rng = np.random.default_rng(3)
    factors = rng.standard_normal((5, 3, 3))
    covs = factors @ factors.transpose(0, 2, 1) + 0.3 * np.eye(3)
    classes = shoal.GaussianClasses(rng.standard_normal((5, 3)), covs)
    return classes, shoal.NeighborGraph.complete(classes.labels)


@pytest.mark.parametrize(
    ("method", "share"), [("white", 0.5), ("white", 20.0), ("center", 0.7), ("center", 1.0 + 1e-7)]
)
def test_a_bound_is_above_the_exact_figure_at_every_epsilon(
    family: tuple[shoal.GaussianClasses, shoal.NeighborGraph], method: str, share: float
) -> None:
    rho = share * shoal.perfect_rho(*family)
    mechanism = shoal.design(*family, method, 1.0, rho)
    bound = ledger_bound(mechanism)
    assert bound.digest == mechanism.digest
    grid = np.array([0.0, 0.3, 1.0, 2.0])
    exact = shoal.privacy_curve(mechanism.output, mechanism.graph, grid).delta
    for epsilon, delta in zip(grid, exact, strict=True):
        assert bound.delta_at(float(epsilon)) >= delta
    assert bound.delta_at(1.0) >= mechanism.certificate.delta_upper
    assert bound.delta_at(1.0) <= bound.delta_at(0.0)


def test_a_bound_survives_the_file(family: tuple[shoal.GaussianClasses, shoal.NeighborGraph], tmp_path: Path) -> None:
    bound = ledger_bound(shoal.design(*family, "white", 1.0, 2.0))
    key = "0" * 32
    points = {kind: list(getattr(bound, kind).items()) for kind in POINTS}
    (tmp_path / f"{key}.{BOUND}").write_text(json.dumps({"digest": bound.digest, **points}))
    part = Part(str(tmp_path / f"{key}.shoal"), {}, {})
    assert bound_of(part) == bound
    part.beside(BOUND).write_text("{}")
    with pytest.raises(shoal.InputError, match="is damaged"):
        bound_of(part)
