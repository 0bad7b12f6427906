"""The cost of every subset of a group at once, and from it what no ε-private mechanism can beat.

A column of a codebook is a set S of labels: v_i(S) = 1 for i in S, e^−ε for the others. With label weights p and
D_ij = |q_i − q_j|², the least weighted squared error of releasing one curve with probabilities v is

    V(S) = min_c Σ_i p_i v_i |q_i − c|² = Σ_{i<j} p_i v_i p_j v_j D_ij / Σ_i p_i v_i,

a quotient of sums of positive terms: no cancellation, so its relative rounding error is a small multiple of ε_machine.
The labels are split in two halves; subsets are pairs of halves, and all 2^n values cost one matrix product.

For any numbers λ, every ε-private mechanism has

    Σ p_i E|released − q_i|² ≥ Σ λ_i + n min(0, min_S (V(S) − Σ λ_i v_i(S))):

the left side is at least Σ_S x_S V(S) with Σ_S x_S v_i(S) = 1 for every i (docs/theory.md, section 11), and Σ_S x_S ≤ n
because every non-empty S has a v_i of 1. The bound is evaluated with e^−ε rounded down and everything else to the safe
side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from shoal.numerics.matrices import EPS
from shoal.validation import BoolArray, FloatArray

#: Labels up to which all subsets are looked at: 2^20 values, 8 MB, some ten milliseconds.
LARGEST = 20
#: Below this a sum of squares may have lost terms to underflow; distances are scaled to a largest of 1.
UNDERFLOW = 1e-280


@dataclass(frozen=True)
class Subsets:
    """V(S) for all subsets of n labels, (2^h, 2^(n − h)); row and column are the two halves as binary numbers."""

    costs: FloatArray
    first: FloatArray
    second: FloatArray
    relative_error: float

    @classmethod
    def of(cls, distances: FloatArray, weights: FloatArray, low: float, n_dims: int) -> Subsets:
        """From D (n, n), p (n,) and e^−ε; every D_ij has a relative error of at most (n_dims + 2) ε_machine."""
        n = len(weights)
        h = n // 2
        pairs = 0.5 * distances * weights[:, None] * weights[None, :]
        first, second = (np.where(_members(half), 1.0, low) for half in (h, n - h))
        costs = first @ (2.0 * pairs[:h, h:]) @ second.T
        costs += ((first @ pairs[:h, :h]) * first).sum(axis=1)[:, None]
        costs += ((second @ pairs[h:, h:]) * second).sum(axis=1)[None, :]
        costs /= (first @ weights[:h])[:, None] + (second @ weights[h:])[None, :]
        costs[0, 0] = math.inf  # the empty set is the full one, scaled
        return cls(costs, first, second, (n_dims + n * n + 3 * n + 20) * EPS)

    def linear(self, duals: FloatArray) -> FloatArray:
        """Σ λ_i v_i(S), in the shape of ``costs``."""
        h = self.first.shape[1]
        return np.asarray((self.first @ duals[:h])[:, None] + (self.second @ duals[h:])[None, :])

    def reduced(self, duals: FloatArray) -> FloatArray:
        """V(S) − Σ λ_i v_i(S)."""
        return np.asarray(self.costs - self.linear(duals))

    def bound(self, duals: FloatArray, reduced: FloatArray) -> float:
        """The lower bound that these λ prove, rounded down; ``reduced`` is :meth:`reduced` of them."""
        n = len(duals)
        size = float(np.abs(duals).sum())
        # A reduced cost near its minimum is a difference of numbers of this size, each as accurate as said.
        at_least = float(reduced.min())
        slack = 2 * (self.relative_error + (n + 8) * EPS) * (size + abs(at_least)) + UNDERFLOW
        return math.fsum(duals) - 2 * EPS * size + n * min(at_least - slack, 0.0)

    def least(self, values: FloatArray, count: int) -> BoolArray:
        """The sets with the ``count`` least values, (count, n)."""
        flat = values.ravel()
        count = min(count, len(flat) - 1)
        places = np.argpartition(flat, count)[:count]
        h, rest = self.first.shape[1], self.second.shape[1]
        return np.hstack([_members(h)[places >> rest], _members(rest)[places & ((1 << rest) - 1)]])


@cache
def _members(n: int) -> BoolArray:
    """(2^n, n): row s lists the bits of s."""
    return ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1).astype(bool)
