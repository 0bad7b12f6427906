"""From readings to forecasts: season, ARMA, prediction, checks, and who is left out; today, and on the next day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal import validation
from shoal.arma.fit import check_order, fit_arma
from shoal.arma.predict import LAGS, check_innovations, predict_series
from shoal.errors import InputError
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.predictive_laws import (
    FLOOR,
    PERIODS,
    Forecasts,
    export_scale,
    fit_season,
    map_arrays,
    phase_numbers,
)
from shoal.product.sources.meters.quality import NothingToForecast, Readings, TrainingWindow, as_readings

#: A household with fewer than this share of its training readings is left out.
LEAST_OBSERVED = 0.8
#: Residuals with a smaller standard deviation, in ln kW, are rounding: nothing is left to model.
FLAT = 1e-9
#: Why a home without new readings is not released.
ABSENT = "no new readings"


class ShortHistory(NothingToForecast):
    """No household has enough readings in the training window."""


def forecast(
    readings: Readings | pl.DataFrame,
    order: tuple[int, int] = (6, 5),
    train_days: int = 15,
    horizon: int = 12,
    season: str = "week",
    origin: datetime | str | None = None,
    floor: float = FLOOR,
    progress: Callable[[int, int], None] | None = None,
    *,
    export: bool = False,
    interval: Any = None,
) -> Forecasts:
    """Fit every household on the days before ``origin`` and predict the ``horizon`` steps from it on.

    x = ln max(p, floor) − seasonal mean is modeled as a zero-mean Gaussian ARMA process, fitted by exact maximum
    likelihood with missing readings skipped (paper, sections "ARMA forecasts" and "Application to power measurements
    data"). A household that cannot be fitted is reported in ``left_out`` and does not stop the others.

    Args:
        readings: a frame with household, timestamp, kw, or the :class:`Readings` of ``meter_readings``, whose
            quality table then travels along in full.
        order: (p, q) of the ARMA model.
        train_days: length of the training window, which ends at ``origin``.
        horizon: steps to predict.
        season: ``"week"`` or ``"day"``: what the seasonal mean repeats with. A week in two weeks of training is
            seen twice, which makes predictive intervals too narrow.
        origin: first instant to predict; by default right after the last readings, which one home's may move for all:
            name it for :func:`shoal.noisy_crowds`. Text is ISO 8601.
        floor: kW below which power is set to the floor before the logarithm.
        progress: called with (households fitted, households to fit).
        export: whether homes with readings below zero are forecast too, on a scale that allows it; their answers are
            then in kW alone, as a run by label has them. By default readings below zero count as missing.
        interval: timedelta or minutes between the readings of a frame; by default the most common distance. With it and
            an ``origin`` the grid is that of the origin, and no home decides whether others have a forecast.

    Returns:
        The predictive laws in ln kW, with models, checks, quality and who was left out.

    >>> import shoal
    >>> readings = shoal.simulate_meters(4, 8, step_minutes=60)
    >>> forecasts = shoal.forecast(readings, order=(1, 1), train_days=7, horizon=3, season="day")
    >>> forecasts
    Forecasts(4 households, 3 steps from 2024-01-09 00:00:00)
    """
    p, q = check_order(order)
    if p + q == 0:
        raise InputError("order must have at least one coefficient")
    train_days = validation.count(train_days=train_days)
    horizon = validation.count(horizon=horizon)
    days = PERIODS[validation.choice(tuple(PERIODS), season=season)]
    floor = validation.positive(floor=floor)
    if train_days < 2 * days:
        raise InputError(f"train_days must be at least {2 * days} for season={season!r}: two repeats of each phase")
    data = as_readings(readings, interval, origin)
    length = train_days * int(timedelta(days=1) / data.step)
    least = max(10 * (p + q + 1), 4 * max(LAGS, p + q + 2))
    if length < least:
        raise InputError(f"order does not fit: ({p}, {q}) needs {least} training readings, train_days gives {length}")
    at = data.find_origin(origin, anywhere=interval is not None)
    return _fit_window(data, data.window(at, -length), at, (p, q), train_days, horizon, season, floor, export, progress)


def _fit_window(
    data: Readings,
    past: TrainingWindow,
    at: int,
    order: tuple[int, int],
    train_days: int,
    horizon: int,
    season: str,
    floor: float,
    export: bool,
    progress: Callable[[int, int], None] | None = None,
) -> Forecasts:
    """Fit the homes of a training window that ends at ``at``, microseconds of the epoch, and forecast from there."""
    n, length = past.kw.shape
    if horizon > length:
        raise InputError(f"horizon must not exceed the training window of {length} steps", argument="horizon")
    below = np.zeros(n, dtype=np.int64)
    if not export:
        below = (past.kw < 0).sum(axis=1)
        past = replace(past, kw=np.where(past.kw < 0, np.nan, past.kw))
    kw, step = past.kw, data.step
    reasons = _reasons_to_leave_out(kw, floor, train_days, below)
    rows = np.flatnonzero(reasons == "")
    if not len(rows):
        seen = int(np.isfinite(kw).sum(axis=1).max(initial=0))
        days = int(seen * step / timedelta(days=1) / LEAST_OBSERVED)
        enough = f"; train_days {days} would do" if 1 <= days < train_days else ""
        raise ShortHistory(
            f"readings: no household can be fitted. train_days={train_days} needs {length} readings before origin "
            f"(at least {LEAST_OBSERVED:.0%} of them); the fullest household has {seen}, or is constant{enough}"
        )
    phase = phase_numbers(past.timestamps, season, step)
    profile = fit_season(kw[rows], phase, period=season, step=step, floor=floor)
    x = profile.residuals(kw[rows], phase)
    varies = np.nanstd(x, axis=1) > FLAT
    if not varies.any():
        raise NothingToForecast("readings: no household varies beyond its season in the training window")
    reasons[rows[~varies]] = "no variation beyond the season"
    models = fit_arma(x[varies], order=order, progress=progress)
    reasons[rows[varies][~models.ok]] = [f"model not fitted: {status}" for status in models.status[~models.ok]]
    if not models.ok.any():
        raise NothingToForecast(f"order does not fit: no household's model of order {order} could be estimated")
    fitted, models = np.flatnonzero(varies)[models.ok], models.take(models.ok)
    rows, profile = rows[fitted], map_arrays([profile], lambda arrays: arrays[0][fitted])
    ahead = predict_series(models, x[fitted], horizon)
    future = clock.grid_instants(at, step, horizon, data.time_zone)
    part = profile.profile[:, phase_numbers(future, season, step)]
    checks = check_innovations(ahead.innovations, sum(order))
    names = np.array(past.households, dtype=object)
    # trained and floored count readings of the window, borrowed phases without one; fit names the model of the fallback
    # order that was used, "full" being the one asked for; model is the verdict of the checks.
    with np.errstate(invalid="ignore"):
        floored = ((kw < floor) & ~(export_scale(kw, floor)[:, None] > 0)).sum(axis=1)
    window = {"trained": np.isfinite(kw).sum(axis=1), "floored": floored, "dropped": reasons.astype(str)}
    model = {"borrowed": (profile.repeats == 0).sum(axis=1), "fit": models.status.tolist(), "model": checks.verdict}
    quality = data.quality
    for homes, columns in ((names, window), (names[rows], model)):
        quality = quality.join(pl.DataFrame({"household": homes.tolist(), **columns}), on="household", how="left")
    dropped = pl.col("dropped") != ""
    return Forecasts(
        households=tuple(names[rows].tolist()),
        timestamps=future,
        log_mean=part + ahead.mean,
        error_cov=ahead.cov,
        mean_cov=ahead.mean_cov,
        season_part=part,
        season=profile,
        models=models,
        checks=checks,
        quality=quality.with_columns(
            verdict=pl.when(dropped).then(pl.lit("left out")).otherwise("verdict"),
            reason=pl.when(dropped).then("dropped").otherwise("reason"),
        ).drop("dropped"),
        left_out={name: why for name, why in data.left_out.items() if name not in set(past.households)}
        | {name: why for name, why in zip(past.households, reasons.tolist(), strict=True) if why},
        step=step,
        train_days=train_days,
        history=past,
    )


def _reasons_to_leave_out(
    kw: NDArray[Any], floor: float, train_days: int, below: NDArray[np.int64]
) -> NDArray[np.object_]:
    """(n,) reason why the training window (n, T) rules a household out, "" where it does not.

    ``below`` counts readings below zero that are missing from the window, because export was not asked for.
    """
    seen = np.isfinite(kw)
    floored = np.where(export_scale(kw, floor)[:, None] > 0, kw, np.maximum(kw, floor))
    flat = np.where(seen, floored, -np.inf).max(axis=1) <= np.where(seen, floored, np.inf).min(axis=1)
    length = kw.shape[1]
    count, least = seen.sum(axis=1), LEAST_OBSERVED * length
    reasons = np.full(len(kw), "", dtype=object)
    reasons[flat] = "constant in the training window, or below the floor throughout"
    rest = f"fewer than {LEAST_OBSERVED:.0%} of the {length} readings that {train_days} days need"
    ended = ~seen[:, -length // 5 :].any(axis=1)
    late = ~seen[:, : length // 5].any(axis=1)
    reasons[count < least] = f"too many gaps: {rest}"
    reasons[(count < least) & late] = f"too short a history: {rest}"
    reasons[(count < least) & ended] = f"ended before the forecast begins: {rest}"
    reasons[count == 0] = "no readings in the training window"
    reasons[(count < least) & (count + below >= least)] = (
        f"below zero too often (export?): fewer than {LEAST_OBSERVED:.0%} of the readings of {train_days} days are "
        "consumption"
    )
    return reasons


def update_forecasts(
    forecasts: Forecasts,
    readings: Readings | pl.DataFrame,
    *,
    origin: datetime | str | None = None,
    horizon: int | None = None,
    export: bool = False,
) -> tuple[Forecasts, frozenset[str]]:
    """Forecasts at a later origin from those of an earlier one and the readings since.

    Forecasts keep the readings of their training window (``Forecasts.history``). New readings move that window to a
    later origin, and every home is fitted on it. Nothing else is carried along: the result is, to the last bit, what
    :func:`shoal.forecast` computes at that origin from all readings, whatever the days in between.

    Order, season, floor and training days stay those of ``forecasts``. Homes are left out for the same reasons as in
    :func:`shoal.forecast`; one without new readings is forecast across the gap while enough of its window is left, and
    one that is new is fitted as soon as its readings suffice.

    Args:
        forecasts: made by :func:`shoal.forecast` or by this function.
        readings: the readings since the old origin; older ones may be among them and then replace those stored.
        origin: first instant to predict; by default right after the last readings, as in :func:`shoal.forecast`.
        horizon: steps to predict; by default as many as before.
        export: as in :func:`shoal.forecast`, which made the forecasts.

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
    history, step = forecasts.history, forecasts.step
    length = history.kw.shape[1]
    if length * step != timedelta(days=forecasts.train_days):
        raise InputError("forecasts hold no training window to go on from; make them with forecast()")
    data = as_readings(readings, step)
    zone = getattr(forecasts.timestamps.dtype, "time_zone", None)
    if data.step != step:
        raise InputError(f"readings must come every {step}, as those that the forecasts were made from")
    if data.time_zone != zone:
        had, has = (f"the time zone {one}" if one else "no time zone" for one in (zone, data.time_zone))
        raise InputError(
            f"time_zone: the readings so far had {had}, and these have {has}; write their timestamps as before, or "
            "read them with the same time_zone="
        )
    at = data.find_origin(origin)
    steps, rest = divmod(at - int(forecasts.timestamps.dt.epoch("us")[0]), step // clock.MICROSECOND)
    if rest:
        raise InputError("readings must lie on the grid of those that the forecasts were made from")
    if steps <= 0:
        raise InputError(
            "origin must lie after that of the forecasts: the readings hold nothing new", argument="origin"
        )
    new = data.window(at, -max(length, steps))
    names = sorted({*history.households, *new.households})
    place = {name: i for i, name in enumerate(names)}
    kw, overlap = np.full((len(names), length), np.nan), max(length - steps, 0)
    kw[[place[name] for name in history.households], :overlap] = history.kw[:, length - overlap :]
    rows = [place[name] for name in new.households]
    kw[rows] = np.where(np.isfinite(new.kw[:, -length:]), new.kw[:, -length:], kw[rows])
    news = np.asarray((new.kw[:, -steps:] >= (-np.inf if export else 0.0)).any(axis=1))
    there = np.flatnonzero(np.isfinite(kw).any(axis=1))
    past = TrainingWindow(tuple(names[i] for i in there), new.timestamps[-length:], kw[there])
    moved = _fit_window(
        replace(data, quality=_with_absent_homes(data.quality, past.households)),
        past,
        at,
        forecasts.models.order,
        forecasts.train_days,
        forecasts.horizon if horizon is None else validation.count(horizon=horizon),
        forecasts.season.period,
        forecasts.season.floor,
        export,
    )
    return moved, frozenset(new.households[i] for i in np.flatnonzero(news))


def _with_absent_homes(table: pl.DataFrame, homes: tuple[str, ...]) -> pl.DataFrame:
    """Add a row to a quality table for every home of the window that has no new readings.

    A home that only the new readings leave out is not left out of the window for it.
    """
    missing = sorted(set(homes) - set(table["household"].to_list()))
    if missing:
        rows = pl.DataFrame({"household": missing, "verdict": "repaired", "reason": ABSENT})
        counts = [c for c, kind in table.schema.items() if kind.is_integer()]
        rows = rows.with_columns(*(pl.lit(0, table.schema[c]).alias(c) for c in counts), flat=False, large=False)
        table = pl.concat([table, rows], how="diagonal").sort("household")
    here = pl.col("household").is_in(list(homes)) & (pl.col("verdict") == "left out")
    return table.with_columns(verdict=pl.when(here).then(pl.lit("repaired")).otherwise("verdict"))
