"""Deterministic hard inputs: spectra, epsilons that put δ anywhere from 1 − 1e-12 to below 1e-300, Gaussian pairs.

NumPy only; neither the library nor the oracle is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DIMENSIONS = (1, 2, 3, 5, 12, 50, 100)
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
TARGETS = (-1e-12, -0.01, -1.0, -5.0, -30.0, -100.0, -400.0, -690.0)
EPS_MAX = 700.0
CONDITIONS: tuple[float | str, ...] = (1.0, 1e2, 1e4, 1e8, "near", "graded")


@dataclass(frozen=True)
class SpectrumCase:
    """One spectrum and the epsilons to try it at."""

    name: str
    gamma: Array
    nu: Array
    eps: list[float] = field(default_factory=list)


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


def rough_log_hockey(gamma: Array, nu: Array, eps: float, complement: bool = False) -> float:
    """Saddle-point estimate of ln δ, or of ln(1 − δ); good to a fraction of a nat, for choosing epsilons only."""
    b, q = gamma - 1.0, gamma * nu * nu
    sign = -1.0 if complement else 1.0
    high = 1.0 if complement else (1.0 / b.max() if b.max() > 0.0 else math.inf)

    def slope(t: float) -> float:
        u = 1.0 - t * b
        first = (-0.5 * np.log1p(b) + 0.5 * b / u + 0.5 * q * (1.0 + 2.0 * t - t * t * b) / (u * u)).sum()
        return float(first - eps - 1.0 / t - 1.0 / (t + 1.0))

    def place(z: float) -> float:
        return sign * (math.exp(z) if math.isinf(high) else high / (1.0 + math.exp(-z)))

    low_z, high_z = (-300.0, 300.0) if math.isinf(high) else (-300.0, 34.0)
    for _ in range(60):
        z = 0.5 * (low_z + high_z)
        if sign * slope(place(z)) < 0.0:
            low_z = z
        else:
            high_z = z
    t = place(0.5 * (low_z + high_z))
    u = 1.0 - t * b
    value = (-0.5 * t * np.log1p(b) - 0.5 * np.log(u) + 0.5 * t * (1.0 + t) * q / u).sum() - eps * t
    value -= math.log(abs(t * (t + 1.0)))
    second = (0.5 * (b / u) ** 2 + q * gamma / u**3).sum() + 1.0 / t**2 + 1.0 / (t + 1.0) ** 2
    return float(value - 0.5 * math.log(2.0 * math.pi * second))


def epsilons(gamma: Array, nu: Array, targets: tuple[float, ...] = TARGETS) -> list[float]:
    """Epsilons in [0, 700] with ln δ roughly at each target that is reachable there, increasing."""
    top = min(EPS_MAX, supremum(gamma, nu))
    found = []
    for target in targets:
        complement = target > -0.5
        level = math.log(-math.expm1(target)) if complement else target

        def gap(eps: float, complement: bool = complement, level: float = level) -> float:
            estimate = rough_log_hockey(gamma, nu, eps, complement)
            return estimate - level if complement else level - estimate

        with np.errstate(all="ignore"):
            low, high = 0.0, top
            if not gap(low) < 0.0:
                continue
            for _ in range(60):
                middle = 0.5 * (low + high)
                if gap(middle) < 0.0:
                    low = middle
                else:
                    high = middle
            if low < top * (1.0 - 1e-9):
                found.append(float(f"{low:.12g}"))
    return found


def spectrum_cases(dimensions: tuple[int, ...] = DIMENSIONS, kinds: tuple[str, ...] = KINDS) -> list[SpectrumCase]:
    """The grid. ε = 0 is always tried; a bounded loss also just below its supremum and beyond it, others at 700."""
    cases = []
    for k in dimensions:
        for kind in kinds:
            gamma, nu = spectrum_of_kind(kind, k)
            targets = TARGETS if k < 50 else TARGETS[:4] + TARGETS[5:6] + TARGETS[7:]
            eps = [0.0, *epsilons(gamma, nu, targets)]
            top = supremum(gamma, nu)
            if 0.0 < top < EPS_MAX:
                eps += [float(f"{top * (1.0 - 1e-6):.15g}"), float(f"{top * (1.0 + 1e-6):.15g}")]
            elif k in (2, 12):
                eps.append(EPS_MAX)
            cases.append(SpectrumCase(f"{kind}-{k}", gamma, nu, sorted(set(eps))))
    return cases


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
