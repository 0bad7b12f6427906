"""Who is in which standing crowd, from one release to the next.

A crowd only ever grows: members who leave stay on its list, joiners are added, and two crowds may become one for good.
So two labels that were neighbors once stay neighbors, which is what lets a ledger compose their releases
(docs/theory.md, section 12). The rule, inside one cell, which never crosses a boundary:

1. A crowd of which fewer than m are present is *thin*. Where enough joiners are there to fill it up to m, within 2m − 1
   members with a forecast, the nearest of them enter it; crowds that lack fewest come first.
2. Every other joiner enters the nearest crowd that is not thin and has fewer than 2m − 1 members with a forecast.
3. Those for whom no crowd has room form crowds of their own where they are m or more; else they wait.
4. A crowd that is still thin is left out of this release. One that was thin at the release before too joins for good
   the nearest crowd with which m to 2m − 1 are present; where there is none, it waits.

Who is present decides about 1 and 4, and distances between habits decide who is nearest: nobody's answer of the day
plays a part. In a class table distances are those of its rows: a label is placed by the first ones it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from shoal.laws.crowds import crowds as formed
from shoal.validation import FloatArray

#: Releases in a row at which a crowd is too thin before it joins another for good.
PATIENCE = 2


@dataclass(frozen=True)
class Roster:
    """``crowds``: everyone who ever had a place -> its crowd; ``thin``: crowd -> releases in a row that it was thin at.

    ``joined`` households and ``merged`` crowds are those of the last change.
    """

    crowds: dict[str, int]
    thin: dict[int, int] = field(default_factory=dict)
    joined: tuple[str, ...] = ()
    merged: int = 0

    def renewed(
        self, names: Sequence[str], points: FloatArray, present: Set[str], cells: Mapping[str, int], size: int
    ) -> Roster:
        """The roster of the next release.

        Args:
            names: those with a forecast.
            points: (n, d) their habits.
            present: those with new readings.
            cells: those with new readings, and maybe others -> the cell that crowds stay in.
            size: least members of a crowd.
        """
        place = {name: i for i, name in enumerate(names)}
        today = _Today(dict(self.crowds), names, points, present)
        cell_of = {today.crowds[name]: cells[name] for name in sorted(cells) if name in today.crowds}
        waiting: dict[int, list[str]] = {}
        for name in sorted(present & place.keys()):
            if name not in today.crowds:
                waiting.setdefault(cells[name], []).append(name)
        merged = 0
        thin: dict[int, int] = {}
        for cell in sorted({*cell_of.values(), *waiting}):
            left = waiting.get(cell, [])
            here = sorted(crowd for crowd, where in cell_of.items() if where == cell and today.has(crowd))
            left = _filled(today, here, left, size)
            left = _entered(today, here, left, size)
            if len(left) >= size:
                number = max(today.crowds.values(), default=-1) + 1
                found = formed(points[[place[name] for name in left]], size)
                today.add({name: number + int(crowd) for name, crowd in zip(left, found, strict=True)})
            merged += _joined_for_good(today, here, self.thin, size)
        for crowd in sorted(set(today.crowds.values())):
            if today.present(crowd) < size:
                thin[crowd] = self.thin.get(crowd, 0) + 1
        joined = tuple(name for name in today.crowds if name not in self.crowds)
        return replace(self, crowds=today.crowds, thin=thin, joined=joined, merged=merged)


class _Today:
    """Crowds while they change: members with a forecast, those present, and where the center of their habits lies."""

    def __init__(self, crowds: dict[str, int], names: Sequence[str], points: FloatArray, present: Set[str]) -> None:
        self.crowds = crowds
        self._place = {name: i for i, name in enumerate(names)}
        self._points = points
        self._present = present
        self._rows: dict[int, list[int]] = {}
        for name in names:
            if name in crowds:
                self._rows.setdefault(crowds[name], []).append(self._place[name])
        self._count = Counter(crowds[name] for name in names if name in crowds and name in present)

    def has(self, crowd: int) -> bool:
        return crowd in self._rows

    def members(self, crowd: int) -> int:
        """Those with a forecast."""
        return len(self._rows[crowd])

    def present(self, crowd: int) -> int:
        return self._count[crowd]

    def away(self, names: Sequence[str], crowds: Sequence[int]) -> FloatArray:
        """(names, crowds) squared distances from the centers."""
        rows = self._points[[self._place[name] for name in names]]
        centers = np.array([self.center(crowd) for crowd in crowds]).reshape(len(crowds), rows.shape[1])
        return np.asarray(((rows[:, None, :] - centers[None]) ** 2).sum(axis=2))

    def center(self, crowd: int) -> FloatArray:
        return np.asarray(self._points[sorted(self._rows[crowd])].mean(axis=0))

    def add(self, placed: Mapping[str, int]) -> None:
        """Give joiners, who are present, their crowds."""
        for name, crowd in placed.items():
            self.crowds[name] = crowd
            self._rows.setdefault(crowd, []).append(self._place[name])
            self._count[crowd] += 1

    def merge(self, one: int, into: int) -> None:
        for name, crowd in self.crowds.items():
            if crowd == one:
                self.crowds[name] = into
        self._rows[into] += self._rows.pop(one)
        self._count[into] += self._count.pop(one, 0)


def _filled(today: _Today, here: Sequence[int], joiners: list[str], size: int) -> list[str]:
    """Fill thin crowds up that can be; the joiners who are left."""
    for crowd in sorted(here, key=lambda one: (size - today.present(one), one)):
        lacking = size - today.present(crowd)
        if 0 < lacking <= len(joiners) and today.members(crowd) + lacking <= 2 * size - 1:
            near = np.argsort(today.away(joiners, [crowd])[:, 0], kind="stable")[:lacking]
            today.add({joiners[i]: crowd for i in near})
            joiners = [name for i, name in enumerate(joiners) if i not in set(near.tolist())]
    return joiners


def _entered(today: _Today, here: Sequence[int], joiners: list[str], size: int) -> list[str]:
    """Joiners enter the nearest crowd with room, the closest first; those for whom there is none are left."""
    there = [crowd for crowd in here if today.present(crowd) >= size]
    if not there or not joiners:
        return joiners
    room = {crowd: 2 * size - 1 - today.members(crowd) for crowd in there}
    placed: dict[str, int] = {}
    for at in np.argsort(today.away(joiners, there), axis=None, kind="stable").tolist():
        name, crowd = joiners[at // len(there)], there[at % len(there)]
        if name not in placed and room[crowd] > 0:
            placed[name] = crowd
            room[crowd] -= 1
    today.add(placed)
    return [name for name in joiners if name not in placed]


def _joined_for_good(today: _Today, here: Sequence[int], before: Mapping[int, int], size: int) -> int:
    """Crowds that stay thin join another; how many did."""
    merged = 0
    for crowd in here:
        if not today.has(crowd) or today.present(crowd) >= size or before.get(crowd, 0) + 1 < PATIENCE:
            continue
        others = [
            other
            for other in here
            if other != crowd
            and today.has(other)
            and size <= today.present(crowd) + today.present(other) <= 2 * size - 1
        ]
        if others:
            center = today.center(crowd)
            away = [float(((today.center(other) - center) ** 2).sum()) for other in others]
            today.merge(crowd, others[int(np.argmin(away))])
            merged += 1
    return merged
