"""The first stage of a class table: its rows, whole and in scaled units, and what crowds are formed by.

A table is one shard, in memory as a whole: ``<key>.table``; beside it ``<key>.curves.parquet``, one row per label with
its value in the table's own units and what crowds are alike in: the scaled mean row, and with many rows per label their
spreads too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from shoal.errors import InputError
from shoal.product.card.facts import FitFacts
from shoal.product.runs.config import Config
from shoal.product.runs.folder import FIT, LAWS, Source
from shoal.product.runs.inputs import write_curves
from shoal.product.runs.shards import Listing, find_shard, out_path, put_whole, seal_shard
from shoal.product.runs.work import Carry, StageOutcome, Work
from shoal.product.sources.class_table import (
    LABEL,
    MOST_COPIES,
    SOURCE_ROW,
    SUFFIX,
    ClassTable,
    distinct_rows,
    label_means,
    table_rows,
)
from shoal.product.sources.meters.readings import choose_spellings
from shoal.rounding import count_of, upper

OnRecord = Callable[[list[str]], Mapping[str, str]]
#: Settings that decide how a table is read.
SETTINGS = ("label", "columns", "timestamp_column", "value_column", "encoding")
DOING = "reading the table"
#: Those that may differ from table to table.
DAILY = ("period",)
#: Largest magnitude of an entry: squares of what is larger overflow.
LARGEST = 1e150
#: Rows of every label from which on crowds look at their spreads too.
SPREAD = 10


def stage(work: Work) -> StageOutcome:
    """The rows of every label, with the columns of the release before where there is one."""
    config, known = work.settings, None
    if work.state.previous is not None:
        known = ClassTable.load(work.listing(FIT, work.state.previous).parts[0].path).columns
    settings = {**config.part(*SETTINGS), "source": work.source.digest, "known": known, "charged": config.charged}
    out = out_path(work.path, LAWS, SUFFIX, settings)
    work.tell(DOING, 0, 0)
    part = find_shard(out) or seal_shard(out, read(work.source, config, known, Path(out), work.spellings))
    work.put(FIT, Listing((part,)))
    doubts = work.other_ledgers(ClassTable.load(part.path).labels)
    facts = replace(part.facts_as(FitFacts), source=str(work.source), crowd=config.crowd, doubts=doubts)
    if facts.labels < 2:
        raise InputError("label: all rows have one label, and a crowd needs several. Name another column")
    return StageOutcome((FIT,), facts, carry=Carry())


def read(source: Source, config: Config, known: Sequence[str] | None, out: Path, on_record: OnRecord) -> FitFacts:
    """Write the rows of a table and their curves; ``known`` columns are those of an earlier table that goes on.

    ``on_record`` gives labels their spelling on record, where that is another.
    """
    columns = config.columns, config.timestamp_column, config.value_column
    rows, entries, left_out = table_rows(source.paths, str(config.label), *columns, config.encoding)
    given = rows[LABEL].unique().to_list()
    rows = rows.with_columns(pl.col(LABEL).replace(choose_spellings(given, on_record(given))))
    whole = rows.drop_nulls().sort(LABEL, SOURCE_ROW)
    incomplete = len(rows) - len(whole)
    if not len(whole):
        raise InputError(
            f"table: no row has a number in every entry ({incomplete} have an empty cell); leave out the columns that "
            "are empty (columns='-NAME'), or fill them in"
        )
    values = np.ascontiguousarray(whole.select(entries).to_numpy(), dtype=np.float64)
    if np.abs(values).max() > LARGEST:
        raise InputError(f"columns: some entries are beyond {LARGEST:g}; give them in a larger unit")
    ordered = np.sort(values, axis=0)  # figures over all rows do not depend on their order
    places = list(range(len(entries)))
    if known is not None:
        missing = [name for name in known if name not in entries]
        if missing:
            raise InputError(f"columns: the new table has no entry {missing[0]!r}, which the last release had")
        places = [entries.index(name) for name in known]
    elif config.charged or all(name.startswith("-") for name in config.columns):  # whoever names columns gets them
        places = np.flatnonzero(ordered[0] < ordered[-1]).tolist()
        if not places:
            raise InputError("columns: every entry has one value in all rows; there is nothing to hide")
    chosen = tuple(entries[i] for i in places)
    without = [name for name in entries if name not in chosen]
    spread = ordered[:, places].std(axis=0)
    exponents = np.rint(-np.log2(np.where(spread > 0, spread, 1.0))).astype(np.int64)
    labels = whole[LABEL].unique().sort()
    names, owner = tuple(labels.to_list()), labels.search_sorted(whole[LABEL]).to_numpy().astype(np.intp)
    scaled, numbers = np.ldexp(values[:, places], exponents), whole[SOURCE_ROW].to_numpy()
    first = distinct_rows(scaled, owner)
    copies = len(scaled) - len(first)
    few = copies <= MOST_COPIES * len(scaled)  # many are refused where a law is fitted
    if few:
        scaled, owner, numbers = scaled[first], owner[first], numbers[first]
    shard = ClassTable(names, chosen, exponents, scaled, owner, numbers)
    counts = np.bincount(owner)
    # Laws with the same correlations are apart by the squared distance of mean rows and standard deviations (Bures &
    # Wasserstein).
    spreads = np.zeros_like(shard.means)
    if counts.min() >= SPREAD:
        spreads = np.sqrt(label_means((shard.values - shard.means[owner]) ** 2, owner, len(names)))
    own = np.ldexp(shard.means, -exponents)
    write_curves(
        out,
        names,
        [True] * len(names),
        value=own,
        truth=np.full(own.shape, np.nan),
        habits=np.concatenate([shard.means, spreads], axis=1),
        stored=own,
    )
    put_whole(out, shard.save)
    fewest, most = int(counts.min()), int(counts.max())
    gone = [
        *([f"{count_of(incomplete, 'row')} with an empty cell"] if incomplete else []),
        *([f"{count_of(copies, 'row')} with the same figures as another of the label"] if few and copies else []),
        *([f"{count_of(len(left_out), 'column')} that were not asked for or are no numbers"] if left_out else []),
        *([f"{count_of(len(without), 'column')} with one value in all rows"] if without else []),
    ]  # fmt: skip
    about = (*_about(len(scaled), len(chosen), fewest, most), *([f"Not in it: {'; '.join(gone)}."] if gone else []))
    noun = noun_of(str(config.label))
    return FitFacts(labels=len(names), most_rows=most, noun=noun, entry="column", about=about)


def noun_of(column: str) -> str:
    """A label in words: what its column is called, where that is a word."""
    return column.lower() if re.fullmatch("[A-Za-z]{4,}", column) and not column.endswith("s") else "label"


def _about(rows: int, columns: int, fewest: int, most: int) -> list[str]:
    k = count_of(columns, "column")
    if most == 1:
        return [f"A table of one row per label, {k}."]
    span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    return [
        f"A table of {rows} rows, {span} per label, {k}: every row is released, and the promise is about all rows of a "
        "label together.",
        "Errors are counted in units of the columns: the power of two next to a column's spread, or to one over its "
        "weight.",
        f"The rows by themselves support no δ below about {upper(3 / fewest, 2)}, three over the fewest rows of a "
        "label: a "
        "smaller one rests on the Gaussian law of the rows.",
    ]
