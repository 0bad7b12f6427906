"""Studies as files, and their pictures with matplotlib."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import __version__

if TYPE_CHECKING:
    from shoal.studies.attackers import Hits
    from shoal.studies.reidentification import AttackFinding, Reidentification
    from shoal.studies.rule import RuleStudy

BLUE, ORANGE, GREEN, GRAY, RED = "#0072b2", "#e69f00", "#009e73", "#8a94a3", "#b3261e"
#: Kinds of attackers in a picture, as :func:`_kind` counts them, and their colors.
KINDS = (("plain attacker, the best", BLUE), ("learned attacker", ORANGE), ("knows all but whose row", GREEN))


def blank(columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False, **options)[0]


def saved(study: Any, name: str, drawn: Mapping[str, Callable[[Any, Path], Path]], out: str | Path) -> list[Path]:
    """Write a study as Markdown and JSON, and as pictures where matplotlib is there; returns the files.

    The numbers come with the day and the version that made them.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{name}.md", folder / f"{name}.json"]
    written[0].write_text(f"{study}\n")
    made = {"made": date.today().isoformat(), "version": __version__}
    written[1].write_text(json.dumps({**made, **study.to_dict()}, indent=1, ensure_ascii=False) + "\n")
    with contextlib.suppress(ImportError):
        written += [draw(study, folder / f"{name}{suffix}.png") for suffix, draw in drawn.items()]
    return written


def _kind(one: AttackFinding) -> int:
    from shoal.studies.reidentification import INFORMED, LEARNED

    return {LEARNED: 1, INFORMED: 2}.get(one.attacker, 0)


def _best(findings: Sequence[AttackFinding], what: str, kind: int) -> AttackFinding | None:
    """Of the attackers of a kind on one kind of data, the one that names most."""
    mine = [one for one in findings if one.what == what and _kind(one) == kind]
    return max(mine, key=lambda one: one.everywhere.top_1, default=None)


def _ends(hits: Sequence[Hits], ten: bool = False) -> Any:
    """(2, n) percent below and above, as error bars want them."""
    values = [(h.top_10, *h.top_10_interval) if ten else (h.top_1, *h.top_1_interval) for h in hits]
    return 100 * np.array([[max(v - low, 0.0), max(high - v, 0.0)] for v, low, high in values]).T


def reidentification_picture(study: Reidentification, path: Path) -> Path:
    """What attackers name before and after: among all rows, and inside the crowd beside what is certified."""
    figure, (left, right) = blank(2, (12.5, 5.2))
    everything = list(dict.fromkeys(one.what for one in study.findings))
    hidden = [what for what in everything if any(o.what == what and o.inside is not None for o in study.findings)]
    for axes, shown in ((left, everything), (right, hidden)):
        for kind, (label, color) in enumerate(KINDS):
            if axes is left and kind == 2:  # told the crowds besides: another question
                continue
            found = [(place, _best(study.findings, what, kind)) for place, what in enumerate(shown)]
            rows = [(place, one) for place, one in found if one is not None]
            if not rows:
                continue
            hits = [one.everywhere if axes is left or one.inside is None else one.inside for _, one in rows]
            wide = 0.4 if axes is left else 0.27
            at = np.array([place for place, _ in rows]) + wide * (kind - (0.5 if axes is left else 1.0))
            values = [100 * one.top_1 for one in hits]
            axes.barh(at, values, 0.95 * wide, xerr=_ends(hits), color=color, label=label, error_kw={"lw": 1.0})
            for y, one in zip(at, hits, strict=True):
                axes.text(100 * one.top_1_interval[1] + 1.2, y, f"{100 * one.top_1:.1f}", va="center", fontsize=8)
        axes.set_yticks(range(len(shown)), shown)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    for place, what in enumerate(hidden):
        bound = next(100 * (one.bound or 0.0) for one in study.findings if one.what == what)
        right.plot([bound, bound], [place - 0.46, place + 0.46], color=RED, linewidth=2.5)
    right.plot([], [], color=RED, linewidth=2.5, label="certified: at most")
    right.axvline(100 / study.crowd, color=GRAY, linestyle=":", label=f"a guess in a crowd of {study.crowd}")
    left.set_title(f"Which of {study.homes} rows is this home's?", loc="left", fontsize=11)
    right.set_title("Told who is in its crowd: which of their rows?", loc="left", fontsize=11)
    for axes in (left, right):
        axes.set_xlabel("homes named at once, %")
        axes.set_xlim(0, 105)
        axes.legend(frameon=False, fontsize=8.5, loc="lower right" if axes is left else "upper right")
    figure.suptitle(
        f"{study.homes} homes, {study.days[0]} to {study.days[1]}; one week known; black bars: 95 % intervals",
        fontsize=10,
    )
    figure.savefig(path, dpi=110)
    return path


