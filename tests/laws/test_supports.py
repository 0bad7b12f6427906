"""Rank-deficient laws: equal supports are compared inside, different ones give the label away, all of it exactly."""

import warnings
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
import shoal
from evidence.tradeoff import tradeoff_curve
from families import complete, random_laws
from shoal.accounting.curve import edge_brackets
from shoal.audits.attacks import draw_true_answers
from shoal.laws.supports import RankWarning, group_by_support
from shoal.numerics.nullspace import null_space_form

NOTIONS = ("dp", "pdp", "pdp-two-sided", "chernoff")


def delta(classes, epsilon=0.7, notion="dp"):
    return shoal.edge_deltas(classes, complete(classes), epsilon, notion)


def embedded(k, rank, seed, spread=0, offset=0.0):
    """Laws y with independent entries, beside q = origin + B y with whole-numbered B: no digit is lost on the way."""
    rng = np.random.default_rng(seed)
    while np.linalg.matrix_rank(basis := rng.integers(-4, 5, (k, rank)).astype(float)) < rank:
        pass
    variances = rng.integers(3, 15, (3, rank)) * 2.0 ** -np.linspace(0, spread, rank).round()
    means = rng.integers(-20, 20, (3, rank)) * 2.0 ** (-3 - np.linspace(0, spread / 2, rank).round())
    origin = offset * rng.integers(-8, 9, k)
    covs = (basis * variances[:, None, :]) @ basis.T
    for cov, variance in zip(covs, variances, strict=True):
        for i, j in np.ndindex(k, k):
            terms = (Fraction(basis[i, r]) * Fraction(variance[r]) * Fraction(basis[j, r]) for r in range(rank))
            assert Fraction(cov[i, j]) == sum(terms)
    inside = shoal.GaussianClasses.diagonal(means, variances)
    return inside, shoal.GaussianClasses(origin + means @ basis.T, covs)


def exact_log_delta(laws, i, j, epsilon):
    """ln δ of i → j for independent entries, from γ = v/v' and ν₀ = gap/√v in 60 digits: no matrix, no eigenvalue."""
    mp = oracle.mp
    with mp.workdps(60):
        v, w = ([mp.mpf(float(x)) for x in laws.stored_variances[row]] for row in (i, j))
        gap = [mp.mpf(float(x)) for x in laws.means[j] - laws.means[i]]
        gamma = [a / b for a, b in zip(v, w, strict=True)]
        return oracle.log_hockey(gamma, [d / mp.sqrt(a) for d, a in zip(gap, v, strict=True)], epsilon)


@pytest.mark.parametrize(("k", "rank"), [(2, 1), (3, 2), (6, 3)])
@pytest.mark.parametrize("offset", [0.0, 1024.0])
def test_equal_supports_reduce(k, rank, offset):
    inside, outside = embedded(k, rank, 10 * k + rank, offset=offset)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RankWarning)
        assert delta(outside) == pytest.approx(delta(inside), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("k", "rank"), [(3, 2), (5, 3)])
def test_brackets_on_an_ill_conditioned_support_hold_the_truth(k, rank, seed):
    """Variances 2^20 apart along oblique directions: the coordinates inside the support must not cost a digit."""
    inside, outside = embedded(k, rank, seed, spread=20)
    for epsilon in (0.1, 2.0):
        found = edge_brackets(outside, complete(outside), epsilon)
        for e, (a, b) in enumerate(complete(outside).edges):
            for direction, (i, j) in enumerate(((a, b), (b, a))):
                truth = exact_log_delta(inside, i, j, epsilon)
                assert found[e, direction, 1] <= truth <= found[e, direction, 2]


@pytest.mark.parametrize(("mean", "gap"), [(1e9, 5e-6), (1e4, 1e-11), (1e4, 2.0**-39), (3.0, 2.0**-51)])
def test_a_gap_in_a_null_direction_is_seen_however_small(mean, gap):
    """Every answer of the first label has equal entries, none of the second's has."""
    classes = shoal.GaussianClasses([[mean, mean], [mean, mean + gap]], np.ones((2, 2)))
    graph = complete(classes)
    assert classes.means[1, 1] > mean
    for notion in NOTIONS:
        curve = shoal.privacy_curve(classes, graph, 1.0, notion)
        assert curve.delta_upper == 1.0
        assert curve.delta_lower > 1 - 1e-12
    assert shoal.epsilon_at(classes, graph, 0.5) == np.inf
    assert shoal.identification_risk(classes).success_lower == 1.0
    assert shoal.design(classes, graph, "none", 1.0, 1.0).certificate.delta_upper == 1.0
    assert shoal.calibrate(classes, graph, method="white", epsilon=1.0, delta=1e-3).method == "white"


