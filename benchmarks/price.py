"""The price of privacy: error of what a run releases, at once and three weeks later, by population and by crowd.

The price is the mean absolute error of what is released, each crowd's mean in kW, against what was metered later,
relative to that of the unprotected forecasts (ARMA(6, 5), 12 quarter-hours). Crowds are those of a run: formed with
a fifth more members than are promised, by likeness of forecast and habits (``crowd_points.likeness_points``,
``crowds.membership.form_crowds``). Real homes are read where they are at hand; simulated ones are nobody's. London,
more origins and intervals: ``python -m evidence measure prices``.

    python -m benchmarks.price --keep FOLDER       forecasts are kept there, and an interrupted measurement goes on
    python -m benchmarks.price --books             what codebooks take off, too
    python -m benchmarks.price --simulated 100000  simulated homes; an hour on one busy core
    python -m benchmarks.price --simulated 100000 --picture docs/pictures/price.png
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

import shoal
from evidence.homes import SWISS
from evidence.occasions import PROMISED, Occasion, occasion
from evidence.prices import SIX
from shoal.crowds.formation import crowd_means
from shoal.crowds.membership import formation_size

#: Six origins: working days and weekends, different hours.
ORIGINS = SIX
SIZE = PROMISED
SIMULATED = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
#: Simulated homes that are in memory at a time: each depends on its own number alone.
STRETCH = 2_000
POPULATIONS = (60, 120, 240, 486)
CROWDS = (3, 5, 10, 15, 20, 30)
BOOKS = (1.0, 2.0, 3.0, 4.0)
#: Six first releases from 14 to 25 November, at the hours of the six origins; the second ones come three weeks later.
FIRST = (
    "2018-11-14T06:00", "2018-11-16T12:00", "2018-11-18T20:00", "2018-11-20T08:00", "2018-11-23T18:00",
    "2018-11-25T00:00",
)  # fmt: skip
LATER = timedelta(days=21)


def at_once(origins: dict[str, Occasion]) -> None:
    """Prices of a first release, of all homes and of those with odd numbers, by which nothing was chosen."""
    print("| origin | all homes | homes with odd numbers |\n| --- | ---: | ---: |")
    rows = []
    for name, origin in origins.items():
        odd = origin.take(slice(1, None, 2))
        rows.append([origin.price(origin.crowds()), odd.price(odd.crowds())])
        print(f"| {name.replace('T', ' ')} | {rows[-1][0]:.3f} | {rows[-1][1]:.3f} |", flush=True)
    print("| mean | " + " | ".join(f"{value:.3f}" for value in np.mean(rows, axis=0)) + " |\n")


def kept(pairs: dict[str, tuple[Occasion, Occasion]]) -> None:
    """Prices of two releases three weeks apart, the second with the crowds of the first."""
    print("| first release | at once | three weeks later | the same, odd numbers | crowds formed anew |")
    print("| --- | ---: | ---: | ---: | ---: |")
    rows = []
    for name, (first, second) in pairs.items():
        lasting = sorted(set(first.households) & set(second.households))
        before, after = (origin.take([origin.households.index(home) for home in lasting]) for origin in (first, second))
        odd = slice(1, None, 2)
        member = before.crowds()
        rows.append([
            before.price(member), after.price(member), after.take(odd).price(before.take(odd).crowds()),
            after.price(after.crowds()),
        ])  # fmt: skip
        print(f"| {name.replace('T', ' ')} | " + " | ".join(f"{value:.3f}" for value in rows[-1]) + " |", flush=True)
    print("| mean | " + " | ".join(f"{value:.3f}" for value in np.mean(rows, axis=0)) + " |\n")


def by_population(origins: list[Occasion]) -> dict[int, float]:
    """Mean price of crowds among fewer homes, drawn at random."""
    order = np.random.default_rng(0).permutation(len(origins[0].households))
    parts = {n: [origin.take(np.sort(order[:n])) for origin in origins] for n in POPULATIONS}
    return {n: float(np.mean([part.price(part.crowds()) for part in several])) for n, several in parts.items()}


def by_crowd(origins: list[Occasion]) -> dict[int, float]:
    """Mean price by the crowd that is promised."""
    return {m: float(np.mean([origin.price(origin.crowds(m)) for origin in origins])) for m in CROWDS}


def books(origins: dict[str, Occasion]) -> None:
    """Expected price of codebooks at some ε of one answer, and what they take off the crowd's squared error."""
    print("| origin | crowd's curve | " + " | ".join(f"ε = {e:g}" for e in BOOKS) + " | " + " | ".join(
        f"error² less, ε = {e:g}" for e in BOOKS) + " |\n" + "| --- " * (2 + 2 * len(BOOKS)) + "|")  # fmt: skip
    rows = []
    for name, origin in origins.items():
        power, later, known = origin.power, origin.metered, np.isfinite(origin.metered)
        member = origin.crowds()
        center = crowd_means(power, member)[member]
        graph = shoal.NeighborGraph.within_groups(origin.households, member.tolist())
        without = np.abs(power - later)[known].mean()
        prices, gains = [origin.price(member)], []
        for epsilon in BOOKS:
            book = shoal.codebook(power, graph, epsilon)
            off = 0.0
            for i, label in enumerate(graph.labels):
                errors = np.abs(book.curves(label) - later[i])[:, known[i]]
                off += float(book.probabilities(label) @ errors.sum(axis=1))
            prices.append(off / known.sum() / without)
            gains.append(1 - book.mean_rho / float(((center - power) ** 2).mean()))
        rows.append([*prices, *gains])
        print(_row(name.replace("T", " "), rows[-1]), flush=True)
    print(_row("mean", np.mean(rows, axis=0).tolist()) + "\n")


