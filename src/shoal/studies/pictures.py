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
    """What attackers name before and after: among all rows, and inside the crowd beside its bound."""
    figure, (left, right) = blank(2, (12.5, 5.2))
    everything = list(dict.fromkeys(one.what for one in study.findings))
    hidden = [what for what in everything if any(o.what == what and o.inside is not None for o in study.findings)]
    for axes, shown in ((left, everything), (right, hidden)):
        for kind, (label, color) in enumerate(KINDS):
            if axes is left and kind == 2:  # told the crowds besides: another question
                continue
            places = [(place, _best(study.findings, what, kind)) for place, what in enumerate(shown)]
            rows = [(place, one) for place, one in places if one is not None]
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
    right.plot([], [], color=RED, linewidth=2.5, label="bound: at most")
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
    """Homes named against the rows of a table, the size of crowds with their bounds, and the weeks known."""
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
            sizes, [100 * (one.bound or 0.0) for one in mine], color=color, ls="--", label=f"{mine[0].what}: bound"
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
