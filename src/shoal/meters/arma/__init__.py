"""Zero-mean ARMA models of many series: exact likelihood, fitting, filtering, forecasting, simulation.

Conventions: x_t = Σ ar_i x_{t−i} + e_t + Σ ma_j e_{t−j}, Var e_t = innovation_var; NaN marks a missing sample.
"""

from shoal.meters.arma.autocovariance import autocovariance, impulse_response
from shoal.meters.arma.draws import simulate_arma
from shoal.meters.arma.fit import fit_arma
from shoal.meters.arma.models import ArmaModels
from shoal.meters.arma.predict import ArmaForecast, FilterState, filter_state, predict, stationary_state
from shoal.meters.arma.process import Conditional, condition_gaussian

__all__ = [
    "ArmaForecast",
    "ArmaModels",
    "Conditional",
    "FilterState",
    "autocovariance",
    "condition_gaussian",
    "filter_state",
    "fit_arma",
    "impulse_response",
    "predict",
    "simulate_arma",
    "stationary_state",
]
