"""Standing crowds: which features make them last, and draws from codebooks that are kept.

Crowds of 10 formed at one origin of real homes and kept for the releases at the same hour of the next eight days,
weekend included. The price is the mean absolute error of what is released, each crowd's mean in kW, against what was
metered later, relative to that of the unprotected forecasts. Features are compared on one half of the homes, drawn at
random, and reported on the other, which took no part in the choice. ``python -m benchmarks.standing`` needs the data.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np

import shoal
from benchmarks.crowds import DATA
from benchmarks.price import forecasts
from shoal.crowds import crowds, means
from shoal.meters.neighborhoods import day_habits, habits, means_by_time, usual
from shoal.meters.season import phases
from shoal.validation import FloatArray

SIZE, DAYS, BACK = 10, 8, 5
STARTS = (datetime(2018, 12, 2, 18), datetime(2018, 11, 28, 8))
BOOKS = (0.5, 1.0, 2.0, 3.0)


def features(fc: shoal.Forecasts, before: list[FloatArray]) -> dict[str, FloatArray]:
    """Name -> (n, d), from the training window and from forecasts of the days ``before``."""
    past = fc.history
    assert past is not None
    place = {name: i for i, name in enumerate(past.households)}
    kw = np.maximum(past.kw[[place[name] for name in fc.households]], 0)
    width = int(timedelta(hours=1) / fc.step)
    slot, ahead = (phases(when, "day", fc.step) // width for when in (past.timestamps, fc.timestamps))
    weekend = past.timestamps.dt.weekday().to_numpy() > 5
    root = np.sqrt(kw)
    apart = [day_habits(root[:, part], slot[part], ahead) for part in (~weekend, weekend)]
    backtested = np.concatenate([np.sqrt(power) for power in before], axis=1) / np.sqrt(len(before))
    hours = len(np.unique(slot))
    return {
        "level: mean kW": np.nanmean(kw, axis=1, keepdims=True),
        "mean kW by hour of the day": means_by_time(kw, slot),
        "mean kW at the forecast's times": usual(fc),
        "mean ln kW by time of the day": fc.season.profile,
        "mean √kW by hour of the day": means_by_time(root, slot) / np.sqrt(hours),
        "the same, forecast's hours twice (in use)": habits(fc),
        "the same, weekdays and weekends apart": np.concatenate(apart, axis=1),
        f"√ of forecasts of the {BACK} days before": backtested,
        "habits in use and those forecasts": np.concatenate([habits(fc), backtested / np.sqrt(fc.horizon)], axis=1),
        "today's forecast": fc.power,
    }


def price(power: FloatArray, later: FloatArray, member: Any) -> float:
    known = np.isfinite(later)
    off = np.abs(means(power, member)[member] - later)[known].mean()
    return float(off / np.abs(power - later)[known].mean())


def main() -> None:
    readings = shoal.read_meters(DATA)
    table: dict[str, list[list[float]]] = {}
    kept: dict[float, list[list[float]]] = {}
    for start in STARTS:
        made = {day: forecasts(readings, start + timedelta(days=day)) for day in range(-BACK, DAYS + 1)}
        names = sorted(set.intersection(*(set(fc.households) for fc, _ in made.values())))
        rows = {day: [fc.households.index(name) for name in names] for day, (fc, _) in made.items()}
        power = {day: fc.power[rows[day]] for day, (fc, _) in made.items()}
        later = {day: metered[rows[day]] for day, (_, metered) in made.items()}
        first = made[0][0].take(rows[0], {})
        found = features(first, [power[day] for day in range(-BACK, 0)])
        order = np.random.default_rng(0).permutation(len(names))
        halves = [np.sort(order[: len(names) // 2]), np.sort(order[len(names) // 2 :]), np.arange(len(names))]
        for name, points in found.items():
            for column, half in enumerate(halves):
                member = crowds(points[half], SIZE)
                each = [price(power[day][half], later[day][half], member) for day in range(1, DAYS + 1)]
                table.setdefault(name, [[], [], []])[column].append(float(np.mean(each)))
        member = crowds(habits(first), SIZE)
        graph = shoal.NeighborGraph.within_groups(names, member.tolist())
        for epsilon in BOOKS:
            by = {way: shoal.codebook(x, graph, epsilon) for way, x in (("day", power[0]), ("usual", usual(first)))}
            for day in range(1, DAYS + 1):
                alone = float(((power[day] - means(power[day], member)[member]) ** 2).mean())
                books = [by["day"].renewed(power[day]), by["usual"].renewed(power[day])]
                books.append(shoal.codebook(power[day], graph, epsilon))
                kept.setdefault(epsilon, []).append([1 - float(book.rho.mean()) / alone for book in books])
    print("| crowds kept for eight days by | chosen on: one half | reported: the other half | all homes |")
    print("| --- " * 4 + "|")
    for name, columns in table.items():
        print(f"| {name} | " + " | ".join(f"{np.mean(column):.3f}" for column in columns) + " |")
    print("\n| ε of one answer | kept, odds by the first day's forecast | kept, odds by what is usual | drawn anew |")
    print("| --- " * 4 + "|")
    for epsilon, lines in kept.items():
        print(f"| {epsilon:g} | " + " | ".join(f"{value:.1%}" for value in np.mean(lines, axis=0)) + " |")


if __name__ == "__main__":
    main()
