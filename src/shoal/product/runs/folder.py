"""The folder of a run: files that are there whole or not at all, and a state that says what made them, and of what.

A file is written under a temporary name, flushed to disk and renamed; ``state.json`` is written last. Whatever
interrupts a run, the state names only files that are complete, and each with its digest. A run's rows come from meter
files, from households that do not exist, or from a table of any classes. :class:`Context` is the folder as stages see
it: settings, source, ledger, and whom to tell how far they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import InputError, LedgerError
from shoal.files import digest_of, file_digest, private_folder, write_whole
from shoal.product.ledger.ledger import Ledger
from shoal.product.locks import hold_lock
from shoal.product.runs.config import Config, Speed
from shoal.product.runs.owner_ledger import FILE, IN_FOLDER, VARIABLE, Place, Seal, elsewhere, opened, place
from shoal.product.runs.shards import Listing
from shoal.product.sources.frames import Scratch, meter_files, store_rows
from shoal.product.workers.executor import Executor, open_executor
from shoal.records import Record

#: Version of the state file; others are refused.
VERSION = 5
STATE, LEDGER = "state.json", FILE
#: Lists of the shards that stages made.
FIT, DESIGN = "fit.json", "design.json"
#: Folders of shards, by role; what they are made from lies under ``shards``.
FORECASTS, LAWS, MECHANISM, SHARDS = "forecasts", "laws", "mechanism", "shards"
#: Called with (stage, what is happening, done, total); total 0 where it is not known.
Progress = Callable[[str, str, float, int], None]
#: Stages of a run, in order.
STAGES = ("fit", "crowds", "design", "audit", "release", "card", "report")


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
class Source(Record):
    """What a run reads: files at ``path``, or simulated households. ``digest`` stands for all of it."""

    digest: str
    path: str = ""
    name: str = ""  #: of the file or folder
    simulated: SimulatedMeters | None = None
    table: bool = False  #: a row per answer, with a label

    @property
    def paths(self) -> list[Path]:
        """The files, where they were found."""
        return meter_files(self.path)

    def __str__(self) -> str:
        if self.simulated is None:
            return self.name
        return (
            f"{self.simulated.households} simulated households, {self.simulated.days} days (nobody real is behind them)"
        )


def source_of(source: Any, folder: Path, *, table: bool) -> tuple[Source, Scratch | None]:
    """The source of a run; rows of a frame or an address are kept as a file in ``folder``, and come with it."""
    if isinstance(source, SimulatedMeters):
        return Source(digest_of(vars(source)), simulated=source), None
    rows = store_rows(source)
    if rows is not None:
        digest = file_digest(rows.path)
        return Source(digest, str(folder.resolve() / f"{digest[:32]}.parquet"), rows.name, table=table), rows
    if not isinstance(source, (str, Path)):
        raise InputError(
            "source must be a file, a folder of files, an address, a frame (Polars, pandas, Arrow, DuckDB) or "
            "shoal.SimulatedMeters(...)"
        )
    files = meter_files(source)
    where = str(Path(source).resolve()) if Path(source).exists() else str(source)
    name = files[0].name if len(files) == 1 else Path(where).name
    return Source(digest_of([[file.name, file_digest(file)] for file in files]), where, name, table=table), None


@dataclass(frozen=True)
class Done(Record):
    """One finished stage: the digest of all that went into it, its files with theirs, and what to tell about it."""

    key: str
    files: dict[str, str]
    seconds: float
    finished: str
    facts: dict[str, Any] = field(default_factory=dict)  #: the stage's record, as JSON holds it


@dataclass(frozen=True)
class RunState(Record):
    """What a folder knows of its run. ``release`` numbers the releases; ``releasing`` is the key of one begun."""

    source: Source
    config: Config
    stages: dict[str, Done] = field(default_factory=dict)
    release: int = 1
    releasing: str | None = None
    previous: str | None = None  #: where the lists of the day before lie, in a run that goes on from day to day
    created: str = ""
    run: str = ""
    ledger: Seal | None = None  #: the ledger that was charged, and its head after the last release
    day: str = ""  #: on which the present release was begun: the period of a table that declares none
    dates: str = ""  #: what came first in dates of two numbers and a year, "%d" or "%m", for days that leave it open

    @property
    def release_key(self) -> str | None:
        """The key of the release, done or begun; None where there is none."""
        done = self.stages.get("release")
        return self.releasing if done is None else done.key


class Snapshot(NamedTuple):
    """A folder as it was: its state file, and the names of all others."""

    state: bytes
    names: frozenset[str]


class Folder:
    """A folder on disk, used by one process at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def is_run(self) -> bool:
        return (self / STATE).is_file()

    def create(self) -> None:
        """Make the folder, or take an empty one; anything else that is not a run is refused."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"out: {self.path.name} is a file; name a folder")
        if self.is_run:
            return
        mine = {".lock", f".{STATE}.part"}  # all that a run killed at its very beginning leaves
        if self.path.is_dir() and any(entry.name not in mine for entry in self.path.iterdir()):
            raise InputError(
                f"out: the folder {self.path.name} exists and is not a shoal run; name a new or an empty folder"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)  # an empty folder that was there becomes private too: all that it will hold is

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; a second process is refused, and a killed one leaves no trace."""
        busy = InputError(f"out: another shoal is working in {self.path.name}; wait for it to end")
        with hold_lock(self / ".lock", busy):
            yield

    def state(self) -> RunState:
        """The state as it was last written."""
        try:
            content = json.loads((self / STATE).read_bytes())
        except FileNotFoundError:
            raise InputError(
                f"dir: {self.path.name} is not a shoal run; `shoal run METERS --out {self.path.name}` makes one"
            ) from None
        except ValueError:
            content = None
        damaged = InputError(f"dir: the {STATE} in {self.path.name} is damaged; restore it or use a new folder")
        if not isinstance(content, dict) or content.pop("format", None) != "shoal run":
            raise damaged
        if content.pop("version", None) != VERSION:
            raise InputError(f"dir: {self.path.name} was made by another version of shoal; use a new folder")
        try:
            return RunState.from_json(content)
        except InputError:
            raise damaged from None

    def snapshot(self) -> Snapshot:
        """The state as it is written, and the names of all files, but for those of the lock and of a ledger."""
        paths = (path for path in self.path.rglob("*") if path.is_file() or path.is_symlink())
        names = {str(path.relative_to(self.path)) for path in paths}
        files = frozenset(name for name in names if name != ".lock" and not name.startswith(LEDGER))
        return Snapshot((self / STATE).read_bytes(), files)

    def put_back(self, under: str, before: Snapshot) -> None:
        """Undo :meth:`archive` and all that was written since: only the files of a snapshot are left, as they were."""
        aside = self / under
        for path in sorted(aside.rglob("*")):
            name = str(path.relative_to(aside))
            if path.is_file() and name != STATE:
                self.put(name, path.read_bytes())
        self.put(STATE, before.state)
        for name in sorted(self.snapshot().names - before.names):
            (self / name).unlink()
        for path in sorted((path for path in self.path.rglob("*") if path.is_dir()), reverse=True):
            if not any(path.iterdir()):
                path.rmdir()

    def remember(self, state: RunState) -> None:
        """Write the state."""
        content = {"format": "shoal run", "version": VERSION, **state.to_json()}
        self.put(STATE, json.dumps(content, indent=1, ensure_ascii=False))

    def write(self, name: str, put: Callable[[Path], Any]) -> Path:
        """Let ``put`` write a file under a temporary name, then give it its own: whole, or not there."""
        target = self / name
        private_folder(target.parent)
        write_whole(target, target.with_name(f".{target.name}.part"), put)
        return target

    def put(self, name: str, content: str | bytes) -> Path:
        """Write a file with this content, whole or not at all."""
        data = content.encode() if isinstance(content, str) else content
        return self.write(name, lambda path: path.write_bytes(data))

    def archive(self, names: list[str], under: str) -> None:
        """Copy files aside before they are replaced."""
        for name in names:
            if (self / name).is_file():
                self.put(f"{under}/{name}", (self / name).read_bytes())

    def digest(self, name: str) -> str:
        return file_digest(self / name)

    def intact(self, done: Done) -> bool:
        """Whether a stage's files are all there and as they were written."""
        return all((self / name).is_file() and self.digest(name) == digest for name, digest in done.files.items())


