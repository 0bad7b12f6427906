"""Families of laws that several tests start from, and closed forms that need no library."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

import shoal

Array = NDArray[np.float64]


def random_laws(n: int, k: int, seed: int, gap: float = 1.0) -> tuple[Array, Array]:
    """Means and well-conditioned, unrelated covariances."""
    rng = np.random.default_rng([n, k, seed])
    factors = rng.standard_normal((n, k, 3 * k))
    return gap * rng.standard_normal((n, k)), factors @ factors.transpose(0, 2, 1) / (3 * k)


def random_family(n: int, k: int, seed: int = 0, gap: float = 1.0) -> shoal.GaussianClasses:
    return shoal.GaussianClasses(*random_laws(n, k, seed, gap))


def complete(classes: shoal.GaussianClasses) -> shoal.NeighborGraph:
    return shoal.NeighborGraph.complete(classes.labels)


def equal_covariance_delta(length: float, epsilon: float, notion: str = "dp") -> float:
    """Closed forms for N(0, I) against N(ν₀, I), ‖ν₀‖ = length, where double precision bears them."""
    up, down = length / 2 - epsilon / length, -length / 2 - epsilon / length
    if notion == "dp":
        return float(ndtr(up) - math.exp(epsilon + log_ndtr(down)))
    return float(ndtr(up)) if notion == "pdp" else float(ndtr(up) + ndtr(down))


def loss_cdf_1d(mean: float, var: float, mean_b: float, var_b: float, x: Array) -> Array:
    """Pr(L ≤ x) for two laws on the line: L is a quadratic in ξ, so its roots and Φ give it."""
    gamma, nu = var / var_b, (mean_b - mean) / math.sqrt(var)
    a, b, c = 0.5 * (gamma - 1), -nu * gamma, 0.5 * gamma * nu * nu - 0.5 * math.log(gamma) - np.asarray(x, dtype=float)
    if a == 0:
        return np.asarray(ndtr((x - 0.5 * nu * nu) / abs(nu)))
    disc = b * b - 4 * a * c
    root = np.sqrt(np.maximum(disc, 0))
    between = ndtr((-b + root) / (2 * abs(a)) * 1.0) - ndtr((-b - root) / (2 * abs(a)) * 1.0)
    if a < 0:
        # In units of −a the roots are those of −ξ: symmetric, so the same interval with b turned around.
        between = ndtr((b + root) / (2 * abs(a))) - ndtr((b - root) / (2 * abs(a)))
        return np.asarray(np.where(disc > 0, 1 - between, 1.0))
    return np.asarray(np.where(disc > 0, between, 0.0))


def loss_samples(classes: shoal.GaussianClasses, a: int, b: int, n: int, seed: int) -> Array:
    """Draws of L under label a, from densities alone."""
    rng = np.random.default_rng(seed)
    covs, means = classes.covs, classes.means
    q = means[a] + rng.standard_normal((n, classes.n_dims)) @ np.linalg.cholesky(covs[a]).T

    def log_density(i: int) -> Array:
        z = np.linalg.solve(np.linalg.cholesky(covs[i]), (q - means[i]).T)
        return np.asarray(-0.5 * (z**2).sum(axis=0) - 0.5 * np.linalg.slogdet(covs[i])[1])

    return log_density(a) - log_density(b)


def clustered(seed: int) -> Array:
    """A symmetric matrix of 26 to 40 rows whose eigenvalues lie in clusters 1e-12 to 1e-9 wide.

    These are the whitened differences for which divide and conquer fails, or returns eigenvectors that are orthogonal
    to a few digits less than rounding allows; seeds were chosen where it does.
    """
    rng = np.random.default_rng(seed)
    k = int(rng.integers(26, 41))
    turn, _ = np.linalg.qr(rng.standard_normal((k, k)))
    levels = np.array([0, 1e-9, -1e-9, 1e-12, -1e-12, 0.05, 0.05 + 1e-11, -0.04, -0.04 + 1e-10])
    matrix = (turn * rng.choice(levels, k)) @ turn.T
    return np.asarray((np.eye(k) + 0.5 * (matrix + matrix.T)) - np.eye(k))
