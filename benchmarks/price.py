"""The price of privacy in one picture: error of crowds by population and by size, and one household's curves.

The price is the mean absolute error of what is released, each crowd's mean in kW, against what was metered later,
relative to that of the unprotected forecasts (ARMA(6, 5), 12 quarter-hours). Real homes are read where they are at
hand; simulated ones are nobody's. ``python -m benchmarks.price --picture docs/pictures/price.png`` draws it. 100,000
simulated homes take an hour on one busy core; with ``--keep FOLDER`` an interrupted measurement goes on.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from shoal.runs.prices import prices

import shoal
from benchmarks.crowds import DATA, ORIGINS
from shoal.laws.crowds import crowds, means
from shoal.validation import FloatArray

SIZE = 10
SIMULATED = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
#: Simulated homes that are in memory at a time: each depends on its own number alone.
STRETCH = 2_000
REAL = (60, 120, 240, 486)
BOOKS = (1.0, 2.0, 3.0, 4.0)


def forecasts(readings: Any, origin: Any) -> tuple[shoal.Forecasts, FloatArray]:
    """Forecasts and what was metered later."""
    fc = shoal.forecast(readings, order=(6, 5), train_days=15, horizon=12, season="day", origin=origin)
    frame = readings if isinstance(readings, pl.DataFrame) else readings.frame
    later = frame.filter(pl.col("timestamp").is_between(fc.timestamps[0], fc.timestamps[-1]))
    wide = later.pivot("timestamp", index="household", values="kw").sort("household")
    place = {name: i for i, name in enumerate(wide["household"])}
    return fc, wide.drop("household").to_numpy()[[place[name] for name in fc.households]]


def price(power: FloatArray, later: FloatArray, size: int = SIZE) -> float:
    member, known = crowds(power, size), np.isfinite(later)
    released = means(power, member)[member]
    return float(np.abs(released - later)[known].mean() / np.abs(power - later)[known].mean())


def books(made: list[tuple[shoal.Forecasts, FloatArray]]) -> None:
    """Expected price of codebooks at some ε of one answer, and what they take off the crowd's squared error."""
    print("| origin | crowd's curve | " + " | ".join(f"ε = {e:g}" for e in BOOKS) + " | " + " | ".join(
        f"error² less, ε = {e:g}" for e in BOOKS) + " |\n" + "| --- " * (2 + 2 * len(BOOKS)) + "|")  # fmt: skip
    rows = []
    for fc, later in made:
        power, known = fc.power, np.isfinite(later)
        member = crowds(power, SIZE)
        center = means(power, member)[member]
        graph = shoal.NeighborGraph.within_groups(fc.households, member.tolist())
        without = np.abs(power - later)[known].mean()
        line, gains = [float(np.abs(center - later)[known].mean() / without)], []
        for epsilon in BOOKS:
            book = shoal.codebook(power, graph, epsilon)
            off = 0.0
            for i, name in enumerate(graph.labels):
                errors = np.abs(book.curves(name) - later[i])[:, known[i]]
                off += float(book.probabilities(name) @ errors.sum(axis=1))
            line.append(off / known.sum() / without)
            gains.append(1 - book.mean_rho / float(((center - power) ** 2).mean()))
        rows.append([*line, *gains])
        print(_row(f"{fc.origin:%Y-%m-%d %H:%M}", rows[-1]), flush=True)
    print(_row("mean", np.mean(rows, axis=0).tolist()) + "\n")


def _row(name: str, row: list[float]) -> str:
    prices, gains = row[: 1 + len(BOOKS)], row[1 + len(BOOKS) :]
    return f"| {name} | " + " | ".join([*(f"{p:.3f}" for p in prices), *(f"{g:.1%}" for g in gains)]) + " |"


