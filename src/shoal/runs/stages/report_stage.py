"""The last stage: the page for the data owner, and ``public/`` as a data package. What they say comes from the card.

The owner's page draws every crowd, members' figures beside what was released; nothing else is designed for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from shoal.card.card import ReleaseCard
from shoal.card.package import PublicTable, package_files
from shoal.card.pictures import CrowdCurves
from shoal.card.render import public_page, report
from shoal.card.statements import Statement
from shoal.records import Record
from shoal.runs import reader
from shoal.runs.context import Context, Made
from shoal.runs.stages.card_stage import PARQUET, with_rows
from shoal.runs.stages.crowd_stage import CrowdFacts
from shoal.runs.stages.means_stage import PUBLIC as TABLE
from shoal.runs.stages.record import members_and_rows
from shoal.validation import FloatArray

SETTINGS = ("title", "licence")
DOING = "writing the report"
REPORT, PUBLIC, PACKAGE = "report.html", "public/report.html", "public/datapackage.json"
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
    plan: CrowdFacts,
    handed: Sequence[Statement],
    timings: Mapping[str, float],
    made: str = "",
) -> Made:
    """Write the owner's page, and everything in ``public/`` beside the table."""
    config = context.config
    of_meters = config.label is None
    crowds, columns = curves_of_means(context) if card.kind == "means" else curves_of_method(context, plan)
    unit, axis = ("kW", f"{config.horizon} steps") if of_meters else ("sd", f"{columns} columns")
    if not of_meters:
        crowds = in_deviations(crowds)
    page = report(card, crowds, unit=unit, axis=axis, title=config.title, made=made, timings=timings, handed=handed)
    context.folder.put(REPORT, page)
    content = (context.folder / TABLE).read_bytes()
    header = pl.read_csv(content, infer_schema=False)
    table = PublicTable(content, header.columns, len(header), plan.fit.time_zone if of_meters else None)
    public = public_page(card, title=config.title, made=made)
    law = context.folder / reader.FILE
    also = {law.name: law.read_bytes()} if law.is_file() else {}
    files = package_files(card, table, title=config.title, licence=config.licence, page=public, also=also)
    for name, text in files.items():
        context.folder.put(f"public/{name}", text)
    intact = None
    with context.ledger() as ledger:
        if ledger.head.seq <= ENTRIES:
            intact = bool(ledger.verify().ok)
    shown = sum(len(crowd.names) for crowd in crowds)
    return Made((REPORT, *(f"public/{name}" for name in files)), ReportFacts(shown, intact))


def curves_of_means(context: Context) -> tuple[list[CrowdCurves], int]:
    """Every crowd with its row and its members' own figures of today, and how many entries these have."""
    members, rows = members_and_rows(context)
    released = pl.read_parquet(context.folder / PARQUET)
    public = released.select(pl.col(released.columns[0]).alias("label"), number="crowd").unique()
    both = with_rows(members, rows).join(public, on="label", how="inner").sort("label")
    crowds = [
        CrowdCurves(
            part["number"][0],
            part["homes"][0],
            part["label"].to_list(),
            part["value"].to_numpy(),
            np.array(part["row"].to_list())[:1],
        )
        for part in both.partition_by("crowd", maintain_order=True)
    ]
    return crowds, crowds[0].values.shape[1] if crowds else 0


def curves_of_method(context: Context, plan: CrowdFacts) -> tuple[list[CrowdCurves], int]:
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
    crowds = [
        CrowdCurves(
            part["crowd"][0],
            len(part),
            part["label"].to_list(),
            part["value"].to_numpy(),
            np.array(part["row"].to_list()),
        )
        for part in both.partition_by("crowd", maintain_order=True)
    ]
    return crowds, crowds[0].values.shape[1] if crowds else 0


def in_deviations(crowds: Sequence[CrowdCurves]) -> list[CrowdCurves]:
    """Columns of a table side by side: each less its mean, in standard deviations over all labels."""
    if not crowds:
        return []
    values = np.concatenate([crowd.values for crowd in crowds])
    center, spread = values.mean(axis=0), values.std(axis=0)
    scale: FloatArray = np.where(spread > 0, spread, 1.0)
    return [
        CrowdCurves(
            crowd.number, crowd.homes, crowd.names, (crowd.values - center) / scale, (crowd.released - center) / scale
        )
        for crowd in crowds
    ]
