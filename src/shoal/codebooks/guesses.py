"""Whether discrete answers follow the law that they should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal import validation
from shoal.codebooks.codebook import Codebook
from shoal.errors import InputError
from shoal.validation import FloatArray


@dataclass(frozen=True)
class LawTest:
    """Whether answers came as often as they should: ``p_value`` over all curves, and an interval for each, (m, 2)."""

    p_value: float
    expected: FloatArray
    intervals: FloatArray
    excluded: int

    @property
    def passed(self) -> bool:
        """Whether every stored probability lies in its interval."""
        low, high = self.intervals.T
        return bool(((low <= self.expected) & (self.expected <= high)).all())


def law_test(book: Codebook, label: Any, positions: Any, confidence: float = 0.95) -> LawTest:
    """Hold positions drawn for ``label`` against the stored probabilities.

    Each curve's count has an exact interval (Clopper & Pearson 1934), at a confidence that leaves 1 − ``confidence``
    for all of them together; ``p_value`` is that of the multinomial law by Pearson's χ² statistic, with curves expected
    less than five times taken together.

    Args:
        book: the codebook.
        label: whose draws they are.
        positions: (count,) what :meth:`Codebook.draw` gave.
        confidence: of all intervals together.

    Returns:
        The test.

    >>> import shoal
    >>> from shoal.codebooks.guesses import law_test
    >>> book = shoal.codebook([[0.0], [1.0]], shoal.NeighborGraph.complete(["a", "b"]), epsilon=2.0)
    >>> law_test(book, "a", [book.draw("a") for _ in range(200)], confidence=1 - 1e-9).passed
    True
    """
    from scipy.stats import beta, chi2

    confidence = validation.probability(confidence=confidence, below_one=True, above_zero=True)
    expected = book.probabilities(label)
    m = len(expected)
    drawn = np.asarray(positions)
    if drawn.ndim != 1 or len(drawn) == 0 or drawn.dtype.kind not in "iu" or drawn.min() < 0 or drawn.max() >= m:
        raise InputError(f"positions must be whole numbers from 0 to {m - 1}, at least one")
    seen, count = np.bincount(drawn, minlength=m), len(drawn)
    tail = (1.0 - confidence) / (2 * m)
    with np.errstate(invalid="ignore"):
        low = np.where(seen > 0, beta.ppf(tail, seen, count - seen + 1), 0.0)
        high = np.where(seen < count, beta.isf(tail, seen + 1, count - seen), 1.0)
    rare = expected * count < 5.0
    observed = np.append(seen[~rare], seen[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum()) * count
    kept = wanted > 0.0
    statistic = float(((observed - wanted)[kept] ** 2 / wanted[kept]).sum())
    freedom = int(kept.sum()) - 1
    p_value = float(chi2.sf(statistic, freedom)) if freedom > 0 else 1.0
    intervals = np.stack([low, high], axis=1)
    outside = int(((expected < low) | (expected > high)).sum())
    return LawTest(p_value, expected, intervals, outside)
