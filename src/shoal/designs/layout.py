"""Moves as points of a search: one vector per label that is scaled onto its budget's sphere before use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shoal.designs.objectives import Laws, trial_laws
from shoal.designs.problem import DesignProblem, Moves, radii
from shoal.validation import FloatArray

#: Laws → a value and its gradients in their covariances and means.
Objective = Callable[[Laws], tuple[float, FloatArray, FloatArray]]


class Placed(NamedTuple):
    """A point on its spheres: its moves (n, d), and what the raw point was multiplied by, label by label."""

    scaled: FloatArray
    factor: FloatArray


@dataclass(frozen=True)
class Layout:
    """Moves as one vector per label, (b, B, C, slack), absent parts left out, scaled to the budget before use.

    The slack takes what a label does not spend, so that the vector with it lies on a sphere and the moves anywhere in
    the ball.
    """

    problem: DesignProblem
    mapped: bool
    shifts: bool

    def flatten(self, moves: Moves) -> FloatArray:
        """A point that yields the given moves, of length one per label: the search knows no units."""
        radius = radii(self.problem)[:, None]
        rows = self._rows(moves) / np.maximum(radius, 1e-300)
        slack = np.sqrt(np.maximum(1.0 - (rows**2).sum(axis=1), 0.0))
        return np.concatenate([rows, slack[:, None]], axis=1).ravel()

    def _rows(self, moves: Moves) -> FloatArray:
        parts = [moves.shift if self.shifts else None, moves.map, moves.noise]
        return np.concatenate([p.reshape(self.problem.n_labels, -1) for p in parts if p is not None], axis=1)

    def moves(self, x: FloatArray) -> Moves:
        """The moves that a point stands for."""
        return self.unpack(self.place(x).scaled)

    def unpack(self, rows: FloatArray) -> Moves:
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
        return radii(self.problem)

    def place(self, x: FloatArray) -> Placed:
        """The point with every label's vector scaled onto its sphere."""
        raw = x.reshape(self.problem.n_labels, -1)
        factor = (self._radii / np.maximum(np.linalg.norm(raw, axis=1), 1e-300))[:, None]
        return Placed(raw * factor, factor)

    def pull_back(self, at: Placed, gradient: Moves) -> FloatArray:
        """Gradient in the raw point: on every sphere the part along the radius drops out."""
        rows = self._rows(gradient)
        flat = np.concatenate([rows, np.zeros((len(rows), 1))], axis=1)
        along = ((flat * at.scaled).sum(axis=1) / np.maximum(self._radii**2, 1e-300))[:, None]
        return np.asarray((flat - along * at.scaled) * at.factor).ravel()


def with_slack(x: FloatArray, n_labels: int) -> FloatArray:
    """Keep every slack off zero: there its derivative vanishes, and a label could never stop spending."""
    rows = x.reshape(n_labels, -1).copy()
    rows[:, -1] = np.maximum(rows[:, -1], 0.02 * np.linalg.norm(rows, axis=1))
    return rows.ravel()


def smooth_maximum(layout: Layout, objective: Objective, x: FloatArray) -> tuple[float, FloatArray]:
    """An objective of the laws and its gradient in a raw point."""
    problem = layout.problem
    at = layout.place(x)
    moves = layout.unpack(at.scaled)
    value, cov_grad, mean_grad = objective(trial_laws(problem, moves))
    # ∂/∂b, ∂/∂B = 2 G (Σ^{1/2} + B), ∂/∂C = 2 G C for G = ∂/∂Σ̃.
    mapped = None if moves.map is None else 2.0 * cov_grad @ (problem.roots + moves.map)
    return value, layout.pull_back(at, Moves(mean_grad, mapped, 2.0 * cov_grad @ moves.noise))
