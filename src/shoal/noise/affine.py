"""The release itself, without a rounding error before the last step:

    y = q + shift + gain (q − μ) + A z,   entry i rounded to the nearest multiple of 2^{g_i} and clamped

Every stored number is a double, hence a whole multiple of some 2^−p; A and z are dyadic too (``factor``, ``source``).
All sums are sums of Python integers in one common unit 2^−U. The same operations are carried out for every label, with
zeros where a label has no noise or no map, and every label is prepared before the first release. Integers are wide
enough for any ordinary answer; one with entries closer to zero than 2^−107 (but not zero) makes them wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

import numpy as np

from shoal.noise.factor import WIDTH, Factor, dyadic, factored, jittered
from shoal.noise.grid import LIMIT, Grid
from shoal.noise.source import RESOLUTION
from shoal.validation import FloatArray

#: Binary places of answers, means and shifts, unless some need more; every double has at most FINEST.
PLACES = 160
FINEST = 1074
#: Binary places of an entry of A z before the row's own exponent.
NOISE_PLACES = WIDTH + RESOLUTION.unit_bits

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ExactMap:
    """Integer parameters of every label. ``offset`` is μ and ``start`` is shift, in units of 2^−answer_places."""

    offset: Rows
    start: Rows
    answer_places: int
    gain: tuple[Rows, ...] | None
    gain_places: int
    noise: tuple[Factor, ...]
    grid: Grid
    places: int

    @classmethod
    def of(
        cls, means: FloatArray, shift: FloatArray, gain: FloatArray | None, noise_cov: FloatArray, grid: Grid
    ) -> ExactMap:
        """From (n, k), (n, k), (n, k, k) or None, and (n or 1, k, k)."""
        factors: dict[bytes, Factor] = {}
        noise = []
        for cov, singular in zip(noise_cov, jittered(noise_cov), strict=True):
            key = cov.tobytes()
            if key not in factors:
                factors[key] = factored(cov, jitter=bool(singular))
            noise.append(factors[key])
        if len(noise) < len(means):
            noise = noise * len(means)
        gain_places = 0 if gain is None else _places(gain)
        answer_places = max(PLACES, _places(means), _places(shift))
        lowest = min(min(factor.exponents) for factor in noise)
        return cls(
            offset=_rows(means, answer_places),
            start=_rows(shift, answer_places),
            answer_places=answer_places,
            gain=None if gain is None else tuple(_rows(matrix, gain_places) for matrix in gain),
            gain_places=gain_places,
            noise=tuple(noise),
            grid=grid,
            places=max(answer_places + gain_places, NOISE_PLACES - lowest, -min(grid.exponents)),
        )

    def indices(self, answer: Sequence[float], label: int, normals: Sequence[int]) -> list[int]:
        """Grid indices of one released answer, from k standard normals in the source's units."""
        more = max(_places(np.array(answer)) - self.answer_places, 0)
        q = [dyadic(value, self.answer_places + more) for value in answer]
        factor = self.noise[label]
        start = [value << more for value in self.start[label]]
        moved = [value - (mean << more) for value, mean in zip(q, self.offset[label], strict=True)]
        places = self.places + more
        up = self.places - self.answer_places - self.gain_places
        result = []
        for i, exponent in enumerate(self.grid.exponents):
            total = (q[i] + start[i]) << self.gain_places
            if self.gain is not None:
                total += sum(map(mul, self.gain[label][i], moved))
            noise = sum(map(mul, factor.rows[i], normals))
            total = (total << up) + (noise << (places - NOISE_PLACES + factor.exponents[i]))
            cell = places + exponent
            result.append(min(max((total + ((1 << cell) >> 1)) >> cell, -LIMIT), LIMIT))
        return result

    def released(self, answers: FloatArray, labels: Sequence[int], normals: Sequence[int]) -> FloatArray:
        """(m, k) released answers: exact multiples of the grid."""
        k = len(self.grid.exponents)
        out = np.empty(answers.shape)
        for row, (answer, label) in enumerate(zip(answers.tolist(), labels, strict=True)):
            out[row] = self.indices(answer, label, normals[row * k : (row + 1) * k])
        return np.asarray(np.ldexp(out, np.array(self.grid.exponents, dtype=np.int32)))


def _rows(values: FloatArray, bits: int) -> Rows:
    return tuple(tuple(dyadic(v, bits) for v in row) for row in values.tolist())


def _places(values: FloatArray) -> int:
    """Binary places that all the values need together."""
    some = np.abs(values[values != 0])
    return min(max(53 - math.frexp(float(some.min()))[1], 0), FINEST) if some.size else 0
