"""How far each label is moved: the common form of every mechanism, and the budget it spends.

    q̃ = q + b + B Σ^{−1/2}(q − μ) + C z,  z ~ N(0, I):   Σ̃ = (Σ^{1/2} + B)(Σ^{1/2} + B)ᵀ + C Cᵀ + f I,
    k·MSE = ‖b‖² + ‖B‖²_F + ‖C‖²_F + k f

(docs/theory.md, section 6; f is the noise floor). Where Σ is singular, Σ^{−1/2}(q − μ) is completed by fresh noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.designs.problem import DesignProblem
from shoal.validation import FloatArray, IndexArray


@dataclass(frozen=True)
class Moves:
    """b (n, k), B (n, k, k) and C (n, k, k) of every label; B is None for additive mechanisms.

    ``history`` is what an iteration that keeps one leaves behind.
    """

    shift: FloatArray
    map: FloatArray | None
    noise: FloatArray
    history: FloatArray | None = None

    @classmethod
    def still(cls, problem: DesignProblem, *, mapped: bool = False) -> Moves:
        n, k = problem.n_labels, problem.n_dims
        return cls(np.zeros((n, k)), np.zeros((n, k, k)) if mapped else None, np.zeros((n, k, k)))

    @property
    def spent(self) -> FloatArray:
        """‖b‖² + ‖B‖² + ‖C‖² per label."""
        total = (self.shift**2).sum(axis=1) + (self.noise**2).sum(axis=(1, 2))
        return np.asarray(total if self.map is None else total + (self.map**2).sum(axis=(1, 2)))

    def laws(self, problem: DesignProblem) -> tuple[FloatArray, FloatArray]:
        """Means and covariances of what is released."""
        noise = self.noise @ np.swapaxes(self.noise, 1, 2) + problem.floor_cov
        if self.map is None:
            covs = problem.classes.stored_covs + noise
        else:
            moved = problem.roots + self.map
            covs = moved @ np.swapaxes(moved, 1, 2) + noise
        return problem.classes.means + self.shift, covs

    def within(self, problem: DesignProblem) -> Moves:
        """Scaled down where a budget, or the share of it that may be bias, is exceeded."""
        cap = np.sqrt(problem.max_bias * problem.budgets)
        shift = self.shift * _shrink(np.linalg.norm(self.shift, axis=1), cap)[:, None]
        capped = Moves(shift, self.map, self.noise)
        factor = _shrink(np.sqrt(capped.spent), radii(problem))
        mapped = None if self.map is None else self.map * factor[:, None, None]
        return Moves(shift * factor[:, None], mapped, self.noise * factor[:, None, None])

    def take(self, members: IndexArray) -> Moves:
        """The moves of some labels."""
        return Moves(self.shift[members], None if self.map is None else self.map[members], self.noise[members])

    def put(self, members: IndexArray, moves: Moves) -> None:
        """Write the moves of some labels into freshly made arrays of all."""
        self.shift[members] = moves.shift
        self.noise[members] = moves.noise
        if moves.map is not None and self.map is not None:
            self.map[members] = moves.map

    def mapped(self) -> Moves:
        """The same move with a B, so that a transport search can start from it."""
        return self if self.map is not None else Moves(self.shift, np.zeros_like(self.noise), self.noise)


def radii(problem: DesignProblem) -> FloatArray:
    """Root of what each label may spend beyond the noise floor."""
    return np.sqrt(np.maximum(problem.budgets - problem.n_dims * problem.noise_floor, 0.0))


def _shrink(size: FloatArray, limit: FloatArray) -> FloatArray:
    over = size > limit
    return np.where(over, limit / np.where(over, size, 1.0), 1.0)
