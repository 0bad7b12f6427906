"""Directed edges per second at k = 12, from means and covariances to δ: shoal against its peers, in one run.

    python -m benchmarks accounting

The peers answer the same question, the hockey-stick δ at ε = 1, for edges of the same family: gx2 from two tail
probabilities, Monte Carlo with as many draws as a relative standard error of 1 % takes, and dp-accounting from the
loss's distribution function, which shoal itself supplies (dp-accounting has none for these laws).
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

import shoal

K = 12
EPSILON = 1.0
LABELS = 150
PLD_INTERVAL = 1e-3


def family(n: int, k: int = K, seed: int = 0) -> shoal.GaussianClasses:
    """Unrelated, well-conditioned covariances; δ(1) of an edge is mostly between 0.2 and 0.9."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, k, 6 * k))
    return shoal.GaussianClasses(0.3 * rng.standard_normal((n, k)), factors @ factors.transpose(0, 2, 1) / (6 * k))


def best_of(times: int, work: Callable[[], Any]) -> float:
    """Least wall time of a few runs, in seconds."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def directed(classes: shoal.GaussianClasses, graph: shoal.NeighborGraph, n: int) -> list[tuple[int, int, float]]:
    """The first n directed edges and shoal's δ."""
    deltas = shoal.edge_deltas(classes, graph, EPSILON)
    listed = [
        (int(a), int(b), float(deltas[e, d]))
        for e, (i, j) in enumerate(graph.edges[: (n + 1) // 2])
        for d, (a, b) in enumerate(((i, j), (j, i)))
    ]
    return listed[:n]


def loss_quadratic(classes: shoal.GaussianClasses, a: int, b: int) -> tuple[Any, Any, dict[str, Any]]:
    """ln p_a − ln p_b as a quadratic in q, for gx2."""
    first, second = np.linalg.inv(classes.covs[a]), np.linalg.inv(classes.covs[b])
    mu, nu = classes.means[a], classes.means[b]
    dets = np.linalg.slogdet(classes.covs[b])[1] - np.linalg.slogdet(classes.covs[a])[1]
    quad = {
        "q2": 0.5 * (second - first),
        "q1": first @ mu - second @ nu,
        "q0": 0.5 * (nu @ second @ nu - mu @ first @ mu + dets),
    }
    return mu, nu, quad


def gx2_delta(classes: shoal.GaussianClasses, a: int, b: int) -> float:
    """Pr_a(L > ε) − e^ε Pr_b(L > ε)."""
    import gx2

    mu, nu, quad = loss_quadratic(classes, a, b)
    tails = []
    for mean, cov in ((mu, classes.covs[a]), (nu, classes.covs[b])):
        w, k, l, s, m = gx2.norm_quad_to_gx2_params(mean, cov, quad)
        tails.append(float(np.squeeze(gx2.cdf(EPSILON, w, k, l, s, m, side="upper", method="imhof"))))
    return tails[0] - math.exp(EPSILON) * tails[1]


def monte_carlo_delta(classes: shoal.GaussianClasses, a: int, b: int, rng: np.random.Generator) -> tuple[float, int]:
    """Draw until the relative standard error is 1 %, a pilot of 2,000 draws saying how many that takes."""
    half_a, half_b = np.linalg.cholesky(classes.covs[a]), np.linalg.cholesky(classes.covs[b])
    dets = np.log(np.diag(half_b)).sum() - np.log(np.diag(half_a)).sum()
    gap = classes.means[a] - classes.means[b]

    def gains(n: int) -> Any:
        z = rng.standard_normal((K, n))
        y = np.linalg.solve(half_b, half_a @ z + gap[:, None])
        loss = dets + 0.5 * (y * y).sum(axis=0) - 0.5 * (z * z).sum(axis=0)
        return np.maximum(-np.expm1(EPSILON - loss), 0.0)

    pilot = gains(2_000)
    n = max(math.ceil(float(pilot.var() / (0.01 * max(pilot.mean(), 1e-12)) ** 2)), 2_000)
    total, left = 0.0, n
    while left > 0:
        part = min(left, 200_000)
        total += float(gains(part).sum())
        left -= part
    return total / n, n


def pld_delta(classes: shoal.GaussianClasses, a: int, b: int) -> tuple[float, int]:
    """dp-accounting's distribution from the CDF of the loss; returns δ and the number of CDF values it asked for."""
    from dp_accounting.pld import privacy_loss_distribution

    from shoal.accounting import tails
    from shoal.accounting.cumulants import RIGHT, TAIL
    from shoal.accounting.edges import loss_law
    from shoal.accounting.releases import Releases

    law = loss_law(Releases.collect(classes).spectra(np.array([[a, b]], dtype=np.intp)), 0, 0)
    calls = 0

    def cdf(x: float) -> float:
        nonlocal calls
        calls += 1
        return -math.expm1(tails.log_tail_bracket(TAIL, RIGHT, float(x), law, -math.inf)[0])

    pld = privacy_loss_distribution.create_from_cdf(
        cdf, value_discretization_interval=PLD_INTERVAL, tail_mass_truncation=1e-12
    )
    return float(pld.get_delta_for_epsilon(EPSILON)), calls


def throughput_table() -> list[str]:
    classes = family(LABELS)
    graph = shoal.NeighborGraph.complete(classes.labels)
    rates: dict[str, tuple[float, str]] = {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    for threads in dict.fromkeys((1, cores)):
        os.environ["SHOAL_THREADS"] = str(threads)
        shoal.edge_deltas(classes, graph, EPSILON)
        wall = best_of(5, lambda: shoal.edge_deltas(classes, graph, EPSILON))
        start = time.process_time()
        shoal.edge_deltas(classes, graph, EPSILON)
        per_second = 2 * graph.n_edges / (time.process_time() - start)
        note = f"certified bracket, width below 1e-9; {per_second:,.0f} per second of processor time"
        rates[f"shoal, {threads} thread(s)"] = (2 * graph.n_edges / wall, note)
    del os.environ["SHOAL_THREADS"]

    def peer(name: str, n: int, compute: Callable[[int, int], float], note: str) -> None:
        edges = directed(classes, graph, n)
        start = time.perf_counter()
        found = [(compute(a, b), exact) for a, b, exact in edges]
        wall = time.perf_counter() - start
        errors = [abs(value / exact - 1) for value, exact in found]
        rates[name] = (n / wall, f"{note}; largest relative error {max(errors):.1e}")

    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gx2_delta(classes, 0, 1)
        peer("gx2 (Imhof)", 20, lambda a, b: gx2_delta(classes, a, b), "two tail probabilities")
    peer("Monte Carlo, 1 %", 20, lambda a, b: monte_carlo_delta(classes, a, b, rng)[0], "NumPy, in blocks")
    peer(
        "dp-accounting create_from_cdf",
        1,
        lambda a, b: pld_delta(classes, a, b)[0],
        f"interval {PLD_INTERVAL:g}, CDF supplied by shoal",
    )
    base = rates["shoal, 1 thread(s)"][0]
    lines = ["| method | directed edges per second | shoal on one thread is | notes |", "| --- | ---: | ---: | --- |"]
    for name, (rate, note) in rates.items():
        times = "" if name.startswith("shoal") else f"{base / rate:,.0f} times faster"
        lines.append(f"| {name} | {rate:,.3g} | {times} | {note} |" if rate < 1000 else
                     f"| {name} | {rate:,.0f} | {times} | {note} |")  # fmt: skip
    return lines


def growth_table() -> list[str]:
    lines = ["| labels | directed edges | seconds | per directed edge |", "| ---: | ---: | ---: | ---: |"]
    for n in (50, 100, 200, 400):
        classes = family(n)
        graph = shoal.NeighborGraph.complete(classes.labels)
        wall = best_of(2, lambda classes=classes, graph=graph: shoal.edge_deltas(classes, graph, EPSILON))
        count = 2 * graph.n_edges
        lines.append(f"| {n} | {count:,} | {wall:.3f} | {wall / count * 1e6:.1f} µs |")
    return lines


def scope_table() -> list[str]:
    """A pair in one answer, both directions, against the same pair in a table; processor time, in turns."""
    lines = ["| entries | one answer, both directions | table | ratio |", "| ---: | ---: | ---: | ---: |"]
    for k in (4, 12, 24, 48):
        classes = family(60, k)
        graph = shoal.NeighborGraph.complete(classes.labels)
        best = {}
        for _ in range(5):
            for scope in ("answer", "table"):
                start = time.process_time()
                shoal.edge_deltas(classes, graph, EPSILON, scope=scope)
                best[scope] = min(best.get(scope, math.inf), time.process_time() - start)
        answer, table = (best[scope] / graph.n_edges * 1e6 for scope in ("answer", "table"))
        lines.append(f"| {k} | {answer:.0f} µs | {table:.0f} µs | {table / answer:.2f} |")
    return lines


MEMORY = """
import json, resource, time
from benchmarks.accounting import EPSILON, family
import shoal
unit = 1024 if __import__("sys").platform != "darwin" else 1
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
small = family(3)
shoal.privacy_curve(small, shoal.NeighborGraph.complete(small.labels), EPSILON)
before = peak()
classes = family(2000)
graph = shoal.NeighborGraph.complete(classes.labels)
start = time.perf_counter()
curve = shoal.privacy_curve(classes, graph, EPSILON)
print(json.dumps([before, peak(), time.perf_counter() - start, graph.n_edges]))
"""

FIRST = """
import sys, time
start = time.perf_counter()
import shoal
imported = time.perf_counter()
import numpy as np
classes = shoal.GaussianClasses([[0.0, 0.0], [1.0, 1.0]], [np.eye(2), 2 * np.eye(2)])
shoal.privacy_curve(classes, shoal.NeighborGraph.complete(classes.labels), 1.0)
print(imported - start, time.perf_counter() - imported)
"""


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout


def memory_lines() -> list[str]:
    before, after, seconds, edges = json.loads(run_python(MEMORY))
    rise = (after - before) / 2**20
    return [
        f"A complete graph of 2,000 labels ({edges:,} edges, {2 * edges:,} directed) at k = {K}: `privacy_curve` at "
        f"one ε took {seconds:.1f} s. Peak memory of the whole process: {after / 2**20:,.0f} MiB, {rise:,.0f} MiB over "
        f"that of a three-label graph (limit 1,024 MiB: {'held' if after < 2**30 else 'EXCEEDED'})."
    ]


def start_lines() -> list[str]:
    with tempfile.TemporaryDirectory() as cache:
        cold = [float(x) for x in run_python(FIRST, NUMBA_CACHE_DIR=cache).split()]
        warm = [float(x) for x in run_python(FIRST, NUMBA_CACHE_DIR=cache).split()]
    return [
        "| | import shoal | first number |",
        "| --- | ---: | ---: |",
        f"| empty kernel cache | {1000 * cold[0]:.1f} ms | {cold[1]:.1f} s (compiles) |",
        f"| kernels cached | {1000 * warm[0]:.1f} ms | {warm[1]:.2f} s |",
    ]


def machine_lines() -> list[str]:
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as handle:
            names = [line.split(":", 1)[1].strip() for line in handle if line.startswith("model name")]
        model = names[0] if names else model
    packages = ", ".join(f"{p} {version(p)}" for p in ("numpy", "scipy", "numba", "gx2", "dp-accounting"))
    return [
        f"Machine: {model}, {os.cpu_count()} core(s). Python {platform.python_version()}, shoal {shoal.__version__}, "
        f"{packages}. Command: `python -m benchmarks accounting`."
    ]


def section() -> str:
    """The whole section as Markdown."""
    parts = [
        ["## Accounting", ""],
        [*machine_lines(), ""],
        [
            f"Hockey-stick δ at ε = {EPSILON:g}, k = {K}, from means and full, unrelated covariances:",
            "",
        ],
        [*throughput_table(), ""],
        ["Growth with the number of edges (all cores):", ""],
        [*growth_table(), ""],
        ["A pair in a table (one figure, both rows) against one answer (two directions), processor time per pair:", ""],
        [*scope_table(), ""],
        [*memory_lines(), ""],
        [*start_lines(), ""],
    ]
    return "\n".join(line for part in parts for line in part)


if __name__ == "__main__":
    print(section())
