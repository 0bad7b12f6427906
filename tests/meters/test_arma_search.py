"""Parts of the search: inner products, the secant correction, where pairs are placed, when a descent is given up."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.meters.arma import ArmaModels, simulate_arma
from shoal.meters.arma.filters import (
    filter_and_response,
    filter_both,
    filter_by_ma,
    filter_twice,
    inner_products,
    lagged_products,
    lagged_squares,
    residuals,
    subtract_ripple,
    weighted_lags,
)
from shoal.meters.arma.likelihood import evaluate
from shoal.meters.arma.optimize import FAIR_TRIAL, WAITED, correct, descend, minimize, new_descent
from shoal.meters.arma.parameters import is_stable
from shoal.meters.arma.search import LOOK_REACH, LOOK_TOLERANCE, Pool, regression_start, with_pairs, without_pair
from shoal.meters.arma.spectrum import best_pairs, pair_gain, residual_power, smoothed, twiddle_factors


def value(x: np.ndarray, coef: np.ndarray, p: int) -> float:
    k = coef.size
    work = np.empty(k), np.empty((k, k)), np.empty((k, k))
    return float(evaluate(x, coef[:p].copy(), coef[p:].copy(), *work, -math.inf)[0])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 11, 13])
@pytest.mark.parametrize("other", [14, 30])
def test_inner_products_are_those_of_numpy(count, other):
    one, two = np.random.default_rng(count).normal(size=(2, 90))
    out = np.empty(count)
    inner_products(one, 20, two, other, 50, out)
    expected = [one[20:70] @ two[other - k : other - k + 50] for k in range(count)]
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


def test_lagged_products_are_sums_over_the_whole_series():
    lead, n = 12, 40
    one, two = np.random.default_rng(1).normal(size=(2, lead + n))
    one[:lead] = two[:lead] = 0.0

    def brute(first, second, row, col, rows, cols):
        at = lead + np.arange(n)
        return np.array([[first[at - row - i] @ second[at - col - k] for k in range(cols)] for i in range(rows)])

    np.testing.assert_allclose(lagged_products(one, two, lead, n, 1, 0, 4, 7), brute(one, two, 1, 0, 4, 7), atol=1e-12)
    np.testing.assert_allclose(lagged_squares(one, lead, n, 1, 6), brute(one, one, 1, 1, 6, 6), atol=1e-12)


@pytest.mark.parametrize("order", [(6, 5), (2, 6), (8, 7), (1, 0), (0, 1)])
def test_filters_undo_each_other(order):
    p, q = order
    generator = np.random.default_rng(p)
    ar, ma = generator.uniform(-0.1, 0.1, p), generator.uniform(-0.1, 0.1, q)
    x, lead = generator.normal(size=60), 10
    b, e, back = np.zeros(lead + 60), np.zeros(lead + 60), np.zeros(lead + 60)
    residuals(x, ar, ma, lead, b, e)
    weighted_lags(b, -ma, lead, 60, back)
    np.testing.assert_allclose(back[lead:], x, atol=1e-12)
    filter_by_ma(e[lead:], -ar, lead, 60, back)
    np.testing.assert_allclose(back, b, atol=1e-12)


def test_correction_explains_the_gradients_seen():
    generator = np.random.default_rng(2)
    hessian = generator.normal(size=(4, 4))
    hessian, missing = hessian + hessian.T, np.diag([3.0, -1.0, 0.5, 2.0])
    correction = np.zeros((4, 4))
    for step in generator.normal(size=(4, 4)):
        correct(correction, step, np.zeros(4), (hessian + missing) @ step, hessian)
        np.testing.assert_allclose((hessian + correction) @ step, (hessian + missing) @ step, atol=1e-9)
    np.testing.assert_allclose(correction, missing, atol=1e-8)


def test_smoothing_keeps_the_mean_and_is_symmetric():
    level = np.ones(101)
    level[50] = 11.0
    out = np.empty(101)
    smoothed(level, 0.7, out)
    np.testing.assert_allclose(out - 1.0, 10.0 * 0.3 / 1.7 * 0.7 ** np.abs(np.arange(101) - 50), atol=1e-12)


@pytest.mark.parametrize(("pole", "zero"), [(0.98, 0.93), (0.93, 0.98)])
def test_pairs_are_placed_on_peaks_and_notches(pole, zero):
    """White noise with one feature at angle 1.1: the first pair goes there and is worth what it promises."""
    ar = np.array([2.0 * pole * math.cos(1.1), -(pole**2)])
    ma = np.array([-2.0 * zero * math.cos(1.1), zero**2])
    x = simulate_arma(ArmaModels.from_coefficients(ar, ma, 1.0), 1440, seed=3)[0]
    twiddle, nothing = twiddle_factors(2048), np.zeros(0)
    power = residual_power(x, nothing, nothing, twiddle)
    pairs = np.empty((3, 4))
    assert best_pairs(power, twiddle, -1.0, pairs) == 3
    assert math.acos(pairs[0, 1]) == pytest.approx(1.1, abs=0.03)
    assert (pairs[0, 2] > pairs[0, 3]) == (pole > zero)
    assert (np.diff(pairs[:, 0]) <= 0).all()
    assert pairs[0, 0] == pair_gain(power, twiddle, pairs[0, 1], pairs[0, 2], pairs[0, 3])
    white = 720.0 * math.log(float(x @ x))
    gained = white - value(x, with_pairs(x, twiddle, nothing, 0, -1.0, 1)[0], 2)
    assert gained == pytest.approx(1440 * pairs[0, 0], rel=0.1)
    assert best_pairs(power, twiddle, 1.1, pairs) == 3
    assert (np.abs(np.arccos(pairs[:, 1]) - 1.1) >= 0.02).all()


def test_descent_is_given_up_only_when_it_cannot_win():
    free = np.random.default_rng(5).normal(size=(200,))
    x = np.convolve(free, [1.0, 0.8, 0.5, -0.3])[:200]
    start = regression_start(x, 12, 3, 2)
    alone, unhurried = start.copy(), start.copy()
    best, evaluations, converged = minimize(x, False, alone, 3, 400, 1e-5, math.inf)
    assert converged
    assert minimize(x, False, unhurried, 3, 400, 1e-5, best + 1.0)[0] == best
    hopeless, used, finished = minimize(x, False, start.copy(), 3, 400, 1e-5, best - 1e3)
    assert not finished
    assert used < evaluations
    assert hopeless >= best


def test_a_look_is_broken_off_only_when_the_leader_is_out_of_reach():
    x = simulate_arma(ArmaModels.from_coefficients([0.6, -0.4, 0.2], [0.5, 0.3], 1.0), 300, seed=2)[0]
    start = np.array([0.1, -0.2, 0.3, -0.4, 0.2])
    reached, used, _ = minimize(x, False, start.copy(), 3, 12, LOOK_TOLERANCE, math.inf)
    assert used > FAIR_TRIAL
    pool = Pool(x, 3)
    pool.add(start.copy(), 12)
    assert pool.values == [reached]
    pool.values = [reached - 0.5 * LOOK_REACH]
    pool.add(start.copy(), 12)
    assert pool.values[1] == reached
    pool.values[:] = [reached - 1e3, reached]
    pool.add(start.copy(), 12)
    assert pool.values[2] > reached
    assert pool.descents[2][0][WAITED] == FAIR_TRIAL - 1


def test_pairs_are_taken_out_in_every_way_the_cheapest_first():
    """A model with three pole pairs and two zero pairs, one of each all but cancelling."""
    poles, zeros = ((0.9, 0.4), (0.8, 1.5), (0.5, 2.5)), ((0.85, 0.9), (0.52, 2.5))

    def product(pairs):
        out = np.ones(1)
        for radius, angle in pairs:
            out = np.convolve(out, [1.0, -2.0 * radius * math.cos(angle), radius**2])
        return out[1:]

    coef = np.r_[-product(poles), product(zeros)]
    x = simulate_arma(ArmaModels.from_coefficients(coef[:6], coef[6:], 1.0), 1440, seed=4)[0]
    models, angles = without_pair(x, coef, 6)
    assert models.shape == (6, 6)
    np.testing.assert_allclose(models[0], np.r_[-product(poles[:2]), product(zeros[:1])], atol=1e-9)
    np.testing.assert_allclose(angles[0], 2.5, atol=1e-9)
    np.testing.assert_allclose(np.sort(angles), [0.4, 0.4, 1.5, 1.5, 2.5, 2.5], atol=1e-9)
    costs = [value(x, model, 4) for model in models]
    assert costs == sorted(costs)
    for model, angle in zip(models, angles, strict=True):
        kept = [pair for pair in poles if abs(pair[1] - angle) > 1e-6]
        np.testing.assert_allclose(model[:4], -product(kept), atol=1e-9)


def test_descent_next_to_the_edge_does_not_crawl():
    """An overdifferenced series has its moving average on the edge: Gauss–Newton alone needs hundreds of steps."""
    noise = np.random.default_rng(6).normal(size=600)
    x = np.convolve(noise, np.convolve([1.0, -1.999 * math.cos(0.5), 0.998], [1.0, -1.98 * math.cos(2.0), 0.98]))[:600]
    coef = regression_start(x, 24, 2, 4)
    reached, used, converged = minimize(x, False, coef, 2, 400, 1e-5, math.inf)
    assert converged
    assert used < 100
    assert is_stable(-coef[2:])
    truth = np.r_[0.0, 0.0, np.convolve([1.0, -1.999 * math.cos(0.5), 0.998], [1.0, -1.98 * math.cos(2.0), 0.98])[1:]]
    assert reached < value(x, truth, 2)


def test_a_descent_carried_on_is_the_one_that_was_not_interrupted():
    x = simulate_arma(ArmaModels.from_coefficients([0.6, -0.4, 0.2], [0.5, 0.3], 1.0), 300, seed=2)[0]
    start = regression_start(x, 24, 3, 2) * 0.5
    whole, parts = start.copy(), start.copy()
    reached, used, _ = minimize(x, False, whole, 3, 7, 1e-9, math.inf)
    assert used == 7
    descent = new_descent(5)
    assert descend(x, False, parts, 3, 3, 1e-9, math.inf, *descent)[1] == 3
    again, more, _ = descend(x, False, parts, 3, 4, 1e-9, math.inf, *descent)
    assert more == 4
    assert again == reached
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("ma", [[0.5, -0.2], [0.3, 0.1, 0.0, 0.2, -0.1, 0.05, 0.1], [0.99], []])
def test_filters_run_side_by_side_are_those_run_alone(ma):
    ma, lead, n = np.array(ma, dtype=float), 12, 90
    x = np.random.default_rng(5).normal(size=n)
    b, g, alone, bb, gg, a, aa = np.zeros((7, lead + n))
    length = filter_and_response(x, ma, lead, b, g)
    filter_by_ma(x, ma, lead, n, alone)
    np.testing.assert_allclose(b, alone, atol=1e-12)
    impulse = np.zeros(n)
    impulse[0] = 1.0
    filter_by_ma(impulse, ma, lead, n, alone)
    np.testing.assert_allclose(g, alone, atol=1e-12)
    assert not g[lead + length :].any()
    filter_both(b, g, ma, lead, n, 40, bb, gg)
    filter_twice(b, ma, lead, n, a, aa)
    np.testing.assert_allclose(bb, a, atol=1e-12)
    filter_by_ma(g[lead:], ma, lead, n, alone)
    np.testing.assert_allclose(gg[: lead + 40], alone[: lead + 40], atol=1e-12)
    filter_by_ma(a[lead:], ma, lead, n, alone)
    np.testing.assert_allclose(aa, alone, atol=1e-12)


@pytest.mark.parametrize("r", [1, 4, 6, 8])
def test_ripple_is_the_response_to_the_start(r):
    lead, n = 12, 50
    start = np.random.default_rng(r).normal(size=r)
    ma = np.array([0.6, -0.3])
    g, b, e = np.zeros((3, lead + n))
    filter_and_response(np.zeros(n), ma, lead, b, g)
    filter_by_ma(np.r_[start, np.zeros(n - r)], ma, lead, n, b)
    subtract_ripple(g, start, lead, n, e)
    np.testing.assert_allclose(-e, b, atol=1e-12)
