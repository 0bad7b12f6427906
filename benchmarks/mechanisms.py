"""All rivals on the same laws, at one (ε, δ) and at one ρ: ``python -m benchmarks mechanisms``.

Six problems, each a crowd of ten labels with twelve entries: constants and Gaussian laws, of Swiss homes, London homes
and random ones. A cell is the least error (root mean square per entry, over all labels) at which a method keeps
(1, 1e-5) of one answer, and the exact δ(1) of the method at one ρ: the largest that shoal's ``center`` spends on any
label to keep (1, 1e-5).

- *none*, *white*, *ellipsoid*, *paper* (Algorithm 1 as repaired), *covariance*, *additive*, *center*, *transport*:
  methods of shoal.
- *PAC*: noise with the covariance (Cov q)^½, by :func:`benchmarks._rivals.pac_shape`. Its own promise bounds mutual
  information; here exact accounting decides how much noise (1, 1e-5) takes.
- *Wasserstein*: Gaussian noise for the distance of two answers, by Rényi divergences; for laws, whose distance is
  infinite, the approximate mechanism. *Rényi Pufferfish*: the exact divergences of the noisy laws. At one ρ both are
  white noise.
- *microaggregation*: each member gets the crowd's mean with Gaussian noise that gives each home's figures (1, 1e-5),
  within the range of all figures, after the abstract of arXiv 2312.13712 (with its individual differential privacy
  means have the sensitivity range/size). Members share a row, so δ among them is 0; the noise buys another promise.
- *paper, as printed*: Algorithm 1 symbol by symbol (``evidence/paper/as_printed.py``).

Real homes where they are at hand. ``--quick``: small random problems only.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import shoal
from benchmarks import _rivals as rivals
from evidence.homes import EVERY
from evidence.paper.as_printed import algorithm_1_as_printed
from evidence.rivals import ORIGINS

Array = Any
EPSILON, DELTA, SIZE, CROWDS, ENTRIES = 1.0, 1e-5, 10, 1, 12
OURS = ("ellipsoid", "paper", "covariance", "additive", "center", "transport")
#: Noise covariances (n, k, k) of a crowd whose labels may all spend ρ per entry.
Noise = Callable[[shoal.GaussianClasses, float], Array]


def delta_of(laws: shoal.GaussianClasses, covs: Array) -> float:
    """The exact δ(1) of the answers with independent noise of these covariances."""
    noisy = shoal.GaussianClasses(laws.means, laws.covs + covs)
    return float(shoal.privacy_curve(noisy, shoal.NeighborGraph.complete(noisy.labels), EPSILON).delta_upper)


# How each rival shapes noise of mean square ρ per entry, and how much its own accounting asks for


def white(laws: shoal.GaussianClasses, rho: float) -> Array:
    return np.broadcast_to(rho * np.eye(laws.n_dims), (laws.n_classes, laws.n_dims, laws.n_dims))


def pac(laws: shoal.GaussianClasses, rho: float) -> Array:
    shape = rivals.pac_shape(laws.means, laws.covs)
    return np.broadcast_to(rho * laws.n_dims / np.trace(shape) * shape, (laws.n_classes, *shape.shape))


def as_printed(laws: shoal.GaussianClasses, rho: float) -> Array:
    graph = shoal.NeighborGraph.complete(laws.labels)
    return algorithm_1_as_printed(laws, graph, rho * laws.n_dims, steps=200).noise_covs


def exact_std(noise: Noise) -> Callable[[shoal.GaussianClasses], float]:
    """The least √ρ at which this noise keeps (ε, δ), by exact accounting."""

    def std(laws: shoal.GaussianClasses) -> float:
        high = float(np.abs(laws.means - laws.means.mean(axis=0)).max() + np.sqrt(laws.covs.max()))
        while delta_of(laws, noise(laws, high**2)) > DELTA:
            high *= 2
        return rivals.least(lambda s: delta_of(laws, noise(laws, s * s)) <= DELTA, high * 1e-4, high)

    return std


def pairs(laws: shoal.GaussianClasses) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(laws.n_classes) for j in range(i))


def wasserstein_std(laws: shoal.GaussianClasses) -> float:
    m, s = laws.means, laws.covs
    if not s.any():
        far = max(float(np.linalg.norm(m[i] - m[j])) for i, j in pairs(laws))
        return rivals.wasserstein_gaussian_std(far, EPSILON, DELTA, rows=1)
    gaps = (rivals.coupled_gap(m[i], s[i], m[j], s[j]) for i, j in pairs(laws))
    return max(rivals.approximate_std(*gap, EPSILON, DELTA, rows=1) for gap in gaps)


def renyi_std(laws: shoal.GaussianClasses) -> float:
    m, level = laws.means, 1e-3

    def fits(i: int, j: int, std: float) -> bool:
        one, other = (laws.covs[x] + std**2 * np.eye(laws.n_dims) for x in (i, j))
        both = (rivals.normal_renyi(m[i], one, m[j], other), rivals.normal_renyi(m[j], other, m[i], one))
        return max(rivals.renyi_delta(divergence, EPSILON) for divergence in both) <= DELTA

    for i, j in pairs(laws):
        if not fits(i, j, level):
            level = rivals.least(lambda s, i=i, j=j: fits(i, j, s), level, 1e4)  # type: ignore[misc]
    return level


RIVALS: dict[str, tuple[Callable[[shoal.GaussianClasses], float], Noise]] = {
    "white": (exact_std(white), white),
    "PAC": (exact_std(pac), pac),
    "Wasserstein": (wasserstein_std, white),
    "Rényi Pufferfish": (renyi_std, white),
    "paper, as printed": (exact_std(as_printed), as_printed),
}


def microaggregated(laws: shoal.GaussianClasses, figures: float) -> tuple[Array, float]:
    """Squared errors per entry of the crowd's mean row, and the variance of the noise for figures of this range."""
    n, k = laws.means.shape
    traces = np.trace(np.broadcast_to(laws.covs, (n, k, k)), axis1=1, axis2=2)
    off = ((laws.means - laws.means.mean(axis=0)) ** 2).sum(axis=1) + (1 - 2 / n) * traces + traces.sum() / n**2
    return off / k, rivals.gaussian_std(figures * math.sqrt(k) / n, EPSILON, DELTA, rows=1) ** 2


