"""Mechanism design: worst-edge δ at equal ρ, distance from the lower bound, times, peers, and the two pictures.

    python -m benchmarks.design [--quick] [--pictures FOLDER] [--only quality|family|households|times|size|pictures]
    python -m benchmarks.design --only size|cases --beside FOLDER

Prints Markdown. The peers run in the same process on the same problem: a generic SciPy SLSQP on the smoothed worst edge
(once with its own finite differences, once with our gradient), and Algorithm 1 in plain NumPy. ``--beside`` takes the
``src`` folder of another version of shoal, whose designs are made in turns with these.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shoal
from evidence.paper.clusters import cluster_graph
from evidence.paper.figures import COLORS
from evidence.paper.floors import delta_floor
from evidence.paper.synthetic import TOTAL_BUDGETS, four_classes
from shoal.designs.problem import DesignProblem
from shoal.rounding import up

Array = NDArray[np.float64]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "swiss_residential_15min" / "swiss15_clean.parquet"

METHODS = ("none", "white", "paper", "covariance", "additive", "center", "transport")

#: One design in a process of its own: kernels compiled before, one thread, processor time with the center.
ONE_DESIGN = """
import resource, sys, time
import numpy as np
import shoal

def laws(n, k, seed):
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((n, k))
    roots = rng.standard_normal((n, k, k)) / np.sqrt(k)
    classes = shoal.GaussianClasses(means, roots @ np.swapaxes(roots, 1, 2) + 0.3 * np.eye(k))
    return classes, shoal.NeighborGraph.complete(classes.labels)

