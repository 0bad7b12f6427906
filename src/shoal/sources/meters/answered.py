"""A shard of forecasts as the stages of a run see it, asked one query in one unit (:class:`shoal.runs.fitted.Fitted`).

Beside ``<key>.zip`` lies ``<key>.truth.npy``: what was metered later, (n, h) in kW, NaN where that is not known.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path

import numpy as np
import polars as pl

from shoal.audits.guard import ModelGuard, model_guard
from shoal.card.facts import Accuracy
from shoal.card.measures import accuracy_facts
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.mechanism import Mechanism
from shoal.mechanism.releasable import Releasable
from shoal.sources.meters.forecast import Forecasts
from shoal.sources.meters.queries import AccountingWarning
from shoal.sources.meters.traces import power_accuracy
from shoal.validation import FloatArray, IndexArray

TRUTH = "truth.npy"
#: Column of names in the owner's tables.
NAMES = "household"
OTHERS = "in another group, which is not on this page"


@dataclass(frozen=True, repr=False)
class ForecastAnswers:
    """Forecasts with the query that is asked of them, the unit of its answers, and what came later."""

    forecasts: Forecasts
    query: str
    answer_unit: str
    truth: FloatArray  #: (n, h) kW

    constant = property(lambda self: self.query == "point")
    drawn = property(lambda self: self.query == "trajectory")
    unit = "kW"
    times = 1
    clip = None
    owner_columns = (NAMES,)

    @classmethod
    def load(cls, path: str | Path, query: str, unit: str) -> ForecastAnswers:
        """From a shard's file and the truth beside it."""
        forecasts = Forecasts.load(path)
        try:
            truth = np.load(Path(path).with_suffix(f".{TRUTH}"), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            name = Path(path).with_suffix(f".{TRUTH}").name
            raise InputError(f"shard: {name} is missing or damaged; remove the shard, and fit again") from None
        return cls(forecasts, query, unit, truth)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.forecasts.households

    @property
    def owners(self) -> tuple[str, ...]:
        return self.forecasts.households

    def take(self, labels: Sequence[str]) -> ForecastAnswers:
        """Of some of the labels, in this order."""
        place = {name: i for i, name in enumerate(self.labels)}
        rows = [place[name] for name in labels]
        chosen = set(labels)
        gone = {name: OTHERS for name in self.labels if name not in chosen}
        return replace(self, forecasts=self.forecasts.take(rows, gone), truth=self.truth[rows])

    def laws(self) -> GaussianClasses:
        """The class laws of the query; what is wrong with ``as_in_paper`` is said on the card, once."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AccountingWarning)
            return self.forecasts.classes(self.query, unit=self.answer_unit)

    def answers(self, normals: FloatArray | None = None) -> FloatArray:
        if self.query == "trajectory":
            return self.forecasts.answer(self.query, normals)
        return self.forecasts.answer(self.query, unit=self.answer_unit)

    def questions(self, name: str) -> list[str]:
        return [name] * len(self.labels)

    def readings(self) -> tuple[str, ...]:
        """Of the readings of the day before the origin, and of when that is.

        Whatever else goes into a forecast, from the same day before the same origin it answers the same question.
        """
        made = self.forecasts
        day = np.full((len(self.labels), 1), np.nan) if made.recent is None else made.recent
        when = f"{made.origin.astimezone(UTC).isoformat()} {made.step}".encode()
        plain = np.where(np.isnan(day), np.nan, day + 0.0).astype("<f8")
        return tuple(hashlib.sha256(when + row.tobytes()).hexdigest() for row in plain)

    def accuracy(self, mechanism: Releasable) -> Accuracy:
        if self.answer_unit == "kw":
            return accuracy_facts(mechanism, self.labels, "kW")
        return mechanism.by_kind(
            mechanism=lambda gaussian: power_accuracy(gaussian.part(self.labels)),
            codebook=lambda book: accuracy_facts(book, self.labels, self.unit),
        )

    def guard(self, group: Mechanism, draws: int, seed: int) -> ModelGuard | None:
        return model_guard(
            group, self.forecasts, query=self.query, fitted_on_private_data=True, n_draws=draws, seed=seed
        )

    def _power(self, released: FloatArray) -> FloatArray:
        return released if self.answer_unit == "kw" else self.forecasts.to_power(released)

    def off(self, released: FloatArray) -> tuple[int, float]:
        return off_by(self.truth, self._power(released))

    def table(self, order: IndexArray, group: IndexArray, row: IndexArray, released: FloatArray) -> pl.DataFrame:
        """household, crowd, row, step, timestamp, kw."""
        n, h = released.shape
        return pl.DataFrame(
            {
                NAMES: pl.Series(self.labels, dtype=pl.String).gather(np.repeat(order, h)),
                "crowd": np.repeat(group, h),
                "row": np.repeat(row, h),
                "step": np.tile(np.arange(1, h + 1), n),
                "timestamp": self.forecasts.timestamps.gather(np.tile(np.arange(h), n)),
                "kw": self._power(released)[order].ravel(),
            }
        )

    def released(self, path: str | Path) -> FloatArray:
        table = pl.read_parquet(path).filter(pl.col(NAMES).is_in(self.labels))
        order = pl.DataFrame({NAMES: self.labels})
        values = order.join(table.sort("step"), on=NAMES, how="left", maintain_order="left_right")["kw"]
        return values.to_numpy().reshape(len(self.labels), self.forecasts.horizon)


def off_by(truth: FloatArray, power: FloatArray) -> tuple[int, float]:
    """Entries whose truth is known, and the sum of the absolute errors there."""
    known = np.isfinite(truth) & np.isfinite(power)
    return int(known.sum()), float(np.abs(power - truth)[known].sum())
