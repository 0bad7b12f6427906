"""The first stage of a class table: rows to shards by a hash of the label, and what crowds are formed by.

A shard is ``<key>.table``; beside it ``<key>.curves.parquet``, one row per label with its value in the table's own
units and what crowds are alike in: the scaled mean row, and with many rows per label their spreads too.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from shoal.card.digits import counted, upper
from shoal.card.facts import LISTED, FitFacts
from shoal.errors import InputError
from shoal.runs.config import Config, no_use
from shoal.runs.context import FIT, LAWS, SHARDS, Context, Made
from shoal.runs.jobs import Job, Listing, noted, out_path, run_jobs
from shoal.runs.stages.fit_stage import write_curves
from shoal.runs.store import finished, put_whole
from shoal.runs.table_rows import READING, SortedRows, read_rows, sort_rows
from shoal.sources.tables.class_table import SUFFIX, ClassTable, label_means
from shoal.sources.tables.table_file import LABEL, SOURCE_ROW, VALUES
from shoal.validation import FloatArray

SETTINGS = (*READING, "clip")
#: Those that may differ from table to table.
DAILY = ("period",)
#: Rows of every label from which on crowds look at their spreads too.
SPREAD = 10

CONSTANT = (
    "clip is for tables with several rows per label; this one has one row of each, which is a constant and needs no "
    "law: leave out --clip"
)


def do(table: SortedRows, bucket: int, out: str) -> FitFacts:
    """Write the rows of a bucket's labels, and their curves."""
    rows = read_rows(table, bucket)
    labels = rows[LABEL].unique().sort()
    owner = labels.search_sorted(rows[LABEL]).to_numpy().astype(np.intp)
    names = tuple(labels.to_list())
    exponents = np.array(table.exponents, dtype=np.int64)
    shard = ClassTable(names, table.entries, exponents, rows[VALUES].to_numpy(), owner, rows[SOURCE_ROW].to_numpy())
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
    config, root = context.config, context.path / SHARDS
    before = None if context.previous is None else context.listing(FIT, context.previous)
    known = None if before is None else ClassTable.load(before.parts[0].path).columns
    buckets = None if before is None else before.buckets
    asked = {**config.part(*READING), "source": context.source.digest, "known": known, "buckets": buckets}
    asked |= {"charged": config.charged}

    def sort(folder: Path) -> SortedRows:
        context.tell("reading the table", 0, 0)
        return sort_rows(context.source, config, folder, buckets, known)

    def out(bucket: int) -> str:
        return out_path(context.path, LAWS, SUFFIX, {**asked, "number": bucket})

    def lacking(table: SortedRows) -> bool:
        gone = not Path(table.folder).is_dir()
        return gone and any(finished(out(bucket)) is None for bucket in table.filled)

    with context.workers() as executor:
        table = noted(root, asked, SortedRows, sort, lacking)
        executor.expect(len(table.filled))
        jobs = [Job(partial(do, table, bucket), out(bucket)) for bucket in table.filled]
        made, failed = run_jobs(executor, "rows by label", jobs, context.tell, for_good=True)
    if not failed:
        shutil.rmtree(table.folder, ignore_errors=True)  # all of it is in the shards now
    context.put(FIT, Listing(tuple(made), tuple(made), tuple(failed), table.buckets))
    facts = FitFacts.merged([part.told(FitFacts) for part in made])
    refuse_rows(config, facts.labels, facts.most_rows)
    facts = replace(
        facts,
        source=str(context.source),
        failed=tuple(failed)[:LISTED],
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


def _about(table: SortedRows, fewest: int, most: int, clip: float | None) -> tuple[str, ...]:
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


def _not_in_it(table: SortedRows) -> Sequence[str]:
    gone = [
        *([f"{counted(table.incomplete, 'row')} with an empty cell"] if table.incomplete else []),
        *([f"{counted(len(table.text), 'column')} that were not asked for or are no numbers"] if table.text else []),
        *([f"{counted(len(table.constant), 'column')} with one value in all rows"] if table.constant else []),
    ]
    return [f"Not in it: {'; '.join(gone)}."] if gone else []
