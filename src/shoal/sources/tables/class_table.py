"""A shard or block of a class table as the stages of a run see it.

One row per label is its constant. Several rows are independent draws from its law, N(μ_X, Σ_X), and each of them is
released: the promise is about all rows of a label together, so it is made for as many answers as the label with most
rows has (``times``).

Entries are kept in units in which their errors cost alike: entry j is x_j 2^{e_j}, which is exact, with 2^{e_j} next to
its weight, by default one over its spread. What is released is divided by the same power of two, exactly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shoal import archive
from shoal.audits.guard import ModelGuard, model_guard
from shoal.card.facts import Accuracy
from shoal.card.measures import accuracy_facts
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.clip import Clip
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable
from shoal.numerics.eigenpairs import eigh
from shoal.sources.tables.table_file import CROWD, LABEL, ROW, SOURCE_ROW
from shoal.validation import FloatArray, IndexArray

if TYPE_CHECKING:
    import polars as pl

FORMAT, VERSION = "shoal class table", 2
#: Smallest eigenvalue of the correlations within labels: below it a column is a combination of the others.
DEPENDENT = 1e-9
#: Share of rows that may repeat another row of their label: rounded figures do, once in a while.
MOST_COPIES = 0.05
#: Suffix of a shard's file.
SUFFIX = "table"
#: What errors are counted in.
UNIT = "units of the columns"


@dataclass(frozen=True, repr=False)
class ClassTable:
    """Rows of labels in scaled units, and the laws that they are draws of; constants where every label has one row."""

    labels: tuple[str, ...]
    columns: tuple[str, ...]
    exponents: NDArray[np.int64]  #: (k,)
    values: FloatArray  #: (m, k) in scaled units
    owner: IndexArray  #: (m,) position of each row's label
    source_row: NDArray[np.int64]  #: (m,) number of each row in the table it came from
    covs: FloatArray | None = None  #: (n, k, k) in scaled units; None for constants
    degrees: FloatArray | None = None  #: (n,) degrees of freedom of the covariances
    clip: float | None = None  #: radius of the ellipsoids that rows are moved into, in deviations of their label's law

    drawn = False
    unit = UNIT
    owner_columns = (SOURCE_ROW, LABEL)

    def __repr__(self) -> str:
        """Sizes only."""
        return f"ClassTable({len(self.labels)} labels, {len(self.values)} rows, {len(self.columns)} entries)"

    @property
    def constant(self) -> bool:
        return self.covs is None

    @property
    def query(self) -> str:
        return "constant" if self.constant else "sample"

    @property
    def owners(self) -> tuple[str, ...]:
        return tuple(self.labels[i] for i in self.owner.tolist())

    @property
    def times(self) -> int:
        return int(np.bincount(self.owner, minlength=len(self.labels)).max())

    @cached_property
    def means(self) -> FloatArray:
        """(n, k) mean row of each label."""
        return label_means(self.values, self.owner, len(self.labels))

    def take(self, labels: Sequence[str]) -> ClassTable:
        place = {name: i for i, name in enumerate(self.labels)}
        chosen = np.array([place[name] for name in labels], dtype=np.intp)
        new = np.full(len(self.labels), -1, dtype=np.intp)
        new[chosen] = np.arange(len(chosen))
        rows = np.flatnonzero(new[self.owner] >= 0)
        return replace(
            self,
            labels=tuple(labels),
            values=self.values[rows],
            owner=new[self.owner[rows]],
            source_row=self.source_row[rows],
            covs=None if self.covs is None else self.covs[chosen],
            degrees=None if self.degrees is None else self.degrees[chosen],
        )

    def laws(self) -> GaussianClasses:
        if self.covs is None:
            return GaussianClasses.deterministic(self.means, self.labels)
        return GaussianClasses(self.means, self.covs, self.labels)

    def answers(self, normals: FloatArray | None = None) -> FloatArray:
        """The rows, moved into the ellipsoids of their labels where they are clipped."""
        return self.values if self.clip is None else Clip.of(self.laws(), self.clip).apply(self.values, self.owners)

    def readings(self) -> tuple[str, ...]:
        """Of the row itself."""
        return tuple(hashlib.sha256((row + 0.0).astype("<f8").tobytes()).hexdigest() for row in self.values)

    def questions(self, name: str) -> list[str]:
        """A label's first row has the name of the release, the others a number beside it."""
        seen = np.zeros(len(self.labels), dtype=np.int64)
        found = []
        for i in self.owner.tolist():
            seen[i] += 1
            found.append(name if seen[i] == 1 else f"{name} row {seen[i]}")
        return found

    def accuracy(self, mechanism: Releasable) -> Accuracy:
        """In scaled units; columns have different meanings, so that their mean answer and total say nothing."""
        return replace(accuracy_facts(mechanism, self.labels, UNIT), answers=None, total_error=None)

    def guard(self, group: Mechanism, draws: int, seed: int) -> ModelGuard | None:
        observed = 1 if self.constant else self
        return model_guard(group, observed, query=self.query, fitted_on_private_data=True, n_draws=draws, seed=seed)

    def observations(self, labels: Sequence[str]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What the law of each label rests on, as :func:`shoal.model_guard` asks for it."""
        part = self.take(labels)
        assert part.covs is not None
        assert part.degrees is not None
        return np.bincount(part.owner, minlength=len(labels)).astype(np.float64), part.degrees, part.covs

    def off(self, released: FloatArray, truth: FloatArray) -> tuple[int, float]:
        """Entries whose truth came later, and their errors: of a table nothing comes later."""
        return 0, 0.0

    def table(self, order: IndexArray, group: IndexArray, row: IndexArray, released: FloatArray) -> pl.DataFrame:
        """source_row, label, crowd, row and the entries in their own units."""
        import polars as pl

        own = np.ldexp(released[order], -self.exponents)
        return pl.DataFrame(
            {
                SOURCE_ROW: self.source_row[order],
                LABEL: pl.Series(self.labels, dtype=pl.String).gather(self.owner[order]),
                CROWD: group,
                ROW: row,
                **{name: own[:, j] for j, name in enumerate(self.columns)},
            }
        )

    def save(self, path: str | Path) -> None:
        """Write a versioned file without pickle. It holds the rows: guard it like them."""
        archive.save_record(self, path, FORMAT, VERSION)

    @staticmethod
    def load(path: str | Path) -> ClassTable:
        """Read a file that :meth:`save` wrote; a damaged or altered one is refused."""
        return archive.load_record(ClassTable, path, FORMAT, VERSION)


def label_means(values: FloatArray, owner: IndexArray, n: int) -> FloatArray:
    """(n, k) mean of each label's rows; of one row, that row exactly."""
    counts = np.bincount(owner, minlength=n)
    total = np.zeros((n, values.shape[1]))
    np.add.at(total, owner, values)
    return total / np.maximum(counts, 1)[:, None]


def exponents_of(spread: FloatArray) -> NDArray[np.int64]:
    """(k,) the powers of two next to one over each entry's spread."""
    return np.rint(-np.log2(np.where(spread > 0, spread, 1.0))).astype(np.int64)


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
            "(--columns=-NAME)"
        )
    scaled = rest / spread
    low, vectors = eigh((scaled.T @ scaled)[None] / (m - n))
    if low[0, 0] < DEPENDENT:
        odd = columns[int(np.argmax(np.abs(vectors[0][:, 0])))]
        raise InputError(
            f"columns: {odd!r} is a combination of other columns, up to rounding; leave it out (--columns=-NAME), and "
            "compute it from what is released"
        )
    return GaussianClasses.fit(values, list(owners))
