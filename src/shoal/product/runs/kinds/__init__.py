"""The kinds of release: averages of crowds, answers under an ε, readings with noise. One file each.

Which one a run makes is chosen once, and everything in which kinds differ is asked of it. A further kind is a file here
and a line in :data:`KINDS`.
"""

from __future__ import annotations

from shoal.product.card.facts import FitFacts
from shoal.product.runs.config import Config
from shoal.product.runs.kinds.answers import ProtectedAnswers
from shoal.product.runs.kinds.averages import Averages
from shoal.product.runs.kinds.kind import Kind
from shoal.product.runs.kinds.readings import NoisyReadings

#: Every kind by its word; the first that the settings ask for is chosen, and averages where they ask for none.
KINDS: dict[str, Kind] = {kind.word: kind for kind in (NoisyReadings(), ProtectedAnswers(), Averages())}


def choose_kind(settings: Config, fit: FitFacts | None = None) -> Kind:
    """Return the kind of release that settings ask for, or the rows of a table that was read."""
    return next(kind for kind in KINDS.values() if kind.is_asked_by(settings, fit))
