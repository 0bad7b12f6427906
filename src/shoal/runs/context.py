"""What a stage is given: the folder, the settings, and whom to tell how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from shoal.ledger.ledger import Ledger
from shoal.records import Record
from shoal.runs.config import Config, Speed
from shoal.runs.folder import Folder
from shoal.runs.jobs import Listing, Tell
from shoal.runs.sources import Source
from shoal.workers.executor import Executor, open_executor

#: Lists of the shards that stages made.
FIT, DESIGN, RELEASE = "fit.json", "design.json", "release.json"
#: Folders of shards, by role; what they are made from lies under ``shards``.
FORECASTS, LAWS, MECHANISM, RELEASED, SHARDS = "forecasts", "laws", "mechanism", "released", "shards"


@dataclass(frozen=True)
class Context:
    """``folder`` is where a stage puts its lists; ``home`` where shards lie."""

    folder: Folder
    home: Path
    source: Source
    config: Config
    speed: Speed
    tell: Tell
    ledger: Callable[[], Ledger]  #: opens that of the run, which is made before a release begins
    release_name: str = ""
    existing_ledger: Callable[[], AbstractContextManager[Ledger | None]] = (
        nullcontext  #: that of the run, if there is one
    )
    previous: str | None = None  #: where the lists of the day before lie
    day: str = ""  #: on which the release was begun: the period of a table that declares none
    series: str = ""  #: with what the names of this folder's releases begin
    horizon: str | None = None  #: as a time, such as 3h, where it was given so
    foresee: Callable[[Sequence[str], str, float], None] | None = None
    """Called with households, origin and minutes of a step before anything is fitted; refuses what could not go on."""

    def listing(self, name: str, under: str | None = None) -> Listing:
        """The list that a stage left."""
        where = self.folder.path if under is None else self.folder.path / under
        return Listing.read(where / name, self.home)

    def put(self, name: str, listing: Listing) -> None:
        self.folder.put(name, listing.text(self.home))

    @contextmanager
    def workers(self, shards: int | None = None) -> Iterator[Executor]:
        """Where tasks run; ``shards`` is how many the run has, where that is known."""
        with open_executor(self.speed.workers, self.speed.cores) as executor:
            if shards is not None:
                executor.expect(shards)
            yield executor


@dataclass(frozen=True)
class Made:
    """What a stage leaves: the files it wrote, and its record."""

    files: tuple[str, ...]
    facts: Record
