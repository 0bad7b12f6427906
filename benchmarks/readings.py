"""Noisy crowds beside what else could be released about readings: python -m benchmarks.readings [--cache DIR].

Homes: 486 Swiss ones at four origins (skipped when the file is not there), simulated ones (seed 12; settings were fixed
on seed 11), and London home-days by season of the homes that are not in the public curves, each home-day taken for a
home. Forecasts: ARMA(6, 5), 15 days, 12 steps, season of a day (London: of a week, half hours). ε = 1, δ = 1/(10
homes). Figures are W₁ over the mean load (the upper end of ``shoal.readings.error.w1``, about 1 % above the optimum;
all homes, no sample) and the absolute error of the horizon's total, mean over draws with the 95 % interval of that
mean. Beside noisy crowds:

- one private mean times public curves, and one private mean alone: ``noisy_crowds_plan(method="mean")``;
- insensitive microaggregation (Soria-Comas et al. 2014): homes in the order of their load, m consecutive ones averaged;
  one home moves every centroid by at most 1/m of its clipped range, so Laplace noise of scale (n/m²) k R/ε; m is the
  best of a few in hindsight, R the plan's clip;
- crowds of ten without noise.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from benchmarks import public_curves
from shoal.laws.crowds import crowds as crowds_of
from shoal.laws.crowds import means
from shoal.readings import error
from shoal.readings.crowds import publish
from shoal.readings.noisy import vector_sum

ROOT = Path(__file__).parents[1]
SWISS = ROOT.parent / "shared/data/swiss_residential_15min/swiss15_clean.parquet"
ORIGINS = ("2018-11-20T18:00", "2018-11-25T18:00", "2018-12-05T18:00", "2018-12-10T06:00")
SEASONS = {
    "winter": ("12", "01", "02"),
    "spring": ("03", "04", "05"),
    "summer": ("06", "07", "08"),
    "autumn": ("09", "10", "11"),
}


def swiss() -> list[Any]:
    import polars as pl

    readings = pl.read_parquet(SWISS)
    return [shoal.forecast(readings, train_days=15, horizon=12, origin=at, season="day").power for at in ORIGINS]


def simulated(n: int, seed: int) -> Any:
    parts = []
    for first in range(0, n, 1000):
        readings = shoal.simulate_meters(min(1000, n - first), 17, seed=seed, first=first)
        forecast = shoal.forecast(readings, train_days=15, horizon=12, season="day", origin="2024-01-16T18:00")
        parts.append(forecast.power)
    return np.concatenate(parts)


def london(season: str) -> Any:
    """Home-days of the homes that are not in the public curves."""
    days = [at for at in public_curves.ORIGINS if at[5:7] in SEASONS[season]]
    return np.concatenate(
        [kw[public_curves.half(names, odd=True)] for kw, names in public_curves.forecasts(days).values()]
    )


def cached(folder: Path | None, name: str, make: Any) -> Any:
    """Curves from a file, made when it is not there."""
    if folder is None:
        return make()
    path = folder / f"{name}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(path, np.array(make()))
    return np.load(path)


def populations(folder: Path | None, sizes: list[int]) -> Iterator[tuple[str, list[Any], float]]:
    """Name, curves of every occasion, declared typical load."""
    if SWISS.exists():
        yield "486 Swiss homes, four origins", list(cached(folder, "swiss", swiss)), 1.5
    if sizes:
        homes = cached(folder, f"simulated{max(sizes)}", lambda: simulated(max(sizes), seed=12))
        for n in sizes:
            yield f"{n:,} simulated homes", [homes[:n]], 1.5
    if public_curves.READINGS.exists():
        for season in SEASONS:
            yield f"London, {season}", [cached(folder, f"london_{season}", lambda season=season: london(season))], 0.5


def seeded(homes: Any, plan: Any, rng: np.random.Generator) -> Any:
    """Public tables with seeded noise of the plan's deviation: for measurements only."""
    vector = vector_sum(np.ascontiguousarray(homes), plan)
    return publish(vector + plan.account.sigma * rng.standard_normal(len(vector)), plan, homes.shape[1])


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
        results.append((error.w1(homes, curves, counts)[0], abs(float((counts @ curves).sum() / homes.sum()) - 1)))
    return min(results)


def interval(values: list[float]) -> str:
    half = 1.96 * float(np.std(values, ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{np.mean(values):.3f} ± {half:.3f}"


def measure(homes: list[Any], typical: float, draws: int, seed: int = 0) -> dict[str, tuple[str, str]]:
    rng = np.random.default_rng(seed)
    n = len(homes[0])
    figures: dict[str, list[tuple[float, float]]] = {}
    plans = {
        "noisy crowds": shoal.noisy_crowds_plan(n, 1.0, typical_kw=typical),
        "one mean × public curves": shoal.noisy_crowds_plan(n, 1.0, typical_kw=typical, method="mean"),
    }
    for curves in homes:
        for _ in range(max(draws // len(homes), 1)):
            for name, plan in plans.items():
                tables = seeded(curves, plan, rng)
                off = abs(float(tables.total.sum() / curves.sum()) - 1)
                figures.setdefault(name, []).append((error.w1(curves, tables.curves, tables.counts)[0], off))
            mean = tables.total / n
            figures.setdefault("one mean", []).append((float(np.abs(curves - mean).mean() / curves.mean()), off))
            best = microaggregated(curves, plan.load_clip, rng)
            figures.setdefault("insensitive microaggregation", []).append(best)
        crowd = crowds_of(curves, 10)
        ten = error.w1(curves, means(curves, crowd), np.bincount(crowd))[0]
        figures.setdefault("crowds of ten, no noise", []).append((ten, 0.0))
    return {name: (interval([v for v, _ in rows]), interval([t for _, t in rows])) for name, rows in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--cache", type=Path, default=None, help="folder for the forecasts")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 4000, 10_000], help="simulated homes")
    parser.add_argument("--only", default="", help="populations whose name contains this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    error.LARGEST = 1 << 30  # type: ignore[misc]
    print("| population | release | W₁ | total | s a draw |\n| --- | --- | ---: | ---: | ---: |")
    for name, homes, typical in populations(options.cache, options.sizes):
        if options.only not in name:
            continue
        start = time.perf_counter()
        plan = shoal.noisy_crowds_plan(len(homes[0]), 1.0, typical_kw=typical)
        shoal.noisy_crowds(homes[0], plan)
        took = time.perf_counter() - start
        for release, (w1, total) in measure(homes, typical, options.draws).items():
            shown = f"{took:.2f}" if release == "noisy crowds" else ""
            print(f"| {name} | {release} | {w1} | {total} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
