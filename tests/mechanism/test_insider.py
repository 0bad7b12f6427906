"""Someone who knows all other answers, against the deviation that is stated: never closer, and about as close."""

from __future__ import annotations

import numpy as np
import pytest

import shoal

RNG = np.random.default_rng(3)
MEANS = RNG.standard_normal((5, 3))
ROOTS = RNG.standard_normal((5, 3, 3)) / 2
LAWS = shoal.GaussianClasses(MEANS, ROOTS @ ROOTS.swapaxes(1, 2) + 0.2 * np.eye(3))
CONSTANTS = shoal.GaussianClasses.deterministic(MEANS)
GRAPH = shoal.NeighborGraph.complete(LAWS.labels)
TABLES = 4000


@pytest.mark.parametrize("method", ["white", "additive", "transport"])
@pytest.mark.parametrize("rho", [0.05, 0.5])
def test_a_random_answer_regressed_on_its_row(method, rho):
    """The best predictor of a Gaussian answer is linear in the row."""
    mechanism = shoal.design(LAWS, GRAPH, method, epsilon=1.0, rho=rho, iterations=10)
    for i, name in enumerate(LAWS.labels[:2]):
        true = np.random.default_rng(i).multivariate_normal(LAWS.means[i], LAWS.covs[i], 20 * TABLES)
        row = np.asarray(mechanism.sample(true, name, seed=100 + i))
        known = np.column_stack([row, np.ones(len(row))])
        left = (true - known @ np.linalg.lstsq(known, true, rcond=None)[0]).std(axis=0).min()
        stated = mechanism.insider_error[i]
        assert stated <= left * 1.02 + 1e-9
        assert stated >= left * 0.97 - 1e-5


def test_white_noise_on_constants_leaves_its_own_deviation():
    mechanism = shoal.design(CONSTANTS, GRAPH, "white", epsilon=1.0, rho=0.49)
    assert mechanism.insider_error == pytest.approx(0.7, rel=1e-5)
    assert (mechanism.insider_error <= 0.7).all()


def test_the_mean_is_solved_for_the_last_answer():
    mechanism = shoal.calibrate(CONSTANTS, GRAPH, "mean", epsilon=1.0, delta=1e-6)
    rows = {name: np.asarray(mechanism.sample(np.tile(q, (TABLES, 1)), name, seed=100 + i))
            for i, (name, q) in enumerate(zip(CONSTANTS.labels, MEANS, strict=True))}  # fmt: skip
    found = len(MEANS) * np.mean(list(rows.values()), axis=0) - MEANS[1:].sum(axis=0)
    error = (found - MEANS[0]).std(axis=0).min()
    assert mechanism.insider_error[0] == pytest.approx(error, rel=0.05)
    assert mechanism.insider_error[0] < 1e-3


def test_the_center_moves_as_is_stated():
    """Two answers: each is known to twice the noise of the average row. Three in one plane: by a small step."""
    two = shoal.GaussianClasses.deterministic([[0.0, 0.0], [2.0, 0.0]])
    pair = shoal.NeighborGraph.complete(two.labels)
    made = shoal.design(two, pair, "center", epsilon=1.0, rho=shoal.perfect_rho(two, pair) * 1.001)
    std = float(np.sqrt(made.noise_cov[0, 0, 0]))
    assert made.insider_error == pytest.approx(2 * std / np.sqrt(2), rel=1e-3)

    from shoal.mechanism.insider import _center_derivative

    points = np.array([[1.0, 0.1, 0.0], [-0.6, 0.9, 0.0], [-0.5, -0.8, 0.0]])

    def center(answers: np.ndarray) -> np.ndarray:
        laws = shoal.GaussianClasses.deterministic(answers)
        graph = shoal.NeighborGraph.complete(laws.labels)
        return shoal.design(laws, graph, "center", 1.0, shoal.perfect_rho(laws, graph) * 1.001).output.means[0]

    change, _ = _center_derivative(points, center(points), 0)
    step = 1e-3
    moved = np.stack(
        [(center(points + step * np.outer([1, 0, 0], e)) - center(points)) / step for e in np.eye(3)], axis=1
    )
    np.testing.assert_allclose(change, moved, atol=0.02)


def test_who_is_inside_the_ball_is_known_to_be_there_and_who_is_alone_is_seen():
    inside = shoal.GaussianClasses.deterministic([[0.0], [2.0], [1.2]])
    graph = shoal.NeighborGraph.complete(inside.labels)
    made = shoal.design(inside, graph, "center", epsilon=1.0, rho=shoal.perfect_rho(inside, graph) * 1.001)
    assert made.insider_error[2] == pytest.approx(1 / np.sqrt(3), rel=1e-3)
    assert made.insider_error[2] <= 1 / np.sqrt(3)
    lonely = shoal.NeighborGraph.from_edges(inside.labels, [("0", "1")])
    alone = shoal.calibrate(inside, lonely, "mean", epsilon=1.0, delta=1e-6)
    assert alone.insider_error[2] == 0.0


def test_noise_without_noise_leaves_nothing():
    bare = shoal.design(LAWS, GRAPH, "none", epsilon=1.0, rho=1.0)
    assert (bare.insider_error == 0.0).all()
    assert (shoal.design(CONSTANTS, GRAPH, "none", epsilon=1.0, rho=1.0).insider_error == 0.0).all()


# ------------------------------------------------------------------ what a certificate rests on


def test_a_certificate_says_what_it_rests_on():
    rho = shoal.perfect_rho(LAWS, GRAPH) * 0.6
    made = shoal.design(LAWS, GRAPH, "transport", epsilon=1.0, rho=rho, iterations=20)
    white = shoal.design(LAWS, GRAPH, "white", epsilon=1.0, rho=rho)
    assert made.certificate.noise_share < 0.01 < 0.99 < white.certificate.noise_share <= 1.0
    assert "noise" in repr(made)
    assert "noise" not in repr(white)
    constant = CONSTANTS.with_noise(rho)
    alone = float(shoal.privacy_curve(constant, GRAPH, 1.0).delta)
    assert alone <= white.certificate.delta_noise_alone <= alone * (1 + 1e-6) + 1e-12
    assert white.certificate.delta_noise_alone >= white.certificate.delta_upper
    assert made.certificate.laws_checked is None
    for shown in (made._repr_html_(), white._repr_html_()):
        assert "it rests on" in shown
        assert "knows the others" in shown
    on_constants = shoal.design(CONSTANTS, GRAPH, "white", epsilon=1.0, rho=1.0)
    assert on_constants.certificate.delta_noise_alone == on_constants.certificate.delta_upper


def test_fitted_laws_are_checked_or_rejected_in_the_certificate():
    rng = np.random.default_rng(0)
    names = np.repeat(["a", "b"], 300)
    for rows, holds in ((rng.standard_normal((600, 2)), True), (rng.standard_t(2, (600, 2)), False)):
        laws = shoal.GaussianClasses.fit(rows, names)
        made = shoal.design(laws, shoal.NeighborGraph.complete(laws.labels), "white", epsilon=1.0, rho=0.5)
        assert made.certificate.laws_checked is holds
        assert ("reject" in str(made.certificate)) is not holds
