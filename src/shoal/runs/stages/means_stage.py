"""The release of constants: one row per crowd, the mean over its members. No noise, no ε, nothing charged.

Such a release is aggregation with a least crowd (k-anonymity). Rows come from the crowd stage; here the numbers of new
crowds are drawn, everything is recorded in the ledger in one transaction, and then the tables are written.

``public/released.csv`` is the one to pass on: crowd, homes, news, then step, timestamp and kw, or a table's columns,
one row per crowd (and step), sorted by the drawn number. ``released.csv`` is the owner's: the same with the label of
each row. No byte of the public one depends on who is who.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from shoal.card.facts import Accuracy, ReleaseFacts
from shoal.card.measures import errors
from shoal.errors import LedgerError
from shoal.ledger.ledger import Ledger
from shoal.mechanism.releasable import ReleaseErrors
from shoal.plaintext import as_cells
from shoal.runs import reader
from shoal.runs.context import Context, Made
from shoal.runs.stages.crowd_stage import Book, CrowdFacts, horizon_stamps, members_and_rows, with_rows
from shoal.sources.meters.answered import off_by

CSV, PARQUET, PUBLIC = "released.csv", "released.parquet", "public/released.csv"
#: Where the drawn numbers of new crowds are written before they are used: an interrupted release goes on with them.
NUMBERS = "numbers.json"
STALE = (
    "ledger: somebody else released about the same labels while this release was made. Nothing was recorded; run "
    "again, and it goes on from what is on record now"
)
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
    return table.select(pl.lit("not released").alias("status"), pl.all())


def public_table(context: Context, plan: CrowdFacts, rows: pl.DataFrame, numbers: Mapping[int, int]) -> pl.DataFrame:
    """One row per crowd, or per crowd and step, sorted by the public number."""
    shown = rows.filter(~pl.col("retired"))
    table = shown.select(pl.col("crowd").replace(numbers), "homes", "news", "values").sort("crowd")
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
    key = members.filter(~pl.col("waits")).select(pl.col("label").alias(noun), pl.col("crowd").replace(numbers))
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
    both = with_rows(members, rows)
    if not len(both):
        return None, 0, 0.0
    value, row = both["value"].to_numpy(), np.array(both["row"].to_list())
    scale = 1.0 if unit == "kW" else 1.0 / np.maximum(value.std(axis=0), 1e-300)
    off = row - value
    squares, off = off**2 * np.square(scale), off * scale
    ends = off.min(axis=0), off.max(axis=0)
    measured = errors(
        ReleaseErrors(squares.mean(axis=1), squares, off, ends, 1.0, np.zeros(off.shape[1]), noise_alone=False),
        value * scale,
        np.unique(both["crowd"].to_numpy(), return_inverse=True)[1].astype(np.int64),
        unit=unit if unit == "kW" else "standard deviations of the columns",
    )
    return measured, *off_by(both["truth"].to_numpy(), row)


# ------------------------------------------------------------------ what every release of crowds records


def numbers_of(context: Context, ledger: Ledger | None, rows: pl.DataFrame) -> dict[int, int]:
    """New crowd -> its public number: as the folder has them for this release, or drawn now.

    Without a ledger, in a rehearsal, they are 1, 2, 3 and mean nothing.
    """
    fresh = [number for number in rows["crowd"].to_list() if number < 0]
    if ledger is None:
        return {number: i + 1 for i, number in enumerate(sorted(fresh, reverse=True))}
    path = context.folder / NUMBERS
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if known.get("release") != context.release_name or len(known.get("numbers", ())) != len(fresh):
        drawn = ledger.draw_crowd_numbers(len(fresh)) if fresh else []
        known = {"release": context.release_name, "numbers": drawn}
        context.folder.put(NUMBERS, json.dumps(known))
    return dict(zip(sorted(fresh, reverse=True), known["numbers"], strict=True))


def record(
    context: Context, ledger: Ledger, plan: CrowdFacts, numbers: Mapping[int, int], table_digest: str, *, charged: bool
) -> None:
    """Record the crowds of this release, once; nothing happens where all of it was on record before."""
    if ledger.recorded_crowds(context.release_name) is not None:
        return
    members, rows = members_and_rows(context)
    lines = rows.filter(~pl.col("recorded"))
    if not len(lines):
        return
    book = Book.read(ledger, members["label"].to_list())
    if book.digest != plan.book:
        raise LedgerError(STALE)

    crowds = []
    for number, homes, news, values, _, retired in lines.iter_rows():
        known = book.crowds.get(number, {"setting": plan.setting})
        row = np.array([float(news), *([] if charged else values)], dtype="<f8").tobytes()
        entry = {"crowd": numbers.get(number, number), "setting": known["setting"], "period": plan.period, "row": row}
        entry |= {"homes": homes, "retired": retired}
        crowds.append(entry | ({"period": known["period"], "row": known["row"]} if retired else {}))
    kinds = {"crowd": pl.Int64, "setting": pl.String, "period": pl.String, "row": pl.Binary, "homes": pl.Int64}
    try:
        ledger.record_crowds(
            context.release_name,
            book_digest=book.ledger_digest,
            members=members.filter("changed").select(
                "label", pl.col("crowd").replace(numbers), "stored", "last", "block"
            ),
            crowds=pl.DataFrame(crowds, schema={**kinds, "retired": pl.Boolean}),
            table_digest=table_digest,
            facts={"homes": int(lines["homes"].sum()), "crowds": len(lines), "period": plan.period},
        )
    except LedgerError as error:
        if getattr(error, "reason", "") == "stale":
            raise LedgerError(STALE) from None
        raise
