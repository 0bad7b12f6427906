"""Choosing the crowd from the risk of being named or the error that one can bear, and checking a file before a run.

| asked | chosen |
| --- | --- |
| at most 1 in 20 | the least crowd m whose naming bound 1/m is at most that |
| within 10 % | the largest crowd, of ten or more, whose expected price, rehearsed on these data, is at most that |

For forecasts the price is the error of the crowd's mean against what was metered later, over that of the home's own
forecast, minus one, added up over forecasts from one, two and three days before the origin. Of n alike days another is
worse than all with probability 1/(n + 1). For a table the price is how far a row is from a label's own, root mean
square, in standard deviations of the columns. Sums are exact, so that a price does not depend on who is who. Nothing is
recorded, drawn or written; crowds on record are what is used, and what was asked for must hold for them.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.crowds.formation import crowd_means
from shoal.crowds.membership import form_crowds
from shoal.crowds.tables import rows_by_crowd
from shoal.designs.comparison import Comparison, compare_with_averages
from shoal.errors import InputError, UnreachableError
from shoal.product.card.facts import FitFacts
from shoal.product.card.statements import WARNINGS
from shoal.product.runs.config import Config
from shoal.product.runs.crowd_rows import too_few_message
from shoal.product.runs.fit_stage import forecast_job, shards_with_homes
from shoal.product.runs.folder import FIT
from shoal.product.runs.inputs import Curves, input_of
from shoal.product.runs.owner_ledger import Book, as_period
from shoal.product.runs.row_rules import RowRules, row_rules_of
from shoal.product.runs.shards import run_jobs
from shoal.product.runs.stage_work import Work
from shoal.records import Record
from shoal.rounding import count_of, many, percent, upper

if TYPE_CHECKING:
    from shoal.product.runs.folder import Progress
    from shoal.product.runs.run import Run

#: Sizes that are tried for an error, from the one that is promised everywhere on.
SIZES = (10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000)
#: Days before the origin that are rehearsed, the nearest first; one for populations above :data:`MANY`.
DAYS, MANY = (1, 2, 3), 1000
#: Share of the homes that a rehearsed day must have a forecast of.
ENOUGH = 0.8
LATER, SPREAD = "later", "spread"


@dataclass(frozen=True)
class CrowdPrice(Record):
    """What crowds of at least ``crowd`` members would be like, and what they are expected to cost.

    ``price`` is the relative increase of the error (``measure`` "later"), or the error in standard deviations of the
    columns ("spread"); None where it could not be rehearsed. ``worst_day`` is that of one of several days, the largest.
    """

    crowd: int
    crowds: int
    smallest: int
    largest: int
    price: float | None
    measure: str = LATER
    worst_day: float | None = None

    @property
    def words(self) -> str:
        """The expected accuracy in words."""
        if self.price is None:
            return "an error that could not be rehearsed"
        if self.measure == SPREAD:
            return f"an error of {percent(self.price)} of the columns' spread"
        worst = "" if self.worst_day is None else f", on the worst day {upper(1 + self.worst_day, 4)} times"
        return f"{upper(1 + self.price, 4)} times the error of unprotected forecasts{worst}"


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
    setting: Mapping[str, Any] = field(default_factory=dict)  #: of the figures, for the rules of a row

    def __repr__(self) -> str:
        """Counts alone: curves and names of labels stay inside."""
        return f"Rehearsal({self.people} on {count_of(len(self.days), 'day')})"

    @property
    def people(self) -> str:
        """The number of labels with a value today, with their noun."""
        return count_of(len(self.today.labels), self.noun)

    def price(self, crowd: int) -> CrowdPrice:
        """Return sizes and expected price of crowds of at least this size, on record or formed on each day."""
        member = self._crowd_of_each(self.today, crowd)
        counts = np.unique(member[member >= 0], return_counts=True)[1].tolist()
        days = [totals for day in self.days if (totals := self._errors(day, crowd)) is not None]
        worst = [price for totals in days if (price := self._relative_error(*totals)) is not None]
        ends = min(counts, default=0), max(counts, default=0)
        whole = self._relative_error(*(math.fsum(totals) for totals in zip(*days, strict=True))) if days else None
        return CrowdPrice(crowd, len(counts), *ends, whole, self.measure, max(worst) if len(worst) > 1 else None)

    def _errors(self, day: Curves, crowd: int) -> tuple[float, float] | None:
        """Return the sums of the errors of a day's own figures and of its rows; None where nobody has a crowd.

        For a table they are ones, and squared distances in standard deviations of the columns.
        """
        member = self._crowd_of_each(day, crowd)
        values, truth = day.values[member >= 0], day.truth[member >= 0]
        if not len(values):
            return None
        place = np.unique(member[member >= 0], return_inverse=True)[1].astype(np.int64)
        rows = crowd_means(values, place)[place]
        if self.measure == SPREAD:
            squares = input_of(self.config).in_error_units(values, rows - values) ** 2
            return float(squares.size), math.fsum(squares.ravel().tolist())
        known = np.isfinite(truth)
        own, shared = (math.fsum(np.abs(each - truth)[known].tolist()) for each in (values, rows))
        return own, shared

    def _relative_error(self, own: float, shared: float) -> float | None:
        """Return how much larger the rows' errors are than the figures' own, or of a table the root mean square."""
        if own <= 0:
            return None
        return math.sqrt(shared / own) if self.measure == SPREAD else shared / own - 1.0

    def compare(self, crowd: int, epsilon: float, delta: float) -> Comparison:
        """Compare methods at (ε, δ) with averages, for the labels of today in crowds of this size."""
        values, of = self.today.values, input_of(self.config)
        return compare_with_averages(of.in_error_units(values), self._crowd_of_each(self.today, crowd), epsilon, delta)

    def _crowd_of_each(self, day: Curves, crowd: int) -> NDArray[np.int64]:
        """Return (n,) the crowd of each label of a day; −1 for those without one."""
        if self.recorded_size is not None:
            return np.array([self.recorded.get(name, -1) for name in day.labels], dtype=np.int64)
        every, rules = np.arange(len(day.labels)), self._row_rules(day, crowd)
        return form_crowds(
            rules.likeness(every), crowd, boundaries=day.boundaries, beside=day.values, limits=rules.limits(every)
        )

    def _row_rules(self, day: Curves, crowd: int) -> RowRules:
        """Return the rules of rows of averages for the figures of a day."""
        setting = dict(self.setting) | {"m": crowd, "release": "mean"}
        return row_rules_of(self.config, day, setting, as_period(day.origin or "2000"))

    def failure_of_crowds(self, crowd: int) -> str:
        """Return which rule of a row new crowds of today would not keep, with the ways out; "" where they keep all."""
        member = self._crowd_of_each(self.today, crowd)
        inside = np.flatnonzero(member >= 0)
        if self.recorded_size is not None or not len(inside):
            return ""
        formed = [inside[at] for at in rows_by_crowd(member[inside])]
        return self._row_rules(self.today, crowd).failure_of_crowds(formed) or ""

    @property
    def today_rules(self) -> RowRules:
        """The rules of rows of averages for the figures of today."""
        return self._row_rules(self.today, 2)

    @property
    def protected(self) -> list[str]:
        """The columns of a table that crowds are not alike in, each with the reason."""
        return [f"{name}: {why}" for name, why in self.today_rules.protected.items()]


# ------------------------------------------------------------------ days that are past


def rehearse_days(work: Work, *, days: bool = True) -> Rehearsal:
    """Return the rehearsal of a run whose first stage is done; nothing is written to its folder.

    Without ``days`` only the labels and what is on record are looked at.
    """
    settings, fit, parts = work.settings, work.facts.people, work.read_listing(FIT).parts
    assert fit is not None
    today = work.input.curves(settings, fit, parts)
    book = Book.read(work.find_ledger(), today.labels)
    gone = {number for number, crowd in book.crowds.items() if crowd["retired"]}
    recorded = {name: int(entry["crowd"]) for name, entry in book.members.items() if entry["crowd"] not in gone}
    past, measure = [today], SPREAD
    if work.input.of_meters:
        past, measure = _earlier_days(work, fit, today) if days else [], LATER
    setting = work.input.setting(settings, fit, work.input.columns(parts))
    return Rehearsal(settings, today, tuple(past), measure, recorded, book.least_size, fit.noun, setting)


def _earlier_days(work: Work, fit: FitFacts, today: Curves) -> list[Curves]:
    """Return the forecasts from instants some days before the origin, as far back as enough homes of today have one.

    Where they reach no day back, and what came after the origin is known, those of today stand for them.
    """
    origin, days = datetime.fromisoformat(fit.origin or ""), list[Curves]()
    shards = work.read_listing(FIT).inputs
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder, work.open_workers() as executor:
        for back in DAYS if len(today.labels) <= MANY else DAYS[:1]:
            instant = (origin - timedelta(days=back)).isoformat()
            jobs = [forecast_job(Path(folder), shard, work.settings, instant, None) for shard in shards]
            try:
                parts = shards_with_homes(run_jobs(executor, "rehearsing", jobs, work.report)).parts
            except InputError:  # no home reaches back so far
                break
            day = work.input.curves(work.settings, replace(fit, origin=instant), parts, today.labels)
            here = len(day.frame)
            if here < max(ENOUGH * len(today.frame), 1) or np.isfinite(day.truth).mean() < 0.5:
                break
            days.append(day)
    return days or ([today] if np.isfinite(today.truth).mean() >= 0.5 else [])


# ------------------------------------------------------------------ the choice


@dataclass(frozen=True)
class Choice(Record):
    """The crowd that was chosen, and why.

    ``bound`` is the largest probability with which anybody names the member behind a row; ``price`` the expected
    relative increase of the error (None where it was not rehearsed); ``recorded`` whether crowds on record are used.
    """

    crowd: int
    goal: str  #: what was asked for, in words
    bound: float
    price: CrowdPrice | None
    recorded: bool = False
    trials: tuple[CrowdPrice, ...] = ()
    rehearsed: tuple[str, ...] = ()  #: instants from which forecasts were rehearsed

    def __repr__(self) -> str:
        return f"Choice(crowd {self.crowd}: {self.goal})"

    def sentences(self) -> list[str]:
        """Return what was chosen and why, in sentences."""
        why = "the smallest that meet what was asked"
        if self.recorded:
            why = "they are on record and permanent, and are used for what was asked"
        elif self.price is not None:
            why = "the largest tried with at most the error that was asked"
        lines = [
            f"Crowds of at least {self.crowd}: {why} ({self.goal}); someone who holds the table names the member "
            f"behind a figure with probability at most 1 in {self.crowd}."
        ]
        if self.price is not None and self.price.price is None:
            lines.append("Their error could not be rehearsed: no earlier day has enough readings before it.")
        elif self.price is not None:
            days = len(self.rehearsed)
            lines.append(f"Expected accuracy of the first release: {self.price.words}.")
            if days:
                alike = f"; another day like them is worse than all of them once in {days + 1}" if days > 1 else ""
                on = f"the {days} days before" if days > 1 else "one earlier day"
                lines.append(f"Rehearsed on {on}{alike}. Later releases are less accurate, since a crowd is permanent.")
        return lines


def choose(
    source: Any, *, at_most: float | str | None = None, error: float | str | None = None, **settings: Any
) -> Choice:
    """Choose the crowd for a release of averages, from the risk of being named or the error that one can bear.

    Args:
        source: a :class:`shoal.Run`; or readings: a file, a folder of them, :class:`shoal.SimulatedMeters`, or a frame
            with household, timestamp and kw; with ``label``, a file or a frame with a row per label.
        at_most: the largest probability of being named: ``1/20`` or ``"1-in-20"``.
        error: the largest expected increase of the error: ``0.10`` or ``"10%"``.
        settings: fields of :class:`shoal.Config`, as for :func:`shoal.run`.

    Returns:
        The choice: ``choice.crowd`` is the setting, ``choice.sentences()`` say why. Nothing is recorded.

    >>> choose(SimulatedMeters(40), at_most=1 / 20).crowd  # doctest: +SKIP
    20
    """
    from shoal.product.runs.run import Run

    if isinstance(source, Run):
        if settings:
            raise InputError(f"{next(iter(settings))}: a run has its settings; give a file or a frame to change them")
        return source.choose(at_most=at_most, error=error)
    with temporary_run(source, settings) as run:
        return run.choose(at_most=at_most, error=error)


@contextmanager
def temporary_run(source: Any, settings: dict[str, Any], progress: Progress | None = None) -> Iterator[Run]:
    """Make a run in a folder that is removed at the end."""
    from shoal.product.runs.run import Run

    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        yield Run(Path(folder) / "run", getattr(source, "frame", source), progress=progress, **settings)


def choose_by_risk(rehearsal: Rehearsal, bound: Fraction) -> Choice:
    """Return the least crowd whose naming bound is at most this."""
    crowd, risk = math.ceil(1 / bound), f"1 in {float(1 / bound):.12g}"
    recorded, most = rehearsal.recorded_size, rehearsal.today.largest_crowd
    if recorded is not None and recorded < crowd:
        raise UnreachableError(
            f"at_most: these labels are in crowds of at least {recorded}, on record, which bound naming "
            f"by 1 in {recorded}; {risk} cannot be had for them. Nothing was released"
        )
    if recorded is None and most < crowd:
        within = "" if rehearsal.today.boundaries is None else " within a boundary"
        raise UnreachableError(
            f"at_most: {rehearsal.people} can be used, so that no crowd has more than {most}{within}: ask for "
            f"1-in-{most} at best. Nothing was released"
        )
    size = recorded or crowd
    return Choice(size, f"named at most {risk}", 1 / size, None, recorded is not None)


def choose_by_error(rehearsal: Rehearsal, most: float) -> Choice:
    """Return the largest of :data:`SIZES` whose expected price is at most this, or the crowds on record."""
    recorded = rehearsal.recorded_size
    trials: list[CrowdPrice] = []
    for size in [size for size in SIZES if size <= rehearsal.today.largest_crowd] if recorded is None else [recorded]:
        trials.append(rehearsal.price(size))
        if recorded is None and trials[-1].price is None:
            raise InputError(
                "within: the price cannot be rehearsed: no earlier day has enough readings before it. Give more days "
                "of readings, fewer train_days=, or crowd= or at_most= instead",
                argument="within",
            )
        if (trials[-1].price or 0.0) > most:
            break  # larger ones that seem to cost less do so by luck
    within = [price for price in trials if (price.price or 0.0) <= most]
    if not within:
        why = f"{rehearsal.people} can be used, and an error chooses crowds of at least {SIZES[0]}"
        if trials:
            least, price = trials[0], percent(trials[0].price).replace(" ", "")
            fewest = "the fewest that an error chooses" if recorded is None else "on record"
            why = f"crowds of at least {least.crowd}, {fewest}, have {least.words}. Allow that (within='{price}')"
        fewer = "" if recorded is not None else ", or name a smaller crowd= yourself, in which members hide less"
        raise UnreachableError(
            f"within: no crowd is so accurate on these data: {why}{fewer}. Nothing was released", argument="within"
        )
    best = within[-1]
    return Choice(
        best.crowd,
        f"within {100 * most:g} %",
        1 / best.crowd,
        best,
        recorded is not None,
        trials=tuple(trials) if recorded is None else (),
        rehearsed=tuple(day.origin for day in rehearsal.days if day is not rehearsal.today),
    )


# ------------------------------------------------------------------ what a run would find

#: Crowds that are previewed beside the one that was asked for.
ALSO = (5, 10, 15, 20, 50)


@dataclass(frozen=True)
class FileCheck:
    """What a run would find and form: ``parts()`` in words, ``to_dict()`` for machines."""

    fit: FitFacts
    crowd: int
    rehearsal: Rehearsal | None  #: None where crowds have another price, or there are none
    prices: tuple[CrowdPrice, ...]
    refusal: str = ""  #: why a run would be refused; empty where it would not
    comparison: Comparison | None = None  #: methods beside averages, where an ε was given to compare at

    def __repr__(self) -> str:
        usable = f"{self.fit.labels} of {count_of(self.fit.labels + self.fit.left_out, self.fit.noun)} usable"
        return f"FileCheck({usable}, crowd {self.crowd}: {self.refusal or 'a run would form crowds'})"

    @property
    def ok(self) -> bool:
        """Whether a run would form crowds."""
        return not self.refusal

    def parts(self) -> list[tuple[str, list[str]]]:
        """Return headings with their sentences, for people."""
        fit = self.fit
        read = fit.labels + fit.left_out
        noun = many(fit.noun) if read != 1 else fit.noun
        used = [f"{fit.labels} of {read} {noun} can be used."]
        used += [f"{count} cannot: {reason}." for reason, count in fit.reasons]
        rest = fit.left_out - sum(count for _, count in fit.reasons)
        used += [f"{count_of(rest, fit.noun)} more cannot be used, for rarer reasons."] if rest > 0 else []
        sections = [
            ("Read", [f"{fit.source}."]),
            ("Who can be used", used),
            ("What was understood", list(fit.about)),
            (WARNINGS, [*fit.doubts, *([] if self.rehearsal is None else self.rehearsal.today_rules.doubts())]),
            ("A run would be refused", [self.refusal] if self.refusal else []),
            ("Columns that crowds are not alike in", [] if self.rehearsal is None else self.rehearsal.protected),
            ("Crowds that a run would form", self._crowd_lines()),
            ("Ways to protect them", [] if self.comparison is None else str(self.comparison).splitlines()),
            ("Nothing was kept", ["No folder was made, and nothing was written to a ledger."]),
        ]
        return [(heading, lines) for heading, lines in sections if lines]

    def _crowd_lines(self) -> list[str]:
        """Return a sentence about the crowds of each size that was tried, with their expected accuracy."""
        if self.rehearsal is None or not self.prices:
            return []
        lines = []
        if self.rehearsal.recorded_size is not None:
            lines.append("Crowds are those on record in the ledger: they are permanent.")
        for price in self.prices:
            span = f"{price.smallest}" if price.smallest == price.largest else f"{price.smallest} to {price.largest}"
            mark = " (the one asked for)" if price.crowd == self.crowd and len(self.prices) > 1 else ""
            lines.append(
                f"--crowd {price.crowd}{mark}: {count_of(price.crowds, 'crowd')} of {span}; named at most 1 in "
                f"{price.crowd}; expected accuracy: {price.words}."
            )
        if self.rehearsal.measure != SPREAD and self.rehearsal.days:
            days = ", ".join(day.origin for day in self.rehearsal.days)
            lines.append(f"Rehearsed from {days}. Later releases are less accurate, since a crowd is permanent.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return what was found as plain numbers, lists and strings, for machines."""
        fit, rehearsal = self.fit, self.rehearsal
        return {
            **fit.part("source", "left_out", "unit", "step_minutes", "time_zone", "origin", "about"),
            "usable": fit.labels,
            "reasons": [{"reason": reason, "count": count} for reason, count in fit.reasons],
            "crowd": self.crowd,
            "on_record": rehearsal is not None and rehearsal.recorded_size is not None,
            "prices": [price.to_json() for price in self.prices],
            "comparison": None if self.comparison is None else self.comparison.rows,
            "rehearsed": [] if rehearsal is None else [day.origin for day in rehearsal.days],
            "protected": [] if rehearsal is None else rehearsal.protected,
            "refusal": self.refusal or None,
        }


