"""What finite precision costs: a bound on the total-variation distance between released and ideal answers.

Ideal: q + shift + gain (q − μ) + N(0, noise_cov) in real numbers, rounded to the grid. Given any q, with e the bound on
a normal's own discretization and s_i the noise deviation of entry i,

    tv ≤ k t(h) + Σ_i 2 e √k (s_i / G_i + 0.4) + 2^−142,   t(h) = φ(1) h²/4 + 2 e^{−2π²/h²} + saturation

over the entries with noise, and 0 without noise. Derivation: docs/theory.md, section 9.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shoal.noise.source import RESOLUTION, Resolution
from shoal.validation import FloatArray

#: Of the factor's residual: ½ ‖R‖_F / λ_min (section 9.3).
FACTOR_TV = 2.0**-142
#: Covers the rounding of the few double operations here.
UP = 1 + 1e-12


def normal_tv(resolution: Resolution = RESOLUTION) -> float:
    """Total variation between N(0, 1) and h(n + u + u') with continuous u, u': interpolation, mass, saturation."""
    h = 2.0**-resolution.scale_bits
    interpolation = math.exp(-0.5) / math.sqrt(2 * math.pi) * h**2 / 4
    mass = 2 * math.exp(-2 * math.pi**2 / h**2)
    saturated = 2 * math.exp(-0.49 * 4.0 ** (63 - resolution.scale_bits))
    return (interpolation + mass + saturated) * UP + 1e-300


def label_tv(noise_std: FloatArray, steps: FloatArray, resolution: Resolution = RESOLUTION) -> FloatArray:
    """(n,) bound on the total variation of each label's released answer, given q; ``noise_std`` is (n, k)."""
    k = noise_std.shape[1]
    noisy = noise_std > 0
    apart = 2 * 2.0**-resolution.unit_bits * math.sqrt(k)
    with np.errstate(over="ignore"):
        crossed = np.where(noisy, apart * (noise_std / steps + 0.4), 0.0).sum(axis=1)
    total = (crossed + k * normal_tv(resolution) + FACTOR_TV) * UP
    return np.where(noisy.any(axis=1), np.minimum(total, 1.0), 0.0)


def edge_loss(tv: FloatArray, pairs: NDArray[np.integer], epsilon: FloatArray, *, table: bool = False) -> float:
    """What is added to δ: the largest tv_X + e^ε tv_X' over both directions of all edges, ε one per edge; at most 1.

    From P ≤ P̂ + tv, P̂ ≤ e^ε P̂' + δ and P̂' ≤ P' + tv' on every event, hats for the ideal law. In a table each of the two
    worlds holds both labels' rows, and both are off by tv_X + tv_X'.
    """
    one, two = tv[pairs[:, 0]], tv[pairs[:, 1]]
    if table:
        one = two = one + two
    low, high = np.minimum(one, two), np.maximum(one, two)
    # e^ε on the larger of the two is the worse direction; beyond ε = 700 the product cannot be formed.
    grown = np.exp(np.minimum(epsilon, 700.0)) * high * UP
    grown = np.where((epsilon > 700.0) & (high > 0), 1.0, grown)
    return float(np.minimum((low + grown) * UP, 1.0).max(initial=0.0))
