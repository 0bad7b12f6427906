"""Crowds on the three reference sets of microaggregation, beside MDAV: ``python -m benchmarks sdc``.

Tarragona, Census and EIA of the European CASC project (Brand, Domingo-Ferrer, Mateo-Sanz 2002). Information loss is
100 · SSE/SST after standardizing each column (n − 1), in groups of at least k; "moved points" is the best of 24 to 40
formations from slightly moved points, which took minutes and is what formation is held to.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.crowds import mdav
from shoal.crowds.formation import least_spread_crowds, within_crowd_spread
from shoal.validation import FloatArray

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "sdc"
SIZES = (3, 5, 10)
#: File, and the information loss from moved points by size.
SETS = {
    "Tarragona": ("tarragona.csv", (14.6489, 20.2312, 30.2316)),
    "Census": ("census.csv", (4.9583, 7.6185, 11.7394)),
    "EIA": ("eia.csv", (0.3631, 0.7478, 1.9996)),
}


def points(file: str) -> FloatArray:
    """The standardized columns of a set; of EIA the utility's number and ten columns of revenue and sales."""
    frame = pl.read_csv(FOLDER / file)
    if file == "eia.csv":
        frame = frame.select("UTILITYID", *(n for n in frame.columns if n.endswith(("REVENUE", "SALES"))))
    x = frame.cast(pl.Float64).to_numpy()
    return np.asarray((x - x.mean(axis=0)) / x.std(axis=0, ddof=1))


def main() -> None:
    print("## Reference sets of microaggregation\n")
    if not FOLDER.is_dir():
        print("(Skipped: the three sets are not here.)")
        return
    print("| set | k | MDAV | crowds | moved points | of that | s |\n" + "| --- " * 7 + "|")
    rng = np.random.default_rng(0)
    least_spread_crowds(rng.standard_normal((40, 3)), 3)  # compiled
    for name, (file, moved) in SETS.items():
        x = points(file)
        total = float((x**2).sum()) / 100
        for size, best in zip(SIZES, moved, strict=True):
            begun = time.process_time()
            formed = least_spread_crowds(x, size)
            seconds = time.process_time() - begun
            assert np.bincount(formed).min() >= size
            loss = within_crowd_spread(x, formed) / total
            other = within_crowd_spread(x, mdav(x, size)) / total
            losses = f"{other:.4f} | {loss:.4f} | {best:.4f} | {loss / best:.4f}"
            print(f"| {name} | {size} | {losses} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
