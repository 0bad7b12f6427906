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
    from evidence.reidentification import AttackStudy, Hits, StudyFinding

BLUE, ORANGE, GREEN, GRAY, RED = "#0072b2", "#e69f00", "#009e73", "#8a94a3", "#b3261e"
#: Kinds of attackers in a picture, as :func:`kind_of` counts them, and their colors.
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
    written[0].write_text(f"{study}\n", encoding="utf-8")
    origin = {"made": date.today().isoformat(), "version": __version__}
    written[1].write_bytes(f"{json.dumps({**origin, **study.to_dict()}, indent=1, ensure_ascii=False)}\n".encode())
    with contextlib.suppress(ImportError):
        written += [draw(study, folder / f"{name}{suffix}.png") for suffix, draw in drawn.items()]
    return written


def kind_of(one: StudyFinding) -> int:
    from evidence.boosted import LEARNED
    from evidence.reidentification import INFORMED

    return {LEARNED: 1, INFORMED: 2}.get(one.attacker, 0)


def best(findings: Sequence[StudyFinding], what: str, kind: int) -> StudyFinding | None:
    """Of the attackers of a kind on one kind of data, the one that names most."""
    mine = [one for one in findings if one.what == what and kind_of(one) == kind]
    return max(mine, key=lambda one: one.everywhere.top_1, default=None)


def ends(hits: Sequence[Hits], ten: bool = False) -> Any:
    """(2, n) percent below and above, as error bars want them."""
    values = [(h.top_10, *h.top_10_interval) if ten else (h.top_1, *h.top_1_interval) for h in hits]
    return 100 * np.array([[max(v - low, 0.0), max(high - v, 0.0)] for v, low, high in values]).T


def reidentification_picture(study: AttackStudy, path: Path) -> Path:
    """What attackers name before and after: among all rows, and inside the crowd beside its bound."""
    figure, (left, right) = blank(2, (12.5, 5.2))
    everything = list(dict.fromkeys(one.what for one in study.findings))
    hidden = [what for what in everything if any(o.what == what and o.inside is not None for o in study.findings)]
    for axes, shown in ((left, everything), (right, hidden)):
        for kind, (label, color) in enumerate(KINDS):
            if axes is left and kind == 2:  # told the crowds besides: another question
                continue
            places = [(place, best(study.findings, what, kind)) for place, what in enumerate(shown)]
            rows = [(place, one) for place, one in places if one is not None]
            if not rows:
                continue
            hits = [one.everywhere if axes is left or one.inside is None else one.inside for _, one in rows]
            wide = 0.4 if axes is left else 0.27
            at = np.array([place for place, _ in rows]) + wide * (kind - (0.5 if axes is left else 1.0))
            values = [100 * one.top_1 for one in hits]
            axes.barh(at, values, 0.95 * wide, xerr=ends(hits), color=color, label=label, error_kw={"lw": 1.0})
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
