"""The part of the promise that rests on the class model, and the change of δ if the model was estimated from little.

A mechanism's parameters are fixed once designed. If label X's answers really follow N(m, S), not N(μ_X, Σ_X), what is
released follows

    N(m + shift + gain (m − μ_X), A S Aᵀ + noise_cov),   A = I + gain,

and the worst edge's δ is computed exactly for that. Plausible (m, S) given estimates from n observations are drawn from
the posterior under Jeffreys' prior: S = ν R W⁻¹ Rᵀ with R Rᵀ = Σ_X, W ~ Wishart(I, ν), ν = n − 1, and m ~ N(μ_X, S/n)
(Gelman et al., *Bayesian Data Analysis*, section 3.6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy

from shoal import validation
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.mechanism.mechanism import Mechanism
from shoal.numerics.eigenpairs import eigh
from shoal.numerics.matrices import RANK_TOLERANCE, ranks
from shoal.rounding import exactly, upper
from shoal.validation import FloatArray

CONSTANT = (
    "The answer is a constant given the label: the promise rests on the mechanism's noise, not on the class model. "
    "It holds for the constants it was designed for."
)
MODEL = (
    "The promise counts the class's own randomness as protection: it holds if the class laws are right. The "
    "figures above say what happens within their estimation error if answers are Gaussian; against an attacker who "
    "knows the answer only the noise counts."
)
#: Queries whose law is true by construction, whatever the model.
CONSTRUCTED = ("point", "constant", "trajectory")
#: Query -> what the promise rests on.
STATEMENTS = {
    "point": CONSTANT,
    "constant": CONSTANT,
    "sample": MODEL,
    "marginal": MODEL,
    "trajectory": (
        "The answer is drawn by the releaser from the stated law, so the promise does not rest on the model being "
        "true. It does rest on the draw being secret and used once."
    ),
    "as_in_paper": (
        "The promise does not hold: it counts a prediction error as random that is not in the release. What is "
        "released has only the protection of the noise."
    ),
}


@dataclass(frozen=True, eq=False)
class ModelGuard:
    """Result of :func:`model_guard`; every δ is the worst edge's upper end at the design's ε, in the design's notion.

    All of them speak of what the mechanism is certified for, one answer or a table.

    ``deltas`` (sorted) are those of the plausible truths; ``delta_at_confidence`` exceeds the δ of a ``confidence``
    share of them, with 99 % certainty over the draws or else their largest. ``noise_alone`` is what the mechanism's
    noise gives if the attacker knows the answer given the label. ``statements`` are sentences on what the promise rests
    on.
    """

    promise: float
    notion: str
    rests_on_model: bool
    deltas: FloatArray
    noise_alone: float
    statements: tuple[str, ...]
    confidence: ClassVar[float] = 0.95

    @property
    def delta_at_confidence(self) -> float:
        """The δ that a ``confidence`` share of the plausible models does not exceed, but for 1 % of draws."""
        place = int(scipy.stats.binom.ppf(0.99, len(self.deltas), self.confidence))
        return float(self.deltas[min(place, len(self.deltas) - 1)])

    def __repr__(self) -> str:
        plausible = f"δ ≤ {upper(self.delta_at_confidence)} for a share of {exactly(self.confidence)}"
        lines = [
            f"promised: δ ≤ {upper(self.promise)} ({self.notion})",
            f"over plausible models: {plausible}; at most {upper(float(self.deltas[-1]))}",
            f"noise only: δ ≤ {upper(self.noise_alone)}",
        ]
        return "\n".join([*lines, *self.statements])


def model_guard(
    mechanism: Mechanism, training: Any, *, query: str | None = None, n_draws: int = 200, seed: int = 0
) -> ModelGuard:
    """Change of the worst edge's δ over the models that the training data leave plausible.

    Args:
        mechanism: held fixed; only the laws of the true answers move.
        training: the number of independent observations behind each label's law; or the :class:`shoal.Forecasts` that
            the laws came from, or these laws as :meth:`shoal.GaussianClasses.fit` made them. From forecasts, means
            count as known from the season's repeats, covariances from the training readings less the parameters fitted.
            Readings that depend on each other count for less: divide first. Not looked at where the promise does not
            rest on a law.
        query: how the answers come about, as in :meth:`shoal.Forecasts.classes`; the laws of ``"point"`` and
            ``"trajectory"`` are true by construction, those of ``"as_in_paper"`` are not true at all.
        n_draws: plausible models drawn.
        seed: seed of the draws.

    Returns:
        The promise beside the δ's of plausible models, and what holds without any model.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [0.5]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> mechanism = shoal.design(classes, graph, "white", epsilon=1.0, rho=1.0)
    >>> guard = shoal.model_guard(mechanism, training=30, n_draws=50)
    >>> guard.rests_on_model, guard.promise < guard.delta_at_confidence
    (True, True)
    """
    if query is not None:
        validation.choice(list(STATEMENTS), query=query)
    n_draws = validation.count(n_draws=n_draws, at_least=20)
    rng = np.random.default_rng(validation.count(seed=seed, at_least=0))
    promise, noise_alone = mechanism.certificate.delta_upper, mechanism.delta_noise_alone()
    classes = mechanism.classes
    rests = bool(classes.stored_covs.any()) and query not in CONSTRUCTED
    deltas = np.full(n_draws, noise_alone if query == "as_in_paper" else promise)
    if rests and query != "as_in_paper":
        sizes = _training_sizes(classes, training)
        deltas = np.array([mechanism.delta_for(_draw_plausible_laws(classes, sizes, rng))[0] for _ in range(n_draws)])
    statement = STATEMENTS[query or ("sample" if rests else "constant")]
    return ModelGuard(promise, mechanism.notion, rests, np.sort(deltas), noise_alone, (statement,))


class _TrainingSizes(NamedTuple):
    """Per label: observations behind the mean, degrees of freedom of the covariance, covariance of one observation."""

    n_mean: FloatArray
    degrees: FloatArray
    spread: FloatArray | None


def _training_sizes(classes: GaussianClasses, training: Any) -> _TrainingSizes:
    """Return what ``training`` says about every label; raise InputError where that is too little."""
    if hasattr(training, "estimation_basis"):
        estimates = _TrainingSizes(*training.estimation_basis(classes.labels))
        if estimates.spread is not None and estimates.spread.shape[1] != classes.n_dims:
            raise InputError("training must have the mechanism's horizon")
    else:
        counts = np.full(classes.n_classes, validation.real(training=training))
        estimates = _TrainingSizes(counts, counts - 1, None)
    if (estimates.degrees < ranks(classes.stored_covs)).any() or (estimates.n_mean < 1).any():
        raise InputError("training is too short: a covariance needs more observations than the answer has entries")
    return estimates


def _draw_plausible_laws(
    classes: GaussianClasses, estimates: _TrainingSizes, rng: np.random.Generator
) -> GaussianClasses:
    """Return all labels' laws, drawn from the posterior. A shared covariance stays shared."""
    n, k = classes.means.shape
    # In units of the entries' own deviations: a small entry beside a large one varies as well.
    scale = np.sqrt(np.where(classes.stored_variances > 0, classes.stored_variances, 1.0))
    values, vectors = eigh(classes.stored_covs / scale[:, :, None] / scale[:, None, :])
    covs = np.empty_like(classes.stored_covs)
    for i in range(len(covs)):
        kept = values[i] > RANK_TOLERANCE * max(values[i, -1], 0.0)
        degrees = estimates.degrees.min() if classes.is_shared else estimates.degrees[i]
        root = scale[i][:, None] * vectors[i][:, kept] * np.sqrt(values[i][kept])
        # T Tᵀ ~ Wishart(I, degrees), up to the order of the axes (Bartlett 1933).
        size = int(kept.sum())
        factor = np.tril(rng.standard_normal((size, size)), -1)
        factor[np.arange(size), np.arange(size)] = np.sqrt(rng.chisquare(degrees - np.arange(size)))
        moved = scipy.linalg.solve_triangular(factor, root.T, lower=True).T if size else root
        covs[i] = degrees * moved @ moved.T
    spread = np.broadcast_to(covs, (n, k, k)) if estimates.spread is None else estimates.spread
    values, vectors = eigh(spread)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    error = np.einsum("nij,nj->ni", roots, rng.standard_normal((n, k))) / np.sqrt(estimates.n_mean)[:, None]
    return GaussianClasses(classes.means + error, covs[0] if classes.is_shared else covs, classes.labels)
