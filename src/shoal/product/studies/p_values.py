"""Probabilities, exact or bounded from above, of what the attack on files of a release counts in honest ones.

Like the attack (:mod:`shoal.product.studies.release_files`), they share no code with what is attacked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy

#: Pairs of an order that is compared by its exact law; above, by an upper bound of it.
EXACT_PAIRS = 6_000


def binomial_tail(hits: float, tests: int, p: float) -> float:
    """P(X ≥ hits) of a binomial law; a sum of unequal odds with this mean has less beyond it (Hoeffding 1956).

    >>> round(binomial_tail(2, 2, 0.5), 12), binomial_tail(0, 5, 0.1)
    (0.25, 1.0)
    """
    return 1.0 if hits <= 0 else float(scipy.special.betainc(hits, tests - hits + 1, p))


def binomial_interval(hits: float, tests: int) -> tuple[float, float]:
    """Clopper & Pearson's 95 % interval of a share of which ``hits`` of ``tests`` were seen."""
    low = float(scipy.special.betaincinv(hits, tests - hits + 1, 0.025)) if hits > 0 else 0.0
    return low, float(scipy.special.betaincinv(hits + 1, tests - hits, 0.975)) if hits < tests else 1.0


def detectable_excess(tests: int, p: float, level: float) -> float:
    """The excess over ``p`` that a binomial test at this level finds in 95 of 100 runs.

    >>> round(detectable_excess(620, 1 / 12, 0.025), 3)
    0.046
    """
    low, high = 0, tests + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if binomial_tail(middle, tests, p) <= level else (middle, high)
    return 1.0 - p if high > tests else max(float(scipy.special.betaincinv(high, tests - high + 1, 0.95)) - p, 0.0)


def one_run_p_value(right: int, guesses: int, coins: int, epsilon: float, delta: float) -> float:
    """Upper bound of the probability that so many guesses of fair coins are right under (ε, δ).

    Of r guesses of m coins, W are right; with Q binomial(r, e^ε/(1 + e^ε)) (Steinke, Nasr & Jagielski 2023, thm 5.2)

        P(W ≥ v) ≤ P(Q ≥ v) + 2 m δ max over i of P(v > Q ≥ v − i)/i

    >>> one_run_p_value(10, 10, 10, 0.0, 0.0) == 0.5**10
    True
    """
    q = float(scipy.special.expit(epsilon))
    at = np.arange(right - 1, -1, -1)
    mass = scipy.special.binom(guesses, at) * q**at * (1 - q) ** (guesses - at) if guesses <= 1000 else np.array([
        binomial_tail(v, guesses, q) - binomial_tail(v + 1, guesses, q) for v in at.tolist()])  # fmt: skip
    worst = float((np.cumsum(mass) / np.arange(1, right + 1)).max(initial=0.0))
    return min(binomial_tail(right, guesses, q) + 2 * coins * delta * worst, 1.0)


def fixed_points_p_value(hits: int, sizes: Sequence[int]) -> float:
    """P(H ≥ hits) where H counts what random orders of so many things each leave in place; exact.

    >>> round(fixed_points_p_value(3, [3]), 12), round(fixed_points_p_value(1, [2, 2]), 12)
    (0.166666666667, 0.75)
    """
    law, without = np.ones(1), np.cumsum([(-1) ** j / math.factorial(j) for j in range(41)])
    for n in sizes:
        own = [without[min(n - k, 40)] / math.factorial(k) for k in range(min(n, 40) + 1)]
        law = np.convolve(law, own)
        law = law[: np.flatnonzero(law > 1e-300)[-1] + 1]
    return float(min(law[hits:].sum(), 1.0)) if hits > 0 else 1.0


def sortedness_p_value(orders: Sequence[Sequence[float]]) -> float:
    """How likely orders that are drawn are as sorted as these, forward or backward: a bound, exact for few.

    Counts pairs that are out of order. In a random order of n things their number is a sum of independent ones,
    uniform on 0 … j − 1 for j up to n (Mahonian numbers).

    >>> sortedness_p_value([[1, 2, 3, 4, 5]]) == 2 / 120, sortedness_p_value([[2, 1, 3]])
    (True, 1.0)
    """
    arrays = [np.asarray(order, dtype=np.float64) for order in orders]
    inverted = sum(int((one[i + 1 :] < one[i]).sum()) for one in arrays for i in range(len(one)))
    most = sum(len(one) * (len(one) - 1) // 2 for one in arrays)
    least = min(inverted, most - inverted)
    widths = np.array([j for one in arrays for j in range(2, len(one) + 1)], dtype=np.float64)
    if most <= EXACT_PAIRS:
        law = np.ones(1)
        for j in widths.astype(int).tolist():
            law = np.convolve(law, np.full(j, 1.0 / j))
        return min(2 * float(law[: least + 1].sum()), 1.0)
    best = 0.0
    for t in np.geomspace(1e-6, 50, 200).tolist():  # Chernoff
        best = min(best, float((np.log(-np.expm1(-t * widths)) - np.log(widths) - math.log(-math.expm1(-t))).sum())
                   + t * least)  # fmt: skip
    return min(2 * math.exp(best), 1.0)


def uniformity_p_value(below: Sequence[float], above: Sequence[float]) -> float:
    """How likely offsets, uniform on [0, 1), lie as unevenly as these: Kolmogorov & Smirnov, exact, both sides.

    ``below`` and ``above`` are the ends of the cell of each offset; the ends are taken that make it look more even.

    >>> uniformity_p_value([0.0] * 9, [0.001] * 9) < 1e-20
    True
    """
    n, rank = len(below), np.arange(len(below))
    if not n:
        return 1.0
    gaps = float(((rank + 1) / n - np.sort(above)).max()), float((np.sort(below) - rank / n).max())
    return min(2 * min(float(scipy.special.smirnov(n, min(max(gap, 0.0), 1.0))) for gap in gaps), 1.0)


def noise_p_value(squares: float, entries: int) -> float:
    """How likely ``entries`` standard normal numbers have squares that sum to as little or as much as these."""
    return min(
        2 * min(float(scipy.special.chdtr(entries, squares)), float(scipy.special.chdtrc(entries, squares))), 1.0
    )


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of two normal laws that lie μ deviations apart (Balle & Wang 2018)."""
    if mu <= 0:
        return 0.0
    near, far = scipy.special.ndtr([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu]).tolist()
    return float(near - math.exp(epsilon) * far)
