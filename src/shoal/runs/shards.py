"""A readings shard: one Parquet row per household, with all its readings in a list.

| column | holds |
| --- | --- |
| household | name; rows are sorted by it |
| first | instant of the first entry, in the zone of the input or none |
| kw | readings on a regular grid from there on, null where missing |
| group | in regrouped shards: the household's group |

The grid's step is in the file's metadata (``step_us``). The quality table lies beside it, ``<key>.quality.parquet``,
and also names the households that could not be used.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shoal.errors import InputError
from shoal.runs.store import put_whole
from shoal.sources.meters.quality import Readings
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl

STEP = "step_us"
QUALITY = ".quality.parquet"
MICROSECOND = timedelta(microseconds=1)


def quality_path(path: str | Path) -> Path:
    """Where the quality table of a shard lies."""
    return Path(path).with_suffix(QUALITY)


def write_frame(path: str | Path, frame: pl.DataFrame, step: timedelta | None = None) -> None:
    """A table as Parquet, whole or not there; the same bytes for the same table."""
    notes = None if step is None else {STEP: str(step // MICROSECOND)}
    put_whole(path, lambda rough: frame.write_parquet(rough, compression="zstd", compression_level=1, metadata=notes))


def write_array(path: str | Path, values: FloatArray) -> None:
    """An array in NumPy's own format, without pickle, whole or not there."""

    def put(rough: Path) -> None:
        with rough.open("wb") as file:
            np.save(file, values, allow_pickle=False)

    put_whole(path, put)


def write_shard(path: str | Path, shard: pl.DataFrame, quality: pl.DataFrame, step: timedelta) -> None:
    """A shard and, before it, its quality table: where the shard is there, both are."""
    write_frame(quality_path(path), quality)
    write_frame(path, shard, step)


def read_shard(path: str | Path) -> tuple[pl.DataFrame, timedelta]:
    """The rows of a shard and the grid's step; anything else than a readings shard is refused."""
    import polars as pl

    name = Path(path).name
    try:
        notes = pl.read_parquet_metadata(path)
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"shard: {name} cannot be read as Parquet") from None
    schema = frame.schema
    wanted = {"household": pl.String, "first": pl.Datetime, "kw": pl.List(pl.Float64)}
    wrong = [c for c, kind in wanted.items() if c not in schema or schema[c] != kind]
    if wrong:
        raise InputError(f"shard: {name} is no readings shard: {', '.join(wrong)} are missing or of another type")
    if not str(notes.get(STEP, "")).isdigit() or int(notes[STEP]) <= 0:
        raise InputError(f"shard: {name} is no readings shard: its metadata lacks {STEP}")
    names = frame["household"]
    if names.null_count() or names.n_unique() != len(names):
        raise InputError(f"shard: {name} must hold each household once, by name")
    empty = frame.filter(pl.col("first").is_null() | (pl.col("kw").list.len().fill_null(0) == 0))
    if len(empty):
        raise InputError(f"shard: {name} has no readings for the household {empty['household'][0]!r}")
    return frame, timedelta(microseconds=int(notes[STEP]))


def read_quality(path: str | Path) -> pl.DataFrame:
    """The quality table of a shard."""
    import polars as pl

    beside = quality_path(path)
    try:
        frame = pl.read_parquet(beside)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"shard: the quality table {beside.name} is missing or cannot be read") from None
    missing = [c for c in ("household", "verdict", "reason") if c not in frame.columns]
    if missing:
        raise InputError(f"shard: the quality table {beside.name} lacks the column(s) {', '.join(missing)}")
    return frame


def shard_of(readings: Readings) -> pl.DataFrame:
    """Readings as the rows of a shard."""
    import polars as pl

    return (
        readings.frame.group_by("household", maintain_order=True)
        .agg(first=pl.col("timestamp").first(), kw=pl.col("kw"))
        .sort("household")
        .with_columns(pl.col("kw").cast(pl.List(pl.Float64)))
    )


def readings_of(path: str | Path, step: timedelta | None = None) -> Readings:
    """What :func:`shoal.forecast` takes, from a shard. ``step``, where given, must be the shard's."""
    frame, own = read_shard(path)
    if step is not None and step != own:
        raise InputError(f"step: the shard {Path(path).name} has another metering interval")
    return Readings(long_frame(frame, own), read_quality(path), own)


def long_frame(shard: pl.DataFrame, step: timedelta) -> pl.DataFrame:
    """household, timestamp, kw: one row per household and grid point."""
    import polars as pl

    at = pl.int_ranges(pl.col("kw").list.len())
    each = shard.select("household", "first", "kw", at=at).explode("kw", "at")
    since = (pl.col("at") * (step // MICROSECOND)).cast(pl.Duration("us"))
    return each.select("household", timestamp=pl.col("first") + since, kw="kw")
