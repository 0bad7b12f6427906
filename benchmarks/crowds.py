"""Crowds: spread and seconds beside MDAV and k-means cut to size. What they cost is measured in ``price``.

python -m benchmarks.crowds --homes 1000000      seconds for points as a run of so many homes has
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from shoal.crowds.formation import Limits, crowd_means, least_spread_crowds, within_crowd_spread
from shoal.crowds.membership import formation_size
from shoal.crowds.partition import balanced_cells, cut_into_cells
from shoal.product.sources.meters.crowd_points import points_of_homes
from shoal.validation import FloatArray

SIZE = 10
SIZES = (100, 1_000, 10_000, 100_000)


def mdav(points: FloatArray, size: int) -> NDArray[np.int64]:
    """Maximum distance to average: the farthest point from the mean with its nearest, then the farthest from it.

    Domingo-Ferrer and Mateo-Sanz (2002); groups of ``size``, the last of up to 2·size − 1.
    """
    return np.asarray(_mdav(np.ascontiguousarray(points, dtype=np.float64), size))


@njit
def _mdav(x: Any, size: int) -> Any:
    n, k = x.shape
    left, rest, group, number = np.arange(n), n, np.full(n, -1), 0
    away = np.empty(n)
    while rest >= 2 * size:
        center = np.zeros(k)
        for a in range(rest):
            center += x[left[a]] / rest
        seed, farthest = -1, -1.0
        for a in range(rest):
            d = 0.0
            for e in range(k):
                d += (x[left[a], e] - center[e]) ** 2
            if d > farthest:
                seed, farthest = left[a], d
        both = rest >= 3 * size
        for turn in range(2 if both else 1):
            opposite, farthest = -1, -1.0
            for a in range(rest):
                away[a] = 0.0
                for e in range(k):
                    away[a] += (x[left[a], e] - x[seed, e]) ** 2
                if away[a] > farthest:
                    opposite, farthest = left[a], away[a]
            for a in np.argpartition(away[:rest], size - 1)[:size]:
                group[left[a]] = number
            number += 1
            kept = 0
            for a in range(rest):
                if group[left[a]] < 0:
                    left[kept] = left[a]
                    kept += 1
            rest = kept
            if turn == 0:
                seed = opposite
    for a in range(rest):
        group[left[a]] = number
    return group


def k_means_cut(points: FloatArray, size: int) -> NDArray[np.int64]:
    """k-means with n/(5 size) clusters; small ones join the nearest, each is cut into parts of ``size`` or more."""
    from sklearn.cluster import MiniBatchKMeans

    number = max(len(points) // (5 * size), 1)
    cluster = MiniBatchKMeans(number, n_init=3, random_state=0).fit_predict(points)
    while True:
        _, cluster, counts = np.unique(cluster, return_inverse=True, return_counts=True)
        if counts.min() >= size:
            break
        small = int(np.argmin(counts))
        centers = crowd_means(points, cluster)
        away = ((centers - centers[small]) ** 2).sum(axis=1)
        away[small] = np.inf
        cluster[cluster == small] = int(np.argmin(away))
    found, number = np.empty(len(points), dtype=np.int64), 0
    for c in range(int(cluster.max()) + 1):
        rows = np.flatnonzero(cluster == c)
        part = balanced_cells(points[rows], len(rows) // size)
        found[rows] = number + part
        number += int(part.max()) + 1
    return found


def loads(n: int, k: int = 12) -> FloatArray:
    """Curves of many homes: a level, a few common shapes, and something of their own."""
    rng = np.random.default_rng(n)
    shapes = rng.standard_normal((3, k))
    own = 0.25 * rng.standard_normal((n, 3)) @ shapes + 0.1 * rng.standard_normal((n, k))
    return np.asarray(np.exp(0.8 * rng.standard_normal((n, 1)) + own))


def timed(work: Callable[[FloatArray], NDArray[np.int64]], x: FloatArray) -> tuple[NDArray[np.int64], float]:
    begun = time.perf_counter()
    return work(x), time.perf_counter() - begun


#: How the spread is compared, in the order of the table; MDAV first.
WAYS: tuple[Callable[[FloatArray], NDArray[np.int64]], ...] = (
    lambda x: mdav(x, SIZE),
    lambda x: k_means_cut(x, SIZE),
    lambda x: balanced_cells(x, len(x) // SIZE),
    lambda x: least_spread_crowds(x, SIZE),
    lambda x: least_spread_crowds(x, SIZE, boundaries=cut_into_cells(x, 1000)),
)


def spreads() -> None:
    print(f"Crowds of {SIZE} to {2 * SIZE - 1}, 12 entries; spread relative to MDAV, seconds in brackets.\n")
    print(
        "| points | MDAV | k-means cut to size | cells alone | crowds | crowds in cells of 1,000 |\n"
        + "| --- " * 6
        + "|"
    )
    for work in WAYS:
        work(loads(100))  # compiled
    for n in SIZES:
        x, whole, line = loads(n), 0.0, []
        for work in WAYS:
            found, seconds = timed(work, x)
            assert np.bincount(found).min() >= SIZE
            whole = whole or within_crowd_spread(x, found)
            line.append(f"{within_crowd_spread(x, found) / whole:.3f} ({seconds:.2f})")
        print(f"| {n:,} | {' | '.join(line)} |", flush=True)


def homes(n: int) -> tuple[FloatArray, Limits]:
    """Points and limits as a run has for 12 steps: a forecast and a usual day per home, of a few waves and noise."""
    rng, angle = np.random.default_rng(0), np.arange(96) / 96 * 2 * np.pi
    waves = np.stack([np.ones(96), *(f(m * angle) for m in (1, 2, 3) for f in (np.sin, np.cos))])
    size, ahead = np.array([0.7, 0.35, 0.35, 0.25, 0.25, 0.15, 0.15]), np.arange(72, 84)
    day, curve = np.empty((n, 96)), np.empty((n, len(ahead)))
    for start in range(0, n, 100_000):
        part = slice(start, min(start + 100_000, n))
        m = part.stop - start
        own = (rng.standard_normal((m, 7)) * size - np.array([0.6, *[0] * 6])) @ waves
        day[part] = np.exp(own + 0.15 * rng.standard_normal((m, 96)))
        off = 0.25 * rng.standard_normal((m, 1)) + 0.15 * rng.standard_normal((m, len(ahead)))
        curve[part] = np.exp(own[:, ahead] + off)
    total = np.rint(1000 * curve).sum(axis=1, keepdims=True)
    return points_of_homes(curve, day, ahead), Limits(total, np.ones(1), np.ones(1, dtype=bool), np.zeros((n, 0)))


def many(n: int) -> None:
    """Seconds for the crowds of many homes."""
    (x, limits), size = homes(n), formation_size(SIZE)
    least_spread_crowds(x[:200], size, limits=limits.take(slice(0, 200)))  # compiled
    begin, processor = time.perf_counter(), time.process_time()
    found = least_spread_crowds(x, size, limits=limits)
    wall, processor = time.perf_counter() - begin, time.process_time() - processor
    share = within_crowd_spread(x, found) / float(((x - x.mean(axis=0)) ** 2).sum())
    print(f"{n:,} homes: {wall:.0f} s, {processor:.0f} s of the processors; {share:.4f} of all spread is inside crowds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--homes", type=int)
    args = parser.parse_args()
    if args.homes:
        many(args.homes)
    else:
        print("## Crowds\n")
        spreads()
