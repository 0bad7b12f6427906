"""The folder of a run: files that are there whole or not at all, and a state that says what made them, and of what.

A file is written under a temporary name, flushed to disk and renamed; ``state.json`` is written last. Whatever
interrupts a run, the state names only files that are complete, and each with its digest. The facts of the stages are
decoded once, when the state is read.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from shoal.errors import InputError, ShoalError
from shoal.files import digest_of, file_digest, make_private_folder, write_whole
from shoal.product.card.facts import AuditFacts, DesignFacts, FitFacts, OwnAttack, ReleaseFacts
from shoal.product.runs.config import Config
from shoal.product.runs.owner_ledger import FILE, Seal
from shoal.product.sources.frames import ScratchFile, find_meter_files, store_as_parquet
from shoal.records import Record


@dataclass(frozen=True)
class CrowdFacts(Record):
    """Crowds that were formed, beside the facts of the fit: the setting and period that are recorded, and the book."""

    fit: FitFacts
    setting: str
    period: str
    book: str  #: digest of what was on record about these labels
    columns: tuple[str, ...] = ()  #: of a table
    withheld: int = 0  #: figures of rows (of meters: rows) that would break a rule
    recorded: int = 0  #: rows that were released before for this period


@dataclass(frozen=True)
class CardFacts(Record):
    """Which card was written, the statement on it, and what only this stage has measured."""

    digest: str
    statement: str
    attack: OwnAttack | None = None
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReportFacts(Record):
    """How many labels the page shows one by one."""

    shown: int


@dataclass(frozen=True)
class Facts:
    """The facts of every stage that is done, by its name; None where it is not."""

    fit: FitFacts | None = None
    crowds: CrowdFacts | None = None
    design: DesignFacts | None = None
    audit: AuditFacts | None = None
    release: ReleaseFacts | None = None
    card: CardFacts | None = None
    report: ReportFacts | None = None

    @property
    def finished_fit(self) -> FitFacts:
        """The facts of the first stage, which must be done."""
        assert self.fit is not None
        return self.fit

    @property
    def plan(self) -> CrowdFacts:
        """The facts of the stage of crowds, which must be done."""
        assert self.crowds is not None
        return self.crowds

    @property
    def people(self) -> FitFacts | None:
        """Who is in the release: the facts of the first stage, with crowds where they are formed; None before it."""
        return self.fit if self.crowds is None else self.crowds.fit


#: The record of each stage's facts.
RECORDS = {name: typing.get_args(hint)[0] for name, hint in typing.get_type_hints(Facts).items()}
#: Stages of a run, in order.
STAGES = tuple(field.name for field in fields(Facts))


def decode_facts(stage: str, content: Mapping[str, Any]) -> Record:
    """Return the facts of a stage from the JSON that the folder has of them."""
    facts: Record = RECORDS[stage].from_json(content)
    return facts


#: Version of the state file; others are refused.
VERSION = 7
STATE, LEDGER = "state.json", FILE
#: Lists of the shards that stages made.
FIT, DESIGN = "fit.json", "design.json"
#: Folders of shards, by role; what they are made from lies under ``shards``.
FORECASTS, LAWS, MECHANISM, SHARDS = "forecasts", "laws", "mechanism", "shards"
#: The table of a release: the owner's, with the label of each row, and the one to pass on, without names.
CSV, PARQUET, PUBLIC = "released.csv", "released.parquet", "public/released.csv"
#: Called with (stage, what is happening, done, total); total 0 where it is not known.
Progress = Callable[[str, str, float, int], None]


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
        """The files that the source consists of."""
        return find_meter_files(self.path)

    def __str__(self) -> str:
        if self.simulated is None:
            return self.name
        return (
            f"{self.simulated.households} simulated households, {self.simulated.days} days (no real person is "
            "behind them)"
        )


def source_of(source: Any, folder: Path, *, table: bool) -> tuple[Source, ScratchFile | None]:
    """Return the source of a run; with it rows of a frame, which are to be kept as a file in ``folder``."""
    if isinstance(source, SimulatedMeters):
        return Source(digest_of(vars(source)), simulated=source), None
    rows = store_as_parquet(source)
    if rows is not None:
        digest = file_digest(rows.path)
        return Source(digest, str(folder.resolve() / f"{digest[:32]}.parquet"), rows.name, table=table), rows
    if not isinstance(source, (str, Path)):
        raise InputError(
            "source must be a file, a folder of files, a frame (Polars, pandas, Arrow) or shoal.SimulatedMeters(...)"
        )
    files = find_meter_files(source)
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
    facts: Any = None  #: the stage's record


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
    kind: str = ""  #: of the release (:data:`shoal.product.runs.kinds.KINDS`)

    @cached_property
    def facts(self) -> Facts:
        """The facts of the stages that are done."""
        return Facts(**{name: done.facts for name, done in self.stages.items()})

    @property
    def release_key(self) -> str | None:
        """The key of the release, done or begun; None where there is none. One that was begun may have happened."""
        done = self.stages.get("release")
        return self.releasing if done is None else done.key


class Folder:
    """A folder on disk, used by one process at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.written: bytes | None = None  #: the state file as it was last read or written here
        self._is_new = False  #: it was made here

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def is_run(self) -> bool:
        """Whether the folder holds the state of a run."""
        return (self / STATE).is_file()

    def create(self) -> None:
        """Make the folder, or take an empty one; refuse anything else that is not a run."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"out: {self.path.name} is a file; name a folder")
        if self.is_run:
            return
        mine = {".lock", f".{STATE}.part"}  # all that a run killed at its very beginning leaves
        if self.path.is_dir() and any(entry.name not in mine for entry in self.path.iterdir()):
            raise InputError(
                f"out: the folder {self.path.name} exists and is not a shoal run; name a new or an empty folder"
            )
        self._is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        self.path.chmod(0o700)  # an empty folder that was there becomes private too: all that it will hold is

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; a second one is refused. One that leaves nothing behind leaves no trace."""
        busy = InputError(f"out: another shoal is working in {self.path.name}; wait for it to end")
        lock, empty = self / ".lock", False
        try:
            with hold_lock(lock, busy):
                try:
                    yield
                finally:
                    empty = list(self.path.iterdir()) == [lock]
        finally:
            if empty:
                lock.unlink(missing_ok=True)
                if self._is_new:
                    with contextlib.suppress(OSError):  # another process has begun
                        self.path.rmdir()

    def clear(self) -> None:
        """Remove everything from a folder that is held."""
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()
        self.written = None

    def state(self) -> RunState:
        """Return the state as it was last written; refuse a folder without one, or a damaged one."""
        try:
            self.written = (self / STATE).read_bytes()
            content = json.loads(self.written)
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
            state = RunState.from_json(content)
            stages = {name: replace(done, facts=decode_facts(name, done.facts)) for name, done in state.stages.items()}
        except (InputError, KeyError):
            raise damaged from None
        return replace(state, stages=stages)

    def names(self) -> set[str]:
        """Return the names of all files in the folder, but for those of the lock and of a ledger."""
        paths = (path for path in self.path.rglob("*") if path.is_file() or path.is_symlink())
        names = {str(path.relative_to(self.path)) for path in paths}
        return {name for name in names if name != ".lock" and not name.startswith(LEDGER)}

    def roll_back_files(self, under: str, names: set[str]) -> None:
        """Put the copies of :meth:`copy_aside` in ``under`` back, and delete every file that is not in ``names``."""
        aside = self / under
        for path in sorted(aside.rglob("*"), key=lambda path: path.name == STATE):  # the state last
            if path.is_file():
                self.write_content(str(path.relative_to(aside)), path.read_bytes())
        for name in sorted(self.names() - names):
            (self / name).unlink()
        self.written = (self / STATE).read_bytes()
        for path in sorted((path for path in self.path.rglob("*") if path.is_dir()), reverse=True):
            if not any(path.iterdir()):
                path.rmdir()

    def write_state(self, state: RunState) -> None:
        """Write the state of the run."""
        content = {"format": "shoal run", "version": VERSION, **state.to_json()}
        self.written = json.dumps(content, indent=1, ensure_ascii=False).encode()
        self.write_content(STATE, self.written)

    def write(self, name: str, put: Callable[[Path], Any]) -> Path:
        """Let ``put`` write a file under a temporary name, then give it its own: whole, or not there."""
        target = self / name
        make_private_folder(target.parent)
        write_whole(target, target.with_name(f".{target.name}.part"), put)
        return target

    def write_content(self, name: str, content: str | bytes) -> Path:
        """Write a file with this content, whole or not at all."""
        data = content.encode() if isinstance(content, str) else content
        return self.write(name, lambda path: path.write_bytes(data))

    def copy_aside(self, names: list[str], under: str) -> None:
        """Copy files into the folder ``under`` before they are replaced."""
        for name in names:
            if (self / name).is_file():
                self.write_content(f"{under}/{name}", (self / name).read_bytes())

    def digest(self, name: str) -> str:
        """Return SHA-256 of a file in the folder."""
        return file_digest(self / name)

    def is_intact(self, done: Done) -> bool:
        """Return whether a stage's files are all there and as they were written."""
        return all((self / name).is_file() and self.digest(name) == digest for name, digest in done.files.items())


@contextlib.contextmanager
def hold_lock(path: Path, busy: ShoalError) -> Iterator[None]:
    """Hold a lock file until the block ends, or raise ``busy`` where another process holds it.

    A process that is killed holds nothing any more.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o600)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise busy from None
    try:
        yield
    finally:
        lock.release()
