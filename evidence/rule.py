"""What a rule of today gives: the daily totals of a group of homes, one of which is exchanged for another.

A rule such as 15/15 lets the total of a group leave once it has enough members and none has too large a share. Seen as
a release, the label is who the last member is, and what protects it is that nobody knows the other homes' days. With
the days of home i Gaussian, mean mᵢ and covariance vᵢ R (R the correlation between days, the same for all homes), the
totals over D days of a group with member i are N((M + mᵢ) 1, (V + vᵢ) R), M and V those of the others. δ and the power
of the best test between members i and j follow exactly from these laws; R drops out of all but the mean, which counts
as 1ᵀR⁻¹1 independent days.

What is varied: days as if independent, or correlated as they are; the part of a day that all homes share, weather above
all, known to the attacker or not (unknown, it hides: all homes vary together, by (M + mᵢ)² times its variance);
Gaussian days, or days as likely as they were seen; the share rule enforced or not. The 90 % range is over drawn groups.
The 95 % interval of their median is over resampled homes, of which groups are drawn anew.

Beside it, what a certified total costs: the members and the home that may take a place are one crowd, any of which may
be the one left out. Either the total leaves with the crowd's mean in that one's place, the same whoever it is, or with
Gaussian noise for the largest difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from evidence.attack_pictures import saved
from evidence.histograms import told_apart, totals
from evidence.rule_picture import rule_picture
from evidence.tradeoff import tradeoff_curve
from shoal import validation
from shoal.accounting.curve import edge_brackets
from shoal.accounting.deterministic import analytic_sigma
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.product.sources.meters.quality import as_readings
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
#: Assumptions about days; the first is what is drawn.
CORRELATED, UNKNOWN, INDEPENDENT, METERED = VIEWS = (
    "days correlated, weather known",
    "days correlated, weather unknown",
    "days independent, weather known",
    "days independent as metered, weather known",
)
#: The other members of a group, and the two homes of which one is its last member.
Group = tuple[NDArray[np.int64], int, int]
Drawn = tuple["Population", Sequence[Group]]
#: Tries to draw a group that keeps the share rule.
TRIES = 200
#: False alarms of the test whose power is stated.
FPR = 0.01
#: Share of its readings that a home must have; the few others are taken as its mean at that time of day.
OBSERVED = 0.99
#: Of a resampled population so many times fewer groups are drawn.
FEWER = 4


@dataclass(frozen=True)
class Priced:
    """One rule at one length: medians over groups, their 95 % intervals, and the range of 90 % of groups."""

    members: int
    share: float | None
    days: int
    view: str
    delta: float
    delta_interval: tuple[float, float]
    delta_range: tuple[float, float]
    tpr: float
    tpr_interval: tuple[float, float]
    tpr_range: tuple[float, float]
    draws: int


@dataclass(frozen=True)
class Cost:
    """Root mean square error of certified daily totals in percent of them: medians over groups, 90 % of groups."""

    members: int
    share: float | None
    days: int
    mean: float  #: the crowd's mean for whoever is left out: δ = 0
    mean_range: tuple[float, float]
    noise: float  #: Gaussian noise at (ε, δ)
    noise_range: tuple[float, float]


@dataclass(frozen=True)
class RuleStudy:
    """The rule as a release, by size of groups, days and assumptions, and what certified totals cost."""

    homes: int
    days: tuple[str, str]  #: the first and the last day of the readings
    seen_days: int
    correlation: float  #: between a day and the next, of a home's own part
    epsilon: float
    target: float
    rows: tuple[Priced, ...]
    costs: tuple[Cost, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.homes} homes, {self.days[0]} to {self.days[1]}; a day and the next correlate by "
                f"{self.correlation:.2f} (median over homes). δ at ε = {self.epsilon:g} and power at {FPR:.0%} false "
                "alarms of the best test of who the last member is: medians over groups (95 % interval, homes and "
                "groups resampled), and where 90 % of groups lie.",
                "",
                "| members | largest share | days | assumption | δ | 90 % of groups | told at 1 % false alarms | "
                "90 % of groups |",
                "| --- | --- | --- | --- | --- | --- | --- | --- |",
                *(
                    f"| {row.members} | {_limit(row.share)} | {row.days} | {row.view} | {row.delta:.2g} "
                    f"({_small(row.delta_interval)}) | {_small(row.delta_range)} | {row.tpr:.1%} "
                    f"({_percent(row.tpr_interval)}) | {_percent(row.tpr_range)} |"
                    for row in self.rows
                ),
                "",
                "Certified daily totals, root mean square error in percent of the total: the crowd's mean in place of "
                f"whoever is left out (δ = 0), and Gaussian noise at ({self.epsilon:g}, {self.target:g}).",
                "",
                "| members | largest share | days | crowd's mean | 90 % of groups | noise | 90 % of groups |",
                "| --- | --- | --- | --- | --- | --- | --- |",
                *(
                    f"| {one.members} | {_limit(one.share)} | {one.days} | {_plain(one.mean)} % | "
                    f"{_span(one.mean_range)} | {_plain(one.noise)} % | {_span(one.noise_range)} |"
                    for one in self.costs
                ),
            ]
        )

    def save(self, out: str | Path) -> list[Path]:
        """Write the tables and the numbers, and the picture where matplotlib is there."""
        return saved(self, "rule", {"": rule_picture}, out)


def price_rule(
    readings: Any,
    *,
    members: Sequence[int] = (5, 15, 100),
    share: float = 0.15,
    days: Sequence[int] = (1, 30, 365),
    epsilon: float = 1.0,
    delta: float = 1e-5,
    draws: int = 100,
    resamples: int = 40,
    seed: int = 0,
    progress: Progress | None = None,
) -> RuleStudy:
    """Price the rule "at least so many members, none with more than this share" as a release of daily totals.

    Args:
        readings: a frame of readings or what :func:`shoal.read_meters` gives; two weeks at least.
        members: sizes of groups.
        share: the largest share of the group's total that one member may have.
        days: lengths of what is released.
        epsilon, delta: ε at which δ is stated; both for what a certified total costs.
        draws: groups, each with one member exchanged for another home.
        resamples: populations of homes drawn with replacement for the intervals, a quarter as many groups of each.
        seed: of the draws.
        progress: called with what is happening and the share that is done.

    Returns:
        The study; ``print`` shows it as tables, ``save`` writes it.

    >>> import shoal
    >>> readings = shoal.simulate_meters(30, 21, step_minutes=60)
    >>> study = price_rule(readings, members=[5], days=[1, 30], draws=4, resamples=2)
    >>> [row.days for row in study.rows if row.share is None and "independent, weather known" in row.view]
    [1, 30]
    """
    sizes = [validation.count(at_least=2, members=one) for one in members]
    lengths = [validation.count(days=one) for one in days]
    share = validation.probability(share=share, above_zero=True)
    draws, resamples = validation.count(draws=draws), validation.count(at_least=2, resamples=resamples)
    epsilon, delta = validation.non_negative(epsilon=epsilon), validation.probability(delta=delta, above_zero=True)
    tell = progress or (lambda text, part: None)
    kwh, first = _days(readings)
    homes, seen = kwh.shape
    if homes <= min(sizes):
        raise InputError(f"readings: {homes} homes with complete days, which is too few for groups of {min(sizes)}")
    draw = np.random.default_rng(seed)
    whole = Population(kwh, np.ones(homes))
    resampled = [Population(kwh, draw.multinomial(homes, np.full(homes, 1 / homes))) for _ in range(resamples)]
    rows: list[Priced] = []
    costs: list[Cost] = []
    sizes = [size for size in sizes if size < homes]
    for number, size in enumerate(sizes):
        for limit in (None, share):
            groups = whole.groups(size, limit, draws, draw)
            if not groups:  # no group of so few can keep the rule
                continue
            again = [(one, one.groups(size, limit, -(-draws // FEWER), draw)) for one in resampled]
            again = [(one, drawn) for one, drawn in again if drawn]
            for length in lengths:
                tell(f"groups of {size}, {length} day(s)", number / len(sizes))
                costs.append(_cost(kwh, groups, size, limit, length, epsilon, delta))
                for view in VIEWS:
                    (deltas, powers), *others = _told([(whole, groups), *again], view, length, epsilon)
                    medians = [[np.median(part) for part in both] for both in zip(*others, strict=True)]
                    told, power = (
                        (float(np.median(one)), _quantiles(other, 0.95), _quantiles(one, 0.9))
                        for one, other in zip((deltas, powers), medians, strict=True)
                    )
                    rows.append(Priced(size, limit, length, view, *told, *power, len(groups)))
    dates = (first, _later(first, seen - 1))
    return RuleStudy(homes, dates, seen, whole.correlations[0], epsilon, delta, tuple(rows), tuple(costs))


@dataclass(frozen=True)
class Population:
    """(homes, days) kWh, each home as often as ``counts`` says: its own part of a day and what all homes share."""

    kwh: FloatArray
    counts: NDArray[Any]

    @cached_property
    def means(self) -> FloatArray:
        return np.asarray(self.kwh.mean(axis=1))

    @cached_property
    def shared(self) -> FloatArray:
        """(days,) the factor by which a day is above or below the mean for all homes together."""
        return np.asarray(self.counts @ self.kwh / (self.counts @ self.means))

    @cached_property
    def own(self) -> FloatArray:
        """What is left of a home's days when what all share is known."""
        return np.asarray(self.kwh - self.means[:, None] * self.shared)

    @cached_property
    def variances(self) -> FloatArray:
        return np.asarray(self.own.var(axis=1, ddof=1))

    @cached_property
    def correlations(self) -> tuple[float, float]:
        """Between a day and the next: of homes' own parts, the median, and of what all share."""
        homes = np.repeat(np.arange(len(self.kwh)), self.counts.astype(np.int64))
        return float(np.median(_next_day(self.own[homes]))), float(_next_day(self.shared[None])[0])

    def groups(self, size: int, limit: float | None, draws: int, draw: np.random.Generator) -> list[Group]:
        """Others of a group, and the two homes of which one is its last member; both keep the share rule."""
        found: list[Group] = []
        odds, means = self.counts / self.counts.sum(), self.means
        if (self.counts > 0).sum() <= size:
            return found
        for _ in range(draws):
            for _ in range(TRIES):
                chosen = draw.choice(len(means), size + 1, replace=False, p=odds)
                others, i, j = chosen[:-2], int(chosen[-2]), int(chosen[-1])
                largest = max(max(means[others].max(), means[k]) / (means[others].sum() + means[k]) for k in (i, j))
                if limit is None or largest <= limit:
                    found.append((others, i, j))
                    break
        return found

    def laws(self, groups: Sequence[Group], view: str) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(groups, 2) mean and variance of a day's total with the one or the other, (groups,) its correlation."""
        last = np.array([[i, j] for _, i, j in groups])
        centers = np.array([self.means[others].sum() for others, _, _ in groups])[:, None] + self.means[last]
        spread = np.array([self.variances[others].sum() for others, _, _ in groups])[:, None] + self.variances[last]
        correlation = np.full(len(groups), 0.0 if view == INDEPENDENT else self.correlations[0])
        if view == UNKNOWN:
            weather = centers**2 * self.shared.var(ddof=1)
            mixed = weather.sum(axis=1) / (weather + spread).sum(axis=1)
            correlation = mixed * self.correlations[1] + (1 - mixed) * correlation
            spread = spread + weather
        return centers, spread, correlation


