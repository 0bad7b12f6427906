"""Fitting again from earlier models: the better of a fresh search and of a descent from the old coefficients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.errors import InputError
from shoal.meters.arma.fit import EFFORTS, fit_arma, required_samples
from shoal.meters.arma.kalman import best_variance
from shoal.meters.arma.models import ArmaModels
from shoal.meters.arma.optimize import minimize
from shoal.meters.arma.search import FINAL_TOLERANCE
from shoal.validation import FloatArray


def refit_arma(series: Any, models: ArmaModels, *, effort: str = "standard", threads: int | None = None) -> ArmaModels:
    """Fit every row as :func:`fit_arma` does and, from its old coefficients, by descent; keep the likelier.

    The likelihood has many maxima: a fresh search may miss the one that yesterday's coefficients are next to, and they
    may lie next to one that has become a lesser one. Never less likely than either. A row of ``models`` that is not
    ``ok`` is fitted afresh only.

    Args:
        series: (n, T) array, NaN where a sample is missing.
        models: (n) earlier models; their order is the order fitted.
        effort, threads: as in :func:`fit_arma`.
    """
    x = np.asarray(series, dtype=np.float64)
    if x.ndim != 2 or len(x) != len(models):
        raise InputError(f"series must have one row per model: expected ({len(models)}, T), got shape {x.shape}")
    fresh = fit_arma(x, models.order, effort=effort, threads=threads)
    p, q = models.order
    columns = {name: getattr(fresh, name).copy() for name in ("ar", "ma", "innovation_var", "log_likelihood")}
    converged, status = fresh.converged.copy(), fresh.status.astype("<U16")
    for row in np.flatnonzero(fresh.ok & models.ok & (fresh.n_obs >= required_samples(p, q))):
        coef, var, value, done = _descended(x[row], models.ar[row], models.ma[row], EFFORTS[effort].final)
        if value > fresh.log_likelihood[row]:
            columns["ar"][row], columns["ma"][row] = coef[:p], coef[p:]
            columns["innovation_var"][row], columns["log_likelihood"][row] = var, value
            converged[row], status[row] = done, "full"
    return replace(fresh, **columns, converged=converged, status=status)


def _descended(x: FloatArray, ar: FloatArray, ma: FloatArray, budget: int) -> tuple[FloatArray, float, float, bool]:
    """Coefficients, innovation variance and log-likelihood at the maximum next to (ar, ma)."""
    seen = x[~np.isnan(x)]
    scale = float(np.sqrt(np.mean(seen**2)))
    y = np.ascontiguousarray(x / scale)
    coef = np.concatenate([ar, ma])
    value, _, converged = minimize(y, len(seen) < len(x), coef, len(ar), budget, FINAL_TOLERANCE, math.inf)
    if not math.isfinite(value):
        return coef, math.nan, -math.inf, False
    var, log_likelihood = best_variance(y, coef[: len(ar)].copy(), coef[len(ar) :].copy())
    return coef, var * scale**2, log_likelihood - len(seen) * math.log(scale), bool(converged)
