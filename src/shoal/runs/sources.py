"""Where a run's rows come from: meter files, households that do not exist, or a table of any classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.files import digest_of, file_digest
from shoal.records import Record
from shoal.sources.frames import Scratch, stored


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
                "source must be a file, a folder of files, an address, a frame (Polars, pandas, Arrow, DuckDB) or "
                "shoal.SimulatedMeters(...)"
            )
        from shoal.sources.frames import meter_files

        files = tuple(MeterFile(f.name, file_digest(f), f.stat().st_size) for f in meter_files(source))
        where = str(Path(source).resolve()) if Path(source).exists() else str(source)
        return cls(digest_of([[one.name, one.digest] for one in files]), where, files, table=table)

    @property
    def paths(self) -> list[Path]:
        """The files, where they were found."""
        from shoal.sources.frames import meter_files

        return meter_files(self.path)

    def __str__(self) -> str:
        if self.simulated is not None:
            one = self.simulated
            return f"{one.households} simulated households, {one.days} days (nobody real is behind them)"
        return self.files[0].name if len(self.files) == 1 else Path(self.path).name


def source_of(source: Any, folder: Path, *, table: bool) -> tuple[Source, Scratch | None]:
    """The source of a run; rows of a frame or an address are kept as a file in ``folder``, and come with it."""
    rows = stored(source)
    if rows is None:
        return Source.of(source, table=table), None
    digest = file_digest(rows.path)
    path = folder.resolve() / f"{digest[:32]}.parquet"
    return Source(digest, str(path), (MeterFile(rows.name, digest, rows.path.stat().st_size),), table=table), rows
