"""What design promises whatever the problem: order of the methods, budgets, floors, certificates, reproducibility."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from design_cases import family, hard_families, trial
from scipy.stats import multivariate_normal

import shoal
from shoal import GaussianClasses, Mechanism, NeighborGraph
from shoal.designs.methods import METHODS

CASES = hard_families()
CONTAINS = (
    ("none", "covariance"),
    ("white", "covariance"),
    ("paper", "covariance"),
    ("ellipsoid", "covariance"),
    ("covariance", "additive"),
    ("additive", "transport"),
    ("center", "transport"),
)


def designs(classes: GaussianClasses, graph: NeighborGraph, share: float, options: dict[str, Any]) -> dict[str, Any]:
    options = dict(options)
    price = shoal.perfect_rho(classes, graph)
    rho = options.pop("rho", share * price)
    if "noise_floor" in options:
        rho = rho + options["noise_floor"]
    methods = [m for m in METHODS if not (m == "none" and "noise_floor" in options)]
    epsilon = options.pop("epsilon", 1.0)
    return {m: shoal.design(classes, graph, m, epsilon, rho, iterations=2, **options) for m in methods}


@pytest.mark.parametrize("name", list(CASES))
def test_stronger_methods_are_never_worse_and_promises_hold(name: str) -> None:
    """With zero tolerance on the certificate; budgets, noise floor and share of bias hold for every method."""
    classes, graph, options = CASES[name]
    found = designs(classes, graph, 0.5, options)
    for weaker, stronger in CONTAINS:
        if weaker in found:
            assert found[stronger].certificate.delta_upper <= found[weaker].certificate.delta_upper
    for mechanism in found.values():
        assert (mechanism.rho <= mechanism.budget).all()
        scale = float(np.abs(mechanism.noise_cov).max())
        floor = options.get("noise_floor", 0.0)
        assert np.linalg.eigvalsh(mechanism.noise_cov).min() >= floor - 1e-13 * scale
        assert mechanism.certificate.delta <= mechanism.certificate.delta_upper
    assert found["transport"].certificate.delta_upper < 1.0


@pytest.mark.parametrize("name", list(CASES))
def test_above_the_price_of_perfection(name: str) -> None:
    """Constants, lines and the rest: once every label can reach the common law, nothing tells them apart."""
    classes, graph, options = CASES[name]
    if "rho" in options:
        pytest.skip("another price applies")
    options = dict(options)
    rho = 1.5 * shoal.perfect_rho(classes, graph) + options.get("noise_floor", 0.0)
    epsilon = options.pop("epsilon", 1.0)
    for method in ("center", "transport"):
        mechanism = shoal.design(classes, graph, method, epsilon, rho, iterations=2, **options)
        ideal = mechanism.curve(np.min(epsilon), mechanism.notion)
        assert ideal.delta_upper < 1e-100  # what the rounding of the stored parameters leaves open
        assert mechanism.certificate.delta_upper < 1e-20  # what finite precision leaves open
        assert (mechanism.rho <= mechanism.budget).all()


def test_constants_far_above_the_price() -> None:
    classes = GaussianClasses.deterministic(np.random.default_rng(2).standard_normal((5, 3)))
    graph = NeighborGraph.complete(classes.labels)
    price = shoal.perfect_rho(classes, graph)
    for method in ("additive", "transport", "center"):
        mechanism = shoal.design(classes, graph, method, 1.0, 1e3 * price)
        assert mechanism.curve(1.0).delta_upper < 1e-300
        assert mechanism.certificate.delta_upper < 1e-20
        # Perfection costs its price, however much may be spent.
        assert mechanism.rho.max() <= price * (1 + 1e-6)


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (1.0, (0.991, 0.924, 0.850, 0.848, 0.714, 0.504)),
        (4.0, (0.991, 0.698, 0.536, 0.521, 0.0469, 8.2e-4)),
    ],
)
def test_trial_of_the_theory_notes(total: float, expected: tuple[float, ...]) -> None:
    classes, graph = trial()
    methods = ("none", "white", "paper", "covariance", "additive", "transport")
    for method, value in zip(methods, expected, strict=True):
        mechanism = shoal.design(classes, graph, method, 1.0, total / 2)
        assert mechanism.certificate.delta_upper <= value * 1.01
        if method in ("none", "white"):
            assert mechanism.certificate.delta == pytest.approx(value, abs=6e-4)


@pytest.mark.parametrize("method", METHODS)
def test_certificate_by_monte_carlo(method: str) -> None:
    """The loss of released samples, under the output laws, gives the certificate's δ back."""
    classes, graph = trial()
    mechanism = shoal.design(classes, graph, method, 1.0, 1.6)
    a, b = (classes.labels.index(name) for name in mechanism.certificate.worst_edge)
    rng = np.random.default_rng(0)
    answers = rng.multivariate_normal(classes.means[a], classes.covs[a], 200_000)
    released = mechanism.sample(answers, classes.labels[a], seed=1)
    law = mechanism.output
    loss = multivariate_normal(law.means[a], law.covs[a]).logpdf(released)
    loss -= multivariate_normal(law.means[b], law.covs[b]).logpdf(released)
    terms = np.maximum(-np.expm1(1.0 - loss), 0.0)
    width = 4.0 * terms.std() / np.sqrt(len(terms))
    assert abs(terms.mean() - mechanism.certificate.delta) <= width
    # The error that was really made is the error that is stated.
    error = ((released - answers) ** 2).mean(axis=1)
    assert abs(error.mean() - mechanism.rho[a]) <= 4.0 * error.std() / np.sqrt(len(error)) + 1e-15


