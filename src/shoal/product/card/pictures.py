"""Pictures for pages, as figures that a template draws: nothing here is markup.

Whatever is drawn agrees with its text: the length of a bar is that of the figure printed beside it. What has nothing to
show (one bar, all alike) is not drawn: the functions return None.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np

from shoal.product.card.card import ReleaseCard
from shoal.rounding import count_of, many, nearest, percent, upper
from shoal.validation import FloatArray

#: Crowds that are drawn, those of them that are shown at first, and labels that are listed by name.
DRAWN, FIRST, NAMED = 300, 12, 100_000
#: Size of a panel.
WIDTH, HEIGHT = 200.0, 90.0
#: Marks on an axis, at most, and the width of the curve that stands for most homes.
MARKS, THICK = 13, 6.0
#: Bins of a distribution, and labels in the table of who pays most.
BINS, MOST = 8, 5


@dataclass(frozen=True)
class Bars:
    """Bars to compare, with the names of their two columns: (name, text, value, length, tone) of each.

    ``length`` is in percent of the longest, from the figure that is printed beside it.
    """

    name: str
    of: str
    unit: str
    bars: tuple[tuple[str, str, float, str, str], ...]


@dataclass(frozen=True)
class Lines:
    """Curves over one axis: (path, stroke width) of each, lowest and highest figure, and the axis."""

    name: str
    curves: tuple[tuple[str, str], ...]
    ends: tuple[float, float]
    axis: Axis


@dataclass(frozen=True)
class Axis:
    """The axis below a chart: its marks as a path, and what stands at its beginning and its end."""

    marks: str
    first: str
    last: str


def axis_of(n: int, origin: str | None, step_minutes: float | None, words: str = "") -> Axis:
    """The axis of ``n`` entries: instants where there are any, else the numbers of the entries, or ``words``.

    >>> axis_of(3, "2024-01-16T12:00:00", 30.0).last
    '13:00'
    """
    stride = -(-n // MARKS)
    places = np.linspace(2.0, WIDTH - 2.0, max(n, 2))[::stride]
    marks = f"M2,{HEIGHT - 2:g}L{WIDTH - 2:g},{HEIGHT - 2:g}"
    marks += "".join(f"M{x:.1f},{HEIGHT - 5:g}L{x:.1f},{HEIGHT:g}" for x in places)
    if origin is None or step_minutes is None:
        return Axis(marks, words or "1", "" if words else str(n))
    begin = datetime.fromisoformat(origin)
    end = begin + timedelta(minutes=step_minutes) * (n - 1)
    form = "%H:%M" if begin.date() == end.date() else "%b %d, %H:%M"
    return Axis(marks, begin.strftime(form), end.strftime(form))


def noisy_pictures(card: ReleaseCard, files: Mapping[str, bytes]) -> tuple[list[Lines], Bars | None]:
    """Total and curves of a noisy table of meters, or the counts of a table's cells, from the public files alone."""
    if card.readings is None or "released.csv" not in files:
        return [], None
    rows = list(csv.DictReader(io.StringIO(files["released.csv"].decode())))
    if "step" not in rows[0]:
        edges = [name for name in rows[0] if name.endswith((" from", " below"))]
        cells = [(_cell_name([row[edge] for edge in edges]), row["count"], "") for row in rows]
        shown = [(name, count if float(count) > 0 else "0", tone) for name, count, tone in cells]
        return [], bars("Count of each cell, with noise", "cell", "count", shown)
    curves: dict[str, tuple[float, list[float]]] = {}
    weight = next(name for name in rows[0] if name not in ("crowd", "step", "timestamp", "kw"))
    for row in rows:
        curves.setdefault(row["crowd"], (float(row[weight]), []))[1].append(float(row["kw"]))
    axis = axis_of(len(next(iter(curves.values()))[1]), rows[0]["timestamp"], card.fit.step_minutes)
    total = [float(row["kw"]) for row in csv.DictReader(io.StringIO(files.get("total.csv", b"").decode()))]
    drawn = sorted((number, values) for number, values in curves.values() if number > 0)
    pictures = [_lines("Curves: thicker where more are like it, with noise", drawn, axis)] if drawn else []
    return [*([_lines("The total of all, with noise", [(1.0, total)], axis)] if total else []), *pictures], None


def _cell_name(ends: Sequence[str]) -> str:
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return ", ".join(f"{low or '…'} to {high or '…'}" for low, high in pairs) or "all"


def _lines(name: str, curves: Sequence[tuple[float, Sequence[float]]], axis: Axis) -> Lines:
    """(weight, figures) as curves on one scale."""
    values, most = np.array([figures for _, figures in curves]), max(weight for weight, _ in curves)
    panel = CrowdCurves(0, 0, (), values, values)
    widths = (f"{max(0.4, THICK * weight / most):.1f}" for weight, _ in curves)
    return Lines(name, tuple(zip(map(panel.path, values), widths, strict=True)), panel.ends, axis)


