"""What both kinds of release share: numbers of new crowds, drawn once, and the record of crowds in the ledger.

Numbers are drawn from the cryptographic source and written to the folder before they are used, so that a release that
was interrupted goes on with the same ones. The record is made in one transaction under the release's own name; made
again, it changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import LedgerError
from shoal.ledger.ledger import Ledger
from shoal.runs.context import Context
from shoal.runs.stages.crowd_stage import CROWDS, ROWS, Book, CrowdFacts

if TYPE_CHECKING:
    import polars as pl

NUMBERS = "numbers.json"
STALE = (
    "ledger: somebody else released about the same labels while this release was made. Nothing was recorded; run "
    "again, and it goes on from what is on record now"
)


def members_and_rows(context: Context) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The plan of the crowd stage: who is in which crowd, and what each crowd has."""
    import polars as pl

    return pl.read_parquet(context.folder / CROWDS), pl.read_parquet(context.folder / ROWS)


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


def is_recorded(context: Context, ledger: Ledger) -> bool:
    """Whether the crowds of this release are on record."""
    return ledger.recorded_crowds(context.release_name) is not None


def record(
    context: Context, ledger: Ledger, plan: CrowdFacts, numbers: Mapping[int, int], table_digest: str, *, charged: bool
) -> None:
    """Record the crowds of this release, once; nothing happens where all of it was on record before."""
    import polars as pl

    if is_recorded(context, ledger):
        return
    members, rows = members_and_rows(context)
    changed = members.filter(pl.col("changed"))
    lines = rows.filter(~pl.col("recorded"))
    if not len(lines):
        return
    labels = members["label"].to_list()
    book = Book.read(ledger, labels)
    if book.digest != plan.book:
        raise LedgerError(STALE)

    def public(number: int) -> int:
        return numbers.get(number, number)

    def row_bytes(values: list[float], news: bool, retired: bool, number: int) -> bytes:
        if retired:
            return bytes(book.crowds[number]["row"])
        return np.array([float(news), *([] if charged else values)], dtype="<f8").tobytes()

    crowds = [
        {
            "crowd": public(number),
            "setting": book.crowds[number]["setting"] if number in book.crowds else plan.setting,
            "period": book.crowds[number]["period"] if retired else plan.period,
            "row": row_bytes(values, news, retired, number),
            "homes": homes,
            "retired": retired,
        }
        for number, homes, news, values, _, retired in lines.iter_rows()
    ]
    kinds = {"crowd": pl.Int64, "setting": pl.String, "period": pl.String, "row": pl.Binary, "homes": pl.Int64}
    try:
        ledger.record_crowds(
            context.release_name,
            book_digest=book.ledger_digest,
            members=changed.select("label", "crowd", "stored", "last", "block").with_columns(
                crowd=pl.Series([public(number) for number in changed["crowd"].to_list()], dtype=pl.Int64)
            ),
            crowds=pl.DataFrame(crowds, schema={**kinds, "retired": pl.Boolean}),
            table_digest=table_digest,
            facts={"homes": int(lines["homes"].sum()), "crowds": len(lines), "period": plan.period},
        )
    except LedgerError as error:
        if getattr(error, "reason", "") == "stale":
            raise LedgerError(STALE) from None
        raise
