"""The picture that opens the README: δ against error for one crowd of real homes, method by method.

The forecasts of 486 Swiss homes at one origin, twelve steps, in crowds as a run forms them. Of the crowds with twelve
homes the one whose mean has the middle error stands for all. Its forecasts are constants; all its homes are neighbors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from evidence import storage
from evidence.homes import SWISS
from evidence.occasions import occasion
from shoal.validation import FloatArray

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "opening.png"
ORIGIN, MEMBERS, EPSILON = "2018-11-13T18:00", 12, 1.0
#: Method -> name in the picture, where that stands, color, line and marker: they differ without color too.
DRAWN = {
    "white": ("white noise", (3.9, 0.9), "#6b6b6b", "--", "s"),
    "ellipsoid": ("ellipsoid", (1.9, 1.2e-3), "#0072b2", "-.", "^"),
    "paper": ("the paper's method", (3.9, 0.28), "#d55e00", ":", "D"),
    "transport": ("shoal", (0.27, 5e-2), "#000000", "-", "o"),
}
#: Root mean square errors in kW at which methods are looked at; the last one is done earlier.
ERRORS: FloatArray = np.geomspace(0.2, 16.0, 24)
FOOT = 1e-7  #: what lies below is drawn here


def one_crowd(keep: Path | None = None) -> FloatArray:
    """(12, 12) kW, the forecasts of the crowd whose mean has the middle error among crowds of twelve."""
    homes = occasion(SWISS.read(), ORIGIN, keep, f"swiss-{ORIGIN}")
    member = homes.crowds()
    crowds: list[FloatArray] = [homes.power[member == number] for number in range(int(member.max()) + 1)]
    crowds = sorted((rows for rows in crowds if len(rows) == MEMBERS), key=spread)
    return np.asarray(crowds[len(crowds) // 2])


def spread(rows: FloatArray) -> float:
    """Root mean square error of the mean of these rows, per entry."""
    return float(np.sqrt(((rows - rows.mean(axis=0)) ** 2).mean()))


def study(keep: Path | None = None, progress: Callable[[str, float], None] | None = None) -> dict[str, Any]:
    """Errors and δ(1) of every method on the crowd, and the error of the crowd's mean, for JSON.

    A design for a smaller error is one for a larger, so δ of a method never rises along its points.
    """
    rows = one_crowd(keep)
    classes = shoal.GaussianClasses.deterministic(rows)
    graph = shoal.NeighborGraph.complete(classes.labels)
    found: dict[str, list[tuple[float, float]]] = {}
    for number, method in enumerate(DRAWN):
        if progress is not None:
            progress(method, number / len(DRAWN))
        errors = np.geomspace(ERRORS[0], 0.6, 24) if method == "transport" else ERRORS
        points = shoal.frontier(classes, graph, method, EPSILON, rho=(errors**2).tolist())
        spent = [float(np.sqrt(mechanism.rho.mean())) for mechanism in points.mechanisms[method]]
        deltas = np.minimum.accumulate(points.delta_upper[method]).tolist()
        found[method] = sorted(set(zip(spent, deltas, strict=True)))
    return {
        "origin": ORIGIN, "homes": len(rows), "steps": rows.shape[1], "epsilon": EPSILON, "averages": spread(rows),
        "distance": float(np.linalg.norm(rows[:, None] - rows, axis=2).max()), "methods": found,
    }  # fmt: skip


def draw(stored: dict[str, Any], path: Path = PICTURE) -> Path:
    """One panel, large letters: it is looked at on phones, and printed without color."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"font.size": 14}):
        figure, axes = plt.subplots(figsize=(6.6, 4.7), layout="constrained")
        for method, (name, place, color, line, marker) in DRAWN.items():
            errors, deltas = np.array(stored["methods"][method]).T
            last = int(np.argmax(deltas < FOOT)) + 1 if (deltas < FOOT).any() else len(deltas)
            shown = np.maximum(deltas[:last], FOOT)
            axes.plot(errors[:last], shown, line, color=color, marker=marker, markersize=5, linewidth=2, markevery=2)
            axes.text(*place, name, color=color, weight="bold")
        axes.plot(stored["averages"], FOOT, "*", color="#000000", markersize=20, markerfacecolor="white", zorder=3)
        axes.text(0.19, 1.1 * FOOT, "averages:\nδ = 0", weight="bold")
        axes.axhline(1e-5, color="#9a9a9a", linewidth=1)
        axes.text(0.6, 1.3e-5, "δ = 10⁻⁵", color="#6b6b6b", fontsize=12)
        axes.set(xscale="log", yscale="log", xlim=(0.17, 17.0), ylim=(0.55 * FOOT, 2.2))
        axes.set_xticks([0.2, 0.5, 1, 2, 5, 10], ["0.2", "0.5", "1", "2", "5", "10"])
        axes.set_yticks([1, 1e-2, 1e-4, 1e-6, FOOT], ["1", "0.01", "10⁻⁴", "10⁻⁶", "less"])
        axes.minorticks_off()
        axes.set(xlabel="error added to a home's row, kW", ylabel="δ at ε = 1 (lower is more private)")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=160)
        plt.close(figure)
    return path


if __name__ == "__main__":
    print(draw(storage.stored("opening")))