@dataclass(frozen=True)
class StageOutcome:
    """The files that a stage wrote, and its record."""

    files: tuple[str, ...]
    facts: Record


class Context:
    """What a stage is given: the run, as far as stages know it."""

    folder: Folder
    state: RunState
    speed: Speed
    horizon: str | None = None  #: as a time, such as 3h, where it was given so
    named_ledger: str | None = None  #: as it was given, with its password, which is written nowhere
    progress: Progress | None = None
    stage: str = ""  #: that is being done

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def config(self) -> Config:
        return self.state.config

    @property
    def source(self) -> Source:
        return self.state.source

    @property
    def series(self) -> str:
        """The prefix of the names of this folder's releases."""
        return f"run {self.state.run} "

    @property
    def release_name(self) -> str:
        """The name of this release of this folder in the ledger."""
        return f"{self.series}release {self.state.release}"

    @property
    def has_released(self) -> bool:
        """Whether this folder has released, or may have: a release that was begun counts."""
        return "release" in self.state.stages or self.state.releasing is not None

    def tell(self, text: str, done: float, total: int) -> None:
        """Report how far the stage is."""
        if self.progress is not None:
            self.progress(self.stage, text, done, total)

    def foresee(self, labels: Sequence[str], origin: str, step_minutes: float) -> bool:
        """Refuse, before anything is fitted, what could not go on; whether crowds of these labels are on record."""
        return False

    def listing(self, name: str, under: str | None = None) -> Listing:
        """The list that a stage left."""
        return Listing.read((self.path if under is None else self.path / under) / name, self.path)

    def put(self, name: str, listing: Listing) -> None:
        self.folder.put(name, listing.text(self.path))

    def workers(self, shards: int | None = None) -> Executor:
        """Where tasks run, to be used in a ``with`` statement; ``shards``: how many the run has, where it is known."""
        return open_executor(self.speed.workers, self.speed.cores, shards)

    # ------------------------------------------------------------------ the ledger

    @property
    def place(self) -> Place:
        """Where the ledger of this run is."""
        return place(self.path, self.named_ledger, self.state.ledger, simulated=self.source.simulated is not None)

    def ledger(self, *, create: bool = False) -> Ledger:
        """The ledger of this run, to be closed after use: the one that its releases were charged to.

        With ``create`` it is made where there is none, as long as nothing was released.
        """
        return opened(self.place, self.state.ledger, create=create and not self.has_released)

    @property
    def alone(self) -> bool:
        """Whether no other ledger matters: nobody real is behind the run, or every folder is by itself."""
        return self.source.simulated is not None or os.environ.get(VARIABLE) == IN_FOLDER

    def elsewhere(self, labels: Sequence[str]) -> tuple[str, ...]:
        """What the owner should know of labels that are on record in another ledger of this machine."""
        if self.alone:
            return ()
        with self.existing_ledger() as ledger:
            identity = None if ledger is None else ledger.identity
        doubt = elsewhere(self.place, identity, labels, "forecast" if self.config.label is None else "table")
        return (f"{doubt}.",) if doubt else ()

    @contextmanager
    def existing_ledger(self) -> Iterator[Ledger | None]:
        """The ledger of this run where there is one, to look something up; None where none was made yet."""
        try:
            ledger = self.ledger()
        except LedgerError as error:
            if self.state.ledger is not None or error.reason != "absent":
                raise
            yield None
            return
        with ledger:
            yield ledger
