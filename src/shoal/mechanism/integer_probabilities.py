"""Probabilities as integers over 2^62, so that a ratio of at most e^ε holds exactly and is drawn exactly.

Label i gets curve y with probability N_iy / 2^62; rows sum to 2^62, and N_iy ≤ R N_jy for a rational R below e^ε is
compared in integers (docs/theory.md, section 11.2).
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.mechanism.column_generation import Columns
from shoal.validation import FloatArray

Counts = NDArray[np.int64]

#: Probabilities are multiples of 2^−BITS: sums of them fit a 64-bit integer.
BITS = 62
WHOLE = 1 << BITS
#: R is a multiple of 2^−RATIO_BITS below e^ε by at least one such step; figures use e^ε to 2^−EXP_BITS, so that the
#: square of R lies below the e^{2ε} that a table is held against.
RATIO_BITS, EXP_BITS = 48, 128


@lru_cache(maxsize=1024)
def exp_floor(epsilon: float, bits: int = EXP_BITS) -> int:
    """An integer at most e^ε 2^bits, as close as certain: ε in exact decimals, e^ε correctly rounded by ``decimal``."""
    if epsilon == 0.0:
        return 1 << bits
    digits = 60 + int(abs(epsilon))
    near = Context(prec=digits).exp(Decimal(epsilon))
    wide = Context(prec=2 * digits + bits)
    safe = wide.subtract(near, Decimal((0, (1,), near.adjusted() - digits + 2)))
    return int(wide.multiply(safe, Decimal(1 << bits)))


def largest_ratio(epsilon: float) -> int:
    """R 2^RATIO_BITS, the largest ratio used: below e^ε by at least one step, and 1 where ε leaves no step."""
    return max(exp_floor(epsilon, RATIO_BITS) - 1, 1 << RATIO_BITS)


def integer_probabilities(columns: Columns, epsilon: float) -> Counts | None:
    """(n, m) integers N, probabilities times 2^62 of each column for each label; None where ε is too small for them.

    A column has N_iy = h for labels in its set and ⌈h/R⌉ for the others. The h are scaled up until no row falls short
    of the whole; what a row has too much is taken off its h's, which stay at or above ⌈h/R⌉: the ratios only shrink.
    """
    limit = largest_ratio(epsilon)
    if limit == 1 << RATIO_BITS:
        return None
    sets = columns.sets.T
    n, m = sets.shape
    high = [max(round(float(often) * WHOLE), 1) for often in columns.often]
    while True:
        low = [-((-h << RATIO_BITS) // limit) for h in high]
        rows = [sum(h if held else t for h, t, held in zip(high, low, row, strict=True)) for row in sets]
        least = min(rows)
        if least >= WHOLE:
            break
        high = [h * WHOLE // least + m for h in high]
    counts = np.empty((n, m), dtype=object)
    for i, row in enumerate(sets):
        excess = rows[i] - WHOLE
        for y in sorted(range(m), key=lambda y: -high[y]):
            taken = min(excess, high[y] - low[y]) if row[y] else 0
            counts[i, y] = high[y] - taken if row[y] else low[y]
            excess -= taken
        if excess > 0:
            return None
    return counts.astype(np.int64)


def refine_frequencies(columns: Columns, low: float) -> Columns:
    """The columns with frequencies moved so that Σ_S x_S v_i(S) = 1: a linear program meets it to 1e-10 only."""
    values = np.where(columns.sets, 1.0, low)
    missing = 1.0 - columns.often @ values
    often = columns.often + np.linalg.lstsq(values.T, missing, rcond=None)[0]
    return replace(columns, often=often) if (often > 0.0).all() else columns


def keeps_ratio(counts: Any, epsilon: float) -> bool:
    """Whether rows of integers are probabilities over 2^62 whose ratios never exceed e^ε."""
    if counts.dtype != np.int64 or counts.ndim != 2 or 0 in counts.shape or int(counts.min()) < 1:
        return False
    if any(sum(row) != WHOLE for row in counts.tolist()):
        return False
    limit = exp_floor(epsilon)
    most, least = counts.max(axis=0).tolist(), counts.min(axis=0).tolist()
    return all(a << EXP_BITS <= limit * b for a, b in zip(most, least, strict=True))


def draw_position(counts: Counts) -> int:
    """A position drawn with the probabilities of one row; the same work whatever the row holds."""
    place = secrets.randbits(BITS)
    return int((np.cumsum(counts) <= place).sum())


def probabilities(counts: Counts) -> FloatArray:
    """Probabilities as doubles, from integers over 2^62."""
    return np.asarray(counts / float(WHOLE))
