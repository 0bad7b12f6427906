"""Forecasts from a finite past: conditional mean, joint error covariance, and the covariance of the mean itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.sources.meters.arma.likelihood import run_filter, stationary_start
from shoal.sources.meters.arma.models import ArmaModels
from shoal.validation import FloatArray


@dataclass(frozen=True)
class ArmaForecast:
    """The law of the next h samples given the past; NaN for rows without a model.

    Attributes:
        mean: (n, h) conditional mean, E[x^f | x^o] = Σ^{fo}(Σ^o)⁻¹x^o.
        cov: (n, h, h) prediction-error covariance, Σ^f − Σ^{fo}(Σ^o)⁻¹Σ^{of}.
        mean_cov: (n, h, h) covariance of the conditional mean when the past is not known, Σ^{fo}(Σ^o)⁻¹Σ^{of}.
        innovations: (n, T) of the past, (x_t − E[x_t | before]) / sd[x_t | before], NaN where a sample is missing:
            independent standard normals if the model is true.
    """

    mean: FloatArray
    cov: FloatArray
    mean_cov: FloatArray
    innovations: FloatArray


def predict(models: ArmaModels, past: Any, horizon: int) -> ArmaForecast:
    """Forecast each series ``horizon`` steps ahead, exactly, from its finite past.

    With O_k = e_1'A^k and the impulse response ψ, x_{T+k} = O_k s + Σ_{j≤k} ψ_{k−j} e_{T+j}, so the error covariance
    is O P O' + σ²ΨΨ' and the covariance of the mean is O (σ²V − P) O', P the covariance of the filtered state.
    Equal to conditioning on the T × T Toeplitz covariance, at the cost of one pass of the Kalman filter.

    Args:
        models: n models.
        past: (n, T) array, NaN where a sample is missing.
        horizon: steps ahead.
    """
    h = validation.count(horizon=horizon)
    x = _past(models, past)
    n, r = len(models), models.n_states
    mean, cov, before = np.full((n, r), np.nan), np.full((n, r, r), np.nan), np.full((n, r, r), np.nan)
    z, no_slopes = np.full(x.shape, np.nan), np.empty((0, x.shape[1]))
    for row in np.flatnonzero(models.ok):
        ar, ma, var = models.ar[row].copy(), models.ma[row].copy(), models.innovation_var[row]
        stationary_start(ar, ma, mean[row], cov[row])
        before[row] = cov[row] * var
        run_filter(x[row], ar, ma, mean[row], cov[row], z[row], no_slopes)
        cov[row] *= var
        z[row] /= np.sqrt(var)
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
    return ArmaForecast(
        mean=np.einsum("nkr,nr->nk", rows, mean),
        cov=_sandwich(rows, cov) + noise,
        mean_cov=_sandwich(rows, before - cov),
        innovations=z,
    )


def _past(models: ArmaModels, series: Any) -> FloatArray:
    try:
        x = np.ascontiguousarray(series, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("past must be an array of numbers with equal row lengths") from error
    if x.ndim != 2 or len(x) != len(models):
        raise InputError(f"past must have one row per model: expected ({len(models)}, T), got shape {x.shape}")
    if np.isinf(x[models.ok]).any():
        raise InputError("past must be finite, or NaN where missing, in every row that has a model")
    return x


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