def check(
    source: Any,
    *,
    progress: Progress | None = None,
    compare_at: tuple[float, float] | None = None,
    **settings: Any,
) -> FileCheck:
    """Read a file as a run would, question it, and preview the crowds and their expected price.

    Args:
        source: as for :func:`shoal.choose`.
        progress: called with (stage, what is happening, done, total).
        compare_at: (ε, δ) at which methods that add noise are set beside averages, as :func:`shoal.compare` does.
        settings: fields of :class:`shoal.Config`, as for :func:`shoal.run`.

    Returns:
        What was found. No folder is made, and nothing is written to a ledger.

    >>> check(shoal.SimulatedMeters(24), crowd=5).fit.labels  # doctest: +SKIP
    24
    """
    with temporary_run(source, settings, progress) as run, run.hold_folder():
        run.do("fit")
        fit, crowd = run.work.facts.finished_fit, run.config.crowd
        if "within" in run.work.kind.has_not:
            return FileCheck(fit, crowd, None, ())
        rehearsal = rehearse_days(run.work)
    recorded, most, refusal = rehearsal.recorded_size, rehearsal.today.largest_crowd, ""
    if recorded is not None and crowd != recorded:
        refusal = (
            f"crowd: these {many(fit.noun)} are in crowds of at least {recorded}, on record and permanent; go on with "
            f"crowd={recorded}."
        )
    elif recorded is None and most < crowd:
        refusal = too_few_message(crowd, rehearsal.today, many(fit.noun))
    sizes = {recorded} if recorded is not None else {crowd, *ALSO, *([max(most, 2)] if refusal else [])}
    try:
        prices = [rehearsal.price(size) for size in sorted(sizes) if recorded is not None or size <= most]
        refusal = refusal or rehearsal.failure_of_crowds(crowd)
    except InputError as error:  # as where no crowd keeps the largest share
        prices, refusal = [], str(error)
    compared = None if compare_at is None or refusal or not prices else rehearsal.compare(crowd, *compare_at)
    return FileCheck(fit, crowd, rehearsal, tuple(prices), refusal, compared)


