"""The baselines that know nothing of the labels: no change, and equal independent noise in every entry."""

from __future__ import annotations

import numpy as np

from shoal.designs.moves import Moves, radii
from shoal.designs.problem import Problem


def none(problem: Problem) -> Moves:
    """Release the answer as it is."""
    return Moves.still(problem)


def white(problem: Problem) -> Moves:
    """Σ_η = ρ I for every label."""
    n, k = problem.n_labels, problem.n_dims
    std = radii(problem) / np.sqrt(k)
    return Moves(np.zeros((n, k)), None, std[:, None, None] * np.eye(k))
