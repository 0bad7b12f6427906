"""A learned attacker: gradient boosting weighs several comparisons of a home and a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.product.studies.attackers import (
    Table,
    WeekMetric,
    distinct_rows,
    fingerprint_metrics,
    fingerprint_scatter,
    inverse_root,
)
from shoal.validation import FloatArray

#: The attacker's name.
LEARNED = "gradient boosting on pairs"
#: Rows that it puts in a new order, the plain attacker's best; wrong ones among them that it learns from.
RERANKED, WRONG = 30, 15
#: Parts of the homes, each described by comparisons that were learned from the others.
PARTS = 8


def weekly_blocks(tables: Sequence[Table], ends: Sequence[int]) -> list[WeekMetric]:
    """Comparisons of fingerprints: as the plain attackers make them, and each block for itself."""
    comparisons, scatter = fingerprint_metrics(tables, ends), fingerprint_scatter(tables)
    width = len(scatter)
    for start, end in zip((0, *ends[:-1]), ends, strict=True):
        block = np.zeros((width, end - start))
        block[start:end] = inverse_root(scatter[start:end, start:end])
        comparisons.append(WeekMetric(np.zeros(width), np.eye(width), block))
    return comparisons


class Boosted:
    """Gradient boosting on pairs of a home and a row: is this row that home's?

    A pair is described by its scores in all comparisons, by how far each lies above or below the home's best other row,
    and by its place among the rows. It is trained on the true row of every home of the given tables and on the
    :data:`WRONG` best of the others, never takes what is nearer for less likely, and puts the :data:`RERANKED` best of
    the first comparison in a new order.

    ``compare`` learns comparisons from tables. The pairs to train on are described by comparisons that were learned
    from the other homes' parts: those a comparison was learned from look nearer than any home will.
    """

    def __init__(self, compare: Callable[[Sequence[Table]], list[WeekMetric]], seed: int = 0) -> None:
        self._compare, self._seed = compare, seed
        self._comparisons: list[WeekMetric] = []
        self._model: Any = None

    def learned(self, tables: Sequence[Table]) -> Boosted:
        """From (homes, f) known and (homes, k) rows, row i that of home i, of several tables of the same homes."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        pairs, truth = [], []
        part = np.arange(len(tables[0][0])) % PARTS
        for judged in (part == number for number in range(PARTS)):
            comparisons = self._compare([(known[~judged], rows[~judged]) for known, rows in tables])
            for known, rows in tables:
                different, which = distinct_rows(rows)
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


def _patient(comparison: WeekMetric, known: FloatArray, rows: FloatArray) -> FloatArray:
    """(homes, rows) −Σ ln(1 + dᵢ²): a few coordinates far off count less."""
    a, b = comparison.coordinates(known, rows)
    return np.stack([-np.log1p((b - one) ** 2).sum(axis=1) for one in a])


def _described(comparisons: Sequence[WeekMetric], known: FloatArray, rows: FloatArray) -> FloatArray:
    """(homes, rows, d) what is known of pairs; rows are all different."""
    patient = _patient(comparisons[0], known, rows)
    scores = np.stack([one.scores(known, rows) for one in comparisons] + [patient], axis=2)
    ordered = np.sort(scores, axis=1)
    best, second = ordered[:, -1:], ordered[:, -2:-1] if len(rows) > 1 else ordered[:, -1:]
    ahead = scores - np.where(scores == best, second, best)
    place = np.argsort(np.argsort(-scores, axis=1), axis=1).astype(np.float64)
    return np.concatenate([scores, ahead, place], axis=2)
