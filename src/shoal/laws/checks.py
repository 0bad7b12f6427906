"""Do rows follow Gaussian laws, and those that were fitted to other rows?

- Gaussian, per label: with some of its rows whitened by their own mean and covariance, z_i, the mean of ‖z_i‖⁴
  (Mardia's kurtosis) and the length of the mean of z_i ‖z_i‖² (a skewness) depend on nothing but their number and that
  of the entries where the law is Gaussian. Their laws are simulated and continued by Pearson's type III; the smaller of
  the two p-values counts twice, and verdicts hold for all labels together (Holm 1979).
- Spread: mean squared distance of held-out rows from their label's mean, in units of its covariance, over what a
  Gaussian law estimated from so few rows promises. Above 1 the law is too narrow.

A large sample rejects small deviations: read the sizes as well. Checks look at the bulk of a law, not at its tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from shoal.rounding import upper
from shoal.validation import BoolArray, FloatArray, IndexArray

#: Of all verdicts of a kind together.
LEVEL = 0.01
#: Draws from which the law of a statistic is continued, and how many are in memory at a time.
DRAWS, BLOCK = 1000, 50
#: Rows of a label that are tested.
SIZES = (12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
#: A spread above 1 that is worth a warning, beyond chance.
SIZE = 0.1
SEED = 20_250_101


@dataclass(frozen=True, eq=False)
class LawChecks:
    """Result of :meth:`shoal.GaussianClasses.checks`: one entry per label; NaN where too few rows were held out.

    ``rows`` were held out, ``fitted_rows`` are behind the law.
    """

    labels: tuple[str, ...]
    rows: FloatArray
    fitted_rows: FloatArray
    gaussian_p: FloatArray
    spread: FloatArray

    @property
    def gaussian(self) -> BoolArray:
        """Whether each label's rows look Gaussian, (n,): False if rejected at level 0.01 for all labels together."""
        tested = np.flatnonzero(np.isfinite(self.gaussian_p))
        order = tested[np.argsort(self.gaussian_p[tested], kind="stable")]
        passed = self.gaussian_p[order] > LEVEL / np.maximum(len(order) - np.arange(len(order)), 1)
        holds = np.ones(len(self.labels), dtype=np.bool_)
        holds[order[: int(np.argmax(passed)) if passed.any() else len(order)]] = False
        return holds

    @property
    def wide_enough(self) -> bool:
        """Whether held-out rows keep as close to their means as the laws promise, over all labels."""
        seen = np.isfinite(self.spread)
        if not seen.any():
            return True
        total = self.rows[seen].sum()
        chance = 4 * math.sqrt(2 / total)  # four deviations of a mean of χ²(1); with more entries it is less
        return bool((self.rows[seen] * self.spread[seen]).sum() / total <= 1 + SIZE + chance)

    @property
    def holds(self) -> bool:
        """Whether no check speaks against the laws: neither whether rows are Gaussian nor their spread."""
        return bool(self.gaussian.all()) and self.wide_enough

    @property
    def verdict(self) -> tuple[str, ...]:
        """Per label ``"holds"``, ``"not gaussian"`` or ``"not tested"``."""
        tested, holds = np.isfinite(self.gaussian_p), self.gaussian
        return tuple(
            "not tested" if not t else "holds" if h else "not gaussian" for t, h in zip(tested, holds, strict=True)
        )

    @property
    def smallest_delta(self) -> float:
        """About 3/n for the label with fewest rows: n rows without an event show at 95 % that it is rarer."""
        return min(3.0 / float(self.fitted_rows.min()), 1.0)

    @property
    def statements(self) -> tuple[str, ...]:
        """Sentences on what the checks found, and what they cannot show."""
        said = []
        tested = int(np.isfinite(self.gaussian_p).sum())
        wrong = int((~self.gaussian).sum())
        if tested == 0:
            said.append("No label had enough held-out rows to test whether its law is Gaussian.")
        elif wrong:
            said.append(
                f"{wrong} of {tested} labels tested do not follow a Gaussian law. A guarantee computed from their laws "
                "is not one about their answers: release one row per label, a constant that needs no law, or averages."
            )
        else:
            said.append(f"None of {tested} labels tested is found to differ from a Gaussian law.")
        if not self.wide_enough:
            said.append("Held-out rows lie further from their label's mean than its law promises.")
        said.append(
            f"The label with fewest rows has {int(self.fitted_rows.min())}: samples by themselves support no δ "
            "below about "
            f"{upper(self.smallest_delta, 1)}. A smaller one rests on the tails of the Gaussian law, which no data "
            "confirm."
        )
        return tuple(said)

    def take(self, positions: IndexArray) -> LawChecks:
        """Return the checks of the labels at these positions."""
        figures: dict[str, Any] = {name: value[positions] for name, value in self._arrays.items()}
        return replace(self, labels=tuple(self.labels[i] for i in positions), **figures)

    def table(self) -> dict[str, Any]:
        """Return columns by name, one entry per label, as ``polars.DataFrame`` and ``pandas.DataFrame`` take them."""
        return {"label": list(self.labels), "verdict": list(self.verdict)} | self._arrays

    @property
    def _arrays(self) -> dict[str, FloatArray]:
        """The fields with one figure per label, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def __str__(self) -> str:
        return "\n".join(self.statements)

    def __repr__(self) -> str:
        return f"LawChecks({'hold' if self.holds else 'do not hold'}, {len(self.labels)} labels)"


def check_laws(
    labels: tuple[str, ...],
    samples: list[tuple[FloatArray, FloatArray]],
    means: FloatArray,
    covs: FloatArray,
    counts: FloatArray,
    degrees: FloatArray,
    fitted_rows: FloatArray,
) -> LawChecks:
    """Check rows against Gaussian laws: fitted and held-out rows (m, k) of every label, and the laws from the first.

    Their means come from ``counts`` rows and their covariances have these ``degrees`` of freedom; ``fitted_rows`` are
    what the final laws are fitted on.
    """
    n, k = means.shape
    gaussian_p, spread = np.full((2, n), np.nan)
    factors = np.linalg.cholesky(covs)
    for i, (others, rows) in enumerate(samples):
        gaussian_p[i] = _gaussian_p_value(np.concatenate([rows, others]))
        m = len(rows)
        if m == 0:
            continue
        own = _squared_distances(factors[i], rows - means[i])
        # E d² of a new row, if the mean and the covariance have the errors of estimates from so many rows.
        inflation = (1 + 1 / counts[i]) * degrees[i] / (degrees[i] - k - 1)
        spread[i] = own.mean() / (k * inflation)
    held_out, fitted = np.array([len(rows) for _, rows in samples], dtype=np.float64), fitted_rows.astype(np.float64)
    return LawChecks(labels, held_out, fitted, gaussian_p, spread)


def _squared_distances(factor: FloatArray, gaps: FloatArray) -> FloatArray:
    """Return the squared Mahalanobis length (m,) of each gap (m, k), for the lower factor of the covariance."""
    from scipy import linalg

    return np.asarray((linalg.solve_triangular(factor, gaps.T, lower=True) ** 2).sum(axis=0))


def _gaussian_p_value(rows: FloatArray) -> float:
    """Return the p-value of "these rows (m, k) are Gaussian" from two statistics; NaN for too few rows."""
    from scipy import stats

    k = rows.shape[1]
    # The largest of a few sizes that these rows fill: one simulation serves many labels.
    size = max((s for s in SIZES if 2 * k + 4 <= s <= len(rows)), default=0)
    if size == 0:
        return math.nan
    observed = _mardia_statistics(rows[None, :size])
    if observed is None:
        return 0.0
    (high, low), (skewed, _) = (
        (float(law.sf(one[0])), float(law.cdf(one[0])))
        for one, law in zip(
            observed, (stats.pearson3(s, m, d) for m, d, s in _simulated_null_moments(size, k)), strict=True
        )
    )
    return min(2 * min(2 * high, 2 * low, skewed), 1.0)


@cache
def _simulated_null_moments(size: int, n_dims: int) -> tuple[tuple[float, float, float], ...]:
    """Return mean, deviation and skewness of the two statistics of so many Gaussian rows, simulated."""
    from scipy import stats

    rng = np.random.default_rng(SEED)
    parts = [_mardia_statistics(rng.standard_normal((BLOCK, size, n_dims))) for _ in range(DRAWS // BLOCK)]
    drawn = [np.concatenate(one) for one in zip(*(part for part in parts if part is not None), strict=True)]
    return tuple((float(x.mean()), float(x.std()), float(stats.skew(x))) for x in drawn)


def _mardia_statistics(samples: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return ln of Mardia's kurtosis and the cube root of a skewness, each (b,), of samples (b, m, k).

    Nearly normal on these scales. None where rows do not span all entries.
    """
    m = samples.shape[1]
    centered = samples - samples.mean(axis=1, keepdims=True)
    scale = np.sqrt((centered**2).mean(axis=1, keepdims=True))
    if not (scale > 0).all():
        return None
    centered = centered / scale
    try:
        factor = np.linalg.cholesky(np.swapaxes(centered, 1, 2) @ centered / m)
    except np.linalg.LinAlgError:
        return None
    z = np.linalg.solve(factor, np.swapaxes(centered, 1, 2))
    square = (z * z).sum(axis=1)
    skewness = ((z * square[:, None, :]).mean(axis=2) ** 2).sum(axis=1)
    return np.log((square**2).mean(axis=1)), np.cbrt(skewness)
