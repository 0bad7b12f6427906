"""The test harness itself, and what it says of other libraries' mechanisms.

    python -m benchmarks.harness [--runs 100] [--honest 200] [--only power|honest|peers|sigmas]

Prints Markdown. ``power``: kernels with a fifth too little Gaussian noise in 12 entries. ``honest``: kernels that keep
their claim, of our methods, codebooks, Gaussian, Laplace and geometric noise. ``peers``: mechanisms of OpenDP and
diffprivlib as they are, and with their sensitivity understated by a fifth. ``sigmas``: dp_accounting's calibrated
sigmas, each decided by a proof. A library that is not installed is named and left out.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

import shoal
from shoal.audits.attacks import draw_true_answers, seeded_release

EPSILON = 1.0
Kernel = Callable[[str], Any]
#: Name, kernel, classes, graph, ε and δ.
Case = tuple[str, Kernel, shoal.GaussianClasses, shoal.NeighborGraph, float, float]


def constants(n: int, k: int, seed: int) -> tuple[shoal.GaussianClasses, shoal.NeighborGraph]:
    """Constants with standard normal entries, all of them neighbors."""
    classes = shoal.GaussianClasses.deterministic(np.random.default_rng(seed).standard_normal((n, k)))
    return classes, shoal.NeighborGraph.complete(classes.labels)


def gaussian(delta: float, share: float, seed: int, n: int = 2, k: int = 12) -> Case:
    """Gaussian noise of ``share`` times the standard deviation that (1, δ) needs."""
    classes, graph = constants(n, k, seed)
    std = share * shoal.analytic_sigma(shoal.sensitivity(classes.means, graph), EPSILON, delta)
    rng = np.random.default_rng([seed, 1])

    def release(label: str) -> Any:
        return classes.means[int(label)] + std * rng.standard_normal(k)

    return "Gaussian", release, classes, graph, EPSILON, delta


def laplace(epsilon: float, share: float, seed: int, k: int = 3) -> Case:
    """Laplace noise of ``share`` times the scale that (ε, 0) needs."""
    classes, graph = constants(2, k, seed)
    scale = share * shoal.sensitivity(classes.means, graph, p=1) / epsilon
    rng = np.random.default_rng([seed, 2])

    def release(label: str) -> Any:
        return classes.means[int(label)] + rng.laplace(0.0, scale, k)

    return "Laplace", release, classes, graph, epsilon, 0.0


def geometric(epsilon: float, seed: int) -> Case:
    """Two-sided geometric noise on a count."""
    classes = shoal.GaussianClasses.deterministic([[3.0], [4.0]])
    rng = np.random.default_rng([seed, 3])

    def release(label: str) -> Any:
        noise = np.diff(rng.geometric(-math.expm1(-epsilon), 2))
        return classes.means[int(label)] + noise

    return "geometric", release, classes, shoal.NeighborGraph.complete(classes.labels), epsilon, 0.0


def ours(method: str, seed: int, random: bool) -> Case:
    """A mechanism of one of our design methods at its own certificate."""
    rng = np.random.default_rng([seed, 4])
    n, k = 3, 3
    roots = rng.standard_normal((n, k, k)) / math.sqrt(k)
    means = rng.standard_normal((n, k))
    covs = roots @ roots.swapaxes(1, 2) + 0.3 * np.eye(k)
    classes = shoal.GaussianClasses(means, covs) if random else shoal.GaussianClasses.deterministic(means)
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method, EPSILON, float(rng.choice([0.3, 1.0, 3.0])), iterations=10)
    return (
        f"{method}{' on laws' if random else ''}",
        kernel(mechanism, seed),
        classes,
        graph,
        EPSILON,
        (mechanism.certificate.delta_upper),
    )


def kernel(mechanism: shoal.Mechanism, seed: int) -> Kernel:
    """Answers drawn from the laws and released with seeded noise, in blocks."""
    release, drawn = seeded_release(mechanism, seed), np.random.default_rng([seed, 5])
    waiting: dict[str, Iterator[Any]] = {}

    def answer(label: str) -> Any:
        row = next(waiting.get(label, iter(())), None)
        if row is None:
            true = draw_true_answers(mechanism.classes, 4096, drawn)[mechanism.position(label)]
            waiting[label] = iter(np.asarray(release(true, label)))
            row = next(waiting[label])
        return row

    return answer


def book(seed: int) -> Case:
    """A codebook at its ε."""
    classes, graph = constants(4, 2, seed)
    made = shoal.codebook(classes.means, graph, epsilon=EPSILON)
    return "codebook", made.release, classes, graph, EPSILON, 0.0


METHODS = ("white", "ellipsoid", "paper", "covariance", "additive", "transport", "center", "mean")


def honest_cases(count: int) -> Iterator[Case]:
    """Kernels that keep what they claim, of every kind in turn."""
    makers: list[Callable[[int], Case]] = [
        *(lambda seed, d=delta: gaussian(d, 1.0, seed) for delta in (1e-6, 1e-5, 1e-3, 0.1)),
        lambda seed: gaussian(1e-4, 1.0, seed, n=5),
        *(lambda seed, e=epsilon: laplace(e, 1.0, seed) for epsilon in (0.5, 1.0)),
        lambda seed: laplace(1.0, 1.0, seed, k=40),
        lambda seed: geometric(1.0, seed),
        book,
        *(lambda seed, m=name: ours(m, seed, True) for name in METHODS),
        *(lambda seed, m=name: ours(m, seed, False) for name in METHODS[:6]),
    ]
    for number in range(count):
        yield makers[number % len(makers)](1000 + number)


def checked(case: Case, n: int = 10_000, confidence: float = 0.999) -> Any:
    """The verdict of the harness on a case."""
    _, release, classes, graph, epsilon, delta = case
    return shoal.testing.check_mechanism(release, classes, graph, epsilon, delta, n=n, confidence=confidence)


def power(runs: int) -> None:
    """How often a fifth too little noise is found."""
    print(
        "| claim | called violated | stated power | right amount of noise called violated |\n| --- | --- | --- | --- |"
    )
    for delta in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        found = [checked(gaussian(delta, 0.8, seed)) for seed in range(runs)]
        right = [checked(gaussian(delta, 1.0, seed)) for seed in range(runs)]
        count, false = (sum(one.verdict == "violated" for one in part) for part in (found, right))
        stated = float(np.mean([one.power for one in found]))
        print(f"| (1, {delta:g}) | {count} of {runs} | {stated:.3f} | {false} of {runs} |", flush=True)


def honest(count: int) -> None:
    """How often a kernel that keeps its claim is called violated."""
    start, kinds, wrong = time.perf_counter(), Counter[str](), []
    for case in honest_cases(count):
        kinds[case[0]] += 1
        if checked(case).verdict == "violated":
            wrong.append(case[0])
    print(f"{len(wrong)} of {count} honest kernels called violated {wrong}; {time.perf_counter() - start:.0f} s")
    print(", ".join(f"{name} {number}" for name, number in kinds.items()), flush=True)


def peer_cases(share: float) -> Iterator[Case]:
    """Mechanisms of other libraries on two neighbors one apart, their sensitivity stated as ``share`` of that."""
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["0", "1"])
    graph = shoal.NeighborGraph.complete(classes.labels)
    for library in ("opendp", "diffprivlib"):
        # diffprivlib's models need an older scikit-learn than its mechanisms, which are all that is wanted.
        sys.modules.setdefault("diffprivlib.models", types.ModuleType("diffprivlib.models"))
        try:
            import_module(library)
        except ImportError:
            print(f"{library} is not installed: left out")
            continue
        for name, answer, epsilon, delta in (_opendp if library == "opendp" else _diffprivlib)(share):
            yield f"{library} {name}", lambda label, draw=answer: draw(float(label)), classes, graph, epsilon, delta


def _opendp(share: float) -> Iterator[tuple[str, Callable[[float], float], float, float]]:
    from opendp.domains import atom_domain
    from opendp.measurements import make_gaussian, make_laplace
    from opendp.metrics import absolute_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = atom_domain(T=float, nan=False), absolute_distance(T=float)
    yield "Laplace", make_laplace(*space, scale=share), 1.0, 0.0
    for delta in (1e-3, 1e-5):
        std = share * shoal.analytic_sigma(1.0, EPSILON, delta)
        yield "Gaussian", make_gaussian(*space, scale=std), EPSILON, delta


def _diffprivlib(share: float) -> Iterator[tuple[str, Callable[[float], float], float, float]]:
    peers = import_module("diffprivlib.mechanisms")
    for name, delta in (("Laplace", 0.0), ("Gaussian", 1e-3), ("GaussianAnalytic", 1e-3), ("GaussianAnalytic", 1e-5)):
        epsilon = 0.999 if name == "Gaussian" else 1.0
        more = {"delta": delta} if delta else {}
        made = getattr(peers, name)(epsilon=epsilon, sensitivity=share, **more)
        yield name, made.randomise, epsilon, delta


def peers() -> None:
    """What the harness says of other libraries."""
    print(
        "| mechanism | claim | noise | verdict | δ at least | by | stated power |\n"
        "| --- | --- | --- | --- | --- | --- | --- |"
    )
    for share, noise in ((1.0, "as stated"), (0.8, "a fifth too little")):
        for case in peer_cases(share):
            result = checked(case)
            claim = f"({case[4]:g}, {case[5]:g})"
            print(
                f"| {case[0]} | {claim} | {noise} | {result.verdict} | {result.delta_lower:.3g} | {result.by} | "
                f"{result.power:.3f} |",
                flush=True,
            )


def sigmas() -> None:
    """dp_accounting's calibrated noise, decided by proofs; variances are rounded in its favor."""
    try:
        dp: Any = import_module("dp_accounting")
        closed: Any = import_module("dp_accounting.pld.common")
    except ImportError:
        print("dp_accounting is not installed: left out")
        return
    pld: Any = import_module("dp_accounting.pld.privacy_loss_mechanism")
    verdicts: dict[str, Counter[str]] = {}
    worst = 0.0
    for epsilon in np.geomspace(0.05, 5.0, 12):
        for delta in np.geomspace(1e-12, 1e-2, 11):
            target = closed.DifferentialPrivacyParameters(float(epsilon), float(delta))
            sigma = pld.GaussianPrivacyLoss.from_privacy_guarantee(target).standard_deviation
            check = sigma_check(sigma, float(epsilon), float(delta))
            verdicts.setdefault("GaussianPrivacyLoss.from_privacy_guarantee", Counter())[check.verdict] += 1
            worst = max(worst, check.delta_lower / float(delta) - 1)
            root = dp.get_sigma_gaussian(float(epsilon), float(delta)) if hasattr(dp, "get_sigma_gaussian") else None
            if root is not None:
                verdict = sigma_check(root, float(epsilon), float(delta)).verdict
                verdicts.setdefault("get_sigma_gaussian", Counter())[verdict] += 1
    for name, counts in verdicts.items():
        print(f"| {name} | {counts['proved']} | {counts['refuted']} | {counts['undecided']} |")
    print(f"largest excess: {worst:.2g} of δ", flush=True)


def sigma_check(sigma: float, epsilon: float, delta: float) -> Any:
    """Whether Gaussian noise of this σ at sensitivity 1 keeps (ε, δ); the variance is rounded up."""
    variance = math.nextafter(sigma * sigma, math.inf)
    classes = shoal.GaussianClasses.deterministic([[0.0], [1.0]]).with_noise(variance)
    return shoal.testing.check_claim(classes, shoal.NeighborGraph.complete(classes.labels), epsilon, delta)


def main() -> None:
    """The parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--honest", type=int, default=200)
    parser.add_argument("--only", choices=["power", "honest", "peers", "sigmas"])
    options = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "power": lambda: power(options.runs),
        "honest": lambda: honest(options.honest),
        "peers": peers,
        "sigmas": sigmas,
    }
    for name, part in parts.items():
        if options.only in (None, name):
            part()


if __name__ == "__main__":
    main()
