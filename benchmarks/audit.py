"""The audit: false alarms on correct mechanisms, what it catches, and how long it takes.

    python -m benchmarks.audit [--mechanisms 200] [--samples 2000] [--only alarms|bugs|times]

Prints Markdown. False alarms are counted over correct mechanisms of every method on families of every kind (constants,
shared, diagonal, singular and full covariances), each audited once, with noise and answers of its own. The held-out
part reads real meter data beside the repository and is left out where there is none.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import shoal
from shoal.audits.attacks import seeded_release
from shoal.laws.supports import RankWarning

Array = NDArray[np.float64]
METHODS = ("white", "paper", "covariance", "additive", "transport", "center")


def family(kind: str, rng: np.random.Generator) -> shoal.GaussianClasses:
    """A random family of one kind."""
    n, k = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    means = rng.standard_normal((n, k))
    factors = rng.standard_normal((n, k, k + 2)) / np.sqrt(k)
    covs = factors @ factors.transpose(0, 2, 1)
    line = rng.standard_normal((k, 1))
    made: dict[str, Callable[[], shoal.GaussianClasses]] = {
        "constants": lambda: shoal.GaussianClasses.deterministic(means),
        "shared": lambda: shoal.GaussianClasses(means, covs[0]),
        "diagonal": lambda: shoal.GaussianClasses.diagonal(means, rng.uniform(0.1, 2.0, (n, k))),
        "full": lambda: shoal.GaussianClasses(means, covs),
        "line": lambda: shoal.GaussianClasses(means, line @ line.T),
        "equal means": lambda: shoal.GaussianClasses(np.zeros((n, k)), covs),
    }
    return made[kind]()


KINDS = ("constants", "shared", "diagonal", "full", "line", "equal means")


def correct_mechanisms(count: int, seed: int = 0) -> Iterator[tuple[str, shoal.Mechanism]]:
    """Mechanisms of every method and kind in turn; every seventh at the price of δ = 0."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        kind, method = KINDS[number % len(KINDS)], METHODS[(number // len(KINDS)) % len(METHODS)]
        classes = family(kind, rng)
        graph = shoal.NeighborGraph.complete(classes.labels)
        rho = float(rng.choice([0.05, 0.3, 1.0]))
        if number % 7 == 0 and method in ("transport", "center"):
            rho = shoal.perfect_rho(classes, graph) * 1.001
        mechanism = shoal.design(classes, graph, method=method, epsilon=1.0, rho=rho, iterations=10, seed=number)
        yield f"{method} on {kind}", mechanism


def false_alarms(count: int, n_samples: int, seed: int = 0) -> tuple[list[str], float]:
    """Names of the correct mechanisms called violated; seconds per audit."""
    violated, spent = [], 0.0
    for number, (name, mechanism) in enumerate(correct_mechanisms(count, seed)):
        start = time.perf_counter()
        result = shoal.audit(
            mechanism, n_samples=n_samples, release=seeded_release(mechanism, 7000 + number), seed=number
        )
        spent += time.perf_counter() - start
        if result.verdict == "violated":
            violated.append(f"{name}: {result.violations[0].kind}")
    return violated, spent / count


def bugs(n_samples: int = 20_000) -> Iterator[tuple[str, Any]]:
    """Each seeded bug on twelve labels with twelve entries, and the audit of it."""
    rng = np.random.default_rng(11)
    classes = shoal.GaussianClasses.deterministic(0.3 * rng.standard_normal((12, 12)))
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method="covariance", epsilon=1.0, rho=0.3, iterations=10)
    n, k = classes.means.shape
    swapped = np.array(np.broadcast_to(mechanism.noise_cov, (n, k, k)))
    swapped[[0, 1]] = swapped[[1, 0]]

    def of(name: str, **parameters: Any) -> tuple[str, Any]:
        wrong = seeded_release(replace(mechanism, **parameters), 5)
        return name, shoal.audit(mechanism, n_samples=n_samples, release=wrong, seed=1)

    yield of("nothing wrong")
    yield of("total ρ drawn, per entry certified", noise_cov=mechanism.noise_cov / k)
    yield of("per entry drawn, total ρ certified", noise_cov=mechanism.noise_cov * k)
    yield of("two labels' covariances swapped", noise_cov=swapped)
    yield of("5 % too little variance", noise_cov=0.95 * mechanism.noise_cov)

    def same_noise(answers: Array, label: str) -> Array:
        return mechanism.sample(answers, label, seed=3)

    yield "one noise for all labels", shoal.audit(mechanism, n_samples=n_samples, release=same_noise, seed=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mechanisms", type=int, default=200)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--only", choices=["alarms", "bugs", "times"])
    options = parser.parse_args()
    warnings.simplefilter("ignore", RankWarning)
    print("## Audit\n")
    if options.only in (None, "alarms"):
        violated, seconds = false_alarms(options.mechanisms, options.samples)
        allowed = int(stats.binom.ppf(0.99, options.mechanisms, 0.05))
        print(
            f"{len(violated)} of {options.mechanisms} correct mechanisms called violated, at confidence 0.95 "
            f"({options.samples} answers per label; more than {allowed} would contradict it); {seconds:.2f} s per "
            "audit.\n"
        )
        for kind, times in Counter(violated).most_common():
            print(f"- {kind} ({times})")
        print()
    if options.only in (None, "bugs"):
        print("Twelve labels, twelve entries, 20,000 answers per label:\n")
        print("| bug | verdict | findings | seconds |")
        print("| --- | --- | --- | --- |")
        start = time.perf_counter()
        for name, result in bugs():
            spent, start = time.perf_counter() - start, time.perf_counter()
            kinds = ", ".join(dict.fromkeys(found.kind for found in result.violations))
            print(f"| {name} | {result.verdict} | {kinds} | {spent:.1f} |")
        print()
    if options.only in (None, "times"):
        classes = shoal.GaussianClasses.deterministic(np.random.default_rng(1).standard_normal((13, 12)))
        graph = shoal.NeighborGraph.complete(classes.labels)
        mechanism = shoal.design(classes, graph, method="white", epsilon=1.0, rho=1.0)
        release = seeded_release(mechanism, 1)
        shoal.audit(mechanism, n_samples=200, release=release)
        start = time.perf_counter()
        shoal.audit(mechanism, n_samples=20_000, release=release)
        print(f"13 labels, complete graph, 12 entries, 20,000 answers each: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
