"""Other libraries' own tests, and other people's auditors, on shoal: ``python -m benchmarks peer_tests``.

- The accounting cases of dp_accounting and OpenDP (``tests/peer_cases.py``): ours against their figures, with a referee
  of fifty digits that says which side of the exact value each figure is on.
- dp_accounting's own closed forms on the grid of their test, before the same referee.
- Auditors from papers (``benchmarks/_auditors.py``) and shoal's, on answers that the mechanisms really released, and on
  those of the same mechanisms with noise 30 % too small, or odds for ε/0.7. Where the packages ``dp_auditorium`` and
  ``dpsniper`` can be imported, their own testers are run as well.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import StringIO
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import gaussian_mechanism

import shoal

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks._auditors import Array, hockey_stick, kernel, sniper
from peer_cases import DELTAS, EPSILONS, SIGMAS, Case, agrees, cases, found, gaussian_delta, mpf
from shoal.mechanism.composition import codebook_divergence

SAMPLES, ERROR = 40_000, 1e-3


def tightness(case: Case) -> float:
    """The least power of ten by which our figure can be lowered before it is on the unsafe side."""
    best = min(found(case))
    digits = range(16, 0, -1)
    return next((10.0**-n for n in digits if not case.holds(best * (1 - 10.0**-n))), math.inf) if best > 0 else 0.0


def case_rows() -> Iterator[str]:
    for peer, topic in dict.fromkeys((case.peer, case.topic) for case in cases()):
        chosen = [case for case in cases() if (case.peer, case.topic) == (peer, topic)]
        safe = sum(all(case.holds(ours) for ours in found(case)) for case in chosen)
        agreed = sum(all(agrees(case, ours) for ours in found(case)) for case in chosen)
        values = [case for case in chosen if case.kind == "value"]
        exact = [case for case in values if case.figure > 1e-6 and case.slack > 0]
        loose = f"{max(map(tightness, exact)):.0e}" if exact else ""
        apart = [
            max(case.figure, min(found(case))) / min(case.figure, min(found(case)))
            for case in chosen
            if case.kind != "value" and case.figure > 0 and topic != "σ → ε → σ"
        ]
        low = sum(not case.holds(case.figure) for case in values)
        yield (
            f"| {peer} | {topic} | {len(chosen)} | {safe} | {agreed} | {loose} "
            f"| {f'{low} of {len(values)}' if values else ''} | {f'{max(apart):.3g}×' if apart else ''} |"
        )


def closed_forms() -> Iterator[str]:
    """dp_accounting's σ for (ε, δ) and ε for (σ, δ), judged like ours."""
    for name, grid, figure in (
        ("get_sigma_gaussian", EPSILONS, lambda e, d: (1 / mpf(gaussian_mechanism.get_sigma_gaussian(e, d)) ** 2, e)),
        ("get_epsilon_gaussian", SIGMAS, lambda s, d: (1 / mpf(s) ** 2, gaussian_mechanism.get_epsilon_gaussian(s, d))),
    ):
        excess = []
        for one in grid:
            for delta in DELTAS:
                square, epsilon = figure(one, delta)
                excess.append(float(gaussian_delta(square, epsilon) / mpf(delta) - 1))
        over = [x for x in excess if x > 0]
        worst = f", δ too large by a relative {max(over):.1g} at most" if over else ""
        yield f"- `{name}`: {len(over)} of {len(excess)} on the unsafe side{worst}."


@dataclass(frozen=True)
class Subject:
    """What is promised at ε and at a Rényi order, and answers about two labels, right and with too little noise."""

    name: str
    claim: Callable[[float], float]
    divergence: Callable[[float], float]
    sound: tuple[Array, Array]
    broken: tuple[Array, Array]
    ours: Callable[[bool], float]


def gaussian(name: str, mechanism: shoal.Mechanism) -> Subject:
    wrong = replace(mechanism, noise_cov=0.49 * mechanism.noise_cov)
    pair = mechanism.curve(1.0).worst_edge
    rng = np.random.default_rng(1)

    def released(by: shoal.Mechanism) -> dict[str, Array]:
        classes = mechanism.classes
        covs = np.broadcast_to(classes.covs, (classes.n_classes, classes.n_dims, classes.n_dims))
        answers = {
            label: rng.multivariate_normal(classes.means[i], covs[i], SAMPLES)
            if covs[i].any()
            else np.tile(classes.means[i], (SAMPLES, 1))
            for i, label in enumerate(classes.labels)
        }
        return {label: by.release(q, label) for label, q in answers.items()}

    sets = {False: released(mechanism), True: released(wrong)}

    def audited(broken: bool) -> float:
        result = shoal.audit(
            mechanism, n_samples=SAMPLES, release=lambda _, label: sets[broken][label], confidence=1 - ERROR
        )
        return float(result.delta_lower.max())

    return Subject(
        name,
        lambda epsilon: float(mechanism.curve(epsilon).delta_upper),
        lambda order: float(shoal.renyi_curve(mechanism.output, mechanism.graph, order).divergence_upper),
        (sets[False][pair[0]], sets[False][pair[1]]),
        (sets[True][pair[0]], sets[True][pair[1]]),
        audited,
    )