Line = tuple[str, float, float, float]


def compare_all(crowds: list[shoal.GaussianClasses], iterations: int | None = None) -> Iterator[Line]:
    """Name, least error for (ε, δ), δ at one ρ and processor seconds of every method; infinite or NaN where none."""
    graphs = [shoal.NeighborGraph.complete(laws.labels) for laws in crowds]
    least: dict[str, list[Any]] = {}
    spent: dict[str, float] = {}
    for name in OURS:
        begun = time.process_time()
        least[name] = [
            shoal.calibrate(laws, graph, name, EPSILON, DELTA, iterations=iterations, prove=False)
            for laws, graph in zip(crowds, graphs, strict=True)
        ]
        spent[name] = time.process_time() - begun
    rho = max(float(made.rho.max()) for made in least["center"])

    yield "none", math.inf, max(delta_of(laws, 0.0 * laws.covs) for laws in crowds), 0.0
    for name, (std, noise) in RIVALS.items():
        begun = time.process_time()
        error = math.sqrt(float(np.mean([std(laws) ** 2 for laws in crowds])))
        seconds = time.process_time() - begun
        yield name, error, max(delta_of(laws, noise(laws, rho)) for laws in crowds), seconds
    high, low = (
        np.concatenate([(laws.means + sign * 3 * np.sqrt(variances(laws))).ravel() for laws in crowds])
        for sign in (1, -1)
    )
    rows, extra = zip(*(microaggregated(laws, float(high.max() - low.min())) for laws in crowds), strict=True)
    error = math.sqrt(float(np.mean([row.mean() + own for row, own in zip(rows, extra, strict=True)])))
    yield "microaggregation", error, 0.0 if max(row.max() for row in rows) <= rho else math.nan, 0.0
    for name in OURS:
        error = math.sqrt(float(np.mean([made.rho.mean() for made in least[name]])))
        made = [
            shoal.design(laws, graph, name, EPSILON, rho, iterations=iterations)
            for laws, graph in zip(crowds, graphs, strict=True)
        ]
        yield name, error, max(one.certificate.delta_upper for one in made), spent[name]


def variances(laws: shoal.GaussianClasses) -> Array:
    return np.diagonal(np.broadcast_to(laws.covs, (laws.n_classes, laws.n_dims, laws.n_dims)), axis1=1, axis2=2)


# The six problems


def random_crowds(constant: bool, size: int = SIZE, entries: int = ENTRIES) -> list[shoal.GaussianClasses]:
    rng = np.random.default_rng(7)
    made = []
    for _ in range(CROWDS):
        means = rng.standard_normal((size, entries))
        roots = rng.standard_normal((size, entries, entries)) / math.sqrt(entries)
        covs = roots @ np.swapaxes(roots, 1, 2) + 0.3 * np.eye(entries)
        made.append(shoal.GaussianClasses.deterministic(means) if constant else shoal.GaussianClasses(means, covs))
    return made


def home_crowds(name: str, constant: bool) -> list[shoal.GaussianClasses]:
    """The first crowds of real homes by the names of their members: kW as constants, ln kW as laws."""
    readings = shoal.read_meters(EVERY[name].file)
    made = shoal.forecast(readings, order=(6, 5), train_days=15, horizon=ENTRIES, season="day", origin=ORIGINS[name][0])
    graph = shoal.crowd_graph(made.power, size=SIZE, labels=list(made.households))
    crowds = [np.flatnonzero(np.asarray(graph.components) == number) for number in range(CROWDS)]
    if constant:
        return [shoal.GaussianClasses.deterministic(made.power[one]) for one in crowds]
    laws = made.classes(query="trajectory")
    return [shoal.GaussianClasses(laws.means[one], laws.covs[one]) for one in crowds]


def figure(value: float) -> str:
    return "–" if math.isnan(value) or math.isinf(value) else "0" if value < 1e-300 else f"{value:.3g}"


def main() -> None:
    quick = "--quick" in sys.argv
    problems: dict[str, Callable[[], list[shoal.GaussianClasses]]] = {}
    for kind, constant in (("constants", True), ("laws", False)):
        for name in EVERY:
            if EVERY[name].there and not quick:
                problems[f"{name}, {kind}"] = lambda name=name, constant=constant: home_crowds(name, constant)  # type: ignore[misc]
        size = (3, 2) if quick else (SIZE, ENTRIES)
        problems[f"random, {kind}"] = lambda constant=constant, size=size: random_crowds(constant, *size)  # type: ignore[misc]
    print(f"## Mechanisms\n\nLeast error for ({EPSILON:g}, {DELTA:g}) / δ(1) at one ρ; processor seconds.")
    cells: dict[str, list[str]] = {}
    for title, problem in problems.items():
        for name, error, delta, seconds in compare_all(problem()):
            cells.setdefault(name, []).append(f"{figure(error)} / {figure(delta)}")
            print(f"{title}: {name}: {cells[name][-1]} ({seconds:.1f} s)", file=sys.stderr, flush=True)
    print(f"\n| method | {' | '.join(problems)} |\n{'| --- ' * (len(problems) + 1)}|")
    for name, row in cells.items():
        print(f"| {name} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
