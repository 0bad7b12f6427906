"""Affine maps plus noise: q̃ = q + b + B Σ^{−1/2}(q − μ) + C z. It contains every other method."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.designs.barycenter import transport_center
from shoal.designs.descent import ENOUGH, Settings, search
from shoal.designs.methods.additive import additive
from shoal.designs.methods.center import blurred, geodesic, reaches
from shoal.designs.moves import Moves
from shoal.designs.problem import DesignProblem
from shoal.designs.stored import certified


def transport(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """Searches from the additive design and from the geodesic to the common law; never worse than either."""
    common = transport_center(problem.classes.means, problem.classes.stored_covs)
    towards = geodesic(problem, common)
    if reaches(problem, common) and certified(problem, towards) < ENOUGH:
        return towards
    added = additive(problem, settings, starts)
    own = [m.within(problem) for m in starts]
    candidates = [added, towards, *blurred(problem, towards), *own]
    return search(problem, candidates, shifts=True, mapped=True, settings=settings)
