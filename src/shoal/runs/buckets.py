"""Rows of a source in buckets of whole labels, by a hash of the label, and the shards that are made of them.

A piece is an Arrow file of one bucket and one batch of the input, so that no more than a batch is in memory. Sorting is
noted when it is done; when every bucket has become a shard, the sorted rows are removed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from shoal.errors import InputError
from shoal.files import private_folder
from shoal.records import Record
from shoal.runs.jobs import Job, Listing, Tell, run_jobs
from shoal.runs.store import finished, put_whole, shard_key
from shoal.workers.executor import Executor


@dataclass(frozen=True)
class Buckets(Record):
    """Sorted rows: a folder with a folder of pieces for each bucket that has rows."""

    folder: str
    buckets: int
    filled: tuple[int, ...]  #: buckets with rows

    def path(self, bucket: int) -> Path:
        """The folder of a bucket's pieces."""
        return Path(self.folder) / f"{bucket:06d}"


Rows = TypeVar("Rows", bound=Buckets)


def bucket_of(name: str, buckets: int) -> int:
    """The bucket of a name among so many: a hash of the name alone, the same from day to day.

    >>> bucket_of("H0001", 1), bucket_of("H0001", 8) == bucket_of("H0001", 8)
    (0, True)
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % buckets


def scatter(batches: Iterable[pl.DataFrame], by: str, folder: Path, buckets: int) -> tuple[int, ...]:
    """Write the rows of every batch to the buckets of their labels, the column ``by``; the buckets that have rows.

    What was in the folder is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    filled: set[int] = set()
    for number, batch in enumerate(batches):
        names = batch[by].unique()
        key = pl.DataFrame({by: names, "bucket": pl.Series([bucket_of(n, buckets) for n in names], dtype=pl.Int64)})
        rows = batch.join(key, on=by, how="left", maintain_order="left")
        for (bucket,), piece in rows.partition_by("bucket", as_dict=True, include_key=False).items():
            into = folder / f"{bucket:06d}"
            private_folder(into)
            put_whole(into / f"{number:06d}.arrow", partial(piece.write_ipc, compression="lz4"))
            filled.add(int(bucket))
    return tuple(sorted(filled))


def gather(rows: Buckets, bucket: int) -> pl.DataFrame:
    """The rows of one bucket in the order of the input."""
    try:
        return pl.concat([pl.read_ipc(file.read_bytes()) for file in sorted(rows.path(bucket).glob("*.arrow"))])
    except (pl.exceptions.PolarsError, OSError, ValueError):
        raise InputError(f"shard: the rows of bucket {bucket} cannot be read; sort the input again") from None


def make_shards(
    executor: Executor,
    root: Path,
    settings: Mapping[str, Any],
    kind: type[Rows],
    sort: Callable[[Path], Rows],
    make: Callable[[Rows, int, str], Record],
    out: Callable[[int], str],
    text: str,
    tell: Tell,
) -> tuple[Rows, Listing]:
    """Sort a source and make a shard of every bucket, each once for the ``settings``.

    ``sort`` writes to a folder, ``make(rows, bucket, path)`` the shard that belongs at ``out(bucket)``. Rows are sorted
    again where a shard is lacking and the sorted rows are gone.
    """
    key = shard_key("sort", settings, [])
    note, folder = root / "sort" / f"{key}.sorted", root / "sort" / f"{key}.rows"
    private_folder(note.parent)
    rows: Rows | None = None
    if note.is_file():
        try:
            rows = replace(kind.from_json(json.loads(note.read_text())), folder=str(folder))
        except (OSError, ValueError):
            raise InputError(f"dir: {note.name} is damaged; remove it, and run the same command again") from None
        if not folder.is_dir() and any(finished(out(bucket)) is None for bucket in rows.filled):
            rows = None
    if rows is None:
        try:
            rows = sort(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        content = json.dumps(rows.to_json())
        put_whole(note, lambda rough: rough.write_text(content))
    executor.expect(len(rows.filled))
    jobs = [Job(partial(make, rows, bucket), out(bucket)) for bucket in rows.filled]
    shards = run_jobs(executor, text, jobs, tell, for_good=True)
    if not shards.failed:
        shutil.rmtree(folder, ignore_errors=True)  # all of it is in the shards now
    return rows, replace(shards, buckets=rows.buckets)
