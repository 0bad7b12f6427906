"""Deterministic hard inputs: spectra and Gaussian pairs.

NumPy only; neither the library nor the oracle is imported.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KINDS = (
    "mixed",
    "above_one",
    "below_one",
    "some_ones",
    "all_ones",
    "near_one_1e-6",
    "near_one_1e-10",
    "spread",
    "tiny_nu",
    "large_nu",
    "zero_nu",
)
CONDITIONS: tuple[float | str, ...] = (1.0, 1e2, 1e4, 1e8, "near", "graded")


def spectrum_of_kind(kind: str, k: int) -> tuple[Array, Array]:
    """A spectrum (γ, ν₀) of the kind named, always the same one."""
    rng = np.random.default_rng([2024, KINDS.index(kind), k])
    z = rng.standard_normal(k)
    gamma = np.exp(0.7 * z)
    nu = 1.5 * rng.standard_normal(k) / math.sqrt(k)
    if kind == "above_one":
        gamma = np.exp(np.abs(z) * 0.5 + 1e-3)
    elif kind == "below_one":
        gamma = np.exp(-np.abs(z) * 0.5 - 1e-3)
    elif kind == "some_ones":
        gamma[:: 2 if k > 1 else 1] = 1.0
    elif kind == "all_ones":
        gamma[:] = 1.0
    elif kind.startswith("near_one"):
        gamma = 1.0 + float(kind.rpartition("_")[2]) * z
    elif kind == "spread":
        gamma = 10.0 ** rng.uniform(-4.0, 4.0, k)
    elif kind == "tiny_nu":
        gamma = np.exp(0.3 * z)
        nu *= 1e-7
    elif kind == "large_nu":
        nu *= 12.0
    elif kind == "zero_nu":
        nu[:] = 0.0
    return gamma, nu


def supremum(gamma: Array, nu: Array) -> float:
    """Largest value of the privacy loss, inf when it is unbounded."""
    free = (gamma != 1.0) | (nu != 0.0)
    g, v = gamma[free], nu[free]
    if np.any(g >= 1.0):
        return math.inf
    return float(-0.5 * np.log(g).sum() + 0.5 * (g * v * v / (1.0 - g)).sum())


def random_rotation(rng: np.random.Generator, k: int) -> Array:
    q, r = np.linalg.qr(rng.standard_normal((k, k)))
    return np.asarray(q * np.sign(np.diag(r)), dtype=np.float64)


def gaussian_pairs(k: int, condition: float | str, seed: int) -> tuple[Array, Array, Array, Array]:
    """(mean_a, cov_a, mean_b, cov_b) of full rank, eigenvectors not aligned with the axes.

    `condition` is the condition number of cov_a, or "near" (cov_b equals cov_a up to 1e-9) or "graded" (axes scaled
    from 1e-6 to 1e6). With an even seed cov_b resembles cov_a, so that the spectrum is moderate however bad the
    condition; with an odd seed the two covariances have unrelated eigenvectors.
    """
    label = CONDITIONS.index(condition)
    rng = np.random.default_rng([77, k, label, seed])
    number = condition if isinstance(condition, float) else 1e2

    def half() -> Array:
        spread = number ** np.linspace(-0.5, 0.0, k) if k > 1 else np.ones(1)
        return np.asarray(random_rotation(rng, k) * rng.permutation(spread), dtype=np.float64)

    def near_identity() -> Array:
        return random_rotation(rng, k) * np.exp(0.35 * rng.standard_normal(k))

    half_a = half()
    if condition == "near":
        half_b = half_a @ (np.eye(k) + 1e-9 * rng.standard_normal((k, k)))
    elif seed % 2 == 0:
        half_b = half_a @ near_identity()
    else:
        half_b = half()
    shift = half_a @ (rng.standard_normal(k) * 1.5 / math.sqrt(k))
    if condition == "graded":
        axes = 10.0 ** np.linspace(-6.0, 6.0, k) if k > 1 else np.array([1e-6])
        half_a, half_b, shift = axes[:, None] * half_a, axes[:, None] * half_b, axes * shift
    # start near the size of the shift, so that the difference of the rounded means is still a fair shift
    mean_a = np.abs(shift).max() * rng.standard_normal(k) if condition != "graded" else shift * rng.standard_normal(k)
    cov_a, cov_b = half_a @ half_a.T, half_b @ half_b.T
    return mean_a, 0.5 * (cov_a + cov_a.T), mean_a + shift, 0.5 * (cov_b + cov_b.T)
