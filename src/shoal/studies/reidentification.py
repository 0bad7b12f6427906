"""Could somebody find a household in this? An attacker who knows a home's week looks for it in later data.

At several origins, a week apart, everything that might leave is made of the same homes: the readings of the week that
follows, unprotected forecasts, and releases of them under white noise, the paper's method, crowds and codebooks. The
attackers (:mod:`shoal.studies.attackers`) know the weeks before the origin of one home: what they are like, and what
one would forecast from them. They learn from other homes at other origins than those they are judged on. One more knows
every forecast and the mechanism. Two questions are put: which of all rows is the home's, and, told who is in its crowd,
which row of the crowd is. The second has a bound: rows of one crowd's mean are the same, so that a guess is all
there is, and a method has its certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.accounting.risk import named_in_group
from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.crowds import means
from shoal.laws.graph import NeighborGraph
from shoal.laws.membership import formed
from shoal.mechanism.codebook import codebook
from shoal.mechanism.mechanism import Mechanism
from shoal.records import plain
from shoal.rounding import percent
from shoal.sources.meters.forecast import forecast
from shoal.sources.meters.neighborhoods import likeness
from shoal.sources.meters.quality import Readings, as_readings
from shoal.studies.attackers import (
    Boosted,
    Comparison,
    Hits,
    Table,
    curves,
    fingerprint,
    posterior,
    ranked,
    scored,
    weekly,
)
from shoal.studies.pictures import reidentification_picture, saved
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
DAY = timedelta(days=1)
#: Least share of a home's readings that must be there.
OBSERVED = 0.95
#: Sizes of crowds beside the one that is asked for; weeks known beside one; rows of tables beside all.
SIZES, WEEKS, ROWS = (5, 20, 40), (2, 4), (10, 30, 100, 300)
#: Crowds above it are released as their own curve only: codebooks of so many labels take minutes.
BOOKS = 12
#: Columns of every table.
NAMED = ("named at once (95 % interval)", "among ten (95 % interval)")
#: How often homes are cut into those an attacker learns from and those it is judged on.
FOLDS = 4
#: Attackers by name.
OWN, EXPECTED = "own forecast, one covariance", "expected curve, one covariance"
FEATURES, PROFILE = "features, one covariance", "nearest profile"
LEARNED, INFORMED = "gradient boosting on pairs", "knows all forecasts and the mechanism"
#: Least power told apart from none in a released curve, kW.
LEAST = 1e-3


# ------------------------------------------------------------------ what leaves


@dataclass(frozen=True)
class Release:
    """What left at all origins: rows (homes, k) of each, the crowd of every home, and what bounds naming inside it.

    ``likelihoods`` (homes, rows) of each origin are the logarithms of how likely a row is of a home of its crowd, up to
    what all homes of the crowd share: what somebody who knows everything else would go by.
    """

    name: str
    rows: tuple[FloatArray, ...]
    crowds: NDArray[np.int64] | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    rmse: float = 0.0
    likelihoods: tuple[FloatArray, ...] = ()

    def at(self, origins: Sequence[int]) -> Release:
        """What left at some of the origins."""
        rows, likelihoods = (tuple(one[o] for o in origins) if one else () for one in (self.rows, self.likelihoods))
        return replace(self, rows=rows, likelihoods=likelihoods)


@dataclass(frozen=True)
class Ways:
    """Everything that might leave of the same homes, whose crowds are for life, as a run forms and uses them."""

    names: Sequence[str]
    power: Sequence[FloatArray]  #: (homes, k) kW at every origin
    likeness: FloatArray  #: (homes, d) what crowds are formed by, at the first origin
    epsilon: float
    delta: float
    book_epsilon: float
    seed: int

    def all(self, crowd: int) -> list[Release]:
        """Forecasts without protection, and releases of them of every kind."""
        plain = Release("unprotected forecasts", tuple(shown(one) for one in self.power))
        return [plain, *self.noisy(crowd), self.means(crowd), self.books(crowd)]

    def crowds(self, crowd: int) -> NDArray[np.int64]:
        """(homes,) the crowd of each home, for all origins."""
        return formed(self.likeness, crowd, beside=self.power[0])

    def means(self, crowd: int) -> Release:
        """The default of a run: the mean of each crowd. All its rows are the same, so that nobody beats a guess."""
        crowds = self.crowds(crowd)
        rows = [means(answers, crowds)[crowds] for answers in self.power]
        nothing = tuple(np.zeros((len(crowds), len(crowds))) for _ in rows)
        return Release("crowds", tuple(shown(one) for one in rows), crowds, 0.0, 0.0, self._rmse(rows), nothing)

    def noisy(self, crowd: int) -> list[Release]:
        """White noise at (ε, δ), and the paper's method at the same largest error."""
        crowds = self.crowds(crowd)
        graph = NeighborGraph.within_groups(self.names, crowds.tolist())
        drawn: dict[str, list[tuple[FloatArray, FloatArray, float]]] = {"white noise": [], "the paper's method": []}
        for number, answers in enumerate(self.power):
            classes = GaussianClasses.deterministic(answers, labels=list(self.names))
            white = calibrate(classes, graph, method="white", epsilon=self.epsilon, delta=self.delta, scope="table")
            paper = design(classes, graph, "paper", epsilon=self.epsilon, rho=float(white.rho.max()), scope="table")
            deltas = self.delta, paper.certificate.delta_upper
            for way, mechanism, delta in zip(drawn.values(), (white, paper), deltas, strict=True):
                rows = noisy(mechanism, answers, self.seed + number)
                way.append((rows, gaussian(mechanism, rows, crowds), delta))
        return [
            Release(name, rows, crowds, self.epsilon, max(deltas), self._rmse(rows), likelihoods)
            for name, (rows, likelihoods, deltas) in ((n, zip(*way, strict=True)) for n, way in drawn.items())
        ]

    def books(self, crowd: int) -> Release:
        """A codebook at its ε, δ = 0."""
        crowds, draw = self.crowds(crowd), np.random.default_rng(self.seed)
        graph = NeighborGraph.within_groups(self.names, crowds.tolist())
        rows, likelihoods = [], []
        for answers in self.power:
            book = codebook(answers, graph, epsilon=self.book_epsilon, labels=self.names, scope="table")
            odds = [book.probabilities(name) for name in self.names]
            drawn = np.array([draw.choice(len(one), p=one / one.sum()) for one in odds])
            rows.append(np.stack([book.curves(name)[y] for name, y in zip(self.names, drawn, strict=True)]))
            likelihood = np.zeros((len(crowds), len(crowds)))
            for members in (np.flatnonzero(crowds == one) for one in np.unique(crowds)):
                likelihood[np.ix_(members, members)] = np.log([odds[i][drawn[members]] for i in members])
            likelihoods.append(likelihood)
        name = f"codebooks, ε = {self.book_epsilon:g}"
        curves = tuple(shown(one) for one in rows)
        return Release(name, curves, crowds, self.book_epsilon, 0.0, self._rmse(rows), tuple(likelihoods))

    def _rmse(self, rows: Sequence[FloatArray]) -> float:
        off = np.concatenate([one - answers for one, answers in zip(rows, self.power, strict=True)])
        return float(np.sqrt((off**2).mean()))


