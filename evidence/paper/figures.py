"""Figures of the two studies, with matplotlib (``pip install shoal[plot]``)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evidence.paper.lines import CONVENTIONS, NOTION_NAMES, NOTIONS, Lines
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.validation import FloatArray

if TYPE_CHECKING:
    from evidence.paper.homes import Home

#: One color per method, readable on white and by the color-blind (Okabe & Ito).
COLORS = {
    "none": "#9a9a9a",
    "white": "#56b4e9",
    "paper": "#e69f00",
    "covariance": "#cc79a7",
    "additive": "#d55e00",
    "center": "#0072b2",
    "transport": "#009e73",
}
#: Colors of lines that stand for no method, of the same family.
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
#: Hours before the forecast that its figure shows: enough to see the load, few enough to see the forecast.
PAST_HOURS = 9
NAMES = {"none": "no noise", "white": "white noise", "paper": "the paper's method"}


def demand_matplotlib() -> None:
    """Refuse before anything is computed that could not be drawn."""
    if find_spec("matplotlib") is None:
        raise InputError("figures need matplotlib, which is not installed: pip install 'shoal[plot]'")


def save(figure: Any, path: Path) -> Path:
    """Write a figure and return where it went."""
    figure.savefig(path, dpi=110)
    return path


def _blank(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    # A figure of its own, without pyplot: no window, no global state, nothing to close.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _panels(number: int) -> tuple[Any, Any]:
    """At most four in a row, with common axes."""
    columns = min(4, number)
    rows = -(-number // columns)
    return _blank(rows, columns, (2.9 * columns, 2.7 * rows + 0.9), sharex=True, sharey=True)


def classes_figure(classes: GaussianClasses) -> Any:
    """The laws of the four classes: the ellipses that hold one and two standard deviations."""
    figure, panels = _blank(1, 1, (4.6, 4.2))
    axes = panels[0, 0]
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for label, mean, cov, color in zip(classes.labels, classes.means, classes.covs, CYCLE, strict=False):
        values, vectors = np.linalg.eigh(cov)
        root = vectors * np.sqrt(np.maximum(values, 0))
        for size, width, name in ((1.0, 1.6, label), (2.0, 0.8, None)):
            axes.plot(*(mean[:, None] + size * root @ circle), color=color, linewidth=width, label=name)
        axes.plot(*mean, marker="+", color=color)
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(title="class", fontsize=8)
    axes.set_title("Four classes, before any noise (1 and 2 standard deviations)", fontsize=9)
    return figure


def _draw(axes: Any, lines: Lines, edges: str, **wanted: Any) -> None:
    for line in lines.pick(**wanted):
        axes.plot(
            lines.epsilon,
            getattr(line, edges),
            color=COLORS[line.method],
            lw=2.2 if line.method == "transport" else 1.5,
            ls={"none": ":", "paper": "--"}.get(line.method, "-"),
            zorder=3 if line.method == "paper" else 2,
            label=NAMES.get(line.method, line.method),
        )
    axes.set_ylim(0, 1.03)
    axes.grid(alpha=0.3)


def budgets_figure(
    lines: Lines, budgets: FloatArray, methods: Sequence[str], *, convention: str = "total", notion: str = "pdp"
) -> Any:
    """The paper's figure: one panel per budget, δ(ε) of the worst edge by the notion that it plots."""
    figure, panels = _panels(len(budgets))
    for axes, budget in zip(panels.flat, budgets, strict=False):
        for method in methods:
            _draw(axes, lines, "worst", method=method, convention=convention, budget=budget, notion=notion)
        axes.set_title(f"budget {budget:.4g} {'in total' if convention == 'total' else 'per entry'}", fontsize=9)
    _label(figure, panels)
    figure.suptitle(f"Worst edge, {NOTION_NAMES[notion]}, as the paper plots it", fontsize=11)
    return figure


def notions_figure(lines: Lines, budget: float) -> Any:
    """The same mechanisms by three notions (columns) and with the budget read in both conventions (rows)."""
    figure, panels = _blank(2, 3, (10.2, 6.2), sharex=True, sharey=True)
    for i, convention in enumerate(CONVENTIONS):
        for j, notion in enumerate(NOTIONS):
            _draw(panels[i, j], lines, "worst", convention=convention, budget=budget, notion=notion)
            panels[i, j].set_title(f"{NOTION_NAMES[notion]}; {budget:.4g} {convention}", fontsize=9)
    _label(figure, panels)
    figure.suptitle("One release, three figures: what the notion and the reading of ρ change", fontsize=11)
    return figure


