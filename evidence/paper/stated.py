"""What the paper's text and captions state about its experiments, to be set beside what is found here.

The figures themselves are not at hand; these are all the numbers its section "Numerical Results" gives. They are for
the households; the synthetic study is described in words only.
"""

from __future__ import annotations

from dataclasses import dataclass

from evidence.paper.synthetic import TOTAL_BUDGETS


@dataclass(frozen=True)
class StatedDelta:
    """One δ from the paper's text: the method, its budget on the paper's axis, ε, and δ."""

    method: str
    budget: float
    epsilon: float
    delta: float


#: The paper's 0.45, 0.68571 and 1.4 are points 0, 1 and 4 of its grid of eight.
_LEAST, _SECOND, _FIFTH = (float(TOTAL_BUDGETS[i]) for i in (0, 1, 4))

DELTAS = (
    StatedDelta("white", _SECOND, 0.1, 0.8),
    StatedDelta("white", _SECOND, 1.0, 0.6),
    StatedDelta("paper", _SECOND, 0.1, 0.72),
    StatedDelta("paper", _SECOND, 1.0, 0.35),
    StatedDelta("paper", _LEAST, 1.0, 0.84),
    StatedDelta("paper", _FIFTH, 1.0, 0.35),
)

#: Caption of the forecast figure: ρ = 0.45 and ε = 0.8. It contradicts the δ = 0.84 at the larger ε = 1 above.
CAPTION = StatedDelta("paper", _LEAST, 0.8, 0.5637)

#: Normalized mean squared error of the released forecasts of three houses at ρ = 0.45.
NMSE = (1.5953e-3, 1.2475e-3, 1.2453e-3)
