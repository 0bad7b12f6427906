"""Rényi divergences and the Gaussian sensitivity."""

import math

import numpy as np
import pytest

import cases
import oracle
import shoal
from families import complete, random_family, random_laws
from shoal.accounting.deterministic import gaussian_delta

ORDERS = [0.25, 0.5, 1.0, 1 + 1e-12, 1 + 1e-7, 1.05, 1.3]


def family_of(gamma, nu):
    """Label 0 → 1 has the spectrum (γ, ν₀): whiten by the first law."""
    k = len(gamma)
    return shoal.GaussianClasses.diagonal([np.zeros(k), nu], [np.ones(k), 1 / gamma])


@pytest.mark.parametrize("kind", ["mixed", "above_one", "below_one", "all_ones", "spread"])
def test_divergence_against_the_oracle(kind):
    gamma, nu = cases.spectrum_of_kind(kind, 3)
    classes = family_of(gamma, nu)
    for order in ORDERS:
        ways = [oracle.divergence(classes.means[way], classes.covs[way], order) for way in ([0, 1], [1, 0])]
        curve = shoal.renyi_curve(classes, complete(classes), order)
        if None in ways:
            assert curve.divergence == math.inf
        else:
            exact = float(max(ways))
            assert curve.divergence == pytest.approx(exact, rel=1e-9, abs=1e-12)
            assert max(ways) <= curve.divergence_upper <= exact * (1 + 1e-9) + 1e-14
            if abs(ways[0] - ways[1]) > 1e-6:
                assert curve.worst_edge == (("0", "1") if ways[0] > ways[1] else ("1", "0"))


@pytest.mark.parametrize("size", [1e-13, 1e-9, 1e-4, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_upper_ends_hold_what_is_proven_and_little_more(size, seed):
    """Orders from next to 0 to next to the last finite one, ends against proofs in ball arithmetic."""
    rng = np.random.default_rng([seed, 5])
    k = int(rng.integers(1, 7))
    half = np.linalg.qr(rng.standard_normal((k, k)))[0] * np.sqrt(10.0 ** rng.uniform(-3, 3, k))
    turn = np.linalg.qr(rng.standard_normal((k, k)))[0]
    other = half @ (turn * (1 + size * rng.uniform(-1, 1, k))) @ turn.T @ half.T
    covs = np.array([half @ half.T, 0.5 * (other + other.T)])
    means = np.array([np.zeros(k), half @ rng.standard_normal(k) * rng.choice([0.0, size, 1.0])])
    classes = shoal.GaussianClasses(means, covs)
    orders = [1e-9, 0.1, 0.3, 0.7, 1 - 2**-53, 1.0, 1 + 2**-52, 1 + 1e-9, 1.01, 1.9, 3.3, 1 + 0.1 / size, 1e15, 1e300]
    curve = shoal.renyi_curve(classes, complete(classes), orders)
    for order, claimed, found in zip(orders, curve.divergence_upper, curve.divergence, strict=True):
        truths = [oracle.divergence(classes.means[way], classes.covs[way], order) for way in ([0, 1], [1, 0])]
        if any(truth is None for truth in truths):
            assert claimed == math.inf
            continue
        assert all(claimed >= truth for truth in truths), (order, claimed)
        if claimed < math.inf and order > 1e-3:
            assert claimed <= found * (1 + 1e-6) + 64 * k * size * 2**-52


def test_an_order_at_the_pole_is_not_called_finite():
    """γ_max is known to some digits only: at the last finite order the upper end is infinite."""
    means, covs = random_laws(2, 3, 2)
    classes = shoal.GaussianClasses(means, covs)
    gamma = np.linalg.eigvals(np.linalg.solve(covs[1], covs[0])).real
    worst = max(gamma.max(), 1 / gamma.min())
    pole = 1 + 1 / (worst - 1)
    for order in pole * (1 + np.array([-2e-16, 0.0, 2e-16])):
        assert shoal.renyi_curve(classes, complete(classes), order).divergence_upper == math.inf
    assert shoal.renyi_curve(classes, complete(classes), pole * (1 - 1e-6)).divergence_upper < math.inf


def test_infinite_order_is_the_supremum_of_the_loss():
    classes = shoal.GaussianClasses.diagonal(np.zeros((2, 1)), [[1.0], [4.0]])
    # One direction is unbounded, so the worst is.
    assert shoal.renyi_curve(classes, complete(classes), math.inf).divergence == math.inf
    same = shoal.GaussianClasses(np.ones((2, 1)), np.eye(1))
    assert shoal.renyi_curve(same, complete(same), math.inf).divergence == 0.0


def test_composition_adds():
    a, b = random_family(2, 2, 3), random_family(2, 3, 4)
    graph = complete(a)
    whole = shoal.renyi_curve([a, a, b], graph, 1.01).divergence
    joint = shoal.GaussianClasses.joint([a, a, b])
    assert whole == pytest.approx(shoal.renyi_curve(joint, graph, 1.01).divergence, rel=1e-10)


def test_equal_covariances_grow_with_their_order():
    means, covs = random_laws(4, 3, 5)
    classes = shoal.GaussianClasses(means, covs[0])
    graph = complete(classes)
    gaps = means[graph.edges[:, 1]] - means[graph.edges[:, 0]]
    mu = math.sqrt((gaps * np.linalg.solve(covs[0], gaps.T).T).sum(axis=1).max())
    orders = np.array([1.5, 3.0, 50.0])
    assert shoal.renyi_curve(classes, graph, orders).divergence == pytest.approx(orders * mu**2 / 2, rel=1e-11)
    # A Gaussian mechanism with that μ has the same δ.
    curve = shoal.privacy_curve(classes, graph, 1.0)
    assert gaussian_delta(mu, 1.0, 1.0) == pytest.approx(curve.delta, rel=1e-10)
