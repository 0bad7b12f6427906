"""GaussianClasses: validated, immutable, and stored without needless copies."""

import numpy as np
import pytest

import shoal
from families import complete, random_family, random_laws


def test_attributes_and_defaults():
    means, covs = random_laws(3, 2, 0)
    classes = shoal.GaussianClasses(means, covs)
    assert (classes.n_classes, classes.n_dims, classes.labels) == (3, 2, ("0", "1", "2"))
    assert np.array_equal(classes.means, means)
    assert np.array_equal(classes.covs, covs)
    assert shoal.GaussianClasses(means, covs, labels=[7, "b", "c"]).labels == ("7", "b", "c")


def test_the_callers_arrays_are_copied_and_ours_are_read_only():
    means, covs = random_laws(3, 2, 0)
    kept = covs.copy()
    classes = shoal.GaussianClasses(means, covs)
    means[:] = 99
    covs[:] = 99
    assert np.array_equal(classes.covs, kept)
    for array in (classes.means, classes.covs, classes.cholesky, classes.stored_covs):
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_shared_and_diagonal_covariances_are_not_materialized():
    n, k = 50, 4
    means = np.zeros((n, k))
    shared = shoal.GaussianClasses(means, np.eye(k))
    assert shared.is_shared
    assert shared.stored_covs.shape == (1, k, k)
    assert shared.covs.shape == (n, k, k)
    assert shared.covs.strides[0] == 0
    diagonal = shoal.GaussianClasses.diagonal(means, np.ones((n, k)))
    assert diagonal.is_diagonal
    assert not diagonal.is_shared
    assert diagonal.stored_variances.shape == (n, k)
    both = shoal.GaussianClasses.diagonal(means, np.ones(k))
    assert both.is_shared
    assert both.is_diagonal
    assert np.array_equal(both.covs, shared.covs)


def test_deterministic_has_no_variance():
    classes = shoal.GaussianClasses.deterministic([[1.0, 2.0], [3.0, 4.0]])
    assert not classes.covs.any()
    assert np.isinf(classes.condition_number).all()


def test_tiny_asymmetry_is_repaired():
    cov = np.array([[2.0, 0.5], [0.5 * (1 + 1e-12), 1.0]])
    found = shoal.GaussianClasses([[0.0, 0.0]], [cov]).covs[0]
    assert np.array_equal(found, found.T)
    assert np.allclose(found, cov, rtol=1e-11)


def test_rounding_below_zero_is_rank_deficiency():
    direction = np.array([[1.0], [1.0 / 3.0]])
    classes = shoal.GaussianClasses([[0.0, 0.0]], [direction @ direction.T])
    assert np.isinf(classes.condition_number[0])


def test_factors_reproduce_the_covariances():
    _, covs = random_laws(3, 4, 1)
    scale = np.array([1e-6, 1.0, 1e3, 1e6])
    classes = shoal.GaussianClasses(np.zeros((3, 4)), covs * np.outer(scale, scale))
    rebuilt = classes.cholesky @ classes.cholesky.transpose(0, 2, 1)
    assert np.allclose(rebuilt / np.outer(scale, scale), covs, rtol=1e-13)
    # The condition number is that of the correlations: units do not matter.
    assert np.allclose(
        classes.condition_number, shoal.GaussianClasses(np.zeros((3, 4)), covs).condition_number, rtol=1e-6
    )


def test_take_keeps_the_form_and_the_order():
    means, covs = random_laws(4, 2, 2)
    names = list("abcd")
    full = shoal.GaussianClasses(means, covs, names).take([2, 0])
    assert full.labels == ("c", "a")
    assert np.array_equal(full.covs, covs[[2, 0]])
    shared = shoal.GaussianClasses(means, covs[0], names).take([3])
    assert shared.is_shared
    assert shared.labels == ("d",)
    diagonal = shoal.GaussianClasses.diagonal(means, np.ones(2), names).take([1, 2])
    assert diagonal.is_diagonal
    assert diagonal.is_shared
    assert np.array_equal(diagonal.means, means[[1, 2]])


