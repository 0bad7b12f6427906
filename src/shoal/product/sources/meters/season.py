"""Log power without its season: x = ln max(p, floor) − μ, and back, p = exp(x + μ).

A home that exports has readings below zero, and no logarithm: its scale is asinh(p/s) instead, s the median of its own
|p|, about linear in what it usually draws and sends out and logarithmic far beyond; back, p = s sinh(x + μ). μ and all
that follows are the same on either scale.

μ is the mean of ln max(p, floor) at the same time of the day, or of the week, over the training window alone
(paper, section "Application to power measurements data"; the floor is repair 8 of the theory notes: the
logarithm of zero consumption must be stated, not left to chance).

With few repeats of the period the mean absorbs much of the signal: over two weeks of training each time of the week
is seen twice, so half of the variance goes into μ and predictive intervals come out too narrow by √3.
:attr:`Season.repeats` says how often each phase was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal import validation
from shoal.errors import InputError
from shoal.validation import FloatArray

#: Period name -> its days; a phase is a position in it.
PERIODS = {"day": 1, "week": 7}

#: A home with at least this share of its readings below zero exports; fewer are set to the floor, as zeros are.
LEAST_EXPORT = 0.01

#: kW; half of the coarse step of common meters (0.01 kWh in 15 minutes = 0.04 kW).
FLOOR = 0.02


@dataclass(frozen=True, repr=False)
class Season:
    """Mean log profile of each household over one period.

    ``profile`` (n, n_phases) in ln kW; ``repeats`` (n, n_phases) readings behind each entry, zero where the phase
    was never seen and the profile was borrowed from the same time on other days, or from the overall mean.
    """

    period: str
    floor: float
    profile: FloatArray
    repeats: NDArray[np.int64]
    scale: FloatArray  #: (n,) s of homes that export, kW; 0 for those on the logarithm

    def remove(self, kw: FloatArray, phase: NDArray[np.int64]) -> FloatArray:
        """(n, T) kW at the given phases (T,) to x; NaN stays NaN."""
        return np.asarray(to_scale(kw, self.floor, self.scale) - self.profile[:, phase], dtype=np.float64)

    def power(self, values: FloatArray) -> FloatArray:
        """(n, h) values on the scale of each home back to kW."""
        s = self.scale[:, None]
        with np.errstate(over="ignore"):
            return np.asarray(np.where(s > 0, s * np.sinh(values), np.exp(values)), dtype=np.float64)


def log_power(kw: FloatArray, floor: float) -> FloatArray:
    """ln max(p, floor); NaN stays NaN."""
    return np.asarray(np.log(np.maximum(kw, floor)), dtype=np.float64)


def export_scale(kw: FloatArray, floor: float) -> FloatArray:
    """(n,) the scale s of homes that export, from (n, T) readings of their own; 0 for all others."""
    seen = np.isfinite(kw)
    exports = (kw < 0).sum(axis=1) >= LEAST_EXPORT * np.maximum(seen.sum(axis=1), 1)
    scale = np.zeros(len(kw))
    if exports.any():
        scale[exports] = np.maximum(np.nanmedian(np.abs(kw[exports]), axis=1), floor)
    return scale


def to_scale(kw: FloatArray, floor: float, scale: FloatArray) -> FloatArray:
    """(n, T) readings on the scale of each home: ln max(p, floor), or asinh(p/s) where s is above zero."""
    s = scale[:, None]
    return np.where(s > 0, np.arcsinh(kw / np.where(s > 0, s, 1.0)), log_power(kw, floor))


def phases(timestamps: pl.Series, period: str, step: timedelta) -> NDArray[np.int64]:
    """Position of each instant in the day or week, on the wall clock of its zone."""
    days = PERIODS[validation.choice(tuple(PERIODS), season=period)]
    width = int(step / timedelta(seconds=1))
    second = (
        timestamps.dt.hour().cast(int) * 3600 + timestamps.dt.minute().cast(int) * 60 + timestamps.dt.second().cast(int)
    )
    slot = second.to_numpy().astype(np.int64) // width
    if days == 1:
        return slot
    weekday = timestamps.dt.weekday().to_numpy().astype(np.int64) - 1
    return np.asarray(weekday * (86400 // width) + slot, dtype=np.int64)


def fit_season(
    kw: FloatArray, phase: NDArray[np.int64], *, period: str, step: timedelta, floor: float = FLOOR
) -> Season:
    """Mean log profiles of (n, T) training readings at phases (T,); NaN entries do not count."""
    floor = validation.positive(floor=floor)
    if kw.ndim != 2 or phase.shape != kw.shape[1:]:
        raise InputError("phase must hold one entry per column of kw")
    per_day = int(timedelta(days=1) / step)
    total = per_day * PERIODS[validation.choice(tuple(PERIODS), season=period)]
    scale = export_scale(kw, floor)
    logs = to_scale(kw, floor, scale)
    profile, repeats = phase_means(logs, phase, total)
    empty = repeats == 0
    if empty.any():
        by_day, _ = phase_means(logs, phase % per_day, per_day)
        seen = np.isfinite(logs)
        overall = np.where(seen, logs, 0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        borrowed = np.where(np.isnan(by_day), overall[:, None], by_day)[:, np.arange(total) % per_day]
        profile = np.where(empty, borrowed, profile)
    return Season(period, floor, profile, repeats, scale)


def phase_means(values: FloatArray, phase: NDArray[np.int64], total: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """Mean and number of finite entries per phase; the mean is NaN where there are none.

    Entries are added in the order of time, home by home: the sums do not depend on which homes are in one array.
    """
    n = len(values)
    seen = np.isfinite(values)
    flat = (np.arange(n)[:, None] * total + phase[None, :]).ravel()
    repeats = np.bincount(flat, weights=seen.ravel(), minlength=n * total).reshape(n, total)
    sums = np.bincount(flat, weights=np.where(seen, values, 0.0).ravel(), minlength=n * total).reshape(n, total)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.where(repeats > 0, repeats, np.nan)), repeats.astype(np.int64)
