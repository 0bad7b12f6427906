"""``check_mechanism``: does a kernel, any function that draws an answer about a label, keep (ε, δ) by its answers?

Three tests on the answers of two neighbors:

1. *Counting* (:mod:`shoal.audits.attacks`): events S chosen on the first half of the answers, counted on the second,
   δ ≥ P(S) − e^ε P'(S) by exact bounds. True of every kernel; it cannot see a δ of 1e-5 in 10,000 answers.
2. *Gap*: where answers pass for Gaussian, means that lie μ standard deviations apart in a direction have a δ in closed
   form. With S the covariance pooled over m = n − 1 degrees of freedom (as of one label: no less if the two covariances
   differ) and k entries, Hotelling's

       T² = (n/2) (ȳ − ȳ')ᵀ S⁻¹ (ȳ − ȳ'),   T² (m − k + 1)/(k m) ~ F(k, m − k + 1) with noncentrality μ² n/2

   for the direction in which μ is largest bounds it from below.
3. *Spread*: the same for a ratio of variances, by the F distribution, in a direction learned from the first half.

What 2 and 3 find rests on Gaussian answers, tails included: a δ below ``DEEPEST`` is never concluded, and nothing from
fewer answers than ``LEAST``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from shoal import validation
from shoal.accounting.curve import privacy_curve
from shoal.accounting.deterministic import analytic_sigma
from shoal.accounting.releases import Releases
from shoal.audits.attacks import FEWEST, ResidualLaws, Scores, count_events, likelihood_ratio_scores, split_in_halves
from shoal.audits.confidence import detectable_delta
from shoal.errors import InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.rounding import exactly, lower, percent, upper
from shoal.validation import FloatArray, IndexArray

#: Pairs of neighbors looked at: those whose answers lie furthest apart.
MOST_EDGES = 32
#: How the error probability is shared out.
SHARES = {"counting": 0.05, "gap": 0.9, "spread": 0.05}
#: Answers whose skewness and kurtosis are less likely than this, over all entries, do not pass for Gaussian.
GAUSSIAN = 1e-4
#: Answers per label from which a law is concluded; 200 of Laplace noise often pass for Gaussian.
LEAST = 1_000
#: No δ below this is concluded from a law that was looked at in its middle only.
DEEPEST = 1e-9
#: Largest gap that is concluded: further apart, counting sees everything.
WIDEST = 8.0
#: Distinct answers per answer drawn up to which the frequency of each one is used.
FEW_VALUES = 0.02
#: Noise of the kernel that ``power`` speaks of, as a share of what it should be.
TOO_LITTLE = 0.8


@dataclass(frozen=True)
class MechanismCheck:
    """Result of :func:`check_mechanism`.

    With probability ``confidence`` the true δ(ε) of ``worst_edge`` is at least ``delta_lower``: ``by`` ``"counting"``,
    whatever the kernel, or by the ``"gap"`` or the ``"spread"`` of answers that pass for Gaussian (``gaussian``), if
    they are. ``power`` is the probability that a kernel with a fifth too little noise is found with so many answers:
    Gaussian noise that would meet the claim exactly, or Laplace noise where answers do not pass for Gaussian.
    ``detectable_delta`` is the δ that counting would have found in any kernel.
    """

    verdict: str
    epsilon: float
    delta: float
    delta_lower: float
    by: str
    worst_edge: tuple[str, str]
    gaussian: bool
    power: float
    detectable_delta: float
    n: int
    confidence: float
    n_edges: int
    edges_tested: int

    def __repr__(self) -> str:
        a, b = self.worst_edge
        rests = "whatever the kernel" if self.by == "counting" else "if answers are Gaussian, which they pass for"
        looked = (
            "" if self.edges_tested == self.n_edges else f"; {self.edges_tested} of {self.n_edges} pairs were tested"
        )
        return (
            f"{self.verdict}: δ ≥ {lower(self.delta_lower)} at ε = {exactly(self.epsilon)} by {self.by} ({rests}), "
            f"{a} against {b}; claimed δ ≤ {exactly(self.delta)}; {self.n} answers per label, confidence "
            f"{exactly(self.confidence)}; a fifth too little noise is found with probability {percent(self.power)}, "
            f"any kernel's δ from {upper(self.detectable_delta)} on{looked}"
        )


def check_mechanism(
    release: Callable[[str], Any],
    classes: GaussianClasses,
    graph: NeighborGraph,
    epsilon: float,
    delta: float,
    n: int = 10_000,
    confidence: float = 0.999,
    *,
    gaussian: bool = True,
) -> MechanismCheck:
    """Look for a violation of (ε, δ) in the answers of any kernel, in this library or another.

    Args:
        release: draws one answer about a label, a number or a sequence of numbers, with fresh randomness each time.
        classes: laws of the true answers, which attackers know. They guide the attacks; no conclusion rests on them.
        graph: which labels are neighbors. Of more than 32 pairs those furthest apart in ``classes`` are tested.
        epsilon, delta: the claim.
        n: answers drawn about each label.
        confidence: probability that a kernel that keeps its claim is not called violated, and that ``delta_lower``
            holds; for a conclusion by gap or spread, of kernels whose answers are Gaussian where they pass for it.
        gaussian: whether at least 1,000 answers per label that pass for Gaussian may be taken for it. That finds too
            little noise at a δ that no counting sees. A kernel that is Gaussian in its middle and has heavier tails can
            keep a claim and be called violated. False: nothing is assumed about the kernel.

    Returns:
        The verdict, ``"violated"`` or ``"consistent"``, with the proved ``delta_lower`` and the ``power``. Consistent
        is not a proof.

    >>> import numpy as np
    >>> import shoal
    >>> classes = shoal.GaussianClasses.deterministic(np.eye(2), labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> rng, answers = np.random.default_rng(0), dict(zip(classes.labels, classes.means))
    >>> def release(label):
    ...     return answers[label] + rng.normal(0.0, 0.8 * shoal.analytic_sigma(np.sqrt(2), 1.0, 1e-3), 2)
    >>> check = shoal.testing.check_mechanism(release, classes, graph, epsilon=1.0, delta=1e-3)
    >>> check.verdict, check.by, check.power > 0.99
    ('violated', 'gap', True)
    """
    if not callable(release):
        raise InputError("release must be a function that draws an answer about a label: release(label)")
    epsilon = validation.non_negative(epsilon=epsilon)
    delta = validation.probability(delta=delta)
    n = validation.count(n=n, at_least=2 * FEWEST)
    error = 1.0 - validation.probability(confidence=confidence, below_one=True, above_zero=True)
    every = Releases.collect(classes).edge_positions(graph)
    if len(every) == 0:
        raise InputError("graph has no edges: no pair of labels is to be indistinguishable")
    points = classes.embedding()
    apart = np.linalg.norm(points[every[:, 0]] - points[every[:, 1]], axis=1)
    pairs = every[np.sort(np.argsort(-apart, kind="stable")[:MOST_EDGES])]
    used = np.unique(pairs)
    place = np.full(classes.n_classes, -1, dtype=np.intp)
    place[used] = np.arange(len(used))
    answers = _draw_answers(release, [classes.labels[i] for i in used], n)
    pairs, labels, means = place[pairs], [classes.labels[i] for i in used], classes.means[used]
    known: FloatArray | None = means if means.shape[1] == answers[0].shape[1] else None

    passes = _pass_for_gaussian(answers)
    findings = [_counting_bound(answers, known, pairs, epsilon, error * SHARES["counting"])]
    gap_error = error * SHARES["gap"] / len(pairs) if gaussian else 0.0
    level = error * SHARES["counting"] / (2 * len(pairs) * 2 * 3)
    with warnings.catch_warnings():
        # SciPy warns where its series for the noncentral F ends early, about values that are right to many digits.
        warnings.simplefilter("ignore", RuntimeWarning)
        for by, bound in (("gap", _gap_bound), ("spread", _spread_bound)) if passes and gaussian else ():
            share = error * SHARES[by] / len(pairs)
            findings += [(bound(answers[a], answers[b], epsilon, share), by, (a, b)) for a, b in pairs.tolist()]
        power = _detection_power(epsilon, delta, answers[0].shape, gap_error, level, passes)
    delta_lower, by, (a, b) = max(findings, key=lambda finding: finding[0])
    return MechanismCheck(
        verdict="violated" if delta_lower > delta else "consistent",
        epsilon=epsilon,
        delta=delta,
        delta_lower=delta_lower,
        by=by,
        worst_edge=(labels[a], labels[b]),
        gaussian=passes,
        power=power,
        detectable_delta=detectable_delta(delta, epsilon, n - n // 2, level),
        n=n,
        confidence=1.0 - error,
        n_edges=len(every),
        edges_tested=len(pairs),
    )


#: A lower bound on δ, by which question, and of which pair.
LowerBound = tuple[float, str, tuple[int, int]]


def _draw_answers(release: Callable[[str], Any], labels: Sequence[str], n: int) -> list[FloatArray]:
    """(n, k) answers drawn about each of the labels."""
    drawn = []
    for label in labels:
        rows = validation.array(ndim=(1, 2), release=[np.asarray(release(label)) for _ in range(n)])
        drawn.append(rows.reshape(n, -1))
    if len({rows.shape[1] for rows in drawn}) > 1 or drawn[0].shape[1] == 0:
        raise InputError("release must return answers of one length for all labels")
    return drawn


def _pass_for_gaussian(answers: list[FloatArray]) -> bool:
    """Whether no entry of any label's answers, and no sum of entries, speaks against a Gaussian law."""
    entries = np.concatenate([np.column_stack([y, y.sum(axis=1)]).T for y in answers])
    varied = entries[(entries != entries[:, :1]).any(axis=1)]
    if not len(varied) or entries.shape[1] < LEAST:
        return False
    return bool(scipy.stats.normaltest(varied, axis=1).pvalue.min() >= GAUSSIAN / len(varied))


def _counting_bound(
    answers: list[FloatArray],
    known: FloatArray | None,
    pairs: IndexArray,
    epsilon: float,
    error: float,
) -> LowerBound:
    """The best lower bound from counted events, by attackers who know the means, the samples, or single values."""
    learned = [split_in_halves(y)[0] for y in answers]
    fitted = ResidualLaws.fit(learned)
    means = fitted.means if known is None else known
    claim = ResidualLaws.from_moments(means, np.broadcast_to(fitted.covs.mean(axis=0), fitted.covs.shape).copy())
    own = [claim.log_density_of_answers(i, y) for i, y in enumerate(answers)]
    laws, values = likelihood_ratio_scores(claim, answers, own), _value_frequency_scores(answers)

    def scores(a: int, b: int) -> Sequence[tuple[FloatArray, FloatArray]]:
        return [*laws(a, b), *([] if values is None else values(a, b))]

    attacks = ("means", "samples", *(() if values is None else ("values",)))
    at = np.full((len(pairs), 1), epsilon)
    lows = count_events(attacks, scores, pairs, at, error).delta_lower(at[:, 0])[0]
    e, d = np.unravel_index(int(np.argmax(lows)), lows.shape)
    a, b = pairs[e] if d == 0 else pairs[e][::-1]
    return float(lows[e, d]), "counting", (int(a), int(b))


def _value_frequency_scores(answers: list[FloatArray]) -> Scores | None:
    """Attackers' scores by the frequency of each value in the first half; None where there are many values."""
    values, codes = np.unique(np.concatenate(answers), axis=0, return_inverse=True)
    if len(values) > FEW_VALUES * len(answers[0]):
        return None
    of_label = np.split(codes.ravel(), np.cumsum([len(y) for y in answers])[:-1])
    often = [np.log(np.bincount(one[: len(one) // 2], minlength=len(values)) + 0.5) for one in of_label]

    def scores(a: int, b: int) -> Sequence[tuple[FloatArray, FloatArray]]:
        ratio = often[a] - often[b]
        return [(ratio[of_label[a]], ratio[of_label[b]])]

    return scores


def _gap_bound(one: FloatArray, two: FloatArray, epsilon: float, error: float) -> float:
    """The δ of Gaussian laws whose means are as far apart as answers show, by Hotelling's T²."""
    n, k = one.shape
    pooled = 0.5 * (np.cov(one.T).reshape(k, k) + np.cov(two.T).reshape(k, k))
    std = np.sqrt(np.diagonal(pooled))
    if not (std > 0).all():
        return 0.0
    away = (one.mean(axis=0) - two.mean(axis=0)) / std
    solution, _, rank, _ = scipy.linalg.lstsq(pooled / std[:, None] / std, away)
    rest = n - rank  # degrees of freedom of the denominator
    ratio = n / 2 * min(float(away @ solution), WIDEST**2) * rest / (rank * (n - 1))
    if rest < 1 or scipy.stats.f.sf(ratio, rank, rest) >= error:
        return 0.0

    def excess(noncentrality: float) -> float:
        return float(scipy.stats.ncf.sf(ratio, rank, rest, noncentrality)) - error

    noncentrality = float(scipy.optimize.brentq(excess, 0.0, 2 * rank * ratio + 100.0))
    return _gaussian_delta_lower(math.sqrt(2 / n * noncentrality), 1.0, epsilon)


def _spread_bound(first: FloatArray, second: FloatArray, epsilon: float, error: float) -> float:
    """The δ of Gaussian laws whose variances differ as much as answers show, in directions learned."""
    (one, rest), (two, others) = split_in_halves(first), split_in_halves(second)
    k = one.shape[1]
    covs = [np.cov(part.T).reshape(k, k) for part in (one, two)]
    if min(float(np.linalg.eigvalsh(cov)[0]) for cov in covs) <= 1e-12 * max(float(np.trace(cov)) for cov in covs):
        return 0.0
    _, vectors = scipy.linalg.eigh(*covs)
    ratios = [1.0]
    for direction, (wide, narrow) in ((vectors[:, -1], (rest, others)), (vectors[:, 0], (others, rest))):
        ratio = float(np.var(wide @ direction, ddof=1) / np.var(narrow @ direction, ddof=1))
        ratios.append(ratio / float(scipy.stats.f.isf(error / 2, len(wide) - 1, len(narrow) - 1)))
    return _gaussian_delta_lower(0.0, max(ratios), epsilon)


def _gaussian_delta_lower(gap: float, ratio: float, epsilon: float) -> float:
    """δ(ε) of N(0, 1) against N(gap, 1), or N(gap, ratio) for a ratio above 1, rounded down; 0 below ``DEEPEST``."""
    if gap == 0.0 and ratio <= 1.0:
        return 0.0
    classes = GaussianClasses([[0.0], [gap]], [[[1.0]], [[ratio]]] if ratio > 1.0 else [[1.0]])
    delta = float(privacy_curve(classes, NeighborGraph.complete(classes.labels), epsilon).delta_lower)
    return delta if delta >= DEEPEST else 0.0


def _detection_power(
    epsilon: float, delta: float, shape: tuple[int, ...], gap_error: float, event_error: float, gaussian: bool
) -> float:
    """Probability that a kernel with a fifth too little noise is found by its gap or by counting (approximately).

    ``shape`` is that of the answers about a label; ``gap_error`` and ``event_error`` are the error probabilities of one
    conclusion by either.
    """
    (n, k), found = shape, 0.0
    if gaussian:
        gap = 1.0 / analytic_sigma(1.0, epsilon, min(max(delta, DEEPEST), 0.999))
        claimed, true = (scipy.stats.ncf(k, n - k, n / 2 * size**2) for size in (gap, gap / TOO_LITTLE))
        found = float(true.sf(claimed.isf(gap_error))) if gap_error > 0 else 0.0
        gap /= TOO_LITTLE
        # Events of 1-D laws N(gap, 1) against N(0, 1): answers above a threshold.
        at = np.linspace(-4.0, 8.0, 241)
        own, other = scipy.special.ndtr(gap - at), scipy.special.ndtr(-at)
    else:
        own, other = np.array([0.5]), np.array([0.5 * math.exp(-epsilon / TOO_LITTLE)])
    grow, half = math.exp(min(epsilon, 700.0)), n - n // 2
    errors = np.sqrt(own * (1 - own) / half), grow * np.sqrt(other * (1 - other) / half + 1 / half**2)
    slack = own - grow * other - delta + float(scipy.special.ndtri(event_error)) * (errors[0] + errors[1])
    counted = scipy.special.ndtr(slack / np.hypot(*errors)) * (own * half >= 1)
    return max(found, float(counted.max()))