def _told(drawn: Sequence[Drawn], view: str, length: int, epsilon: float) -> list[tuple[FloatArray, FloatArray]]:
    """δ(ε) and the power of the best test for each group of each population, the worse direction of the two."""
    if view == METERED:
        return [_told_as_metered(people, groups, length, epsilon) for people, groups in drawn]
    parts = zip(*(people.laws(groups, view) for people, groups in drawn), strict=True)
    centers, spread, correlation = (np.concatenate(part) for part in parts)
    # Days with correlation r^|s − t|: 1ᵀR⁻¹1 = (D (1 − r) + 2 r) / (1 + r), as many independent days they are worth.
    worth = (length * (1.0 - correlation) + 2.0 * correlation) / (1.0 + correlation)
    scaled = centers * np.sqrt(worth / length)[:, None]
    day = GaussianClasses(scaled.reshape(-1, 1), spread.reshape(-1, 1, 1))
    graph = NeighborGraph(day.labels, np.arange(2 * len(centers)).reshape(-1, 2))
    deltas = np.minimum(np.exp(edge_brackets([day] * length, graph, epsilon)[:, :, 2].max(axis=1)), 1.0)
    names = [(day.labels[a], day.labels[b]) for a, b in graph.edges]
    powers = np.array([max(_power(day, length, a, b), _power(day, length, b, a)) for a, b in names])
    ends = np.cumsum([len(groups) for _, groups in drawn])[:-1]
    return list(zip(np.split(deltas, ends), np.split(powers, ends), strict=True))


