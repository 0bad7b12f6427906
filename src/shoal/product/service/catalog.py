"""Questions: every release that a run in a folder has made is a question. The only module here that knows runs.

Only a run releases, with its readings, its series, its budgets and its refusals: nothing is answered here that a run
would refuse. What analysts get are rows of the released table, or the table as a whole.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from shoal.columns import PLACES
from shoal.errors import InputError, LedgerError, ShoalError
from shoal.plaintext import text_of_csv_cell
from shoal.product.card.promises import KNOWS, delta_sentence
from shoal.product.ledger.ledger import Ledger
from shoal.product.runs.folder import PUBLIC, STATE
from shoal.product.runs.owner_ledger import Place, ledger_place_of
from shoal.product.runs.run import Run
from shoal.rounding import up, upper

#: Columns that name a label, and columns that say which row, crowd or instant it is.
NAMES = ("household", "label")
NOT_FIGURES = (*NAMES, "source_row", *PLACES)


@dataclass(frozen=True)
class TableStatement:
    """The promise to the labels of a question: a sentence, and figures where there are any.

    Figures are about the whole table: whoever may ask for one row may ask for all.
    """

    sentence: str
    crowd: int  #: the least number of labels that hide together
    labels: int
    epsilon: float | None = None
    delta: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The statement as plain values, with the scope that its figures hold for."""
        return vars(self) | {"scope": None if self.epsilon is None else "table"}


@dataclass(frozen=True)
class OfferedQuestion:
    """One release of one run, as long as its files are those that were released."""

    id: str
    title: str
    run: Run

    @cached_property
    def table(self) -> bytes:
        """The public table of the run, as bytes of CSV."""
        return (self.run.path / PUBLIC).read_bytes()

    @cached_property
    def table_digest(self) -> str:
        return hashlib.sha256(self.table).hexdigest()

    @cached_property
    def cells(self) -> list[list[str]]:
        """The public table row by row as texts; the first row has the column names."""
        return list(csv.reader(io.StringIO(self.table.decode())))

    @property
    def has_timestamps(self) -> bool:
        """Whether the entries of an answer are instants."""
        return "timestamp" in self.cells[0]

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """Names of an answer's entries: instants in ISO 8601, or columns of a table."""
        names, *rows = self.cells
        if not self.has_timestamps:
            return tuple(text_of_csv_cell(name) for name in names if name not in NOT_FIGURES)
        place = names.index("timestamp")
        return tuple(sorted({datetime.fromisoformat(row[place]).isoformat() for row in rows}))

    @cached_property
    def rows(self) -> Mapping[str, list[float]]:
        """Label -> its answer; empty where only the table is offered: a label with several rows has no one answer."""
        frame = self.run.released
        frame = frame.sort("step", maintain_order=True) if self.has_timestamps else frame
        name = next(name for name in NAMES if name in frame.columns)
        answers: dict[str, list[float]] = {}
        figures = (text_of_csv_cell(column) for column in self.cells[0] if column not in NOT_FIGURES)
        for label, *values in frame.select(name, *figures).iter_rows():
            answers.setdefault(str(label), []).extend(values)
        single = all(len(values) == len(self.entries) for values in answers.values())
        return answers if single else {}

    @property
    def unit(self) -> str:
        """The unit of answers; empty if every column has its own."""
        return "kW" if self.run.config.label is None else ""

    @property
    def error(self) -> float | None:
        """Root mean squared error of a released entry; None if it is not known, or may not be published."""
        card = self.run.card
        accuracy = card.accuracy if self.run.work.kind.row_per_label or card.may_publish_errors else None
        return None if accuracy is None or accuracy.unit != self.unit else float(accuracy.rmse)

    @cached_property
    def statement(self) -> TableStatement:
        """The promise to the labels of the question; InputError if it means nothing about the whole table."""
        card, facts = self.run.card, self.run.work.facts.design
        if facts is None:
            same = "All members of a crowd have the same row."
            return TableStatement(f"{card.statement} {same} {KNOWS}", card.fit.crowd, card.fit.labels)
        if facts.scope != "table" or not facts.meaningful:
            raise InputError("its design promises nothing about the whole table that means something")
        ladder = next(one.sentence for one in card.public if one.key == "promise")
        sentence, delta = delta_sentence(facts.epsilon, upper(facts.delta), "table"), up(facts.delta)
        return TableStatement(f"{ladder} {sentence}", facts.smallest_group, facts.labels, facts.epsilon, delta)

    def description(self) -> dict[str, Any]:
        """Facts about the question for everyone who is admitted."""
        return {
            "question": self.id,
            "title": self.title,
            "entries": len(self.entries),
            "times": list(self.entries) if self.has_timestamps else None,
            "unit": self.unit,
            "error": self.error,
            "charged": self.statement.epsilon is not None,
            "guarantee": self.statement.to_json(),
        }

    def check_record(self, ledger: Ledger) -> None:
        """Raise unless the ledger has this release on record, as it lies here."""
        name = self.run.work.release_name
        crowds = ledger.recorded_crowds(name)
        shared = crowds is not None and crowds.content["table"] == self.table_digest
        if not (ledger.has(name) if self.run.work.kind.row_per_label else shared):
            raise LedgerError(
                f"ledger: the table of {self.title} is not on record under its own name. It repeats what another run "
                "about these labels released, which can be offered instead; or look with `shoal ledger verify`"
            )


