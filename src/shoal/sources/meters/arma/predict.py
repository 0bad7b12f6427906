"""Forecasts from a finite past: conditional mean, joint error covariance, and the covariance of the mean itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.sources.meters.arma.kalman import run_filter, stationary_start
from shoal.sources.meters.arma.models import ArmaModels
from shoal.validation import FloatArray


@dataclass(frozen=True)
class FilterState:
    """What the past says about the future: the law of the state s of ``state.py`` after the last sample.

    Attributes:
        mean: (n, r) conditional means; NaN for rows without a model.
        cov: (n, r, r) conditional covariances, in the units of the series.
    """

    mean: FloatArray
    cov: FloatArray

    def take(self, rows: Any) -> FilterState:
        """The states of some series: positions or a mask."""
        return FilterState(self.mean[rows], self.cov[rows])


@dataclass(frozen=True)
class ArmaForecast:
    """The law of the next h samples given the past.

    Attributes:
        mean: (n, h) conditional mean, E[x^f | x^o] = Σ^{fo}(Σ^o)⁻¹x^o.
        cov: (n, h, h) prediction-error covariance, Σ^f − Σ^{fo}(Σ^o)⁻¹Σ^{of}.
        mean_cov: (n, h, h) covariance of the conditional mean when the past is not known, Σ^{fo}(Σ^o)⁻¹Σ^{of}.
        state: the filter state the forecast starts from.
    """

    mean: FloatArray
    cov: FloatArray
    mean_cov: FloatArray
    state: FilterState


def filter_state(models: ArmaModels, series: Any, state: FilterState | None = None) -> FilterState:
    """What :func:`filtered` leaves at the end."""
    return filtered(models, series, state)[0]


def filtered(models: ArmaModels, series: Any, state: FilterState | None = None) -> tuple[FilterState, FloatArray]:
    """Run the Kalman filter over each row, from stationarity or from an earlier state.

    Filtering a series at once or piece by piece, each from the last state, gives the same result. With the state come
    the standardized innovations (x_t − E[x_t | past]) / sd[x_t | past], (n, T), NaN where a sample is missing:
    independent standard normals if the model is true.

    Args:
        models: n models.
        series: (n, T) array, NaN where a sample is missing.
        state: the state before the first sample; the stationary law by default.
    """
    try:
        x = np.ascontiguousarray(series, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("series must be an array of numbers with equal row lengths") from error
    if x.ndim != 2 or len(x) != len(models):
        raise InputError(f"series must have one row per model: expected ({len(models)}, T), got shape {x.shape}")
    if np.isinf(x[models.ok]).any():
        raise InputError("series must be finite, or NaN where missing, in every row that has a model")
    before = stationary_state(models) if state is None else state
    if before.mean.shape != (len(models), models.n_states):
        raise InputError("state must belong to the same models: its shape does not match")
    mean, cov = before.mean.copy(), before.cov.copy()
    z, no_slopes = np.full(x.shape, np.nan), np.empty((0, x.shape[1]))
    for row in np.flatnonzero(models.ok):
        var = models.innovation_var[row]
        cov[row] /= var
        run_filter(x[row], models.ar[row].copy(), models.ma[row].copy(), mean[row], cov[row], z[row], no_slopes)
        cov[row] *= var
        z[row] /= np.sqrt(var)
    return FilterState(mean, cov), z


def stationary_state(models: ArmaModels) -> FilterState:
    """The law of the state before anything was seen: mean zero, covariance σ²V."""
    n, r = len(models), models.n_states
    mean, cov = np.full((n, r), np.nan), np.full((n, r, r), np.nan)
    for row in np.flatnonzero(models.ok):
        stationary_start(models.ar[row].copy(), models.ma[row].copy(), mean[row], cov[row])
        cov[row] *= models.innovation_var[row]
    return FilterState(mean, cov)


def predict(models: ArmaModels, past: Any, horizon: int) -> ArmaForecast:
    """Forecast each series ``horizon`` steps ahead, exactly, from its finite past.

    With O_k = e_1'A^k and the impulse response ψ, x_{T+k} = O_k s + Σ_{j≤k} ψ_{k−j} e_{T+j}, so the error covariance
    is O P O' + σ²ΨΨ' and the covariance of the mean is O (σ²V − P) O', P the covariance of the filtered state.
    Equal to conditioning on the T × T Toeplitz covariance, at the cost of one filter pass.

    Args:
        models: n models.
        past: (n, T) array, NaN where missing, or the :class:`FilterState` it left.
        horizon: steps ahead.
    """
    h = validation.count(horizon=horizon)
    state = past if isinstance(past, FilterState) else filter_state(models, past)
    n, r = len(models), models.n_states
    if state.mean.shape != (n, r):
        raise InputError("past must belong to the same models: the shape of the state does not match")
    phi = np.zeros((n, r))
    phi[:, : models.order[0]] = np.where(models.ok[:, None], models.ar, 0.0)
    rows = np.zeros((n, h, r))
    rows[:, 0, 0] = 1.0
    for k in range(1, h):
        rows[:, k, 0] = (rows[:, k - 1] * phi).sum(axis=1)
        rows[:, k, 1:] = rows[:, k - 1, :-1]
    psi = impulse_response(phi, np.where(models.ok[:, None], models.ma, 0.0), h)
    response = np.zeros((n, h, h))
    for k in range(h):
        response[:, k, : k + 1] = psi[:, k::-1]
    noise = models.innovation_var[:, None, None] * (response @ response.transpose(0, 2, 1))
    known = stationary_state(models).cov - state.cov
    return ArmaForecast(
        mean=np.einsum("nkr,nr->nk", rows, state.mean),
        cov=_sandwich(rows, state.cov) + noise,
        mean_cov=_sandwich(rows, known),
        state=state,
    )


def impulse_response(ar: FloatArray, ma: FloatArray, n_lags: int) -> FloatArray:
    """ψ_0 … ψ_{n_lags−1} of x_t = Σ ψ_j e_{t−j}, ψ_j = ma_j + Σ ar_i ψ_{j−i}, of one model or of rows of them."""
    psi = np.zeros((*ar.shape[:-1], n_lags))
    psi[..., 0] = 1.0
    for j in range(1, n_lags):
        if j <= ma.shape[-1]:
            psi[..., j] = ma[..., j - 1]
        for i in range(1, min(j, ar.shape[-1]) + 1):
            psi[..., j] += ar[..., i - 1] * psi[..., j - i]
    return psi


def _sandwich(rows: FloatArray, cov: FloatArray) -> FloatArray:
    product = rows @ cov @ rows.transpose(0, 2, 1)
    return np.asarray(0.5 * (product + product.transpose(0, 2, 1)))
