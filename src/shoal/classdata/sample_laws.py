"""Covariances of labels from their rows: the scatter of all labels together, and as much of each one's own as it has.

    Σ_X = (S_X + ν₀ Σ_0) / (n_X − 1 + ν₀),   ν₀ = k + 2

with S_X the scatter of label X around its mean and Σ_0 the pooled covariance of the crowd, shrunk as Ledoit & Wolf
(2004) do: the mean of an inverse Wishart posterior. A label with one or two rows has nearly the pooled one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.classdata.class_table import label_means
from shoal.eigenpairs import eigh
from shoal.errors import InputError
from shoal.validation import FloatArray, IndexArray

#: Smallest eigenvalue of the pooled correlation matrix: below it a column is a combination of the others.
DEPENDENT = 1e-9


def sample_covs(values: FloatArray, owner: IndexArray, n: int, columns: Sequence[str]) -> FloatArray:
    """(n, k, k) the covariances of a crowd of n labels from (m, k) rows and the label of each."""
    from sklearn.covariance import ledoit_wolf

    m, k = values.shape
    if m - n <= k:
        raise InputError(
            f"table: some crowd has {m} rows of {n} labels, too few for laws of {k} columns: it takes more than {k} "
            "rows beyond the first of each label. Choose fewer --columns or a larger --crowd, or leave one row per "
            "label, which is then released as a constant"
        )
    rest = values - label_means(values, owner, n)[owner]
    spread = np.sqrt((rest**2).sum(axis=0) / (m - n))
    flat = np.flatnonzero(spread == 0)
    if len(flat):
        raise InputError(
            f"columns: {columns[flat[0]]!r} is the same in all rows of a label, for every label of some crowd, while "
            "other columns are not; release it in a table of its own, with one row per label, and --drop it here"
        )
    scaled = rest / spread
    low, vectors = eigh((scaled.T @ scaled)[None] / (m - n))
    if low[0, 0] < DEPENDENT:
        odd = columns[int(np.argmax(np.abs(vectors[0][:, 0])))]
        raise InputError(
            f"columns: {odd!r} is a combination of other columns, up to rounding; --drop it, and compute it from what "
            "is released"
        )
    pooled = ledoit_wolf(rest, assume_centered=True)[0] * (m / (m - n))
    counts = np.bincount(owner, minlength=n)
    found = np.empty((n, k, k))
    for i in range(n):
        own = rest[owner == i]
        found[i] = (own.T @ own + (k + 2) * pooled) / (counts[i] - 1 + k + 2)
    return 0.5 * (found + np.swapaxes(found, 1, 2))
