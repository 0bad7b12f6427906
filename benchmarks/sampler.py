"""An exact discrete Gaussian in pure Python beside OpenDP's: time per draw, its law, its size.

    python -m benchmarks.sampler [--quick]

Prints Markdown. Both pure samplers follow Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy*
(2020), on integers from `secrets` alone, without floating point: once for any rational variance as published, once for
σ = 2^b, where every probability is a dyadic number or 1/k. They are here to be measured; releases draw from OpenDP
(`docs/install.md` says why).
"""

from __future__ import annotations

import argparse
import inspect
import math
import secrets
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy import stats

from shoal.noise.source import RESOLUTION, _discrete_gaussian

Draw = Callable[[int], list[int]]


class Published:
    """The algorithms 1 to 3 of the paper, for any rational variance."""

    def __init__(self, variance: Fraction) -> None:
        self.variance = variance
        self.scale = math.isqrt(int(variance)) + 1

    def __call__(self, count: int) -> list[int]:
        return [self._gaussian() for _ in range(count)]

    @staticmethod
    def _bernoulli(p: Fraction) -> bool:
        return secrets.randbelow(p.denominator) < p.numerator

    def _bernoulli_exp(self, x: Fraction) -> bool:
        """True with probability exp(−x), x ≥ 0."""
        while x > 1:
            if not self._bernoulli_exp(Fraction(1)):
                return False
            x -= 1
        k = 1
        while self._bernoulli(x / k):
            k += 1
        return k % 2 == 1

    def _laplace(self) -> int:
        """The discrete Laplace law with probabilities proportional to exp(−|y|/scale)."""
        while True:
            fine = secrets.randbelow(self.scale)
            if not self._bernoulli_exp(Fraction(fine, self.scale)):
                continue
            coarse = 0
            while self._bernoulli_exp(Fraction(1)):
                coarse += 1
            size = fine + self.scale * coarse
            if secrets.randbits(1):
                return size
            if size:
                return -size

    def _gaussian(self) -> int:
        while True:
            y = self._laplace()
            if self._bernoulli_exp((abs(y) - self.variance / self.scale) ** 2 / (2 * self.variance)):
                return y


class Dyadic:
    """The same for σ = scale = 2^b: x = m/2^d is compared bit by bit with random words, 1/k is drawn below k."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._words: list[int] = []

    def __call__(self, count: int) -> list[int]:
        return [self._gaussian() for _ in range(count)]

    def _word(self) -> int:
        """64 random bits, 512 words at a time from the operating system."""
        if not self._words:
            block = secrets.token_bytes(4096)
            self._words = [int.from_bytes(block[i : i + 8], "little") for i in range(0, 4096, 8)]
        return self._words.pop()

    def _below(self, m: int, d: int) -> bool:
        """True with probability m/2^d."""
        while d > 64:
            d -= 64
            word, high = self._word(), m >> d
            if word != high:
                return word < high
            m -= high << d
        return self._word() >> (64 - d) < m

    def _one_in(self, k: int) -> bool:
        """True with probability 1/k, by rejection."""
        most = (1 << 64) // k * k
        word = self._word()
        while word >= most:
            word = self._word()
        return word % k == 0

    def _bernoulli_exp(self, m: int, d: int) -> bool:
        """True with probability exp(−m/2^d)."""
        while m > 1 << d:
            if not self._bernoulli_exp(1 << d, d):
                return False
            m -= 1 << d
        k = 1
        while (m >> d or self._below(m, d)) and (k == 1 or self._one_in(k)):
            k += 1
        return k % 2 == 1

    def _gaussian(self) -> int:
        b = self.bits
        while True:
            fine = self._word() >> (64 - b)
            if not self._bernoulli_exp(fine, b):
                continue
            coarse = 0
            while self._bernoulli_exp(1, 0):
                coarse += 1
            size = fine + (coarse << b)
            sign = self._word() >> 63
            if (size or sign) and self._bernoulli_exp((size - (1 << b)) ** 2, 2 * b + 1):
                return size if sign else -size


def microseconds(draw: Draw, count: int, repeats: int) -> float:
    """Median processor time per draw."""
    draw(count)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        draw(count)
        times.append(time.process_time() - start)
    return float(np.median(times)) / count * 1e6


def p_of_law(draw: Draw, scale: float, count: int) -> float:
    """χ² of draws in 64 cells of equal normal probability; σ is so large that the lattice cannot be seen."""
    edges = stats.norm.ppf(np.arange(1, 64) / 64)
    cells = np.searchsorted(edges, np.array(draw(count), dtype=float) / scale)
    return float(stats.chisquare(np.bincount(cells, minlength=64)).pvalue)


def p_of_small_law(draw: Draw, variance: float, count: int) -> float:
    """χ² of draws against the exact probabilities of a lattice that can be seen; both tails are one cell each."""
    reach = math.ceil(3 * math.sqrt(variance))
    support = np.arange(-40 * reach, 40 * reach + 1)
    law = np.exp(-(support**2) / (2 * variance))
    law /= law.sum()
    expected = np.bincount(np.clip(support, -reach, reach) + reach, weights=law)
    counts = np.bincount(np.clip(draw(count), -reach, reach) + reach, minlength=2 * reach + 1)
    return float(stats.chisquare(counts, expected * count).pvalue)


def lines(source: type) -> int:
    return sum(1 for line in inspect.getsource(source).splitlines() if line.strip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    bits = RESOLUTION.scale_bits
    scale = 2.0**bits
    sampler = _discrete_gaussian()
    library = Path(inspect.getfile(inspect.getmodule(sampler))).parent / "lib"  # type: ignore[arg-type]
    size = sum(file.stat().st_size for file in library.glob("*")) / 1e6
    peers: list[tuple[str, Draw, str]] = [
        ("OpenDP", lambda count: list(sampler([0] * count)), f"a library of {size:.0f} MB"),
        ("pure Python, as published", Published(Fraction(1 << 2 * bits)), f"{lines(Published)} lines"),
        ("pure Python, σ = 2^b", Dyadic(bits), f"{lines(Dyadic)} lines"),
    ]
    batch, repeats, draws = (200, 3, 2_000) if quick else (2_000, 7, 100_000)
    print("## An exact sampler of our own\n")
    print(f"| discrete Gaussian, σ = 2^{bits} | µs alone | µs each of {batch:,} | size | p of χ², {draws:,} draws |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, draw, code in peers:
        alone, each = microseconds(draw, 1, 20 * repeats), microseconds(draw, batch, repeats)
        print(f"| {name} | {alone:.1f} | {each:.1f} | {code} | {p_of_law(draw, scale, draws):.2f} |")
    print(f"\nOn lattices that can be seen, p of χ² against the exact probabilities, {draws:,} draws each:\n")
    print("| | σ² = 1 | σ² = 7/3 | σ² = 4 | σ² = 64 |\n| --- | ---: | ---: | ---: | ---: |")
    published = [f"{p_of_small_law(Published(v), float(v), draws):.2f}" for v in map(Fraction, ("1", "7/3", "4", "64"))]
    dyadic = [f"{p_of_small_law(Dyadic(b), 4.0**b, draws):.2f}" for b in (0, 1, 3)]
    print(f"| as published | {' | '.join(published)} |")
    print(f"| σ = 2^b | {dyadic[0]} | | {dyadic[1]} | {dyadic[2]} |")


if __name__ == "__main__":
    main()
