"""Result of an attack: a figure with its interval, what guessing gives, and the excess that the test would have seen.

Every attack of this room answers one of the three questions of Opinion 05/2014 of the Article 29 Working Party:
can a member be singled out, can two records of one member be linked, can a property of a member be inferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.records import plain

QUESTIONS = ("singling out", "linkability", "inference")


@dataclass(frozen=True)
class Finding:
    """One attack on one release; every figure is a share or an area under the curve, between 0 and 1."""

    question: str  #: one of ``QUESTIONS``
    release: str  #: what was attacked: "raw readings", "forecasts", "averages", "answers", "readings", or a table
    what: str  #: what the attacker looks for, and what it knows, in a sentence
    measure: str  #: "share right" or "area under the curve"
    figure: float
    interval: tuple[float, float]  #: at 95 %
    guess: float  #: what the attacker reaches without the release
    tests: int  #: members, or decisions, that the figure is taken over
    power: float | None = None  #: the least excess over the guess that is seen in 95 of 100 runs
    bound: float | None = None  #: what the promise allows, where it says

    @property
    def is_above_guess(self) -> bool:
        """Whether the release helps the attacker, beyond the interval."""
        return self.interval[0] > self.guess

    @property
    def is_violation(self) -> bool:
        """Whether the promise fails, beyond the interval."""
        return self.bound is not None and self.interval[0] > self.bound

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        content: dict[str, Any] = plain(self)
        return content
