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
from numpy.typing import NDArray

from shoal import validation
from shoal.crowds.loads import NANOWATTS, new_load_crowd, next_load_row
from shoal.crowds.membership import form_crowds
from shoal.crowds.rules import add_units, to_units
from shoal.crowds.tables import rows_by_crowd
from shoal.errors import InputError
from shoal.product.sources.meters.crowd_points import likeness_points, usual_day
from shoal.product.sources.meters.forecast import forecast
from shoal.product.sources.meters.predictive_laws import Forecasts, phase_numbers
from shoal.product.sources.meters.quality import Readings, as_readings
from shoal.product.studies import attackers, inference
from shoal.product.studies.attackers import Table
from shoal.product.studies.findings import Finding, Study, isolation_chances, share_finding
from shoal.product.studies.inference import ReleasedRows
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
#: Makes further attackers, by name, from the tables of other homes.
More = Callable[[Sequence[Table]], Mapping[str, attackers.Attacker]]
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
OWN_FIGURE = "whether a member's own figure is above that of most homes, by the row's"
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
    weeks = Weeks.of_readings(own, -(-train_days // 7), origins, crowd)
    # What is released is forecast from all days of training; the attacker forecasts from the week that it knows.
    wanted = [(days, week) for days in (train_days, min(7, train_days)) for week in weeks.judged]
    made = {}
    for number, (days, week) in enumerate(wanted):
        tell(f"forecasting from {days} days", 0.05 + 0.4 * number / len(wanted))
        made[days, week] = forecast(own, order, days, horizon, "day", weeks.starts[week])
    weeks = weeks.with_forecasts([fc.households for fc in made.values()], crowd)
    rows = {at: weeks.rows_of_homes(fc.households, fc.power) for at, fc in made.items()}
    power, guessed = ([rows[days, week] for week in weeks.judged] for days in (train_days, min(7, train_days)))
    every = [made[train_days, week] for week in weeks.judged]
    points, day = (weeks.rows_of_homes(every[0].households, of(every[0])) for of in (likeness_points, usual_day))
    member = form_crowds(points, crowd, beside=power[0], seed=seed)
    fingerprints, ends = weeks.fingerprints
    before = [fingerprints[:, week - 1] for week in weeks.judged]
    known = [np.concatenate([one, log_curves(guess)], axis=1) for one, guess in zip(before, guessed, strict=True)]
    averages = rehearse_averages(power, day, member, [_instants_and_phases(fc) for fc in every], seed)

    tell("attacking raw readings", 0.5)
    n = len(weeks.names)
    flat = [weeks.readings[week].reshape(n, -1) for week in weeks.judged]
    unique = np.mean([isolation_chances(one, KNOWN, WIDTH / 2, seed + i) for i, one in enumerate(flat)], axis=0)
    what = f"the one home with {KNOWN} readings that are known, each to {WIDTH:g} kW"
    findings = [share_finding("singling out", RAW, what, unique, 1 / n)]
    findings += _link_findings(RAW, [raw_scores(fingerprints, ends, week, 1, seed) for week in weeks.judged])

    shown = {FORECASTS: power, AVERAGES: [one[member] for one in averages]}
    for share, (release, curves) in zip((0.6, 0.75), shown.items(), strict=True):
        tell(f"attacking {release}", share)
        logs = [log_curves(one) for one in curves]
        scores = [curve_scores(known, logs, origin, seed) for origin in range(len(logs))]
        findings += _link_findings(release, scores, member if release == AVERAGES else None)
    tell("attacking properties", 0.9)
    releases = [
        ReleasedRows(RAW, tuple(weeks.level_features(week) for week in weeks.judged), np.arange(n)),
        ReleasedRows(FORECASTS, curve_features(power), np.arange(n)),
        ReleasedRows(AVERAGES, curve_features(averages), member),
    ]
    for what, truth in weeks.facts_in_readings().items():
        for one in releases:
            findings += inference.infer_property(one, truth, what, seed=seed)
    findings += infer_figures_by_step(ReleasedRows(AVERAGES, (averages[0],), member), power[:1], seed)
    about = (
        f"{n} homes, a reading every {own.step // timedelta(minutes=1)} minutes from {weeks.days[0]} to "
        f"{weeks.days[1]}; releases of {horizon} steps at {len(power)} origins, a week apart. Averages: "
        f"{int(member.max()) + 1} crowds of at least {crowd}."
    )
    return Study(about, n, tuple(findings), ASSUMED, NOT_LOOKED_AT, weeks.left_out)


def rehearse_averages(
    power: Sequence[FloatArray],
    day: FloatArray,
    member: NDArray[np.int64],
    when: Sequence[tuple[tuple[int, ...], NDArray[np.int64]]],
    seed: int,
) -> list[FloatArray]:
    """(crowds, k) rows of each release by the rules of averages, with seeded offsets; the mean where withheld.

    ``when`` has each release's instants and its columns of the usual ``day``.
    """
    draw, usual = np.random.default_rng(seed), to_units(day, NANOWATTS)
    of_all = Fraction(int(add_units(np.abs(usual).ravel())), usual.size)
    inside = rows_by_crowd(member)
    crowds = [new_load_crowd(usual[at], of_all, lambda n: int(draw.integers(n))) for at in inside]
    released = []
    for today, (instants, phase) in zip(power, when, strict=True):
        figures, rows = to_units(today, NANOWATTS), np.full((len(inside), today.shape[1]), np.nan)
        for c, at in enumerate(inside):
            step = next_load_row(crowds[c], figures[at], np.ones(len(at), dtype=np.bool_), instants, phase)
            crowds[c] = step.crowd
            if step.row is not None:
                rows[c] = step.row
        released.append(np.where(np.isfinite(rows), rows, np.nanmean(rows, axis=0)))
    return released


def _instants_and_phases(fc: Forecasts) -> tuple[tuple[int, ...], NDArray[np.int64]]:
    """Instants of a forecast in minutes of the epoch, and their columns of the usual day."""
    minutes = fc.timestamps.dt.epoch("s") // 60
    return tuple(minutes.to_list()), phase_numbers(fc.timestamps, "day", fc.step)


def curve_features(curves: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Features of curves for attacks on properties: log curves, and their difference from the mean over origins."""
    logs = [log_curves(one) for one in curves]
    usual = np.mean(logs, axis=0)
    return tuple(np.concatenate([one, one - usual], axis=1) for one in logs)


def infer_figures_by_step(rows: ReleasedRows, power: Sequence[FloatArray], seed: int) -> list[Finding]:
    """Findings on what each figure of a row tells about the same figure of its members: above that of most or not."""
    figures, own = np.concatenate(rows.values, axis=1), np.concatenate(power, axis=1)
    names = [f"step {step % own.shape[1] + 1}" for step in range(own.shape[1])]
    one = ReleasedRows(rows.release, (figures,), rows.member)
    return inference.infer_columns(one, inference.is_above_median(own), names, OWN_FIGURE, features="own", seed=seed)[
        :1
    ]


def log_curves(kw: FloatArray) -> FloatArray:
    """Logarithm of curves in kW, so that differences are shares of power."""
    return np.asarray(np.log(np.maximum(kw, LEAST)))


@dataclass(frozen=True)
class Weeks:
    """Homes with nearly all readings of some weeks, and the weeks before which an attacker stands."""

    names: tuple[str, ...]
    readings: FloatArray  #: (weeks, homes, 7, steps a day) kW
    weekend: NDArray[np.bool_]  #: (7,) which days of every week
    starts: tuple[datetime, ...]
    judged: tuple[int, ...]  #: weeks that are looked at, by number
    left_out: Mapping[str, int]  #: reason -> homes that could not be used

    @classmethod
    def of_readings(cls, own: Readings, before: int, origins: int, crowd: int, history: int = 0) -> Weeks:
        """The last ``origins`` weeks with ``before`` weeks before them, of homes with nearly all readings.

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
        whole = own.window(start, count * 7 * steps)
        enough = np.isfinite(whole.kw).mean(axis=1) >= OBSERVED
        kw = _fill_gaps(whole.kw[enough], steps).reshape(int(enough.sum()), count, 7, steps)
        gaps = int((~enough).sum())
        weeks = cls(
            tuple(name for name, there in zip(whole.households, enough, strict=True) if there),
            kw.swapaxes(0, 1),
            np.array([(begin + day * DAY).weekday() >= 5 for day in range(7)]),
            tuple(whole.timestamps[number * 7 * steps] for number in range(count)),
            tuple(range(max(before, count - origins), count)),
            {f"with less than {OBSERVED:.0%} of the readings": gaps} if gaps else {},
        )
        weeks._refuse_too_few(crowd)
        return weeks

    def with_forecasts(self, forecast: Iterable[Sequence[str]], crowd: int) -> Weeks:
        """The same weeks of the homes that are in all of these lists of homes with a forecast."""
        there = set(self.names).intersection(*forecast)
        usable = np.array([name in there for name in self.names], dtype=bool)
        without = {} if usable.all() else {"without a forecast": int((~usable).sum())}
        weeks = replace(
            self,
            names=tuple(name for name in self.names if name in there),
            readings=self.readings[:, usable],
            left_out={**self.left_out, **without},
        )
        weeks._refuse_too_few(crowd)
        return weeks

    def _refuse_too_few(self, crowd: int) -> None:
        """Raise InputError if there are too few homes for two crowds."""
        if len(self.names) < 2 * crowd:
            reasons = "".join(f"; {count} {reason}" for reason, count in self.left_out.items())
            count = len(self.names)
            raise InputError(f"readings: {count} homes can be used, which is too few for crowds of {crowd}{reasons}")

    def facts_in_readings(self) -> dict[str, FloatArray]:
        """Property -> (origins, n) 1 or 0, from the readings: absence on the day before, and level of use."""
        days = np.concatenate(self.readings.mean(axis=3), axis=1)
        away = [days[:, 7 * week - 1] < AWAY * np.median(days[:, : 7 * week], axis=1) for week in self.judged]
        level = np.tile(inference.is_above_median(days.mean(axis=1)), (len(self.judged), 1))
        return {
            f"absence: less than {AWAY:.0%} of the usual use on the day before": np.array(away, dtype=np.float64),
            "level: mean use above that of most homes": level,
        }

    def level_features(self, week: int) -> FloatArray:
        """(homes, f) features of the week before one: its fingerprint, and levels of its last day."""
        days = self.readings[week - 1].mean(axis=2) + LEAST
        level = np.log(np.stack([days[:, -1], days.mean(axis=1), days[:, -1] / np.median(days, axis=1)], axis=1))
        return np.concatenate([self.fingerprints[0][:, week - 1], level], axis=1)

    def rows_of_homes(self, households: Sequence[str], values: FloatArray) -> FloatArray:
        """Reorder rows of these households to the homes of this study."""
        place = {name: number for number, name in enumerate(households)}
        return np.asarray(values[[place[name] for name in self.names]])

    @cached_property
    def fingerprints(self) -> tuple[FloatArray, tuple[int, ...]]:
        """(homes, weeks, f) fingerprints of every week, and where their blocks end."""
        printed = [attackers.week_fingerprint(week, self.weekend) for week in self.readings]
        return np.stack([one for one, _ in printed], axis=1), printed[0][1]

    @property
    def days(self) -> tuple[str, str]:
        """Dates of the first and the last day of the readings."""
        return self.starts[0].date().isoformat(), (self.starts[-1] + 6 * DAY).date().isoformat()


def _fill_gaps(kw: FloatArray, steps: int) -> FloatArray:
    """Replace missing readings by the home's mean at that time of day."""
    n = len(kw)
    by_time = np.nanmean(kw.reshape(n, -1, steps), axis=1)
    usual = np.tile(np.where(np.isfinite(by_time), by_time, np.nanmean(by_time)), kw.shape[1] // steps)
    return np.where(np.isfinite(kw), kw, usual)


def raw_scores(
    fingerprints: FloatArray, ends: Sequence[int], judged: int, weeks: int, seed: int, more: More | None = None
) -> dict[str, FloatArray]:
    """Attacker -> its (homes, rows) scores on the readings of one week, from so many weeks before it.

    They learn from other homes, for each other week from the weeks next to it, the judged one never among them.
    """
    count, learned_from = fingerprints.shape[1], []
    for later in (week for week in range(count) if week != judged):
        distance = np.abs(np.arange(count) - later) + np.where(np.isin(range(count), (later, judged)), count, 0)
        near = np.argsort(distance, kind="stable")[:weeks]
        learned_from.append((fingerprints[:, near].mean(axis=1), fingerprints[:, later]))
    attacked = fingerprints[:, judged - weeks : judged].mean(axis=1), fingerprints[:, judged]
    return _score_by_fold(
        attacked, learned_from, partial(attackers.fingerprint_metrics, ends=ends), (FEATURES, PROFILE), seed, more
    )


def curve_scores(
    known: Sequence[FloatArray], rows: Sequence[FloatArray], judged: int, seed: int, more: More | None = None
) -> dict[str, FloatArray]:
    """Attacker -> its (homes, rows) scores on the curves of one origin; it learns from other homes at the others."""
    tables = list(zip(known, rows, strict=True))
    attacked = tables.pop(judged)
    return _score_by_fold(attacked, tables, attackers.curve_metrics, (OWN, EXPECTED), seed, more)


def _score_by_fold(
    attacked: Table,
    learned_from: Sequence[Table],
    compare: Callable[[Sequence[Table]], list[attackers.WeekMetric]],
    names: Sequence[str],
    seed: int,
    more: More | None,
) -> dict[str, FloatArray]:
    """Attacker -> its (homes, rows) scores; each home is judged by attackers who learned from other homes only."""
    known, rows = attacked
    n = len(known)
    scores: dict[str, FloatArray] = {}
    for fold in np.array_split(np.random.default_rng(seed).permutation(n), FOLDS):
        others = np.setdiff1d(np.arange(n), fold)
        tables = [(before[others], after[others]) for before, after in learned_from]
        tried: dict[str, attackers.Attacker] = dict(zip(names, compare(tables), strict=True))
        tried |= more(tables) if more is not None else {}
        for name, attacker in tried.items():
            scores.setdefault(name, np.empty((n, n)))[fold] = attackers.score_rows(attacker, known[fold], rows)
    return scores


def inside_crowds(scores: FloatArray, member: NDArray[np.int64]) -> FloatArray:
    """Scores of an attacker who knows who is in the home's crowd: other rows are out of the question."""
    return np.where(member[:, None] == member[None], scores, -np.inf)


def _link_findings(
    release: str, scores: Sequence[Mapping[str, FloatArray]], member: NDArray[np.int64] | None = None
) -> list[Finding]:
    """Findings from every attacker's scores at all origins; inside crowds of identical rows, a guess bounds them."""
    findings = []
    n = len(next(iter(scores[0].values())))
    for attacker in scores[0]:
        every = [one[attacker] for one in scores]
        found = np.mean([attackers.rank_rows(one)[0] for one in every], axis=0)
        what = f"the row of a home of which one week is known ({attacker})"
        findings.append(share_finding("linkability", release, what, found, 1 / n))
    if member is not None:
        guess = float((1 / np.bincount(member)[member]).mean())
        found = np.mean([attackers.rank_rows(inside_crowds(one, member))[0] for one in every], axis=0)
        what = f"the home behind a row, its crowd and one week being known ({attacker})"
        findings.append(share_finding("singling out", release, what, found, guess, guess))
    return findings
