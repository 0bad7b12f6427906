"""Noisy crowds through the public face: what leaves is rebuilt without the readings; attacks; refusals; accuracy."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import shoal
from shoal.readings.crowds import public_tables, sum_of_home_vectors
from shoal.readings.plan import CrowdsPlan


@cache
def population(n: int, seed: int = 0, steps: int = 12) -> np.ndarray:
    """Curves with lognormal loads and rough shapes."""
    rng = np.random.default_rng(seed)
    shapes = np.exp(0.4 * rng.standard_normal((n, steps)).cumsum(axis=1) / 2)
    return rng.lognormal(0.2, 0.9, (n, 1)) * shapes / shapes.mean(axis=1, keepdims=True)


def test_public_tables_are_rebuilt_byte_for_byte_without_the_readings(tmp_path):
    curves = population(486)
    crowds = shoal.noisy_crowds(
        curves, shoal.noisy_crowds_plan(customers=500, epsilon=1.0, method="cells", typical_kw=1.5)
    )
    np.save(tmp_path / "noisy.npy", crowds.noisy)
    (tmp_path / "plan.json").write_text(crowds.plan.to_json())
    code = (
        "import sys, numpy as np\n"
        "from shoal.readings.crowds import public_tables\n"
        "from shoal.readings.plan import CrowdsPlan\n"
        f"plan = CrowdsPlan.from_json(open({str(tmp_path / 'plan.json')!r}).read())\n"
        f"tables = public_tables(np.load({str(tmp_path / 'noisy.npy')!r}), plan, 12)\n"
        "sys.stdout.buffer.write(tables.curves.tobytes() + tables.counts.tobytes() + tables.total.tobytes())"
    )
    rebuilt = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert rebuilt == crowds.curves.tobytes() + crowds.counts.tobytes() + crowds.total.tobytes()


def test_a_plan_is_a_function_of_declared_numbers_and_survives_its_file():
    plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0, typical_kw=1.5)
    assert plan == shoal.noisy_crowds_plan(customers=500, epsilon=1.0, delta=1 / 5000, typical_kw=1.5)
    assert CrowdsPlan.from_json(plan.to_json()) == plan


def test_a_plan_with_too_little_noise_is_refused():
    plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0, typical_kw=1.5)
    text = plan.to_json().replace(f'"variance": {plan.variance!r}', f'"variance": {plan.variance * 0.99!r}')
    assert text != plan.to_json()
    with pytest.raises(shoal.InputError, match="noise"):
        CrowdsPlan.from_json(text)


def test_few_customers_get_one_mean_times_public_curves_and_many_get_cells():
    assert shoal.noisy_crowds_plan(customers=60, epsilon=1.0, typical_kw=1.5).method == "mean"
    assert shoal.noisy_crowds_plan(customers=10_000, epsilon=1.0, typical_kw=1.5).method == "cells"
    assert shoal.noisy_crowds_plan(customers=10_000, epsilon=0.01, typical_kw=1.5).method == "mean"


def test_curves_and_counts_add_up_to_the_total_and_nothing_is_negative():
    curves = population(486)
    for method in ("mean", "cells"):
        crowds = shoal.noisy_crowds(
            curves, shoal.noisy_crowds_plan(customers=486, epsilon=1.0, method=method, typical_kw=1.5)
        )
        assert (crowds.curves >= 0).all()
        assert (crowds.counts >= 0).all()
        np.testing.assert_allclose(crowds.counts @ crowds.curves, crowds.total, rtol=1e-9)
        assert crowds.crowd_of.shape == (486,)
        assert 0 <= crowds.crowd_of.min() <= crowds.crowd_of.max() < len(crowds.curves)


@pytest.mark.parametrize("steps", [1, 3, 48])
def test_any_number_of_steps(steps):
    crowds = shoal.noisy_crowds(
        population(300, steps=steps), shoal.noisy_crowds_plan(customers=300, epsilon=1.0, typical_kw=1.5)
    )
    assert crowds.curves.shape[1] == steps
    assert crowds.total.shape == (steps,)


def test_no_home_at_all_is_released_as_well():
    crowds = shoal.noisy_crowds(np.empty((0, 12)), shoal.noisy_crowds_plan(customers=300, epsilon=1.0, typical_kw=1.5))
    assert np.isfinite(crowds.curves).all()


@pytest.mark.parametrize(
    ("curves", "words"),
    [
        (np.ones((501, 2)), "more homes"),
        (-np.ones((2, 2)), "export"),
        (np.full((2, 2), np.nan), "finite"),
        (np.ones(3), "dimension"),
    ],
)
def test_refusals_name_the_argument(curves, words):
    with pytest.raises(shoal.InputError, match=words):
        shoal.noisy_crowds(curves, shoal.noisy_crowds_plan(customers=500, epsilon=1.0, typical_kw=1.5))


def test_plans_refuse_what_is_not_declared_sensibly():
    for bad in (
        {"customers": 0, "epsilon": 1.0},
        {"customers": 5, "epsilon": 0.0},
        {"customers": 5, "epsilon": 1, "delta": 1.0},
    ):
        with pytest.raises(shoal.InputError):
            shoal.noisy_crowds_plan(**bad, typical_kw=1.5)


def lower_bound(plan: CrowdsPlan, too_little: float = 1.0, trials: int = 5000) -> float:
    """What a membership test shows about δ(1) at least, with 99.9 % confidence (Clopper–Pearson, two exact ends).

    The attacker knows the plan and every home but one, subtracts the others' sum, and projects on the home's vector:
    the optimal statistic. The noise is what releases draw, with its deviation times ``too_little``.
    """
    curves = population(40, seed=3).copy()
    curves[0] = 1e3 * np.eye(12)[0]  # the largest contribution there is
    whole, others = sum_of_home_vectors(curves, plan), sum_of_home_vectors(curves[1:], plan)
    home = whole - others
    variance = plan.account.variance * too_little**2
    drawn = replace(plan.account, entries=trials * plan.entries, variance=variance)
    present, absent = (
        (drawn.release(np.tile(sums, trials)).reshape(trials, -1) - others) @ home for sums in (whole, others)
    )
    threshold = float(home @ home) / 2 + plan.epsilon * plan.account.variance
    hits, false = int((present > threshold).sum()), int((absent > threshold).sum())
    low = stats.beta.ppf(0.0005, hits, trials - hits + 1)
    high = stats.beta.ppf(0.9995, false + 1, trials - false)
    return float(low - math.exp(plan.epsilon) * high)


def test_a_membership_test_catches_a_fifth_too_little_noise_and_passes_the_right_one():
    plan = shoal.noisy_crowds_plan(customers=40, epsilon=1.0, delta=0.2, typical_kw=1.5)
    assert lower_bound(plan) <= plan.delta(1.0)
    assert lower_bound(plan, too_little=0.8) > plan.delta(1.0)


def test_who_knows_nine_of_ten_reads_the_tenth_from_a_mean_but_not_from_noisy_crowds():
    curves = population(500, seed=5)
    ten = curves[:10]
    recovered = 10 * ten.mean(axis=0) - ten[:9].sum(axis=0)
    assert np.abs(recovered - ten[9]).max() < 1e-9
    plan = shoal.noisy_crowds_plan(customers=500, epsilon=1.0, typical_kw=1.5)
    misses = []
    for _ in range(20):
        crowds = shoal.noisy_crowds(curves, plan)
        guess = crowds.total - np.delete(curves, 9, axis=0).sum(axis=0)
        misses.append(np.abs(guess - curves[9]).mean())
    assert np.median(misses) > 3 * curves.mean()


def test_the_error_of_a_release_lies_between_no_noise_and_one_mean():
    curves = population(486, seed=7)
    crowds = shoal.noisy_crowds(curves, shoal.noisy_crowds_plan(customers=486, epsilon=1.0, typical_kw=1.5))
    error = shoal.population_error(curves, crowds)
    assert error.w1_lower <= error.w1 <= 1.06 * error.w1_lower
    assert error.w1 < error.one_mean
    assert abs(error.total) < 0.25
    assert error.total_by_step.shape == (12,)


def test_with_next_to_no_noise_the_total_is_right():
    curves = np.minimum(population(4000, seed=8), 6.0)
    crowds = shoal.noisy_crowds(
        curves, shoal.noisy_crowds_plan(customers=4000, epsilon=20.0, delta=0.01, typical_kw=1.5)
    )
    assert abs(crowds.total.sum() / curves.sum() - 1) < 0.01


def test_transport_bounds_enclose_an_exact_assignment():
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    from shoal.readings.population_error import w1_bounds

    one, two = population(120, seed=1), population(120, seed=2)
    cost = cdist(one, two, "cityblock") / 12
    exact = cost[linear_sum_assignment(cost)].mean() / one.mean()
    upper, lower = w1_bounds(one, two, np.ones(120))
    assert lower <= exact <= upper
    assert upper <= 1.02 * exact


def test_publishing_needs_the_plans_own_vector():
    plan = shoal.noisy_crowds_plan(customers=486, epsilon=1.0, typical_kw=1.5)
    with pytest.raises(shoal.InputError, match="entries"):
        public_tables(np.zeros(3), plan, 12)
