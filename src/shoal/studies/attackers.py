"""How to find a household: attackers who compare what they know of a home with rows, and how often they are right.

A plain attacker expects a row of a home, learns from other homes how far off that is, one covariance for all, and takes
the nearest row in that metric (:class:`Comparison`). A learned one lets gradient boosting weigh several such
comparisons (:class:`Boosted`). What a week of readings says of a home is :func:`fingerprint`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.audits.confidence import mean_lower, mean_upper
from shoal.validation import FloatArray

#: What is known of homes (homes, f), and their rows (homes, k).
Table = tuple[FloatArray, FloatArray]
#: Share of the scatter between homes that is added to the scatter within, so that it can be inverted.
RIDGE = 0.1
#: Rows that a learned attacker puts in a new order, the plain one's best; wrong ones among them that it learns from.
RERANKED, WRONG = 30, 15
#: Parts of the homes, each described by comparisons that were learned from the others.
PARTS = 8
#: Error probability of each end of an interval.
ERROR = 0.025


@dataclass(frozen=True)
class Hits:
    """How often the right row was first, and among the first ten, with intervals at 95 %.

    Intervals take homes as independent draws, with all their origins together: those of one home are alike.
    """

    homes: int
    top_1: float
    top_1_interval: tuple[float, float]
    top_10: float
    top_10_interval: tuple[float, float]

    @classmethod
    def over(cls, chances: Sequence[tuple[FloatArray, FloatArray]]) -> Hits:
        """From each origin's chances of the homes to be right at once and within ten (:func:`ranked`)."""

        def interval(values: FloatArray) -> tuple[float, float]:
            return mean_lower(values, ERROR), mean_upper(values, ERROR)

        one, some = (np.mean(part, axis=0) for part in zip(*chances, strict=True))
        return cls(len(one), float(one.mean()), interval(one), float(some.mean()), interval(some))


