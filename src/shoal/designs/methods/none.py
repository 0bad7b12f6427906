"""The answer as it is, but for the noise floor."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.designs.descent import Settings
from shoal.designs.moves import Moves
from shoal.designs.problem import DesignProblem


def none(problem: DesignProblem, settings: Settings | None = None, starts: Sequence[Moves] = ()) -> Moves:
    """No label is moved."""
    return Moves.still(problem)
