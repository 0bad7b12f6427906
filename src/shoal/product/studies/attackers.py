"""Attackers who compare what they know of a home with rows, and how often they are right.

A plain attacker expects a row of a home, learns from other homes how far off that is, one covariance for all, and takes
the nearest row in that metric (:class:`WeekMetric`). What a week of readings says of a home: :func:`week_fingerprint`.
Where labels have several rows, an attacker who knows whose all other rows are names the label of a held-out one
within its crowd, by gradient boosting (:func:`name_held_out_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.validation import FloatArray

#: What is known of homes (homes, f), and their rows (homes, k).
Table = tuple[FloatArray, FloatArray]
#: Share of the scatter between homes that is added to the scatter within, so that it can be inverted.
RIDGE = 0.1
#: Rows up to which held-out rows are attacked, folds, and rounds of boosting.
ROWS, FOLDS, ROUNDS = 4_000, 3, 60


def rank_rows(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Chance of each home's own row to be the likeliest of all, and to be among ten, by (homes, rows) scores.

    Rows with the same score are put in order by lot.
    """
    own = np.diag(scores)[:, None]
    above, alike = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    return np.where(above == 0, 1.0 / alike, 0.0), np.clip((10 - above) / alike, 0.0, 1.0)


def inverse_root(covariance: FloatArray) -> FloatArray:
    """The matrix R with R Rᵀ the inverse of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    scaled: FloatArray = vectors / np.sqrt(np.maximum(values, values[-1] * 1e-12))
    return scaled


class Attacker(Protocol):
    """An attacker who scores rows for homes of whom something is known."""

    def scores(self, known: FloatArray, rows: FloatArray) -> FloatArray:
        """(homes, rows) how likely each row is a home's; the larger, the likelier."""


@dataclass(frozen=True)
class WeekMetric:
    """Expects the row ``mean`` + known ``weights`` of a home, and compares rows by coordinates in ``metric``."""

    mean: FloatArray
    weights: FloatArray
    metric: FloatArray

    def coordinates(self, known: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Expected rows of homes, and rows, both as coordinates in the metric."""
        return (self.mean + known @ self.weights) @ self.metric, rows @ self.metric

    def scores(self, known: FloatArray, rows: FloatArray) -> FloatArray:
        """(homes, rows) −d² in the metric: the log-likelihood ratio of Gaussian laws with one covariance."""
        a, b = self.coordinates(known, rows)
        scores: FloatArray = 2.0 * a @ b.T - (a**2).sum(axis=1)[:, None] - (b**2).sum(axis=1)[None]
        return scores


def fingerprint_scatter(tables: Sequence[Table]) -> FloatArray:
    """(f, f) covariance of fingerprints from week to week around the home's mean, and a share of that between homes."""
    prints = np.stack([rows for _, rows in tables], axis=1)
    homes, weeks, width = prints.shape
    off = (prints - prints.mean(axis=1, keepdims=True)).reshape(-1, width)
    within = off.T @ off / (homes * (weeks - 1))
    scatter: FloatArray = within + np.diag(RIDGE * np.var(prints.mean(axis=1), axis=0) + 1e-9)
    return scatter


def fingerprint_metrics(tables: Sequence[Table], ends: Sequence[int]) -> list[WeekMetric]:
    """Metrics between fingerprints, learned from other homes in several weeks: by their scatter, and by the hour."""
    scatter = fingerprint_scatter(tables)
    width = len(scatter)
    metrics = (inverse_root(scatter), np.eye(width)[:, : ends[1]])
    return [WeekMetric(np.zeros(width), np.eye(width), metric) for metric in metrics]


def curve_metrics(tables: Sequence[Table]) -> list[WeekMetric]:
    """Metrics between homes and released curves, from (m, f + k) knowledge of other homes and (m, k) rows.

    The last k columns known are the curve that the attacker forecasts itself; the first comparison is with that one,
    the second with what ridge regression expects from the other f.
    """
    known, rows = (np.concatenate(part) for part in zip(*tables, strict=True))
    k = rows.shape[1]
    f = known.shape[1] - k
    itself = np.concatenate([np.zeros((f, k)), np.eye(k)])
    prints = known[:, :f]
    center, scale = prints.mean(axis=0), prints.std(axis=0) + 1e-9
    x, mean = (prints - center) / scale, rows.mean(axis=0)
    ridge = np.linalg.solve(x.T @ x + 0.1 * len(x) * np.eye(f), x.T @ (rows - mean)) / scale[:, None]
    expected = np.concatenate([ridge, np.zeros((k, k))])
    features = []
    for weights in (itself, expected):
        left = rows - known @ weights
        covariance = np.cov(left.T, ddof=0).reshape(k, k)
        floor = 1e-3 * np.trace(covariance) / k + 1e-12
        features.append(WeekMetric(left.mean(axis=0), weights, inverse_root(covariance + floor * np.eye(k))))
    return features


def score_rows(attacker: Attacker, known: FloatArray, rows: FloatArray) -> FloatArray:
    """(homes, rows) scores of an attacker; rows that are the same get the same score."""
    different, which = distinct_rows(rows)
    return attacker.scores(known, different)[:, which]


def distinct_rows(rows: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """The rows that differ from each other, and the position of each row among them."""
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return different, which.ravel()


#: Least power told apart from none, kW.
FLOOR = 0.01
#: Shares of the sorted readings, and of the steps between neighboring ones, that describe a week.
LEVELS, JUMPS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0), (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
#: Bins of the histogram of power, evenly spaced in its logarithm up to 12 kW.
BINS = 32


def week_fingerprint(kw: FloatArray, weekend: NDArray[np.bool_]) -> tuple[FloatArray, tuple[int, ...]]:
    """(n, f) numbers that describe (n, 7, s) readings of a week, and where blocks end; ``weekend`` is (7,).

    Blocks: mean log-power by hour on working days and at the weekend, its scatter over days, quantiles of power and of
    its steps, autocorrelations from one step to a day, and a histogram of power.
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
    counts = np.bincount((place + BINS * np.arange(n)[:, None]).ravel(), minlength=n * BINS).reshape(n, BINS)
    parts = [
        hours[:, ~weekend].mean(axis=1),
        hours[:, weekend].mean(axis=1),
        hours.std(axis=1),
        np.quantile(small, LEVELS, axis=1).T,
        np.quantile(jumps, JUMPS, axis=1).T,
        np.stack([(centered[:, k:] * centered[:, :-k]).mean(axis=1) / variance for k in lags], axis=1),
        np.sqrt(counts / flat.shape[1]),
    ]
    return np.concatenate(parts, axis=1), tuple(np.cumsum([part.shape[1] for part in parts]).tolist())


def name_held_out_rows(
    values: FloatArray, labels: NDArray[np.int64], crowd: NDArray[np.int64], *, seed: int = 0
) -> tuple[int, float, float] | None:
    """Number of labels, share of held-out rows whose label is named in its crowd, and share by majority guess."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    right = majority = total = 0
    everyone = set()
    for number in np.unique(crowd):
        inside = crowd == number
        x, y = values[inside], labels[inside]
        counts = np.unique(y, return_counts=True)[1]
        if len(counts) < 2 or counts.min() < FOLDS or total + len(y) > ROWS:
            continue
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        model = HistGradientBoostingClassifier(max_iter=ROUNDS, early_stopping=False, random_state=seed)
        right += int((cross_val_predict(model, x, y, cv=folds) == y).sum())
        majority, total = majority + int(counts.max()), total + len(y)
        everyone |= set(y.tolist())
    return (len(everyone), right / total, majority / total) if total else None
