"""The contour integral against 30-digit references: every bracket holds the exact value, every value is right."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

import cases
import oracle
from shoal.accounting import tails
from shoal.accounting.cumulants import HOCKEY, LEFT, RIGHT, TAIL, LossLaw

SPECTRA = {case["name"]: case for case in oracle.load_spectra()}


def exact_law(gamma, nu, times=1.0):
    """The loss law of a spectrum that has no error of its own."""
    g = gamma - 1.0
    lam = np.where(np.abs(g) < 0.5, np.log1p(np.maximum(g, -0.5)), np.log(gamma))[None]
    zero = np.zeros_like(lam)
    a = (gamma * nu * nu)[None]
    return LossLaw(lam, g[None].copy(), a, np.array([times]), zero, zero, times * float(lam.sum()))


def found_at(law, epsilon):
    return {
        "hockey": tails.log_delta_bracket(tails.DP, epsilon, law, -math.inf),
        "upper": tails.log_delta_bracket(tails.PDP, epsilon, law, -math.inf),
        "lower": tails.log_tail_bracket(TAIL, LEFT, -epsilon, law, -math.inf),
    }


@pytest.mark.parametrize("name", SPECTRA)
def test_reference_spectra(name):
    case = SPECTRA[name]
    law, top = exact_law(case["gamma"], case["nu"]), cases.supremum(case["gamma"], case["nu"])
    for point in case["points"]:
        epsilon = float.fromhex(point["eps"])
        for which, (value, lower, upper) in found_at(law, epsilon).items():
            exact = mpf(point[which])
            assert lower <= exact <= upper, (which, epsilon)
            if exact == -mp.inf:
                assert value == -math.inf
            elif not abs(top - epsilon) < 1e-7:
                # Relative error of δ. Within 1e-7 of the supremum ε carries too few digits; below 1e-300 ln δ does.
                digits = max(1.0, -float(exact) / 690)
                assert abs(value - exact) <= 1e-9 * digits, (which, epsilon)
                assert upper - lower <= 1e-8 * digits or top * (1 - 1e-5) < epsilon < top, (which, epsilon)


def test_reference_covers_what_was_promised():
    deltas = [mpf(p["hockey"]) for c in SPECTRA.values() for p in c["points"]]
    assert {len(c["gamma"]) for c in SPECTRA.values()} == {1, 2, 3, 5, 12, 50, 100}
    assert min(d for d in deltas if d != -mp.inf) < -690
    assert max(deltas) > -2e-12
    assert max(float.fromhex(p["eps"]) for c in SPECTRA.values() for p in c["points"]) == 700.0


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("kind", ["mixed", "above_one", "below_one", "all_ones"])
def test_negative_thresholds(kind, k):
    """A prior can push an edge's ε below 0: the same integral, against the oracle."""
    gamma, nu = cases.spectrum_of_kind(kind, k)
    law = exact_law(gamma, nu)
    for x in (-0.3, -2.0, -20.0):
        for kind_code, exact_of in ((HOCKEY, oracle.log_hockey), (TAIL, oracle.log_upper_tail)):
            value, lower, upper = tails.log_tail_bracket(kind_code, RIGHT, x, law, -math.inf)
            exact = exact_of(gamma, nu, x, dps=20)
            assert lower <= exact <= upper
            assert abs(value - exact) <= 1e-9


def test_a_floor_never_hides_a_larger_value():
    gamma, nu = cases.spectrum_of_kind("mixed", 5)
    law = exact_law(gamma, nu)
    value, _, upper = tails.log_delta_bracket(tails.DP, 4.0, law, -math.inf)
    for floor in (value - 20, value - 0.1, value, value + 0.5, value + 5):
        found, lower, high = tails.log_delta_bracket(tails.DP, 4.0, law, floor)
        assert high >= value
        if lower == -math.inf:  # passed over
            assert found == high < floor
        else:
            assert found == value
            assert high == upper


@pytest.mark.parametrize("kind", ["mixed", "below_one", "above_one", "near_one_1e-6", "spread", "large_nu", "zero_nu"])
@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_bracket_covers_the_error_of_the_spectrum(kind, k):
    """Any law within the stated error of the spectrum has its value inside the bracket, at every notion and strip."""
    gamma, nu = cases.spectrum_of_kind(kind, k)
    exact = exact_law(gamma, nu)
    rng = np.random.default_rng(k)
    epsilons = [-1.0, 0.5, *(float.fromhex(point["eps"]) for point in SPECTRA[f"{kind}-{k}"]["points"][::2])]
    for size in (1e-9, 1e-6):
        lam_error = size * rng.uniform(0.1, 1, k)
        shift_error = size * rng.uniform(0.1, 1, k)
        wide = exact._replace(lam_error=lam_error[None], shift_error=shift_error[None])
        for sign_lam, sign_shift in ((1, 1), (1, -1), (-1, 1)):
            lam = exact.lam[0] + sign_lam * lam_error
            root = np.abs(np.sqrt(exact.a[0]) + sign_shift * shift_error)
            moved = exact_law(np.exp(lam), root * np.exp(-0.5 * lam))
            for epsilon in epsilons:
                for kind_code, side in ((HOCKEY, RIGHT), (TAIL, RIGHT), (TAIL, LEFT)):
                    value, _, upper = tails.log_tail_bracket(kind_code, side, epsilon, moved, -math.inf)
                    _, low, high = tails.log_tail_bracket(kind_code, side, epsilon, wide, -math.inf)
                    slop = (upper - value) if value > -math.inf else 0.0
                    assert low - slop <= value <= high + slop or value == low, (size, epsilon, kind_code, side)


