"""How to find a household: what a week of readings says of it, and attackers who compare.

A plain attacker describes a week by numbers (:func:`fingerprint`), learns from other homes how they scatter from week
to week, one covariance for all, and takes the nearest in that metric. For a released curve, it learns by ridge
regression what curve to expect of a home from its week, again with one covariance of what is left. A learned attacker
lets gradient boosting judge pairs of a home and a row from the differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.audits.confidence import lower_bound, upper_bound
from shoal.validation import FloatArray

#: Least power told apart from none, kW.
FLOOR = 0.01
#: Shares of the sorted readings, and of the steps between neighboring ones, that describe a week.
LEVELS, JUMPS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0), (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
#: Bins of the histogram of power, evenly spaced in its logarithm up to 12 kW.
BINS = 32
#: Share of the scatter between homes that is added to the scatter within, so that it can be inverted.
RIDGE = 0.1
#: How often homes are cut into those an attacker learns from and those it is judged on.
FOLDS = 4


def fingerprint(kw: FloatArray, weekend: NDArray[np.bool_]) -> FloatArray:
    """(n, 7, s) readings of a week, s a day, to (n, f) numbers; ``weekend`` (7,) says which days are.

    Mean log-power by hour on working days and at the weekend and its scatter over days, quantiles of power and of its
    steps, autocorrelations from one step to a day, and a histogram of power.
    """
    n, days, steps = kw.shape
    logs = np.log(np.maximum(kw, FLOOR))
    hours = logs.reshape(n, days, 24, steps // 24).mean(axis=3) if steps % 24 == 0 else logs
    flat = kw.reshape(n, -1)
    small = np.log(np.maximum(flat, FLOOR / 10))
    jumps = np.log(np.abs(np.diff(flat, axis=1)) + FLOOR / 10)
    centered = flat - flat.mean(axis=1, keepdims=True)
    variance = (centered**2).mean(axis=1) + 1e-9
    lags = sorted({max(1, round(steps * share)) for share in (1 / 96, 1 / 48, 1 / 24, 1 / 12, 1 / 8, 1 / 2, 1.0)})
    edges = np.linspace(np.log(FLOOR), np.log(12.0), BINS + 1)
    place = np.clip(np.searchsorted(edges, np.log(np.maximum(flat, FLOOR))) - 1, 0, BINS - 1)
    counts = np.zeros((n, BINS))
    np.add.at(counts, (np.repeat(np.arange(n), flat.shape[1]), place.ravel()), 1.0)
    parts = [
        hours[:, ~weekend].mean(axis=1),
        hours[:, weekend].mean(axis=1),
        hours.std(axis=1),
        np.quantile(small, LEVELS, axis=1).T,
        np.quantile(jumps, JUMPS, axis=1).T,
        np.stack([(centered[:, k:] * centered[:, :-k]).mean(axis=1) / variance for k in lags], axis=1),
        np.sqrt(counts / flat.shape[1]),
    ]
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Hits:
    """How often the right row was first, and among the first ten, with its interval at 95 %."""

    trials: int
    top_1: float
    top_1_interval: tuple[float, float]
    top_10: float
    top_10_interval: tuple[float, float]

    @classmethod
    def of(cls, first: FloatArray, ten: FloatArray) -> Hits:
        """From the probability of each trial, ties decided by lot, to be right at once and within ten."""
        trials = len(first)

        def interval(values: FloatArray) -> tuple[float, float]:
            hits = float(values.sum())
            low = float(lower_bound(np.floor(hits), trials, 0.025))
            return low, float(upper_bound(np.ceil(hits), trials, 0.025))

        return cls(trials, float(first.mean()), interval(first), float(ten.mean()), interval(ten))


def ranked(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(homes, rows) scores, the larger the likelier, row i that of home i: chances to be first and among ten.

    Rows with the same score are put in order by lot.
    """
    own = np.diag(scores)[:, None]
    above = (scores > own).sum(axis=1)
    alike = (scores == own).sum(axis=1)
    first = np.where(above == 0, 1.0 / alike, 0.0)
    ten = np.clip((10 - above) / alike, 0.0, 1.0)
    return first, ten


