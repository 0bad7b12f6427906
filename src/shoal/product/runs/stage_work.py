"""The work of a stage: what it is given, what it returns, and which stages of a run are done.

A stage is ``stage(work) -> StageOutcome``. :class:`Work` has settings, source, ledger and the facts of the stages
before it as attributes; a stage changes none of them. It is known by a key: the digest of its settings, of the files
that it reads and of shoal's version. It is done where the state has it with this key and its files are intact.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shoal
from shoal.errors import LedgerError
from shoal.files import digest_of, file_digest
from shoal.product.runs.config import Config, Speed
from shoal.product.runs.folder import Done, Facts, Folder, Progress, RunState, Source
from shoal.product.runs.inputs import Input, input_of
from shoal.product.runs.owner_ledger import (
    IN_FOLDER,
    VARIABLE,
    Place,
    ledger_place_of_run,
    open_sealed_ledger,
    other_ledger_warning,
)
from shoal.product.runs.shards import Listing
from shoal.product.workers import Executor, open_executor

if TYPE_CHECKING:
    from shoal.product.ledger.ledger import Ledger
    from shoal.product.runs.crowd_rows import CrowdTables
    from shoal.product.runs.kinds.kind import Kind


@dataclass(frozen=True)
class StageOutcome:
    """The files that a stage wrote and its record; where it has them, settings that hold from here on, and crowds."""

    files: tuple[str, ...]
    facts: Any
    settings: Config | None = None
    tables: CrowdTables | None = None


@dataclass(frozen=True)
class Stage:
    """One stage: words for its progress, settings that its result depends on, and the function that does it.

    ``daily``: settings that may differ from release to release.
    """

    doing: str
    settings: tuple[str, ...]
    do: Callable[[Work], StageOutcome]
    daily: tuple[str, ...] = ()


class Work:
    """What stages are given: one folder, and what is known of its run."""

    state: RunState
    any_crowd = False  #: nobody asked for a size: that of the crowds on record is the one
    stage = ""  #: that is being done

    def __init__(self, folder: Folder, speed: Speed, horizon: str | None, progress: Progress | None) -> None:
        self.folder, self.speed, self.progress = folder, speed, progress
        self.horizon = horizon  #: as a time, such as 3h, until the step is known
        self.named_ledger: str | None = None  #: as it was given, with its password, which is written nowhere
        self.known_tables: tuple[Done, CrowdTables] | None = None  #: of the stage that formed these crowds
        self._ledger: Ledger | None = None

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def settings(self) -> Config:
        return self.state.config

    @property
    def source(self) -> Source:
        return self.state.source

    @property
    def kind(self) -> Kind:
        """The kind of release, which the run has chosen."""
        from shoal.product.runs.kinds import KINDS  # which are made of stages

        return KINDS[self.state.kind]

    @property
    def input(self) -> Input:
        """Meters, or a table."""
        return input_of(self.settings)

    @property
    def facts(self) -> Facts:
        """The facts of the stages that are done."""
        return self.state.facts

    @property
    def release_prefix(self) -> str:
        """The prefix of the names of this folder's releases in the ledger."""
        return f"run {self.state.run} "

    @property
    def release_name(self) -> str:
        """The name of this release of this folder in the ledger."""
        return f"{self.release_prefix}release {self.state.release}"

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of each stage that is done."""
        return {name: done.seconds for name, done in self.state.stages.items()}

    @property
    def released_on(self) -> str:
        """The day on which the release was made."""
        return self.state.stages["release"].finished[:10]

    @property
    def declared_period(self) -> str:
        """The period that a table is about: as it was declared, or the day on which its release was begun."""
        return self.settings.period or self.state.day

    @property
    def tables(self) -> CrowdTables:
        """Members and rows of the crowds that were formed last, loaded once."""
        from shoal.product.runs.crowd_rows import CrowdTables

        formed, known = self.state.stages["crowds"], self.known_tables
        if known is None or known[0] is not formed:
            self.known_tables = known = formed, CrowdTables.load(self.folder)
        return known[1]

    def report(self, text: str, done: float, total: int) -> None:
        """Report how far the stage is."""
        if self.progress is not None:
            self.progress(self.stage, text, done, total)

    def read_listing(self, name: str, under: str | None = None) -> Listing:
        """Return the list of shards that a stage left, of this release or ``under`` the folder of an earlier one."""
        return Listing.read((self.path if under is None else self.path / under) / name, self.path)

    def read_intact(self, name: str, under: str | None = None) -> Listing:
        """Return the list of shards that a stage left; refuse one of which a file is not as it was written."""
        listing = self.read_listing(name, under)
        for part in listing.parts:
            part.check_digests()
        return listing

    def write_listing(self, name: str, listing: Listing) -> None:
        self.folder.write_content(name, listing.to_text(self.path))

    def open_workers(self, shards: int | None = None) -> Executor:
        """Return where tasks run, for a ``with`` statement; ``shards``: how many the run has, where it is known."""
        return open_executor(self.speed.workers, self.speed.cores, shards)

    # ------------------------------------------------------------------ stages

    @property
    def pipeline(self) -> dict[str, Stage]:
        """The stages of this run by name, in order; each rests on the one before it."""
        return self.kind.stages(of_table=self.source.table)

    def stage_keys(self, last: str) -> dict[str, str]:
        """Return the key of every stage up to one: each has that of the one before, and all that goes into it."""
        keys = dict[str, str]()
        period = None if self.input.of_meters else self.declared_period
        for name, stage in self.pipeline.items():
            inputs: dict[str, Any] = {
                "stage": name,
                "shoal": shoal.__version__,
                "settings": self.settings.part(*stage.settings),
                "before": list(keys.values())[-1:],
            }
            if name == "fit":
                inputs |= {"source": self.source.digest, "previous": self.state.previous}
            elif name == "crowds":
                file, _, column = (self.settings.boundaries or "").rpartition(":")
                path = Path(file or column)
                boundaries = f"{file_digest(path)} {column}" if path.is_file() else self.settings.boundaries
                inputs |= {"boundaries": boundaries, "period": period}
            elif name == "release":
                inputs |= {"release": self.state.release, "period": period}
            keys[name] = digest_of(inputs)
            if name == last:
                break
        return keys

    def first_undone(self, *, until: str = "report") -> str | None:
        """Return the first stage, up to one, that is not done as now configured, or not intact; None if all are."""
        for name, key in self.stage_keys(until).items():
            done = self.state.stages.get(name)
            if done is None or done.key != key or not self.folder.is_intact(done):
                return name
        return None

    # ------------------------------------------------------------------ the ledger

    @property
    def place(self) -> Place:
        """Where the ledger of this run is."""
        simulated = self.source.simulated is not None
        return ledger_place_of_run(self.path, self.named_ledger, self.state.ledger, simulated=simulated)

    @property
    def ledger(self) -> Ledger:
        """The ledger of this run, the one that its releases were charged to; open from its first use on."""
        return self.open_ledger()

    def open_ledger(self, *, create: bool = False) -> Ledger:
        """Return the ledger of this run; with ``create`` it is made where there is none and nothing was released."""
        if self._ledger is None:
            may = create and self.state.release_key is None
            self._ledger = open_sealed_ledger(self.place, self.state.ledger, create=may)
        return self._ledger

    def find_ledger(self) -> Ledger | None:
        """Return the ledger of this run, to look something up; None where none was made yet."""
        try:
            return self.ledger
        except LedgerError as error:
            if self.state.ledger is not None or error.reason != "absent":
                raise
            return None

    def spellings_on_record(self, labels: list[str]) -> dict[str, str]:
        """Return label -> its spelling on record, for labels that are on record in another."""
        ledger = self.find_ledger()
        return {} if ledger is None else ledger.spellings(labels)

    def close_ledger(self) -> None:
        """Close the ledger at the end of a command."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()

    def doubts_of_other_ledgers(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Return a warning for the owner, where labels are on record in the data owner's ledger, which is another."""
        if self.source.simulated is not None or os.environ.get(VARIABLE) == IN_FOLDER:
            return ()
        ledger = self.find_ledger()
        identity = None if ledger is None else ledger.identity
        doubt = other_ledger_warning(self.place, identity, labels, self.input.kind)
        return (f"{doubt}.",) if doubt else ()
