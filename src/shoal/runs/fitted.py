"""A fitted shard as the stages after the first see it: labels, their laws, and answers, whatever it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shoal.audits.guard import ModelGuard
from shoal.card.facts import Accuracy
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable
from shoal.sources.meters.answered import ForecastAnswers
from shoal.sources.tables.class_table import SUFFIX, ClassTable
from shoal.validation import FloatArray, IndexArray

if TYPE_CHECKING:
    import polars as pl


class Fitted(Protocol):
    """One shard of class laws. An answer is one row that is released about its owner, one of the labels."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Who has a law."""

    @property
    def owners(self) -> tuple[str, ...]:
        """The label of each answer."""

    @property
    def query(self) -> str:
        """How answers come about, a key of :data:`shoal.card.words.QUESTIONS`."""

    @property
    def constant(self) -> bool:
        """Whether every label has one constant answer."""

    @property
    def drawn(self) -> bool:
        """Whether answers are drawn by the releaser: they depend on normals that are drawn once and kept."""

    @property
    def times(self) -> int:
        """Answers about one label, at most."""

    @property
    def clip(self) -> float | None:
        """Radius of the ellipsoids that answers are moved into, in deviations of their label's law; None: of none."""

    @property
    def unit(self) -> str:
        """What errors are counted in."""

    @property
    def owner_columns(self) -> tuple[str, ...]:
        """Columns of the released table that stay with the owner."""

    def take(self, labels: Sequence[str]) -> Fitted:
        """Of some of the labels, in this order."""

    def laws(self) -> GaussianClasses:
        """The law of an answer given its label."""

    def answers(self, normals: FloatArray | None = None) -> FloatArray:
        """(m, k) the answers that go into the mechanism."""

    def questions(self, name: str) -> list[str]:
        """What the ledger calls each answer in the release of this name."""

    def readings(self) -> tuple[str, ...]:
        """A digest per answer of what it was made from: who asks about the same again is told by it."""

    def accuracy(self, mechanism: Releasable) -> Accuracy:
        """Errors of what is released of these labels."""

    def guard(self, group: Mechanism, draws: int, seed: int) -> ModelGuard | None:
        """How far the promise to a group, these labels, rests on their laws; None where too little is known of them."""

    def off(self, released: FloatArray) -> tuple[int, float]:
        """Entries whose true value came later, and the sum of the absolute errors there."""

    def table(self, order: IndexArray, group: IndexArray, row: IndexArray, released: FloatArray) -> pl.DataFrame:
        """(m, k) released answers as they are written: ``order`` says which, with their crowds and row numbers."""

    def released(self, path: str | Path) -> FloatArray:
        """(m, k) what was released, from the written table, in the order of the answers."""


def fitted(path: str | Path, query: str, unit: str) -> Fitted:
    """A shard from its file; ``query`` and ``unit`` are what is asked of forecasts."""
    if Path(path).suffix == f".{SUFFIX}":
        return ClassTable.load(path)
    return ForecastAnswers.load(path, query, unit)
