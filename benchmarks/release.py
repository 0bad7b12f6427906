"""Releases: time per answer beside peers, the sampler's law on a million draws, and the last-bit attack.

    python -m benchmarks.release [--quick]

Prints Markdown. Peers in the same process: NumPy's ``multivariate_normal`` (not private), and OpenDP's own Gaussian
measurement called once per entry on floats (private, for independent entries only).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from opendp.domains import atom_domain
from opendp.measurements import make_gaussian
from opendp.metrics import absolute_distance
from opendp.mod import enable_features
from scipy import stats

import shoal
from shoal.noise.source import RESOLUTION, standard_normals

ENTRIES = 12


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Median processor time over repeats, after one call to warm up: other work on the machine does not count."""
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return float(np.median(times))


def family(n: int = 20) -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    rng = np.random.default_rng(5)
    factors = rng.standard_normal((n, ENTRIES, 2 * ENTRIES)) / np.sqrt(2 * ENTRIES)
    classes = shoal.GaussianClasses(rng.standard_normal((n, ENTRIES)), factors @ np.swapaxes(factors, 1, 2))
    return classes, shoal.NeighborGraph.complete(classes.labels)


def throughput(quick: bool) -> None:
    """µs per released answer of 12 entries: alone, and in a batch."""
    classes, graph = family()
    repeats, size = (5, 200) if quick else (200, 2000)
    rng = np.random.default_rng(0)
    q = classes.means[0]
    batch = np.tile(q, (size, 1))
    print(
        f"\n**Processor time per released answer**, {ENTRIES} entries, µs: median of {repeats} calls; "
        f"batches of {size}.\n"
    )
    row("release", "alone", "in a batch", "first release, 20 labels, ms")
    row("---", "---:", "---:", "---:")
    for method in ("white", "paper", "center"):
        mechanism = shoal.design(classes, graph, method, 1.0, 0.5)
        start = time.process_time()
        mechanism.release(q, "0")
        first = time.process_time() - start
        alone = seconds(lambda m=mechanism: m.release(q, "0"), repeats)
        many = seconds(lambda m=mechanism: m.release(batch, "3"), 5) / size
        noise = {"white": "diagonal noise", "paper": "correlated noise", "center": "map, no noise"}[method]
        row(f"shoal, {method} ({noise})", f"{1e6 * alone:.0f}", f"{1e6 * many:.0f}", f"{1e3 * first:.1f}")
    cov = shoal.design(classes, graph, "paper", 1.0, 0.5).noise_cov[3]
    alone = seconds(lambda: q + rng.multivariate_normal(np.zeros(ENTRIES), cov), repeats)
    many = seconds(lambda: batch + rng.multivariate_normal(np.zeros(ENTRIES), cov, size), 5) / size
    row("NumPy multivariate_normal, not private", f"{1e6 * alone:.0f}", f"{1e6 * many:.1f}", "")
    enable_features("contrib")
    one = make_gaussian(atom_domain(T=float, nan=False), absolute_distance(T=float), scale=0.7)
    alone = seconds(lambda: [one(float(v)) for v in q], repeats)
    row("OpenDP, one call per entry, independent entries only", f"{1e6 * alone:.0f}", "", "")
    draws = seconds(lambda: standard_normals(size * ENTRIES), 5) / size
    print(f"\nOf a batch, drawing the normals takes {1e6 * draws:.0f} µs per answer.")


def law(quick: bool) -> None:
    """Kolmogorov–Smirnov and moments of a million normals, and of as many numbers in released answers."""
    count = 20_000 if quick else 1_000_000
    z = np.array(standard_normals(count), dtype=float) / 2.0**RESOLUTION.unit_bits
    print(f"\n**Law of the noise**, {count:,} draws each.\n")
    row("what", "KS distance", "p", "mean / its s.e.", "variance − 1 / its s.e.", "largest correlation / its s.e.")
    row("---", "---:", "---:", "---:", "---:", "---:")

    def line(name: str, values: np.ndarray) -> None:
        test, n = stats.kstest(values.ravel(), "norm"), values.size
        columns = values.reshape(-1, 4)
        pairs = np.triu_indices(4, 1)
        cross = np.abs((columns.T @ columns / len(columns))[pairs]).max() * np.sqrt(len(columns))
        mean, spread = values.mean() * np.sqrt(n), (values.var() - 1) / np.sqrt(2 / n)
        row(name, f"{test.statistic:.2e}", f"{test.pvalue:.3f}", f"{mean:.2f}", f"{spread:.2f}", f"{cross:.2f}")

    line("standard normals", z)
    classes, _ = family()
    part = shoal.GaussianClasses(classes.means[:4, :4], classes.covs[:4, :4, :4])
    mechanism = shoal.design(part, shoal.NeighborGraph.complete(part.labels), "paper", 1.0, 0.5)
    answers = mechanism.release(np.tile(part.means[1], (count // 4, 1)), "1")
    factor = np.linalg.cholesky(mechanism.noise_cov[1])
    line("released answers, 4 correlated entries, whitened", np.linalg.solve(factor, (answers - part.means[1]).T).T)


def bits(quick: bool) -> None:
    """Mironov's attack: constants 0 and 1, and the question whether an answer near 0 is a multiple of 2^−53."""
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]])
    mechanism = shoal.design(classes, shoal.NeighborGraph.complete(classes.labels), "white", 1.0, 1.0)
    count = 5_000 if quick else 100_000
    print(f"\n**Last-bit attack**, two constants, {count:,} answers each: share of answers near 0 that look coarse.\n")
    row("answers", "label 0", "label 1", "p of equal low five bits (χ²)")
    row("---", "---:", "---:", "---:")
    for name in ("sample (seeded, not private)", "release"):
        shares, table = [], []
        for label, mean in (("0", 0.0), ("1", 1.0)):
            q = np.full((count, 1), mean)
            found = mechanism.release(q, label) if name == "release" else mechanism.sample(q, label, seed=1)
            values = np.asarray(found).ravel()
            near = values[np.abs(values) < 1 / 16]
            shares.append((near * 2.0**53 == np.round(near * 2.0**53)).mean())
            unit = mechanism.grid[0] if name == "release" else 2.0**-57
            low = near / unit % 32
            table.append(np.bincount(low.astype(int), minlength=32))
        kept = np.array(table)[:, np.sum(table, axis=0) > 0]
        row(name, f"{shares[0]:.3f}", f"{shares[1]:.3f}", f"{stats.chi2_contingency(kept).pvalue:.3g}")
    print(f"\nFinite precision adds {mechanism.certificate.finite_precision:.2g} to δ here (ε = 1).")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    chosen = parser.parse_args()
    print("## Releases")
    throughput(chosen.quick)
    law(chosen.quick)
    bits(chosen.quick)


if __name__ == "__main__":
    main()
