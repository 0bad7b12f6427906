"""Could somebody find a household in this? An attacker who knows a home's week looks for it in later data.

At several origins, a week apart, everything that might leave is made of the same homes: the readings of the week that
follows, unprotected forecasts, and releases of them under white noise, the paper's method, crowds and codebooks. The
attackers (:mod:`shoal.studies.fingerprints`) learn from other homes at other origins than those they are judged on.
Two questions are put: which of all rows is the home's, and, told who is in its crowd, which row of the crowd is. The
second is what a certificate bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.accounting.risk import named_in_group
from shoal.classes import GaussianClasses
from shoal.codebooks.codebook import codebook
from shoal.designs.calibration import calibrate
from shoal.designs.design import design
from shoal.errors import InputError
from shoal.mechanism import Mechanism
from shoal.meters.forecast import forecast
from shoal.meters.neighborhoods import crowd_graph
from shoal.meters.window import as_readings, cut
from shoal.studies.fingerprints import FOLDS, Boosted, Expectation, Hits, fingerprint, nearest, ranked, within_metric
from shoal.studies.pictures import reidentification_picture, saved
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
DAY = timedelta(days=1)
#: Least share of a home's readings that must be there.
OBSERVED = 0.95
#: Sizes of crowds beside the one that is asked for, and weeks known beside one.
SIZES, WEEKS = (5, 20, 40), (2, 3)
#: Crowds above it are released as their own curve only: codebooks of so many labels take minutes.
BOOKS = 12


@dataclass(frozen=True)
class Release:
    """What left at all origins: rows (homes, k) of each, where homes hide, and what is promised of it."""

    name: str
    rows: tuple[FloatArray, ...]
    groups: tuple[NDArray[np.int64], ...] | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    rmse: float = 0.0


@dataclass(frozen=True)
class Finding:
    """One attacker on one kind of data: hits among all rows and inside the crowd, the certified bound, the error."""

    what: str
    attacker: str
    everywhere: Hits
    inside: Hits | None
    bound: float | None
    rmse: float
    crowd: int | None = None
    weeks: int = 1

    @property
    def exceeds(self) -> bool:
        """Whether the attacker was right more often than is certified, beyond its interval."""
        return self.inside is not None and self.bound is not None and self.inside.top_1_interval[0] > self.bound


@dataclass(frozen=True)
class Reidentification:
    """All findings of a study."""

    homes: int
    origins: tuple[str, ...]
    epsilon: float
    delta: float
    crowd: int
    findings: tuple[Finding, ...]
    by_size: tuple[Finding, ...]
    by_weeks: tuple[Finding, ...]

    @property
    def exceeded(self) -> tuple[Finding, ...]:
        """Findings above what is certified; there must be none."""
        return tuple(one for one in (*self.findings, *self.by_size) if one.exceeds)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.homes} homes, {len(self.origins)} origins from {self.origins[0]} to {self.origins[-1]}; chance "
            f"{1 / self.homes:.2%} among all rows, about {1 / self.crowd:.0%} inside a crowd of {self.crowd}.",
            "",
            "| what leaves | attacker | named at once (95 % interval) | among ten | inside the crowd | certified | "
            "error, kW |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for one in self.findings:
            inside = "" if one.inside is None else _share(one.inside.top_1, one.inside.top_1_interval)
            bound = "none" if one.bound is None else f"≤ {one.bound:.1%}"
            lines.append(
                f"| {one.what} | {one.attacker} | {_share(one.everywhere.top_1, one.everywhere.top_1_interval)} | "
                f"{one.everywhere.top_10:.1%} | {inside} | {bound} | {one.rmse:.3f} |"
            )
        lines += ["", "| crowd | what leaves | inside the crowd (95 % interval) | certified | error, kW |"]
        lines.append("| --- | --- | --- | --- | --- |")
        for one in self.by_size:
            assert one.inside is not None
            share = _share(one.inside.top_1, one.inside.top_1_interval)
            lines.append(f"| {one.crowd} | {one.what} | {share} | ≤ {one.bound:.1%} | {one.rmse:.3f} |")
        lines += [
            "",
            "| weeks known | named at once in raw readings (95 % interval) | among ten |",
            "| --- | --- | --- |",
        ]
        for one in self.by_weeks:
            share = _share(one.everywhere.top_1, one.everywhere.top_1_interval)
            lines.append(f"| {one.weeks} | {share} | {one.everywhere.top_10:.1%} |")
        return "\n".join(lines)

    def save(self, out: str | Path) -> list[Path]:
        """Write the table, the numbers and, where matplotlib is there, the picture; returns the files."""
        return saved(self, "reidentify", reidentification_picture, out)


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
        readings: a frame of readings or what :func:`shoal.read_meters` gives; at least five weeks.
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
    tell = progress or (lambda text, share: None)
    tell("reading weeks", 0.0)
    names, weeks, starts = _weeks(readings, train_days)
    if len(names) < 2 * crowd:
        raise InputError(f"readings: {len(names)} homes with complete weeks, which is too few for crowds of {crowd}")
    prints = np.stack([fingerprint(week, weekend) for week, weekend in weeks], axis=1)
    first = -(-train_days // 7)
    judged = list(range(max(first, len(weeks) - origins), len(weeks)))
    if len(judged) < 2:
        raise InputError("readings: two origins are needed, after the days of training; give more weeks")
    power = []
    for number, week in enumerate(judged):
        tell("forecasting", 0.05 + 0.2 * number / len(judged))
        made = forecast(
            readings, order=order, train_days=train_days, horizon=horizon, season="day", origin=starts[week]
        )
        row = {name: i for i, name in enumerate(made.households)}
        missing = [name for name in names if name not in row]
        if missing:
            raise InputError(f"readings: {len(missing)} home(s) have no forecast at one of the origins; leave them out")
        power.append(made.power[[row[name] for name in names]])
    known = tuple(prints[:, week - 1] for week in judged)
    every = _releases(names, power, crowd, epsilon, delta, book_epsilon, seed)
    findings = [_raw(prints, judged, 1, seed)]
    for number, release in enumerate(every):
        tell(f"attacking {release.name}", 0.3 + 0.5 * number / len(every))
        findings += _attacked(release, known, seed, learned)
    by_size = []
    for size in (*SIZES, crowd):
        if 2 * size > len(names):
            continue
        tell(f"crowds of {size}", 0.85)
        ways = ("crowds", "codebooks") if size <= BOOKS else ("crowds",)
        for release in _releases(names, power, size, epsilon, delta, book_epsilon, seed, only=ways):
            (found,) = _attacked(release, known, seed, False)
            by_size.append(Finding(**{**vars(found), "crowd": size}))
    by_weeks = [_raw(prints, judged, weeks, seed) for weeks in (1, *WEEKS) if judged[0] >= weeks]
    return Reidentification(
        len(names),
        tuple(starts[week].isoformat() for week in judged),
        epsilon,
        delta,
        crowd,
        tuple(findings),
        tuple(sorted(by_size, key=lambda one: (one.crowd or 0, one.what))),
        tuple(by_weeks),
    )


def _weeks(
    readings: Any, train_days: int
) -> tuple[tuple[str, ...], list[tuple[FloatArray, NDArray[np.bool_]]], list[datetime]]:
    """Homes with nearly all readings, their weeks (n, 7, steps a day) with weekends, and when the weeks begin."""
    own = as_readings(readings)
    stamps: Any = own.frame["timestamp"]
    begin = stamps.min()
    steps = DAY // own.step
    last = stamps.max() + own.step
    count = (last - begin) // timedelta(days=7)
    if count < 3:
        raise InputError("readings: at least three whole weeks are needed")
    start = int(stamps.dt.epoch("us").min())
    whole = cut(own, start, count * 7 * steps)
    enough = np.isfinite(whole.kw).mean(axis=1) >= OBSERVED
    kw = _filled(whole.kw[enough], steps)
    names = tuple(name for name, there in zip(whole.households, enough, strict=True) if there)
    found, starts = [], []
    for week in range(count):
        part = kw[:, week * 7 * steps : (week + 1) * 7 * steps].reshape(len(names), 7, steps)
        days = [begin + timedelta(days=7 * week + day) for day in range(7)]
        weekend = np.array([day.weekday() >= 5 for day in days])
        found.append((part, weekend))
        starts.append(whole.timestamps[week * 7 * steps])
    return names, found, starts


def _filled(kw: FloatArray, steps: int) -> FloatArray:
    """Missing readings as the home's mean at that time of day."""
    n = len(kw)
    by_time = np.nanmean(kw.reshape(n, -1, steps), axis=1)
    usual = np.tile(np.where(np.isfinite(by_time), by_time, np.nanmean(by_time)), kw.shape[1] // steps)
    return np.where(np.isfinite(kw), kw, usual)


def _raw(prints: FloatArray, judged: Sequence[int], weeks: int, seed: int) -> Finding:
    """The plain matcher on the readings of the week that follows."""
    first, ten = [], []
    for week in judged:
        known = prints[:, week - weeks : week].mean(axis=1)
        scores = np.empty((len(prints), len(prints)))
        for fold in _folds(len(prints), seed):
            others = np.setdiff1d(np.arange(len(prints)), fold)
            elsewhere = [w for w in range(prints.shape[1]) if w != week]
            metric = within_metric(prints[others][:, elsewhere])
            scores[fold] = nearest(known[fold], prints[:, week], metric)
        one, some = ranked(scores)
        first.append(one)
        ten.append(some)
    hits = Hits.of(np.concatenate(first), np.concatenate(ten))
    return Finding("raw readings", "features, one covariance", hits, None, None, 0.0, weeks=weeks)


def _releases(
    names: Sequence[str],
    power: Sequence[FloatArray],
    crowd: int,
    epsilon: float,
    delta: float,
    book_epsilon: float,
    seed: int,
    only: Sequence[str] = (),
) -> list[Release]:
    """Everything that might leave at every origin."""
    found: dict[str, list[tuple[FloatArray, NDArray[np.int64]]]] = {}
    promise: dict[str, tuple[float, float]] = {}
    draw = np.random.default_rng(seed)
    for number, answers in enumerate(power):
        graph = crowd_graph(answers, size=crowd, labels=list(names))
        groups = np.asarray(graph.components, dtype=np.int64)
        classes = GaussianClasses.deterministic(answers, labels=list(names))

        def put(name: str, rows: FloatArray, e: float, d: float, groups: NDArray[np.int64] = groups) -> None:
            found.setdefault(name, []).append((rows, groups))
            promise[name] = (e, max(d, promise.get(name, (0.0, 0.0))[1]))

        if not only:
            white = calibrate(classes, graph, method="white", epsilon=epsilon, delta=delta, scope="table")
            put("white noise", _noisy(white, answers, seed + number), epsilon, delta)
            paper = design(classes, graph, "paper", epsilon=epsilon, rho=float(white.rho.max()), scope="table")
            put("the paper's method", _noisy(paper, answers, seed + number), epsilon, paper.certificate.delta_upper)
        if not only or "crowds" in only:
            mean = calibrate(classes, graph, method="mean", epsilon=epsilon, delta=delta, scope="table")
            put("crowds", mean.output.means, 0.0, mean.certified("table").delta_upper)
        if not only or "codebooks" in only:
            book = codebook(answers, graph, epsilon=book_epsilon, scope="table")
            rows = np.stack([book.curves(n)[draw.choice(len(book.probabilities(n)), p=_odds(book, n))] for n in names])
            put(f"codebooks, ε = {book_epsilon:g}", rows, book_epsilon, 0.0)
    plain = [] if only else [Release("unprotected forecasts", tuple(np.log(np.maximum(p, 1e-3)) for p in power))]
    for name, made in found.items():
        off = np.concatenate([rows - answers for (rows, _), answers in zip(made, power, strict=True)])
        positive = name not in ("white noise", "the paper's method")
        shown = tuple(np.log(np.maximum(r, 1e-3)) if positive else r for r, _ in made)
        e, d = promise[name]
        plain.append(Release(name, shown, tuple(g for _, g in made), e, d, float(np.sqrt((off**2).mean()))))
    return plain


def _odds(book: Any, name: str) -> FloatArray:
    odds: FloatArray = book.probabilities(name)
    shares: FloatArray = odds / odds.sum()
    return shares


def _noisy(mechanism: Mechanism, answers: FloatArray, seed: int) -> FloatArray:
    """Answers with seeded noise, label by label."""
    draws = np.random.default_rng(seed).integers(0, 2**31, len(answers))
    rows = [
        np.asarray(mechanism.sample(answer, name, seed=int(number)))
        for answer, name, number in zip(answers, mechanism.classes.labels, draws, strict=True)
    ]
    return np.stack(rows)


def _attacked(release: Release, known: Sequence[FloatArray], seed: int, learned: bool) -> list[Finding]:
    """Every attacker on a release: all rows, and those of the home's own crowd."""
    n, origins = len(known[0]), range(len(known))
    attackers: list[tuple[str, bool]] = [("expected curve, one covariance", False)]
    if learned:
        attackers.append(("gradient boosting on pairs", True))
    findings = []
    for name, boosted in attackers:
        scores = [np.empty((n, n)) for _ in origins]
        for fold in _folds(n, seed):
            others = np.setdiff1d(np.arange(n), fold)
            for judged in origins:
                elsewhere = [o for o in origins if o != judged]
                prints = np.concatenate([known[o][others] for o in elsewhere])
                curves = np.concatenate([release.rows[o][others] for o in elsewhere])
                plain = Expectation.learned(prints, curves)
                attacker = Boosted(plain, seed).learned(prints, curves) if boosted else plain
                scores[judged][fold] = attacker.scores(known[judged][fold], release.rows[judged])
        first, ten = zip(*(ranked(one) for one in scores), strict=True)
        everywhere = Hits.of(np.concatenate(first), np.concatenate(ten))
        inside, bound = None, None
        if release.groups is not None:
            inside, bound = _inside(release, scores)
        findings.append(Finding(release.name, name, everywhere, inside, bound, release.rmse))
    return findings


def _inside(release: Release, scores: Sequence[FloatArray]) -> tuple[Hits, float]:
    """Told who is in its crowd: hits among the crowd's rows, and the mean of what is certified for each home."""
    assert release.groups is not None
    first, ten, bounds = [], [], []
    for groups, one in zip(release.groups, scores, strict=True):
        same = groups[:, None] == groups[None]
        hits, some = ranked(np.where(same, one, -np.inf))
        first.append(hits)
        ten.append(some)
        sizes = same.sum(axis=1)
        bounds.append([named_in_group(int(m), release.epsilon, release.delta) for m in sizes])
    return Hits.of(np.concatenate(first), np.concatenate(ten)), float(np.mean(np.concatenate(bounds)))


def _folds(n: int, seed: int) -> list[NDArray[np.int64]]:
    return np.array_split(np.random.default_rng(seed).permutation(n), FOLDS)


def _share(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"
