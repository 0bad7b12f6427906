"""Small families of laws for the tests of the designer, and the trial of section 6 of the theory notes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import GaussianClasses, NeighborGraph

Array = NDArray[np.float64]

TRIAL_COVS = (
    (0.2296171, -0.14667322, 2.37427514),
    (1.10898802, 0.09209459, 0.53794851),
    (0.13472086, 0.1227714, 0.38640902),
    (0.77580365, -0.16873963, 0.38615644),
)


def trial() -> tuple[GaussianClasses, NeighborGraph]:
    """Four classes in the plane, their means on a line."""
    covs = np.array([[[a, b], [b, c]] for a, b, c in TRIAL_COVS])
    classes = GaussianClasses(np.arange(4.0)[:, None] * np.ones(2), covs)
    return classes, NeighborGraph.complete(classes.labels)


def random_covs(rng: np.random.Generator, n: int, k: int, rank: int | None = None) -> Array:
    factors = rng.standard_normal((n, k, rank or k + 2)) / np.sqrt(k)
    return np.asarray(factors @ np.swapaxes(factors, 1, 2))


def family(seed: int, n: int = 4, k: int = 2) -> tuple[GaussianClasses, NeighborGraph]:
    rng = np.random.default_rng(seed)
    classes = GaussianClasses(rng.standard_normal((n, k)), random_covs(rng, n, k))
    return classes, NeighborGraph.complete(classes.labels)


def hard_families() -> dict[str, tuple[GaussianClasses, NeighborGraph, dict[str, Any]]]:
    """Name -> (classes, graph, options of design): everything that has ever gone wrong, and its neighbors."""
    rng = np.random.default_rng(7)
    means = rng.standard_normal((4, 2))
    constants = GaussianClasses.deterministic(means)
    along = np.array([[1.0], [-2.0]])
    mixed = random_covs(rng, 4, 2)
    mixed[2:] = 0.0
    plain = GaussianClasses(means, random_covs(rng, 4, 2))
    cases: dict[str, tuple[GaussianClasses, dict[str, Any]]] = {
        "plain": (plain, {}),
        "two labels, one entry": (GaussianClasses([[0.0], [2.0]], [[[1.0]], [[0.25]]]), {}),
        "constants": (constants, {}),
        "two constants": (GaussianClasses.deterministic([[0.1], [1.3]]), {}),
        "constants far out": (GaussianClasses.deterministic(1e3 + 1e-3 * means), {}),
        "constants, huge": (GaussianClasses.deterministic(1e6 * means), {}),
        "constants, tiny": (GaussianClasses.deterministic(1e-6 * means), {}),
        "constants, noise floor": (constants, {"noise_floor": 0.05}),
        "shared": (GaussianClasses(means, random_covs(rng, 1, 2)[0]), {}),
        "shared line": (GaussianClasses(means, along @ along.T), {}),
        "diagonal": (GaussianClasses.diagonal(means, rng.uniform(0.1, 2.0, (4, 2))), {}),
        "lines": (GaussianClasses(means, random_covs(rng, 4, 2, rank=1)), {}),
        "one line": (
            GaussianClasses(np.zeros((4, 2)), np.array([s * along @ along.T for s in (1.0, 2.0, 3.0, 4.0)])),
            {},
        ),
        "some constants": (GaussianClasses(means, mixed), {}),
        "equal means": (GaussianClasses(np.zeros((4, 2)), random_covs(rng, 4, 2)), {}),
        "huge": (GaussianClasses(1e6 * means, 1e12 * plain.covs), {}),
        "tiny": (GaussianClasses(1e-6 * means, 1e-12 * plain.covs), {}),
        "noise floor": (plain, {"noise_floor": 0.05}),
        "epsilon per edge": (plain, {"epsilon": np.linspace(0.3, 2.0, 6)}),
        "budget per label": (plain, {"rho": [0.1, 0.3, 0.05, 0.4]}),
        "two-sided": (plain, {"notion": "pdp-two-sided"}),
    }
    result = {
        name: (classes, NeighborGraph.complete(classes.labels), options) for name, (classes, options) in cases.items()
    }
    apart = GaussianClasses(rng.standard_normal((6, 2)), random_covs(rng, 6, 2))
    edges = [("0", "1"), ("1", "2"), ("3", "4")]
    result["components"] = (apart, NeighborGraph.from_edges(apart.labels, edges), {})
    return result
