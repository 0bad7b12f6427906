"""What a release costs in kW: exact moments of the released power, for whatever the mechanism does to the answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.designs.mechanism import Mechanism
from shoal.meters.forecast import Forecasts
from shoal.meters.power import PowerError, power_error
from shoal.validation import FloatArray


def added_error(mechanism: Mechanism) -> PowerError:
    """Bias and mean squared error of the released power against the true answer, in kW.

    The change η = shift + gain (q − μ) + noise has mean shift, variance diag(G Σ Gᵀ + N) and covariance diag(Σ Gᵀ)
    with the answer; :func:`shoal.power_error` has the rest.
    """
    n, k = mechanism.classes.means.shape
    covs = np.broadcast_to(mechanism.classes.stored_covs, (n, k, k))
    variance = np.broadcast_to(np.diagonal(mechanism.noise_cov, axis1=1, axis2=2), (n, k))
    together = np.zeros((n, k))
    if mechanism.gain is not None:
        moved = mechanism.gain @ covs
        variance = variance + np.einsum("nij,nij->ni", moved, np.broadcast_to(mechanism.gain, (n, k, k)))
        together = np.diagonal(moved, axis1=1, axis2=2)
    return power_error(
        mechanism.classes.means,
        mechanism.bias,
        np.maximum(variance, 0.0),
        log_var=np.diagonal(covs, axis1=1, axis2=2),
        log_noise_cov=together,
    )


def cost_facts(mechanism: Mechanism, forecasts: Forecasts) -> dict[str, Any]:
    """The cost in numbers to show: over households with neighbors and all steps."""
    hidden = np.array([bool(mechanism.graph.neighbors(name)) for name in mechanism.classes.labels])
    error = added_error(mechanism)
    return {
        "rho_mean": float(mechanism.rho[hidden].mean()),
        "rho_largest": float(mechanism.rho[hidden].max()),
        "forecast_kw": float(forecasts.power[hidden].mean()),
        "added_rmse_kw": float(np.sqrt(error.mse[hidden].mean())),
        "added_rmse_kw_median": float(np.median(np.sqrt(error.by_household[hidden]))),
        "added_rmse_kw_largest": float(np.sqrt(error.by_household[hidden].max())),
        "bias_kw": float(error.bias[hidden].mean()),
    }


def error_against(truth: FloatArray, power: FloatArray) -> float | None:
    """Mean absolute error in kW where the truth is known."""
    known = np.isfinite(truth) & np.isfinite(power)
    return float(np.abs(power - truth)[known].mean()) if known.any() else None
