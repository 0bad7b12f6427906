"""Other ways to hide a household, on the same forecasts, at the same target: ``python -m benchmarks peers``.

Three tables, each beside shoal, for whoever holds the released table, at (ε, δ) = (1, 1e-5):

- accounting: δ(1) of two normal laws by NDIS (``benchmarks/_ndis.py``), values, tails and processor time;
- constants: point forecasts in crowds of ten, in kW. Noise is set crowd by crowd for every mechanism that adds some,
  and once for the largest distance of all, as a tool that knows no crowds would;
- random answers: trajectories of twenty of the homes in ln kW, whose laws are Gaussian and differ in their covariances.

The error is the root mean square per entry; beside it, how far the total of all homes is off. δ is that of the released
table as shoal's accountant finds it, whatever the mechanism promises. The rivals are in ``benchmarks/_rivals.py``.
Real homes where they are at hand, simulated ones else; ``python -m benchmarks.peers METERS`` takes any meter file.
"""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from benchmarks import _ndis as ndis
from benchmarks import _rivals as rivals
from benchmarks.accounting import family
from benchmarks.crowds import _mdav
from evidence.homes import SWISS

Array = Any
CROWD, EPSILON, DELTA, ROWS = 10, 1.0, 1e-5, 2
HOMES, FEW, STEPS = 120, 20, 4
PROMISE, PURE = f"({EPSILON:g}, {DELTA:g})", f"({EPSILON:g}, 0)"


@dataclass(frozen=True)
class Release:
    """What a method makes of each answer: mean and variance per entry of what is released, and the δ it really has."""

    name: str
    promise: str
    mean: Array
    var: Array
    delta: str

    def error(self, answers: Array) -> float:
        return math.sqrt(float(((self.mean - answers) ** 2 + self.var).mean()))

    def total(self, answers: Array) -> float:
        """Root mean square error of the sum over all labels, relative to the sum."""
        off = ((self.mean - answers).sum(axis=0) ** 2 + self.var.sum(axis=0)).mean()
        return math.sqrt(float(off)) / float(answers.sum(axis=0).mean())


def table_delta(means: Array, covs: Array, graph: shoal.NeighborGraph) -> str:
    laws = shoal.GaussianClasses(means, covs, labels=graph.labels)
    return f"{float(shoal.privacy_curve(laws, graph, EPSILON, scope='table').delta_upper):.1e}"


def crowds_of(graph: shoal.NeighborGraph) -> list[Array]:
    place = np.asarray(graph.components)
    return [np.flatnonzero(place == c) for c in np.unique(place)]


def pairs_of(members: Array) -> Iterator[tuple[int, int]]:
    return ((int(i), int(j)) for a, i in enumerate(members) for j in members[a + 1 :])


# Constants