def _row(name: str, row: list[float]) -> str:
    prices, gains = row[: 1 + len(BOOKS)], row[1 + len(BOOKS) :]
    return f"| {name} | " + " | ".join([*(f"{p:.3f}" for p in prices), *(f"{g:.1%}" for g in gains)]) + " |"


def simulated(n: int, keep: Path | None) -> Occasion:
    """Forecasts of n simulated homes in kW, and what was metered later; their crowds are formed by the forecasts."""
    parts = []
    for first in range(0, n, STRETCH):
        count = min(STRETCH, n - first)
        readings = shoal.simulate_meters(count, 16, seed=1, first=first)
        origin = readings["timestamp"].min() + timedelta(days=15, hours=12)
        parts.append(occasion(readings, origin, keep, f"simulated-{first}-{count}"))
    power, metered = (np.concatenate([getattr(part, name) for part in parts]) for name in ("power", "metered"))
    return Occasion(tuple(name for part in parts for name in part.households), power, metered, power, power)


def _table(title: str, name: str, row: dict[int, float]) -> None:
    print(f"| {title} | " + " | ".join(f"{n:,}" for n in row) + " |\n| --- |" + " ---: |" * len(row))
    print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in row.values()) + " |\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for the forecasts")
    parser.add_argument("--books", action="store_true", help="codebooks, too")
    parser.add_argument("--simulated", type=int, default=0, help="simulated homes at most")
    parser.add_argument("--picture", default="", help="where to draw it; simulated homes are in it")
    options = parser.parse_args()
    if options.picture and not options.simulated:
        parser.error("--picture needs --simulated, such as 10000: it shows the curves of homes that do not exist")
    print("## The price of privacy\n\nError against what was metered later, over no protection; crowds of ", end="")
    print(f"{formation_size(SIZE)} and more, {SIZE} promised.\n")
    lines: dict[str, dict[int, float]] = {}
    sizes: dict[str, dict[int, float]] = {}
    if SWISS.there:
        readings = SWISS.read()
        origins = {name: occasion(readings, name, options.keep, f"swiss-{name}") for name in ORIGINS}
        at_once(origins)
        pairs = {}
        for name in FIRST:
            second = (datetime.fromisoformat(name) + LATER).isoformat(timespec="minutes")
            first, later = (occasion(readings, text, options.keep, f"swiss-{text}") for text in (name, second))
            pairs[name] = (first, later)
        kept(pairs)
        several = list(origins.values())
        lines["real homes, mean of six origins"] = by_population(several)
        sizes[f"{len(several[0].households)} real homes"] = by_crowd(several)
        if options.books:
            books(origins)
    if options.simulated:
        homes = simulated(options.simulated, options.keep)
        parts = {n: homes.take(slice(0, n)) for n in SIMULATED if n <= options.simulated}
        lines["simulated homes"] = {n: part.price(part.crowds()) for n, part in parts.items()}
        some = homes.take(slice(0, 1_000))
        sizes["simulated homes, 1,000 of them"] = by_crowd([some])
    for title, prices in ((f"homes, {SIZE} promised", lines), ("crowd that is promised", sizes)):
        for name, row in prices.items():
            _table(title, name, row)
    if options.picture:
        draw(options.picture, lines, sizes, some)


def draw(path: str, lines: dict[str, dict[int, float]], sizes: dict[str, dict[int, float]], homes: Occasion) -> None:
    """Prices by population and by crowd, and the curves of one typical home."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.7), layout="constrained")
    for axes, prices, words in (
        (left, lines, f"households (crowds of {SIZE})"),
        (middle, sizes, "members of a crowd, at least"),
    ):
        for (name, row), color in zip(prices.items(), ("#1f4e79", "#d1772e"), strict=False):
            more = [100 * (value - 1) for value in row.values()]
            axes.semilogx(list(row), more, "o-", color=color, label=name)
        ticks = [2, 5, 10, 20, 50] if axes is middle else [100, 1_000, 10_000, 100_000]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.xaxis.minorticks_off()
        axes.set(xlabel=words, ylabel="more error than without protection, %", ylim=(0, None))
        axes.legend(frameon=False)
        axes.grid(alpha=0.2)
    member = homes.crowds()
    released = crowd_means(homes.power, member)[member]
    home = int(np.argsort(np.abs(released - homes.power).mean(axis=1))[len(released) // 2])  # a typical one
    hours = np.arange(1, 13) / 4
    for values, name, style in (
        (homes.metered[home], "metered later", {"color": "#999999"}),
        (homes.power[home], "forecast, kept private", {"color": "#1f4e79", "ls": "--"}),
        (released[home], "released: its crowd's", {"color": "#d1772e", "lw": 2.5}),
    ):
        right.plot(hours, values, label=name, **style)
    right.set(xlabel="hours ahead (one simulated household)", ylabel="kW", ylim=(0, None))
    right.legend(frameon=False)
    right.grid(alpha=0.2)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
