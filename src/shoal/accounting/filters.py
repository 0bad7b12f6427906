"""When a sequence chosen along the way must end: filters that hold for every choice.

Exact composition is a guarantee for a sequence that was fixed in advance. Who picks the next mechanism in the light of
earlier answers can stop where luck was bad and go on where it was good, and every branch may be within a budget (ε, δ)
that their mean exceeds. What is decided here holds whatever is chosen, and whenever it ends.

Let P and Q be the two worlds of a pair, L the loss of all answers so far, D_t the sum of the Rényi divergences of order
1 + t of the mechanisms used so far, each given what was seen before it. For every t > 0 the process e^{t(L − D_t)} is
a supermartingale under P. With c_t = t^t / (1+t)^{1+t}, (1 − e^{ε−L})₊ ≤ c_t e^{t(L−ε)}
(:mod:`shoal.product.ledger.budgets`). Let w be weights that sum to 1. Who goes on only as long as one of these holds,
whichever it is, stays within (ε, δ):

    c_t e^{t(D_t − ε)} ≤ w_t δ           for one of a few orders 1 + t, fixed with the budget;
    δ_gauss(ε) ≤ w_gauss δ               all answers Gaussian with equal covariances; that of Σ μ²;
    largest loss ≤ ε                     all answers with a bounded loss: pure ε adds up;

and in each case Σ δᵢ + (1 + e^ε) Σ τᵢ ≤ w_aside δ, which is what is claimed to happen beside the losses, and finite
precision. By how much the largest loss exceeds ε may be counted there too: five times 0.2 is a little above 1. The
proof is in docs/theory.md, section 15. Each way needs its own share of δ because a branch may take one and another
branch another.

Both directions of a pair, and for a table both of its answers, are sums of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from shoal.validation import FloatArray

#: Orders at which divergences are known: 1 + t for t in half powers of two.
ORDERS = tuple(1.0 + 2.0 ** (j / 2) for j in range(-2, 21))
#: Shares of δ: Gaussian answers with equal covariances; each of the orders, the largest first; what is set aside. Their
#: sum is 1. These, :data:`ORDERS` and how orders are chosen are part of what a recorded budget means.
GAUSSIAN = 32 / 64
WEIGHTS = (12 / 64, 11 / 64, 7 / 64)
ASIDE = 2 / 64
#: Covers the rounding of an exponent formed here, relative to the size of its terms.
SLACK = 1e-12


@dataclass(frozen=True)
class FilterRule:
    """The filter of a budget δ(``epsilon``) ≤ ``delta``, for sums that are known from above."""

    epsilon: float
    delta: float

    @cached_property
    def orders(self) -> tuple[float, ...]:
        """The order that lets through most equal Gaussian answers, and the two below it on the grid.

        Answers with unequal covariances, whose divergence grows faster with the order, want lower ones.
        """
        log_delta = math.log(max(self.delta, 1e-300))

        def uses(order: float) -> float:
            t = order - 1.0
            return (self.epsilon + (log_delta + math.log(WEIGHTS[0]) - _log_constant(t)) / t) / order

        best = max(range(len(WEIGHTS) - 1, len(ORDERS)), key=lambda i: uses(ORDERS[i]))
        return tuple(ORDERS[best - i] for i in range(len(WEIGHTS)))

    def least_delta(
        self, divergences: ArrayLike, *, gaussian: ArrayLike = math.inf, largest: ArrayLike = math.inf, aside: float = 0
    ) -> FloatArray:
        """The least δ whose filter, with these orders, would have let everything through; rounded up, at most 1.

        Args:
            divergences: (..., orders) sums of divergences at :attr:`orders`, inf where they are not known.
            gaussian: (...) δ(ε) of all answers together where all are Gaussian with equal covariances, else inf.
            largest: (...) a bound on the loss of all answers together; inf where there is none.
            aside: Σ δᵢ + (1 + e^ε) Σ τᵢ.
        """
        total = np.asarray(divergences, dtype=np.float64)
        t = np.array(self.orders) - 1.0
        constant = np.array([_log_constant(x) for x in t])
        shares = np.log(WEIGHTS)
        size = t * (total + self.epsilon) + np.abs(constant) + 2.0 * (1.0 + t) * np.log1p(t) + np.abs(shares)
        exponent = t * (total - self.epsilon) + constant - shares + SLACK * (1.0 + size)
        by_order = np.maximum(np.exp(np.minimum(exponent, 1.0)) * (1 + SLACK), 5e-324).min(axis=-1)
        by_gauss = np.nextafter(np.asarray(gaussian, dtype=np.float64) / GAUSSIAN, np.inf)
        by_gauss = np.where(np.asarray(gaussian) == 0.0, 0.0, by_gauss)
        excess = np.asarray(largest, dtype=np.float64) - self.epsilon
        excess = np.where(excess > 0, np.nextafter(excess, np.inf), 0.0)
        beside, bounded = (np.where(x > 0, np.nextafter(x / ASIDE, np.inf), 0.0) for x in (aside, excess + aside))
        chosen = np.maximum(np.minimum(by_order, by_gauss), beside)
        return np.asarray(np.minimum(np.minimum(chosen, bounded * (1 + SLACK)), 1.0))


def _log_constant(t: float) -> float:
    """ln of t^t / (1 + t)^{1+t}."""
    return t * math.log(t) - (1.0 + t) * math.log1p(t)
