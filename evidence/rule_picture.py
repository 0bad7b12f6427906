"""The picture of the rule study, with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evidence.attack_pictures import BLUE, GRAY, GREEN, ORANGE, RED, blank

if TYPE_CHECKING:
    from evidence.rule import RuleStudy


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
