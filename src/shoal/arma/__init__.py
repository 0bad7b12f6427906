"""Zero-mean ARMA models of many series: exact likelihood, fitting, filtering, forecasting.

Conventions: x_t = Σ ar_i x_{t−i} + e_t + Σ ma_j e_{t−j}, Var e_t = innovation_var; NaN marks a missing sample.
"""

from shoal.arma.fit import ArmaModels, fit_arma
from shoal.arma.predict import ArmaForecast, impulse_response, predict

__all__ = ["ArmaForecast", "ArmaModels", "fit_arma", "impulse_response", "predict"]
