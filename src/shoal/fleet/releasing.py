"""The release of a fleet: workers draw, one place charges, and only what is charged is written.

A worker draws a shard's noise from the cryptographic source and hands the noisy answers back in memory. The driver
charges the ledger, one transaction per shard, and writes the released shard after the commit. Killed before the
commit, the draw is gone and nothing was shown; killed after it, the recorded answers are written when the run goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.fleet.jobs import Part
from shoal.fleet.store import put_whole
from shoal.mechanism import Mechanism
from shoal.meters.forecast import Forecasts
from shoal.noise.source import standard_normals
from shoal.validation import FloatArray

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class DrawTask:
    """Which shard to draw for. ``normals`` is where the draws of a trajectory lie, which are part of the answer."""

    mechanism: Part
    forecasts: Part
    query: str
    normals: str | None = None


@dataclass(frozen=True)
class Drawn:
    """Noisy answers that are not charged yet: to be handed to the ledger, never to a file."""

    labels: tuple[str, ...]
    answers: FloatArray
    drawn: FloatArray

    def __repr__(self) -> str:
        return f"Drawn({len(self.labels)} labels)"


def draw_shard(task: DrawTask) -> Drawn:
    """A shard's answers through its mechanism, with secure noise."""
    for part in (task.mechanism, task.forecasts):
        part.check()
    mechanism = Mechanism.load(task.mechanism.path)
    forecasts = Forecasts.load(task.forecasts.path)
    answers = true_answers(forecasts, task.query, task.normals)
    labels = forecasts.households
    return Drawn(labels, answers, mechanism.release(answers, list(labels)))


def true_answers(forecasts: Forecasts, query: str, normals: str | None) -> FloatArray:
    """What is asked: the answers before the mechanism. A trajectory is drawn once and kept before it is used."""
    if query != "trajectory":
        return forecasts.answer(query)
    path = Path(normals or "")
    if not path.is_file():
        values = np.array([z / 2.0**120 for z in standard_normals(forecasts.log_mean.size)])
        put_whole(path, lambda rough: _save(rough, values.reshape(forecasts.log_mean.shape)))
    return forecasts.answer(query, np.load(path, allow_pickle=False))


def released_table(forecasts: Forecasts, released: FloatArray) -> pl.DataFrame:
    """household, step, timestamp, released_kw."""
    import polars as pl

    n, h = released.shape
    return pl.DataFrame(
        {
            "household": pl.Series(forecasts.households, dtype=pl.String).gather(np.repeat(np.arange(n), h)),
            "step": np.tile(np.arange(1, h + 1), n),
            "timestamp": forecasts.timestamps.gather(np.tile(np.arange(h), n)),
            "released_kw": forecasts.to_power(released).ravel(),
        }
    )


def _save(path: Path, values: Any) -> None:
    with path.open("wb") as file:
        np.save(file, values, allow_pickle=False)
