"""Attacks on pairs of labels: scores, the events made from them, and what counting the events proves.

Against the directed edge X → X' an attack is an event S, "the score exceeds a threshold", and

    δ(ε) ≥ P_X(S) − e^ε P_X'(S)   for every event S,   ε(δ) ≥ ln (P_X(S) − δ) / P_X'(S)

(docs/theory.md, section 18). The threshold is chosen on the first half of the released answers and counted on the
second, with Clopper–Pearson bounds on both probabilities, which hold whatever the score is.
**Laws as an attacker handles them** (:class:`ResidualLaws`). For label X with law N(μ, Σ), scaled to unit variances, Σ
= V diag(λ) Vᵀ: the residual of an answer y is z = diag(λ)^{−1/2} Vᵀ (y − μ), and ln p(y) = −½‖z‖² − ½ ln|Σ|. Directions
with less than ``NULL`` of the widest one's variance are taken for constants that are known to a tolerance (λ is raised
to ``NULL``): two labels with different constants are then told apart at once, two with the same constants not at all,
and an answer rounded to a fine grid is still on its support.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.audits.confidence import clopper_pearson_lower, clopper_pearson_upper
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.supports import cached_supports
from shoal.mechanism.mechanism import Mechanism
from shoal.numerics.eigenpairs import eigh
from shoal.validation import BoolArray, FloatArray, IndexArray

#: Variances below this share of the largest, in units of the entries' own, belong to constants.
NULL = 1e-13
#: Scores of edge (a, b): ln p_a/p_b at the answers of a and at those of b, one pair of arrays per attack.
Scores = Callable[[int, int], Sequence[tuple[FloatArray, FloatArray]]]
#: Turns true answers (m, k) about one label into released ones (m, k).
Release = Callable[[FloatArray, str], Any]
#: Fewest released answers per label that an audit accepts.
FEWEST = 100
#: Thresholds tried on the first half.
CANDIDATES = 128


@dataclass(frozen=True, eq=False)
class ResidualLaws:
    """One Gaussian law per label, factored: ``maps`` (n, k, k) whiten, ``null`` (n, k) marks constant directions."""

    means: FloatArray
    covs: FloatArray
    maps: FloatArray
    log_scale: FloatArray
    null: BoolArray

    @classmethod
    def fit(cls, samples: list[FloatArray]) -> ResidualLaws:
        """Return laws with sample means and covariances, one label per item: what samples alone tell an attacker."""
        means = np.stack([y.mean(axis=0) for y in samples])
        centered = [y - mean for y, mean in zip(samples, means, strict=True)]
        return cls.from_moments(means, np.stack([c.T @ c / max(len(c) - 1, 1) for c in centered]))

    @classmethod
    def from_moments(cls, means: FloatArray, covs: FloatArray) -> ResidualLaws:
        """Return laws with these means (n, k) and covariances (n, k, k), factored; null directions are raised."""
        std = np.sqrt(np.maximum(np.diagonal(covs, axis1=1, axis2=2), 0.0))
        # An entry without variance is a constant, known to a tolerance in units of what varies in that entry.
        unit = std.max(axis=0)
        spread = means.max(axis=0) - means.min(axis=0)
        unit = np.where(unit > 0, unit, np.where(spread > 0, spread, np.maximum(np.abs(means).max(axis=0), 1.0)))
        fixed = std <= np.sqrt(NULL) * 1e-3 * unit
        scale = np.where(fixed, unit, std)
        shaped = covs / scale[:, :, None] / scale[:, None, :]
        rows, entries = np.nonzero(fixed)
        shaped[rows, entries, :] = 0.0
        shaped[rows, :, entries] = 0.0
        values, vectors = eigh(0.5 * (shaped + np.swapaxes(shaped, 1, 2)))
        floor = NULL * np.where(values[:, -1:] > 0, values[:, -1:], 1.0)
        null = values <= floor
        values = np.maximum(values, floor)
        maps = np.swapaxes(vectors, 1, 2) / np.sqrt(values)[:, :, None] / scale[:, None, :]
        return cls(means, covs, maps, -0.5 * np.log(values).sum(axis=1) - np.log(scale).sum(axis=1), null)

    def residuals(self, label: int, answers: FloatArray) -> FloatArray:
        """Return whitened residuals (m, k) of answers (m, k) under one label's law."""
        return np.asarray((answers - self.means[label]) @ self.maps[label].T)

    def log_density_of_residuals(self, label: int, residuals: FloatArray) -> FloatArray:
        """Return (m,) log-densities, up to a constant common to all labels, from residuals under that label."""
        return np.asarray(self.log_scale[label] - 0.5 * np.einsum("ij,ij->i", residuals, residuals))

    def log_density_of_answers(self, label: int, answers: FloatArray) -> FloatArray:
        """Return (m,) log-densities of answers (m, k) under a label's law, up to a constant common to all labels."""
        return self.log_density_of_residuals(label, self.residuals(label, answers))


