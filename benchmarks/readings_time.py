"""Time and memory of a release under the readings' promise: python -m benchmarks.readings_time [HOMES …].

What a run does beside the forecasts, part by part: plan, the attack before the release, the release itself
(``shoal.noisy_crowds``), the public files, and the errors that the owner is told. Curves are public ones at lognormal
loads. Every size has a process of its own; seconds are processor time, memory is the process's peak less what it had
before the curves.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

import shoal
from shoal.product.runs.kinds.readings import Homes, attack_largest, owner_errors, owner_rows, sum_of_homes
from shoal.readings.crowds import noisy_crowds_from_vector, public_curve_shares, public_curves_over
from shoal.readings.publication import PublicSettings, plan_in_series, public_files


def peak() -> float:
    """Largest memory of the process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(n: int) -> None:
    """Print one row of the table."""
    rng = np.random.default_rng(n)
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        seconds[name] = time.process_time() - start

    before = peak()
    curves = rng.lognormal(0.0, 0.8, n)[:, None] * public_curves_over(12)[rng.choice(60, n, p=public_curve_shares())]
    homes = Homes([f"{i:06d}" for i in range(n)], curves)
    with timed("plan"):
        plan, series = plan_in_series(n, epsilon=1.0, make=partial(shoal.noisy_crowds_plan, typical_kw=1.5))
    settings = PublicSettings(plan, series, "2026-01-05", "2026-01-05", "2026-01-05T18:00", 30.0, 12, "Curves.")
    with timed("attack"):
        attack_largest(homes, plan, sum_of_homes(homes, plan))
    with timed("release"):
        crowds = shoal.noisy_crowds(curves, plan)
    with timed("public files"):
        public_files(crowds.noisy, settings)
    with timed("owner's rows and errors"):
        noisy_crowds_from_vector(curves, crowds.noisy, plan)
        owner_rows(homes, crowds.noisy, settings)
        owner_errors(homes, crowds.noisy, settings)
    print(f"| {n:,} | {' | '.join(f'{s:.2f}' for s in (*seconds.values(), sum(seconds.values())))} | "
          f"{peak() - before:.0f} |", flush=True)  # fmt: skip


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or [486, 10_000, 100_000]
    if len(sizes) == 1:
        measure(sizes[0])
        return
    print("| homes | plan | attack | release | public files | owner's rows and errors | all, s | MiB |")
    print("| --- |" + " ---: |" * 7, flush=True)
    for size in sizes:
        subprocess.run([sys.executable, "-m", "benchmarks.readings_time", str(size)], check=True)


if __name__ == "__main__":
    main()
