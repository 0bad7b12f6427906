"""What can be asked: every run in a folder whose mechanisms are designed is a question.

The answers to a question are those of one release of one run: drawn once, whoever asks. Where the run has released
already they are on record as public; otherwise the first analyst's request draws them, and they are charged as shown to
that analyst. Nothing is drawn twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shoal.card.digits import upper
from shoal.card.facts import DesignFacts
from shoal.errors import InputError
from shoal.ledger.bounds import MechanismBound
from shoal.mechanism.reader import load
from shoal.runs.context import DESIGN
from shoal.runs.folder import STATE
from shoal.runs.jobs import Listing
from shoal.runs.run import Run
from shoal.runs.stages.design_stage import bound_of
from shoal.runs.stages.release_stage import Drawn, do
from shoal.runs.store import Part
from shoal.service.allowance import Price
from shoal.validation import FloatArray


@dataclass(frozen=True)
class Offer:
    """One question, as far as it may be told to whoever may ask it."""

    id: str
    title: str
    run: Run
    facts: DesignFacts

    @cached_property
    def listing(self) -> Listing:
        return self.run.context("design").listing(DESIGN)

    @property
    def name(self) -> str:
        """Under which its answers are on record."""
        return self.run.release_name

    @property
    def unit(self) -> str:
        return self.facts.accuracy.unit

    @property
    def entries(self) -> int:
        return self.facts.entries

    @property
    def error(self) -> float:
        """Root of the mean squared error of a released entry, in the unit."""
        return self.facts.accuracy.rmse

    @property
    def certificate(self) -> dict[str, Any]:
        """The guarantee, as every answer carries it."""
        facts = self.facts
        return {
            "epsilon": facts.epsilon,
            "delta": float(upper(facts.delta)),
            "scope": facts.scope,
            "statement": facts.statement,
            "method": facts.method,
            "labels": facts.labels,
            "smallest_group": facts.smallest_group,
        }

    @cached_property
    def price(self) -> Price:
        """What it costs an analyst to be shown all of it."""
        return Price.of([(load(part.path), bound_of(part)) for part in self.listing.parts])

    @property
    def single(self) -> bool:
        """Whether every label has one answer; what is made for several rows of a label is not offered."""
        return all(load(part.path).times == 1 for part in self.listing.parts)

    def labels(self, part: Part) -> tuple[str, ...]:
        """The labels of a shard that have an answer."""
        return tuple(load(part.path).classes.labels)

    def drawn(self) -> Iterator[tuple[bytes, MechanismBound, Drawn]]:
        """Of each shard: the content of its mechanism's file, its bound, and answers that are not charged yet."""
        config = self.run.config
        for mechanism, forecasts in self.listing.pairs:
            yield Path(mechanism.path).read_bytes(), bound_of(mechanism), do(mechanism, forecasts, config)

    def shown(self, labels: Sequence[str], released: FloatArray) -> FloatArray:
        """Released answers in the unit that is shown."""
        if self.run.config.answers == "kw":
            return released
        power: FloatArray = np.exp(released)
        return power


def offers(folder: str | Path) -> dict[str, Offer]:
    """The questions of a folder: of the run that it is, or of the runs in it, by id."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"dir: {root.name} is not a folder")
    homes = [root] if (root / STATE).is_file() else sorted(one.parent for one in root.glob(f"*/{STATE}"))
    found = {}
    for home in homes:
        run = Run.open(home)
        facts = run.design
        if facts is None or not facts.meaningful or run.config.query == "trajectory":
            continue
        offer = Offer(f"{run.state.run[:12]}-{run.state.release}", home.resolve().name, run, facts)
        if offer.single:
            found[offer.id] = offer
    return found
