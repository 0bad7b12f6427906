"""What can be asked: every release in a folder of runs is a question. The only module here that knows runs.

| question | its answers | what it costs |
| --- | --- | --- |
| :class:`DrawnQuestion` | drawn once through a mechanism, whoever asks; on record after the first request | (ε, δ) |
| :class:`CrowdQuestion` | the averages of a table that a run has released and recorded | nothing |

A question that a run would refuse is refused here too: what it was made from and the series that it belongs to reach
the ledger with every charge.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from shoal.card.digits import upper
from shoal.card.facts import DesignFacts
from shoal.card.promise import promise
from shoal.errors import InputError, ShoalError
from shoal.files import file_digest
from shoal.ledger.ledger import Ledger
from shoal.ledger.storage import Transaction
from shoal.mechanism.codebook import Codebook
from shoal.mechanism.reader import load
from shoal.runs.context import DESIGN
from shoal.runs.fitted import Fitted, fitted
from shoal.runs.folder import STATE
from shoal.runs.owner_ledger import Place, at
from shoal.runs.run import Run
from shoal.runs.stages.design_stage import bound_of
from shoal.runs.stages.release_stage import CSV, PUBLIC, Drawn, default_budget, do
from shoal.runs.store import Part
from shoal.service.allowance import Price
from shoal.validation import FloatArray

#: Label -> its answer, in the unit that is shown.
Rows = Mapping[str, list[float]]
#: Columns of a released table that are no answers.
PLACES = ("group", "crowd", "row", "homes", "news", "step", "timestamp")
#: Columns by which a table of crowds is known.
CROWD_COLUMNS = {"crowd", "homes", "news"}


@dataclass(frozen=True)
class Statement:
    """What is promised to whoever is in a question: a sentence, and figures where there are any."""

    sentence: str
    crowd: int  #: the least number of labels that hide together
    labels: int
    epsilon: float | None = None
    delta: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Every figure is about the whole table: whoever may ask for one row may ask for all."""
        scope = None if self.epsilon is None else "table"
        return vars(self) | {"scope": scope}


@dataclass(frozen=True)
class PublicTable:
    """A table as it may be passed on: no names, no handles."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    digest: str  #: SHA-256 of its file

    @classmethod
    def read(cls, path: Path) -> PublicTable:
        head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
        return cls(tuple(head), tuple(map(tuple, rows)), file_digest(path))


class Question(Protocol):
    """One release, as far as it may be told to whoever may ask for it."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the entries of an answer: instants, or columns of a table."""

    @property
    def timed(self) -> bool:
        """Whether the names of entries are instants, ISO 8601."""

    @property
    def error(self) -> float | None:
        """Root of the mean squared error of a released entry, in the unit; None where it is not told."""

    @property
    def statement(self) -> Statement: ...
    @property
    def price(self) -> Price | None:
        """What it costs to be shown all of it; None: nothing is charged."""

    @property
    def labels(self) -> frozenset[str]:
        """Who has a row; nobody where only the table may leave."""

    @property
    def table(self) -> PublicTable | None:
        """The table to pass on, where the run has one."""

    def set_budget(self, ledger: Ledger) -> tuple[float, float] | None:
        """Give labels without a budget the one that a run gives them: (ε, δ), or None where all have one."""

    def prepare(self, ledger: Ledger, analyst: str) -> Callable[[Transaction], Rows]:
        """A charge to an analyst, to be made in a transaction; its answers may be shown once that is committed."""

    def recorded(self, ledger: Ledger, analyst: str) -> Rows:
        """The answers that an analyst was given, from the record; some are missing where it lacks them."""


