"""Fitted (or given) ARMA models of many series: what travels between fitting, filtering and forecasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.validation import FloatArray

#: The fallback order, from the model asked for to the last resort; ``status`` names the rung that was used.
RUNGS = ("full", "reduced", "ar1", "white")

#: Why a series has no model at all.
FAILURES = ("infinite", "empty", "constant", "short")

#: What there is one of per series.
COLUMNS = ("ar", "ma", "innovation_var", "log_likelihood", "ok", "converged", "status", "n_obs")


@dataclass(frozen=True)
class ArmaModels:
    """Zero-mean ARMA models, one per series: x_t = Σ ar_i x_{t−i} + e_t + Σ ma_j e_{t−j}, Var e_t = innovation_var.

    Attributes:
        order: (p, q), the order asked for and the width of ``ar`` and ``ma``.
        ar: (n, p); NaN where ``ok`` is False, padded with zeros below the full order.
        ma: (n, q); likewise.
        innovation_var: (n,).
        log_likelihood: (n,) exact Gaussian log-likelihood of the observed samples at these parameters; NaN where
            nothing was fitted.
        ok: (n,) whether there is a model.
        converged: (n,) whether the search ended because no step promised to gain; False means that it ran out of
            evaluations or into the edge of the stationary and invertible region.
        status: (n,) strings: a member of ``RUNGS`` (which model of the fallback order was used) or of ``FAILURES``
            (why there is none).
        n_obs: (n,) number of samples that were not missing.
    """

    order: tuple[int, int]
    ar: FloatArray
    ma: FloatArray
    innovation_var: FloatArray
    log_likelihood: FloatArray
    ok: NDArray[np.bool_]
    converged: NDArray[np.bool_]
    status: NDArray[np.str_]
    n_obs: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in COLUMNS:
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.ar)

    @property
    def n_states(self) -> int:
        """r = max(p, q, 1)."""
        return max(*self.order, 1)

    def take(self, rows: Any) -> ArmaModels:
        """The models of some series: positions or a mask."""
        return ArmaModels(self.order, *(getattr(self, name)[rows] for name in COLUMNS))
