"""Three questions about a class table, one row per label: before protection, and as averages would be released.

Singling out: how often is a label the only one with the figures that somebody knows? Linkability: somebody knows a
label's figures in every second column and looks for its row by them. Inference: what do rows tell about each column of
their members, by that column and by all others (:mod:`inference`)?
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal import validation
from shoal.crowds.diversity import CLOSENESS
from shoal.crowds.publish import RowsState, advance_rows
from shoal.crowds.tables import ColumnRoles
from shoal.errors import InputError
from shoal.product.sources.class_table import LABEL, SOURCE_ROW, table_rows
from shoal.product.sources.frames import table_of
from shoal.product.studies.findings import Finding, Study, share_right, unique_share
from shoal.product.studies.inference import Rows, above_middle, infer, infer_among_all, infer_columns
from shoal.readings.tables import noisy_table_plan, table_sum
from shoal.validation import FloatArray

#: Columns that somebody knows who wants to single out a label; ε at which the readings' promise is rehearsed.
KNOWN, EPSILON = 3, 1.0
#: Protected columns that are reported by name, at most.
NAMED = 3
OWN, OTHERS = "a column of a member, by its row's figure", "a column of a member, by its row's other figures"
INSIDER = "by someone who knows all other rows and two rows of this one (ε = 1)"
ASSUMED = (
    "The attacker knows some columns of a label exactly, and which row it belongs to where it infers others.",
    "It learns from other rows of the same table who has a property. A column's property is to be above its median.",
)
NOT_LOOKED_AT = (
    "Someone who knows the other members' figures of a row, and changes between releases: see the card of a run.",
    "Knowledge from other tables, and columns that are not numbers.",
)


def attack_table(
    table: Any,
    label: str,
    *,
    columns: Sequence[str] = (),
    crowd: int = 10,
    sensitive: Sequence[str] = (),
    seed: int = 0,
) -> Study:
    """Three questions about a table with one row per label.

    Args:
        table: a frame, or a CSV, Parquet or Arrow file.
        label: the column of labels.
        columns: the columns that are released; by default all of numbers.
        crowd: labels of a crowd, at least.
        sensitive: columns that crowds must not be alike in.
        seed: of what attackers learn from, and of rehearsed crowds and offsets.

    Returns:
        The findings; ``print`` shows them as tables, ``save`` writes two sheets to file with them.

    >>> import numpy as np, polars as pl
    >>> draw = np.random.default_rng(0)
    >>> frame = pl.DataFrame(draw.normal(size=(60, 2)), ["a", "b"]).with_row_index("who")
    >>> attack_table(frame, "who", crowd=4).exceeded
    ()
    """
    crowd = validation.count(at_least=2, crowd=crowd)
    labels, names, values, gone = read_table(table, label, columns)
    if len(labels) < 2 * crowd:
        raise InputError(f"table: {len(labels)} labels can be used, which is too few for crowds of {crowd}")
    lacking = [name for name in sensitive if name not in names]
    if lacking:
        raise InputError(f"sensitive: {lacking[0]!r} is not among the released columns")
    at = [names.index(name) for name in sensitive]
    released = rehearse_rows(labels, values, crowd, at, seed)
    findings = table_findings(Rows("raw rows", (values,), np.arange(len(labels))), values, names, at, seed)
    findings += table_findings(released, values, names, at, seed)
    bounds = {name: (float(column.min()), float(column.max())) for name, column in zip(names, values.T, strict=True)}
    plan = noisy_table_plan(len(labels), EPSILON, bounds=bounds)
    each = np.stack([table_sum(dict(zip(names, row[:, None], strict=True)), plan) for row in values])
    for j in named_columns(values, at) or [0]:
        truth = above_middle(values[:, j])[None]
        findings += infer_among_all([each], plan.account, truth, f"{names[j]}; {INSIDER}", seed=seed)
    about = f"{len(labels):,} labels with {len(names)} columns of numbers; {len(released.values[0])} crowds."
    left = {"with an empty cell": gone} if gone else {}
    return Study(about, len(labels), tuple(findings), ASSUMED, NOT_LOOKED_AT, left)


def table_findings(
    rows: Rows, values: FloatArray, names: Sequence[str], sensitive: Sequence[int] = (), seed: int = 0
) -> list[Finding]:
    """The three questions about rows (one origin), given all labels' figures in the same columns."""
    (released,), n = rows.values, len(values)
    size = np.bincount(rows.member, minlength=len(released))[rows.member]
    single = len(released) == n
    findings = []
    if single:
        what = f"the one label with {KNOWN} figures that are known"
        alone = unique_share(values, KNOWN, 0.0, seed)
        findings.append(share_right("singling out", rows.release, what, alone, 1 / n))
    found = _found(released, values, rows.member)
    what = "the row of a label of which every second column is known"
    findings.append(share_right("linkability", rows.release, what, found, 1 / len(released)))
    if not single:
        guess = float((1 / size).mean())
        what = "the label behind a row, every second column being known"
        findings.append(share_right("singling out", rows.release, what, found / size, guess, guess))
        findings += infer_columns(rows, above_middle(values), names, OWN, features="own", seed=seed)
    findings += infer_columns(rows, above_middle(values), names, OTHERS, seed=seed)
    for j in named_columns(values, sensitive):
        part = released if not single else np.delete(released, j, axis=1)
        one = Rows(rows.release, (part,), rows.member)
        findings += infer(one, above_middle(values[:, j])[None], f"{names[j]}, by all the row's figures", seed=seed)
    return findings


