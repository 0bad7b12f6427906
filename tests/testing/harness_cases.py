"""What the harness is asked in these tests: a mechanism's own answers, drawn from its laws and released."""

from __future__ import annotations

import numpy as np
from benchmarks.harness import kernel

import shoal

DRAWS = 3000


def laws(random: bool = True) -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    """Three labels with two entries: random laws, or constants."""
    rng = np.random.default_rng(11)
    roots = 0.5 * rng.standard_normal((3, 2, 2))
    means = rng.standard_normal((3, 2))
    covs = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(2)
    classes = shoal.GaussianClasses(means, covs) if random else shoal.GaussianClasses.deterministic(means)
    return classes, shoal.NeighborGraph.complete(classes.labels)


def check(mechanism: shoal.Mechanism, share: float = 1.0) -> shoal.testing.MechanismCheck:
    """The harness on a mechanism, held to ``share`` of the δ that it certifies."""
    delta = share * mechanism.certificate.delta_upper
    graph, epsilon = mechanism.graph, float(mechanism.epsilon[0])
    return shoal.testing.check_mechanism(kernel(mechanism, 5), mechanism.classes, graph, epsilon, delta, n=DRAWS)


def agrees(method: str, rho: float, random: bool = True) -> None:
    """A design method keeps its own claim, and its laws prove it; a third of the claim is refuted."""
    classes, graph = laws(random)
    mechanism = shoal.design(classes, graph, method, epsilon=1.0, rho=rho, iterations=20)
    result = check(mechanism)
    assert result.verdict == "consistent"
    assert result.delta_lower <= mechanism.certificate.delta_upper
    claim = shoal.testing.check_claim(mechanism, None, 1.0, min(mechanism.certificate.delta_upper * (1 + 1e-9), 1.0))
    assert claim.verdict == "proved"
    if claim.delta_lower > 1e-20:
        assert shoal.testing.check_claim(mechanism, None, 1.0, claim.delta_lower / 3).verdict == "refuted"
