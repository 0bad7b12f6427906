"""Standing crowds: which features make them last, and draws from codebooks that are kept.

Crowds of 10 formed at one origin of real homes and kept: for the releases at the same hour of the next eight days,
weekend included (two starts), or for four weeks and releases at other hours. The price is the mean absolute error of
what is released, each crowd's mean in kW, against what was metered later, relative to that of the unprotected
forecasts. Features are compared on one half of the homes, drawn at random, and reported on the other, which took no
part in the choice. ``python -m benchmarks.standing`` needs the data.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np

import shoal
from benchmarks.crowds import DATA, ORIGINS
from benchmarks.price import forecasts
from shoal.laws.crowds import crowds, means
from shoal.sources.meters.neighborhoods import day_habits, habits, means_by_time, usual
from shoal.sources.meters.season import phases
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
    root, hours = np.sqrt(kw), len(np.unique(slot))
    apart = [day_habits(root[:, part], slot[part], ahead) for part in (~weekend, weekend)]
    backtested = np.concatenate([np.sqrt(power) for power in before], axis=1) / np.sqrt(len(before))
    return {
        "level: mean kW": np.nanmean(kw, axis=1, keepdims=True),
        "mean kW by hour of the day": means_by_time(kw, slot),
        "mean kW at the forecast's times": usual(fc),
        "the same, and half of √kW by hour": np.concatenate(
            [usual(fc) / np.sqrt(fc.horizon), means_by_time(root, slot) / np.sqrt(4 * hours)], axis=1
        ),
        "mean ln kW by time of the day": fc.season.profile,
        "mean √kW by hour of the day": means_by_time(root, slot) / np.sqrt(hours),
        "the same and once more at the forecast's hours (in use)": habits(fc),
        "the same, weekdays and weekends apart": np.concatenate(apart, axis=1),
        f"√ of forecasts of the {BACK} days before": backtested,
        "habits in use and those forecasts": np.concatenate([habits(fc), backtested / np.sqrt(fc.horizon)], axis=1),
        "today's forecast": fc.power,
    }


def price(power: FloatArray, later: FloatArray, member: Any) -> float:
    known = np.isfinite(later)
    off = np.abs(means(power, member)[member] - later)[known].mean()
    return float(off / np.abs(power - later)[known].mean())


Series = tuple[shoal.Forecasts, list[FloatArray], list[FloatArray], list[FloatArray]]


def series(readings: Any, origins: list[datetime], back: int) -> Series:
    """Forecasts at the first origin, forecasts of the ``back`` days before, and at later ones with what was metered."""
    before = [origins[0] - timedelta(days=day) for day in range(back, 0, -1)]
    made = [forecasts(readings, origin) for origin in (*before, *origins)]
    names = sorted(set.intersection(*(set(fc.households) for fc, _ in made)))
    rows = [[fc.households.index(name) for name in names] for fc, _ in made]
    power = [fc.power[row] for (fc, _), row in zip(made, rows, strict=True)]
    later = [metered[row] for (_, metered), row in zip(made, rows, strict=True)]
    return made[back][0].take(rows[back], {}), power[:back], power[back + 1 :], later[back + 1 :]


def main() -> None:
    readings = shoal.read_meters(DATA)
    daily = [series(readings, [start + timedelta(days=day) for day in range(DAYS + 1)], BACK) for start in STARTS]
    anytime = [series(readings, [datetime.fromisoformat(origin) for origin in ORIGINS], BACK)]
    found: dict[str, list[float]] = {}
    for several in (daily, anytime):
        table: dict[str, list[list[float]]] = {}
        for first, before, power, later in several:
            order = np.random.default_rng(0).permutation(len(first.households))
            middle = len(order) // 2
            for name, points in features(first, before).items():
                for half in (np.sort(order[:middle]), np.sort(order[middle:])):
                    member = crowds(points[half], SIZE)
                    each = [price(p[half], metered[half], member) for p, metered in zip(power, later, strict=True)]
                    table.setdefault(name, []).append([float(np.mean(each))])
        for name, columns in table.items():
            found.setdefault(name, []).extend([float(np.mean(columns[0::2])), float(np.mean(columns[1::2]))])
    print("| crowds kept by | same hour, one half | the other half | any hour, one half | the other half |")
    print("| --- " * 5 + "|")
    for name, line in found.items():
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in line) + " |")
    print("\n| ε of one answer | kept, odds by the first day's forecast | kept, odds by what is usual | drawn anew |")
    print("| --- " * 4 + "|")
    for epsilon in BOOKS:
        lines = [line for one in daily for line in gains(epsilon, *one)]
        print(f"| {epsilon:g} | " + " | ".join(f"{value:.1%}" for value in np.mean(lines, axis=0)) + " |", flush=True)


def gains(epsilon: float, first: shoal.Forecasts, _: Any, power: list[FloatArray], __: Any) -> list[list[float]]:
    """What codebooks take off the crowd's mean squared error on each later day."""
    member = crowds(habits(first), SIZE)
    graph = shoal.NeighborGraph.within_groups(first.households, member.tolist())
    ways = [shoal.codebook(points, graph, epsilon) for points in (first.power, usual(first))]
    found = []
    for day in power:
        alone = float(((day - means(day, member)[member]) ** 2).mean())
        books = [*(book.renewed(day) for book in ways), shoal.codebook(day, graph, epsilon)]
        found.append([1 - float(book.rho.mean()) / alone for book in books])
    return found


if __name__ == "__main__":
    main()
