"""The folder of a run as its stages see it: settings, source, ledger, and whom to tell how far they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import LedgerError
from shoal.ledger.ledger import Ledger
from shoal.records import Record
from shoal.runs.config import Config, Speed
from shoal.runs.folder import Folder, RunState, Source
from shoal.runs.owner_ledger import Place, opened, place
from shoal.runs.shards import Listing
from shoal.workers.executor import Executor, open_executor

#: Lists of the shards that stages made.
FIT, DESIGN = "fit.json", "design.json"
#: Folders of shards, by role; what they are made from lies under ``shards``.
FORECASTS, LAWS, MECHANISM, SHARDS = "forecasts", "laws", "mechanism", "shards"
#: Called with (stage, what is happening, done, total); total 0 where it is not known.
Progress = Callable[[str, str, float, int], None]


@dataclass(frozen=True)
class Made:
    """What a stage leaves: the files it wrote, and its record."""

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
    def previous(self) -> str | None:
        """Where the lists of the release before lie."""
        return self.state.previous

    @property
    def day(self) -> str:
        """The day on which the release was begun: the period of a table that declares none."""
        return self.state.day

    @property
    def series(self) -> str:
        """With what the names of this folder's releases begin."""
        return f"run {self.state.run} "

    @property
    def release_name(self) -> str:
        """The name under which the ledger is asked: that of this release of this folder."""
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

    @contextmanager
    def workers(self, shards: int | None = None) -> Iterator[Executor]:
        """Where tasks run; ``shards`` is how many the run has, where that is known."""
        with open_executor(self.speed.workers, self.speed.cores) as executor:
            if shards is not None:
                executor.expect(shards)
            yield executor

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
