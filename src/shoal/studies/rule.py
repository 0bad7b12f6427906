"""What a rule of today gives: the daily totals of a group of homes, one of which is exchanged for another.

A rule such as 15/15 lets the total of a group leave once it has enough members and none has too large a share. Seen as
a release, the label is who the last member is, and what protects it is that nobody knows the other homes' days. With
the days of home i Gaussian, mean mᵢ and covariance vᵢ R (R the correlation between days, the same for all homes), the
totals over D days of a group with member i are N((M + mᵢ) 1, (V + vᵢ) R), M and V those of the others. δ and the power
of the best test between members i and j follow exactly from these laws; R drops out of all but the mean, which counts
as 1ᵀR⁻¹1 independent days.

Beside it, what a certified total costs: the members and the home that may take a place are one crowd, and what leaves
is the total with the crowd's mean for whoever is left out. It is the same whoever that is.

What is varied: days as if independent, or correlated as they are; the part of a day that all homes share, weather above
all, known to the attacker or not; the share rule enforced or not. Groups and homes are drawn again and again, and
intervals are quantiles over draws: they hold for homes like these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.accounting.curve import privacy_curve
from shoal.accounting.tradeoff import tpr_at_fpr
from shoal.classes import GaussianClasses
from shoal.errors import InputError
from shoal.graph import NeighborGraph
from shoal.meters.window import as_readings, cut
from shoal.studies.pictures import rule_picture, saved
from shoal.validation import FloatArray

Progress = Callable[[str, float], None]
#: Assumptions about days: name -> (correlated, what all homes share is known to the attacker).
VIEWS = {
    "days correlated, weather known": (True, True),
    "days correlated, weather unknown": (True, False),
    "days independent, weather known": (False, True),
}
#: The other members of a group, and the two homes of which one is its last member.
Group = tuple[NDArray[np.int64], int, int]
#: Days above which fewer groups are drawn: laws of so many days take long.
LONG = 60
#: Tries to draw a group that keeps the share rule.
TRIES = 200


@dataclass(frozen=True)
class Priced:
    """One rule at one length: medians over draws of groups and exchanged members, with 90 % intervals."""

    members: int
    share: float | None
    days: int
    view: str
    delta: float
    delta_interval: tuple[float, float]
    tpr: float
    tpr_interval: tuple[float, float]
    draws: int
    error: float  #: of the certified total, in percent of it


@dataclass(frozen=True)
class RuleStudy:
    """The rule as a release, by size of groups, days and assumptions."""

    homes: int
    seen_days: int
    correlation: float  #: between a day and the next, of a home's own part
    epsilon: float
    target: float
    rows: tuple[Priced, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.homes} homes, {self.seen_days} days; a day and the next correlate by {self.correlation:.2f} "
            f"(median over homes). δ at ε = {self.epsilon:g} and power at 1 % false alarms of the best test of who the "
            "last member is; medians over draws (90 % of draws). The last column is the root mean square error of the "
            f"same daily totals where that cannot be told, so at any (ε, δ), ({self.epsilon:g}, {self.target:g}) too; "
            "in percent of the total.",
            "",
            "| members | largest share | days | assumption | δ | named at 1 % false alarms | certified, error |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in self.rows:
            rule = "any" if row.share is None else f"{row.share:.0%}"
            low, high = row.delta_interval
            few, many = row.tpr_interval
            lines.append(
                f"| {row.members} | {rule} | {row.days} | {row.view} | {row.delta:.2g} ({low:.2g} to {high:.2g}) | "
                f"{row.tpr:.1%} ({few:.1%} to {many:.1%}) | {row.error:.2g} % |"
            )
        return "\n".join(lines)

    def save(self, out: str | Path) -> list[Path]:
        """Write the table and the numbers, and the picture where matplotlib is there."""
        return saved(self, "rule", rule_picture, out)


def price_rule(
    readings: Any,
    *,
    members: Sequence[int] = (5, 15, 100),
    share: float = 0.15,
    days: Sequence[int] = (1, 30, 365),
    epsilon: float = 1.0,
    delta: float = 1e-5,
    draws: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> RuleStudy:
    """Price the rule "at least so many members, none with more than this share" as a release of daily totals.

    Args:
        readings: a frame of readings or what :func:`shoal.read_meters` gives; two weeks at least.
        members: sizes of groups.
        share: the largest share of the group's total that one member may have.
        days: lengths of what is released.
        epsilon, delta: ε at which δ is stated; both for what the certified total costs.
        draws: groups, each with one member exchanged for another home.
        seed: of the draws.
        progress: called with what is happening and the share that is done.

    Returns:
        The study; ``print`` shows it as a table, ``save`` writes it.

    >>> import shoal
    >>> readings = shoal.simulate_meters(30, 21, step_minutes=60)
    >>> study = shoal.price_rule(readings, members=[5], days=[1, 30], draws=10)
    >>> [row.days for row in study.rows if row.share is None and "weather known" in row.view]
    [1, 1, 30, 30]
    """
    sizes = [validation.count(at_least=2, members=one) for one in members]
    lengths = [validation.count(days=one) for one in days]
    share = validation.probability(share=share, above_zero=True)
    draws = validation.count(draws=draws)
    tell = progress or (lambda text, part: None)
    kwh = _days(readings)
    homes, seen = kwh.shape
    if homes <= min(sizes):
        raise InputError(f"readings: {homes} homes with complete days, which is too few for groups of {min(sizes)}")
    means = kwh.mean(axis=1)
    common = kwh.mean(axis=0) / kwh.mean()
    own = kwh - means[:, None] * common[None]  # what is left when the part that all share is known
    draw = np.random.default_rng(seed)
    rows: list[Priced] = []
    sizes = [size for size in sizes if size < homes]
    total = len(sizes) * len(lengths) * 2 * len(VIEWS)
    for size in sizes:
        for limit in (None, share):
            every = _groups(means, size, limit, draws, draw)
            if not every:  # no group of so few can keep the rule
                continue
            for length in lengths:
                groups = every if length <= LONG else every[: -(-len(every) // 5)]
                for view, (correlated, weather_known) in VIEWS.items():
                    tell(f"groups of {size}, {length} day(s)", len(rows) / total)
                    left = own if weather_known else kwh - means[:, None]
                    correlation = _correlation(left) if correlated else 0.0
                    rows.append(_priced(means, left, groups, size, limit, length, view, correlation, epsilon))
    return RuleStudy(homes, seen, _correlation(own), epsilon, delta, tuple(rows))


def _days(readings: Any) -> FloatArray:
    """(homes, days) kWh of whole days, homes with a missing reading left out."""
    own = as_readings(readings)
    stamps: Any = own.frame["timestamp"]
    steps = timedelta(days=1) // own.step
    count = (stamps.max() + own.step - stamps.min()) // timedelta(days=1)
    if count < 14:
        raise InputError("readings: at least fourteen whole days are needed")
    kw = cut(own, int(stamps.dt.epoch("us").min()), count * steps).kw
    kw = kw[np.isfinite(kw).all(axis=1)]
    found: FloatArray = kw.reshape(len(kw), count, steps).sum(axis=2) * (own.step / timedelta(hours=1))
    return found


def _correlation(left: FloatArray) -> float:
    """Between a day and the next, the median over homes of what is left of their days."""
    centered = left - left.mean(axis=1, keepdims=True)
    own = (centered[:, 1:] * centered[:, :-1]).sum(axis=1) / np.maximum((centered**2).sum(axis=1), 1e-12)
    return float(np.clip(np.median(own), 0.0, 0.95))


def _groups(means: FloatArray, size: int, limit: float | None, draws: int, draw: np.random.Generator) -> list[Group]:
    """Others of a group, and the two homes of which one is its last member; both keep the share rule."""
    found = []
    for _ in range(draws):
        for _ in range(TRIES):
            chosen = draw.choice(len(means), size + 1, replace=False)
            others, i, j = chosen[:-2], int(chosen[-2]), int(chosen[-1])
            largest = max(max(means[others].max(), means[k]) / (means[others].sum() + means[k]) for k in (i, j))
            if limit is None or largest <= limit:
                found.append((others, i, j))
                break
    return found


def _priced(
    means: FloatArray,
    left: FloatArray,
    groups: Sequence[Group],
    size: int,
    limit: float | None,
    length: int,
    view: str,
    correlation: float,
    epsilon: float,
) -> Priced:
    variances = left.var(axis=1, ddof=1)
    # Days with correlation r^|s − t|: 1ᵀR⁻¹1 = (D (1 − r) + 2 r) / (1 + r), as many independent days they are worth.
    worth = (length * (1.0 - correlation) + 2.0 * correlation) / (1.0 + correlation)
    deltas, powers, errors = [], [], []
    for others, i, j in groups:
        mean, variance = float(means[others].sum()), float(variances[others].sum())
        centers = np.zeros((2, length))
        centers[:, 0] = np.sqrt(worth) * (mean + means[[i, j]])
        spread = (variance + variances[[i, j]])[:, None, None] * np.eye(length)
        classes = GaussianClasses(centers, spread, labels=["one", "other"])
        graph = NeighborGraph.complete(["one", "other"])
        deltas.append(float(privacy_curve(classes, graph, epsilon).delta_upper))
        powers.append(float(np.max(tpr_at_fpr(classes, graph, 0.01))))
        crowd = (kwh := left + means[:, None])[[*others.tolist(), i, j]]
        off = crowd - crowd.mean(axis=0)
        errors.append(100.0 * float(np.sqrt((off**2).mean()) / (kwh[[*others.tolist(), i]].sum(axis=0).mean())))

    def interval(values: list[float]) -> tuple[float, float]:
        low, high = np.quantile(values, (0.05, 0.95))
        return float(low), float(high)

    return Priced(
        size, limit, length, view,
        float(np.median(deltas)), interval(deltas), float(np.median(powers)), interval(powers), len(groups),
        float(np.median(errors)),
    )  # fmt: skip