n, k, seed, share, limit = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])
small = laws(3, 3, 0)
shoal.design(*small, rho=0.5 * shoal.perfect_rho(*small), iterations=3)
problem = laws(n, k, seed)
begin, wall = time.process_time(), time.perf_counter()
price = shoal.perfect_rho(*problem)
center = time.process_time() - begin
made = shoal.design(*problem, "transport", 1.0, share * price, **({"time_limit": limit} if limit else {}))
certificate = made.certificate
print(certificate.delta_upper, time.process_time() - begin, center, time.perf_counter() - wall,
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


# ------------------------------------------------------------------ problems


def synthetic(seed: int | None = None) -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    """The paper's synthetic setting; without a seed, the fixed draw of the theory page's trial."""
    classes = four_classes(seed)
    return classes, shoal.NeighborGraph.complete(classes.labels)


def random_family(n: int, k: int = 12, seed: int = 5, neighbors: int | None = None) -> tuple[Any, Any]:
    """Labels with random means and covariances of random size; a complete graph, or the nearest neighbors."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((n, k, 2 * k)) / np.sqrt(2 * k)
    covs = factors @ np.swapaxes(factors, 1, 2) * rng.uniform(0.5, 2.0, n)[:, None, None]
    classes = shoal.GaussianClasses(rng.standard_normal((n, k)), covs)
    if neighbors is None:
        return classes, shoal.NeighborGraph.complete(classes.labels)
    return classes, shoal.NeighborGraph.nearest(classes, neighbors)


# ------------------------------------------------------------------ peers


def numpy_algorithm_1(
    means: Array, covs: Array, pairs: NDArray[np.integer], total: float, steps: int
) -> tuple[Array, list[float]]:
    """Algorithm 1 after its repairs, written straight from the text: precisions A and the history of J.

    Every pair's surrogate is recomputed in every trial; nothing is cached.
    """
    k = means.shape[1]
    a = np.linalg.inv(covs + total / k * np.eye(k))
    directed = [(int(i), int(j)) for i, j in pairs] + [(int(j), int(i)) for i, j in pairs]

    def surrogate(x: int, y: int, a: Array) -> float:
        v = means[y] - means[x]
        return float(v @ a[y] @ v - np.linalg.slogdet(a[y])[1] + np.linalg.slogdet(a[x])[1])

    def largest(a: Array) -> tuple[float, tuple[int, int]]:
        values = [surrogate(x, y, a) for x, y in directed]
        top = int(np.argmax(values))
        return values[top], directed[top]

    history: list[float] = []
    for _ in range(steps):
        worst, (x, y) = largest(a)
        history.append(worst)
        v = means[y] - means[x]
        inverse = np.linalg.inv(a[y])
        gradient = np.outer(v, v) - inverse
        slope = (inverse**2).sum() - v @ inverse @ v
        alpha = np.inf
        for p, q in directed:
            if p == y:
                leaving = surrogate(y, q, a)
                if slope > 0 and worst > leaving:
                    alpha = min(alpha, (worst - leaving) / slope)
            elif q == y and p != x:
                u = means[y] - means[p]
                entering = surrogate(p, y, a)
                rate = -slope - (v @ u) ** 2 + u @ inverse @ u
                if rate > 0 and worst > entering:
                    alpha = min(alpha, (worst - entering) / rate)
        alpha = alpha if np.isfinite(alpha) else 0.1
        for _ in range(80):
            values, vectors = np.linalg.eigh(a[y] - alpha * gradient)
            if values[-1] > 0:
                trial_a = a.copy()
                trial_a[y] = (vectors * np.maximum(values, 1e-12 * values[-1])) @ vectors.T
                if largest(trial_a)[0] <= worst and surrogate(x, y, trial_a) < worst:
                    break
            alpha /= 2
        else:
            break
        a = trial_a
    history.append(largest(a)[0])
    return a, history


def slsqp(problem: Any, *, own_gradient: bool, iterations: int) -> tuple[float, float]:
    """The same smoothed objective over the additive moves by SciPy's SLSQP: (worst ln δ, seconds)."""
    from scipy.optimize import minimize

    from shoal.designs.descent import worst_log_delta
    from shoal.designs.layout import Layout, objective_in_point
    from shoal.designs.methods.searches import white
    from shoal.designs.objectives import smoothed_odds

    layout = Layout(problem, False, True)
    everything = np.arange(len(problem.pairs))
    point = layout.point_of_moves(white(problem))
    point = point + 1e-2 * np.random.default_rng(0).standard_normal(len(point))
    begin = time.perf_counter()
    for sharpness in (4.0, 64.0, 1024.0):

        def value(x: Array, tau: float = sharpness) -> Any:
            found = objective_in_point(layout, partial(smoothed_odds, problem, everything, tau), x)
            return found if own_gradient else found[0]

        point = minimize(
            value, point, jac=own_gradient or None, method="SLSQP", options={"maxiter": iterations, "ftol": 1e-8}
        ).x
    return worst_log_delta(problem, layout.moves(point)), time.perf_counter() - begin


# ------------------------------------------------------------------ tables


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin


def number(value: float) -> str:
    """Three digits, rounded up; an upper end that underflowed reads as zero here."""
    return "0" if value < 1e-300 else f"{up(value, 3):.3g}"


def row(*cells: Any) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def header(*cells: Any) -> None:
    print()
    row(*cells)
    row(*["---"] * len(cells))


def floor(classes: shoal.GaussianClasses, graph: shoal.NeighborGraph, rho: float) -> float:
    """A δ at ε = 1 that no Gaussian mechanism with this error goes below."""
    return delta_floor(DesignProblem.of(classes, graph, 1.0, rho))


def quality(quick: bool) -> None:
    """(a) The paper's synthetic setting, and the trial."""
    seeds = range(2 if quick else 10)
    totals = TOTAL_BUDGETS[[0, 7]] if quick else TOTAL_BUDGETS
    for notion in ("dp", "pdp"):
        print(f"\n### Paper's synthetic setting, {notion}, ε = 1: median worst-edge δ over {len(seeds)} seeds")
        header("total budget", *METHODS, "lower bound")
        found: dict[tuple[str, int], list[float]] = {}
        for seed in seeds:
            classes, graph = synthetic(seed)
            for name in METHODS:
                line = shoal.frontier(classes, graph, name, 1.0, totals / 2, notion)
                for b, mechanism in enumerate(line.mechanisms[name]):
                    found.setdefault((name, b), []).append(mechanism.certificate.delta_upper)
        for b, total in enumerate(totals):
            cells = [number(float(np.median(found[name, b]))) for name in METHODS]
            row(f"{total:.3g}", *cells, number(float(np.median([floor(*synthetic(s), total / 2) for s in seeds]))))
    print("\n### Trial of the theory notes, dp, ε = 1")
    header("total budget", *METHODS, "lower bound")
    classes, graph = synthetic()
    for total in (1.0, 4.0, 10.0, 20.0):
        done = {name: shoal.design(classes, graph, name, 1.0, total / 2) for name in METHODS}
        row(
            f"{total:g}",
            *(number(done[name].certificate.delta_upper) for name in METHODS),
            number(floor(classes, graph, total / 2)),
        )


def families(quick: bool) -> None:
    """(b) Twelve entries, 13 and 100 labels, at shares of the price of perfection."""
    for n in (13,) if quick else (13, 100):
        classes, graph = random_family(n, 4 if quick else 12)
        price = shoal.perfect_rho(classes, graph)
        entries = classes.n_dims
        for notion in ("dp", "pdp"):
            print(f"\n### {n} labels, {entries} entries, complete graph, {notion}, ε = 1 (perfect_rho = {price:.4g})")
            header("ρ / perfect_rho", *METHODS, "lower bound")
            for share in (0.6,) if quick else (0.3, 0.6, 0.9):
                done = [
                    shoal.design(classes, graph, m, 1.0, share * price, notion, iterations=10 if quick else None)
                    for m in METHODS
                ]
                bound = floor(classes, graph, share * price)
                row(share, *(number(m.certificate.delta_upper) for m in done), number(bound))


def households(quick: bool) -> None:
    """(c) Six clusters of real household forecasts, where the data are at hand."""
    if not DATA.exists():
        print("\n(Clusters of real households: skipped, the data are not here.)")
        return
    import polars as pl

    readings = pl.read_parquet(DATA)
    homes = readings["household"].unique(maintain_order=True)[: 20 if quick else 100]
    forecasts = shoal.forecast(readings.filter(pl.col("household").is_in(homes.implode())), season="day")
    graph = cluster_graph(forecasts, 3 if quick else 6)
    for query in ("point", "trajectory"):
        classes = forecasts.classes(query)
        price = shoal.perfect_rho(classes, graph)
        sizes = np.bincount(graph.components)
        print(
            f"\n### {len(homes)} households, query `{query}`, {len(sizes)} clusters of {sizes.min()}–{sizes.max()}, "
            f"ε = 1, dp (perfect_rho = {price:.3g} in log power squared)"
        )
        header("ρ / perfect_rho", *METHODS, "lower bound", "seconds for transport")
        for share in (0.6,) if quick else (0.5, 0.9):
            done = [timed(partial(shoal.design, classes, graph, m, 1.0, share * price)) for m in METHODS]
            bound = floor(classes, graph, share * price)
            row(share, *(number(m.certificate.delta_upper) for m, _ in done), number(bound), f"{done[-1][1]:.1f}")


def times(quick: bool) -> None:
    """Seconds per method, and the peers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"\n### Seconds per design at 0.6 of perfect_rho ({cores} cores, kernels compiled before)")
    sizes = ((13, 4, None),) if quick else ((13, 12, None), (100, 12, None), (1000, 12, 20))
    small = random_family(4, 3)
    for name in METHODS:
        shoal.design(*small, name, 1.0, 0.2)
    header("labels", "entries", "directed edges", "perfect_rho", *METHODS)
    for n, k, neighbors in sizes:
        classes, graph = random_family(n, k, neighbors=neighbors)
        price, seconds = timed(lambda c=classes, g=graph: shoal.perfect_rho(c, g))
        cells = []
        for name in METHODS:
            found, spent = timed(lambda c=classes, g=graph, m=name, p=price: shoal.design(c, g, m, 1.0, 0.6 * p))
            cells.append(f"{spent:.2f} (δ {number(found.certificate.delta_upper)})")
        row(n, k, 2 * graph.n_edges, f"{seconds:.2f}", *cells)
    peers(quick)


def peers(quick: bool) -> None:
    from shoal.designs.methods.paper import paper
    from shoal.designs.problem import DesignProblem

    n, k = (4, 2) if quick else (6, 3)
    classes, graph = random_family(n, k)
    rho = 0.6 * shoal.perfect_rho(classes, graph, "additive")
    problem = DesignProblem.of(classes, graph, 1.0, rho)
    ours, seconds = timed(lambda: shoal.design(classes, graph, "additive", 1.0, rho))
    print(f"\n### Additive design of {n} labels, {k} entries: beside SciPy's SLSQP on the same smoothed objective")
    header("solver", "ln δ of the worst edge", "seconds", "ratio of times")
    row("shoal (zero-mean search included)", f"{ours.certificate.log_delta_upper:.4f}", f"{seconds:.2f}", 1)
    for own in (False, True):
        value, spent = slsqp(problem, own_gradient=own, iterations=20 if quick else 200)
        name = "SLSQP, our gradient" if own else "SLSQP, its finite differences"
        row(name, f"{value:.4f}", f"{spent:.2f}", f"{spent / seconds:.1f}")

    n, k, steps = (6, 4, 50) if quick else (13, 12, 300)
    classes, graph = random_family(n, k)
    rho = 0.6 * shoal.perfect_rho(classes, graph)
    problem = DesignProblem.of(classes, graph, 1.0, rho)
    moves, seconds = timed(lambda: paper(problem, steps=steps))
    history = moves.history
    (_, plain), spent = timed(
        lambda: numpy_algorithm_1(classes.means, classes.covs, graph.edges, k * rho, len(history) - 1)
    )
    print(f"\n### Algorithm 1, {n} labels, {k} entries, {len(history) - 1} steps: beside plain NumPy")
    header("version", "J at the end", "seconds", "ratio of times")
    row("shoal", f"{history[-1]:.6f}", f"{seconds:.4f}", 1)
    row("NumPy", f"{plain[-1]:.6f}", f"{spent:.3f}", f"{spent / seconds:.0f}")


def sizes(quick: bool, beside: Path | None) -> None:
    """The mechanism at the size of a day: δ, processor seconds and memory, each design in a process of its own."""
    cases = [(10, 12, 7, 0.5, 0.0)]
    if not quick:
        cases += [(100, 12, 7, 0.5, 0.0), (10, 48, 7, 0.5, 0.0), (10, 48, 7, 0.9, 0.0)]
        cases += [(10, 12, 8, 0.5, 0.0), (10, 48, 8, 0.5, 0.0), (10, 48, 9, 0.9, 0.0)]
        cases += [(30, 96, 7, 0.5, 60.0), (30, 96, 7, 0.5, 5.0)]
    print("\n### Random laws, complete graph, ε = 1, transport, one thread; seconds of the processor, center included")
    columns = ("δ", "s", "of it the center, s", "MB")
    header(
        "labels × entries",
        "seed",
        "ρ / perfect_rho",
        "time limit",
        *columns,
        *((*(f"{c}, before" for c in columns), "ratio") if beside else ()),
    )
    for n, k, seed, share, limit in cases:
        own = one_design(Path(shoal.__file__).parents[1], n, k, seed, share, limit)
        cells = [f"{n} × {k}", seed, share, f"{limit:g} s" if limit else "", *own_cells(own)]
        if beside is not None and not (k > 48):
            other = one_design(beside, n, k, seed, share, limit)
            cells += [*own_cells(other), f"{other[1] / own[1]:.1f}"]
        row(*cells)


def own_cells(found: list[float]) -> list[str]:
    delta, seconds, center, _, memory = found
    return [f"{up(delta, 4):.4g}", f"{seconds:.1f}", f"{center:.1f}", f"{memory:.0f}"]


def one_design(source: Path, *arguments: float) -> list[float]:
    """δ, seconds, seconds of the center, wall seconds and MB of a design by the shoal in a folder."""
    return [float(value) for value in output_of(ONE_DESIGN, source, *arguments).split()]


def output_of(program: str, source: Path, *arguments: float) -> str:
    """What a program prints that runs with the shoal in a folder, on one thread."""
    env = {
        **os.environ,
        "PYTHONPATH": str(source),
        "SHOAL_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


#: Designs of 24 problems by three methods: case, method, ln δ and processor seconds of each, in a process of its own.
CASES = """
import time
import numpy as np
import shoal

small = shoal.GaussianClasses(np.eye(3), np.stack([np.eye(3)] * 3))
shoal.design(small, shoal.NeighborGraph.complete(small.labels), "transport", 1.0, 0.2)
number = 0
for n, k in ((4, 3), (6, 6), (8, 12), (5, 24)):
    for kind in ("own covariances", "one covariance", "nearly constants"):
        for share in (0.3, 0.85):
            number += 1
            rng = np.random.default_rng(500 + number)
            means = rng.standard_normal((n, k))
            roots = rng.standard_normal((n, k, k)) / np.sqrt(k)
            covs = roots @ np.swapaxes(roots, 1, 2) + 0.3 * np.eye(k)
            covs = {"one covariance": np.repeat(covs[:1], n, 0), "nearly constants": 0.01 * covs}.get(kind, covs)
            classes = shoal.GaussianClasses(means, covs)
            graph = shoal.NeighborGraph.complete(classes.labels)
            if number % 4 == 0:
                graph = shoal.NeighborGraph.within_groups(classes.labels, [i % 2 for i in range(n)])
            price = shoal.perfect_rho(classes, graph)
            for method in ("covariance", "additive", "transport"):
                begin = time.process_time()
                made = shoal.design(classes, graph, method, 1.0, share * price)
                spent = time.process_time() - begin
                print(f"{n} × {k};{kind};{share};{method};{made.certificate.log_delta_upper};{spent}", flush=True)
"""


def held_out_cases(beside: Path) -> None:
    """24 problems that no default was chosen on, by three methods, beside another version of shoal."""
    print("\n### 24 problems, one thread: ln δ by this version and by another")
    header("labels × entries", "laws", "ρ / perfect_rho", "method", "ln δ", "s", "ln δ, before", "s, before")
    both = [output_of(CASES, source).splitlines() for source in (Path(shoal.__file__).parents[1], beside)]
    gains = []
    for own, other in zip(*((line.split(";") for line in lines) for lines in both), strict=True):
        gains.append(float(other[4]) - float(own[4]))
        row(*own[:4], *(f"{float(one):.4f}" for one in (*own[4:], *other[4:])))
    worse, better = (sum(one > 1e-3 for one in signed) for signed in ([-g for g in gains], gains))
    print(f"\nOf {len(gains)} designs {worse} are worse by more than 0.001 in ln δ, {better} better.")


# ------------------------------------------------------------------ pictures


def pictures(folder: Path, quick: bool) -> None:
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    classes, graph = synthetic()
    frontier_picture(folder / "frontier.png", classes, graph, 8 if quick else 28)
    mechanisms_picture(folder / "mechanisms.png", classes, graph)


def frontier_picture(path: Path, classes: Any, graph: Any, points: int) -> None:
    import matplotlib.pyplot as plt

    price = {name: shoal.perfect_rho(classes, graph, name) for name in ("additive", "transport")}
    budgets = np.unique(np.concatenate([np.linspace(0.1, 3.6, points), [0.999 * p for p in price.values()]]))
    figure, axes = plt.subplots(figsize=(7.2, 4.6), dpi=130)
    lowest = 1e-12
    for name in METHODS:
        line = shoal.frontier(classes, graph, name, 1.0, budgets)
        delta = line.delta_upper[name]
        # The curve leaves through the bottom: towards its first point below, not beyond it.
        end = int(np.argmax(delta < lowest)) + 1 if (delta < lowest).any() else len(delta)
        axes.plot(
            budgets[:end],
            np.maximum(delta[:end], 1e-300),
            color=COLORS[name],
            lw=2.2 if name == "transport" else 1.6,
            label=name,
        )
    for name, where in price.items():
        axes.axvline(where, color=COLORS[name], lw=0.8, ls="--", alpha=0.7)
        axes.annotate(
            f"perfect by {name}\nρ = {where:.3g}",
            (where, 3e-11),
            xytext=(5, 0),
            textcoords="offset points",
            fontsize=8,
            color=COLORS[name],
        )
    axes.set_yscale("log")
    axes.set_ylim(lowest, 2.0)
    axes.set_xlim(0.1, 3.75)
    axes.set_xlabel("ρ: mean squared error per entry")
    axes.set_ylabel("δ of the worst edge at ε = 1")
    axes.set_title("What the accuracy budget buys: four classes in the plane", fontsize=11)
    axes.grid(alpha=0.25, which="major")
    axes.legend(loc="lower left", fontsize=8, frameon=True)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def mechanisms_picture(path: Path, classes: Any, graph: Any, total: float = 4.0) -> None:
    import matplotlib.pyplot as plt

    shown = ("none", "white", "paper", "covariance", "additive", "transport")
    figure, panels = plt.subplots(1, len(shown), figsize=(15.0, 3.3), dpi=110, sharex=True, sharey=True)
    labels = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for axes, name in zip(panels, shown, strict=True):
        mechanism = shoal.design(classes, graph, name, 1.0, total / 2)
        after = mechanism.output
        for i, color in enumerate(labels):
            for law, style in ((classes, {"ls": ":", "lw": 1.0, "alpha": 0.7}), (after, {"lw": 1.8})):
                if law is after and name == "none":
                    style = {"lw": 1.8}
                x, y = law.means[i][:, None] + 1.5 * np.linalg.cholesky(law.covs[i]) @ circle
                axes.plot(x, y, color=color, **style)
            axes.plot(*after.means[i], "o", ms=3.5, color=color)
        delta = mechanism.certificate.delta_upper
        axes.set_title("before" if name == "none" else name, fontsize=11)
        axes.text(
            0.5, 0.03, f"δ = {number(delta)}", transform=axes.transAxes, ha="center", fontsize=10,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
        )  # fmt: skip
        axes.set_aspect("equal")
        axes.set_xticks([])
        axes.set_yticks([])
    panels[0].set_xlim(-3.6, 6.6)
    panels[0].set_ylim(-4.6, 6.4)
    figure.suptitle(
        f"Laws of the released answer at equal error (ρ = {total / 2:g}; dotted: before). "
        "The more they overlap, the less an answer tells.",
        fontsize=11,
    )
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    parser.add_argument(
        "--only", choices=["quality", "family", "households", "times", "size", "cases", "pictures"], action="append"
    )
    parser.add_argument("--pictures", type=Path, default=Path("docs/pictures"), help="folder of the pictures")
    parser.add_argument("--beside", type=Path, help="folder src of another version, to compare with")
    chosen = parser.parse_args()
    wanted = chosen.only or ["quality", "family", "households", "times", "size", "pictures"]
    print("## Mechanism design")
    if "quality" in wanted:
        quality(chosen.quick)
    if "family" in wanted:
        families(chosen.quick)
    if "households" in wanted:
        households(chosen.quick)
    if "times" in wanted:
        times(chosen.quick)
    if "size" in wanted:
        sizes(chosen.quick, chosen.beside)
    if "cases" in wanted:
        if chosen.beside is None:
            parser.error("--only cases needs --beside FOLDER, the src of another version")
        held_out_cases(chosen.beside)
    if "pictures" in wanted:
        pictures(chosen.pictures, chosen.quick)


if __name__ == "__main__":
    main()
