"""Fitted (or given) ARMA models of many series: what travels between fitting, filtering and forecasting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.errors import InputError
from shoal.sources.meters.arma.parameters import largest_partial
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
            (why there is none), or "given".
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

    @property
    def fallback(self) -> NDArray[np.bool_]:
        """(n,) whether a series got a smaller model than asked for; ``status`` says which."""
        return np.asarray(self.ok & (self.status != "full") & (self.status != "given"))

    def take(self, rows: Any) -> ArmaModels:
        """The models of some series: positions or a mask."""
        return ArmaModels(self.order, *(getattr(self, name)[rows] for name in COLUMNS))

    def followed_by(self, other: ArmaModels) -> ArmaModels:
        """These models and then those of ``other``, of the same order."""
        if self.order != other.order:
            raise InputError(f"other must have order {self.order}, not {other.order}")
        both = (np.concatenate([getattr(self, name), getattr(other, name)]) for name in COLUMNS)
        return ArmaModels(self.order, *both)

    @classmethod
    def from_coefficients(cls, ar: Any, ma: Any, var: Any) -> ArmaModels:
        """Models with known coefficients: (p,) or (n, p), (q,) or (n, q), number or (n,)."""
        phi, theta = (np.atleast_2d(validation.array(ndim=(1, 2), **one)) for one in ({"ar": ar}, {"ma": ma}))
        sigma2 = np.atleast_1d(validation.array(ndim=(0, 1), var=var))
        n = max(len(phi), len(theta), len(sigma2))
        for name, value in (("ar", phi), ("ma", theta), ("var", sigma2)):
            if len(value) not in (1, n):
                raise InputError(f"{name} must hold one row per model: expected 1 or {n}, got {len(value)}")
        if (sigma2 <= 0).any():
            raise InputError("var must be above 0")
        for name, what, rows in (("ar", "stationary", phi), ("ma", "invertible", -theta)):
            for row in range(len(rows)):
                if not largest_partial(rows[row].copy()) < 1.0:
                    raise InputError(
                        f"{name} must be {what}: the polynomial of row {row} has a root inside or on the circle"
                    )
        phi, theta = (np.broadcast_to(one, (n, one.shape[1])) for one in (phi, theta))
        return cls(
            order=(phi.shape[1], theta.shape[1]),
            ar=phi.copy(),
            ma=theta.copy(),
            innovation_var=np.broadcast_to(sigma2, (n,)).copy(),
            log_likelihood=np.full(n, np.nan),
            ok=np.ones(n, dtype=np.bool_),
            converged=np.ones(n, dtype=np.bool_),
            status=np.full(n, "given"),
            n_obs=np.zeros(n, dtype=np.int64),
        )