def test_equal_seeds_give_equal_mechanisms() -> None:
    classes, graph = family(3, 4, 3)
    first, second = (shoal.design(classes, graph, "transport", 1.0, 0.3, seed=5, iterations=5) for _ in range(2))
    for name in ("shift", "gain", "noise_cov"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    classes, graph = family(3, 12, 2)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("SHOAL_THREADS", threads)
        found.append(shoal.design(classes, graph, "additive", 1.0, 0.3, iterations=5))
    np.testing.assert_array_equal(found[0].noise_cov, found[1].noise_cov)


def test_labels_without_neighbors_are_left_alone() -> None:
    classes, _ = family(1, 4, 2)
    graph = NeighborGraph.from_edges(classes.labels, [("0", "2")])
    mechanism = shoal.design(classes, graph, "transport", 1.0, 0.2, iterations=10)
    for alone in (1, 3):
        assert mechanism.rho[alone] == 0
        np.testing.assert_array_equal(mechanism.output.means[alone], classes.means[alone])
        np.testing.assert_allclose(mechanism.output.covs[alone], classes.covs[alone], rtol=1e-12)


def test_options_agree_when_they_say_the_same() -> None:
    classes, graph = family(2, 3, 2)
    plain = shoal.design(classes, graph, "paper", 1.0, 0.3)
    for other in (
        shoal.design(classes, graph, "paper", np.ones(3), 0.3),
        shoal.design(classes, graph, "paper", 1.0, [0.3] * 3),
        shoal.design(classes, graph, "paper", 1.0, {"2": 0.3, "0": 0.3, "1": 0.3}),
    ):
        np.testing.assert_allclose(other.noise_cov, plain.noise_cov, rtol=1e-12)


class TestEndings:
    """An interrupted or late search still returns a design that keeps every promise."""

    def check(self, mechanism: Mechanism, classes: GaussianClasses, graph: NeighborGraph, word: str) -> None:
        assert (mechanism.rho <= mechanism.budget).all()
        white = shoal.design(classes, graph, "white", 1.0, 0.3)
        assert mechanism.certificate.delta_upper <= white.certificate.delta_upper
        assert any(word in note for note in mechanism.notes)

    def test_interrupt(self) -> None:
        classes, graph = family(1, 5, 3)
        seen = []

        def progress(stage: int, stages: int, value: float) -> None:
            seen.append(value)
            raise KeyboardInterrupt

        mechanism = shoal.design(classes, graph, "transport", 1.0, 0.3, progress=progress)
        assert len(seen) == 1  # the searches that would have followed are not begun
        self.check(mechanism, classes, graph, "interrupt")

    def test_time_limit(self) -> None:
        classes, graph = family(1, 5, 3)
        self.check(shoal.design(classes, graph, "transport", 1.0, 0.3, time_limit=1e-3), classes, graph, "time limit")

    def test_progress(self) -> None:
        classes, graph = family(1, 3, 2)
        seen: list[tuple[int, int, float]] = []
        shoal.design(classes, graph, "covariance", 1.0, 0.3, iterations=5, progress=lambda *a: seen.append(a))
        assert seen[-1][0] == seen[-1][1]
        assert all(value <= 0 for _, _, value in seen)


@pytest.mark.parametrize("method", ["white", "paper", "additive", "transport"])
def test_noise_floor_holds_in_every_direction(method: str) -> None:
    rng = np.random.default_rng(5)
    roots = rng.standard_normal((3, 2, 2))
    classes = shoal.GaussianClasses(rng.standard_normal((3, 2)), roots @ np.swapaxes(roots, 1, 2))
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method, 1.0, 0.5, noise_floor=0.1, iterations=10)
    assert np.linalg.eigvalsh(mechanism.noise_cov).min() >= 0.1 * (1 - 1e-12)
    assert (mechanism.rho <= mechanism.budget).all()
