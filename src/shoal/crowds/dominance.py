"""Dominance: no member makes most of a row, and no few members see through to the one that does.

The p %-rule of statistics offices, with p = 50 and a coalition of c = min(3, ⌊(n − 1)/3⌋) members who pool what they
know: with amounts a_1 ≥ a_2 ≥ … of the n members

    50 % of a_1  ≤  a_{c+2} + a_{c+3} + … + a_n

The next c after the largest subtract their own amounts from the total, and what remains hides a_1 to within 50 % of it.
Hundepool et al., Statistical Disclosure Control (2012), section 4.2. Theory: docs/theory.md, section 15, rule 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.validation import BoolArray

#: The p of the p %-rule, and members who may pool what they know, at most.
PERCENT, COALITION = 50, 3


def coalition_of(n: int) -> int:
    """Members of a crowd of n who may pool what they know.

    >>> [coalition_of(n) for n in (2, 4, 9, 10, 12)]
    [0, 1, 2, 3, 3]
    """
    return min(COALITION, (n - 1) // 3)


def keeps_dominance(amounts: NDArray[Any], largest_share: float | None = None) -> BoolArray:
    """Whether amounts (n,) or (n, k) ≥ 0 keep the rule, column by column; whole numbers are compared exactly.

    Args:
        amounts: what each member has of the row.
        largest_share: no member has more than this share of the total, too.

    >>> bool(keeps_dominance(np.array([12, 1, 1, 1, 1, 1, 1, 1, 1, 1])))  # half of 12 is what the last six have
    True
    >>> bool(keeps_dominance(np.array([13, 1, 1, 1, 1, 1, 1, 1, 1, 1])))
    False
    """
    ordered = np.sort(amounts, axis=0)[::-1]
    largest, rest = ordered[0], ordered[1 + coalition_of(len(amounts)) :].sum(axis=0)
    kept = largest - rest <= rest  # PERCENT of it; no product, which could overflow
    if largest_share is not None:
        kept = kept & (largest <= largest_share * ordered.sum(axis=0))
    return np.asarray(kept)