@dataclass(frozen=True)
class Catalog:
    """The questions of a folder by id, and the runs that are not offered with the reason of each."""

    questions: dict[str, OfferedQuestion]
    left_out: dict[str, str]


def run_folders(folder: str | Path) -> list[Path]:
    """Paths of the runs in a folder: the folder itself, or its subfolders."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"dir: {root.name} is not a folder")
    return [root] if (root / STATE).is_file() else sorted(state.parent for state in root.glob(f"*/{STATE}"))


def change_times(folder: str | Path) -> dict[str, int]:
    """Run name -> time of its last change in nanoseconds, to see whether the catalog is up to date."""
    return {home.name: (home / STATE).stat().st_mtime_ns for home in run_folders(folder) if (home / STATE).is_file()}


def read_catalog(folder: str | Path, ledger: Ledger) -> Catalog:
    """The questions that a folder's runs offer over a ledger, and why other runs are not offered."""
    offers = Catalog({}, {})
    for home in run_folders(folder):
        title = home.resolve().name
        try:
            question = _offer_run(home, title, ledger)
            offers.questions[question.id] = question
        except (ShoalError, OSError) as error:
            offers.left_out[title] = str(error) if isinstance(error, ShoalError) else "a file of it cannot be read"
    return offers


def _offer_run(home: Path, title: str, ledger: Ledger) -> OfferedQuestion:
    """The question that a run offers; an error says why it offers none."""
    run = Run(home, workers="serial")
    if not run.work.kind.has_rows:
        raise InputError(
            "it protects readings, and its promise covers only the whole table, not a row for a handle: share public/"
        )
    seal = run.state.ledger
    if seal is not None and seal.identity != ledger.identity:
        raise InputError("it was released on another ledger, which knows what that cost; serve it with that one")
    if "release" not in run.state.stages:
        raise InputError(f"it has released nothing yet; `shoal run --out {title}` makes its release")
    if not run.is_done("release"):
        raise InputError(f"its files were changed since its release; `shoal run --out {title}` says which")
    question = OfferedQuestion(f"{run.state.run[:12]}-{run.state.release}", title, run)
    question.check_record(ledger)
    _ = question.statement
    return question


def ledger_place(folder: str | Path, named: str | None) -> Place:
    """The place of a folder's ledger: the named one, or that of its first run."""
    if named is not None:
        return ledger_place_of(named)
    runs = run_folders(folder)
    if not runs:
        raise InputError(f"dir: there is no run in {Path(folder).name}; `shoal run METERS --out DIR` makes one")
    return Run.open(runs[0]).work.place
