"""Naming a row with the whole table in hand: exact, estimated and bounded."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import ndtr

import shoal
from families import complete, random_family
from shoal.accounting import risk as risks
from shoal.accounting.assignments import likeliest_assignments
from shoal.accounting.releases import Releases
from shoal.accounting.risk import best_naming_bound, group_naming_bound, identification_risk, naming_bound
from shoal.errors import InputError


def bound_of(classes: shoal.GaussianClasses, graph: shoal.NeighborGraph | None = None) -> float:
    """The theorem alone."""
    releases = Releases.collect(classes, "table")
    pairs = releases.edge_positions(complete(classes) if graph is None else graph)
    return best_naming_bound(releases, np.arange(classes.n_classes), pairs)


def scores_of(classes: shoal.GaussianClasses, tables: int, seed: int) -> np.ndarray:
    """(tables, n, n) log-densities of row r, drawn from label r, under every label; no library code."""
    rng, n = np.random.default_rng(seed), classes.n_classes
    rows = np.stack(
        [rng.multivariate_normal(m, c, tables) for m, c in zip(classes.means, classes.covs, strict=True)], 1
    )
    out = np.empty((tables, n, n))
    for a, (mean, cov) in enumerate(zip(classes.means, classes.covs, strict=True)):
        gap = rows - mean
        shape = np.einsum("tri,ij,trj->tr", gap, np.linalg.inv(cov), gap)
        out[:, :, a] = -0.5 * shape - 0.5 * np.linalg.slogdet(cov)[1]
    return out


# ------------------------------------------------------------------ two labels


@pytest.mark.parametrize("gap", [0.01, 1.0, 5.0])
def test_two_rows_are_exact(gap):
    """½(1 + δ(0)); equal covariances double the squared distance: Φ(gap/√2)."""
    classes = shoal.GaussianClasses([[0.0], [gap]], np.eye(1))
    found = identification_risk(classes, scope="table")
    exact = ndtr(gap / math.sqrt(2))
    assert found.exact
    assert found.confidence == 1.0
    assert found.success_lower <= exact <= found.success_upper
    assert found.success == pytest.approx(exact, rel=1e-11)
    assert found.success > identification_risk(classes).success


def test_two_rows_of_unrelated_laws():
    classes = random_family(2, 3, 4)
    found = identification_risk(classes, complete(classes), scope="table")
    delta = float(shoal.edge_deltas(classes, complete(classes), 0.0, scope="table")[0])
    assert found.success == pytest.approx(0.5 * (1 + delta), rel=1e-12)
    scores = scores_of(classes, 40_000, 1)
    swap = scores[:, 0, 0] + scores[:, 1, 1] - scores[:, 0, 1] - scores[:, 1, 0]
    assert (swap > 0).mean() == pytest.approx(found.success, abs=0.01)


# ------------------------------------------------------------------ small groups


@pytest.mark.parametrize("n", [3, 4, 5])
def test_small_groups_agree_with_all_assignments(n):
    classes = random_family(n, 2, 7, gap=1.5)
    found = identification_risk(classes, complete(classes), scope="table", n_samples=40_000, seed=2)
    scores = scores_of(classes, 20_000, 3)
    orders = np.array(list(itertools.permutations(range(n))))
    totals = scores[:, np.arange(n), orders].sum(axis=2)
    weights = np.exp(totals - totals.max(axis=1, keepdims=True))
    posterior = np.zeros((len(scores), n, n))
    for r, a in itertools.product(range(n), range(n)):
        posterior[:, r, a] = weights[:, orders[:, r] == a].sum(axis=1)
    right = (posterior.argmax(axis=2) == np.arange(n)).mean()
    assert found.success_lower <= found.success <= found.success_upper
    assert right == pytest.approx(found.success, abs=0.01)
    assert found.success_lower - 0.006 <= right <= found.success_upper + 0.006
    assert not found.exact
    assert found.confidence == 0.99
    assert found == identification_risk(classes, complete(classes), scope="table", n_samples=40_000, seed=2)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.integers(2, 7), st.integers(1, 3), st.sampled_from([0.05, 0.5, 1.5]), st.integers(0, 10**6))
def test_a_table_tells_no_less_than_a_row_and_no_more_than_the_theorem(n, k, gap, seed):
    classes = random_family(n, k, seed, gap)
    graph = complete(classes)
    answer = identification_risk(classes, graph, n_samples=4000, confidence=0.9999)
    table = identification_risk(classes, graph, scope="table", n_samples=4000, confidence=0.9999)
    assert table.success_upper >= answer.success_lower
    assert table.success_upper <= bound_of(classes) * (1 + 1e-9)
    # The estimate by itself, without the theorem: its lower end must lie below the bound.
    estimate = risks._largest_row_posteriors(classes, 2000, np.random.default_rng(seed))
    mean, half = risks.bernstein_interval(estimate, 1e-4)
    assert mean - half <= bound_of(classes)


# ------------------------------------------------------------------ the theorem


@pytest.mark.parametrize("n", [2, 5, 40])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_the_bound_of_a_complete_group(n, epsilon):
    delta = 1e-3
    grow = math.exp(epsilon)
    exact = (grow + (n - 1) * delta) / (grow + n - 1)
    ours = naming_bound(np.full(n, n - 1), epsilon, n * (n - 1) / 2 * delta)
    assert exact <= ours <= exact * (1 + 1e-11)
    assert exact <= group_naming_bound(n, epsilon, delta) <= exact * (1 + 1e-13)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.floats(0, 4), st.floats(0, 30))
def test_the_bound_is_the_largest_mean_that_the_inequality_allows(degrees, epsilon, total):
    n, grow = len(degrees), math.exp(epsilon)
    found = linprog(-np.ones(n) / n, A_ub=[np.array(degrees) + grow], b_ub=[n * grow + 2 * total], bounds=[(0, 1)] * n)
    assert naming_bound(np.array(degrees), epsilon, total) == pytest.approx(-found.fun, rel=1e-9)


@pytest.mark.parametrize("kind", ["path", "star", "complete"])
def test_the_theorem_holds_on_any_graph(kind):
    """The Bayes attacker on six labels, whoever is whose neighbor."""
    n = 6
    classes = shoal.GaussianClasses(0.7 * np.random.default_rng(1).standard_normal((n, 2)), np.eye(2))
    pairs = {
        "path": [(i, i + 1) for i in range(n - 1)],
        "star": [(0, i) for i in range(1, n)],
        "complete": list(itertools.combinations(range(n), 2)),
    }[kind]
    graph = shoal.NeighborGraph.from_edges(classes.labels, [(str(a), str(b)) for a, b in pairs])
    truth = risks._largest_row_posteriors(classes, 4000, np.random.default_rng(2))
    mean, half = risks.bernstein_interval(truth, 1e-6)
    assert mean - half <= bound_of(classes, graph)
    assert bound_of(classes, graph) < 1.0
    found = identification_risk(classes, graph, scope="table")
    assert found.success_lower <= mean + half
    assert mean - half <= found.success_upper


def test_many_pairs_are_bounded_by_the_worst(monkeypatch):
    classes = shoal.GaussianClasses(0.2 * np.random.default_rng(2).standard_normal((16, 2)), np.eye(2))
    each = bound_of(classes)
    monkeypatch.setattr(risks, "MANY_PAIRS", 10)
    assert each < bound_of(classes) < 1.0


def test_larger_groups_lie_between_one_answer_and_the_theorem():
    n = 20
    classes = shoal.GaussianClasses(0.4 * np.random.default_rng(3).standard_normal((n, 3)), np.eye(3))
    graph = complete(classes)
    found = identification_risk(classes, graph, scope="table", n_samples=5000)
    assert found.success == pytest.approx(bound_of(classes), rel=1e-9)
    assert found.success_lower >= identification_risk(classes, graph, n_samples=5000).success_lower - 1e-12
    assert not found.exact
    matched = likeliest_assignments(scores_of(classes, 500, 4))
    assert (matched == np.arange(n)).mean() < found.success_upper


# ------------------------------------------------------------------ laws of every kind


@pytest.mark.parametrize("n", [3, 12, 30])
def test_equal_laws_leave_chance(n):
    for classes in (
        shoal.GaussianClasses(np.zeros((n, 2)), np.eye(2)),
        shoal.GaussianClasses.deterministic(np.ones((n, 2))),
    ):
        found = identification_risk(classes, complete(classes), scope="table")
        assert found.exact
        assert found.confidence == 1.0
        assert found.success_upper == pytest.approx(1 / n, rel=1e-9)
        assert found.success_upper >= 1 / n


def test_the_graph_tells_the_group_and_supports_give_themselves_away():
    classes = shoal.GaussianClasses([[0.0], [1.0], [0.0], [1.0]], np.eye(1))
    groups = shoal.NeighborGraph.within_groups(classes.labels, [0, 0, 1, 1])
    told = identification_risk(classes, groups, scope="table")
    assert told.exact
    assert told.success == pytest.approx(ndtr(math.sqrt(0.5)), rel=1e-11)
    apart = shoal.GaussianClasses.deterministic([[0.0], [1.0], [2.0]])
    assert identification_risk(apart, scope="table").success == 1.0
    mixed = shoal.GaussianClasses.diagonal([[0.0], [0.0], [1.0]], [[1.0], [0.0], [1.0]])
    assert identification_risk(mixed, scope="table").success == pytest.approx(
        1 / 3 + 2 / 3 * ndtr(math.sqrt(0.5)), rel=1e-11
    )


def test_laws_known_only_so_well_widen_the_interval_by_all_rows():
    classes = random_family(4, 2, 5)
    doubted = classes.with_errors(np.full((4, 2, 2), 1e-4), np.full((4, 2), 1e-4))
    plain, wide = (identification_risk(one, scope="table", n_samples=4000) for one in (classes, doubted))
    share = risks._law_error_allowance(doubted, np.arange(4), np.full(4, 0.25))
    assert share > 0
    assert wide.success_upper - plain.success_upper == pytest.approx(4 * share, rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scope": "table", "prior": [0.5, 0.25, 0.25]}, "prior must be left out with scope='table'"),
        ({"scope": "row"}, "scope must be"),
        ({"scope": "table", "n_samples": 5}, "n_samples must be at least 100"),
    ],
)
def test_bad_input_is_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        identification_risk(random_family(3, 2, 1), **options)
