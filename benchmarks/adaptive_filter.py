"""The filter of adaptive budgets on laws, mechanisms and codebooks themselves: what the ledger counts, counted anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shoal import NeighborGraph, validation
from shoal.accounting.curve import BLOCK
from shoal.accounting.renyi import have_equal_covariances, renyi_upper_ends
from shoal.mechanism.composition import FilterRule, codebook_divergence, gaussian_deltas, split_by_kind
from shoal.mechanism.discrete_loss import sum_rounded_up
from shoal.numerics.matrices import EPS


@dataclass(frozen=True)
class AdaptiveFilter:
    """Limit δ(ε) ≤ δ for an analyst who picks every release in the light of earlier answers.

    :func:`shoal.composed_delta` is exact for a sequence that was fixed in advance. This holds for any way of choosing:
    as long as everything released so far fits, whatever it was, the interaction stays within the budget, wherever it
    ends (docs/theory.md, section 15). The budget itself must not be chosen along the way.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        validation.non_negative(epsilon=self.epsilon)
        validation.probability(delta=self.delta, below_one=True)

    @cached_property
    def rule(self) -> FilterRule:
        """The rule that the filter decides by."""
        return FilterRule(self.epsilon, self.delta)

    def spent(self, releases: Sequence[Any], graph: NeighborGraph, *, scope: str = "answer") -> float:
        """Part of δ that everything released so far has taken, for the worst pair; within the budget if not above δ.

        The arguments are those of :func:`shoal.composed_delta`; what finite precision adds for mechanisms is counted.

        Returns:
            A δ, rounded up. It measures the way to the limit; the guarantee is the budget's.
        """
        books, gaussian, pairs = split_by_kind(releases, graph, scope)
        rows, directions = (1, 2) if scope == "answer" else (2, 1)
        orders = np.array(self.rule.orders)
        largest = sum_rounded_up(*(book.answer_epsilon for book in books)) * rows if gaussian is None else math.inf
        tv = sum_rounded_up(*(getattr(release, "finite_precision_tv", 0.0) for release in releases)) * rows
        aside = min((1.0 + math.exp(min(self.epsilon, 700.0))) * tv * (1 + 8 * EPS), 1.0)
        worst = 0.0
        for start in range(0, len(pairs), BLOCK):
            part = pairs[start : start + BLOCK]
            total = np.zeros((len(part), directions, len(orders)))
            exact = np.full(total.shape[:2], math.inf)
            if gaussian is not None:
                total = renyi_upper_ends(gaussian, part, orders, directions)
                equal = np.flatnonzero(have_equal_covariances(gaussian.spectra(part)))
                if len(equal) and not books:
                    exact[equal] = gaussian_deltas(gaussian, part[equal], self.epsilon, directions)
            for e, (i, j) in enumerate(graph.edges[start : start + BLOCK].tolist() if books else ()):
                for direction, (a, b) in enumerate([(i, j), (j, i)][:directions]):
                    losses = [(book.privacy_loss(graph.labels[a], graph.labels[b], scope), 1) for book in books]
                    total[e, direction] += codebook_divergence(losses, orders)
            worst = max(worst, float(self.rule.least_delta(total, gaussian=exact, largest=largest, aside=aside).max()))
        return worst

    def fits(self, releases: Sequence[Any], graph: NeighborGraph, *, scope: str = "answer") -> bool:
        """Whether everything released so far, the next one included, is within the budget whatever led to it."""
        return self.spent(releases, graph, scope=scope) <= self.delta
