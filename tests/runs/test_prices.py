"""What hiding costs: against crowds formed by hand, and the two ways errors are counted."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.laws.crowds import crowds, means
from shoal.runs.prices import prices


def test_prices_are_errors_of_the_crowds_means() -> None:
    rng = np.random.default_rng(0)
    forecasts = rng.gamma(2.0, 1.0, (60, 4))
    later = forecasts + rng.normal(0.0, 0.5, forecasts.shape)
    later[::7] = np.nan
    found = prices(forecasts, later, crowd=10)
    assert found.metered
    assert [m for m, _ in found.by_crowd] == [2, 3, 5, 7, 10, 15, 20, 30]
    assert [n for n, _ in found.by_population] == [30, 60]
    member = crowds(forecasts, 10)
    released = means(forecasts, member)[member]
    exact = np.nanmean(np.abs(released - later)) / np.nanmean(np.abs(forecasts - later)) - 1
    assert dict(found.by_crowd)[10] == pytest.approx(exact)
    assert dict(found.by_population)[60] == pytest.approx(exact)
    assert found.by_crowd[0][1] < found.by_crowd[-1][1]


def test_without_later_readings_errors_are_against_the_forecast() -> None:
    forecasts = np.random.default_rng(1).gamma(2.0, 1.0, (24, 3))
    found = prices(forecasts, np.full(forecasts.shape, np.nan), crowd=5)
    assert not found.metered
    member = crowds(forecasts, 5)
    off = means(forecasts, member)[member] - forecasts
    assert dict(found.by_crowd)[5] == pytest.approx(np.sqrt((off**2).mean()) / forecasts.mean())
