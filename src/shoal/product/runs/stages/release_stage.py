"""The part of a release that all kinds share: the names of its tables, and the facts about it.

``public/released.csv`` is the table to pass on: no names, and no byte of it depends on who is who. ``released.csv`` is
the owner's: the same rows with the label of each, the key between the two.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from shoal.product.card.facts import ReleaseFacts, SpentFacts
from shoal.product.runs.work import Work
from shoal.product.sources.frames import as_cells

SETTINGS = ("query",)
CSV, PARQUET, PUBLIC = "released.csv", "released.parquet", "public/released.csv"


def release_facts(work: Work, period: str, *, charged: bool = False, **more: Any) -> ReleaseFacts:
    """The release, with its place on record and, where it is charged, what was spent of the worst account."""
    ledger = work.ledger
    overview = ledger.overview()
    return ReleaseFacts(
        name=work.release_name,
        ledger=ledger.identity,
        head=str(ledger.head),
        releases=overview.releases,
        ledger_labels=overview.labels,
        worst=SpentFacts.like(overview.worst[0]) if charged and overview.worst else None,
        period=period,
        **more,
    )


def csv_bytes(table: pl.DataFrame) -> bytes:
    """A table as CSV; instants in ISO 8601, with their offset from UTC where they have a zone."""
    zone = next((getattr(kind, "time_zone", None) for kind in table.schema.values() if kind.is_temporal()), None)
    form = "%Y-%m-%dT%H:%M:%S%:z" if zone else "%Y-%m-%dT%H:%M:%S"
    return as_cells(table).write_csv(datetime_format=form).encode()


def write_tables(work: Work, public: pl.DataFrame, owner: pl.DataFrame) -> tuple[str, ...]:
    """Write the table to pass on and the owner's; their names."""
    work.folder.put(PUBLIC, csv_bytes(public))
    work.folder.put(CSV, csv_bytes(owner))
    work.folder.write(PARQUET, lambda path: owner.write_parquet(path))
    return CSV, PARQUET, PUBLIC