@dataclass(frozen=True)
class DrawnQuestion:
    """A release through mechanisms: charged to the ledger at the first request, unless the run has released it."""

    id: str
    title: str
    run: Run
    facts: DesignFacts

    @cached_property
    def pairs(self) -> list[tuple[Part, Part]]:
        """The mechanism and the forecasts of each shard."""
        return self.run.context("design").listing(DESIGN).pairs

    @cached_property
    def price(self) -> Price:
        return Price.of([(load(mechanism.path), bound_of(mechanism)) for mechanism, _ in self.pairs])

    @cached_property
    def labels(self) -> frozenset[str]:
        return frozenset(name for mechanism, _ in self.pairs for name in load(mechanism.path).classes.labels)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        shard = self._shard(self.pairs[0][1])
        table = _table(shard, np.zeros((len(shard.owners), self.facts.entries)))
        if not self.timed:
            return tuple(_answers(shard, table.columns))
        return tuple(instant.isoformat() for instant in table["timestamp"][: self.facts.entries].to_list())

    @cached_property
    def timed(self) -> bool:
        shard = self._shard(self.pairs[0][1])
        return "timestamp" in _table(shard, np.zeros((len(shard.owners), self.facts.entries))).columns

    @property
    def unit(self) -> str:
        return self.facts.accuracy.unit

    @property
    def error(self) -> float | None:
        return self.facts.accuracy.rmse

    @property
    def table(self) -> PublicTable | None:
        return None

    @cached_property
    def statement(self) -> Statement:
        """The figures of the table, also of a run that was designed for single answers."""
        facts, price = self.facts, self.price
        epsilon, delta = facts.epsilon, facts.delta
        if facts.scope != "table":
            epsilon = epsilon if price.largest is None else 2.0 * price.largest
            delta = price.delta_at(epsilon)
        text = upper(delta)
        return Statement(
            promise(epsilon, text, "table"), facts.smallest_group, facts.labels, epsilon, max(float(text), delta)
        )

    @property
    def single(self) -> bool:
        """Whether every label has one answer; what is made for several rows of a label is not offered."""
        every = (load(mechanism.path) for mechanism, _ in self.pairs)
        return all(isinstance(mechanism, Codebook) or mechanism.times == 1 for mechanism in every)

    @cached_property
    def _draws(self) -> list[Drawn]:
        """Answers of each shard that are not charged yet, drawn once; nobody sees them before they are charged."""
        return [do(mechanism, forecasts, self.run.config) for mechanism, forecasts in self.pairs]

    def set_budget(self, ledger: Ledger) -> tuple[float, float] | None:
        budget = default_budget(self.run.config)
        return budget if ledger.ensure_budget(sorted(self.labels), *budget) else None

    def prepare(self, ledger: Ledger, analyst: str) -> Callable[[Transaction], Rows]:
        series = self.run.context("release").series
        charges = []
        for (mechanism, forecasts), drawn in zip(self.pairs, self._draws, strict=True):
            content, bound = Path(mechanism.path).read_bytes(), bound_of(mechanism)
            name = self.run.release_name
            charge = ledger.ready(
                content, drawn.answers, drawn.drawn, drawn.labels, name, analyst, bound, drawn.readings, series
            )
            charges.append((forecasts, charge))

        def charged(transaction: Transaction) -> Rows:
            rows: dict[str, list[float]] = {}
            for forecasts, charge in charges:
                rows |= self._shown(forecasts, charge(transaction))
            return rows

        return charged

    def recorded(self, ledger: Ledger, analyst: str) -> Rows:
        rows: dict[str, list[float]] = {}
        for _, forecasts in self.pairs:
            answers = ledger.recorded(self._shard(forecasts).owners, self.run.release_name, analyst=analyst)
            known = [values for values in answers if values is not None]
            if len(known) == len(answers):
                rows |= self._shown(forecasts, np.array(known))
        return rows

    def _shard(self, forecasts: Part) -> Fitted:
        return fitted(forecasts.path, self.run.config.query, self.run.config.answers)

    def _shown(self, forecasts: Part, released: FloatArray) -> dict[str, list[float]]:
        """Released answers by label, in the unit in which the run writes them."""
        shard = self._shard(forecasts)
        table = _table(shard, released)
        values = table.select(_answers(shard, table.columns)).to_numpy().reshape(len(shard.owners), -1)
        return dict(zip(shard.owners, values.tolist(), strict=True))


def _table(shard: Fitted, released: FloatArray) -> Any:
    """Released answers as the run writes them, in the order of the shard's answers."""
    order = np.arange(len(shard.owners))
    return shard.table(order, np.ones_like(order), order + 1, released)


def _answers(shard: Fitted, columns: list[str]) -> list[str]:
    return [name for name in columns if name not in (*shard.owner_columns, *PLACES)]


