"""The probability that the best possible attacker names the label behind an answer, or a row of a whole table.

**One answer.** With prior π the Bayes attacker names the label with the largest π_X p_X(q̃) and succeeds with
probability ∫ max_X π_X p_X(q) dq. For two labels that is π_b + π_a δ_{a→b}(ln π_b/π_a), exact from the accounting. For
more the attacker's posterior confidence is averaged over answers drawn from the mixture, with a confidence interval
(empirical Bernstein bound, Maurer & Pontil 2009), whose upper end is the figure to rely on.

**A table.** The attacker holds one row of every label of a group, in random order, and names one of the rows. For two
labels the success is ½(1 + δ(0)) with the table's δ. For groups of up to ``EXACT_ROWS`` labels the posterior of each
row (:mod:`shoal.accounting.assignments`) is averaged over simulated tables. For groups of any size and any attacker
:func:`naming_bound` holds at every ε (docs/theory.md, section 10): in a complete group (e^ε + (n − 1) δ̄)/(e^ε + n − 1),
δ̄ the mean over pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.accounting import tails
from shoal.accounting.assignments import EXACT_ROWS, likeliest_assignments, match_probabilities
from shoal.accounting.curve import exp_rounded_up, log_delta_brackets, worst_curve
from shoal.accounting.releases import SCOPES, Prior, Releases, prior_weights
from shoal.errors import CertificationError, InputError
from shoal.laws.classes import GaussianClasses
from shoal.laws.graph import NeighborGraph
from shoal.laws.supports import Supports, cached_supports
from shoal.validation import FloatArray, IndexArray

#: Pairs up to which the theorem takes each one's δ; of more, the worst stands for all.
MANY_PAIRS = 20_000
#: How near to guessing, as a share of it, a certain bound must be for nothing to be left to estimate.
CLOSE = 1e-3
#: (lower, value, upper) of a probability of success.
Bracket = tuple[float, float, float]


@dataclass(frozen=True)
class IdentificationRisk:
    """Success probability of the best attacker, against guessing from the prior alone.

    ``success_lower ≤ exact ≤ success_upper`` with the stated ``confidence`` (1.0 where the value is exact).
    """

    success: float
    success_lower: float
    success_upper: float
    prior_success: float
    confidence: float
    exact: bool


def identification_risk(
    classes: Any,
    graph: NeighborGraph | None = None,
    prior: Prior = None,
    *,
    scope: str = "answer",
    n_samples: int = 20_000,
    confidence: float = 0.99,
    seed: int = 0,
) -> IdentificationRisk:
    """Probability that the best possible attacker names the label behind one answer, or one row of a whole table.

    Without a graph the attacker chooses among all labels. With one, the attacker is told the connected component that
    the label belongs to, since only labels within a component are meant to be hidden among each other; the result
    averages over components by their prior weight, for a table over its rows.

    Args:
        classes: laws of one released answer.
        graph: who is hidden among whom.
        prior: probability of each label, by name or in label order; by default all are equally likely. Not for a
            table, where every assignment of labels to rows is equally likely.
        scope: what the attacker holds: one ``"answer"``, or the ``"table"`` with a row of every label. A table's risk
            is never below that of one answer.
        n_samples: answers drawn for each group of three and more labels.
        confidence: of the interval, where the value is estimated.
        seed: seed of the estimate.

    Returns:
        The probability with its bracket, and what guessing achieves. For tables of more than 12 rows a group the value
        is a bound that holds for every attacker.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> risk = shoal.identification_risk(classes, graph)
    >>> print(f"{risk.success_upper:.4f}", risk.prior_success, risk.exact)
    0.6915 0.5 True
    >>> print(f"{shoal.identification_risk(classes, graph, scope='table').success_upper:.4f}")
    0.7602
    """
    table = validation.choice(list(SCOPES), scope=scope) == "table"
    if table and prior is not None:
        raise InputError(
            "prior must be left out with scope='table': every assignment of labels to rows is equally likely there"
        )
    releases = Releases.collect(classes, scope)
    if len(releases.families) != 1 or releases.times[0] != 1:
        raise InputError("classes must be one release here; stack several with GaussianClasses.joint first")
    family = releases.families[0]
    weights = prior_weights(prior, releases.labels)
    n_samples = validation.count(n_samples=n_samples, at_least=100)
    confidence = validation.probability(confidence=confidence, below_one=True, above_zero=True)
    component = np.zeros(family.n_classes, dtype=np.intp)
    pairs = None
    if graph is not None:
        pairs = releases.edge_positions(graph)
        component = graph.components_of(releases.labels)

    # Laws on different supports give themselves away: groups are (component, support).
    supports = cached_supports(family)
    group = component * (int(supports.groups.max()) + 1) + supports.groups
    groups = [np.flatnonzero(group == number) for number in np.unique(group)]
    groups = [members for members in groups if weights[members].sum() > 0]
    inside = _pairs_within_groups(groups, group, pairs) if table else [None] * len(groups)
    rng = np.random.default_rng(seed)
    parts, n_estimated, doubt = [], 0, (1 - confidence) / len(groups)
    for members, edges in zip(groups, inside, strict=True):
        share, bound = weights[members].sum(), 1.0
        own = weights[members] / share
        bracket = _success_without_sampling(releases, supports, members, own)
        if bracket is None and edges is not None:
            bound = best_naming_bound(releases, members, edges)
            if bound <= (1 + CLOSE) / len(members):
                bracket = 1.0 / len(members), bound, bound
        if bracket is None:
            n_estimated += 1
            bracket = _estimate_success(family, members, own, bound, n_samples, doubt, rng, table)
        parts.append(share * np.array(bracket))
    low, value, high = np.sum(parts, axis=0)
    guess = sum(weights[component == number].max() for number in np.unique(component))
    settled = all(len(members) == 1 or bool((supports.position[members] >= 0).all()) for members in groups)
    return IdentificationRisk(
        success=float(min(max(value, guess), 1.0)),
        success_lower=float(max(low, guess)),
        success_upper=float(min(high * (1 + 1e-12), 1.0)),
        prior_success=float(guess),
        confidence=1.0 if n_estimated == 0 else confidence,
        exact=n_estimated == 0 and settled,
    )


def group_naming_bound(size: float, epsilon: float, delta: float = 0.0) -> float:
    """Return (1 − δ) e^ε/(e^ε + n − 1) + δ, rounded up: the most often that a row of a complete group is named right.

    That is :func:`naming_bound` where all n = ``size`` labels are neighbors of all. n times it is concave in n: of
    several groups together, their mean size gives a bound. ε and δ are those of one answer for an attacker who sees one
    row, those of a table for one who sees all of them.

    >>> from shoal.accounting.risk import group_naming_bound
    >>> print(f"{group_naming_bound(10, 2.0):.4f}")
    0.4509
    """
    return min(((1.0 - delta) / (1.0 + (size - 1.0) * math.exp(-epsilon)) + delta) * (1 + 1e-14), 1.0)


def naming_bound(degrees: IndexArray, epsilon: float, total: float) -> float:
    """Return the largest mean of P_A within [0, 1] with Σ_A (d_A + e^ε) P_A ≤ n e^ε + 2 Σ δ.

    ``degrees`` (n,) are the d_A and ``total`` is the sum of δ over edges. The labels with the fewest neighbors are
    named first, as far as the right-hand side goes.
    """
    n, grow = len(degrees), math.exp(epsilon)
    cost = np.sort(degrees) + grow
    spent = np.cumsum(cost)
    room = n * grow + 2.0 * total
    full = int(np.searchsorted(spent, room, side="right"))
    if full == n:
        return 1.0
    named = full + (room - (spent[full - 1] if full else 0.0)) / cost[full]
    return min(float(named / n) * (1 + 1e-12), 1.0)


def best_naming_bound(releases: Releases, members: IndexArray, pairs: IndexArray) -> float:
    """Return :func:`naming_bound` of the group ``members``, joined by the edges ``pairs``, at a good ε.

    Any ε gives a bound; a coarse grid is refined around its best.
    """
    degrees = np.bincount(np.searchsorted(members, pairs).ravel(), minlength=len(members))

    def bound_at(epsilon: float) -> float:
        """Return the bound that this ε gives."""
        return naming_bound(degrees, epsilon, _sum_of_deltas(releases, pairs, epsilon))

    best, at = bound_at(0.0), 0.0
    if best <= (1 + CLOSE) / len(members):
        return best
    step = (math.log(max(int(degrees.max(initial=1)), 1)) + 4.0) / 4.0
    tried = [step * j for j in range(1, 5)]
    for _ in range(4):
        bounds = [(bound_at(epsilon), epsilon) for epsilon in tried]
        best, at = min([(best, at), *bounds])
        step /= 2.0
        tried = [epsilon for epsilon in (at - step, at + step) if epsilon >= 0.0]
    return best


def _sum_of_deltas(releases: Releases, pairs: IndexArray, epsilon: float) -> float:
    """Return the upper end of the sum of δ over pairs; a pair without a figure counts 1."""
    offsets = np.zeros((len(pairs), 1))
    if len(pairs) > MANY_PAIRS:
        try:
            worst = worst_curve(releases, pairs, "dp", np.array([epsilon]), offsets).delta_upper[0]
        except CertificationError:
            worst = 1.0
        return len(pairs) * float(worst)
    if len(pairs) == 0:
        return 0.0
    upper = log_delta_brackets(releases, pairs, tails.DP, np.array([epsilon]), offsets)[:, 0, 0, 2]
    return math.fsum(exp_rounded_up(np.where(np.isnan(upper), 0.0, upper))) * (1 + 1e-15)


def _pairs_within_groups(groups: list[IndexArray], group: IndexArray, pairs: IndexArray | None) -> list[IndexArray]:
    """Return, for each group, the edges with both ends in it; all its pairs where there is no graph."""
    if pairs is None:
        return [members[np.column_stack(np.triu_indices(len(members), 1))] for members in groups]
    pairs = pairs[group[pairs[:, 0]] == group[pairs[:, 1]]]
    pairs = pairs[np.argsort(group[pairs[:, 0]], kind="stable")]
    numbers = np.array([group[members[0]] for members in groups])
    starts = np.searchsorted(group[pairs[:, 0]], numbers, side="left")
    ends = np.searchsorted(group[pairs[:, 0]], numbers, side="right")
    return [pairs[start:end] for start, end in zip(starts, ends, strict=True)]


def _success_without_sampling(
    releases: Releases, supports: Supports, members: IndexArray, weights: FloatArray
) -> Bracket | None:
    """Return the bracket of the success within one group on one support; None where it must be estimated."""
    if len(members) == 1:
        return 1.0, 1.0, 1.0
    if (supports.position[members] < 0).any():
        return float(weights.max()), 1.0, 1.0  # unsettled laws: nothing is claimed
    if len(members) == 2 and (weights > 0).all():
        epsilon = np.array([math.log(weights[1] / weights[0])])
        offsets = np.zeros((1, releases.n_directions))
        deltas = np.exp(log_delta_brackets(releases, members[None, :], tails.DP, epsilon, offsets)[0, 0, 0])
        value, low, high = weights[1] + weights[0] * deltas
        return float(low), float(value), float(high)
    if supports.families[supports.family[members[0]]].classes is None:
        top = float(weights.max())  # all answers are equal
        return top, top, top
    return None


def _estimate_success(
    family: GaussianClasses,
    members: IndexArray,
    weights: FloatArray,
    bound: float,
    n_samples: int,
    risk: float,
    rng: np.random.Generator,
    table: bool,
) -> Bracket:
    """Estimate the success of naming one answer of a group on one support, or a row of its table.

    ``bound`` holds for certain. Where the posterior of a table is out of reach, between one answer and the bound.
    """
    n, laws, doubt = len(members), _full_rank_laws(family, members), _law_error_allowance(family, members, weights)
    if table and n <= EXACT_ROWS:
        mean, half = bernstein_interval(_largest_row_posteriors(laws, max(n_samples // n, 2), rng), risk)
        half += n * doubt  # a table differs from its law by as much as all its rows together
        high = min(mean + half, bound)
        return min(max(mean - half, 1.0 / n), high), min(mean, high), high
    mean, half = bernstein_interval(_largest_posteriors(laws, weights, n_samples, rng), risk)
    half += doubt
    low = max(mean - half, float(weights.max()))
    return (min(low, bound), bound, bound) if table else (low, mean, min(mean + half, bound))


def _full_rank_laws(family: GaussianClasses, members: IndexArray) -> GaussianClasses:
    """Return the members' laws on the entries that carry their answers, where they have full rank."""
    supports = cached_supports(family)
    laws = supports.families[supports.family[members[0]]].classes
    assert laws is not None
    taken: GaussianClasses = laws.take(supports.position[members])
    return taken


