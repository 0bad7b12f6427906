"""Attacks on the rows that a release really gave out, with what somebody may know about the labels.

Of means: the attacker knows a curve of each label, takes the released row next to it, and names one of its crowd at
random. Of several rows per label: he knows whose all other rows are, and names the owner of a held-out one within its
crowd, by gradient boosting; the share that the largest label of the crowd has is what a guess gets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shoal.validation import FloatArray

#: Rows up to which held-out rows are attacked, folds, and rounds of boosting.
ROWS, FOLDS, ROUNDS = 4_000, 3, 60


def attack_means(
    known: FloatArray,
    values: FloatArray,
    rows: FloatArray,
    crowd: NDArray[np.int64],
    homes: NDArray[np.int64],
    *,
    most: int = 2_000,
    seed: int = 0,
) -> tuple[int, float | None, float, float] | None:
    """(labels looked for, share found among unprotected rows, share named from the release, share of a guess).

    Args:
        known: (n, k) what the attacker knows of each label, NaN where he knows nothing.
        values: (n, k) the labels' own figures, which would have been released without protection.
        rows: (n, k) the row of each label's crowd.
        crowd: (n,) which crowd each label is in.
        homes: (n,) members of it.
        most: labels to look for; more are sampled.
        seed: seed of the sample.
    """
    sought = np.flatnonzero(np.isfinite(known).all(axis=1))
    if len(sought) > most:
        sought = np.sort(np.random.default_rng(seed).choice(sought, most, replace=False))
    if len(sought) < 2 or len(values) < 2:
        return None
    first = np.unique(crowd, return_index=True)[1]
    table, numbers = rows[first], crowd[first]
    own, hidden = 0.0, 0.0
    for i in sought:
        gaps = ((values - known[i]) ** 2).sum(axis=1)
        nearest = np.flatnonzero(gaps == gaps.min())
        own += float(i in nearest) / len(nearest)
        gaps = ((table - known[i]) ** 2).sum(axis=1)
        nearest = np.flatnonzero(gaps == gaps.min())
        hidden += float(crowd[i] in numbers[nearest]) / (len(nearest) * homes[i])
    guessing = float((1.0 / homes[sought]).mean())
    return len(sought), own / len(sought), hidden / len(sought), guessing


def attack_rows(
    values: FloatArray, labels: NDArray[np.int64], crowd: NDArray[np.int64], *, seed: int = 0
) -> tuple[int, float, float] | None:
    """(labels, share of held-out rows whose label is named within its crowd, share of the majority guess)."""
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
