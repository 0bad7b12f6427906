"""Studies as files, and their pictures with matplotlib."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from shoal.studies.reidentification import Reidentification
    from shoal.studies.rule import RuleStudy

BLUE, ORANGE, GRAY, RED = "#0072b2", "#e69f00", "#8a94a3", "#b3261e"


def blank(columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def saved(study: Any, name: str, drawn: Callable[[Any, Path], Path], out: str | Path) -> list[Path]:
    """Write a study as Markdown and JSON, and as a picture where matplotlib is there; returns the files."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{name}.md", folder / f"{name}.json"]
    written[0].write_text(f"{study}\n")
    written[1].write_text(json.dumps(study.to_dict(), indent=1))
    with contextlib.suppress(ImportError):
        written.append(drawn(study, folder / f"{name}.png"))
    return written


def reidentification_picture(study: Reidentification, path: Path) -> Path:
    """What an attacker names before and after: among all rows, and inside the crowd beside what is certified."""
    figure, (left, right) = blank(2, (12.0, 4.6))
    kinds = list(dict.fromkeys(one.what for one in study.findings))
    for offset, attacker, color in ((-0.2, 0, BLUE), (0.2, 1, ORANGE)):
        rows = []
        for place, what in enumerate(kinds):
            mine = [one for one in study.findings if one.what == what]
            if attacker < len(mine):
                rows.append((place, mine[attacker]))
        if not rows:
            continue
        at = np.array([place for place, _ in rows])
        hits = [one.everywhere for _, one in rows]
        bars = np.array([[h.top_1 - h.top_1_interval[0], h.top_1_interval[1] - h.top_1] for h in hits]).T
        label = "plain attacker" if attacker == 0 else "learned attacker"
        left.barh(at + offset, [100 * h.top_1 for h in hits], 0.38, xerr=100 * bars, color=color, label=label)
        for y, h in zip(at + offset, hits, strict=True):
            left.text(100 * h.top_1_interval[1] + 1.5, y, f"{h.top_1:.1%}", va="center", fontsize=8)
        inside = [(place, one) for place, one in rows if one.inside is not None]
        within = [one.inside for _, one in inside if one.inside is not None]
        bars = np.array([[h.top_1 - h.top_1_interval[0], h.top_1_interval[1] - h.top_1] for h in within]).T
        kept = [what for what in kinds if any(f.what == what and f.inside is not None for f in study.findings)]
        inside = [(kept.index(one.what), one) for _, one in inside]
        at = np.array([place for place, _ in inside])
        right.barh(at + offset, [100 * h.top_1 for h in within], 0.38, xerr=100 * bars, color=color, label=label)
        if attacker == 0:
            for place, one in inside:
                bound = 100 * (one.bound or 0.0)
                right.plot([bound, bound], [place - 0.45, place + 0.45], color=RED, linewidth=2)
    right.plot([], [], color=RED, linewidth=2, label="certified: at most")
    right.axvline(100 / study.crowd, color=GRAY, linestyle=":", label=f"a guess in a crowd of {study.crowd}")
    for axes, title in (
        (left, "Which of all rows is this home's?"),
        (right, "Told its crowd: which row of the crowd?"),
    ):
        axes.set_title(title, loc="left", fontsize=11)
        shown = kinds if axes is left else kept
        axes.set_yticks(range(len(shown)), shown)
        axes.invert_yaxis()
        axes.set_xlabel("homes named at once, %")
        axes.set_xlim(0, 112 if axes is left else None)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize=8, loc="lower right")
    right.legend(frameon=False, fontsize=8, loc="best")
    figure.suptitle(
        f"{study.homes} homes, one earlier week known, {len(study.origins)} origins; bars: 95 % intervals", fontsize=10
    )
    figure.savefig(path, dpi=110)
    return path


def rule_picture(study: RuleStudy, path: Path) -> Path:
    """How well the last member of a group is told from its daily totals, against the days that were seen."""
    figure, (left, right) = blank(2, (11.0, 4.2))
    view = study.rows[0].view
    for color, size in zip((RED, ORANGE, BLUE, GRAY), sorted({row.members for row in study.rows}), strict=False):
        for share, style in ((None, ":"), (study.rows[-1].share, "-")):
            rows = [
                r for r in study.rows if (r.members, r.view) == (size, view) and (r.share is None) == (share is None)
            ]
            if not rows:
                continue
            days = [row.days for row in rows]
            name = f"{size} homes" + ("" if share is None else f", none above {share:.0%}")
            drawn = np.array(days) * 1.12 ** (len(left.containers) - 2)  # side by side, so that bars do not overlap
            told = np.array([[row.tpr - row.tpr_interval[0], row.tpr_interval[1] - row.tpr] for row in rows]).T
            values = [100 * row.tpr for row in rows]
            left.errorbar(drawn, values, 100 * told, fmt="o", ls=style, lw=1.4, elinewidth=0.7, color=color, label=name)
            if share is not None or size < 1 / (study.rows[-1].share or 1.0):
                right.bar(f"{size} homes", rows[0].error, color=color)
    left.set_xscale("log")
    left.set_xticks(
        sorted({row.days for row in study.rows}), [str(d) for d in sorted({row.days for row in study.rows})]
    )
    left.set_xlabel("days of totals seen")
    left.set_ylabel("last member told, % at 1 % false alarms")
    left.set_title("What the rule gives away", loc="left", fontsize=11)
    left.legend(frameon=False, fontsize=8)
    right.set_ylabel("error of a daily total, %")
    right.set_title("What certainty costs: δ = 0, who the member is cannot be told", loc="left", fontsize=11)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    return path