def bernstein_interval(values: FloatArray, risk: float) -> tuple[float, float]:
    """Return the mean of independent values within [0, 1] and the half-width of its empirical Bernstein interval."""
    count, log_term = len(values), math.log(4.0 / risk)
    spread = math.sqrt(2.0 * float(values.var(ddof=1)) * log_term / count)
    return float(values.mean()), spread + 7.0 * log_term / (3.0 * (count - 1))


def _law_error_allowance(family: GaussianClasses, members: NDArray[np.intp], weights: FloatArray) -> float:
    """Return the most that errors of the laws can change the success: their mean total variation, by weight."""
    if family.relative_errors is None:
        return 0.0
    relative, shifted = (np.broadcast_to(d, (family.n_classes,))[members] for d in family.relative_errors)
    scales = 2.0 * np.where(relative < 0.25, relative, np.inf) * math.sqrt(family.n_dims)
    distances = np.minimum(tails.PER_SCALE * scales + tails.PER_GAP * shifted, 1.0)
    return float((weights * distances).sum() * (1 + 1e-12))


def _largest_posteriors(
    laws: GaussianClasses, weights: FloatArray, n_samples: int, rng: np.random.Generator
) -> FloatArray:
    """Return the largest posterior probability at each of (n_samples,) answers drawn from the mixture."""
    answers = np.concatenate(_draw_answers(laws, rng.multinomial(n_samples, weights), rng))
    best = np.full(n_samples, -np.inf)
    total = np.full(n_samples, -np.inf)
    for label in np.flatnonzero(weights):
        density = math.log(weights[label]) + _log_densities(laws, int(label), answers)
        best = np.maximum(best, density)
        total = np.logaddexp(total, density)
    return np.asarray(np.exp(best - total))


