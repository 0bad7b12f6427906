"""Certified upper ends against enclosures in ball arithmetic, a few seeds of every family, and the enclosures
themselves against closed forms and the mpmath oracle. The full campaign is ``python -m benchmarks.safety``.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb
from mpmath import mp, mpf

import campaign
import determinants
import oracle
from cases import gaussian_pairs
from determinants import Edge, Enclosure, law

SEEDS = {"full rank, k ≤ 60": 1, "clustered eigenvalues, k > 25": 1, "designs, every method": 7}
#: ε from one sum, instead of the campaign's.
SWEEP = 24


def contains(enclosure: Enclosure, log_value: mpf) -> bool:
    """Whether the enclosure holds e^value, known to 28 digits."""
    with mp.workdps(60):
        value = mp.exp(log_value)
        low, high = (mpf(end.str(50, radius=False)) for end in enclosure)
        return bool(low * (1 - mpf(10) ** -27) <= value <= high * (1 + mpf(10) ** -27))


@pytest.mark.parametrize("family", campaign.FAMILIES)
def test_no_upper_end_below_what_is_proven(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SWEEP", SWEEP)
    checks = 0
    for seed in range(SEEDS.get(family, 2)):
        tally = campaign.run(family, seed)
        assert not tally.violations, (seed, tally.violations[:3])
        assert not tally.crashes, (seed, tally.crashes[:3])
        checks += tally.checks + tally.refused
    assert checks


@pytest.mark.parametrize(("k", "condition", "seed"), [(1, 1.0, 0), (2, 1e4, 1), (5, "graded", 1), (12, "near", 0)])
def test_enclosures_hold_the_oracle(k: int, condition: float | str, seed: int) -> None:
    mean_a, cov_a, mean_b, cov_b = gaussian_pairs(k, condition, seed)
    edge = Edge.of((law(mean_a, cov_a), law(mean_b, cov_b)))
    gamma, nu = oracle.spectrum(mean_a, cov_a, mean_b, cov_b, dps=120)
    for epsilon in (0.0, 2.0, 12.0):
        assert contains(edge.delta(epsilon), oracle.log_hockey(gamma, nu, epsilon))
        assert contains(edge.delta(epsilon, "pdp"), oracle.log_upper_tail(gamma, nu, epsilon))
    with mp.workdps(120):
        back = [1 / g for g in gamma], [-mp.sqrt(g) * v for g, v in zip(gamma, nu, strict=True)]
    assert contains(edge.delta(1.0, reverse=True), oracle.log_hockey(*back, 1.0))


def test_enclosures_are_narrow() -> None:
    mean_a, cov_a, mean_b, cov_b = gaussian_pairs(12, 1e2, 0)
    found = Edge.of((law(mean_a, cov_a), law(mean_b, cov_b))).delta(3.0)
    assert (found.upper - found.lower) / found.upper < arb(1e-13)


def test_one_dimension_in_closed_form() -> None:
    """Pr(L > x) for N(0, 4) against N(1, 1): L is a quadratic in q, its roots and Φ give the tail."""
    edge = Edge.of((law([0.0], [[4.0]]), law([1.0], [[1.0]])))
    with determinants.bits(200):
        for x in (0.0, 1.0, 30.0):
            # L(q) = −ln 2 − q²/8 + (q − 1)²/2 > x
            a, b, c = arb(3) / 8, arb(-1), arb(1) / 2 - arb(2).log() - arb(x)
            root = (b * b - 4 * a * c).sqrt()
            low, high = (-b - root) / (2 * a) / 2, (-b + root) / (2 * a) / 2
            tail = determinants._normal(low) + determinants._normal(-high)
            found = edge.delta(x, "pdp")
            assert not tail < found.lower
            assert not tail > found.upper


def test_one_sum_gives_what_many_do() -> None:
    """δ at ε side by side against a contour for each, and a narrow sum that is wrong would be found."""
    rng = np.random.default_rng(3)
    half = campaign.rotation(rng, 5) * np.sqrt(10.0 ** rng.uniform(-2.0, 0.0, 5))
    other, gap = campaign.likeness(rng, half, 0.3, 1.0)
    edge = Edge.of((law(np.zeros(5), half @ half.T), law(gap, other)))
    for start, reverse in ((2.5, False), (6.0, True), (40.0, False)):
        found = edge.around(start, 12, reverse=reverse)
        assert len(found) > 6
        for epsilon, enclosure in found:
            alone = edge.delta(epsilon, reverse=reverse)
            assert enclosure.lower <= alone.upper
            assert alone.lower <= enclosure.upper
            assert enclosure.upper - enclosure.lower < enclosure.upper * arb(2) ** -40


def test_a_line_in_closed_form() -> None:
    """The roots of the quadratic against the contour, and equal covariances against both."""
    for first, second, gap in ((4.0, 1.0, 1.0), (1.0, 4.0, 0.0), (1.0, 1 + 2.0**-30, 0.5), (2.0, 3.0, 40.0)):
        edge = Edge.of((law([0.0], [[first]]), law([gap], [[second]])))
        for epsilon in (0.0, 0.5, 3.0, 40.0):
            one, two = determinants.on_a_line(gap, first, second, epsilon), edge.delta(epsilon)
            assert one.lower <= two.upper
            assert two.lower <= one.upper


def test_supports_are_compared_exactly() -> None:
    cov = np.ones((2, 2))
    inside = Edge.of((law([1e9, 1e9], cov), law([1e9 + 1, 1e9 + 1], cov)))
    assert not inside.disjoint
    assert abs(float(inside.delta(0.0).upper) - math.erf(0.5 / math.sqrt(2))) < 1e-12
    assert Edge.of((law([1e9, 1e9], cov), law([1e9, 1e9 + 5e-6], cov))).delta(50.0) == Enclosure(arb(1), arb(1))


def test_beyond_a_bounded_loss_nothing_is_left() -> None:
    edge = Edge.of((law([0.0], [[1.0]]), law([0.0], [[4.0]])))  # L ≤ ln 2
    assert float(edge.delta(0.69).lower) > 0
    assert edge.delta(0.7).upper < arb(2) ** -1000
    assert abs(float(edge.renyi_lower(math.inf)) - math.log(2.0)) < 1e-12
    assert edge.renyi_lower(2.0, reverse=True) is None