@dataclass(frozen=True)
class CrowdQuestion:
    """A released table whose rows are averages over crowds: recorded when it was released, never charged.

    ``label`` is the owner's column of names, ``value`` the column of figures.
    """

    id: str
    title: str
    folder: Path
    name: str  #: of the release on record
    table: PublicTable
    label: str
    value: str
    price = None
    error = None

    @cached_property
    def _by_crowd(self) -> dict[str, list[tuple[str, float]]]:
        """Crowd -> (instant or step, figure) of each entry, in order."""
        place = {name: i for i, name in enumerate(self.table.columns)}
        when = place["timestamp" if self.timed else "step"]
        curves: dict[str, list[tuple[str, float]]] = {}
        for row in self.table.rows:
            curves.setdefault(row[place["crowd"]], []).append((row[when], float(row[place[self.value]])))
        return curves

    @cached_property
    def _crowds(self) -> dict[str, str]:
        """Label -> crowd, from the owner's table."""
        with (self.folder / CSV).open(encoding="utf-8", newline="") as file:
            return {row[self.label]: row["crowd"] for row in csv.DictReader(file)}

    @property
    def timed(self) -> bool:
        return "timestamp" in self.table.columns

    @property
    def unit(self) -> str:
        return "kW" if self.value == "kw" else self.value

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(when for when, _ in next(iter(self._by_crowd.values()), []))

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self._crowds)

    @cached_property
    def statement(self) -> Statement:
        place = self.table.columns.index("homes")
        least = min(int(row[place]) for row in self.table.rows)
        return Statement(
            f"Every row is an average over at least {least} members of a crowd, and the rows of a crowd are identical: "
            "the table cannot tell whose is whose. It does not hide figures: who knows those of all other members "
            "computes the last one's.",
            least,
            len(self._crowds),
        )

    def set_budget(self, ledger: Ledger) -> tuple[float, float] | None:
        return None

    def prepare(self, ledger: Ledger, analyst: str) -> Callable[[Transaction], Rows]:
        rows = self.recorded(ledger, analyst)
        return lambda transaction: rows

    def recorded(self, ledger: Ledger, analyst: str) -> Rows:
        """The rows of the table, if it is the one on record."""
        lookup = getattr(ledger, "recorded_crowds", None)
        entry = None if lookup is None else lookup(self.name)
        if entry is None or entry.content.get("table_digest") != self.table.digest:
            raise InputError(
                f"question: the table of {self.title} is not the one that this ledger has on record; run "
                f"`shoal run --out {self.title}` again, or name its ledger with --ledger"
            )
        curves = {crowd: [figure for _, figure in entries] for crowd, entries in self._by_crowd.items()}
        return {label: curves[crowd] for label, crowd in self._crowds.items()}


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


def catalog(folder: str | Path, ledger: str) -> Catalog:
    """What a folder offers over the ledger of this identity."""
    questions: dict[str, Question] = {}
    left_out: dict[str, str] = {}
    for home in homes(folder):
        title = home.resolve().name
        try:
            question = _question(home, title, ledger)
            questions[question.id] = question
        except (ShoalError, OSError) as error:
            left_out[title] = str(error) if isinstance(error, ShoalError) else "a file of it cannot be read"
    return Catalog(questions, left_out)


def _question(home: Path, title: str, ledger: str) -> Question:
    """The question that a run is, or an error that says why it is none."""
    run = Run.open(home)
    seal, facts = run.state.ledger, run.design
    if seal is not None and seal.identity != ledger:
        raise InputError("it was released on another ledger, which knows what that cost; serve it with that one")
    identity = f"{run.state.run[:12]}-{run.state.release}"
    if (home / PUBLIC).is_file():
        table = PublicTable.read(home / PUBLIC)
        if CROWD_COLUMNS <= set(table.columns):
            (value,) = [name for name in table.columns if name not in PLACES] or [""]
            with (home / CSV).open(encoding="utf-8", newline="") as file:
                names = [name for name in next(csv.reader(file)) if name not in table.columns]
            return CrowdQuestion(identity, title, home, run.release_name, table, names[0], value)
    if facts is None:
        raise InputError("it has no design yet; `shoal run` makes one")
    if not facts.meaningful:
        raise InputError("its design promises nothing that means something; ask for a smaller δ")
    if run.config.query == "trajectory":
        raise InputError("drawn trajectories are not offered; use the query 'point'")
    question = DrawnQuestion(identity, title, run, facts)
    if not question.single:
        raise InputError("it has several rows of a label, which are not offered one by one")
    return question


def ledger_place(folder: str | Path, named: str | None) -> tuple[Place, Callable[[], Ledger]]:
    """Where the ledger of a folder is, and how to open it: the named one, or that of its first run."""
    if named is not None:
        place = at(named)
        return place, lambda: Ledger.open(place.url)
    for home in homes(folder):
        run = Run.open(home)
        return run.place, lambda: run.ledger(create=True)
    raise InputError(f"dir: there is no run in {Path(folder).name}; `shoal run METERS --out DIR` makes one")