def shown(kw: FloatArray) -> FloatArray:
    """Curves as attackers compare them: differences are shares of power."""
    return np.asarray(np.log(np.maximum(kw, LEAST)))


def noisy(mechanism: Mechanism, answers: FloatArray, seed: int) -> FloatArray:
    """Answers with seeded noise, label by label."""
    draws = np.random.default_rng(seed).integers(0, 2**31, len(answers))
    rows = [
        np.asarray(mechanism.sample(answer, name, seed=int(number)))
        for answer, name, number in zip(answers, mechanism.classes.labels, draws, strict=True)
    ]
    return np.stack(rows)


def gaussian(mechanism: Mechanism, rows: FloatArray, groups: NDArray[np.int64]) -> FloatArray:
    """(homes, rows) log-likelihoods of noisy rows inside groups, 0 elsewhere."""
    laws = mechanism.output
    matrix = np.zeros((len(rows), len(rows)))
    for i, (mean, group) in enumerate(zip(laws.means, groups, strict=True)):
        members = np.flatnonzero(groups == group)
        root = np.linalg.cholesky(laws.covs[min(i, len(laws.covs) - 1)])
        off = np.linalg.solve(root, (rows[members] - mean).T)
        matrix[i, members] = -0.5 * (off**2).sum(axis=0) - np.log(np.diag(root)).sum()
    return matrix


