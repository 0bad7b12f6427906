"""The kernels of exact accounting, used once (:mod:`shoal.numerics.warmup`)."""

from __future__ import annotations

import numpy as np

from shoal.accounting.curve import privacy_curve
from shoal.accounting.renyi import renyi_curve
from shoal.accounting.spectrum import edge_spectra
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph

LAST = "spectrum._fast_batch*.nbi"


def call() -> None:
    """Curves of two labels, for single answers and whole tables."""
    laws = GaussianClasses([[0.0, 0.0], [1.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]], [[2.0, 0.5], [0.5, 1.0]]])
    edge_spectra(laws, np.array([[0, 1]]), precise=True).reverse()
    graph = NeighborGraph.complete(laws.labels)
    for scope in ("answer", "table"):
        privacy_curve(laws, graph, [0.5, 1.0], scope=scope)
        renyi_curve(laws, graph, [2.0], scope=scope)