def _largest_row_posteriors(laws: GaussianClasses, tables: int, rng: np.random.Generator) -> FloatArray:
    """Return (tables,) the mean over rows of the largest posterior probability, in tables drawn from the laws."""
    n = laws.n_classes
    rows = np.stack(_draw_answers(laws, np.full(n, tables), rng), axis=1).reshape(tables * n, -1)
    scores = np.stack([_log_densities(laws, label, rows) for label in range(n)], axis=1).reshape(tables, n, n)
    return np.asarray(match_probabilities(scores, likeliest_assignments(scores)).max(axis=2).mean(axis=1))


def _draw_answers(laws: GaussianClasses, counts: NDArray[np.integer], rng: np.random.Generator) -> list[FloatArray]:
    """Return, for every label, its count of answers (count, k), drawn from its law."""
    drawn = []
    for label, count in enumerate(counts):
        z = rng.standard_normal((count, laws.n_dims))
        factor = _cholesky_or_deviations(laws, label)
        drawn.append(laws.means[label] + (z * factor if factor.ndim == 1 else z @ factor.T))
    return drawn


def _log_densities(laws: GaussianClasses, label: int, answers: FloatArray) -> FloatArray:
    """Return (m,) ln p at answers (m, k), up to a constant common to all labels."""
    from scipy.linalg import solve_triangular

    factor, gaps = _cholesky_or_deviations(laws, label), answers - laws.means[label]
    if factor.ndim == 1:
        z, stds = (gaps / factor).T, factor
    else:
        z, stds = solve_triangular(factor, gaps.T, lower=True, check_finite=False), np.diagonal(factor)
    return np.asarray(-np.log(stds).sum() - 0.5 * np.einsum("ij,ij->j", z, z))


def _cholesky_or_deviations(laws: GaussianClasses, label: int) -> FloatArray:
    """Return a label's lower Cholesky factor (k, k); where entries are independent, their deviations (k,)."""
    place = 0 if laws.is_shared else label
    return np.sqrt(laws.stored_variances[place]) if laws.is_diagonal else np.asarray(laws.cholesky[place])
