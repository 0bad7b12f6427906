"""A mechanism of some of its labels, and one for all labels from those of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.designs.problem import Problem
from shoal.laws.graph import NeighborGraph
from shoal.mechanism.mechanism import Ending, Mechanism
from shoal.noise.affine import EXACT


def part_of(mechanism: Mechanism, labels: Sequence[str]) -> Mechanism:
    """The mechanism of some of its labels, with the edges between them."""
    members = np.array([mechanism.position(name) for name in labels], dtype=np.intp)
    place = np.full(mechanism.classes.n_classes, -1, dtype=np.intp)
    place[members] = np.arange(len(members))
    pairs = place[mechanism.pairs]
    inside = np.flatnonzero((pairs >= 0).all(axis=1))
    pairs = np.sort(pairs[inside], axis=1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    noise = np.broadcast_to(mechanism.noise_cov, (mechanism.classes.n_classes, *mechanism.noise_cov.shape[1:]))
    return replace(
        mechanism,
        classes=mechanism.classes.take(members),
        graph=NeighborGraph(labels, pairs[order]),
        epsilon=mechanism.epsilon[inside][order],
        shift=np.broadcast_to(mechanism.shift, mechanism.classes.means.shape)[members].copy(),
        gain=None if mechanism.gain is None else mechanism.gain[members],
        noise_cov=noise[members].copy(),
        budget=mechanism.budget[members],
        mean_grid=None if mechanism.mean_grid is None else mechanism.mean_grid[members],
        lower_bound=0.0,
        history=np.empty(0),
    )


def joined(method: str, problem: Problem, found: list[tuple[Any, Mechanism]]) -> Mechanism:
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
