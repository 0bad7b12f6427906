"""Constants differ in n − 1 of k directions at most: the same problem in the span of their differences.

Noise and shifts outside the span hide nothing and cost error, so nothing is lost. A finished design is lifted back
with a sliver of noise in the other directions, without which the rounding of the span's basis would tell constants
apart; it is certified where it is used, in all k entries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shoal.designs.problem import DesignProblem, Moves
from shoal.laws.classes import GaussianClasses
from shoal.numerics.matrices import EPS, square_root
from shoal.validation import FloatArray

#: Share of each budget that goes into noise outside the span.
SLIVER = 1e-8


@dataclass(frozen=True)
class DifferenceSpan:
    """A problem over constants, the same problem in the span of their differences, and an orthonormal basis (k, r)."""

    whole: DesignProblem
    problem: DesignProblem
    basis: FloatArray

    @classmethod
    def of(cls, problem: DesignProblem) -> DifferenceSpan | None:
        """The smaller problem; None where answers are random, a noise floor is demanded or nothing becomes smaller."""
        if problem.classes.stored_variances.any() or problem.noise_floor > 0:
            return None
        gaps = problem.classes.means - problem.classes.means.mean(axis=0)
        _, sizes, rows = np.linalg.svd(gaps, full_matrices=False)
        rank = int((sizes > max(gaps.shape) * EPS * sizes[0]).sum()) if len(sizes) else 0
        if not 0 < rank < problem.n_dims:
            return None
        basis = np.ascontiguousarray(rows[:rank].T)
        inside = GaussianClasses.deterministic(gaps @ basis, problem.classes.labels)
        return cls(problem, replace(problem, classes=inside, original=inside, scale=np.ones(rank)), basis)

    def project(self, moves: Moves) -> Moves:
        """Moves inside the span; what a map does to a constant is noise."""
        noise = moves.noise @ np.swapaxes(moves.noise, 1, 2)
        if moves.map is not None:
            noise = noise + moves.map @ np.swapaxes(moves.map, 1, 2)
        inside = square_root(self.basis.T @ noise @ self.basis)
        return Moves(moves.shift @ self.basis, None, inside).within(self.problem)

    def lift(self, moves: Moves) -> Moves:
        """The moves in all entries."""
        k, rank = self.basis.shape
        sliver = np.sqrt(SLIVER * self.whole.budgets / (k - rank))[:, None, None]
        inside = self.basis @ self.basis.T
        part = np.sqrt(1.0 - SLIVER)
        noise = part * self.basis @ moves.noise @ self.basis.T + sliver * (np.eye(k) - inside)
        return Moves(part * moves.shift @ self.basis.T, None, noise).within(self.whole)
