"""The first stage of a class table: rows to shards by a hash of the label, and what crowds are formed by.

A shard is ``<key>.table``; beside it ``<key>.curves.parquet``, one row per label with its value in the table's own
units and what crowds are alike in: the scaled mean row, and with many rows per label their spreads too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from shoal.card.facts import LISTED, FitFacts
from shoal.errors import InputError
from shoal.rounding import counted, upper
from shoal.runs.config import Config, no_use
from shoal.runs.context import FIT, LAWS, SHARDS, Context, Made
from shoal.runs.shards import Buckets, gather, make_shards, out_path, put_whole, scatter
from shoal.runs.sources import Source
from shoal.runs.stages.fit_stage import write_curves
from shoal.sources.tables.class_table import SUFFIX, ClassTable, exponents_of, label_means
from shoal.sources.tables.table_file import (
    LABEL,
    SOURCE_ROW,
    VALUES,
    Extent,
    TableColumns,
    batches,
    layout_of,
    open_table,
    pivoted,
)
from shoal.validation import FloatArray

#: Settings that decide how a table is read.
READING = ("label", "columns", "drop", "weights", "timestamp_column", "value_column", "only")
SETTINGS = (*READING, "clip")
#: Those that may differ from table to table.
DAILY = ("period",)
#: Bytes of input per bucket, about.
BUCKET = 64 * 2**20
#: Largest magnitude of an entry: squares of what is larger overflow.
LARGEST = 1e150
#: Rows of every label from which on crowds look at their spreads too.
SPREAD = 10

CONSTANT = (
    "clip is for tables with several rows per label; this one has one row of each, which is a constant and needs no "
    "law: leave out --clip"
)


@dataclass(frozen=True)
class TableRows(Buckets):
    """A table in buckets of whole labels: its entries with their units, and what was left out.

    Columns of a piece: label, source_row, values.
    """

    entries: tuple[str, ...]
    exponents: tuple[int, ...]
    rows: int
    incomplete: int  #: rows with an empty cell
    text: tuple[str, ...]  #: columns that are no entries
    constant: tuple[str, ...]  #: columns with one value
    places: tuple[int, ...]  #: of the entries among those that were read


def sort_rows(
    source: Source, config: Config, folder: Path, buckets: int | None, known: Sequence[str] | None
) -> TableRows:
    """Read a table into buckets; ``buckets`` and the ``known`` columns are those of an earlier table that goes on."""
    table = open_table(source.paths)
    raw = table.raw
    layout = layout_of(
        raw, str(config.label), config.columns, config.drop, config.timestamp_column, config.value_column
    )
    parts: Iterator[pl.DataFrame]
    if layout.time is not None:
        wide, times = pivoted(raw, layout)
        layout, parts = TableColumns(layout.label, times, layout.left_out), iter([wide])
    else:
        parts = batches(raw, layout)
    size = sum(file.stat().st_size for file in source.paths)
    count = max(-(-size // BUCKET), 1) if buckets is None else buckets
    extent = Extent(len(layout.entries))

    def pieces() -> Iterator[pl.DataFrame]:
        for part in parts:
            rows = part if not config.only else part.filter(pl.col(LABEL).is_in(config.only))
            values = rows.select(layout.entries).to_numpy()
            whole = np.isfinite(values).all(axis=1)
            extent.incomplete += int((~whole).sum())
            values = np.ascontiguousarray(values[whole], dtype=np.float64)
            extent.add(values)
            named = rows.select(LABEL, SOURCE_ROW).filter(pl.Series(whole))
            yield named.with_columns(pl.Series(VALUES, values, dtype=pl.Array(pl.Float64, values.shape[1])))

    filled = scatter(pieces(), LABEL, folder, count)
    if not extent.rows:
        raise InputError(
            f"table: no row has a number in every entry ({extent.incomplete} have an empty cell); leave out the "
            "columns that are empty (--set drop=NAME), or fill them in"
        )
    if max(np.abs(extent.low).max(), np.abs(extent.high).max()) > LARGEST:
        raise InputError(f"columns: some entries are beyond {LARGEST:g}; give them in a larger unit")
    places = _entries(layout, extent, config, known)
    chosen = tuple(layout.entries[i] for i in places)
    without = tuple(name for name in layout.entries if name not in chosen)
    exponents = exponents_of(extent.spread[places], weights_of(config.weights, chosen, without))
    return TableRows(
        str(folder), count, filled, chosen, tuple(exponents.tolist()), extent.rows, extent.incomplete, layout.left_out,
        without, tuple(places),
    )  # fmt: skip


def _entries(layout: TableColumns, extent: Extent, config: Config, known: Sequence[str] | None) -> list[int]:
    """The places of the columns that are released, among those that were read."""
    if known is not None:
        missing = [name for name in known if name not in layout.entries]
        if missing:
            raise InputError(f"columns: the new table has no entry {missing[0]!r}, which the last release had")
        return [layout.entries.index(name) for name in known]
    if config.columns and not config.charged:
        return list(range(len(layout.entries)))  # whoever names columns gets them
    places: list[int] = np.flatnonzero(~extent.constant).tolist()
    if not places:
        raise InputError("columns: every entry has one value in all rows; there is nothing to hide")
    return places


def weights_of(given: Sequence[str], entries: Sequence[str], without: Sequence[str] = ()) -> dict[int, float]:
    """Entry -> weight, from texts: a number for all of them, or COLUMN=NUMBER, several with commas between them."""
    weights: dict[int, float] = {}
    for text in given:
        whole = text.rpartition("=")[0] in entries
        for part in [text] if whole else text.split(","):
            name, equals, number = part.rpartition("=")
            name = name.strip()
            try:
                weight = float(number)
            except ValueError:
                weight = -1.0
            if not 1e-150 < weight < 1e150:
                raise InputError("weights must be numbers above 0: one for all columns, or COLUMN=NUMBER")
            if equals and name not in entries:
                if name in without:
                    continue  # the same in every row, and left out
                raise InputError(f"weights: {name!r} is not an entry of this table")
            weights |= {entries.index(name): weight} if equals else dict.fromkeys(range(len(entries)), weight)
    return weights


def make_shard(table: TableRows, bucket: int, out: str) -> FitFacts:
    """Write the rows of a bucket's labels, in scaled units, and their curves."""
    rows = gather(table, bucket).sort(LABEL, SOURCE_ROW)
    labels = rows[LABEL].unique().sort()
    owner = labels.search_sorted(rows[LABEL]).to_numpy().astype(np.intp)
    names = tuple(labels.to_list())
    exponents = np.array(table.exponents, dtype=np.int64)
    values = np.ldexp(rows[VALUES].to_numpy()[:, list(table.places)], exponents)
    shard = ClassTable(names, table.entries, exponents, values, owner, rows[SOURCE_ROW].to_numpy())
    own = np.ldexp(shard.means, -exponents)
    counts = np.bincount(owner)
    path = Path(out)
    write_curves(
        path,
        names,
        own,
        truth=np.full(own.shape, np.nan),
        habits=features(shard, counts.min() >= SPREAD),
        stored=own,
        here=[True] * len(names),
    )
    put_whole(path, shard.save)
    return FitFacts(
        source="",
        labels=len(names),
        groups=0,
        smallest_group=0,
        largest_group=0,
        edges=0,
        fewest_rows=int(counts.min()),
        most_rows=int(counts.max()),
        entry="column",
        fitted_on_private_data=True,
    )


