"""The methods that search: ``transport`` contains ``additive``, which contains ``covariance``.

``covariance`` has noise of mean zero and a covariance per label, ``additive`` noise with a mean as well (the paper's
problem in full), ``transport`` affine maps plus noise, q̃ = q + b + B Σ^{−1/2}(q − μ) + C z.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.designs.barycenter import additive_center, transport_center
from shoal.designs.descent import ENOUGH, Settings, search
from shoal.designs.methods.center import additive_approach, blurred, geodesic, reaches
from shoal.designs.methods.paper import paper
from shoal.designs.methods.simple import none, white
from shoal.designs.parameters import certify
from shoal.designs.problem import DesignProblem, Moves

#: Share of the time left that Algorithm 1 may take; the search on the exact δ is worth more.
ALGORITHM_1 = 0.25


def covariance(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """The best of nothing, white noise, the paper's answer and searches from them; never worse than any."""
    simple = [none(problem), white(problem)]
    if not settings.late:  # its start is white noise
        simple.append(paper(problem, settings.part(ALGORITHM_1)))
    own = [m.within(problem) for m in starts if m.map is None and not m.shift.any()]
    return search(problem, [*simple, *own], shifts=False, settings=settings)


def additive(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """Searches from the covariance design and from the way to the common law; never worse than the former."""
    common = additive_center(problem.classes.means, problem.classes.stored_covs)
    towards = additive_approach(problem, common)
    if reaches(problem, common) and certify(problem, towards) < ENOUGH:
        return towards
    zero_mean = covariance(problem, settings, starts)
    own = [m.within(problem) for m in starts if m.map is None]
    candidates = [zero_mean, towards, *blurred(problem, towards), *own]
    return search(problem, candidates, shifts=True, settings=settings)


def transport(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """Searches from the additive design and from the geodesic to the common law; never worse than either."""
    common = transport_center(problem.classes.means, problem.classes.stored_covs)
    towards = geodesic(problem, common)
    if reaches(problem, common) and certify(problem, towards) < ENOUGH:
        return towards
    added = additive(problem, settings, starts)
    own = [m.within(problem) for m in starts]
    candidates = [added, towards, *blurred(problem, towards), *own]
    return search(problem, candidates, shifts=True, mapped=True, settings=settings)
