"""Any table with a label in every row: read from files, and as the stages of a run see it.

A column that is not numeric, unless it was named, or has one value in all rows is no entry; a row with an empty cell is
left out, and counted; text, NaN or an infinity in an entry and a row without a label are refused. A long table (label,
time, value) is turned into one row per label, an entry per time. Text never reaches a message.

One row per label is its constant. Several rows are independent draws from its law, N(μ_X, Σ_X), and each of them is
released: the promise is about all rows of a label together, so it is made for as many answers as the label with most
rows has (``times``). Entries are kept in units in which their errors cost alike: entry j is x_j 2^{e_j}, which is
exact, with 2^{e_j} next to one over its spread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal.columns import public_columns
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.releasable import Releasable
from shoal.numerics.eigenpairs import eigh
from shoal.product.card.facts import Accuracy
from shoal.product.card.measures import accuracy_facts
from shoal.product.sources.declared_files import open_declared
from shoal.product.sources.frames import (
    UNREADABLE,
    declared_encoding,
    load_record,
    number_of,
    open_table_file,
    save_record,
)
from shoal.product.sources.meters.columns import describe_header
from shoal.product.sources.meters.meter_files import choose_spellings, readable_names
from shoal.validation import FloatArray, IndexArray

#: Rows of a CSV file that its numeric columns are recognized by.
LOOKED_AT = 1000
#: Columns of released tables that are shoal's own: whoever reads one looks for these by name.
SOURCE_ROW, LABEL, CROWD, ROW = "source_row", "label", "crowd", "row"
OWN = (SOURCE_ROW, LABEL, "household", ROW, *public_columns("meters"))
FORMAT, VERSION = "shoal class table", 3
#: Smallest eigenvalue of the correlations within labels: below it a column is a combination of the others.
DEPENDENT = 1e-9
#: Share of rows that may repeat another row of their label: rounded figures do, once in a while.
MOST_COPIES = 0.05
#: Suffix of a shard's file.
SUFFIX = "table"


def table_rows(
    files: Sequence[Path],
    label: str,
    columns: Sequence[str] = (),
    time: str | None = None,
    value: str | None = None,
    encoding: str | None = None,
) -> tuple[pl.DataFrame, tuple[str, ...], tuple[str, ...]]:
    """Read files of one layout: label, source_row (from 1 on) and the number of every entry, null where empty.

    Entries are the ``columns`` named, or all numeric ones but the label and those named as -NAME. With ``time`` and
    ``value``, a long table becomes one row per label, in order of appearance; its entries are the times, in order.

    Returns:
        The rows, the entries, and the columns that are left out.
    """
    try:
        parts = [open_table_file(file, encoding) for file in files]  # kept while rows are read from temporary files
        schemas = [part.raw.collect_schema() for part in parts]
    except UNREADABLE:  # their texts may quote the data
        raise InputError("table: it is empty, or cannot be read as CSV, Parquet or Arrow") from None
    if any(schema != schemas[0] for schema in schemas[1:]):
        raise InputError("table: its files differ in their columns; give files of one layout")
    raw, header = pl.concat([part.raw for part in parts]), list(schemas[0])
    for name, setting in ((label, "label"), (time, "timestamp_column"), (value, "value_column")):
        if name is not None and name not in header:
            raise InputError(f"{setting}: the table has no column {name!r}; found {describe_header(header)}")
    if (time is None) != (value is None):
        raise InputError("timestamp_column and value_column belong together: a long table has a time and a value")
    if time is not None and columns:
        raise InputError("columns are for tables with an entry per column, not for long ones")
    entries = _choose_entries(raw, schemas[0], label, columns) if value is None else (value,)
    left_out = tuple(name for name in header if name not in (label, time, *entries))
    try:
        rows = raw.drop(SOURCE_ROW, strict=False).with_row_index(SOURCE_ROW, 1)
        names = pl.col(label).cast(pl.String).alias(LABEL)
        moments = [] if time is None else [pl.col(time).cast(pl.String).alias("time")]
        chosen = rows.select(names, pl.col(SOURCE_ROW).cast(pl.Int64), *entries, *moments).collect()
    except UNREADABLE:
        raise InputError("table: its rows do not have the columns of its header, or it is damaged") from None
    checked = _numbers_of_entries(chosen, entries)
    if time is None:
        return checked, entries, left_out
    long = checked.with_columns(chosen["time"])
    if long["time"].null_count():
        raise InputError(f"timestamp_column: some row(s) have no {time!r}")
    if long.select(LABEL, "time").n_unique() != len(long):
        raise InputError("timestamp_column: some label has two rows for one time; a long table has one value for each")
    times = tuple(long["time"].unique().sort())
    wide = long.pivot(on="time", index=LABEL, values=entries[0], maintain_order=True).select(LABEL, *times)
    return wide.with_row_index(SOURCE_ROW, 1).with_columns(pl.col(SOURCE_ROW).cast(pl.Int64)), times, left_out


def declared_rows(
    files: Sequence[Path], label: str, columns: Sequence[str], encoding: str | None = None
) -> tuple[pl.DataFrame, int]:
    """Read a table under the readings' promise: one row per label, and how many labels are left out.

    A label decides about itself alone: it is left out where a cell of a named column is empty or no number, or where it
    has several rows, in whatever spelling; rows without a readable label are of nobody.
    """
    refuse_own_names(columns, (*OWN, "count"))
    parts = []
    for file in files:
        table = open_declared(file, declared_encoding(encoding), lambda header: False)
        kinds = table.raw.collect_schema()
        missing = next((name for name in sorted({label, *columns}) if name not in kinds), None)
        if missing is not None:
            raise InputError(f"label: {file.name} has no column {missing!r}; found {describe_header(list(kinds))}")
        numbers = [number_of(pl.col(name), kinds[name], decimal_comma=table.decimal_comma) for name in columns]
        try:
            parts.append(
                table.raw.select(pl.col(label).alias("household"), *numbers).with_columns(readable_names()).collect()
            )
        except UNREADABLE:
            raise InputError(f"table: {file.name} is damaged, or its columns are neither numbers nor text") from None
    every = pl.concat(parts).filter(pl.col("household").fill_null("") != "")
    names = every["household"].unique().to_list()
    every = every.with_columns(household=pl.col("household").replace(choose_spellings(names, {}, together=True)))
    whole = every.filter(pl.len().over("household") == 1).drop_nulls()
    whole = whole.filter(pl.all_horizontal(pl.col(name).is_finite() for name in columns))
    return whole.rename({"household": LABEL}), every["household"].n_unique() - len(whole)


def _choose_entries(
    raw: pl.LazyFrame, schema: Mapping[str, Any], label: str, columns: Sequence[str]
) -> tuple[str, ...]:
    """The columns that are entries: those named, or all of numbers but the label and those named as -NAME."""
    named, dropped = _named_and_dropped(columns, list(schema))
    if label in named or label in dropped:
        raise InputError("label: the column of labels can be neither an entry nor dropped")
    numeric = _numeric_columns(raw, schema)
    odd = [name for name in named if name not in numeric]
    if odd:
        raise InputError(
            f"columns: {odd[0]!r} holds text or dates, or nothing; entries are numbers. Leave it out of columns="
        )
    among = named or [name for name in schema if name in numeric and name != label]
    entries = tuple(name for name in among if name not in dropped)
    if not entries:
        raise InputError("columns: no numeric column is left for the entries; name them with columns=")
    refuse_own_names(entries)
    return entries


def refuse_own_names(columns: Sequence[str], own: Sequence[str] = OWN) -> None:
    """Refuse columns of figures that are called like one of shoal's own."""
    taken = next((name for name in columns if name in own), None)
    if taken is not None:
        raise InputError(
            f"columns: {taken!r} is a column of the released tables of shoal; rename yours, or leave it out "
            "(columns='-NAME')"
        )


