"""Codebooks: processor time per group, error relative to the group's own curve, gap to the proved bound, and a peer.

    python -m benchmarks codebook [--quick]

Prints Markdown. Crowds of ten are made by MDAV from mean evening profiles in kW of real homes where the data lies
beside the repository, else of simulated ones. The peer is cvxpy with its default solver on the linear program over all
subsets, written straight from its statement.
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shoal

Array = NDArray[np.float64]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "swiss_residential_15min" / "swiss15_clean.parquet"
CROWD = 10
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def profiles() -> tuple[Array, str]:
    """(homes, 12): mean power of the quarter-hours from 18:00 to 21:00 over two weeks, and where it is from."""
    import polars as pl

    if DATA.is_file():
        readings, source = shoal.read_meters(DATA), "Swiss homes"
    else:
        readings, source = shoal.simulate_meters(500, 15), "simulated homes"
    stamps = pl.col("timestamp")
    last = readings["timestamp"].max()
    evening = readings.filter((stamps > last - pl.duration(days=14)) & stamps.dt.hour().is_between(18, 20))
    quarter = (stamps.dt.hour().cast(pl.Int64) * 4 + stamps.dt.minute().cast(pl.Int64) // 15).alias("quarter")
    means = evening.group_by("household", quarter).agg(pl.col("kw").mean()).drop_nulls()
    wide = means.pivot(on="quarter", index="household", values="kw").drop_nulls().sort("household")
    return wide.drop("household").to_numpy().astype(np.float64), source


def crowds(points: Array, size: int) -> list[NDArray[np.intp]]:
    """MDAV: the point farthest from the mean with its nearest, again and again; the rest is the last crowd."""
    left = np.arange(len(points))
    found = []
    while len(left) >= 2 * size:
        here = points[left]
        far = here[np.argmax(((here - here.mean(axis=0)) ** 2).sum(axis=1))]
        order = np.argsort(((here - far) ** 2).sum(axis=1), kind="stable")
        found.append(left[order[:size]])
        left = left[order[size:]]
    return [*found, left]


def all_subsets(answers: Array, epsilon: float) -> float:
    """The peer: cvxpy on every subset at once."""
    import cvxpy

    n, k = answers.shape
    members = (np.arange(2**n - 1)[:, None] >> np.arange(n)) & 1
    w = np.where(members, math.exp(epsilon), 1.0)
    centers = w @ answers / w.sum(axis=1, keepdims=True)
    squares = ((answers[None] - centers[:, None]) ** 2).sum(axis=2)
    often = cvxpy.Variable(len(w), nonneg=True)
    problem = cvxpy.Problem(cvxpy.Minimize(((w * squares).sum(axis=1) / (n * k)) @ often), [w.T @ often == np.ones(n)])
    return float(problem.solve())


def timed(call: Any) -> tuple[Any, float]:
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def real_crowds(quick: bool) -> None:
    points, source = profiles()
    groups = crowds(points, CROWD)[: 8 if quick else None]
    print(f"\n**Crowds of {CROWD}** ({source}, {len(points)} of them, 12 quarter-hours of the evening, kW; MDAV).\n")
    row(
        "ε",
        "mean error / center's",
        "least, largest of a crowd",
        "gap to the bound, largest",
        "curves, mean",
        "ms a crowd",
    )
    row("---:", "---:", "---:", "---:", "---:", "---:")
    shoal.codebook(points[groups[0]], shoal.NeighborGraph.complete(range(len(groups[0]))), 1.0)
    for epsilon in EPSILONS:
        ratios, gaps, curves, spent, errors, centers = [], [], [], [], [], []
        for members in groups:
            here = points[members]
            graph = shoal.NeighborGraph.complete(range(len(here)))
            book, seconds = timed(partial(shoal.codebook, here, graph, epsilon))
            center = float(((here - here.mean(axis=0)) ** 2).mean())
            errors.append(book.mean_rho * len(here))
            centers.append(center * len(here))
            ratios.append(book.mean_rho / center)
            gaps.append(book.mean_rho / book.lower_bound - 1)
            curves.append(len(book.curves("0")))
            spent.append(seconds)
        row(
            f"{epsilon:g}",
            f"{sum(errors) / sum(centers):.3f}",
            f"{min(ratios):.3f}, {max(ratios):.3f}",
            f"{max(gaps):.1e}",
            f"{np.mean(curves):.1f}",
            f"{1e3 * np.mean(spent):.1f}",
        )


def sizes(quick: bool) -> None:
    print("\n**Random groups** (12 entries), ε = 2: processor time, gap to the proved bound, and the peer.\n")
    row("labels", "ms", "gap to the bound", "cvxpy, all subsets, ms", "difference to it")
    row("---:", "---:", "---:", "---:", "---:")
    rng = np.random.default_rng(0)
    for n in (6, 10) if quick else (6, 10, 12, 15, 18, 20, 30, 60):
        answers = rng.standard_normal((n, 12)) * np.linspace(2.0, 0.1, 12)
        graph = shoal.NeighborGraph.complete(range(n))
        book, seconds = timed(partial(shoal.codebook, answers, graph, 2.0))
        cells = ["", ""]
        if n <= 12:
            best, peer = timed(partial(all_subsets, answers, 2.0))
            cells = [f"{1e3 * peer:.0f}", f"{abs(book.mean_rho / best - 1):.1e}"]
        row(n, f"{1e3 * seconds:.1f}", f"{book.mean_rho / book.lower_bound - 1:.1e}", *cells)


def draws() -> None:
    answers = np.random.default_rng(1).standard_normal((10, 12))
    book = shoal.codebook(answers, shoal.NeighborGraph.complete(range(10)), 2.0)
    _, seconds = timed(lambda: [book.release("3") for _ in range(5000)])
    print(f"\nA released answer takes {1e6 * seconds / 5000:.1f} µs.")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print("## Codebooks")
    real_crowds(quick)
    sizes(quick)
    draws()


if __name__ == "__main__":
    main()
