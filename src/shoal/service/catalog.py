"""What can be asked: every release of a run in a folder is a question. The only module here that knows runs.

Only a run releases. Where it has not done so yet, the first granted request makes it: with its readings, its series,
its budgets and its refusals, so that nothing is answered here that a run would refuse. What analysts get are rows of
the released table, which is the same whoever asks.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.card.digits import upper
from shoal.card.facts import DesignFacts
from shoal.card.promise import promise
from shoal.errors import BudgetError, InputError, LedgerError, ShoalError
from shoal.ledger.ledger import Ledger
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.reader import load
from shoal.runs.context import DESIGN
from shoal.runs.fitted import fitted
from shoal.runs.folder import STATE
from shoal.runs.owner_ledger import Place, at
from shoal.runs.run import Run
from shoal.runs.stages.design_stage import bound_of
from shoal.runs.stages.means_stage import PUBLIC
from shoal.runs.stages.release_stage import default_budget
from shoal.runs.store import Part
from shoal.service.allowance import Price

if TYPE_CHECKING:
    import polars as pl

#: Label -> its answer, as the run has written it.
Rows = Mapping[str, list[float]]
#: Columns of the owner's table that name a label, and columns that say which row, crowd or instant it is.
NAMES = ("household", "label")
PLACES = (*NAMES, "source_row", "group", "crowd", "row", "homes", "news", "step", "timestamp")


@dataclass(frozen=True)
class Statement:
    """What is promised to whoever is in a question: a sentence, and figures where there are any.

    Figures are about the whole table: whoever may ask for one row may ask for all.
    """

    sentence: str
    crowd: int  #: the least number of labels that hide together
    labels: int
    epsilon: float | None = None
    delta: float | None = None

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"scope": None if self.epsilon is None else "table"}


@dataclass(frozen=True)
class PublicTable:
    """A table as it may be passed on: no names, no handles."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    digest: str  #: SHA-256 of its file

    @classmethod
    def read(cls, path: Path) -> PublicTable:
        content = path.read_bytes()
        head, *rows = csv.reader(io.StringIO(content.decode()))
        return cls(tuple(head), tuple(map(tuple, rows)), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class Question:
    """One release of one run. ``facts`` are those of its design; without one nothing is charged: rows are averages."""

    id: str
    title: str
    run: Run
    facts: DesignFacts | None

    @property
    def released(self) -> bool:
        return self.run.is_done("release")

    @cached_property
    def _pairs(self) -> list[tuple[Part, Part]]:
        """The mechanism and the answers of each shard, where there is a design."""
        return [] if self.facts is None else self.run.context("design").listing(DESIGN).pairs

    @cached_property
    def _frame(self) -> pl.DataFrame:
        return self.run.released

    @property
    def timed(self) -> bool:
        """Whether entries are instants."""
        return self.released and "timestamp" in self._frame.columns

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """Names of the entries of an answer: instants in ISO 8601, or columns of a table; nothing before a release."""
        if not self.released:
            return ()
        if not self.timed:
            return tuple(self._values)
        return tuple(instant.isoformat() for instant in self._frame["timestamp"].unique().sort().to_list())

    @property
    def _values(self) -> list[str]:
        return [name for name in self._frame.columns if name not in PLACES]

    @property
    def unit(self) -> str:
        """What answers are counted in; empty where every column has its own."""
        meters = self.run.config.label is None
        return "kW" if meters else ""

    @property
    def error(self) -> float | None:
        """Root of the mean squared error of a released entry, in ``error_unit``; None where it is not known."""
        accuracy = self.facts.accuracy if self.facts is not None else getattr(self.run.release, "accuracy", None)
        return None if accuracy is None or accuracy.unit != self.unit else float(accuracy.rmse)

    @cached_property
    def price(self) -> Price | None:
        """What it costs to be shown all of it; None: nothing is charged."""
        if self.facts is None:
            return None
        return Price.of([(load(mechanism.path), bound_of(mechanism)) for mechanism, _ in self._pairs])

    @cached_property
    def labels(self) -> frozenset[str]:
        """Who has a row."""
        if self.released:
            return frozenset(self._frame[self._name].unique().to_list())
        return frozenset(name for mechanism, _ in self._pairs for name in load(mechanism.path).classes.labels)

    @property
    def _name(self) -> str:
        return next(name for name in NAMES if name in self._frame.columns)

    @cached_property
    def table(self) -> PublicTable | None:
        """The table to pass on, where the run has one."""
        path = self.run.path / PUBLIC
        return PublicTable.read(path) if self.released and path.is_file() else None

    @cached_property
    def statement(self) -> Statement:
        facts, price = self.facts, self.price
        if facts is None or price is None:
            least = int(self._frame["homes"].min())  # type: ignore[arg-type]
            return Statement(
                f"Every row is an average over at least {least} members of a crowd, and the rows of a crowd are "
                "identical: the table cannot tell whose is whose. It does not hide figures: who knows those of all "
                "other members computes the last one's.",
                least,
                len(self.labels),
            )
        epsilon, delta = facts.epsilon, facts.delta
        if facts.scope != "table":  # designed for single answers, and all of them can be had
            epsilon = epsilon if price.largest is None else 2.0 * price.largest
            delta = price.delta_at(epsilon)
        text = upper(delta)
        sentence = promise(epsilon, text, "table")
        return Statement(sentence, facts.smallest_group, facts.labels, epsilon, max(float(text), delta))

    def rows(self, ledger: Ledger) -> Rows:
        """The released answers by label, if the ledger has this release on record."""
        name = self.run.release_name
        lookup = getattr(ledger, "recorded_crowds", None)
        crowds = None if lookup is None or self.facts is not None else lookup(name)
        known = crowds is not None and self.table is not None and crowds.content["table"] == self.table.digest
        if not (known if self.facts is None else ledger.has(name)):
            raise LedgerError(f"ledger: the table of {self.title} is not on record; run `shoal ledger verify`")
        frame = self._frame.sort("step", maintain_order=True) if self.timed else self._frame
        answers: dict[str, list[float]] = {}
        for label, *values in frame.select(self._name, *self._values).iter_rows():
            answers.setdefault(str(label), []).extend(values)
        return answers

    def refuse(self, ledger: Ledger) -> None:
        """Raise if the run could not release this now; nothing is written."""
        series = self.run.context("release").series
        for mechanism, answers in [] if self.released else self._pairs:
            shard = fitted(answers.path, self.run.config.query, self.run.config.answers)
            ledger.refuse_seen(shard.owners, shard.readings(), series)
            if not ledger.cost(load(mechanism.path), shard.owners, query_id=self.run.release_name).allowed:
                raise BudgetError("budget: what is left in the ledger does not allow this release")

    def set_budget(self, ledger: Ledger) -> None:
        """Give labels without a budget the one that the run would give them."""
        if self.facts is not None and not self.released:
            ledger.ensure_budget(sorted(self.labels), *default_budget(self.run.config))

    def release(self) -> None:
        """Have the run make its release, where it has not: charged and on record when this returns."""
        if not self.released:
            self.run.do("release")  # one that was begun and killed goes on


@dataclass(frozen=True)
class Catalog:
    """The questions of a folder by id, and the runs that are not offered with the reason of each."""

    questions: Mapping[str, Question]
    left_out: Mapping[str, str]


def homes(folder: str | Path) -> list[Path]:
    """The runs of a folder: itself, or those in it."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"dir: {root.name} is not a folder")
    return [root] if (root / STATE).is_file() else sorted(state.parent for state in root.glob(f"*/{STATE}"))


def changes(folder: str | Path) -> dict[str, int]:
    """When each run was last changed: while this is the same, so is the catalog."""
    states = ((home, home / STATE) for home in homes(folder))
    return {home.name: state.stat().st_mtime_ns for home, state in states if state.is_file()}


def catalog(folder: str | Path, identity: str, url: str | None) -> Catalog:
    """What a folder offers over the ledger of this identity, which is at ``url``."""
    questions: dict[str, Question] = {}
    left_out: dict[str, str] = {}
    for home in homes(folder):
        title = home.resolve().name
        try:
            question = _question(home, title, identity, url)
            questions[question.id] = question
        except (ShoalError, OSError) as error:
            left_out[title] = str(error) if isinstance(error, ShoalError) else "a file of it cannot be read"
    return Catalog(questions, left_out)


def _question(home: Path, title: str, identity: str, url: str | None) -> Question:
    """The question that a run is, or an error that says why it is none."""
    run = Run(home, workers="serial") if url is None else Run(home, ledger=url, workers="serial")
    seal, facts = run.state.ledger, run.design
    if run.of_readings:
        raise InputError(
            "it protects readings, and its promise covers the table alone, not a row for a handle: hand out public/"
        )
    if seal is not None and seal.identity != identity:
        raise InputError("it was released on another ledger, which knows what that cost; serve it with that one")
    question = Question(f"{run.state.run[:12]}-{run.state.release}", title, run, facts)
    if facts is None and not question.released:
        raise InputError("it has released nothing yet; `shoal run` makes a release")
    if "release" in run.state.stages and not question.released:
        raise InputError("its files were changed since its release; `shoal run` on it says which")
    if facts is not None:
        if not facts.meaningful:
            raise InputError("its design promises nothing that means something; ask for a smaller δ")
        mechanisms = [load(mechanism.path) for mechanism, _ in question._pairs]
        if any(not isinstance(one, Codebook) and one.times > 1 for one in mechanisms):
            raise InputError("it has several rows of a label, which are not offered one by one")
    return question


def ledger_place(folder: str | Path, named: str | None) -> Place:
    """Where the ledger of a folder is: the named one, or that of its first run."""
    if named is not None:
        return at(named)
    runs = homes(folder)
    if not runs:
        raise InputError(f"dir: there is no run in {Path(folder).name}; `shoal run METERS --out DIR` makes one")
    return Run.open(runs[0]).place
