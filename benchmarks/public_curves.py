"""Make ``src/shoal/readings/london.json``: python -m benchmarks.public_curves [FORECASTS.npz].

Forecasts (ARMA(6, 5), 15 days, 12 half hours) of the London homes with an even last digit at 18 origins of 2013, over
the mean of these homes at the same step; shape is the curve over its own mean, joined into 60 by k-means (best of 20
starts) and those again into classes by Ward's linkage. Homes with an odd last digit are left for reporting. With a file
of stored forecasts (``f`` + origin and ``h`` + origin: curves and names) nothing is fitted. Source of the readings: UK
Power Networks, Low Carbon London, CC BY 4.0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.cluster.vq import kmeans2

ROOT = Path(__file__).parents[1]
READINGS = ROOT.parent / "shared/data/london_2013/london125.parquet"
TARGET = ROOT / "src/shoal/readings/london.json"
DAYS = ("01-23", "02-06", "03-06", "04-17", "05-15", "06-05", "07-10", "08-14", "09-11", "10-16", "11-13", "12-11")
ORIGINS = sorted(
    [f"2013-{day}T18:00" for day in DAYS]
    + [f"2013-{day}T06:00" for day in ("02-20", "06-19", "09-25")]
    + [f"2013-{day}T12:00" for day in ("05-01", "07-24", "11-27")]
)


def forecasts(origins: list[str] = ORIGINS) -> dict[str, tuple[Any, Any]]:
    """Origin -> (curves in kW, names of the homes)."""
    import polars as pl

    import shoal

    readings = pl.read_parquet(READINGS).with_columns(kw=2 * pl.col("kwh")).drop("kwh")
    result = {}
    for origin in origins:
        forecast = shoal.forecast(readings, train_days=15, horizon=12, origin=origin)
        result[origin] = (forecast.power, np.array(forecast.households))
    return result


def half(names: Any, odd: bool) -> Any:
    """Which homes belong to the half with odd or even last digits."""
    return np.array([int(name[-1]) % 2 == odd for name in names])


def main(stored: str | None = None) -> None:
    if stored:
        archive = np.load(stored)
        curves = {origin: (archive["f" + origin], archive["h" + origin]) for origin in ORIGINS}
    else:
        curves = forecasts()
    relative = [kw[half(names, odd=False)] for kw, names in curves.values()]
    relative = [kw / kw.mean(axis=0) for kw in relative]
    levels = np.concatenate([kw.mean(axis=1) for kw in relative])
    shapes = np.concatenate([kw / kw.mean(axis=1, keepdims=True) for kw in relative])
    fits = [kmeans2(shapes, 60, minit="++", seed=seed, iter=50) for seed in range(20)]
    centers, nearest = min(fits, key=lambda fit: float(((shapes - fit[0][fit[1]]) ** 2).sum()))
    counts = np.bincount(nearest, minlength=60)
    order = np.argsort(-counts, kind="stable")
    centers, counts = centers[order], counts[order]
    tree = linkage(centers, "ward")
    content = {
        "source": "derived from SmartMeter Energy Consumption Data in London Households, UK Power Networks, CC BY 4.0",
        "curves": [[float(f"{value:.3f}") for value in curve] for curve in centers],
        "counts": counts.tolist(),
        "levels": [float(f"{v:.4f}") for v in np.quantile(levels, (np.arange(100) + 0.5) / 100)],
        "classes": {str(n): (fcluster(tree, n, "maxclust") - 1).tolist() for n in (8, 16, 30, 60)},
    }
    TARGET.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{len(shapes)} curves of {len(curves)} origins; {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:2])