def simulated(n: int, keep: str) -> tuple[FloatArray, FloatArray]:
    """Forecasts of n simulated homes in kW, and what was metered later."""
    found = []
    for first in range(0, n, STRETCH):
        count = min(STRETCH, n - first)
        path = Path(keep) / f"simulated-{first}-{count}.npy"
        if keep and path.is_file():
            found.append(np.load(path))
            continue
        readings = shoal.simulate_meters(count, 16, seed=1, first=first)
        fc, later = forecasts(readings, readings["timestamp"].min() + timedelta(days=15, hours=12))
        found.append(np.stack([fc.power, later]))
        if keep:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, found[-1])
    power, later = np.concatenate(found, axis=1)
    return power, later


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", default="", help="where to draw it")
    parser.add_argument("--keep", default="", help="folder for what is done of the simulated homes")
    parser.add_argument("--largest", type=int, default=SIMULATED[-1], help="simulated homes at most")
    options = parser.parse_args()
    print(f"## The price of privacy\n\nError against what was metered later, over no protection; crowds of {SIZE}.\n")
    lines: dict[str, dict[int, float]] = {}
    by_size: dict[str, dict[int, float]] = {}
    if DATA.is_file():
        readings = shoal.read_meters(DATA)
        made = [forecasts(readings, origin) for origin in ORIGINS]
        books(made)
        order = np.random.default_rng(0).permutation(len(made[0][0].households))
        lines["real homes, mean of six origins"] = {
            n: float(np.mean([price(fc.power[order[:n]], later[order[:n]]) for fc, later in made])) for n in REAL
        }
        each = [dict(prices(fc.power, later, SIZE).by_crowd) for fc, later in made]
        by_size["486 real homes"] = {int(m): 1 + float(np.mean([one[m] for one in each])) for m in each[0]}
    line = {}
    power, metered = simulated(options.largest, options.keep)
    for n in (one for one in SIMULATED if one <= len(power)):
        line[n] = price(power[:n], metered[:n])
    by_size["1,000 simulated homes"] = {
        int(m): 1 + float(value) for m, value in prices(power[:1_000], metered[:1_000], SIZE).by_crowd
    }
    lines["simulated homes"] = line
    for title, found in (("homes", lines), ("crowd", by_size)):
        for name, row in found.items():
            print(f"| {title} | " + " | ".join(f"{n:,}" for n in row) + " |\n" + "| --- " * (1 + len(row)) + "|")
            print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in row.values()) + " |\n")
    if options.picture:
        draw(options.picture, lines, by_size, power[:1_000], metered[:1_000])


def draw(path: str, lines: Any, by_size: Any, power: FloatArray, later: FloatArray) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.7), layout="constrained")
    for axes, found, words in (
        (left, lines, f"households (crowds of {SIZE})"),
        (middle, by_size, "members of a crowd, at least"),
    ):
        for (name, row), color in zip(found.items(), ("#1f4e79", "#d1772e"), strict=False):
            more = [100 * (value - 1) for value in row.values()]
            axes.semilogx(list(row), more, "o-", color=color, label=name)
        ticks = [2, 5, 10, 20, 50] if axes is middle else [100, 1_000, 10_000, 100_000]
        axes.set_xticks(ticks, [f"{one:,}" for one in ticks])
        axes.xaxis.minorticks_off()
        axes.set(xlabel=words, ylabel="more error than without protection, %", ylim=(0, None))
        axes.legend(frameon=False)
        axes.grid(alpha=0.2)
    member = crowds(power, SIZE)
    released = means(power, member)[member]
    home = int(np.argsort(np.abs(released - power).mean(axis=1))[len(power) // 2])  # a typical one
    hours = np.arange(1, 13) / 4
    for values, name, style in (
        (later[home], "metered later", {"color": "#999999"}),
        (power[home], "forecast, kept private", {"color": "#1f4e79", "ls": "--"}),
        (released[home], "released: its crowd's", {"color": "#d1772e", "lw": 2.5}),
    ):
        right.plot(hours, values, label=name, **style)
    right.set(xlabel="hours ahead (one simulated household)", ylabel="kW", ylim=(0, None))
    right.legend(frameon=False)
    right.grid(alpha=0.2)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