def constants(answers: Array, labels: list[str]) -> tuple[list[Release], float]:
    """What each method makes of constants, and the error below which no ε-private mechanism goes."""
    graph = shoal.crowd_graph(answers, size=CROWD, labels=labels)
    groups = crowds_of(graph)
    gaps = [np.array([answers[i] - answers[j] for i, j in pairs_of(members)]) for members in groups]
    found: list[Release] = []

    def put(name: str, promise: str, mean: Array, var: Array, delta: str) -> None:
        whole = (np.array(np.broadcast_to(one, answers.shape)) for one in (mean, var))
        found.append(Release(name, promise, *whole, delta))

    def noisy(name: str, rule: Callable[[Array], float], promise: str = PROMISE, factor: float = 1.0) -> None:
        """Noise of ``factor`` times the scale that the rule finds for the differences inside each crowd."""
        var = np.empty(answers.shape)
        for members, inside in zip(groups, gaps, strict=True):
            var[members] = (factor * rule(inside)) ** 2
        covs = var[:, :, None] * np.eye(answers.shape[1])
        put(name, promise, answers, var, "0" if promise == PURE else table_delta(answers, covs, graph))

    def far(inside: Array) -> float:
        return float(np.linalg.norm(inside, axis=1).max())

    def far_1(inside: Array) -> float:
        return float(np.abs(inside).sum(axis=1).max())

    everywhere = rivals.gaussian_std(max(far(one) for one in gaps), EPSILON, DELTA, ROWS)
    noisy("analytic Gaussian, one sensitivity for all", lambda _: everywhere)
    noisy("analytic Gaussian", lambda d: rivals.gaussian_std(far(d), EPSILON, DELTA, ROWS))
    noisy("Wasserstein, Gaussian noise, Rényi", lambda d: rivals.wasserstein_gaussian_std(far(d), EPSILON, DELTA, ROWS))
    laplace = lambda d: rivals.wasserstein_laplace_scale(far_1(d), EPSILON, ROWS)  # noqa: E731
    noisy("Wasserstein, Laplace noise", laplace, PURE, math.sqrt(2))
    for joint, promise in ((False, "on average over projections"), (True, "for one random projection")):
        rule = lambda d, joint=joint: rivals.sliced_std(d, EPSILON, DELTA, ROWS, joint)  # noqa: E731
        noisy("sliced Wasserstein, " + ("joint" if joint else "average"), rule, f"{PROMISE} {promise}")

    mean, square = np.empty(answers.shape), np.empty(answers.shape)
    for members in groups:
        own, other = rivals.response_odds(len(members), EPSILON / ROWS)
        odds = other + (own - other) * np.eye(len(members))
        mean[members], square[members] = odds @ answers[members], odds @ answers[members] ** 2
    put("randomized response on the crowd's curves", PURE, mean, square - mean**2, "0")
    put("the mean of all homes, for every home", "(0, 0) among all", answers.mean(axis=0), 0.0, "0")
    put("randomized response on clusters", f"{PURE} among all", *clusters(answers), "0")
    around = np.empty(answers.shape)
    for members in groups:
        off = answers[members] - answers[members].mean(axis=0)
        around[members] = rivals.priv_unit_square(off, EPSILON / ROWS)[:, None]
    put("PrivUnit and its scalar, around the crowd's curve", PURE, answers, around, "0")
    reported = rivals.priv_unit_square(answers, EPSILON / ROWS)[:, None]
    put("PrivUnit and its scalar", f"{PURE} among all", answers, reported, "0")

    grouped = _mdav.py_func(answers, CROWD)  # few homes: not worth compiling
    put("MDAV", "none", np.stack([answers[grouped == g].mean(axis=0) for g in grouped]), 0.0, "")
    drawn, some = rivals.synthetic_profiles(answers)
    put("synthetic profiles, any for any home", "none", drawn.mean(axis=0), drawn.var(axis=0), "")
    put("synthetic profiles, matched by an oracle", "none", rivals.matched(some, answers), 0.0, "")

    classes = shoal.GaussianClasses.deterministic(answers, labels=labels)
    for name, method in (("shoal, white noise", "white"), ("shoal, the crowd's curve", "mean")):
        made = shoal.calibrate(classes, graph, method=method, epsilon=EPSILON, delta=DELTA, scope="table")
        var = np.diagonal(made.output.covs, axis1=1, axis2=2)
        put(name, PROMISE, made.output.means, var, f"{made.certificate.delta_upper:.1e}")
    book = shoal.codebook(answers, graph, epsilon=EPSILON, scope="table")
    for i, label in enumerate(labels):
        odds, curves = book.probabilities(label), book.curves(label)
        mean[i], square[i] = odds @ curves, odds @ curves**2
    put("shoal, codebook", PURE, mean, square - mean**2, "0")
    return found, math.sqrt(book.lower_bound)


def clusters(answers: Array) -> tuple[Array, Array]:
    """Randomized response on k-means clusters of all homes, the centroid released: the number with the least error."""
    from sklearn.cluster import KMeans

    best: tuple[float, Array, Array] | None = None
    for n in (2, 3, 5, 10, 20, 48):
        if n >= len(answers):
            break
        made = KMeans(n, n_init=2, random_state=0).fit(answers)
        own, other = rivals.response_odds(n, EPSILON / ROWS)
        odds = other + (own - other) * np.eye(n)[made.labels_]
        mean = odds @ made.cluster_centers_
        var = odds @ made.cluster_centers_**2 - mean**2
        error = float(((mean - answers) ** 2 + var).mean())
        if best is None or error < best[0]:
            best = error, mean, var
    assert best is not None
    return best[1], best[2]


# Random answers


