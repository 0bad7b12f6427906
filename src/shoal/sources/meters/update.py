"""The next day's forecasts from those of the day before and the readings since.

Forecasts keep the readings of their training window (``Forecasts.history``). New readings move that window to a later
origin, and every home is fitted on it. Nothing else is carried along: the result is, to the last bit, what
:func:`shoal.forecast` computes at that origin from all readings, whatever the days in between. Setting out from
the old coefficients would save no time (benchmarks/README.md).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from shoal import validation
from shoal.errors import InputError
from shoal.sources.meters import window
from shoal.sources.meters.forecast import Forecasts, forecast_window
from shoal.sources.meters.quality import Readings, repair

_MICROSECOND = timedelta(microseconds=1)

ABSENT = "no new readings"


def update_forecasts(
    forecasts: Forecasts,
    readings: Readings | pl.DataFrame,
    *,
    origin: datetime | str | None = None,
    horizon: int | None = None,
) -> tuple[Forecasts, frozenset[str]]:
    """Forecasts at a later origin from those of an earlier one and the readings since.

    Order, season, floor and training days stay those of ``forecasts``. Homes are left out for the same reasons as in
    :func:`shoal.forecast`; one without new readings is forecast across the gap while enough of its window is left, and
    one that is new is fitted as soon as its readings suffice.

    Args:
        forecasts: made by :func:`shoal.forecast` or by this function.
        readings: the readings since the old origin; older ones may be among them and then replace those stored.
        origin: first instant to predict; by default right after the last readings, as in :func:`shoal.forecast`.
        horizon: steps to predict; by default as many as before.

    Returns:
        The new forecasts, and the homes with news: those with a reading between the old origin and the new one.

    >>> from datetime import datetime
    >>> import shoal
    >>> readings = shoal.simulate_meters(4, 8, step_minutes=60)
    >>> before = readings.filter(readings["timestamp"] < datetime(2024, 1, 8))
    >>> old = shoal.forecast(before, order=(1, 1), train_days=7, horizon=3, season="day")
    >>> new, news = shoal.update_forecasts(old, readings, horizon=6)
    >>> new.origin - old.origin, new.horizon, len(news)
    (datetime.timedelta(days=1), 6, 4)
    """
    if forecasts.history is None:
        raise InputError("forecasts hold no training window to go on from; make them with forecast()")
    horizon = forecasts.horizon if horizon is None else validation.count(horizon=horizon)
    data = readings if isinstance(readings, Readings) else repair(readings, interval=forecasts.step)
    zone = getattr(forecasts.timestamps.dtype, "time_zone", None)
    if data.step != forecasts.step:
        raise InputError(f"readings must come every {forecasts.step}, as those that the forecasts were made from")
    if data.time_zone != zone:
        raise InputError(f"readings must have timestamps in the zone of the forecasts ({zone}), not {data.time_zone}")
    at = window.place_origin(data, origin)
    steps, rest = divmod(at - int(forecasts.timestamps.dt.epoch("us")[0]), data.step // _MICROSECOND)
    if rest:
        raise InputError("readings must lie on the grid of those that the forecasts were made from")
    if steps <= 0:
        raise InputError("origin must lie after that of the forecasts: the readings hold nothing new")
    past, news = _moved(forecasts.history, data, at, steps)
    made = forecast_window(
        _accounted(data, past),
        past,
        at=at,
        order=forecasts.models.order,
        horizon=horizon,
        season=forecasts.season.period,
        floor=forecasts.season.floor,
        train_days=forecasts.train_days,
    )
    return made, news


def _moved(
    history: window.TrainingWindow, data: Readings, at: int, steps: int
) -> tuple[window.TrainingWindow, frozenset[str]]:
    """The training window before ``at``, new readings winning over stored ones; and the homes with new readings."""
    length = history.kw.shape[1]
    new = window.cut(data, at, -max(length, steps))
    names = np.array(sorted({*history.households, *new.households}), dtype=object)
    kw = np.full((len(names), length), np.nan)
    overlap = max(length - steps, 0)
    if history.households:
        stored = np.searchsorted(names, np.array(history.households, dtype=object))
        kw[stored, :overlap] = history.kw[:, length - overlap :]
    news: frozenset[str] = frozenset()
    if new.households:
        rows = np.searchsorted(names, np.array(new.households, dtype=object))
        kw[rows] = np.where(np.isfinite(new.kw[:, -length:]), new.kw[:, -length:], kw[rows])
        recent = np.asarray(np.isfinite(new.kw[:, -steps:]).any(axis=1))
        news = frozenset(name for name, has in zip(new.households, recent.tolist(), strict=True) if has)
    present = np.isfinite(kw).any(axis=1)
    return window.TrainingWindow(tuple(names[present].tolist()), new.timestamps[-length:], kw[present]), news


def _accounted(data: Readings, past: window.TrainingWindow) -> Readings:
    """Readings whose quality table has a row for every home of the window, also for those without new readings.

    A home that only these readings leave out is not left out of the window for it.
    """
    table = data.quality
    missing = sorted(set(past.households) - set(table["household"].to_list()))
    if missing:
        rows = pl.DataFrame({"household": missing, "verdict": "repaired", "reason": ABSENT, "gaps": "left missing"})
        counts = [c for c, kind in table.schema.items() if kind.is_integer()]
        rows = rows.with_columns(*(pl.lit(0, table.schema[c]).alias(c) for c in counts), flat=False, large=False)
        table = pl.concat([table, rows], how="diagonal").sort("household")
    here = pl.col("household").is_in(list(past.households)) & (pl.col("verdict") == "left out")
    table = table.with_columns(verdict=pl.when(here).then(pl.lit("repaired")).otherwise(pl.col("verdict")))
    return replace(data, quality=table)
