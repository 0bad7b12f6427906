"""Laws from samples: against scikit-learn, and with what real tables hold."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from sklearn.covariance import oas

import shoal
from shoal.laws.estimates import Moments, log_likelihoods, oas_weights, shrunk_covariances


def _table(n_labels: int, per_label: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    places = np.repeat(np.arange(n_labels), per_label)
    mixing = rng.normal(size=(k, k))
    rows = rng.normal(size=(n_labels * per_label, k)) @ mixing.T + 3 * rng.normal(size=(n_labels, k))[places]
    order = rng.permutation(len(rows))
    return rows[order], np.array([f"id{i}" for i in places])[order]


@pytest.mark.parametrize("k", [2, 7])
def test_shrinkage_is_that_of_scikit_learn(k):
    rng = np.random.default_rng(k)
    rows = rng.normal(size=(15, k)) * np.arange(1, k + 1)
    expected, weight = oas(rows, assume_centered=True)
    cov = rows.T @ rows / 15
    found = oas_weights(cov[None], np.array([15.0]))
    assert found == pytest.approx([weight], rel=1e-12)
    np.testing.assert_allclose((1 - found) * cov + found * np.trace(cov) / k * np.eye(k), expected, rtol=1e-12)


def test_summaries_of_pieces_are_that_of_the_whole():
    rows, labels = _table(5, 40, 3)
    rows = rows + 1e8  # cancellation would take half of the digits
    places = np.unique(labels, return_inverse=True)[1]
    whole, one, two = (
        Moments.from_rows(rows[part], places[part], 5) for part in (slice(None), slice(0, 77), slice(77, None))
    )
    both = one.merge(two)
    np.testing.assert_array_equal(both.counts, whole.counts)
    np.testing.assert_allclose(both.means, whole.means, rtol=1e-14)
    np.testing.assert_allclose(both.scatter, whole.scatter, rtol=1e-6)
    direct = np.cov(rows[places == 2].T) * 39
    np.testing.assert_allclose(both.scatter[2], direct, rtol=1e-6)


def test_likelihood_from_moments_is_that_of_the_rows():
    from scipy import stats

    rows, labels = _table(2, 30, 3)
    places = np.unique(labels, return_inverse=True)[1]
    moments = Moments.from_rows(rows, places, 2)
    covs = shrunk_covariances(moments, np.linalg.cholesky(moments.within), 10.0)
    found = log_likelihoods(moments, moments.means + 0.1, covs)
    expected = [
        stats.multivariate_normal(moments.means[i] + 0.1, covs[i]).logpdf(rows[places == i]).sum() for i in (0, 1)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_laws_are_close_to_the_true_ones_and_units_do_not_matter():
    rows, labels = _table(4, 2000, 3)
    classes = shoal.GaussianClasses.fit(rows, labels)
    assert classes.labels == ("id0", "id1", "id2", "id3")
    for i, label in enumerate(classes.labels):
        own = rows[labels == label]
        np.testing.assert_allclose(classes.means[i], own.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(classes.covs[i], np.cov(own.T), rtol=0.3, atol=0.3)
    assert classes.checks().holds
    unit = np.array([1e-6, 1.0, 1e3])
    scaled = shoal.GaussianClasses.fit(rows * unit, labels)
    np.testing.assert_allclose(scaled.covs, classes.covs * np.outer(unit, unit), rtol=1e-8)
    assert scaled.fitted.pooled_rows == classes.fitted.pooled_rows


def test_pooled_part_follows_the_data():
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(10), 400)
    alike = shoal.GaussianClasses.fit(rng.normal(size=(4000, 3)), labels)
    assert alike.fitted.pooled_rows >= 48
    widths = np.exp(rng.normal(size=10))[labels]
    unlike = shoal.GaussianClasses.fit(rng.normal(size=(4000, 3)) * widths[:, None], labels)
    assert unlike.fitted.pooled_rows <= 3
    assert not unlike.is_shared


def test_a_label_with_one_row_has_the_pooled_covariance():
    rows, labels = _table(3, 60, 2)
    classes = shoal.GaussianClasses.fit(np.vstack([rows, [[50.0, 50.0]]]), [*labels, "rare"])
    place = classes.labels.index("rare")
    assert classes.counts[place] == 1
    within = sum(np.cov(rows[labels == name].T) for name in sorted(set(labels))) / 3
    np.testing.assert_allclose(classes.covs[place], within, rtol=1e-9)
    assert classes.checks().smallest_delta == 1.0


def test_a_constant_column_stays_constant():
    rows, labels = _table(3, 60, 2)
    extra = np.column_stack([rows, np.full(len(rows), 7.0), np.where(labels == "id0", 1.0, 2.0)])
    classes = shoal.GaussianClasses.fit(extra, labels)
    assert not classes.covs[:, 2:, :].any()
    np.testing.assert_array_equal(classes.means[:, 2], 7.0)


def test_taking_labels_keeps_what_they_were_estimated_from():
    rows, labels = _table(3, 60, 2)
    classes = shoal.GaussianClasses.fit(rows, labels)
    part = classes.take([2, 0])
    np.testing.assert_array_equal(part.counts, classes.counts[[2, 0]])
    assert part.checks().labels == part.labels
    assert pl.DataFrame(part.checks().table()).height == 2


def test_the_guard_takes_the_laws_themselves():
    rows, labels = _table(3, 25, 2, seed=3)
    classes = shoal.GaussianClasses.fit(rows, labels)
    graph = shoal.NeighborGraph.complete(classes.labels)
    mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=200.0)
    guard = shoal.model_guard(mechanism, classes, n_draws=40)
    assert guard.rests_on_model
    assert guard.delta_at_confidence > guard.promise
    with pytest.raises(shoal.InputError, match="stated, not estimated"):
        shoal.model_guard(mechanism, shoal.GaussianClasses(classes.means, classes.covs, classes.labels))


@pytest.mark.parametrize("draw", ["normal", "student", "mixture"])
def test_checks_tell_gaussian_laws_from_others(draw):
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(8), 150)
    size = (len(labels), 3)
    rows = {
        "normal": lambda: rng.normal(size=size),
        "student": lambda: rng.standard_t(3, size=size),
        "mixture": lambda: rng.normal(size=size) + 6 * rng.integers(0, 2, size=(len(labels), 1)),
    }[draw]()
    checks = shoal.GaussianClasses.fit(rows + rng.normal(size=(8, 3))[labels], labels).checks()
    assert checks.holds == (draw == "normal")
    assert any("not follow a Gaussian" in said for said in checks.statements) == (draw != "normal")
    assert checks.smallest_delta == pytest.approx(3 / 150)


GOOD = np.random.default_rng(0).normal(size=(40, 2))
NAMES = np.repeat(["a", "b"], 20)


@pytest.mark.parametrize(
    ("samples", "labels", "message"),
    [
        (np.where(np.eye(40, 2) > 0, np.nan, GOOD), NAMES, "samples must be finite"),
        (np.where(np.eye(40, 2) > 0, np.inf, GOOD), NAMES, "samples must be finite"),
        ([["x", "y"]] * 40, NAMES, "samples must be a number, or numbers, and not text"),
        (GOOD, NAMES[:30], "one label for each of the 40 rows"),
        (GOOD, ["a"] * 40, "at least two labels"),
        (GOOD, [None, *NAMES[1:]], "some are missing"),
        (GOOD, np.where(np.arange(40) < 1, np.nan, 1.0), "some are missing"),
        (np.empty((0, 2)), [], "at least one row"),
        (GOOD[:2], NAMES[[0, 20]], "do not vary within any label"),
        (GOOD[[0, 1, 20]], NAMES[[0, 1, 20]], "too few rows"),
        (np.column_stack([GOOD, GOOD.sum(axis=1)]), NAMES, "follow from the others"),
    ],
)
def test_what_cannot_be_fitted_is_refused_without_data(samples, labels, message):
    with pytest.raises(shoal.InputError, match=message) as caught:
        shoal.GaussianClasses.fit(samples, labels)
    assert not any(f"{value:.3f}" in str(caught.value) for value in GOOD.ravel())


def test_a_column_that_one_row_alone_varies_in_is_fitted_whichever_rows_are_held_out():
    rng = np.random.default_rng(3)
    rows, names = rng.normal(size=(60, 2)), np.repeat(["a", "b"], 30)
    for odd in range(60):
        wide = np.column_stack([rows, np.where(np.arange(60) == odd, 1.0, 0.0)])
        laws = shoal.GaussianClasses.fit(wide, names)
        assert (np.linalg.eigvalsh(laws.covs) > 0).all()
        assert laws.checks().rows.sum() > 0


def test_two_columns_that_only_held_out_rows_tell_apart_are_fitted():
    rng = np.random.default_rng(4)
    rows, names = rng.normal(size=(60, 3)), np.repeat(["a", "b"], 30)
    rows[:, 2] = rows[:, 1]
    for odd in range(60):
        nearly = rows.copy()
        nearly[odd, 2] += 1.0
        assert (np.linalg.eigvalsh(shoal.GaussianClasses.fit(nearly, names).covs) > 0).all()
