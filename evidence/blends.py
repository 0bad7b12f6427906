"""How forecast and habits are weighed when crowds are formed: what was tried, chosen on even homes, held against odd.

Weights are those of the habits of the whole day, of the habits at the forecast's hours and of the forecast, each over
its spread (:func:`shoal.sources.meters.neighborhoods.blend` has the first as 1). The forecast enters as its power
``exponent``: 0.5 is the root, 1 is kW. Blocks that are not relative are over the root of their number of columns.
Prices are means over origins of the first release and of the one three weeks later, of homes that are in both; every
origin of London, every third of the Swiss ones. Even and odd: by the last digit in London, by place in the sorted file
for the Swiss homes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evidence.homes import EVERY
from evidence.occasions import days_later, habits_of, occasion
from evidence.prices import DAYS, HOURS, LATER_DAYS
from shoal.laws.crowds import crowds, means
from shoal.validation import FloatArray


@dataclass(frozen=True)
class Blend:
    """Weights of the three blocks, exponent of the forecast, whether blocks are over their spread, members."""

    day: float = 1.0
    ahead: float = 1.0
    curve: float = 1.5
    exponent: float = 0.5
    relative: bool = True
    members: int = 12

    def points(self, power: FloatArray, habits: FloatArray, ahead: Any) -> FloatArray:
        """(n, d) points that crowds are formed by."""
        blocks = ((self.day, habits), (self.ahead, habits[:, ahead]), (self.curve, power**self.exponent))
        return np.concatenate([weight * self._scaled(block) for weight, block in blocks if weight], axis=1)

    def _scaled(self, block: FloatArray) -> FloatArray:
        if not self.relative:
            return np.asarray(block / np.sqrt(block.shape[1]))
        return np.asarray(block / np.sqrt(((block - block.mean(axis=0)) ** 2).sum() / len(block)))


TRIED = {
    "before: 1, 1, 1.5": Blend(),
    "1, 1, 3": Blend(curve=3),
    "0.5, 1, 1.5": Blend(day=0.5),
    "no habits of the day: 0, 1, 1.5": Blend(day=0),
    "0.5, 1, 2": Blend(day=0.5, curve=2),
    "0.5, 1, 3": Blend(day=0.5, curve=3),
    "0.3, 1, 3": Blend(day=0.3, curve=3),
    "0.5, 2, 3 (adopted; the same as 1, 4, 6)": Blend(day=0.5, ahead=2, curve=3),
    "0.4, 1.5, 3": Blend(day=0.4, ahead=1.5, curve=3),
    "forecast alone": Blend(day=0, ahead=0, curve=1),
    "forecast alone, in kW": Blend(day=0, ahead=0, curve=1, exponent=1),
    "forecast in kW: 1, 1, 1.5": Blend(exponent=1),
    "forecast to the power 0.35: 1, 1, 1.5": Blend(exponent=0.35),
    "blocks in √kW, not over their spread: 1, 1, 1.5": Blend(relative=False),
    "blocks in √kW: 1, 1, 2.5": Blend(curve=2.5, relative=False),
}
#: What crowds of exactly those promised would cost, without the fifth more that a crowd for life is formed with.
SMALLER = {"before, formed with 10": Blend(members=10)}


def chosen(name: str, households: list[str], half: str) -> list[str]:
    """The homes of one half, or all of them."""
    if half == "all":
        return households
    odd = half == "odd"
    if name == "london":
        return [home for home in households if int(home[-1]) % 2 == odd]
    return households[int(odd) :: 2]


def prices_of(name: str, half: str, tried: dict[str, Blend], keep: Path | None) -> dict[str, tuple[float, float]]:
    """Blend -> mean price of the first release and three weeks later."""
    readings = EVERY[name].read()
    every = [f"{day}T{hour:02d}:00" for days in DAYS[name].values() for day in days for hour in HOURS]
    found: dict[str, list[tuple[float, float]]] = {}
    for origin in every if name == "london" else every[::3]:
        when = (origin, days_later(origin, LATER_DAYS))
        first, second = (occasion(readings, at, keep, f"{name}-{at}") for at in when)
        homes = chosen(name, sorted(set(first.households) & set(second.households)), half)
        rows = [first.households.index(home) for home in homes]
        habits, ahead = habits_of(readings, origin, keep, f"{name}-{origin}")
        before, after = first.of(homes), second.of(homes)
        for words, blend in tried.items():
            member = crowds(blend.points(before.power, habits[rows], ahead), blend.members, beside=before.power)
            later = after.errors(means(after.power, member)[member]).sum() / after.errors(after.power).sum()
            found.setdefault(words, []).append((before.price(member), float(later)))
    return {words: tuple(np.mean(values, axis=0).tolist()) for words, values in found.items()}


def study(keep: Path | None = None, progress: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """Every blend on even homes; that in use before, the adopted one and the nearest rivals on odd and on all."""
    few = {w: b for w, b in TRIED.items() if w.startswith(("before: ", "0.5, 1, 3", "0.5, 2, 3"))}
    rows = []
    for half, tried in (("even", TRIED), ("odd", few), ("all", few | SMALLER)):
        for name, homes in EVERY.items():
            if not homes.there or (half, name) == ("all", "swiss"):
                continue
            if progress is not None:
                progress(f"{name}, {half} homes", 0.0)
            found = prices_of(name, half, tried, keep)
            rows += [{"data": name, "half": half, "blend": w, "price": p, "later": q} for w, (p, q) in found.items()]
    return {"rows": rows}
