"""Zero-mean noise with a full covariance of its own for every label, chosen on the exact δ."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.designs.descent import Settings, search
from shoal.designs.methods.none import none
from shoal.designs.methods.paper import paper
from shoal.designs.methods.white import white
from shoal.designs.moves import Moves
from shoal.designs.problem import DesignProblem

#: Share of the time left that Algorithm 1 may take; the search on the exact δ is worth more.
ALGORITHM_1 = 0.25


def covariance(problem: DesignProblem, settings: Settings, starts: Sequence[Moves] = ()) -> Moves:
    """The best of nothing, white noise, the paper's answer and searches from them; never worse than any."""
    simple = [none(problem), white(problem)]
    if not settings.late:  # its start is white noise
        simple.append(paper(problem, settings.part(ALGORITHM_1)))
    own = [m.within(problem) for m in starts if m.map is None and not m.shift.any()]
    return search(problem, [*simple, *own], shifts=False, settings=settings)
