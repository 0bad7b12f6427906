"""The kernels of designs that search, used once (:mod:`shoal.numerics.warmup`)."""

from __future__ import annotations

from shoal.designs.design import design
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph

LAST = "paper.*.nbi"


def call() -> None:
    """The strongest search on two labels; it tries the others on its way."""
    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    graph = NeighborGraph.complete(laws.labels)
    for scope in ("answer", "table"):
        design(laws, graph, "transport", 1.0, 0.05, scope=scope, iterations=2)
