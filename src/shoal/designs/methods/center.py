"""``center`` and ``mean``: every label moves towards the group's common law, as far as its budget reaches.

Along the Bures–Wasserstein geodesic to N(m, S) a label at distance d that goes the share s spends s² d²: b = s (m − μ),
B = s (Y Oᵀ − Σ^{1/2}). δ is 0 as soon as every budget covers its label's distance; stronger searches start here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.designs.barycenter import Center, common_center
from shoal.designs.descent import Settings
from shoal.designs.problem import DesignProblem, Moves, budget_radii
from shoal.numerics.matrices import square_root

#: A budget within this relative distance of the price buys the whole way.
CLOSE = 1e-12
#: Share of the price, if it is left, that goes into equal noise once all labels meet.
SLIVER = 1e-8
#: Shares of a budget that go into the move when the rest becomes white noise.
SHARES = (0.3, 0.6, 0.85)


def center(problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = ()) -> Moves:
    """Geodesic moves towards the transport center, as far as each budget reaches."""
    return geodesic_moves(problem, common_center("transport_center", problem.classes))


def mean(problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = ()) -> Moves:
    """Geodesic moves towards the law of least mean error, which keeps a group's sum; some labels err more for it."""
    return geodesic_moves(problem, common_center("mean_center", problem.classes))


def geodesic_moves(problem: DesignProblem, common: Center) -> Moves:
    """Moves along the Bures–Wasserstein geodesic towards a transport center, as far as each budget reaches."""
    share = _geodesic_share(problem, common)
    maps = common.maps
    assert maps is not None
    shift = share[:, None] * (common.mean - problem.classes.means)
    mapped = share[:, None, None] * (maps - problem.roots)
    return _add_equal_noise(problem, common, Moves(shift, mapped, np.zeros_like(mapped)).within_budget(problem))


def additive_moves(problem: DesignProblem, common: Center) -> Moves:
    """Moves towards a center by shift and noise: b = s (m − μ), Σ_η = s (S − Σ), s as large as the budget allows."""
    n, k = problem.n_labels, problem.n_dims
    gap = common.mean - problem.classes.means
    missing = np.broadcast_to(common.cov - problem.classes.stored_covs, (n, k, k))
    far, wide = (gap**2).sum(axis=1), np.maximum(np.trace(missing, axis1=1, axis2=2), 0.0)
    room = budget_radii(problem) ** 2
    # s² far + s wide = room
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(far > 0, 2 * room / (wide + np.sqrt(wide**2 + 4 * far * room)), room / wide)
    share = np.where(far + wide <= room * (1 + CLOSE), 1.0, np.clip(np.nan_to_num(share, nan=1.0), 0.0, 1.0))
    noise = square_root(missing) * np.sqrt(share)[:, None, None]
    return _add_equal_noise(problem, common, Moves(share[:, None] * gap, None, noise).within_budget(problem))


def starts_with_white_noise(problem: DesignProblem, moves: Moves) -> list[Moves]:
    """Starts that go part of the way of some moves, with the rest of the budget as white noise.

    Narrow laws that do not meet need some width.
    """
    white = budget_radii(problem)[:, None, None] / np.sqrt(problem.n_dims) * np.eye(problem.n_dims)
    result = []
    for share in SHARES:
        part = np.sqrt(share)
        noise = square_root(share * moves.noise @ np.swapaxes(moves.noise, 1, 2) + (1.0 - share) * white**2)
        mapped = None if moves.map is None else part * moves.map
        result.append(Moves(part * moves.shift, mapped, noise).within_budget(problem))
    return result


def _add_equal_noise(problem: DesignProblem, common: Center, moves: Moves) -> Moves:
    """The moves with a sliver of the remaining budget as equal noise where all labels meet.

    Sums are rounded, so labels meet up to an ulp; on a law without width (a constant answer) that ulp would tell them
    apart.
    """
    sliver = min(float((budget_radii(problem) ** 2 - moves.spent).min()), SLIVER * common.price)
    if not budgets_cover(problem, common) or sliver <= 0:
        return moves
    noise = moves.noise @ np.swapaxes(moves.noise, 1, 2) + sliver / problem.n_dims * np.eye(problem.n_dims)
    return Moves(moves.shift, moves.map, square_root(noise))


def budgets_cover(problem: DesignProblem, common: Center) -> bool:
    """Whether every label's budget covers the way to the common law."""
    return bool((common.costs <= budget_radii(problem) ** 2 * (1 + CLOSE)).all())


def _geodesic_share(problem: DesignProblem, common: Center) -> np.ndarray:
    """(n,) share of the way to the common law that each label's budget covers, at most 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = budget_radii(problem) / np.sqrt(common.costs)
    return np.where(common.costs <= budget_radii(problem) ** 2 * (1 + CLOSE), 1.0, share)