def _named_and_dropped(given: Sequence[str], header: Sequence[str]) -> tuple[list[str], list[str]]:
    """Columns that were named and those named as -NAME, each for itself or several with commas between them."""
    names: list[str] = []
    for text in given:
        names += [text] if text in header else [part.strip() for part in text.split(",")]
    named = [name for name in dict.fromkeys(names) if name in header or not name.startswith("-")]
    dropped = [name[1:] for name in names if name not in named]
    missing = [name for name in (*named, *dropped) if name not in header]
    if missing:
        raise InputError(f"columns: the table has no column {missing[0]!r}; found {describe_header(header)}")
    return named, dropped


def _numeric_columns(raw: pl.LazyFrame, schema: Mapping[str, Any]) -> set[str]:
    """Columns of numbers; of text columns those whose first rows are numbers, or empty with one number at least."""
    texts = [name for name, kind in schema.items() if kind == pl.String]
    try:
        head = raw.select(texts).head(LOOKED_AT).collect()
    except pl.exceptions.PolarsError:
        raise InputError("table: it is empty, or its rows do not have the columns of its header") from None
    filled = {name: head[name].filter(head[name].str.strip_chars() != "") for name in texts}
    of_text = {name for name, cells in filled.items() if len(cells) and not number_of(cells, pl.String).null_count()}
    return of_text | {name for name, kind in schema.items() if kind.is_numeric()}