@pytest.mark.parametrize("noise", [0.5, [0.5, 2.0], [[0.5, 0.1], [0.1, 2.0]]])
def test_noise_adds_its_covariance(noise):
    means, covs = random_laws(3, 2, 3)
    matrix = np.asarray(noise) if np.ndim(noise) == 2 else np.diag(np.broadcast_to(noise, 2))
    for classes in (
        shoal.GaussianClasses(means, covs),
        shoal.GaussianClasses(means, covs[0]),
        shoal.GaussianClasses.diagonal(means, np.ones((3, 2))),
        shoal.GaussianClasses.deterministic(means),
    ):
        noisy = classes.with_noise(noise)
        assert np.allclose(noisy.covs, classes.covs + matrix, rtol=1e-15)
        assert (noisy.means == means).all()
        assert noisy.is_shared == classes.is_shared
        assert noisy.labels == classes.labels


def test_joint_stacks_means_and_blocks():
    first, second = random_family(3, 2, 4), random_family(3, 1, 5)
    block = 0.1 * np.ones((2, 1))
    joint = shoal.GaussianClasses.joint([first, second], {(0, 1): block})
    assert joint.n_dims == 3
    assert np.array_equal(joint.means, np.concatenate([first.means, second.means], axis=1))
    assert np.array_equal(joint.covs[:, :2, :2], first.covs)
    assert np.array_equal(joint.covs[:, 2:, 2:], second.covs)
    assert np.array_equal(joint.covs[:, :2, 2:], np.broadcast_to(block, (3, 2, 1)))
    assert np.array_equal(joint.covs, joint.covs.transpose(0, 2, 1))


def test_joint_of_the_same_noise_used_twice():
    """Two answers with one noise: their difference has no noise, so a gap there gives the label away."""
    means = np.array([[0.0], [1.0]])
    part = shoal.GaussianClasses(means, np.eye(1))
    other = shoal.GaussianClasses(2 * means, np.eye(1))
    joint = shoal.GaussianClasses.joint([part, other], {(0, 1): np.eye(1)})
    assert shoal.privacy_curve(joint, complete(joint), 5.0).delta_upper == 1.0
    same = shoal.GaussianClasses.joint([part, part], {(0, 1): np.eye(1)})
    alone = shoal.privacy_curve(part, complete(part), 0.5)
    assert shoal.privacy_curve(same, complete(same), 0.5).delta == pytest.approx(alone.delta, rel=1e-9)


def test_repr_says_what_it_is_and_no_data():
    text = repr(shoal.GaussianClasses([[123.456]], [[[789.0]]], ["alice"]))
    assert "1 labels" in text
    assert not any(secret in text for secret in ("123", "789", "alice"))


def test_conditioning_is_the_closed_form() -> None:
    """Against the inverse of the precision matrix: Σ = (Λ_ff)⁻¹, μ = μ_f − Λ_ff⁻¹ Λ_fo (x − μ_o)."""
    rng = np.random.default_rng(4)
    roots = rng.standard_normal((3, 5, 7))
    classes = shoal.GaussianClasses(
        rng.standard_normal((3, 5)), roots @ np.swapaxes(roots, 1, 2), labels=["a", "b", "c"]
    )
    at, others = [3, 0], [1, 2, 4]
    values = rng.standard_normal((3, 2))
    after = classes.condition(values, at)
    assert after.labels == classes.labels
    for i in range(3):
        precision = np.linalg.inv(classes.covs[i])
        cov = np.linalg.inv(precision[np.ix_(others, others)])
        mean = classes.means[i, others] - cov @ precision[np.ix_(others, at)] @ (values[i] - classes.means[i, at])
        assert after.covs[i] == pytest.approx(cov, rel=1e-9, abs=1e-12)
        assert after.means[i] == pytest.approx(mean, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("observed", "at", "message"),
    [
        ([1.0], [], "at must hold between 1 and 1 positions"),
        ([1.0, 2.0], [0, 1], "at must hold between 1 and 1 positions"),
        ([1.0], [2], "positions between 0 and 1"),
        ([1.0], [0.5], "at must hold between 1 and 1 positions"),
        ([1.0, 2.0], [0], "observed must have shape"),
        ([np.nan], [0], "observed must be finite"),
    ],
)
def test_conditioning_refuses(observed: list[float], at: list[float], message: str) -> None:
    classes = shoal.GaussianClasses([[0.0, 0.0]], [[1.0, 0.5], [0.5, 1.0]])
    with pytest.raises(shoal.InputError, match=message):
        classes.condition(observed, at)
    with pytest.raises(shoal.InputError, match="fixed by the others, or do not vary"):
        shoal.GaussianClasses.deterministic([[0.0, 1.0]]).condition([0.0], [0])
