"""ARMA models that the tests of meters start from, draws from them, and slow references in closed form."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from shoal.sources.meters.arma import ArmaModels, impulse_response
from shoal.sources.meters.arma.likelihood import profile, state_factor


def from_partials(partials: np.ndarray) -> np.ndarray:
    """The coefficients c of 1 − Σ c_j B^j with these partial autocorrelations."""
    c = np.zeros(0)
    for r in partials:
        c = np.append(c - r * c[::-1], r)
    return c


def stable_model(order: tuple[int, int], seed: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """(ar, ma), stationary and invertible: the partial autocorrelations are tanh of normals of this spread."""
    partials = np.tanh(np.random.default_rng(seed).normal(size=sum(order)) * spread)
    return from_partials(partials[: order[0]]), -from_partials(partials[order[0] :])


def stable_models(order: tuple[int, int], seeds: range, var: float | np.ndarray, spread: float = 0.5) -> ArmaModels:
    rows = [stable_model(order, seed, spread) for seed in seeds]
    return given_models(np.array([r[0] for r in rows]), np.array([r[1] for r in rows]), var)


def given_models(ar: np.ndarray, ma: np.ndarray, var: float | np.ndarray) -> ArmaModels:
    """Models with known coefficients: (p,) or (n, p), (q,) or (n, q), number or (n,)."""
    ar, ma = np.array(ar, dtype=float, ndmin=2), np.array(ma, dtype=float, ndmin=2)
    n = len(ar)
    return ArmaModels(
        order=(ar.shape[1], ma.shape[1]),
        ar=ar,
        ma=ma,
        innovation_var=np.broadcast_to(np.asarray(var, dtype=float), (n,)).copy(),
        log_likelihood=np.full(n, np.nan),
        ok=np.ones(n, dtype=bool),
        converged=np.ones(n, dtype=bool),
        status=np.full(n, "full"),
        n_obs=np.zeros(n, dtype=np.int64),
    )


def log_likelihood(x: np.ndarray, ar: np.ndarray, ma: np.ndarray, var: float) -> float:
    """Exact Gaussian log-likelihood of the observed samples, NaN where one is missing; −∞ when not stationary."""
    value, total, count = profile(x, np.concatenate([ar, ma]), ar.size, np.empty(x.size), np.empty((0, x.size)))
    if not math.isfinite(value):
        return -math.inf
    return float(-value - 0.5 * (count * math.log(2.0 * math.pi * var / total) + total / var))


def simulate_arma(models: ArmaModels, n_samples: int, *, seed: int = 0) -> np.ndarray:
    """One series of ``n_samples`` per model, (n, n_samples), stationary from the first sample.

    The state is drawn from its stationary law; x_t = s_t[0] + e_t and s_{t+1} = A s_t + K e_t (``likelihood.py``).
    """
    r, (p, q) = models.n_states, models.order
    noise = np.random.default_rng(seed).standard_normal((len(models), r + n_samples))
    phi, gain = np.zeros((2, len(models), r))
    phi[:, :p] = models.ar
    gain[:, :q] = models.ma
    gain += phi
    state = np.empty((len(models), r))
    for row, z in enumerate(noise[:, :r]):
        factor = np.empty((r, r))
        assert state_factor(models.ar[row].copy(), models.ma[row].copy(), factor)
        state[row] = factor @ z
    out = np.empty((len(models), n_samples))
    for t, e in enumerate(noise[:, r:].T):
        first = state[:, :1]
        out[:, t] = first[:, 0] + e
        state = phi * first + np.pad(state[:, 1:], ((0, 0), (0, 1))) + gain * e[:, None]
    return np.sqrt(models.innovation_var)[:, None] * out


def autocovariance(ar: np.ndarray, ma: np.ndarray, var: float, n_lags: int) -> np.ndarray:
    """γ_0 … γ_{n_lags−1} of one model, without truncating its impulse response.

    Multiplying the recursion by x_{t−k} gives (Brockwell & Davis 1991, section 3.3, third method)

        γ_k − Σ_i ar_i γ_|k−i| = σ² Σ_{j≥k} ma_j ψ_{j−k},    ma_0 = 1:

    p + 1 equations for γ_0 … γ_p, and a recursion beyond.
    """
    ar, full = np.asarray(ar, dtype=float), np.r_[1.0, ma]
    p, psi = len(ar), impulse_response(ar, np.asarray(ma, dtype=float), len(full))
    right = np.zeros(max(n_lags, p + 1))
    for k in range(min(len(full), len(right))):
        right[k] = var * full[k:] @ psi[: len(full) - k]
    system = np.eye(p + 1)
    for k in range(p + 1):
        for i in range(1, p + 1):
            system[k, abs(k - i)] -= ar[i - 1]
    gamma = np.zeros(len(right))
    gamma[: p + 1] = np.linalg.solve(system, right[: p + 1])
    for k in range(p + 1, len(right)):
        gamma[k] = right[k] + ar @ gamma[k - p : k][::-1]
    return gamma[:n_lags]


class Conditional(NamedTuple):
    """μ^f + Σ^{fo}(Σ^o)⁻¹(x^o − μ^o), Σ^f − Σ^{fo}(Σ^o)⁻¹Σ^{of}, and Σ^{fo}(Σ^o)⁻¹Σ^{of}."""

    mean: np.ndarray
    cov: np.ndarray
    mean_cov: np.ndarray


def condition_gaussian(mean: np.ndarray, cov: np.ndarray, observed: np.ndarray) -> Conditional:
    """The law of the entries of N(mean, cov) that are NaN in ``observed``, given the others."""
    known = ~np.isnan(observed)
    root = np.linalg.cholesky(cov[np.ix_(known, known)])
    cross = solve_triangular(root, cov[np.ix_(known, ~known)], lower=True)
    white = solve_triangular(root, observed[known] - mean[known], lower=True)
    mean_cov = cross.T @ cross
    return Conditional(mean[~known] + cross.T @ white, cov[np.ix_(~known, ~known)] - mean_cov, mean_cov)
