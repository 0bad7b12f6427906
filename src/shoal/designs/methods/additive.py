"""The paper's problem in full: independent noise with a mean and a covariance of its own for every label."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.designs.barycenter import additive_center
from shoal.designs.descent import ENOUGH, Settings, search
from shoal.designs.methods.center import additive_approach, blurred, reaches
from shoal.designs.methods.covariance import covariance
from shoal.designs.moves import Moves
from shoal.designs.problem import DesignProblem
from shoal.designs.stored import certified


def additive(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """Searches from the covariance design and from the way to the common law; never worse than the former."""
    common = additive_center(problem.classes.means, problem.classes.stored_covs)
    towards = additive_approach(problem, common)
    if reaches(problem, common) and certified(problem, towards) < ENOUGH:
        return towards
    zero_mean = covariance(problem, settings, starts)
    own = [m.within(problem) for m in starts if m.map is None]
    candidates = [zero_mean, towards, *blurred(problem, towards), *own]
    return search(problem, candidates, shifts=True, settings=settings)