def test_a_gap_off_the_support_gives_the_label_away():
    _, outside = embedded(3, 2, 7)
    means = outside.means.copy()
    entry = int(np.argmax(np.abs(null_space_form(outside.covs[0]).null[0])))
    means[2, entry] = np.nextafter(means[2, entry], np.inf)
    moved = shoal.GaussianClasses(means, outside.covs)
    found = delta(moved)
    assert (found[0] < 1).all()  # 0 - 1 still share a support
    assert (found[1:] == 1).all()
    for notion in NOTIONS:
        assert (delta(moved, 50.0, notion)[1:] == 1).all()
    assert shoal.epsilon_at(moved, complete(moved), 0.5) == np.inf
    assert shoal.renyi_curve(moved, complete(moved), 2.0).divergence == np.inf


def test_null_directions_must_agree_to_the_last_bit():
    """Two lines that differ by one unit of roundoff in their slope are two lines."""
    lines = np.array([[1.0, 2.0], [4.0, 8.0], [2.0**25, 2.0**26 + 1.0]])
    covs = np.array([np.outer(v, v) for v in lines])
    covs[2] = [[2.0**24, 2.0**25 + 2.0**-1], [2.0**25 + 2.0**-1, 2.0**26 + 2.0 + 2.0**-26]]  # (2^12, 2^13 + 2^-13)
    assert [null_space_form(cov).rank for cov in covs] == [1, 1, 1]
    found = delta(shoal.GaussianClasses(np.zeros((3, 2)), covs))
    assert (found[0] < 1).all()
    assert (found[1:] == 1).all()


# ---------------------------------------------------------------------- singular up to rounding only

ALMOST = np.array([[1.0, 1.0 - 2.0**-52], [1.0 - 2.0**-52, 1.0]])  # positive definite, by a hair
BELOW = np.array([[1.0, 1.0], [1.0, 1.0 - 2.0**-53]])  # indefinite, by a hair
LINE = np.ones((2, 2))