# ------------------------------------------------------------------ what people write


def parse_naming_risk(given: float | str) -> Fraction:
    """Return a risk as people write it: 1-in-20, 1/20, 5% or 0.05.

    >>> parse_naming_risk("1-in-20"), parse_naming_risk("5%"), parse_naming_risk(1 / 20)
    (Fraction(1, 20), Fraction(1, 20), Fraction(1, 20))
    """
    value = _fraction(given)
    if value is None or not 0 < value <= Fraction(1, 2):
        raise InputError("at_most must be a risk of being named such as 1-in-20, 1/20 or 5%, at most 1-in-2")
    return value


def parse_error_share(given: float | str) -> float:
    """Return an error as people write it: 10% or 0.10.

    >>> parse_error_share("10%"), parse_error_share(0.1)
    (0.1, 0.1)
    """
    value = _fraction(given)
    bare = isinstance(given, str) and "%" not in given  # on the command line "10" means ten percent to people
    if value is None or not 0 <= value <= (1 if bare else 10):
        raise InputError(
            "within must be an increase of the error such as 10% or 0.10; above 1 with a percent sign",
            argument="within",
        )
    return float(value)


def _fraction(given: float | str) -> Fraction | None:
    """Return the exact value of a decimal text, ratio or percentage; of a float, the simple fraction it prints as."""
    text = re.sub(r"^1-?in-?(?=\d)", "1/", "".join(str(given).lower().split()))
    try:
        value = Fraction(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        return None
    simple = value.limit_denominator(10**6)
    return simple if isinstance(given, float) and float(simple) == given else value
