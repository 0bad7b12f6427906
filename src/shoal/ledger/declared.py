"""Releases made elsewhere, in the form the ledger records."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.ledger.chain import told
from shoal.ledger.questions import known_label, word
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.reader import Releaser


def as_mechanism(released: Releaser | GaussianClasses, graph: NeighborGraph | None) -> Releaser:
    """The mechanism itself, or one whose output is exactly the laws given: nothing is added to them."""
    if isinstance(released, Releaser):
        return released
    if not isinstance(released, GaussianClasses):
        raise InputError("released must be a Mechanism, a Codebook or a GaussianClasses")
    if released.is_output:
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


def declaration(
    label: Any,
    mechanism: Releaser | None,
    epsilon: float | None,
    delta: float | None,
    times: int,
    analyst: str | None,
    note: str,
) -> dict[str, Any]:
    """Releases made elsewhere as the ledger records them: by their mechanism, or by the (ε, δ) that is known."""
    who = None if analyst is None else word(analyst=analyst)
    content = told(times=validation.count(times=times), note=str(note), analyst=who)
    if mechanism is None:
        if epsilon is None or delta is None:
            raise InputError("declare needs a mechanism, the laws of what was released, or epsilon and delta")
        content["label"] = word(label=str(label))
        content["epsilon"] = validation.non_negative(epsilon=epsilon)
        content["delta"] = validation.probability(delta=delta)
        return content
    if epsilon is not None or delta is not None:
        raise InputError("declare takes either what was released or epsilon and delta, not both")
    content["label"] = known_label(mechanism, label)
    content["mechanism"] = mechanism.digest
    content["tv"] = mechanism.finite_precision_tv
    return content
