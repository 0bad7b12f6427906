"""Rows that change shards: each sender writes one file, each receiver takes its rows out of all of them.

A file holds one Arrow record batch per receiver, and its schema says which batch is whose. A receiver maps the file and
touches only its own batch, so that n senders and m receivers need n files, and memory for one shard on either side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.runs.store import put_whole

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Sent(Record):
    """(receiver, rows that go there), ascending."""

    counts: tuple[tuple[int, int], ...]


def scatter(path: str | Path, rows: pl.DataFrame, key: str, notes: Mapping[str, Any] | None = None) -> Sent:
    """Write ``rows`` by the whole numbers in the column ``key``; how many there are for each.

    ``notes`` are kept with the file and must be the same in all files that are gathered together.
    """
    import pyarrow as pa

    parts = {int(k): part for (k,), part in rows.partition_by(key, as_dict=True, maintain_order=True).items()}
    keys = sorted(parts)
    schema: Any = rows.head(0).to_arrow().schema
    schema = schema.with_metadata({"keys": json.dumps(keys), "notes": json.dumps(dict(notes or {}), sort_keys=True)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")

    def write(rough: Path) -> None:
        with pa.OSFile(str(rough), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
            for k in keys:
                columns = parts[k].to_arrow().combine_chunks().columns
                arrays = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in columns]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))

    put_whole(path, write)
    return Sent(tuple((k, len(parts[k])) for k in keys))


def gather(paths: Sequence[str | Path], keys: Iterable[int]) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The rows of these keys from all files, file by file, and the notes of the files."""
    import polars as pl
    import pyarrow as pa

    wanted = set(keys)
    batches = []
    first: Any = None
    for path in paths:
        try:
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
                schema = reader.schema
                held = json.loads(schema.metadata[b"keys"])
                batches += [reader.get_batch(i) for i, k in enumerate(held) if k in wanted]
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            raise InputError(f"shard: {Path(path).name} cannot be read; make it again") from None
        if first is None:
            first = schema
        elif not schema.equals(first) or schema.metadata[b"notes"] != first.metadata[b"notes"]:
            raise InputError(
                f"shard: {Path(path).name} and {Path(paths[0]).name} differ in their columns, time zone or metering "
                "interval; partition all input with the same settings"
            )
    if first is None:
        raise InputError("paths must name at least one file")
    table: Any = pa.Table.from_batches(batches, schema=first)
    return pl.DataFrame(pl.from_arrow(table.replace_schema_metadata(None))), json.loads(first.metadata[b"notes"])
