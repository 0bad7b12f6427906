"""The grid that released answers lie on: a power of two per entry, the same for every label.

    G_i = max( 2^−20 · least positive deviation of entry i over the labels,  2^−51 · largest |mean| + 64 deviations )

rounded down to a power of two (the first) or up (the second). An answer is an index, clamped to |index| ≤ 2^52, times
G_i: always a double, whatever the label. Rounding and clamping do not look at the label: post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.validation import FloatArray

#: Steps of the grid per least deviation, in bits.
FINENESS = 20
#: Largest index on either side of zero: exactly representable together with its half steps.
LIMIT = 1 << 52


@dataclass(frozen=True)
class NoiseGrid:
    """Entry i of an answer is a whole multiple of 2^exponents[i]."""

    exponents: tuple[int, ...]

    @classmethod
    def of(cls, means: FloatArray, std: FloatArray) -> NoiseGrid:
        """From the means and deviations, (n, k), of what all labels release."""
        with np.errstate(over="ignore"):
            reach = np.minimum((np.abs(means) + 64.0 * std).max(axis=0), np.finfo(np.float64).max)
        exponents = []
        for i in range(means.shape[1]):
            positive = std[:, i][std[:, i] > 0]
            fine = math.frexp(float(positive.min()))[1] - 1 - FINENESS if len(positive) else -1074
            coarse = math.frexp(float(reach[i]))[1] - 51 if reach[i] > 0 else -FINENESS
            exponents.append(min(max(fine, coarse, -1074), 970))
        return cls(tuple(exponents))

    @property
    def steps(self) -> FloatArray:
        """(k,) distance between neighboring values of each entry."""
        return np.array([math.ldexp(1.0, e) for e in self.exponents])

    def holds(self, values: FloatArray) -> bool:
        """Whether every row of ``values``, (m, k), is one that can be released: indices that are whole and in range."""
        if not np.isfinite(values).all():
            return False
        exponents = np.array(self.exponents, dtype=np.intc)
        with np.errstate(over="ignore", under="ignore"):
            indices = np.ldexp(values, -exponents)
            inside = (np.abs(indices) <= LIMIT).all() and (np.ldexp(indices, exponents) == values).all()
        return bool(inside and (indices % 1.0 == 0.0).all())
