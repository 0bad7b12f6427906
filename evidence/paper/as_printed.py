"""The paper's Algorithm 1 exactly as printed, symbol by symbol; the repaired one is ``shoal.designs.methods.paper``.

Printed, and kept here:

- The updated label carries no prime: of the worst pair (X•, X'•) the first one's A is updated, and the gradient reads
  (μ_X• − μ_X•)(μ_X• − μ_X•)ᵀ − A_X•⁻¹, whose first term is zero.
- Lemma 2's constants b and d with their subscripts as they stand, in which ln|A_X•| − 2 ln|A_X•| is −ln|A_X•|. The
  first step is α⁽⁰⁾ = 0.1; then it is their least over the neighbors of X•, or 0, and the loop ends there.
- The start adds (ρ/k) I, with ρ the total that eq. (dpnoisecov) spends at the end: Tr Σ_η = ρ.
- Nothing is checked after the rescaling, and the surrogate g decides.

Two things are not printed and had to be chosen: the projection onto the semidefinite matrices keeps eigenvalues of at
least ``FLOOR`` of the largest, since the algorithm inverts them; and it ends after ``STEPS`` steps. What a label gets
whose projection in eq. (dpnoisecov) is empty, where the formula divides by zero, is white noise.

``primes=True`` puts the primes back where the text around it has them (the updated label is X'•, v = μ_X'• − μ_X•) and
leaves all else. Then d of X• itself is 0 over something, since its edge is the worst one, and the loop ends as well.

    python -m evidence.paper.as_printed
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import shoal
from shoal.validation import FloatArray

STEPS, FLOOR, FIRST = 20_000, 1e-12, 0.1


@dataclass(frozen=True)
class AsPrinted:
    """The noise covariances (n, k, k), the steps taken, and the surrogate J before each and at the end."""

    noise_covs: FloatArray
    steps: int
    history: tuple[float, ...]


def algorithm_1_as_printed(
    classes: shoal.GaussianClasses,
    graph: shoal.NeighborGraph,
    rho: float,
    *,
    primes: bool = False,
    steps: int = STEPS,
) -> AsPrinted:
    """Noise of total variance ``rho`` per label, by Algorithm 1 as it is printed.

    >>> import numpy as np
    >>> classes = shoal.GaussianClasses([[0.0, 0.0], [1.0, 1.0]], np.eye(2))
    >>> made = algorithm_1_as_printed(classes, shoal.NeighborGraph.complete(classes.labels), rho=1.0)
    >>> print(made.steps, np.trace(made.noise_covs, axis1=1, axis2=2))
    1 [1. 1.]
    """
    mu, k = classes.means, classes.n_dims
    sigma = np.broadcast_to(classes.covs, (classes.n_classes, k, k))
    neighbors = [[graph.labels.index(other) for other in graph.neighbors(name)] for name in classes.labels]
    a: FloatArray = np.asarray(np.linalg.inv(sigma + rho / k * np.eye(k)), dtype=np.float64)

    def g(x: int, y: int) -> float:
        """Eq. (g_XX): the surrogate of the pair (X, X')."""
        v = mu[y] - mu[x]
        return float(v @ a[y] @ v) - float(np.linalg.slogdet(a[y])[1]) + float(np.linalg.slogdet(a[x])[1])

    history, taken = [], 0
    while True:
        worst, x, y = max((g(x, y), x, y) for x in range(len(mu)) for y in neighbors[x])
        updated = y if primes else x
        history.append(worst)
        alpha = FIRST if taken == 0 else _step(a, mu, x, updated, neighbors[updated])
        if not alpha > 0 or taken == steps:
            break
        v = mu[updated] - mu[x]
        a[updated] = _projected(a[updated] - alpha * (np.outer(v, v) - np.linalg.inv(a[updated])), FLOOR)
        taken += 1
    missing = np.stack([_projected(np.linalg.inv(a[i]) - sigma[i], 0.0) for i in range(len(mu))])
    traces = np.trace(missing, axis1=1, axis2=2)[:, None, None]
    noise = np.where(traces > 0, rho * missing / np.where(traces > 0, traces, 1.0), rho / k * np.eye(k))
    return AsPrinted(noise, taken, tuple(history))


def _step(a: FloatArray, mu: FloatArray, x: int, updated: int, neighbors: list[int]) -> float:
    """Lemma 2: max{0, min over neighbors of b and d}; without primes ``updated`` is x, and the gap is printed as v."""
    logs = np.linalg.slogdet(a)[1]
    inverse, own = np.linalg.inv(a[updated]), a[updated]
    trace = float(np.trace(inverse @ inverse))
    bounds = []
    for z in neighbors:
        v = mu[updated] - mu[z]
        gap = v if updated == x else mu[updated] - mu[x]
        first, slope = float(gap @ own @ gap), trace - float(gap @ inverse @ gap)
        leaving = first - float(v @ a[z] @ v) + logs[x] + logs[z] - 2 * logs[updated]
        bounds.append(_ratio(leaving, slope))
        if updated == x:  # as it stands
            entering, rate = first + logs[x] - logs[z], float(v @ inverse @ v) - trace - float(v @ v) ** 2
        else:
            entering = first - float(v @ own @ v) + logs[x] - logs[z]
            rate = float(v @ inverse @ v) - slope - float(gap @ inverse @ gap) - float(gap @ v) ** 2
        bounds.append(_ratio(entering, rate))
    return max(0.0, min(bounds))


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.copysign(math.inf, numerator)


def _projected(matrix: FloatArray, floor: float) -> FloatArray:
    """Onto the semidefinite matrices, eigenvalues at least ``floor`` of the largest."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    values = np.maximum(values, floor * max(float(values[-1]), 0.0))
    return np.asarray((vectors * values) @ vectors.T)


def main() -> None:
    """δ at ε = 1 as printed, as repaired and of white noise, on the paper's synthetic classes and random ones."""
    from evidence.paper.synthetic import four_classes

    print("| classes | total ρ | steps | as printed | steps | with primes | repaired | white |\n" + "| --- " * 8 + "|")
    families = {"synthetic": four_classes()}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        roots = rng.standard_normal((6, 4, 4)) / 2
        families[f"random {seed}"] = shoal.GaussianClasses(rng.standard_normal((6, 4)), roots @ roots.swapaxes(1, 2))
    for name, classes in families.items():
        graph = shoal.NeighborGraph.complete(classes.labels)
        for rho in (0.45, 1.0, 2.1):
            cells = [name, str(rho)]
            for primes in (False, True):
                made = algorithm_1_as_printed(classes, graph, rho, primes=primes)
                laws = shoal.GaussianClasses(classes.means, classes.covs + made.noise_covs, classes.labels)
                cells += [str(made.steps), f"{float(shoal.privacy_curve(laws, graph, 1.0).delta_upper):.4f}"]
            for method in ("paper", "white"):
                designed = shoal.design(classes, graph, method, epsilon=1.0, rho=rho, rho_is_total=True)
                cells.append(f"{designed.certificate.delta_upper:.4f}")
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
