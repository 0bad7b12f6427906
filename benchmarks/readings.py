"""Noisy crowds beside what else could be released about readings: python -m benchmarks.readings --cache DIR.

Homes: 486 Swiss ones at four origins (skipped when the file is not there), simulated ones (seed 12; settings were fixed
on seed 11), and London home-days by season of the homes that are not in the public curves, each home-day taken for a
home. Forecasts: ARMA(6, 5), 15 days, 12 steps, season of a day (London: of a week, half hours), fitted once and stored
in the cache; a draw draws noise only. ε = 1, δ = 1/(10 homes). Figures, mean over draws with the 95 % interval of that
mean:

- W₁ over the mean load (the upper end of ``population_error.w1_bounds``, about 1 % above the optimum; all homes);
- the absolute error of the horizon's total, and of the 5, 25, 50, 75 and 95 % quantiles of homes' mean loads, relative;
- W₁ to what was metered later over that of the forecasts themselves (both against at most ``METERED`` homes, evenly in
  the order of their load).

Beside noisy crowds:

- one private mean times public curves, and one private mean alone: ``noisy_crowds_plan(method="mean")``;
- insensitive microaggregation (Soria-Comas et al. 2014): homes in the order of their load, m consecutive ones averaged;
  one home moves every centroid by at most 1/m of its clipped range, so Laplace noise of scale (n/m²) k R/ε; m is the
  best of a few in hindsight, R the plan's clip;
- crowds of ten without noise.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from benchmarks import public_curves
from shoal.crowds.formation import crowd_means, least_spread_crowds
from shoal.readings import population_error as error
from shoal.readings.crowds import public_tables, sum_of_home_vectors

ROOT = Path(__file__).parents[1]
SWISS = ROOT.parent / "shared/data/swiss_residential_15min/swiss15_clean.parquet"
ORIGINS = ("2018-11-20T18:00", "2018-11-25T18:00", "2018-12-05T18:00", "2018-12-10T06:00")
SEASONS = {
    "winter": ("12", "01", "02"),
    "spring": ("03", "04", "05"),
    "summer": ("06", "07", "08"),
    "autumn": ("09", "10", "11"),
}


#: Homes that releases and forecasts are held against what was metered with.
METERED = 2000
#: From so many homes on, other releases than noisy crowds are drawn so many times: they hardly differ between draws.
LARGE, FEWER = 10_000, 5


@dataclass(frozen=True)
class Occasion:
    """Homes at one origin: forecasts and what was metered later, both (n, k) kW."""

    homes: Any
    metered: Any

    @cached_property
    def themselves(self) -> float:
        """W₁ between the forecasts and what was metered."""
        return self.to_metered(self.homes, np.ones(len(self.homes)))

    def to_metered(self, curves: Any, counts: Any) -> float:
        """W₁ between weighted curves and what was metered, of at most :data:`METERED` homes."""
        known = self.metered[np.isfinite(self.metered).all(axis=1)]
        order = np.argsort(known.mean(axis=1), kind="stable")
        size = min(METERED, len(known))
        return error.w1_bounds(known[order[((np.arange(size) + 0.5) * len(known) / size).astype(int)]], curves, counts)[
            0
        ]

    def figures(self, curves: Any, counts: Any, total: float, *, later: bool) -> dict[str, float]:
        """The figures of one table of weighted curves; with ``later`` also against what was metered."""
        true = np.quantile(self.homes.mean(axis=1), error.QUANTILES)
        off = np.abs(quantiles(curves, counts) / true - 1)
        measured = {
            "w1": error.w1_bounds(self.homes, curves, counts)[0],
            "total": abs(total / float(self.homes.sum()) - 1),
        }
        measured |= {f"{q:.0%}": float(value) for q, value in zip(error.QUANTILES, off, strict=True)}
        return measured | ({"metered": self.to_metered(curves, counts) / self.themselves} if later else {})


@dataclass(frozen=True)
class Population:
    """Homes at one or several occasions."""

    name: str
    typical: float  #: declared mean load of a home, kW
    occasions: Sequence[Occasion]


def forecasts(readings: Any, origin: str, season: str | None) -> tuple[Any, Any, Any]:
    """Forecasts, what was metered later (NaN where nothing was), and the names of the homes."""
    import polars as pl

    kind: dict[str, Any] = {} if season is None else {"season": season}
    forecast = shoal.forecast(readings, train_days=15, horizon=12, origin=origin, **kind)
    frame = readings.frame if hasattr(readings, "frame") else readings
    frame = frame.with_columns(pl.col("household").cast(pl.String), pl.col("timestamp").cast(forecast.timestamps.dtype))
    instants = pl.DataFrame({"timestamp": forecast.timestamps})
    every = pl.DataFrame({"household": forecast.households}).join(instants, how="cross")
    metered = every.join(frame, on=["household", "timestamp"], how="left", maintain_order="left")["kw"].to_numpy()
    return forecast.power, metered.reshape(forecast.power.shape), np.array(forecast.households)


def swiss() -> list[tuple[Any, Any]]:
    import polars as pl

    readings = pl.read_parquet(SWISS)
    return [forecasts(readings, origin, "day")[:2] for origin in ORIGINS]


def simulated(n: int, seed: int) -> list[tuple[Any, Any]]:
    parts = []
    for first in range(0, n, 1000):
        readings = shoal.simulate_meters(min(1000, n - first), 17, seed=seed, first=first)
        parts.append(forecasts(readings, "2024-01-16T18:00", "day")[:2])
    return [tuple(np.concatenate(part) for part in zip(*parts, strict=True))]  # type: ignore[list-item]


def london(season: str) -> list[tuple[Any, Any]]:
    """Home-days of the homes that are not in the public curves."""
    import polars as pl

    readings = pl.read_parquet(public_curves.READINGS).with_columns(kw=2 * pl.col("kwh")).drop("kwh")
    parts = []
    for origin in (at for at in public_curves.ORIGINS if at[5:7] in SEASONS[season]):
        power, metered, names = forecasts(readings, origin, None)
        odd = public_curves.half(names, odd=True)
        parts.append((power[odd], metered[odd]))
    return [tuple(np.concatenate(part) for part in zip(*parts, strict=True))]  # type: ignore[list-item]


def cached(folder: Path | None, name: str, make: Callable[[], list[tuple[Any, Any]]]) -> list[Occasion]:
    """Forecasts and what was metered from a file, made when it is not there."""
    path = None if folder is None else folder / f"{name}.npz"
    if path is None or not path.exists():
        occasions = make()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, *(array for occasion in occasions for array in occasion))
        return [Occasion(*occasion) for occasion in occasions]
    stored = np.load(path)
    arrays = [stored[f"arr_{i}"] for i in range(len(stored.files))]
    return [Occasion(*occasion) for occasion in zip(arrays[::2], arrays[1::2], strict=True)]


def populations(folder: Path | None, sizes: list[int], only: str = "") -> Iterator[Population]:
    """Populations whose name contains a text, one after the other."""
    if SWISS.exists() and only in (name := "486 Swiss homes, four origins"):
        yield Population(name, 1.5, cached(folder, "swiss", swiss))
    for n in sizes:
        if only in (name := f"{n:,} simulated homes"):
            [every] = cached(folder, f"simulated{max(sizes)}", lambda: simulated(max(sizes), seed=12))
            yield Population(name, 1.5, [Occasion(every.homes[:n], every.metered[:n])])
    for season in SEASONS if public_curves.READINGS.exists() else ():
        if only in (name := f"London, {season}"):
            yield Population(name, 0.5, cached(folder, f"london_{season}", lambda season=season: london(season)))


def seeded(homes: Any, plan: Any, rng: np.random.Generator) -> Any:
    """Public tables with seeded noise of the plan's deviation: for measurements only."""
    vector = sum_of_home_vectors(np.ascontiguousarray(homes), plan)
    return public_tables(vector + plan.account.sigma * rng.standard_normal(len(vector)), plan, homes.shape[1])


