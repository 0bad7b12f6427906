"""Exact autocovariances and impulse responses, for many models at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.validation import FloatArray


def coefficient_rows(ar: Any, ma: Any, var: Any) -> tuple[FloatArray, FloatArray, FloatArray, bool]:
    """(n, p), (n, q), (n,) arrays of matching length; the flag says whether one model was given."""
    phi, theta = validation.array(ndim=(1, 2), ar=ar), validation.array(ndim=(1, 2), ma=ma)
    sigma2 = validation.array(ndim=(0, 1), var=var)
    single = phi.ndim == 1 and theta.ndim == 1 and sigma2.ndim == 0
    phi, theta, sigma2 = np.atleast_2d(phi), np.atleast_2d(theta), np.atleast_1d(sigma2)
    n = max(len(phi), len(theta), len(sigma2))
    for name, value in (("ar", phi), ("ma", theta), ("var", sigma2)):
        if len(value) not in (1, n):
            raise InputError(f"{name} must hold one row per model: expected 1 or {n}, got {len(value)}")
    if (sigma2 < 0).any():
        raise InputError("var must not be negative")
    return (
        np.broadcast_to(phi, (n, phi.shape[1])),
        np.broadcast_to(theta, (n, theta.shape[1])),
        np.broadcast_to(sigma2, (n,)),
        single,
    )


def impulse_response(ar: Any, ma: Any, n_lags: int) -> FloatArray:
    """ψ_0 … ψ_{n_lags−1} of x_t = Σ ψ_j e_{t−j}: ψ_j = ma_j + Σ ar_i ψ_{j−i}; (n_lags,) or (n, n_lags)."""
    phi, theta, _, single = coefficient_rows(ar, ma, 1.0)
    lags = validation.count(n_lags=n_lags)
    psi = np.zeros((len(phi), lags))
    psi[:, 0] = 1.0
    for j in range(1, lags):
        if j <= theta.shape[1]:
            psi[:, j] = theta[:, j - 1]
        for i in range(1, min(j, phi.shape[1]) + 1):
            psi[:, j] += phi[:, i - 1] * psi[:, j - i]
    return psi[0] if single else psi


def autocovariance(ar: Any, ma: Any, var: Any, n_lags: int) -> FloatArray:
    """γ_0 … γ_{n_lags−1} of a stationary ARMA process, without truncating its impulse response.

    Multiplying the recursion by x_{t−k} gives (Brockwell & Davis 1991, section 3.3, third method)

        γ_k − Σ_i ar_i γ_|k−i| = σ² Σ_{j≥k} ma_j ψ_{j−k},    ma_0 = 1:

    p + 1 equations for γ_0 … γ_p, and a recursion beyond. Coefficients may be (p,) or (n, p); the result is
    (n_lags,) or (n, n_lags). The models must be stationary: this is not checked here.
    """
    phi, theta, sigma2, single = coefficient_rows(ar, ma, var)
    lags = validation.count(n_lags=n_lags)
    n, p, q = len(phi), phi.shape[1], theta.shape[1]
    psi = np.atleast_2d(impulse_response(phi, theta, q + 1))
    full = np.concatenate([np.ones((n, 1)), theta], axis=1)
    right = np.zeros((n, max(lags, p + 1)))
    for k in range(min(q + 1, right.shape[1])):
        right[:, k] = sigma2 * (full[:, k:] * psi[:, : q + 1 - k]).sum(axis=1)
    system = np.zeros((n, p + 1, p + 1))
    for k in range(p + 1):
        system[:, k, k] += 1.0
        for i in range(1, p + 1):
            system[:, k, abs(k - i)] -= phi[:, i - 1]
    gamma = right.copy()
    gamma[:, : p + 1] = np.linalg.solve(system, right[:, : p + 1, None])[..., 0]
    for k in range(p + 1, lags):
        for i in range(1, p + 1):
            gamma[:, k] += phi[:, i - 1] * gamma[:, k - i]
    gamma = np.ascontiguousarray(gamma[:, :lags])
    return gamma[0] if single else gamma
