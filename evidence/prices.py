"""Price and risk of crowds by data set, season and hour: what a run releases, at once and three weeks later.

Three weeks later there are two prices: at the hour of the first release, and at the three others that are looked at.

The price is the mean absolute error of the crowds' means against what was metered later, over that of the unprotected
forecasts; the mean over origins. Crowds are a run's: formed with 12, promised as 10, kept for the second release. The
risk is what somebody finds who knows a home's last week of readings, forecasts for it and takes the nearest row (in
√kW): among unprotected forecasts the home itself, among crowds its crowd, in which they then guess.

Intervals are at 95 %: homes and origins are drawn anew with replacement, with the crowds as they were formed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.homes import EVERY
from evidence.occasions import PROMISED, Occasion, days_later, occasion, own_forecasts
from shoal.crowds.formation import crowd_means
from shoal.validation import FloatArray

Member = NDArray[np.int64]

LATER_DAYS = 21
HOURS = (0, 6, 12, 18)
#: Days of first releases: working days and weekends of every season that is in the data.
DAYS: dict[str, dict[str, tuple[str, ...]]] = {
    "swiss": {
        "winter": ("2018-11-13", "2018-11-15", "2018-11-17", "2018-11-20", "2018-11-22", "2018-11-25"),
    },
    "london": {
        "winter": ("2013-01-17", "2013-02-03", "2013-12-02"),
        "spring": ("2013-03-12", "2013-04-06", "2013-05-08"),
        "summer": ("2013-06-11", "2013-07-07", "2013-08-01"),
        "autumn": ("2013-09-10", "2013-10-05", "2013-11-07"),
    },
}
#: The six origins of ``benchmarks.price``, whose price is bounded.
SIX = (
    "2018-11-16T06:00", "2018-11-21T12:00", "2018-11-25T20:00", "2018-11-30T08:00", "2018-12-05T18:00",
    "2018-12-11T00:00",
)  # fmt: skip
RESAMPLES = 1000


@dataclass(frozen=True)
class PriceRow:
    """Price and risk over some origins of a data set, each a mean with its 95 % interval."""

    data: str
    season: str
    hour: str
    homes: int  #: at the origin with most of them
    origins: int
    error_kw: float  #: mean absolute error of the unprotected forecasts
    price: tuple[float, float, float]
    later: tuple[float, float, float]
    other_hours: tuple[float, float, float]  #: the price three weeks later of releases at the other hours of the day
    named_forecast: tuple[float, float, float]
    named_crowd: tuple[float, float, float]


@dataclass(frozen=True)
class _Measured:
    """One first release: (homes of the set,) sums that prices and shares are ratios of, 0 for a home without any."""

    season: str
    hour: int
    homes: int
    sums: dict[str, FloatArray]


def measured(name: str, keep: Path | None = None, progress: Callable[[str, float], None] | None = None) -> list[Any]:
    """Every first release of a data set and the one three weeks later."""
    readings = EVERY[name].read()
    every = np.array(readings.frame["household"].unique().sort().to_list())
    origins = [(season, day, hour) for season, days in DAYS[name].items() for day in days for hour in HOURS]
    result = []
    for number, (season, day, hour) in enumerate(origins):
        if progress is not None:
            progress(f"{name}: {day}, {hour} h", number / len(origins))
        at = f"{day}T{hour:02d}:00"
        first, second = (
            occasion(readings, origin, keep, f"{name}-{origin}") for origin in (at, days_later(at, LATER_DAYS))
        )
        member = first.crowds()
        others = [days_later(f"{day}T{other:02d}:00", LATER_DAYS) for other in HOURS if other != hour]
        names, week = own_forecasts(readings, at, keep, f"{name}-{at}")
        sums = {"steps": (first, first.seen.astype(np.float64))}
        sums |= _at_once(first, member) | _kept(first, second, member) | _risk(first, member, names, week)
        placed = {what: _by_home(every, *values) for what, values in sums.items()}
        for what, part in (("other off", "later off"), ("other without", "later without")):
            occasions = (occasion(readings, origin, keep, f"{name}-{origin}") for origin in others)
            placed[what] = np.sum([_by_home(every, *_kept(first, other, member)[part]) for other in occasions], axis=0)
        result.append(_Measured(season, hour, len(first.households), placed))
    return result


def _by_home(every: Any, homes: Occasion, values: FloatArray) -> FloatArray:
    """(homes of the set,) values of some homes at their places, 0 elsewhere."""
    placed = np.zeros(len(every))
    placed[np.searchsorted(every, np.array(homes.households))] = values
    return placed


def _at_once(first: Occasion, member: Member) -> dict[str, tuple[Occasion, FloatArray]]:
    return {"off": (first, first.errors(first.released(member))), "without": (first, first.errors(first.power))}


def _kept(first: Occasion, second: Occasion, member: Member) -> dict[str, tuple[Occasion, FloatArray]]:
    """The second release with the crowds of the first; a home that is silent then enters with its stored usual day."""
    place = {name: i for i, name in enumerate(second.households)}
    there = np.array([name in place for name in first.households])
    values = first.usual.copy()
    values[there] = second.power[[place[name] for name in np.array(first.households)[there]]]
    rows = crowd_means(values, member)[member][there]
    after = second.of(np.array(first.households)[there].tolist())
    return {"later off": (after, after.errors(rows)), "later without": (after, after.errors(after.power))}


def _risk(first: Occasion, member: Member, names: Any, week: FloatArray) -> dict[str, tuple[Occasion, FloatArray]]:
    """Whether the nearest row is the home's own, and the odds of naming it in the crowd whose row is nearest."""
    place = {name: i for i, name in enumerate(names.tolist())}
    own = np.array([i for i, name in enumerate(first.households) if name in place])
    here = first.take(own)
    known = np.sqrt(week[[place[name] for name in here.households]])
    near = _nearest(known, np.sqrt(first.power))
    crowd = _nearest(known, np.sqrt(crowd_means(first.power, member)))
    sizes = np.bincount(member)
    return {
        "tried": (here, np.ones(len(own))),
        "named": (here, (near == own).astype(np.float64)),
        "named in crowd": (here, np.where(crowd == member[own], 1 / sizes[member[own]], 0.0)),
    }