def codebook(epsilon: float = 1.0) -> Subject:
    graph = shoal.NeighborGraph.complete(["a", "b", "c"])
    book, wrong = (shoal.codebook(np.eye(3), graph, e) for e in (epsilon, epsilon / 0.7))
    drawn = [tuple(np.array([one.release(label) for _ in range(SAMPLES)]) for label in "ab") for one in (book, wrong)]
    return Subject(
        "codebook, ε = 1",
        lambda e: float(book.curve(e).delta_upper),
        lambda order: max(
            float(codebook_divergence([(book.privacy_loss(*pair), 1)], np.array([order]))[0])
            for pair in permutations("abc", 2)
        ),
        drawn[0],
        drawn[1],
        lambda broken: math.nan,
    )


def subjects() -> Iterator[Subject]:
    # First: DP-Sniper forks, and a fork of a process that holds TensorFlow, which DP-Auditorium loads, hangs.
    yield codebook()
    two = shoal.GaussianClasses.deterministic([[0.0], [1.0]], labels=["a", "b"])
    graph = shoal.NeighborGraph.complete(two.labels)
    yield gaussian("white noise on two constants", shoal.design(two, graph, "white", epsilon=1.0, rho=1.0))
    rng = np.random.default_rng(7)
    roots = 0.3 * rng.standard_normal((3, 2, 2))
    covs = roots @ roots.swapaxes(1, 2) + 0.05 * np.eye(2)
    laws = shoal.GaussianClasses(0.6 * rng.standard_normal((3, 2)), covs, labels=["a", "b", "c"])
    graph = shoal.NeighborGraph.complete(laws.labels)
    made = shoal.design(laws, graph, "covariance", epsilon=1.0, rho=0.7, iterations=20)
    yield gaussian("covariance design on three laws", made)


@dataclass(frozen=True)
class Attack:
    """A lower bound of something promised, from answers about two labels."""

    name: str
    promised: float
    bound: Callable[[Array, Array], float]


def attacks(subject: Subject) -> Iterator[Attack]:
    promised = subject.claim(1.0)
    yield Attack("hockey stick (network), δ(1)", promised, lambda p, q: hockey_stick(p, q, 1.0, ERROR))
    yield Attack("kernel (MMD), δ(0)", subject.claim(0.0), lambda p, q: kernel(p, q, 0.0, ERROR))
    yield Attack(f"DP-Sniper (logistic), ε at δ = {promised:.3g}", 1.0, lambda p, q: sniper(p, q, promised, ERROR))
    if find_spec("dpsniper") and promised == 0.0:
        yield Attack("DP-Sniper's own code, ε at δ = 0", 1.0, dp_sniper)
    if find_spec("dp_auditorium"):
        yield from dp_auditorium(subject)


def dp_auditorium(subject: Subject) -> Iterator[Attack]:
    """DP-Auditorium's own testers, with its default networks."""
    from dp_auditorium.configs import privacy_property, property_tester_config
    from dp_auditorium.testers import histogram_tester, hockey_stick_tester, mmd_tester, renyi_tester

    def claim(epsilon: float) -> Any:
        return privacy_property.ApproximateDp(epsilon=epsilon, delta=max(subject.claim(epsilon), 1e-12))

    def stick(p: Array, q: Array) -> float:
        training = hockey_stick_tester.make_default_hs_training_config()
        config = property_tester_config.HockeyStickPropertyTesterConfig(
            training_config=training, approximate_dp=claim(1)
        )
        tester = hockey_stick_tester.HockeyStickPropertyTester(config, hockey_stick_tester.make_default_hs_base_model())
        with redirect_stdout(StringIO()):
            return float(tester.estimate_lower_bound(p, q, ERROR))

    def mmd(p: Array, q: Array) -> float:
        rbf = property_tester_config.Kernel.KERNEL_RBF
        config = property_tester_config.MMDPropertyTesterConfig(kernel=rbf, bandwidth=0.5, approximate_dp=claim(1e-3))
        return float(mmd_tester.MMDPropertyTester(config).estimate_lower_bound(p, q, ERROR))

    def histogram(p: Array, q: Array) -> float:
        config = property_tester_config.HistogramPropertyTesterConfig(
            test_discrete_mechanism=False, histogram_size=20, min_value=-4.0, max_value=5.0, approximate_dp=claim(1)
        )
        return float(histogram_tester.HistogramTester(config).estimate_lower_bound(p[:, 0], q[:, 0], ERROR))

    def renyi(p: Array, q: Array) -> float:
        config = property_tester_config.RenyiPropertyTesterConfig(
            alpha=2.0,
            training_config=property_tester_config.TrainingConfig(
                training_epochs=5, batch_size=1000, optimizer_learning_rate=1e-2, model_output_coordinate_bound=1.0
            ),
            privacy_property=privacy_property.PrivacyProperty(
                renyi_dp=privacy_property.RenyiDp(alpha=2.0, epsilon=subject.divergence(2.0))
            ),
        )
        tester = renyi_tester.RenyiPropertyTester(config, renyi_tester.make_default_renyi_base_model())
        single = (p.astype(np.float32), q.astype(np.float32))
        return float(tester.estimate_lower_bound(*single, ERROR))

    yield Attack("DP-Auditorium's hockey stick, δ(1)", subject.claim(1.0), stick)
    yield Attack("DP-Auditorium's MMD, δ(0.001)", subject.claim(1e-3), mmd)
    yield Attack("DP-Auditorium's Rényi, order 2", subject.divergence(2.0), renyi)
    if subject.sound[0].shape[1] == 1:
        yield Attack("DP-Auditorium's histogram, δ(1)", subject.claim(1.0), histogram)


