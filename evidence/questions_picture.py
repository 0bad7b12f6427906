"""The picture of what releases show of properties of homes, with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from evidence.attack_pictures import BLUE, GRAY, GREEN, ORANGE, RED, blank

#: Properties by how their findings begin: their names and colors.
SHOWN = (("level", "level of use", BLUE), ("absence", "absent the day before", ORANGE), ("heating", "heat pump", GREEN))


def questions_picture(found: dict[str, Any], path: Path) -> Path:
    """Areas under the curve of every release, with intervals; a guess has ½, and the readings' promise a bound."""
    names = ("swiss", "london", "simulated")
    releases = list(dict.fromkeys(one["release"] for one in found["swiss"]["findings"]))
    figure, every = blank(3, (13.0, 4.6), sharey=True)
    for axes, name in zip(every, names, strict=True):
        areas = [one for one in found[name]["findings"] if one["measure"] != "share right"]
        for at, (word, label, color) in enumerate(SHOWN):
            mine = [one for one in areas if one["what"].startswith(word)]
            y = np.array([releases.index(one["release"]) for one in mine]) + 0.24 * (at - 1)
            values = np.array([[one["figure"], *one["interval"]] for one in mine]).reshape(-1, 3)
            off = np.abs(values[:, 1:] - values[:, :1]).T
            axes.errorbar(values[:, 0], y, xerr=off, fmt="o", markersize=5, color=color, label=label)
            for one, place in zip(mine, y, strict=True):
                if one["bound"] is not None:
                    axes.plot([one["bound"]] * 2, [place - 0.1, place + 0.1], color=RED, linewidth=2.5)
        axes.axvline(0.5, color=GRAY, linestyle=":")
        axes.set_xlim(0.25, 1.02)
        axes.set_title(f"{name.capitalize()}, {found[name]['homes']} homes", loc="left", fontsize=11)
        axes.set_xlabel("area under the curve, 95 % interval")
        axes.spines[["top", "right"]].set_visible(False)
    every[0].plot([], [], color=RED, linewidth=2.5, label="bound of the promise")
    every[0].set_yticks(range(len(releases)), releases)
    every[0].invert_yaxis()
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=4, loc="outside lower center")
    figure.savefig(path, dpi=110)
    return path