def _numbers_of_entries(rows: pl.DataFrame, entries: Sequence[str]) -> pl.DataFrame:
    """Turn entries into numbers, null where a cell is empty; refuse other text, infinities and rows without label."""
    names = rows[LABEL].str.strip_chars()
    if names.null_count() or (names == "").any():
        raise InputError(f"label: {int((names.fill_null('') == '').sum())} row(s) have no label; give every row one")
    columns = [names, rows[SOURCE_ROW]]
    for name in entries:
        cells = rows[name]
        numbers = number_of(cells, cells.dtype)
        filled = cells.str.strip_chars() != "" if cells.dtype == pl.String else cells.is_not_null()
        if numbers.count() < filled.sum():
            raise InputError(
                f"columns: {name!r} holds text in some row(s); entries are numbers. Leave it out (columns='-NAME'), or "
                "mend it"
            )
        if not numbers.drop_nulls().is_finite().all():
            raise InputError(
                f"columns: {name!r} holds NaN or an infinity in some row(s). Leave those cells empty, which leaves "
                "their rows out, or put in what they stand for"
            )
        columns.append(numbers)
    return pl.DataFrame(columns)


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

    drawn = False
    owner_columns = (SOURCE_ROW, LABEL)

    def __repr__(self) -> str:
        """Sizes only: a printed object must not release rows."""
        return f"ClassTable({len(self.labels)} labels, {len(self.values)} rows, {len(self.columns)} entries)"

    @property
    def query(self) -> str:
        """ "constant", or "sample" where labels have several rows."""
        return "constant" if self.covs is None else "sample"

    @property
    def owners(self) -> tuple[str, ...]:
        """(m,) label of each row."""
        return tuple(self.labels[i] for i in self.owner.tolist())

    @property
    def times(self) -> int:
        """Rows of the label that has most: how many answers about it are released."""
        return int(np.bincount(self.owner, minlength=len(self.labels)).max())

    @cached_property
    def means(self) -> FloatArray:
        """(n, k) mean row of each label."""
        return label_means(self.values, self.owner, len(self.labels))

    def take(self, labels: Sequence[str]) -> ClassTable:
        """The table of these labels only, in this order."""
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
        """The law of each label's rows: a constant, or a Gaussian with the covariances."""
        if self.covs is None:
            return GaussianClasses.deterministic(self.means, self.labels)
        return GaussianClasses(self.means, self.covs, self.labels)

    def answers(self, normals: FloatArray | None = None) -> FloatArray:
        """(m, k) rows, which are the true answers; ``normals`` are for laws that are sampled from."""
        return self.values

    def answer_digests(self) -> tuple[str, ...]:
        """SHA-256 of each row, by which the ledger recognizes a question that was asked before."""
        return tuple(hashlib.sha256((row + 0.0).astype("<f8").tobytes()).hexdigest() for row in self.values)

    def release_names(self, name: str) -> list[str]:
        """Name of each row's release in the ledger: the name, and for a label's further rows a number behind it."""
        seen = np.zeros(len(self.labels), dtype=np.int64)
        names = []
        for i in self.owner.tolist():
            seen[i] += 1
            names.append(name if seen[i] == 1 else f"{name} row {seen[i]}")
        return names

    def accuracy(self, mechanism: Releasable) -> Accuracy:
        """Errors of what is released, in scaled units; means and totals over columns say nothing and are left out."""
        return replace(accuracy_facts(mechanism, self.labels, "units of the columns"), answers=None, total_error=None)

    def estimation_basis(self, labels: Sequence[str]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows per label, degrees of freedom and covariances behind the laws, for :func:`shoal.model_guard`."""
        part = self.take(labels)
        assert part.covs is not None
        assert part.degrees is not None
        return np.bincount(part.owner, minlength=len(labels)).astype(np.float64), part.degrees, part.covs

    def error_totals(self, released: FloatArray, truth: FloatArray) -> tuple[int, float]:
        """Entries whose truth came later, and the sum of errors there: none, for a table is about no later time."""
        return 0, 0.0

    def owner_rows(self, order: IndexArray, group: IndexArray, row: IndexArray, released: FloatArray) -> pl.DataFrame:
        """The owner's table of released rows: source_row, label, crowd, row and the entries in their own units."""
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
        save_record(self, path, FORMAT, VERSION)

    @staticmethod
    def load(path: str | Path) -> ClassTable:
        """Read a file that :meth:`save` wrote; a damaged or altered one is refused."""
        return load_record(ClassTable, path, FORMAT, VERSION)


def label_means(values: FloatArray, owner: IndexArray, n: int) -> FloatArray:
    """(n, k) mean of each label's rows; of one row, that row exactly."""
    counts = np.bincount(owner, minlength=n)
    total = np.zeros((n, values.shape[1]))
    np.add.at(total, owner, values)
    return total / np.maximum(counts, 1)[:, None]


def distinct_rows(values: FloatArray, owner: IndexArray) -> IndexArray:
    """Positions of the (m, k) rows that do not repeat an earlier row of the same label, in order."""
    together = np.column_stack([owner.astype(np.float64), values + 0.0])
    return np.sort(np.unique(together, axis=0, return_index=True)[1])


def refuse_copies(values: FloatArray, owner: IndexArray) -> None:
    """Raise InputError if many (m, k) rows repeat another row of their label: they are no independent draws.

    Draws of a continuous law are never equal, but figures rounded to a few digits are now and then: up to a share of
    ``MOST_COPIES`` is let through.
    """
    copies = len(values) - len(distinct_rows(values, owner))
    if copies > MOST_COPIES * len(values):
        raise InputError(
            f"table: {copies} of {len(values)} rows repeat another row of their label exactly. Rows of a label must be "
            "independent of each other: leave out duplicates, or add columns in which such rows differ"
        )


def fit_sample_laws(values: FloatArray, owners: Sequence[str], columns: Sequence[str]) -> GaussianClasses:
    """Fit :meth:`shoal.GaussianClasses.fit` to (m, k) rows and the label of each; refusals name a column."""
    m, k = values.shape
    names, owner = np.unique(np.asarray(owners), return_inverse=True)
    n = len(names)
    if m - n <= k + 1:
        raise InputError(
            f"table: some crowd has {m} rows of {n} labels, too few for laws of {k} columns: it takes more than "
            f"{k + 1} rows beyond the first of each label. Choose fewer columns= or a larger crowd=, or leave one "
            "row per label, which is then released as a constant"
        )
    rest = values - label_means(values, owner, n)[owner]
    spread = np.sqrt((rest**2).sum(axis=0) / (m - n))
    flat = np.flatnonzero(spread <= np.abs(values).max(axis=0) * 1e-12)
    if len(flat):
        raise InputError(
            f"columns: {columns[flat[0]]!r} is the same in all rows of a label, for every label of some crowd, while "
            "other columns are not; release it in a table of its own, with one row per label, and leave it out here "
            "(columns='-NAME')"
        )
    scaled = rest / spread
    low, vectors = eigh((scaled.T @ scaled)[None] / (m - n))
    if low[0, 0] < DEPENDENT:
        odd = columns[int(np.argmax(np.abs(vectors[0][:, 0])))]
        raise InputError(
            f"columns: {odd!r} is a combination of other columns, up to rounding; leave it out (columns='-NAME'), and "
            "compute it from what is released"
        )
    return GaussianClasses.fit(values, list(owners))