@dataclass(frozen=True)
class CrowdCurves:
    """The owner's view of one crowd: members' own figures, (n, k), and what was released, (1, k) or (n, k)."""

    number: int
    homes: int
    names: Sequence[str]
    values: FloatArray
    released: FloatArray

    @cached_property
    def off(self) -> FloatArray:
        """(n,) root mean square of released − own figures."""
        return np.asarray(np.sqrt(((self.released - self.values) ** 2).mean(axis=1)))

    @property
    def cost(self) -> float:
        """Error of rows, over all members."""
        return float(np.sqrt((self.off**2).mean()))

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest figure of the panel; the lowest is not above zero."""
        both = np.concatenate([self.values.ravel(), self.released.ravel()])
        return min(0.0, float(both.min())), float(both.max())

    @property
    def members(self) -> list[tuple[str, float, str]]:
        """Name, how far the row is off, and the curve as a path, by name."""
        paths = (self.path(values) for values in self.values)
        return sorted(zip(self.names, self.off.tolist(), paths, strict=True))

    @property
    def paths(self) -> list[str]:
        """The released curves, each different one once."""
        return [self.path(row) for row in np.unique(self.released, axis=0)]

    def path(self, values: FloatArray) -> str:
        """A curve inside the panel; a single figure is a level line."""
        low, high = self.ends
        curve = np.repeat(values, 2) if len(values) == 1 else values
        x = np.linspace(2.0, WIDTH - 2.0, len(curve))
        y = HEIGHT - 3.0 - (curve - low) / ((high - low) or 1.0) * (HEIGHT - 6.0)
        return "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def bars(name: str, of: str, unit: str, rows: Sequence[tuple[str, str, str]]) -> Bars | None:
    """(name, printed figure, tone) as bars; None where there is nothing to compare."""
    values = [float(text.split()[0]) for _, text, _ in rows]
    longest = max(values, default=0.0)
    if len(rows) < 2 or longest <= 0 or len(set(values)) == 1:
        return None
    drawn = (
        (label, text, value, f"{100 * value / longest:.2f}", tone)
        for (label, text, tone), value in zip(rows, values, strict=True)
    )
    return Bars(name, of, unit, tuple(drawn))


def before_and_after(card: ReleaseCard) -> Bars | None:
    """Naming without protection, from this release, and by a guess, as the statements print them."""
    attack, named = card.attack, None if card.audit is None else card.audit.named
    rows: list[tuple[str, str, str]] = []
    if attack is not None:
        if attack.before is not None:
            rows.append(("without protection", percent(attack.before, "lower"), "before"))
        rows.append(("from this release", percent(attack.after), ""))
        rows.append(("a guess inside the right crowd", percent(attack.guessing), "guess"))
    elif named is not None:
        rows = [
            ("promised at most", percent(named.promise_upper), "before"),
            ("the best attacker", percent(named.accuracy), ""),
            ("a guess inside the crowd", percent(named.guessing, "nearest"), "guess"),
        ]
    return bars(f"How often a {card.fit.noun} is named", "who", "named right", rows)


def price_by_label(crowds: Sequence[CrowdCurves], unit: str, noun: str) -> Bars | None:
    """Histogram of labels by the error of their row."""
    off = np.concatenate([crowd.off for crowd in crowds]) if crowds else np.empty(0)
    if len(off) < 2 or off.max() <= off.min():
        return None
    unit_step = 10.0 ** np.floor(np.log10(off.max() / BINS))
    step = next(m * unit_step for m in (1, 2, 5, 10) if m * unit_step * BINS >= off.max())
    edges = step * np.arange(int(np.ceil(off.max() / step)) + 1)
    counts = np.histogram(off, [*edges[:-1], np.inf])[0]
    rows = [
        (f"{nearest(a)} to {nearest(b)} {unit}", str(int(n)), "")
        for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    return bars(f"How far a row is from the {noun}'s own figures", "off by", many(noun), rows)


def dearest(crowds: Sequence[CrowdCurves], unit: str) -> list[tuple[str, str, str, str]]:
    """The labels with the largest errors: name, crowd, how far off the row is, mean of the own figures."""
    rows = [
        (float(off), name, crowd.number, float(values.mean()))
        for crowd in crowds
        for name, off, values in zip(crowd.names, crowd.off, crowd.values, strict=True)
    ]
    rows.sort(key=lambda row: (-row[0], row[1]))
    return [
        (name, str(number), f"{upper(off)} {unit}", f"{nearest(own)} {unit}") for off, name, number, own in rows[:MOST]
    ]


def panels(crowds: Sequence[CrowdCurves], unit: str, noun: str, axis: Axis) -> dict[str, Any] | None:
    """Small multiples, the crowd that costs its members most first, and the names of those beyond what is drawn."""
    if not crowds:
        return None
    ordered = sorted(crowds, key=lambda crowd: (-crowd.cost, crowd.number))
    drawn, rest = ordered[:DRAWN], ordered[DRAWN:]
    others = [
        (name, crowd.number, off) for crowd in rest for name, off in zip(crowd.names, crowd.off.tolist(), strict=True)
    ][:NAMED]
    missing = sum(len(crowd.names) for crowd in rest) - len(others)
    released = "thick the row that is released" if len(ordered[0].released) == 1 else "blue what is released about them"
    words = (
        f"{count_of(len(ordered), 'crowd')}: thin the members' own figures, which stay here, {released}. Each has its "
        f"own scale. The search finds every {noun}"
        + (f" but {missing}, whom released.csv has." if missing else " of them.")
    )
    return {"words": words, "axis": axis, "unit": unit, "panels": drawn, "others": others, "first": FIRST}


def course(card: ReleaseCard) -> Bars | None:
    """The price of the releases of a series, where there are several."""
    prices = () if card.course is None else card.course.prices
    rows = [(period, f"{upper(value)} times", "") for period, value in prices]
    return bars("The price of earlier releases", "period", "error, as a multiple of the unprotected one", rows)
