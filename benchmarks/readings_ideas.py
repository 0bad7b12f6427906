"""Ideas for noisy crowds that are not in the library: python -m benchmarks.readings_ideas --cache DIR.

ε = 1, δ = 1/(10 homes), seeded noise, W₁ over the mean load as in ``benchmarks.readings``.

- **Cells refined from earlier releases.** A series of releases shares ε = 1. What the plan would release on the last
  day, beside a histogram of cells on every day whose noisy counts are averaged over all days: post-processing of noisy
  vectors that are in the account already. Swiss homes at four origins, 1,000 simulated homes on four evenings.
- **k-means under the promise**, 10,000 homes. Centers start at public curves times public levels. In every round each
  home adds (w, x) to its nearest center, x the first cosines of its curve over the center's load less the center's
  curve, clipped to r; noisy sums move the centers. Rounds share what a noisy total leaves of μ². Beside it the same
  without noise: what so many centers could give.
- **Finer levels and joined curves**, 4,000 homes: level cells spread over two levels instead of one; and what a run
  writes, where curves are joined into sixty.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import shoal
from benchmarks.readings import Occasion, cached, forecasts, interval, quantiles, seeded, simulated, swiss
from shoal.readings import crowds
from shoal.readings import population_error as error
from shoal.readings.crowds import (
    cosine_basis,
    public_curve_shares,
    public_curves_over,
    public_load_quantiles,
    public_tables,
    shape_classes,
    sum_of_home_vectors,
)
from shoal.readings.publication import join_curves

DAYS = ("2024-01-16T18:00", "2024-01-17T18:00", "2024-01-18T18:00", "2024-01-19T18:00")


def series(n: int) -> list[tuple[Any, Any]]:
    """Simulated homes on four days, seed 12."""
    readings = shoal.simulate_meters(n, 20, seed=12)
    return [forecasts(readings, origin, "day")[:2] for origin in DAYS]


def refined(vectors: list[Any], plan: Any, steps: int) -> crowds.PublicTables:
    """Tables of the last of several noisy vectors, cells averaged over all of them."""
    vector, std = vectors[-1].copy(), plan.account.sigma
    for part in (plan.part_slices["level"], plan.part_slices["shape"]):
        vector[part] = np.mean([one[part] for one in vectors], axis=0)
    least = plan.customers * plan.typical_kw * 1e-3
    load = max(float(vector[plan.part_slices["load"].start]) * plan.load_clip / plan.load_weight, least)
    less = std / np.sqrt(len(vectors))
    bounds, counts = crowds._level_counts(vector, plan, load, less)
    middles = np.sqrt(bounds[1:] * bounds[:-1])
    weights = crowds._curve_shares_by_level(vector, plan, middles, counts, less)
    curves = (middles[:, None, None] * public_curves_over(steps)).reshape(-1, steps)
    homes = (counts[:, None] * weights).ravel()
    over = float(counts @ np.maximum(middles - plan.load_clip, 0.0))
    of_day = public_tables(vector, plan, steps).total  # its shape does not depend on the levels
    total = of_day / of_day.mean() * (load + over)
    return crowds.PublicTables(curves * (total / (homes @ curves)), homes, total, bounds)


def refinement(name: str, days: list[Occasion], draws: int) -> None:
    """Print W₁ of the last day of a series, with and without what the earlier days released."""
    rng = np.random.default_rng(0)
    n, steps = days[-1].homes.shape
    cap = shoal.noisy_crowds_plan(n, 1.0, typical_kw=1.5).mu / np.sqrt(len(days))
    plans = {
        method: shoal.noisy_crowds_plan(n, 1.0, method=method, cap_mu=cap, typical_kw=1.5) for method in (None, "cells")
    }
    measured: dict[str, list[float]] = {}
    for _ in range(draws):
        plan = plans["cells"]
        vectors = [sum_of_home_vectors(np.ascontiguousarray(day.homes), plan) for day in days]
        vectors = [one + plan.account.sigma * rng.standard_normal(len(one)) for one in vectors]
        for what, tables in {
            f"the plan's choice, {plans[None].method}": seeded(days[-1].homes, plans[None], rng),
            "cells, this day's": crowds.public_tables(vectors[-1], plan, steps),
            f"cells, averaged over {len(days)} releases": refined(vectors, plan, steps),
        }.items():
            measured.setdefault(what, []).append(error.w1_bounds(days[-1].homes, tables.curves, tables.counts)[0])
    for what, values in measured.items():
        print(f"| {name}, last of {len(days)} releases | {what} | {interval(values)} |", flush=True)


def means_of(
    homes: Any, levels: int, classes: int, rounds: int, plan: Any, rng: np.random.Generator | None
) -> tuple[Any, Any]:
    """Centers (m, k) and their counts; without ``rng`` there is no noise and no clip."""
    k = homes.shape[1]
    clip, weight, share = 1.0, 1.0, 0.3  # the plan's share of μ² for the load, which the centers are scaled to
    std = np.sqrt((weight**2 + clip**2) * rounds / (1 - share)) / plan.mu
    member, mass = shape_classes(classes), public_curve_shares()
    shapes = np.array(
        [np.average(public_curves_over(k)[member == c], axis=0, weights=mass[member == c]) for c in range(classes)]
    )
    spread = np.quantile(public_load_quantiles(), (np.arange(levels) + 0.5) / levels) * plan.typical_kw
    centers = (spread[:, None, None] * shapes).reshape(-1, k)
    basis = np.vstack([np.ones(k), cosine_basis(k, 5)])
    for _ in range(rounds):
        nearest = cdist(homes, centers, "cityblock").argmin(axis=1)
        scale = centers.mean(axis=1)
        x = (homes - centers[nearest]) / scale[nearest, None] @ basis.T / k
        if rng is not None:
            x *= np.minimum(1.0, clip / np.maximum(np.linalg.norm(x, axis=1), 1e-12))[:, None]
        counts = np.bincount(nearest, minlength=len(centers)).astype(float)
        sums = np.array([np.bincount(nearest, weights=step, minlength=len(centers)) for step in x.T]).T
        if rng is not None:
            counts = np.maximum(counts + std * rng.standard_normal(len(centers)), 0.0)
            sums = sums + std * rng.standard_normal(sums.shape)
        held = np.maximum(counts, 4 * std if rng is not None else 1.0)
        centers = np.maximum(centers + scale[:, None] * (sums / held[:, None]) @ basis, 0.02 * scale[:, None])
    if rng is not None:
        noise = plan.account.sigma * plan.load_clip / plan.load_weight * rng.standard_normal()
        centers = (
            centers * (np.minimum(homes.mean(axis=1), plan.load_clip).sum() + noise) / (counts @ centers.mean(axis=1))
        )
    return centers, counts


def clustering(homes: Any, draws: int) -> None:
    """Print W₁ of private k-means and of the same without noise."""
    plan = shoal.noisy_crowds_plan(len(homes), 1.0, typical_kw=1.5)
    for levels, classes in ((6, 8), (12, 8), (12, 16), (20, 30)):
        for rounds in (1, 3):
            rng = np.random.default_rng(0)
            noisy = [
                error.w1_bounds(homes, *means_of(homes, levels, classes, rounds, plan, rng))[0] for _ in range(draws)
            ]
            free = error.w1_bounds(homes, *means_of(homes, levels, classes, rounds, plan, None))[0]
            name = f"k-means, {levels * classes} centers, {rounds} round(s)"
            print(
                f"| {len(homes):,} simulated homes | {name} | {interval(noisy)} | without noise {free:.3f} |",
                flush=True,
            )


def written(tables: crowds.PublicTables) -> tuple[Any, Any]:
    """Curves and counts joined into sixty, as a run writes them."""
    into = join_curves(tables)
    counts = np.bincount(into, weights=tables.counts)
    sums = np.array([np.bincount(into, weights=tables.counts * step) for step in tables.curves.T]).T
    return sums / np.maximum(counts, 1e-12)[:, None], counts


def resolution(homes: Any, draws: int) -> None:
    """Print W₁ and errors of quantiles with one and two levels per cell, as released and as a run writes them."""
    plan = shoal.noisy_crowds_plan(len(homes), 1.0, typical_kw=1.5)
    true = np.quantile(homes.mean(axis=1), error.QUANTILES)
    for name, wide in (("one level per cell", crowds.WIDE), ("two levels per cell", 1.0)):
        crowds.WIDE, before = wide, crowds.WIDE  # type: ignore[misc]
        rng = np.random.default_rng(0)
        tables = [seeded(homes, plan, rng) for _ in range(draws)]
        crowds.WIDE = before  # type: ignore[misc]
        for what, rows in (
            (name, [(one.curves, one.counts) for one in tables]),
            (f"{name}, joined into sixty", [written(one) for one in tables]),
        ):
            off = np.mean([np.abs(quantiles(*row) / true - 1) for row in rows], axis=0)
            shown = interval([error.w1_bounds(homes, *row)[0] for row in rows])
            quantile = ", ".join(f"{value:.3f}" for value in off)
            print(f"| {len(homes):,} simulated homes | {what} | {shown} | quantiles off by {quantile} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--cache", type=Path, default=None, help="folder for the forecasts")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    error.LARGEST = 1 << 30  # type: ignore[misc]
    refinement("486 Swiss homes", cached(options.cache, "swiss", swiss), options.draws)
    refinement("1,000 simulated homes", cached(options.cache, "series1000", lambda: series(1000)), options.draws)
    [every] = cached(options.cache, "simulated10000", lambda: simulated(10_000, seed=12))
    resolution(every.homes[:4000], max(options.draws // 4, 1))
    clustering(every.homes, max(options.draws // 4, 1))


if __name__ == "__main__":
    main()
