"""What a week of readings says of a home, as numbers that can be compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.validation import FloatArray

#: Least power told apart from none, kW.
FLOOR = 0.01
#: Shares of the sorted readings, and of the steps between neighboring ones, that describe a week.
LEVELS, JUMPS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0), (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
#: Bins of the histogram of power, evenly spaced in its logarithm up to 12 kW.
BINS = 32


def fingerprint(kw: FloatArray, weekend: NDArray[np.bool_]) -> tuple[FloatArray, tuple[int, ...]]:
    """(n, 7, s) readings of a week, s a day, to (n, f) numbers and where its blocks end; ``weekend`` (7,) says which.

    Blocks: mean log-power by hour on working days and at the weekend, its scatter over days, quantiles of power and of
    its steps, autocorrelations from one step to a day, and a histogram of power.
    """
    n, days, steps = kw.shape
    logs = np.log(np.maximum(kw, FLOOR))
    hours = logs.reshape(n, days, 24, steps // 24).mean(axis=3) if steps % 24 == 0 else logs
    flat = kw.reshape(n, -1)
    small = np.log(np.maximum(flat, FLOOR / 10))
    jumps = np.log(np.abs(np.diff(flat, axis=1)) + FLOOR / 10)
    centered = flat - flat.mean(axis=1, keepdims=True)
    variance = (centered**2).mean(axis=1) + 1e-9
    lags = sorted({max(1, round(steps * share)) for share in (1 / 96, 1 / 48, 1 / 24, 1 / 12, 1 / 8, 1 / 2, 1.0)})
    edges = np.linspace(np.log(FLOOR), np.log(12.0), BINS + 1)
    place = np.clip(np.searchsorted(edges, np.log(np.maximum(flat, FLOOR))) - 1, 0, BINS - 1)
    counts = np.zeros((n, BINS))
    np.add.at(counts, (np.repeat(np.arange(n), flat.shape[1]), place.ravel()), 1.0)
    parts = [
        hours[:, ~weekend].mean(axis=1),
        hours[:, weekend].mean(axis=1),
        hours.std(axis=1),
        np.quantile(small, LEVELS, axis=1).T,
        np.quantile(jumps, JUMPS, axis=1).T,
        np.stack([(centered[:, k:] * centered[:, :-k]).mean(axis=1) / variance for k in lags], axis=1),
        np.sqrt(counts / flat.shape[1]),
    ]
    return np.concatenate(parts, axis=1), tuple(np.cumsum([part.shape[1] for part in parts]).tolist())
