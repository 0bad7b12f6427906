"""What lasts of a household: its habits by hour, and its usual day; what crowds for life are formed by."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from shoal.errors import InputError
from shoal.sources.meters.forecast import Forecasts
from shoal.sources.meters.neighborhoods import means_by_time
from shoal.sources.meters.season import phases
from shoal.validation import FloatArray

#: Weight of today's curve beside the habits in :func:`likeness`.
CURVE_WEIGHT = 2.0


def hourly_habits(forecasts: Forecasts) -> FloatArray:
    """(n, 24) mean √kW by hour of the day in the training window; hours without a reading take the home's mean."""
    kw, slot = _past(forecasts)
    width = max(int(timedelta(hours=1) / forecasts.step), 1)
    return means_by_time(np.sqrt(np.maximum(kw, 0)), slot // width)


def usual_day(forecasts: Forecasts) -> FloatArray:
    """(n, steps of a day) mean kW by time of the day in the training window."""
    kw, slot = _past(forecasts)
    times, mean = np.unique(slot), means_by_time(kw, slot)
    day = np.repeat(np.nanmean(kw, axis=1)[:, None], int(timedelta(days=1) / forecasts.step), axis=1)
    day[:, times] = mean
    return day


def likeness(habits: FloatArray, curves: FloatArray) -> FloatArray:
    """(n, d) what crowds are alike in, habits h and today's curve f together: [h/√Σvar h, 2√f/√Σvar √f].

    Crowds by both are as good today as crowds by the curve, and better later (theory notes, section 10). The scales are
    functions of the multiset of rows: columns are sorted before they are summed.
    """
    roots = np.sqrt(np.maximum(curves, 0))
    return np.concatenate([habits / _scale(habits), CURVE_WEIGHT * roots / _scale(roots)], axis=1)


def _scale(values: FloatArray) -> float:
    total = float(np.sort(values, axis=0).var(axis=0).sum())
    return float(np.sqrt(total)) if total > 0 else 1.0


def _past(forecasts: Forecasts) -> tuple[FloatArray, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """(n, T) what the households used in the training window, and (T,) the time of the day, in steps."""
    past = forecasts.history
    if past is None:
        raise InputError("forecasts must come with their training window: habits are taken from it")
    place = {name: i for i, name in enumerate(past.households)}
    kw = past.kw[[place[name] for name in forecasts.households]]
    return kw, phases(past.timestamps, "day", forecasts.step)
