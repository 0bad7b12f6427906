"""LabelHider: a table with its labels in, a table that does not tell them out, as a scikit-learn transformer."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from shoal import validation
from shoal.audits.guard import model_guard
from shoal.audits.holdout import observed_loss
from shoal.audits.trials import seeded_release
from shoal.designs.calibration import calibrate
from shoal.designs.methods import METHODS
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.crowds import crowds
from shoal.laws.estimates import names_of
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.clip import Clip, assumption_free
from shoal.noise.experiment import NotPrivate
from shoal.rounding import upper
from shoal.validation import BoolArray, FloatArray

#: Draws of the model guard times edges, about: seconds.
GUARD_WORK = 200_000


#: δ over plausible laws beyond which a warning says that there are too few rows.
PLAUSIBLE = 0.1


class LawWarning(UserWarning):
    """Rows do not follow the Gaussian laws on which a guarantee would rest, or are too few to know them."""


class LabelHider(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rows changed so little that they no longer tell their label, to (ε, δ): a scikit-learn transformer.

    ``fit(X, y)`` estimates each label's law from its rows (:meth:`shoal.GaussianClasses.fit`), or takes the rows for
    constants where every label has exactly one, and finds the cheapest mechanism of ``method`` that meets (ε, δ).
    ``transform(X, y)`` releases rows of these labels with noise from a cryptographic source: every call is another
    release. A row without a label, or of a label that was not fitted, is refused.

    The guarantee is about the label of one row, for whoever holds all released rows and does not know which of them
    belong together (``scope="table"`` of :func:`shoal.privacy_curve`); m rows known to be of one label are m releases,
    ``shoal.privacy_curve([hider.mechanism_.output] * m, hider.mechanism_.graph, epsilon)``. It rests on the laws:
    ``checks_`` says whether the rows follow them, ``loss_`` what held-out rows lose, ``guard_`` what δ becomes over
    laws that the rows leave plausible. A :class:`shoal.LawWarning` says so where rows speak against the laws or are too
    few.

    Only ``fit_transform(X, y)`` hands labels on inside a ``Pipeline``. For ``transform`` there, name them ``labels``:
    ``set_transform_request(labels=True)`` with metadata routing enabled. A pickle holds the settings, not what was
    fitted, which is as private as the data; ``mechanism_.save`` keeps the mechanism.

    Args:
        epsilon, delta: the guarantee, at most.
        crowd: every label hides among at least so many alike ones, itself included; all of them by default.
        method: as in :func:`shoal.calibrate`; ``"center"`` moves all labels of a group to one law, ``"transport"``
            searches for less error and takes long with many labels or entries.
        clip: rows are moved into ellipsoids of this radius, in deviations of their label's law, before anything else;
            ``assumption_free_`` is then the δ for any law inside them (:func:`shoal.assumption_free`).
        held_out: share of each label's rows that the laws are not fitted on, to observe losses on.
        seed: seed of the noise for experiments. What is released is then NOT private and marked as such.

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        crowd: int | None = None,
        *,
        method: str = "center",
        clip: float | None = None,
        held_out: float = 0.2,
        seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.crowd = crowd
        self.method = method
        self.clip = clip
        self.held_out = held_out
        self.seed = seed

    def fit(self, X: Any, y: Any) -> LabelHider:
        """Laws of the labels ``y`` from the rows of ``X``, and the mechanism for them.

        Returns:
            The hider itself, with ``laws_``, ``mechanism_``, ``checks_``, ``loss_`` and ``guard_``.
        """
        rows, names = self._rows(X, y, reset=True)
        epsilon = validation.non_negative(epsilon=self.epsilon)
        delta = validation.probability(delta=self.delta, below_one=True)
        method = validation.choice(list(METHODS), method=self.method)
        share = validation.probability(held_out=self.held_out, below_one=True)
        found, counts = np.unique(names, return_counts=True)
        if len(found) < 2:
            raise InputError("y must name at least two labels, not 1 class: there is nothing to hide it among")
        out = np.zeros(len(names), dtype=np.bool_)
        if counts.max() == 1:
            order = np.argsort(names)
            laws = GaussianClasses.deterministic(rows[order], found.tolist())
        else:
            out = _held_out(names, share)
            laws = GaussianClasses.fit(rows[~out], names[~out])
        graph = self._graph(laws)
        self.laws_, self.checks_ = laws, laws.checks() if laws.fitted is not None else None
        if self.checks_ is not None and not self.checks_.holds:
            warnings.warn(" ".join(self.checks_.statements), LawWarning, stacklevel=2)
        self.mechanism_ = calibrate(laws, graph, method, epsilon, delta, scope="table")
        self.clip_ = None if self.clip is None else Clip.of(laws, self.clip)
        self.assumption_free_ = None if self.clip_ is None else assumption_free(self.mechanism_, self.clip_)
        self.guard_, self.loss_ = None, None
        if laws.fitted is not None:
            draws = int(np.clip(GUARD_WORK // max(graph.n_edges, 1), 20, 100))
            self.guard_ = model_guard(self.mechanism_, laws, n_draws=draws, fitted_on_private_data=True)
            if self.guard_.delta_at_confidence > max(PLAUSIBLE, delta):
                warnings.warn(
                    "the laws rest on few rows: over laws that they leave plausible δ reaches "
                    f"{upper(self.guard_.delta_at_confidence, 2)}. Give more rows or fewer columns, or release one "
                    "row per label, which is a constant and needs no law",
                    LawWarning,
                    stacklevel=2,
                )
            if set(names[out]) == set(laws.labels):
                kept = rows if self.clip_ is None else self.clip_.apply(rows, names)
                answers = {name: kept[out & (names == name)] for name in laws.labels}
                self.loss_ = observed_loss(self.mechanism_, answers, release=seeded_release(self.mechanism_))
        return self

    def transform(self, X: Any, y: Any = None, *, labels: Any = None) -> FloatArray:
        """Released rows, one for each row of ``X``, whose labels are ``y`` (or ``labels``, for metadata routing).

        Returns:
            (m, k) array on the mechanism's grid; with a ``seed``, a :class:`shoal.NotPrivate` one.
        """
        check_is_fitted(self)
        if y is not None and labels is not None:
            raise InputError("give the labels as y or as labels, not both")
        rows, names = self._rows(X, labels if y is None else y, reset=False)
        unknown = ~np.isin(names, self.laws_.labels)
        if unknown.any():
            raise InputError(
                f"y: {int(unknown.sum())} of {len(names)} rows are of labels that were not fitted, and there is no "
                "guarantee for them; leave them out, or fit with them"
            )
        if self.clip_ is not None:
            rows = self.clip_.apply(rows, names)
        if self.seed is None:
            return self.mechanism_.release(rows, names)
        release, result = seeded_release(self.mechanism_, self.seed), np.empty(rows.shape)
        for name in self.laws_.labels:
            chosen = names == name
            if chosen.any():
                result[chosen] = release(rows[chosen], name)
        return result.view(NotPrivate)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> FloatArray:
        """``fit(X, y)``, then ``transform(X, y)``.

        Returns:
            The released rows of ``X``.
        """
        return self.fit(X, y, **fit_params).transform(X, y)

    def _rows(self, X: Any, y: Any, reset: bool) -> tuple[FloatArray, Any]:
        rows = validate_data(self, X, dtype=np.float64, reset=reset)
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: what is done to a row "
                "depends on its label"
            )
        names = names_of(column_or_1d(y, warn=True))
        if len(names) != len(rows):
            raise InputError(f"y must hold one label for each of the {len(rows)} rows of X")
        return np.asarray(rows), names

    def _graph(self, laws: GaussianClasses) -> NeighborGraph:
        if self.crowd is None:
            return NeighborGraph.complete(laws.labels)
        size = validation.count(crowd=self.crowd, at_least=2)
        return NeighborGraph.within_groups(laws.labels, crowds(laws.embedding(), size).tolist())

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if not name.endswith("_") or name.startswith("_")}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.non_deterministic = self.seed is None
        return tags


def _held_out(names: Any, share: float) -> BoolArray:
    """(m,) this share of each label's rows, rounded down; which rows does not depend on their order of labels."""
    rng = np.random.default_rng(0)
    out = np.zeros(len(names), dtype=np.bool_)
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        out[rng.permutation(rows)[: int(share * len(rows))]] = True
    return out
