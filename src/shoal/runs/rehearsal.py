"""What crowds of a size would cost on these data, before anything is released: a rehearsal on days that are past.

For forecasts the price is the error of the crowd's mean against what was metered later, over that of the home's own
forecast, minus one. What comes after the origin is not known yet, so the same forecasts are made from the instants one,
two and three days before it, where the readings reach back far enough, crowds are formed there, and errors are added up
over these days. It is the price of the first release of a crowd; later ones cost more, since a crowd is for life.

For a table nothing comes later: the price is how far a row is from a label's own, root mean square, in standard
deviations of the columns.

Nothing is recorded, drawn or written to the folder of a run. Sums are exact, so that a price does not depend on the
order of homes or on their names.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.card.facts import FitFacts
from shoal.errors import InputError
from shoal.laws.crowds import means
from shoal.laws.membership import formed
from shoal.records import Record
from shoal.rounding import counted
from shoal.runs.config import Config
from shoal.runs.context import FIT, Context
from shoal.runs.shards import run_jobs
from shoal.runs.stages.crowd_stage import Book, Curves
from shoal.runs.stages.fit_stage import fit_job

#: Days before the origin that are rehearsed, the nearest first; one for populations above :data:`MANY`.
DAYS, MANY = (1, 2, 3), 1000
#: Fewest days of training with which a rehearsal is worth something.
FEWEST_DAYS = 3
#: Share of the homes that a rehearsed day must have a forecast of.
ENOUGH = 0.8
LATER, SPREAD = "later", "spread"


@dataclass(frozen=True)
class CrowdPrice(Record):
    """What crowds of at least ``crowd`` members would be like, and what they are expected to cost.

    ``price`` is the relative increase of the error (``measure`` "later"), or the error in standard deviations of the
    columns ("spread"); None where it could not be rehearsed.
    """

    crowd: int
    crowds: int
    smallest: int
    largest: int
    price: float | None
    measure: str = LATER

    @property
    def words(self) -> str:
        """The price in words."""
        if self.price is None:
            return "a price that could not be rehearsed"
        share = f"{math.ceil(abs(self.price) * 1000) / 10:.1f} %" if self.price > 0 else "0 %"
        if self.measure == SPREAD:
            return f"an error of {share} of the columns' spread"
        return f"{share} more error against what is metered later"


@dataclass(frozen=True)
class Rehearsal:
    """Who is there today, the days that were rehearsed, and the crowds that are on record."""

    config: Config
    today: Curves
    days: tuple[Curves, ...]
    measure: str
    recorded: Mapping[str, int]  #: label -> crowd on record
    recorded_size: int | None  #: least members promised of the crowds on record
    noun: str
    train_days: int  #: with which the days were rehearsed

    @property
    def people(self) -> str:
        """How many labels have a value today, with their noun."""
        return counted(len(self.today.labels), self.noun)

    @property
    def most(self) -> int:
        """The largest crowd that can be formed."""
        boundaries = self.today.boundaries
        return len(self.today.labels) if boundaries is None else max(Counter(boundaries).values(), default=0)

    def price(self, crowd: int) -> CrowdPrice:
        """Crowds of a size, on record or formed anew from each day's curves, and their price as rehearsed."""
        sizes = np.unique(self._member(self.today, crowd), return_counts=True)
        counts = sizes[1][sizes[0] >= 0].tolist()
        own: list[float] = []
        shared: list[float] = []
        for day in self.days:
            member = self._member(day, crowd)
            values, truth = day.values[member >= 0], day.truth[member >= 0]
            if not len(values):
                continue
            place = np.unique(member[member >= 0], return_inverse=True)[1].astype(np.int64)
            rows = means(values, place)[place]
            if self.measure == SPREAD:
                spread = np.sort(values, axis=0).std(axis=0)
                shared += (((rows - values) / np.where(spread > 0, spread, 1.0)) ** 2).ravel().tolist()
            else:
                known = np.isfinite(truth)
                own += np.abs(values - truth)[known].tolist()
                shared += np.abs(rows - truth)[known].tolist()
        price = None
        if self.measure == SPREAD and shared:
            price = math.sqrt(math.fsum(shared) / len(shared))
        elif math.fsum(own) > 0:
            price = math.fsum(shared) / math.fsum(own) - 1.0
        return CrowdPrice(crowd, len(counts), min(counts, default=0), max(counts, default=0), price, self.measure)

    def _member(self, day: Curves, crowd: int) -> NDArray[np.int64]:
        """(n,) the crowd of each label of a day; -1 for those without one."""
        if self.recorded_size is not None:
            return np.array([self.recorded.get(name, -1) for name in day.labels], dtype=np.int64)
        return formed(day.points, crowd, **day.limits(self.config.largest_share))


# ------------------------------------------------------------------ days that are past


def rehearsal(context: Context, fit: FitFacts, *, days: bool = True) -> Rehearsal:
    """Rehearse from what the first stage left in a folder; nothing is written there.

    Without ``days`` only who is there and what is on record is looked at.
    """
    config = context.config
    if config.charged or fit.most_rows > 1:
        raise InputError(
            "at_most and within choose the crowd of a table of averages; with a --method, a --query or several rows "
            "per label the guarantee is asked for as --epsilon and --delta, or --rho, beside --crowd"
        )
    today = Curves.gathered(config, fit, context.listing(FIT).parts)
    with context.existing_ledger() as ledger:
        book = Book.read(ledger, today.labels)
    gone = {number for number, crowd in book.crowds.items() if crowd["retired"]}
    recorded = {name: int(entry["crowd"]) for name, entry in book.members.items() if entry["crowd"] not in gone}
    past, train = [today], 0
    if config.label is None:
        past, train = _past(context, fit, today) if days else ([], 0)
    measure = LATER if config.label is None else SPREAD
    return Rehearsal(config, today, tuple(past), measure, recorded, book.size, fit.noun, train)


def _past(context: Context, fit: FitFacts, today: Curves) -> tuple[list[Curves], int]:
    """The days before the origin that the readings reach, with the days of training they were made with."""
    config, origin = context.config, datetime.fromisoformat(fit.origin or "")
    wanted = DAYS if len(today.labels) <= MANY else DAYS[:1]
    for train in dict.fromkeys((config.train_days, config.train_days - 1, config.train_days // 2)):
        if train < FEWEST_DAYS:
            break
        settings = replace(config, train_days=train)
        made = (_at(context, fit, settings, origin - timedelta(days=back), today) for back in wanted)
        if days := [day for day in takewhile(lambda day: day is not None, made) if day is not None]:
            return days, train
    return ([today], config.train_days) if np.isfinite(today.truth).mean() >= 0.5 else ([], 0)


def _at(context: Context, fit: FitFacts, config: Config, origin: datetime, today: Curves) -> Curves | None:
    """Forecasts from an earlier instant; None where too few homes of today have one."""
    instant = origin.isoformat()
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, context.workers() as executor:
        jobs = [fit_job(Path(folder), shard, config, instant, None) for shard in context.listing(FIT).inputs]
        try:
            parts = run_jobs(executor, "rehearsing", jobs, context.tell).parts
        except InputError:  # no home reaches back so far
            return None
        day = Curves.gathered(config, replace(fit, origin=instant), parts, today.labels)
    here = len(day.frame)
    known = np.isfinite(day.truth).mean() if here else 0.0
    return day if here >= ENOUGH * len(today.frame) and known >= 0.5 else None