def random_answers(
    laws: shoal.GaussianClasses, graph: shoal.NeighborGraph, methods: tuple[str, ...] = ("white", "transport", "center")
) -> Iterator[tuple[str, str, float, str, float]]:
    """Name, promise, error, exact δ and seconds of each method on Gaussian answers."""
    n, k = laws.means.shape
    groups = crowds_of(graph)
    gaps = {
        pair: rivals.coupled_gap(laws.means[pair[0]], laws.covs[pair[0]], laws.means[pair[1]], laws.covs[pair[1]])
        for members in groups
        for pair in pairs_of(members)
    }

    def noisy(name: str, fits: Callable[[int, int, float], bool]) -> tuple[str, str, float, str, float]:
        """The least isotropic noise per crowd that fits every pair of it."""
        begun, std = time.process_time(), np.empty(n)
        for members in groups:
            level = 1e-3
            for i, j in pairs_of(members):
                if not fits(i, j, level):
                    level = rivals.least(lambda s, i=i, j=j: fits(i, j, s), level, 1e4)  # type: ignore[misc]
            std[members] = level
        spent = time.process_time() - begun
        covs = laws.covs + std[:, None, None] ** 2 * np.eye(k)
        error = math.sqrt(float((std**2).mean()))
        return name, PROMISE, error, table_delta(laws.means, covs, graph), spent

    def behind(i: int, std: float) -> tuple[Array, Array]:
        return laws.means[i], laws.covs[i] + std**2 * np.eye(k)

    def by_renyi(i: int, j: int, std: float) -> bool:
        one, other = behind(i, std), behind(j, std)
        both = rivals.normal_renyi(*one, *other) + rivals.normal_renyi(*other, *one)
        return rivals.renyi_delta(both, EPSILON) <= DELTA

    def by_ndis(i: int, j: int, std: float) -> bool:
        one, other = behind(i, std), behind(j, std)
        both = ndis.joined(ndis.quadratic(*one, *other), ndis.quadratic(*other, *one))
        return ndis.by_tails(both, EPSILON, "imhof") <= DELTA

    def by_expectation(i: int, j: int, std: float) -> bool:
        return rivals.renyi_delta(rivals.distribution_aware_renyi(*gaps[i, j], std, ROWS), EPSILON) <= DELTA

    @cache
    def needed(i: int, j: int) -> float:
        return rivals.approximate_std(*gaps[i, j], EPSILON, DELTA, ROWS)

    yield "Wasserstein and sliced Wasserstein", "none: W∞ is infinite", math.inf, "", 0.0
    yield noisy("Wasserstein, approximate", lambda i, j, std: std >= needed(i, j))
    yield noisy("Wasserstein, distribution-aware", by_expectation)
    yield noisy("Rényi Pufferfish, Gaussian priors", by_renyi)
    yield noisy("white noise, NDIS by gx2", by_ndis)

    square = 0.0
    for members in groups:
        other = rivals.response_odds(len(members), EPSILON / ROWS)[1]
        spread = {i: float(np.trace(laws.covs[i])) for i in members}
        for i, j in pairs_of(members):
            gap = laws.means[i] - laws.means[j]
            square += 2 * other * (float(gap @ gap) + spread[i] + spread[j])
    yield "randomized response on the crowd's answers", PURE, math.sqrt(square / (n * k)), "0", 0.0
    for method in methods:
        begun = time.process_time()
        made = shoal.calibrate(laws, graph, method=method, epsilon=EPSILON, delta=DELTA, scope="table")
        spent = time.process_time() - begun
        error = math.sqrt(float(np.mean(made.rho)))
        yield f"shoal, {method}", PROMISE, error, f"{made.certificate.delta_upper:.1e}", spent


# Accounting


def noisy_pair(delta: float) -> shoal.GaussianClasses:
    """Two unrelated laws of the accounting benchmark behind as much noise as brings δ(1) to about ``delta``."""
    pair = family(2)

    def behind(std: float) -> shoal.GaussianClasses:
        return shoal.GaussianClasses(pair.means, pair.covs + std**2 * np.eye(pair.n_dims))

    graph = shoal.NeighborGraph.complete(pair.labels)
    return behind(rivals.least(lambda s: float(shoal.edge_deltas(behind(s), graph, EPSILON).max()) <= delta, 1e-6, 1e3))


def accounting(targets: tuple[float, ...], draws: int = 10**6, points: int = 2**14) -> list[list[str]]:
    """One line per δ: the proved value, and what each way makes of it, relative to the proof."""
    lines = []
    for target in targets:
        laws = noisy_pair(target)
        graph = shoal.NeighborGraph.complete(laws.labels)
        proof = shoal.prove(laws, graph, EPSILON)
        deltas = shoal.edge_deltas(laws, graph, EPSILON)
        a, b = (0, 1) if deltas[0, 0] >= deltas[0, 1] else (1, 0)
        q = ndis.quadratic(laws.means[a], laws.covs[a], laws.means[b], laws.covs[b])
        truth = float(proof.delta_upper)

        def off(value: float, truth: float = truth) -> str:
            return f"{value / truth - 1:+.0e}"

        upper = float(shoal.privacy_curve(laws, graph, EPSILON).delta_upper)
        sampled, error = ndis.by_sampling(q, EPSILON, draws)
        sobol, spread = ndis.by_sobol(q, EPSILON, points)
        lines.append(
            [
                f"{truth:.4e}",
                off(upper),
                off(ndis.by_tails(q, EPSILON, "imhof")),
                off(ndis.by_tails(q, EPSILON, "ray")),
                f"{off(sampled)} ± {error / truth:.0e}" if sampled else "no draw counts",
                f"{off(sobol)} ± {spread / truth:.0e}" if sobol else "no point counts",
            ]
        )
    return lines