def ranked(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(homes, rows) scores, the larger the likelier, row i that of home i: chances to be first and among ten.

    Rows with the same score are put in order by lot.
    """
    own = np.diag(scores)[:, None]
    above, alike = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    return np.where(above == 0, 1.0 / alike, 0.0), np.clip((10 - above) / alike, 0.0, 1.0)


def inverse_root(covariance: FloatArray) -> FloatArray:
    """R with R Rᵀ the inverse of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    scaled: FloatArray = vectors / np.sqrt(np.maximum(values, values[-1] * 1e-12))
    return scaled


@dataclass(frozen=True)
class Comparison:
    """The row ``mean`` + known ``weights`` is expected of a home; rows are compared by coordinates in ``metric``."""

    mean: FloatArray
    weights: FloatArray
    metric: FloatArray

    def _off(self, known: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        return (self.mean + known @ self.weights) @ self.metric, rows @ self.metric

    def scores(self, known: FloatArray, rows: FloatArray) -> FloatArray:
        """(homes, rows) −d², the log-likelihood ratio of Gaussian laws with one covariance."""
        a, b = self._off(known, rows)
        scores: FloatArray = 2.0 * a @ b.T - (a**2).sum(axis=1)[:, None] - (b**2).sum(axis=1)[None]
        return scores

    def patient(self, known: FloatArray, rows: FloatArray) -> FloatArray:
        """(homes, rows) −Σ ln(1 + dᵢ²): a few coordinates far off count less."""
        a, b = self._off(known, rows)
        return np.stack([-np.log1p((b - one) ** 2).sum(axis=1) for one in a])


def weekly(tables: Sequence[Table], ends: Sequence[int]) -> list[Comparison]:
    """Comparisons of fingerprints, from those of other homes in several weeks: all of it, by the hour, each block.

    The metric is that of how homes scatter from week to week, with a share of how they differ.
    """
    prints = np.stack([rows for _, rows in tables], axis=1)
    homes, weeks, width = prints.shape
    off = (prints - prints.mean(axis=1, keepdims=True)).reshape(-1, width)
    within = off.T @ off / (homes * (weeks - 1))
    within += np.diag(RIDGE * np.var(prints.mean(axis=1), axis=0) + 1e-9)
    profile = np.eye(width)[:, : ends[1]]
    metrics = [inverse_root(within), profile]
    for start, end in zip((0, *ends[:-1]), ends, strict=True):
        block = np.zeros((width, end - start))
        block[start:end] = inverse_root(within[start:end, start:end])
        metrics.append(block)
    return [Comparison(np.zeros(width), np.eye(width), metric) for metric in metrics]


def curves(tables: Sequence[Table]) -> list[Comparison]:
    """Comparisons with released curves, from tables of (m, f + k) known of other homes and (m, k) their rows.

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
        features.append(Comparison(left.mean(axis=0), weights, inverse_root(covariance + floor * np.eye(k))))
    return features


class Boosted:
    """Gradient boosting on pairs of a home and a row: is this row that home's?

    A pair is described by its scores in all comparisons, by how far each lies above or below the home's best other row,
    and by its place among the rows. It is trained on the true row of every home of the given tables and on the
    :data:`WRONG` best of the others, never takes what is nearer for less likely, and puts the :data:`RERANKED` best of
    the first comparison in a new order.

    ``compare`` learns comparisons from tables. The pairs to train on are described by comparisons that were learned
    from the other homes' parts: those a comparison was learned from look nearer than any home will.
    """

    def __init__(self, compare: Callable[[Sequence[Table]], list[Comparison]], seed: int = 0) -> None:
        self._compare, self._seed = compare, seed
        self._comparisons: list[Comparison] = []
        self._model: Any = None

    def learned(self, tables: Sequence[Table]) -> Boosted:
        """From (homes, f) known and (homes, k) rows, row i that of home i, of several tables of the same homes."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        pairs, truth = [], []
        part = np.arange(len(tables[0][0])) % PARTS
        for judged in (part == number for number in range(PARTS)):
            comparisons = self._compare([(known[~judged], rows[~judged]) for known, rows in tables])
            for known, rows in tables:
                different, which = _different(rows)
                described, own = _described(comparisons, known[judged], different), which[judged]
                home = np.arange(len(own))
                order = np.argsort(-described[:, :, 0], axis=1)[:, : WRONG + 1]
                wrong = order != own[:, None]
                pairs += [described[home, own], described[np.repeat(home, wrong.sum(axis=1)), order[wrong]]]
                truth += [np.ones(len(home)), np.zeros(int(wrong.sum()))]
        kinds = pairs[0].shape[1] // 3
        self._model = HistGradientBoostingClassifier(
            max_iter=120, learning_rate=0.05, max_leaf_nodes=6, min_samples_leaf=60, l2_regularization=1.0,
            monotonic_cst=[1] * (2 * kinds) + [-1] * kinds, early_stopping=False, random_state=self._seed,
        )  # fmt: skip
        self._model.fit(np.concatenate(pairs), np.concatenate(truth))
        self._comparisons = self._compare(tables)
        return self

    def scores(self, known: FloatArray, rows: FloatArray) -> FloatArray:
        """(homes, rows) log-odds of the best rows, all others below them."""
        described = _described(self._comparisons, known, rows)
        plain = described[:, :, 0]
        best = np.argsort(-plain, axis=1)[:, :RERANKED]
        pairs = np.take_along_axis(described, best[:, :, None], axis=1)
        odds = self._model.decision_function(pairs.reshape(-1, described.shape[2])).reshape(best.shape)
        scores: FloatArray = plain - plain.max() + odds.min() - 1.0
        np.put_along_axis(scores, best, odds, axis=1)
        return scores


def _described(comparisons: Sequence[Comparison], known: FloatArray, rows: FloatArray) -> FloatArray:
    """(homes, rows, d) what is known of pairs; rows are all different."""
    patient = comparisons[0].patient(known, rows)
    scores = np.stack([one.scores(known, rows) for one in comparisons] + [patient], axis=2)
    ordered = np.sort(scores, axis=1)
    best, second = ordered[:, -1:], ordered[:, -2:-1] if len(rows) > 1 else ordered[:, -1:]
    ahead = scores - np.where(scores == best, second, best)
    place = np.argsort(np.argsort(-scores, axis=1), axis=1).astype(np.float64)
    return np.concatenate([scores, ahead, place], axis=2)


def scored(attacker: Comparison | Boosted, known: FloatArray, rows: FloatArray) -> FloatArray:
    """(homes, rows) scores; rows that are the same get the same."""
    different, which = _different(rows)
    return attacker.scores(known, different)[:, which]


def _different(rows: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return different, which.ravel()


#: Least power told apart from none, kW.
FLOOR = 0.01
#: Shares of the sorted readings, and of the steps between neighboring ones, that describe a week.
LEVELS, JUMPS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0), (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
#: Bins of the histogram of power, evenly spaced in its logarithm up to 12 kW.
BINS = 32


def fingerprint(kw: FloatArray, weekend: NDArray[np.bool_]) -> tuple[FloatArray, tuple[int, ...]]:
    """(n, 7, s) readings of a week, s a day, to (n, f) numbers and where its blocks end; ``weekend`` (7,) says which.

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
    return np.concatenate(parts, axis=1), tuple(np.cumsum([part.shape[1] for part in parts]).tolist())
