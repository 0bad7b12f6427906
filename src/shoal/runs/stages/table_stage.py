"""The first stage of a class table: rows to class laws, in shards of whole crowds.

A shard is ``<key>.table``; beside it ``<key>.crowds.parquet``, who is in which crowd, and ``<key>.left.parquet``, who
is left out and why.

Crowds are formed of labels whose rows are alike in the units in which errors cost: by the constants, or by the means
and spreads of their rows. They are those of the first table; where they are kept, a later table is released in them: a
label that is new is given one by its first rows (:mod:`shoal.runs.members`), and a crowd of which fewer than the least
number have rows is left out as a whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shoal.card.digits import counted, upper
from shoal.card.facts import LISTED, FitFacts
from shoal.card.measures import fit_facts
from shoal.errors import InputError
from shoal.laws.crowds import crowds
from shoal.laws.graph import NeighborGraph
from shoal.plaintext import as_cells
from shoal.runs.config import Config
from shoal.runs.context import FIT, LAWS, SHARDS, Context, Made
from shoal.runs.jobs import Job, out_path
from shoal.runs.members import Roster
from shoal.runs.regroup import Received
from shoal.runs.stages.fit_stage import (
    FEW,
    LATE,
    LEFT,
    LEFT_OUT,
    Yesterday,
    group_graph,
    roster_of,
    shards_made,
    write_places,
    yesterday,
)
from shoal.runs.store import Part, put_whole
from shoal.runs.table_rows import READING, GroupedRows, Sorted, grouped_rows
from shoal.sources.tables.class_table import SUFFIX, ClassTable, label_means
from shoal.sources.tables.sample_laws import refuse_copies, sample_laws
from shoal.sources.tables.table_file import LABEL, SOURCE_ROW, VALUES
from shoal.validation import FloatArray, IndexArray

SETTINGS = (*READING, "clip", "crowd", "crowds", "table", "column", "cell", "shard_size", "seed")
#: Those that may differ from table to table.
DAILY = ()
#: Rows of every label from which on crowds look at their spreads too.
SPREAD = 10
THIN = "too few of its crowd have rows in this table: they would not hide it"
MIXED = "table: the last one had one row per label, or several; this one does not, and takes a new folder"

CONSTANT = (
    "clip is for tables with several rows per label; this one has one row of each, which is a constant and needs no "
    "law: leave out --clip"
)


def do(
    rows: str, whole: Sorted, config: Config, constant: bool, by_spread: bool, before: str | None, out: str
) -> FitFacts:
    """Write the laws of a shard of rows; ``before`` is the shard of the table before, whose crowds are kept."""
    import polars as pl

    frame = pl.read_parquet(rows)
    labels = frame[LABEL].unique().sort()
    owner = labels.search_sorted(frame[LABEL]).to_numpy().astype(np.intp)
    names = tuple(labels.to_list())
    table = ClassTable(
        names,
        whole.entries,
        np.array(whole.exponents, dtype=np.int64),
        frame[VALUES].to_numpy(),
        owner,
        frame[SOURCE_ROW].to_numpy(),
        clip=config.clip,
    )
    cells = dict(zip(frame[LABEL].to_list(), frame["group"].to_list(), strict=True))
    old = None if before is None else roster_of(before)
    if old is None:
        inside = Counter(cells.values())
        gone = {name: FEW for name in names if inside[cells[name]] < config.crowd}
        table = _staying(table, gone, config.crowd)
        boundaries = [cells[name] for name in table.labels]
        member = crowds(features(table, by_spread), config.crowd, boundaries=boundaries).tolist()
        roster = Roster(dict(zip(table.labels, member, strict=True)))
    else:
        roster = old.renewed(*standing(table, old.crowds, by_spread), set(names), cells, config.crowd)
        present = Counter(roster.crowds[name] for name in names if name in roster.crowds)
        gone = {name: LATE for name in names if name not in roster.crowds}
        gone |= {name: THIN for name in names if name not in gone and present[roster.crowds[name]] < config.crowd}
        table = _staying(table, gone, config.crowd)
    graph = group_graph(table.labels, roster.crowds)
    strange = 0
    if not constant:
        refuse_copies(table.values, table.owner)
        table, strange = _with_laws(table, graph)
    path = Path(out)
    write_places(path, roster, gone)
    put_whole(path, table.save)
    facts = replace(
        fit_facts(graph, fitted_on_private_data=True),
        left_out=len(gone),
        reasons=tuple(Counter(gone.values()).most_common(LISTED)),
        first=table.labels[0],
        entry="column",
        not_gaussian=strange,
    )
    if old is None:
        return facts
    return replace(
        facts,
        goes_on=True,
        carried=len(table.labels) - len(roster.joined),
        silent=len(old.crowds.keys() - set(table.labels)),
        newcomers=sum(why == LATE for why in gone.values()),
        joined=len(roster.joined),
        merged_groups=roster.merged,
    )


def features(table: ClassTable, by_spread: bool) -> FloatArray:
    """(n, d) what crowds are formed by: mean rows, and with ``by_spread`` the standard deviations around them.

    Laws with the same correlations are apart by the squared distance of these (Bures & Wasserstein).
    """
    means = table.means
    if not by_spread:
        return means
    squares = label_means((table.values - means[table.owner]) ** 2, table.owner, len(table.labels))
    return np.concatenate([means, np.sqrt(squares)], axis=1)


def standing(table: ClassTable, crowds: Mapping[str, int], by_spread: bool) -> tuple[list[str], FloatArray]:
    """Labels with rows, then the silent ones of their crowds, for whom the mean of those stands; (n, d) features.

    A crowd without any rows has no place among the others: it waits.
    """
    points = features(table, by_spread)
    rows: dict[int, list[int]] = {}
    for i, name in enumerate(table.labels):
        if name in crowds:
            rows.setdefault(crowds[name], []).append(i)
    here = set(table.labels)
    silent = [name for name, crowd in crowds.items() if crowd in rows and name not in here]
    means = [points[rows[crowds[name]]].mean(axis=0) for name in silent]
    return [*table.labels, *silent], np.concatenate([points, np.reshape(means, (len(silent), points.shape[1]))])


def _with_laws(table: ClassTable, graph: NeighborGraph) -> tuple[ClassTable, int]:
    """The table with covariances, and how many labels' rows are not Gaussian.

    Each crowd is fitted for itself: no law depends on who else is in the shard.
    """
    n, k = table.means.shape
    covs, degrees, strange = np.empty((n, k, k)), np.empty(n), 0
    group: IndexArray = np.asarray(graph.components, dtype=np.intp)
    for one in range(int(group.max()) + 1):
        members = np.flatnonzero(group == one)
        part = table.take([table.labels[i] for i in members])
        laws = sample_laws(part.values, part.owners, table.columns)
        place = {name: i for i, name in enumerate(laws.labels)}
        rows = [place[table.labels[i]] for i in members]
        covs[members] = laws.covs[rows]
        degrees[members] = laws.observations(laws.labels)[1][rows]
        strange += int((~laws.checks().gaussian).sum())
    return replace(table, covs=covs, degrees=degrees), strange


def _staying(table: ClassTable, gone: Mapping[str, str], crowd: int) -> ClassTable:
    """The table without those who are left out."""
    if len(gone) == len(table.labels):
        raise InputError(
            f"crowd: nowhere are there {crowd} labels with rows to form a crowd; choose a smaller --crowd, or have "
            "more labels"
        )
    return table.take([name for name in table.labels if name not in gone])


# ------------------------------------------------------------------ the stage


def stage(context: Context) -> Made:
    """Laws of every label, in shards of whole crowds."""
    import polars as pl

    config, before = context.config, yesterday(context)
    held, known = None, None
    if before is not None:
        old = ClassTable.load(next(iter(before.forecasts.values())).path)
        held, known = before.assignment, dict(zip(old.columns, old.exponents.tolist(), strict=True))
    with context.workers() as executor:
        rows = grouped_rows(executor, context.home / SHARDS, context.source, config, context.tell, held, known)
        if config.clip is not None and rows.most == 1:
            raise InputError(CONSTANT)
        executor.expect(len(rows.shards))

        def job(shard: Part) -> Job:
            return table_job(context.home, shard, config, rows, before)

        made, facts = shards_made(context, executor, "laws of the labels", rows, before, job)
    left = pl.concat([pl.read_parquet(part.beside(LEFT)) for part in made]).sort("household")
    context.folder.write(LEFT_OUT, lambda path: as_cells(left).write_csv(path))
    about = _about(rows, facts, config.clip)
    facts = replace(facts, noun=noun_of(str(config.label)), about=about)
    return Made((FIT, LEFT_OUT), facts)


def table_job(home: Path, shard: Part, config: Config, rows: GroupedRows, before: Yesterday | None) -> Job:
    """One shard's laws."""
    constant, by_spread = rows.most == 1, rows.fewest >= SPREAD
    old = None if before is None else before.forecasts[shard.told(Received).number]
    if old is not None and ClassTable.load(old.path).constant != constant:
        raise InputError(MIXED)
    inputs = [shard] if old is None else [old, shard]
    settings: dict[str, Any] = {"crowd": config.crowd, "constant": constant, "by_spread": by_spread}
    if config.clip is not None:
        settings["clip"] = config.clip
    before_path = None if old is None else old.path
    work = partial(do, shard.path, rows.table, config, constant, by_spread, before_path)
    return Job(work, out_path(home, LAWS, SUFFIX, settings, inputs), tuple(inputs))


