"""The rivals of ``python -m benchmarks peers``: their authors' own numbers, closed forms, and what they promise."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from benchmarks import _ndis as ndis
from benchmarks import _rivals as rivals

import shoal
from families import random_laws

pytest.importorskip("scipy", minversion="1.15", reason="the code of the rivals takes Sobol points as SciPy 1.15 does")

#: Printed by the notebook ndis_basic_estimation of the authors of NDIS: means, variances, ε, δ.
PUBLISHED = [
    (0.0, 2.0, 10.0, 1.0, 10.0, 0.9988608830924075),
    (10.0, 1.0, 0.0, 2.0, 10.0, 0.9938409519154491),
    (0.0, 1.0, 1.0, 1.0, 1.0, 0.12693673750664392),
    (2.0, 4.0, 0.0, 2.25, 0.1, 0.42415210232911893),
    (0.0, 2.25, 2.0, 4.0, 0.1, 0.4077055710287769),
    (0.0, 10.0, 1.0, 1.0, 2.0, 0.3681177241625452),
]


def exact(means, covs, epsilon, scope="answer"):
    laws = shoal.GaussianClasses(means, covs)
    return shoal.privacy_curve(laws, shoal.NeighborGraph.complete(laws.labels), epsilon, scope=scope)


def directed(mean_1, cov_1, mean_2, cov_2, epsilon):
    laws = shoal.GaussianClasses(np.stack([mean_1, mean_2]), np.stack([cov_1, cov_2]))
    return float(shoal.edge_deltas(laws, shoal.NeighborGraph.complete(laws.labels), epsilon)[0, 0])


@pytest.fixture(scope="module")
def pair():
    return random_laws(2, 3, seed=5)


@pytest.mark.parametrize(("mean_1", "var_1", "mean_2", "var_2", "epsilon", "delta"), PUBLISHED)
def test_one_dimension_as_the_authors_of_ndis_print_it(mean_1, var_1, mean_2, var_2, epsilon, delta):
    law_1, law_2 = ([mean_1], [[var_1]]), ([mean_2], [[var_2]])
    assert ndis.by_sobol(ndis.quadratic(*law_1, *law_2), epsilon, 1)[0] == pytest.approx(delta, abs=1e-12)
    assert directed(*law_1, *law_2, epsilon) == pytest.approx(delta, abs=1e-12)


def test_twelve_dimensions_as_the_authors_of_ndis_print_it():
    """0.9977212079088398 with a standard error of 2.13e-7, from laws made by NumPy's old generator."""
    factors = [np.random.RandomState(seed).randn(12, 12) for seed in (42, 123)]
    laws = (np.zeros(12), factors[0] @ factors[0].T, np.eye(12)[0], factors[1] @ factors[1].T)
    q = ndis.quadratic(*laws)
    for found in (directed(*laws, 1.0), ndis.by_tails(q, 1.0, "imhof")):
        assert found == pytest.approx(0.9977212079088398, abs=4 * 2.13e-7)
    mean, error = ndis.by_sobol(q, 1.0, 2**10)
    assert mean == pytest.approx(directed(*laws, 1.0), abs=5 * error)


@pytest.mark.parametrize(("r", "rho", "epsilon"), [(8, 1.5, 1.0), (20, 1.1, 1.0), (20, 1.1, 5.0), (6, 1.02, 0.5)])
def test_random_projections_by_the_closed_form_of_ndis(r, rho, epsilon):
    """(Γ(r/2, t/2) − e^ε Γ(r/2, ρt/2))/Γ(r/2), t = 2(ε + (r/2) ln ρ)/(ρ − 1), for N(0, ρI) against N(0, I)."""
    with mpmath.workdps(60):
        t = 2 * (epsilon + mpmath.mpf(r) / 2 * mpmath.log(rho)) / (mpmath.mpf(rho) - 1)
        tails = [mpmath.gammainc(mpmath.mpf(r) / 2, x / 2, regularized=True) for x in (t, rho * t)]
        delta = float(tails[0] - mpmath.exp(epsilon) * tails[1])
    laws = (np.zeros(r), rho * np.eye(r), np.zeros(r), np.eye(r))
    assert directed(*laws, epsilon) == pytest.approx(delta, rel=1e-9)
    imhof = ndis.by_tails(ndis.quadratic(*laws), epsilon, "imhof")
    assert imhof == pytest.approx(delta, abs=2e-7 * math.exp(epsilon)), "each tail to about seven places"


def test_every_way_to_evaluate_ndis_agrees(pair):
    means, covs = pair
    q = ndis.quadratic(means[0], covs[0], means[1], covs[1])
    delta = directed(means[0], covs[0], means[1], covs[1], 1.0)
    assert ndis.by_tails(q, 1.0, "imhof") == pytest.approx(delta, abs=1e-8)
    for mean, error in (ndis.by_sampling(q, 1.0, 100_000), ndis.by_sobol(q, 1.0, 2**11)):
        assert 0 < error < 0.01
        assert mean == pytest.approx(delta, abs=5 * error)
    other = ndis.quadratic(means[1], covs[1], means[0], covs[0])
    table = float(exact(means, covs, 1.0, "table").delta)
    assert ndis.by_tails(ndis.joined(q, other), 1.0, "imhof") == pytest.approx(table, abs=1e-8)


def test_noise_for_a_distance_is_that_of_the_analytic_mechanism():
    for rows in (1, 2):
        sigma = shoal.analytic_sigma(math.sqrt(rows) * 3.0, 1.0, 1e-5)
        found = rivals.gaussian_std(3.0, 1.0, 1e-5, rows)
        assert 0.99999 * sigma <= found <= 1.001 * sigma
        assert rivals.wasserstein_gaussian_std(3.0, 1.0, 1e-5, rows) > found, "Rényi divergences give something away"


