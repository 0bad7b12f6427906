"""Three homes of the household study: what was forecast, what would be released, and what that costs.

The paper gives a normalized mean squared error of about 1.2e-3 to 1.6e-3 at ρ = 0.45 without its definition. Three
candidates are computed here for each home, the first two as exact expectations over the noise:

    in ln W   E‖q̃ − q‖² / ‖q‖², q the log forecast in watts (its size depends on the unit: ln W and ln kW differ)
    in kW     E‖p̃ − p̂‖² / ‖p̂‖², p̂ = e^q and p̃ = e^q̃
    truth     ‖p̂ − p‖² / ‖p‖², the forecast against what came, before any noise
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.mechanism.mechanism import Mechanism
from shoal.product.sources.meters.predictive_laws import Forecasts, power_error
from shoal.product.sources.meters.quality import Readings
from shoal.validation import FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Home:
    """One home. The series are readings: they go into the figure, not into tables or text."""

    past: FloatArray
    truth: FloatArray
    forecast: FloatArray
    released: FloatArray  #: one draw with seeded noise, NOT private
    step_hours: float
    nmse_log_watts: float
    nmse_kw: float
    nmse_truth: float

    def to_dict(self) -> dict[str, float]:
        """The errors, without the readings."""
        return {
            "nmse_log_watts": self.nmse_log_watts,
            "nmse_kw": self.nmse_kw,
            "nmse_of_forecast_against_truth": self.nmse_truth,
        }


def three_homes(readings: Readings, forecasts: Forecasts, mechanism: Mechanism, seed: int) -> tuple[Home, ...]:
    """Homes at the quartiles of the past day's consumption; ``mechanism`` adds zero-mean noise to the forecast."""
    at = readings.find_origin(forecasts.origin)
    day = round(24 / _hours(forecasts))
    past, future = readings.window(at, -day), readings.window(at, forecasts.horizon)
    row = np.searchsorted(np.array(past.households), np.array(forecasts.households))
    known = np.isfinite(past.kw[row]).all(axis=1) & np.isfinite(future.kw[row]).all(axis=1)
    order = np.flatnonzero(known)[np.argsort(past.kw[row][known].mean(axis=1))]
    chosen = [int(order[int(share * (len(order) - 1))]) for share in (0.25, 0.5, 0.75)] if len(order) else []
    return tuple(_home(i, past.kw[row[i]], future.kw[row[i]], forecasts, mechanism, seed) for i in chosen)


def _hours(forecasts: Forecasts) -> float:
    return forecasts.step.total_seconds() / 3600


def _home(i: int, past: FloatArray, truth: FloatArray, forecasts: Forecasts, mechanism: Mechanism, seed: int) -> Home:
    q = forecasts.log_mean[i]
    label = forecasts.households[i]
    drawn: Any = mechanism.sample(q, label, seed=seed)
    error = nmse(q, mechanism.noise_cov[min(i, len(mechanism.noise_cov) - 1)])
    p = np.exp(q)
    return Home(
        past=past,
        truth=truth,
        forecast=p,
        released=np.exp(np.asarray(drawn)),
        step_hours=_hours(forecasts),
        nmse_log_watts=error[0],
        nmse_kw=error[1],
        nmse_truth=float(((p - truth) ** 2).sum() / (truth**2).sum()),
    )


def nmse(log_kw: FloatArray, noise_cov: FloatArray) -> tuple[float, float]:
    """Expected normalized MSE of a forecast (k,) with zero-mean Gaussian noise: in ln W, and in kW."""
    watts = log_kw + math.log(1000.0)
    in_log = float(np.trace(noise_cov) / (watts**2).sum())
    _, mse = power_error(log_kw[None], 0.0, np.diagonal(noise_cov)[None])
    return in_log, float(mse.sum() / np.exp(2 * log_kw).sum())
