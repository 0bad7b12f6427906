"""Does the model hold? Three questions per household, asked of its innovations (x_t − E[x_t | past]) / sd[x_t | past].

- Gaussian: Jarque–Bera, n/6 (skewness² + (kurtosis − 3)²/4) ~ χ²(2) (Jarque & Bera 1987).
- White: Ljung–Box, n(n+2) Σ_{l≤L} r_l²/(n−l) ~ χ²(L − p − q) (Ljung & Box 1978).
- Stationary: equal level (Welch's t) and equal spread (Brown–Forsythe 1974) of the innovations in the two
  halves of the training window.

The verdict matters for ``marginal``, whose guarantee needs the model to be true; ``point`` and ``trajectory`` hold
without it. A large sample rejects small deviations: read the sizes (skewness, kurtosis, spread ratio) as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from shoal import validation
from shoal.errors import InputError
from shoal.validation import FloatArray

#: Lags in the whiteness test: six hours of quarter-hours.
LAGS = 24
#: What is asked of every household's innovations.
QUESTIONS = ("gaussian", "white", "stationary")


@dataclass(frozen=True)
class Checks:
    """Model checks, one entry per household; a p-value below ``level`` answers the question with no."""

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
        answers = zip(*(getattr(self, name).tolist() for name in QUESTIONS), strict=True)
        return tuple(
            ", ".join(f"not {name}" for name, holds in zip(QUESTIONS, row, strict=True) if not holds) or "holds"
            for row in answers
        )


def check_models(innovations: FloatArray, coefficients: int, *, level: float = 0.01, lags: int = LAGS) -> Checks:
    """Check models of ``coefficients`` p + q by the (n, T) innovations of their series (:class:`ArmaForecast`)."""
    level = validation.probability(level=level, below_one=True, above_zero=True)
    lags = max(validation.count(lags=lags), coefficients + 2)
    length = innovations.shape[1]
    if length < 4 * lags:
        raise InputError(f"series must hold at least {4 * lags} readings to check {lags} lags")
    n = np.isfinite(innovations).sum(axis=1)
    z = innovations - np.nanmean(innovations, axis=1, keepdims=True)
    z /= np.maximum(np.nanstd(z, axis=1, keepdims=True), np.finfo(float).tiny)
    square = z * z  # powers above two are slow
    skewness, excess = np.nanmean(square * z, axis=1), np.nanmean(square * square, axis=1) - 3
    gaussian = scipy.stats.chi2.sf(n / 6 * (skewness**2 + excess**2 / 4), 2)
    white = scipy.stats.chi2.sf(_ljung_box(z, lags) * (n + 2) / n, lags - coefficients)
    return Checks(
        level, skewness, excess, gaussian, white, *_halves(innovations[:, : length // 2], innovations[:, length // 2 :])
    )


def _ljung_box(z: FloatArray, lags: int) -> FloatArray:
    """(n,) Σ_l r_l² · pairs of standardized rows; with gaps the number of pairs takes the place of n − l."""
    seen = np.isfinite(z).astype(np.float64)
    z = np.where(seen > 0, z, 0.0)
    total = np.zeros(len(z))
    for lag in range(1, lags + 1):
        product, pairs = (np.einsum("nt,nt->n", x[:, lag:], x[:, :-lag]) for x in (z, seen))
        total += product**2 / np.maximum(pairs, 1)
    return total


def _halves(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """p-values for equal level and equal spread, and the ratio of spreads; NaN entries do not count.

    Brown–Forsythe for two groups is Student's t on the distances to each group's median: F = t².
    """
    away = [np.abs(half - np.nanmedian(half, axis=1, keepdims=True)) for half in (first, second)]
    level = scipy.stats.ttest_ind_from_stats(*_moments(first), *_moments(second), equal_var=False).pvalue
    spread = scipy.stats.ttest_ind_from_stats(*_moments(away[0]), *_moments(away[1])).pvalue
    deviations = [np.maximum(_moments(half)[1], np.finfo(float).tiny) for half in (first, second)]
    return np.nan_to_num(level), np.nan_to_num(spread), np.asarray(deviations[1] / deviations[0])


def _moments(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, unbiased deviation and number of the entries seen, per row."""
    return np.nanmean(values, axis=1), np.nanstd(values, axis=1, ddof=1), np.isfinite(values).sum(axis=1)
