"""The release of constants: one row per crowd, the mean over its members. No noise, no ε, nothing charged.

Such a release is aggregation with a least crowd (k-anonymity). Rows come from the crowd stage; here the numbers of new
crowds are drawn, everything is recorded in the ledger in one transaction, and then the tables are written.

``public/released.csv`` is the one to pass on: crowd, homes, news, then step, timestamp and kw, or a table's columns,
one row per crowd (and step), sorted by the drawn number. ``released.csv`` is the owner's: the same with the label of
each row. No byte of the public one depends on who is who.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from shoal.card.facts import Accuracy, ReleaseFacts
from shoal.card.measures import errors
from shoal.mechanism.releasable import ReleaseErrors
from shoal.plaintext import as_cells
from shoal.runs import reader
from shoal.runs.context import Context, Made
from shoal.runs.stages.crowd_stage import CrowdFacts, horizon_stamps
from shoal.runs.stages.record import members_and_rows, numbers_of, record
from shoal.sources.meters.answered import off_by
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl

CSV, PARQUET, PUBLIC = "released.csv", "released.parquet", "public/released.csv"
#: Where a rehearsal writes, and what it says above its figures.
REHEARSAL = "rehearsal/not_released.csv"


def stage(context: Context, plan: CrowdFacts) -> Made:
    """Draw, record, write."""
    members, rows = members_and_rows(context)
    with context.ledger() as ledger:
        numbers = numbers_of(context, ledger, rows)
        table = public_table(context, plan, rows, numbers)
        content = csv_bytes(table)
        record(context, ledger, plan, numbers, hashlib.sha256(content).hexdigest(), charged=False)
        overview, head, identity = ledger.overview(), str(ledger.head), ledger.identity
    owner = owner_table(table, members, numbers, "household" if context.config.label is None else "label")
    context.folder.put(PUBLIC, content)
    context.folder.write(CSV, lambda path: path.write_bytes(csv_bytes(owner)))
    context.folder.write(PARQUET, lambda path: owner.write_parquet(path))
    law = reader_law(context, plan, members, rows)
    (context.folder / reader.FILE).unlink(missing_ok=True)
    if law is not None:
        context.folder.put(reader.FILE, law.text())
    measured, known, off = accuracy(members, rows, "kW" if context.config.label is None else "units of the columns")
    facts = ReleaseFacts(
        name=context.release_name,
        labels=len(owner.unique(owner.columns[0])),
        ledger=identity,
        head=head,
        releases=overview.releases,
        ledger_labels=overview.labels,
        later_known=known,
        later_absolute=off,
        crowds=len(table.unique("crowd")),
        repeated=plan.repeated,
        recorded_before=plan.recorded,
        period=plan.period,
        accuracy=measured,
    )
    return Made((CSV, PARQUET, PUBLIC, *([reader.FILE] if law is not None else [])), facts)


def reader_law(
    context: Context, plan: CrowdFacts, members: pl.DataFrame, rows: pl.DataFrame
) -> reader.ReaderLaw | None:
    """How far homes lie from rows, pooled over all crowds; None where there are too few."""
    table = context.config.label is not None
    entries = plan.columns if table else [str(step) for step in range(1, context.config.horizon + 1)]
    return reader.law_of(members, rows, entries, relative=not table)


def rehearse(context: Context, plan: CrowdFacts) -> str:
    """Write what would be released to a file that says that it was not; nothing is recorded, drawn or charged."""
    members, rows = members_and_rows(context)
    numbers = numbers_of(context, None, rows)
    table = public_table(context, plan, rows, numbers)
    owner = owner_table(table, members, numbers, "household" if context.config.label is None else "label")
    context.folder.put(REHEARSAL, csv_bytes(_marked(owner)))
    return REHEARSAL


def _marked(table: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return table.select(pl.lit("not released").alias("status"), pl.all())


def public_table(context: Context, plan: CrowdFacts, rows: pl.DataFrame, numbers: Mapping[int, int]) -> pl.DataFrame:
    """One row per crowd, or per crowd and step, sorted by the public number."""
    import polars as pl

    shown = rows.filter(~pl.col("retired"))
    number = pl.Series("crowd", [numbers.get(n, n) for n in shown["crowd"].to_list()], dtype=pl.Int64)
    table = shown.select(number, "homes", "news", "values").sort("crowd")
    if context.config.label is not None:
        values = [table["values"].list.get(j, null_on_oob=True).alias(name) for j, name in enumerate(plan.columns)]
        return table.select("crowd", "homes", "news").with_columns(values)
    horizon = context.config.horizon
    stamps = horizon_stamps(plan.fit, horizon)
    steps = pl.DataFrame({"step": np.arange(1, horizon + 1), "timestamp": stamps})
    long = table.join(steps, how="cross").sort("crowd", "step")
    kw = pl.col("values").list.get(pl.col("step") - 1, null_on_oob=True).alias("kw")
    return long.select("crowd", "homes", "news", "step", "timestamp", kw)


def owner_table(table: pl.DataFrame, members: pl.DataFrame, numbers: Mapping[int, int], noun: str) -> pl.DataFrame:
    """The public table with the label of each row: the key between the two, which stays with the owner."""
    import polars as pl

    inside = members.filter(~pl.col("waits"))
    crowd = pl.Series("crowd", [numbers.get(n, n) for n in inside["crowd"].to_list()], dtype=pl.Int64)
    key = inside.select(pl.col("label").alias(noun), crowd)
    joined = key.join(table, on="crowd", how="inner")
    order = [noun, "step"] if "step" in table.columns else [noun]
    return joined.select(noun, *table.columns).sort(order)


def csv_bytes(table: pl.DataFrame) -> bytes:
    """A table as CSV; instants in ISO 8601, with their offset from UTC where they have a zone."""
    zone = next((getattr(kind, "time_zone", None) for kind in table.schema.values() if kind.is_temporal()), None)
    form = "%Y-%m-%dT%H:%M:%S%:z" if zone else "%Y-%m-%dT%H:%M:%S"
    return as_cells(table).write_csv(datetime_format=form).encode()


def accuracy(members: pl.DataFrame, rows: pl.DataFrame, unit: str) -> tuple[Accuracy | None, int, float]:
    """Errors of rows beside their members' own values; entries whose truth came later, and absolute errors there."""
    import polars as pl

    new = rows.filter(~pl.col("retired")).select("crowd", row="values")
    both = members.filter(pl.col("value").is_not_null() & ~pl.col("waits")).join(new, on="crowd", how="inner")
    if not len(both):
        return None, 0, 0.0
    width = both.schema["value"].shape[0]  # type: ignore[attr-defined]
    both = both.filter(pl.col("row").list.len() == width)
    if not len(both):
        return None, 0, 0.0
    value, truth = both["value"].to_numpy(), both["truth"].to_numpy()
    row: FloatArray = np.array(both["row"].to_list())
    off = row - value
    group = np.unique(both["crowd"].to_numpy(), return_inverse=True)[1].astype(np.int64)
    squares = off**2
    scale = 1.0 if unit == "kW" else 1.0 / np.maximum(value.std(axis=0), 1e-300)
    squares, off, answers = squares * np.square(scale), off * scale, value * scale
    ends = off.min(axis=0), off.max(axis=0)
    measured = errors(
        ReleaseErrors(squares.mean(axis=1), squares, off, ends, 1.0, np.zeros(off.shape[1]), noise_alone=False),
        answers,
        group,
        unit=unit if unit == "kW" else "standard deviations of the columns",
    )
    known, absolute = off_by(truth, row)
    return measured, known, absolute
