"""How likely is the best possible attacker to name the label from one release?

With prior π the Bayes attacker names the label with the largest π_X p_X(q̃) and succeeds with probability
∫ max_X π_X p_X(q) dq. For two labels that is π_b + π_a δ_{a→b}(ln π_b/π_a), exact from the accounting. For more it is
an integral in k dimensions without a closed form: it is estimated by drawing answers from the mixture and averaging the
attacker's posterior confidence, and reported with a confidence interval (empirical Bernstein bound, Maurer & Pontil
2009), whose upper end is the figure to rely on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal import validation
from shoal.accounting import tails
from shoal.accounting.curve import brackets
from shoal.accounting.releases import Prior, Releases, prior_weights
from shoal.accounting.spectrum import supports_of
from shoal.classes import GaussianClasses
from shoal.errors import InputError
from shoal.graph import NeighborGraph
from shoal.validation import FloatArray


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

    @property
    def advantage_upper(self) -> float:
        """How much better than guessing the attacker can be, at most."""
        return max(self.success_upper - self.prior_success, 0.0)

    def __float__(self) -> float:
        return self.success


def identification_risk(
    classes: Any,
    graph: NeighborGraph | None = None,
    prior: Prior = None,
    *,
    n_samples: int = 20_000,
    confidence: float = 0.99,
    seed: int = 0,
) -> IdentificationRisk:
    """Probability that the best possible attacker names the label from one released answer.

    Without a graph the attacker chooses among all labels. With one, the attacker is told the connected component that
    the label belongs to, since only labels within a component are meant to be hidden among each other; the result
    averages over components by their prior weight.

    Args:
        classes: laws of one released answer.
        graph: who is hidden among whom.
        prior: probability of each label, by name or in label order; by default all are equally likely.
        n_samples: answers drawn for each group of three and more labels.
        confidence: of the interval, where the value is estimated.
        seed: seed of the estimate.

    Returns:
        ∫ max_X π_X p_X(q) dq with its bracket, and what guessing from the prior achieves.

    >>> import shoal
    >>> classes = shoal.GaussianClasses([[0.0], [1.0]], [[1.0]], labels=["a", "b"])
    >>> graph = shoal.NeighborGraph.complete(classes.labels)
    >>> risk = shoal.identification_risk(classes, graph)
    >>> print(f"{risk.success_upper:.4f}", risk.prior_success, risk.exact)
    0.6915 0.5 True
    """
    releases = Releases.of(classes)
    if len(releases.families) != 1 or releases.times[0] != 1:
        raise InputError("classes must be one release here; stack several with GaussianClasses.joint first")
    family = releases.families[0]
    weights = prior_weights(prior, releases.labels)
    n_samples = validation.count(n_samples=n_samples, at_least=100)
    confidence = validation.probability(confidence=confidence, below_one=True, above_zero=True)
    component = np.zeros(family.n_classes, dtype=np.intp)
    if graph is not None:
        releases.pairs(graph)  # the labels must agree
        member_of = dict(zip(graph.labels, graph.components, strict=True))
        component = np.array([member_of[name] for name in releases.labels], dtype=np.intp)

    # Laws on different supports give themselves away: groups are (component, support).
    supports = supports_of(family)
    group = component * (int(supports.groups.max()) + 1) + supports.groups
    groups = [np.flatnonzero(group == number) for number in np.unique(group)]
    groups = [members for members in groups if weights[members].sum() > 0]
    settled = [len(members) == 1 or bool((supports.position[members] >= 0).all()) for members in groups]
    crowded = sum(
        known and len(members) > 2 and supports.families[supports.family[members[0]]].classes is not None
        for members, known in zip(groups, settled, strict=True)
    )
    rng = np.random.default_rng(seed)
    parts = []
    for members in groups:
        share = weights[members].sum()
        part = _group_success(
            releases, family, members, weights[members] / share, n_samples, (1 - confidence) / max(crowded, 1), rng
        )
        parts.append(share * np.array(part))
    low, value, high = np.sum(parts, axis=0)
    guess = sum(weights[component == number].max() for number in np.unique(component))
    return IdentificationRisk(
        success=float(min(max(value, guess), 1.0)),
        success_lower=float(max(low, guess)),
        success_upper=float(min(high * (1 + 1e-12), 1.0)),
        prior_success=float(guess),
        confidence=1.0 if crowded == 0 else confidence,
        exact=crowded == 0 and all(settled),
    )


def _group_success(
    releases: Releases,
    family: GaussianClasses,
    members: NDArray[np.intp],
    weights: FloatArray,
    n_samples: int,
    risk: float,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """(lower, value, upper) of the success within one group of labels on one support."""
    if len(members) == 1:
        return 1.0, 1.0, 1.0
    supports = supports_of(family)
    if (supports.position[members] < 0).any():
        return float(weights.max()), 1.0, 1.0  # unsettled laws: nothing is claimed
    if len(members) == 2 and (weights > 0).all():
        pair = members[None, :]
        epsilon = np.array([math.log(weights[1] / weights[0])])
        found = np.exp(brackets(releases, pair, tails.DP, epsilon, np.zeros((1, 2)))[0, 0, 0])
        value, low, high = weights[1] + weights[0] * found
        return float(low), float(value), float(high)
    part = supports.families[supports.family[members[0]]]
    if part.classes is None:
        top = float(weights.max())  # all answers are equal
        return top, top, top
    confidences = _posterior_confidence(part.classes.take(supports.position[members]), weights, n_samples, rng)
    mean, var = float(confidences.mean()), float(confidences.var(ddof=1))
    n = len(confidences)
    log_term = math.log(4.0 / risk)
    half = math.sqrt(2.0 * var * log_term / n) + 7.0 * log_term / (3.0 * (n - 1)) + _doubt(family, members, weights)
    return max(mean - half, float(weights.max())), mean, min(mean + half, 1.0)


def _doubt(family: GaussianClasses, members: NDArray[np.intp], weights: FloatArray) -> float:
    """How much the success can change because the laws are known only so well: their mean total variation."""
    if family.doubts is None:
        return 0.0
    relative, shifted = (np.broadcast_to(d, (family.n_classes,))[members] for d in family.doubts)
    scales = 2.0 * np.where(relative < 0.25, relative, np.inf) * math.sqrt(family.n_dims)
    apart = np.minimum(tails.PER_SCALE * scales + tails.PER_GAP * shifted, 1.0)
    return float((weights * apart).sum() * (1 + 1e-12))


def _posterior_confidence(
    laws: GaussianClasses, weights: FloatArray, n_samples: int, rng: np.random.Generator
) -> FloatArray:
    """Largest posterior probability at answers drawn from the mixture."""
    counts = rng.multinomial(n_samples, weights)
    factors = laws.cholesky if not laws.is_diagonal else None
    stds = np.sqrt(np.broadcast_to(laws.stored_variances, laws.means.shape))
    draws = []
    for label in np.flatnonzero(counts):
        z = rng.standard_normal((counts[label], laws.n_dims))
        spread = z * stds[label] if factors is None else z @ factors[0 if laws.is_shared else label].T
        draws.append(laws.means[label] + spread)
    answers = np.concatenate(draws)
    best = np.full(n_samples, -np.inf)
    total = np.full(n_samples, -np.inf)
    for label in np.flatnonzero(weights):
        if factors is None:
            z = ((answers - laws.means[label]) / stds[label]).T
            log_det = np.log(stds[label]).sum()
        else:
            from scipy.linalg import solve_triangular

            factor = factors[0 if laws.is_shared else label]
            z = solve_triangular(factor, (answers - laws.means[label]).T, lower=True, check_finite=False)
            log_det = np.log(np.diagonal(factor)).sum()
        density = math.log(weights[label]) - log_det - 0.5 * np.einsum("ij,ij->j", z, z)
        best = np.maximum(best, density)
        total = np.logaddexp(total, density)
    return np.asarray(np.exp(best - total))