@dataclass(frozen=True, eq=False)
class Events:
    """Counted events, arrays of shape (n_edges, D, n_attacks, n_events); direction 0 is a → b, 1 is b → a.

    D is 2 for single answers and 1 for tables, where both directions are the same. ``own`` counts the event among
    ``own_trials`` answers of X, ``other`` among those of X'. ``low`` and ``high`` bound P_X(S) from below and P_X'(S)
    from above, all at once with error probability ``error``.
    """

    attacks: tuple[str, ...]
    threshold: FloatArray
    own: NDArray[np.int64]
    other: NDArray[np.int64]
    own_trials: NDArray[np.int64]
    other_trials: NDArray[np.int64]
    low: FloatArray
    high: FloatArray
    error: float

    def delta_lower(self, epsilon: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
        """Return the best lower bound on δ per edge and direction, at one ε per edge, and its event's flat number."""
        grow = np.exp(np.minimum(epsilon, 700.0))[:, None, None, None]
        return _largest_per_direction(np.maximum(self.low - grow * self.high, 0.0))

    def epsilon_lower(self, delta: float) -> FloatArray:
        """Return the largest ε (n_edges, D) that is proved to be needed at this δ; 0 where nothing is proved."""
        return _largest_per_direction(np.log(np.maximum((self.low - delta) / self.high, 1.0)))[0]


def _largest_per_direction(values: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the largest value (n_edges, D) over attacks and events, and its flat position among them."""
    flat = values.reshape(*values.shape[:2], -1)
    where = np.argmax(flat, axis=2)
    return np.take_along_axis(flat, where[..., None], axis=2)[..., 0], where


def count_events(
    attacks: tuple[str, ...],
    scores: Scores,
    pairs: IndexArray,
    epsilon: FloatArray,
    error: float,
    step: Callable[[], None] | None = None,
    directions: int = 2,
) -> Events:
    """Choose and count events for all edges: one per ε (columns of ``epsilon``, (n_edges, E)).

    ``step`` is called after each edge; ``directions`` is 1 where the scores come from :func:`row_exchange_scores`.
    """
    shape = (len(pairs), directions, len(attacks), epsilon.shape[1])
    threshold = np.zeros(shape)
    own, other, own_trials, other_trials = np.zeros((4, *shape), dtype=np.int64)
    share = error / (2 * max(own.size, 1))
    for e, (a, b) in enumerate(pairs):
        for attack, (first, second) in enumerate(scores(int(a), int(b))):
            for direction, (mine, theirs) in enumerate(((first, second), (-second, -first))[:directions]):
                learn, count = split_in_halves(mine)
                learn_other, count_other = split_in_halves(theirs)
                at = choose_thresholds(learn, learn_other, epsilon[e], share)
                here = (e, direction, attack)
                threshold[here] = at
                own[here] = (count[:, None] > at).sum(axis=0)
                other[here] = (count_other[:, None] > at).sum(axis=0)
                own_trials[here], other_trials[here] = len(count), len(count_other)
        if step is not None:
            step()
    return Events(
        attacks=attacks,
        threshold=threshold,
        own=own,
        other=other,
        own_trials=own_trials,
        other_trials=other_trials,
        low=clopper_pearson_lower(own, own_trials, share),
        high=clopper_pearson_upper(other, other_trials, share),
        error=share,
    )


def choose_thresholds(own: FloatArray, other: FloatArray, epsilon: FloatArray, error: float) -> FloatArray:
    """Return the thresholds whose events promise the most on these scores, one per ε."""
    own, other = np.sort(own), np.sort(other)
    inner = own[(np.linspace(0, 1, CANDIDATES // 2 + 2)[1:-1] * len(own)).astype(int)]
    tails = [x[len(x) - np.unique(np.geomspace(1, len(x), CANDIDATES // 4).astype(int))] for x in (own, other)]
    tried = np.unique(np.concatenate([epsilon, inner, *tails, own[:1] - 1.0]))
    above = [len(x) - np.searchsorted(x, tried, side="right") for x in (own, other)]
    low = clopper_pearson_lower(above[0], len(own), error)
    high = clopper_pearson_upper(above[1], len(other), error)
    gains = low[None, :] - np.exp(np.minimum(epsilon, 700.0))[:, None] * high[None, :]
    return np.asarray(tried[np.argmax(gains, axis=1)])


def likelihood_ratio_scores(claim: ResidualLaws, answers: list[FloatArray], own: list[FloatArray]) -> Scores:
    """Return the scores of two attacks on single releases: ``claim`` and ``samples``.

    ``claim`` is the likelihood ratio of the laws that the mechanism claims; ``samples`` knows nothing but the first
    half of the released answers, to which it fits one Gaussian per label (quadratic discriminant analysis). ``own`` are
    the log-densities of every label's answers under its own claimed law.
    """
    fitted = ResidualLaws.fit([split_in_halves(y)[0] for y in answers])
    own_fitted = [fitted.log_density_of_answers(i, y) for i, y in enumerate(answers)]

    def scores(a: int, b: int) -> Sequence[tuple[FloatArray, FloatArray]]:
        """Return both attacks' scores of edge (a, b), at the answers of a and at those of b."""
        tests = []
        for laws, mine in ((claim, own), (fitted, own_fitted)):
            first = mine[a] - laws.log_density_of_answers(b, answers[a])
            second = laws.log_density_of_answers(a, answers[b]) - mine[b]
            tests.append((first, second))
        return tests

    return scores


def row_exchange_scores(scores: Scores) -> Scores:
    """Return scores of tables from those of single answers: row pairs in the order (a, b), and exchanged.

    The i-th answers of both labels make a pair. With s the score of one answer, that of the pair is s(row of a) − s(row
    of b), and in the other order it is the negative of that. Bounds on both probabilities hold at once although they
    come from the same pairs: neither relies on the other.
    """

    def exchange_scores(a: int, b: int) -> Sequence[tuple[FloatArray, FloatArray]]:
        """Return the scores of edge (a, b) at pairs of rows in order and at the same pairs exchanged."""
        tests = []
        for first, second in scores(a, b):
            count = min(len(first), len(second))
            loss = first[:count] - second[:count]
            tests.append((loss, -loss))
        return tests

    return exchange_scores


def split_in_halves(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first half, to learn from, and the second, to count."""
    middle = len(values) // 2
    return values[:middle], values[middle:]


# ------------------------------------------------------------------ released answers to look at


def seeded_release(mechanism: Mechanism, seed: int = 0) -> Release:
    """Return a release function with seeded noise, new in every call: quick, for experiments, NOT private."""
    calls = np.random.SeedSequence(validation.count(seed=seed, at_least=0))

    def release(answers: FloatArray, label: str) -> FloatArray:
        """Return released answers (m, k) about a label, with fresh seeded noise."""
        fresh = int(calls.spawn(1)[0].generate_state(2, np.uint64)[0])
        return mechanism.sample(answers, label, seed=fresh)

    return release


def draw_true_answers(classes: GaussianClasses, n_samples: int, rng: np.random.Generator) -> list[FloatArray]:
    """Return (n_samples, k) true answers per label, drawn from the class laws.

    Constants are exact and the rest lies on the support: on an oblique one the entries that determine the others are
    drawn, and the others computed from them.
    """
    supports = cached_supports(classes)
    values, vectors = eigh(classes.stored_covs)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    roots[classes.stored_variances == 0] = 0.0
    drawn = []
    for i, mean in enumerate(classes.means):
        root = roots[0 if classes.is_shared else i]
        family = supports.families[supports.family[i]] if supports.position[i] >= 0 else None
        if family is not None and family.spread is not None and family.classes is not None:
            factor = family.classes.cholesky[0 if family.classes.is_shared else supports.position[i]]
            root = family.spread @ factor
        drawn.append(np.asarray(mean + rng.standard_normal((n_samples, root.shape[1])) @ root.T))
    return drawn


def release_every_label(
    release: Release, answers: list[FloatArray], labels: tuple[str, ...], step: Callable[[], None] | None = None
) -> list[FloatArray]:
    """Return every label's true answers after the release; ``step`` is called after each label."""
    done = []
    for label, q in zip(labels, answers, strict=True):
        released = validation.array(ndim=2, release=np.asarray(release(q, label)))
        if released.shape != q.shape:
            raise InputError("release must return one released answer, with as many entries, per true answer")
        done.append(released)
        if step is not None:
            step()
    return done
