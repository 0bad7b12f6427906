"""Forecasts from a finite past: conditional mean, joint error covariance, covariance of the mean; does the model hold?

Three questions are asked of the innovations (x_t − E[x_t | past]) / sd[x_t | past] of every series:

- Gaussian: Jarque–Bera, n/6 (skewness² + (kurtosis − 3)²/4) ~ χ²(2) (Jarque & Bera 1987).
- White: Ljung–Box, n(n+2) Σ_{l≤L} r_l²/(n−l) ~ χ²(L − p − q) (Ljung & Box 1978).
- Stationary: equal level (Welch's t) and equal spread (Brown–Forsythe 1974) of the innovations in the two
  halves of the training window.

The verdict matters for ``marginal``, whose guarantee needs the model to be true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from shoal import validation
from shoal.arma.fit import ArmaModels
from shoal.arma.likelihood import run_kalman_filter, set_stationary_law
from shoal.errors import InputError
from shoal.validation import FloatArray

#: Lags in the whiteness test: six hours of quarter-hours.
LAGS = 24
#: A model fails a test with a smaller p-value.
LEVEL = 0.01
#: What is asked of every household's innovations.
QUESTIONS = ("gaussian", "white", "stationary")


@dataclass(frozen=True)
class ArmaForecast:
    """The law of the next h samples given the past; NaN for rows without a model."""

    mean: FloatArray  #: (n, h) E[x^f | x^o] = Σ^{fo}(Σ^o)⁻¹x^o
    cov: FloatArray  #: (n, h, h) of the prediction error, Σ^f − Σ^{fo}(Σ^o)⁻¹Σ^{of}
    mean_cov: FloatArray  #: (n, h, h) of the conditional mean when the past is not known, Σ^{fo}(Σ^o)⁻¹Σ^{of}
    innovations: FloatArray  #: (n, T) of the past, (x_t − E[x_t | before]) / sd[x_t | before]: N(0, 1) if all is true


def predict_series(models: ArmaModels, past: Any, horizon: int) -> ArmaForecast:
    """Forecast each series ``horizon`` steps ahead, exactly, from its finite past (n, T), NaN where one is missing.

    With O_k = e_1'A^k and the impulse response ψ, x_{T+k} = O_k s + Σ_{j≤k} ψ_{k−j} e_{T+j}, so the error covariance
    is O P O' + σ²ΨΨ' and the covariance of the mean is O (σ²V − P) O', P the covariance of the filtered state.
    Equal to conditioning on the T × T Toeplitz covariance, at the cost of one pass of the Kalman filter.
    """
    h = validation.count(horizon=horizon)
    x = validation.array(ndim=2, finite=False, past=past)
    n, r = len(models), models.n_states
    if len(x) != n:
        raise InputError(f"past must have one row per model: expected ({n}, T), got shape {x.shape}")
    if np.isinf(x[models.ok]).any():
        raise InputError("past must be finite, or NaN where missing, in every row that has a model")
    mean, cov, before = np.full((n, r), np.nan), np.full((n, r, r), np.nan), np.full((n, r, r), np.nan)
    z, no_slopes = np.full(x.shape, np.nan), np.empty((0, x.shape[1]))
    for row in np.flatnonzero(models.ok):
        ar, ma, var = models.ar[row].copy(), models.ma[row].copy(), models.innovation_var[row]
        set_stationary_law(ar, ma, mean[row], cov[row])
        before[row] = cov[row] * var
        run_kalman_filter(x[row], ar, ma, mean[row], cov[row], z[row], no_slopes)
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
        cov=_propagate_covariance(rows, cov) + noise,
        mean_cov=_propagate_covariance(rows, before - cov),
        innovations=z,
    )


def impulse_response(ar: FloatArray, ma: FloatArray, n_lags: int) -> FloatArray:
    """Return ψ_0 … ψ_{n_lags−1} of x_t = Σ ψ_j e_{t−j}, of one model or of rows of them.

    ψ_j = ma_j + Σ ar_i ψ_{j−i}.
    """
    psi = np.zeros((*ar.shape[:-1], n_lags))
    psi[..., 0] = 1.0
    for j in range(1, n_lags):
        if j <= ma.shape[-1]:
            psi[..., j] = ma[..., j - 1]
        for i in range(1, min(j, ar.shape[-1]) + 1):
            psi[..., j] += ar[..., i - 1] * psi[..., j - i]
    return psi


def _propagate_covariance(rows: FloatArray, cov: FloatArray) -> FloatArray:
    """Return R P R', symmetric, for stacks of rows R and of covariances P."""
    product = rows @ cov @ rows.transpose(0, 2, 1)
    return np.asarray(0.5 * (product + product.transpose(0, 2, 1)))


