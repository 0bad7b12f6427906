"""The release itself, without a rounding error before the last step:

    y = q + shift + gain (q − μ) + A z,   entry i rounded to the nearest multiple of 2^{g_i} and clamped

All sums are sums of Python integers in one common unit 2^−U (docs/theory.md, section 9). The same operations are
carried out for every label, whether it has noise and a map or not, and every label is prepared before the first
release. A product of integers is faster where one of them is small, so what depends on the label is multiplied with a
constant added that gives it a fixed width, Σ a_j z_j = Σ (a_j + c) z_j − c Σ z_j. Integers are wide enough for any
ordinary answer; one with entries closer to zero than 2^−107 (but not zero) makes them wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import mul

import numpy as np
from numpy.typing import NDArray

from shoal.noise.factor import WIDTH, Factor, certified_factor, floor_to_dyadic, needs_jitter
from shoal.noise.grid import LIMIT, NoiseGrid
from shoal.noise.source import RESOLUTION
from shoal.validation import FloatArray

#: Binary places of answers, means and shifts, unless some need more; every double has at most FINEST.
PLACES = 160
FINEST = 1074
#: The exponent of a grid that every sum of doubles lies on: nothing is rounded.
EXACT = -FINEST
#: Binary places of an entry of A z before the row's own exponent.
NOISE_PLACES = WIDTH + RESOLUTION.unit_bits
#: Bits of a digit of Python's integers.
DIGIT = 30

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ExactMap:
    """Integer parameters of every label. ``offset`` is μ and ``start`` is shift, in units of 2^−answer_places.

    ``gain`` and ``factor`` hold the rows of gain and A with 2^gain_lift and 2^factor_lift added; ``residue`` is the sum
    of each row of gain times 2^moved_lift, to be taken off again. Where A is ``diagonal`` for every label, ``factor``
    holds its diagonal alone.
    """

    offset: Rows
    start: Rows
    answer_places: int
    gain: tuple[Rows, ...] | None
    gain_places: int
    gain_lift: int
    residue: Rows
    moved_lift: int
    noise: tuple[Factor, ...]
    factor: tuple[Rows, ...]
    factor_lift: int
    diagonal: bool
    grid: NoiseGrid
    places: int

    @classmethod
    def from_parameters(
        cls,
        means: FloatArray,
        shift: FloatArray,
        gain: FloatArray | None,
        noise_cov: FloatArray,
        grid: NoiseGrid,
        targets: FloatArray | None = None,
    ) -> ExactMap:
        """Return the map of means and shift (n, k), gain (n, k, k) or None, and noise_cov (n or 1, k, k).

        ``targets`` (n, k) holds what μ + shift is to be exactly, or nan where it is the exact sum.
        """
        factors: dict[bytes, Factor] = {}
        noise = []
        for cov, singular in zip(noise_cov, needs_jitter(noise_cov), strict=True):
            key = cov.tobytes()
            if key not in factors:
                factors[key] = certified_factor(cov, jitter=bool(singular))
            noise.append(factors[key])
        if len(noise) < len(means):
            noise = noise * len(means)
        gain_places = 0 if gain is None else _binary_places(gain)
        answer_places = max(
            PLACES, _binary_places(means), _binary_places(shift), 0 if targets is None else _binary_places(targets)
        )
        offset = _integer_rows(means, answer_places)
        rows = () if gain is None else tuple(_integer_rows(matrix, gain_places) for matrix in gain)
        moved_lift, gain_lift, factor_lift = (
            _lift_exponent(offset, 64),
            _lift_exponent(tuple(chain.from_iterable(rows)), 1),
            _lift_exponent(((1 << WIDTH,),), 1),
        )
        diagonal = all(not any(row[:-1]) for factor in factors.values() for row in factor.rows)
        lifted = {
            factor: _add_power_of_two(tuple(row[-1:] for row in factor.rows) if diagonal else factor.rows, factor_lift)
            for factor in factors.values()
        }
        lowest = min(min(factor.exponents) for factor in noise)
        return cls(
            offset=offset,
            start=_start_vectors(offset, shift, targets, answer_places),
            answer_places=answer_places,
            gain=None if gain is None else tuple(_add_power_of_two(matrix, gain_lift) for matrix in rows),
            gain_places=gain_places,
            gain_lift=gain_lift,
            residue=tuple(tuple(sum(row) << moved_lift for row in matrix) for matrix in rows),
            moved_lift=moved_lift,
            noise=tuple(noise),
            factor=tuple(lifted[factor] for factor in noise),
            factor_lift=factor_lift,
            diagonal=diagonal,
            grid=grid,
            places=max(answer_places + gain_places, NOISE_PLACES - lowest, -min(grid.exponents)),
        )

    def indices(
        self, answer: Sequence[float], label: int, normals: Sequence[int], needed: int | None = None
    ) -> list[int]:
        """Return the grid indices of one released answer, from k standard normals in the source's units.

        ``needed`` is the number of binary places of the answer's entries, if that is known.
        """
        needed = _binary_places(np.array(answer)) if needed is None else needed
        more = max(needed - self.answer_places, 0)
        q = [floor_to_dyadic(value, self.answer_places + more) for value in answer]
        exponents, rows = self.noise[label].exponents, self.factor[label]
        start = [value << more for value in self.start[label]]
        lift = 1 << self.moved_lift
        moved = [value - (mean << more) + lift for value, mean in zip(q, self.offset[label], strict=True)]
        all_moved = sum(moved) << self.gain_lift
        all_normals = normals if self.diagonal else list(accumulate(normals))
        places = self.places + more
        up = self.places - self.answer_places - self.gain_places
        result = []
        for i, exponent in enumerate(self.grid.exponents):
            total = (q[i] + start[i]) << self.gain_places
            if self.gain is not None:
                total += sum(map(mul, self.gain[label][i], moved)) - all_moved - self.residue[label][i]
            noise = rows[i][0] * normals[i] if self.diagonal else sum(map(mul, rows[i], normals))
            noise -= all_normals[i] << self.factor_lift
            total = (total << up) + (noise << (places - NOISE_PLACES + exponents[i]))
            cell = places + exponent
            result.append(min(max((total + ((1 << cell) >> 1)) >> cell, -LIMIT), LIMIT))
        return result

    def release(self, answers: FloatArray, labels: Sequence[int], normals: Sequence[int]) -> FloatArray:
        """Return released answers (m, k), exact multiples of the grid, from m k standard normals."""
        k = len(self.grid.exponents)
        out = np.empty(answers.shape)
        places = _binary_places_by_row(answers).tolist()
        for row, (answer, label) in enumerate(zip(answers.tolist(), labels, strict=True)):
            out[row] = self.indices(answer, label, normals[row * k : (row + 1) * k], places[row])
        return np.asarray(np.ldexp(out, np.array(self.grid.exponents, dtype=np.int32)))


def _integer_rows(values: FloatArray, bits: int) -> Rows:
    """Return values (n, k) as integers in units of 2^−bits, rounded down."""
    return tuple(tuple(floor_to_dyadic(v, bits) for v in row) for row in values.tolist())


def _start_vectors(offset: Rows, shift: FloatArray, targets: FloatArray | None, bits: int) -> Rows:
    """Return what is added to an answer of each label: the shift, or the way from the mean to the target."""
    if targets is None:
        return _integer_rows(shift, bits)
    return tuple(
        tuple(
            floor_to_dyadic(moved, bits) if math.isnan(target) else floor_to_dyadic(target, bits) - mean
            for mean, moved, target in zip(means, shifts, goals, strict=True)
        )
        for means, shifts, goals in zip(offset, shift.tolist(), targets.tolist(), strict=True)
    )


def _lift_exponent(rows: Rows, room: int) -> int:
    """Return the exponent of a power of two that, added to any of these values, gives it one number of digits."""
    largest = max((abs(value).bit_length() for row in rows for value in row), default=0)
    return -(-(largest + room) // DIGIT) * DIGIT + DIGIT // 2


def _add_power_of_two(rows: Rows, lift: int) -> Rows:
    """Return the rows with 2^lift added to each value."""
    return tuple(tuple(value + (1 << lift) for value in row) for row in rows)


def _binary_places(values: FloatArray) -> int:
    """Return the binary places that all the values need together."""
    return int(_binary_places_by_row(values.reshape(1, -1))[0])


def _binary_places_by_row(values: FloatArray) -> NDArray[np.int64]:
    """Return (m,) the binary places that each row of values (m, k) needs; none for zeros and NaN."""
    some = np.where((values != 0) & ~np.isnan(values), np.abs(values), np.inf)
    least = some.min(axis=1, initial=np.inf)
    places = np.clip(53 - np.frexp(least)[1].astype(np.int64), 0, FINEST)
    return np.where(np.isfinite(least), places, 0)
