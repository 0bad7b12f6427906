"""Proofs: enclosures hold closed forms and an independent reference, and nothing that is claimed lies below them."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import mpmath
import numpy as np
import pytest

import campaign
import oracle
import shoal
from shoal.product.card.measures import design_facts
from shoal.proofs.proof import Proof, prove_mechanism

EDGE = shoal.NeighborGraph.complete(["0", "1"])
#: Relative width of a proof of a pair that is known exactly.
WIDTH = 4e-11


def pair(seed: int, k: int, spread: float = 0.3, decades: float = 2.0) -> shoal.GaussianClasses:
    rng = np.random.default_rng([seed, k])
    half = campaign.rotation(rng, k) * np.sqrt(10.0 ** rng.uniform(-decades, 0.0, k))
    other, gap = campaign.likeness_points(rng, half, spread, float(10.0 ** rng.uniform(-1, 0.5)))
    return shoal.GaussianClasses(np.array([np.zeros(k), gap]), np.array([half @ half.T, other]))


def mechanism(
    classes: shoal.GaussianClasses, noise: np.ndarray, shift: np.ndarray, gain: np.ndarray | None = None, **more: object
) -> shoal.Mechanism:
    """A mechanism with these parameters, whatever a design would have chosen."""
    graph = shoal.NeighborGraph.complete(classes.labels)
    budget = np.ones(classes.n_classes)
    return shoal.Mechanism(
        "transport", classes, graph, np.full(graph.n_edges, 1.0), "dp", shift, gain, noise, budget,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def reference(classes: shoal.GaussianClasses, epsilon: float, scope: str = "answer") -> mpmath.mpf:
    """δ of the worse direction, or of a table, to 28 digits, by the oracle."""
    rows = list(zip(classes.means, classes.covs, strict=True))
    ways = [oracle.spectrum(*rows[i], *rows[1 - i], dps=120) for i in range(2)]
    if scope == "table":
        ways = [tuple([*one, *two] for one, two in zip(*ways, strict=True))]  # type: ignore[list-item]
    return mpmath.exp(max(oracle.log_hockey(gamma, nu, epsilon) for gamma, nu in ways))


def holds(proof: Proof, exact: mpmath.mpf) -> bool:
    """Whether a proof encloses a number that is known to 28 digits."""
    with mpmath.workdps(60):
        room = mpmath.mpf(10) ** -27
        return bool(proof.delta_lower * (1 - room) <= exact <= proof.ideal_upper * (1 + room))


@pytest.mark.parametrize("scope", ["answer", "table"])
@pytest.mark.parametrize(("gap", "epsilon"), [(1.0, 0.0), (1.0, 1.0), (0.25, 1.0), (3.0, 0.5), (0.1, 2.0)])
def test_equal_covariances_have_a_closed_form(gap: float, epsilon: float, scope: str) -> None:
    classes = shoal.GaussianClasses([[0.0, 0.0], [gap, 0.0]], np.eye(2))
    proof = shoal.prove(classes, EDGE, epsilon, scope)
    with mpmath.workdps(60):
        mu = mpmath.mpf(gap) * (mpmath.sqrt(2) if scope == "table" else 1)
        e = mpmath.mpf(epsilon)
        exact = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        assert proof.delta_lower <= exact <= proof.delta_upper
        assert proof.delta_upper - proof.delta_lower <= WIDTH * exact
    assert proof.ideal_upper == proof.delta_upper


@pytest.mark.parametrize(("seed", "k"), [(0, 1), (1, 2), (2, 3), (3, 5), (4, 8), (5, 12), (6, 16)])
def test_an_independent_reference_agrees(seed: int, k: int) -> None:
    classes = pair(seed, k)
    for epsilon in (0.0, 0.7, 4.0):
        proof = shoal.prove(classes, EDGE, epsilon)
        assert holds(proof, reference(classes, epsilon))
        assert proof.delta_upper - proof.delta_lower <= WIDTH * proof.delta_upper


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_the_composition_of_both_directions(seed: int) -> None:
    classes = pair(seed, 3)
    for epsilon in (0.0, 1.0):
        assert holds(shoal.prove(classes, EDGE, epsilon, "table"), reference(classes, epsilon, "table"))


def test_equal_laws_and_other_supports() -> None:
    same = shoal.GaussianClasses([[1.0, 2.0]] * 2, [np.eye(2)] * 2)
    proof = shoal.prove(same, EDGE, 0.0)
    assert (proof.delta_lower, proof.delta_upper, len(proof.equal)) == (0.0, 0.0, 1)
    points = shoal.GaussianClasses.deterministic([[1.0], [math.nextafter(1.0, 2.0)]])
    proof = shoal.prove(points, EDGE, 5.0)
    assert (proof.delta_lower, proof.delta_upper) == (1.0, 1.0)
    assert proof.edges[0].by == "apart"
    # One unit in the last place off a line that both covariances live on.
    line = shoal.GaussianClasses([[1e9, 1e9], [1e9, math.nextafter(1e9, 2e9)]], np.ones((2, 2)))
    assert shoal.prove(line, EDGE, 1.0).delta_lower == 1.0


def test_singular_laws_on_one_support() -> None:
    onto = np.array([[1.0, 0.0], [2.0, 1.0], [-1.0, 4.0]])
    inner = [np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[3.0, 0.5], [0.5, 2.0]])]
    gap = np.array([0.5, -0.25])
    flat = shoal.GaussianClasses([np.zeros(3), onto @ gap], [onto @ one @ onto.T for one in inner])
    full = shoal.GaussianClasses([np.zeros(2), gap], inner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for scope in ("answer", "table"):
            one, two = shoal.prove(flat, EDGE, 0.3, scope), shoal.prove(full, EDGE, 0.3, scope)
            assert one.delta_lower <= two.delta_upper
            assert two.delta_lower <= one.delta_upper
            assert one.delta_upper - one.delta_lower <= WIDTH * one.delta_upper


def test_a_bounded_loss_ends() -> None:
    """N(0, ½) against N(0, 1): L ≤ ½ ln 2, from the narrower law; δ = 0 from there on, and not before."""
    classes = shoal.GaussianClasses([[0.0], [0.0]], [[[0.5]], [[1.0]]])
    graph = shoal.NeighborGraph.from_edges(["0", "1"], [("0", "1")])
    most = 0.5 * math.log(2.0)
    for epsilon, ended in ((most - 1e-3, False), (most + 1e-9, True), (3.0, True)):
        proof = shoal.prove(classes, graph, epsilon)
        narrow = [one for one in proof.edges if one.direction == "forward"]
        excluded = [one for one in proof.excluded if one.direction == "forward"]
        if ended:
            assert all(one.upper == 0.0 and one.by == "bounded" for one in narrow)
            assert narrow or excluded
        elif narrow:
            assert narrow[0].lower > 0


def test_what_is_known_up_to_errors_is_enclosed_with_them() -> None:
    classes = pair(7, 3)
    doubted = classes.with_errors(np.full((2, 3, 3), 1e-9) * np.abs(classes.covs), np.full((2, 3), 1e-9))
    narrow, wide = shoal.prove(classes, EDGE, 1.0), shoal.prove(doubted, EDGE, 1.0)
    assert wide.delta_lower < narrow.delta_lower < narrow.delta_upper < wide.delta_upper
    assert wide.delta_upper - wide.delta_lower < 1e-3 * wide.delta_upper


def test_what_cannot_be_settled_claims_nothing_and_says_so() -> None:
    flat = shoal.GaussianClasses([[0.0, 0.0], [1.0, 1.0]], np.ones((2, 2)))
    proof = shoal.prove(flat.with_errors(np.full((1, 2, 2), 1e-12), np.zeros((2, 2))), EDGE, 1.0)
    assert (proof.delta_lower, proof.delta_upper) == (0.0, 1.0)
    assert "singular" in proof.unsettled[0]
    assert "not settled" in str(proof)


def test_edges_are_all_accounted_for_and_excluded_ones_are_smaller() -> None:
    rng, n, k = np.random.default_rng(3), 7, 3
    covs = np.array([campaign.covariance(rng, k, 0.3) for _ in range(n)]) + np.eye(k)
    classes = shoal.GaussianClasses(0.7 * rng.standard_normal((n, k)), covs)
    graph = shoal.NeighborGraph.complete(classes.labels)
    proof = shoal.prove(classes, graph, 1.0)
    assert proof.n_edges == 21
    assert len(proof.excluded) > 0
    assert len(proof.edges) + len(proof.excluded) == 42
    for one in proof.excluded[::4]:
        i, j = proof.pairs[one.edge]
        alone = shoal.prove(classes.take([i, j]), shoal.NeighborGraph.complete([str(i), str(j)]), 1.0)
        bound = [e.upper for e in alone.edges if e.direction == one.direction]
        assert all(upper <= proof.delta_lower for upper in bound)


def test_constants_that_meet_cost_finite_precision_only() -> None:
    classes = shoal.GaussianClasses.deterministic([[0.1, 0.7], [0.3, 0.2]])
    shift = np.array([[0.1, -0.25], [-0.1, 0.25]])
    grid = np.full((2, 2), -50, dtype=np.int64)
    met = mechanism(classes, 0.01 * np.eye(2)[None], shift, mean_grid=grid)
    proof = shoal.prove(met)
    assert proof.ideal_upper == 0.0
    assert len(proof.equal) == 1
    assert 0 < proof.delta_upper == proof.finite_precision < 1e-20
    assert shoal.prove(met, scope="table").delta_upper > proof.delta_upper
    apart = shoal.prove(mechanism(classes, 0.01 * np.eye(2)[None], shift), epsilon=0.0)
    assert len(apart.equal) == 0
    assert 0 < apart.delta_lower < 1e-13


def test_noise_that_is_singular_up_to_rounding_is_proved_as_it_is_drawn() -> None:
    """Rank-one noise is drawn with 4 k ε of its diagonal on top; without that the supports would differ."""
    thin = np.array([[1.0, 1.0], [1.0, 1.0]])
    classes = shoal.GaussianClasses.deterministic([[0.0, 0.0], [0.5, 0.5]])
    proof = shoal.prove(mechanism(classes, thin[None], np.zeros((2, 2))))
    with mpmath.workdps(60):
        jitter = mpmath.mpf(8) * mpmath.mpf(2) ** -52
        mu = mpmath.sqrt(2 * mpmath.mpf("0.25") / (2 + jitter))
        exact = mpmath.ncdf(mu / 2 - 1 / mu) - mpmath.e * mpmath.ncdf(-mu / 2 - 1 / mu)
        assert proof.delta_lower <= exact <= proof.ideal_upper


def test_arguments_are_checked() -> None:
    classes = pair(0, 2)
    with pytest.raises(shoal.InputError, match="graph"):
        shoal.prove(classes, None, 1.0)
    with pytest.raises(shoal.InputError, match="epsilon"):
        shoal.prove(classes, EDGE)
    with pytest.raises(shoal.InputError, match="scope"):
        shoal.prove(classes, EDGE, 1.0, "row")
    with pytest.raises(shoal.InputError, match="released"):
        shoal.prove([classes], EDGE, 1.0)  # type: ignore[arg-type]
    with pytest.raises(shoal.InputError, match="effort"):
        shoal.prove(classes, EDGE, 1.0, effort=0)


# ------------------------------------------------------------------ certificates


def crowd(seed: int, method: str, n: int = 5, k: int = 2, **options: object) -> shoal.Mechanism:
    rng = np.random.default_rng([seed, n])
    covs = np.array([campaign.covariance(rng, k, 0.5) for _ in range(n)])
    classes = shoal.GaussianClasses(rng.standard_normal((n, k)), covs)
    graph = shoal.NeighborGraph.complete(classes.labels)
    return shoal.design(classes, graph, method, 1.0, 2.0, iterations=4, seed=seed, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(14))
def test_certificates_of_every_method_are_proved(seed: int) -> None:
    """Floors, budgets per label, ε per edge, both scopes: the bracket is never below what is proved."""
    rng = np.random.default_rng([31, seed])
    made = replace(campaign._asked(rng, seed)(), scope=("answer", "table")[seed // 7])
    certain, proof = prove_mechanism(made)
    assert made.certificate.delta_upper >= proof.delta_lower
    assert certain.certificate.proved == (proof.delta_upper < 1), certain.certificate.unproved
    assert certain.certificate.delta_upper >= (proof.delta_upper if certain.certificate.proved else 0.0)
    assert proof.finite_precision <= made.certificate.finite_precision
    assert proof.delta_upper <= made.certificate.delta_upper * (1 + 1e-13)
    assert (proof.digest, proof.own_graph, proof.scope) == (made.digest, True, made.scope)


def test_all_edges_lie_below_the_worst_and_few_are_enclosed_narrowly() -> None:
    made = crowd(1, "white", n=8, scope="table")
    proof = shoal.prove(made)
    assert len(proof.edges) + len(proof.excluded) == made.graph.n_edges == 28
    assert all(one.upper <= proof.ideal_upper for one in proof.edges)
    widths = sorted((one.upper - one.lower) / one.upper for one in proof.edges)
    assert widths[0] < 1e-13
    assert widths[len(widths) // 2] > 1e-6
    alone = [shoal.prove(made.output, shoal.NeighborGraph.from_edges(made.classes.labels, [(a, b)]), 1.0, "table")
             for a, b in made.graph.edges.tolist()]  # fmt: skip
    assert proof.delta_lower <= max(one.delta_upper for one in alone)
    assert proof.ideal_upper >= max(one.delta_lower for one in alone)


def test_a_proof_that_would_take_too_long_says_so() -> None:
    made = crowd(2, "white")
    proof = shoal.prove(made, effort=1)
    assert (proof.delta_upper, len(proof.unsettled)) == (1.0, 1)
    assert "integrals" in proof.unsettled[0]
    assert shoal.prove(made).delta_upper < 1


def test_where_proof_and_bracket_disagree_the_proof_wins() -> None:
    made = crowd(3, "white")
    low = replace(made.certificate, delta_upper=0.5 * made.certificate.delta_upper)
    certain, proof = prove_mechanism(made.with_certificate(low))
    assert certain.certificate.proved
    assert certain.certificate.delta_upper == proof.delta_upper
    assert math.exp(certain.certificate.log_delta_upper) >= proof.delta_lower
    nothing = replace(made.certificate, delta_upper=1.0, log_delta_upper=0.0)
    assert prove_mechanism(made.with_certificate(nothing))[0].certificate.delta_upper == proof.delta_upper


def test_what_calibrate_returns_says_that_it_is_proved() -> None:
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0], [3.0]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    found = shoal.calibrate(classes, graph, "white", 1.0, 1e-6)
    assert found.certificate.proved
    assert "; proved)" in str(found.certificate)
    assert found.certificate.proof == shoal.prove(found).file_digest
    plain = shoal.calibrate(classes, graph, "white", 1.0, 1e-6, prove=False)
    assert (plain.digest, plain.certificate.proved) == (found.digest, False)
    assert plain.certificate.unproved == "no proof was asked for"
    assert design_facts(plain).proved == "ball arithmetic"