# ------------------------------------------------------------------ what is found in it


@dataclass(frozen=True)
class AttackFinding:
    """One attacker on one kind of data: hits among all rows and inside the crowd, what bounds them there, the error."""

    what: str
    attacker: str
    everywhere: Hits
    inside: Hits | None
    bound: float | None
    rmse: float
    crowd: int | None = None
    weeks: int = 1
    rows: int | None = None  #: of the table, where not all are in it

    @property
    def exceeds(self) -> bool:
        """Whether the attacker was right more often than the bound, beyond its interval."""
        return self.inside is not None and self.bound is not None and self.inside.top_1_interval[0] > self.bound


@dataclass(frozen=True)
class Reidentification:
    """All findings of a study."""

    homes: int
    days: tuple[str, str]  #: the first and the last day of the readings
    origins: tuple[str, ...]
    epsilon: float
    delta: float
    crowd: int
    findings: tuple[AttackFinding, ...]
    by_rows: tuple[AttackFinding, ...]
    by_size: tuple[AttackFinding, ...]
    by_weeks: tuple[AttackFinding, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)  #: reason -> homes that could not be used

    @property
    def exceeded(self) -> tuple[AttackFinding, ...]:
        """Findings above their bound; there must be none."""
        return tuple(one for one in (*self.findings, *self.by_size, *self.by_weeks) if one.exceeds)

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
        tables: Sequence[tuple[str, Sequence[AttackFinding], Callable[[AttackFinding], int], int]] = (
            ("", self.findings, lambda one: 0, 3),
            ("rows of the table", self.by_rows, lambda one: one.rows or self.homes, 0),
            ("crowd", self.by_size, lambda one: one.crowd or 0, 3),
            ("weeks known", self.by_weeks, lambda one: one.weeks, 2),
        )
        ends = ("inside the crowd", "bound", "error, kW")
        parts = [head]
        for first, findings, number, more in tables:
            heads = [first, "what leaves", "attacker", *NAMED, *ends[:more]]
            rows = [[str(number(f)), f.what, f.attacker, *_named(f), *_hidden(f)[:more]] for f in findings]
            skip = 0 if first else 1
            parts.append(_table(heads[skip:], [row[skip:] for row in rows]))
        return "\n\n".join(parts)

    def save(self, out: str | Path) -> list[Path]:
        """Write the tables, the numbers and, where matplotlib is there, the picture; returns the files."""
        return saved(self, "reidentify", {"": reidentification_picture}, out)


