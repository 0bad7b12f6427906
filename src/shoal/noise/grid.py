"""The grid that released answers lie on: a power of two per entry, the same for every label.

    G_i = max( 2^−20 · least positive deviation of entry i over the labels,  2^−51 · largest |mean| + 64 deviations )

rounded down to a power of two (the first) or up (the second). An answer is an index, clamped to |index| ≤ 2^52, times
G_i: always a double, whatever the label.

**What finite precision costs** is a bound on the total-variation distance between released and ideal answers. Given any
q, with e the bound on a normal's own discretization and s_i the noise deviation of entry i,

    tv ≤ k t(h) + Σ_i 2 e √k (s_i / G_i + 0.4) + 2^−142,   t(h) = φ(1) h²/4 + 2 e^{−2π²/h²}

over the entries with noise, and 0 without noise. Derivation: docs/theory.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.noise.source import RESOLUTION, Resolution
from shoal.validation import FloatArray

#: Steps of the grid per least deviation, in bits.
FINENESS = 20
#: Largest index on either side of zero: exactly representable together with its half steps.
LIMIT = 1 << 52
#: Of the factor's residual: ½ ‖R‖_F / λ_min (section 9.3).
FACTOR_TV = 2.0**-142
#: Covers the rounding of the few double operations here.
UP = 1 + 1e-12


@dataclass(frozen=True)
class NoiseGrid:
    """Entry i of an answer is a whole multiple of 2^exponents[i]."""

    exponents: tuple[int, ...]

    @classmethod
    def from_moments(cls, means: FloatArray, std: FloatArray) -> NoiseGrid:
        """Return the grid for means and deviations, (n, k), of what all labels release."""
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
        """The distance between neighboring values of each entry, (k,)."""
        return np.array([math.ldexp(1.0, e) for e in self.exponents])

    def contains(self, values: FloatArray) -> bool:
        """Whether every row of ``values``, (m, k), lies on the grid and within its range."""
        if not np.isfinite(values).all():
            return False
        exponents = np.array(self.exponents, dtype=np.intc)
        with np.errstate(over="ignore", under="ignore"):
            indices = np.ldexp(values, -exponents)
            inside = (np.abs(indices) <= LIMIT).all() and (np.ldexp(indices, exponents) == values).all()
        return bool(inside and (indices % 1.0 == 0.0).all())


def normal_total_variation(resolution: Resolution = RESOLUTION) -> float:
    """Return the total variation between N(0, 1) and h(n + u + u') with continuous u, u'."""
    h = 2.0**-resolution.scale_bits
    interpolation = math.exp(-0.5) / math.sqrt(2 * math.pi) * h**2 / 4
    mass = 2 * math.exp(-2 * math.pi**2 / h**2)
    return (interpolation + mass) * UP + 1e-300


def label_total_variation(noise_std: FloatArray, steps: FloatArray, resolution: Resolution = RESOLUTION) -> FloatArray:
    """Return (n,) bounds on the total variation of each label's released answer; ``noise_std`` is (n, k)."""
    k = noise_std.shape[1]
    noisy = noise_std > 0
    spacing = 2 * 2.0**-resolution.unit_bits * math.sqrt(k)
    with np.errstate(over="ignore"):
        crossed = np.where(noisy, spacing * (noise_std / steps + 0.4), 0.0).sum(axis=1)
    total = (crossed + k * normal_total_variation(resolution) + FACTOR_TV) * UP
    return np.where(noisy.any(axis=1), np.minimum(total, 1.0), 0.0)


def edge_delta_increase(
    tv: FloatArray, pairs: NDArray[np.integer], epsilon: FloatArray, *, table: bool = False
) -> float:
    """Return what finite precision adds to δ: the largest tv_X + e^ε tv_X' of all edges, both directions; at most 1.

    From P ≤ P̂ + tv, P̂ ≤ e^ε P̂' + δ and P̂' ≤ P' + tv' on every event, hats for the ideal law. ``epsilon`` has one
    value per edge. In a table each of the two worlds holds both labels' rows, and both are off by tv_X + tv_X'.
    """
    one, two = tv[pairs[:, 0]], tv[pairs[:, 1]]
    if table:
        one = two = one + two
    low, high = np.minimum(one, two), np.maximum(one, two)
    # e^ε on the larger of the two is the worse direction; beyond ε = 700 the product cannot be formed.
    grown = np.exp(np.minimum(epsilon, 700.0)) * high * UP
    grown = np.where((epsilon > 700.0) & (high > 0), 1.0, grown)
    return float(np.minimum((low + grown) * UP, 1.0).max(initial=0.0))
