"""Where a run's readings come from: meter files, or households that do not exist."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import InputError
from shoal.files import digest_of, file_digest


@dataclass(frozen=True)
class SimulatedMeters:
    """A neighborhood that does not exist, as the source of a run.

    >>> SimulatedMeters(100).days
    17
    """

    households: int
    days: int = 17
    step_minutes: int = 15
    seed: int = 0


@dataclass(frozen=True)
class MeterFile:
    """A file that was read: its name, its SHA-256 and its size in bytes."""

    name: str
    digest: str
    size: int


@dataclass(frozen=True)
class Source:
    """What a run reads: files at ``path``, or simulated households. ``digest`` stands for all of it."""

    digest: str
    path: str = ""
    files: tuple[MeterFile, ...] = ()
    simulated: SimulatedMeters | None = None

    @classmethod
    def of(cls, source: Any) -> Source:
        """A meter file, a folder of them, or a :class:`SimulatedMeters`."""
        if isinstance(source, Source):
            return source
        if isinstance(source, SimulatedMeters):
            return cls(digest_of(vars(source)), simulated=source)
        if not isinstance(source, (str, Path)):
            raise InputError("source must be a meter file, a folder of meter files or shoal.SimulatedMeters(...)")
        from shoal.meters.readings import meter_files

        files = tuple(MeterFile(f.name, file_digest(f), f.stat().st_size) for f in meter_files(source))
        where = str(Path(source).resolve()) if Path(source).exists() else str(source)
        return cls(digest_of([[one.name, one.digest] for one in files]), where, files)

    @classmethod
    def from_json(cls, content: Any) -> Source:
        """From what ``asdict`` gave; a TypeError if it is something else."""
        made_up = content["simulated"]
        return cls(
            content["digest"],
            content["path"],
            tuple(MeterFile(**one) for one in content["files"]),
            None if made_up is None else SimulatedMeters(**made_up),
        )

    def __str__(self) -> str:
        if self.simulated is not None:
            one = self.simulated
            return f"{one.households} simulated households, {one.days} days (nobody real is behind them)"
        return Path(self.path).name


def in_words_of_a_run(error: InputError) -> InputError:
    """The error of a reader of files, in words of a run: its columns are named by settings."""
    what, named, _ = str(error).partition(" Name them: ")
    if not named:
        return error
    return InputError(
        f"{what.rstrip('.')}. Name them: --household-column, --timestamp-column and --value-column, or the same "
        "settings in a file that `shoal init` writes"
    )
