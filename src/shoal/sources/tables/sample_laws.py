"""Laws of the labels of a crowd from their rows, and columns that no law can be had for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray, IndexArray

#: Smallest eigenvalue of the correlations within labels: below it a column is a combination of the others.
DEPENDENT = 1e-9
#: Share of rows that may repeat another row of their label: rounded figures do, once in a while.
MOST_COPIES = 0.05


def refuse_copies(values: FloatArray, owner: IndexArray) -> None:
    """Refuse (m, k) rows of which many repeat another row of the same label: the promise takes rows for independent.

    Draws of a continuous law are never equal, but figures rounded to a few digits are now and then: up to a share of
    ``MOST_COPIES`` is let through.
    """
    together = np.column_stack([owner.astype(np.float64), values + 0.0])
    copies = len(values) - len(np.unique(together, axis=0))
    if copies > MOST_COPIES * len(values):
        raise InputError(
            f"table: {copies} of {len(values)} rows repeat another row of their label exactly. Rows of a label must be "
            "independent of each other: leave out what is there twice, or have columns that tell such rows apart"
        )


def sample_laws(values: FloatArray, owners: Sequence[str], columns: Sequence[str]) -> GaussianClasses:
    """:meth:`shoal.GaussianClasses.fit` on (m, k) rows and the label of each; refusals name a column."""
    m, k = values.shape
    names, owner = np.unique(np.asarray(owners), return_inverse=True)
    n = len(names)
    if m - n <= k + 1:
        raise InputError(
            f"table: some crowd has {m} rows of {n} labels, too few for laws of {k} columns: it takes more than "
            f"{k + 1} rows beyond the first of each label. Choose fewer --columns or a larger --crowd, or leave one "
            "row per label, which is then released as a constant"
        )
    means = np.zeros((n, k))
    np.add.at(means, owner, values)
    rest = values - (means / np.bincount(owner)[:, None])[owner]
    spread = np.sqrt((rest**2).sum(axis=0) / (m - n))
    flat = np.flatnonzero(spread <= np.abs(values).max(axis=0) * 1e-12)
    if len(flat):
        raise InputError(
            f"columns: {columns[flat[0]]!r} is the same in all rows of a label, for every label of some crowd, while "
            "other columns are not; release it in a table of its own, with one row per label, and leave it out here "
            "(--set drop=NAME)"
        )
    scaled = rest / spread
    low, vectors = eigh((scaled.T @ scaled)[None] / (m - n))
    if low[0, 0] < DEPENDENT:
        odd = columns[int(np.argmax(np.abs(vectors[0][:, 0])))]
        raise InputError(
            f"columns: {odd!r} is a combination of other columns, up to rounding; leave it out (--set drop=NAME), and "
            "compute it from what is released"
        )
    return GaussianClasses.fit(values, list(owners))
