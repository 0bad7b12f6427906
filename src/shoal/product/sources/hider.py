"""LabelHider: a table with its labels in, a table that does not tell them out, as a scikit-learn transformer."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from shoal import validation
from shoal.audits.attacks import seeded_release
from shoal.audits.guard import model_guard
from shoal.crowds.formation import least_spread_crowds
from shoal.designs.calibration import calibrate
from shoal.designs.methods import METHODS
from shoal.errors import InputError, UnreachableError
from shoal.laws.classes import GaussianClasses
from shoal.laws.estimates import label_strings
from shoal.laws.graph import NeighborGraph
from shoal.noise.source import NotPrivate
from shoal.numerics.threads import one_library_thread
from shoal.product.sources.class_table import refuse_copies
from shoal.product.sources.frames import is_pandas_frame
from shoal.rounding import upper
from shoal.validation import FloatArray

#: Draws of the model guard times edges, of laws of eight columns, about: seconds.
GUARD_WORK = 200_000
#: Labels beyond which they are taken for a number to predict, unless a crowd is named.
MANY = 100
ROUTING = (
    "In a pipeline write sklearn.set_config(enable_metadata_routing=True), and "
    "cross_val_score(pipe, X, y, params={'labels': y}), GridSearchCV(pipe, grid).fit(X, y, labels=y) or "
    "pipe.predict(X, labels=y), with the default scoring"
)
#: What to do where rows reject the laws.
WAYS_ON = (
    "Nothing was fitted. `shoal run` makes averages; LabelHider(accept='doubtful-law') releases these rows all the same"
)
#: δ over plausible laws beyond which a warning says that there are too few rows.
PLAUSIBLE = 0.1


class LawWarning(UserWarning):
    """Rows do not follow the Gaussian laws on which a guarantee would rest, or are too few to know them."""


class LabelHider(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Change rows as little as hides their label, to (ε, δ): a scikit-learn transformer.

    ``fit(X, y)`` estimates each label's law from its rows (:meth:`shoal.GaussianClasses.fit`), or takes the rows for
    constants where every label has exactly one, and finds the cheapest mechanism of ``method`` that meets (ε, δ).
    ``transform(X, y)`` releases rows of these labels: every call is another release. What hides a label is the spread
    of its own rows, moved to the law of its crowd; noise from a cryptographic source comes on top only where the design
    takes some (``mechanism_.noise_cov``). So someone who knows a row itself, and what was fitted, finds its label.

    The guarantee is about the label of one row, for someone who holds all released rows and does not know which of them
    belong together (``scope="table"`` of :func:`shoal.privacy_curve`); m rows known to be of one label are m releases.
    It rests on the laws: ``checks_`` says whether the rows follow them, ``guard_`` what δ becomes over laws that the
    rows leave plausible. Where rows reject the laws ``fit`` refuses with an UnreachableError, as ``shoal run`` does; a
    :class:`shoal.LawWarning` says where they are too few.

    In a ``Pipeline`` whose last step predicts, ``transform`` needs labels too: enable metadata routing and give them as
    ``labels`` (docs/howto.md shows the lines). Scorers by name (``scoring="accuracy"``) and ``cross_val_predict`` hand
    none on.

    Errors count in the units of the columns: put a ``StandardScaler`` before it where they differ. A pickle holds the
    settings, not what was fitted, which is as private as the data; ``mechanism_.save`` keeps the mechanism.

    Args:
        epsilon, delta: the guarantee, at most.
        crowd: every label hides among at least so many alike ones, itself included; all of them by default, which is
            questioned for more than 100 labels.
        method: as in :func:`shoal.calibrate`; ``"mean"`` moves all labels of a crowd to one law at the least mean
            error, ``"center"`` at the least error of the worst label, ``"transport"`` searches for less. The last two
            take long with many labels or columns.
        accept: ``"doubtful-law"`` fits although the rows reject the laws, with a :class:`shoal.LawWarning`: what is
            then stated is about the laws and not about these rows.
        seed: seed of the noise for experiments. What is released is then NOT private and marked as such, except where
            ``set_output`` makes another table of it.

    >>> import numpy as np
    >>> import shoal
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["a", "b", "c"], 100)
    >>> X = rng.normal(size=(300, 2)) + np.repeat([[0.0], [1.0], [2.0]], 100, axis=0)
    >>> hider = shoal.LabelHider(epsilon=1.0, delta=1e-5).fit(X, y)
    >>> hider.transform(X, y).shape, hider.mechanism_.certificate.delta_upper <= 1e-5
    ((300, 2), True)
    >>> type(shoal.LabelHider(seed=1).fit_transform(X, y)).__name__
    'NotPrivate'
    """

    # Labels are always asked for: whoever routes them need not say so.
    __metadata_request__fit: ClassVar = {"labels": True}
    __metadata_request__transform: ClassVar = {"labels": True}

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        crowd: int | None = None,
        *,
        method: str = "mean",
        accept: str | None = None,
        seed: int | None = None,
    ) -> None:
        """Keep the settings as they are given; ``fit`` checks them, as scikit-learn asks."""
        self.epsilon = epsilon
        self.delta = delta
        self.crowd = crowd
        self.method = method
        self.accept = accept
        self.seed = seed

    def fit(self, X: Any, y: Any = None, *, labels: Any = None) -> LabelHider:
        """Laws of the labels from the rows of ``X``, and the mechanism for them; ``labels`` come before ``y``.

        Returns:
            The hider itself, with ``laws_``, ``mechanism_``, ``checks_`` and ``guard_``.
        """
        with one_library_thread():  # the matrices are small: threads of BLAS would wait for each other
            self._fit_rows(*self._rows_and_labels(X, y if labels is None else labels, reset=True))
        return self

    def _fit_rows(self, rows: FloatArray, names: Any) -> None:
        """Fit laws and mechanism to (m, k) rows and the label of each."""
        epsilon = validation.non_negative(epsilon=self.epsilon)
        delta = validation.probability(delta=self.delta, below_one=True)
        method = validation.choice(list(METHODS), method=self.method)
        size = None if self.crowd is None else validation.count(crowd=self.crowd, at_least=2)
        if self.accept is not None:
            validation.choice(["doubtful-law"], accept=self.accept)
        if self.seed is not None:
            validation.count(seed=self.seed, at_least=0)
        found, counts = np.unique(names, return_counts=True)
        if len(found) < 2:
            raise InputError("y must name at least two labels, not 1 class: there is nothing to hide it among")
        if size is not None and size > len(found):
            raise InputError(f"crowd: {size} labels are needed, and there are {len(found)}; choose fewer")
        if len(found) > MANY and size is None:
            raise InputError(
                f"y has {len(found)} different values. If it is a number to predict, give the column to hide instead, "
                "in a pipeline as labels. If they are labels, say among how many each hides: LabelHider(crowd=10)"
            )
        self.constants_ = np.where((rows == rows[0]).all(axis=0), rows[0], np.nan)
        rows = rows[:, np.isnan(self.constants_)]
        if not rows.shape[1]:
            raise InputError("X: every column has one value in all rows; there is nothing to release")
        refuse_copies(rows, np.searchsorted(found, names))
        if counts.max() == 1:
            laws = GaussianClasses.deterministic(rows[np.argsort(names)], found.tolist())
        else:
            laws = GaussianClasses.fit(rows, names)
        graph = NeighborGraph.complete(laws.labels)
        if size is not None:
            graph = NeighborGraph.within_groups(laws.labels, least_spread_crowds(laws.embedding(), size).tolist())
        self.laws_, self.checks_ = laws, laws.checks() if laws.fitted is not None else None
        if self.checks_ is not None and not self.checks_.holds:
            if self.accept is None:
                raise UnreachableError(f"X: {' '.join(self.checks_.statements[:-1])} {WAYS_ON}")
            warnings.warn(" ".join(self.checks_.statements), LawWarning, stacklevel=3)
        self.mechanism_ = calibrate(laws, graph, method, epsilon, delta, scope="table")
        self.guard_ = None
        if laws.fitted is not None:
            draws = int(np.clip(GUARD_WORK / max(graph.n_edges * (rows.shape[1] / 8) ** 3, 1), 20, 100))
            self.guard_ = model_guard(self.mechanism_, laws, n_draws=draws)
            if self.guard_.delta_at_confidence > max(PLAUSIBLE, delta):
                warnings.warn(
                    "the laws rest on few rows: over laws that they leave plausible δ reaches "
                    f"{upper(self.guard_.delta_at_confidence, 2)}. Give more rows or fewer columns, or release one "
                    "row per label, which is a constant and needs no law",
                    LawWarning,
                    stacklevel=3,
                )

    def transform(self, X: Any, y: Any = None, *, labels: Any = None) -> Any:
        """Released rows, one for each row of ``X``, whose labels are ``y`` (or ``labels``, for metadata routing).

        Returns:
            (m, k) array on the mechanism's grid; with a ``seed``, one of class ``NotPrivate``. For a pandas frame,
            a frame with its index and columns, and with a ``seed`` ``attrs["not_private"]``.
        """
        check_is_fitted(self)
        if y is not None and labels is not None:
            raise InputError("give the labels as y or as labels, not both")
        rows, names = self._rows_and_labels(X, labels if y is None else y, reset=False)
        unknown = ~np.isin(names, self.laws_.labels)
        if unknown.any():
            raise InputError(
                f"y: {int(unknown.sum())} of {len(names)} rows are of labels that were not fitted, and there is no "
                "guarantee for them; leave them out, or fit with them"
            )
        varies = np.isnan(self.constants_)
        result = np.broadcast_to(self.constants_, rows.shape).copy()
        result[:, varies] = self._release_rows(rows[:, varies], names)
        if is_pandas_frame(X):
            frame = type(X)(result, index=X.index, columns=X.columns)
            frame.attrs["not_private"] = self.seed is not None
            return frame
        return result if self.seed is None else result.view(NotPrivate)

    def _release_rows(self, rows: FloatArray, names: Any) -> FloatArray:
        """Release (m, k) rows of these labels, with secure noise or with that of the seed."""
        if self.seed is None:
            return np.asarray(self.mechanism_.release(rows, names))
        release, result = seeded_release(self.mechanism_, self.seed), np.empty(rows.shape)
        for name in self.laws_.labels:
            if (chosen := names == name).any():
                result[chosen] = release(rows[chosen], name)
        return result

    def fit_transform(self, X: Any, y: Any = None, *, labels: Any = None) -> Any:
        """``fit``, then ``transform``, with the same labels: ``labels``, or ``y`` where there are none.

        Returns:
            The released rows of ``X``.
        """
        names = y if labels is None else labels
        return self.fit(X, names).transform(X, names)

    def _rows_and_labels(self, X: Any, y: Any, reset: bool) -> tuple[FloatArray, Any]:
        """Check ``X`` and the labels ``y``: (m, k) numbers, and (m,) labels."""
        rows = validate_data(self, X, dtype=np.float64, reset=reset)
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: what is done to a row "
                f"depends on its label. {ROUTING}"
            )
        names = label_strings(column_or_1d(y, warn=True))
        if len(names) != len(rows):
            raise InputError(f"y must hold one label for each of the {len(rows)} rows of X")
        return np.asarray(rows), names

    def __getstate__(self) -> dict[str, Any]:
        """The settings, without what was fitted: that is as private as the data."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if not name.endswith("_") or name.startswith("_")}

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that labels are needed and that results are random."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.non_deterministic = self.seed is None
        return tags
