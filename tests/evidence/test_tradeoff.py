"""f-DP trade-off curves and true positives at a fixed false-positive rate."""

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import erf, erfinv, ndtr, ndtri

import shoal
from evidence.tradeoff import tradeoff_curve
from families import complete, loss_samples, random_family
from shoal.errors import InputError


def exactly(formula, rates):
    """A formula in 40 digits at each rate: nothing to allow for when a rounded-up figure is held against it."""
    with mp.workdps(40):
        return [formula(mpf(float(rate))) for rate in rates]


def quantile(p):
    """Φ⁻¹ in mpmath."""
    return (
        mp.sqrt(2) * mp.erfinv(2 * p - 1)
        if p > mpf("1e-3")
        else mp.findroot(lambda z: mp.log(mp.ncdf(z)) - mp.log(p), float(ndtri(float(p))))
    )


RATES = np.array([0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.3, 0.7, 0.99, 1.0])


@pytest.mark.parametrize("gap", [0.01, 1.0, 4.0])
def test_equal_covariances_are_gaussian_dp(gap):
    """TPR = Φ(μ + Φ⁻¹(FPR)), from above."""
    classes = shoal.GaussianClasses([[0.0], [gap]], np.eye(1), ["a", "b"])
    found = tradeoff_curve(classes, "a", "b", RATES).tpr_upper
    exact = ndtr(gap + ndtri(RATES))
    inside = slice(1, -1)
    truth = exactly(lambda p: mp.ncdf(mpf(gap) + quantile(p)), RATES[inside])
    assert all(mpf(float(f)) >= t for f, t in zip(found[inside], truth, strict=True))
    assert (found[0], found[-1]) == (0.0, 1.0)
    assert found == pytest.approx(exact, rel=1e-8, abs=1e-300)


def test_unequal_variances_on_the_line():
    """Wide against narrow with equal means: the best test is |q| > c, so both rates are known."""
    classes = shoal.GaussianClasses([[0.0], [0.0]], [[[9.0]], [[1.0]]], ["wide", "narrow"])
    rates = RATES[1:-1]
    found = tradeoff_curve(classes, "wide", "narrow", rates).tpr_upper
    exact = 2 * ndtr(ndtri(rates / 2) / 3)
    truth = exactly(lambda p: 2 * mp.ncdf(quantile(p / 2) / 3), rates)
    assert all(mpf(float(f)) >= t for f, t in zip(found, truth, strict=True))
    assert found == pytest.approx(exact, rel=1e-7)
    back = tradeoff_curve(classes, "narrow", "wide", rates).tpr_upper
    exact_back = erf(3 * erfinv(rates))  # |q| < c
    truth = exactly(lambda p: mp.erf(3 * mp.erfinv(p)), rates)
    assert all(mpf(float(f)) >= t for f, t in zip(back, truth, strict=True))
    assert back == pytest.approx(exact_back, rel=1e-6)


def test_monte_carlo_attacker_cannot_do_better():
    classes = random_family(3, 3, 1, gap=0.5)
    for row, (i, j) in enumerate(complete(classes).edges):
        for a, b in ((i, j), (j, i)):
            loss_a = loss_samples(classes, a, b, 100_000, seed=2 * row)
            loss_b = -loss_samples(classes, b, a, 100_000, seed=2 * row + 1)  # the same statistic under b
            tpr = (loss_a > np.quantile(loss_b, 0.9)).mean()
            found = tradeoff_curve(classes, str(a), str(b), 0.1).tpr_upper[0]
            assert tpr == pytest.approx(found, abs=0.012)


def test_curve_shape():
    classes = random_family(2, 3, 2)
    curve = tradeoff_curve(classes, "0", "1")
    assert (curve.claim, curve.instead, len(curve.fpr)) == ("0", "1", 101)
    assert curve.tpr_upper[0] == 0.0
    assert curve.tpr_upper[-1] == 1.0
    assert (curve.tpr_upper >= curve.fpr).all()
    assert (np.diff(curve.tpr_upper) >= 0).all()
    assert (np.diff(curve.tpr_upper, 2) <= 1e-9).all()  # concave
    exact = [1 - Fraction(float(rate)) for rate in curve.tpr_upper]
    assert all(Fraction(float(low)) <= truth for low, truth in zip(curve.fnr_lower, exact, strict=True))
    assert curve.fnr_lower == pytest.approx(1 - curve.tpr_upper, abs=2**-52)


def test_curve_implies_delta():
    """δ(ε) = max over FPR of TPR − e^ε FPR (duality)."""
    classes = random_family(2, 2, 3)
    rates = np.concatenate([np.geomspace(1e-9, 0.01, 200), np.linspace(0.01, 1, 800)])
    curve = tradeoff_curve(classes, "0", "1", rates)
    for epsilon in (0.0, 0.5, 2.0):
        exact = shoal.edge_deltas(classes, complete(classes), epsilon)[0, 0]
        assert (curve.tpr_upper - np.exp(epsilon) * rates).max() == pytest.approx(exact, abs=1e-4)


def test_extremes():
    same = shoal.GaussianClasses(np.ones((2, 1)), np.eye(1))
    assert np.array_equal(tradeoff_curve(same, "0", "1", RATES).tpr_upper, RATES)
    apart = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
    assert (tradeoff_curve(apart, "0", "1", RATES).tpr_upper == 1).all()
    twice = [random_family(2, 2, 5)] * 2
    joint = shoal.GaussianClasses.joint(twice)
    assert tradeoff_curve(twice, "0", "1", RATES).tpr_upper == pytest.approx(
        tradeoff_curve(joint, "0", "1", RATES).tpr_upper, rel=1e-8
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("0", "1", 1.1), "fpr"), (("0", "1", [-0.1]), "fpr"), (("0", "9"), "claim"), (("0", "0"), "claim")],
)
def test_bad_arguments_are_refused_by_name(arguments, named):
    with pytest.raises(InputError, match=named):
        tradeoff_curve(shoal.GaussianClasses([[0.0], [1.0]], np.eye(1)), *arguments)
