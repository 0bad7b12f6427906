"""Exact Gaussian maximum likelihood for thousands of series."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.compiled import kernel
from shoal.errors import InputError
from shoal.meters.arma.kalman import best_variance
from shoal.meters.arma.models import FAILURES, RUNGS, ArmaModels
from shoal.meters.arma.optimize import minimize
from shoal.meters.arma.search import FINAL_TOLERANCE, Effort, search
from shoal.meters.arma.spectrum import twiddle_factors
from shoal.validation import FloatArray

#: How hard to look for the global maximum.
EFFORTS = {
    "quick": Effort(pairs=1, rounds=0, swaps=0, finalists=1),
    "standard": Effort(pairs=2, rounds=4, swaps=3, finalists=4, removals=3, singles=2),
    "thorough": Effort(pairs=4, rounds=12, swaps=4, look=24, smaller=10, finalists=5, removals=4, singles=4),
}

#: Observed samples needed per coefficient, and in any case.
SAMPLES_PER_COEFFICIENT, FEWEST_SAMPLES = 3, 8

#: Series per task.
CHUNK = 16


def fit_arma(
    series: Any,
    order: tuple[int, int] = (6, 5),
    *,
    effort: str = "standard",
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ArmaModels:
    """Fit a zero-mean ARMA(p, q) to every row, by exact Gaussian maximum likelihood.

    The innovation variance is profiled out; coefficients stay stationary and invertible by parameterization; missing
    samples are integrated out by the Kalman filter. The likelihood is multimodal at orders like (6, 5): see
    ``search.py`` for how its maxima are visited. Nothing is random: the same rows give the same models, whatever
    the other rows and the number of threads.

    A row that cannot support the full order (fewer than three observed samples per coefficient, or no finite
    likelihood) falls back, in this order: "full" (p, q) → "reduced" (min(p, 2), min(q, 1)) → "ar1" (1, 0) →
    "white" (0, 0); ``status`` says which was used. A row with an infinite value, no value, fewer than eight
    values or only one distinct value gets ``ok=False`` and never stops the others.

    Args:
        series: (n, T) array, NaN where a sample is missing. Subtract means and seasons first.
        order: (p, q).
        effort: "quick", "standard" or "thorough": how many maxima are visited.
        threads: worker threads, one per core by default; results do not depend on it.
        progress: called with (rows done, rows in all) after every chunk.
    """
    x = _series(series)
    p, q = _order(order)
    n, length = x.shape
    needed = required_samples(p, q)
    if length < needed:
        raise InputError(
            f"series is too short for order ({p}, {q}): it has {length} samples and needs at least {needed}"
        )
    budget = EFFORTS[validation.choice(tuple(EFFORTS), effort=effort)]
    workers = os.cpu_count() or 1 if threads is None else validation.count(threads=threads)
    rungs = ((p, q), (min(p, 2), min(q, 1)), (min(p, 1), 0), (0, 0))
    size = 1 << max(5, math.ceil(math.log2(length)))
    twiddle = twiddle_factors(size)
    ar, ma = np.full((n, p), np.nan), np.full((n, q), np.nan)
    var, log_lik = np.full(n, np.nan), np.full(n, np.nan)
    codes, n_obs = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    converged = np.zeros(n, dtype=np.bool_)

    def fit_rows(start: int) -> int:
        stop = min(start + CHUNK, n)
        for row in range(start, stop):
            fit = _fit_one(np.ascontiguousarray(x[row]), rungs, budget, twiddle)
            codes[row], n_obs[row], converged[row] = fit.code, fit.n_obs, fit.converged
            var[row], log_lik[row] = fit.var, fit.log_likelihood
            if fit.code >= len(FAILURES):
                ar[row] = 0.0
                ma[row] = 0.0
                ar[row, : fit.p] = fit.coef[: fit.p]
                ma[row, : len(fit.coef) - fit.p] = fit.coef[fit.p :]
        return int(stop - start)

    starts = range(0, n, CHUNK)
    done = 0
    with ThreadPoolExecutor(max_workers=min(workers, len(starts))) as pool:
        for task in as_completed([pool.submit(fit_rows, start) for start in starts]):
            done += task.result()
            if progress is not None:
                progress(done, n)
    names = np.array(FAILURES + RUNGS)
    return ArmaModels(
        order=(p, q),
        ar=ar,
        ma=ma,
        innovation_var=var,
        log_likelihood=log_lik,
        ok=codes >= len(FAILURES),
        converged=converged,
        status=names[codes],
        n_obs=n_obs,
    )


def required_samples(p: int, q: int) -> int:
    """Fewest observed samples for which an order is tried."""
    return max(SAMPLES_PER_COEFFICIENT * (p + q + 1), FEWEST_SAMPLES)


def _series(value: Any) -> FloatArray:
    """An (n, T) float array, NaN allowed, without copying one that already is."""
    try:
        x = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("series must be an array of numbers with equal row lengths") from error
    if x.ndim != 2:
        raise InputError(f"series must have 2 dimensions (series, samples), got shape {x.shape}")
    if x.size == 0:
        raise InputError(f"series must not be empty, got shape {x.shape}")
    if not np.isfinite(x).any():
        raise InputError("series must hold at least one finite value")
    return x


def _order(value: Any) -> tuple[int, int]:
    try:
        p, q = value
    except (TypeError, ValueError) as error:
        raise InputError("order must be a pair of whole numbers (p, q)") from error
    return validation.count(at_least=0, order=p), validation.count(at_least=0, order=q)


@kernel
def interpolated(x: FloatArray) -> FloatArray:
    """Gaps bridged linearly, and held at the ends."""
    out = x.copy()
    last = -1
    for t in range(x.size):
        if math.isnan(x[t]):
            continue
        for u in range(last + 1, t):
            weight = (u - last) / (t - last)
            out[u] = x[t] if last < 0 else x[last] + weight * (x[t] - x[last])
        last = t
    for u in range(last + 1, x.size):
        out[u] = x[last]
    return out


@dataclass(frozen=True)
class _Fit:
    code: int
    n_obs: int
    coef: FloatArray
    p: int = 0
    var: float = math.nan
    log_likelihood: float = math.nan
    converged: bool = False


def _bridge(
    y: FloatArray, coef: FloatArray, p: int, twiddle: FloatArray, effort: Effort
) -> tuple[FloatArray, float, bool]:
    """The best model of a series with gaps, by the exact likelihood, from models of two filled series.

    Straight lines across the gaps make a series look smoother than it is and zeros make it look rougher.
    """
    other, _, _ = search(np.where(np.isnan(y), 0.0, y), twiddle, p, coef.size - p, effort)
    best = (coef, math.inf, False)
    for start in (coef, other):
        value, _, converged = minimize(y, True, start, p, effort.final, FINAL_TOLERANCE, math.inf)
        if value < best[1]:
            best = (start, value, bool(converged))
    return best


def _fit_one(x: FloatArray, rungs: tuple[tuple[int, int], ...], effort: Effort, twiddle: FloatArray) -> _Fit:
    """Walk down the rungs until one holds."""
    seen = x[~np.isnan(x)]
    n_obs, nothing = len(seen), np.zeros(0)
    if np.isinf(seen).any():
        return _Fit(FAILURES.index("infinite"), n_obs, nothing)
    if n_obs == 0:
        return _Fit(FAILURES.index("empty"), n_obs, nothing)
    largest = float(np.abs(seen).max())
    if not np.ptp(seen / max(largest, 1e-300)) > 1e-12:
        return _Fit(FAILURES.index("constant"), n_obs, nothing)
    if n_obs < FEWEST_SAMPLES:
        return _Fit(FAILURES.index("short"), n_obs, nothing)
    scale = largest * math.sqrt(float(np.mean((seen / largest) ** 2)))
    y = x / scale
    gappy = n_obs < len(x)
    filled = interpolated(y) if gappy else y
    for rung, (p, q) in enumerate(rungs):
        if n_obs < required_samples(p, q):
            continue
        coef, converged = np.zeros(p + q), True
        if p + q > 0:
            coef, value, converged = search(filled, twiddle, p, q, effort)
            if gappy:
                coef, value, converged = _bridge(y, coef, p, twiddle, effort)
            if not math.isfinite(value):
                continue
        var, value = best_variance(y, coef[:p], coef[p:])
        value -= n_obs * math.log(scale)
        if math.isfinite(value):
            return _Fit(len(FAILURES) + rung, n_obs, coef, p, var * scale * scale, value, bool(converged))
    return _Fit(FAILURES.index("short"), n_obs, nothing)
