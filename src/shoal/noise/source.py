"""Standard normal numbers from a cryptographic source, as integers: z = Z · 2^−120.

    z = h (n + u + u'),   n an integer with P(n) ∝ exp(−n²/2σ²), σ = 1/h = 2^56,   u, u' uniform on (−½, ½)

u + u' has the triangular density, so n + u + u' has the piecewise linear density through the probabilities of n: the
normal density up to O(h²) (docs/theory.md, section 9.1). u and u' are 64-bit words of the operating system's
cryptographic generator. n is drawn exactly, without floating point, by algorithms 1 to 3 of Canonne, Kamath and
Steinke, *The Discrete Gaussian for Differential Privacy* (2020), with the scale of the discrete Laplace law equal to σ,
so that every exponent is a dyadic number m/2^d. Every step of :class:`DiscreteGaussianSampler` calls only those below
it, so that its law is a function of theirs: the tests run each step's own code along all decisions of the steps it
calls, with exact probabilities. Words are fetched for one call and never kept: processes that are forked share none.

Noise for experiments is seeded, repeatable, and marked as not private (:class:`NotPrivate`).
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.numerics.eigenpairs import eigh
from shoal.validation import FloatArray

#: Bits of a random word, and words fetched at a time.
WORD, FETCHED = 64, 256


@dataclass(frozen=True)
class Resolution:
    """σ = 2^scale_bits of the discrete Gaussian, and the bits of each of the two uniform words below it."""

    scale_bits: int = 56
    fine_bits: int = 64

    @property
    def unit_bits(self) -> int:
        """The binary places of z, a whole multiple of 2^−unit_bits."""
        return self.scale_bits + self.fine_bits

    def combine(self, whole: int, one: int, two: int) -> int:
        """Return Z = 2^f (n + (w + ½)/2^f − ½ + (w' + ½)/2^f − ½), f the bits of the words w and w'."""
        return ((whole - 1) << self.fine_bits) + one + two + 1


#: What every release draws with.
RESOLUTION = Resolution()


def standard_normals(count: int) -> list[int]:
    """Return ``count`` independent standard normals in units of 2^−120, from cryptographic sources; takes no seed."""
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
    """Return Gaussian noise of this shape in double precision, from a seeded generator: never to be released."""
    values, vectors = eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) @ root.T)


# ------------------------------------------------------------------ the discrete Gaussian


def discrete_gaussians(count: int, bits: int) -> list[int]:
    """Return ``count`` independent discrete Gaussians with σ = 2^bits from cryptographic sources; takes no seed."""
    sampler = DiscreteGaussianSampler(bits, _random_words())
    return [sampler.draw() for _ in range(count)]


def _random_words() -> Iterator[int]:
    """Yield 64-bit words of the operating system's cryptographic generator."""
    while True:
        yield from struct.unpack(f"<{FETCHED}Q", secrets.token_bytes(8 * FETCHED))


class DiscreteGaussianSampler:
    """Draws from the words of one call; ``bits`` is at most :data:`WORD`."""

    def __init__(self, bits: int, words: Iterator[int]) -> None:
        self.bits = bits
        self._word = words.__next__

    def draw(self) -> int:
        """Return one discrete Gaussian: proposals of the discrete Laplace law until one is accepted."""
        while (value := self._propose()) is None:
            pass
        return value

    def _propose(self) -> int | None:
        """Return a proposal of the discrete Laplace law with scale 2^b, or None where it is not accepted."""
        b = self.bits
        fine = self._uniform_integer(b)
        if not self._bernoulli_exp(fine, b):
            return None
        coarse = 0
        while self._bernoulli_exp(1, 0):
            coarse += 1
        size, negative = fine + (coarse << b), self._uniform_integer(1)
        if negative and size == 0:  # zero would be proposed twice
            return None
        if not self._bernoulli_exp((size - (1 << b)) ** 2, 2 * b + 1):
            return None
        return -size if negative else size

    def _bernoulli_exp(self, m: int, d: int) -> bool:
        """Return True with probability exp(−m/2^d)."""
        while m > 1 << d:
            if not self._bernoulli_exp(1, 0):
                return False
            m -= 1 << d
        k = 1
        while self._bernoulli_dyadic(m, d) and (k == 1 or self._bernoulli_reciprocal(k)):
            k += 1
        return k % 2 == 1

    def _bernoulli_reciprocal(self, k: int) -> bool:
        """Return True with probability 1/k."""
        end = (1 << WORD) // k * k
        while (word := self._word()) >= end:
            pass
        return word % k == 0

    def _bernoulli_dyadic(self, m: int, d: int) -> bool:
        """Return True with probability m/2^d, for 0 ≤ m ≤ 2^d."""
        while d > WORD:
            d -= WORD
            word, digit = self._word(), m >> d
            if word != digit:
                return word < digit
            m -= digit << d
        return self._uniform_integer(d) < m

    def _uniform_integer(self, bits: int) -> int:
        """Return a uniform integer below 2^bits, for bits up to :data:`WORD`."""
        return self._word() >> (WORD - bits)