def _nearest(known: FloatArray, rows: FloatArray) -> Any:
    return ((known[:, None] - rows[None]) ** 2).sum(axis=2).argmin(axis=1)


RATIOS = {
    "price": ("off", "without"),
    "later": ("later off", "later without"),
    "other_hours": ("other off", "other without"),
    "named_forecast": ("named", "tried"),
    "named_crowd": ("named in crowd", "tried"),
}


def summarized(data: str, season: str, hour: str, some: Sequence[Any], seed: int = 0) -> PriceRow:
    """Means over origins, and intervals over homes and origins."""
    draw = np.random.default_rng(seed)
    homes = len(some[0].sums["off"])
    by_home = draw.multinomial(homes, np.full(homes, 1 / homes), RESAMPLES).astype(np.float64)
    by_origin = draw.multinomial(len(some), np.full(len(some), 1 / len(some)), RESAMPLES) / len(some)
    figures = {}
    for name, (top, bottom) in RATIOS.items():
        above, below = (np.stack([one.sums[part] for one in some]) for part in (top, bottom))
        ratios = (by_home @ above.T) / (by_home @ below.T)
        low, high = np.quantile((ratios * by_origin).sum(axis=1), (0.025, 0.975))
        figures[name] = (float((above.sum(axis=1) / below.sum(axis=1)).mean()), float(low), float(high))
    error = float(np.mean([one.sums["without"].sum() / one.sums["steps"].sum() for one in some]))
    return PriceRow(data, season, hour, max(one.homes for one in some), len(some), error, **figures)


def rows(name: str, every: Sequence[Any]) -> list[PriceRow]:
    """The whole data set, each season and hour, and each season at each hour."""
    seasons = list(DAYS[name])
    listed = [summarized(name, "all", "all", every)]
    if len(seasons) > 1:
        listed += [summarized(name, s, "all", [one for one in every if one.season == s]) for s in seasons]
    listed += [summarized(name, "all", f"{h:02d}:00", [one for one in every if one.hour == h]) for h in HOURS]
    if len(seasons) > 1:
        listed += [
            summarized(name, s, f"{h:02d}:00", [one for one in every if (one.season, one.hour) == (s, h)])
            for s in seasons
            for h in HOURS
        ]
    return listed


def study(keep: Path | None = None, progress: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """Price and risk on every data set that is at hand, for JSON; figures over all homes, no home's own."""
    listed: list[PriceRow] = []
    six: list[float] = []
    for name, homes in EVERY.items():
        if not homes.there:
            continue
        listed += rows(name, measured(name, keep, progress))
        if name == "swiss":
            readings = homes.read()
            some = [occasion(readings, origin, keep, f"swiss-{origin}") for origin in SIX]
            six = [one.price(one.crowds()) for one in some]
    return {
        "promised": PROMISED, "later_days": LATER_DAYS, "resamples": RESAMPLES, "rows": [asdict(row) for row in listed],
        "six": dict(zip(SIX, six, strict=False)),
    }  # fmt: skip
