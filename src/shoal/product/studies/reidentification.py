"""Could somebody find a household in this? An attacker who knows a home's week looks for it in later data.

At several origins, a week apart, what might leave is made of the same homes: the readings of the week that follows,
unprotected forecasts, and what a run would release, the means of crowds. The attackers
(:mod:`shoal.product.studies.attackers`) know the week before the origin of one home: what it is like, and what one
would forecast from it. They learn from other homes at other origins than those they are judged on. Two questions are
put: which of all rows is the home's, and, told who is in its crowd, which row of the crowd is. Rows of one crowd's mean
are the same, so that a guess is all there is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import __version__, validation
from shoal.crowds.formation import means
from shoal.crowds.membership import form_crowds
from shoal.errors import InputError
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.neighborhoods import likeness
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.product.studies.attackers import (
    Attacker,
    Hits,
    Table,
    WeekMetric,
    curves,
    fingerprint,
    rank_rows,
    score_rows,
    weekly,
)
from shoal.records import plain
from shoal.rounding import percent
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
#: Makes further attackers, by name, from the tables of other homes.
More = Callable[[Sequence[Table]], Mapping[str, Attacker]]
DAY = timedelta(days=1)
#: Least share of a home's readings that must be there.
OBSERVED = 0.95
#: How often homes are cut into those an attacker learns from and those it is judged on.
FOLDS = 4
#: Attackers by name.
OWN, EXPECTED = "own forecast, one covariance", "expected curve, one covariance"
FEATURES, PROFILE = "features, one covariance", "nearest profile"
#: Columns of the table.
HEADS = ("what leaves", "attacker", "named at once (95 % interval)", "among ten (95 % interval)",
         "inside the crowd", "bound", "error, kW")  # fmt: skip
#: Least power told apart from none in a released curve, kW.
LEAST = 1e-3


@dataclass(frozen=True)
class AttackFinding:
    """One attacker on one kind of data: hits among all rows and inside the crowd, what bounds them there, the error."""

    what: str
    attacker: str
    everywhere: Hits
    inside: Hits | None
    bound: float | None
    rmse: float

    @property
    def exceeds(self) -> bool:
        """Whether the attacker was right more often than the bound, beyond its interval."""
        return self.inside is not None and self.bound is not None and self.inside.top_1_interval[0] > self.bound

    @property
    def cells(self) -> list[str]:
        """Its row of the table."""
        hits, inside = self.everywhere, ["", "none"]
        if self.inside is not None and self.bound is not None:
            inside = [share(self.inside.top_1, self.inside.top_1_interval), f"≤ {percent(self.bound)}"]
        named = [share(hits.top_1, hits.top_1_interval), share(hits.top_10, hits.top_10_interval)]
        return [self.what, self.attacker, *named, *inside, f"{self.rmse:.3f}"]


@dataclass(frozen=True)
class Reidentification:
    """All findings of a study."""

    homes: int
    days: tuple[str, str]  #: the first and the last day of the readings
    origins: tuple[str, ...]
    crowd: int
    findings: tuple[AttackFinding, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)  #: reason -> homes that could not be used

    @property
    def exceeded(self) -> tuple[AttackFinding, ...]:
        """Findings above their bound; there must be none."""
        return tuple(one for one in self.findings if one.exceeds)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        content: dict[str, Any] = plain(self)
        return content

    def __str__(self) -> str:
        head = (
            f"{self.homes} homes, {self.days[0]} to {self.days[1]}, {len(self.origins)} origins; chance "
            f"{1 / self.homes:.2%} among all rows, about {1 / self.crowd:.0%} inside a crowd of {self.crowd}."
        )
        if self.left_out:
            head += " Left out: " + "; ".join(f"{count} {reason}" for reason, count in self.left_out.items()) + "."
        return f"{head}\n\n{markdown_table(HEADS, [one.cells for one in self.findings])}"

    def save(self, out: str | Path) -> list[Path]:
        """Write the table, and the numbers with the day and the version that made them; returns the files."""
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        written = [folder / "reidentify.md", folder / "reidentify.json"]
        written[0].write_text(f"{self}\n", encoding="utf-8")
        content = {"made": date.today().isoformat(), "version": __version__, **self.to_dict()}
        written[1].write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return written


def reidentify(
    readings: Any,
    *,
    crowd: int = 10,
    order: tuple[int, int] = (6, 5),
    train_days: int = 15,
    horizon: int = 12,
    origins: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> Reidentification:
    """Look for homes in what leaves, before and after protection.

    Args:
        readings: a frame of readings or what :func:`shoal.read_meters` gives; at least five weeks, of which the last
            are used. Homes with gaps or without a forecast are left out and counted in ``left_out``.
        crowd: homes of a crowd, at least.
        order, train_days, horizon: of the forecasts.
        origins: weeks that are looked at, the last ones.
        seed: of the folds that attackers learn from.
        progress: called with what is happening and the share that is done.

    Returns:
        The findings; ``print`` shows them as a table, ``save`` writes them.

    >>> import shoal
    >>> readings = shoal.simulate_meters(24, 37, step_minutes=60)
    >>> study = shoal.reidentify(readings, crowd=6, order=(1, 1), train_days=14, horizon=4, origins=2)
    >>> study.homes, study.exceeded
    (24, ())
    """
    crowd = validation.count(at_least=2, crowd=crowd)
    origins = validation.count(at_least=2, origins=origins)
    tell = progress or (lambda text, share: None)
    tell("reading weeks", 0.0)
    own = as_readings(readings)
    weeks = Weeks.of(own, -(-train_days // 7), origins, crowd)
    # What is released is forecast from all days of training; the attacker forecasts from the week that it knows.
    wanted = [(days, week) for days in (train_days, min(7, train_days)) for week in weeks.judged]
    made = {}
    for number, (days, week) in enumerate(wanted):
        tell(f"forecasting from {days} days", 0.05 + 0.4 * number / len(wanted))
        options: dict[str, Any] = {"order": order, "horizon": horizon, "season": "day"}
        made[days, week] = forecast(own, train_days=days, origin=weeks.starts[week], **options)
    weeks = weeks.with_forecasts([fc.households for fc in made.values()], crowd)
    rows = {at: weeks.of_homes(fc.households, fc.power) for at, fc in made.items()}
    power, guessed = ([rows[days, week] for week in weeks.judged] for days in (train_days, min(7, train_days)))
    first = made[train_days, weeks.judged[0]]
    member = form_crowds(weeks.of_homes(first.households, likeness(first)), crowd, beside=power[0])
    prints, ends = weeks.prints
    known = [
        np.concatenate([prints[:, week - 1], comparable_curves(guess)], axis=1)
        for week, guess in zip(weeks.judged, guessed, strict=True)
    ]

    tell("attacking raw readings", 0.5)
    findings = _findings("raw readings", [raw_scores(prints, ends, week, 1, seed) for week in weeks.judged])

    def attack(rows: Sequence[FloatArray]) -> list[dict[str, FloatArray]]:
        return [
            curve_scores(known, [comparable_curves(one) for one in rows], origin, seed) for origin in range(len(rows))
        ]

    tell("attacking unprotected forecasts", 0.65)
    findings += _findings("unprotected forecasts", attack(power))
    tell("attacking crowds", 0.85)
    released = [np.asarray(means(one, member)[member]) for one in power]
    off = float(np.sqrt(((np.concatenate(released) - np.concatenate(power)) ** 2).mean()))
    findings += _findings("crowds", attack(released), member, off)
    return Reidentification(len(weeks.names), weeks.days, weeks.origins, crowd, tuple(findings), weeks.left_out)


def comparable_curves(kw: FloatArray) -> FloatArray:
    """Curves as attackers compare them: differences are shares of power."""
    return np.asarray(np.log(np.maximum(kw, LEAST)))


# ------------------------------------------------------------------ what is known


@dataclass(frozen=True)
class Weeks:
    """Homes with nearly all readings of some weeks, and the weeks before which an attacker stands."""

    names: tuple[str, ...]
    readings: tuple[FloatArray, ...]  #: (homes, 7, steps a day) kW of each week
    weekends: tuple[NDArray[np.bool_], ...]  #: (7,) of each week
    starts: tuple[datetime, ...]
    judged: tuple[int, ...]  #: weeks that are looked at, by number
    left_out: Mapping[str, int]  #: reason -> homes that could not be used

    @classmethod
    def of(cls, own: Readings, before: int, origins: int, crowd: int, history: int = 0) -> Weeks:
        """The last ``origins`` weeks that have ``before`` others before them, and homes for two crowds at least.

        With ``history``, so many weeks before them are read where they are there.
        """
        stamps: Any = own.frame["timestamp"]
        steps, most = DAY // own.step, max(before, history) + origins
        count = (stamps.max() + own.step - stamps.min()) // (7 * DAY)
        if min(count, most) < before + 2:
            raise InputError("readings: two origins are needed, after the days of training; give more weeks")
        skipped = max(count - most, 0) * 7 * DAY
        begin, start = stamps.min() + skipped, int(stamps.dt.epoch("us").min()) + skipped // timedelta(microseconds=1)
        count = min(count, most)
        whole = own.cut(start, count * 7 * steps)
        enough = np.isfinite(whole.kw).mean(axis=1) >= OBSERVED
        kw = _fill(whole.kw[enough], steps).reshape(int(enough.sum()), count, 7, steps)
        names = tuple(name for name, there in zip(whole.households, enough, strict=True) if there)
        gaps = len(enough) - len(names)
        days = [[begin + (7 * number + day) * DAY for day in range(7)] for number in range(count)]
        weeks = cls(
            names,
            tuple(kw[:, number] for number in range(count)),
            tuple(np.array([day.weekday() >= 5 for day in week]) for week in days),
            tuple(whole.timestamps[number * 7 * steps] for number in range(count)),
            tuple(range(max(before, count - origins), count)),
            {f"with less than {OBSERVED:.0%} of the readings": gaps} if gaps else {},
        )
        weeks._demand(crowd)
        return weeks

    def with_forecasts(self, forecast: Iterable[Sequence[str]], crowd: int) -> Weeks:
        """The homes that are in all of these lists of homes with a forecast."""
        there = set(self.names).intersection(*forecast)
        usable = np.array([name in there for name in self.names], dtype=bool)
        without = {} if usable.all() else {"without a forecast": int((~usable).sum())}
        weeks = replace(
            self,
            names=tuple(name for name in self.names if name in there),
            readings=tuple(week[usable] for week in self.readings),
            left_out={**self.left_out, **without},
        )
        weeks._demand(crowd)
        return weeks

    def _demand(self, crowd: int) -> None:
        """Refuse what is too small for two crowds."""
        if len(self.names) < 2 * crowd:
            reasons = "".join(f"; {count} {reason}" for reason, count in self.left_out.items())
            count = len(self.names)
            raise InputError(f"readings: {count} homes can be used, which is too few for crowds of {crowd}{reasons}")

    def of_homes(self, households: Sequence[str], values: FloatArray) -> FloatArray:
        """The rows of the homes of this study, in its order."""
        place = {name: number for number, name in enumerate(households)}
        return np.asarray(values[[place[name] for name in self.names]])

    @property
    def prints(self) -> tuple[FloatArray, tuple[int, ...]]:
        """(homes, weeks, f) fingerprints of every week, and where their blocks end."""
        printed = [fingerprint(*week) for week in zip(self.readings, self.weekends, strict=True)]
        return np.stack([one for one, _ in printed], axis=1), printed[0][1]

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day of the readings."""
        return self.starts[0].date().isoformat(), (self.starts[-1] + 6 * DAY).date().isoformat()

    @property
    def origins(self) -> tuple[str, ...]:
        """Where the weeks that are looked at begin."""
        return tuple(self.starts[week].isoformat() for week in self.judged)


def _fill(kw: FloatArray, steps: int) -> FloatArray:
    """Missing readings as the home's mean at that time of day."""
    n = len(kw)
    by_time = np.nanmean(kw.reshape(n, -1, steps), axis=1)
    usual = np.tile(np.where(np.isfinite(by_time), by_time, np.nanmean(by_time)), kw.shape[1] // steps)
    return np.where(np.isfinite(kw), kw, usual)


# ------------------------------------------------------------------ what is found


def raw_scores(
    prints: FloatArray, ends: Sequence[int], judged: int, weeks: int, seed: int, more: More | None = None
) -> dict[str, FloatArray]:
    """Attacker -> its (homes, rows) scores on the readings of one week, from so many weeks before it.

    They learn from other homes, for each other week from the weeks next to it, the judged one never among them.
    """
    count = prints.shape[1]

    def tables(others: NDArray[np.int64]) -> list[Table]:
        learned_from = []
        for later in (w for w in range(count) if w != judged):
            apart = np.abs(np.arange(count) - later) + np.where(np.isin(range(count), (later, judged)), count, 0)
            near = np.argsort(apart, kind="stable")[:weeks]
            learned_from.append((prints[others][:, near].mean(axis=1), prints[others, later]))
        return learned_from

    known = prints[:, judged - weeks : judged].mean(axis=1)
    compare = partial(weekly, ends=ends)
    return _scores((known, prints[:, judged]), tables, compare, (FEATURES, PROFILE), seed, more)


def curve_scores(
    known: Sequence[FloatArray], rows: Sequence[FloatArray], judged: int, seed: int, more: More | None = None
) -> dict[str, FloatArray]:
    """Attacker -> its (homes, rows) scores on the curves of one origin; it learns from other homes at the others."""

    def tables(others: NDArray[np.int64]) -> list[Table]:
        return [(known[o][others], rows[o][others]) for o in range(len(known)) if o != judged]

    return _scores((known[judged], rows[judged]), tables, curves, (OWN, EXPECTED), seed, more)


def _scores(
    at: Table,
    tables: Callable[[NDArray[np.int64]], list[Table]],
    compare: Callable[[Sequence[Table]], list[WeekMetric]],
    names: Sequence[str],
    seed: int,
    more: More | None,
) -> dict[str, FloatArray]:
    """Attacker -> its (homes, rows) scores, each home judged by who learned from others; ``tables`` are of these."""
    known, rows = at
    n = len(known)
    scores: dict[str, FloatArray] = {}
    for fold in np.array_split(np.random.default_rng(seed).permutation(n), FOLDS):
        learned_from = tables(np.setdiff1d(np.arange(n), fold))
        attackers: dict[str, Attacker] = dict(zip(names, compare(learned_from), strict=True))
        attackers |= more(learned_from) if more is not None else {}
        for name, attacker in attackers.items():
            scores.setdefault(name, np.empty((n, n)))[fold] = score_rows(attacker, known[fold], rows)
    return scores


def inside_crowds(scores: FloatArray, member: NDArray[np.int64]) -> FloatArray:
    """Scores of somebody who is told who is in the home's crowd: other rows are out of the question."""
    return np.where(member[:, None] == member[None], scores, -np.inf)


def _findings(
    what: str, scores: Sequence[Mapping[str, FloatArray]], member: NDArray[np.int64] | None = None, off: float = 0.0
) -> list[AttackFinding]:
    """Findings from every attacker's scores at all origins; inside crowds of identical rows, a guess bounds it."""
    bound = None if member is None else float((1 / np.bincount(member)[member]).mean())
    findings = []
    for attacker in scores[0]:
        every = [one[attacker] for one in scores]
        inside = None if member is None else Hits.over([rank_rows(inside_crowds(one, member)) for one in every])
        everywhere = Hits.over([rank_rows(one) for one in every])
        findings.append(AttackFinding(what, attacker, everywhere, inside, bound, off))
    return findings


def share(value: float, interval: tuple[float, float]) -> str:
    """A share with its interval, as tables print it."""
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))
