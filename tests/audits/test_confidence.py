"""Exact bounds on probabilities and means, and how an audit's error is shared."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shoal.audits.confidence import (
    SHARES,
    clopper_pearson_lower,
    clopper_pearson_upper,
    detectable_delta,
    mean_lower_bound,
    mean_upper_bound,
)


def test_shares_add_up_to_one():
    assert sum(SHARES.values()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("s", "n"), [(1, 10), (5, 10), (10, 10), (3, 5000), (4999, 5000)])
@pytest.mark.parametrize("error", [0.05, 1e-6])
def test_bounds_solve_their_binomial_tails(s, n, error):
    low = float(clopper_pearson_lower(s, n, error))
    tail = sum(mpmath.binomial(n, j) * mpmath.mpf(low) ** j * (1 - mpmath.mpf(low)) ** (n - j) for j in range(s, n + 1))
    assert float(tail) == pytest.approx(error, rel=1e-6)
    assert float(clopper_pearson_upper(n - s, n, error)) == pytest.approx(1 - low, abs=1e-12)


def test_bounds_at_the_ends():
    assert clopper_pearson_lower(0, 10, 0.05) == 0.0
    assert clopper_pearson_upper(10, 10, 0.05) == 1.0
    assert float(clopper_pearson_upper(0, 1000, 0.05)) == pytest.approx(-math.expm1(math.log(0.05) / 1000), rel=1e-9)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(1, 300), st.floats(0.001, 0.999), st.floats(1e-6, 0.2))
def test_both_bounds_cover_at_any_probability(n, p, error):
    s = np.arange(n + 1)
    chance = stats.binom.pmf(s, n, p)
    assert chance[clopper_pearson_lower(s, n, error) > p].sum() <= error * (1 + 1e-9)
    assert chance[clopper_pearson_upper(s, n, error) < p].sum() <= error * (1 + 1e-9)
    assert (clopper_pearson_lower(s, n, error) <= s / n).all()
    assert (np.diff(clopper_pearson_lower(s, n, error)) > 0).all()


def test_detectable_delta_shrinks_with_trials_and_lies_above_the_promise():
    found = [detectable_delta(0.01, 1.0, n, 1e-5) for n in (100, 1000, 10_000, 100_000)]
    assert all(0.01 < b < a for a, b in itertools.pairwise(found))
    assert detectable_delta(1.0, 1.0, 1000, 1e-5) == 1.0
    assert detectable_delta(0.999, 1.0, 100, 1e-5) == 1.0


# ------------------------------------------------------------------ means of shares


@pytest.mark.parametrize("rows", [1, 4, 20])
@pytest.mark.parametrize("count", [100, 1000])
def test_bounds_on_a_mean_hold_as_often_as_they_say(rows, count):
    """Shares of rows named right; one row per table is the binomial case."""
    rng, error, mean = np.random.default_rng([rows, count]), 0.05, 0.3
    draws = rng.binomial(rows, mean, (400, count)) / rows
    below = np.array([mean_lower_bound(values, error) for values in draws])
    above = np.array([mean_upper_bound(values, error) for values in draws])
    allowed = stats.binom.ppf(0.999, 400, error)
    assert (below > mean).sum() <= allowed
    assert (above < mean).sum() <= allowed
    assert (below <= draws.mean(axis=1)).all()
    assert (above >= draws.mean(axis=1)).all()


@pytest.mark.parametrize(("value", "low", "high"), [(0.0, 0.0, 0.1), (1.0, 0.9, 1.0)])
def test_bounds_on_a_constant(value, low, high):
    values = np.full(200, value)
    assert low <= mean_lower_bound(values, 1e-4) <= mean_upper_bound(values, 1e-4) <= high
