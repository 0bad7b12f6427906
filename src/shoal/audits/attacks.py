"""Attacks on pairs of labels: scores, the events made from them, and what counting the events proves.

Against the directed edge X → X' an attack is an event S, "the score exceeds a threshold", and

    δ(ε) ≥ P_X(S) − e^ε P_X'(S)   for every event S,   ε(δ) ≥ ln (P_X(S) − δ) / P_X'(S)

which is the definition of (ε, δ)-privacy read backwards. The best S is {ln p_X/p_X' > ε} (Neyman & Pearson 1933). The
threshold is chosen on the first half of the released answers; the second half is counted, with Clopper–Pearson bounds
on both probabilities. The bounds hold whatever the score is: a bad one only proves less. One event with its two
bounds serves every ε and every δ at once.

Who holds a whole table asks which of two rows is X's and which is the neighbor's. The score of a row pair is then the
sum of both rows' log-likelihood ratios, and exchanging the rows turns its sign: one direction says it all
(:func:`exchanged`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.audits.confidence import lower_bound, rough_bounds, upper_bound
from shoal.audits.residuals import ResidualLaws
from shoal.validation import FloatArray, IndexArray

#: Scores of edge (a, b): ln p_a/p_b at the answers of a and at those of b, one pair of arrays per attack.
Scores = Callable[[int, int], Sequence[tuple[FloatArray, FloatArray]]]
Halves = tuple[FloatArray, FloatArray]
#: Thresholds tried on the first half.
CANDIDATES = 128


@dataclass(frozen=True, eq=False)
class Events:
    """Counted events, arrays of shape (n_edges, D, n_attacks, n_events); direction 0 is a → b, 1 is b → a.

    D is 2 for single answers and 1 for tables, where both directions are the same.

    ``own`` counts the event among ``own_trials`` answers of X, ``other`` among those of X'. ``low`` and ``high`` bound
    P_X(S) from below and P_X'(S) from above, all at once with error probability ``error``.
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
        """Best bound per edge and direction at one ε per edge (n_edges,), and the flat number of its event."""
        grow = np.exp(np.minimum(epsilon, 700.0))[:, None, None, None]
        return _best(np.maximum(self.low - grow * self.high, 0.0))

    def epsilon_lower(self, delta: float) -> FloatArray:
        """(n_edges, D) largest ε that is proved to be needed at this δ; 0 where nothing is proved."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log((self.low - delta) / self.high)
        return _best(np.where(self.low > delta, np.maximum(found, 0.0), 0.0))[0]


def _best(values: FloatArray) -> tuple[FloatArray, NDArray[np.intp]]:
    flat = values.reshape(*values.shape[:2], -1)
    where = np.argmax(flat, axis=2)
    return np.take_along_axis(flat, where[..., None], axis=2)[..., 0], where


def count_events(
    attacks: tuple[str, ...],
    scores: Scores,
    pairs: IndexArray,
    epsilon: FloatArray,
    delta: float,
    error: float,
    step: Callable[[], None] | None = None,
    directions: int = 2,
) -> Events:
    """Choose and count events for all edges: one per ε (columns of ``epsilon``, (n_edges, E)) and one for ε at δ.

    ``step`` is called after each edge; ``directions`` is 1 where the scores are :func:`exchanged`.
    """
    shape = (len(pairs), directions, len(attacks), epsilon.shape[1] + 1)
    threshold = np.zeros(shape)
    own, other, own_trials, other_trials = np.zeros((4, *shape), dtype=np.int64)
    share = error / (2 * max(own.size, 1))
    for e, (a, b) in enumerate(pairs):
        for attack, (first, second) in enumerate(scores(int(a), int(b))):
            for direction, (mine, theirs) in enumerate(((first, second), (-second, -first))[:directions]):
                learn, count = halves(mine)
                learn_other, count_other = halves(theirs)
                at = choose_thresholds(learn, learn_other, epsilon[e], delta, share)
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
        low=lower_bound(own, own_trials, share),
        high=upper_bound(other, other_trials, share),
        error=share,
    )


def choose_thresholds(
    own: FloatArray, other: FloatArray, epsilon: FloatArray, delta: float, error: float
) -> FloatArray:
    """Thresholds whose events promise the most on these scores: one per ε, then one for ε at δ."""
    own, other = np.sort(own), np.sort(other)
    inner = np.linspace(0, 1, CANDIDATES // 2 + 2)[1:-1]
    tail = np.unique(np.geomspace(1, len(other), CANDIDATES // 4).astype(int))
    tail_own = np.unique(np.geomspace(1, len(own), CANDIDATES // 4).astype(int))
    tried = np.unique(
        np.concatenate(
            [
                epsilon,
                own[(inner * len(own)).astype(int)],
                other[len(other) - tail],
                own[len(own) - tail_own],
                own[:1] - 1.0,
            ]
        )
    )
    low, _ = rough_bounds(_above(own, tried) / len(own), len(own), error)
    _, high = rough_bounds(_above(other, tried) / len(other), len(other), error)
    gains = low[None, :] - np.exp(np.minimum(epsilon, 700.0))[:, None] * high[None, :]
    ratio = np.maximum(low - delta, 0.0) / high
    return np.asarray(tried[np.append(np.argmax(gains, axis=1), np.argmax(ratio))])


def claimed_and_fitted(claim: ResidualLaws, answers: list[FloatArray], own: list[FloatArray]) -> Scores:
    """Scores of the two attacks on single releases: ``claim`` and ``samples``.

    ``claim`` is the likelihood ratio of the laws that the mechanism claims; ``samples`` knows nothing but the first
    half of the released answers, to which it fits one Gaussian per label (quadratic discriminant analysis).
    ``own`` are the log-densities of every label's answers under its own claimed law.
    """
    fitted = ResidualLaws.fitted([halves(y)[0] for y in answers])
    own_fitted = [fitted.log_densities(i, y) for i, y in enumerate(answers)]

    def scores(a: int, b: int) -> Sequence[tuple[FloatArray, FloatArray]]:
        tests = []
        for laws, mine in ((claim, own), (fitted, own_fitted)):
            first = mine[a] - laws.log_densities(b, answers[a])
            second = laws.log_densities(a, answers[b]) - mine[b]
            tests.append((first, second))
        return tests

    return scores


def exchanged(scores: Scores) -> Scores:
    """Scores of tables from those of single answers: row pairs in the order (a, b), and the same pairs exchanged.

    The i-th answers of both labels make a pair. With s the score of one answer, that of the pair is s(row of a) −
    s(row of b), and in the other order it is the negative of that. Bounds on both probabilities hold at once although
    they come from the same pairs: neither relies on the other.
    """

    def both(a: int, b: int) -> Sequence[tuple[FloatArray, FloatArray]]:
        tests = []
        for first, second in scores(a, b):
            count = min(len(first), len(second))
            loss = first[:count] - second[:count]
            tests.append((loss, -loss))
        return tests

    return both


def halves(values: FloatArray) -> Halves:
    """The first half, to learn from, and the second, to count."""
    middle = len(values) // 2
    return values[:middle], values[middle:]


def _above(ordered: FloatArray, thresholds: FloatArray) -> NDArray[np.int64]:
    return np.asarray(len(ordered) - np.searchsorted(ordered, thresholds, side="right"), dtype=np.int64)