def _power(day: GaussianClasses, length: int, claim: str, instead: str) -> float:
    return float(tradeoff_curve([day] * length, claim, instead, FPR).tpr_upper[0])


def _told_as_metered(
    people: Population, groups: Sequence[Group], length: int, epsilon: float
) -> tuple[FloatArray, FloatArray]:
    found = []
    usual = people.own + people.means[:, None]
    for others, i, j in groups:
        p, q = totals(usual[others], usual[i], usual[j])
        found.append(np.max([told_apart(*laws, length, epsilon, FPR) for laws in ((p, q), (q, p))], axis=0))
    told = np.array(found, dtype=np.float64)
    return told[:, 0], told[:, 1]


def _days(readings: Any) -> tuple[FloatArray, str]:
    """(homes, days) kWh of whole days, and the first day; homes with more than a few missing readings are left out."""
    own = as_readings(readings)
    stamps: Any = own.frame["timestamp"]
    steps = timedelta(days=1) // own.step
    count = (stamps.max() + own.step - stamps.min()) // timedelta(days=1)
    if count < 14:
        raise InputError("readings: at least fourteen whole days are needed")
    kw = own.window(int(stamps.dt.epoch("us").min()), count * steps).kw
    kw = _filled(kw[np.isfinite(kw).mean(axis=1) >= OBSERVED].reshape(-1, count, steps))
    kwh: FloatArray = kw.sum(axis=2) * (own.step / timedelta(hours=1))
    return kwh, stamps.min().date().isoformat()


