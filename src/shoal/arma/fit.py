"""One ARMA model for each of thousands of series: a regression, then steps that raise the exact likelihood.

How far to search was chosen by forecast error on real homes, not by likelihood (benchmarks/README.md): the last nats
say which feature of the spectrum a spare pole sits on, and do not make forecasts better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.arma.likelihood import best_innovation_variance
from shoal.arma.search import hannan_rissanen_start, maximize_likelihood
from shoal.errors import InputError
from shoal.numerics.threads import map_batches
from shoal.validation import FloatArray

#: Observed samples needed per coefficient, and in any case.
SAMPLES_PER_COEFFICIENT, FEWEST_SAMPLES = 3, 8

#: Series per task.
CHUNK = 16

#: The fallback order, from the model asked for to the last resort.
RUNGS = ("full", "reduced", "ar1", "white")
#: What there is one of per series.
COLUMNS = ("ar", "ma", "innovation_var", "log_likelihood", "ok", "converged", "status", "n_obs")


@dataclass(frozen=True)
class ArmaModels:
    """Zero-mean ARMA models, one per series: x_t = Σ ar_i x_{t−i} + e_t + Σ ma_j e_{t−j}, Var e_t = innovation_var.

    Rows of a lower order are padded with zeros; figures are NaN where there is no model (``ok`` is False).
    """

    order: tuple[int, int]  #: (p, q) asked for
    ar: FloatArray  #: (n, p)
    ma: FloatArray  #: (n, q)
    innovation_var: FloatArray
    log_likelihood: FloatArray  #: exact, of the observed samples
    ok: NDArray[np.bool_]
    converged: NDArray[np.bool_]  #: no step promised to gain; else evaluations or the stationary region ended
    status: NDArray[np.str_]  #: of ``RUNGS``, the model that was used; or why there is none
    n_obs: NDArray[np.int64]  #: samples that were not missing

    def __post_init__(self) -> None:
        for name in COLUMNS:
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.ar)

    @property
    def n_states(self) -> int:
        """The number of states of the filter, r = max(p, q, 1)."""
        return max(*self.order, 1)

    def take(self, rows: Any) -> ArmaModels:
        """Return the models of some series, given by positions or a mask."""
        return ArmaModels(self.order, *(getattr(self, name)[rows] for name in COLUMNS))


@dataclass(frozen=True)
class _SeriesFit:
    """The model of one series: its coefficients (ar, ma), p of them ar, and its figures."""

    status: str  #: of ``RUNGS``, or why there is no model: "infinite", "empty", "constant", "short"
    coef: FloatArray = field(default_factory=lambda: np.zeros(0))
    p: int = 0
    var: float = math.nan
    log_likelihood: float = math.nan
    converged: bool = False


def fit_arma(
    series: Any, order: tuple[int, int] = (6, 5), *, progress: Callable[[int, int], None] | None = None
) -> ArmaModels:
    """Fit a zero-mean ARMA(p, q) to every row: a stationary, invertible model near a maximum of the exact likelihood.

    From a Hannan–Rissanen regression, Gauss–Newton steps raise the exact Gaussian likelihood until the next promises
    less than 0.1 nats; the innovation variance is profiled out, and the Kalman filter integrates missing samples out.
    Nothing is random: the same rows give the same models, whatever the other rows and the number of threads.

    A row that cannot support the full order (fewer than three observed samples per coefficient, or no finite
    likelihood) falls back, in this order: "full" (p, q) → "reduced" (min(p, 2), min(q, 1)) → "ar1" (1, 0) →
    "white" (0, 0); ``status`` says which was used. A row with an infinite value, no value, fewer than eight
    values or only one distinct value gets ``ok=False`` and never stops the others.

    Args:
        series: (n, T) array, NaN where a sample is missing. Subtract means and seasons first.
        order: (p, q).
        progress: called with (rows done, rows in all) as work proceeds.

    Returns:
        One model per row, with the exact log-likelihood of its observed samples.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((2, 300))
    >>> fit_arma(np.cumsum(x, axis=1) * 0.1 + x, order=(1, 1)).ok.tolist()
    [True, True]
    """
    x = validation.array(ndim=2, finite=False, series=series)
    if not np.isfinite(x).any():
        raise InputError("series must hold at least one finite value")
    p, q = check_order(order)
    n, length = x.shape
    needed = required_samples(p, q)
    if length < needed:
        raise InputError(
            f"series is too short for order ({p}, {q}): it has {length} samples and needs at least {needed}"
        )
    orders = ((p, q), (min(p, 2), min(q, 1)), (min(p, 1), 0), (0, 0))

    def fit_rows(part: slice) -> list[_SeriesFit]:
        """Return the models of a block of rows."""
        return [_fit_series(np.ascontiguousarray(x[row]), orders) for row in range(n)[part]]

    fits = [fit for batch in map_batches(fit_rows, n, CHUNK, progress) for fit in batch]
    status = np.array([fit.status for fit in fits], dtype="<U8")
    ok = np.isin(status, RUNGS)
    ar, ma = np.where(ok[:, None], np.zeros(p), np.nan), np.where(ok[:, None], np.zeros(q), np.nan)
    for row, fit in enumerate(fits):
        ar[row, : fit.p] = fit.coef[: fit.p]
        ma[row, : len(fit.coef) - fit.p] = fit.coef[fit.p :]
    return ArmaModels(
        order=(p, q),
        ar=ar,
        ma=ma,
        innovation_var=np.array([fit.var for fit in fits]),
        log_likelihood=np.array([fit.log_likelihood for fit in fits]),
        ok=ok,
        converged=np.array([fit.converged for fit in fits]),
        status=status,
        n_obs=np.count_nonzero(~np.isnan(x), axis=1),
    )


def required_samples(p: int, q: int) -> int:
    """Return the fewest observed samples for which an order is tried."""
    return max(SAMPLES_PER_COEFFICIENT * (p + q + 1), FEWEST_SAMPLES)


def check_order(value: Any) -> tuple[int, int]:
    """Return the order (p, q) as two whole numbers; raise InputError where it is something else."""
    try:
        p, q = value
    except (TypeError, ValueError) as error:
        raise InputError("order must be a pair of whole numbers (p, q)") from error
    return validation.count(at_least=0, order=p), validation.count(at_least=0, order=q)


def _fit_series(x: FloatArray, orders: tuple[tuple[int, int], ...]) -> _SeriesFit:
    """Return the model of one series, of the first of the orders (one for each of ``RUNGS``) that it supports."""
    present = ~np.isnan(x)
    seen = x[present]
    if np.isinf(seen).any():
        return _SeriesFit("infinite")
    if len(seen) == 0:
        return _SeriesFit("empty")
    largest = float(np.abs(seen).max())
    if not np.ptp(seen / max(largest, 1e-300)) > 1e-12:
        return _SeriesFit("constant")
    if len(seen) < FEWEST_SAMPLES:
        return _SeriesFit("short")
    scale = largest * math.sqrt(float(np.mean((seen / largest) ** 2)))
    y = x / scale
    places = np.arange(len(x))
    filled = y if len(seen) == len(x) else np.interp(places, places[present], y[present])
    for rung, (p, q) in zip(RUNGS, orders, strict=True):
        if len(seen) < required_samples(p, q):
            continue
        coef = hannan_rissanen_start(filled, p, q) if p + q > 0 else np.zeros(0)
        converged = p + q == 0 or bool(maximize_likelihood(y, coef, p)[1])
        var, value = best_innovation_variance(y, coef, p)
        if math.isfinite(value):
            log_likelihood = value - len(seen) * math.log(scale)
            return _SeriesFit(rung, coef, p, var * scale * scale, log_likelihood, converged)
    return _SeriesFit("short")


def call_every_kernel() -> None:
    """Call every kernel of ARMA models once, so that it is compiled (:mod:`shoal.numerics.warmup`)."""
    fit_arma(np.random.default_rng(0).standard_normal((2, 96)), (2, 1))
