"""The exact discrete Gaussian of releases beside OpenDP's and the published algorithm: time per draw, law, size.

    python -m benchmarks.sampler [--quick]

Prints Markdown. Ours (`shoal.noise.source`, σ = 2^b) and the algorithm as published (any rational variance) follow
Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy* (2020), on integers from `secrets` alone.
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
from typing import Any

import numpy as np
from scipy import stats

from shoal.noise.source import RESOLUTION, DiscreteGaussianSampler, discrete_gaussians

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


def opendp_gaussian(scale: float) -> Callable[[list[int]], Any]:
    """OpenDP's exact sampler: 64-bit integers in, the same plus discrete Gaussians out."""
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    sampler: Callable[[list[int]], Any] = make_gaussian(
        vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), scale=scale
    )
    return sampler


def lines(source: type) -> int:
    return sum(1 for line in inspect.getsource(source).splitlines() if line.strip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    bits = RESOLUTION.scale_bits
    scale = 2.0**bits
    sampler = opendp_gaussian(scale)
    library = Path(inspect.getfile(inspect.getmodule(sampler))).parent / "lib"  # type: ignore[arg-type]
    size = sum(file.stat().st_size for file in library.glob("*")) / 1e6
    peers: list[tuple[str, Draw, str]] = [
        ("OpenDP", lambda count: list(sampler([0] * count)), f"a library of {size:.0f} MB"),
        ("as published", Published(Fraction(1 << 2 * bits)), f"{lines(Published)} lines"),
        ("shoal", lambda count: discrete_gaussians(count, bits), f"{lines(DiscreteGaussianSampler)} lines"),
    ]
    batch, repeats, draws = (200, 3, 2_000) if quick else (2_000, 7, 100_000)
    print("## The exact sampler\n")
    print(f"| discrete Gaussian, σ = 2^{bits} | µs alone | µs each of {batch:,} | size | p of χ², {draws:,} draws |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, draw, code in peers:
        alone, each = microseconds(draw, 1, 20 * repeats), microseconds(draw, batch, repeats)
        print(f"| {name} | {alone:.1f} | {each:.1f} | {code} | {p_of_law(draw, scale, draws):.2f} |")
    print(f"\nOn lattices that can be seen, p of χ² against the exact probabilities, {draws:,} draws each:\n")
    print("| | σ² = 1 | σ² = 7/3 | σ² = 4 | σ² = 64 |\n| --- | ---: | ---: | ---: | ---: |")
    published = [f"{p_of_small_law(Published(v), float(v), draws):.2f}" for v in map(Fraction, ("1", "7/3", "4", "64"))]
    dyadic = [f"{p_of_small_law(lambda n, b=b: discrete_gaussians(n, b), 4.0**b, draws):.2f}" for b in (0, 1, 3)]
    print(f"| as published | {' | '.join(published)} |")
    print(f"| shoal | {dyadic[0]} | | {dyadic[1]} | {dyadic[2]} |")


if __name__ == "__main__":
    main()
