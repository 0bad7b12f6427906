"""Where a run's rows come from: meter files, households that do not exist, or a table of any classes."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.card.facts import Record
from shoal.errors import InputError
from shoal.files import digest_of, file_digest
from shoal.sources.meters.quality import from_pandas, is_pandas

if TYPE_CHECKING:
    import polars as pl

#: Name of a table that came as a frame of Python.
FRAME = "a frame"


@dataclass(frozen=True)
class SimulatedMeters(Record):
    """A neighborhood that does not exist, as the source of a run.

    >>> SimulatedMeters(100).days
    17
    """

    households: int
    days: int = 17
    step_minutes: int = 15
    seed: int = 0


@dataclass(frozen=True)
class MeterFile(Record):
    """A file that was read: its name, its SHA-256 and its size in bytes."""

    name: str
    digest: str
    size: int


@dataclass(frozen=True)
class Source(Record):
    """What a run reads: files at ``path``, or simulated households. ``digest`` stands for all of it."""

    digest: str
    path: str = ""
    files: tuple[MeterFile, ...] = ()
    simulated: SimulatedMeters | None = None
    table: bool = False  #: a row per answer, with a label

    @classmethod
    def of(cls, source: Any, *, table: bool = False) -> Source:
        """A meter file, a folder of them, or a :class:`SimulatedMeters`; with ``table``, a class table in a file."""
        if isinstance(source, Source):
            return source
        if isinstance(source, SimulatedMeters):
            return cls(digest_of(vars(source)), simulated=source)
        if not isinstance(source, (str, Path)):
            raise InputError(
                "source must be a file, a folder of files or shoal.SimulatedMeters(...); a frame needs a label, the "
                "name of the column that says whose row it is"
            )
        from shoal.sources.meters.readings import meter_files

        files = tuple(MeterFile(f.name, file_digest(f), f.stat().st_size) for f in meter_files(source))
        where = str(Path(source).resolve()) if Path(source).exists() else str(source)
        return cls(digest_of([[one.name, one.digest] for one in files]), where, files, table=table)

    @property
    def paths(self) -> list[Path]:
        """The files, where they were found."""
        from shoal.sources.meters.readings import meter_files

        return meter_files(self.path)

    def __str__(self) -> str:
        if self.simulated is not None:
            one = self.simulated
            return f"{one.households} simulated households, {one.days} days (nobody real is behind them)"
        return FRAME if self.files and self.files[0].name == FRAME else Path(self.path).name


def frame_of(source: Any) -> pl.DataFrame | None:
    """A frame of polars or pandas as one of polars; None for anything else."""
    import polars as pl

    if is_pandas(source):
        return from_pandas(source, "source")
    return source.lazy().collect() if isinstance(source, (pl.DataFrame, pl.LazyFrame)) else None


def source_of(source: Any, folder: Path, *, table: bool) -> tuple[Source, bytes | None]:
    """The source of a run; a frame of a table is kept as a file in ``folder``, whose content comes with it."""
    frame = frame_of(source) if table else None
    if frame is None:
        return Source.of(source, table=table), None
    written = io.BytesIO()
    frame.write_parquet(written)
    content = written.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    path = folder.resolve() / f"{digest[:32]}.parquet"
    return Source(digest, str(path), (MeterFile(FRAME, digest, len(content)),), table=True), content
