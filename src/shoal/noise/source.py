"""Standard normal numbers from a cryptographic source, as integers: z = Z · 2^−120.

    z = h (n + u + u'),   n a discrete Gaussian on the integers with σ = 1/h = 2^56,   u, u' uniform on (−½, ½)

n is drawn exactly (:mod:`shoal.noise.discrete`). u + u' has the triangular density, so n + u + u'
has the piecewise linear density through the discrete Gaussian's probabilities: the normal density up to O(h²). u and u'
are 64-bit words of the operating system's cryptographic generator (docs/theory.md, section 9.1).

Noise for experiments is seeded, repeatable, and marked as not private (:class:`NotPrivate`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.noise.discrete import discrete_gaussians
from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray


@dataclass(frozen=True)
class Resolution:
    """σ = 2^scale_bits of the discrete Gaussian, and the bits of each of the two uniform words below it."""

    scale_bits: int = 56
    fine_bits: int = 64

    @property
    def unit_bits(self) -> int:
        """z is a whole multiple of 2^−unit_bits."""
        return self.scale_bits + self.fine_bits

    def combine(self, whole: int, one: int, two: int) -> int:
        """Z = 2^f (n + (w + ½)/2^f − ½ + (w' + ½)/2^f − ½), f the bits of the words w and w'."""
        return ((whole - 1) << self.fine_bits) + one + two + 1


#: What every release draws with.
RESOLUTION = Resolution()


def standard_normals(count: int) -> list[int]:
    """``count`` independent standard normal numbers in units of 2^−120, from cryptographic sources; accepts no seed."""
    if count == 0:
        return []
    whole = discrete_gaussians(count, RESOLUTION.scale_bits)
    words = np.frombuffer(secrets.token_bytes(16 * count), dtype=np.uint64).tolist()
    return list(map(RESOLUTION.combine, whole, words[:count], words[count:]))


class NotPrivate(np.ndarray[Any, np.dtype[np.float64]]):
    """An array of answers with seeded noise: for experiments and tests, never to be released.

    It computes like any array and so does what is made from it; ``repr`` says what it is, and ``np.asarray`` takes
    the mark away for those who know what they do.
    """


def seeded_noise(shape: tuple[int, ...], cov: FloatArray, seed: int) -> FloatArray:
    """Gaussian noise in double precision from a seeded generator."""
    values, vectors = eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) @ root.T)
