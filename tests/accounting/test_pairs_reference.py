"""From means and covariances to δ, against 30-digit references: ill-conditioned, nearly equal and graded pairs."""

import numpy as np
import pytest
from mpmath import mp, mpf

import cases
import oracle
import shoal
from shoal.accounting.curve import edge_brackets

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