def test_renyi_divergences_are_exact(pair):
    means, covs = pair
    laws = shoal.GaussianClasses(means, covs)
    graph = shoal.NeighborGraph.complete(laws.labels)
    forth = rivals.normal_renyi(means[0], covs[0], means[1], covs[1])
    back = rivals.normal_renyi(means[1], covs[1], means[0], covs[0])
    expected = np.array([float(shoal.renyi_curve(laws, graph, a).divergence) for a in rivals.ORDERS[::40]])
    assert np.maximum(forth, back)[::40] == pytest.approx(expected, rel=1e-9)
    same = rivals.normal_renyi(means[0], np.eye(3), means[1], np.eye(3))
    assert same == pytest.approx(rivals.ORDERS * ((means[0] - means[1]) ** 2).sum() / 2, rel=1e-9)


def test_noise_of_the_pufferfish_mechanisms_holds_and_is_ordered(pair):
    """Each calibration meets its target by exact accounting, the sharper the bound the less of it is left unused."""
    means, covs = pair
    gap = rivals.coupled_gap(means[0], covs[0], means[1], covs[1])

    def by_expectation(std):
        return rivals.renyi_delta(rivals.distribution_aware_renyi(*gap, std, 2), 1.0) <= 1e-5

    def by_renyi(std):
        noisy = covs + std**2 * np.eye(3)
        both = rivals.normal_renyi(means[0], noisy[0], means[1], noisy[1])
        both = both + rivals.normal_renyi(means[1], noisy[1], means[0], noisy[0])
        return rivals.renyi_delta(both, 1.0) <= 1e-5

    stds = [
        rivals.least(by_renyi, 1e-3, 1e3),
        rivals.least(by_expectation, 1e-3, 1e3),
        rivals.approximate_std(*gap, 1.0, 1e-5, 2),
    ]
    assert stds == sorted(stds)
    for std in stds:
        assert float(exact(means, covs + std**2 * np.eye(3), 1.0, "table").delta_upper) <= 1e-5


@pytest.mark.parametrize(("k", "epsilon"), [(4, 0.5), (4, 3.0), (12, 1.0)])
def test_priv_unit_is_unbiased_and_its_densities_differ_by_e_to_the_epsilon(k, epsilon):
    offset, length = rivals.priv_unit(k, epsilon)
    share, p = rivals.cap_share(offset, k), rivals.cap_probability(offset, k, epsilon)
    assert p / share / ((1 - p) / (1 - share)) == pytest.approx(math.exp(epsilon))
    uniform = rivals.slices(200_000, k, seed=2)
    assert share == pytest.approx((uniform[:, 0] >= offset).mean(), abs=0.006)
    rng, unit = np.random.default_rng(3), rivals.slices(1, k, seed=4)[0]
    drawn = np.array([rivals.priv_unit_draw(unit, offset, length, p, rng) for _ in range(4_000)])
    assert drawn.mean(axis=0) == pytest.approx(unit, abs=5 / length / math.sqrt(k * 4_000) + 0.02)
    assert (drawn @ unit).mean() == pytest.approx(1.0, abs=5 / length / math.sqrt(k * 4_000))


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_the_scalar_report_is_unbiased_and_private(levels):
    r = np.linspace(0.0, 3.0, 31)
    odds, values = rivals.scalar_report(r, 3.0, 0.7, levels)
    assert odds.sum(axis=1) == pytest.approx(1.0)
    assert odds @ values == pytest.approx(r)
    assert (odds.max(axis=0) / odds.min(axis=0)).max() == pytest.approx(math.exp(0.7))


def test_the_table_of_constants_on_a_few_homes():
    """Everything that promises (1, 1e-5) for the table has it, but for slices; nothing ε-private beats the bound."""
    from benchmarks import peers

    rng = np.random.default_rng(0)
    answers = np.exp(rng.standard_normal((24, 1)) + 0.2 * rng.standard_normal((24, 3)))
    found, bound = peers.constants(answers, [f"h{i}" for i in range(24)])
    by_name = {one.name: one for one in found}
    errors = {one.name: one.error(answers) for one in found}
    for one in found:
        if one.promise == peers.PROMISE:
            assert float(one.delta) <= 1e-5, one.name
        if one.promise == peers.PURE:
            assert errors[one.name] >= 0.999 * bound, one.name
    for name in ("sliced Wasserstein, average", "sliced Wasserstein, joint"):
        assert float(by_name[name].delta) > 1e-5, "what holds for a projection does not hold for the row"
    assert errors["shoal, codebook"] <= errors["randomized response on the crowd's curves"]
    assert errors["shoal, white noise"] == pytest.approx(errors["analytic Gaussian"], rel=0.005)
    assert by_name["shoal, the crowd's curve"].total(answers) < 1e-3
    assert by_name["MDAV"].total(answers) < 1e-9


def test_the_table_of_random_answers_on_a_few_homes():
    from benchmarks import peers

    laws = shoal.GaussianClasses(*random_laws(4, 2, seed=1))
    graph = shoal.NeighborGraph.complete(laws.labels)
    found = {name: (error, delta) for name, _, error, delta, _ in peers.random_answers(laws, graph, ("white",))}
    for name in ("Wasserstein, approximate", "Wasserstein, distribution-aware", "Rényi Pufferfish, Gaussian priors"):
        assert found[name][0] > found["shoal, white"][0]
        assert float(found[name][1]) <= 1e-5
    assert found["white noise, NDIS by gx2"][0] == pytest.approx(found["shoal, white"][0], rel=0.004)
