"""How good are the forecasts, and do the predictive intervals cover what they claim? Rolling origins.

At each origin the models are fitted on the days before it and compared with what came. The yardstick is the
seasonal naive forecast: the reading one period (day or week) earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from shoal import validation
from shoal.errors import InputError
from shoal.product.sources.meters import clock
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.predictive_laws import FLOOR, PERIODS, Forecasts, Season, log_power, phase_numbers
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.validation import FloatArray

LEVELS = (0.5, 0.8, 0.95)


@dataclass(frozen=True, repr=False)
class Backtest:
    """Errors at every origin, household and step; NaN where the truth, or the yardstick, is missing.

    ``error`` and ``naive_error`` are in kW, ``log_error`` and ``naive_log_error`` in ln kW, all forecast minus
    truth, (cases, h) with a case for each household at each origin. ``z`` is truth minus forecast in
    ln kW over the predicted standard deviation.
    """

    origins: tuple[datetime, ...]
    cases: tuple[tuple[int, str], ...]  #: (position of the origin, household)
    error: FloatArray
    naive_error: FloatArray
    log_error: FloatArray
    naive_log_error: FloatArray
    z: FloatArray
    wide_z: FloatArray  #: the same with the error of the estimated season counted in
    levels: tuple[float, ...]
    left_out: tuple[dict[str, str], ...]  #: per origin

    def __repr__(self) -> str:
        """Sizes only: a printed object must not release readings."""
        return f"Backtest({len(self.origins)} origins, {len(self.cases)} cases, {self.error.shape[1]} steps)"

    def coverage(self, *, season_error: bool = False) -> FloatArray:
        """(levels, h) share of truths inside the central predictive interval, see :meth:`Forecasts.interval`."""
        z = self.wide_z if season_error else self.z
        seen = np.isfinite(z)
        reach = [float(stats.norm.ppf(0.5 + level / 2)) for level in self.levels]
        return np.array([(np.abs(z) <= r).sum(axis=0) / np.maximum(seen.sum(axis=0), 1) for r in reach])

    def table(self) -> pl.DataFrame:
        """One row per horizon step: error of the forecast and of seasonal naive, and coverage.

        ``inside_80`` is the share of truths inside the 80 % interval, ``wide_inside_80`` that inside the interval
        which counts the error of the estimated season.
        """
        both = np.isfinite(self.error) & np.isfinite(self.naive_error)
        columns = {
            "step": np.arange(1, self.error.shape[1] + 1),
            "mae_kw": _mean(np.abs(self.error), both),
            "naive_mae_kw": _mean(np.abs(self.naive_error), both),
            "rmse_kw": np.sqrt(_mean(self.error**2, both)),
            "naive_rmse_kw": np.sqrt(_mean(self.naive_error**2, both)),
            "log_rmse": np.sqrt(_mean(self.log_error**2, both)),
            "naive_log_rmse": np.sqrt(_mean(self.naive_log_error**2, both)),
        }
        names = [f"inside_{level:.0%}".replace("%", "") for level in self.levels]
        columns |= dict(zip(names, self.coverage(), strict=True))
        columns |= dict(zip([f"wide_{n}" for n in names], self.coverage(season_error=True), strict=True))
        return pl.DataFrame(columns)


def backtest(
    readings: Readings | pl.DataFrame,
    origins: int | Sequence[datetime | str] = 4,
    *,
    every: timedelta = timedelta(days=1, hours=5),
    order: tuple[int, int] = (6, 5),
    train_days: int = 15,
    horizon: int = 12,
    season: str = "week",
    floor: float = FLOOR,
    levels: Sequence[float] = LEVELS,
) -> Backtest:
    """Forecast from several origins and compare with what came.

    ``origins`` is a number, counted back in steps of ``every`` from the last origin that leaves a whole horizon
    (the default spacing visits different times of the day), or the origins themselves.

    Args:
        readings, order, train_days, horizon, season, floor: as in :func:`shoal.forecast`.
        origins: how many, or which.
        every: distance between origins that are counted back.
        levels: coverages of the predictive intervals to check.

    Returns:
        Errors in kW and in ln kW, those of the seasonal naive forecast, and coverage; ``table()`` sums them up.

    >>> import shoal
    >>> readings = shoal.simulate_meters(4, 10, step_minutes=60)
    >>> backtest(readings, 2, order=(1, 1), train_days=7, horizon=3, season="day")
    Backtest(2 origins, 8 cases, 3 steps)
    """
    for level in levels:
        validation.probability(levels=level, below_one=True, above_zero=True)
    data = as_readings(readings)
    back = PERIODS[validation.choice(tuple(PERIODS), season=season)] * int(timedelta(days=1) / data.step)
    width = data.step // timedelta(microseconds=1)
    if isinstance(origins, int):
        count = validation.count(origins=origins)
        if every % data.step or every < data.step:
            raise InputError("every must be a multiple of the metering interval")
        last = data.find_origin(None) - validation.count(horizon=horizon) * width
        places = [last - i * (every // timedelta(microseconds=1)) for i in range(count)][::-1]
    else:
        places = [data.find_origin(o) for o in origins]
    if not places:
        raise InputError("origins must hold at least one origin")
    moments = tuple(clock.instant_in_zone(p, data.time_zone) for p in places)
    made = [forecast(data, order, train_days, horizon, season, moment, floor) for moment in moments]
    compared = [_compare(data, fc, place, back) for fc, place in zip(made, places, strict=True)]
    return Backtest(
        origins=moments,
        cases=tuple((i, name) for i, fc in enumerate(made) for name in fc.households),
        **{name: np.concatenate([one[name] for one in compared]) for name in compared[0]},
        levels=tuple(float(level) for level in levels),
        left_out=tuple(dict(fc.left_out) for fc in made),
    )


def _compare(data: Readings, fc: Forecasts, place: int, back: int) -> dict[str, FloatArray]:
    width = data.step // timedelta(microseconds=1)
    truth_window = data.window(place, fc.horizon)
    row = np.searchsorted(np.array(truth_window.households), np.array(fc.households))
    truth = truth_window.kw[row]
    periods = -(-fc.horizon // back)
    naive = data.window(place - periods * back * width, periods * back).kw[row][:, : fc.horizon]
    log_truth = log_power(truth, fc.season.floor)
    miss = log_truth - fc.log_mean
    return {
        "error": fc.power - truth,
        "naive_error": naive - truth,
        "log_error": -miss,
        "naive_log_error": log_power(naive, fc.season.floor) - log_truth,
        "z": miss / fc.error_std,
        "wide_z": miss / wide_std(fc),
    }


def wide_std(fc: Forecasts) -> FloatArray:
    """(n, h) standard deviation of ln p given the history, the error of the estimated season counted in."""
    return np.asarray(
        fc.error_std * np.sqrt(inflation(fc.season, phase_numbers(fc.timestamps, fc.season.period, fc.step)))
    )


def inflation(season: Season, phase: NDArray[np.int64]) -> FloatArray:
    """(n, len(phase)) factor on the error variance for having estimated the season: (r + 1)/(r − 1).

    Of r values with variance σ² around a mean estimated from them, the residuals have variance (1 − 1/r)σ²,
    while a new value lies (1 + 1/r)σ² from that mean. Repeats a day or a week apart count as independent;
    phases seen fewer than twice count as seen twice.
    """
    r = np.maximum(season.repeats[:, phase], 2)
    return np.asarray((r + 1) / (r - 1), dtype=np.float64)


def _mean(values: FloatArray, seen: NDArray[np.bool_]) -> FloatArray:
    return np.asarray(np.where(seen, values, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1))
