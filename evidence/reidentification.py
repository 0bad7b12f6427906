"""The study of re-identification: everything that might leave of the same homes, and who is found in it.

What ``shoal attack`` looks at (raw readings, unprotected forecasts and the means of crowds), and beside it white noise,
the paper's method and codebooks inside the same crowds; the best attackers again among fewer rows, in crowds of other
sizes and with more weeks known. One attacker more knows every forecast and the mechanism, and holds the exact posterior
of who is behind each row (:func:`posterior`): every bound must hold against it too. Crowds are formed at the first
origin, as a run forms them, and kept.

Each part, one origin of one thing at a time, is written to a folder as it is done, so that a study that was stopped
goes on from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

import shoal
from evidence.boosted import LEARNED, Boosted, weekly_blocks
from shoal.accounting.assignments import likeliest_assignments, match_probabilities
from shoal.accounting.risk import group_naming_bound
from shoal.audits.confidence import mean_lower_bound, mean_upper_bound
from shoal.crowds.formation import crowd_means
from shoal.crowds.membership import ROOM, form_crowds
from shoal.mechanism.mechanism import Mechanism
from shoal.numerics.threads import one_library_thread
from shoal.product.sources.meters.crowd_points import AHEAD_WEIGHT, DAY_WEIGHT, USUAL_SHARE, likeness_points
from shoal.product.sources.meters.quality import as_readings
from shoal.product.studies.attackers import Attacker, Table, WeekMetric, curve_metrics, rank_rows
from shoal.product.studies.findings import ERROR, markdown_table
from shoal.product.studies.meter_attack import Weeks, curve_scores, inside_crowds, log_curves, raw_scores
from shoal.records import to_plain
from shoal.rounding import percent
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
#: Sizes of crowds beside the one that is asked for; weeks known beside one; rows of tables beside all.
SIZES, WEEKS, ROWS = (5, 20, 40), (2, 4), (10, 30, 100, 300)
#: Crowds above it are released as their own curve only: codebooks of so many labels take minutes.
BOOKS = 12
INFORMED = "knows all forecasts and the mechanism"
RAW, PLAIN, MEANS, WHITE, PAPER = "raw readings", "unprotected forecasts", "crowds", "white noise", "the paper's method"


# ------------------------------------------------------------------ what is found


#: Columns of the tables.
HEADS = ("what leaves", "attacker", "named at once (95 % interval)", "among ten (95 % interval)",
         "inside the crowd", "bound", "error, kW")  # fmt: skip


@dataclass(frozen=True)
class Hits:
    """Frequency with which the right row was first, and among the first ten, with intervals at 95 %.

    Intervals take homes as independent draws, with all their origins together: those of one home are alike.
    """

    homes: int
    top_1: float
    top_1_interval: tuple[float, float]
    top_10: float
    top_10_interval: tuple[float, float]

    @classmethod
    def over(cls, chances: Sequence[tuple[FloatArray, FloatArray]]) -> Hits:
        """From each origin's chances of the homes to be right at once and within ten (:func:`rank_rows`)."""

        def interval(values: FloatArray) -> tuple[float, float]:
            return mean_lower_bound(values, ERROR), mean_upper_bound(values, ERROR)

        one, some = (np.mean(part, axis=0) for part in zip(*chances, strict=True))
        return cls(len(one), float(one.mean()), interval(one), float(some.mean()), interval(some))


@dataclass(frozen=True)
class StudyFinding:
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

    @property
    def cells(self) -> list[str]:
        """Its row of the table."""
        hits, inside = self.everywhere, ["", "none"]
        if self.inside is not None and self.bound is not None:
            inside = [share(self.inside.top_1, self.inside.top_1_interval), f"≤ {percent(self.bound)}"]
        named = [share(hits.top_1, hits.top_1_interval), share(hits.top_10, hits.top_10_interval)]
        return [self.what, self.attacker, *named, *inside, f"{self.rmse:.3f}"]


