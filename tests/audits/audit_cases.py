"""Mechanisms to audit, and releases with something wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shoal
from shoal.audits.attacks import seeded_release

Array = NDArray[np.float64]
Release = Callable[[Array, str], Array]


def constants(method: str = "white", n: int = 4, k: int = 3, rho: float = 0.5, seed: int = 1) -> shoal.Mechanism:
    """Answers that are constants given the label: the noise is all there is."""
    means = np.random.default_rng(seed).standard_normal((n, k))
    classes = shoal.GaussianClasses.deterministic(means)
    return design(classes, method, rho)


def random_laws(method: str = "covariance", n: int = 4, k: int = 3, rho: float = 1.0, seed: int = 2) -> shoal.Mechanism:
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, k, k + 2)) / np.sqrt(k)
    classes = shoal.GaussianClasses(rng.standard_normal((n, k)), factors @ factors.transpose(0, 2, 1))
    return design(classes, method, rho)


def design(classes: shoal.GaussianClasses, method: str, rho: float, **options: Any) -> shoal.Mechanism:
    graph = shoal.NeighborGraph.complete(classes.labels)
    return shoal.design(classes, graph, method=method, epsilon=1.0, rho=rho, iterations=20, **options)


def instead(mechanism: shoal.Mechanism, seed: int = 3, **parameters: Any) -> Release:
    """Releases with other parameters than those certified."""
    return seeded_release(replace(mechanism, **parameters), seed)


def noise_of(mechanism: shoal.Mechanism, label: str) -> Array:
    """A root of the noise covariance."""
    i = mechanism.classes.labels.index(label)
    cov = mechanism.noise_cov[min(i, len(mechanism.noise_cov) - 1)]
    values, vectors = np.linalg.eigh(cov)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)


def with_normals(mechanism: shoal.Mechanism, normals: Callable[[int, str], Array]) -> Release:
    """Additive releases whose standard normals, (m, k) for m answers about a label, come from a function."""
    assert mechanism.gain is None

    def release(answers: Array, label: str) -> Array:
        i = mechanism.classes.labels.index(label)
        return np.asarray(answers + mechanism.bias[i] + normals(len(answers), label) @ noise_of(mechanism, label))

    return release