def _filled(kw: FloatArray) -> FloatArray:
    """(homes, days, steps) with missing readings as the home's mean at that time of day."""
    return np.asarray(np.where(np.isfinite(kw), kw, np.nanmean(kw, axis=1, keepdims=True)))


def _later(first: str, days: int) -> str:
    return (date.fromisoformat(first) + timedelta(days=days)).isoformat()


def _next_day(left: FloatArray) -> FloatArray:
    """(rows,) correlation between a day and the next, none below 0 or above 0.95."""
    centered = left - left.mean(axis=1, keepdims=True)
    found = (centered[:, 1:] * centered[:, :-1]).sum(axis=1) / np.maximum((centered**2).sum(axis=1), 1e-12)
    return np.asarray(np.clip(found, 0.0, 0.95))


def _cost(
    kwh: FloatArray, groups: Sequence[Group], size: int, limit: float | None, length: int, epsilon: float, delta: float
) -> Cost:
    seen = min(length, kwh.shape[1])
    scale = analytic_sigma(1.0, epsilon, delta)
    means, noises = [], []
    for others, i, j in groups:
        crowd = kwh[[*others.tolist(), i, j]]
        total = crowd.mean() * size
        means.append(100.0 * np.sqrt(((crowd - crowd.mean(axis=0)) ** 2).mean()) / total)
        # Differences over more days than were seen are taken to go on as they were.
        gap = pdist(crowd[:, :seen]).max() * np.sqrt(length / seen)
        noises.append(100.0 * scale * gap / total)
    return Cost(
        size, limit, length,
        float(np.median(means)), _quantiles(means, 0.9), float(np.median(noises)), _quantiles(noises, 0.9),
    )  # fmt: skip


def _quantiles(values: Any, inside: float) -> tuple[float, float]:
    low, high = np.quantile(values, (0.5 - inside / 2, 0.5 + inside / 2))
    return float(low), float(high)


def _limit(share: float | None) -> str:
    return "any" if share is None else f"{share:.0%}"


def _small(ends: Iterable[float]) -> str:
    return " to ".join(f"{end:.2g}" for end in ends)


def _percent(ends: Iterable[float]) -> str:
    return " to ".join(f"{end:.1%}" for end in ends)


def _plain(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _span(ends: Iterable[float]) -> str:
    return " to ".join(_plain(end) for end in ends)
