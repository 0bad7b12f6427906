"""One mechanism for all labels from those of groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.designs.problem import DesignProblem
from shoal.mechanism.mechanism import Ending, Mechanism
from shoal.noise.affine import EXACT


def joined(method: str, problem: DesignProblem, found: list[tuple[Any, Mechanism]]) -> Mechanism:
    """One mechanism for all labels from those of groups.

    A label in none is left as it is, but for the noise floor: nothing is claimed of it.
    """
    n, k = problem.n_labels, problem.n_dims
    least = problem.noise_floor
    shift, noise = np.zeros((n, k)), np.tile(least * np.eye(k), (n, 1, 1))
    budget = np.full(n, max(least * (1 + 1e-9), np.finfo(np.float64).tiny))
    gain = np.zeros((n, k, k)) if any(m.gain is not None for _, m in found) else None
    grid = np.full((n, k), EXACT, dtype=np.int64)
    notes: list[str] = []
    for members, mechanism in found:
        shift[members] = mechanism.shift
        if mechanism.mean_grid is not None:
            grid[members] = mechanism.mean_grid
        noise[members] = mechanism.noise_cov
        budget[members] = mechanism.budget
        if gain is not None and mechanism.gain is not None:
            gain[members] = mechanism.gain
        notes += [note for note in mechanism.notes if note not in notes]
    return problem.mechanism(
        method,
        shift=shift,
        gain=gain,
        noise_cov=noise,
        budget=budget,
        lower_bound=max((m.lower_bound for _, m in found), default=0.0),
        notes=tuple(notes),
        ending=max((m.ending for _, m in found), key=list(Ending).index, default=Ending.COMPLETE),
        mean_grid=None if (grid == EXACT).all() else grid,
    )