def dp_sniper(first: Array, second: Array) -> float:
    """DP-Sniper's own classifier, threshold and confidence bound; answers are drawn again from those released."""
    from dpsniper.attack.dpsniper import DPSniper
    from dpsniper.classifiers.classifier_factory import LogisticRegressionFactory
    from dpsniper.classifiers.torch_optimizer_factory import SGDOptimizerFactory
    from dpsniper.mechanisms.abstract import Mechanism
    from dpsniper.probability.estimators import EpsEstimator, PrEstimator
    from dpsniper.search.ddconfig import DDConfig
    from dpsniper.utils.initialization import initialize_dpsniper

    third = len(first) // 3 // 1000 * 1000
    left = {0: list(first), 1: list(second)}

    class Released(Mechanism):  # type: ignore[misc]
        def m(self, a: Any, n_samples: int = 1) -> Array:
            rows, left[int(a[0])] = left[int(a[0])][:n_samples], left[int(a[0])][n_samples:]
            return np.array(rows)

    config = DDConfig(0.05, third, third, third, third, n_processes=1, confidence=1 - ERROR)
    config.training_batch_size = third
    with tempfile.TemporaryDirectory() as folder, initialize_dpsniper(config, out_dir=folder):
        factory = LogisticRegressionFactory(in_dimensions=first.shape[1], optimizer_factory=SGDOptimizerFactory())
        mechanism = Released()
        attack = DPSniper(mechanism, factory, config).best_attack(np.array([0]), np.array([1]))
        estimator = EpsEstimator(PrEstimator(mechanism, third, config))
        return float(estimator.compute_eps_estimate(np.array([0]), np.array([1]), attack)[1])


def auditor_rows() -> Iterator[str]:
    for subject in subjects():
        for attack in attacks(subject):
            sound, broken = (max(attack.bound(p, q), attack.bound(q, p)) for p, q in (subject.sound, subject.broken))
            note = " **exceeded**" if sound > attack.promised else ""
            found = f"{shown(sound)}{note} | {shown(broken)}"
            yield f"| {subject.name} | {attack.name} | {attack.promised:.3g} | {found} |"
        if not math.isnan(subject.ours(False)):
            found = f"{shown(subject.ours(False))} | {shown(subject.ours(True))}"
            yield f"| {subject.name} | `shoal.audit`, δ(1) | {subject.claim(1.0):.3g} | {found} |"


def shown(bound: float) -> str:
    return f"{bound:.3g}" if bound > 0 else "nothing"


def main() -> None:
    begun = time.process_time()
    print("## Peers' tests\n")
    print("| peer | figures of its tests | cases | safe | agree | ours at most above | theirs below | bounds apart |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in case_rows():
        print(row, flush=True)
    print("\ndp_accounting's closed forms on the grid of their test:\n")
    for row in closed_forms():
        print(row)
    print(f"\n{SAMPLES:,} released answers about each of two labels, error probability {ERROR:g} for every bound:\n")
    print("| mechanism | auditor | promised | found | found with noise 30 % too small |")
    print("| --- | --- | ---: | ---: | ---: |")
    for row in auditor_rows():
        print(row, flush=True)
    print(f"\n{len(cases())} cases; {time.process_time() - begun:.0f} s of processor time.")


if __name__ == "__main__":
    main()