def reidentify(
    readings: Any,
    *,
    crowd: int = 10,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    book_epsilon: float = 3.0,
    order: tuple[int, int] = (6, 5),
    train_days: int = 15,
    horizon: int = 12,
    origins: int = 4,
    learned: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Reidentification:
    """Look for homes in what leaves, before and after protection.

    Args:
        readings: a frame of readings or what :func:`shoal.read_meters` gives; at least five weeks, of which the last
            are used. Homes with gaps or without a forecast are left out and counted in ``left_out``.
        crowd: homes of a crowd, at least.
        epsilon: with ``delta``, the guarantee of whoever holds the table, for white noise and for crowds.
        book_epsilon: ε of the codebook, for the table.
        order, train_days, horizon: of the forecasts.
        origins: weeks that are looked at, the last ones.
        learned: let gradient boosting attack as well.
        seed: of folds and of all noise; nothing here is released.
        progress: called with what is happening and the share that is done.

    Returns:
        The findings; ``print`` shows them as tables, ``save`` writes them.

    >>> import shoal
    >>> readings = shoal.simulate_meters(24, 37, step_minutes=60)
    >>> study = shoal.reidentify(readings, crowd=6, order=(1, 1), train_days=14, horizon=4, origins=2, learned=False)
    >>> study.homes, study.exceeded
    (24, ())
    """
    crowd = validation.count(at_least=2, crowd=crowd)
    origins = validation.count(at_least=2, origins=origins)
    tell = progress or (lambda text, share: None)
    tell("reading weeks", 0.0)
    own = as_readings(readings)
    first = -(-train_days // 7)
    names, weeks, starts, gaps = _weeks(own, max(first, *WEEKS) + origins)
    judged = list(range(max(first, len(weeks) - origins), len(weeks)))
    if len(judged) < 2:
        raise InputError("readings: two origins are needed, after the days of training; give more weeks")
    incomplete = {f"with less than {OBSERVED:.0%} of the readings": gaps} if gaps else {}
    _demand(names, crowd, incomplete)
    reach = [count for count in (1, *WEEKS) if sum(week >= count for week in judged) >= 2]
    late = [number for number, week in enumerate(judged) if week >= reach[-1]]

    # Every forecast that anybody makes here: by days of training and week.
    wanted = [(train_days, week) for week in judged] + [(7, week) for week in judged if train_days > 7]
    wanted += [(7 * count, judged[n]) for count in reach[1:] if 7 * count < train_days for n in late]
    forecast_by: dict[tuple[int, int], dict[str, FloatArray]] = {}
    alike: dict[str, FloatArray] = {}
    for number, (days, week) in enumerate(wanted):
        tell(f"forecasting from {days} days", 0.05 + 0.4 * number / len(wanted))
        fc = forecast(own, order=order, train_days=days, horizon=horizon, season="day", origin=starts[week])
        forecast_by[days, week] = dict(zip(fc.households, fc.power, strict=True))
        alike = alike or dict(zip(fc.households, likeness(fc), strict=True))
    usable = np.array([all(name in power for power in forecast_by.values()) for name in names], dtype=bool)
    left_out = incomplete if usable.all() else {**incomplete, "without a forecast": int((~usable).sum())}
    names = tuple(name for name, there in zip(names, usable, strict=True) if there)
    _demand(names, crowd, left_out)
    printed = [fingerprint(week[usable], weekend) for week, weekend in weeks]
    prints, ends = np.stack([one for one, _ in printed], axis=1), printed[0][1]

    def forecasts(at: Sequence[int], days: int) -> list[FloatArray]:
        """(homes, k) kW at every origin, learned from so many days before it."""
        return [np.stack([forecast_by[days, week][name] for name in names]) for week in at]

    def knowledge(at: Sequence[int], count: int) -> list[FloatArray]:
        """(homes, f + k) what so many weeks before each origin say: fingerprints, and what one would forecast."""
        curve = forecasts(at, train_days if 7 * count >= train_days else 7 * count)
        prints_of = [prints[:, week - count : week].mean(axis=1) for week in at]
        return [np.concatenate([one, shown(c)], axis=1) for one, c in zip(prints_of, curve, strict=True)]

    power = forecasts(judged, train_days)
    known = knowledge(judged, 1)
    ways = Ways(names, power, np.stack([alike[name] for name in names]), epsilon, delta, book_epsilon, seed)
    every = ways.all(crowd)
    findings, by_rows = _raw(prints, ends, judged, 1, seed, learned)
    for number, release in enumerate(every):
        tell(f"attacking {release.name}", 0.45 + 0.2 * number / len(every))
        attack, fewer = _attacked(release, known, seed, learned)
        findings += attack
        by_rows += fewer
    by_size = []
    for size in sorted({*SIZES, crowd}):
        if 2 * size > len(names):
            continue
        tell(f"crowds of {size}", 0.7)
        for release in (ways.means(size), *([ways.books(size)] if size <= BOOKS else [])):
            by_size += [replace(one, crowd=size) for one in _strongest(_attacked(release, known, seed, False)[0])]
    by_weeks = []
    for count in reach:
        tell(f"{count} week(s) known", 0.85)
        at = [judged[number] for number in late]
        more = [known[number] for number in late] if count == 1 else knowledge(at, count)
        attack = _raw(prints, ends, at, count, seed, learned)[0]
        by_weeks += _strongest(attack)
        for release in every:
            attack = _strongest(_attacked(release.at(late), more, seed, learned and release.crowds is None)[0])
            by_weeks += [replace(one, weeks=count) for one in attack if one.attacker != INFORMED]
    return Reidentification(
        len(names),
        (starts[0].date().isoformat(), (starts[-1] + timedelta(days=6)).date().isoformat()),
        tuple(starts[week].isoformat() for week in judged),
        epsilon,
        delta,
        crowd,
        tuple(findings),
        tuple(by_rows),
        tuple(by_size),
        tuple(by_weeks),
        left_out,
    )


def _demand(names: Sequence[str], crowd: int, left_out: Mapping[str, int]) -> None:
    """Refuse what is too small for two crowds."""
    if len(names) < 2 * crowd:
        reasons = "".join(f"; {count} {reason}" for reason, count in left_out.items())
        raise InputError(f"readings: {len(names)} homes can be used, which is too few for crowds of {crowd}{reasons}")


def _weeks(
    own: Readings, most: int
) -> tuple[tuple[str, ...], list[tuple[FloatArray, NDArray[np.bool_]]], list[datetime], int]:
    """Homes with nearly all readings of the last ``most`` weeks, and how many have not.

    Weeks are (n, 7, steps a day) with their weekends; last but one come the instants at which they begin.
    """
    stamps: Any = own.frame["timestamp"]
    begin = stamps.min()
    steps = DAY // own.step
    last = stamps.max() + own.step
    count = (last - begin) // timedelta(days=7)
    if count < 3:
        raise InputError("readings: at least three whole weeks are needed")
    begin += timedelta(days=7 * max(count - most, 0))
    start = int(stamps.dt.epoch("us").min()) + int(timedelta(days=7 * max(count - most, 0)) / timedelta(microseconds=1))
    count = min(count, most)
    whole = own.cut(start, count * 7 * steps)
    enough = np.isfinite(whole.kw).mean(axis=1) >= OBSERVED
    kw = _filled(whole.kw[enough], steps)
    names = tuple(name for name, there in zip(whole.households, enough, strict=True) if there)
    weeks, starts = [], []
    for number in range(count):
        part = kw[:, number * 7 * steps : (number + 1) * 7 * steps].reshape(len(names), 7, steps)
        days = [begin + timedelta(days=7 * number + day) for day in range(7)]
        weekend = np.array([day.weekday() >= 5 for day in days])
        weeks.append((part, weekend))
        starts.append(whole.timestamps[number * 7 * steps])
    return names, weeks, starts, int((~enough).sum())


def _filled(kw: FloatArray, steps: int) -> FloatArray:
    """Missing readings as the home's mean at that time of day."""
    n = len(kw)
    by_time = np.nanmean(kw.reshape(n, -1, steps), axis=1)
    usual = np.tile(np.where(np.isfinite(by_time), by_time, np.nanmean(by_time)), kw.shape[1] // steps)
    return np.where(np.isfinite(kw), kw, usual)


def _raw(
    prints: FloatArray, ends: Sequence[int], judged: Sequence[int], weeks: int, seed: int, learned: bool
) -> tuple[list[AttackFinding], list[AttackFinding]]:
    """Attackers on the readings of the week that follows, among all rows and among fewer.

    They learn from other homes, for each other week from the weeks next to it, the judged one never among them.
    """
    count = prints.shape[1]

    def tables(week: int, others: NDArray[np.int64]) -> list[Table]:
        learned_from = []
        for later in (w for w in range(count) if w != week):
            apart = np.abs(np.arange(count) - later) + np.where(np.isin(range(count), (later, week)), count, 0)
            near = np.argsort(apart, kind="stable")[:weeks]
            learned_from.append((prints[others][:, near].mean(axis=1), prints[others, later]))
        return learned_from

    at = [(prints[:, week - weeks : week].mean(axis=1), prints[:, week], partial(tables, week)) for week in judged]
    scores = _scores(at, partial(weekly, ends=ends), (FEATURES, PROFILE), seed, learned)
    return _found(Release("raw readings", tuple(prints[:, week] for week in judged)), scores, weeks)


def _attacked(
    release: Release, known: Sequence[FloatArray], seed: int, learned: bool
) -> tuple[list[AttackFinding], list[AttackFinding]]:
    """Every attacker on a release: all rows, those of the home's own crowd, and tables of fewer rows."""

    def tables(judged: int, others: NDArray[np.int64]) -> list[Table]:
        return [(known[o][others], release.rows[o][others]) for o in range(len(known)) if o != judged]

    at = [(known[o], release.rows[o], partial(tables, o)) for o in range(len(known))]
    scores = _scores(at, curves, (OWN, EXPECTED), seed, learned)
    if release.crowds is not None:
        scores[INFORMED] = [_informed(release.crowds, likelihood) for likelihood in release.likelihoods]
    return _found(release, scores, 1)


def _scores(
    at: Sequence[tuple[FloatArray, FloatArray, Callable[[NDArray[np.int64]], list[Table]]]],
    compare: Callable[[Sequence[Table]], list[Comparison]],
    names: Sequence[str],
    seed: int,
    learned: bool,
) -> dict[str, list[FloatArray]]:
    """Attacker -> its (homes, rows) scores at every origin, each home judged by who learned from the homes of others.

    ``at`` has for each origin what is known of the homes, their rows, and the tables to learn from some of them.
    """
    scores: dict[str, list[FloatArray]] = {}
    for known, rows, tables in at:
        n = len(known)
        whole: dict[str, FloatArray] = {}
        for fold in np.array_split(np.random.default_rng(seed).permutation(n), FOLDS):
            learned_from = tables(np.setdiff1d(np.arange(n), fold))
            attackers: dict[str, Comparison | Boosted] = dict(zip(names, compare(learned_from), strict=False))
            if learned:
                attackers[LEARNED] = Boosted(compare, seed).learned(learned_from)
            for name, attacker in attackers.items():
                whole.setdefault(name, np.empty((n, n)))[fold] = scored(attacker, known[fold], rows)
        for name, matrix in whole.items():
            scores.setdefault(name, []).append(matrix)
    return scores


def _informed(crowds: NDArray[np.int64], likelihood: FloatArray) -> FloatArray:
    logs = np.full(likelihood.shape, -np.inf)
    for members in (np.flatnonzero(crowds == crowd) for crowd in np.unique(crowds)):
        logs[np.ix_(members, members)] = posterior(likelihood[np.ix_(members, members)])
    return logs


def _found(
    release: Release, scores: Mapping[str, Sequence[FloatArray]], weeks: int
) -> tuple[list[AttackFinding], list[AttackFinding]]:
    """What every attacker's scores at all origins come to; of what is not protected, in tables of fewer rows too."""

    def hits(every: Sequence[FloatArray], rows: int | None = None) -> Hits:
        return Hits.of(*(np.stack(part) for part in zip(*(ranked(one, rows) for one in every), strict=True)))

    whole = []
    for name, every in scores.items():
        inside, bound = None, None
        if release.crowds is not None:
            same = release.crowds[:, None] == release.crowds[None]
            inside = hits([np.where(same, score, -np.inf) for score in every])
            sizes = same.sum(axis=1).tolist()
            bound = float(np.mean([named_in_group(m, release.epsilon, release.delta) for m in sizes]))
        whole.append(AttackFinding(release.name, name, hits(every), inside, bound, release.rmse, weeks=weeks))
    fewer = []
    for one in _strongest(whole) if release.crowds is None else []:
        every = scores[one.attacker]
        fewer += [replace(one, everywhere=hits(every, m), rows=m) for m in ROWS if m < len(every[0])]
        fewer.append(one)
    return whole, fewer


def _strongest(findings: Sequence[AttackFinding]) -> list[AttackFinding]:
    """The plain attacker who names most, the learned one, and whoever knows everything."""
    plain = [one for one in findings if one.attacker not in (LEARNED, INFORMED)]
    rest = [one for one in findings if one.attacker in (LEARNED, INFORMED)]
    return [max(plain, key=lambda one: one.everywhere.top_1), *rest]


def _share(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"


def _named(one: AttackFinding) -> list[str]:
    hits = one.everywhere
    return [_share(hits.top_1, hits.top_1_interval), _share(hits.top_10, hits.top_10_interval)]


def _hidden(one: AttackFinding) -> list[str]:
    if one.inside is None or one.bound is None:
        return ["", "none", f"{one.rmse:.3f}"]
    return [_share(one.inside.top_1, one.inside.top_1_interval), f"≤ {percent(one.bound)}", f"{one.rmse:.3f}"]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))