def features(table: ClassTable, by_spread: bool) -> FloatArray:
    """(n, 2k) what crowds are formed by: mean rows, and with ``by_spread`` the standard deviations around them.

    Laws with the same correlations are apart by the squared distance of these (Bures & Wasserstein).
    """
    means = table.means
    if not by_spread:
        return np.concatenate([means, np.zeros_like(means)], axis=1)
    squares = label_means((table.values - means[table.owner]) ** 2, table.owner, len(table.labels))
    return np.concatenate([means, np.sqrt(squares)], axis=1)


# ------------------------------------------------------------------ the stage


def stage(context: Context) -> Made:
    """The rows of every label, in shards by a hash of the label."""
    config = context.config
    before = None if context.previous is None else context.listing(FIT, context.previous)
    known = None if before is None else ClassTable.load(before.parts[0].path).columns
    buckets = None if before is None else before.buckets
    settings = {**config.part(*READING), "source": context.source.digest, "known": known, "buckets": buckets}
    settings |= {"charged": config.charged}

    def sort(folder: Path) -> TableRows:
        context.tell("reading the table", 0, 0)
        return sort_rows(context.source, config, folder, buckets, known)

    def out(bucket: int) -> str:
        return out_path(context.path, LAWS, SUFFIX, {**settings, "number": bucket})

    with context.workers() as executor:
        table, shards = make_shards(
            executor, context.path / SHARDS, settings, TableRows, sort, make_shard, out, "rows by label", context.tell
        )
    context.put(FIT, shards)
    facts = FitFacts.merged([part.told(FitFacts) for part in shards.parts])
    refuse_rows(config, facts.labels, facts.most_rows)
    facts = replace(
        facts,
        source=str(context.source),
        failed=shards.failed[:LISTED],
        noun=noun_of(str(config.label)),
        about=_about(table, facts.fewest_rows, facts.most_rows, config.clip),
        crowd=config.crowd,
    )
    return Made((FIT,), facts)


