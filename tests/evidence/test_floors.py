"""A δ that no Gaussian mechanism goes below, against designs that are nearly the best."""

from __future__ import annotations

import pytest

import shoal
from evidence.paper.floors import delta_floor
from shoal.designs.problem import DesignProblem


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_it_is_close_for_two_labels_in_one_dimension(share: float) -> None:
    """At ε = 0, where both directions agree; the bound takes each direction for itself."""
    classes = shoal.GaussianClasses([[0.0], [2.0]], [[[1.0]], [[0.36]]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    rho = share * shoal.perfect_rho(classes, graph)
    certificate = shoal.design(classes, graph, "transport", 0.0, rho).certificate
    bound = delta_floor(DesignProblem.of(classes, graph, 0.0, rho))
    assert bound <= certificate.delta_upper <= 1.01 * bound


def test_constants_and_perfection() -> None:
    classes = shoal.GaussianClasses.deterministic([[0.0], [2.0]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    certificate = shoal.design(classes, graph, "additive", 0.0, 0.4).certificate
    bound = delta_floor(DesignProblem.of(classes, graph, 0.0, 0.4))
    assert 0 < bound <= certificate.delta_upper <= 1.01 * bound
    assert delta_floor(DesignProblem.of(classes, graph, 0.0, shoal.perfect_rho(classes, graph))) == 0


def test_of_a_table() -> None:
    classes = shoal.GaussianClasses([[0.0], [3.0]], [[[1.0]], [[0.6]]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    for rho in (0.05, 0.3, 0.8):
        certificate = shoal.design(classes, graph, "transport", epsilon=1.0, rho=rho, scope="table").certificate
        bound = delta_floor(DesignProblem.of(classes, graph, 1.0, rho, scope="table"))
        assert delta_floor(DesignProblem.of(classes, graph, 1.0, rho)) <= bound <= certificate.delta_upper
        assert certificate.delta <= bound * 1.05 + 1e-12
