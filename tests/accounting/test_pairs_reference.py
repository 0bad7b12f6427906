"""From means and covariances to δ, against 30-digit references: ill-conditioned, nearly equal and graded pairs."""

import numpy as np
import pytest
from mpmath import mp, mpf

import cases
import oracle
import shoal
from shoal.accounting.curve import edge_brackets
from shoal.accounting.spectrum import edge_spectra

PAIRS = {pair["name"]: pair for pair in oracle.load_pairs()}
GRAPH = shoal.NeighborGraph.complete(["a", "b"])


def family(*pair):
    mean_a, cov_a, mean_b, cov_b = pair
    return shoal.GaussianClasses([mean_a, mean_b], [cov_a, cov_b], ["a", "b"])


def assert_right(found, exact, width=1e-8):
    value, lower, upper = found
    assert lower <= exact <= upper
    if exact == -mp.inf:
        assert value == -np.inf
    else:
        assert abs(value - exact) <= 1e-9
        assert upper - lower <= width


@pytest.mark.parametrize("name", PAIRS)
def test_reference_pairs(name):
    pair = PAIRS[name]
    classes = family(*pair["laws"])
    for point in pair["points"]:
        epsilon = float.fromhex(point["eps"])
        assert_right(edge_brackets(classes, GRAPH, epsilon)[0, 0], mpf(point["hockey"]))
        assert_right(edge_brackets(classes, GRAPH, epsilon, "pdp")[0, 0], mpf(point["upper"]))
        with mp.workdps(30):
            both = min(mp.log(mp.exp(mpf(point["upper"])) + mp.exp(mpf(point["lower"]))), mpf(0))  # 25 digits kept
        assert_right(edge_brackets(classes, GRAPH, epsilon, "pdp-two-sided")[0, 0], both)


@pytest.mark.parametrize("name", ["1e+02-3-0", "1e+08-5-0", "near-5-0", "graded-3-0"])
def test_the_order_of_the_two_labels_is_not_the_direction(name):
    pair = PAIRS[name]
    classes = family(*pair["laws"][2:], *pair["laws"][:2])
    for point in pair["points"]:
        found = edge_brackets(classes, GRAPH, float.fromhex(point["eps"]))[0, 1]
        assert_right(found, mpf(point["hockey"]))


@pytest.mark.parametrize("condition", [1e10, 1e12])
@pytest.mark.parametrize(("k", "seed"), [(2, 0), (3, 1)])
def test_beyond_the_promised_condition(monkeypatch, k, seed, condition):
    """A wide bracket or a refusal is fine here, a bracket without the exact value is not."""
    monkeypatch.setattr(cases, "CONDITIONS", (condition,))
    pair = cases.gaussian_pairs(k, condition, seed)
    classes, (gamma, nu) = family(*pair), oracle.spectrum(*pair)
    for epsilon in (0.0, 1.0):
        for notion, exact_of in (("dp", oracle.log_hockey), ("pdp", oracle.log_upper_tail)):
            try:
                _, lower, upper = edge_brackets(classes, GRAPH, epsilon, notion)[0, 0]
            except shoal.CertificationError:
                continue
            assert lower <= exact_of(gamma, nu, epsilon, dps=20) <= upper, (notion, epsilon)


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8, "near", "graded"])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("k", [2, 5])
def test_spectrum_errors_are_bounds(k, seed, condition):
    pair = cases.gaussian_pairs(k, condition, seed)
    gamma, nu = oracle.spectrum(*pair)
    order = sorted(range(k), key=lambda i: gamma[i])
    lam = np.array([float(mp.log(gamma[i])) for i in order])
    w = np.array([float(mp.sqrt(gamma[i]) * abs(nu[i])) for i in order])
    for precise in (False, True):
        found = edge_spectra(family(*pair), np.array([[0, 1]]), precise=precise)
        position = np.argsort(found.lam[0])
        assert (np.abs(found.lam[0][position] - lam) <= found.lam_error[0][position] + 1e-15 * np.abs(lam)).all()
        if condition not in ("near",) or precise:  # nearly equal eigenvalues: directions may mix, δ does not mind
            # The error of γ turns directions as well, by its share of their distance; δ's bracket has that from λ.
            distance = np.abs(np.exp(lam)[:, None] - np.exp(lam)[None, :]) + np.diag(np.full(k, np.inf))
            turn = (np.exp(lam) * found.lam_error[0][position]).max() / distance.min(axis=1) * np.linalg.norm(w)
            moved = np.abs(np.abs(found.w[0][position]) - w)
            assert (moved <= found.w_error[0][position] + (0.0 if precise else turn) + 1e-15 * w).all()
        assert np.allclose(found.gamma, np.exp(found.lam))
        assert np.allclose(found.nu**2 * found.gamma, found.w**2)
