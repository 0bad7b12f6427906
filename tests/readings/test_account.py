"""The readings' account: exact δ, both neighbors, finite precision, and never on the unsafe side."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import shoal
from shoal.readings.account import ReadingsAccount
from shoal.readings.crowds import home_vectors, sum_of_home_vectors


def closed_form(square: int, variance: float, epsilon: float) -> mpmath.mpf:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) with 60 digits."""
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.mpf(square) / mpmath.mpf(variance))
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("customers", [20, 486, 4000, 100_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_delta_is_the_closed_form_and_never_below_it(customers, epsilon):
    plan = shoal.noisy_crowds_plan(customers=customers, epsilon=epsilon, typical_kw=1.5)
    account = plan.account
    squared_sensitivities = {"zero-out": account.zero_out_square, "replace": account.replace_square}
    for neighbors, square in squared_sensitivities.items():
        for meters in (1, 2):
            for at in (0.0, epsilon / 2, epsilon, 2 * epsilon):
                exact = closed_form(meters**2 * square, account.variance, at)
                stated = plan.delta(at, neighbors, meters)
                assert mpmath.mpf(stated) >= exact
                assert stated - float(exact) <= 1e-12
    assert plan.delta(epsilon) <= 1 / (10 * customers)
    assert plan.delta(epsilon) >= (1 - 1e-6) / (10 * customers)


def test_what_finite_precision_costs_is_stated_and_included():
    account = shoal.noisy_crowds_plan(customers=486, epsilon=1.0, typical_kw=1.5).account
    assert 0 < account.precision_loss(1.0) < 1e-20
    ideal = closed_form(account.zero_out_square, account.variance, 1.0)
    assert mpmath.mpf(account.delta(1.0)) >= ideal + mpmath.mpf(account.precision_loss(1.0))


def test_the_noise_drawn_has_the_stated_variance_and_lies_on_a_grid():
    account = ReadingsAccount.calibrate(3**2, 2 * 3**2, 20_000, 1e6, epsilon=1.0, delta=1e-5)
    sums = np.arange(20_000.0)
    noise = account.release(sums) - sums
    # 20,000 squared normals: a deviation of 1 %; five of them either way.
    assert 0.95 < float(np.mean(noise**2)) / account.variance < 1.05
    assert abs(float(noise.mean())) < 5 * math.sqrt(account.variance / 20_000)
    grid = account._grid.steps[0]
    assert (np.mod(noise, grid) == 0).all()


def homes(rng: np.random.Generator, n: int, steps: int) -> np.ndarray:
    """Curves of every kind: ordinary, huge, tiny, zero, spikes, at the clip."""
    level = np.exp(rng.uniform(-9, 9, n)) * rng.choice([0.0, 1.0, 1.0, 1.0], n)
    shape = rng.choice([rng.random((n, steps)), rng.random((n, steps)) ** 20, np.ones((n, steps))], axis=0)
    shape = np.where(rng.random((n, 1)) < 0.2, np.eye(steps)[rng.integers(0, steps, n)], shape)
    return level[:, None] * shape


PLANS = [
    shoal.noisy_crowds_plan(customers=customers, epsilon=1.0, typical_kw=kw, method=method)
    for customers, kw in ((100, 1.5), (5000, 0.4), (60_000, 1.0))
    for method in ("mean", "cells")
]


def neighbor_pairs(count: int, seed: int) -> None:
    """Random pairs of neighbors: the sums never lie further apart than stated, in exact integers."""
    rng = np.random.default_rng(seed)
    batch = 10
    for number in range(count // batch):
        plan = PLANS[number % len(PLANS)]
        steps = int(rng.choice([1, 2, 4, 12, 48]))
        curves = homes(rng, 40, steps)
        whole = sum_of_home_vectors(curves, plan)
        assert (whole == np.trunc(whole)).all()
        for home in rng.choice(40, batch, replace=False):
            meters = int(rng.integers(1, 4))
            changed = [home, *((home + 1 + np.arange(meters - 1)) % 40)]
            without = sum_of_home_vectors(np.delete(curves, changed, axis=0), plan)
            other = curves.copy()
            other[changed] = homes(rng, meters, steps)
            gone, moved = whole - without, whole - sum_of_home_vectors(other, plan)
            square = plan.account.zero_out_square
            assert sum(int(v) ** 2 for v in gone) <= meters**2 * square
            assert sum(int(v) ** 2 for v in moved) <= meters**2 * plan.account.replace_square
            # The other homes' vectors do not change, to the last unit.
            assert (gone == home_vectors(curves[changed], plan).sum(axis=0)).all()


def test_neighbors_never_lie_further_apart_than_stated():
    neighbor_pairs(600, seed=1)


@pytest.mark.slow
def test_twenty_thousand_neighbor_pairs_none_on_the_unsafe_side():
    neighbor_pairs(20_000, seed=2)


def test_the_sensitivities_are_tight():
    plan = shoal.noisy_crowds_plan(customers=60_000, epsilon=1.0, method="cells", typical_kw=1.5)
    steps = 12
    spike = np.zeros((2, steps))
    spike[0, 0] = spike[1, -1] = 1e4  # opposite swings, the same load
    vectors = home_vectors(spike, plan)
    assert float((vectors[0] ** 2).sum()) >= 0.999 * plan.account.zero_out_square
    flat = np.zeros((1, steps))
    gap = vectors[0] - home_vectors(flat, plan)[0]
    assert float((gap**2).sum()) >= 0.7 * plan.account.replace_square


def test_a_series_shares_a_cap_fixed_before_the_first():
    whole = shoal.noisy_crowds_plan(customers=4000, epsilon=1.0, typical_kw=1.5)
    day = shoal.noisy_crowds_plan(customers=4000, epsilon=1.0, cap_mu=whole.mu / math.sqrt(30), typical_kw=1.5)
    assert 30 * day.mu**2 <= whole.mu**2
    assert day.delta(1.0) < whole.delta(1.0)
