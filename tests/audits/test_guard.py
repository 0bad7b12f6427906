"""How δ moves with errors of the class model."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import audit_cases as cases
import numpy as np
import pytest

import shoal
from shoal.audits.guard import _draw_plausible_laws, _training_sizes
from shoal.errors import InputError


def test_more_training_brings_the_plausible_deltas_to_the_promise():
    mechanism = cases.random_laws("transport")
    widths = []
    for n in (20, 200, 20_000):
        guard = shoal.model_guard(mechanism, n, n_draws=30)
        widths.append(np.quantile(guard.deltas, 0.95) - np.quantile(guard.deltas, 0.05))
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0
    assert np.median(guard.deltas) == pytest.approx(guard.promise, rel=0.2)
    assert guard.rests_on_model


def test_little_training_shows_a_worse_delta_than_promised():
    guard = shoal.model_guard(cases.random_laws("transport"), 20, n_draws=30)
    assert guard.delta_at_confidence > 1.5 * guard.promise
    assert (guard.deltas > guard.promise).mean() > 0.5
    assert guard.delta_at_confidence >= np.quantile(guard.deltas, 0.95)


def test_a_small_entry_beside_a_large_one_is_as_uncertain():
    classes = shoal.GaussianClasses(np.zeros((1, 2)), np.array([[[1e12, 0.0], [0.0, 1e-4]]]))
    rng = np.random.default_rng(4)
    drawn = np.array(
        [_draw_plausible_laws(classes, _training_sizes(classes, 20), rng).covs[0, 1, 1] for _ in range(200)]
    )
    assert drawn.min() > 0
    assert drawn.std() > 0.2e-4


def test_plausible_laws_have_the_posterior_moments():
    """E S = ν/(ν − k − 1) Σ for the inverse Wishart law, and m has covariance E S / n around μ."""
    classes = cases.random_laws(n=2).classes
    n, k = 30, 3
    rng = np.random.default_rng(1)
    estimates = _training_sizes(classes, n)
    draws = [_draw_plausible_laws(classes, estimates, rng) for _ in range(1500)]
    covs = np.mean([laws.covs for laws in draws], axis=0)
    scale = (n - 1) / (n - 1 - k - 1)
    assert covs == pytest.approx(scale * classes.covs, abs=0.03 * np.abs(classes.covs).max())
    means = np.stack([laws.means for laws in draws])
    assert means.mean(axis=0) == pytest.approx(classes.means, abs=0.03)
    for i in range(2):
        spread = np.cov(means[:, i], rowvar=False)
        assert spread == pytest.approx(scale * classes.covs[i] / n, abs=0.1 * np.abs(classes.covs[i]).max() / n)


def test_singular_laws_stay_on_their_support():
    along = np.array([[1.0], [-2.0], [0.5]])
    classes = shoal.GaussianClasses(np.zeros((2, 3)), along @ along.T)
    covs = _draw_plausible_laws(classes, _training_sizes(classes, 10), np.random.default_rng(2)).covs
    null = np.array([[2.0, 1.0, 0.0], [-0.5, 0.0, 1.0]])
    assert null @ covs[0] @ null.T == pytest.approx(np.zeros((2, 2)), abs=1e-12)
    assert np.trace(covs[0]) > 0


def test_constants_do_not_rest_on_the_model():
    mechanism = cases.constants("covariance")
    guard = shoal.model_guard(mechanism, 5)
    assert not guard.rests_on_model
    assert guard.delta_at_confidence == guard.promise
    assert guard.noise_alone == pytest.approx(guard.promise, rel=1e-9)
    assert "does not" not in guard.statements[0]
    assert "constant given the label" in guard.statements[0]


def test_finite_precision_is_part_of_every_delta():
    """All laws alike: the ideal δ is 0, and what is left is what rounding may show."""
    classes = shoal.GaussianClasses.deterministic([[0.0, 1.0], [2.0, 0.5], [1.0, 3.0]])
    graph = shoal.NeighborGraph.complete(classes.labels)
    price = shoal.perfect_rho(classes, graph) * (1 + 1e-6)
    mechanism = shoal.design(classes, graph, "transport", 1.0, price)
    guard = shoal.model_guard(mechanism, 5)
    assert mechanism.certificate.finite_precision > 0
    assert guard.noise_alone >= mechanism.certificate.finite_precision
    assert guard.noise_alone == pytest.approx(guard.promise, rel=1e-9, abs=0)


def test_the_gain_moves_answers_that_are_not_the_class_means():
    """q̃ = q + shift + gain (q − μ): with A = I + gain the gaps of the answers shrink by A, exactly."""
    mechanism = cases.random_laws("transport")
    assert mechanism.gain is not None
    rng = np.random.default_rng(3)
    moved = mechanism.classes.means + 0.2 * rng.standard_normal((4, 3))
    noisy = mechanism.noise_cov + 0.05 * np.eye(3)
    mechanism = replace(mechanism, noise_cov=noisy)
    sent = np.stack(
        [mechanism.sample(np.tile(q, (20_000, 1)), a, seed=1).mean(axis=0) for a, q in zip("0123", moved, strict=True)]
    )
    laws = shoal.GaussianClasses(sent, noisy)
    assert mechanism.delta_for(shoal.GaussianClasses.deterministic(moved))[0] == pytest.approx(
        shoal.privacy_curve(laws, mechanism.graph, 1.0).delta, abs=0.02
    )


def test_queries_that_are_true_by_construction_or_not_at_all():
    mechanism = cases.random_laws("white")
    drawn = shoal.model_guard(mechanism, 10, query="trajectory")
    assert not drawn.rests_on_model
    assert drawn.delta_at_confidence == drawn.promise
    paper = shoal.model_guard(mechanism, 10, query="as_in_paper")
    assert paper.delta_at_confidence == paper.noise_alone > paper.promise
    assert "does not hold" in paper.statements[0]


def test_training_from_forecasts():
    pytest.importorskip("polars")
    readings = shoal.simulate_meters(4, days=8, step_minutes=60, seed=1)
    forecasts = shoal.forecast(readings, order=(1, 0), train_days=7, horizon=3, season="day")
    classes = forecasts.classes("marginal")
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, method="white", epsilon=1.0, rho=0.5)
    estimates = _training_sizes(classes, forecasts)
    assert estimates.n_mean.tolist() == [7.0] * len(classes.labels)
    assert (estimates.degrees == forecasts.models.n_obs - 24 - 2).all()
    guard = shoal.model_guard(mechanism, forecasts, query="marginal", n_draws=30)
    assert guard.delta_at_confidence > guard.promise
    assert forecasts.step == timedelta(hours=1)


@pytest.mark.parametrize(
    ("training", "message"),
    [(3, "training is too short"), ([9, 9], "training must be a number"), (np.nan, "finite")],
)
def test_bad_training_is_refused(training, message):
    with pytest.raises(InputError, match=message):
        shoal.model_guard(cases.random_laws(), training)
