"""What budgets that hold for any choice cost: ``python -m benchmarks adaptive``; ``--charge`` for the times alone.

"Releases": how many equal releases fit into a budget for a series fixed in advance (exact composition), and what share
of them into an adaptive one, by kind of release. Two labels, one answer: shifts with equal covariances; spreads
(unequal variances, equal means) whose strength is chosen so that 10, 100 or 1,000 fit exactly; codebooks of a part of
ε, which exact composition lets draw more often than pure ε adds up to; codebooks and shifts in turns.

"Charging": processor time of tables of 1,000 rows in groups of 25, unequal covariances, charged one after the other
with the mechanism's bound, by mode.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from benchmarks.adaptive_filter import AdaptiveFilter
from shoal import (
    GaussianClasses,
    Ledger,
    NeighborGraph,
    analytic_sigma,
    codebook,
    composed_delta,
    design,
    privacy_curve,
)

BUDGETS = ((0.3, 1e-6), (1.0, 1e-4), (1.0, 1e-6), (1.0, 1e-9), (2.0, 1e-6), (4.0, 1e-6))
PAIR = NeighborGraph.complete(["a", "b"])
DAYS, ROWS, GROUP = 5, 1000, 25


def most(fits: Callable[[int], bool]) -> int:
    """The largest number that fits."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def shift(gap: float) -> GaussianClasses:
    return GaussianClasses([[0.0], [gap]], [[1.0]], labels=["a", "b"])


def spread(size: float) -> GaussianClasses:
    return GaussianClasses([[0.0], [0.0]], [[[1.0]], [[1.0 + size]]], labels=["a", "b"])


def spread_for(count: int, epsilon: float, delta: float) -> GaussianClasses:
    """The largest spread that fits ``count`` times into a fixed series."""
    low, high = 0.0, 10.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        fits = privacy_curve([spread(middle)] * count, PAIR, epsilon).delta_upper <= delta
        low, high = (middle, high) if fits else (low, middle)
    return spread(low)


def shared(epsilon: float, delta: float, unit: list[object]) -> str:
    """Exact number of releases of a unit, and the share that an adaptive budget lets through."""
    budget = AdaptiveFilter(epsilon, delta)
    exact = most(lambda n: bool(composed_delta(unit * n, PAIR, epsilon).delta_upper <= delta))
    adaptive = most(lambda n: budget.fits(unit * n, PAIR))
    return f"{exact * len(unit)}: {adaptive / exact:.0%}" if exact else "0"


def releases() -> None:
    print("| (ε, δ) | shifts | spreads, 10 | 100 | 1,000 | codebooks of ε/5 | of ε/20 | of ε/40 with shifts |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for epsilon, delta in BUDGETS:
        gap = 1.0 / analytic_sigma(1.0, epsilon, delta) / 10
        row = [shared(epsilon, delta, [shift(gap * 0.9999)])]
        row += [shared(epsilon, delta, [spread_for(n, epsilon, delta)]) for n in (10, 100, 1000)]
        books = [codebook([[0.0], [1.0]], PAIR, epsilon=epsilon / part) for part in (5, 20, 40)]
        row += [shared(epsilon, delta, [book]) for book in books[:2]]
        row.append(shared(epsilon, delta, [books[2], shift(gap / 2)]))
        print(f"| ({epsilon:g}, {delta:g}) | {' | '.join(row)} |", flush=True)


def charging() -> None:
    rng = np.random.default_rng(0)
    labels = [f"h{i}" for i in range(ROWS)]
    graph = NeighborGraph.within_groups(labels, [i // GROUP for i in range(ROWS)])
    factors = rng.standard_normal((ROWS, 4, 12))
    covs = np.eye(4) + 0.01 * factors @ factors.transpose(0, 2, 1) / 12
    mechanism = design(GaussianClasses(0.01 * rng.standard_normal((ROWS, 4)), covs, labels), graph, "white", 1.0, 1.0)
    print("\n| mode | " + " | ".join(f"table {day + 1}" for day in range(DAYS)) + " | verify |")
    print("| --- |" + " --- |" * (DAYS + 1))
    for mode in ("fixed", "adaptive"):
        with tempfile.TemporaryDirectory() as folder, Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
            ledger.budget(4.0, 1e-3, mode=mode)
            cells = []
            for day in range(DAYS):
                true = rng.standard_normal((ROWS, 4))
                drawn = mechanism.release(true, labels)
                start = time.process_time()
                ledger.charge(mechanism, true, drawn, labels, query_ids=f"day {day}")
                cells.append(f"{time.process_time() - start:.2f} s")
            start = time.process_time()
            assert ledger.verify()
            cells.append(f"{time.process_time() - start:.2f} s")
        print(f"| {mode} | {' | '.join(cells)} |", flush=True)


def main() -> int:
    print("## Adaptive budgets\n")
    if "--charge" not in sys.argv:
        releases()
    charging()
    return 0


if __name__ == "__main__":
    sys.exit(main())
