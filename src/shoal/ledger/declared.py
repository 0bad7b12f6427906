"""Releases made elsewhere, in the form the ledger records."""

from __future__ import annotations

import numpy as np

from shoal.classes import GaussianClasses
from shoal.errors import InputError
from shoal.graph import NeighborGraph
from shoal.mechanisms.mechanism import Mechanism


def as_mechanism(released: Mechanism | GaussianClasses, graph: NeighborGraph | None) -> Mechanism:
    """The mechanism itself, or one whose output is exactly the laws given: nothing is added to them."""
    if isinstance(released, Mechanism):
        return released
    if not isinstance(released, GaussianClasses):
        raise InputError("released must be a Mechanism or a GaussianClasses")
    if released.doubts is not None:
        raise InputError("released: declare the mechanism itself rather than its output, which is rounded")
    if graph is None:
        raise InputError("graph must be given with the laws of what was released: the ledger's graph for these labels")
    if set(graph.labels) != set(released.labels):
        raise InputError("graph and released must have the same labels")
    n, k = released.means.shape
    return Mechanism(
        method="declared",
        classes=released,
        graph=graph,
        epsilon=np.zeros(graph.n_edges),
        notion="dp",
        shift=np.zeros((n, k)),
        gain=None,
        noise_cov=np.zeros((1, k, k)),
        budget=np.zeros(n),
        weights=np.ones(k),
        lower_bound=0.0,
    )
