"""Does the model hold? Three questions per household, asked of the innovations e_t = x_t − E[x_t | past].

- Gaussian: Jarque–Bera, n/6 (skewness² + (kurtosis − 3)²/4) ~ χ²(2) (Jarque & Bera 1987).
- White: Ljung–Box, n(n+2) Σ_{l≤L} r_l²/(n−l) ~ χ²(L − p − q) (Ljung & Box 1978).
- Stationary: equal level (Welch's t) and equal spread (Brown–Forsythe 1974) of the innovations in the two
  halves of the training window.

The verdict matters for ``marginal``, whose guarantee needs the model to be true; ``point`` and ``trajectory`` hold
without it. A large sample rejects small deviations: read the sizes (skewness, kurtosis, spread ratio) as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from shoal import validation
from shoal.errors import InputError
from shoal.numerics.compiled import kernel
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl

#: Lags in the whiteness test: six hours of quarter-hours.
LAGS = 24

#: What there is one of per household.
MEASURES = ("skewness", "excess_kurtosis", "gaussian_p", "white_p", "level_p", "spread_p", "spread_ratio")

#: Households checked at a time: memory stays bounded however many there are.
CHUNK = 1000


@dataclass(frozen=True)
class Checks:
    """Model checks, one entry per household; a p-value below ``level`` answers the question with no."""

    households: tuple[str, ...]
    level: float
    skewness: FloatArray
    excess_kurtosis: FloatArray
    gaussian_p: FloatArray
    white_p: FloatArray
    level_p: FloatArray
    spread_p: FloatArray
    spread_ratio: FloatArray  #: innovation standard deviation, second half over first

    @property
    def gaussian(self) -> NDArray[np.bool_]:
        return np.asarray(self.gaussian_p >= self.level)

    @property
    def white(self) -> NDArray[np.bool_]:
        return np.asarray(self.white_p >= self.level)

    @property
    def stationary(self) -> NDArray[np.bool_]:
        return np.asarray((self.level_p >= self.level / 2) & (self.spread_p >= self.level / 2))

    @property
    def verdict(self) -> tuple[str, ...]:
        """Per household ``"holds"`` or what does not: ``"not gaussian, not white"``."""
        names = ("gaussian", "white", "stationary")
        answers = zip(self.gaussian, self.white, self.stationary, strict=True)
        return tuple(
            ", ".join(f"not {name}" for name, holds in zip(names, row, strict=True) if not holds) or "holds"
            for row in answers
        )

    def table(self) -> pl.DataFrame:
        """One row per household."""
        import polars as pl

        return pl.DataFrame(
            {"household": list(self.households), "verdict": list(self.verdict)}
            | {name: getattr(self, name) for name in MEASURES}
        )


def innovations(x: FloatArray, ar: FloatArray, ma: FloatArray) -> FloatArray:
    """(n, T) one-step errors e_t = x_t − Σ ar_i x_{t−i} − Σ ma_j e_{t−j}, started from zeros.

    A missing x_t is replaced by its prediction for the recursion. NaN marks what is not an innovation of unit spread:
    the start-up, the gaps, and the steps right after a gap.
    """
    length = x.shape[1]
    lead = max(ar.shape[1], ma.shape[1], 1)
    missing = np.isnan(x)
    errors = np.empty(x.shape)
    _innovation_rows(np.ascontiguousarray(x), np.ascontiguousarray(ar), np.ascontiguousarray(ma), lead, errors)
    unsure = missing.copy()
    for lag in range(1, lead + 1):
        unsure[:, lag:] |= missing[:, :-lag]
    unsure[:, : min(4 * lead, length)] = True
    return np.where(unsure, np.nan, errors)


@kernel
def _innovation_rows(x: FloatArray, ar: FloatArray, ma: FloatArray, lead: int, out: FloatArray) -> None:
    length, p, q = x.shape[1], ar.shape[1], ma.shape[1]
    past, errors = np.zeros(lead + length), np.zeros(lead + length)
    for row in range(len(x)):
        for t in range(lead, lead + length):
            guess = 0.0
            for i in range(p):
                guess += ar[row, i] * past[t - 1 - i]
            for j in range(q):
                guess += ma[row, j] * errors[t - 1 - j]
            value = x[row, t - lead]
            past[t] = guess if math.isnan(value) else value
            errors[t] = past[t] - guess
            out[row, t - lead] = errors[t]


@kernel
def _ljung_box_rows(z: FloatArray, seen: FloatArray, lags: int, out: FloatArray) -> None:
    """Σ_l r_l² · pairs per row; z is zero and seen is zero where there is no innovation.

    With gaps the number of pairs takes the place of n − l; the two agree where nothing is missing.
    """
    length = z.shape[1]
    for row in range(len(z)):
        total = 0.0
        for lag in range(1, lags + 1):
            product, pairs = 0.0, 0.0
            for t in range(lag, length):
                product += z[row, t] * z[row, t - lag]
                pairs += seen[row, t] * seen[row, t - lag]
            pairs = max(pairs, 1.0)
            total += (product / pairs) ** 2 * pairs
        out[row] = total


def check_models(
    x: FloatArray,
    ar: FloatArray,
    ma: FloatArray,
    households: tuple[str, ...],
    *,
    level: float = 0.01,
    lags: int = LAGS,
) -> Checks:
    """Check fitted models (ar (n, p), ma (n, q)) against the series (n, T) they were fitted to."""
    level = validation.probability(level=level, below_one=True, above_zero=True)
    order = ar.shape[1] + ma.shape[1]
    lags = max(validation.count(lags=lags), order + 2)
    if x.shape[1] < 4 * lags:
        raise InputError(f"series must hold at least {4 * lags} readings to check {lags} lags")
    parts = [_check(x[i : i + CHUNK], ar[i : i + CHUNK], ma[i : i + CHUNK], lags) for i in range(0, len(x), CHUNK)]
    return Checks(households, level, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _check(x: FloatArray, ar: FloatArray, ma: FloatArray, lags: int) -> tuple[FloatArray, ...]:
    """The columns of :class:`Checks` from ``skewness`` on."""
    e = innovations(x, ar, ma)
    seen = np.isfinite(e)
    n = np.maximum(seen.sum(axis=1), 1)
    centered = np.where(seen, e - _mean(e, seen)[:, None], 0.0)
    spread = np.sqrt(np.maximum((centered**2).sum(axis=1) / n, np.finfo(float).tiny))
    z = centered / spread[:, None]
    square = z * z  # powers above two are slow
    skewness = (square * z).sum(axis=1) / n
    excess = (square * square).sum(axis=1) / n - 3
    jarque_bera = n / 6 * (skewness**2 + excess**2 / 4)

    box = np.zeros(len(x))
    _ljung_box_rows(z, seen.astype(np.float64), lags, box)
    box *= (n + 2) / n

    half = x.shape[1] // 2
    level_p, spread_p, ratio = _halves(e[:, :half], e[:, half:])
    gaussian_p = stats.chi2.sf(jarque_bera, 2)
    white_p = stats.chi2.sf(box, lags - ar.shape[1] - ma.shape[1])
    return skewness, excess, gaussian_p, white_p, level_p, spread_p, ratio


def _mean(values: FloatArray, seen: NDArray[np.bool_]) -> FloatArray:
    return np.asarray(np.where(seen, values, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1))


def _halves(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """p-values for equal level and equal spread, and the ratio of spreads; NaN entries do not count.

    Brown–Forsythe for two groups is Student's t on the distances to each group's median: F = t².
    """
    seen = np.isfinite(first), np.isfinite(second)
    n, mean, var = zip(*(_moments(x, s) for x, s in zip((first, second), seen, strict=True)), strict=True)
    usable = (np.minimum(n[0], n[1]) >= 8) & (np.minimum(var[0], var[1]) > 0)
    tiny = np.finfo(float).tiny
    share = [np.maximum(v, tiny) / np.maximum(c, 1) for v, c in zip(var, n, strict=True)]
    total = share[0] + share[1]
    freedom = total**2 / (share[0] ** 2 / np.maximum(n[0] - 1, 1) + share[1] ** 2 / np.maximum(n[1] - 1, 1))
    level_p = 2 * stats.t.sf(np.abs(mean[0] - mean[1]) / np.sqrt(total), freedom)

    away = [_distance(x, s) for x, s in zip((first, second), seen, strict=True)]
    _, middle, wide = zip(*(_moments(x, s) for x, s in zip(away, seen, strict=True)), strict=True)
    freedom = np.maximum(n[0] + n[1] - 2, 1)
    pooled = np.maximum((wide[0] * (n[0] - 1) + wide[1] * (n[1] - 1)) / freedom, tiny)
    t = (middle[0] - middle[1]) / np.sqrt(pooled * (1 / np.maximum(n[0], 1) + 1 / np.maximum(n[1], 1)))
    spread_p = 2 * stats.t.sf(np.abs(t), freedom)
    ratio = np.sqrt(np.maximum(var[1], tiny) / np.maximum(var[0], tiny))
    return np.where(usable, level_p, 0.0), np.where(usable, spread_p, 0.0), np.where(usable, ratio, np.nan)


def _moments(values: FloatArray, seen: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Number, mean and unbiased variance of the entries seen, per row."""
    n = seen.sum(axis=1).astype(np.float64)
    mean = _mean(values, seen)
    square = np.where(seen, (values - mean[:, None]) ** 2, 0.0).sum(axis=1)
    return n, mean, np.asarray(square / np.maximum(n - 1, 1))


def _distance(values: FloatArray, seen: NDArray[np.bool_]) -> FloatArray:
    """Distance of each entry to the median of its row."""
    ordered = np.sort(np.where(seen, values, np.inf), axis=1)
    n = np.maximum(seen.sum(axis=1), 1)
    rows = np.arange(len(values))
    with np.errstate(invalid="ignore"):
        middle = 0.5 * (ordered[rows, (n - 1) // 2] + ordered[rows, n // 2])
        return np.asarray(np.abs(values - middle[:, None]))
