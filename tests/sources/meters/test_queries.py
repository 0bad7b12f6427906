"""The released quantity and its law agree, for each query model; the paper's does not and says so."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import shoal
from shoal import Forecasts, InputError

H, T = 3, 40


@cache
def some_forecasts() -> Forecasts:
    readings = shoal.simulate_meters(2, 8, step_minutes=60)
    return shoal.forecast(readings, order=(1, 1), train_days=7, horizon=H, season="day")


def predictive(
    names: tuple[str, ...], log_mean: np.ndarray, error_cov: np.ndarray, mean_cov: np.ndarray, season_part: np.ndarray
) -> Forecasts:
    """Forecasts with given laws."""
    season = replace(some_forecasts().season, scale=np.zeros(len(names)))
    return replace(
        some_forecasts(), households=names, log_mean=log_mean, error_cov=error_cov, mean_cov=mean_cov,
        season_part=season_part, season=season,
    )  # fmt: skip


def autocovariances(ar: float, ma: float, n: int) -> np.ndarray:
    """ARMA(1, 1) in closed form (Brockwell & Davis 1991, example 3.3.3)."""
    first = (1 + 2 * ar * ma + ma**2) / (1 - ar**2)
    second = (1 + ar * ma) * (ar + ma) / (1 - ar**2)
    return np.concatenate([[first], second * ar ** np.arange(n - 1)])


@pytest.fixture(scope="module")
def gaussian_process() -> tuple[Forecasts, np.ndarray, np.ndarray]:
    """Predictive laws of two households by conditioning the joint covariance of past and future."""
    rng = np.random.default_rng(5)
    season = np.array([[0.5, 0.2, -0.1], [1.0, 0.9, 0.8]])
    means, errors, spreads, joints, gains = [], [], [], [], []
    for ar, ma in ((0.8, 0.3), (-0.4, 0.6)):
        gamma = autocovariances(ar, ma, T + H)
        joint = gamma[np.abs(np.subtract.outer(np.arange(T + H), np.arange(T + H)))]
        gain = np.linalg.solve(joint[:T, :T], joint[:T, T:]).T
        history = np.linalg.cholesky(joint[:T, :T]) @ rng.standard_normal(T)
        means.append(gain @ history)
        spreads.append(gain @ joint[:T, T:])
        errors.append(joint[T:, T:] - spreads[-1])
        joints.append(joint)
        gains.append(gain)
    law = predictive(("a", "b"), np.array(means) + season, np.array(errors), np.array(spreads), season)
    return law, np.array(joints), np.array(gains)


def test_point_is_a_constant(gaussian_process: tuple[Forecasts, np.ndarray, np.ndarray]) -> None:
    law = gaussian_process[0]
    family = law.classes()
    np.testing.assert_array_equal(family.means, law.answer())
    np.testing.assert_array_equal(family.covs, 0)
    assert family.labels == ("a", "b")


def test_trajectory_is_a_draw_from_its_law(gaussian_process: tuple[Forecasts, np.ndarray, np.ndarray]) -> None:
    law = gaussian_process[0]
    family = law.classes("trajectory")
    # The draw is affine in the normals: its law is exact from the images of the unit vectors.
    origin = law.answer("trajectory", np.zeros((2, H)))
    root = np.stack([law.answer("trajectory", np.tile(e, (2, 1))) - origin for e in np.eye(H)], axis=2)
    np.testing.assert_array_equal(origin, family.means)
    np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2), family.covs, atol=1e-14)


def test_marginal_is_the_forecast_over_histories(
    gaussian_process: tuple[Forecasts, np.ndarray, np.ndarray],
) -> None:
    law, joints, gains = gaussian_process
    family = law.classes("marginal")
    rng = np.random.default_rng(6)
    draws = 200_000
    for i in range(2):
        histories = rng.standard_normal((draws, T)) @ np.linalg.cholesky(joints[i, :T, :T]).T
        released = histories @ gains[i].T + law.season_part[i]
        error = np.abs(np.cov(released.T) - family.covs[i]).max() / family.covs[i].max()
        assert error < 5 * np.sqrt(2 / draws)
        std = np.sqrt(np.diagonal(family.covs[i]))
        assert (np.abs(released.mean(axis=0) - family.means[i]) < 5 * std / np.sqrt(draws)).all()


def test_total_variance(gaussian_process: tuple[Forecasts, np.ndarray, np.ndarray]) -> None:
    """Law of total variance: spread of the mean plus prediction error is the covariance of the future."""
    law, joints, _ = gaussian_process
    np.testing.assert_allclose(law.mean_cov + law.error_cov, joints[:, T:, T:], atol=1e-12)


def test_singular_covariances_of_long_horizons() -> None:
    """Rank two in eight dimensions, over scales of 1e-8: rounding must not be refused, a wrong matrix must."""
    rng = np.random.default_rng(7)
    factor = rng.standard_normal((30, 8, 2)) * np.logspace(0, -4, 8)[None, :, None]
    covs = factor @ np.swapaxes(factor, 1, 2)
    noisy = covs + 1e-12 * covs[:, :1, :1] * rng.standard_normal((30, 8, 8)) * np.sqrt(
        np.einsum("ni,nj->nij", np.diagonal(covs, axis1=1, axis2=2), np.diagonal(covs, axis1=1, axis2=2))
    )
    labels = tuple(str(i) for i in range(30))
    law = predictive(labels, np.zeros((30, 8)), noisy, noisy, np.zeros((30, 8)))
    for query in ("trajectory", "marginal"):
        std = np.sqrt(np.diagonal(covs, axis1=1, axis2=2))
        gap = np.abs(law.classes(query).covs - covs) / (std[:, :, None] * std[:, None, :])
        assert gap.max() < 1e-9
    wrong = covs - 0.5 * np.einsum("ni,ij->nij", np.diagonal(covs, axis1=1, axis2=2), np.eye(8))
    with pytest.raises(InputError, match="positive semidefinite"):
        predictive(labels, law.log_mean, wrong, wrong, law.season_part).classes("marginal")


def test_as_in_paper_warns_and_differs(gaussian_process: tuple[Forecasts, np.ndarray, np.ndarray]) -> None:
    law = gaussian_process[0]
    with pytest.warns(UserWarning, match="leaks more"):
        family = law.classes("as_in_paper")
    np.testing.assert_array_equal(family.covs, law.classes("trajectory").covs)
    np.testing.assert_array_equal(law.answer("as_in_paper"), law.answer("point"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for query in ("point", "trajectory", "marginal"):
            law.classes(query)


def test_refusals(gaussian_process: tuple[Forecasts, np.ndarray, np.ndarray]) -> None:
    law = gaussian_process[0]
    with pytest.raises(InputError, match="query must be one of"):
        law.classes("mean")
    for normals in (None, np.zeros((2, H + 1))):
        with pytest.raises(InputError, match="normals"):
            law.answer("trajectory", normals)
