"""Meter files of any size, sorted into buckets of whole households, in batches.

Two passes over the input. The first collects the names; the bucket of a household is a hash of its name, the same from
day to day (:func:`bucket_of`). The second writes the rows of each batch, one file per bucket, in the order of the
input. Memory: the names, and one batch (:data:`BATCH` readings; a Parquet row group or a compressed CSV is read whole).

A piece is an Arrow file of one bucket and one batch. Its columns: ``code`` (rank of the household), ``file``, ``turn``
(order of appearance where batches do not follow it), ``time`` (microseconds; of the wall clock where ``wall``), ``kw``
and ``invalid``.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal import validation
from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.files import private_folder
from shoal.runs.store import put_whole
from shoal.sources.batches import in_batches
from shoal.sources.meters import clock
from shoal.sources.meters.columns import ColumnsError
from shoal.sources.meters.meter_file import (
    NO_ROWS,
    NO_TIMES,
    ODD_ROWS,
    ROW_NUMBERS,
    MeterSource,
    household_name,
    open_sources,
)
from shoal.sources.meters.readings import Paths, common_zone, meter_files, numbered

if TYPE_CHECKING:
    import polars as pl

#: Readings taken from the input at a time.
BATCH = 2_000_000

NAMES = "names.parquet"


@dataclass(frozen=True)
class Pieces(Record):
    """Sorted input: a folder with the names and a folder of rows per bucket, and how to read them."""

    folder: str
    households: int
    buckets: int
    time_zone: str | None  #: zone of the instants
    energy: bool
    max_kw: float | None
    rows: int
    unit: str = "kW"  #: what the readings came in
    unit_reason: str = ""
    taken: str = ""  #: which columns were taken for what
    filled: tuple[int, ...] = ()  #: buckets with rows

    def path(self, bucket: int) -> Path:
        """The folder of a bucket's pieces."""
        return Path(self.folder) / f"{bucket:06d}"


