"""Error of the released power in kW, exactly: log-normal moments.

In log power the mechanism returns q + η. In power the reference is p = e^q and the release p̃ = e^{q+η} = p e^η. With
(q, η) jointly Gaussian, q ~ N(a, v), η ~ N(m, s²) and Cov(q, η) = c, the moments E e^{αq+βη} =
exp(αa + βm + ½(α²v + 2αβc + β²s²)) give

    E p̃ − p      = e^{a+v/2} (e^{m+c+s²/2} − 1)
    E (p̃ − p)²   = e^{2a+2v} (e^{2m+4c+2s²} − 2 e^{m+2c+s²/2} + 1)

For a point forecast v = c = 0 and these are p̂(e^{m+s²/2} − 1) and p̂²(e^{2m+2s²} − 2e^{m+s²/2} + 1) (theory notes,
section 7). c ≠ 0 for mechanisms that move the answer with itself (transport).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.errors import InputError
from shoal.validation import FloatArray


@dataclass(frozen=True)
class PowerError:
    """Error of the released power, per household (rows) and horizon step (columns)."""

    bias: FloatArray  #: (n, h) E p̃ − p, kW
    mse: FloatArray  #: (n, h) E (p̃ − p)², kW²

    @property
    def rmse(self) -> FloatArray:
        """(n, h) root mean squared error, kW."""
        return np.sqrt(self.mse)

    @property
    def by_step(self) -> FloatArray:
        """(h,) mean squared error over households, kW²."""
        return np.asarray(self.mse.mean(axis=0))


def power_error(
    log_mean: Any, noise_mean: Any, noise_var: Any, *, log_var: Any = 0.0, log_noise_cov: Any = 0.0
) -> PowerError:
    """Bias and mean squared error of released power in kW, per entry.

    Args:
        log_mean: (n, h) mean of the answer q in ln kW; the answer itself where it is a constant.
        noise_mean: mean of η in log units; (n, h) or what broadcasts to it, as the arguments below.
        noise_var: variance of η.
        log_var: variance of q given the household; 0 for a point forecast.
        log_noise_cov: covariance of q and η; 0 for noise that does not depend on the answer.

    Returns:
        (n, h) bias in kW and mean squared error in kW², from the log-normal moments of ``power``.

    >>> import shoal
    >>> error = power_error([[0.0]], noise_mean=0.0, noise_var=0.04)
    >>> print(f"{error.bias[0, 0]:.4f}", f"{error.rmse[0, 0]:.4f}")
    0.0202 0.2071
    """
    a = validation.array(ndim=2, log_mean=log_mean)
    m = _entries(a, noise_mean=noise_mean)
    s2 = _entries(a, noise_var=noise_var)
    v = _entries(a, log_var=log_var)
    c = _entries(a, log_noise_cov=log_noise_cov)
    if (s2 < 0).any() or (v < 0).any():
        raise InputError("noise_var and log_var must not be negative")
    if (c * c > s2 * v * (1 + 1e-9)).any():
        raise InputError("log_noise_cov must not exceed the geometric mean of noise_var and log_var")
    with np.errstate(over="ignore"):
        bias = np.exp(a + v / 2) * np.expm1(m + c + s2 / 2)
        # e^{2g+s²} − 2e^g + 1 = e^{2g}(e^{s²} − 1) + (e^g − 1)² with g = m + 2c + s²/2: no cancellation.
        g = m + 2 * c + s2 / 2
        mse = np.exp(2 * a + 2 * v) * (np.exp(2 * g) * np.expm1(s2) + np.expm1(g) ** 2)
    return PowerError(np.asarray(bias), np.asarray(mse))


def _entries(like: FloatArray, **named: Any) -> FloatArray:
    ((name, value),) = named.items()
    values = validation.array(ndim=(0, 1, 2), **{name: value})
    try:
        return np.broadcast_to(values, like.shape)
    except ValueError:
        raise InputError(f"{name} must broadcast to shape {like.shape}, got {values.shape}") from None
