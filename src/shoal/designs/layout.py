"""Moves as points of a search: one vector per label that is scaled onto its budget's sphere before use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.designs.objectives import Laws, trial_laws
from shoal.designs.problem import DesignProblem, Moves, budget_radii
from shoal.validation import FloatArray

#: Laws → a value and its gradients in their covariances and means.
Objective = Callable[[Laws], tuple[float, FloatArray, FloatArray]]


@dataclass(frozen=True)
class Layout:
    """Moves as one vector per label, (b, B, C, slack), absent parts left out, scaled to the budget before use.

    The slack takes what a label does not spend, so that the vector with it lies on a sphere and the moves anywhere in
    the ball.
    """

    problem: DesignProblem
    mapped: bool
    shifts: bool

    def point_of_moves(self, moves: Moves) -> FloatArray:
        """The point that yields the given moves, a vector of length one per label: the search has no units."""
        radius = budget_radii(self.problem)[:, None]
        rows = self._rows(moves) / np.maximum(radius, 1e-300)
        slack = np.sqrt(np.maximum(1.0 - (rows**2).sum(axis=1), 0.0))
        return np.concatenate([rows, slack[:, None]], axis=1).ravel()

    def _rows(self, moves: Moves) -> FloatArray:
        """(n, d) the moves of each label as one vector, absent parts left out."""
        parts = [moves.shift if self.shifts else None, moves.map, moves.noise]
        return np.concatenate([p.reshape(self.problem.n_labels, -1) for p in parts if p is not None], axis=1)

    def moves(self, x: FloatArray) -> Moves:
        """The moves that a point stands for."""
        return self._moves_of_rows(x.reshape(self.problem.n_labels, -1) * self.scale(x))

    def _moves_of_rows(self, rows: FloatArray) -> Moves:
        """The moves that rows (n, d), one vector per label, stand for."""
        n, k = self.problem.n_labels, self.problem.n_dims
        shift = np.zeros((n, k))
        if self.shifts:
            shift, rows = rows[:, :k], rows[:, k:]
        mapping = None
        if self.mapped:
            mapping, rows = rows[:, : k * k].reshape(n, k, k), rows[:, k * k :]
        return Moves(shift, mapping, rows[:, : k * k].reshape(n, k, k))

    @cached_property
    def _radii(self) -> FloatArray:
        return budget_radii(self.problem)

    def scale(self, x: FloatArray) -> FloatArray:
        """(n, 1) factors that bring every label's vector of a raw point onto its sphere."""
        raw = x.reshape(self.problem.n_labels, -1)
        return np.asarray((self._radii / np.maximum(np.linalg.norm(raw, axis=1), 1e-300))[:, None])

    def gradient_in_point(self, x: FloatArray, gradient: Moves) -> FloatArray:
        """Gradient in the raw point of one in its moves: on every sphere the part along the radius drops out."""
        factor, rows = self.scale(x), self._rows(gradient)
        scaled = x.reshape(len(rows), -1) * factor
        flat = np.concatenate([rows, np.zeros((len(rows), 1))], axis=1)
        along = ((flat * scaled).sum(axis=1) / np.maximum(self._radii**2, 1e-300))[:, None]
        return np.asarray((flat - along * scaled) * factor).ravel()


def raise_slacks(x: FloatArray, n_labels: int) -> FloatArray:
    """The point with every slack off zero, where its derivative vanishes and a label could never stop spending."""
    rows = x.reshape(n_labels, -1).copy()
    rows[:, -1] = np.maximum(rows[:, -1], 0.02 * np.linalg.norm(rows, axis=1))
    return rows.ravel()


def objective_in_point(layout: Layout, objective: Objective, x: FloatArray) -> tuple[float, FloatArray]:
    """Value of an objective of the laws at a raw point, and its gradient there."""
    problem, moves = layout.problem, layout.moves(x)
    value, cov_grad, mean_grad = objective(trial_laws(problem, moves))
    # ∂/∂b, ∂/∂B = 2 G (Σ^{1/2} + B), ∂/∂C = 2 G C for G = ∂/∂Σ̃.
    mapped = None if moves.map is None else 2.0 * cov_grad @ (problem.roots + moves.map)
    return value, layout.gradient_in_point(x, Moves(mean_grad, mapped, 2.0 * cov_grad @ moves.noise))
