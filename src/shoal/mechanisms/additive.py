"""The paper's problem in full: independent noise with a mean and a covariance of its own for every label."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.mechanisms.barycenter import additive_center
from shoal.mechanisms.center import additive_approach, blurred, reaches
from shoal.mechanisms.covariance import covariance
from shoal.mechanisms.descent import ENOUGH, Settings, search
from shoal.mechanisms.mechanism import certified
from shoal.mechanisms.moves import Moves
from shoal.mechanisms.problem import Problem


def additive(problem: Problem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """Searches from the covariance design and from the way to the common law; never worse than the former."""
    common = additive_center(problem.classes.means, problem.classes.stored_covs)
    towards = additive_approach(problem, common)
    if reaches(problem, common) and certified(problem, towards) < ENOUGH:
        return towards
    zero_mean = covariance(problem, settings, starts)
    own = [m.within(problem) for m in starts if m.map is None]
    candidates = [zero_mean, towards, *blurred(problem, towards), *own]
    return search(problem, candidates, shifts=True, settings=settings)