def speeds(labels: int = 60, draws: int = 10**6, points: int = 2**14) -> list[tuple[str, float]]:
    """Microseconds of processor time per directed edge of the accounting family, one thread, one run."""
    laws = family(labels)
    graph = shoal.NeighborGraph.complete(laws.labels)
    shoal.edge_deltas(laws, graph, EPSILON)
    q = ndis.quadratic(laws.means[0], laws.covs[0], laws.means[1], laws.covs[1])

    def each(work: Callable[[], Any], times: int, edges: int = 1) -> float:
        begun = time.process_time()
        for _ in range(times):
            work()
        return 1e6 * (time.process_time() - begun) / times / edges

    return [
        ("shoal, certified", each(lambda: shoal.edge_deltas(laws, graph, EPSILON), 3, 2 * len(graph.edges))),
        ("NDIS by gx2, Imhof", each(lambda: ndis.by_tails(q, EPSILON, "imhof"), 20)),
        ("NDIS by gx2, rays", each(lambda: ndis.by_tails(q, EPSILON, "ray"), 20)),
        (f"NDIS by {draws:,} draws", each(lambda: ndis.by_sampling(q, EPSILON, draws), 1)),
        (f"NDIS by 8 × {points:,} Sobol points", each(lambda: ndis.by_sobol(q, EPSILON, points), 1)),
    ]


# Print


def table(head: str, lines: Iterable[list[str]]) -> None:
    names = [one.strip() for one in head.split("|")]
    print(f"\n| {' | '.join(names)} |\n" + "| --- " * len(names) + "|")
    for line in lines:
        print(f"| {' | '.join(line)} |", flush=True)


def figure(x: float) -> str:
    return f"{x:,.0f}" if 100 <= x < math.inf or x < 1e-9 else f"{x:.3g}"


def main() -> None:
    packages = ("numpy", "scipy", "numba", "gx2", "scikit-learn")
    own = [f"Python {platform.python_version()}", f"shoal {shoal.__version__}"]
    versions = ", ".join([*own, *(f"{name} {version(name)}" for name in packages)])
    print(f"## Peers\n\n{time.strftime('%Y-%m-%d')}, {versions}.")
    print(f"\nAccounting: δ({EPSILON:g}) of two normal laws in 12 dimensions, proved, and how far each way is from it.")
    head = (
        "δ, proved | shoal, upper end | NDIS, gx2 Imhof | NDIS, gx2 rays | NDIS, 10⁶ draws | NDIS, 8 × 2¹⁴ Sobol points"
    )
    table(head, accounting((1e-1, 1e-3, 1e-5, 1e-9, 1e-12, 1e-30)))
    times = speeds()
    table(
        "way | µs per directed edge | shoal is", [[name, f"{t:,.0f}", f"{t / times[0][1]:,.0f}×"] for name, t in times]
    )
    if len(sys.argv) > 1 or SWISS.there:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else SWISS.file
        readings, where = shoal.read_meters(path), path.name
    else:
        readings, where = shoal.simulate_meters(HOMES, 17), f"{HOMES} simulated homes"
    made = shoal.forecast(readings, order=(6, 5), train_days=15, horizon=12, season="day")
    labels = list(made.households)
    print(f"\nConstants: point forecasts of {len(labels)} homes of {where}, crowds of {CROWD}, table, {PROMISE}.")
    found, bound = constants(made.power, labels)
    lines = [
        [one.name, one.promise, figure(one.error(made.power)), figure(100 * one.total(made.power)), one.delta]
        for one in found
    ]
    lines.append(["nothing ε-private goes below", PURE, f"{bound:.3g}", "", ""])
    table("method | promise | error, kW | total off by, % | δ(1)", lines)
    few = labels[:FEW]
    whole = made.classes(query="trajectory")
    laws = shoal.GaussianClasses(whole.means[:FEW, :STEPS], whole.covs[:FEW, :STEPS, :STEPS], labels=few)
    graph = shoal.crowd_graph(made.power[:FEW], size=CROWD, labels=few)
    print(f"\nRandom answers: trajectories of the first {FEW} homes, {STEPS} steps.")
    shown = (
        [name, promise, figure(error), delta, f"{spent:.1f}"]
        for name, promise, error, delta, spent in random_answers(laws, graph)
    )
    table("method | promise | error, ln kW | δ(1) | s", shown)


if __name__ == "__main__":
    main()