def settled(first, second):
    """(apart, unsettled) of two laws with zero means."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        supports = group_by_support(shoal.GaussianClasses(np.zeros((2, len(first))), [first, second]))
    apart, unsettled = supports.compare_pairs(np.array([[0, 1]]))
    return bool(apart[0]), bool(unsettled[0])


def test_what_is_known_of_covariances_that_are_singular_up_to_rounding():
    plane = np.eye(2)
    assert null_space_form(ALMOST).rank == 2
    assert null_space_form(BELOW) is None
    assert null_space_form(LINE).rank == 1
    assert settled(plane, LINE) == (True, False)
    assert settled(ALMOST, LINE) == (True, False)  # a plane and a line
    assert settled(ALMOST, plane) == settled(ALMOST, ALMOST) == (False, True)
    assert settled(BELOW, LINE) == settled(BELOW, plane) == settled(BELOW, BELOW) == (False, True)
    constant = np.zeros((3, 3))
    other = np.zeros((3, 3))
    constant[:2, :2] = BELOW
    other[1:, 1:] = LINE
    assert settled(constant, other) == (True, False)  # whatever the law, another entry is constant


@pytest.mark.parametrize("pair", [(ALMOST, 3 * ALMOST), (BELOW, 3 * BELOW), (BELOW, LINE), (ALMOST, np.eye(2))])
def test_what_is_not_settled_is_refused_and_never_understated(pair):
    classes = shoal.GaussianClasses(np.zeros((2, 2)), pair)
    graph = complete(classes)
    with pytest.warns(RankWarning, match="not exactly"), pytest.raises(shoal.CertificationError, match="with_noise"):
        shoal.privacy_curve(classes, graph, 1.0)
    for notion in NOTIONS[1:]:
        with pytest.raises(shoal.CertificationError, match="with_noise"):
            shoal.privacy_curve(classes, graph, 1.0, notion)
    bare = shoal.design(classes, graph, "none", 1.0, 1.0).certificate
    assert (bare.delta_upper, bare.delta, bare.worst_edge) == (1.0, 1.0, ("0", "1"))
    assert shoal.epsilon_at(classes, graph, 0.5) == np.inf
    assert (shoal.renyi_curve(classes, graph, [0.5, 1.0, 2.0, np.inf]).divergence_upper == np.inf).all()
    assert tradeoff_curve(classes, "0", "1", 0.1).tpr_upper == 1.0
    risk = shoal.identification_risk(classes)
    assert (risk.success_lower, risk.success_upper, risk.exact) == (0.5, 1.0, False)
    soft = shoal.GaussianClasses([[0.0], [1.0]], np.eye(1))
    with pytest.raises(shoal.CertificationError):
        shoal.privacy_curve([soft, classes], graph, 1.0)


def test_unsettled_labels_take_nothing_from_the_others():
    means, covs = random_laws(3, 2, 3)
    alone = delta(shoal.GaussianClasses(means[:2], covs[:2]))
    covs[2] = BELOW
    classes = shoal.GaussianClasses(means, covs)
    graph = shoal.NeighborGraph.from_edges(classes.labels, [("0", "1")])
    with pytest.warns(RankWarning, match="1 label"):
        found = shoal.edge_deltas(classes, graph, 0.7)
    assert found == pytest.approx(alone, rel=1e-12)


# ---------------------------------------------------------------------- elimination


def determinant(matrix):
    """By permutations, in fractions."""
    total = Fraction(0)
    for order in permutations(range(len(matrix))):
        term = Fraction((-1) ** sum(a > b for a, b in combinations(order, 2)))
        for i, j in enumerate(order):
            term *= Fraction(float(matrix[i, j]))
        total += term
    return total


def minors(matrix):
    """Principal minors, by the entries they keep."""
    k = len(matrix)
    return {p: determinant(matrix[np.ix_(p, p)]) for r in range(1, k + 1) for p in combinations(range(k), r)}


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 10**6), st.booleans())
def test_elimination_agrees_with_principal_minors(k, rank, seed, nudged):
    """Semidefinite where no principal minor is negative; the rank is the size of the largest positive one."""
    rng = np.random.default_rng(seed)
    factor = rng.integers(-3, 4, (k, rank + 1)) * 2.0 ** rng.integers(-30, 30, (k, 1))
    cov = factor @ factor.T
    if (np.diagonal(cov) == 0).any():
        return
    if nudged:
        i, j = rng.integers(0, k, 2)
        cov[i, j] = cov[j, i] = np.nextafter(cov[i, j], rng.choice([-np.inf, np.inf]))
    found, truth = null_space_form(cov), minors(cov)
    assert (found is None) == any(value < 0 for value in truth.values())
    if found is None:
        return
    assert found.rank == max(len(p) for p, value in truth.items() if value > 0)
    assert truth[tuple(sorted(found.pivots.tolist()))] > 0
    assert len(found.null) == k - found.rank
    for vector in found.null:
        assert all(sum(n * Fraction(float(x)) for n, x in zip(vector, row, strict=True)) == 0 for row in cov)
    assert found.annihilates(cov)
    # Within the rounding of the products that are added; entries that cancel are not 0 by one of them.
    error = np.abs(found.spread @ cov[found.pivots] - cov)
    assert (error <= 1e-12 * (np.abs(found.spread) @ np.abs(cov[found.pivots]))).all()


# ---------------------------------------------------------------------- answers that a law excludes


def test_release_refuses_what_the_law_of_the_label_excludes(monkeypatch):
    classes = shoal.GaussianClasses(
        [[0.0, 7.25, 1.0], [1.0, 7.25, 2.0]], [[[1.0, 0, 2.0], [0, 0, 0], [2.0, 0, 4.0]]] * 2
    )
    mechanism = shoal.design(classes, complete(classes), "white", 1.0, 1.0)
    good = np.array([0.1, 7.25, 1.2])  # 2 · 0.1 + 1 is 1.2 up to rounding
    mechanism.release(good, "0")
    mechanism.release(np.stack([good, good]), "0")
    monkeypatch.setattr("shoal.mechanism.mechanism.standard_normals", lambda count: pytest.fail("noise was drawn"))
    for wrong in ([0.1, np.nextafter(7.25, 8), 1.2], [0.1, 7.25, 1.2 + 1e-13], [0.1, 7.25, 97531.5], [0.0, -7.25, 1.0]):
        for q in (wrong, [good, wrong]):
            with pytest.raises(shoal.InputError, match="q: 1 of") as error:
                mechanism.release(q, "0")
            assert "97531" not in str(error.value)
    with pytest.raises(shoal.InputError, match="q: 1 of 1"):
        mechanism.release(good + np.array([0.0, 0.0, 1e-9]), "1")


@pytest.mark.parametrize("seed", range(3))
def test_drawn_answers_are_ones_the_laws_allow(seed):
    for k, rank in ((2, 1), (4, 2), (12, 7)):
        _, classes = embedded(k, rank, seed, spread=10, offset=2.0**20)
        drawn = draw_true_answers(classes, 400, np.random.default_rng(seed))
        supports = group_by_support(classes)
        for i, answers in enumerate(drawn):
            assert not supports.excluded_answers(classes, answers, np.full(400, i)).any()
            assert np.cov(answers, rowvar=False) == pytest.approx(classes.covs[i], abs=0.4 * np.abs(classes.covs).max())
    covs = np.zeros((2, 3, 3))
    covs[:, 1:, 1:] = random_laws(2, 2, seed)[1]
    still = shoal.GaussianClasses([[0.0, 1.0, 2.0], [3.0, 1.0, 2.0]], covs)
    first, second = draw_true_answers(still, 50, np.random.default_rng(seed))
    assert (first[:, 0] == 0.0).all()
    assert (second[:, 0] == 3.0).all()


# ---------------------------------------------------------------------- families


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


def test_composition_with_a_revealing_release():
    soft = shoal.GaussianClasses([[0.0], [1.0]], np.eye(1))
    hard = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
    empty = shoal.GaussianClasses.deterministic([[3.0], [3.0]])
    graph = complete(soft)
    assert shoal.privacy_curve([soft, hard], graph, 1.0).delta == 1.0
    alone = shoal.privacy_curve(soft, graph, 1.0)
    assert shoal.privacy_curve([soft, empty], graph, 1.0).delta == pytest.approx(alone.delta, rel=1e-13)
