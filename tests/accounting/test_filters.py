"""Budgets for mechanisms chosen in the light of earlier answers: the best adversary stays within an adaptive one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np
import pytest
from benchmarks.adaptive_filter import AdaptiveFilter
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

import shoal
from adversary import Kind, best_policy, composed, released, strongest, together
from shoal import GaussianClasses, InputError, NeighborGraph
from shoal.accounting.deterministic import gaussian_delta
from shoal.mechanism import composition as filters
from shoal.mechanism.composition import ASIDE, GAUSSIAN, WEIGHTS, FilterRule, codebook_divergence


def fixed(epsilon: float, delta: float):
    """A budget that looks at the sequence alone, as if nobody had chosen it."""
    return lambda sequence: composed(sequence, epsilon) <= delta


def adaptive(epsilon: float, delta: float):
    """The filter; a first release by itself is a sequence fixed in advance."""
    rule = FilterRule(epsilon, delta)
    t = [order - 1 for order in rule.orders]

    def allowed(sequence: Sequence[Kind]) -> bool:
        made = released(sequence)
        if len(made) < 2:
            return composed(sequence, epsilon) <= delta
        gaussian = math.inf
        if all(kind.name == "gap" for kind in made):
            gaussian = float(Kind("gap", math.hypot(*(k.strength for k in made))).delta(np.array(epsilon)))
        largest = math.fsum(kind.largest for kind in made)
        return float(rule.least_delta(together(made, t), gaussian=gaussian, largest=largest)) <= delta

    return allowed


def test_every_branch_within_a_budget_that_their_mean_exceeds():
    """Two rounds: a spread first; where little was learned from it another, else a shift. Exactly 1.5759 times δ."""
    one, two, gap = Kind("wide", 0.1090563), Kind("wide", 0.1276778), Kind("gap", 0.207368)

    def interaction(little: Kind, much: Kind) -> float:
        def inside(x: float) -> float:
            loss = -0.5 * math.log1p(one.strength) + 0.5 * one.strength * x * x
            return float(norm.pdf(x) * (little if x < 2.8332 else much).delta(np.array(1.0 - loss)))

        ends = (0.0, 2.8332, 4.0, 5.0, 6.0, 12.0)
        return 2 * sum(quad(inside, *both, epsabs=1e-13)[0] for both in pairwise(ends))

    for end in (two, gap):
        assert interaction(end, end) == pytest.approx(9.9999e-6, rel=2e-5)
    total = interaction(two, gap)
    assert total == pytest.approx(1.5759e-5, rel=1e-4)
    assert total > 1.5 * 1e-5
    for sequence in ([one, two], [one, gap]):
        assert not adaptive(1.0, 1e-5)(sequence)


def test_three_rounds_exceed_a_fixed_budget_and_never_an_adaptive_one():
    epsilon, delta = 1.0, 1e-5
    names, shares = ("gap", "wide"), (0.4, 0.8)
    assert best_policy(names, shares, 3, epsilon, fixed(epsilon, delta)) > 1.6 * delta
    assert best_policy(names, shares, 3, epsilon, adaptive(epsilon, delta)) <= delta


def test_every_way_needs_its_share_of_delta(monkeypatch: pytest.MonkeyPatch):
    """With all of δ for each of the conditions, a policy that changes between them exceeds the budget."""
    epsilon, delta = 0.3, 1e-6
    names, shares = ("gap", "wide", "coin"), (0.6,)
    assert best_policy(names, shares, 3, epsilon, adaptive(epsilon, delta)) <= delta
    monkeypatch.setattr(filters, "WEIGHTS", (1.0, 1.0, 1.0))
    monkeypatch.setattr(filters, "GAUSSIAN", 1.0)
    assert best_policy(names, shares, 3, epsilon, adaptive(epsilon, delta)) > 1.05 * delta


@settings(derandomize=True, max_examples=15, deadline=None)
@given(
    epsilon=st.floats(0.05, 6.0),
    log_delta=st.floats(-25.0, -4.0),
    names=st.lists(st.sampled_from(["gap", "wide", "narrow", "coin"]), min_size=1, max_size=3, unique=True),
    shares=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=2),
)
def test_the_best_of_all_policies_is_within_the_budget(epsilon, log_delta, names, shares):
    delta = math.exp(log_delta)
    assert best_policy(names, shares, 3, epsilon, adaptive(epsilon, delta)) <= delta


@settings(derandomize=True, max_examples=40, deadline=None)
@given(epsilon=st.floats(0.0, 20.0), log_delta=st.floats(-60.0, -0.1), scale=st.floats(0.0, 1.0))
def test_what_a_filter_lets_through_is_within_the_exact_composition(epsilon, log_delta, scale):
    """A sequence that fits is, taken as one fixed in advance, within the budget as well."""
    delta = math.exp(log_delta)
    rule = FilterRule(epsilon, delta)
    gap = strongest("gap", [], adaptive(epsilon, delta)).strength * scale
    for count in (2, 5, 50):
        part = Kind("gap", gap / math.sqrt(count))
        sums = together([part] * count, [order - 1 for order in rule.orders])
        exact = float(Kind("gap", gap).delta(np.array(epsilon))) if gap else 0.0
        assert float(rule.least_delta(sums)) >= exact
        assert float(rule.least_delta(sums, gaussian=exact)) >= exact


def test_shares_of_delta():
    assert sum(WEIGHTS) + GAUSSIAN + ASIDE == 1.0
    rule = FilterRule(1.0, 1e-6)
    high = np.full(3, math.inf)
    assert float(rule.least_delta(high)) == 1.0
    assert float(rule.least_delta(high, gaussian=1e-7)) >= 1e-7 / GAUSSIAN
    assert float(rule.least_delta(high, largest=1.0)) == 0.0
    above = math.nextafter(1.0, 2.0)
    assert (above - 1.0) / ASIDE <= float(rule.least_delta(high, largest=above)) <= 1e-14
    assert float(rule.least_delta(high, largest=1.1)) == 1.0
    assert float(rule.least_delta(high, largest=1.0, aside=1e-9)) >= 1e-9 / ASIDE
    assert rule.least_delta(np.zeros((4, 2, 3)), gaussian=np.zeros((4, 2))).tolist() == np.zeros((4, 2)).tolist()
    assert list(rule.orders) == sorted(rule.orders, reverse=True)
    # An exponent past what a double holds is 1, not an error.
    assert float(FilterRule(0.0, 0.0).least_delta(np.full(3, 1e300))) == 1.0


def test_every_order_stays_below_the_filter_of_its_mixture():
    """min over orders of c e^{t(D − ε)} / w, in long arithmetic, is never above what is stated."""
    import mpmath

    rng = np.random.default_rng(0)
    for _ in range(50):
        epsilon, delta = float(rng.uniform(0, 5)), float(10.0 ** -rng.uniform(1, 12))
        rule = FilterRule(epsilon, delta)
        sums = rng.uniform(0, 1, 3) * epsilon
        exact = []
        for order, weight, total in zip(rule.orders, WEIGHTS, sums.tolist(), strict=True):
            t = mpmath.mpf(order) - 1
            constant = t**t / (1 + t) ** (1 + t)
            exact.append(constant * mpmath.exp(t * (mpmath.mpf(total) - mpmath.mpf(epsilon))) / mpmath.mpf(weight))
        assert min(float(min(exact)), 1.0) <= float(rule.least_delta(sums)) <= min(float(min(exact)) * (1 + 1e-8), 1.0)


LABELS = ["a", "b", "c"]
GRAPH = NeighborGraph.complete(LABELS)


def test_of_real_releases():
    """The filter of laws, mechanisms and codebooks is that of their sums, for the worst pair and direction."""
    noisy = GaussianClasses([[0.0], [1.0], [2.0]], [[400.0]], labels=LABELS)
    unequal = GaussianClasses([[0.0]] * 3, [[[1.0]], [[1.02]], [[1.05]]], labels=LABELS)
    book = shoal.codebook([[0.0], [1.0], [2.0]], GRAPH, epsilon=0.25)
    budget = AdaptiveFilter(1.0, 1e-5)
    t = [order - 1 for order in budget.rule.orders]
    worst = Kind("gap", 0.1)
    exact = gaussian_delta(0.1 * math.sqrt(5), 1.0, 1.0)
    assert budget.spent([noisy] * 5, GRAPH) == pytest.approx(exact / GAUSSIAN, rel=1e-9)
    assert budget.spent([noisy] * 5, GRAPH, scope="table") == pytest.approx(
        gaussian_delta(0.1 * math.sqrt(10), 1.0, 1.0) / GAUSSIAN, rel=1e-9
    )
    sums = together([worst] * 3 + [Kind("wide", 0.05)], t)
    mixed = budget.spent([noisy] * 3 + [unequal], GRAPH)
    assert float(budget.rule.least_delta(sums)) == pytest.approx(mixed, rel=1e-9)
    assert budget.spent([book] * 4, GRAPH) == 0.0
    assert budget.spent([book] * 2, GRAPH, scope="table") == 0.0
    assert budget.spent([book] * 5, GRAPH) > 0.0
    orders = np.array(budget.rule.orders)
    losses = [book.privacy_loss(*pair) for pair in permutations(LABELS, 2)]
    beside = together([worst], t) + np.max([codebook_divergence([(loss, 1)], orders) for loss in losses], axis=0)
    assert 0.0 < budget.spent([book, noisy], GRAPH) <= float(budget.rule.least_delta(beside)) * (1 + 1e-9)
    classes = GaussianClasses.deterministic([[0.0], [1.0], [2.0]], labels=LABELS)
    mechanism = shoal.design(classes, GRAPH, "white", 1.0, 400.0)
    assert budget.spent([mechanism] * 5, GRAPH) >= budget.spent([noisy] * 5, GRAPH) * (1 - 1e-9)
    assert budget.fits([mechanism] * 5, GRAPH)


@pytest.mark.parametrize("wrong", [{"epsilon": -1.0, "delta": 1e-5}, {"epsilon": 1.0, "delta": 1.0}])
def test_budgets_that_make_no_sense(wrong):
    with pytest.raises(InputError, match=r"epsilon|delta"):
        AdaptiveFilter(**wrong)


def test_nothing_to_filter():
    with pytest.raises(InputError, match="at least one"):
        AdaptiveFilter(1.0, 1e-5).fits([], GRAPH)
