"""The accounting tests of dp_accounting and OpenDP, taken by our accounting: their figures, their tolerances."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism

import shoal
from peer_cases import GOOGLE, OPENDP, agrees, cases, found, gaussian_delta, mp, mpf, pair

TOPICS = list(dict.fromkeys((case.peer, case.topic) for case in cases()))


@pytest.mark.parametrize(("peer", "topic"), TOPICS, ids=[f"{peer}: {topic}" for peer, topic in TOPICS])
def test_their_figures(peer: str, topic: str) -> None:
    """Ours is never on the unsafe side, without tolerance, and within theirs of what they expect."""
    chosen = [case for case in cases() if (case.peer, case.topic) == (peer, topic)]
    for case in chosen:
        for ours in found(case):
            assert case.holds(ours), f"{case}: unsafe"
            assert agrees(case, ours), f"{case}: {ours!r} against {case.figure!r}"


def test_the_referee_can_say_no() -> None:
    """Less than each of our figures by a part in a million is on the unsafe side, wherever the figure is exact."""
    tight: Counter[str] = Counter()
    for case in cases():
        if case.kind == "value" and case.figure > 1e-6 and case.topic != "pure releases composed":
            ours = max(found(case))
            assert not case.holds(ours * (1 - 1e-6)), f"{case}: the referee accepts too little"
            tight[case.peer] += 1
    assert tight[GOOGLE] > 100
    assert tight[OPENDP] >= 7


def test_a_tabulated_delta_that_is_too_small() -> None:
    """dp_accounting's test of three composed Gaussians calls δ(1) = 0.126936 exact; it is 0.12693674."""
    case = next(case for case in cases() if case.inputs == "3 with σ=√3")
    assert not case.holds(case.figure)
    assert all(ours > case.figure for ours in found(case))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_their_closed_form_and_ours(sigma: float) -> None:
    """get_epsilon_gaussian on the grid of its test against privacy loss distributions."""
    for delta in (1e-1, 1e-2, 1e-3):
        ours = float(shoal.epsilon_at(*pair(1.0, sigma * sigma), delta))
        assert gaussian_delta(1 / mpf(sigma) ** 2, ours) <= mpf(delta)
        assert ours == pytest.approx(gaussian_mechanism.get_epsilon_gaussian(sigma, delta), rel=1e-7, abs=1e-12)


def test_between_the_optimal_bound_and_that_of_renyi_divergences() -> None:
    """500 values of ε from 0 to 49.9, σ = 1: never below the closed form, never above exp(−(ε − ½)²/2).

    In doubles that bound is 0 from ε = 39.1 on, which is too little; ours ends at the least double.
    """
    epsilon = np.arange(500) * 0.1
    ours = shoal.privacy_curve(*pair(1.0, 1.0), epsilon).delta_upper
    for e, delta in zip(epsilon.tolist(), ours.tolist(), strict=True):
        assert gaussian_delta(mpf(1), e) <= mpf(delta)
        assert mpf(delta) <= (1 if e < 0.5 else max(mp.exp(-((mpf(e) - 0.5) ** 2) / 2), mpf(5e-324)))


def test_what_has_no_noise_is_refused() -> None:
    """Where their functions return 0 or infinity at δ = 0 and δ = 1, ours say that there is no such noise."""
    for delta, reason in ((0.0, "no Gaussian noise"), (1.0, "delta")):
        with pytest.raises(shoal.ShoalError, match=reason):
            shoal.analytic_sigma(1.0, 1.0, delta)
