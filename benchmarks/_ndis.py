"""δ of two normal laws as in "The Normal Distributions Indistinguishability Spectrum" (Wei, Lu, Magdon-Ismail & Zikas).

arXiv 2309.01243 and its authors' published code. With z ~ N(0, I) the privacy loss of P = N(μ₁, Σ₁) against
Q = N(μ₂, Σ₂) is −q(z), q(z) = Σ (½ aᵢ zᵢ² + bᵢ zᵢ) + c, aᵢ < 1 the eigenvalues of I − Σ₁^½ Σ₂⁻¹ Σ₁^½, and

    δ(ε) = P(q < −ε) − e^ε Q(q < −ε) = E[(1 − e^{q(z) + ε})₊]:

two values of generalized chi-square distribution functions (``by_tails``), or one mean, which the authors estimate by
plain sampling (``by_sampling``) or, one direction integrated in closed form, by scrambled Sobol points (``by_sobol``).
Written anew from these formulas, in arrays; it shares no code with shoal.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh, sqrtm
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

Array = Any


@dataclass(frozen=True)
class Quadratic:
    """q of a pair, and the second law in the same coordinates: independent entries with these means and variances."""

    a: Array
    b: Array
    c: float
    mean: Array
    var: Array


def quadratic(mean_1: Array, cov_1: Array, mean_2: Array, cov_2: Array) -> Quadratic:
    root = np.real(sqrtm(np.asarray(cov_1, dtype=float)))
    inverse = np.linalg.inv(cov_2)
    gap = np.asarray(mean_1, dtype=float) - mean_2
    a, vectors = eigh(np.eye(len(root)) - root @ inverse @ root)
    b = -vectors.T @ root @ inverse @ gap
    dets = np.linalg.slogdet(cov_1)[1] - np.linalg.slogdet(cov_2)[1]
    mean = -vectors.T @ np.linalg.solve(root, gap)
    return Quadratic(a, b, 0.5 * float(dets - gap @ inverse @ gap), mean, 1.0 / (1.0 - a))


def joined(one: Quadratic, other: Quadratic) -> Quadratic:
    """q of two independent answers: of the rows of two labels, one in each direction."""
    parts = [np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("a", "b", "mean", "var")]
    return Quadratic(parts[0], parts[1], one.c + other.c, parts[2], parts[3])


def by_tails(q: Quadratic, epsilon: float, method: str) -> float:
    """P(q < −ε) − e^ε Q(q < −ε), each tail from the package gx2 by one of its methods."""
    import gx2

    loss = {"q2": -0.5 * np.diag(q.a), "q1": -q.b, "q0": -q.c}
    tails = []
    for mean, var in ((np.zeros_like(q.a), np.ones_like(q.a)), (q.mean, q.var)):
        w, k, l, s, m = gx2.norm_quad_to_gx2_params(mean, np.diag(var), loss)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a tail is below what Imhof's integral can tell from nothing
            tail = float(np.squeeze(gx2.cdf(epsilon, w, k, l, s, m, side="upper", method=method)))
        tails.append(10.0**tail if tail < 0 and method in ("ray", "tail") else tail)
    return tails[0] - math.exp(epsilon) * tails[1]


def by_sampling(q: Quadratic, epsilon: float, draws: int, seed: int = 0) -> tuple[float, float]:
    """The mean over draws of z, and its standard error."""
    rng = np.random.default_rng(seed)
    total, square, left = 0.0, 0.0, draws
    while left > 0:
        z = rng.standard_normal((min(left, 100_000), len(q.a)))
        gain = np.maximum(-np.expm1(np.minimum(z**2 @ (0.5 * q.a) + z @ q.b + q.c + epsilon, 0.0)), 0.0)
        total, square, left = total + gain.sum(), square + (gain**2).sum(), left - len(z)
    mean = total / draws
    return float(mean), math.sqrt(max(square / draws - mean**2, 0.0) / draws)


def gain(a: float, b: float, c: Array) -> Array:
    """E[(1 − e^{½az² + bz + c})₊] over one standard normal z, a < 1, for an array of c."""
    c = np.asarray(c, dtype=float)
    scale, middle = math.sqrt(1.0 - a), b / (1.0 - a)

    def below(x: Array) -> tuple[Array, Array]:
        return ndtr(x), ndtr(scale * (x - middle))

    if a == 0.0 and b == 0.0:
        return np.maximum(-np.expm1(c), 0.0)
    if a == 0.0:
        first, second = below(-c / b) if b > 0 else tuple(1.0 - one for one in below(-c / b))
    else:
        d = b * b - 2.0 * a * c
        root = np.sqrt(np.maximum(d, 0.0))
        low, high = np.minimum((-b - root) / a, (-b + root) / a), np.maximum((-b - root) / a, (-b + root) / a)
        inside = [np.where(d > 0, up - down, 0.0) for up, down in zip(below(high), below(low), strict=True)]
        first, second = inside if a > 0 else [1.0 - one for one in inside]
    return np.clip(first - np.exp(c + 0.5 * b * b / (1.0 - a)) / scale * second, 0.0, 1.0)


def by_sobol(q: Quadratic, epsilon: float, points: int, scrambles: int = 8, seed: int = 0) -> tuple[float, float]:
    """The direction with the largest |a| in closed form, the rest by Sobol points: mean and its standard error."""
    inner = int(np.lexsort((np.abs(q.b), np.abs(q.a)))[-1])
    a, b = np.delete(q.a, inner), np.delete(q.b, inner)
    if not len(a):
        return float(gain(float(q.a[0]), float(q.b[0]), q.c + epsilon)), 0.0
    means = []
    for scramble in range(scrambles):
        u = qmc.Sobol(len(a), scramble=True, rng=np.random.default_rng((seed, scramble))).random(points)
        z = ndtri(np.clip(u, 1e-15, 1 - 1e-15))
        means.append(float(gain(float(q.a[inner]), float(q.b[inner]), q.c + epsilon + z**2 @ (0.5 * a) + z @ b).mean()))
    return float(np.mean(means)), float(np.std(means, ddof=1) / math.sqrt(scrambles))
