"""Other ways to hide a household, on the same forecasts, at the same target: ``python -m benchmarks peers [meters]``.

Constants: point forecasts of homes in crowds of ten, in kW; whoever holds the table must not tell two members apart, at
(ε, δ) = (1, 1e-5). Random answers: trajectories of the same homes in ln kW. The error is the root mean square per step.
Each rival is what its formula gives for this problem:

- analytic Gaussian (Balle & Wang 2018) on the largest distance inside a crowd, √2 times for two rows;
- Laplace on the largest L1 distance: for constants also the Wasserstein mechanism of Pufferfish (Song, Wang & Chaudhuri
  2017), whose distance between point masses is this one; ε/2 for each of two rows;
- Rényi Pufferfish with Gaussian noise: isotropic noise whose Rényi divergences, for constants or Gaussian laws, convert
  to (ε, δ) at the best order (Canonne, Kamath & Steinke 2020);
- randomized response on the curves of the crowd (local DP), ε/2 for each row: the own one with odds e^{ε/2} to 1;
- MDAV microaggregation: the mean of ten by the usual heuristic; no guarantee beyond its group.

Without a file the homes are simulated.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import shoal
from benchmarks.crowds import mdav

CROWD, EPSILON, DELTA = 10, 1.0, 1e-5
HOMES = 120
ORDERS = np.array([1.0 + 2.0 ** (j / 4) for j in range(-8, 41)])


def least(fits: Callable[[float], bool], low: float, high: float) -> float:
    """The least scale that fits, to a thousandth, between one that does not and one that does."""
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def renyi_delta(divergence: np.ndarray, epsilon: float) -> float:
    """δ that the divergences at ORDERS prove at ε (Canonne, Kamath & Steinke 2020, proposition 12)."""
    a = ORDERS
    with np.errstate(over="ignore", invalid="ignore"):
        log_delta = (a - 1) * (divergence - epsilon + np.log1p(-1 / a)) - np.log(a)
    return float(np.exp(np.nanmin(log_delta)))


def constants(answers: np.ndarray, labels: list[str]) -> list[tuple[str, str, float, float]]:
    graph = shoal.crowd_graph(answers, size=CROWD, labels=labels)
    classes = shoal.GaussianClasses.deterministic(answers, labels=labels)
    groups = np.asarray(graph.components)
    pairs = [(i, j) for i, j in graph.edges]
    far = max(float(np.linalg.norm(answers[i] - answers[j])) for i, j in pairs)
    far_1 = max(float(np.abs(answers[i] - answers[j]).sum()) for i, j in pairs)
    promise, pure = f"({EPSILON:g}, {DELTA:g})", f"({EPSILON:g}, 0)"
    rows = []

    def put(name: str, guarantee: str, rmse: float, begun: float) -> None:
        rows.append((name, guarantee, rmse, time.perf_counter() - begun))

    begun = time.perf_counter()
    put("analytic Gaussian", promise, math.sqrt(2) * shoal.analytic_sigma(far, EPSILON, DELTA), begun)
    begun = time.perf_counter()
    put("Laplace (Wasserstein Pufferfish)", pure, math.sqrt(2) * far_1 / (EPSILON / 2), begun)
    begun = time.perf_counter()
    sigma = least(lambda s: renyi_delta(ORDERS * 2 * far**2 / (2 * s * s), EPSILON) <= DELTA, 0.01 * far, 1000 * far)
    put("Rényi Pufferfish, Gaussian noise", promise, sigma, begun)
    begun = time.perf_counter()
    square = 0.0
    for i, own in enumerate(answers):
        inside = answers[groups == groups[i]]
        stay = 1.0 / (math.exp(EPSILON / 2) + len(inside) - 1)
        square += stay * float(((inside - own) ** 2).mean(axis=1).sum())
    put("randomized response in the crowd", pure, math.sqrt(square / len(answers)), begun)
    begun = time.perf_counter()
    grouped = np.asarray(mdav(answers, CROWD))
    means = np.stack([answers[grouped == grouped[i]].mean(axis=0) for i in range(len(answers))])
    put("MDAV microaggregation", "none beyond its group", math.sqrt(float(((means - answers) ** 2).mean())), begun)
    for name, method in (("shoal, white noise", "white"), ("shoal, the crowd's curve", "mean")):
        begun = time.perf_counter()
        made = shoal.calibrate(classes, graph, method=method, epsilon=EPSILON, delta=DELTA, scope="table")
        put(name, f"({EPSILON:g}, {made.certificate.delta_upper:.1g})", math.sqrt(float(np.mean(made.rho))), begun)
    begun = time.perf_counter()
    book = shoal.codebook(answers, graph, epsilon=EPSILON, scope="table")
    put("shoal, codebook", pure, math.sqrt(book.mean_rho), begun)
    put("nothing ε-private goes below", pure, math.sqrt(book.lower_bound), begun)
    return rows


def random_answers(classes: shoal.GaussianClasses, graph: shoal.NeighborGraph) -> list[tuple[str, str, float, float]]:
    """Gaussian answers: the same isotropic noise under two accountants, and what moving laws gains."""
    promise = f"({EPSILON:g}, {DELTA:g})"
    rows = []
    begun = time.perf_counter()

    def fits(sigma: float) -> bool:
        noisy = shoal.GaussianClasses(
            classes.means, classes.covs + sigma**2 * np.eye(classes.n_dims), labels=classes.labels
        )
        curve = shoal.renyi_curve(noisy, graph, ORDERS, scope="table")
        return renyi_delta(np.asarray(curve.divergence_upper), EPSILON) <= DELTA

    rows.append(("Rényi Pufferfish, Gaussian laws", promise, least(fits, 1e-3, 1e4), time.perf_counter() - begun))
    for name, method in (
        ("shoal, white noise", "white"),
        ("shoal, transport", "transport"),
        ("shoal, center", "center"),
    ):
        begun = time.perf_counter()
        made = shoal.calibrate(classes, graph, method=method, epsilon=EPSILON, delta=DELTA, scope="table")
        rows.append((name, promise, math.sqrt(float(np.mean(made.rho))), time.perf_counter() - begun))
    return rows


def shown(title: str, unit: str, rows: list[tuple[str, str, float, float]]) -> None:
    print(f"\n{title}\n\n| method | guarantee | error, {unit} | seconds |\n| --- | --- | --- | --- |")
    for name, guarantee, rmse, seconds in rows:
        print(f"| {name} | {guarantee} | {rmse:.3g} | {seconds:.2f} |")


def main() -> None:
    print("## Peers")
    if len(sys.argv) > 1:
        readings = shoal.read_meters(sys.argv[1])
        where = Path(sys.argv[1]).name
    else:
        readings, where = shoal.simulate_meters(HOMES, 17), f"{HOMES} simulated homes"
    forecasts = shoal.forecast(readings, order=(6, 5), train_days=15, horizon=12, season="day")
    rows = constants(forecasts.power, list(forecasts.households))
    shown(f"Point forecasts of {where}, crowds of {CROWD}, table, target ({EPSILON:g}, {DELTA:g}).", "kW", rows)
    few = list(forecasts.households)[:20]
    laws = forecasts.classes(query="trajectory").take(range(len(few)))
    graph = shoal.crowd_graph(forecasts.power[: len(few)], size=CROWD, labels=few)
    shown(f"Trajectories of the first {len(few)} homes.", "ln kW", random_answers(laws, graph))


if __name__ == "__main__":
    main()
