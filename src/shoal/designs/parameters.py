"""Mechanisms from the moves of a design: stored parameters within the budget, and crowds' mechanisms merged.

Labels that meet do so up to rounding. Where that is all that is left of their difference, μ + shift is put on a common
grid (``Mechanism.mean_grid``), so that the expected released answers are equal exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.designs.problem import DesignProblem, Moves
from shoal.errors import InputError
from shoal.mechanism.mechanism import Ending, Mechanism
from shoal.noise.exact_map import EXACT
from shoal.numerics.matrices import EPS, inverse_root, select_matrices, split_stack
from shoal.validation import IndexArray

#: Sums within so many units in the last place of the largest of their terms have met.
MET = 64
#: Step of the grid that sums which have met are put on, in those units, as a power of two.
STEP_BITS = 2


def mechanism_from_moves(
    method: str, problem: DesignProblem, moves: Moves, *, notes: tuple[str, ...] = ()
) -> Mechanism:
    """The mechanism of some moves, shrunk by a rounding's width where they overspend."""
    for attempt in range(60):
        factor = 1.0 - (2.0**attempt - 1.0) * 4 * EPS
        gain, noise = None if moves.map is None else np.empty(moves.map.shape), np.empty(moves.noise.shape)
        for part in split_stack(noise):
            root = factor * moves.noise[part]
            cov = root @ np.swapaxes(root, 1, 2) + problem.floor_cov
            if moves.map is not None and gain is not None:
                # Gain B Σ^{−1/2} on the support of each law; what B asks for outside it is fresh noise.
                inverse, null = inverse_root(select_matrices(problem.classes.stored_covs, part))
                mapped = factor * moves.map[part]
                gain[part], outside = mapped @ inverse, mapped @ null
                cov = cov + outside @ np.swapaxes(outside, 1, 2)
            noise[part] = 0.5 * cov + 0.5 * np.swapaxes(cov, 1, 2)
        mechanism = problem.mechanism(
            method,
            shift=moves.shift * factor,
            gain=gain,
            noise_cov=noise,
            budget=problem.budgets / problem.n_dims,
            notes=notes,
        )
        for candidate in (on_common_grid(mechanism, problem.components), mechanism):
            if candidate is not None and (candidate.rho <= candidate.budget).all():
                return candidate
    raise InputError("rho is too small for its noise_floor: the budget cannot be met in double precision")


def certified_log_delta(problem: DesignProblem, moves: Moves) -> float:
    """Certified upper end of the worst ln δ of the mechanism of these moves, before rounding; 0 where there is none."""
    mechanism = mechanism_from_moves("", problem, moves)
    if mechanism.rests_on_rounding[mechanism.pairs].any():
        return 0.0
    return float(mechanism.ideal_curve.log_delta_upper)


def on_common_grid(mechanism: Mechanism, components: Sequence[IndexArray]) -> Mechanism | None:
    """The mechanism with sums μ + shift put on a common grid where they have met in a component; None if none have."""
    if not mechanism.shift.any():
        return None
    means, shift = mechanism.classes.means, np.array(mechanism.shift)
    grid = np.full(means.shape, EXACT, dtype=np.int64)
    for members in components:
        if len(members) < 2:
            continue
        own, moved = means[members], shift[members]
        sums = own + moved
        unit = np.spacing(np.maximum(np.abs(own), np.abs(moved)).max(axis=0))
        low, high = sums.min(axis=0), sums.max(axis=0)
        entries = np.flatnonzero((high - low <= MET * unit) & (unit > 0) & moved.any(axis=0))
        if len(entries) == 0:
            continue
        # A unit is a power of two; the common point moves a label by at most half a step.
        exponents = np.frexp(unit[entries])[1] - 1 + STEP_BITS
        middle = 0.5 * (low[entries] + high[entries])
        common = np.ldexp(np.rint(np.ldexp(middle, -exponents)), exponents)
        shift[np.ix_(members, entries)] = common - own[:, entries]
        grid[np.ix_(members, entries)] = np.maximum(exponents, EXACT + 1)
    if (grid == EXACT).all():
        return None
    return replace(mechanism, shift=shift, mean_grid=grid)


def merge_mechanisms(method: str, problem: DesignProblem, mechanisms: list[tuple[Any, Mechanism]]) -> Mechanism:
    """One mechanism for all labels from (positions, mechanism) of groups.

    A label in none is left as it is, but for the noise floor: nothing is claimed of it.
    """
    n, k = problem.n_labels, problem.n_dims
    least = problem.noise_floor
    shift, noise = np.zeros((n, k)), np.tile(least * np.eye(k), (n, 1, 1))
    budget = np.full(n, max(least * (1 + 1e-9), np.finfo(np.float64).tiny))
    gain = np.zeros((n, k, k)) if any(m.gain is not None for _, m in mechanisms) else None
    grid = np.full((n, k), EXACT, dtype=np.int64)
    notes: list[str] = []
    for members, mechanism in mechanisms:
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
        notes=tuple(notes),
        ending=max((m.ending for _, m in mechanisms), key=list(Ending).index, default=Ending.COMPLETE),
        mean_grid=None if (grid == EXACT).all() else grid,
    )