@dataclass(frozen=True, kw_only=True)
class AttackStudy:
    """All findings: of every kind of data, and of the best attackers by rows, sizes of crowds and weeks known."""

    homes: int
    days: tuple[str, str]  #: the first and the last day of the readings
    origins: tuple[str, ...]
    crowd: int
    findings: tuple[StudyFinding, ...]
    left_out: Mapping[str, int]  #: reason -> homes that could not be used
    epsilon: float
    delta: float
    by_rows: tuple[StudyFinding, ...]
    by_size: tuple[StudyFinding, ...]
    by_weeks: tuple[StudyFinding, ...]

    @property
    def exceeded(self) -> tuple[StudyFinding, ...]:
        """Findings above their bound; there must be none."""
        return tuple(one for one in (*self.findings, *self.by_size, *self.by_weeks) if one.exceeds)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        content: dict[str, Any] = to_plain(self)
        return content

    def __str__(self) -> str:
        tables: Sequence[tuple[str, Sequence[StudyFinding], Callable[[StudyFinding], int], int]] = (
            ("rows of the table", self.by_rows, lambda one: one.rows or self.homes, 4),
            ("crowd", self.by_size, lambda one: one.crowd or 0, 7),
            ("weeks known", self.by_weeks, lambda one: one.weeks, 6),
        )
        head = (
            f"{self.homes} homes, {self.days[0]} to {self.days[1]}, {len(self.origins)} origins; chance "
            f"{1 / self.homes:.2%} among all rows, about {1 / self.crowd:.0%} inside a crowd of {self.crowd}."
        )
        parts = [head, markdown_table(HEADS, [one.cells for one in self.findings])]
        for first, findings, number, columns in tables:
            rows = [[str(number(one)), *one.cells[:columns]] for one in findings]
            parts.append(markdown_table([first, *HEADS[:columns]], rows))
        return "\n\n".join(parts)


def share(value: float, interval: tuple[float, float]) -> str:
    """A share with its interval, as tables print it."""
    return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"


# ------------------------------------------------------------------ parts, kept