def nearest(known: FloatArray, later: FloatArray, inverse_root: FloatArray) -> FloatArray:
    """(homes, rows) scores −d² in the metric of a covariance whose inverse root is given."""
    a, b = known @ inverse_root, later @ inverse_root
    found: FloatArray = 2.0 * a @ b.T - (a**2).sum(axis=1)[:, None] - (b**2).sum(axis=1)[None]
    return found


def within_metric(prints: FloatArray) -> FloatArray:
    """The inverse root of how homes scatter from week to week, from (homes, weeks, f) fingerprints of other homes."""
    homes, weeks, _ = prints.shape
    off = prints - prints.mean(axis=1, keepdims=True)
    within = np.einsum("nwi,nwj->ij", off, off) / (homes * (weeks - 1))
    between = np.var(prints.mean(axis=1), axis=0)
    return inverse_root(within + np.diag(RIDGE * between + 1e-9))


def inverse_root(covariance: FloatArray) -> FloatArray:
    """R with R Rᵀ the inverse of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    scaled: FloatArray = vectors / np.sqrt(np.maximum(values, values[-1] * 1e-12))
    return scaled


@dataclass(frozen=True)
class Expectation:
    """What curve to expect of a home whose fingerprint is known, and how far off that is: ridge, one covariance."""

    center: FloatArray
    scale: FloatArray
    weights: FloatArray
    mean: FloatArray
    metric: FloatArray

    @classmethod
    def learned(cls, prints: FloatArray, curves: FloatArray) -> Expectation:
        """From (m, f) fingerprints and the (m, k) curves that followed, in the coordinates they are compared in."""
        center, scale = prints.mean(axis=0), prints.std(axis=0) + 1e-9
        x = (prints - center) / scale
        mean = curves.mean(axis=0)
        strength = 0.1 * len(x) * np.eye(x.shape[1])
        weights = np.linalg.solve(x.T @ x + strength, x.T @ (curves - mean))
        left = curves - mean - x @ weights
        spread = left.T @ left / len(x)
        floor = 1e-6 * np.trace(spread) / len(spread) + 1e-12
        return cls(center, scale, weights, mean, inverse_root(spread + floor * np.eye(len(spread))))

    def curves(self, prints: FloatArray) -> FloatArray:
        expected: FloatArray = self.mean + ((prints - self.center) / self.scale) @ self.weights
        return expected

    def scores(self, prints: FloatArray, rows: FloatArray) -> FloatArray:
        return nearest(self.curves(prints), rows, self.metric)


class Boosted:
    """Gradient boosting on pairs of a home and a row: is this row that home's?

    A pair is described by the row, what is expected of the home, their difference in the metric of what is left, and
    the plain score. Trained on true pairs and on ``others`` wrong rows for each, of homes that it is not judged on.
    """

    def __init__(self, plain: Expectation, seed: int = 0, others: int = 15) -> None:
        self._plain, self._seed, self._others = plain, seed, others
        self._model: Any = None

    def _described(self, expected: FloatArray, rows: FloatArray) -> FloatArray:
        off = (rows - expected) @ self._plain.metric
        apart = np.abs(rows - expected)
        return np.concatenate(
            [np.abs(off), apart, expected.mean(axis=1, keepdims=True), (off**2).sum(axis=1, keepdims=True)], axis=1
        )

    def learned(self, prints: FloatArray, curves: FloatArray) -> Boosted:
        from sklearn.ensemble import HistGradientBoostingClassifier

        draw = np.random.default_rng(self._seed)
        expected, n = self._plain.curves(prints), len(curves)
        home = np.repeat(np.arange(n), self._others + 1)
        row = np.concatenate([np.arange(n)[:, None], draw.integers(0, n, (n, self._others))], axis=1).ravel()
        truth = (home == row).astype(np.int64)
        self._model = HistGradientBoostingClassifier(max_iter=80, learning_rate=0.1, random_state=self._seed)
        self._model.fit(self._described(expected[home], curves[row]), truth)
        return self

    def scores(self, prints: FloatArray, rows: FloatArray) -> FloatArray:
        """(homes, rows) log-odds. Rows that are the same get the same score."""
        expected = self._plain.curves(prints)
        different, which = np.unique(rows, axis=0, return_inverse=True)
        found = [
            self._model.decision_function(self._described(np.broadcast_to(e, different.shape), different))
            for e in expected
        ]
        return np.stack(found)[:, which.ravel()]