def microaggregated(homes: Any, clip: float, rng: np.random.Generator) -> tuple[float, float]:
    """Best W₁ over a few sizes, and its total's error."""
    n, k = homes.shape
    held = np.minimum(homes, clip)[np.argsort(homes.mean(axis=1), kind="stable")]
    results = []
    for parts in (1, 2, 4, 8):
        groups = np.array_split(held, parts)
        size = min(map(len, groups))
        noise = rng.laplace(scale=n / size**2 * k * clip, size=(parts, k))
        curves = np.maximum(np.array([group.mean(axis=0) for group in groups]) + noise, 0.0)
        counts = np.array([len(group) for group in groups])
        results.append(
            (error.w1_bounds(homes, curves, counts)[0], abs(float((counts @ curves).sum() / homes.sum()) - 1))
        )
    return min(results)


def quantiles(curves: Any, counts: Any) -> Any:
    """Quantiles of the mean loads of weighted curves, as ``population_error`` has them."""
    levels = curves.mean(axis=1)
    order = np.argsort(levels)
    below = np.cumsum(counts[order]) / counts.sum()
    return levels[order[np.minimum(np.searchsorted(below, error.QUANTILES), len(order) - 1)]]


def interval(values: list[float], digits: int = 3) -> str:
    if np.ptp(values) == 0:
        return f"{values[0]:.{digits}f}"
    half = 1.96 * float(np.std(values, ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def measure(population: Population, draws: int, seed: int = 0) -> dict[str, list[dict[str, float]]]:
    """Release -> its figures, draw by draw; ``draws`` are shared by the occasions."""
    rng = np.random.default_rng(seed)
    n = len(population.occasions[0].homes)
    measured: dict[str, list[dict[str, float]]] = defaultdict(list)
    chosen = shoal.noisy_crowds_plan(n, 1.0, typical_kw=population.typical)
    simple = shoal.noisy_crowds_plan(n, 1.0, typical_kw=population.typical, method="mean")
    for occasion in population.occasions:
        homes = occasion.homes
        for draw in range(max(draws // len(population.occasions), 1)):
            tables = seeded(homes, chosen, rng)
            total = float(tables.total.sum())
            measured["noisy crowds"].append(occasion.figures(tables.curves, tables.counts, total, later=True))
            if draw >= FEWER and n >= LARGE:
                continue
            if chosen != simple:
                tables = seeded(homes, simple, rng)
                total = float(tables.total.sum())
                release = occasion.figures(tables.curves, tables.counts, total, later=False)
                measured["one mean × public curves"].append(release)
            release = occasion.figures(tables.total[None] / n, np.ones(1), total, later=False)
            measured["one mean"].append(release)
            best, off = microaggregated(homes, simple.load_clip, rng)
            measured["insensitive microaggregation"].append({"w1": best, "total": off})
        crowd = least_spread_crowds(homes, 10)
        ten = occasion.figures(crowd_means(homes, crowd), np.bincount(crowd), float(homes.sum()), later=True)
        measured["crowds of ten, no noise"].append(ten)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--cache", type=Path, default=None, help="folder for the forecasts")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 4000, 10_000], help="simulated homes")
    parser.add_argument("--only", default="", help="populations whose name contains this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    error.LARGEST = 1 << 30  # type: ignore[misc]
    columns = {"w1": "W₁", "total": "total", "metered": "metered / forecasts"}
    columns |= {f"{q:.0%}": f"{100 * q:.0f} %" for q in error.QUANTILES}
    print(f"| population | release | {' | '.join(columns.values())} |\n| --- | --- |{' ---: |' * len(columns)}")
    for population in populations(options.cache, options.sizes, options.only):
        start = time.process_time()
        for release, draws in measure(population, options.draws).items():
            cells = [interval([draw[name] for draw in draws]) if name in draws[0] else "" for name in columns]
            print(f"| {population.name} | {release} | {' | '.join(cells)} |", flush=True)
        print(f"{population.name}: {time.process_time() - start:.0f} s of processor time", file=sys.stderr)


if __name__ == "__main__":
    main()
