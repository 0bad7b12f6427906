"""Gradients of ln δ, and the descent's pull-back, against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from design_cases import Array, family, random_covs

from shoal import GaussianClasses, NeighborGraph
from shoal.accounting.curve import NOTIONS
from shoal.accounting.gradient import add_log_delta_gradients, allocate_trace, log_deltas_with_trace
from shoal.designs.layout import Layout, Objective, objective_in_point
from shoal.designs.objectives import Laws, as_read_only, smoothed_divergence, smoothed_odds
from shoal.designs.problem import DesignProblem, Moves, budget_radii

PAIR = np.array([[0, 1]], dtype=np.intp)


def value_and_gradient(
    notion: str, epsilon: float, means: Array, covs: Array, directions: int = 2
) -> tuple[Array, Array, Array]:
    """ln δ of both directions, or of the one of a table; gradients [direction, label] in covariances and means."""
    k = means.shape[1]
    trace, out = allocate_trace(1, k), np.empty((1, directions))
    epsilons, factors = np.full((1, directions), epsilon), as_read_only(np.linalg.cholesky(covs))
    means, covs = as_read_only(means), as_read_only(covs)
    log_deltas_with_trace(NOTIONS[notion], epsilons, factors, covs, means, PAIR, trace, out)
    by_cov, by_mean = np.zeros((directions, 2, k, k)), np.zeros((directions, 2, k))
    for direction in range(directions):
        shares = np.zeros((1, directions))
        shares[0, direction] = 1.0
        add_log_delta_gradients(
            NOTIONS[notion], epsilons, out, shares, factors, PAIR, trace, by_cov[direction], by_mean[direction]
        )
    return out[0], by_cov, by_mean


def stencil(f, h: float) -> Array:
    """Five-point derivative at zero."""
    return np.asarray((8.0 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12.0 * h))


def check(notion: str, epsilon: float, means: Array, covs: Array, h: float, seed: int, directions: int = 2) -> None:
    k = means.shape[1]
    _, by_cov, by_mean = value_and_gradient(notion, epsilon, means, covs, directions)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        turn = rng.standard_normal((2, k, k))
        turn = turn + np.swapaxes(turn, 1, 2)
        step = rng.standard_normal((2, k))

        def moved(s: float, turn: Array = turn, step: Array = step) -> Array:
            return value_and_gradient(notion, epsilon, means + s * step, covs + s * turn, directions)[0]

        seen = stencil(moved, h)
        said = (by_cov * turn).sum(axis=(1, 2, 3)) + (by_mean * step).sum(axis=(1, 2))
        size = np.abs(by_cov).max(axis=(1, 2, 3)) + np.abs(by_mean).max(axis=(1, 2))
        assert (np.abs(said - seen) <= 3e-4 * size + 1e-9).all()


@pytest.mark.parametrize("directions", [2, 1], ids=["answer", "table"])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("notion", list(NOTIONS))
def test_gradient_of_random_pairs(notion: str, k: int, directions: int) -> None:
    rng = np.random.default_rng([1, k])
    covs = random_covs(rng, 2, k) + 0.2 * np.eye(k)
    check(notion, 0.7, rng.standard_normal((2, k)), covs, 1e-3, k, directions)


@pytest.mark.parametrize("notion", ["dp", "pdp", "pdp-two-sided"])
@pytest.mark.parametrize(
    ("gap", "epsilon"), [(12.0, 0.5), (0.4, 6.0), (0.4, 25.0)], ids=["delta near 1", "delta small", "delta tiny"]
)
def test_gradient_at_the_ends(notion: str, gap: float, epsilon: float) -> None:
    rng = np.random.default_rng(3)
    covs = random_covs(rng, 2, 2) + 0.5 * np.eye(2)
    value, _, _ = value_and_gradient(notion, epsilon, np.array([[0.0, 0.0], [gap, 0.3]]), covs)
    assert -0.05 < value.max() < 0.0 if gap > 1 else value.max() < -4.0
    check(notion, epsilon, np.array([[0.0, 0.0], [gap, 0.3]]), covs, 3e-4, 5)


@pytest.mark.parametrize("notion", ["dp", "pdp"])
def test_gradient_of_nearly_equal_laws(notion: str) -> None:
    rng = np.random.default_rng(11)
    cov = random_covs(rng, 1, 3)[0] + np.eye(3)
    tilt = random_covs(rng, 1, 3)[0]
    means = np.array([np.zeros(3), 1e-4 * rng.standard_normal(3)])
    check(notion, 1e-4, means, np.array([cov, cov + 1e-4 * tilt]), 3e-7, 2)


def test_gradient_of_equal_covariances() -> None:
    """All eigenvalues coincide: differentiating through the eigendecomposition would fail here."""
    check("dp", 0.5, np.array([[0.0, 0.0, 0.0], [1.0, -0.5, 0.2]]), np.array([np.eye(3), np.eye(3)]), 1e-3, 4)


def objectives(problem: DesignProblem, sharpness: float) -> dict[str, Objective]:
    """What a search minimizes: the smoothed log odds over all edges, and the smoothed ln KL."""
    edges = np.arange(len(problem.pairs))
    return {
        "odds": lambda laws: smoothed_odds(problem, edges, sharpness, laws),
        "divergence": lambda laws: smoothed_divergence(problem, sharpness, laws),
    }


@pytest.mark.parametrize("objective", ["odds", "divergence"])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("shifts", [False, True])
def test_pull_back(objective: str, mapped: bool, shifts: bool) -> None:
    """The gradient in the raw variables, with slack."""
    classes, graph = family(5, n=3, k=2)
    problem = DesignProblem.of(classes, graph, 1.0, 0.4, noise_floor=0.02)
    rng = np.random.default_rng(8)
    moves = Moves(
        rng.standard_normal((3, 2)) * np.array([0.02, 1.0, 1.0])[:, None],
        rng.standard_normal((3, 2, 2)) if mapped else None,
        rng.standard_normal((3, 2, 2)),
    )
    layout = Layout(problem, mapped, shifts)
    point = layout.point_of_moves(moves.within_budget(problem)) * rng.uniform(
        0.7, 1.4, layout.point_of_moves(moves).size
    )
    point += 0.05
    chosen = objectives(problem, 3.0)[objective]

    def value(x: Array) -> float:
        return objective_in_point(layout, chosen, x)[0]

    spent = layout.moves(point)
    assert (spent.spent <= budget_radii(problem) ** 2 * (1 + 1e-12)).all()
    gradient = objective_in_point(layout, chosen, point)[1]
    for _ in range(4):
        step = rng.standard_normal(len(point))
        seen = stencil(lambda s, step=step: np.array(value(point + s * step)), 1e-4)
        assert seen == pytest.approx(gradient @ step, rel=1e-3, abs=2e-4 * np.abs(gradient).max())


def test_equal_laws_have_no_gradient() -> None:
    classes = GaussianClasses(np.zeros((2, 2)), np.eye(2))
    problem = DesignProblem.of(classes, NeighborGraph.complete(classes.labels), 1.0, 0.5)
    layout = Layout(problem, False, True)
    point = layout.point_of_moves(Moves(np.zeros((2, 2)), None, np.stack([0.3 * np.eye(2)] * 2)))
    value, gradient = objective_in_point(layout, objectives(problem, 1.0)["odds"], point)
    assert value < -1e5
    assert not gradient.any()


@pytest.mark.parametrize("directions", [2, 1], ids=["answer", "table"])
@pytest.mark.parametrize("k", [1, 3])
def test_divergence_of_laws(k: int, directions: int) -> None:
    """Value against the definition, edge by edge; gradients in every mean and covariance against finite differences."""
    rng = np.random.default_rng(k)
    n = 4
    means, covs = rng.standard_normal((n, k)), random_covs(rng, n, k) + 0.3 * np.eye(k)
    classes = GaussianClasses(means, covs)
    graph = NeighborGraph.from_edges(classes.labels, [("0", "1"), ("1", "2"), ("0", "3")])
    scope = "answer" if directions == 2 else "table"
    problem = DesignProblem.of(classes, graph, 1.0, 0.4, scope=scope)

    def laws(means: Array, covs: Array) -> Laws:
        return Laws(means, covs, np.linalg.cholesky(covs))

    def kl(i: int, j: int) -> float:
        gap, inverse = means[i] - means[j], np.linalg.inv(covs[j])
        log_ratio = np.linalg.slogdet(covs[j])[1] - np.linalg.slogdet(covs[i])[1]
        return float(0.5 * (np.trace(inverse @ covs[i]) - k + gap @ inverse @ gap + log_ratio))

    there, back = (np.array([kl(*pair[::step]) for pair in problem.pairs]) for step in (1, -1))
    own = there + back if directions == 1 else np.concatenate([there, back])
    sharpness = 5.0
    value, by_cov, by_mean = smoothed_divergence(problem, sharpness, laws(means, covs))
    assert value == pytest.approx(np.log((own**sharpness).sum()) / sharpness, rel=1e-12)
    for _ in range(3):
        turn, step = rng.standard_normal((n, k, k)), rng.standard_normal((n, k))
        turn = turn + np.swapaxes(turn, 1, 2)
        seen = stencil(
            lambda s, turn=turn, step=step: np.array(
                smoothed_divergence(problem, sharpness, laws(means + s * step, covs + s * turn))[0]
            ),
            1e-4,
        )
        assert seen == pytest.approx((by_cov * turn).sum() + (by_mean * step).sum(), rel=1e-6, abs=1e-8)
