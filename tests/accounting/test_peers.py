"""Other people's accountants: dp-accounting's privacy loss distributions, gx2 and plain sampling."""

import math

import gx2
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

import shoal
from families import complete, loss_cdf_1d, random_family
from shoal.accounting.curve import edge_brackets
from shoal.accounting.spectrum import edge_spectra

STEP = 1e-3


def pld_from_cdf(cdf, low, high, pessimistic, step=STEP):
    """A privacy loss distribution from the exact CDF of the loss, rounded to one side."""
    grid = np.arange(math.floor(low / step), math.ceil(high / step) + 1)
    mass = np.diff(cdf(grid * step), prepend=0.0)
    mass = np.maximum(mass, 0.0)
    beyond = max(1.0 - float(cdf(np.array([grid[-1] * step]))[0]), 0.0)
    # mass[i] lies in ((grid[i] − 1) step, grid[i] step]
    at = grid if pessimistic else grid - 1
    pmf = {int(g): float(m) for g, m in zip(at, mass, strict=True) if m > 0}
    if not pessimistic:
        pmf[int(grid[-1])] = pmf.get(int(grid[-1]), 0.0) + beyond
    return privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
        pmf, beyond if pessimistic else 0.0, step, pessimistic_estimate=pessimistic
    )


@pytest.mark.parametrize("times", [1, 30, 100])
def test_gaussian_mechanism_composed(times):
    noise = 3.0 * math.sqrt(times)
    pld = privacy_loss_distribution.from_gaussian_mechanism(noise, value_discretization_interval=1e-3).self_compose(
        times
    )
    classes = shoal.GaussianClasses([[0.0], [1.0]], [[noise**2]])
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        curve = shoal.privacy_curve([classes] * times, complete(classes), epsilon)
        exact, theirs = curve.delta, pld.get_delta_for_epsilon(epsilon)
        assert curve.delta_lower <= theirs
        assert theirs == pytest.approx(exact, rel=0.02, abs=1e-9)


def test_a_hundred_mixed_releases_with_unequal_covariances():
    """Three kinds of release on the line, 100 in all: the exact δ lies between their two roundings."""
    kinds = [((0.0, 1.0), (0.12, 1.1), 40), ((0.0, 1.0), (0.05, 0.93), 35), ((0.3, 4.0), (0.1, 3.8), 25)]
    released, plds = [], {True: None, False: None}
    for (mean, var), (mean_b, var_b), times in kinds:
        released += [shoal.GaussianClasses([[mean], [mean_b]], [[[var]], [[var_b]]])] * times
        for pessimistic in plds:
            pld = pld_from_cdf(
                lambda x, law=(mean, var, mean_b, var_b): loss_cdf_1d(*law, x), -4.0, 4.0, pessimistic
            ).self_compose(times)
            plds[pessimistic] = pld if plds[pessimistic] is None else plds[pessimistic].compose(pld)
    graph = complete(released[0])
    for epsilon in (0.0, 1.0, 3.0, 6.0):
        exact, least, most = np.exp(edge_brackets(released, graph, epsilon)[0, 0])
        upper, lower = (plds[side].get_delta_for_epsilon(epsilon) for side in (True, False))
        assert lower <= most
        assert least <= upper
        assert exact > 1e-8
        assert upper - lower < 0.3 * exact + 1e-3


def generalized_chi_square(lam, w):
    """L as gx2 wants it: weights, degrees of freedom, noncentralities, normal part, offset."""
    g = np.expm1(lam)
    a = w**2
    return 0.5 * g, np.ones_like(g), a * np.exp(lam) / g**2, 0.0, float((-0.5 * lam - 0.5 * a / g).sum())


@pytest.mark.parametrize("k", [2, 5, 12])
def test_gx2_where_it_is_accurate(k):
    """Imhof's integral to an absolute 1e-10: compare where that is enough for six digits."""
    classes = random_family(2, k, 3, gap=0.5)
    graph = complete(classes)
    spectra = edge_spectra(classes, graph.edges.astype(np.intp))
    lam, w = spectra.lam[0], spectra.w[0]
    forth = generalized_chi_square(lam, w)
    back = generalized_chi_square(-lam, w * np.exp(-0.5 * lam))
    for epsilon in (0.0, 0.5, 2.0):
        above = float(gx2.cdf(epsilon, *forth, side="upper", method="imhof"))
        reverse = float(gx2.cdf(-epsilon, *back, side="lower", method="imhof"))
        pdp = shoal.edge_deltas(classes, graph, epsilon, "pdp")[0, 0]
        dp = shoal.edge_deltas(classes, graph, epsilon)[0, 0]
        assert pdp == pytest.approx(above, rel=1e-6, abs=1e-8)
        assert dp == pytest.approx(above - math.exp(epsilon) * reverse, rel=1e-5, abs=1e-7)
