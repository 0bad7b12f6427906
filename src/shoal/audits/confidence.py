"""Exact bounds on probabilities and means, how an audit shares its error probability, and what it could have seen.

With probability at least ``confidence`` none of an audit's statements is false: the error 1 − confidence is divided
among kinds of tests by :data:`SHARES`, and within a kind equally among all its tests (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from shoal.validation import FloatArray

#: Kind of test -> its share of the error probability.
SHARES = {
    "events": 0.50,  # bounds on the probabilities of attack events, all edges, directions, attacks and ε together
    "spread": 0.25,  # each label's released answers spread less than claimed
    "overall": 0.10,  # all labels together spread less than claimed
    "dependence": 0.10,  # releases depend on each other
    "identification": 0.05,  # naming the label of an answer, or the rows of a table
}


def clopper_pearson_lower(successes: Any, trials: Any, error: float) -> FloatArray:
    """Return bounds that lie below the true probabilities except with probability ``error`` each.

    The ``error`` quantile of Beta(s, n − s + 1), 0 for s = 0 (Clopper & Pearson 1934).
    """
    s, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    with np.errstate(all="ignore"):
        bound = scipy.special.betaincinv(s, n - s + 1.0, error)
    return np.asarray(np.where(s > 0, bound * (1 - 1e-12), 0.0))


def clopper_pearson_upper(successes: Any, trials: Any, error: float) -> FloatArray:
    """Return bounds that lie above the true probabilities except with probability ``error`` each.

    The 1 − ``error`` quantile of Beta(s + 1, n − s), 1 for s = n (Clopper & Pearson 1934).
    """
    return np.asarray(1.0 - clopper_pearson_lower(np.asarray(trials) - np.asarray(successes), trials, error))


def mean_lower_bound(values: FloatArray, error: float) -> float:
    """Return a number below the mean of independent, alike values within [0, 1] except with probability ``error``.

    Whoever bets that the mean exceeds m, with stakes λ_t within [0, 1] set from the values before, has the wealth Π_t
    (1 + λ_t (x_t − m)). If the mean is at most m its expectation is at most 1, so that it exceeds 1/error with
    probability at most ``error`` (Markov). It falls with m: the largest m at which it does is the bound (Waudby-Smith &
    Ramdas 2024). Unlike a binomial bound it gains from values that hardly vary, such as shares of many rows.
    """
    wanted, count = -math.log(error), len(values)
    seen = np.arange(2.0, count + 2.0)
    means = (0.5 + np.cumsum(values)) / seen
    spread = (0.25 + np.cumsum((values - means) ** 2)) / seen
    before = np.concatenate([[0.25], spread[:-1]])
    stakes = np.minimum(np.sqrt(2.0 * wanted / (count * before)), 1.0)

    def is_wealth_reached(m: float) -> bool:
        """Whether a bet against a mean of at most m has won 1/error."""
        with np.errstate(divide="ignore"):
            return float(np.log1p(stakes * (values - m)).sum()) >= wanted

    return _bisect(is_wealth_reached, 0.0, 1.0, 50) * (1 - 1e-12) if is_wealth_reached(0.0) else 0.0


def mean_upper_bound(values: FloatArray, error: float) -> float:
    """Return a number above the mean of such values except with probability ``error``: 1 − the bound of 1 − values."""
    return 1.0 - mean_lower_bound(1.0 - values, error)


def detectable_delta(promise: float, epsilon: float, trials: int, error: float) -> float:
    """Return the smallest true δ(ε) that so many trials per label would have shown to exceed the promise; 1 if none.

    Taken over the least favorable event with P_X(S) − e^ε P_X'(S) = δ, at its expected counts: a violation of that size
    is found with about even odds or better, a smaller one may pass.
    """
    if promise >= 1.0:
        return 1.0
    grow = math.exp(min(epsilon, 700.0))

    def is_seen(delta: float) -> bool:
        """Whether the lower bound of every event with this δ exceeds the promise, at expected counts."""
        other = np.linspace(0.0, 1.0, 65) * (1.0 - delta) / grow
        own = np.minimum(delta + grow * other, 1.0)
        low = clopper_pearson_lower(own * trials, trials, error)
        high = clopper_pearson_upper(other * trials, trials, error)
        return bool((low - grow * high > promise).all())

    return _bisect(is_seen, 1.0, promise, 40) if is_seen(1.0) else 1.0


def _bisect(holds: Callable[[float], bool], inside: float, outside: float, rounds: int) -> float:
    """Return the last value at which ``holds``, on the way from ``inside``, where it does, to ``outside``."""
    for _ in range(rounds):
        middle = 0.5 * (inside + outside)
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside
