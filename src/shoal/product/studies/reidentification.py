"""Three questions about a file of meters. An attacker who knows a home's week looks for it in later data.

At several origins, a week apart, what might leave is made of the same homes: the readings of the week that follows,
unprotected forecasts, and what a run would release, the means of crowds. The attackers
(:mod:`shoal.product.studies.attackers`) know the week before the origin of one home: what it is like, and what one
would forecast from it. They learn from other homes at other origins than those they are judged on. Two questions are
put: which of all rows is the home's, and, told who is in its crowd, which row of the crowd is. Rows of one crowd's mean
are the same, so that a guess is all there is. What rows tell about properties is for :mod:`inference`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shoal import validation
from shoal.crowds.loads import WATTS, begin_loads, next_loads
from shoal.crowds.membership import form_crowds
from shoal.crowds.rules import in_units
from shoal.crowds.tables import members_at
from shoal.errors import InputError
from shoal.product.sources.frames import read_frame
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.neighborhoods import likeness, usual_day
from shoal.product.sources.meters.predictive import Forecasts, phases
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.product.studies.attackers import (
    Attacker,
    Table,
    WeekMetric,
    curves,
    fingerprint,
    rank_rows,
    score_rows,
    weekly,
)
from shoal.product.studies.findings import Finding, Study, share_right, unique_share
from shoal.product.studies.inference import Rows, above_middle, infer, infer_among_all, infer_columns
from shoal.readings.crowds import check_curves, home_vectors
from shoal.readings.plan import noisy_crowds_plan
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
#: What is attacked.
RAW, FORECASTS, AVERAGES = "raw readings", "unprotected forecasts", "averages"
#: Readings of a home that somebody knows who wants to single it out, and how well, kW.
KNOWN, WIDTH = 4, 0.1
#: A home is absent on a day with less than this share of its usual use.
AWAY = 0.5
#: Different texts of a property, at most; ε at which the readings' promise is rehearsed.
MOST_TEXTS, EPSILON = 10, 1.0
OWN_FIGURE = "whether a member's own figure is above that of most homes, by the row's"
INSIDER = "by someone who knows all other homes and two curves of this one (ε = 1)"
ASSUMED = (
    "The attacker knows one week of readings of a home, and learns from other homes of the same file.",
    "For properties it knows the crowd of every home, and who has the property in other crowds.",
    "Origins are a week apart, and homes are taken as independent of each other.",
)
NOT_LOOKED_AT = (
    "Attackers who learn from many more homes name some more in raw readings.",
    "Someone who knows the other members' figures of a row, and changes between releases: see the card of a run.",
    "Names, addresses and other columns that leave beside the figures.",
)
#: Least power told apart from none in a released curve, kW.
LEAST = 1e-3


def attack_meters(
    readings: Any,
    *,
    crowd: int = 10,
    order: tuple[int, int] = (6, 5),
    train_days: int = 15,
    horizon: int = 12,
    origins: int = 4,
    properties: Any = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Study:
    """Three questions about a file of meters: what can be found out from it, before and after protection.

    Args:
        readings: a frame of readings or what :func:`shoal.read_meters` gives; at least five weeks, of which the last
            are used. Homes with gaps or without a forecast are left out and counted in ``left_out``.
        crowd: homes of a crowd, at least.
        order, train_days, horizon: of the forecasts.
        origins: weeks that are looked at, the last ones.
        properties: facts about homes that are not in the readings: a frame, or a CSV or Parquet file, with a column
            household and columns of a few texts. Of each, the most common text is told from all others.
        seed: of the folds that attackers learn from, and of rehearsed offsets.
        progress: called with what is happening and the share that is done.

    Returns:
        The findings; ``print`` shows them as tables, ``save`` writes two sheets to file with them.

    >>> import shoal
    >>> readings = shoal.simulate_meters(24, 37, step_minutes=60)
    >>> study = shoal.attack_meters(readings, crowd=6, order=(1, 1), train_days=14, horizon=4, origins=2)
    >>> study.members, study.exceeded
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
    every = [made[train_days, week] for week in weeks.judged]
    member = form_crowds(weeks.of_homes(every[0].households, likeness(every[0])), crowd, beside=power[0], seed=seed)
    prints, ends = weeks.prints
    known = [
        np.concatenate([prints[:, week - 1], comparable_curves(guess)], axis=1)
        for week, guess in zip(weeks.judged, guessed, strict=True)
    ]
    day = weeks.of_homes(every[0].households, usual_day(every[0]))
    averages = rows_by_rules(power, day, member, [_when(fc) for fc in every], seed)

    tell("attacking raw readings", 0.5)
    n = len(weeks.names)
    flat = [weeks.readings[week].reshape(n, -1) for week in weeks.judged]
    unique = np.mean([unique_share(one, KNOWN, WIDTH / 2, seed + i) for i, one in enumerate(flat)], axis=0)
    what = f"the one home with {KNOWN} readings that are known, each to {WIDTH:g} kW"
    findings = [share_right("singling out", RAW, what, unique, 1 / n)]
    findings += _links(RAW, [raw_scores(prints, ends, week, 1, seed) for week in weeks.judged])

    def attack(curves: Sequence[FloatArray]) -> list[dict[str, FloatArray]]:
        return [
            curve_scores(known, [comparable_curves(one) for one in curves], origin, seed)
            for origin in range(len(curves))
        ]

    tell("attacking unprotected forecasts", 0.6)
    findings += _links(FORECASTS, attack(power))
    tell("attacking averages", 0.75)
    findings += _links(AVERAGES, attack([one[member] for one in averages]), member)
    tell("attacking properties", 0.9)
    truths = weeks.properties() | read_properties(properties, weeks.names, len(weeks.judged))
    everyone = np.arange(n)
    releases = [
        Rows(RAW, tuple(weeks.level_features(week) for week in weeks.judged), everyone),
        Rows(FORECASTS, curve_features(power), everyone),
        Rows(AVERAGES, curve_features(averages), member),
    ]
    plan = noisy_crowds_plan(n, EPSILON, typical_kw=max(float(np.mean(np.abs(power))), LEAST))
    exported = [np.maximum(one, 0.0) for one in power]
    for what, truth in truths.items():
        for one in releases:
            findings += infer(one, truth, what, seed=seed)
        vectors = [home_vectors(check_curves(one, plan), plan) for one in exported[:1]]
        findings += infer_among_all(vectors, plan.account, truth[:1], f"{what}; {INSIDER}", seed=seed)
    findings += infer_steps(Rows(AVERAGES, (averages[0],), member), power[:1], seed)
    about = (
        f"{n} homes, a reading every {own.step // timedelta(minutes=1)} minutes from {weeks.days[0]} to "
        f"{weeks.days[1]}; releases of {horizon} steps at {len(power)} origins, a week apart. Averages: "
        f"{int(member.max()) + 1} crowds of at least {crowd}."
    )
    return Study(about, n, tuple(findings), ASSUMED, NOT_LOOKED_AT, weeks.left_out)


def rows_by_rules(
    power: Sequence[FloatArray],
    day: FloatArray,
    member: NDArray[np.int64],
    when: Sequence[tuple[tuple[int, ...], NDArray[np.int64]]],
    seed: int,
) -> list[FloatArray]:
    """(crowds, k) rows of a series by the rules of averages, with seeded offsets; for one withheld, the mean of all.

    ``when`` has each release's instants and its columns of the usual ``day``.
    """
    draw, watts = np.random.default_rng(seed), in_units(day, WATTS)
    of_all = Fraction(int(np.abs(watts).sum()), watts.size)
    inside = members_at(member)
    crowds = [begin_loads(watts[at], of_all, lambda n: int(draw.integers(n))) for at in inside]
    released = []
    for today, (instants, phase) in zip(power, when, strict=True):
        figures, rows = in_units(today, WATTS), np.full((len(inside), today.shape[1]), np.nan)
        for c, at in enumerate(inside):
            step = next_loads(crowds[c], figures[at], np.ones(len(at), dtype=np.bool_), instants, phase)
            crowds[c] = step.crowd
            if step.row is not None:
                rows[c] = step.row
        released.append(np.where(np.isfinite(rows), rows, np.nanmean(rows, axis=0)))
    return released


def _when(fc: Forecasts) -> tuple[tuple[int, ...], NDArray[np.int64]]:
    """The instants of a forecast, and their columns of the usual day."""
    minutes = fc.timestamps.dt.epoch("s") // 60
    return tuple(minutes.to_list()), phases(fc.timestamps, "day", fc.step)


