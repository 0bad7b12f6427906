"""The two methods that know nothing of the labels' laws: no change, and equal noise for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.designs.descent import Settings
from shoal.designs.problem import DesignProblem, Moves, radii


def none(problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = ()) -> Moves:
    """No label is moved."""
    return Moves.still(problem)


def white(problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = ()) -> Moves:
    """Σ_η = ρ I for every label."""
    n, k = problem.n_labels, problem.n_dims
    std = radii(problem) / np.sqrt(k)
    return Moves(np.zeros((n, k)), None, std[:, None, None] * np.eye(k))
