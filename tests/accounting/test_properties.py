"""What must hold for any family: hypothesis draws the families, always the same ones."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shoal
from evidence.tradeoff import tradeoff_curve
from families import complete
from shoal.accounting.curve import edge_brackets

NOTIONS = ["dp", "pdp", "pdp-two-sided", "chernoff"]
few = settings(derandomize=True, max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
epsilons = st.floats(0.0, 30.0)


@st.composite
def families(draw, n=3, max_dims=4):
    """Anything from equal to very different laws: sizes, shapes, some directions without a difference."""
    k = draw(st.integers(1, max_dims))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0, 3.0]))
    gap = draw(st.sampled_from([0.0, 1e-6, 0.3, 1.0, 6.0]))
    if spread == gap == 0.0:
        gap = 1.0
    covs = []
    for _ in range(n):
        basis = np.linalg.qr(rng.standard_normal((k, k)))[0] if spread else np.eye(k)
        exponents = spread * rng.standard_normal(k)
        exponents[rng.random(k) < 0.3] = 0.0
        cov = (basis * np.exp(exponents)) @ basis.T
        covs.append(0.5 * (cov + cov.T))
    return shoal.GaussianClasses(gap * rng.standard_normal((n, k)), covs)


def brackets(classes, epsilon, notion="dp", graph=None):
    return edge_brackets(classes, complete(classes) if graph is None else graph, epsilon, notion)


def below(first, second):
    """first ≤ second as far as their brackets tell."""
    return (first[..., 1] <= second[..., 2]).all()


@few
@given(families(), epsilons, st.floats(1e-6, 10.0), st.sampled_from(NOTIONS))
def test_delta_falls_with_epsilon(classes, epsilon, step, notion):
    assert below(brackets(classes, epsilon + step, notion), brackets(classes, epsilon, notion))
    curve = shoal.privacy_curve(classes, complete(classes), [epsilon, epsilon + step], notion)
    assert curve.delta_lower[1] <= curve.delta_upper[0]


@few
@given(families(), epsilons)
def test_notions_are_ordered(classes, epsilon):
    """dp ≤ one-sided ≤ two-sided and Chernoff."""
    dp, pdp, both, chernoff = (brackets(classes, epsilon, notion) for notion in NOTIONS)
    assert below(dp, pdp)
    assert below(pdp, both)
    assert below(pdp, chernoff)


@few
@given(families(), epsilons, st.integers(0, 1000), st.sampled_from(NOTIONS))
def test_affine_maps_change_nothing(classes, epsilon, seed, notion):
    k = classes.n_dims
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((k, k)) + 2 * np.eye(k)
    if np.linalg.cond(matrix) > 50:
        matrix = np.linalg.qr(matrix)[0] * np.exp(rng.standard_normal(k))
    covs = matrix @ classes.covs @ matrix.T
    mapped = shoal.GaussianClasses(
        classes.means @ matrix.T + rng.standard_normal(k), 0.5 * (covs + covs.transpose(0, 2, 1))
    )
    before, after = brackets(classes, epsilon, notion), brackets(mapped, epsilon, notion)
    # The map itself rounds: compare with room for the change of γ and of the gap that rounding can make.
    finite = np.isfinite(before[..., 0]) & (before[..., 0] > -50)
    assert np.allclose(before[..., 0][finite], after[..., 0][finite], rtol=1e-6, atol=1e-6)


@few
@given(families(n=4), epsilons, st.permutations(range(4)), st.sampled_from(NOTIONS))
def test_labels_and_edge_order_change_nothing(classes, epsilon, order, notion):
    pairs = [(0, 1), (1, 2), (3, 1), (0, 3)]
    graph = shoal.NeighborGraph.from_edges(classes.labels, pairs)
    names = [f"name {i}" for i in range(4)]
    renamed = shoal.GaussianClasses(classes.means[list(order)], classes.covs[list(order)], [names[i] for i in order])
    again = shoal.NeighborGraph.from_edges(names, [(names[b], names[a]) for a, b in reversed(pairs)])
    first = shoal.privacy_curve(classes, graph, epsilon, notion)
    second = shoal.privacy_curve(renamed, again, epsilon, notion)
    assert second.log_delta == pytest.approx(first.log_delta, rel=1e-9, abs=1e-9)


@few
@given(families(), epsilons, st.floats(-6, 3), st.integers(0, 1000))
def test_common_noise_never_raises_delta(classes, epsilon, size, seed):
    """Post-processing: it must hold for the hockey-stick δ, the certificate."""
    half = np.random.default_rng(seed).standard_normal((classes.n_dims, classes.n_dims))
    noisy = classes.with_noise(10**size * half @ half.T)
    assert below(brackets(noisy, epsilon), brackets(classes, epsilon))


@few
@given(families(), epsilons)
def test_dropping_entries_never_raises_delta(classes, epsilon):
    part = shoal.GaussianClasses(classes.means[:, :1], classes.covs[:, :1, :1])
    assert below(brackets(part, epsilon), brackets(classes, epsilon))


@few
@given(families(), families(), epsilons, st.sampled_from(NOTIONS))
def test_composition_commutes_and_costs(first, second, epsilon, notion):
    graph = complete(first)
    forth = brackets([first, second], epsilon, notion, graph)
    back = brackets([second, first], epsilon, notion, graph)
    finite = forth[..., 0] > -np.inf
    assert np.allclose(forth[..., 0][finite], back[..., 0][finite], rtol=1e-9, atol=1e-9)
    if notion == "dp":
        assert below(brackets(first, epsilon, notion, graph), forth)


@few
@given(families(), st.floats(-12.0, -0.01), st.sampled_from(NOTIONS))
def test_epsilon_at_is_one_sided(classes, exponent, notion):
    delta = 10**exponent
    graph = complete(classes)
    epsilon = shoal.epsilon_at(classes, graph, delta, notion)
    assert shoal.privacy_curve(classes, graph, epsilon, notion).delta_upper <= delta
    if epsilon > 1e-9:
        assert shoal.privacy_curve(classes, graph, epsilon * (1 - 1e-6), notion).delta_upper > delta


@few
@given(families(), st.floats(1e-9, 0.999))
def test_tradeoff_is_above_chance_and_below_every_epsilon(classes, fpr):
    graph = complete(classes)
    names = [(classes.labels[a], classes.labels[b]) for a, b in graph.edges]
    ways = [[tradeoff_curve(classes, *way, fpr).tpr_upper[0] for way in (pair, pair[::-1])] for pair in names]
    rates = np.array(ways)
    assert (rates >= fpr).all()
    for epsilon in (0.0, 1.0, 4.0):
        delta = np.exp(brackets(classes, epsilon)[..., 2])
        assert (rates <= fpr * math.exp(epsilon) + delta + 1e-9).all()


@few
@given(families(), st.floats(0.05, 1.4))
def test_renyi_bounds_the_chernoff_notion(classes, t):
    """ln Pr(L > ε) ≤ t (D_{1+t} − ε): the classical conversion can only be looser than our Chernoff bound."""
    graph = complete(classes)
    divergence = float(shoal.renyi_curve(classes, graph, 1 + t).divergence_upper)
    for epsilon in (0.0, 2.0, 10.0):
        found = shoal.privacy_curve(classes, graph, epsilon, "chernoff").log_delta
        assert found <= min(t * (divergence - epsilon), 0.0) + 1e-9