def noun_of(column: str) -> str:
    """A label in words: what its column is called, where that is a word."""
    return column.lower() if re.fullmatch("[A-Za-z]{4,}", column) and not column.endswith("s") else "label"


def _about(rows: GroupedRows, facts: FitFacts, clip: float | None) -> tuple[str, ...]:
    table, k = rows.table, counted(len(rows.table.entries), "column")
    span = f"{rows.fewest}" if rows.fewest == rows.most else f"{rows.fewest} to {rows.most}"
    said = [
        f"A table of one row per label, {k}."
        if rows.most == 1
        else f"A table of {table.rows} rows, {span} per label, {k}: every row is released, and the promise is about "
        "all rows of a label together.",
        "Errors are counted in units of the columns: the power of two next to a column's spread, or to one over its "
        "weight.",
    ]
    if rows.most > 1:
        said.append(
            f"Rows alone can support no δ below about {upper(3 / rows.fewest, 2)}, three over the fewest rows of a "
            "label: a smaller one rests on the Gaussian law of the rows."
        )
    if clip is not None:
        said.append(
            f"Rows are clipped: one that is further than {clip:g} standard deviations from its label's mean, by its "
            "law, is first moved straight towards it, and errors are those beside the rows so moved."
        )
    if facts.not_gaussian:
        said.append(
            f"THE LAW IS DOUBTFUL: the rows of {facts.not_gaussian} of {counted(facts.labels, 'label')} do not look "
            "Gaussian. The promise rests on Gaussian laws; who knows what the rows look like instead may tell more "
            "than it says."
        )
    gone = [
        *([f"{counted(table.incomplete, 'row')} with an empty cell"] if table.incomplete else []),
        *([f"{counted(len(table.text), 'column')} that were not asked for or are no numbers"] if table.text else []),
        *([f"{counted(len(table.constant), 'column')} with one value in all rows"] if table.constant else []),
    ]
    return (*said, *([f"Not in it: {'; '.join(gone)}."] if gone else []))
