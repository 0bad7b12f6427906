"""LabelHider: scikit-learn's own checks, what it promises, what it refuses."""

from __future__ import annotations

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import shoal
from shoal.noise.source import NotPrivate
from shoal.product.sources import hider as room

NO_LABELS = "it calls transform without labels, and what is done to a row depends on its label"
EXPECTED = dict.fromkeys(
    (
        "check_estimators_dtypes",
        "check_dtype_object",
        "check_f_contiguous_array_estimator",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_dict_unchanged",
        "check_fit_idempotent",
    ),
    NO_LABELS,
) | {
    "check_estimators_pickle": "a pickle holds the settings, not what was fitted",
}


def _table(per_label: int = 60, k: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], per_label)
    return rng.normal(size=(len(y), k)) + np.repeat([0.0, 1.0, 2.0], per_label)[:, None], y


@pytest.fixture(scope="module")
def fitted() -> shoal.LabelHider:
    return shoal.LabelHider(epsilon=1.0, delta=1e-5).fit(*_table())


def test_scikit_learn_finds_nothing_else(monkeypatch):
    monkeypatch.setattr(room, "GUARD_WORK", 0)
    monkeypatch.setattr(room, "calibrate", partial(room.calibrate, prove=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # So weak a guarantee that rows stay as they are: these checks are not about the noise.
        found = check_estimator(
            shoal.LabelHider(epsilon=1e4, delta=0.5, seed=0), expected_failed_checks=EXPECTED, on_skip=None
        )
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(EXPECTED)


def test_it_promises_what_was_asked_for(fitted):
    X, y = _table()
    released = fitted.transform(X, y)
    assert released.shape == X.shape
    assert not isinstance(released, NotPrivate)
    assert fitted.mechanism_.scope == "table"
    assert fitted.mechanism_.certificate.delta_upper <= 1e-5
    assert fitted.guard_.rests_on_model
    assert fitted.checks_.holds
    assert not np.array_equal(released, fitted.transform(X, y)) or not fitted.mechanism_.noise_cov.any()


def test_settings_are_cloned_and_pickled_and_nothing_else(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert again.get_params() == fitted.get_params() == clone(fitted).get_params()
    assert not [name for name in vars(again) if name.endswith("_")]
    with pytest.raises(sklearn.exceptions.NotFittedError):
        again.transform(*_table())


def test_seeded_output_is_repeatable_and_marked():
    X, y = _table()
    hider = shoal.LabelHider(delta=1e-5, seed=3).fit(X, y)
    one, two = hider.transform(X, y), hider.transform(X, y)
    assert isinstance(one, NotPrivate)
    np.testing.assert_array_equal(one, two)


def test_it_works_in_a_pipeline_and_takes_routed_labels():
    X, y = _table(k=4)
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), PCA(2), shoal.LabelHider(delta=1e-5, seed=0))
        released = pipe.fit_transform(X, y)
        routed = pipe.transform(X, labels=y)
        again = pipe.fit(X, np.roll(y, 60), labels=y).transform(X, labels=y)  # labels come before the target
    np.testing.assert_array_equal(np.asarray(released), np.asarray(again))
    np.testing.assert_array_equal(np.asarray(released), np.asarray(routed))
    assert list(pipe.get_feature_names_out()) == ["pca0", "pca1"]


@pytest.fixture
def hurried(monkeypatch):
    """Without proof and guard, which take most of the time."""
    monkeypatch.setattr(room, "GUARD_WORK", 0)
    monkeypatch.setattr(room, "calibrate", partial(room.calibrate, prove=False))


def test_cross_validation_with_routed_labels_that_are_not_the_target(hurried):
    X, y = _table()
    other = np.tile(["f", "m"], len(y) // 2)
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(shoal.LabelHider(delta=1e-5), LogisticRegression())
        scores = cross_val_score(pipe, X, y, cv=3, params={"labels": other}, error_score="raise")
        search = GridSearchCV(pipe, {"labelhider__epsilon": [1.0, 4.0]}, cv=2, error_score="raise")
        search.fit(X, y, labels=other)
        assert search.best_estimator_[0].laws_.labels == ("f", "m")
        assert (search.best_estimator_.predict(X, labels=other) == y).mean() > 0.5
    assert (scores > 0.5).all()  # the target is not what is hidden
    assert (search.cv_results_["mean_test_score"] > 0.5).all()


def test_a_pipeline_without_routed_labels_shows_the_lines_to_write(hurried):
    X, y = _table()
    pipe = make_pipeline(shoal.LabelHider(delta=1e-5), LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match=r"enable_metadata_routing=True(.|\n)*params=\{'labels': y\}"):
        pipe.predict(X)


def test_a_request_of_ones_own_still_counts(hurried):
    X, y = _table()
    with sklearn.config_context(enable_metadata_routing=True):
        hider = shoal.LabelHider(delta=1e-5).set_fit_request(labels="sex").set_transform_request(labels="sex")
        other = np.tile(["f", "m"], len(y) // 2)
        pipe = make_pipeline(hider, LogisticRegression()).fit(X, y, sex=other)
        assert pipe.predict(X, sex=other).shape == y.shape
    assert pipe[0].laws_.labels == ("f", "m")


def test_constant_columns_are_released_as_they_are(hurried):
    X, y = _table()
    wide = np.column_stack([np.full(len(X), 7.0), X, np.zeros(len(X))])
    hider = shoal.LabelHider(delta=1e-5).fit(wide, y)
    assert hider.laws_.n_dims == 2
    wide[0, 0] = 8.0  # a later row may have another value, which would tell it from all others
    released = hider.transform(wide, y)
    assert np.array_equal(released[:, [0, 3]], np.tile([7.0, 0.0], (len(X), 1)))
    with pytest.raises(shoal.InputError, match="every column has one value"):
        shoal.LabelHider().fit(wide[1:, [0, 3]], y[1:])


@pytest.mark.parametrize("odd", [2, 5])  # held out by the hider, and by the fit of the laws inside it
def test_a_column_that_varies_in_one_row_alone_is_taken(hurried, odd):
    X, y = _table(50, 4)
    rare = np.zeros(len(X))
    rare[odd] = 1.0
    wide = np.column_stack([X, rare])
    with pytest.warns(shoal.LawWarning):
        hider = shoal.LabelHider(delta=1e-5, accept="doubtful-law").fit(wide, y)
    released = np.asarray(hider.transform(wide, y))
    assert np.isfinite(released).all()
    assert hider.checks_.rows.min() > 0  # there are still rows that the laws are checked on


def test_blas_keeps_to_one_thread(hurried, monkeypatch):
    from threadpoolctl import threadpool_info

    seen = []
    fit = shoal.GaussianClasses.fit
    monkeypatch.setattr(
        room.GaussianClasses, "fit", lambda *args: seen.extend(threadpool_info()) or fit(*args), raising=True
    )
    shoal.LabelHider(delta=1e-5).fit(*_table())
    assert {library["num_threads"] for library in seen if library["user_api"] == "blas"} == {1}


def test_a_target_of_hundreds_of_values_is_questioned(hurried):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(130, 2)), rng.normal(size=130)
    with pytest.raises(shoal.InputError, match=r"y has 130 different values(.|\n)*crowd=10"):
        shoal.LabelHider().fit(X, y)
    assert len(shoal.LabelHider(crowd=10, delta=1e-5).fit(X, y).laws_.labels) == 130


def test_pandas_in_pandas_out(hurried):
    pd = pytest.importorskip("pandas")
    X, y = _table()
    frame = pd.DataFrame(X, columns=["width", "height"], index=np.arange(len(X)) + 1000)
    released = shoal.LabelHider(delta=1e-5, seed=2).fit_transform(frame, pd.Series(y))
    assert list(released.columns) == ["width", "height"]
    assert released.index.equals(frame.index)
    assert released.attrs["not_private"]
    plain = shoal.LabelHider(delta=1e-5, seed=2).fit_transform(X, y)
    np.testing.assert_array_equal(released.to_numpy(), np.asarray(plain))


def test_a_missing_label_of_pandas_is_refused():
    pd = pytest.importorskip("pandas")
    X, y = _table()
    names = pd.Series(y).astype("string")
    names[3] = pd.NA
    with pytest.raises(shoal.InputError, match="some are missing"):
        shoal.LabelHider().fit(X, names)


def test_a_repeated_row_is_no_reason_to_refuse_and_many_are(hurried):
    X, y = _table()
    X[2] = X[0]
    with pytest.warns(shoal.LawWarning, match="few rows") as warned:
        shoal.LabelHider(delta=1e-5).fit(X[::2], y[::2])
    (law,) = (one for one in warned if one.category is shoal.LawWarning)
    assert law.filename == __file__  # the caller's line is named
    with pytest.raises(shoal.InputError, match="181 of 360 rows repeat another row of their label"):
        shoal.LabelHider(delta=1e-5).fit(np.tile(X, (2, 1)), np.tile(y, 2))


def test_one_row_per_label_is_a_constant_and_crowds_are_kept():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(9, 3)), [f"m{i}" for i in range(9)]
    hider = shoal.LabelHider(delta=1e-5, crowd=3).fit(X, y)
    assert hider.guard_ is None
    assert min(map(len, hider.mechanism_.graph.groups)) >= 3
    released = hider.transform(X, y)
    for group in hider.mechanism_.graph.groups:
        rows = released[[y.index(label) for label in group]]
        np.testing.assert_allclose(rows, np.broadcast_to(rows[0], rows.shape), atol=2e-3)
    with pytest.raises(shoal.InputError, match="cannot come from the law"):
        hider.transform(X + 1, y)


def test_laws_that_rows_reject_are_refused_and_never_stand_beside_proved():
    rng = np.random.default_rng(2)
    y, X = np.repeat(["a", "b"], 200), rng.standard_t(2, size=(400, 2))
    with pytest.raises(shoal.UnreachableError, match=r"do not follow a Gaussian law.*one row per label.*averages"):
        shoal.LabelHider(delta=1e-5).fit(X, y)
    with pytest.warns(shoal.LawWarning, match="do not follow a Gaussian law"):
        hider = shoal.LabelHider(delta=1e-5, accept="doubtful-law").fit(X, y)
    certificate = hider.mechanism_.certificate
    assert certificate.laws_checked is False
    assert "proved" not in str(certificate)
    assert "laws that their rows reject" in str(certificate)
    assert "failed their checks" in hider.mechanism_._repr_html_()
    with pytest.raises(shoal.InputError, match="accept must be one of"):
        shoal.LabelHider(accept="doubtful").fit(X, y)


def test_refusals(fitted):
    X, y = _table()
    with pytest.raises(shoal.InputError, match="1 of 180 rows are of labels that were not fitted"):
        fitted.transform(X, ["other", *y[1:]])
    with pytest.raises(shoal.InputError, match="requires y to be passed"):
        fitted.transform(X)
    with pytest.raises(shoal.InputError, match="not both"):
        fitted.transform(X, y, labels=y)
    with pytest.raises(shoal.InputError, match="at least two labels"):
        shoal.LabelHider().fit(X, ["a"] * len(X))
    with pytest.raises(shoal.InputError, match="one label for each of the 180 rows"):
        fitted.transform(X, y[:-1])
    with pytest.raises(shoal.InputError, match="epsilon must not be negative"):
        shoal.LabelHider(epsilon=-1).fit(X, y)
    with pytest.raises(shoal.InputError, match="crowd: 5 labels are needed, and there are 3"):
        shoal.LabelHider(crowd=5).fit(X, y)
    with pytest.raises(shoal.InputError, match="seed must be a whole number"):
        shoal.LabelHider(seed="1").fit(X, y)
    with pytest.raises(shoal.InputError, match="must lie within"):
        shoal.LabelHider().fit(X * 1e200, y)
    with pytest.raises(ValueError, match="contains NaN"):
        fitted.transform(np.where(np.eye(*X.shape) > 0, np.nan, X), y)
