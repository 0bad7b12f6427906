"""Auditors of other people on our mechanisms: none finds more than is certified, and too little noise is found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

import shoal
from auditors import Array, hockey_stick, kernel, sniper
from shoal.accounting.deterministic import gaussian_delta

#: Error probability of every bound: that any of them is wrong is not to be seen.
ERROR = 1e-6
SAMPLES = 24_000


@dataclass(frozen=True)
class Subject:
    """A mechanism with what an attacker of its worst pair sees: ``drawn`` (m, k) for one label or the other."""

    claim: Callable[[float], float]
    pair: tuple[str, str]
    drawn: Callable[[str, int, int], Array]
    scope: str = "answer"

    def seen(self, count: int = SAMPLES) -> tuple[Array, Array]:
        a, b = self.pair
        if self.scope == "answer":
            return self.drawn(a, 0, count), self.drawn(b, 1, count)
        rows = [self.drawn(label, place, count) for label, place in ((a, 0), (b, 1), (b, 2), (a, 3))]
        return np.hstack(rows[:2]), np.hstack(rows[2:])


def gaussian(mechanism: shoal.Mechanism, scope: str = "answer", noise: float = 1.0) -> Subject:
    """Answers drawn from the class laws and released with seeded noise, ``noise`` times as wide as it should be."""
    made = replace(mechanism, noise_cov=noise**2 * mechanism.noise_cov)

    def drawn(label: str, place: int, count: int) -> Array:
        classes, i = mechanism.classes, mechanism.position(label)
        rng = np.random.default_rng([5, place, i])
        answers = np.broadcast_to(classes.means[i], (count, classes.n_dims))
        cov = np.broadcast_to(classes.covs, (classes.n_classes, classes.n_dims, classes.n_dims))[i]
        if cov.any():
            answers = rng.multivariate_normal(classes.means[i], cov, count)
        return np.asarray(made.sample(answers, label, seed=int(rng.integers(2**31))), dtype=np.float64)

    def claim(epsilon: float) -> float:
        return float(mechanism.curve(epsilon, scope=scope).delta_upper)

    return Subject(claim, mechanism.curve(1.0, scope=scope).worst_edge, drawn, scope)


def drawn_curves(book: shoal.Codebook, other: shoal.Codebook) -> Subject:
    """Curves drawn with the odds of ``other`` where those of ``book`` are claimed."""

    def drawn(label: str, place: int, count: int) -> Array:
        rng = np.random.default_rng([5, place, book.position(label)])
        return np.asarray(
            other.curves(label)[rng.choice(len(other.curves(label)), count, p=other.probabilities(label))]
        )

    return Subject(lambda epsilon: float(book.curve(epsilon).delta_upper), book.curve(0.5).worst_edge, drawn)


@pytest.fixture(scope="module")
def constants() -> shoal.Mechanism:
    """Two constants one standard deviation apart."""
    classes = shoal.GaussianClasses.deterministic([[0.0, 0.0], [0.6, 0.8]], labels=["a", "b"])
    return shoal.design(classes, shoal.NeighborGraph.complete(classes.labels), "white", epsilon=1.0, rho=1.0)


@pytest.fixture(scope="module")
def laws() -> shoal.Mechanism:
    """Three random laws in two entries, narrow beside the noise."""
    rng = np.random.default_rng(7)
    roots = 0.3 * rng.standard_normal((3, 2, 2))
    covs = roots @ roots.swapaxes(1, 2) + 0.05 * np.eye(2)
    classes = shoal.GaussianClasses(0.6 * rng.standard_normal((3, 2)), covs, labels=["a", "b", "c"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    return shoal.design(classes, graph, "covariance", epsilon=1.0, rho=0.7, iterations=20)


def book_of(epsilon: float) -> shoal.Codebook:
    return shoal.codebook(np.eye(3), shoal.NeighborGraph.complete(["a", "b", "c"]), epsilon)


def nothing_more(subject: Subject) -> None:
    """No auditor proves more than the certificate, at the certified ε and at others, in either direction."""
    one, two = subject.seen()
    for first, second in ((one, two), (two, one)):
        assert hockey_stick(first, second, 1.0, ERROR) <= subject.claim(1.0)
        for epsilon in (0.0, 0.25, 1.0):
            assert kernel(first, second, epsilon, ERROR) <= subject.claim(epsilon)
        for delta in (0.0, 1e-3, subject.claim(1.0)):
            found = sniper(first, second, delta, ERROR)
            assert subject.claim(max(found, 0.0)) >= delta or found <= 0.0


@pytest.mark.parametrize("scope", ["answer", "table"])
def test_constants_with_noise(constants: shoal.Mechanism, scope: str) -> None:
    nothing_more(gaussian(constants, scope))


def test_random_laws(laws: shoal.Mechanism) -> None:
    subject = gaussian(laws)
    assert 0.01 < subject.claim(1.0) < 0.5
    nothing_more(subject)


def test_codebooks() -> None:
    book = book_of(1.0)
    nothing_more(drawn_curves(book, book))


def test_thirty_percent_too_little_noise_is_found(constants: shoal.Mechanism, laws: shoal.Mechanism) -> None:
    for mechanism, scope in ((constants, "answer"), (constants, "table"), (laws, "answer")):
        subject = gaussian(mechanism, scope, noise=0.7)
        one, two = subject.seen()
        promised = subject.claim(1.0)
        found = max(hockey_stick(first, second, 1.0, ERROR) for first, second in ((one, two), (two, one)))
        sniped = max(sniper(first, second, promised, ERROR) for first, second in ((one, two), (two, one)))
        assert found > promised, f"{scope}: {found} of {promised}"
        assert sniped > 1.0, f"{scope}: {sniped} at {promised}"


def test_odds_that_differ_by_more_are_found() -> None:
    """Drawn with ε = 1.4 where ε = 1 is certified: the posterior of a curve gives it away."""
    one, two = drawn_curves(book_of(1.0), book_of(1.4)).seen()
    assert sniper(one, two, 0.0, ERROR) > 1.0


def test_the_kernel_finds_noise_that_is_far_too_small(constants: shoal.Mechanism) -> None:
    subject = gaussian(constants, noise=0.25)
    one, two = subject.seen()
    assert kernel(one, two, 0.0, ERROR) > subject.claim(0.0)


def test_bounds_are_bounds() -> None:
    """Two normals whose δ and ε are known: bounds stay below, and most of the way up."""
    rng = np.random.default_rng(3)
    p, q = rng.standard_normal((40_000, 1)) + 1.5, rng.standard_normal((40_000, 1))
    exact = gaussian_delta(1.5, 1.0, 1.0)
    assert 0.6 * exact < hockey_stick(p, q, 1.0, ERROR) < exact
    assert 0.0 < kernel(p, q, 0.0, ERROR) < gaussian_delta(1.5, 1.0, 0.0)
    assert 0.6 * math.log(20 * 0.4423) < sniper(p, q, 0.0, ERROR) < math.log(20 * 0.4423)
