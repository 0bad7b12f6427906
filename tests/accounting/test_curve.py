"""privacy_curve, edge_deltas, epsilon_at and priors."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

import shoal
from families import complete, equal_covariance_delta, loss_samples, random_family, random_laws
from shoal.accounting.curve import _choose_brackets, edge_brackets, split_brackets

NOTIONS = ["dp", "pdp", "pdp-two-sided", "chernoff"]


def test_repairs_of_the_paper():
    """Section 8: one-sided is not two-sided, and the surrogate is blind to shape."""
    classes = shoal.GaussianClasses([[0.0], [1.0]], np.eye(1))
    found = [shoal.privacy_curve(classes, complete(classes), 0.1, notion).delta for notion in NOTIONS[:3]]
    assert found == pytest.approx([0.352, 0.655, 0.930], abs=6e-4)
    shapes = shoal.GaussianClasses.diagonal(np.zeros((2, 2)), [[100, 0.01], [0.01, 100]])
    a, b = shapes.stored_variances
    assert 0.5 * np.log(b / a).sum() == pytest.approx(0.0, abs=1e-12)  # the surrogate: the means are equal
    assert shoal.privacy_curve(shapes, complete(shapes), 1.0, "pdp").delta == pytest.approx(0.987, abs=1e-3)


@pytest.mark.parametrize("notion", ["dp", "pdp", "pdp-two-sided"])
@pytest.mark.parametrize("form", ["shared", "full", "diagonal", "per label"])
def test_equal_covariances_have_a_closed_form(form, notion):
    means, covs = random_laws(3, 4, 1)
    cov = np.diag(np.diag(covs[0])) if form == "diagonal" else covs[0]
    classes = {
        "shared": lambda: shoal.GaussianClasses(means, cov),
        "full": lambda: shoal.GaussianClasses(means, np.stack([cov] * 3)),
        "diagonal": lambda: shoal.GaussianClasses.diagonal(means, np.diag(cov)),
        "per label": lambda: (
            shoal.GaussianClasses.diagonal(means, np.stack([np.diag(cov)] * 3))
            if form == "diagonal"
            else shoal.GaussianClasses(means, np.stack([cov] * 3))
        ),
    }[form]()
    graph = complete(classes)
    for epsilon in (0.0, 0.5, 3.0):
        found = shoal.edge_deltas(classes, graph, epsilon, notion)
        for (i, j), row in zip(graph.edges, found, strict=True):
            gap = means[j] - means[i]
            length = math.sqrt(gap @ np.linalg.solve(cov, gap))
            assert row == pytest.approx([equal_covariance_delta(length, epsilon, notion)] * 2, rel=1e-9)


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_curve_is_the_worst_edge(notion):
    classes = random_family(12, 3, 2)
    graph = shoal.NeighborGraph.nearest(classes, 3)
    epsilons = np.array([0.0, 0.5, 2.0, 9.0])
    curve = shoal.privacy_curve(classes, graph, epsilons, notion)
    for n, epsilon in enumerate(epsilons):
        found = edge_brackets(classes, graph, epsilon, notion)
        assert curve.log_delta[n] == found[..., 0].max()
        assert curve.log_delta_upper[n] == found[..., 2].max()
        e, direction = np.unravel_index(np.argmax(found[..., 0]), found.shape[:2])
        if (found[..., 0] == found[..., 0].max()).sum() == 1:
            assert curve.worst_edge[n] == tuple(classes.labels[i] for i in graph.edges[e][:: 1 - 2 * direction])
        one = shoal.privacy_curve(classes, graph, epsilon, notion)
        assert (one.delta, one.delta_upper, one.worst_edge) == (
            curve.delta[n],
            curve.delta_upper[n],
            curve.worst_edge[n],
        )
    assert (curve.delta_lower <= curve.delta).all()
    assert (curve.delta <= curve.delta_upper).all()
    assert (curve.delta_upper <= 1).all()


def test_directions_are_told_apart():
    """A narrow law inside a wide one: leaving the narrow one the loss is bounded, the other way it is not."""
    classes = shoal.GaussianClasses(np.zeros((2, 1)), [[[1.0]], [[100.0]]], ["narrow", "wide"])
    graph = complete(classes)
    forth, back = shoal.edge_deltas(classes, graph, 2.5)[0]
    assert forth == 0.0  # L ≤ ln 10
    assert back > 0.5
    curve = shoal.privacy_curve(classes, graph, 2.5)
    assert curve.worst_edge == ("wide", "narrow")


def test_monte_carlo_agrees():
    classes = random_family(3, 4, 8)
    found = {n: shoal.edge_deltas(classes, complete(classes), 0.8, n) for n in NOTIONS[:3]}
    for row, (i, j) in enumerate(complete(classes).edges):
        for direction, (a, b) in enumerate(((i, j), (j, i))):
            loss = loss_samples(classes, a, b, 200_000, seed=row)
            for notion, values in (
                ("dp", np.maximum(-np.expm1(0.8 - loss), 0)),
                ("pdp", loss > 0.8),
                ("pdp-two-sided", np.abs(loss) > 0.8),
            ):
                spread = values.std() / math.sqrt(len(loss))
                assert abs(values.mean() - found[notion][row, direction]) < 5 * spread


def test_identical_laws_leak_nothing():
    means, covs = random_laws(1, 3, 0)
    classes = shoal.GaussianClasses(np.repeat(means, 2, axis=0), np.repeat(covs, 2, axis=0))
    graph = complete(classes)
    for notion in NOTIONS[:3]:
        curve = shoal.privacy_curve(classes, graph, [0.0, 1.0], notion)
        assert not curve.delta_upper.any()
    assert shoal.epsilon_at(classes, graph, 0.0) == 0.0


@pytest.mark.parametrize("notion", NOTIONS)
def test_underflow_is_not_zero(notion):
    classes = shoal.GaussianClasses([[0.0], [0.01]], np.eye(1))
    curve = shoal.privacy_curve(classes, complete(classes), 5.0, notion)
    assert curve.delta == 0.0
    assert curve.delta_upper > 0.0
    assert curve.log_delta < -1e5


@pytest.mark.parametrize("gap", [1e-12, 1e-17, 1e-40, 1e-90])
@pytest.mark.parametrize("k", [1, 3])
def test_nearly_equal_laws(gap, k):
    means = np.zeros((2, k))
    means[1, 0] = gap
    classes = shoal.GaussianClasses(means, np.stack([np.eye(k)] * 2))
    curve = shoal.privacy_curve(classes, complete(classes), 0.0)
    assert curve.delta == pytest.approx(gap / math.sqrt(2 * math.pi), rel=1e-9)
    with mp.workdps(120):
        assert curve.delta_lower <= mp.erf(mpf(gap) / mp.sqrt(8)) <= curve.delta_upper


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("k", [1, 3])
def test_epsilon_at_is_safe_with_zero_tolerance_and_tight(k, notion):
    classes = random_family(5, k, 7 + k)
    graph = complete(classes)
    for delta in (1 - 1e-9, 0.9, 0.3, 1e-2, 1e-6, 1e-20, 1e-200):
        epsilon = shoal.epsilon_at(classes, graph, delta, notion)
        assert shoal.privacy_curve(classes, graph, epsilon, notion).delta_upper <= delta
        if epsilon > 0:
            below = shoal.privacy_curve(classes, graph, epsilon * (1 - 1e-6), notion)
            assert below.delta_upper > delta


def test_epsilon_at_zero_delta_is_the_supremum_of_the_loss():
    # Only the direction with γ < 1 is bounded, so a graph's ε at δ = 0 is infinite …
    classes = shoal.GaussianClasses(np.zeros((2, 1)), [[[1.0]], [[4.0]]])
    assert shoal.epsilon_at(classes, complete(classes), 0.0) == math.inf
    # … unless a release is the same for all.
    same = shoal.GaussianClasses(np.ones((2, 1)), np.eye(1))
    assert shoal.epsilon_at(same, complete(same), 0.0) == 0.0


def test_a_prior_shifts_each_edge():
    classes = random_family(3, 2, 9)
    prior = np.array([0.6, 0.3, 0.1])
    graph = complete(classes)
    found = shoal.edge_deltas(classes, graph, 1.5, prior=prior)
    for (i, j), row in zip(graph.edges, found, strict=True):
        one = shoal.NeighborGraph(classes.labels, [[i, j]])
        shift = math.log(prior[i] / prior[j])
        for direction, moved in enumerate((1.5 - shift, 1.5 + shift)):
            if moved >= 0:
                expected = shoal.edge_deltas(classes, one, moved)[0, direction]
                assert row[direction] == pytest.approx(expected, rel=1e-12)
    named = dict(zip(classes.labels, prior, strict=True))
    assert np.array_equal(shoal.edge_deltas(classes, graph, 1.5, prior=named), found)
    uniform = shoal.edge_deltas(classes, graph, 1.5, prior=np.full(3, 1 / 3))
    assert uniform == pytest.approx(shoal.edge_deltas(classes, graph, 1.5), rel=1e-12)


def test_a_prior_can_shift_epsilon_below_zero():
    """Closed form at a negative ε: 1 − e^ε of mass is certain, the rest is the reversed question."""
    classes = shoal.GaussianClasses([[0.0], [0.8]], np.eye(1))
    found = shoal.edge_deltas(classes, complete(classes), 0.0, prior=[0.9, 0.1])[0]
    for value, shift in zip(found, (-math.log(9), math.log(9)), strict=True):
        assert value == pytest.approx(equal_covariance_delta(0.8, shift), rel=1e-11)
    epsilon = shoal.epsilon_at(classes, complete(classes), 1e-3, prior=[0.9, 0.1])
    assert epsilon == pytest.approx(math.log(9) + shoal.epsilon_at(classes, complete(classes), 1e-3), rel=1e-9)


def test_how_work_is_spread_changes_nothing(monkeypatch):
    classes = random_family(60, 2, 12)  # more than one block of edges
    graph = complete(classes)
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("SHOAL_THREADS", threads)
        curve = shoal.privacy_curve(classes, graph, [0.5, 4.0])
        results.append((curve.delta.tolist(), curve.delta_upper.tolist(), curve.worst_edge))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("void", [(0.0, -math.inf, 0.0), (math.nan, math.nan, math.nan), (-0.1, -0.2, math.nan)])
def test_what_cannot_be_certified_raises(void):
    fine = (-1.0, -1.0 - 1e-12, -1.0 + 1e-12)
    with pytest.raises(shoal.CertificationError, match="with_noise"):
        split_brackets(np.array([fine, void]))
    loose = (-1.0, -math.inf, -7.0)  # wide, but an upper end worth having
    value, _, upper = split_brackets(np.array([fine, loose]))
    assert value.tolist() == [-1.0, -7.0]
    assert upper.tolist() == [fine[2], -7.0]


def test_a_precise_bracket_replaces_a_loose_one_as_a_whole():
    """The smaller of two upper ends would keep a false one alive."""
    inf = np.inf
    old = np.array([[-5.0, -6.0, -4.9], [-5.0, -inf, -4.0], [-5.0, -5.2, -4.8], [-5.0, -5.1, -4.9], [0.0, -inf, 0.0]])
    new = np.array(
        [[-4.8, -4.9, -4.7], [-inf, -inf, -inf], [-4.0, -4.1, -3.9], [-5.0, -inf, -4.95], [-1.0, -inf, -0.5]]
    )
    kept = [
        [-4.8, -4.9, -4.7],  # above the old upper end: the old one was wrong
        [-inf, -inf, -inf],  # an exact zero
        [-4.0, -5.2, -3.9],  # they do not meet: both
        [-5.0, -5.1, -4.9],  # looser than what it was to replace
        [-1.0, -inf, -0.5],
    ]
    assert np.array_equal(_choose_brackets(old, new), kept)
