"""Meter files of any size, sorted into one file of rows per shard, in batches.

Two passes over the input. The first collects the names; households get their shard by rank among the sorted names, so
it depends on nothing else. The second appends the rows of each batch to the files of their shards, in the order of the
input. Memory: the names, and one batch (:data:`BATCH` readings; a Parquet row group or a compressed CSV is read whole).

A file of pieces is a sequence of Arrow streams, one per batch. Its columns: ``code`` (rank of the household), ``file``,
``turn`` (order of appearance where batches do not follow it), ``time`` (microseconds; of the wall clock where
``wall``), ``kw`` and ``invalid``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal import validation
from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.files import private, private_folder
from shoal.sources.meters import clock
from shoal.sources.meters.meter_file import (
    NO_ROWS,
    NO_TIMES,
    ODD_ROWS,
    ROW_NUMBERS,
    Source,
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
    """Sorted input: a folder with the names and a file of rows per shard, and how to read them."""

    folder: str
    households: int
    shard_size: int
    time_zone: str | None  #: zone of the instants
    energy: bool
    max_kw: float | None
    rows: int
    unit: str = "kW"  #: what the readings came in
    unit_reason: str = ""
    taken: str = ""  #: which columns were taken for what

    @property
    def n_shards(self) -> int:
        return -(-self.households // self.shard_size)

    def path(self, number: int) -> Path:
        return Path(self.folder) / f"{number:06d}.pieces"


def sort_files(
    path: Paths,
    folder: str | Path,
    *,
    shard_size: int = 1000,
    unit: str | None = None,
    time_zone: str | None = None,
    columns: Mapping[str, str] | None = None,
    timestamp_format: str | None = None,
    max_kw: float | None = None,
    interval: Any = None,
    only: Sequence[str] = (),
) -> Pieces:
    """Sort the rows of meter files by shard into ``folder``, which appears when all is done.

    The arguments are those of ``meter_readings``; ``shard_size`` is the number of households per shard, ``only`` names
    the households to take, if not all.
    """
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
    private(rough / NAMES)
    names.to_frame("household").write_parquet(rough / NAMES)
    pieces = Pieces(
        str(rough), len(names), size, shown, opened.energy, ceiling, 0, opened.unit, opened.reason, opened.taken
    )
    rows = sum(_spread(source, number, names, pieces, only=bool(only)) for number, source in enumerate(sources))
    column = numbered(sources) if interval is None else None
    if column is not None and len(names) == rows > 2:
        shutil.rmtree(rough, ignore_errors=True)
        raise InputError(ROW_NUMBERS.format(column))
    rough.rename(target)
    return replace(pieces, folder=str(target), rows=rows)


def read_pieces(pieces: Pieces, number: int) -> pl.DataFrame:
    """The rows of one shard in the order of the input, as :func:`shoal.sources.meters.quality.repair` takes them."""
    import polars as pl
    import pyarrow as pa

    path = pieces.path(number)
    names = pl.scan_parquet(Path(pieces.folder) / NAMES).slice(number * pieces.shard_size, pieces.shard_size)
    try:
        known = names.collect()["household"]
        with path.open("rb") as handle:
            end = handle.seek(0, 2)
            handle.seek(0)
            parts = []
            while handle.tell() < end:
                with pa.ipc.open_stream(handle) as stream:
                    parts.append(stream.read_all())
        rows = pl.DataFrame(pl.from_arrow(pa.concat_tables(parts)))
    except (pl.exceptions.PolarsError, OSError, pa.ArrowException):
        raise InputError(
            f"shard: the rows of shard {number} ({path.name}) cannot be read; sort the input again"
        ) from None
    if rows["turn"].max():
        rows = rows.sort("file", "turn", maintain_order=True)
    stamp = pl.from_epoch(pl.col("time"), time_unit="us")
    rows = rows.with_columns(
        household=known.gather(rows["code"] - number * pieces.shard_size),
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


def extent(
    path: Paths, columns: Mapping[str, str] | None = None, unit: str | None = None, timestamp_format: str | None = None
) -> tuple[int, int]:
    """Households and readings in meter files, streamed."""
    import polars as pl

    sources = open_sources(meter_files(path), columns, timestamp_format, unit).sources
    readings = 0
    for source in sources:
        try:
            rows = int(source.raw.select(pl.len()).collect(engine="streaming").item())
        except (pl.exceptions.PolarsError, OSError, UnicodeError):
            raise InputError(ODD_ROWS.format(source.file.name)) from None
        readings += rows * max(len(source.layout.across), 1)
    return len(_names(sources)), readings


def _names(sources: Sequence[Source]) -> pl.Series:
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
            "check --household, or `only` in the settings"
        )
    return names.filter(names.is_in(list(only)))


def _spread(source: Source, number: int, names: pl.Series, pieces: Pieces, *, only: bool) -> int:
    """Append the rows of one file to the files of their shards; how many there were."""
    import polars as pl

    rows = readable = 0
    for batch in _batches(source):
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
        sorted_rows = standard.with_columns(code=code).select(
            "code",
            file=pl.lit(number, pl.UInt32),
            turn=turn.cast(pl.UInt32),
            time=pl.col("timestamp").dt.epoch("us"),
            wall=pl.lit(source.time_zone is None),
            kw="kw",
            invalid="invalid",
            shard=pl.col("code") // pieces.shard_size,
        )
        rows += len(standard)
        readable += len(standard) - standard["timestamp"].null_count()
        for (shard,), part in sorted_rows.partition_by("shard", as_dict=True, include_key=False).items():
            _append(pieces.path(int(shard)), part)
    if not rows and not only:
        raise InputError(NO_ROWS.format(source.file.name))
    if rows and not readable:
        raise InputError(NO_TIMES.format(source.file.name))
    return rows


def _batches(source: Source) -> Iterator[pl.DataFrame]:
    """The file's rows as they come, about :data:`BATCH` readings at a time."""
    import polars as pl

    layout = source.layout
    size = max(BATCH // max(len(layout.across), 1), 1)
    try:
        wanted = source.raw.select(layout.needed)
        yield from wanted.collect_batches(chunk_size=size, maintain_order=True, engine="streaming")
    except (pl.exceptions.PolarsError, OSError, UnicodeError):
        raise InputError(ODD_ROWS.format(source.file.name)) from None


def _append(path: Path, rows: pl.DataFrame) -> None:
    import pyarrow as pa

    private(path)
    table: Any = rows.to_arrow()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with path.open("ab") as handle, pa.ipc.new_stream(handle, table.schema, options=options) as writer:
        writer.write_table(table)