def bucket_of(name: str, buckets: int) -> int:
    """The bucket of a name among so many: a hash of the name alone.

    >>> bucket_of("H0001", 1), bucket_of("H0001", 8) == bucket_of("H0001", 8)
    (0, True)
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % buckets


def bucket_count(labels: int, size: int) -> int:
    """Buckets of about so many labels each."""
    return max(-(-labels // size), 1)


def sort_files(
    path: Paths,
    folder: str | Path,
    *,
    shard_size: int = 1000,
    buckets: int | None = None,
    unit: str | None = None,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    max_kw: float | None = None,
    interval: Any = None,
    only: Sequence[str] = (),
) -> Pieces:
    """Sort the rows of meter files into buckets under ``folder``, which appears when all is done.

    The arguments are those of ``meter_readings``; ``shard_size`` is about how many households a bucket has, unless
    ``buckets`` says how many there are; ``only`` names the households to take, if not all.
    """
    import polars as pl

    zone = clock.zone(time_zone)
    size = validation.count(shard_size=shard_size)
    ceiling = None if max_kw is None else validation.positive(max_kw=max_kw)
    opened = open_sources(meter_files(path), columns, timestamp_format, unit)
    sources = opened.sources
    shown = zone if zone is not None else common_zone({source.time_zone for source in sources})
    names = _chosen(_names(sources), only)
    target = Path(folder)
    rough = target.with_name(target.name + ".part")
    for old in (rough, target):
        shutil.rmtree(old, ignore_errors=True)
    private_folder(rough)
    count = bucket_count(len(names), size) if buckets is None else buckets
    codes = pl.DataFrame({"household": names}).with_columns(
        code=pl.int_range(pl.len(), dtype=pl.UInt32),
        bucket=pl.Series([bucket_of(name, count) for name in names], dtype=pl.UInt32),
    )
    put_whole(rough / NAMES, codes.write_parquet)
    pieces = Pieces(
        str(rough), len(names), count, shown, opened.energy, ceiling, 0, opened.unit, opened.reason, opened.taken
    )
    rows = sum(_spread(source, number, codes, pieces, only=bool(only)) for number, source in enumerate(sources))
    column = numbered(sources) if interval is None else None
    if column is not None and len(names) == rows > 2:
        shutil.rmtree(rough, ignore_errors=True)
        raise ColumnsError(ROW_NUMBERS.format(column))
    filled = tuple(bucket for bucket in range(count) if pieces.path(bucket).is_dir())
    rough.rename(target)
    return replace(pieces, folder=str(target), rows=rows, filled=filled)


def read_pieces(pieces: Pieces, bucket: int) -> pl.DataFrame:
    """The rows of one bucket in the order of the input, as :func:`shoal.sources.meters.quality.repair` takes them."""
    import polars as pl

    try:
        known = pl.read_parquet(Path(pieces.folder) / NAMES).filter(pl.col("bucket") == bucket)
        files = sorted(pieces.path(bucket).glob("*.arrow"))
        rows = pl.concat([pl.read_ipc(file.read_bytes()) for file in files])
    except (pl.exceptions.PolarsError, OSError, ValueError):
        raise InputError(f"shard: the rows of bucket {bucket} cannot be read; sort the input again") from None
    if rows["turn"].max():
        rows = rows.sort("file", "turn", maintain_order=True)
    stamp = pl.from_epoch(pl.col("time"), time_unit="us")
    rows = rows.with_columns(
        household=known["household"].gather(known["code"].search_sorted(rows["code"])),
        timestamp=stamp,
        bad_time=pl.col("time").is_null(),
        no_such_time=pl.lit(False),
    )
    if pieces.time_zone is not None:
        instant = stamp.dt.replace_time_zone("UTC").dt.convert_time_zone(pieces.time_zone)
        if rows["wall"].any():
            local = clock.localize(rows.lazy(), pieces.time_zone, within=("file",)).collect(engine="in-memory")
            wall = pl.col("wall")
            rows = rows.with_columns(
                timestamp=pl.when(wall).then(local["timestamp"]).otherwise(instant),
                no_such_time=wall & local["no_such_time"],
            )
        else:
            rows = rows.with_columns(timestamp=instant)
    return rows.select("household", "timestamp", "kw", "invalid", "bad_time", "no_such_time")


def _names(sources: Sequence[MeterSource]) -> pl.Series:
    """Every household, once, sorted."""
    import polars as pl

    fixed: set[str] = set()
    parts = []
    for source in sources:
        if source.layout.shape == "households":
            fixed |= {name.strip() for name in source.layout.across}
        elif source.layout.household is None:
            fixed.add(source.file.name.split(".")[0].strip())
        else:
            found = source.raw.select(household=pl.col(source.layout.household or "")).select(household_name())
            try:
                parts.append(found.unique().collect(engine="streaming")["household"])
            except (pl.exceptions.PolarsError, OSError, UnicodeError):
                raise InputError(ODD_ROWS.format(source.file.name)) from None
    parts.append(pl.Series("household", sorted(fixed), dtype=pl.String))
    return pl.concat([part.fill_null("") for part in parts]).unique().sort()


def _chosen(names: pl.Series, only: Sequence[str]) -> pl.Series:
    """The households to take; one that is not there is refused."""
    if not only:
        return names
    known = set(names.to_list())
    strange = [name for name in only if name not in known]
    if strange:
        raise InputError(
            f"household: there is no household {strange[0]!r} among the {len(known)} in the readings; "
            "check `only` in the settings"
        )
    return names.filter(names.is_in(list(only)))


def _spread(source: MeterSource, number: int, codes: pl.DataFrame, pieces: Pieces, *, only: bool) -> int:
    """Write the rows of one file to the pieces of their buckets; how many there were."""
    import polars as pl

    rows = readable = 0
    names, bucket = codes["household"], codes["bucket"]
    for turn_of_batch, batch in enumerate(_batches(source)):
        try:
            standard = source.standard(source.melt(batch.lazy())).collect(engine="in-memory")
            if only:
                standard = standard.filter(pl.col("household").fill_null("").is_in(names.implode()))
            code = standard["household"].fill_null("").cast(pl.Enum(names)).to_physical().cast(pl.UInt32)
        except pl.exceptions.PolarsError:
            raise InputError(f"path: {source.file.name} was changed while it was read") from None
        # Unpivoted batches go column by column, and so must the whole file.
        by_column = source.layout.shape == "times"
        turn = pl.int_range(pl.len()) // max(len(batch), 1) if by_column else pl.lit(0)
        sorted_rows = standard.with_columns(code=code, bucket=bucket.gather(code)).select(
            "code",
            "bucket",
            file=pl.lit(number, pl.UInt32),
            turn=turn.cast(pl.UInt32),
            time=pl.col("timestamp").dt.epoch("us"),
            wall=pl.lit(source.time_zone is None),
            kw="kw",
            invalid="invalid",
        )
        rows += len(standard)
        readable += len(standard) - standard["timestamp"].null_count()
        for (into,), part in sorted_rows.partition_by("bucket", as_dict=True, include_key=False).items():
            folder = pieces.path(int(into))
            private_folder(folder)
            put_whole(folder / f"{number:06d}-{turn_of_batch:06d}.arrow", _writer(part))
    if not rows and not only:
        raise InputError(NO_ROWS.format(source.file.name))
    if rows and not readable:
        raise InputError(NO_TIMES.format(source.file.name))
    return rows


def _writer(rows: pl.DataFrame) -> Callable[[Path], None]:
    return lambda path: rows.write_ipc(path, compression="lz4")


def _batches(source: MeterSource) -> Iterator[pl.DataFrame]:
    """The file's rows as they come, about :data:`BATCH` readings at a time."""
    import polars as pl

    layout = source.layout
    size = max(BATCH // max(len(layout.across), 1), 1)
    try:
        yield from in_batches(source.raw.select(layout.needed), size)
    except (pl.exceptions.PolarsError, OSError, UnicodeError):
        raise InputError(ODD_ROWS.format(source.file.name)) from None