class Parts:
    """Arrays by name, made where they are not in the folder yet, with what is done and how much there is to do."""

    def __init__(self, folder: Path | None, progress: Progress | None, total: int) -> None:
        self.folder, self.progress, self.total = folder, progress, total
        self.there: dict[str, dict[str, Any]] = {}

    def get(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """One part: at hand, read from the folder, or made and written to it whole."""
        if name not in self.there:
            if self.progress is not None:
                self.progress(name, min(len(self.there) / self.total, 1.0))
            with one_library_thread():  # many threads that wait for busy cores take ten times as long as one
                path = None if self.folder is None else self.folder / f"{name}.npz"
                self.there[name] = dict(make()) if path is None else self._stored(path, make)
        return self.there[name]

    def _stored(self, path: Path, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part.npz")
            np.savez(unfinished, **make())
            unfinished.rename(path)
        with np.load(path) as stored:
            return dict(stored)


# ------------------------------------------------------------------ what leaves


@dataclass(frozen=True)
class Release:
    """What left at all origins: rows (homes, k), the crowd of every home, and what bounds naming inside it.

    Rows are as attackers compare them: curves by shares of power (``shown``), noisy ones, which may be negative, in kW.
    ``likelihoods`` (homes, rows) of each origin are the logarithms of how likely a row is of a home of its crowd, up to
    what all homes of the crowd share: what somebody who knows everything else would go by.
    """

    name: str
    rows: tuple[FloatArray, ...]
    crowds: NDArray[np.int64] | None = None
    bound: float | None = None
    rmse: float = 0.0
    likelihoods: tuple[FloatArray, ...] = ()

    def at(self, origins: Sequence[int]) -> Release:
        """What left at some of the origins."""
        rows, likelihoods = (tuple(one[o] for o in origins) if one else () for one in (self.rows, self.likelihoods))
        return replace(self, rows=rows, likelihoods=likelihoods)


@dataclass(frozen=True)
class Ways:
    """Everything that might leave of the same homes, in crowds for life."""

    names: Sequence[str]
    power: Sequence[FloatArray]  #: (homes, k) kW at every origin
    points: FloatArray  #: (homes, d) what crowds are formed by, at the first origin
    epsilon: float
    delta: float
    book_epsilon: float
    seed: int
    parts: Parts

    def all(self, crowd: int) -> list[Release]:
        """Forecasts without protection, and releases of them of every kind."""
        return [
            Release(PLAIN, tuple(log_curves(one) for one in self.power)),
            *self.noisy(crowd),
            self.means(crowd),
            self.books(crowd),
        ]

    def crowds(self, crowd: int) -> NDArray[np.int64]:
        """(homes,) the crowd of each home, for all origins."""
        return form_crowds(self.points, crowd, beside=self.power[0])

    def means(self, crowd: int) -> Release:
        """The default of a run: the mean of each crowd. All its rows are the same, so that nobody beats a guess."""
        crowds = self.crowds(crowd)
        rows = [np.asarray(crowd_means(answers, crowds)[crowds]) for answers in self.power]
        return self._release(MEANS, rows, crowds, 0.0, 0.0, [np.zeros((len(crowds), len(crowds))) for _ in rows])

    def noisy(self, crowd: int) -> list[Release]:
        """White noise at (ε, δ), and the paper's method at the same largest error."""
        crowds = self.crowds(crowd)
        graph = shoal.NeighborGraph.within_groups(self.names, crowds.tolist())

        def drawn(number: int) -> dict[str, Any]:
            answers = self.power[number]
            classes = shoal.GaussianClasses.deterministic(answers, labels=list(self.names))
            white = shoal.calibrate(
                classes, graph, method="white", epsilon=self.epsilon, delta=self.delta, scope="table"
            )
            paper = shoal.design(
                classes, graph, "paper", epsilon=self.epsilon, rho=float(white.rho.max()), scope="table"
            )
            made: dict[str, Any] = {"delta 0": self.delta, "delta 1": paper.certificate.delta_upper}
            for way, mechanism in enumerate((white, paper)):
                made[f"rows {way}"] = rows = noisy(mechanism, answers, self.seed + number)
                made[f"likelihood {way}"] = gaussian(mechanism, rows, crowds)
            return made

        every = [self.parts.get(f"noise-{crowd}-{n}", partial(drawn, n)) for n in range(len(self.power))]
        releases = []
        for way, name in enumerate((WHITE, PAPER)):
            rows, likelihoods = ([one[f"{kind} {way}"] for one in every] for kind in ("rows", "likelihood"))
            delta = max(float(one[f"delta {way}"]) for one in every)
            releases.append(self._release(name, rows, crowds, self.epsilon, delta, likelihoods))
        return releases

    def books(self, crowd: int) -> Release:
        """A codebook at its ε, δ = 0."""
        crowds = self.crowds(crowd)
        graph = shoal.NeighborGraph.within_groups(self.names, crowds.tolist())

        def drawn(number: int) -> dict[str, Any]:
            draw = np.random.default_rng([self.seed, number])
            book = shoal.codebook(
                self.power[number], graph, epsilon=self.book_epsilon, labels=self.names, scope="table"
            )
            odds = [book.probabilities(name) for name in self.names]
            drawn = np.array([draw.choice(len(one), p=one / one.sum()) for one in odds])
            likelihood = np.zeros((len(crowds), len(crowds)))
            for members in (np.flatnonzero(crowds == one) for one in np.unique(crowds)):
                likelihood[np.ix_(members, members)] = np.log([odds[i][drawn[members]] for i in members])
            rows = np.stack([book.curves(name)[y] for name, y in zip(self.names, drawn, strict=True)])
            return {"rows": rows, "likelihood": likelihood}

        every = [self.parts.get(f"book-{crowd}-{n}", partial(drawn, n)) for n in range(len(self.power))]
        rows, likelihoods = ([one[kind] for one in every] for kind in ("rows", "likelihood"))
        name = f"codebooks, ε = {self.book_epsilon:g}"
        return self._release(name, rows, crowds, self.book_epsilon, 0.0, likelihoods)

    def _release(
        self,
        name: str,
        rows: Sequence[FloatArray],
        crowds: NDArray[np.int64],
        epsilon: float,
        delta: float,
        likelihoods: Sequence[FloatArray],
    ) -> Release:
        off = float(np.sqrt(((np.concatenate(rows) - np.concatenate(self.power)) ** 2).mean()))
        compared = rows if name in (WHITE, PAPER) else [log_curves(one) for one in rows]
        return Release(name, tuple(compared), crowds, naming_bound(crowds, epsilon, delta), off, tuple(likelihoods))


def naming_bound(crowds: NDArray[np.int64], epsilon: float, delta: float) -> float:
    """The share of homes that may be named inside their crowds where the table has (ε, δ)."""
    sizes = np.bincount(crowds)[crowds].tolist()
    return float(np.mean([group_naming_bound(size, epsilon, delta) for size in sizes]))


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


# ------------------------------------------------------------------ who finds what


def posterior(log_likelihood: FloatArray) -> FloatArray:
    """(homes, rows) probability that a row is a home's, given the (homes, rows) log-likelihoods of a whole group.

    Every assignment of rows to homes is as likely beforehand. Exact for groups of up to twelve, which no attacker can
    better; beyond, an attacker's approximation (:func:`shoal.accounting.assignments.match_probabilities`).
    """
    tables = log_likelihood.T[None]
    posterior_odds = match_probabilities(tables, likeliest_assignments(tables))[0].T
    return np.asarray(posterior_odds.round(12))


def informed(crowds: NDArray[np.int64], likelihood: FloatArray) -> FloatArray:
    """(homes, rows) scores of somebody who knows every forecast and the mechanism, crowd by crowd."""
    scores = np.full(likelihood.shape, -np.inf)
    for members in (np.flatnonzero(crowds == crowd) for crowd in np.unique(crowds)):
        scores[np.ix_(members, members)] = posterior(likelihood[np.ix_(members, members)])
    return scores


def ranked_among(scores: FloatArray, rows: int) -> tuple[FloatArray, FloatArray]:
    """Chances to be first and among ten in a table of so many rows: the home's own, and others drawn from all.

    Rows with the same score are put in order by lot.
    """
    own = np.diag(scores)[:, None]
    above, alike = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    # A lot puts a row behind any number of those alike; of ``rows`` − 1 others, none or fewer than ten may be better.
    there, first, ten = scores.shape[1] - 1, np.zeros(len(scores)), np.zeros(len(scores))
    for behind in range(int(alike.max())):
        share = np.where(behind < alike, 1.0 / alike, 0.0)
        better = np.minimum(above + behind, there)
        first += share * scipy.stats.hypergeom.pmf(0, there, better, rows - 1)
        ten += share * scipy.stats.hypergeom.cdf(9, there, better, rows - 1)
    return first, ten


def chances(scores: Mapping[str, FloatArray], crowds: NDArray[np.int64] | None) -> dict[str, FloatArray]:
    """``attacker|where`` -> (2, homes) chances to be first and among ten: everywhere, inside, or among fewer rows."""
    made = {}
    for attacker, matrix in scores.items():
        made[f"{attacker}|everywhere"] = np.stack(rank_rows(matrix))
        if crowds is not None:
            made[f"{attacker}|inside"] = np.stack(rank_rows(inside_crowds(matrix, crowds)))
            continue
        made |= {f"{attacker}|{rows}": np.stack(ranked_among(matrix, rows)) for rows in ROWS if rows < len(matrix)}
    return made


def boosted(
    compare: Callable[[Sequence[Table]], list[WeekMetric]], seed: int, tables: Sequence[Table]
) -> dict[str, Attacker]:
    """The learned attacker, by its name."""
    return {LEARNED: Boosted(compare, seed).learned(tables)}


def attacked(release: Release, known: Sequence[FloatArray], judged: int, seed: int, learned: bool) -> dict[str, Any]:
    """Chances of every attacker on the curves of one origin."""
    more = partial(boosted, curve_metrics, seed) if learned else None
    scores = curve_scores(known, release.rows, judged, seed, more)
    if release.crowds is not None:
        scores[INFORMED] = informed(release.crowds, release.likelihoods[judged])
    return chances(scores, release.crowds)


def findings_of(release: Release, parts: Sequence[Mapping[str, FloatArray]], weeks: int = 1) -> list[StudyFinding]:
    """What every attacker's chances at all origins come to."""

    def hits(attacker: str, where: str) -> Hits | None:
        every = [part[f"{attacker}|{where}"] for part in parts if f"{attacker}|{where}" in part]
        return Hits.over([(first, ten) for first, ten in every]) if every else None

    findings = []
    for attacker in dict.fromkeys(name.partition("|")[0] for name in parts[0]):
        everywhere = hits(attacker, "everywhere")
        assert everywhere is not None
        inside = hits(attacker, "inside")
        findings.append(
            StudyFinding(release.name, attacker, everywhere, inside, release.bound, release.rmse, weeks=weeks)
        )
    return findings


def strongest(findings: Sequence[StudyFinding]) -> list[StudyFinding]:
    """The plain attacker who names most, the learned one, and whoever knows everything."""
    plain = [one for one in findings if one.attacker not in (LEARNED, INFORMED)]
    rest = [one for one in findings if one.attacker in (LEARNED, INFORMED)]
    return [max(plain, key=lambda one: one.everywhere.top_1), *rest]


def among_fewer(findings: Sequence[StudyFinding], parts: Sequence[Mapping[str, FloatArray]]) -> list[StudyFinding]:
    """The strongest attackers on what is not protected, in tables of fewer rows, and of all."""
    rows = []
    for one in strongest(findings):
        for fewer in (m for m in ROWS if f"{one.attacker}|{m}" in parts[0]):
            every = [(part[f"{one.attacker}|{fewer}"][0], part[f"{one.attacker}|{fewer}"][1]) for part in parts]
            rows.append(replace(one, everywhere=Hits.over(every), rows=fewer))
        rows.append(one)
    return rows


def study(
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
    keep: Path | None = None,
    progress: Progress | None = None,
) -> AttackStudy:
    """The whole study on meter data; with ``keep``, each part is kept in that folder and not made twice."""
    own = as_readings(readings)
    first = -(-train_days // 7)
    weeks = Weeks.of_readings(own, first, origins, crowd, max(WEEKS))
    judged = weeks.judged
    reach = [count for count in (1, *WEEKS) if sum(week >= count for week in judged) >= 2]
    late = [number for number, week in enumerate(judged) if week >= reach[-1]]
    # Every forecast that anybody makes here: by days of training and week.
    wanted = dict.fromkeys((train_days, week) for week in judged)
    wanted |= dict.fromkeys((min(7, train_days), week) for week in judged)
    wanted |= dict.fromkeys((7 * count, judged[n]) for count in reach[1:] if 7 * count < train_days for n in late)
    sizes = [size for size in sorted({*SIZES, crowd}) if 2 * size <= len(weeks.names)]
    books = sum(size <= BOOKS for size in sizes)
    # Forecasts; noise and codebooks; attacks on six kinds of data, on crowds by size, and by weeks known.
    total = len(wanted) + len(judged) * (1 + books + 6 + len(sizes) + books) + (6 * len(reach) - 1) * len(late)
    starts = tuple(weeks.starts[week].isoformat() for week in judged)
    terms = [starts, weeks.names, crowd, epsilon, delta, book_epsilon, order, train_days, horizon, learned, seed]
    terms += [ROOM, USUAL_SHARE, AHEAD_WEIGHT, DAY_WEIGHT]  # what crowds are formed by
    digest = hashlib.sha256(json.dumps([shoal.__version__, *terms], default=str).encode()).hexdigest()[:8]
    parts = Parts(None if keep is None else keep / f"reidentify-{digest}", progress, total)

    def forecast_at(days: int, week: int) -> dict[str, Any]:
        options: dict[str, Any] = {"order": order, "horizon": horizon, "season": "day"}
        fc = shoal.forecast(own, train_days=days, origin=weeks.starts[week], **options)
        return {"households": np.array(fc.households), "power": fc.power, "points": likeness_points(fc)}

    made = {at: parts.get("forecast-{}-{}".format(*at), partial(forecast_at, *at)) for at in wanted}
    weeks = weeks.with_forecasts([one["households"].tolist() for one in made.values()], crowd)
    curve = {at: weeks.rows_of_homes(one["households"].tolist(), one["power"]) for at, one in made.items()}
    start = made[train_days, judged[0]]
    fingerprints, ends = weeks.fingerprints

    def knowledge(at: Sequence[int], count: int) -> list[FloatArray]:
        """(homes, f + k) what so many weeks before each origin say: fingerprints, and what one would forecast."""
        days = min(7 * count, train_days)
        return [
            np.concatenate([fingerprints[:, week - count : week].mean(axis=1), log_curves(curve[days, week])], axis=1)
            for week in at
        ]

    def raw(at: Sequence[int], count: int) -> list[dict[str, Any]]:
        def made_at(week: int) -> dict[str, Any]:
            more = partial(boosted, partial(weekly_blocks, ends=ends), seed) if learned else None
            return chances(raw_scores(fingerprints, ends, week, count, seed, more), None)

        return [parts.get(f"attack-raw-{count}-{week}", partial(made_at, week)) for week in at]

    def attacks(
        release: Release, known: Sequence[FloatArray], with_learned: bool, size: int, which: str
    ) -> list[dict[str, Any]]:
        kind = release.name.partition(",")[0].replace(" ", "-").replace("'", "")
        return [
            parts.get(
                f"attack-{kind}-{size}-{which}-{origin}", partial(attacked, release, known, origin, seed, with_learned)
            )
            for origin in range(len(release.rows))
        ]

    power = [curve[train_days, week] for week in judged]
    points = weeks.rows_of_homes(start["households"].tolist(), start["points"])
    ways = Ways(weeks.names, power, points, epsilon, delta, book_epsilon, seed, parts)
    known = knowledge(judged, 1)
    readings_left = Release(RAW, tuple(fingerprints[:, week] for week in judged))
    every = raw(judged, 1)
    findings = findings_of(readings_left, every)
    by_rows = among_fewer(findings, every)
    releases = ways.all(crowd)
    for release in releases:
        every = attacks(release, known, learned, crowd, "one-week")
        some = findings_of(release, every)
        findings += some
        if release.crowds is None:
            by_rows += among_fewer(some, every)
    by_size = []
    for size in sizes:
        for release in (ways.means(size), *([ways.books(size)] if size <= BOOKS else [])):
            some = findings_of(release, attacks(release, known, False, size, "sizes"))
            by_size += [replace(one, crowd=size) for one in strongest(some)]
    by_weeks = []
    for count in reach:
        at = [judged[number] for number in late]
        by_weeks += strongest(findings_of(readings_left, raw(at, count), count))
        for release in (one.at(late) for one in releases):
            every = attacks(
                release, knowledge(at, count), learned and release.crowds is None, crowd, f"{count}-weeks-late"
            )
            by_weeks += [one for one in strongest(findings_of(release, every, count)) if one.attacker != INFORMED]
    return AttackStudy(
        homes=len(weeks.names), days=weeks.days, origins=starts, crowd=crowd, findings=tuple(findings),
        left_out=weeks.left_out, epsilon=epsilon, delta=delta,
        by_rows=tuple(by_rows), by_size=tuple(by_size), by_weeks=tuple(by_weeks),
    )  # fmt: skip
