"""A table holds both rows of a pair: its figures against pairs stacked by hand, ball arithmetic and one answer's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import block_diag
from scipy.stats import norm

import oracle
import shoal
from campaign import Tally, confirmed, loss
from evidence.tradeoff import tradeoff_curve
from shoal.accounting.curve import edge_brackets

NOTIONS = ("dp", "pdp", "pdp-two-sided", "chernoff")


def family(rng: np.random.Generator, n: int, k: int, spread: float = 1.0, grade: float = 0.0) -> shoal.GaussianClasses:
    """Random laws whose entries may differ by many orders of magnitude."""
    scale = 10.0 ** rng.uniform(-grade, grade, k)
    roots = rng.standard_normal((n, k, 2 * k)) / math.sqrt(2 * k)
    covs = np.eye(k) + spread * roots @ np.swapaxes(roots, 1, 2)
    return shoal.GaussianClasses(
        rng.standard_normal((n, k)) * spread * scale,
        covs * scale[:, None] * scale[None, :],
        [f"h{i}" for i in range(n)],
    )


def exchanged(classes: shoal.GaussianClasses, a: int, b: int) -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    """The two worlds of a pair, stacked by hand: (A's row, B's row) and (B's row, A's row)."""
    means = np.stack([np.concatenate([classes.means[i], classes.means[j]]) for i, j in ((a, b), (b, a))])
    covs = np.stack([block_diag(classes.covs[i], classes.covs[j]) for i, j in ((a, b), (b, a))])
    worlds = shoal.GaussianClasses(means, covs, ["as it is", "exchanged"])
    return worlds, shoal.NeighborGraph.complete(worlds.labels)


def complete(classes: shoal.GaussianClasses) -> shoal.NeighborGraph:
    return shoal.NeighborGraph.complete(classes.labels)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6), st.integers(1, 8), st.floats(0.0, 6.0), st.sampled_from(NOTIONS), st.floats(0.02, 3.0),
    st.sampled_from([0.0, 0.0, 3.0]),
)  # fmt: skip
def test_a_table_is_the_pair_stacked_by_hand(
    seed: int, k: int, epsilon: float, notion: str, spread: float, grade: float
) -> None:
    classes = family(np.random.default_rng(seed), 3, k, spread, grade)
    graph = complete(classes)
    found = edge_brackets(classes, graph, epsilon, notion, scope="table")
    alone = edge_brackets(classes, graph, epsilon, notion)
    assert found.shape == (3, 3)
    for (a, b), (value, lower, upper), single in zip(graph.edges, found, alone, strict=True):
        worlds, pair = exchanged(classes, a, b)
        by_hand = edge_brackets(worlds, pair, epsilon, notion)[0]
        assert lower <= value <= upper
        for one in by_hand:  # both directions are the same
            assert lower <= one[2]
            assert one[1] <= upper
            if one[0] > math.log(1e-200):
                assert value == pytest.approx(one[0], rel=1e-9, abs=1e-9)
        if notion == "dp":  # whoever holds the table holds one answer too
            assert (single[:, 1] <= upper).all()


def test_equal_covariances_are_the_gaussian_with_root_two() -> None:
    classes = shoal.GaussianClasses([[0.0, 0.0], [0.6, 0.8]], np.eye(2))
    graph = complete(classes)
    mu, epsilon = math.sqrt(2), 0.7
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert shoal.edge_deltas(classes, graph, epsilon, scope="table") == pytest.approx([exact], rel=1e-12)
    assert shoal.renyi_curve(classes, graph, 4.0, scope="table").divergence == pytest.approx(2 * mu**2, rel=1e-12)


def test_divergences_of_both_directions_add() -> None:
    classes = family(np.random.default_rng(3), 4, 3, 0.7)
    graph = complete(classes)
    orders = [0.5, 1.0, 1.3, 2.0]
    table = shoal.renyi_curve(classes, graph, orders, scope="table")
    for j, order in enumerate(orders):
        sums = []
        for a, b in graph.edges:
            worlds, pair = exchanged(classes, a, b)
            sums.append(float(shoal.renyi_curve(worlds, pair, order).divergence))
            ways = [oracle.divergence(classes.means[way], classes.covs[way], order) for way in ([a, b], [b, a])]
            truth = None if None in ways else ways[0] + ways[1]
            assert table.divergence_upper[j] == math.inf or (truth is not None and table.divergence_upper[j] >= truth)
        assert table.divergence[j] == pytest.approx(max(sums), rel=1e-9)


def test_tests_and_epsilons_of_a_table() -> None:
    classes = family(np.random.default_rng(5), 3, 4, 0.8)
    graph = complete(classes)
    for a, b in graph.edges:
        worlds, _ = exchanged(classes, a, b)
        names = classes.labels[a], classes.labels[b]
        rate = tradeoff_curve(classes, *names, 0.01, scope="table").tpr_upper
        assert rate == pytest.approx(tradeoff_curve(worlds, *worlds.labels, 0.01).tpr_upper, rel=1e-6)
        assert all(rate >= tradeoff_curve(classes, *way, 0.01).tpr_upper for way in (names, names[::-1]))
    epsilon = shoal.epsilon_at(classes, graph, 1e-4, scope="table")
    assert shoal.privacy_curve(classes, graph, epsilon, scope="table").delta_upper <= 1e-4
    assert shoal.privacy_curve(classes, graph, epsilon * (1 - 1e-9), scope="table").delta > 1e-4 * (1 - 1e-6)
    assert epsilon > shoal.epsilon_at(classes, graph, 1e-4)


def test_tables_compose_like_answers() -> None:
    rng = np.random.default_rng(8)
    first, second = family(rng, 3, 3, 0.4), family(rng, 3, 2, 0.3)
    graph = complete(first)
    found = edge_brackets([first, second, first], graph, 1.0, scope="table")
    for (a, b), (_, lower, upper) in zip(graph.edges, found, strict=True):
        (one, pair), (two, _) = exchanged(first, a, b), exchanged(second, a, b)
        by_hand = edge_brackets([one, two, one], pair, 1.0)[0, 0]
        assert lower <= by_hand[2]
        assert by_hand[1] <= upper
        assert upper - lower < 1e-8


def test_supports_in_a_table() -> None:
    graph = shoal.NeighborGraph.complete(["a", "b"])
    apart = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    alike = shoal.GaussianClasses.deterministic([[1.0], [1.0]], labels=["a", "b"])
    assert shoal.privacy_curve(apart, graph, 1.0, scope="table").delta_upper == 1.0
    assert shoal.privacy_curve(alike, graph, 0.0, scope="table").delta_upper == 0.0


def test_a_prior_over_labels_is_not_one_over_tables() -> None:
    classes = family(np.random.default_rng(1), 2, 2)
    with pytest.raises(shoal.InputError, match="prior"):
        shoal.privacy_curve(classes, complete(classes), 1.0, prior=[0.3, 0.7], scope="table")
    with pytest.raises(shoal.InputError, match="scope"):
        shoal.privacy_curve(classes, complete(classes), 1.0, scope="tables")


@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("grade", [0.0, 6.0])
def test_ball_arithmetic_encloses_hard_tables(k: int, grade: float) -> None:
    """Near-equal laws, wide scales, ε from 0 to the far tail; nothing below the proved δ."""
    tally = Tally()
    for seed, spread in enumerate((1e-6, 0.05, 1.5)):
        classes = family(np.random.default_rng(100 * k + seed), 2, k, spread, grade)
        (mean, std), (back, other) = loss(classes), loss(classes.take(np.array([1, 0])))
        mean, std = mean + back, math.hypot(std, other)
        for epsilon in (0.0, mean + 3 * std, mean + 9 * std):
            _, lower, upper = edge_brackets(classes, complete(classes), epsilon, scope="table")[0]
            (proved,) = confirmed(classes, epsilon, "table").edges
            tally.compare(f"k={k} spread={spread} ε={epsilon}", upper, lower, proved.lower, proved.upper)
            assert upper - lower < 1e-8 * max(1.0, -lower)
    assert not tally.violations
    assert not tally.false_lower