def meters_figure(lines: Lines, budgets: FloatArray) -> Any:
    """One panel per budget per entry, hockey-stick δ of the worst pair: the paper's methods and ours, same laws."""
    figure, panels = _panels(len(budgets))
    for axes, budget in zip(panels.flat, budgets, strict=False):
        for query in ("as_in_paper", "trajectory"):
            _draw(axes, lines, "worst", query=query, convention="per entry", budget=budget, notion="dp")
        axes.set_title(f"budget {budget:.4g} per entry", fontsize=9)
        if not lines.pick(method="transport", query="trajectory", convention="per entry", budget=budget):
            words = "covariance, additive, transport:\nnot run at this budget"
            axes.text(0.5, 0.06, words, transform=axes.transAxes, ha="center", fontsize=8, color="0.45")
    _label(figure, panels)
    figure.suptitle("Households: worst pair, hockey-stick DP, laws of the trajectory query", fontsize=11)
    return figure


def queries_figure(lines: Lines, panels: Sequence[Any], method: str = "paper") -> Any:
    """What the paper's accounting claims beside what holds for the point forecast that is released.

    ``panels`` are (title, query claimed, query released, convention, budget); solid lines are the worst pair, dashed
    lines the median pair.
    """
    figure, axes = _blank(1, len(panels), (4.0 * len(panels), 3.9), sharey=True)
    for panel, (title, claimed, true, convention, budget) in zip(axes[0], panels, strict=True):
        for query, name, color in ((claimed, "claimed", "#e69f00"), (true, "true of what is released", "#000000")):
            line = lines.one(query=query, method=method, convention=convention, budget=budget, notion="dp")
            # Claimed on top and thinner, so that it shows where both lie together.
            width, order = (1.4, 3) if query == claimed else (3.0, 2)
            style = {"color": color, "lw": width, "zorder": order}
            panel.plot(lines.epsilon, line.worst, label=f"{name}, worst pair", **style)
            panel.plot(lines.epsilon, line.median, ls="--", label=f"{name}, median pair", **style)
        panel.set_title(title, fontsize=9)
        panel.set_ylim(0, 1.03)
        panel.grid(alpha=0.3)
    _label(figure, axes)
    figure.suptitle("The paper's query covariance: hockey-stick δ claimed and true, the same noise", fontsize=11)
    return figure


def homes_figure(homes: Sequence[Home], title: str) -> Any:
    """The paper's forecast figure: past hours, truth, forecast and one released forecast of some homes, in kW."""
    figure, axes = _blank(1, len(homes), (3.7 * len(homes), 3.4))
    for number, (panel, home) in enumerate(zip(axes[0], homes, strict=True), start=1):
        shown = min(len(home.past), round(PAST_HOURS / home.step_hours))
        past = home.step_hours * np.arange(-shown, 0)
        ahead = home.step_hours * np.arange(len(home.forecast))
        panel.axvline(-home.step_hours / 2, color="0.8", lw=0.8)
        panel.plot(past, home.past[-shown:], color="0.6", lw=1.1, label="readings before")
        joined = np.concatenate([home.past[-1:], home.truth])
        panel.plot(home.step_hours * np.arange(-1, len(home.truth)), joined, color="tab:red", lw=1.6, label="truth")
        panel.plot(ahead, home.forecast, color="tab:orange", lw=1.9, label="forecast")
        panel.plot(ahead, home.released, color="tab:blue", lw=1.4, label="released (the paper's method)")
        panel.set_title(f"Home {number}: normalized MSE {home.nmse_log_watts:.2g} in ln W", fontsize=9)
        panel.set_xlabel("hours from the forecast's origin")
        panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("power, kW")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure


def _label(figure: Any, panels: Any) -> None:
    for axes in panels[-1]:
        axes.set_xlabel("ε")
    for axes in panels[:, 0]:
        axes.set_ylabel("δ")
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        drawn, names = axes.get_legend_handles_labels()
        handles |= dict(zip(names, drawn, strict=True))
    order = [NAMES.get(method, method) for method in COLORS]
    names = sorted(handles, key=lambda name: order.index(name) if name in order else len(order))
    place = {"loc": "outside lower center", "ncols": len(names), "fontsize": 8, "frameon": False}
    figure.legend([handles[name] for name in names], names, **place)
