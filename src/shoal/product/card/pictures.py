"""Pictures for pages, as figures that a template draws: nothing here is markup.

The length of a bar is that of the figure printed beside it. Functions return None for what has nothing to show.
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

#: Crowds that are drawn, and those of them that are shown at first.
DRAWN, FIRST = 300, 12
#: Size of a panel.
WIDTH, HEIGHT = 200.0, 90.0
#: Marks on an axis, at most; widths of the curve that stands for most homes, and of one among many.
MARKS, THICK, THIN = 13, 6.0, 1.2
#: Hours between instants on an axis, and how many of these there are, at most.
HOURS, TICKS = (0.25, 0.5, 1, 2, 3, 6, 12, 24, 72, 168, 720), 6
NO_TIME = timedelta(0)
#: Bins of a distribution, and rows in the table of the least accurate; columns of a table that are drawn.
BINS, MOST = 8, 5
#: Columns of a public table that are no figures.
NO_FIGURES = ("crowd", "members", "row")


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
class Axis:
    """The axis below a chart: marks as a path, words at its beginning and end, and (place in %, words) between."""

    marks: str
    first: str
    last: str
    ticks: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Lines:
    """Curves over one axis: (path, stroke width, tone) of each, and what a tone means; ``scale`` is its kW, in %."""

    name: str
    curves: tuple[tuple[str, str, str], ...]
    ends: tuple[float, float]
    axis: Axis
    legend: tuple[tuple[str, str], ...]

    @property
    def scale(self) -> tuple[tuple[str, str], ...]:
        """Marks of the vertical axis: place from the top in percent, and a round figure."""
        low, high = self.ends
        step = _round_step((high - low) / 4) if high > low else 1.0
        rounded = step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)
        return tuple(
            (f"{100 * _panel_height(value, self.ends) / HEIGHT:.1f}", nearest(value + 0.0)) for value in rounded
        )


def _round_step(least: float) -> float:
    """The least of 1, 2, 5, 10 … times a power of ten that is at least ``least``."""
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(m * power for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9)))


def _panel_height(value: float | FloatArray, ends: tuple[float, float]) -> Any:
    """Vertical place of a figure in a panel, from its top, in units of the picture."""
    return HEIGHT - 3.0 - (value - ends[0]) / ((ends[1] - ends[0]) or 1.0) * (HEIGHT - 6.0)


def time_axis(n: int, origin: str | None, step_minutes: float | None, words: str = "") -> Axis:
    """The axis of ``n`` entries: instants where there are any, else the numbers of the entries, or ``words``.

    >>> time_axis(3, "2024-01-16T12:00:00", 30.0).last
    '13:00'
    """
    stride = -(-n // MARKS)
    places = np.linspace(2.0, WIDTH - 2.0, max(n, 2))
    marks = f"M2,{HEIGHT - 2:g}L{WIDTH - 2:g},{HEIGHT - 2:g}"
    marks += "".join(f"M{x:.1f},{HEIGHT - 5:g}L{x:.1f},{HEIGHT:g}" for x in places[::stride])
    if origin is None or step_minutes is None:
        return Axis(marks, words or "1", "" if words else str(n))
    begin = datetime.fromisoformat(origin)
    instants = [begin + timedelta(minutes=step_minutes) * i for i in range(n)]
    form = "%H:%M" if begin.date() == instants[-1].date() else "%b %d, %H:%M"
    every = next((hours for hours in HOURS if n * step_minutes <= 60 * hours * TICKS), HOURS[-1])
    midnight = begin.replace(hour=0, minute=0, second=0)
    shown = [
        (x, t) for x, t in zip(places, instants, strict=False) if (t - midnight) % timedelta(hours=every) == NO_TIME
    ]
    ticks = tuple((f"{100 * x / WIDTH:.1f}", t.strftime("%H:%M" if t.hour or t.minute else "%b %d")) for x, t in shown)
    return Axis(marks, begin.strftime(form), instants[-1].strftime(form), ticks)


def table_pictures(card: ReleaseCard, files: Mapping[str, bytes]) -> tuple[list[Lines], list[Bars]]:
    """Charts of the public files: curves of meters, or bars of a class table's figures and counts."""
    rows = list(csv.DictReader(io.StringIO(files.get("released.csv", b"").decode())))
    if not rows:
        return [], []
    if card.fit.step_minutes is None:
        return [], _cell_bars(rows) if card.step.is_noisy else _column_histograms(rows)
    curves: dict[tuple[str, ...], tuple[float, list[float]]] = {}
    for row in rows:
        key = row["crowd"], row.get("row", "")
        curves.setdefault(key, (float(row.get("members", 1)), []))[1].append(float(row["kw"] or "nan"))
    axis = time_axis(len(next(iter(curves.values()))[1]), rows[0]["timestamp"], card.fit.step_minutes)
    drawn = sorted((w, values) for w, values in curves.values() if w > 0 and np.isfinite(values).all())
    if card.step.is_noisy:
        total = [float(row["kw"]) for row in csv.DictReader(io.StringIO(files.get("total.csv", b"").decode()))]
        most = max((weight for weight, _ in drawn), default=1.0)
        curved = [(values, max(0.4, THICK * weight / most), "row") for weight, values in drawn]
        charts = [("Total of all, with noise", [(total, THIN, "row")] if total else [], "total")]
        charts += [("Curves, with noise", curved, "a curve; thicker where more are like it")]
        return [_line_chart(name, shown, axis, [("row", words)]) for name, shown, words in charts if shown], []
    if not drawn:
        return [], []
    weights, shown = np.array([weight for weight, _ in drawn]), drawn[:: -(-len(drawn) // DRAWN)]
    mean = (weights @ np.array([values for _, values in drawn]) / weights.sum()).tolist()
    words = card.step.drawn + (f" ({len(shown)} of {len(drawn)})" if len(shown) < len(drawn) else "")
    legend = [("row", words), ("mean", "mean of all rows" + ", weighted by members" * card.step.is_shared)]
    each = [(values, THIN, "row") for _, values in shown]
    return [_line_chart("Released rows", [*each, (mean, 3 * THIN, "mean")], axis, legend)], []


def _line_chart(
    name: str, curves: Sequence[tuple[Sequence[float], float, str]], axis: Axis, legend: Sequence[tuple[str, str]]
) -> Lines:
    """Curves given as (figures, stroke width, tone), drawn on one scale."""
    values = np.array([figures for figures, _, _ in curves])
    panel = CrowdCurves(0, 0, (), values, values)
    drawn = ((panel.svg_path(one), f"{width:.1f}", tone) for one, (_, width, tone) in zip(values, curves, strict=True))
    return Lines(name, tuple(drawn), panel.ends, axis, tuple(legend))


def _cell_bars(rows: Sequence[Mapping[str, str]]) -> list[Bars]:
    """Bars of the counts of a noisy table's cells."""
    edges = [name for name in rows[0] if name.endswith((" from", " below"))]
    cells = [(_cell_name([row[edge] for edge in edges]), row["count"], "") for row in rows]
    shown = [(name, count if float(count) > 0 else "0", tone) for name, count, tone in cells]
    counts = make_bars("Count of each cell, with noise", "cell", "count", shown)
    return [] if counts is None else [counts]


def _column_histograms(rows: Sequence[Mapping[str, str]]) -> list[Bars]:
    """Histograms of the first columns of a class table."""
    columns = [name for name in rows[0] if name not in NO_FIGURES][:MOST]
    figures = {name: [float(row[name]) for row in rows if row[name]] for name in columns}
    pictures = (
        make_bars(f"Released rows by {name}", name, "rows", _histogram_rows(np.array(values), min(values)), equal=True)
        for name, values in figures.items()
        if len(set(values)) > 1
    )
    return [picture for picture in pictures if picture is not None]


def _histogram_rows(values: FloatArray, low: float, unit: str = "") -> list[tuple[str, str, str]]:
    """Numbers of values between round figures from ``low`` on, as rows for bars."""
    step = _round_step((float(values.max()) - low) / BINS)
    edges = step * np.arange(np.floor(low / step), np.ceil(float(values.max()) / step) + 1)
    counts = np.histogram(values, [*edges[:-1], np.inf])[0]
    ends = zip(edges[:-1] + 0.0, edges[1:] + 0.0, counts, strict=True)
    return [(f"{nearest(a)} to {nearest(b)}{unit}", str(int(n)), "") for a, b, n in ends]


def _cell_name(ends: Sequence[str]) -> str:
    """A cell in words, from the low and high end of each of its columns."""
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return ", ".join(f"{low or '…'} to {high or '…'}" for low, high in pairs) or "all"


@dataclass(frozen=True)
class CrowdCurves:
    """The owner's view of one crowd: members' own figures, (n, k), and what was released, (1, k) or (n, k)."""

    number: int
    homes: int
    names: Sequence[str]
    values: FloatArray
    released: FloatArray

    @cached_property
    def label_errors(self) -> FloatArray:
        """(n,) root mean squared difference between the released row and each member's own figures."""
        return np.asarray(np.sqrt(((self.released - self.values) ** 2).mean(axis=1)))

    @property
    def cost(self) -> float:
        """Root mean squared error of the released rows over all members."""
        return float(np.sqrt((self.label_errors**2).mean()))

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Lowest and highest figure of the panel; the lowest is at most zero."""
        both = np.concatenate([self.values.ravel(), self.released.ravel()])
        return min(0.0, float(both.min())), float(both.max())

    @property
    def members(self) -> list[tuple[str, float, str]]:
        """(name, error of the row, own curve as an SVG path) of each member, sorted by name."""
        paths = (self.svg_path(values) for values in self.values)
        return sorted(zip(self.names, self.label_errors.tolist(), paths, strict=True))

    @property
    def paths(self) -> list[str]:
        """SVG paths of the different released curves."""
        return [self.svg_path(row) for row in np.unique(self.released, axis=0)]

    def svg_path(self, values: FloatArray) -> str:
        """A curve as an SVG path inside the panel; a single figure is a level line."""
        curve = np.repeat(values, 2) if len(values) == 1 else values
        x = np.linspace(2.0, WIDTH - 2.0, len(curve))
        return "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, _panel_height(curve, self.ends), strict=True))


def make_bars(
    name: str, of: str, unit: str, rows: Sequence[tuple[str, str, str]], *, equal: bool = False
) -> Bars | None:
    """Bars of (name, printed figure, tone) rows; None for fewer than two, or if all are equal and may not be."""
    values = [float(text.split()[0]) for _, text, _ in rows]
    longest = max(values, default=0.0)
    if len(rows) < 2 or longest <= 0 or (len(set(values)) == 1 and not equal):
        return None
    drawn = (
        (label, text, value, f"{100 * value / longest:.2f}", tone)
        for (label, text, tone), value in zip(rows, values, strict=True)
    )
    return Bars(name, of, unit, tuple(drawn))


def naming_bars(card: ReleaseCard) -> Bars | None:
    """Bars of how often a label is named: unprotected or promised, from this release, and by a guess."""
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
    return make_bars(f"How often a {card.fit.noun} is named", "who", "named right", rows)


def error_histogram(crowds: Sequence[CrowdCurves], unit: str, noun: str) -> Bars | None:
    """Histogram of labels by the error of their released row; None if all errors are equal."""
    off = np.concatenate([crowd.label_errors for crowd in crowds]) if crowds else np.empty(0)
    if len(off) < 2 or off.max() <= off.min():
        return None
    rows = _histogram_rows(off, 0.0, f" {unit}")
    return make_bars(f"Error of the row of a {noun}", "off by", many(noun), rows)


def least_accurate(crowds: Sequence[CrowdCurves], unit: str) -> list[tuple[str, str, str, str]]:
    """The labels with the largest errors: name, crowd, error of the row, mean of the own figures."""
    rows = [
        (float(off), name, crowd.number, float(values.mean()))
        for crowd in crowds
        for name, off, values in zip(crowd.names, crowd.label_errors, crowd.values, strict=True)
    ]
    rows.sort(key=lambda row: (-row[0], row[1]))
    return [
        (name, str(number), f"{upper(off)} {unit}", f"{nearest(own)} {unit}") for off, name, number, own in rows[:MOST]
    ]


def crowd_panels(crowds: Sequence[CrowdCurves], unit: str, noun: str, axis: Axis) -> dict[str, Any] | None:
    """One small chart for each of the least accurate crowds."""
    if not crowds:
        return None
    ordered = sorted(crowds, key=lambda crowd: (-crowd.cost, crowd.number))
    drawn, missing = ordered[:DRAWN], sum(len(crowd.names) for crowd in ordered[DRAWN:])
    words = (
        f"{count_of(len(ordered), 'crowd')}, each with its own scale. The members' own figures stay here. The search "
        f"finds every {noun}" + (f" but {missing}, which released.csv has." if missing else ".")
    )
    each = "the row that is released" if len(ordered[0].released) == 1 else "released rows"
    legend = [("member", "members' own figures"), ("mean", each)]
    return {
        "words": words,
        "axis": axis,
        "unit": unit,
        "panels": drawn,
        "first": FIRST,
        "legend": legend,
    }
