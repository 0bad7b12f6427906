"""What an analyst's budget allows: an account that holds however the next question is chosen.

A price says what one question costs at most for the worst pair of its labels, both of whose answers are shown: δ at a
few ε, and the Rényi divergence at a few orders. It is the same for every handle. An analyst who picks the next question
in the light of earlier answers is held by a filter (theory, adaptive choice); the first question was chosen before any
answer was seen, and is allowed as well where its own δ(ε) fits, after which the filter decides about the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.accounting.filters import FilterRule
from shoal.ledger.bounds import MechanismBound
from shoal.mechanism.atoms import sum_up
from shoal.mechanism.releasable import Releasable

#: Covers the rounding of the few operations of a sum.
ROUNDING = 1.0 + 2.0**-48


@dataclass(frozen=True)
class Price:
    """Upper ends for one question: δ of a table by ε; of one answer the divergence by order, the largest loss and the
    distance that finite precision adds."""

    deltas: Mapping[float, float]
    divergences: Mapping[float, float]
    largest: float | None
    precision: float

    @classmethod
    def of(cls, mechanisms: Sequence[tuple[Releasable, MechanismBound]]) -> Price:
        """Of mechanisms with different labels: a pair is in one of them, so the worst counts."""
        tables = [dict(bound.points("table")) for _, bound in mechanisms]
        orders = [dict(bound.points("renyi")) for _, bound in mechanisms]
        losses = [one.answer_epsilon for one, _ in mechanisms if one.answer_epsilon is not None]
        largest = max(losses) if len(losses) == len(mechanisms) else None
        return cls(_worst(tables), _worst(orders), largest, max(one.finite_precision_tv for one, _ in mechanisms))

    def delta_at(self, epsilon: float) -> float:
        """δ(ε) at most: the least of those at or below ε."""
        return min((delta for at, delta in self.deltas.items() if at <= epsilon), default=1.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "deltas": sorted(self.deltas.items()),
            "divergences": sorted(self.divergences.items()),
            "largest": self.largest,
            "precision": self.precision,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Price:
        deltas, divergences = ({float(at): float(v) for at, v in content[name]} for name in ("deltas", "divergences"))
        return cls(deltas, divergences, content["largest"], content["precision"])


@dataclass(frozen=True)
class Allowance:
    """An account at ε with a question in it: ``spent`` of ``delta``, and what was ``before``.

    ``loss`` is the largest loss of all answers before the question where every one of them has a bound; then ε is what
    is used up, and δ is not touched.
    """

    epsilon: float
    delta: float
    spent: float
    before: float
    loss: float | None = None

    @property
    def allowed(self) -> bool:
        return self.spent <= self.delta

    @property
    def remaining(self) -> float:
        """δ left before the question, rounded down."""
        return _left(self.delta, self.before)

    @property
    def remaining_epsilon(self) -> float:
        """ε left before the question, rounded down: all of it where δ is what is used up."""
        return self.epsilon if self.loss is None else _left(self.epsilon, self.loss)

    @property
    def share(self) -> float:
        """How much of the budget is used up before the question, from 0 to 1."""
        used = self.before / self.delta if self.delta else float(self.before > 0)
        lost = 0.0 if self.loss is None else self.loss / self.epsilon if self.epsilon else float(self.loss > 0)
        return min(max(used, lost), 1.0)

    @classmethod
    def of(cls, before: Sequence[Price], this: Price | None, epsilon: float, delta: float) -> Allowance:
        """The account after ``before``, and with ``this`` unless it is already among them."""
        with_this = [*before, this] if this is not None else list(before)
        loss = _loss(before)
        before_this = spent(before, epsilon, delta)
        return cls(epsilon, delta, spent(with_this, epsilon, delta), before_this, loss if math.isfinite(loss) else None)


def _left(budget: float, used: float) -> float:
    """What is left of a budget, rounded down."""
    if used == 0.0:
        return budget
    return max(math.nextafter(budget - used, 0.0), 0.0) if used < budget else 0.0


def spent(given: Sequence[Price], epsilon: float, delta: float) -> float:
    """δ(ε) that is used up, an upper end for an analyst who chose every question in the light of earlier answers.

    Both answers of a pair count, in whichever direction is worse: twice the divergence of one.
    """
    if not given:
        return 0.0
    aside = ROUNDING * (1.0 + math.exp(min(epsilon, 700.0))) * 2.0 * math.fsum(price.precision for price in given)
    if len(given) == 1:
        alone = ROUNDING * (given[0].delta_at(epsilon) + aside)
        if alone <= delta:
            return alone
    rule = FilterRule(epsilon, delta)
    sums = [ROUNDING * 2.0 * math.fsum(price.divergences.get(o, math.inf) for price in given) for o in rule.orders]
    return float(rule.spent(sums, largest=_loss(given), aside=aside))


def _loss(given: Sequence[Price]) -> float:
    """The largest loss of both answers of a pair over all questions; inf where there is no bound."""
    if any(price.largest is None for price in given):
        return math.inf
    return 2 * sum_up(*(price.largest or 0.0 for price in given))


def _worst(points: Sequence[Mapping[float, float]]) -> dict[float, float]:
    """The largest value at every point that all have."""
    common = set(points[0]).intersection(*points[1:]) if points else set()
    return {at: max(one[at] for one in points) for at in sorted(common)}
