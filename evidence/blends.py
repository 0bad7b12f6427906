"""Weights of forecast and usual day when crowds are formed: what was tried, chosen on even homes, held against odd.

Two families. *Roots* (:func:`shoal.product.sources.meters.crowd_points.points_of_homes`): everything in √kW, with the
share of the usual load in what stands for the forecast, the weight of the usual load at the forecast's times and that
of the whole usual day. *Spreads*, in use before: hourly means of √kW of the whole day, the same at the forecast's
hours, and the root of the forecast, each over its spread over the homes, with three weights. And *expected error*:
the adopted crowds, improved by what they are expected to add (:mod:`evidence.refined`), on all homes only.

Prices are means over origins of the first release, of the one three weeks later at the same hour, and of those at the
other hours of that day, of homes that are in all; every origin of London, every third of the Swiss ones. Even and odd:
by the last digit in London, by place in the sorted file for the Swiss homes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.homes import EVERY
from evidence.occasions import Occasion, days_later, occasion
from evidence.prices import DAYS, HOURS, LATER_DAYS
from evidence.refined import refined
from shoal.crowds.formation import least_spread_crowds
from shoal.product.sources.meters.crowd_points import AHEAD_WEIGHT, DAY_WEIGHT, USUAL_SHARE, points_of_homes
from shoal.validation import FloatArray


@dataclass(frozen=True)
class Roots:
    """Weights of what a run uses, and members that a crowd is formed with."""

    share: float = USUAL_SHARE
    ahead: float = AHEAD_WEIGHT
    day: float = DAY_WEIGHT
    members: int = 12

    def points(self, homes: Occasion) -> FloatArray:
        """(n, d) points that crowds are formed by."""
        assert homes.habits is not None
        return points_of_homes(homes.power, homes.habits.day, homes.habits.ahead, (self.share, self.ahead, self.day))

    def crowds(self, homes: Occasion) -> NDArray[np.int64]:
        """(n,) crowd of each home."""
        return least_spread_crowds(self.points(homes), self.members, beside=homes.power)


@dataclass(frozen=True)
class Spreads:
    """Weights of three blocks, each over its spread over the homes, and members that a crowd is formed with."""

    day: float = 1.0
    ahead: float = 1.0
    curve: float = 1.5
    members: int = 12

    def points(self, homes: Occasion) -> FloatArray:
        """(n, d) points that crowds are formed by."""
        assert homes.habits is not None
        hours = homes.habits.roots
        each = homes.habits.day.shape[1] // hours.shape[1]
        ahead = hours[:, np.unique(homes.habits.ahead // each)]
        blocks = ((self.day, hours), (self.ahead, ahead), (self.curve, np.sqrt(homes.power)))
        return np.concatenate([weight * _over_spread(block) for weight, block in blocks if weight], axis=1)

    def crowds(self, homes: Occasion) -> NDArray[np.int64]:
        """(n,) crowd of each home."""
        return least_spread_crowds(self.points(homes), self.members, beside=homes.power)


@dataclass(frozen=True)
class Expected:
    """The adopted crowds, improved by expected added error (:mod:`evidence.refined`), with two weights."""

    usual: float
    day: float
    members: int = 12

    def crowds(self, homes: Occasion) -> NDArray[np.int64]:
        """(n,) crowd of each home."""
        return refined(homes, self.usual, self.day, self.members)


Blend = Roots | Spreads | Expected


def _over_spread(block: FloatArray) -> FloatArray:
    return np.asarray(block / np.sqrt(((block - block.mean(axis=0)) ** 2).sum() / len(block)))


BEFORE, LATELY, ADOPTED = "before: spreads 1, 1, 1.5", "lately: spreads 1, 4, 6", "adopted: roots 0.2, 0.4, 0.3"
TRIED: dict[str, Blend] = {
    BEFORE: Spreads(),
    LATELY: Spreads(1, 4, 6),
    "spreads 1, 2, 6": Spreads(1, 2, 6),
    "forecast alone": Spreads(0, 0, 1),
    ADOPTED: Roots(),
    "roots 0, 0.4, 0.1": Roots(0, 0.4, 0.1),
    "roots 0, 0.5, 0.1": Roots(0, 0.5, 0.1),
    "roots 0.2, 0.5, 0.1": Roots(0.2, 0.5, 0.1),
    "roots 0.1, 0.5, 0.4": Roots(0.1, 0.5, 0.4),
    "roots 0.2, 0, 0.5": Roots(0.2, 0, 0.5),
    "roots 0.2, 0, 0.6": Roots(0.2, 0, 0.6),
    "roots 0, 0, 0.8": Roots(0, 0, 0.8),
}
#: What crowds of exactly those promised would cost, without the fifth more that a crowd for life is formed with.
SMALLER: dict[str, Blend] = {"adopted, formed with 10": Roots(members=10)}
#: How cheap the first release becomes where nothing else counts, and with a little of the usual day.
EXPECTED: dict[str, Blend] = {
    "expected error of the first release": Expected(0, 0),
    "expected error, usual day 0.3": Expected(0.2, 0.3),
}


def chosen(name: str, households: list[str], half: str) -> list[str]:
    """The homes of one half, or all of them."""
    if half == "all":
        return households
    odd = half == "odd"
    if name == "london":
        return [home for home in households if int(home[-1]) % 2 == odd]
    return households[int(odd) :: 2]


def prices_of(
    name: str, half: str, tried: dict[str, Blend], keep: Path | None
) -> dict[str, tuple[float, float, float]]:
    """Blend -> mean price of the first release, three weeks later at the same hour, and at the other hours."""
    readings = EVERY[name].read()

    def at(origin: str) -> Occasion:
        return occasion(readings, origin, keep, f"{name}-{origin}")

    every = [(day, hour) for days in DAYS[name].values() for day in days for hour in HOURS]
    prices: dict[str, list[tuple[float, float, float]]] = {}
    for day, hour in every if name == "london" else every[::3]:
        first = at(f"{day}T{hour:02d}:00")
        later = {other: at(days_later(f"{day}T{other:02d}:00", LATER_DAYS)) for other in HOURS}
        there = set(first.households).intersection(*(each.households for each in later.values()))
        homes = chosen(name, sorted(there), half)
        before, after = first.of(homes), {other: each.of(homes) for other, each in later.items()}
        for words, weights in tried.items():
            member = weights.crowds(before)
            costs = {other: each.price(member) for other, each in after.items()}
            others = float(np.mean([cost for other, cost in costs.items() if other != hour]))
            prices.setdefault(words, []).append((before.price(member), costs[hour], others))
    result = {}
    for words, values in prices.items():
        at_once, same, others = np.mean(values, axis=0).tolist()
        result[words] = (at_once, same, others)
    return result


def study(keep: Path | None = None, progress: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """Every blend on even homes; those in use before and lately and the adopted one on odd and on all."""
    few = {words: TRIED[words] for words in (BEFORE, LATELY, ADOPTED)}
    rows = []
    for half, tried in (("even", TRIED), ("odd", few), ("all", few | SMALLER | EXPECTED)):
        for name, homes in EVERY.items():
            if not homes.there:
                continue
            if progress is not None:
                progress(f"{name}, {half} homes", 0.0)
            for words, (price, later, others) in prices_of(name, half, tried, keep).items():
                row = {"data": name, "half": half, "blend": words}
                rows.append({**row, "price": price, "later": later, "other_hours": others})
    return {"rows": rows}