def refuse_rows(config: Config, labels: int, most: int) -> None:
    """Refuse what the number of rows per label does not allow."""
    if labels < 2:
        raise InputError("label: all rows have one label; nobody is there to hide among. Name another column")
    if most == 1:
        if config.clip is not None:
            raise InputError(CONSTANT)
        given = next((name for name in ("epsilon", "delta", "rho") if getattr(config, name) is not None), None)
        if given is not None and not config.charged:
            raise InputError(no_use(given))
        return
    if config.method == "codebook":
        raise InputError("method: a codebook is for constants, one row per label; choose another method")
    if config.rho is None and (config.epsilon is None or config.delta is None):
        raise InputError(
            "label: some labels have several rows, draws of a law that is released row by row under a guarantee; give "
            "one to reach, --epsilon and --delta, or an error to spend, --rho"
        )


def noun_of(column: str) -> str:
    """A label in words: what its column is called, where that is a word."""
    return column.lower() if re.fullmatch("[A-Za-z]{4,}", column) and not column.endswith("s") else "label"


def _about(table: TableRows, fewest: int, most: int, clip: float | None) -> tuple[str, ...]:
    k = counted(len(table.entries), "column")
    span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    said = [
        f"A table of one row per label, {k}."
        if most == 1
        else f"A table of {table.rows} rows, {span} per label, {k}: every row is released, and the promise is about "
        "all rows of a label together.",
    ]
    if most > 1:
        said += [
            "Errors are counted in units of the columns: the power of two next to a column's spread, or to one over "
            "its weight.",
            f"Rows alone can support no δ below about {upper(3 / fewest, 2)}, three over the fewest rows of a label: a "
            "smaller one rests on the Gaussian law of the rows.",
        ]
    if clip is not None:
        said.append(
            f"Rows are clipped: one that is further than {clip:g} standard deviations from its label's mean, by its "
            "law, is first moved straight towards it, and errors are those beside the rows so moved."
        )
    return (*said, *_not_in_it(table))


def _not_in_it(table: TableRows) -> Sequence[str]:
    gone = [
        *([f"{counted(table.incomplete, 'row')} with an empty cell"] if table.incomplete else []),
        *([f"{counted(len(table.text), 'column')} that were not asked for or are no numbers"] if table.text else []),
        *([f"{counted(len(table.constant), 'column')} with one value in all rows"] if table.constant else []),
    ]
    return [f"Not in it: {'; '.join(gone)}."] if gone else []
