"""Has a household changed? The newest innovations against the model and against the days before.

Under the model the standardized innovations z of m new readings are independent standard normals: Σz² ~ χ²(m) and
Σz/√m ~ N(0, 1). Meters are not Gaussian and their spread varies from day to day, so those p-values alone would raise
alarms every week. The days before say how much a stretch of this length usually varies: its ln mean z², and its mean z,
are compared with theirs by Student's t for one new value. A household has drifted where both comparisons say so, in
spread or in level: a false alarm is then at most as frequent as the level says if either of the two holds.

Innovations are those of the window that the season was estimated on. Of r repeats around their mean, each keeps the
share 1 − 1/r of its variance (season.py), so a weekday seen three times looks wider than one seen twice:
:func:`comparable` takes that out. And a week's season seen twice makes a day the mirror of the same weekday before:
such days are no reference for each other and are passed over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from shoal.validation import FloatArray

#: New readings below which nothing is said.
FEWEST = 8
#: Earlier stretches below which the model's own distribution is all there is to compare with.
FEWEST_STRETCHES = 5


def comparable(z: FloatArray, repeats: NDArray[np.int64]) -> FloatArray:
    """Innovations (n, T) as if every phase had been seen equally often; NaN where it was seen once and says nothing."""
    kept = 1.0 - 1.0 / np.maximum(repeats, 1)
    usual = np.where(np.isfinite(z), kept, 0.0).sum(axis=1) / np.maximum(np.isfinite(z).sum(axis=1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(kept > 0, z * np.sqrt(usual[:, None] / kept), np.nan)


def drift_p(z: FloatArray, steps: int, period: int | None = None) -> tuple[FloatArray, FloatArray]:
    """p-values (n,) that the spread and the level of the last ``steps`` innovations are those of before.

    Args:
        z: (n, T) standardized innovations, NaN where missing.
        steps: how many of them are new.
        period: earlier stretches that overlap the new one modulo this many steps are no reference.
    """
    new = z[:, -steps:]
    count = np.isfinite(new).sum(axis=1)
    square, mean = _stretch(new, 0.0)
    m = np.maximum(count, 1)
    total = square * m
    spread = 2 * np.minimum(stats.chi2.cdf(total, m), stats.chi2.sf(total, m))
    level = 2 * stats.norm.sf(np.abs(mean) * np.sqrt(m))
    before = [_stretch(z[:, start : start + steps]) for start in _starts(z.shape[1], steps, period)]
    if before:
        squares, means = (np.stack(column, axis=1) for column in zip(*before, strict=True))
        tiny = np.finfo(np.float64).tiny
        spread = np.maximum(spread, _new_value(np.log(np.maximum(square, tiny)), np.log(np.maximum(squares, tiny))))
        level = np.maximum(level, _new_value(mean, means))
    silent = count < FEWEST
    return np.where(silent, 1.0, np.minimum(spread, 1.0)), np.where(silent, 1.0, np.minimum(level, 1.0))


def drifted(z: FloatArray, steps: int, period: int | None, level: float) -> NDArray[np.bool_]:
    """(n,) whether spread or level changed, each at half of the false-alarm ``level``."""
    spread_p, level_p = drift_p(z, steps, period)
    return np.asarray(np.minimum(spread_p, level_p) < level / 2)


def _starts(length: int, steps: int, period: int | None) -> list[int]:
    """First positions of the earlier stretches of the same length, the nearest first."""
    found = []
    for number in range(1, length // steps):
        lag = number * steps
        if period is None or min(lag % period, period - lag % period) >= steps:
            found.append(length - steps - lag)
    return found


def _stretch(z: FloatArray, least: float = 0.5) -> tuple[FloatArray, FloatArray]:
    """Mean of z² and of z per row; NaN where a share of less than ``least`` was seen."""
    seen = np.isfinite(z)
    count = seen.sum(axis=1)
    size = np.where(count >= least * z.shape[1], np.maximum(count, 1), np.nan)
    values = np.where(seen, z, 0.0)
    return np.asarray((values**2).sum(axis=1) / size), np.asarray(values.sum(axis=1) / size)


def _new_value(value: FloatArray, before: FloatArray) -> FloatArray:
    """Two-sided p (n,) of Student's t for one new value against (n, B) earlier ones; 0 where there are too few."""
    seen = np.isfinite(before)
    count = seen.sum(axis=1)
    n = np.maximum(count, 2)
    mean = np.where(seen, before, 0.0).sum(axis=1) / n
    variance = np.where(seen, (before - mean[:, None]) ** 2, 0.0).sum(axis=1) / (n - 1)
    t = np.abs(value - mean) / np.sqrt(np.maximum(variance * (1 + 1 / n), np.finfo(np.float64).tiny))
    return np.where(count >= FEWEST_STRETCHES, 2 * stats.t.sf(t, n - 1), 0.0)
