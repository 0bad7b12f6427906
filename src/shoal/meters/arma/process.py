"""A Gaussian process with any covariance: condition some of its samples on others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from shoal import validation
from shoal.errors import InputError
from shoal.validation import FloatArray


@dataclass(frozen=True)
class Conditional:
    """The law of the samples not observed.

    Attributes:
        mean: μ^f + Σ^{fo}(Σ^o)⁻¹(x^o − μ^o).
        cov: prediction-error covariance Σ^f − Σ^{fo}(Σ^o)⁻¹Σ^{of}.
        mean_cov: covariance of ``mean`` before x^o is known, Σ^{fo}(Σ^o)⁻¹Σ^{of}.
    """

    mean: FloatArray
    cov: FloatArray
    mean_cov: FloatArray


def condition_gaussian(mean: Any, cov: Any, observed: Any) -> Conditional:
    """Condition N(mean, cov) on the entries of ``observed`` that are not NaN.

    The paper's section "Application to ARMA forecasts", for a process with a general covariance. Σ^o is factored
    once by Cholesky and never inverted.

    Args:
        mean: (k,) means.
        cov: (k, k) covariance; the block of the observed entries must be positive definite.
        observed: (k,) values, NaN where unknown; those entries, in order, are the ones predicted.
    """
    mu = validation.array(ndim=1, mean=mean)
    sigma = validation.array(ndim=2, cov=cov)
    try:
        x = np.array(observed, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("observed must be an array of numbers, NaN where unknown") from error
    k = len(mu)
    if sigma.shape != (k, k):
        raise InputError(f"cov must have shape ({k}, {k}) to match mean, got {sigma.shape}")
    if x.shape != (k,):
        raise InputError(f"observed must have shape ({k},) to match mean, got {x.shape}")
    if np.isinf(x).any():
        raise InputError("observed must be finite, or NaN where unknown")
    if not np.allclose(sigma, sigma.T, rtol=0, atol=1e-9 * max(float(np.abs(sigma).max(initial=0.0)), 1e-300)):
        raise InputError("cov must be symmetric")
    known = ~np.isnan(x)
    future = ~known
    try:
        root = np.linalg.cholesky(sigma[np.ix_(known, known)])
    except np.linalg.LinAlgError as error:
        raise InputError("cov must be positive definite on the observed entries") from error
    cross = solve_triangular(root, sigma[np.ix_(known, future)], lower=True)
    white = solve_triangular(root, x[known] - mu[known], lower=True)
    mean_cov = cross.T @ cross
    return Conditional(mu[future] + cross.T @ white, sigma[np.ix_(future, future)] - mean_cov, mean_cov)