def nearly_equal(size, kind, k=3):
    """A law that looks like two equal laws, or nearly, with errors of a given size."""
    rng = np.random.default_rng(7)
    lam, root = np.zeros(k), np.zeros(k)
    lam_error, shift_error = size * rng.uniform(0.1, 1, k), size * rng.uniform(0.1, 1, k)
    if kind == "gaps":
        lam_error[:] = 0.0
    if kind == "scales":
        shift_error[:] = 0.0
    if kind == "below":
        lam, root = 0.3 * lam_error, 0.7 * shift_error
    law = exact_law(np.exp(lam), root * np.exp(-0.5 * lam))
    return law._replace(lam=lam[None], g=np.expm1(lam)[None], lam_error=lam_error[None], shift_error=shift_error[None])


@pytest.mark.parametrize("kind", ["both", "gaps", "scales", "below"])
@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-3])
def test_equal_up_to_an_error_is_not_equal(kind, size):
    """Every law within the errors has its δ below the upper end, which is still of their size."""
    law = nearly_equal(size, kind)
    assert not tails.are_laws_equal(law)
    for signs in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
        lam = law.lam[0] + signs[0] * law.lam_error[0]
        root = np.abs(np.sqrt(law.a[0]) + signs[1] * law.shift_error[0])
        moved = exact_law(np.exp(lam), root * np.exp(-0.5 * lam))
        for epsilon in (0.0, size / 3, size, 10 * size, 1.0):
            for notion in (tails.DP, tails.PDP, tails.PDP_TWO_SIDED, tails.CHERNOFF):
                _, _, upper = tails.log_delta_bracket(notion, epsilon, law, -math.inf)
                _, least, _ = tails.log_delta_bracket(notion, epsilon, moved, -math.inf)
                assert upper >= least, (notion, epsilon)
    assert tails.log_delta_bracket(tails.DP, 0.0, law, -math.inf)[2] < math.log(4 * size)
    for notion in (tails.DP, tails.PDP, tails.PDP_TWO_SIDED, tails.CHERNOFF):
        assert tails.log_delta_bracket(notion, 1.0, law, -math.inf)[2] < (-700 if size < 1e-4 else -3)


def test_the_supremum_of_a_loss_moves_with_a_gap_that_may_not_be_zero():
    """γ = ½ and a gap of 0 ± s: sup L rises by s²/(2|g|), of second order."""
    gamma, error = np.array([0.5]), 1e-3
    law = exact_law(gamma, np.zeros(1))._replace(shift_error=np.full((1, 1), error))
    moved = exact_law(gamma, np.array([error / math.sqrt(0.5)]))
    top = cases.supremum(gamma, np.zeros(1))
    for notion in (tails.DP, tails.PDP, tails.CHERNOFF):
        epsilon = top + 0.9 * error**2
        assert tails.log_delta_bracket(notion, epsilon, moved, -math.inf)[0] > -math.inf
        assert (
            tails.log_delta_bracket(notion, epsilon, law, -math.inf)[2]
            >= tails.log_delta_bracket(notion, epsilon, moved, -math.inf)[1]
        )
        assert tails.log_delta_bracket(notion, top + 2 * error**2, law, -math.inf)[2] == -math.inf


def test_without_a_bound_on_the_spectrum_nothing_is_claimed():
    gamma, nu = cases.spectrum_of_kind("mixed", 3)
    law = exact_law(gamma, nu)
    hopeless = law._replace(lam_error=np.full((1, 3), np.inf), shift_error=np.full((1, 3), np.inf))
    for kind_code in (HOCKEY, TAIL):
        for x in (-1.0, 0.0, 5.0):
            _, lower, upper = tails.log_tail_bracket(kind_code, RIGHT, x, hopeless, -math.inf)
            assert (lower, upper) == (-math.inf, 0.0)


@pytest.mark.parametrize("notion", [tails.DP, tails.PDP, tails.CHERNOFF])
def test_zero_is_claimed_only_beyond_a_certain_supremum(notion):
    """γ − 1 of an uncertain sign may make a bounded loss unbounded: no exact zero then."""
    gamma, nu = np.array([0.5, 1 - 1e-9]), np.array([0.3, 0.0])
    law = exact_law(gamma, nu)
    top = cases.supremum(gamma, nu)
    assert tails.log_delta_bracket(notion, top * (1 + 1e-6), law, -math.inf)[2] == -math.inf
    unsure = law._replace(lam_error=np.array([[0.0, 1e-8]]))
    for factor in (1 + 1e-6, 1 + 1e-3, 2.0):
        _, lower, upper = tails.log_delta_bracket(notion, top * factor, unsure, -math.inf)
        assert lower == -math.inf < upper
        truth = tails.log_delta_bracket(notion, top * factor, exact_law(np.array([0.5, 1 + 9e-9]), nu), -math.inf)
        assert upper >= truth[0]


@pytest.mark.parametrize("notion", [tails.DP, tails.PDP, tails.CHERNOFF])
def test_at_the_supremum_rounding_decides_nothing(notion):
    rng = np.random.default_rng(11)
    for _ in range(20):
        gamma, nu = np.exp(-np.abs(rng.standard_normal(3)) - 0.1), rng.standard_normal(3)
        law = exact_law(gamma, nu)
        top = cases.supremum(gamma, nu)
        for epsilon in (top, np.nextafter(top, 0), top * (1 - 1e-14)):
            assert tails.log_delta_bracket(notion, epsilon, law, -math.inf)[2] > -math.inf