def named_columns(values: FloatArray, sensitive: Sequence[int]) -> list[int]:
    """Positions of protected columns that are reported by name."""
    return [int(j) for j in np.flatnonzero(ColumnRoles.of(values, sensitive).protected)[:NAMED]]


def read_table(table: Any, label: str, columns: Sequence[str]) -> tuple[list[str], list[str], FloatArray, int]:
    """Labels, columns and figures (n, k) of a table with one row per label, and how many rows have empty cells."""
    frame = table_of(table, "table")
    if frame is None:
        rows, entries, _ = table_rows([Path(table)], label, columns)
    else:
        kinds = frame.collect_schema()
        if label not in kinds:
            raise InputError(f"label: the table has no column {label!r}")
        entries = tuple(columns) or tuple(name for name, kind in kinds.items() if kind.is_numeric() and name != label)
        rows = frame.select(pl.col(label).cast(pl.String).alias(LABEL), *entries).collect()
    rows = rows.select(LABEL, *(pl.col(name).cast(pl.Float64) for name in entries if name != SOURCE_ROW))
    whole = rows.drop_nulls()
    if whole[LABEL].n_unique() < len(whole):
        raise InputError("label: some label has several rows; this study takes tables with one row per label")
    values = whole.select(entries).to_numpy().astype(np.float64)
    varied = np.ptp(values, axis=0) > 0 if len(values) else np.zeros(len(entries), dtype=np.bool_)
    names = [name for name, different in zip(entries, varied, strict=True) if different]
    if len(names) < 2:
        raise InputError("columns: two columns of different numbers are needed at least")
    return whole[LABEL].to_list(), names, values[:, varied], len(rows) - len(whole)


def rehearse_rows(labels: Sequence[str], values: FloatArray, crowd: int, sensitive: Sequence[int], seed: int) -> Rows:
    """Averages as a first release would have them, with seeded draws."""
    draw = np.random.default_rng(seed)
    first = RowsState(crowd, CLOSENESS, None, ColumnRoles(*np.zeros((3, 0), dtype=np.bool_)), 0, {})
    rows, state = advance_rows(
        (labels, values), first, crowd, sensitive=sensitive, draw=lambda n: int(draw.integers(n))
    )
    place = {name: row for row, kept in enumerate(state.crowds.values()) for name in kept.labels}
    return Rows("averages", (fill_rows(rows.values),), np.array([place[name] for name in labels], dtype=np.int64))


def fill_rows(rows: FloatArray) -> FloatArray:
    """Rows with the mean of all in the place of a figure that is withheld."""
    return np.asarray(np.where(np.isfinite(rows), rows, np.nanmean(rows, axis=0)))


def _found(rows: FloatArray, values: FloatArray, member: NDArray[np.int64]) -> FloatArray:
    """(n,) chance that the row nearest in every second column is a label's own."""
    scale = values.std(axis=0)
    known, table = (values / scale)[:, ::2], (rows / scale)[:, ::2]
    away = ((known[:, None] - table) ** 2).sum(axis=2)
    nearest = away <= away.min(axis=1, keepdims=True) + 1e-12
    return np.asarray(nearest[np.arange(len(values)), member] / nearest.sum(axis=1))
