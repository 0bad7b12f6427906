"""Crowds improved by expected added error: the formula, and that exchanges only lower what they are for."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from evidence.occasions import Habits, Occasion
from evidence.refined import PER_DEVIATION, added, refined
from shoal.crowds.formation import crowd_means, least_spread_crowds


@pytest.mark.parametrize(("d", "std"), [(0.0, 1.0), (0.1, 1.0), (-0.7, 0.3), (2.0, 0.5), (5.0, 0.1), (3.0, 0.0)])
def test_added_error_is_the_expectation(d: float, std: float) -> None:
    def integrand(z: float) -> float:
        return float((abs(std * z + d) - abs(std * z)) * norm.pdf(z))

    kink = [-d / std] if std and abs(d / std) < 12 else []
    expected = quad(integrand, -12, 12, points=[0.0, *kink], limit=200)[0] if std else abs(d)
    assert added(d, std) == pytest.approx(expected, abs=1e-9)


def test_exchanges_lower_the_expected_error_and_keep_sizes() -> None:
    rng = np.random.default_rng(5)
    day = rng.gamma(2, 0.3, (61, 48))
    day[:4] += 5.0
    power, unsteady, ahead = day[:, :6] * rng.uniform(0.7, 1.4, (61, 6)), day * 0.2, np.arange(6)
    habits = Habits(day, np.sqrt(day).reshape(61, 24, 2).mean(axis=2), unsteady, ahead)
    points = np.sqrt(power)
    homes = Occasion(tuple(f"h{i}" for i in range(61)), power, power, points, day[:, ahead], habits)

    def expected(member: np.ndarray) -> float:
        rows = crowd_means(power, member)[member]
        std = PER_DEVIATION * unsteady[:, ahead]
        return sum(added(*pair) for pair in zip((rows - power).ravel(), std.ravel(), strict=True))

    start, after = least_spread_crowds(points, 12, beside=power), refined(homes, 0.0, 0.0, 12)
    assert expected(after) < expected(start)
    assert 12 <= np.bincount(after).min() <= np.bincount(after).max() <= 23
    assert len(np.unique(refined(homes, 0.2, 0.3, 12))) == len(np.unique(start))