# ------------------------------------------------------------------ does the model hold?


@dataclass(frozen=True)
class InnovationChecks:
    """Model checks, one entry per series; a p-value below ``level`` answers the question with no."""

    level: float
    excess_kurtosis: FloatArray
    gaussian_p: FloatArray
    white_p: FloatArray
    level_p: FloatArray
    spread_p: FloatArray

    @property
    def holds(self) -> dict[str, NDArray[np.bool_]]:
        """Question -> (n,) whether the model of each series passes it."""
        p_values = (self.gaussian_p, self.white_p, 2 * np.minimum(self.level_p, self.spread_p))
        return {name: np.asarray(p >= self.level) for name, p in zip(QUESTIONS, p_values, strict=True)}

    @property
    def verdict(self) -> tuple[str, ...]:
        """Per series ``"holds"`` or what does not: ``"not gaussian, not white"``."""
        failed = [np.where(passed, "", f", not {name}") for name, passed in self.holds.items()]
        return tuple("".join(texts).removeprefix(", ") or "holds" for texts in zip(*failed, strict=True))


def check_innovations(innovations: FloatArray, coefficients: int) -> InnovationChecks:
    """Check models with ``coefficients`` p + q by the innovations (n, T) of their series (:class:`ArmaForecast`)."""
    lags, length = max(LAGS, coefficients + 2), innovations.shape[1]
    if length < 4 * lags:
        raise InputError(f"series must hold at least {4 * lags} readings to check {lags} lags")
    n = np.isfinite(innovations).sum(axis=1)
    z = innovations - np.nanmean(innovations, axis=1, keepdims=True)
    z /= np.maximum(np.nanstd(z, axis=1, keepdims=True), np.finfo(float).tiny)
    square = z * z  # powers above two are slow
    skewness, excess = np.nanmean(square * z, axis=1), np.nanmean(square * square, axis=1) - 3
    gaussian = scipy.special.chdtrc(2, n / 6 * (skewness**2 + excess**2 / 4))
    white = scipy.special.chdtrc(lags - coefficients, _ljung_box_sums(z, lags) * (n + 2) / n)
    # Brown–Forsythe for two groups is Student's t on the distances to each group's median: F = t².
    halves = innovations[:, : length // 2], innovations[:, length // 2 :]
    away = [np.abs(half - np.nanmedian(half, axis=1, keepdims=True)) for half in halves]
    means, spreads = _p_of_equal_means(*halves, one_variance=False), _p_of_equal_means(*away, one_variance=True)
    return InnovationChecks(LEVEL, excess, gaussian, white, means, spreads)


def _ljung_box_sums(z: FloatArray, lags: int) -> FloatArray:
    """Return (n,) Σ_l r_l² · pairs of standardized rows; with gaps the number of pairs takes the place of n − l."""
    seen = np.isfinite(z).astype(np.float64)
    z = np.where(seen > 0, z, 0.0)
    total = np.zeros(len(z))
    for lag in range(1, lags + 1):
        product, pairs = (np.einsum("nt,nt->n", x[:, lag:], x[:, :-lag]) for x in (z, seen))
        total += product**2 / np.maximum(pairs, 1)
    return total


def _p_of_equal_means(one: FloatArray, two: FloatArray, *, one_variance: bool) -> FloatArray:
    """Return per row the p-value of Student's t test of two samples with gaps, of Welch's where variances may differ.

    As SciPy's ``ttest_ind``, whose module takes longer to load than the models of 500 series to fit. 0 where undefined.
    """
    means, variances, n = zip(*(_row_moments(values) for values in (one, two)), strict=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = n[0] + n[1] - 2
        if one_variance:
            pooled = ((n[0] - 1) * variances[0] + (n[1] - 1) * variances[1]) / freedom
            variances = (pooled, pooled)
        of_mean = variances[0] / n[0], variances[1] / n[1]
        if not one_variance:
            freedom = (of_mean[0] + of_mean[1]) ** 2 / (of_mean[0] ** 2 / (n[0] - 1) + of_mean[1] ** 2 / (n[1] - 1))
        t = (means[0] - means[1]) / np.sqrt(of_mean[0] + of_mean[1])
    return np.asarray(np.nan_to_num(2 * scipy.special.stdtr(freedom, -np.abs(t))))


def _row_moments(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean, unbiased variance and number of the entries seen, per row."""
    return np.nanmean(values, axis=1), np.nanvar(values, axis=1, ddof=1), np.isfinite(values).sum(axis=1)
