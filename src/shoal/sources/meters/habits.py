"""The usual day of a household: what is stored of it for life when its crowd is formed."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from shoal.errors import InputError
from shoal.sources.meters.forecast import Forecasts
from shoal.sources.meters.neighborhoods import means_by_time
from shoal.sources.meters.season import phases
from shoal.validation import FloatArray


def usual_day(forecasts: Forecasts) -> FloatArray:
    """(n, steps of a day) mean kW by time of the day in the training window.

    >>> import shoal
    >>> readings = shoal.simulate_meters(4, 10, step_minutes=60)
    >>> usual_day(shoal.forecast(readings, order=(1, 1), train_days=7, horizon=3, season="day")).shape
    (4, 24)
    """
    past = forecasts.history
    if past is None:
        raise InputError("forecasts must come with their training window: the usual day is taken from it")
    place = {name: i for i, name in enumerate(past.households)}
    kw = past.kw[[place[name] for name in forecasts.households]]
    slot = phases(past.timestamps, "day", forecasts.step)
    day = np.repeat(np.nanmean(kw, axis=1)[:, None], int(timedelta(days=1) / forecasts.step), axis=1)
    day[:, np.unique(slot)] = means_by_time(kw, slot)
    return day
