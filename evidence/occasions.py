"""Occasions: the forecasts of all homes at one origin, what was metered later, and what crowds are formed by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import shoal
from shoal.crowds.formation import crowd_means
from shoal.crowds.membership import form_crowds
from shoal.product.sources.meters.crowd_points import points_of_homes, usual_day
from shoal.product.sources.meters.predictive_laws import phase_means, phase_numbers
from shoal.validation import FloatArray

#: Members that are promised; crowds are formed with a fifth more (``shoal.crowds.membership``).
PROMISED = 10
#: As a run forecasts by default: ARMA(6, 5), fifteen days of training, twelve steps, season of a day.
ORDER, TRAIN_DAYS, STEPS, SEASON = (6, 5), 15, 12, "day"
#: Days of readings that an attacker knows.
KNOWN_DAYS = 7


@dataclass(frozen=True)
class Habits:
    """What homes usually do in the training days, for other ways to form crowds (:mod:`evidence.blends`)."""

    day: FloatArray  #: (n, steps of a day) mean kW by time of the day
    roots: FloatArray  #: (n, 24) mean of √kW by hour
    unsteady: FloatArray  #: (n, steps of a day) mean absolute deviation from ``day``, kW
    ahead: NDArray[np.int64]  #: (k,) columns of ``day`` that the forecast covers

    def take(self, rows: Any) -> Habits:
        """Some of the homes, by position."""
        return Habits(self.day[rows], self.roots[rows], self.unsteady[rows], self.ahead)


@dataclass(frozen=True)
class Occasion:
    """Forecasts in kW at one origin, what was metered later (NaN: missing), and the points crowds are formed by."""

    households: tuple[str, ...]
    power: FloatArray  #: (n, k)
    metered: FloatArray  #: (n, k)
    points: FloatArray  #: (n, d)
    usual: FloatArray  #: (n, k) mean kW at the same times of the training days
    habits: Habits | None = None

    def take(self, rows: Any) -> Occasion:
        """Some of the homes, by position."""
        names = tuple(np.array(self.households)[rows].tolist())
        habits = None if self.habits is None else self.habits.take(rows)
        power, metered, points, usual = self.power[rows], self.metered[rows], self.points[rows], self.usual[rows]
        return Occasion(names, power, metered, points, usual, habits)

    def of(self, households: Any) -> Occasion:
        """The homes named, in this order."""
        place = {name: i for i, name in enumerate(self.households)}
        return self.take([place[name] for name in households])

    def crowds(self, size: int = PROMISED) -> NDArray[np.int64]:
        """The crowd of each home, as a run forms them where ``size`` is promised."""
        return form_crowds(self.points, size, beside=self.power, seed=0)

    def released(self, member: NDArray[np.int64]) -> FloatArray:
        """(n, k) each home's row: the mean of its crowd."""
        return np.asarray(crowd_means(self.power, member)[member])

    def price(self, member: NDArray[np.int64]) -> float:
        """Mean absolute error of the means of these crowds over that of the forecasts themselves."""
        off, without = (self.errors(rows).sum() for rows in (self.released(member), self.power))
        return float(off / without)

    def errors(self, rows: FloatArray) -> FloatArray:
        """(n,) sum over the metered steps of how far rows are off, kW."""
        return np.asarray(np.nansum(np.abs(rows - self.metered), axis=1))

    @property
    def seen(self) -> NDArray[np.int64]:
        """(n,) steps that were metered."""
        return np.asarray(np.isfinite(self.metered).sum(axis=1))


def occasion(readings: Any, origin: Any, keep: Path | None = None, name: str = "", horizon: int = STEPS) -> Occasion:
    """Forecasts of all homes at an origin; read from the folder ``keep``, where they are there, and kept in it."""
    path = None if keep is None else keep / f"{name}.npz"
    if path is not None and path.is_file():
        stored = np.load(path)
        return _occasion(**stored)
    fc = shoal.forecast(readings, order=ORDER, train_days=TRAIN_DAYS, horizon=horizon, season=SEASON, origin=origin)
    frame = readings if isinstance(readings, pl.DataFrame) else readings.frame
    later = frame.filter(pl.col("timestamp").is_between(fc.timestamps[0], fc.timestamps[-1]))
    wide = pl.DataFrame({"household": fc.households}).join(
        later.pivot("timestamp", index="household", values="kw"), on="household", how="left", maintain_order="left"
    )
    metered = wide.select(sorted(wide.columns[1:])).to_numpy().astype(np.float64)
    day, ahead = usual_day(fc), phase_numbers(fc.timestamps, "day", fc.step)
    hour = np.array([time.hour for time in fc.history.timestamps], dtype=np.int64)
    roots, _ = phase_means(np.sign(fc.training_kw) * np.sqrt(np.abs(fc.training_kw)), hour, 24)
    column = phase_numbers(fc.history.timestamps, "day", fc.step)
    unsteady, count = phase_means(np.abs(fc.training_kw - day[:, column]), column, day.shape[1])
    parts: dict[str, Any] = {
        "households": np.array(fc.households), "power": fc.power, "metered": metered, "day": day, "roots": roots,
        "unsteady": np.where(count > 0, unsteady, 0.0), "ahead": ahead,
    }  # fmt: skip
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **parts)
    return _occasion(**parts)


def _occasion(
    households: Any,
    power: FloatArray,
    metered: FloatArray,
    day: FloatArray,
    roots: FloatArray,
    unsteady: FloatArray,
    ahead: Any,
) -> Occasion:
    points, habits = points_of_homes(power, day, ahead), Habits(day, roots, unsteady, ahead)
    return Occasion(tuple(households.tolist()), power, metered, points, day[:, ahead], habits)


def own_forecasts(readings: Any, origin: Any, keep: Path | None = None, name: str = "") -> tuple[Any, FloatArray]:
    """Names and (n, k) kW: what somebody forecasts for each home who knows the last week of its readings alone."""
    path = None if keep is None else keep / f"{name}-week.npz"
    if path is not None and path.is_file():
        stored = np.load(path)
        return stored["households"], stored["power"]
    fc = shoal.forecast(readings, order=ORDER, train_days=KNOWN_DAYS, horizon=STEPS, season=SEASON, origin=origin)
    if path is not None:
        np.savez(path, households=fc.households, power=fc.power)
    return np.array(fc.households), fc.power


def days_later(origin: str, days: int) -> str:
    """The same hour so many days later."""
    return (datetime.fromisoformat(origin) + timedelta(days=days)).isoformat(timespec="minutes")
