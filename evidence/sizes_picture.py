"""The picture of the study of re-identification by rows, sizes of crowds and weeks known, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evidence.attack_pictures import BLUE, GREEN, ORANGE, RED, best, blank, ends, kind_of
from evidence.reidentification import AttackStudy, Hits


def sizes_picture(study: AttackStudy, path: Path) -> Path:
    """Homes named against the rows of a table, the size of crowds with their bounds, and the weeks known."""
    figure, (rows, crowds, weeks) = blank(3, (13.0, 4.4), sharey=True)
    lines = [("raw readings", RED), ("unprotected forecasts", ORANGE)]
    for what, color in lines:
        many = sorted({one.rows or study.homes for one in study.by_rows if one.what == what})
        strongest = [best([o for o in study.by_rows if (o.rows or study.homes) == size], what, 0) for size in many]
        _line(rows, many, [one.everywhere for one in strongest if one is not None], color, what)
    _line_axes(rows, "rows of the table", "Among fewer homes")
    for what, color in (("crowds", BLUE), ("codebooks", GREEN)):
        mine = [
            one for one in study.by_size if one.what.startswith(what) and kind_of(one) == 2 and one.inside is not None
        ]
        sizes = [one.crowd or 0 for one in mine]
        shown = [one.inside for one in mine if one.inside is not None]
        if not mine:
            continue
        values = [100 * one.top_1 for one in shown]
        crowds.errorbar(sizes, values, ends(shown), fmt="o", color=color, label=f"{mine[0].what}: named")
        crowds.plot(
            sizes, [100 * (one.bound or 0.0) for one in mine], color=color, ls="--", label=f"{mine[0].what}: bound"
        )
    _line_axes(crowds, "least homes of a crowd", "Inside the crowd")
    for what, color in (*lines, ("crowds", BLUE)):
        strongest = [best([o for o in study.by_weeks if o.weeks == w], what, 0) for w in (1, 2, 4)]
        there = [one for one in strongest if one is not None]
        _line(weeks, [one.weeks for one in there], [one.everywhere for one in there], color, what)
    _line_axes(weeks, "weeks known", "With more weeks known")
    rows.set_ylabel("homes named, %")
    rows.set_ylim(0, 104)
    figure.suptitle(
        f"{study.homes} homes, {study.days[0]} to {study.days[1]}. Filled: named at once; open: among ten. The best "
        "plain attacker, in the middle one who knows all but whose row; bars: 95 % intervals",
        fontsize=10,
    )
    figure.savefig(path, dpi=110)
    return path


def _line(axes: Any, at: Sequence[float], hits: Sequence[Hits], color: str, label: str) -> None:
    if not hits:
        return
    axes.errorbar(at, [100 * h.top_1 for h in hits], ends(hits), fmt="o-", color=color, label=label)
    tens = [100 * h.top_10 for h in hits]
    axes.errorbar(at, tens, ends(hits, ten=True), fmt="o:", color=color, markerfacecolor="white")


def _line_axes(axes: Any, label: str, title: str) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    axes.set_xscale("log")
    places = sorted({float(x) for line in axes.lines for x in line.get_xdata()})
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel(label)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
