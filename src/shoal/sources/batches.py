"""Rows of a lazy table in batches, on every version of Polars that is supported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def in_batches(table: pl.LazyFrame, rows: int) -> Iterator[pl.DataFrame]:
    """The rows in order, about so many at a time; versions before 1.34 have no batches, and slices are taken."""
    if hasattr(table, "collect_batches"):
        yield from table.collect_batches(chunk_size=rows, maintain_order=True, engine="streaming")
        return
    start = 0
    while len(part := table.slice(start, rows).collect()):
        yield part
        start += len(part)
