"""Auditors of other people on our mechanisms: none finds more than is certified, and too little noise is found."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks._auditors import Array, hockey_stick, kernel, sniper

import shoal
from shoal.accounting.deterministic import gaussian_delta

#: Error probability of every bound: that any of them is wrong is not to be seen.
ERROR = 1e-6
SAMPLES = 24_000


@pytest.fixture(scope="module")
def laws() -> shoal.Mechanism:
    """Three random laws in two entries, narrow beside the noise."""
    rng = np.random.default_rng(7)
    roots = 0.3 * rng.standard_normal((3, 2, 2))
    covs = roots @ roots.swapaxes(1, 2) + 0.05 * np.eye(2)
    classes = shoal.GaussianClasses(0.6 * rng.standard_normal((3, 2)), covs, labels=["a", "b", "c"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    return shoal.design(classes, graph, "covariance", epsilon=1.0, rho=0.7, iterations=20)


def seen(mechanism: shoal.Mechanism, scope: str, noise: float = 1.0) -> list[Array]:
    """What an attacker of the worst pair sees in both worlds, the noise ``noise`` times as wide as it should be."""
    classes, made = mechanism.classes, replace(mechanism, noise_cov=noise**2 * mechanism.noise_cov)

    def drawn(label: str, place: int) -> Array:
        i = mechanism.position(label)
        rng = np.random.default_rng([5, place, i])
        answers = rng.multivariate_normal(classes.means[i], classes.covs[i], SAMPLES)
        return np.asarray(made.sample(answers, label, seed=int(rng.integers(2**31))), dtype=np.float64)

    a, b = mechanism.curve(1.0, scope=scope).worst_edge
    if scope == "answer":
        return [drawn(a, 0), drawn(b, 1)]
    return [np.hstack([drawn(a, 0), drawn(b, 1)]), np.hstack([drawn(b, 2), drawn(a, 3)])]


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_nothing_more_than_is_certified(laws: shoal.Mechanism, scope: str) -> None:
    """At the certified ε and at others, in either direction."""

    def claim(epsilon: float) -> float:
        return float(laws.curve(epsilon, scope=scope).delta_upper)

    worlds = seen(laws, scope)
    for first, second in (worlds, worlds[::-1]):
        assert hockey_stick(first, second, 1.0, ERROR) <= claim(1.0)
        assert all(kernel(first, second, epsilon, ERROR) <= claim(epsilon) for epsilon in (0.0, 0.25, 1.0))
        for delta in (0.0, 1e-3, claim(1.0)):
            epsilon = sniper(first, second, delta, ERROR)
            assert claim(max(epsilon, 0.0)) >= delta or epsilon <= 0.0


def test_thirty_percent_too_little_noise_is_found(laws: shoal.Mechanism) -> None:
    worlds, promised = seen(laws, "answer", noise=0.7), float(laws.curve(1.0, scope="answer").delta_upper)
    assert max(hockey_stick(*pair, 1.0, ERROR) for pair in (worlds, worlds[::-1])) > promised
    assert max(sniper(*pair, promised, ERROR) for pair in (worlds, worlds[::-1])) > 1.0


def test_odds_that_differ_by_more_are_found() -> None:
    """Drawn with ε = 1.4 where ε = 1 is certified: the posterior of a curve gives it away."""
    book = shoal.codebook(np.eye(3), shoal.NeighborGraph.complete(["a", "b", "c"]), 1.4)
    rng = np.random.default_rng(5)
    one, two = (book.curves(label)[rng.choice(3, SAMPLES, p=book.probabilities(label))] for label in "ab")
    assert 1.0 < sniper(one, two, 0.0, ERROR) <= 1.4


def test_bounds_are_bounds() -> None:
    """Two normals whose δ and ε are known: bounds stay below, and most of the way up."""
    rng = np.random.default_rng(3)
    p, q = rng.standard_normal((40_000, 1)) + 1.5, rng.standard_normal((40_000, 1))
    exact = gaussian_delta(1.5, 1.0, 1.0)
    assert 0.6 * exact < hockey_stick(p, q, 1.0, ERROR) < exact
    assert 0.0 < kernel(p, q, 0.0, ERROR) < gaussian_delta(1.5, 1.0, 0.0)
    assert 0.6 * math.log(20 * 0.4423) < sniper(p, q, 0.0, ERROR) < math.log(20 * 0.4423)