def curve_features(curves: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Curves as an attacker on properties compares them: by shares of power, and with the same row at all origins."""
    logs = [comparable_curves(one) for one in curves]
    usual = np.mean(logs, axis=0)
    return tuple(np.concatenate([one, one - usual], axis=1) for one in logs)


def infer_steps(rows: Rows, power: Sequence[FloatArray], seed: int) -> list[Finding]:
    """What each figure of a row tells about the same figure of its members: above or below that of most."""
    figures, own = np.concatenate(rows.values, axis=1), np.concatenate(power, axis=1)
    names = [f"step {step % own.shape[1] + 1}" for step in range(own.shape[1])]
    one = Rows(rows.release, (figures,), rows.member)
    return infer_columns(one, above_middle(own), names, OWN_FIGURE, features="own", seed=seed)[:1]


def read_properties(source: Any, names: Sequence[str], origins: int) -> dict[str, FloatArray]:
    """Property -> (origins, n) 1 for homes with the most common text of a column, 0 for others, NaN where it is empty.

    >>> import polars as pl
    >>> table = pl.DataFrame({"household": ["a", "b", "c"], "heating": ["gas", "gas", "oil"]})
    >>> read_properties(table, ["b", "c", "d"], 1)
    {"heating is 'gas'": array([[ 1.,  0., nan]])}
    """
    if source is None:
        return {}
    source = read_frame(source, "properties")
    if "household" not in source.columns:
        raise InputError("properties: a column household is needed, with the names that the readings have")
    named = pl.DataFrame({"household": pl.Series(names, dtype=pl.String)})
    table = source.with_columns(pl.col("household").cast(pl.String)).unique("household", keep="none")
    wide = named.join(table, on="household", how="left", maintain_order="left")
    texts = [name for name, kind in wide.schema.items() if kind in (pl.String, pl.Categorical) and name != "household"]
    found = {}
    for name in texts:
        column = wide[name].cast(pl.String)
        values = column.drop_nulls().value_counts(sort=True)
        if 2 <= len(values) <= MOST_TEXTS:
            most = sorted(values.filter(pl.col("count") == values["count"].max())[name])[0]
            truth = (column == most).cast(pl.Float64).to_numpy()
            found[f"{name} is {most!r}"] = np.tile(truth, (origins, 1))
    if not found:
        raise InputError(f"properties: no column has 2 to {MOST_TEXTS} different texts for these homes")
    return found


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

    def properties(self) -> dict[str, FloatArray]:
        """What the readings themselves say of homes, (origins, n): absence on the day before, and the level of use."""
        days = np.concatenate([week.mean(axis=2) for week in self.readings], axis=1)
        away = [days[:, 7 * week - 1] < AWAY * np.median(days[:, : 7 * week], axis=1) for week in self.judged]
        level = np.tile(above_middle(days.mean(axis=1)), (len(self.judged), 1))
        return {
            f"absence: less than {AWAY:.0%} of the usual use on the day before": np.array(away, dtype=np.float64),
            "level: mean use above that of most homes": level,
        }

    def level_features(self, week: int) -> FloatArray:
        """(homes, f) what the readings of the week before one say: its fingerprint, and levels of its last day."""
        days = self.readings[week - 1].mean(axis=2) + LEAST
        level = np.log(np.stack([days[:, -1], days.mean(axis=1), days[:, -1] / np.median(days, axis=1)], axis=1))
        return np.concatenate([self.prints[0][:, week - 1], level], axis=1)

    def of_homes(self, households: Sequence[str], values: FloatArray) -> FloatArray:
        """The rows of the homes of this study, in its order."""
        place = {name: number for number, name in enumerate(households)}
        return np.asarray(values[[place[name] for name in self.names]])

    @cached_property
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


def _links(
    release: str, scores: Sequence[Mapping[str, FloatArray]], member: NDArray[np.int64] | None = None
) -> list[Finding]:
    """Findings from every attacker's scores at all origins; inside crowds of identical rows, a guess bounds them."""
    findings = []
    n = len(next(iter(scores[0].values())))
    for attacker in scores[0]:
        every = [one[attacker] for one in scores]
        found = np.mean([rank_rows(one)[0] for one in every], axis=0)
        what = f"the row of a home of which one week is known ({attacker})"
        findings.append(share_right("linkability", release, what, found, 1 / n))
    if member is not None:
        guess = float((1 / np.bincount(member)[member]).mean())
        found = np.mean([rank_rows(inside_crowds(one, member))[0] for one in every], axis=0)
        what = f"the home behind a row, its crowd and one week being known ({attacker})"
        findings.append(share_right("singling out", release, what, found, guess, guess))
    return findings