def sizes_picture(study: Reidentification, path: Path) -> Path:
    """Homes named against the rows of a table, the size of crowds with what is certified, and the weeks known."""
    figure, (rows, crowds, weeks) = blank(3, (13.0, 4.4), sharey=True)
    lines = [("raw readings", RED), ("unprotected forecasts", ORANGE)]
    for what, color in lines:
        many = sorted({one.rows or study.homes for one in study.by_rows if one.what == what})
        best = [_best([o for o in study.by_rows if (o.rows or study.homes) == size], what, 0) for size in many]
        _line(rows, many, [one.everywhere for one in best if one is not None], color, what)
    _line_axes(rows, "rows of the table", "Among fewer homes")
    for what, color in (("crowds", BLUE), ("codebooks", GREEN)):
        mine = [
            one for one in study.by_size if one.what.startswith(what) and _kind(one) == 2 and one.inside is not None
        ]
        sizes = [one.crowd or 0 for one in mine]
        shown = [one.inside for one in mine if one.inside is not None]
        if not mine:
            continue
        values = [100 * one.top_1 for one in shown]
        crowds.errorbar(sizes, values, _ends(shown), fmt="o", color=color, label=f"{mine[0].what}: named")
        crowds.plot(
            sizes, [100 * (one.bound or 0.0) for one in mine], color=color, ls="--", label=f"{mine[0].what}: certified"
        )
    _line_axes(crowds, "least homes of a crowd", "Inside the crowd")
    for what, color in (*lines, ("crowds", BLUE)):
        best = [_best([o for o in study.by_weeks if o.weeks == w], what, 0) for w in (1, 2, 4)]
        there = [one for one in best if one is not None]
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
    axes.errorbar(at, [100 * h.top_1 for h in hits], _ends(hits), fmt="o-", color=color, label=label)
    tens = [100 * h.top_10 for h in hits]
    axes.errorbar(at, tens, _ends(hits, ten=True), fmt="o:", color=color, markerfacecolor="white")


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


def rule_picture(study: RuleStudy, path: Path) -> Path:
    """How well the last member of a group is told from its daily totals, and what certified totals cost."""
    figure, (left, middle, right) = blank(3, (14.0, 4.6), width_ratios=[1.25, 1.25, 1.0])
    sizes = sorted({row.members for row in study.rows})
    lengths = sorted({row.days for row in study.rows})
    views = list(dict.fromkeys(row.view for row in study.rows))
    rule = next((row.share for row in study.rows if row.share is not None), None)
    lines = [(size, rule if any(r.members == size and r.share == rule for r in study.rows) else None) for size in sizes]
    colors = dict(zip(sizes, (RED, ORANGE, BLUE, GRAY, GREEN), strict=False))
    for number, (size, share) in enumerate(lines):
        name = f"{size} homes" + ("" if share is None else f", none above {share:.0%}")
        rows = [r for r in study.rows if (r.members, r.share, r.view) == (size, share, views[0])]
        at = np.array([row.days for row in rows]) * 1.1 ** (number - 1)  # side by side, so that bars do not overlap
        values = np.array([100 * row.tpr for row in rows])
        for kind, width in (("tpr_range", 0.8), ("tpr_interval", 3.0)):
            low, high = 100 * np.array([getattr(row, kind) for row in rows]).T
            left.vlines(at, low, high, color=colors[size], linewidth=width)
        left.plot(at, values, "o-", color=colors[size], label=name)
    left.set_title("What the rule gives away (weather known)", loc="left", fontsize=11)
    shown = next((line for line in lines if line[0] == 15), lines[0])
    for number, view in enumerate(views):
        rows = [r for r in study.rows if (r.members, r.share, r.view) == (*shown, view)]
        at = np.array([row.days for row in rows]) * 1.1 ** (number - 1.5)
        low, high = 100 * np.array([row.tpr_interval for row in rows]).T
        color = (ORANGE, GREEN, GRAY, RED)[number % 4]
        middle.vlines(at, low, high, color=color, linewidth=3)
        middle.plot(at, [100 * row.tpr for row in rows], "o-", color=color, label=view)
    middle.set_title(f"{shown[0]} homes under other assumptions", loc="left", fontsize=11)
    for axes in (left, middle):
        axes.set_xscale("log")
        axes.set_xticks(lengths, [str(day) for day in lengths])
        axes.minorticks_off()
        axes.set_xlabel("days of totals seen")
        axes.set_ylabel("last member told, % at 1 % false alarms")
        axes.set_ylim(-2, 138)  # room for the legend
        axes.set_yticks(range(0, 101, 20))
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    for number, (size, share) in enumerate(lines):
        cost = next(one for one in study.costs if (one.members, one.share) == (size, share))
        for off, value, ends, color in (
            (-0.2, cost.mean, cost.mean_range, BLUE),
            (0.2, cost.noise, cost.noise_range, ORANGE),
        ):
            label = ("crowd's mean, δ = 0" if color == BLUE else "noise, one day") if number == 0 else None
            bars = [[max(value - ends[0], 0.0)], [max(ends[1] - value, 0.0)]]
            right.bar(number + off, value, 0.38, yerr=bars, color=color, label=label, error_kw={"lw": 0.8})
            text = f"{value:.0f}" if value >= 10 else f"{value:.2g}"
            right.text(number + off, 1.15 * ends[1], text, ha="center", fontsize=8)
    right.set_yscale("log")
    right.yaxis.set_major_formatter("{x:g}")
    right.set_ylim(top=4 * right.get_ylim()[1])
    right.set_xticks(range(len(lines)), [f"{size} homes" for size, _ in lines])
    right.set_ylabel("error of a daily total, % of it")
    right.set_title(f"What a certified total costs, ({study.epsilon:g}, {study.target:g})", loc="left", fontsize=11)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{study.homes} homes, {study.days[0]} to {study.days[1]}; points: medians over groups; thick bars: 95 % "
        "intervals of them (homes and groups resampled); thin bars: 90 % of groups",
        fontsize=10,
    )
    figure.savefig(path, dpi=110)
    return path
