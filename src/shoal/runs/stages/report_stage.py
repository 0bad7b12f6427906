"""The last stage: the page for the data owner, and ``public/`` as a data package. What they say comes from the card.

The owner's page draws every crowd, members' figures beside what was released; nothing else is designed for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from shoal.card.card import ReleaseCard
from shoal.card.package import package
from shoal.card.pictures import CrowdCurves
from shoal.card.render import report
from shoal.card.statements import Statement
from shoal.readings.publication import NOISY as VECTOR
from shoal.readings.publication import PLAN, TOTAL
from shoal.records import Record
from shoal.runs import reader
from shoal.runs.context import Context, Made
from shoal.runs.stages.crowd_stage import CrowdFacts, members_and_rows, with_rows
from shoal.runs.stages.release_stage import PARQUET
from shoal.runs.stages.release_stage import PUBLIC as TABLE
from shoal.validation import FloatArray

SETTINGS = ("title", "licence")
DOING = "writing the report"
REPORT, PUBLIC, PACKAGE = "report.html", "public/report.html", "public/datapackage.json"
#: What releases write to ``public/``.
TABLES = (TABLE, reader.FILE, PLAN, VECTOR, TOTAL)
#: Entries of a ledger up to which it is verified for the page.
ENTRIES = 50_000


@dataclass(frozen=True)
class ReportFacts(Record):
    """How many labels the page shows one by one, and whether the ledger is intact (None: too long to look)."""

    shown: int
    ledger_intact: bool | None


def stage(
    context: Context,
    card: ReleaseCard,
    plan: CrowdFacts | None,
    handed: Sequence[Statement],
    timings: Mapping[str, float],
    made: str = "",
) -> Made:
    """Write the owner's page, and everything in ``public/`` beside the table; readings with noise have no ``plan``."""
    config = context.config
    crowds: list[CrowdCurves] = []
    axis, unit = f"{config.horizon} steps", "kW"
    if card.readings is not None:
        made = card.readings.day
    else:
        assert plan is not None
        crowds = curves_of_means(context) if card.kind == "means" else curves_of_method(context, plan)
        if config.label is not None:
            axis, unit = f"{len(plan.columns)} columns", "sd"
            crowds = in_deviations(crowds)
    page = report(card, crowds, unit=unit, axis=axis, title=config.title, made=made, timings=timings, handed=handed)
    context.folder.put(REPORT, page)
    tables = {Path(name).name: context.folder / f"public/{Path(name).name}" for name in TABLES}
    known = {name: path.read_bytes() for name, path in tables.items() if path.is_file()}
    files = package(card, known, title=config.title, licence=config.licence, made=made)
    for name, text in files.items():
        context.folder.put(f"public/{name}", text)
    intact = None
    with context.ledger() as ledger:
        if ledger.head.seq <= ENTRIES:
            intact = bool(ledger.verify().ok)
    shown = sum(len(crowd.names) for crowd in crowds)
    return Made((REPORT, *(f"public/{name}" for name in files)), ReportFacts(shown, intact))


def curves_of_means(context: Context) -> list[CrowdCurves]:
    """Every crowd with its row and its members' own figures of today."""
    members, rows = members_and_rows(context)
    released = pl.read_parquet(context.folder / PARQUET)
    public = released.select(pl.col(released.columns[0]).alias("label"), number="crowd").unique()
    both = with_rows(members, rows).join(public, on="label", how="inner").sort("label")
    return [
        CrowdCurves(part["number"][0], part["homes"][0], part["label"].to_list(), part["value"].to_numpy(), row[:1])
        for part in both.partition_by("crowd", maintain_order=True)
        for row in [np.array(part["row"].to_list())]
    ]


def curves_of_method(context: Context, plan: CrowdFacts) -> list[CrowdCurves]:
    """Every crowd with what was released about each member; of several rows about one, their mean."""
    released = pl.read_parquet(context.folder / PARQUET)
    if "step" in released.columns:
        wide = released.sort("step").group_by("household", "crowd", maintain_order=True).agg(pl.col("kw"))
        wide = wide.select(pl.col("household").alias("label"), "crowd", row=pl.col("kw"))
    else:
        means = released.group_by("label", "crowd").agg(pl.col(list(plan.columns)).mean())
        wide = means.select("label", "crowd", row=pl.concat_list(list(plan.columns)))
    members, _ = members_and_rows(context)
    own = members.filter(pl.col("value").is_not_null()).select("label", "value")
    both = wide.join(own, on="label", how="inner").sort("label")
    return [
        CrowdCurves(
            number, len(part), part["label"].to_list(), part["value"].to_numpy(), np.array(part["row"].to_list())
        )
        for (number,), part in both.partition_by("crowd", maintain_order=True, as_dict=True).items()
    ]


def in_deviations(crowds: Sequence[CrowdCurves]) -> list[CrowdCurves]:
    """Columns of a table side by side: each less its mean, in standard deviations over all labels."""
    if not crowds:
        return []
    values = np.concatenate([crowd.values for crowd in crowds])
    center, spread = values.mean(axis=0), values.std(axis=0)
    scale: FloatArray = np.where(spread > 0, spread, 1.0)
    return [
        replace(crowd, values=(crowd.values - center) / scale, released=(crowd.released - center) / scale)
        for crowd in crowds
    ]
