"""Rank-deficient laws: equal supports are compared inside, different ones give the label away."""

import numpy as np
import pytest

import shoal
from families import complete, random_laws
from shoal.supports import split


def delta(classes, epsilon=0.7, notion="dp"):
    return shoal.edge_deltas(classes, complete(classes), epsilon, notion)


def embedded(k, rank, seed, offset=0.0):
    """Laws on one random affine subspace, beside the same laws in its own coordinates."""
    means, covs = random_laws(3, rank, seed)
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((k, rank)))[0]
    origin = offset * rng.standard_normal(k)
    big = basis @ covs @ basis.T
    inside = shoal.GaussianClasses(means, covs)
    return inside, shoal.GaussianClasses(origin + means @ basis.T, 0.5 * (big + big.transpose(0, 2, 1)))


@pytest.mark.parametrize(("k", "rank"), [(2, 1), (3, 2), (6, 3)])
@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_equal_supports_reduce(k, rank, offset):
    inside, outside = embedded(k, rank, 10 * k + rank, offset)
    assert np.isinf(outside.condition).all()
    assert delta(outside) == pytest.approx(delta(inside), rel=1e-9)
    brackets = shoal.edge_brackets(outside, complete(outside), 0.7)
    exact = shoal.edge_brackets(inside, complete(inside), 0.7)[..., 0]
    assert (brackets[..., 1] <= exact + 1e-9).all()
    assert (brackets[..., 2] >= exact - 1e-9).all()


def test_a_gap_off_the_support_gives_the_label_away():
    _, outside = embedded(3, 2, 7)
    off = np.linalg.eigh(outside.covs[0])[1][:, 0]
    means = outside.means.copy()
    means[2] += 1e-6 * off
    moved = shoal.GaussianClasses(means, outside.covs)
    found = delta(moved)
    assert (found[0] < 1).all()  # 0 - 1 still share a support
    assert (found[1:] == 1).all()
    for notion in ("pdp", "pdp-two-sided", "chernoff"):
        assert (delta(moved, 50.0, notion)[1:] == 1).all()
    assert shoal.epsilon_at(moved, complete(moved), 0.5) == np.inf
    assert shoal.renyi_curve(moved, complete(moved), 2.0).divergence == np.inf


def test_different_ranks_are_different_supports():
    classes = shoal.GaussianClasses(np.zeros((3, 2)), [np.eye(2), np.diag([1.0, 0.0]), np.zeros((2, 2))])
    assert (delta(classes, 100.0) == 1).all()
    turned = shoal.GaussianClasses(np.zeros((2, 2)), [np.diag([1.0, 0.0]), np.diag([0.0, 1.0])])
    assert (delta(turned, 100.0) == 1).all()


def test_entries_without_variance_are_compared_exactly():
    """Diagonal laws: a constant entry that differs by the last bit is a different support; −0.0 is 0.0."""
    variances = np.array([1.0, 0.0])
    same = shoal.GaussianClasses.diagonal([[0.0, 0.0], [1.0, -0.0]], variances)
    line = shoal.GaussianClasses.diagonal([[0.0], [1.0]], [1.0])
    assert delta(same) == pytest.approx(delta(line), rel=1e-12)
    other = shoal.GaussianClasses.diagonal([[0.0, 1.0], [1.0, np.nextafter(1.0, 2)]], variances)
    assert (delta(other) == 1).all()
    full = shoal.GaussianClasses(other.means, np.diag(variances))
    assert (delta(full) == 1).all()


def test_constants_are_equal_or_not():
    classes = shoal.GaussianClasses.deterministic([[1.0], [1.0], [2.0]])
    assert np.array_equal(delta(classes), [[0, 0], [1, 1], [1, 1]])
    curve = shoal.privacy_curve(classes.take([0, 1]), shoal.NeighborGraph.complete(["0", "1"]), 0.0)
    assert curve.delta_upper == 0.0


def test_families_cover_every_label_once():
    means, covs = random_laws(6, 3, 0)
    covs[1] = covs[2] = 0
    covs[3] = np.diag([1.0, 2.0, 0.0])
    covs[4] = np.outer([1, 2, 3.0], [1, 2, 3.0])
    covs[5] = 2 * covs[4]
    means[5] = means[4] + [0.5, 1.0, 1.5]
    supports = split(shoal.GaussianClasses(means, covs))
    members = np.concatenate([family.members for family in supports.families])
    assert sorted(members) == list(range(6))
    assert supports.family[4] == supports.family[5]
    assert len(supports.families) == 5
    for number, family in enumerate(supports.families):
        assert (supports.family[family.members] == number).all()
        assert np.array_equal(supports.position[family.members], np.arange(len(family.members)))


def test_composition_with_a_revealing_release():
    soft = shoal.GaussianClasses([[0.0], [1.0]], np.eye(1))
    hard = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
    empty = shoal.GaussianClasses.deterministic([[3.0], [3.0]])
    graph = complete(soft)
    assert shoal.privacy_curve([soft, hard], graph, 1.0).delta == 1.0
    alone = shoal.privacy_curve(soft, graph, 1.0)
    assert shoal.privacy_curve([soft, empty], graph, 1.0).delta == pytest.approx(alone.delta, rel=1e-13)
