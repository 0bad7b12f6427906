"""The privacy of discrete answers: δ in both scopes, composition with Gaussian releases, naming."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import shoal
from peer_cases import discrete_delta, gaussian_delta, law
from shoal.accounting.risk import group_naming_bound
from shoal.mechanism import discrete_loss
from shoal.mechanism.discrete_loss import DiscreteLoss
from shoal.mechanism.integer_probabilities import WHOLE

mp.dps = 50


def made(n: int, seed: int, epsilon: float) -> shoal.Codebook:
    answers = np.random.default_rng(seed).standard_normal((n, 2))
    return shoal.codebook(answers, shoal.NeighborGraph.complete(range(n)), epsilon)


def product(one: list[Any], two: list[Any]) -> list[Any]:
    return [p * q for p in one for q in two]


@settings(derandomize=True, max_examples=25, deadline=None)
@given(n=st.integers(2, 7), seed=st.integers(0, 10**6), epsilon=st.floats(0.05, 6.0), at=st.floats(0.0, 1.2))
def test_delta_of_both_scopes_is_that_of_all_pairs(n: int, seed: int, epsilon: float, at: float) -> None:
    book, where = made(n, seed, epsilon), at * epsilon
    laws = {label: law(book, label) for label in book.labels}
    pairs = list(itertools.permutations(book.labels, 2))
    one = max(discrete_delta(laws[a], laws[b], where) for a, b in pairs)
    two = max(discrete_delta(product(laws[a], laws[b]), product(laws[b], laws[a]), where) for a, b in pairs)
    for scope, exact in (("answer", one), ("table", two)):
        curve = book.curve(where, scope)
        assert mpf(curve.delta_lower) <= exact <= mpf(curve.delta_upper)
        assert curve.delta_upper <= float(exact) * (1 + 1e-12) + 1e-25
        assert curve.scope == scope
        a, b = curve.worst_edge
        loss = book.privacy_loss(a, b, scope)
        assert exact <= mpf(loss.delta(where)) <= exact + mpf(1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5])
def test_pure_at_epsilon_and_at_twice_that_for_a_table(epsilon: float) -> None:
    book = made(6, 1, epsilon)
    assert book.curve(epsilon, "answer").delta_upper == 0.0
    assert book.curve(2 * epsilon, "table").delta_upper == 0.0
    assert book.curve(0.99 * epsilon, "answer").delta_upper > 0.0
    assert book.curve(1.99 * epsilon, "table").delta_upper > 0.0
    assert book.certificate.delta_upper == 0.0
    assert book.certificate_for("table").delta_upper > 0.0
    assert book.curve([0.0, epsilon]).delta_upper.shape == (2,)


@pytest.mark.parametrize("scope", ["answer", "table"])
@pytest.mark.parametrize("at", [0.0, 0.7, 2.0, 4.0])
def test_together_with_gaussian_releases(scope: str, at: float) -> None:
    book = made(4, 3, 1.3)
    means = np.array([[0.0], [0.4], [0.9], [1.0]])
    noisy = shoal.GaussianClasses(means, [[1.0]], labels=book.labels)
    found = shoal.composed_delta([book, noisy], book.graph, at, scope=scope)
    exact = mpf(0)
    for a, b in itertools.permutations(range(4), 2):
        ours, theirs = law(book, str(a)), law(book, str(b))
        mu = abs(float(means[a, 0] - means[b, 0]))
        if scope == "table":
            ours, theirs, mu = product(ours, theirs), product(theirs, ours), math.sqrt(2.0) * mu
        delta = sum(
            p * gaussian_delta(mpf(mu) ** 2, mpf(at) - mp.log(p / q)) for p, q in zip(ours, theirs, strict=True)
        )
        exact = max(exact, delta)
    assert exact <= mpf(found.delta_upper) <= exact * (1 + mpf(1e-8))
    assert found.delta_upper > shoal.privacy_curve(noisy, book.graph, at, scope=scope).delta_lower


def test_books_alone_and_gaussian_alone() -> None:
    book = made(4, 5, 1.0)
    exact = max(
        discrete_delta(product(law(book, a), law(book, a)), product(law(book, b), law(book, b)), 1.0)
        for a, b in itertools.permutations(book.labels, 2)
    )
    twice = shoal.composed_delta([book, book], book.graph, 1.0)
    assert exact <= mpf(twice.delta_upper) <= exact + mpf(1e-9)
    noisy = shoal.GaussianClasses(np.arange(4.0)[:, None], [[9.0]], labels=book.labels)
    alone = shoal.composed_delta([noisy], book.graph, [0.5, 1.0])
    assert alone.delta_upper == pytest.approx(shoal.privacy_curve(noisy, book.graph, [0.5, 1.0]).delta_upper, rel=1e-9)


def test_pairs_across_groups_are_refused() -> None:
    graph = shoal.NeighborGraph.within_groups(list("abcd"), [0, 0, 1, 1])
    book = shoal.codebook([[0.0], [1.0], [2.0], [3.0]], graph, 1.0)
    with pytest.raises(shoal.InputError, match="labels of one crowd"):
        shoal.composed_delta([book], shoal.NeighborGraph.complete(list("abcd")), 1.0)
    with pytest.raises(shoal.InputError, match="at least one release"):
        shoal.composed_delta([], graph, 1.0)


def test_sums_of_losses_stay_above_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    book = made(5, 2, 0.8)
    a, b = book.curve(0.0, "answer").worst_edge
    ours, theirs = law(book, a), law(book, b)
    many_ours, many_theirs = [mpf(1)], [mpf(1)]
    for _ in range(4):
        many_ours, many_theirs = product(many_ours, ours), product(many_theirs, theirs)
    one = book.privacy_loss(a, b)
    fine = one.times(4)
    monkeypatch.setattr(discrete_loss, "MOST_LOSSES", 6)
    coarse = one.times(4)
    assert len(coarse.steps) <= 6
    for at in (0.0, 0.5, 1.5, 3.1, 3.2):
        exact = discrete_delta(many_ours, many_theirs, at)
        assert exact <= mpf(fine.delta(at)) <= exact + mpf(1e-9)
        assert exact <= mpf(coarse.delta(at))
    assert fine.largest == pytest.approx(3.2)
    assert fine.delta(fine.largest) == 0.0
    assert one.times(0).delta(0.0) == 0.0


@pytest.mark.parametrize("t", [0.0, 0.5, 3.0, 200.0])
def test_the_moments_are_those_of_the_laws(t: float) -> None:
    book = made(5, 2, 1.4)
    ours, theirs = law(book, "0"), law(book, "3")
    exact = mp.log(sum(p ** (1 + mpf(t)) * q ** (-mpf(t)) for p, q in zip(ours, theirs, strict=True)))
    assert exact <= mpf(book.privacy_loss("0", "3").log_moment(t)) <= exact + mpf(1e-9) * (1 + t)
    with pytest.raises(shoal.InputError, match="t must not be negative"):
        book.privacy_loss("0", "3").log_moment(-0.5)


def test_equal_laws_lose_nothing() -> None:
    same = np.array([WHOLE // 4, 3 * (WHOLE // 4)], dtype=np.int64)
    assert DiscreteLoss.of(same, same, 2.0).times(1000).delta(0.0) == 0.0


# ------------------------------------------------------------------ naming


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_the_best_attack_names_within_the_bound(epsilon: float) -> None:
    book = made(6, 4, epsilon)
    counts = book.crowds[0].counts.tolist()
    exact = sum(Fraction(max(column), 6 * WHOLE) for column in zip(*counts, strict=True))
    assert exact <= Fraction(group_naming_bound(6, epsilon))
